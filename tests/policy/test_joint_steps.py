"""Recurrences of which others read each step run together, in vectors of points that do not need each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from scheduled_programs import assert_same, loops, operator

from codegen.loops.nodes import Alloc
from codegen.loops.walk import walk
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

MACHINE = Machine(target="cpu", threads=1)
FAR = replace(MACHINE, l1_bytes=0)
"""No cache is near enough for states."""


def directives(program: Program, machine: Machine = MACHINE, at: Mapping[str, int] | None = None) -> list[str]:
    return [show(d) for d in derive(program, machine, at=at).directives]


CHAIN = """
    s[0, i]     = x[i]
    s[t + 1, i] = 3 * s[t, i] - u[t, i]                   for t in 0..T, i in 0..N
    a[0, i]     = i32(0)
    a[t + 1, i] = a[t, i] + s[t, i] * u[t, i]             for t in 0..T, i in 0..N
    y[i]        = a[T, i]"""
SIGNATURE = "x: i32[N], u: i32[T, N]) -> (y: i32[N])"


def test_a_recurrence_that_reads_another_runs_in_its_loops_and_neither_is_kept() -> None:
    program = operator(SIGNATURE, CHAIN, {"N": 20_000, "T": 3})
    derived = directives(program)
    assert {"shift a.t by -1", "together s, a, y -> i", "together s, a -> t", "fold s at t by 1", "fold a at t by 1"} <= {*derived}
    assert "order s.i_o, s.t, s.i_v" in derived
    buffers = [s.buffer for s in walk(*loops(proven(program, derive(program, MACHINE))).body) if isinstance(s, Alloc)]
    assert {b.space for b in buffers} <= {"stack", "registers"}


def test_the_way_back_runs_by_itself_and_no_recurrence_ahead_of_one_whose_steps_are_kept_for_it() -> None:
    body = """
    p[0, i] = u[0, i]
    q[0, i] = x[i]
    p[t, i] = u[t, i] / (4 - u[t, i] * p[t - 1, i])               for t in 1..T, i in 0..N
    q[t, i] = (x[i] - q[t - 1, i]) / (4 - u[t, i] * p[t - 1, i])  for t in 1..T, i in 0..N
    z[T - 1, i] = q[T - 1, i]
    z[t, i] = q[t, i] - p[t, i] * z[t + 1, i]                     for t in 0..T-1, i in 0..N"""
    program = operator("x: f32[N], u: f32[T, N]) -> (z: f32[T, N])", body, {"N": 70, "T": 5})
    derived = directives(program)
    assert {"together p, q -> t, i", "reverse z.t"} <= {*derived} and not any(d.startswith("shift") for d in derived)
    assert_same(program, proven(program, derive(program, MACHINE)), {})


@pytest.mark.parametrize(
    ("step", "outside"), [("3 * s[t, i]", True), ("s[t, i] // 3", False)], ids=["they do not wait", "they wait for themselves"]
)
def test_points_go_through_their_steps_in_registers_unless_states_are_near_and_points_wait_for_themselves(step: str, outside: bool) -> None:
    program = operator(SIGNATURE, CHAIN.replace("3 * s[t, i]", step), {"N": 16, "T": 50})
    derived = directives(program)
    assert ("order s.i_o, s.t, s.i_v" in derived) == outside
    assert ({"together s, a -> t, i", "order s.t, s.i_o, s.i_v", "fold s at t by 1"} <= {*derived}) != outside
    assert_same(program, proven(program, derive(program, MACHINE)), {})


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("n", [16, 70])
def test_steps_of_any_number_are_those_of_the_equations(n: int, steps: int) -> None:
    program = operator(SIGNATURE, CHAIN, {"N": n, "T": steps})
    assert_same(program, proven(program, derive(program, FAR)), {})


@pytest.mark.parametrize(("n", "steps"), [(0, 0), (1, 3), (37, 0), (37, 4)])
def test_joint_steps_are_proven_for_all_sizes(n: int, steps: int) -> None:
    program = operator(SIGNATURE, CHAIN)
    assert_same(program, proven(program, derive(program, FAR)), {"N": n, "T": steps})


def test_recurrences_that_do_not_read_each_other_run_together_where_another_reads_both() -> None:
    body = """
    a[0, i]     = x[i]
    a[t + 1, i] = 3 * a[t, i] + u[t, i]                   for t in 0..T, i in 0..N
    b[0, i]     = 2 * x[i]
    b[t + 1, i] = b[t, i] - u[t, i]                       for t in 0..T, i in 0..N
    y[0, i]     = i32(0)
    y[t + 1, i] = y[t, i] + a[t + 1, i] * b[t + 1, i]     for t in 0..T, i in 0..N"""
    program = operator("x: i32[N], u: i32[T, N]) -> (y: i32[T + 1, N])", body, {"N": 37, "T": 4})
    assert {"together a, b, y -> i", "together a, b, y -> t", "fold a at t by 1", "fold b at t by 1"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_sums_over_all_steps_are_added_up_as_these_are_made() -> None:
    body = """
    s[0, i]     = x[i]
    z[0, i]     = 2 * x[i]
    s[t + 1, i] = s[t, i] * s[t, i] - z[t, i]             for t in 0..4, i in 0..N
    z[t + 1, i] = s[t, i] * z[t, i] + x[i]                for t in 0..4, i in 0..N
    y[i]        = sum(t in 0..5) (s[t, i] + z[t, i])"""
    program = operator("x: i32[N]) -> (y: i32[N])", body, {"N": 70})
    assert {"together s, y -> i", "together s, y -> t"} <= {*directives(program, FAR)}
    assert_same(program, proven(program, derive(program, FAR)), {})


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        pytest.param(
            "x: i32[N]) -> (y: i32[N], z: i32[N], m: i32[N])",
            "s[0, i] = x[i]\n s[t + 1, i] = 2 * s[t, i] + 1 for t in 0..4, i in 0..N\n y[i] = s[4, i]\n z[i] = sum(t in 0..5) s[t, i]\n"
            " m[i] = max(t in 0..5) (s[t, i] - y[i])",
            id="sums beside last steps",
        ),
        pytest.param(
            "x: i32[N]) -> (y: i32[N])",
            "s[0, i] = x[i]\n s[t + 1, i] = s[t, i] + s[t, i + 1 | clamp] for t in 0..4, i in 0..N\n y[i] = s[4, i]",
            id="neighbours",
        ),
        pytest.param(
            "x: i32[N]) -> (y: i32[N])",
            "s[0, i] = x[i]\n s[t + 1, i] = 2 * s[t, i] + 1 for t in 0..4, i in 0..N\n m = max(i) s[4, i]\n y[i] = s[4, i] - m",
            id="a sum over points in between",
        ),
        pytest.param(
            "x: i32[N]) -> (s: i32[5, N])",
            "s[0, i] = x[i]\n s[t + 1, i] = 2 * s[t, i] + 1 for t in 0..4, i in 0..N",
            id="a result",
        ),
        pytest.param(
            "x: i32[N]) -> (y: i32[N])",
            "s[4, i] = x[i]\n s[t, i] = 2 * s[t + 1, i] + 1 for t in 0..4, i in 0..N\n y[i] = s[0, i]",
            id="backwards",
        ),
    ],
)
def test_recurrences_of_every_kind_are_those_of_the_equations(signature: str, body: str) -> None:
    program = operator(signature, body, {"N": 37})
    assert_same(program, proven(program, derive(program, FAR)), {})


AXES = {"last": "b, k, {}", "between": "b, {}, k"}


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
def test_steps_are_whichever_axis_the_recurrence_goes_along(axes: str) -> None:
    first, last, t, following = map(axes.format, ("0", "T", "t", "t + 1"))
    body = f"""
    h[{first}]     = i32(0)                                 for b in 0..B, k in 0..N
    h[{following}] = h[{t}] * w[k] + x[b, t]                for b in 0..B, k in 0..N, t in 0..T
    g[{first}]     = w[k]                                   for b in 0..B, k in 0..N
    g[{following}] = g[{t}] + h[{t}]                        for b in 0..B, k in 0..N, t in 0..T
    y[b, k]        = g[{last}]"""
    signature = "x: i32[B, T], w: i32[N]) -> (y: i32[B, N])"
    program = operator(signature, body, {"B": 2, "N": 37, "T": 4})
    assert {"fold h at t by 1", "fold g at t by 1", "vectorize h.k_v"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, MACHINE)), {})
    program = operator(signature, body)
    plan = proven(program, derive(program, MACHINE))
    for b, n, t in ((0, 1, 3), (2, 0, 1), (1, 19, 0), (3, 16, 5)):
        assert_same(program, plan, {"B": b, "N": n, "T": t})


@pytest.mark.parametrize("reducer", ["sum(t)", "max(t, from 3)"])
def test_points_whose_steps_lie_beside_each_other_in_memory_are_written_out(reducer: str) -> None:
    body = f"""
    c[a, t] = c[a, t - 1 | 0] + r[a, t]
    p[a, t] = max(p[a, t - 1 | 0], c[a, t])
    y[a]    = {reducer} (p[a, t] - c[a, t])"""
    signature = "r: i32[N, T]) -> (y: i32[N])"
    program = operator(signature, body, {"N": 9, "T": 5})
    assert {"together c, p, y -> a", "unroll c.a_t", "fold c at t by 1", "fold p at t by 1"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, MACHINE)), {})
    program = operator(signature, body)
    plan = proven(program, derive(program, MACHINE))
    for n, t in ((0, 3), (1, 0), (7, 1), (8, 4)):
        assert_same(program, plan, {"N": n, "T": t})


def test_points_whose_steps_lie_beside_each_other_are_lanes_where_computing_takes_longer_than_loading_them_one_by_one() -> None:
    body = """
    g[a, t] = 0.5 * g[a, t - 1 | 0] + r[a, t]
    h[a, t] = 0.25 * h[a, t - 1 | 0] - r[a, t]
    y[a, t] = g[a, t] / (2 + h[a, t] * h[a, t])"""
    signature = "r: f64[N, T]) -> (y: f64[N, T])"
    program = operator(signature, body, {"N": 21, "T": 4})
    assert {"together g, h, y -> t", "vectorize g.a_v", "fold g at t by 1", "fold h at t by 1"} <= {*directives(program)}
    assert_same(program, proven(program, derive(program, MACHINE)), {})
    apart = operator(signature, body, {"N": 21, "T": 512})  # lines of rows of 4 KB share sets, and 16 of them fill the cache
    assert "unroll g.a_t" in directives(apart, replace(MACHINE, l1_bytes=32 << 10))


@pytest.mark.parametrize(("body", "are_lanes"), [("c[i, t] - x[i, t]", False), ("exp(c[i, t]) / x[i, t]", True)])
def test_points_of_open_rows_are_lanes_where_these_take_far_less_since_rows_may_lie_a_power_of_two_apart(
    body: str, are_lanes: bool
) -> None:
    program = operator("x: f32[M, N]) -> (y: f32[M, N])", f"c[i, t] = c[i, t - 1 | 0] + x[i, t]\n y[i, t] = {body}")
    found = directives(program, MACHINE, at={"M": 300, "N": 200})
    assert ("vectorize c.i_v" in found, "unroll c.i_t" in found) == (are_lanes, not are_lanes)


LINES = """
    a[i] = x[i] + (a[i - 1 | 0])
    b[i] = a[i] + 2 * (b[i - 1 | 0])          for i in 0..N
    c[i] = 3 * b[i] - x[i]                    for i in 0..N
    d[i] = c[i] - (d[i - 1 | 0]) + (a[i - 2 | 0])   for i in 0..N
    e[i] = d[i] + (e[i + 1 | 0])              for i in 0..N
    y[i] = e[i] * d[i]
    z    = sum(i) b[i]"""


@pytest.mark.parametrize("n", [1, 2, 37])
def test_recurrences_along_their_only_axis_run_in_one_loop_with_the_maps_between_as_far_as_they_go_one_way(n: int) -> None:
    program = operator("x: i64[N]) -> (y: i64[N], z: i64)", LINES, {"N": n})
    plan = proven(program, derive(program, MACHINE))
    assert_same(program, plan, {})
    assert n < 37 or "together a, b, c, d -> i" in directives(program)


def test_recurrences_do_not_share_a_loop_with_one_that_asks_for_other_steps_than_those_around() -> None:
    body = """
    a[i] = x[i] + (a[i - 1 | 0])
    b[i] = a[N - 1 - i] + (b[i - 1 | 0])      for i in 0..N"""
    assert not any("together" in s for s in directives(operator("x: i64[N]) -> (b: i64[N])", body, {"N": 37})))


ALONE = """
    a[i] = min(x[i] + (a[i - 1 | 0]), 9)
    b[i] = 2 * x[i] - (b[i - 1 | 0])          for i in 0..N
    c[i] = max(x[i], (c[i + 1 | 0]))          for i in 0..N"""


@pytest.mark.parametrize("n", [1, 2, 37])
def test_recurrences_that_need_nothing_of_each_other_wait_together_where_they_go_one_way(n: int) -> None:
    program = operator("x: i32[N]) -> (a: i32[N], b: i32[N], c: i32[N])", ALONE, {"N": n})
    assert_same(program, proven(program, derive(program, MACHINE)), {})
    assert n < 37 or [d for d in directives(program) if "together" in d] == ["together a, b -> i"]


def test_terms_of_recurrences_that_wait_together_stay_where_they_are() -> None:
    body = """
    s[i] = (s[i - 1 | 0]) + 3 * (r[i - 1 | 0]) + x[i]   for i in 0..N
    r[i] = (r[i - 1 | 0]) - x[i]                        for i in 0..N"""
    found = directives(operator("x: i32[N]) -> (s: i32[N], r: i32[N])", body, {"N": 4000}))
    assert [d for d in found if "lift" in d or "together" in d] == ["together r, s -> i"]


@pytest.mark.parametrize(("read", "lag"), [("s[k + 1, i]", 1), ("s[k, i]", 0), ("s[k + 1, i] - s[k + 2, i]", 2), ("s[k - 1, i | 0]", 0)])
def test_a_sum_over_steps_runs_as_many_behind_as_the_latest_is_that_a_term_reads(read: str, lag: int) -> None:
    body = f"""
    s[0, i]     = x[i]
    s[t + 1, i] = 3 * s[t, i] - u[t, i]                   for t in 0..T, i in 0..N
    y[i]        = sum(k in 0..T-1) ({read})"""
    program = operator(SIGNATURE, body, {"N": 70, "T": 5})
    derived = directives(program, FAR)
    assert "together s, y -> t" in derived
    assert [d for d in derived if d.startswith("shift y.k")] == ([f"shift y.k by {lag}"] if lag else [])
    assert_same(program, proven(program, derive(program, FAR)), {})


def test_a_sum_over_every_other_step_runs_behind_all_of_them() -> None:
    body = """
    s[0, i]     = x[i]
    s[t + 1, i] = 3 * s[t, i] - u[t, i]                   for t in 0..T, i in 0..N
    y[i]        = sum(k in 0..3) s[2 * k, i]"""
    program = operator(SIGNATURE, body, {"N": 70, "T": 5})
    assert not any(d.startswith("together s, y") for d in directives(program, FAR))
    assert_same(program, proven(program, derive(program, FAR)), {})


def test_columns_of_which_others_read_each_step_stay_row_by_row() -> None:
    """Each step is stored for these whichever loop is outside."""
    sums = """
    s[0, j] = a[0, j]
    s[i, j] = s[i - 1, j] + a[i, j]   for i in 1..N
    z[i]    = sum(j) s[i, j]"""
    derived = directives(operator("a: f32[N, M]) -> (z: f32[N])", sums, {"N": 2000, "M": 65}))
    assert "order s.i, s.j_o, s.j_v" in derived


MIXED = """
    a[P, 0]     = x[P]
    b[P, t]     = bitxor(a[P, t], shl(a[P, t], 13))           for t in 0..T, RANGES
    a[P, t + 1] = bitxor(b[P, t], shr(b[P, t], 17))           for t in 0..T, RANGES
    e[P, 0]     = i32(0)
    e[P, t + 1] = e[P, t] + (if b[P, t] > 9 then 1 else i32(0))   for t in 0..T, RANGES
    y[P]        = a[P, T] - e[P, T]"""


@pytest.mark.parametrize(("points", "ranges", "shape"), [("i", "i in 0..N", "N"), ("h, i", "h in 0..M, i in 0..N", "M, N")])
def test_steps_of_recurrences_that_need_each_other_may_come_last(points: str, ranges: str, shape: str) -> None:
    body = MIXED.replace("P", points).replace("RANGES", ranges)
    program = operator(f"x: i32[{shape}], _u: i32[T, M]) -> (y: i32[{shape}])", body, {"N": 70, "M": 3, "T": 4})
    derived = directives(program)
    assert {"fold a at t by 1", "fold b at t by 1", "fold e at t by 1"} <= {*derived}
    assert any(d.startswith("order b.") and "_o, b.t, b." in d for d in derived)
    assert_same(program, proven(program, derive(program, MACHINE)), {})


def test_steps_of_recurrences_that_need_each_other_may_come_last_for_all_sizes() -> None:
    program = operator("x: i32[N], _u: i32[T, M]) -> (y: i32[N])", MIXED.replace("P", "i").replace("RANGES", "i in 0..N"))
    assert_same(program, proven(program, derive(program, MACHINE)), {"N": 37, "T": 4, "M": 1})
