"""The numbers of the language, on NumPy arrays: what every operation of the tensor IR computes, to the bit.

A value of dtype d is *carried* by an array: narrow floats by f32, i4 and i2 by int8, u4 and u2 by uint8, everything else as it is. Integers
wrap; `x // 0 == 0 == x % 0`; float to integer truncates and saturates, NaN becomes 0; elementary functions are those of f64, rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from codegen.dtypes import DType, bf16, bool_, called_dtype, compute_dtype, f32, f64, float_bits, largest, nearest_tf32
from tensorlang.diagnostics import InternalError

Array: TypeAlias = "np.ndarray[Any, Any]"


def carrier(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type in which values of `dtype` are computed."""
    if is_below_a_byte(dtype):
        return np.dtype(np.int8 if dtype.kind == "int" else np.uint8)
    return compute_dtype(dtype).numpy


def is_below_a_byte(dtype: DType) -> bool:
    """Tell whether values of an integer dtype have fewer bits than what carries them."""
    return dtype.is_integer and dtype.bits < 8


def load(array: Array, dtype: DType) -> Array:
    """Return the carried form of an array as stored."""
    return array.astype(carrier(dtype))


def store(values: Array, dtype: DType) -> Array:
    """Return the stored form of carried values; they are exact in `dtype` already."""
    return values.astype(dtype.numpy)


def rounded(values: Array, dtype: DType) -> Array:
    """Return carried values of `dtype`'s compute type as a tensor of `dtype` would hold them: narrow floats are rounded once."""
    return values.astype(dtype.numpy).astype(np.float32) if compute_dtype(dtype) != dtype else values


# ---------------------------------------------------------------- integers


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the least and greatest value of an integer dtype."""
    if dtype == bool_:
        return 0, 1
    return (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)


def wrapped(values: Array, dtype: DType) -> Array:
    """Return integers modulo 2**bits as `dtype`'s carrier."""
    if not is_below_a_byte(dtype):
        return values.astype(dtype.numpy)
    low = values.astype(np.uint8) & np.uint8((1 << dtype.bits) - 1)
    if dtype.kind == "uint":
        return low
    above = low >= np.uint8(1 << (dtype.bits - 1))
    return np.where(above, low.astype(np.int8) - np.int8(1 << dtype.bits), low).astype(np.int8)


def constant(value: float | int | bool, dtype: DType, count: int) -> Array:
    """Return `count` copies of a literal, carried."""
    if dtype.is_integer:
        low, high = integer_range(dtype)
        value = (int(value) - low) % (high - low + 1) + low
    return rounded(np.full(count, value, carrier(dtype)), dtype)


# ---------------------------------------------------------------- operations


def unary(op: str, a: Array, dtype: DType) -> Array:
    match op:
        case "neg":
            return _fit(np.negative(a), dtype)
        case "abs":
            return _fit(np.abs(a), dtype)
        case "bitnot":
            return _fit(np.invert(a), dtype)
        case "not":
            return np.logical_not(a)
        case _:
            raise InternalError("interp", f"unknown operation `{op}`")


_SIMPLE: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "and": np.logical_and,
    "or": np.logical_or,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
}
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def binary(op: str, a: Array, b: Array, dtype: DType) -> Array:
    if op in _SIMPLE:
        return _fit(_SIMPLE[op](a, b), dtype)
    match op:
        case "//":
            return _fit(np.floor_divide(a, b), dtype)
        case "%":
            return _fit(np.mod(a, b), dtype)
        case "min":
            return _least(a, b) if dtype.is_float else np.minimum(a, b)
        case "max":
            return -_least(-a, -b) if dtype.is_float else np.maximum(a, b)
        case "shl":
            return _shift(np.left_shift, a, b, dtype)
        case "shr":
            return _shift(np.right_shift, a, b, dtype)
        case _:
            raise InternalError("interp", f"unknown operation `{op}`")


def compare(op: str, a: Array, b: Array) -> Array:
    return _COMPARE[op](a, b)


def _shift(shift: Callable[[Array, Array], Array], a: Array, b: Array, dtype: DType) -> Array:
    """A shift by the width or more, or by a negative count, shifts everything out."""
    out = (b < 0) | (b >= dtype.bits)
    kept = shift(a, np.where(out, b.dtype.type(0), b))
    gone = np.where(a < 0, -1, 0) if shift is np.right_shift and dtype.kind == "int" else 0
    return _fit(np.where(out, gone, kept).astype(a.dtype), dtype)


def _least(a: Array, b: Array) -> Array:
    """Return the minimum, NaN if a side is; of two zeros the negative one."""
    return np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b))


