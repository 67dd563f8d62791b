"""Sorting and searching: NumPy's stable order, NaN last, for numbers of every type and rows of every length."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ordered_numbers import expected, numbers

import tensorlang as tl
from codegen.llvm.target import host, lacking, levels, named
from tensorlang.operators import operators_of
from tensorlang.runtime.feeds import results_of
from tensorlang.runtime.operator import module_for
from tensorlang.syntax.modules import find
from tensorlang.tensor.interp import interpret


@pytest.mark.parametrize("n", [0, 1, 65])
def test_rows_of_every_length_are_sorted(n: int) -> None:
    x = numbers((3, n), "f4", n)
    order = expected(x, 1, descending=False)
    np.testing.assert_array_equal(tl.std.argsort(x), order)
    np.testing.assert_array_equal(tl.std.sort(x), np.take_along_axis(x, order, 1))
    for count in {0, n // 8, n}:
        y, at = tl.std.top_smallest(x, count=count)
        np.testing.assert_array_equal(at, order[:, :count])
        np.testing.assert_array_equal(y, np.take_along_axis(x, order[:, :count], 1))


def test_any_axis_is_sorted_either_way() -> None:
    x = numbers((2, 40, 3), "i2")
    for descending in (0, 1):
        order = expected(x, 1, descending=bool(descending))
        np.testing.assert_array_equal(tl.std.argsort(x, axis=1, descending=descending), order)
    order = expected(x, 1, descending=True)
    y, at = tl.std.top_largest(x[:, ::-1], axis=1, count=4)
    np.testing.assert_array_equal(at, expected(x[:, ::-1], 1, descending=True)[:, :4])
    np.testing.assert_array_equal(y, np.sort(x, 1)[:, :-5:-1])


def test_sorting_is_the_same_for_all_sizes_in_one_kernel() -> None:
    text = """
