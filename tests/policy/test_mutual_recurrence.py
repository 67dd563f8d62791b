"""Recurrences without a schedule run in whatever order their dependences allow, each for itself; tensors of a group share loops."""

from __future__ import annotations

from typing import Any

import pytest
from scheduled_programs import argument, assert_same

from codegen.dtypes import i64
from polyhedral.model import Loop, Tree
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import proven
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.recurrence import legal_order
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

SUFFIXES = """
    y[i]     = x[i] + y[i + 1]    for i in 0..N-1
    y[N - 1] = x[N - 1]
    z[i]     = max(x[i], z[i + 1])    for i in 0..N-1
    z[N - 1] = x[N - 1]"""


def operator(params: str, results: str, body: str) -> Program:
    module = load_module(parse(Source("f.tl", f"op f({params}) -> ({results}) where N >= 1 {{{body}\n}}")))
    args = [argument(p, {}) for p in module.operators["f"].params]
    return instantiate(module, "f", args, symbolic=True)


def derived(program: Program) -> tuple[list[str], Plan]:
    schedule = derive(program, Machine(target="cpu", threads=1))
    return [show(d) for d in schedule.directives], proven(program, schedule)


def in_turn(program: Program) -> list[str]:
    """Return what makes the loops of every recurrence run in an order that its dependences allow."""
    schedule = Schedule(program.name)
    for definition in program.definitions:
        schedule = legal_order(schedule, program, definition)
    return [show(d) for d in schedule.directives]


def loops_of(tree: tuple[Tree, ...]) -> list[tuple[str, list[Any]]]:
    return [(node.name, loops_of(node.body)) for node in tree if isinstance(node, Loop)]


ROW, TABLE = "x: f32[N]", "x: f32[N, M]"
TWO, TABLES = "y: f32[N], z: f32[N]", "y: f32[N, M], z: f32[N, M]"


@pytest.mark.parametrize(
    ("params", "results", "body", "directives"),
    [
        pytest.param(ROW, TWO, SUFFIXES, ["reverse y.i", "reverse z.i"], id="two that go backwards"),
        pytest.param(TABLE, "y: f32[N, M]", "y[i, j] = x[i, j] + y[i - 1, j + 1 | 0]", [], id="one that goes forwards"),
        pytest.param(
            TABLE, "y: f32[N, M]", "y[i, j] = x[i, j] + y[i + 1, j - 1 | 0] - y[i - 1, j - 1 | 0]", ["order y.j, y.i"], id="columns first"
        ),
        pytest.param(
            TABLE,
            "y: f32[N, M]",
            "y[i, j] = x[i, j] + y[i - 1, j + 1 | 0] - y[i + 1, j - 2 | 0]",
            ["skew y.i by y.j", "reverse y.j"],
            id="diagonals",
        ),
        pytest.param(
            "x: f32[N, N, N, N]",
            "y: f32[N, N, N, N]",
            "y[a, b, c, d] = x[a, b, c, d] + y[a, b + 1, c - 1, d | 0] - y[a, b, c, d + 1 | 0] + y[a, b, c + 1, d - 1 | 1]",
            ["reverse y.b", "reverse y.c", "reverse y.d"],
            id="four axes",
        ),
        pytest.param(
            ROW, TWO, "y[i] = x[i] + z[i + 1 | 0]\n z[i] = x[i] - y[i + 1 | 1]", [], id="a group shares a loop, whatever its direction"
        ),
        pytest.param(
            TABLE,
            TABLES,
            "y[i, j] = x[i, j] + z[i - 1, j | 1] + y[i, j + 1 | 0]\n z[i, j] = x[i, j] + y[i, j] - z[i, j + 1 | 0]",
            ["reverse y.j", "reverse z.j"],
            id="rows of a group",
        ),
        pytest.param(
            TABLE, TABLES, "y[b, i] = x[b, i] + z[b, i - 1 | 1]\n z[b, i] = x[b, i] - y[b, i - 1 | 2]", [], id="a group along the last axis"
        ),
        pytest.param(
            TABLE,
            "y: f32[N, M], z: f32[M, N]",
            "y[b, i] = x[b, i] + z[i - 1, b | 1]\n z[i, b] = x[b, i] - y[b, i - 1 | 2]",
            [],
            id="a group with axes in different places",
        ),
        pytest.param(
            "x: f32[N]",
            "y: f32[N + 4], s: f32",
            "y[i] = 1 for i in 0..4\n y[i + 4] = x[i] + s for i in 0..N\n s = y[3] + 1",
            [],
            id="a group with a scalar",
        ),
        pytest.param(
            "x: f32[N], w: f32[N, N]",
            "y: f32[N]",
            "y[i] = max(x[i], sum(j in i+1..N) w[i, j // 2] * y[j])",
            ["reverse y.i"],
            id="one through a sum of its elements",
        ),
    ],
)
def test_recurrences_run_in_an_order_that_their_dependences_allow(params: str, results: str, body: str, directives: list[str]) -> None:
    program = operator(params, results, body)
    assert in_turn(program) == directives
    found, plan = derived(program)
    assert found[: len(directives)] == directives or len(program.results) > 1
    for n in (1, 2, 5):
        assert_same(program, plan, dict.fromkeys(program.sizes, n))


