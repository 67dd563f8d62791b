"""What a recurrence makes without itself, as tensors of their own: what they become, and what is refused."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.printer import show
from tensorlang.tensor.terms_apart import terms_apart

PARAMS = "x: i32[N, M], m: i32[K]) -> (y: i32[N, M])"
STEP = "for i in 0..N, j in 1..M"
APART = {
    "a term that the start has, too": (
        f"y[i, j] = 2 * x[i, j] for i in 0..N, j in 0..1\ny[i, j] = max(y[i, j - 1], 2 * x[i, j]) {STEP}",
        ["y.term"],
    ),
    "a sum, whose names are others in the start": (
        "y[i, j] = x[i, j] * (sum(k) m[k] * x[i, j]) for i in 0..N, j in 0..1\n"
        f"y[i, j] = y[i, j - 1] + x[i, j] * (sum(k) m[k] * x[i, j]) {STEP}",
        ["y.term"],
    ),
    "a sum that is the same along the row": (
        f"y[i, j] = 0 for i in 0..N, j in 0..1\ny[i, j] = y[i, j - 1] + x[i, j] * (sum(k) m[k] * x[i, 0 | 0]) {STEP}",
        ["y.term.sum", "y.term"],
    ),
    "what is there for some elements alone": (
        f"y[i, j] = 0 for i in 0..N, j in 0..1\ny[i, j] = y[i, j - 1] - 3 * x[i, j - 1] {STEP}",
        ["y.term"],
    ),
    "a condition": (
        f"y[i, j] = 0 for i in 0..N, j in 0..1\ny[i, j] = if 2 * x[i, j] > 3 then y[i, j - 1] else x[i, j] + 1 {STEP}",
        ["y.term"],
    ),
    "two terms": (
        f"y[i, j] = 1 for i in 0..N, j in 0..1\ny[i, j] = y[i, j - 1] * (x[i, j] + 1) - (2 * x[i, j] + 1) {STEP}",
        ["y.term", "y.term_1"],
    ),
}
KEPT = {
    "no recurrence": ("y[i, j] = 2 * x[i, j] for i in 0..N, j in 0..M", "`y` is no recurrence, or computed with others"),
    "a read": (
        f"y[i, j] = 0 for i in 0..N, j in 0..1\ny[i, j] = y[i, j - 1] + x[i, j] {STEP}",
        "nothing that takes an operation is made without `y`",
    ),
    "a side of a choice": (
        f"y[i, j] = 0 for i in 0..N, j in 0..1\ny[i, j] = if y[i, j - 1] > 3 then 2 * x[i, j] else 0 {STEP}",
        "nothing that takes an operation is made without `y`",
    ),
}


@pytest.mark.parametrize("case", APART)
def test_each_term_becomes_a_tensor_and_computes_what_it_did(case: str) -> None:
    equations, names = APART[case]
    program = operator(PARAMS, equations)
    made = terms_apart(program, "y")
    assert not isinstance(made, str), made
    assert [d.tensors[0].name for d in made.definitions] == [*names, "y"], show(made)
    assert_same(program, proven(program, Schedule(program.name).lift("y")), {"N": 3, "M": 4, "K": 2})


@pytest.mark.parametrize("case", KEPT)
def test_what_stays_says_why(case: str) -> None:
    equations, why = KEPT[case]
    assert terms_apart(operator(PARAMS, equations), "y") == why
