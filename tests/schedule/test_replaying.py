"""A refused schedule, run all the same, shows what it would have computed, whatever hides a difference at first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from schedule_trial import refusal, trial
from scheduled_programs import declared
from strategies_schedule import Case, family, family_names

from codegen.dtypes import f64
from polyhedral.expr import Int
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source, error
from tensorlang.replay import Difference, replay
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import substitute_sizes


@pytest.mark.parametrize("seed", range(4))
def test_a_strict_sum_in_another_order_rounds_otherwise_where_enough_meets_in_one_element(seed: int) -> None:
    """Two terms are the same either way, and data decides how many go into a bin."""
    bins = replace(family("bins", f64), mode="strict")
    assert isinstance(replay(bins, Schedule("bins").reverse("y.n"), seed=seed), Difference)


@pytest.mark.parametrize("seed", range(4))
def test_a_program_of_fixed_sizes_is_run_on_other_data_until_a_difference_shows(seed: int) -> None:
    """What is kept last shows an order only where data keeps several."""
    latest = substitute_sizes(family("latest", f64), {"M": Int(1), "N": Int(5)})
    schedule = Schedule("latest").tile("y", ("y.i", "y.j"), (8, 4), ("io", "jo", "ii", "ji")).order("y.ji", "y.io", "y.ii")
    assert isinstance(replay(latest, schedule, seed=seed), Difference)


def strict(source: str) -> Program:
    """Return the program of an operator's text, or a family's, where sums have an order."""
    if source in family_names():
        return replace(family(source, f64), mode="strict")
    module = load_module(parse(Source("strict.tl", source)))
    return declared(module, next(iter(module.operators)))


TRIANGLE = "strict op triangle(a: f64[2, 2], b: f64[2, 2]) -> (y: f64[2, 2]) { y[i, j] = sum(k in j..i + 1) a[i, k] * b[k, j] }"
EQUAL = "strict op equal(x: f32[N]) -> (y: f32[N]) { y[i] = sum(k in 0..3) x[i] }"
NESTED = "strict op nested(x: f32[N]) -> (y: f32[N]) { y[i] = sum(j in 0..2) (2 * sum(k in 0..2) x[i]) }"


@pytest.mark.parametrize(
    ("source", "loop"),
    [
        (TRIANGLE, "y.k"),
        (EQUAL, "y.k"),
        (NESTED, "y.sum.k"),
        ("best", "y.j"),
    ],
    ids=["two terms", "equal terms", "equal terms in a sum", "an extreme and its place"],
)
def test_a_trial_sees_another_order_of_what_has_to_run_in_order_where_no_values_show_it(source: str, loop: str) -> None:
    program = strict(source)
    case = Case(program, dict.fromkeys(program.sizes, 2), Schedule(program.name).reverse(loop))
    assert trial(case, 1, natively=False).kind == "replayed"


def test_a_trial_shows_nothing_for_a_refusal_without_reason() -> None:
    case = Case(family("matmul", f64), {"M": 2, "N": 2, "K": 2}, Schedule("matmul").reverse("y.k"))
    assert trial(case, 1, natively=False).kind == "accepted"
    assert refusal(case, error("S0301", "as if it were refused")).kind == "silent"