def _fit(values: Array, dtype: DType) -> Array:
    return wrapped(values, dtype) if is_below_a_byte(dtype) else values


def accumulate(kind: str, values: Array, dtype: DType) -> Array | None:
    """Return the left fold of `values` along their second axis, or None when no NumPy function does just that."""
    table: dict[str, np.ufunc] = {
        "sum": np.add,
        "prod": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
        "any": np.logical_or,
        "all": np.logical_and,
    }
    if kind not in table or is_below_a_byte(dtype):
        return None
    if kind in ("min", "max") and dtype.is_float and ((values == 0) & np.signbit(values)).any():
        # NumPy does not order zeros by sign.
        return None
    # `reduce` sums pairwise; `accumulate` goes from left to right.
    result: Array = table[kind].accumulate(values, axis=1, dtype=values.dtype)[:, -1]
    return result


# ---------------------------------------------------------------- casts


def cast(values: Array, source: DType, target: DType, saturate: bool) -> Array:
    """Return `values` (of `source`'s compute type) converted to `target`, carried."""
    if target == bool_:
        return np.not_equal(values, 0)
    if target.is_float:
        return _to_float(values, source, target, saturate)
    if source.is_float:
        return _float_to_int(values, target)
    return _saturated(values, source, target) if saturate else wrapped(values, target)


def _to_float(values: Array, source: DType, target: DType, saturate: bool) -> Array:
    if target in (f32, f64):
        return values.astype(target.numpy)
    # Integers reach the narrow floats through f32.
    narrow = _odd_f32(values) if source == f64 else values.astype(np.float32)
    if saturate:
        limit = np.float32(largest(target))
        narrow = np.where(np.isnan(narrow), narrow, np.clip(narrow, -limit, limit))
    return rounded(narrow.astype(np.float32), target)


def _odd_f32(values: Array) -> Array:
    """Return f64 values as f32, rounded to odd, so that rounding once more to fewer bits gives what rounding once would (Boldo 2008)."""
    near = values.astype(np.float32)
    wide = near.astype(np.float64)
    inexact = (wide != values) & np.isfinite(values)
    even = (near.view(np.uint32) & np.uint32(1)) == 0
    toward = np.nextafter(near, np.where(values > wide, np.float32(np.inf), np.float32(-np.inf)))
    return np.where(inexact & even, toward, near)


def _float_to_int(values: Array, target: DType) -> Array:
    low, high = integer_range(target)
    wide = np.trunc(values.astype(np.float64))
    # high + 1 and low are powers of two (or zero), hence exact in f64; high may not be.
    inside = (wide >= low) & (wide < float(high + 1))
    kept = np.where(inside, wide, 0)
    whole = kept.astype(np.uint64) if target.name == "u64" else kept.astype(np.int64)
    out = whole.astype(carrier(target))
    out = np.where(wide >= float(high + 1), np.array(high, carrier(target)), out)
    return np.where(wide < low, np.array(low, carrier(target)), out)


def _saturated(values: Array, source: DType, target: DType) -> Array:
    (lowest, highest), (low, high) = integer_range(source), integer_range(target)
    if source == bool_:
        return values.astype(carrier(target))
    kind = values.dtype.type
    return np.clip(values, kind(max(low, lowest)), kind(min(high, highest))).astype(carrier(target))


# ---------------------------------------------------------------- elementary functions

_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "sin", "cos", "tan")},
    **{name: getattr(np, name) for name in ("sinh", "cosh", "tanh", "floor", "ceil", "trunc", "fmod", "isnan", "isinf")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "round": np.rint,
    "round_bf16": lambda x: x.astype(bf16.numpy).astype(x.dtype),
    "round_tf32": lambda x: nearest_tf32(x.astype(np.float32)).astype(x.dtype),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "erf": lambda x: np.asarray(_erf(x), np.float64),
}
FUNCTIONS = frozenset(_FUNCTIONS) | {"bits", "from_bits"}
ARITY = {"pow": 2, "fmod": 2, "atan2": 2}


def call(fn: str, args: list[Array], dtype: DType) -> Array:
    """Return an elementary function, computed in f64 and rounded to `dtype`."""
    if fn == "bits":
        return float_bits(args[0].astype(dtype.numpy))
    if fn == "from_bits":
        return args[0].astype(dtype.numpy).view(called_dtype(fn, dtype).numpy)
    result = _FUNCTIONS[fn](*(a.astype(np.float64) for a in args))
    return result if result.dtype == np.bool_ else result.astype(dtype.numpy)
