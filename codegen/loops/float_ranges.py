"""Between which numbers floats lie: interval arithmetic that rounds as types do, and knows where a NaN can come from (Moore 1966).

    255.0 * max(0.0, min(1.0, x)) + 0.5      0.5 .. 255.5, or NaN where `x` is one

What is rounded is rounded in one direction for all numbers, so the ends of a range, rounded as values are, are the ends of the rounded
range. Elementary functions are within a small error of the exact value; a thousand times that is added to their ends.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from codegen.dtypes import DType, f32, f64

INF = math.inf
WIDE = (f32, f64)
"""The types in which floats are computed."""
ERROR = 1e-3
"""How far a computed elementary function is at most from the exact one, in terms of it, and far more than that."""
TINY = 1e-30
"""Numbers below may be computed as zeros."""


@dataclass(frozen=True, slots=True)
class Floats:
    """The floats of a type from `low` to `high`, which may be infinite, and NaN where `nan`."""

    dtype: DType
    low: float = -INF
    high: float = INF
    nan: bool = True


def number(x: float, dtype: DType) -> Floats:
    """Return what is known of a constant."""
    return _spanned(dtype, [rounded(x, dtype)], nan=False) if dtype in WIDE else Floats(dtype)


def either(found: Sequence[Floats]) -> Floats | None:
    """Return what any of several values may be; None where they are not of one type."""
    if len({x.dtype for x in found}) != 1:
        return None
    return Floats(found[0].dtype, min(x.low for x in found), max(x.high for x in found), any(x.nan for x in found))


def of_whole(low: int, high: int, dtype: DType) -> Floats:
    """Return what integers from `low` to `high` are as floats."""
    if dtype not in WIDE:
        return Floats(dtype)
    ends = [math.nextafter(float(n), beyond) if float(n) != n else float(n) for n, beyond in ((low, -INF), (high, INF))]
    return _spanned(dtype, [rounded(end, dtype) for end in ends], nan=False)


def truncated(x: Floats, low: int, high: int) -> tuple[int, int]:
    """Return between which integers floats lie that are made integers from `low` to `high`: truncated, limited, and 0 for NaN."""
    ends = [low if end < low else high if end > high else int(end) for end in (x.low, x.high)]
    return (min(ends[0], 0), max(ends[1], 0)) if x.nan else (ends[0], ends[1])


def converted(x: Floats, dtype: DType) -> Floats:
    """Return what floats are as those of another type."""
    if dtype not in WIDE or x.dtype not in WIDE:
        return Floats(dtype)
    return _spanned(dtype, [rounded(x.low, dtype), rounded(x.high, dtype)], x.nan)


def unary(op: str, x: Floats) -> Floats:
    """Return what `neg` and `abs` make of floats."""
    if op == "neg":
        return Floats(x.dtype, -x.high, -x.low, x.nan)
    ends = sorted((abs(x.low), abs(x.high)))
    return Floats(x.dtype, 0.0 if x.low <= 0 <= x.high else ends[0], ends[1], x.nan)


def binary(op: str, x: Floats, y: Floats, same: bool = False) -> Floats:
    """Return what an operation makes of floats of one type; `same`: both sides are one value."""
    dtype, nan = x.dtype, x.nan or y.nan
    match op:
        case _ if dtype not in WIDE:
            return Floats(dtype)
        case "min":
            return Floats(dtype, min(x.low, y.low), min(x.high, y.high), nan)
        case "max":
            return Floats(dtype, max(x.low, y.low), max(x.high, y.high), nan)
        case "+":
            nan = nan or (x.low == -INF and y.high == INF) or (x.high == INF and y.low == -INF)
            return _spanned(dtype, [rounded(x.low + y.low, dtype), rounded(x.high + y.high, dtype)], nan)
        case "-":
            return binary("+", x, unary("neg", y))
        case "*" if same:
            size = unary("abs", x)
            return _spanned(dtype, [rounded(end * end, dtype) for end in (size.low, size.high)], nan)
        case "*":
            nan = nan or (_has_zero(x) and _has_infinity(y)) or (_has_zero(y) and _has_infinity(x))
            # What a zero makes of an infinity is a NaN; of the numbers before it, a zero.
            ends = [0.0 if 0 in (a, b) else rounded(a * b, dtype) for a in (x.low, x.high) for b in (y.low, y.high)]
            return _spanned(dtype, ends, nan)
        case "/" if not _has_zero(y):
            nan = nan or (_has_infinity(x) and _has_infinity(y))
            ends = [0.0 if math.isinf(b) else rounded(a / b, dtype) for a in (x.low, x.high) for b in (y.low, y.high)]
            return _spanned(dtype, ends, nan)
        case _:
            return Floats(dtype)


def multiply_add(x: Floats, y: Floats, z: Floats) -> Floats:
    """Return what a product and a sum are that are rounded once: what they are if they are rounded one after the other, but for a part of
    the product."""
    product = binary("*", x, y)
    found = binary("+", product, z)
    apart = ERROR * max(abs(product.low), abs(product.high))
    return _spanned(found.dtype, [rounded(found.low - apart, found.dtype), rounded(found.high + apart, found.dtype)], found.nan)


def call(fn: str, x: Floats) -> Floats | None:
    """Return what a function makes of floats; None of one of which nothing is known."""
    if x.dtype not in WIDE:
        return None
    if fn in _ROUNDINGS:
        return Floats(x.dtype, _ROUNDINGS[fn](x.low), _ROUNDINGS[fn](x.high), x.nan)
    if fn in _GROWING:
        least, function = _GROWING[fn]
        ends = [_known(function, end, x.dtype) for end in (max(x.low, least), max(x.high, least))]
        return Floats(x.dtype, _beyond(ends[0], -1, x.dtype), _beyond(ends[1], 1, x.dtype), x.nan or x.low < least)
    if fn in _LIMITED:
        low, high = _LIMITED[fn]
        return Floats(x.dtype, _beyond(low, -1, x.dtype), _beyond(high, 1, x.dtype), x.nan or (fn in ("sin", "cos") and _has_infinity(x)))
    return None


def rounded(x: float, dtype: DType) -> float:
    """Return a number as f32 or f64 has it; of what is made of numbers of f32 by one operation in f64 the same as rounded once."""
    if dtype == f64 or not math.isfinite(x):
        return x
    try:
        return float(struct.unpack("f", struct.pack("f", x))[0])
    except OverflowError:
        return math.copysign(INF, x)


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: float(function(x)) if math.isfinite(x) else x


_ROUNDINGS: Mapping[str, Callable[[float], float]] = {
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(round),
}
_GROWING: Mapping[str, tuple[float, Callable[[float], float]]] = {
    "sqrt": (0.0, math.sqrt),
    "exp": (-INF, math.exp),
    "exp2": (-INF, lambda x: 2.0**x),
    "expm1": (-INF, math.expm1),
    "log": (0.0, lambda x: math.log(x) if x else -INF),
    "log2": (0.0, lambda x: math.log2(x) if x else -INF),
    "log1p": (-1.0, lambda x: math.log1p(x) if x > -1 else -INF),
}
"""Functions that grow, each with the number below which they are NaN."""
_LIMITED: Mapping[str, tuple[float, float]] = {
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0),
    "atan": (-1.571, 1.571),
}


def _known(function: Callable[[float], float], x: float, dtype: DType) -> float:
    try:
        return rounded(function(x), dtype)
    except OverflowError:
        return INF


def _beyond(x: float, sign: int, dtype: DType) -> float:
    """Return a number a little further in a direction, past any error of what computed it, and on to zero from next to it; an infinity
    from next to the largest number."""
    return 0.0 if 0 < -sign * x < TINY else rounded(x + sign * abs(x) * ERROR, dtype)


def _spanned(dtype: DType, ends: Sequence[float], nan: bool) -> Floats:
    return Floats(dtype) if any(map(math.isnan, ends)) else Floats(dtype, min(ends), max(ends), nan)


def _has_zero(x: Floats) -> bool:
    return x.low <= 0 <= x.high


def _has_infinity(x: Floats) -> bool:
    return x.low == -INF or x.high == INF
