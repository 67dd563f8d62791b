"""The reductions of an equation as tensors of their own: what they become, and what is refused."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.printer import show
from tensorlang.tensor.sums_apart import sums_apart

PARAMS = "x: i32[N, K], m: i32[K]) -> (y: i32[N])"
PARTS = {
    "two of them": ("sum(k) x[i, k] * m[k] - sum(k) m[k] * m[k] * x[i, k]", ["y.sum", "y.sum_1"]),
    "one beside other things": ("1 + max(k, from 0) x[i, k]", ["y.max"]),
    "in a condition": ("if sum(k) x[i, k] > 3 then 1 else 0", ["y.sum"]),
    "under a name": ("let s = sum(k) x[i, k] in s * s", ["y.sum"]),
}
KEPT = {
    "a whole equation": ("y[i] = sum(k) x[i, k]", "no reduction is a part of the equation of `y`"),
    "a side of a choice": ("y[i] = if x[i, 0 | 0] > 2 then sum(k) x[i, k] else 0", "no reduction is a part of the equation of `y`"),
    "what needs a value": (
        "y[i] = let s = m[0 | 0] * m[0 | 0] in s + sum(k) (s + x[i, k])",
        "no reduction is a part of the equation of `y`",
    ),
    "a recurrence": ("y[i] = y[i - 1 | 0] + sum(k) x[i, k]", "`y` is a recurrence"),
    "pieces": ("y[i] = 1 + sum(k) x[i, k] for i in 1..N\ny[i] = 0 otherwise", "`y` is computed in pieces, or with others"),
}


@pytest.mark.parametrize("value", ["two of them", "one beside other things", "in a condition", "under a name"])
def test_each_reduction_becomes_a_tensor_and_computes_what_it_did(value: str) -> None:
    equation, names = PARTS[value]
    program = operator(PARAMS, f"y[i] = {equation}")
    made = sums_apart(program, "y")
    assert not isinstance(made, str)
    assert [d.tensors[0].name for d in made.definitions] == [*names, "y"], show(made)
    assert_same(program, proven(program, Schedule(program.name).lift("y")), {"N": 4, "K": 5})


@pytest.mark.parametrize("case", KEPT)
def test_what_stays_says_why(case: str) -> None:
    equation, why = KEPT[case]
    assert sums_apart(operator(PARAMS, equation), "y") == why
