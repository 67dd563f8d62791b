"""The table of element types: what it says of floats is what NumPy and ml_dtypes say."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.dtypes import DTYPES, FORMATS, f32, f64, largest, nearest

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
