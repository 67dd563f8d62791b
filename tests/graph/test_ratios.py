"""Floats of open sizes: what they are rounded to is what the floats of the machine are rounded to, or nothing is said of it."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.graph.ratios import Inexact, Ratio, ratio
from tensorlang.graph.sizes import Symbols, value_at

STEPS = st.lists(st.tuples(st.sampled_from("+-*/"), st.sampled_from([1.0, 2.0, 3.0, 7.0, 14.0, 0.5, 0.25, 0.1, 1.5, 100.0])), max_size=4)


def computed(value: Any, steps: list[tuple[str, float]], of: Callable[[float], Any]) -> Any:
    for op, number in steps:
        by = of(number)
        value = value + by if op == "+" else value - by if op == "-" else value * by if op == "*" else value / by
    return value


@settings(max_examples=400, deadline=None)
@given(STEPS, st.integers(1, 3000), st.lists(st.integers(0, 1 << 21), min_size=1, max_size=8), st.sampled_from([np.float32, np.float64]))
def test_what_is_rounded_down_and_up_is_what_floats_are(steps: list[tuple[str, float]], sample: int, sizes: list[int], real: Any) -> None:
    digits = np.finfo(real).nmant + 1
    symbols = Symbols({"size.n": sample})
    try:
        found = computed(ratio(symbols.symbol("size.n"), digits), steps, lambda number: ratio(real(number), digits))
        down, up = found.floor().whole, found.ceil().whole
    except Inexact:
        return
    for n in (sample, *sizes):
        if all(condition.holds({"size.n": n}) for condition in symbols.assumed):
            exact = computed(real(n), steps, real)
            assert (value_at(down, {"size.n": n}), value_at(up, {"size.n": n})) == (floor(exact), ceil(exact))


def test_a_ceiling_of_a_quotient_is_a_size_and_a_product_with_a_fraction_that_is_no_float_is_none() -> None:
    n = ratio(Symbols({"size.n": 30}).symbol("size.n"), 24)
    assert str((n / ratio(14.0, 24)).ceil().whole) == "((n + 13)//14)"
    with pytest.raises(Inexact):
        n * ratio(float(np.float32(0.1)), 24)


def test_ratios_are_compared_as_their_floats() -> None:
    third, half = Ratio(1, 3, 24, 1), Ratio(1, 2, 24)
    assert third < half and half > third and third != half and half >= half
    with pytest.raises(Inexact):
        third < Ratio(1, 7, 24, 1)  # noqa: B015  # asked for its refusal
