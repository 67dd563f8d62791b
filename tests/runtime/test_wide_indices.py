"""Index arithmetic is that of integers: what would leave 64 bits is refused, what stays within them is right."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import agrees, only

import tensorlang as tl
from tensorlang.diagnostics import CompileError

W = np.arange(1, 9, dtype=np.float32)
HALF = 2**62
WIDE = {
    "a condition": (f"op f(x: f32[2], w: f32[N]) -> (y: f32[N]) {{ y[i] = if {HALF} * i <= {HALF} then x[i] else w[i] }}", (W[:2], W)),
    "padding": (f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i * {HALF} | 0] }}", (W,)),
    "a value": (f"op f(x: f32[N]) -> (y: i64[N]) {{ y[i] = i * {HALF} }}", (W,)),
    "a guard": (f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i] for i * {HALF} <= 0\n y[i] = 0 otherwise }}", (W,)),
    "a range": (f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = sum(k in i * {HALF}..i * {HALF} + 2) x[i] }}", (W,)),
    "terms that are kept": (f"op f(x: f32[N]) -> (y: f32[N]) {{ y[i] = sum(k in 0..N, k * {HALF} == i) x[k] }}", (W,)),
}


@pytest.mark.parametrize("sizes", ["static", "symbolic"])
@pytest.mark.parametrize("form", WIDE)
def test_an_index_that_leaves_64_bits_is_refused(form: str, sizes: str) -> None:
    text, arrays = WIDE[form]
    with pytest.raises(CompileError) as refused:
        only(tl.parse(text, sizes=sizes))(*arrays)
    assert {d.code for d in refused.value.diagnostics} == {"T0308"}


@pytest.mark.parametrize(
    "body",
    [
        "if at[i] > i then y[at[i] + at[i] + at[i] + at[i] | 0] + x[i] else x[i]",
        "if at[i] < i then y[at[i] + at[i] | 0] + x[i] else x[i]",
        "if at[i] < 0 then y[i - at[i] - at[i] | 0] + x[i] else x[i]",
    ],
)
def test_sums_of_data_that_wrap_name_no_elements_that_come_earlier_or_later(body: str) -> None:
    with pytest.raises(CompileError, match="T0307"):
        tl.parse(f"op f(at: i64[N], x: f32[N]) -> (y: f32[N]) {{ y[i] = {body} }}").f(np.full(8, 2**62), W)


@pytest.mark.parametrize(("dtype", "lag"), [("i32", "w[i]"), ("i64", "w[i]"), ("u32", "max(w[i], 1)"), ("i32", "max(w[i], 1)")])
def test_differences_of_an_index_and_data_that_cannot_wrap_name_what_comes_earlier(dtype: str, lag: str) -> None:
    w = np.array([1, 2, 3, 1, 2, 3, 1, 2])
    text = f"op f(w: {dtype}[N], x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i] + (if w[i] > 0 then y[i - {lag} | 0] else 0) }}"
    expected = np.zeros(8, np.float32)
    for i in range(8):
        expected[i] = W[i] + (expected[i - w[i]] if w[i] <= i else 0)
    np.testing.assert_array_equal(tl.parse(text).f(w.astype({"i32": np.int32, "i64": np.int64, "u32": np.uint32}[dtype]), W), expected)


@pytest.mark.parametrize("place", ["i - max(w[i], 1)", "max(w[i], 1) - i", "i + min(w[i], 1)", "min(i - max(w[i], 1), i - 2)"])
@pytest.mark.parametrize("outside", ["0", "clamp"])
def test_data_of_64_bits_move_an_index_by_at_least_or_at_most(place: str, outside: str) -> None:
    text = f"op f(w: i64[N], x: f32[N]) -> (y: f32[N]) {{ y[i] = x[{place} | {outside}] }}"
    w = np.array([1, -2, 3, 2**62, 2, 2**63 - 1, -(2**63), 2])
    at = [eval(place, {"i": i, "w": w.tolist(), "max": max, "min": min}) for i in range(8)]
    near = W[np.clip(np.array(at, object), 0, 7).astype(int)]
    expected = near if outside == "clamp" else np.where([0 <= k < 8 for k in at], near, 0)
    np.testing.assert_array_equal(tl.parse(text).f(w, W), expected)


@pytest.mark.parametrize(
    ("condition", "place"), [("at[i] <= i", "at[i] - 1"), ("at[i] > 0", "i - at[i]"), ("at[i] >= 0", "i - 1 - at[i] + 1 - 1")]
)
def test_one_that_data_name_and_numbers_move_comes_earlier_also_where_the_sum_could_wrap(condition: str, place: str) -> None:
    ends = np.iinfo(np.int64)
    at = np.array([ends.min, ends.max, 0, 1, ends.min + 1, 2, 3, 9])
    text = f"op f(at: i64[N], x: f32[N]) -> (y: f32[N]) {{ y[i] = x[i] + (if {condition} then y[{place} | 0] else 0) }}"
    expected = np.zeros(8, np.float32)
    for i in range(8):
        named = int(eval(place, {"at": list(map(int, at)), "i": i}))
        holds = eval(condition, {"at": at, "i": i})
        expected[i] = W[i] + (expected[named] if holds and 0 <= named < i else 0)
    np.testing.assert_array_equal(tl.parse(text).f(at, W), expected)


NARROW = {
    "a division": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[i * 4096 // 4096] }",
    "a remainder": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = x[(i + 4611686018427387) % 461168601842738790 | 0] }",
    "a long range": "op f(x: f32[N]) -> (y: f32[N]) { y[i] = sum(k in 0..N * 1000, k == i * 1000) x[i] }",
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("form", NARROW)
def test_large_numbers_within_64_bits_are_right(form: str, symbolic: bool) -> None:
    agrees(NARROW[form], W, symbolic=symbolic)
