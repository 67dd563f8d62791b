"""What a step adds to the element that data name, and to no other, is a choice between the sum and the element as it was."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from scheduled_programs import operator

from codegen.dtypes import DTYPES
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program, Select
from tensorlang.tensor.updates import with_updates


def counted(value: str, dtype: str = "i32", first: str = "0") -> Program:
    """Return a program of which each of ten steps makes `value` of an element of six."""
    body = f"h[0, n] = {first}\nh[t + 1, n] = {value} for t in 0..10"
    return operator(f"a: i64[10], b: i64[10], x: {dtype}[6], d: {dtype}[10]) -> (h: {dtype}[11, 6])", body)


def chosen(program: Program) -> int:
    """Return between how many elements that data name each step chooses, once it is rewritten."""
    value, found = with_updates(program).definitions[0].pieces[-1].value, 0
    while isinstance(value, Select):
        value, found = value.orelse, found + 1
    return found


def assert_same(program: Program, *first: float) -> None:
    rng = np.random.default_rng(1)
    kinds = {p.name: p.dtype.numpy for p in program.params}
    given = {
        "a": rng.integers(0, 7, 10),
        "b": rng.integers(0, 7, 10),
        "x": rng.choice([*first, 0], 6),
        "d": rng.choice([*first, 0, 1, -1], 10),
    }
    given = {name: value.astype(kinds[name]) for name, value in given.items()}
    want, found = (interpret(p, {}, given)["h"] for p in (program, with_updates(program)))
    assert_same_bits(found, want)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("h[t, n] + (if n == a[t] then 1 else 0)", 1),
        ("(if n == a[t] then d[t] else 0) + h[t, n]", 1),
        ("h[t, n] + (if n == a[t] then d[t] else 0) - (if n == b[t] then d[t] else 0)", 2),
        ("h[t, n] + (if n == a[t] then d[t] else if n == b[t] then 2 else 0)", 2),
        ("h[t, n] + ((if n == a[t] then d[t] else 0) - (if n == b[t] then 1 else 0))", 2),
        ("h[t, n] + d[t] * i32(n == a[t])", 1),
        ("h[t, n] - i32(n == a[t] and t > 2)", 1),
    ],
)
def test_sums_to_which_terms_are_added_where_data_say_are_choices(value: str, count: int) -> None:
    program = counted(value)
    assert chosen(program) == count
    assert_same(program, 3)


@pytest.mark.parametrize(
    "value",
    [
        "h[t, n] + (if n == 3 then 1 else 0)",
        "h[t, n] + (if n == a[t] then 1 else 2)",
        "h[t, n] + (if x[n] == d[t] then 1 else 0)",
        "h[t, (n + 1) % 6] + (if n == a[t] then 1 else 0)",
        "h[t, n] * (if n == a[t] then 1 else 0)",
        "(if n == a[t] then 1 else 0) - h[t, n]",
        "d[t] + (if n == a[t] then 1 else 0) - h[t, n]",
    ],
    ids=[
        "a number names it",
        "something is added",
        "data name none",
        "it comes from elsewhere",
        "no sum",
        "the other way round",
        "another kept",
    ],
)
def test_others_stay(value: str) -> None:
    assert chosen(counted(value)) == 0


ADDED, SUBTRACTED = (f"h[t, n] {op} (if n == a[t] then d[t] else 0)" for op in "+-")


@pytest.mark.parametrize(
    ("value", "first", "dtype", "is_choice"),
    [
        (ADDED, "1500", "f32", True),
        (ADDED, "0", "f64", True),
        (ADDED, "f32(n) + x[n]", "f32", True),
        (ADDED, "x[n]", "f32", False),
        (ADDED, "0 - x[n]", "f32", True),
        (ADDED, "-0.0", "f32", False),
        (ADDED, "0", "f16", False),
        (SUBTRACTED, "x[n]", "f32", True),
        (SUBTRACTED, "x[n]", "f16", True),
    ],
)
def test_floats_that_may_be_minus_zero_become_zero(value: str, first: str, dtype: str, is_choice: bool) -> None:
    assert DTYPES[dtype].is_float
    program = counted(value, dtype, first)
    assert chosen(program) == is_choice
    assert_same(program, -0.0, np.nan, np.inf)