def test_tensors_that_need_each_other_within_a_turn_share_a_loop_inside() -> None:
    """Alignment with affine gaps: p needs only the row before, q and d each other along the row. Derived, rows run together, each behind
    the one before it, with all three in one loop."""
    body = """
    d[i, j] = min(d[i - 1, j - 1 | 5] + x[i, j], p[i, j], q[i, j])
    p[i, j] = min(d[i - 1, j | 5], p[i - 1, j | 5]) + 1
    q[i, j] = min(d[i, j - 1 | 4], q[i, j - 1 | 5]) + 1"""
    program = operator(TABLE, "d: f32[N, M], p: f32[N, M], q: f32[N, M]", body)
    plan = apply(program, Schedule("f"))
    assert loops_of(plan.placed.tree) == [("p.i", [("p.j", []), ("q.j", [])])]
    _, plan = derived(program)
    assert loops_of(plan.placed.tree) == [("p.i_o", [("p.j", [("p.i_t", [])])])]
    assert_same(program, plan, {"N": 4, "M": 5})


@pytest.mark.parametrize("m", [3, 17])
def test_rows_of_each_of_several_sweeps_of_a_step_run_together_each_behind_the_one_before_it(m: int) -> None:
    """Symmetric over-relaxation: there and back over a plane in each step."""
    body = f"""
    u[0, i, j]     = x[i, j]    for i in 0..N, j in 0..{m}
    r[t, i, j]     = r[t, i - 1, j | 0] + r[t, i, j - 1 | 0] - u[t, i + 1, j | 0]    for t in 0..3, i in 0..N, j in 0..{m}
    u[t + 1, i, j] = u[t + 1, i + 1, j | 0] + u[t + 1, i, j + 1 | 0] - r[t, i - 1, j | 0]    for t in 0..3, i in 0..N, j in 0..{m}
    y[i, j]        = u[3, i, j]"""
    program = operator(f"x: f32[N, {m}]", f"y: f32[N, {m}]", body)
    directives, plan = derived(program)
    assert {"reverse u.i", "skew u.j by u.i_t", "unroll u.i_t", "skew r.j by r.i_t", "unroll r.i_t"} <= {*directives}
    for n in (1, 2, 5, 19):
        assert_same(program, plan, {"N": n})


def test_a_schedule_that_leaves_a_recurrence_to_run_the_wrong_way_is_told_what_turns_it() -> None:
    program = operator(ROW, TWO, SUFFIXES)
    with pytest.raises(CompileError) as refused:
        proven(program, Schedule("f").shift("z.i", 1))
    assert refused.value.diagnostics[0].help == "`reverse y.i`, `reverse z.i` first: this recurrence does not run in the order of its axes"
    proven(program, Schedule("f").reverse("y.i").reverse("z.i").shift("z.i", 1))


def test_sums_of_a_recurrence_read_what_lies_before_an_open_size() -> None:
    """Columns from the last one on: `K` is no loop, though elements whose index has one more of it are neighbours."""
    body = """
    e[0, i, j]     = x[i, j]                                  for i in 0..M, j in 0..N
    d[s, j]        = sum(i) v[i, K - 1 - s] * e[s, i, j]      for s in 0..K, j in 0..N
    e[s + 1, i, j] = e[s, i, j] - v[i, K - 1 - s] * d[s, j]   for s in 0..K, i in 0..M, j in 0..N
    y[i, j]        = e[K, i, j]"""
    directives, _ = derived(operator("v: f32[M, K], x: f32[M, N]", "y: f32[M, N]", body))
    assert "vectorize d.j_v" in directives


@pytest.mark.parametrize("axis", ["t", "p"])
def test_rows_of_recurrences_that_need_each_other_are_lanes_whatever_each_of_them_calls_its_axes(axis: str) -> None:
    """Seasons: of three steps ago, with steps of their own before the first."""
    body = f"""
    l[i, 0]      = x[i, 0 | 0]                        for i in 0..N
    s[i, {axis}] = x[i, {axis} | 0]                   for i in 0..N, {axis} in 0..3
    l[i, t + 1]  = x[i, t] - s[i, t] + l[i, t]        for i in 0..N, t in 0..M
    s[i, t + 3]  = 0.5 * (x[i, t] - l[i, t + 1]) + s[i, t]   for i in 0..N, t in 0..M
    y[i, t]      = l[i, t + 1] + s[i, t]"""
    program = operator(TABLE, "y: f32[N, M]", body)
    directives, plan = derived(program)
    assert "vectorize l.i_v" in directives
    assert_same(program, plan, {"N": 9, "M": 4})


