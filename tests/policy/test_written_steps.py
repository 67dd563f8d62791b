"""Recurrences of few elements in a step: written out where lanes would wait for each other, and the same results bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduled_programs import assert_same, operator

from codegen.loops.nodes import Alloc
from codegen.loops.walk import statements
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

WIDE = Machine(target="cpu", threads=1)
MACHINES = pytest.mark.parametrize("machine", [WIDE, replace(WIDE, vector_bytes=16, vector_registers=16)], ids=["wide", "narrow"])
EQUATIONS = """
    x[0, i] = a[i]
    k[t, i] = if i == 0 then x[t, 1] - x[t, 0] else if i == 1 then x[t, 0] * (28 - x[t, 2]) else x[t, 0] * x[t, 1]  for t in 0..T, i in 0..3
    x[t + 1, i] = x[t, i] + 2 * k[t, i]   for t in 0..T, i in 0..3"""
PRODUCTS = """
    p[0, i, j] = if i == j then 1 else 0   for i in 0..2, j in 0..2
    p[t + 1, i, j] = (sum(k in 0..2) p[t, i, k] * m[t, k, j]) - p[t, j, i]   for t in 0..T, i in 0..2, j in 0..2"""
RING = """
    s[0, i] = 0   for i in 0..5
    s[t + 1, i] = if i == 0 then m[t, 0, 0] - s[t, 4] else s[t, (i + 4) % 5]   for t in 0..T, i in 0..5"""
TABLE = """
    f[t, k] = if t == 0 or k == 0 then a[0] else f[t - 1, k - 1] + f[t - 1, k] + 1   for t in 0..T + 1, k in 0..11"""
SIGNATURE = "a: i32[3], m: i32[T, 2, 2]) -> "


def directives(program: Program, machine: Machine) -> list[str]:
    return [show(d) for d in derive(program, machine).directives]


@MACHINES
@pytest.mark.parametrize(
    ("result", "body"),
    [
        ("y: i32[3]", EQUATIONS + "\n y[i] = x[T, i]"),
        ("y: i32[T, 3]", EQUATIONS + "\n y[t, i] = x[t + 1, i] - x[t, i]"),
        ("y: i32[T]", PRODUCTS + "\n y[t] = sum(i in 0..2, j in 0..2) p[t + 1, i, j]   for t in 0..T"),
        ("y: i32[T]", RING + "\n y[t] = sum(i in 0..5) s[t + 1, i]   for t in 0..T"),
        ("y: i32", TABLE + "\n y = f[T, 10]"),
    ],
    ids=["equations", "differences of steps", "products", "a ring", "a table of sums of neighbours"],
)
def test_elements_that_need_others_of_their_step_are_computed_one_by_one(result: str, body: str, machine: Machine) -> None:
    program = operator(f"{SIGNATURE}({result})", body)
    plan = proven(program, derive(program, machine))
    assert not [d for d in directives(program, machine) if d.startswith("vectorize") and not d.startswith("vectorize y")]
    for steps in (0, 1, 5):
        assert_same(program, plan, {"T": steps})


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        (
            "a: f32[8], m: f32[T, 8]) -> (y: f32[8])",
            "x[0, i] = a[i]\n x[t + 1, i] = logsumexp(k in 0..8) (x[t, k] + m[t, i]) for t in 0..T, i in 0..8\n y[i] = x[T, i]",
        ),
        (
            "a: f32[4], m: f32[T, 4]) -> (y: f32[4])",
            "x[0, i] = a[i]\n x[t + 1, i] = 0.5 * x[t, i] + m[t, i] for t in 0..T, i in 0..4\n y[i] = x[T, i]",
        ),
        (
            "a: f32[N], m: f32[T, N]) -> (y: f32[N])",
            "x[0, i] = a[i]\n x[t + 1, i] = m[t, i] - x[t, N - 1 - i] for t in 0..T, i in 0..N\n y[i] = x[T, i]",
        ),
    ],
    ids=["functions", "elements that need their own alone", "many elements"],
)
def test_lanes_run_where_elements_one_by_one_are_more_work(signature: str, body: str) -> None:
    assert any(d.startswith("vectorize x") for d in directives(operator(signature, body), WIDE))


@MACHINES
def test_a_sum_over_steps_begins_before_the_loop_that_it_shares_with_them(machine: Machine) -> None:
    program = operator(f"{SIGNATURE}(y: i32)", EQUATIONS + "\n y = sum(t in 0..T) x[t + 1, 0] * x[t, 2]", {"T": 5})
    schedule = derive(program, machine)
    assert "together k, y -> t" in [show(d) for d in schedule.directives]
    assert_same(program, proven(program, schedule), {})


@pytest.mark.parametrize("result", ["y: i32[3]", "y: i32[T, 3]"])
def test_registers_hold_a_step_that_is_written_out(result: str) -> None:
    read = "y[i] = x[T, i]" if result == "y: i32[3]" else "y[t, i] = x[t + 1, i]"
    program = operator(f"{SIGNATURE}({result})", f"{EQUATIONS}\n {read}")
    lowered = loops_of(proven(program, derive(program, WIDE)), "f", threads=1)
    assert {s.buffer.space for s in statements(*lowered.function.body) if isinstance(s, Alloc)} == {"registers"}


@MACHINES
def test_elements_that_need_neighbours_along_several_axes_are_computed_in_their_order(machine: Machine) -> None:
    sweep = """
    u[0, i, j] = a[i] - m[0, 0, 0] * a[j]   for i in 0..3, j in 0..3
    u[t + 1, i, j] = u[t + 1, i - 1, j + 1] - u[t, i, j] + u[t, 2, j + 1]   for t in 0..T, i in 1..3, j in 0..2
    u[t + 1, i, j] = u[t, i, j]   otherwise
    y[i, j] = u[T, i, j]"""
    program = operator(f"{SIGNATURE}(y: i32[3, 3])", sweep, {"T": 5})
    assert_same(program, proven(program, derive(program, machine)), {})


GAINS = """
    g[0, i] = a[i]   for i in 0..2
    h[t, i] = g[t, 1 - i] - m[t, i, 0]   for t in 0..T, i in 0..2
    g[t + 1, i] = h[t, i] + 2 * h[t, 1 - i]   for t in 0..T, i in 0..2
    q[0] = a[2]
    q[t + 1] = q[t] + h[t, 0] * g[t, 1]   for t in 0..T"""
STATES = """
    x[0, i] = 1   for i in 0..2
    e[t, i] = x[t, i] - m[t, 0, i]   for t in 0..T, i in 0..2
    x[t + 1, i] = e[t, i] + h[t, i] * (e[t, 0] - q[t + 1])   for t in 0..T, i in 0..2
    y[t, i] = x[t + 1, i]   for t in 0..T, i in 0..2"""
BACKWARDS = """
    g[T, i] = a[i]   for i in 0..2
    h[t, i] = g[t + 1, i] - m[t, i, 0]   for t in 0..T, i in 0..2
    g[t, i] = h[t, i] + 2 * h[t, 1 - i]   for t in 0..T, i in 0..2
    x[T, i] = 1   for i in 0..2
    x[t, i] = x[t + 1, 1 - i] + h[t, i] * g[t, 0]   for t in 0..T, i in 0..2
    y[t, i] = x[t, i]   for t in 0..T, i in 0..2"""
NUMBERS = """
    k[0] = a[0]
    k[t + 1] = 3 - k[t] * m[t, 0, 0]   for t in 0..T
    x[0, i] = a[i]   for i in 0..2
    x[t + 1, i] = x[t, 1 - i] + k[t + 1] * x[t, i]   for t in 0..T, i in 0..2
    y[t, i] = x[t + 1, i]   for t in 0..T, i in 0..2"""


@MACHINES
@pytest.mark.parametrize(
    "body", [GAINS + STATES, STATES + GAINS, BACKWARDS, NUMBERS], ids=["gains", "states first", "backwards", "numbers"]
)
def test_recurrences_that_need_the_steps_of_others_run_in_one_loop_with_these_in_registers(body: str, machine: Machine) -> None:
    for steps in (1, 5):
        program = operator(f"{SIGNATURE}(y: i32[T, 2])", body, {"T": steps})
        plan = proven(program, derive(program, machine))
        loops = {n.loops[0] for n in plan.placed.nests.values() if n.loops and not n.statement.startswith("y")}
        assert len(loops) == 1 or steps == 1
        assert_same(program, plan, {})


def test_what_stands_before_a_recurrence_and_is_made_of_it_is_derived_after_it() -> None:
    body = """
    u[t, i] = sum(k in 0..2) x[t + 1, (i + k) % 2] * m[t, i, k]   for t in 0..T, i in 0..2
    x[0, i] = a[i]   for i in 0..2
    x[t + 1, i] = x[t, 1 - i] - m[t, i, 0]   for t in 0..T, i in 0..2
    y[t] = sum(i in 0..2) x[t + 1, i] * u[t, i]   for t in 0..T"""
    program = operator(f"{SIGNATURE}(y: i32[T])", body, {"T": 5})
    assert_same(program, proven(program, derive(program, WIDE)), {})


def test_what_would_run_after_most_steps_does_not_run_with_them() -> None:
    body = """
    x[T, i] = a[i]   for i in 0..2
    x[t, i] = m[t, i, 0] - x[t + 1, 1 - i]   for t in 0..T, i in 0..2
    y[t, i] = x[t, i] + 1   for t in 0..T, i in 0..2"""
    program = operator(f"{SIGNATURE}(y: i32[T, 2])", body, {"T": 1})
    assert_same(program, proven(program, derive(program, WIDE)), {})


@MACHINES
def test_so_they_do_for_any_number_of_steps(machine: Machine) -> None:
    program = operator(f"{SIGNATURE}(y: i32[T, 2])", GAINS + STATES)
    plan = proven(program, derive(program, machine))
    assert len({n.loops[0] for n in plan.placed.nests.values() if n.loops}) == 1
    for steps in (0, 1, 5):
        assert_same(program, plan, {"T": steps})


@MACHINES
@pytest.mark.parametrize("step", ["t + 1", "T - 1 - t"], ids=["the other way", "steps that are not made yet"])
def test_recurrences_that_need_other_steps_than_those_just_made_have_loops_of_their_own(step: str, machine: Machine) -> None:
    body = f"""
    x[0, i] = a[i]   for i in 0..2
    x[t + 1, i] = x[t, 1 - i] - m[t, i, 0]   for t in 0..T, i in 0..2
    z[T, i] = 1   for i in 0..2
    z[t, i] = z[t + 1, 1 - i] * x[{step}, i]   for t in 0..T, i in 0..2
    y[t, i] = z[t, i]   for t in 0..T, i in 0..2"""
    program = operator(f"{SIGNATURE}(y: i32[T, 2])", body)
    plan = proven(program, derive(program, machine))
    assert {n.loops[0] for n in plan.placed.nests.values() if n.statement[0] in "xz"} >= {"x.t", "z.t"}
    for steps in (0, 1, 5):
        assert_same(program, plan, {"T": steps})
