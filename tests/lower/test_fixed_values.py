"""Values that stay from step to step are written once for each step that is kept, and results are the same bit for bit."""

import islpy as isl
import numpy as np
import pytest
from scheduled_programs import argument, assert_same

import tensorlang
from polyhedral.rewrites import without_rewrites
from tensorlang.check.instantiate import instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.schedule.plan import Plan
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program

SIZES = {"N": 9}
INSIDE = "for t in 0..7, i in 1..N-1"


def operator(body: str) -> Program:
    text = f"op f(a: i32[N], b: i32[N]) -> (y: i32[N]) where N >= 4 {{\nu[0, i] = a[i]\n{body}\ny[i] = u[7, i]\n}}"
    module = load_module(parse(Source("f.tl", text)))
    return instantiate(module, "f", [argument(p, SIZES) for p in module.operators["f"].params])


def planned(program: Program, threads: int = 1) -> Plan:
    return proven(program, derive(program, Machine(target="cpu", threads=threads)))


def steps_written(plan: Plan, fold: int = 2) -> set[int]:
    """Return the steps in which the last equation of `u`, that of the rim, is computed, of a tensor kept for so many steps."""
    kept = without_rewrites(plan.placed, {"u": (0, fold)})
    rim = max(name for name in kept.nests if name.startswith("u."))
    nest = kept.nests[rim]
    steps = nest.points.apply(isl.Map.from_multi_aff(nest.back)).project_out(isl.dim_type.set, 1, 1)
    low, high = steps.dim_min_val(0).to_python(), steps.dim_max_val(0).to_python()
    return set(range(low, high + 1))


STAYS = {
    "copies": f"u[t + 1, i] = u[t, i - 1] + u[t, i + 1] {INSIDE}\nu[t + 1, i] = u[t, i] otherwise",
    "a constant": f"u[t + 1, i] = u[t, i - 1] + u[t, i + 1] {INSIDE}\nu[t + 1, i] = 3 otherwise",
    "values of an input": f"u[t + 1, i] = u[t, i - 1] + u[t, i + 1] {INSIDE}\nu[t + 1, i] = b[i] otherwise",
}
CHANGES = {
    "another value in each step": f"u[t + 1, i] = u[t, i - 1] + u[t, i + 1] {INSIDE}\nu[t + 1, i] = i32(t) otherwise",
    "copies of a neighbour": f"u[t + 1, i] = u[t, i - 1] + u[t, i + 1] {INSIDE}\n"
    "u[t + 1, 0] = u[t, 1] for t in 0..7\nu[t + 1, N - 1] = u[t, N - 2] for t in 0..7",
}


@pytest.mark.parametrize(
    ("body", "steps"), [(STAYS["copies"], {1}), (STAYS["a constant"], {1, 2}), (STAYS["values of an input"], {1, 2})], ids=STAYS
)
def test_what_stays_is_written_once_for_each_step_that_is_kept(body: str, steps: set[int]) -> None:
    program = operator(body)
    plan = planned(program)
    assert plan.folds == {"u": ((0, 2),)} and steps_written(plan) == steps
    assert_same(program, plan, SIZES)


@pytest.mark.parametrize("body", CHANGES.values(), ids=CHANGES)
def test_what_changes_is_written_in_every_step(body: str) -> None:
    program = operator(body)
    plan = planned(program)
    assert steps_written(plan) == set(range(1, 8))
    assert_same(program, plan, SIZES)


def test_each_of_three_steps_that_are_kept_gets_it() -> None:
    program = operator(
        "u[1, i] = a[i]\nu[t + 2, i] = u[t + 1, i] - u[t, i - 1] - u[t, i + 1] for t in 0..6, i in 1..N-1\n"
        "u[t + 2, i] = u[t + 1, i] otherwise"
    )
    plan = planned(program)
    assert plan.folds == {"u": ((0, 3),)} and steps_written(plan, 3) == {2, 3}  # of the first step nobody says that it is that before
    assert_same(program, plan, SIZES)


def test_what_steps_that_nobody_needs_would_have_written_is_written() -> None:
    op = tensorlang.parse("""op f(a: i32[7]) -> (y: i32[7]) {
        u[i, 0] = a[i]
        u[i, t + 1] = u[6 - i, t] - u[i, t] + u[i - 1, t + 1 | 0]   for t in 0..8, i in 0..7, i > t
        u[i, t + 1] = 0   otherwise
        y[i] = u[i, 8]
    }""").f.schedule("order u.t, u.i\ntrim u.t\nfold u at t by 2")
    assert not op(np.ones(7, np.int32)).any()


def test_threads_that_share_rows_read_what_was_written_once() -> None:
    heat = tensorlang.parse(
        """op f(a: i32[300, 200], size steps) -> (y: i32[300, 200]) {
            u[0, i, j] = a[i, j]
            u[t + 1, i, j] = u[t, i - 1, j] + u[t, i + 1, j] for t in 0..steps, i in 1..299, j in 0..200
            u[t + 1, i, j] = u[t, i, j] otherwise
            y[i, j] = u[steps, i, j]
        }""",
        threads=2,
    )["f"]
    a = np.arange(60000, dtype=np.int32).reshape(300, 200) % 7
    for steps in (0, 1, 2, 5, 6):
        expected = a.copy()
        for _ in range(steps):
            expected[1:-1] = expected[:-2] + expected[2:]
        assert (heat(a, steps=steps) == expected).all()
