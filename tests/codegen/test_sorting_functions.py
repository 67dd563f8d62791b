"""Functions that sort by vectors: the order is right for every length and every kind of order before, and nothing else is written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from codegen.llvm.foreign import text_function
from codegen.llvm.jit import compile_object
from codegen.llvm.sorting import FEATURES, sorted_places, sorted_rows, sorting_network
from codegen.llvm.stamp import line
from codegen.llvm.target import host, lacking, named

Array = np.ndarray[Any, Any]
TEXTS = {
    "u4": (sorted_rows("rows", 32), 512),
    "u8": (sorted_rows("rows", 64), 512),
    "places": (sorted_places("rows"), 512),
    "u4 of 256 bits": (sorted_rows("rows", 32, 256), 256),
    "u8 of 256 bits": (sorted_rows("rows", 64, 256), 256),
}
MACHINES = {512: named("x86-64-v4"), 256: named("x86-64-v3")}
GUARD = 64


@cache
def sorter(kind: str) -> Callable[[Array, Array], None]:
    """Return what sorts rows: natively where this machine has the instructions; elsewhere the code is made, and NumPy sorts."""
    text, width = TEXTS[kind]
    machine = MACHINES[width]
    if lacking(machine.needs, host()):
        assert compile_object(line(machine) + text, machine)
        return lambda y, x: np.copyto(y, np.argsort(x, kind="stable") if kind == "places" else np.sort(x))
    address = text_function(text, "rows", ("ptr", "ptr", "i64", "ptr", "i64"), host(), None)
    call = ctypes.CFUNCTYPE(ctypes.c_int32)(address)

    def run(y: Array, x: Array) -> None:
        lengths = (ctypes.c_int64 * max(1, x.ndim - 1))(*x.shape[:-1])
        numbers = ctypes.c_int64(x.ndim - 1), lengths, ctypes.c_int64(x.shape[-1])
        assert call(ctypes.c_void_p(y.ctypes.data), ctypes.c_void_p(x.ctypes.data), *numbers) == 0

    return run


def ordered(kind: str, x: Array) -> Array:
    """Return rows in order, or where their elements stood, having seen that nothing around them changed."""
    block = np.full(x.size + 2 * GUARD, 77, np.int32 if kind == "places" else x.dtype)
    given = x.copy()
    sorter(kind)(block[GUARD : GUARD + x.size].reshape(x.shape), x)
    np.testing.assert_array_equal(x, given)
    assert (block[:GUARD] == 77).all()
    assert (block[GUARD + x.size :] == 77).all()
    return block[GUARD : GUARD + x.size].reshape(x.shape)


def orders(n: int, dtype: str) -> Iterator[Array]:
    """Yield arrays of `n` elements: of many and of few distinct numbers, rising, falling, both, the ends of the type."""
    rng, most = np.random.default_rng(n), np.iinfo(dtype).max
    yield rng.integers(0, most, n, dtype=dtype, endpoint=True)
    for distinct in (1, 2, 7):
        yield rng.integers(0, distinct, n, dtype=dtype)
    yield np.arange(n, dtype=dtype)
    yield np.arange(n, dtype=dtype)[::-1].copy()
    yield np.concatenate([np.arange(n // 2, dtype=dtype), np.arange(n - n // 2, dtype=dtype)[::-1]])
    yield np.where(np.arange(n) % 3 == 0, most, 0).astype(dtype)
    yield np.full(n, most, dtype)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 16, 17, 33, 127, 128, 129, 191, 192, 193, 255, 256, 257, 319, 320, 321, 1000, 20000])
def test_rows_of_every_length_are_put_in_order_whatever_it_was_before(kind: str, n: int) -> None:
    for x in orders(n, "u8" if kind.startswith("u8") else "u4"):
        np.testing.assert_array_equal(ordered(kind, x), np.argsort(x, kind="stable") if kind == "places" else np.sort(x))


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("shape", [(3, 5), (2, 0, 4), (2, 3, 300), (4, 1), (5, 0)])
def test_each_row_is_sorted_by_itself(kind: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(3).integers(0, 50, shape).astype("u8" if kind.startswith("u8") else "u4")
    np.testing.assert_array_equal(ordered(kind, x), np.argsort(x, -1, kind="stable") if kind == "places" else np.sort(x, -1))


@pytest.mark.parametrize("kind", ["u4", "u4 of 256 bits"])
def test_numbers_whose_samples_mislead_are_divided_by_the_middle_of_what_they_may_be(kind: str) -> None:
    """The median of the samples is the least of nearly all elements, in every part that is left."""
    n = 1 << 14
    x = np.arange(n, dtype=np.uint32) + 5
    x[:: n // 16] = np.arange(16)
    np.testing.assert_array_equal(ordered(kind, x), np.sort(x))


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_network_sorts_all_zeros_and_ones_and_so_everything(count: int) -> None:
    for bits in range(1 << count):
        values = [bits >> k & 1 for k in range(count)]
        for low, high in sorting_network(count):
            values[low], values[high] = min(values[low], values[high]), max(values[low], values[high])
        assert values == sorted(values)


def test_what_the_functions_need_is_what_levels_have() -> None:
    assert all(set(needed) <= MACHINES[width].needs.features for width, needed in FEATURES.items())
