"""Elementary functions of f64; `math` says which there are, and what they err by.

Powers and remainders keep what a product loses as a second number; where no instruction says what that is, the C library computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, inf, log

from codegen.dtypes import bool_, f64
from codegen.llvm.arithmetic import intrinsic
from codegen.llvm.notation import Lane, libm, log_edges, unless
from codegen.llvm.values import Value

_MAGIC = 1.5 * 2.0**52
"""Adding it pushes the fraction of a number out of an f64, and leaves the whole number in its lowest bits."""
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""The first has 33 bits: its product with an exponent is exact."""
_EXPM1 = tuple(1.0 / factorial(k) for k in range(2, 14))
"""Of e^r - 1 - r: what is left out is less than 4e-18 of it."""
_LOG = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
"""Of log((1 + s) / (1 - s)) = 2 s + s R(s^2), as fdlibm has it."""
_ROOT_HALF = 0x3FE6A09E00000000
_LOG2E_HIGH, _LOG2E_LOW = 1.44269504072144627571e00, 1.67517131648865118353e-10
"""The first has 21 bits."""
_EXP2 = tuple(log(2) ** k / factorial(k) for k in range(1, 15))


def _whole(t: Lane, x: Value) -> Value:
    """Return `x` (|x| < 2^51) rounded to a whole number."""
    return t.sub(t.add(x, _MAGIC), _MAGIC)


def _power_of_two(t: Lane, n: Value) -> Value:
    """Return 2^n for a whole number -1022 <= n <= 1023: its exponent is moved from the lowest bits to its place."""
    moved = t.add(n, _MAGIC + 1023)
    return t.float(t.op("shl", t.bits(moved), 52))


def _reduced_exp(t: Lane, x: Value) -> tuple[Value, Value]:
    """Return n and e^r - 1 with x = n ln(2) + r."""
    n = _whole(t, t.mul(x, 1.4426950408889634))
    r = t.mad(n, -_LN2_LOW, t.mad(n, -_LN2_HIGH, x))
    return n, t.mad(t.mul(r, r), t.poly(r, _EXPM1), r)


def _scaled(t: Lane, x: Value, n: Value) -> Value:
    """Return x * 2^n for x near 1 and a whole number |n| <= 1100, rounded once when the result is subnormal."""
    half = _whole(t, t.mul(n, 0.5))
    return t.mul(t.mul(x, _power_of_two(t, half)), _power_of_two(t, t.sub(n, half)))


def _exp(t: Lane, x: Value) -> Value:
    n, q = _reduced_exp(t, t.at_most(t.at_least(x, -746.0), 710.0))
    return _scaled(t, t.add(q, 1.0), n)


def _power_of_parts(t: Lane, high: Value, low: Value | float) -> Value:
    """Return 2^(high + low) for |high| <= 1100."""
    n = _whole(t, high)
    r = t.add(t.sub(high, n), low)
    return _scaled(t, t.mad(r, t.poly(r, _EXP2), 1.0), n)


def _exp2(t: Lane, x: Value) -> Value:
    return _power_of_parts(t, t.at_most(t.at_least(x, -1080.0), 1030.0), 0.0)


def half_exponentials(t: Lane, size: Value) -> tuple[Value, Value]:
    """Return e^x / 2 and e^-x / 2."""
    n, q = _reduced_exp(t, t.at_most(size, 720.0))
    half = _scaled(t, t.mul(t.add(q, 1.0), 0.5), n)
    return half, t.div(t.of(0.25, f64), half)


def _expm1(t: Lane, x: Value) -> Value:
    n, q = _reduced_exp(t, t.at_most(t.at_least(x, -40.0), 710.0))
    half = _power_of_two(t, t.sub(n, 1.0))
    scaled = t.mad(q, half, t.sub(half, 0.5))
    small = t.where(t.test("==", x, 0.0), x, q)
    return t.where(t.test("==", n, 0.0), small, t.add(scaled, scaled))


