"""Pieces of local tensors that nobody reads are left out, whichever loops the tensor has."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show

MACHINE = Machine(target="cpu", threads=1)
TRIANGLE = """
    m[i, j] = x[i] - x[j]                                 for i in 0..N, j in 0..i + 1
    m[i, j] = 7 otherwise"""
LATTICE = """
    v[0, j] = x[j]                                        for j in 0..N
    v[t, j] = v[t - 1, j] + 2 * v[t - 1, j + 1]           for t in 1..N, j in 0..N - t
    v[t, j] = 7 otherwise"""
PROGRAMS = {
    "a triangle": (TRIANGLE, "y[i] = sum(j in 0..i + 1) m[i, j]", True),
    "all of it": (TRIANGLE, "y[i] = sum(j in 0..N) m[i, j]", False),
    "steps that grow shorter": (LATTICE, "y[i] = v[i, 0]", True),
    "an element beside them": (LATTICE, "y[i] = v[i, 0] + v[N - 1, N - 1]", False),
}


@pytest.mark.parametrize(("made", "read", "is_trimmed"), PROGRAMS.values(), ids=PROGRAMS)
def test_pieces_that_nobody_reads_are_left_out(made: str, read: str, is_trimmed: bool) -> None:
    program = operator("x: i32[N]) -> (y: i32[N])", f"{made}\n    {read}", {"N": 6})
    schedule = derive(program, MACHINE)
    assert any(show(x).startswith("trim ") for x in schedule.directives) == is_trimmed
    assert_same(program, proven(program, schedule), {})


def test_what_is_left_out_is_written_over_nothing_so_that_steps_change_a_matrix_in_place() -> None:
    body = """
    s[0, i, j]     = a[i, j]                                             for i in 0..N, j in 0..N
    s[k + 1, i, j] = s[k, i, j] - s[k, i, k] * s[k, j, k] / s[k, k, k]   for k in 0..N, i in k + 1..N, j in k + 1..i + 1
    s[k + 1, i, j] = 0 otherwise
    l[i, j]        = s[j, i, j]                                          for j <= i
    l[i, j]        = 0 otherwise"""
    program = operator("a: f64[N, N]) -> (l: f64[N, N])", body, {"N": 6})
    schedule = derive(program, MACHINE)
    assert {"trim s.k", "fold s at k by 1"} <= {*map(show, schedule.directives)}
    assert_same(program, proven(program, schedule), {})


def test_what_is_needed_of_a_table_of_parses_is_found_though_its_sums_are_over_several_indices() -> None:
    body = """
    t[l, i, s] = leaf[s, i]   for l in 0..1, i in 0..7, s in 0..3
    t[l, i, s] = max(m in 0..l, b in 0..3, c in 0..3) (rule[s, b, c] + t[m, i, b] + t[l - m - 1, i + m + 1, c])
                 for l in 1..7, i in 0..7-l, s in 0..3
    t[l, i, s] = 0            otherwise
    best[s]    = t[6, 0, s]"""
    program = operator("leaf: f32[3, 7], rule: f32[3, 3, 3]) -> (best: f32[3])", body)
    schedule = derive(program, MACHINE)
    assert "trim t.l" in [show(d) for d in schedule.directives]
    assert_same(program, proven(program, schedule), {})
