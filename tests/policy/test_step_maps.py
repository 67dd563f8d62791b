"""Maps of a step of tensors that need each other: those that share their loops load and store less, and compute the same."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show

NARROW = Machine(target="cpu", vector_bytes=16, vector_registers=16, threads=1)
FLUXES = """
    u[0, i] = x[i]
    s[t, i] = u[t, i + 1 | wrap] - u[t, i - 1 | wrap]                 for t in 0..5, i in 0..N
    l[t, i] = u[t, i] + s[t, i]                                       for t in 0..5, i in 0..N
    r[t, i] = u[t, i + 1 | wrap] - s[t, i + 1 | wrap]                 for t in 0..5, i in 0..N
    q[t, i] = l[t, i] * r[t, i] - max(l[t, i], r[t, i])               for t in 0..5, i in 0..N
    u[t + 1, i] = u[t, i] - (q[t, i] - q[t, i - 1 | wrap])            for t in 0..5, i in 0..N
    y[i] = u[5, i]"""
INFECTIONS = """
    s[0, g] = x[g]
    q[0, g] = x[g] * 2
    l[t, g] = sum(h) c[g, h] * q[t, h]                                for t in 0..5, g in 0..N
    s[t + 1, g] = s[t, g] - s[t, g] * l[t, g]                         for t in 0..5, g in 0..N
    q[t + 1, g] = q[t, g] + s[t, g] * l[t, g]                         for t in 0..5, g in 0..N
    y[g] = q[5, g]"""
GRIDS = """
    u[0, i, j] = x[i, j]
    v[0, i, j] = x[j, i]
    f[t, i, j] = u[t, i - 1, j | 0] + u[t, i, j + 1 | 0]              for t in 0..4, i in 0..N, j in 0..N
    g[t, i, j] = u[t, i, j] * f[t, i, j] - v[t, i, j]                 for t in 0..4, i in 0..N, j in 0..N
    u[t + 1, i, j] = u[t, i, j] + g[t, i, j]                          for t in 0..4, i in 0..N, j in 0..N
    v[t + 1, i, j] = v[t, i + 1, j | 0] - g[t, i, j]                  for t in 0..4, i in 0..N, j in 0..N
    y[i, j] = u[4, i, j] + v[4, i, j]"""

BANKS = """
    h[0, i] = x[i]
    m[0, i] = x[i] - 1
    h[t + 1, i] = h[t, i - 1] + m[t, i + 1]                           for t in 0..4, i in 1..N - 1
    m[t + 1, i] = m[t, i - 1] - h[t, i + 1]                           for t in 0..4, i in 1..N - 1
    h[t + 1, i] = h[t, max(1, i - 1)]                                 otherwise
    m[t + 1, i] = -m[t, max(1, i - 1)]                                otherwise
    y[i] = h[4, i] + m[4, i]"""
REFLECTIONS = """
    f[0, i] = x[i]
    b[0, i] = x[i]
    k[m] = sum(i in 0..N, i > m) f[m, i] * b[m, i - 1 | 0]            for m in 0..5
    f[m + 1, i] = f[m, i] + k[m] * b[m, i - 1 | 0]                    for m in 0..5, i in 0..N, i > m
    b[m + 1, i] = b[m, i - 1 | 0] + k[m] * f[m, i]                    for m in 0..5, i in 0..N, i > m
    f[m + 1, i] = 0                                                   otherwise
    b[m + 1, i] = 0                                                   otherwise
    y[i] = f[5, i] - b[5, i]"""


@pytest.mark.parametrize(
    ("params", "result", "body", "loops"),
    [
        ("x: i32[N]", "y: i32[N]", FLUXES, ["together l, r, q -> i"]),
        ("x: i32[N], c: i32[N, N]", "y: i32[N]", INFECTIONS, ["together s, q -> g"]),
        ("x: i32[N, N]", "y: i32[N, N]", GRIDS, ["together f, g -> i, j"]),
        ("x: i32[N]", "y: i32[N]", BANKS, ["together h, m -> i"]),
        ("x: i32[N]", "y: i32[N]", REFLECTIONS, ["together f, b -> i"]),
    ],
    ids=["along one axis", "beside a sum", "along two axes", "with edges", "of fewer points in each step"],
)
def test_maps_that_read_each_other_at_their_own_points_share_their_loops(params: str, result: str, body: str, loops: list[str]) -> None:
    sizes = {"N": 21}
    program = operator(f"{params}) -> ({result})", body, sizes)
    found = derive(program, NARROW)
    assert [show(d) for d in found.directives if d.name == "together"] == loops
    assert_same(program, proven(program, found), sizes)


def test_what_reads_neighbours_of_its_step_keeps_loops_of_its_own() -> None:
    body = FLUXES.replace("l[t, i] * r[t, i] - max(l[t, i], r[t, i])", "l[t, i - 1 | wrap] * r[t, i + 2 | wrap]")
    found = derive(operator("x: i32[N]) -> (y: i32[N])", body, {"N": 21}), NARROW)
    assert [show(d) for d in found.directives if d.name == "together"] == ["together s, l -> i"]


def test_fields_whose_points_take_turns_keep_loops_of_their_own() -> None:
    body = BANKS.replace("i in 1..N - 1", "i in 1..N - 1, (i + t) % 2 == 1")
    found = derive(operator("x: i32[N]) -> (y: i32[N])", body, {"N": 21}), NARROW)
    assert not any(d.name == "together" and "->" in show(d) for d in found.directives)


def test_a_recurrence_within_a_step_keeps_loops_of_its_own() -> None:
    body = """
    u[0, i] = x[i]
    e[t, i] = max(e[t, i - 1 | 0] - 1, u[t, i])                       for t in 0..5, i in 0..N
    g[t, i] = e[t, i] + u[t, i]                                       for t in 0..5, i in 0..N
    u[t + 1, i] = g[t, i] - e[t, i - 1 | 0]                           for t in 0..5, i in 0..N
    y[i] = u[5, i]"""
    program = operator("x: i32[N]) -> (y: i32[N])", body, {"N": 21})
    found = derive(program, NARROW)
    assert [show(d) for d in found.directives if d.name == "together"] == ["together g, u -> i"]
    assert_same(program, proven(program, found), {"N": 21})


def test_a_table_and_a_row_of_a_step_keep_loops_of_their_own() -> None:
    body = """
    u[0, i, j] = x[i] - i32(j)                                        for i in 0..1, j in 0..1
    v[0, i] = x[0]                                                    for i in 0..5
    w[0, i] = x[0]                                                    for i in 0..1
    u[t + 1, i, j] = w[t, 0] + x[t]                                   for t in 0..N, i in 0..1, j in 0..1
    v[t + 1, i] = w[t, 0] - (sum(k in 0..1) w[t, k] * x[k]) - u[t + 1, 0, 0] - v[t, (i + 1) % 5]   for t in 0..N, i in 0..5
    w[t + 1, i] = x[t] + u[t, i, i]                                   for t in 0..N, i in 0..1
    y[i] = v[N, i]"""
    program = operator("x: i32[N]) -> (y: i32[5]) where N >= 1", body)
    assert_same(program, proven(program, derive(program, NARROW)), {"N": 5})


@pytest.mark.parametrize(
    ("other", "together"),
    [("i > m) f[m, i] * f[m, i]", True), ("i >= m) f[m, i] * f[m, i]", False), ("i > m) max(k[m], f[m, i])", False)],
    ids=["alike", "over another range", "of what the first has come to"],
)
def test_sums_of_a_step_over_one_range_that_read_some_of_the_same_share_their_loop(other: str, together: bool) -> None:
    body = REFLECTIONS.replace("k[m] * ", "(k[m] + e[m]) * ") + f"\n    e[m] = sum(i in 0..N, {other}  for m in 0..5"
    program = operator("x: i32[N]) -> (y: i32[N])", body, {"N": 37})
    found = derive(program, NARROW)
    assert any(show(d).startswith("together k, e ->") for d in found.directives) == together
    assert_same(program, proven(program, found), {"N": 37})
