"""Reads of lanes that are limited to what there is: as vectors under conditions."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.loops.clamped_lanes import clamped_lanes
from codegen.loops.parser import parse
from codegen.loops.printer import show


def program(read: str) -> str:
    return f"func f(N, S)(x: f32[N, N], at: i64[9], out y: f32[8]) {{\n    for v in 0 .. 8 vector 8 {{\n        y[v] = {read}\n    }}\n}}\n"


def of(read: str, masked_bytes: tuple[int, ...] = (4, 8)) -> str:
    return next(line.split(" = ")[1] for line in show(clamped_lanes(parse(program(read)), masked_bytes)).splitlines() if " = " in line)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x[0, max(0, S + v)]", "select(index(S + v) < index(0), x[0, 0], x[0, S + v])"),
        ("x[0, min(S + v, N - 1)]", "select(index(S + v) > index(N - 1), x[0, N - 1], x[0, S + v])"),
        (
            "x[S, max(0, min(N - 1, v - 2))]",
            "select(index(v - 2) > index(N - 1), x[S, max(0, N - 1)], select(index(v - 2) < index(0), x[S, 0], x[S, v - 2]))",
        ),
        (
            "x[0, value(max(at[S] + index(v), 0_i64))]",
            "select(at[S] + index(0 + v) < 0_i64, x[0, value(0_i64)], x[0, value(at[S] + index(0 + v))])",
        ),
    ],
)
def test_lanes_read_an_element_they_share_at_a_limit_and_neighbours_elsewhere(before: str, after: str) -> None:
    assert of(before) == after


@pytest.mark.parametrize(
    "read",
    [
        "x[0, max(0, v - 2)]",
        "x[max(0, S + v), 0]",
        "x[0, max(0, S + 2*v)]",
        "x[0, max(v, min(N - 1, S + v))]",
        "x[0, max(0, S)]",
        "x[0, value(max(at[v], 0_i64))]",
        "x[0, value(max(0_i64 - index(v) + at[S], 0_i64))]",
        "x[0, value(max(at[S] * index(v), 0_i64))]",
    ],
)
def test_lanes_of_known_places_or_that_are_no_neighbours_stay(read: str) -> None:
    assert of(read) == read


def test_elements_that_are_not_loaded_under_masks_stay() -> None:
    assert of("x[0, max(0, S + v)]", (8,)) == "x[0, max(0, S + v)]"


@pytest.mark.parametrize("start", [0, 13, 16, 18, 21, 40])
def test_what_is_read_is_the_same(start: int) -> None:
    x = np.arange(25, dtype=np.float32).reshape(5, 5)
    made = show(clamped_lanes(parse(program("x[1, max(0, min(N - 1, S + v - 16))]")), (4,)))
    at = np.zeros(9, np.int64)
    found = check(made, {"N": 5, "S": start}, x=x, at=at, y=np.zeros(8, np.float32))["y"]
    np.testing.assert_array_equal(found, x[1, np.clip(start - 16 + np.arange(8), 0, 4)])


@pytest.mark.parametrize("start", [-(2**40), -9, -1, 0, 2, 4, 7, 2**40])
def test_what_is_read_where_data_say_is_the_same(start: int) -> None:
    x, at = np.arange(25, dtype=np.float32).reshape(5, 5), np.full(9, start)
    made = show(clamped_lanes(parse(program("x[1, value(max(min(at[S] + index(v) - 3_i64, 4_i64), 0_i64))]")), (4,)))
    assert made.count("select") == 2
    found = check(made, {"N": 5, "S": 2}, x=x, at=at, y=np.zeros(8, np.float32))["y"]
    np.testing.assert_array_equal(found, x[1, np.clip(start - 3 + np.arange(8), 0, 4)])
