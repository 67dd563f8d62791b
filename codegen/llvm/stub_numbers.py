"""Numbers of Python and NumPy's scalars as elements, read where they lie or converted: the part of stubs (`stub`) that arrays do not need.

A port without axes says in its last word which of them it takes (`taken`): 0 arrays alone; otherwise scalars of its own dtype, and beside
them, where the dtype is named where the port is declared,

    2  f64: floats, and integers of 64 bits, rounded
    3  f32: the same, rounded; but no float that would become an infinity
    4  signed integers, 5 unsigned ones: integers that fit

Anything else is refused, and whoever called the stub says what is wrong with it.
"""

from __future__ import annotations

import ctypes

import numpy as np

from codegen.dtypes import DType, f32, f64

ARRAYS, SCALARS, F64, F32, SIGNED, UNSIGNED = range(6)


def taken(dtype: DType, *, named: bool) -> int:
    """Return which numbers a port without axes takes. `named`: whether its dtype is that of the declaration, whatever it is given; where it
    is not, a float of Python is an f32, and so is NumPy's f64, which is one."""
    if dtype.numpy.isbuiltin != 1:
        return ARRAYS  # scalars of a type that NumPy lacks lie as whoever made it says
    if not named:
        return SCALARS if dtype != f64 else ARRAYS
    if dtype in (f64, f32):
        return F64 if dtype == f64 else F32
    if dtype.is_integer:
        return UNSIGNED if dtype.numpy.kind == "u" else SIGNED
    return SCALARS


def as_expected() -> bool:
    """Tell whether numbers lie in memory where `stub_numbers.ll` looks for them: elements behind the head of an object, and the class of
    scalars in a dtype."""
    scalar, number = np.float32(1.5), 2.5
    at = 16
    return (
        ctypes.c_float.from_address(id(scalar) + at).value == 1.5
        and ctypes.c_double.from_address(id(number) + at).value == 2.5
        and ctypes.c_int64.from_address(id(scalar.dtype) + at).value == id(np.float32)
    )


def imports() -> dict[str, int]:
    """Return the addresses of the classes of numbers."""
    return {"tl_float_type": id(float), "tl_double_type": id(np.float64), "tl_integer_type": id(int)}
