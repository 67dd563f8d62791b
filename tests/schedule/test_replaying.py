"""A refused schedule, run all the same, shows what it would have computed, whatever hides a difference at first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from strategies_schedule import family

from codegen.dtypes import f64
from polyhedral.expr import Int
from tensorlang.replay import Difference, replay
from tensorlang.schedule.schedule import Schedule
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