@pytest.mark.parametrize(("order", "in_lanes"), [(8, False), (100, True)])
def test_a_row_that_reads_what_was_stored_one_by_one_just_before_runs_in_lanes_where_it_is_long(order: int, *, in_lanes: bool) -> None:
    body = f"""
    g[t, {order}] = x[t]
    g[t, m] = g[t, m + 1] - k[m] * b[t - 1, m | 0]    for t in 0..N, m in 0..{order}
    b[t, 0] = g[t, 0]    for t in 0..N
    b[t, m + 1] = b[t - 1, m | 0] + k[m] * g[t, m]    for t in 0..N, m in 0..{order}
    y[t] = g[t, 0]"""
    program = operator(f"{ROW}, k: f32[{order}]", "y: f32[N]", body)
    directives, plan = derived(program)
    assert ("vectorize b.m_v" in directives) is in_lanes
    assert_same(program, plan, {"N": 5})


def test_a_step_that_changes_two_rows_by_each_other_copies_them_and_leaves_all_others_where_they_are() -> None:
    body = """
    s[0, i, j] = x[i, j]
    s[k + 1, i, j] = if i == k then s[k, i, j] + 2 * s[k, i + 1, j | 0]
                     else if i == k + 1 then s[k, i, j] - s[k, i - 1, j | 0] else s[k, i, j]
                     for k in 0..N, i in 0..N, j in 0..N
    y[i, j] = s[N, i, j]"""
    program = operator("x: f32[N, N]", "y: f32[N, N]", body)
    directives, plan = derived(program)
    assert {"lift s", "fold s at k by 1"} <= {*directives}
    for n in (1, 2, 19):
        assert_same(program, plan, {"N": n})


HORNER = """
    x[b, 0] = 0.5
    p[b, k, 0] = c[b, 0]                                      for b in 0..B, k in 0..3
    p[b, k, t] = p[b, k, t - 1] * x[b, k] + c[b, t]           for b in 0..B, k in 0..3, t in 1..N
    x[b, k + 1] = x[b, k] - p[b, k, N - 1] / (2 + x[b, k])    for b in 0..B, k in 0..3
    r[b] = x[b, 3]"""
SUMS = """
    x[b, 0] = 0.5
    p[b, k] = sum(t) c[b, t] * (x[b, k] + f32(t))    for b in 0..B, k in 0..3
    q[b, k] = sum(t) c[b, t] * f32(t) * x[b, k]      for b in 0..B, k in 0..3
    x[b, k + 1] = x[b, k] - p[b, k] + q[b, k]               for b in 0..B, k in 0..3
    r[b] = x[b, 3]"""


@pytest.mark.parametrize(("terms", "body"), [("N", HORNER), ("6", SUMS)])
def test_points_that_need_none_of_each_other_are_lanes_outside_of_the_loops_of_a_step(terms: str, body: str) -> None:
    program = operator(f"c: f32[B, {terms}], n: f32[N]", "r: f32[B]", body.replace("0.5", "n[0]"))
    directives, plan = derived(program)
    assert [x for x in directives if x.startswith("order p")] == ["order p.b_o, p.k, p.t, p.b_v"]
    assert "vectorize p.b_v" in directives
    for sizes in ({"B": 1, "N": 2}, {"B": 9, "N": 5}):
        assert_same(program, plan, sizes)


def test_long_rows_of_a_step_are_lanes_themselves() -> None:
    body = """
    x[b, 0] = 0.5
    p[b, k] = sum(t) c[b, t] * x[b, k]    for b in 0..9, k in 0..3
    x[b, k + 1] = x[b, k] - p[b, k]       for b in 0..9, k in 0..3
    r[b] = x[b, 3]"""
    directives, _ = derived(operator("c: f32[9, N]", "r: f32[9]", body))
    assert "vectorize p.t_v" in directives


SLOW = "sin(x[i] * f32(k)) + exp(x[i] * f32(k)) + log(x[i] + f32(k)) + tan(x[i] * f32(k))"


@pytest.mark.parametrize(("value", "vectors"), [("lo[i, k]", 4), (f"lo[i, k] + i64({SLOW})", 1)], ids=["it waits", "it computes"])
def test_vectors_of_points_go_through_steps_beside_each_other_where_they_wait(value: str, vectors: int) -> None:
    body = f"""
    lo[i, 0] = i64(0)
    hi[i, 0] = N
    mid[i, k] = ({value} + hi[i, k]) // 2                                         for i in 0..N, k in 0..3
    lo[i, k + 1] = if x[mid[i, k] | clamp] < x[i] then mid[i, k] else lo[i, k]    for i in 0..N, k in 0..3
    hi[i, k + 1] = if x[mid[i, k] | clamp] < x[i] then hi[i, k] else mid[i, k]    for i in 0..N, k in 0..3
    y[i] = lo[i, 3]"""
    program = operator(ROW, "y: i64[N]", body)
    directives, plan = derived(program)
    lanes = Machine(target="cpu", threads=1).lanes(i64)
    assert any(x.startswith(f"split mid.i by {vectors * lanes} ") for x in directives)
    assert_same(program, plan, {"N": 37})