use std.sort (top_largest, argsort)
op f(x: f32[M, N]) -> (y: f32[M, 5], at: i64[M, 5]) where N >= 5 { y, at = top_largest(x, count = 5) }
op g(x: f32[M, N]) -> (at: i64[M, N]) { at = argsort(x) }
"""
    ops = tl.parse(text, sizes="symbolic")
    for shape in ((1, 5), (2, 140)):
        x = numbers(shape, "f4", shape[1])
        np.testing.assert_array_equal(ops.f(x)[1], expected(x, 1, descending=True)[:, :5])
        np.testing.assert_array_equal(ops.g(x), expected(x, 1, descending=False))


def test_the_interpreter_runs_the_meaning_of_what_kernels_sort() -> None:
    x = numbers((17,), "f4")
    for operator in (tl.std.sort, tl.std.argsort, tl.std.unique):
        meant = interpret(operator.meaning(x), {}, {"x": x})
        for array, name in zip(results_of(operator(x)), meant, strict=True):
            np.testing.assert_array_equal(array, meant[name])


@pytest.fixture(scope="module")
def sort_of_open_size() -> Any:
    """Return an operator of which one kernel serves all sizes."""
    return tl.parse("use std.sort (sort)\nop values[T: num](x: T[N]) -> (y: T[N]) { y = sort(x) }", sizes="symbolic").values


@pytest.mark.parametrize("dtype", ["f4", "i8", "u1"])
@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 33, 255, 256, 257, 65535, 65536, 65537])
def test_elements_are_sorted_as_numpy_sorts_them_whatever_their_order_was(sort_of_open_size: Any, dtype: str, n: int) -> None:
    few = numbers((n,), dtype, n)
    many = np.random.default_rng(n).permutation(n).astype(dtype)
    for x in (few, many, np.sort(many), np.sort(many)[::-1].copy(), np.full(n, 3, dtype)):
        np.testing.assert_array_equal(sort_of_open_size(x), np.sort(x))


def test_of_zeros_the_negative_one_is_sorted_first() -> None:
    x = np.array([0.0, 3, -0.0, -1, 0.0, np.nan, -0.0], np.float32)
    np.testing.assert_array_equal(np.signbit(tl.std.sort(x)), [True, True, True, False, False, False, False])


def test_each_row_is_sorted_by_a_thread_of_its_own() -> None:
    down = tl.parse("use std.sort (sort)\nop down(x: i16[M, N]) -> (y: i16[M, N]) { y = sort(x, descending = 1) }").down
    x = numbers((70, 600), "i2", 2)
    np.testing.assert_array_equal(down(x), np.take_along_axis(x, expected(x, 1, descending=True), 1))
    assert "parallel y.s.any.count.d.0" in down.explain(x)


@pytest.mark.parametrize("n", [0, 1, 90])
def test_distinct_elements_come_first_and_are_counted(n: int) -> None:
    x = numbers((n,), "f4", 3)
    y, count = tl.std.unique(x)
    found = np.unique(x)
    assert int(count) == len(found)
    np.testing.assert_array_equal(y[: len(found)], found)
    np.testing.assert_array_equal(y[len(found) :], 0)


@pytest.mark.parametrize(("dtype", "n"), [("f4", 0), ("f4", 1), ("f4", 1023), ("f4", 1024), ("u8", 1023)])
def test_places_in_a_sorted_vector_are_those_of_numpy(dtype: str, n: int) -> None:
    x, v = np.sort(numbers((n,), dtype)), numbers((3, 7), dtype, 1)
    for right in (0, 1):
        at = tl.std.searchsorted(x, v, right=right)
        np.testing.assert_array_equal(at, np.searchsorted(x, v, side="right" if right else "left"))


def test_numbers_are_counted_where_they_fall_into_a_bin() -> None:
    ids = np.array([[3, 0, -1, 3], [7, 8, 3, 2**31 - 1]], np.int32)
    np.testing.assert_array_equal(tl.std.bincount(ids, bins=8), [1, 0, 0, 3, 0, 0, 0, 1])
    x = np.array([-1.5, -1, -0.75, 0, 0.5, 1, 1.5, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(tl.std.histogram(x, bins=4, low=-1.0, high=1.0), [2, 0, 1, 2])
    np.testing.assert_array_equal(tl.std.histogram(x[:0], bins=2, low=0.0, high=1.0), [0, 0])


@pytest.mark.parametrize(("dtype", "axis"), [("f4", 0), ("f4", 1), ("f2", 1), ("u8", 0), ("i1", 1)])
def test_extremes_stand_where_the_first_or_last_of_them_does(dtype: str, axis: int) -> None:
    x = numbers((33, 70), dtype, 5)
    x[3], x[:, 4] = 1, 1
    key = x.astype(np.float64) if np.dtype(dtype).kind == "f" else x
    backwards = np.flip(key, axis)
    last = x.shape[axis] - 1
    np.testing.assert_array_equal(tl.std.arg_max(x, axis=axis), key.argmax(axis))
    np.testing.assert_array_equal(tl.std.arg_min(x, axis=axis), key.argmin(axis))
    np.testing.assert_array_equal(tl.std.arg_max_last(x, axis=axis), last - backwards.argmax(axis))
    np.testing.assert_array_equal(tl.std.arg_min_last(x, axis=axis), last - backwards.argmin(axis))


@pytest.mark.parametrize("dtype", ["f4", "f2", "i1"])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums_are_rounded_when_they_are_stored_and_never_between(dtype: str, axis: int) -> None:
    x = numbers((7, 19), dtype, 2)
    x[~np.isfinite(x.astype(np.float32))] = 1
    x[:, 3], x[2] = 100, -0.0 if np.dtype(dtype).kind == "f" else 0
    wide = x.astype(np.float32) if np.dtype(dtype).kind == "f" else x
    zeros = np.zeros_like(np.take(wide, [0], axis))
    sums = np.cumsum(np.concatenate([zeros, wide], axis), axis, dtype=wide.dtype).astype(dtype)
    for inclusive in (0, 1):
        taken = np.arange(x.shape[axis]) + inclusive
        y = tl.std.cumsum(x, axis=axis, inclusive=inclusive)
        np.testing.assert_array_equal(y.view(f"u{y.itemsize}"), np.take(sums, taken, axis).view(f"u{y.itemsize}"))


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e5m2], ids=lambda t: np.dtype(t).name)
def test_numbers_of_less_than_a_byte_are_sorted_too(dtype: Any) -> None:
    x = np.random.default_rng(4).integers(0, 8, 33).astype(dtype)
    order = np.argsort(x.astype(np.float32), kind="stable")
    np.testing.assert_array_equal(tl.std.argsort(x), order)
    np.testing.assert_array_equal(tl.std.sort(x), x[order])


def that_run_here(*names: str) -> tuple[str, ...]:
    """Return those of some levels whose code runs on this machine as it is kept to a level; where none does, what runs anyway."""
    return tuple(name for name in names if name in levels() and not lacking(named(name).needs, host())) or ("cpu",)


@pytest.mark.parametrize("dtype", ["f4", "u8"])
def test_elements_are_sorted_alike_where_no_vector_compresses_or_permutes(dtype: str) -> None:
    ops = tl.use("std.sort", target=that_run_here("x86-64-v2")[0])
    x = numbers((3, 700), dtype, 6)
    order = expected(x, 1, descending=False)
    np.testing.assert_array_equal(ops.argsort(x), order)
    np.testing.assert_array_equal(ops.sort(x), np.take_along_axis(x, order, 1))
    y, at = ops.top_largest(x, count=600)
    np.testing.assert_array_equal(at, expected(x, 1, descending=True)[:, :600])
    np.testing.assert_array_equal(y, np.take_along_axis(x, at, 1))


ELEMENTS = ["_in_order_32", "_in_order_64"]


@pytest.mark.parametrize(("level", "trusted"), [("x86-64-v2", []), ("x86-64-v3", ELEMENTS), ("x86-64-v4", [*ELEMENTS, "_places_32"])])
def test_vectors_that_compress_or_permute_sort_where_the_processor_has_them(level: str, trusted: list[str]) -> None:
    file = find("std.sort").modules[0].source()
    module = module_for(operators_of(file, "cpu", 1), "cpu", named(level).needs.features.__contains__)
    assert sorted(module.externs) == trusted


@pytest.mark.parametrize("level", that_run_here("x86-64-v3", "x86-64-v4"))
def test_the_kernels_of_the_library_compute_what_the_bodies_of_their_operators_say(level: str) -> None:
    ops = operators_of(find("std.sort").modules[0].source(), level, 1)
    for name, kernel in ops["sort"].module.externs.items():
        assert tl.check_extern(ops[name], trials=2) == 2, kernel


def test_places_are_moved_to_where_they_belong_without_a_look_at_the_others() -> None:
    text = tl.use("std.sort", target="x86-64-v2").argsort.explain(numbers((500,), "f4"))
    assert "place_one_at_to" in text
    assert "if i64(place_one_at_to" not in text
