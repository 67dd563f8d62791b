"""An index that a cast leaves what it is is compared, and read at, as the index."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from scheduled_programs import operator

import tensorlang as tl
from tensorlang.tensor.cast_indices import with_plain_indices
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Cast, Dynamic, IndexValue, Program, Read
from tensorlang.tensor.printer import show
from tensorlang.tensor.prove import is_sound
from tensorlang.tensor.walk import nodes

SIZE = 50


def with_result(body: str) -> Program:
    return operator(f"x: f32[{SIZE}], ids: i32[{SIZE}], w: u8[{SIZE}]) -> (y: f32[{SIZE}])", f"y[n] = {body}   for n in 0..{SIZE}")


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    ids = rng.integers(-3, SIZE + 3, SIZE).astype(np.int32)
    ids[:2] = -(2**31), 2**31 - 1
    return {"x": np.arange(1, 1 + SIZE, dtype=np.float32), "ids": ids, "w": rng.integers(0, 256, SIZE).astype(np.uint8)}


@pytest.mark.parametrize(
    "body",
    [
        "sum(k, ids[k] == i32(n)) x[k]",
        "sum(k, i32(n) + 1 > ids[k]) x[k]",
        "sum(k, u8(2*n) <= w[k]) x[k]",
        "sum(k, w[k] > 9 and i16(k) - 3 <= i16(n)) x[k]",
        "sum(k in 0..n, i8(k) < i8(n - 5)) x[k]",
        "if i32(n) == 3 then x[n] else 0",
        "x[i32(n) - 1 | 0] + x[i16(n)]",
    ],
)
def test_what_is_compared_and_read_at_is_the_index(body: str) -> None:
    program = with_result(body)
    made = with_plain_indices(program)
    assert all(is_sound(made, d) for d in made.definitions)
    assert_same_bits(*(interpret(p, {}, arrays())["y"] for p in (program, made)))
    left = [n for d in made.definitions for p in d.pieces for n in nodes(p.value)]
    assert not any(isinstance(n, Cast) and isinstance(n.value, IndexValue) for n in left)
    assert not any(isinstance(slot, Dynamic) for n in left if isinstance(n, Read) for slot in n.index)


def test_conditions_on_places_are_apart_from_those_of_data() -> None:
    made = with_plain_indices(with_result("sum(k, w[k] > 9 and i16(k) < i16(n) and k > 3) x[k]"))
    assert "sum(k in 0..50, k < n, k > 3, w[k] > 9) x[k]" in show(made)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("sum(k, i8(3*n) == i8(ids[k])) x[k]", id="the cast changes it"),
        pytest.param("sum(k, u8(n) - 1 < w[k]) x[k]", id="a difference wraps around"),
        pytest.param("sum(k, i8(n) * 4 < i8(w[k])) x[k]", id="a product wraps around"),
        pytest.param("sum(k, u64(n) < u64(ids[k])) x[k]", id="i64 does not hold the data"),
        pytest.param("x[i32(n) + 1]", id="a read that is not in bounds"),
    ],
)
def test_what_may_be_another_number_stays_as_it_is_written(body: str) -> None:
    program = with_result(body)
    assert with_plain_indices(program) == program


def test_terms_of_rows_run_from_where_to_where_data_say() -> None:
    text = """op rows(v: f32[E], start: i32[N + 1]) -> (y: f32[N]) {
        y[n] = sum(e in 0..E, i32(e) >= start[n], i32(e) < start[n + 1]) v[e]
    }"""
    v, start = np.arange(SIZE, dtype=np.float32), np.array([0, 3, 3, 10, SIZE], np.int32)
    rows = tl.parse(text).rows
    assert "value(i64(start[" in rows.explain(v, start)
    np.testing.assert_array_equal(rows(v, start), [0 + 1 + 2, 0, sum(range(3, 10)), sum(range(10, SIZE))])