def _parts(t: Lane, x: Value) -> tuple[Value, Value]:
    """Return (e, f), both f64, with x = 2^e (1 + f) and sqrt(1/2) <= 1 + f < sqrt(2), for any x > 0."""
    tiny = t.test("<", x, 2.0**-1022)
    moved = t.op("sub", t.bits(t.where(tiny, t.mul(x, 2.0**54), x)), _ROOT_HALF)
    # The exponent, 1024 more than it is, as the lowest bits of 2^52.
    raised = t.op("lshr", t.op("add", moved, 1 << 62), 52)
    e = t.sub(t.float(t.op("or", raised, 0x4330000000000000)), 2.0**52 + 1024)
    m = t.float(t.op("add", t.op("and", moved, 0xFFFFFFFFFFFFF), _ROOT_HALF))
    return t.where(tiny, t.sub(e, 54.0), e), t.sub(m, 1.0)


def _series(t: Lane, f: Value) -> tuple[Value, Value]:
    """Return f^2 / 2 and s (f^2 / 2 + R) of log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + R)), s = f / (2 + f)."""
    s = t.div(f, t.add(f, 2.0))
    square, half = t.mul(s, s), t.mul(t.mul(f, f), 0.5)
    return half, t.mul(s, t.add(half, t.mul(square, t.poly(square, _LOG))))


def _log_sum(t: Lane, e: Value, f: Value) -> Value:
    """Return e ln(2) + log(1 + f)."""
    half, rest = _series(t, f)
    return t.mad(e, _LN2_HIGH, t.sub(f, t.sub(half, t.mad(e, _LN2_LOW, rest))))


def _log(t: Lane, x: Value) -> Value:
    return log_edges(t, x, 0.0, _log_sum(t, *_parts(t, x)))


def _log1p(t: Lane, x: Value) -> Value:
    e, _ = _parts(t, t.add(x, 1.0))
    # 2^-e in two factors, as e may be 1024: a quarter of x is scaled by four times that.
    scale = _power_of_two(t, t.sub(t.of(2.0, f64), e))
    f = t.mad(t.mul(x, 0.25), scale, t.sub(t.mul(scale, 0.25), 1.0))
    result = _log_sum(t, e, t.where(t.test("==", e, 0.0), x, f))
    return log_edges(t, x, -1.0, t.where(t.test("==", x, 0.0), x, result))


def _log2(t: Lane, x: Value) -> Value:
    e, f = _parts(t, x)
    half, rest = _series(t, f)
    # The logarithm of 1 + f = high + low with high * _LOG2E_HIGH exact.
    high = t.float(t.op("and", t.bits(t.sub(f, half)), -(1 << 32)))
    low = t.add(t.sub(t.sub(f, high), half), rest)
    lead = t.mul(high, _LOG2E_HIGH)
    tail = t.mad(t.add(low, high), _LOG2E_LOW, t.mul(low, _LOG2E_HIGH))
    total = t.add(e, lead)
    return log_edges(t, x, 0.0, t.add(total, t.add(tail, t.add(t.sub(e, total), lead))))


def _tanh(t: Lane, x: Value) -> Value:
    twice = t.at_most(t.abs(x), 20.0)
    grown = _expm1(t, t.add(twice, twice))
    return intrinsic(t.b, "copysign", t.div(grown, t.add(grown, 2.0)), x)


def _sigmoid(t: Lane, x: Value) -> Value:
    e = _exp(t, t.op("fsub", t.of(0.0, f64), t.abs(x)))
    return t.div(t.where(t.test("<", x, 0.0), e, t.of(1.0, f64)), t.add(e, 1.0))


# ---------------------------------------------------------------- the error function

_ERF = (
    1.1283791670955126,
    -0.37612638903183543,
    0.11283791670945185,
    -0.02686617064326594,
    0.005223977607342603,
    -0.0008548325985978922,
    0.00012055295213759486,
    -1.4924742692774584e-05,
    1.6447494280353825e-06,
    -1.6209003237399117e-07,
    1.3722255502728846e-08,
    -7.79988873144678e-10,
)
_ERFC = (
    10.720363041980841,
    6.30375368900316,
    0.9573942188217496,
    0.0074118918809924885,
    -0.0013533104227213754,
    0.00024569161023345364,
    -4.308282114456267e-05,
    7.115314896972209e-06,
    -1.0676278781018437e-06,
    1.383435062418914e-07,
    -1.1115256007121636e-08,
    -1.935348799289803e-09,
    -5.539886215694139e-10,
    -4.384768706402679e-10,
    2.3869793764751094e-10,
    1.4567484882660157e-10,
    4.58206453775143e-11,
    4.8462674298309176e-12,
)
"""Of -log(1 - erf(3 + u)), |3 + u| <= 5.95; beyond, erf is 1."""


