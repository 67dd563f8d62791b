"""The largest and the smallest elements: in NumPy's stable order, NaN last, for numbers of every type, whichever way they are found."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ordered_numbers import expected, numbers

import tensorlang as tl
from codegen.dtypes import f32
from stdlib.onnx.table.indexing import top_k_options

TYPES = ["f4", "f8", ml_dtypes.bfloat16, "i1", "u2", "i4", "u8"]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_elements_of_every_type_are_selected_in_their_order(dtype: Any) -> None:
    x = numbers((2, 300), dtype)
    for count in (3, 300) if dtype in ("f4", "u8") else (3,):
        order = expected(x, 1, descending=True)[:, :count]
        y, at = tl.std.top_largest(x, count=count)
        np.testing.assert_array_equal(at, order)
        np.testing.assert_array_equal(y.view(f"u{y.itemsize}"), np.take_along_axis(x, order, 1).view(f"u{y.itemsize}"))


def test_few_elements_are_selected_alike_from_rows_of_any_length() -> None:
    """A kernel for all lengths goes through the elements that it selects, not through all: what is chosen depends on their number alone."""
    for n in (90, 91, 92, 93):
        x = numbers((1, n), "f4", n)
        np.testing.assert_array_equal(tl.std.top_largest(x, count=9)[1], expected(x, 1, descending=True)[:, :9])
    assert "all_w" not in tl.std.top_largest.explain(x, count=9)


def test_rows_that_are_all_alike_keep_their_order() -> None:
    for value in (np.uint8(0), np.int8(-128), np.int8(127)):
        x = np.full((1, 200), value)
        for op in (tl.std.top_largest, tl.std.top_smallest):
            np.testing.assert_array_equal(op(x, count=7)[1][0], np.arange(7))


@pytest.mark.parametrize("way", [{"way": 1}, {"way": 2, "block": 16}, {"way": 3}], ids=["compared with all", "short blocks", "sorted"])
@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_elements_are_selected_alike_whichever_way(dtype: str, way: dict[str, int]) -> None:
    x = numbers((3, 41), dtype, 5)
    for op, descending in ((tl.std.top_largest, True), (tl.std.top_smallest, False)):
        np.testing.assert_array_equal(op(x, count=9, **way)[1], expected(x, 1, descending=descending)[:, :9])


@pytest.mark.parametrize(("dtype", "axis"), [("f4", 0), ("f2", 1), ("i8", 1), ("u1", 0)])
def test_one_element_is_the_first_of_all_in_their_order(dtype: str, axis: int) -> None:
    x = numbers((23, 41), dtype, 6)
    for op, descending in ((tl.std.top_largest, True), (tl.std.top_smallest, False)):
        np.testing.assert_array_equal(op(x, axis=axis, count=1)[1], expected(x, axis, descending=descending).take([0], axis))
    assert "few." not in tl.std.top_largest.explain(x, axis=axis, count=1)


def test_elements_are_taken_one_after_the_other_until_sorting_all_takes_less() -> None:
    """What detectors keep of all their boxes is picked: 300 of 8400 in a quarter of the time that sorting these takes."""
    for n, count, is_sorted in ((2100, 75, False), (150, 80, True)):
        picked = "few." in tl.std.top_largest.explain(numbers((1, n), "f4", 1), count=count)
        assert picked != is_sorted


def test_few_elements_are_compared_with_all_and_rows_that_are_not_long_have_short_blocks() -> None:
    assert top_k_options(41, 9, f32) == {"way": 1} and top_k_options(1097, 9, f32) == {"block": 16}
    assert top_k_options(100, 10, f32) == {"block": 16} and top_k_options(100, 40, f32) == {"way": 1}
    assert top_k_options(100, 1, f32) == {}
    assert top_k_options(50_257, 50, f32) == {} and top_k_options(None, 5, f32) == {}
