"""Elementary functions.

In f32 the common ones are polynomials, evaluated in all lanes at once, and the same in a single lane. Arguments are reduced to a short
interval; coefficients are minimax fits (relative error, iteratively reweighted least squares). Infinities, NaN, subnormal numbers and
overflow come out as the C library has them; the sign of a zero may differ.

    function   reduction                                                     error, in units in the last place
    exp        2^n e^r, |r| <= ln(2)/2                                       1.2
    exp2       2^n 2^r, |r| <= 1/2                                           1.2
    expm1      2^n (e^r - 1) + (2^n - 1)                                     1.5
    log        e ln(2) + log(1 + f), -1/3 <= f <= 1/3                        0.9
    log2       e + log(1 + f) log2(e), the product in two parts              1.8
    log1p      as log, f = 2^-e x + (2^-e - 1)                               1.65
    tanh       x P(x^2) / Q(x^2), degrees 4 and 4, |x| <= 9.8                5.7
    erf        x P(x^2) / Q(x^2), degrees 5 and 5, |x| <= 4.15               6.0
    sigmoid    1 / (1 + e^-|x|) or e^-|x| / (1 + e^-|x|)                     2.25
    sin, cos   quadrants, reduced in f64; the C library above 2^20           1.6
    tan        as sin and cos, their quotient                                3.5
    asin       x + x^3 P(x^2), above 1/2 that of a root                      2.0
    acos       pi/2 - asin(x), above 1/2 twice the arc sine of a root        1.6
    atan2      arctangent of the lesser by the greater, then octants         3.0
    atan       x + x^3 P(x^2), |x| <= tan(pi/8), of (x - 1)/(x + 1) or -1/x  2.2
    sinh       (e^x - e^-x) / 2, below 1 x + x^3 P(x^2)                      2.0
    cosh       (e^x + e^-x) / 2                                              2.0
    asinh      log1p(x + x^2 / (1 + sqrt(x^2 + 1)))                          3.0
    acosh      log1p(t + sqrt(t (t + 2))), t = x - 1                         3.0
    atanh      log1p(2 x / (1 - x)) / 2                                      3.0
    fmod       x - y trunc(x / y) in f64; the C library above 2^28           0
    pow        2^(y log2 x) in f64                                           0.51
    pow 2 3 4  products, where the exponent is written as a number           0.5 1.3 1.95
    pow 0.75   roots, likewise; also 0.25 (0.85), 0.5 (0.51) and 1.5 (1.3)   2.2
    rsqrt      1 / sqrt(x)                                                   1.5

In f64, likewise:

    exp        2^n (1 + (r + r^2 P(r))), |r| <= ln(2)/2                      1.0
    exp2       2^n 2^r, |r| <= 1/2                                           1.1
    expm1      2^n (r + r^2 P(r)) + (2^n - 1)                                2.0
    log        e ln(2) + 2 atanh(f / (2 + f)), 1/sqrt(2) <= 1 + f < sqrt(2)  1.1
    log2       e + log(1 + f) log2(e), the product in two parts              1.1
    log1p      as log, f = 2^-e x + (2^-e - 1)                               1.6
    tanh       expm1(2 |x|) / (expm1(2 |x|) + 2)                             3.0
    erf        x P(x^2), from 1 on 1 - e^P(x)                                3.0
    sigmoid    as in f32                                                     2.5
    sin, cos   quadrants, of pi/2 in four parts; the C library above 2^20    1.0
    tan        as sin and cos, their quotient                                2.0
    fmod       x - y trunc(x / y), fused; the C library above 2^52           0
    pow        2^(y log2 x), the logarithm and the product in two parts      1.1

The inverses of sine, cosine and tangent, hyperbolic functions and theirs are as in f32, with errors as there or less.

The errors bound what the tests measure, with and without a fused multiply-add. tanh and erf are 1 where they saturate and never more; just
below, a unit is 6e-8. Where no instruction multiplies and adds at once, `pow` and `fmod` of f64 call the C library lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial, log

from codegen.dtypes import bool_, called_dtype, f32, f64
from codegen.llvm import math_f32, math_f64
from codegen.llvm.arithmetic import binary, compare, constant, from_bits, intrinsic, select
from codegen.llvm.builder import Builder
from codegen.llvm.notation import Lane
from codegen.llvm.state import EmitError
from codegen.llvm.values import Value, of_lanes, scalar_type

_INTRINSIC = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}
INF, NAN = float("inf"), float("nan")


def call(b: Builder, fn: str, args: tuple[Value, ...]) -> Value:
    """Return `fn` of the arguments, which have the same type and lanes."""
    x = args[0]
    if fn == "from_bits":
        return from_bits(b, x, called_dtype(fn, x.dtype))
    if x.dtype not in (f32, f64):
        raise EmitError(f"`{fn}` of {x.dtype}: elementary functions are computed in f32 or f64")
    if fn in _INTRINSIC:
        return intrinsic(b, _INTRINSIC[fn], x)
    made = _OF_ONE_TYPE[x.dtype].get(fn, _OF_EITHER.get(fn))
    if made is not None:
        return made(Lane(b, x.lanes), *args)
    match fn:
        case "isnan":
            return Value(bool_, b.pure(f"fcmp uno {x.typed}, {x.text}"), x.lanes)
        case "isinf":
            return Value(bool_, b.pure(f"fcmp oeq {intrinsic(b, 'fabs', x).typed}, {constant(x, INF)}"), x.lanes)
        case "bits":
            number = select(b, call(b, "isnan", (x,)), Value(x.dtype, constant(x, NAN), x.lanes), x)
            whole = called_dtype(fn, x.dtype)
            return Value(whole, b.pure(f"bitcast {number.typed} to {of_lanes(scalar_type(whole), x.lanes)}"), x.lanes)
        case "rsqrt":
            return _divided(b, constant(x, 1.0), intrinsic(b, "sqrt", x))
        case _:
            raise EmitError(f"unknown function `{fn}`")


def _divided(b: Builder, numerator: str, x: Value) -> Value:
    return Value(x.dtype, b.pure(f"fdiv {x.type} {numerator}, {x.text}"), x.lanes)


# ---------------------------------------------------------------- inverses of sine, cosine and tangent


@dataclass(frozen=True, slots=True)
class _Arcs:
    """What arcs of one type are made of: coefficients of x + x^3 P(x^2), and pi/2 with what it lacks."""

    sine: tuple[float, ...]
    tangent: tuple[float, ...]
    right: float
    rest: float


_ARCS = {
    f32: _Arcs(
        (0.16666754, 0.07495242, 0.0454771, 0.02414762, 0.04221854),
        (-0.33332955, 0.19977925, -0.13879844, 0.08060292),
        1.57079637050628662109375,
        -4.37113900018624283e-8,
    ),
    f64: _Arcs(
        (
            0.16666666666665428,
            0.07500000000333577,
            0.04464285682999702,
            0.030381959108629293,
            0.02237175801366378,
            0.01735971289239609,
            0.013885103799131677,
            0.012170306176360113,
            0.006522562775101774,
            0.019544347637930996,
            -0.016250852881060162,
            0.03193113731364227,
        ),
        (
            -0.33333333333333204,
            0.19999999999955134,
            -0.14285714280323658,
            0.11111110788902824,
            -0.09090897897989626,
            0.07692062525492073,
            -0.06663128897117383,
            0.05848062641685796,
            -0.05040059855410631,
            0.03808321766890408,
            -0.017927159917961896,
        ),
        1.5707963267948966,
        6.123233995736766e-17,
    ),
}
_TAN_PI_8, _TAN_3_PI_8 = 0.4142135623730950, 2.414213562373095


def _cubic(t: Lane, x: Value, square: Value, coefficients: Sequence[float]) -> Value:
    """Return x + x^3 P(x^2)."""
    return t.mad(t.mul(x, square), t.poly(square, coefficients), x)


def _asin(t: Lane, x: Value) -> Value:
    arcs, size = _ARCS[x.dtype], t.abs(x)
    outer = t.test(">", size, 0.5)
    square = t.where(outer, t.mul(t.sub(t.of(1.0, x.dtype), size), 0.5), t.mul(x, x))
    arc = _cubic(t, t.where(outer, intrinsic(t.b, "sqrt", square), size), square, arcs.sine)
    return t.with_sign(t.where(outer, t.add(t.mad(arc, -2.0, arcs.right), arcs.rest), arc), x)


def _acos(t: Lane, x: Value) -> Value:
    arcs, size = _ARCS[x.dtype], t.abs(x)
    outer = t.test(">", size, 0.5)
    square = t.where(outer, t.mul(t.sub(t.of(1.0, x.dtype), size), 0.5), t.mul(x, x))
    arc = _cubic(t, t.where(outer, intrinsic(t.b, "sqrt", square), x), square, arcs.sine)
    twice = t.add(arc, arc)
    far = t.where(t.test("<", x, 0.0), t.add(t.sub(t.of(2 * arcs.right, x.dtype), twice), 2 * arcs.rest), twice)
    return t.where(outer, far, t.add(t.sub(t.of(arcs.right, x.dtype), arc), arcs.rest))


def _atan(t: Lane, x: Value) -> Value:
    arcs, size = _ARCS[x.dtype], t.abs(x)
    far, middle = t.test(">", size, _TAN_3_PI_8), t.test(">", size, _TAN_PI_8)
    above = t.where(far, -1.0, t.where(middle, t.sub(size, 1.0), size))
    below = t.where(far, size, t.where(middle, t.add(size, 1.0), t.of(1.0, x.dtype)))
    part = t.div(above, below)
    arc = _cubic(t, part, t.mul(part, part), arcs.tangent)

    def chosen(right: float) -> Value:
        return t.where(far, right, t.where(middle, right / 2, t.of(0.0, x.dtype)))

    return t.with_sign(t.add(chosen(arcs.right), t.add(arc, chosen(arcs.rest))), x)


def _atan2(t: Lane, y: Value, x: Value) -> Value:
    arcs, wide, high = _ARCS[x.dtype], t.abs(x), t.abs(y)
    steep = t.test(">", high, wide)
    least, most = t.where(steep, wide, high), t.where(steep, high, wide)
    # Of two infinities and of two zeros the quotient is no number.
    equal = t.where(t.test("==", most, 0.0), t.of(0.0, x.dtype), t.of(1.0, x.dtype))
    arc = _atan(t, t.where(t.test("==", least, most), equal, t.div(least, most)))
    arc = t.where(steep, t.add(t.sub(t.of(arcs.right, x.dtype), arc), arcs.rest), arc)
    arc = t.where(t.negative(x), t.add(t.sub(t.of(2 * arcs.right, x.dtype), arc), 2 * arcs.rest), arc)
    return t.with_sign(t.where(t.test("==", x, x), arc, x), y)


# ---------------------------------------------------------------- hyperbolic functions and their inverses

_SINH = {f32: (0.166666665, 0.00833335060, 0.000198360662, 2.81743973e-06), f64: tuple(1 / factorial(k) for k in range(3, 20, 2))}
_WIDE_AREA = {f32: 2.0**13, f64: 2.0**28}
"""From which on areas are the logarithm of twice their argument."""


_HALF_EXPONENTIALS = {f32: math_f32.half_exponentials, f64: math_f64.half_exponentials}


def _cosh(t: Lane, x: Value) -> Value:
    return t.add(*_HALF_EXPONENTIALS[x.dtype](t, t.abs(x)))


def _sinh(t: Lane, x: Value) -> Value:
    size = t.abs(x)
    far = t.sub(*_HALF_EXPONENTIALS[x.dtype](t, size))
    return t.with_sign(t.where(t.test("<", size, 1.0), _cubic(t, size, t.mul(size, size), _SINH[x.dtype]), far), x)


def _area(t: Lane, x: Value, more: Value) -> Value:
    """Return log(1 + more), or log(2 x) where x is large."""
    wide = t.test(">", x, _WIDE_AREA[x.dtype])
    far = t.add(call(t.b, "log", (x,)), log(2))
    near = call(t.b, "log1p", (t.where(wide, 0.0, more),))
    return t.where(t.test("<", x, INF), t.where(wide, far, near), x)


def _asinh(t: Lane, x: Value) -> Value:
    size = t.abs(x)
    square = t.mul(size, size)
    root = intrinsic(t.b, "sqrt", t.add(square, 1.0))
    return t.with_sign(_area(t, size, t.add(size, t.div(square, t.add(root, 1.0)))), x)


def _acosh(t: Lane, x: Value) -> Value:
    beyond = t.sub(x, 1.0)
    root = intrinsic(t.b, "sqrt", t.mul(beyond, t.add(beyond, 2.0)))
    return t.where(t.test("<", x, 1.0), NAN, _area(t, x, t.add(beyond, root)))


def _atanh(t: Lane, x: Value) -> Value:
    size = t.abs(x)
    grown = call(t.b, "log1p", (t.div(t.add(size, size), t.sub(t.of(1.0, x.dtype), size)),))
    return t.with_sign(t.mul(grown, 0.5), x)


# ---------------------------------------------------------------- powers


_MAGNITUDE = {f32: math_f32.magnitude, f64: math_f64.magnitude}


def _pow(t: Lane, x: Value, y: Value) -> Value:
    positive = _MAGNITUDE[x.dtype](t, t.abs(x), y)
    half = t.mul(y, 0.5)
    whole = t.test("==", intrinsic(t.b, "trunc", y), y)
    even = t.test("==", intrinsic(t.b, "trunc", half), half)
    signed = t.where(even, positive, t.mul(positive, -1.0))
    undefined = t.where(t.test("==", x, -INF), positive, t.where(t.test("==", x, 0.0), positive, NAN))
    below = t.where(whole, signed, undefined)
    result = t.where(t.negative(x), t.where(t.test("==", x, x), below, NAN), positive)
    return t.where(t.test("==", y, 0.0), 1.0, t.where(t.test("==", x, 1.0), 1.0, result))


POWERS = (-1.0, 0.25, 0.5, 0.75, 1.5, 2.0, 3.0, 4.0)
"""Exponents for which a quotient, products and square roots are as good: no step overflows, or loses digits, where the result does not."""


def power(b: Builder, x: Value, exponent: float) -> Value:
    """Return `x` to the power of one of `POWERS`."""
    if exponent < 0:
        return binary(b, "/", Value(x.dtype, constant(x, 1.0), x.lanes), x)
    if exponent < 2:
        return _power_by_roots(b, x, exponent)
    square = binary(b, "*", x, x)
    match exponent:
        case 2.0:
            return square
        case 3.0:
            return binary(b, "*", square, x)
        case _:
            return binary(b, "*", square, square)


def _power_by_roots(b: Builder, x: Value, exponent: float) -> Value:
    """Return a power of quarters. The root of -0 is -0 and that of -inf no number, where the powers are 0 and inf."""

    def of(number: float) -> Value:
        return Value(x.dtype, constant(x, number), x.lanes)

    below = compare(b, "==", x, of(-INF))
    x = binary(b, "+", x, of(0.0))
    root = intrinsic(b, "sqrt", x)
    match exponent:
        case 0.5:
            result = root
        case 0.25:
            result = intrinsic(b, "sqrt", root)
        case 0.75:
            result = binary(b, "*", root, intrinsic(b, "sqrt", root))
        case _:
            result = binary(b, "*", x, root)
    return select(b, below, of(INF), result)


_OF_ONE_TYPE = {f32: math_f32.FUNCTIONS, f64: math_f64.FUNCTIONS}
_OF_EITHER: dict[str, Callable[..., Value]] = {
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "atan2": _atan2,
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "pow": _pow,
}