def _erf(t: Lane, x: Value) -> Value:
    size = t.at_most(t.abs(x), 5.95)
    near = t.mul(size, t.poly(t.mul(size, size), _ERF))
    far = t.sub(t.of(1.0, f64), _exp(t, t.op("fsub", t.of(0.0, f64), t.poly(t.sub(size, 3.0), _ERFC))))
    return t.with_sign(t.where(t.test("<", size, 1.0), near, far), x)


# ---------------------------------------------------------------- sine and cosine

_SIN = (
    -1.66666666666666324348e-01,
    8.33333333332248946124e-03,
    -1.98412698298579493134e-04,
    2.75573137070700676789e-06,
    -2.50507602534068634195e-08,
    1.58969099521155010221e-10,
)
_COS = (
    4.16666666666666019037e-02,
    -1.38888888888741095749e-03,
    2.48015872894767294178e-05,
    -2.75573143513906633035e-07,
    2.08757232129817482790e-09,
    -1.13596475577881948265e-11,
)
"""As fdlibm has them, for |x| <= pi/4."""
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.478427660348229e-32)
"""The first three have 33 bits: their products with numbers up to 2^20 are exact."""
_LARGE = 2.0**20


def _less(t: Lane, x: Value, y: Value) -> tuple[Value, Value]:
    """Return x - y rounded, and what is lost by that (Knuth)."""
    difference = t.sub(x, y)
    part = t.sub(difference, x)
    return difference, t.sub(t.sub(x, t.sub(difference, part)), t.add(y, part))


def _sine_and_cosine(t: Lane, x: Value) -> tuple[Value, Value, Value]:
    """Return what remains of |x| < 2^20 by whole quarters of a turn, as its sine and cosine, and the number of quarters."""
    x = t.where(t.test("<", t.abs(x), _LARGE), x, 0.0)
    shifted = t.mad(x, 0.6366197723675814, _MAGIC)
    n = t.sub(shifted, _MAGIC)
    first, second, third, rest = (t.mul(n, part) for part in _HALF_PI)
    high, lost = _less(t, t.sub(x, first), second)
    high, more = _less(t, high, third)
    low = t.sub(t.add(lost, more), rest)
    reduced = t.add(high, low)
    low = t.add(t.sub(high, reduced), low)
    square = t.mul(reduced, reduced)
    half = t.mul(square, 0.5)
    sine = t.mad(t.mul(square, reduced), t.poly(square, _SIN), t.mad(half, t.sub(t.of(0.0, f64), low), low))
    one = t.sub(t.of(1.0, f64), half)
    below = t.sub(t.sub(t.of(1.0, f64), one), half)
    curve = t.mad(t.mul(square, square), t.poly(square, _COS), t.sub(below, t.mul(reduced, low)))
    return t.add(reduced, sine), t.add(one, curve), t.bits(shifted)


def _unless_large(t: Lane, x: Value, near: Value, name: str) -> Value:
    """Return `near` where |x| is small, and what the C library says elsewhere."""
    return unless(t, Value(bool_, t.b.pure(f"fcmp uge {t.abs(x).typed}, {t.of(_LARGE, f64).text}"), t.lanes), near, name, (x,))


def _wave(t: Lane, x: Value, quarter: int, name: str) -> Value:
    """Return sin(x + quarter * pi/2)."""
    near = t.quadrant(*_sine_and_cosine(t, x), quarter)
    return _unless_large(t, x, near if quarter else t.zero_kept(x, near), name)


def _tan(t: Lane, x: Value) -> Value:
    return _unless_large(t, x, t.zero_kept(x, t.slope(*_sine_and_cosine(t, x))), "tan")


# ---------------------------------------------------------------- remainders and powers

_MOST_QUOTIENT = 2.0**52


