"""Arithmetic on single values, as nodes.py describes it: what the interpreter computes with.

Values are Python integers and booleans, and NumPy scalars for floats, so that f32 arithmetic rounds to f32. What nodes.py leaves open
is decided as NumPy does: `//` and `%` of floats are those of `np.floor_divide` and `np.mod`; a shift by the width or more shifts
everything out. Arguments of `min` and `max` that are both zero are ordered by sign.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple, Never, TypeAlias

import numpy as np

from codegen.dtypes import DType, bf16, bool_, called_dtype, f32, f64, float_bits, largest, limits, nearest_tf32
from codegen.errors import InternalError

Scalar: TypeAlias = Any
"""An int, a bool, or a NumPy floating-point scalar."""


class Value(NamedTuple):
    """A value and its element type."""

    dtype: DType
    scalar: Scalar


def unary(op: str, x: Value) -> Value:
    """Return `op x`."""
    match op:
        case "neg":
            return _integer_or_float(x.dtype, -x.scalar)
        case "abs":
            return _integer_or_float(x.dtype, abs(x.scalar))
        case "not":
            return Value(bool_, not x.scalar)
        case "bitnot":
            return Value(x.dtype, wrapped(~x.scalar, x.dtype))
        case _:
            fail(f"unknown operation {op!r}")


def binary(op: str, x: Value, y: Value) -> Value:
    """Return `x op y` for every operation but the lazy `and` and `or`."""
    if not x.dtype.is_float:  # numbers of Python, which warn of nothing
        return warned_binary(op, x, y)
    with np.errstate(all="ignore"):
        return warned_binary(op, x, y)


def warned_binary(op: str, x: Value, y: Value) -> Value:
    """Return what `binary` does, and warn of what NumPy warns of: for whoever has told it, for many operations, not to."""
    dtype = x.dtype
    if dtype != y.dtype:
        fail(f"{op!r} of {dtype} and {y.dtype}")
    compute = (_FLOAT if dtype.is_float else _INTEGER).get(op)
    if compute is None:
        fail(f"{op!r} is not defined for {dtype}")
    return _integer_or_float(dtype, compute(x.scalar, y.scalar, dtype))


def compare(op: str, x: Value, y: Value) -> Value:
    """Return the truth of `x op y`; comparisons with NaN are false, except `!=`."""
    return Value(bool_, bool(_COMPARE[op](x.scalar, y.scalar)))


def cast(dtype: DType, x: Value, saturate: bool = False) -> Value:
    """Return `x` converted to `dtype`."""
    if dtype == bool_:
        return Value(dtype, bool(x.scalar != 0))
    if dtype.is_float:
        return Value(dtype, _round(_limited(x, dtype) if saturate and dtype.bits < 32 else x, dtype))
    if x.dtype.is_float:
        return Value(dtype, _truncate(float(x.scalar), dtype))
    return Value(dtype, _clamp(int(x.scalar), dtype) if saturate else wrapped(int(x.scalar), dtype))


def call(fn: str, args: list[Value]) -> Value:
    """Return the elementary function `fn` of `args`."""
    if fn not in _CALLS:
        fail(f"unknown function `{fn}`")
    dtype = args[0].dtype
    made = called_dtype(fn, dtype)
    of_bits = made.is_float and not dtype.is_float
    with np.errstate(all="ignore"):
        result = _CALLS[fn](*(dtype.numpy.type(arg.scalar) if of_bits else arg.scalar for arg in args))
    return Value(made, bool(result) if made == bool_ else int(result) if made.is_integer else made.numpy.type(result))


def fma(a: Value, b: Value, c: Value) -> Value:
    """Return `a * b + c`, rounded once."""
    dtype = a.dtype
    x, y, z = (float(v.scalar) for v in (a, b, c))
    if not math.isfinite(z) and math.isfinite(x) and math.isfinite(y):
        return c
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        with np.errstate(all="ignore"):
            return Value(dtype, a.scalar * b.scalar + c.scalar)
    if dtype == f32:
        return Value(dtype, _fma_of_singles(x, y, z))
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        # The sum of zeros is computed exactly, sign included; of other numbers that cancel it is +0.
        with np.errstate(all="ignore"):
            zero = math.copysign(0.0, x) * math.copysign(1.0, y) + z if x == 0 or y == 0 else 0.0
        return Value(dtype, dtype.numpy.type(zero))
    return Value(dtype, nearest(exact, dtype))


def _fma_of_singles(x: float, y: float, z: float) -> Scalar:
    """Return `x * y + z` as an f32, rounded once, of finite numbers that are f32.

    The product is exact as an f64. What the sum loses is exact as well (Knuth's TwoSum), so that the sum can be rounded to odd, and what is
    rounded to odd with two digits more than an f32 has rounds to the f32 that the exact sum rounds to (Boldo and Melquiond 2008)."""
    product = x * y
    total = product + z
    added = total - product
    lost = (product - (total - added)) + (z - added)
    if lost and not int(math.ldexp(math.frexp(total)[0], 53)) & 1:
        total = math.nextafter(total, math.copysign(math.inf, lost))
    with np.errstate(over="ignore"):
        return np.float32(total)


def dot(products: Sequence[tuple[Value, Value]], total: Value) -> Value:
    """Return the sum of `products`, exact, and `total`, rounded once; integers wrap."""
    exact = Fraction(0)
    special = 0.0
    for x, y in products:
        product = float(x.scalar) * float(y.scalar)
        if math.isfinite(product):
            exact += Fraction(product)
        else:
            special += product
    dtype = total.dtype
    if not dtype.is_float:
        return Value(dtype, wrapped(int(total.scalar) + int(exact), dtype))
    if special != 0.0 or not math.isfinite(total.scalar):
        return Value(dtype, literal(float(total.scalar) + special, dtype))
    exact += Fraction(float(total.scalar))
    return Value(dtype, nearest(exact, dtype) if exact else dtype.numpy.type(0.0))


def nearest(exact: Fraction, dtype: DType) -> Scalar:
    """Return the f32 or f64 nearest to `exact` (not zero), ties to even, overflowing to infinity."""
    digits, lowest, highest = (24, -149, 127) if dtype == f32 else (53, -1074, 1023)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    quantum = max(exponent - digits + 1, lowest)
    steps = round(size / Fraction(2) ** quantum)
    if steps.bit_length() + quantum > highest + 1:
        return dtype.numpy.type(math.inf if exact > 0 else -math.inf)
    return dtype.numpy.type(math.copysign(math.ldexp(steps, quantum), 1 if exact > 0 else -1))


def literal(value: float | int | bool, dtype: DType) -> Scalar:
    """Return a constant as a value of its type."""
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.float64(value).astype(dtype.numpy)[()]
    return bool(value) if dtype == bool_ else int(value)


def scalar_of(element: Any, dtype: DType) -> Scalar:
    """Return an element of an array as a value."""
    if dtype.is_float:
        return element
    return bool(element) if dtype == bool_ else int(element)


def _round(x: Value, dtype: DType) -> Scalar:
    """Return `x` rounded to the nearest value of the float type `dtype`. Integers reach the narrow floats through f32."""
    with np.errstate(all="ignore"):
        if x.dtype.is_float:
            narrow = x.dtype == f64 and dtype.bits < 32
            return np.asarray(_to_odd(x.scalar) if narrow else x.scalar).astype(dtype.numpy)[()]
        exact = Fraction(int(x.scalar))
        wide = f64 if dtype == f64 else f32
        return np.asarray(nearest(exact, wide) if exact else wide.numpy.type(0)).astype(dtype.numpy)[()]


def _limited(x: Value, dtype: DType) -> Value:
    """Return `x` in the range of the narrow float `dtype`; NaN stays."""
    limit = largest(dtype)
    wide = x if x.dtype == f64 else Value(f32, _round(x, f32))
    return Value(wide.dtype, wide.dtype.numpy.type(limit if wide.scalar > limit else -limit if wide.scalar < -limit else wide.scalar))


def _to_odd(x: Scalar) -> Scalar:
    """Return the f64 `x` as an f32, an inexact one with its last bit set, so that rounding the result once more is rounding `x` once."""
    near = np.float32(x)
    if not np.isfinite(near) or float(near) == float(x) or near.view(np.uint32) & 1:
        return near
    return np.nextafter(near, np.float32(math.copysign(math.inf, float(x) - float(near))))


def _truncate(x: float, dtype: DType) -> int:
    if math.isnan(x):
        return 0
    low, high = limits(dtype)
    if math.isinf(x):
        return high if x > 0 else low
    return _clamp(math.trunc(x), dtype)


def _clamp(x: int, dtype: DType) -> int:
    low, high = limits(dtype)
    return min(max(x, low), high)


def wrapped(x: int, dtype: DType) -> int:
    """Return the value of an integer type that equals `x` modulo its range."""
    low, high = limits(dtype)
    return x if low <= x <= high else (x - low) % (1 << dtype.bits) + low


@cache
def _type_of(dtype: DType) -> Any:
    """Return NumPy's class of the scalars of a float type."""
    return dtype.numpy.type


def _integer_or_float(dtype: DType, scalar: Scalar) -> Value:
    if dtype.is_float:
        kind = _type_of(dtype)
        return Value(dtype, scalar if type(scalar) is kind else kind(scalar))
    return Value(dtype, bool(scalar) if dtype == bool_ else wrapped(int(scalar), dtype))


def _minimum(x: Scalar, y: Scalar, _: DType) -> Scalar:
    if np.isnan(x) or np.isnan(y):
        return x + y
    return x if x < y or (x == y and np.signbit(x)) else y


def _maximum(x: Scalar, y: Scalar, _: DType) -> Scalar:
    if np.isnan(x) or np.isnan(y):
        return x + y
    return x if x > y or (x == y and not np.signbit(x)) else y


def _shift_left(x: int, y: int, dtype: DType) -> int:
    return x << y if 0 <= y < dtype.bits else 0


def _shift_right(x: int, y: int, dtype: DType) -> int:
    return x >> (y if 0 <= y < dtype.bits else dtype.bits)


_FLOAT: Mapping[str, Callable[[Scalar, Scalar, DType], Scalar]] = {
    "+": lambda x, y, _: x + y,
    "-": lambda x, y, _: x - y,
    "*": lambda x, y, _: x * y,
    "/": lambda x, y, _: np.divide(x, y),
    "//": lambda x, y, _: np.floor_divide(x, y),
    "%": lambda x, y, _: np.mod(x, y),
    "min": _minimum,
    "max": _maximum,
}
_INTEGER: Mapping[str, Callable[[Scalar, Scalar, DType], Scalar]] = {
    "+": lambda x, y, _: x + y,
    "-": lambda x, y, _: x - y,
    "*": lambda x, y, _: x * y,
    "//": lambda x, y, _: x // y if y else 0,
    "%": lambda x, y, _: x % y if y else 0,
    "min": lambda x, y, _: min(x, y),
    "max": lambda x, y, _: max(x, y),
    "bitand": lambda x, y, _: x & y,
    "bitor": lambda x, y, _: x | y,
    "bitxor": lambda x, y, _: x ^ y,
    "shl": _shift_left,
    "shr": _shift_right,
}
_COMPARE: Mapping[str, Callable[[Scalar, Scalar], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_CALLS: Mapping[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "round_bf16": lambda x: x.astype(bf16.numpy).astype(type(x)),
    "round_tf32": lambda x: nearest_tf32(np.asarray(x)),
    "rsqrt": lambda x: np.divide(type(x)(1), np.sqrt(x)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": math.erf,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "pow": lambda x, y: np.power(np.array([x]), np.array([y]))[0],  # of two scalars NumPy takes a root, which is NaN for -inf
    "fmod": np.fmod,
    "atan2": np.arctan2,
    "sigmoid": lambda x: np.divide(type(x)(1), type(x)(1) + np.exp(-x)),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "bits": lambda x: float_bits(np.asarray(x))[()],
    "from_bits": lambda x: np.asarray(x).view(f"f{np.asarray(x).itemsize}")[()],
}


def fail(detail: str) -> Never:
    """Raise the InternalError of loops that do what they must not."""
    raise InternalError("run loops", detail)
