"""What passes make of a model of mixed types computes what its nodes do one by one: bit by bit in the interpreter, and native."""

from __future__ import annotations

import numpy as np
import pytest
from random_models import Array, random_model
from small_graphs import run

import tensorlang as tl
from stdlib.onnx import Importer
from tensorlang.graph.options import Options
from tensorlang.graph.pipeline import optimise


def bits(array: Array) -> Array:
    """Return the bits of an array, all NaN alike."""
    alike = np.where(np.isnan(array), np.full((), np.nan).astype(array.dtype), array) if array.dtype.kind not in "biu" else array
    return np.ascontiguousarray(alike).view(np.uint8)


def same(actual: Array, expected: Array) -> bool:
    """Tell whether results have the same type, shape and numbers; either zero is one."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    return bool(np.array_equal(*(a if a.dtype.kind in "biu" else a.astype(np.float64) for a in (actual, expected)), equal_nan=True))


@pytest.mark.parametrize("seed", range(120))
def test_passes_change_no_bit(seed: int) -> None:
    model, feeds = random_model(seed)
    before = Importer().load(model)
    expected = run(before, feeds)
    after = optimise(before, Options(near_bytes=256 if seed % 2 else 0))
    actual = run(after, feeds)
    for name, result in zip(before.outputs, after.outputs, strict=True):
        np.testing.assert_array_equal(bits(actual[result]), bits(expected[name]), strict=True)


@pytest.mark.parametrize("seed", range(40))
def test_native_code_computes_the_same(seed: int) -> None:
    model, feeds = random_model(seed)
    expected = run(Importer().load(model), feeds)
    actual = tl.compile(model, threads=1, importers=[Importer()]).run(feeds)
    assert all(same(np.asarray(actual[name]), expected[name]) for name in expected)
