"""The table of element types: what it says of floats is what NumPy and ml_dtypes say."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.dtypes import DTYPES, FORMATS, DType, f32, f64, holds, largest, nearest

FLOATS = [d for d in DTYPES.values() if d.is_float]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_float_type_counts_as_its_library_says(dtype) -> None:
    known, found = ml_dtypes.finfo(dtype.numpy), FORMATS[dtype.name]
    assert (found.mantissa_bits, found.highest_exponent, found.lowest_exponent) == (known.nmant, known.maxexp, known.minexp)
    assert largest(dtype) == float(known.max)


@given(st.floats(-largest(f32), largest(f32)) | st.sampled_from([math.inf, -math.inf, -0.0, 1e-45, 7e-46]))
def test_the_nearest_number_is_the_one_that_numpy_rounds_to(value: float) -> None:
    for dtype in (f32, f64):
        expected = float(dtype.numpy.type(value))
        assert np.float64(nearest(value, dtype)).tobytes() == np.float64(expected).tobytes()


def test_what_is_no_number_stays_so() -> None:
    assert math.isnan(nearest(math.nan, f32)) and math.isnan(nearest(math.nan, f64))


def every_value(dtype: DType) -> np.ndarray:
    """Return all values of a type of at most 16 bits."""
    if dtype.is_float:
        with np.errstate(invalid="ignore"):
            return np.arange(2**dtype.bits, dtype=f"u{dtype.size_bytes}").view(dtype.numpy).astype(np.float64)
    low = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
    return np.arange(low, 2 if dtype.kind == "bool" else low + 2**dtype.bits, dtype=np.float64)


@pytest.mark.parametrize("narrow", [d for d in DTYPES.values() if d.bits <= 16], ids=str)
def test_a_type_holds_another_where_every_value_of_that_is_one_of_its_own(narrow: DType) -> None:
    values = every_value(narrow)
    for wide in (d for d in DTYPES.values() if d.kind != "bool"):
        with np.errstate(all="ignore"):
            there = values.astype(wide.numpy).astype(np.float64) if wide.is_float else np.round(values)
        low = -(2 ** (wide.bits - 1)) if wide.kind == "int" else 0
        inside = wide.is_float or bool(np.all((values >= low) & (values < low + 2**wide.bits)))
        assert holds(wide, narrow) == (inside and np.array_equal(there, values, equal_nan=True)), wide
    assert holds(DTYPES["bool"], narrow) == (narrow.kind == "bool")