def _fmod(t: Lane, x: Value, y: Value) -> Value:
    """Return x - y trunc(x / y): a quotient that is rounded is too great by one at most, and what is left is a number of f64."""
    if not t.b.target.has_fma:
        return libm(t.b, "fmod", (x, y))
    above, below = t.abs(x), t.abs(y)
    quotient = t.div(above, below)
    whole = intrinsic(t.b, "trunc", quotient)
    rest = intrinsic(t.b, "fma", t.op("fsub", t.of(-0.0, f64), whole), below, above)
    rest = t.where(t.test("<", rest, 0.0), t.add(rest, below), rest)
    near = t.with_sign(t.where(t.test("==", below, inf), above, rest), x)
    large = Value(bool_, t.b.pure(f"fcmp uge {quotient.typed}, {t.of(_MOST_QUOTIENT, f64).text}"), t.lanes)
    return unless(t, large, near, "fmod", (x, y))


_THIRD = (0.3333333333333333, 1.850371707708594e-17)
_TWICE_LOG2E = (2.8853900817779268, 4.0710547481862066e-17)
_ATANH = (
    0.1999999999999999,
    0.14285714285722464,
    0.11111111108791376,
    0.09090909432323316,
    0.0769227862584009,
    0.06668151539149884,
    0.05837551474060058,
    0.0599335004328217,
)
"""Of (atanh(s) / s - 1 - s^2 / 3) / s^4, in s^2."""
Parts = tuple[Value, Value]
"""A number of twice as many digits: the sum of both, of which the second is less than a unit in the last place of the first."""


def _product(t: Lane, x: Parts, y: Parts) -> Parts:
    """Return x * y but for 2^-102 of it or so (Dekker); a fused multiply-add says what a product loses."""
    high = t.mul(x[0], y[0])
    lost = intrinsic(t.b, "fma", x[0], y[0], t.op("fsub", t.of(-0.0, f64), high))
    return high, t.mad(x[0], y[1], t.mad(x[1], y[0], lost))


def _long_log2(t: Lane, size: Value) -> Parts:
    """Return log2 of a number > 0 but for 2^-65 of it: 2 log2(e) atanh(s), s = f / (2 + f)."""
    e, f = _parts(t, size)
    below = t.add(f, 2.0)
    lost = t.sub(f, t.sub(below, 2.0))
    inverse = t.div(t.of(1.0, f64), below)
    s = t.mul(f, inverse)
    opposite = t.op("fsub", t.of(-0.0, f64), s)
    left = intrinsic(t.b, "fma", opposite, lost, intrinsic(t.b, "fma", opposite, below, f))
    arc = (s, t.mul(left, inverse))
    square = _product(t, arc, arc)
    third = _product(t, square, (t.of(_THIRD[0], f64), t.of(_THIRD[1], f64)))
    one = t.add(third[0], 1.0)
    rest = t.mad(t.mul(square[0], square[0]), t.poly(square[0], _ATANH), t.add(third[1], t.sub(third[0], t.sub(one, 1.0))))
    fraction = _product(t, _product(t, arc, (one, rest)), (t.of(_TWICE_LOG2E[0], f64), t.of(_TWICE_LOG2E[1], f64)))
    total = t.add(e, fraction[0])
    return total, t.add(fraction[1], t.sub(fraction[0], t.sub(total, e)))


def magnitude(t: Lane, size: Value, y: Value) -> Value:
    """Return |x|^y as 2^(y log2|x|), the logarithm and the product in twice as many digits."""
    if not t.b.target.has_fma:
        return libm(t.b, "pow", (size, y))
    high, low = _long_log2(t, size)
    edge = t.where(t.test("==", size, 0.0), -inf, size)
    high = t.where(t.conjunction(t.test(">", size, 0.0), t.test("<", size, inf)), high, edge)
    of_one = t.conjunction(t.test("==", size, 1.0), t.test("==", y, y))
    product = _product(t, (y, t.of(0.0, f64)), (high, low))
    exponent = t.where(of_one, t.of(0.0, f64), product[0])
    inside = t.test("<", t.abs(product[0]), 1100.0)
    return _power_of_parts(t, t.at_most(t.at_least(exponent, -1100.0), 1100.0), t.where(inside, product[1], 0.0))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log2": _log2,
    "log1p": _log1p,
    "tanh": _tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "sin": lambda t, x: _wave(t, x, 0, "sin"),
    "cos": lambda t, x: _wave(t, x, 1, "cos"),
    "tan": _tan,
    "fmod": _fmod,
}
