"""Sums that are one element of a row of a recurrence, beside maps that are the rest of it."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show

WIDE = Machine(target="cpu", vector_bytes=64, vector_registers=32, threads=1)
FIRST = """
    t[0, j] = c[0, j]
    t[i, 0] = max(k in 0..N) (t[i - 1, k] - c[i, k])                            for i in 1..N
    t[i, j] = max(t[i - 1, j], t[i - 1, j - 1]) + c[i, j]                       for i in 1..N, j in 1..N"""
DIAGONAL = """
    t[0, j] = c[0, j]
    t[i, j] = t[i - 1, j] + c[i, j]                                             for i in 1..N, j in 0..i
    t[i, i] = sum(k in 0..N, k < i) t[i - 1, k] * c[k, i]                       for i in 1..N
    t[i, j] = t[i - 1, j]                                                       otherwise"""
LAST = """
    t[0, j]     = c[0, j]
    t[i, j]     = t[i - 1, j + 1] + c[i, j]                                     for i in 1..N, j in 0..N - 1
    t[i, N - 1] = sum(k in 0..N - 1) t[i, k]                                    for i in 1..N"""


@pytest.mark.parametrize(("body", "number"), [(FIRST, 1), (DIAGONAL, 2), (LAST, 2)], ids=["first", "on the diagonal", "of its own row"])
@pytest.mark.parametrize("size", [1, 2, 35])
def test_a_sum_of_one_element_of_a_row_runs_in_lanes_of_its_own(body: str, number: int, size: int) -> None:
    program = operator("c: i32[N, N]) -> (t: i32[N, N]) where N >= 1", body, {"N": size})
    found = derive(program, WIDE)
    assert size < 16 or f"-> j_{number}" in "\n".join(map(show, found.directives))
    assert size < 16 or {"vectorize t.k_v", "vectorize t.j_v"} <= {*map(show, found.directives)}
    assert_same(program, proven(program, found), {"N": size})


@pytest.mark.parametrize(("rows", "terms"), [(4, 7), (20, 40)])
def test_rows_of_nothing_but_sums_have_no_others_that_these_run_beside(rows: int, terms: int) -> None:
    body = """
    y[k, 0] = sum(n) (a[k, n, 0] * b[n, 0] - a[k, n, 1] * b[n, 1])
    y[k, 1] = sum(n) (a[k, n, 0] * b[n, 1] + a[k, n, 1] * b[n, 0])"""
    program = operator(f"a: i32[{rows}, {terms}, 2], b: i32[{terms}, 2]) -> (y: i32[{rows}, 2])", body)
    assert_same(program, proven(program, derive(program, WIDE)), {})
