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
    asin       x + x^3 P(x^2), above 1/2 that of a root                      2.0
    acos       pi/2 - asin(x), above 1/2 twice the arc sine of a root        1.6
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
    expm1      2^n (r + r^2 P(r)) + (2^n - 1)                                2.0
    log        e ln(2) + 2 atanh(f / (2 + f)), 1/sqrt(2) <= 1 + f < sqrt(2)  1.1
    tanh       expm1(2 |x|) / (expm1(2 |x|) + 2)                             3.0
    sigmoid    as in f32                                                     2.5

The errors bound what the tests measure, with and without a fused multiply-add. tanh and erf are 1 where they saturate and never more; just
below, a unit is 6e-8. Other functions call the C library lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial

from codegen.dtypes import DType, bool_, called_dtype, f32, f64, i32, i64
from codegen.llvm.arithmetic import binary, compare, constant, extremum, from_bits, intrinsic, multiply_add, select
from codegen.llvm.builder import Builder
from codegen.llvm.state import EmitError
from codegen.llvm.values import Value, of_lanes, scalar_type
from codegen.loops.nodes import CompareOp

_INTRINSIC = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}
_LIBM = frozenset(
    [
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log1p",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "pow",
        "fmod",
        "atan2",
    ]
)
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
    polynomial = (_POLYNOMIAL if x.dtype == f32 else _POLYNOMIAL_F64).get(fn)
    if polynomial is not None:
        return polynomial(Lane(b, x.lanes), *args)
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
        case _ if fn in _LIBM:
            return libm(b, fn, args)
        case _:
            raise EmitError(f"unknown function `{fn}`")


def libm(b: Builder, fn: str, args: tuple[Value, ...]) -> Value:
    """Return `fn` as the C library computes it, one lane after the other."""
    dtype = args[0].dtype
    kind = scalar_type(dtype)
    lanes = args[0].lanes
    callee = b.declare(fn + ("f" if dtype == f32 else ""), f"{kind} @({', '.join([kind] * len(args))})")
    if not lanes:
        return Value(dtype, b.op(f"call {kind} {callee}({', '.join(a.typed for a in args)})"))
    result = "poison"
    for lane in range(lanes):
        parts = ", ".join(f"{kind} " + b.pure(f"extractelement {a.typed}, i64 {lane}") for a in args)
        one = b.op(f"call {kind} {callee}({parts})")
        result = b.pure(f"insertelement {of_lanes(kind, lanes)} {result}, {kind} {one}, i64 {lane}")
    return Value(dtype, result, lanes)


def _divided(b: Builder, numerator: str, x: Value) -> Value:
    return Value(x.dtype, b.pure(f"fdiv {x.type} {numerator}, {x.text}"), x.lanes)


# ---------------------------------------------------------------- notation


@dataclass(frozen=True, slots=True)
class Lane:
    """Short names for arithmetic on values with as many lanes as the argument has."""

    b: Builder
    lanes: int

    def of(self, number: float | int, dtype: DType = f32) -> Value:
        return Value(dtype, constant(Value(dtype, "", self.lanes), number), self.lanes)

    def op(self, name: str, x: Value, y: Value | float | int) -> Value:
        y = y if isinstance(y, Value) else self.of(y, x.dtype)
        return Value(x.dtype, self.b.pure(f"{name} {x.typed}, {y.text}"), self.lanes)

    def add(self, x: Value, y: Value | float) -> Value:
        return self.op("fadd", x, y)

    def sub(self, x: Value, y: Value | float) -> Value:
        return self.op("fsub", x, y)

    def mul(self, x: Value, y: Value | float) -> Value:
        return self.op("fmul", x, y)

    def div(self, x: Value, y: Value | float) -> Value:
        return self.op("fdiv", x, y)

    def mad(self, x: Value, y: Value | float, z: Value | float) -> Value:
        """Return x * y + z, rounded once where the machine can."""
        y = y if isinstance(y, Value) else self.of(y, x.dtype)
        z = z if isinstance(z, Value) else self.of(z, x.dtype)
        return multiply_add(self.b, x, y, z)

    def poly(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Return c0 + c1 x + c2 x^2 + ..."""
        result = self.of(coefficients[-1], x.dtype)
        for c in reversed(coefficients[:-1]):
            result = self.mad(result, x, c)
        return result

    def at_least(self, x: Value, low: float) -> Value:
        return extremum(self.b, "max", self.of(low, x.dtype), x)

    def at_most(self, x: Value, high: float) -> Value:
        return extremum(self.b, "min", self.of(high, x.dtype), x)

    def abs(self, x: Value) -> Value:
        return intrinsic(self.b, "fabs", x)

    def where(self, cond: Value, then: Value | float, orelse: Value | float) -> Value:
        like = then if isinstance(then, Value) else orelse
        dtype = like.dtype if isinstance(like, Value) else f32
        x = then if isinstance(then, Value) else self.of(then, dtype)
        y = orelse if isinstance(orelse, Value) else self.of(orelse, dtype)
        return select(self.b, cond, x, y)

    def test(self, op: CompareOp, x: Value, y: Value | float) -> Value:
        return compare(self.b, op, x, y if isinstance(y, Value) else self.of(y, x.dtype))

    def bits(self, x: Value) -> Value:
        return Value(i32, self.b.pure(f"bitcast {x.typed} to {of_lanes('i32', self.lanes)}"), self.lanes)

    def float(self, x: Value) -> Value:
        return Value(f32, self.b.pure(f"bitcast {x.typed} to {of_lanes('float', self.lanes)}"), self.lanes)

    def words(self, x: Value) -> Value:
        """Return the bits of an f64."""
        return Value(i64, self.b.pure(f"bitcast {x.typed} to {of_lanes('i64', self.lanes)}"), self.lanes)

    def from_words(self, x: Value) -> Value:
        return Value(f64, self.b.pure(f"bitcast {x.typed} to {of_lanes('double', self.lanes)}"), self.lanes)

    def convert(self, op: str, x: Value, dtype: DType) -> Value:
        return Value(dtype, self.b.pure(f"{op} {x.typed} to {of_lanes(scalar_type(dtype), self.lanes)}"), self.lanes)

    def nearest(self, x: Value) -> tuple[Value, Value]:
        """Return `x` (|x| < 2^22) rounded to a whole number, as f32 and as i32."""
        shifted = self.add(x, _MAGIC)
        return self.sub(shifted, _MAGIC), self.op("sub", self.bits(shifted), _MAGIC_BITS)

    def power_of_two(self, n: Value) -> Value:
        """Return 2^n for -126 <= n <= 127."""
        return self.float(self.op("shl", self.op("add", n, 127), 23))


_MAGIC = 12582912.0
"""1.5 * 2^23: adding it pushes the fraction of a number out of an f32."""
_MAGIC_BITS = 0x4B400000
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6

# ---------------------------------------------------------------- exponentials

_EXP = (1.0, 0.49999994209041226, 0.16666431262522854, 0.04166800203637608, 0.008374155317645886, 0.0013843653492447913)
_EXPM1 = (
    0.5000000046481523,
    0.1666666681237595,
    0.04166635454759822,
    0.008333274156324226,
    0.0013941011736894639,
    0.00019913559877414563,
)
_EXP2 = (0.6931472028559711, 0.24022647913498987, 0.05550332469693882, 0.00961843736641755, 0.0013398874866612717, 0.00015353360629751997)


def _reduced_exp(t: Lane, x: Value) -> tuple[Value, Value, Value]:
    """Return (n as f32, n as i32, r) with x = n ln(2) + r."""
    shifted = t.mad(x, _LOG2E, _MAGIC)
    n, whole = t.sub(shifted, _MAGIC), t.op("sub", t.bits(shifted), _MAGIC_BITS)
    return n, whole, t.mad(n, -_LN2_LOW, t.mad(n, -_LN2_HIGH, x))


def _exp_part(t: Lane, r: Value) -> Value:
    return t.mad(t.poly(r, _EXP), r, 1.0)


def _scaled(t: Lane, x: Value, n: Value, whole: Value) -> Value:
    """Return x * 2^n for x near 1 and -252 <= n <= 252 (also given as i32), rounded once when the result is subnormal."""
    if _has_scalef(t):
        fn = t.b.declare("llvm.x86.avx512.mask.scalef.ps.512", f"{x.type} @({x.type}, {x.type}, {x.type}, i16, i32)")
        return Value(f32, t.b.pure(f"call {x.type} {fn}({x.typed}, {n.typed}, {x.type} undef, i16 -1, i32 4)"), t.lanes)
    half = t.op("ashr", whole, 1)
    first = t.float(t.op("add", t.bits(x), t.op("shl", half, 23)))
    return t.mul(first, t.power_of_two(t.op("sub", whole, half)))


def _has_scalef(t: Lane) -> bool:
    return t.lanes == 16 and t.b.target.vector_bits == 512


def _exp(t: Lane, x: Value) -> Value:
    limited = t.at_most(t.at_least(x, -104.0), 89.0)
    n, whole, r = _reduced_exp(t, limited)
    return _scaled(t, _exp_part(t, r), n, whole)


def _exp2(t: Lane, x: Value) -> Value:
    limited = t.at_most(t.at_least(x, -151.0), 129.0)
    whole, n = t.nearest(limited)
    r = t.sub(limited, whole)
    return _scaled(t, t.mad(r, t.poly(r, _EXP2), 1.0), whole, n)


def _expm1(t: Lane, x: Value) -> Value:
    limited = t.at_most(t.at_least(x, -20.0), 89.0)
    _, n, r = _reduced_exp(t, limited)
    q = t.mad(t.mul(r, r), t.poly(r, _EXPM1), r)
    half = t.power_of_two(t.op("sub", n, 1))
    scaled = t.mad(q, half, t.sub(half, 0.5))
    small = t.test("==", n, 0)
    return t.where(small, t.where(t.test("==", x, 0.0), x, q), t.add(scaled, scaled))


# ---------------------------------------------------------------- logarithms

_LOG = (
    -0.5000000121112921,
    0.3333320809460209,
    -0.2499971679355656,
    0.20010768670175572,
    -0.16682334089859227,
    0.14000779347188944,
    -0.1216673671219128,
    0.14006796891645037,
    -0.12950934336251435,
)
_TWO_THIRDS = 0x3F2AAAAB


def _exponent(t: Lane, x: Value) -> tuple[Value, Value]:
    """Return (e, m) with x = 2^e m and 2/3 <= m < 4/3, for a normal x > 0."""
    moved = t.op("sub", t.bits(x), _TWO_THIRDS)
    e = t.op("ashr", moved, 23)
    return e, t.float(t.op("add", t.op("and", moved, 0x7FFFFF), _TWO_THIRDS))


def _normal(t: Lane, x: Value) -> tuple[Value, Value]:
    """Return (e, m) as `_exponent` does, for any x > 0."""
    tiny = t.test("<", x, 2.0**-126)
    e, m = _exponent(t, t.where(tiny, t.mul(x, 2.0**23), x))
    return t.where(tiny, t.op("sub", e, 23), e), m


def _log_edges(t: Lane, x: Value, zero: float, result: Value) -> Value:
    """Return `result`, but what a logarithm is at `zero` and below, at infinity, and for NaN."""
    inside = t.test("<", x, INF)
    beyond = t.add(x, x)
    above = t.where(inside, result, beyond)
    at_zero = t.where(t.test("==", x, zero), -INF, above)
    return t.where(t.test("<", x, zero), NAN, at_zero)


def _log_sum(t: Lane, e: Value, f: Value) -> Value:
    """Return e ln(2) + log(1 + f)."""
    n = t.convert("sitofp", e, f32)
    tail = t.mad(t.mul(f, f), t.poly(f, _LOG), t.mul(n, _LN2_LOW))
    return t.mad(n, _LN2_HIGH, t.add(f, tail))


def _log(t: Lane, x: Value) -> Value:
    e, m = _normal(t, x)
    return _log_edges(t, x, 0.0, _log_sum(t, e, t.sub(m, 1.0)))


def _log1p(t: Lane, x: Value) -> Value:
    e, _ = _exponent(t, t.add(x, 1.0))
    scale = t.float(t.op("shl", t.op("sub", t.of(129, i32), e), 23))
    f = t.mad(t.mul(x, 0.25), scale, t.sub(t.mul(scale, 0.25), 1.0))
    unscaled = t.test("==", e, 0)
    result = _log_sum(t, e, t.where(unscaled, x, f))
    return _log_edges(t, x, -1.0, t.where(t.test("==", x, 0.0), x, result))


def _log2(t: Lane, x: Value) -> Value:
    e, m = _normal(t, x)
    f = t.sub(m, 1.0)
    # log2(e) = high + low with f * high exact: f has 24 bits, high has 8.
    high, low = 1.4453125, _LOG2E - 1.4453125
    curve = t.mul(t.mul(f, f), t.poly(f, _LOG))
    tail = t.mad(curve, _LOG2E, t.mul(f, low))
    whole = t.convert("sitofp", e, f32)
    lead = t.mad(f, high, whole)
    lost = t.mad(f, high, t.sub(whole, lead)) if t.b.target.has_fma else t.sub(t.mul(f, high), t.sub(lead, whole))
    return _log_edges(t, x, 0.0, t.add(lead, t.add(lost, tail)))


# ---------------------------------------------------------------- sigmoids

_TANH = (0.999999979249887, 0.13380365244518247, 0.0034948034714456294, 2.0596149345994038e-05, 1.3336679194517476e-08)
_TANH_BELOW = (1.0, 0.46713680666171753, 0.02587399799416544, 0.00032843508167981674, 7.769212919398233e-07)
_ERF = (
    1.1283791461491015,
    0.19040582590835334,
    0.05274863383398854,
    0.003765589043211549,
    0.0002848820491340042,
    2.050091035018181e-06,
)
_ERF_BELOW = (1.0, 0.5020755106658966, 0.11410884306624977, 0.014969159605919586, 0.0011625287177269733, 3.8091719834917136e-05)


def _odd_fraction(t: Lane, x: Value, limit: float, above: Sequence[float], below: Sequence[float]) -> Value:
    """Return x P(x^2) / Q(x^2) with x held within `limit` and the result within 1: no branches, and of the sign of x by itself. The
    fraction is a fit up to where the function rounds to 1, and at `limit` greater than 1 by more than it can be wrong."""
    held = t.at_most(t.at_least(x, -limit), limit)
    square = t.mul(held, held)
    quotient = t.div(t.mul(held, t.poly(square, above)), t.poly(square, below))
    return t.at_most(t.at_least(quotient, -1.0), 1.0)


def _tanh(t: Lane, x: Value) -> Value:
    return _odd_fraction(t, x, 9.8, _TANH, _TANH_BELOW)


def _erf(t: Lane, x: Value) -> Value:
    return _odd_fraction(t, x, 4.15, _ERF, _ERF_BELOW)


def _sigmoid(t: Lane, x: Value) -> Value:
    e = _exp(t, t.sub(t.of(0.0), t.abs(x)))
    return t.div(t.where(t.test("<", x, 0.0), e, 1.0), t.add(e, 1.0))


# ---------------------------------------------------------------- f64

_MAGIC_F64 = 1.5 * 2.0**52
"""Adding it pushes the fraction of a number out of an f64, and leaves the whole number in its lowest bits."""
_LN2_HIGH_F64, _LN2_LOW_F64 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""The first has 33 bits: its product with an exponent is exact."""
_EXPM1_F64 = tuple(1.0 / factorial(k) for k in range(2, 14))
"""Of e^r - 1 - r: what is left out is less than 4e-18 of it."""
_LOG_F64 = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
"""Of log((1 + s) / (1 - s)) = 2 s + s R(s^2), as fdlibm has it."""
_ROOT_HALF_F64 = 0x3FE6A09E00000000


def _whole_f64(t: Lane, x: Value) -> Value:
    """Return `x` (|x| < 2^51) rounded to a whole number."""
    return t.sub(t.add(x, _MAGIC_F64), _MAGIC_F64)


def _power_of_two_f64(t: Lane, n: Value) -> Value:
    """Return 2^n for a whole number -1022 <= n <= 1023: its exponent is moved from the lowest bits to its place."""
    moved = t.add(n, _MAGIC_F64 + 1023)
    return t.from_words(t.op("shl", t.words(moved), 52))


def _reduced_exp_f64(t: Lane, x: Value) -> tuple[Value, Value]:
    """Return n and e^r - 1 with x = n ln(2) + r."""
    n = _whole_f64(t, t.mul(x, _LOG2E))
    r = t.mad(n, -_LN2_LOW_F64, t.mad(n, -_LN2_HIGH_F64, x))
    return n, t.mad(t.mul(r, r), t.poly(r, _EXPM1_F64), r)


def _exp_f64(t: Lane, x: Value) -> Value:
    n, q = _reduced_exp_f64(t, t.at_most(t.at_least(x, -746.0), 710.0))
    half = _whole_f64(t, t.mul(n, 0.5))
    first = t.mul(t.add(q, 1.0), _power_of_two_f64(t, half))
    return t.mul(first, _power_of_two_f64(t, t.sub(n, half)))


def _expm1_f64(t: Lane, x: Value) -> Value:
    n, q = _reduced_exp_f64(t, t.at_most(t.at_least(x, -40.0), 710.0))
    half = _power_of_two_f64(t, t.sub(n, 1.0))
    scaled = t.mad(q, half, t.sub(half, 0.5))
    small = t.where(t.test("==", x, 0.0), x, q)
    return t.where(t.test("==", n, 0.0), small, t.add(scaled, scaled))


def _log_f64(t: Lane, x: Value) -> Value:
    tiny = t.test("<", x, 2.0**-1022)
    moved = t.op("sub", t.words(t.where(tiny, t.mul(x, 2.0**54), x)), _ROOT_HALF_F64)
    # The exponent, 1024 more than it is, as the lowest bits of 2^52.
    raised = t.op("lshr", t.op("add", moved, 1 << 62), 52)
    e = t.sub(t.from_words(t.op("or", raised, 0x4330000000000000)), 2.0**52 + 1024)
    e = t.where(tiny, t.sub(e, 54.0), e)
    f = t.sub(t.from_words(t.op("add", t.op("and", moved, 0xFFFFFFFFFFFFF), _ROOT_HALF_F64)), 1.0)
    s = t.div(f, t.add(f, 2.0))
    square, half = t.mul(s, s), t.mul(t.mul(f, f), 0.5)
    rest = t.mul(square, t.poly(square, _LOG_F64))
    tail = t.mad(e, _LN2_LOW_F64, t.mul(s, t.add(half, rest)))
    return _log_edges(t, x, 0.0, t.mad(e, _LN2_HIGH_F64, t.sub(f, t.sub(half, tail))))


def _tanh_f64(t: Lane, x: Value) -> Value:
    twice = t.at_most(t.abs(x), 20.0)
    grown = _expm1_f64(t, t.add(twice, twice))
    return intrinsic(t.b, "copysign", t.div(grown, t.add(grown, 2.0)), x)


def _sigmoid_f64(t: Lane, x: Value) -> Value:
    e = _exp_f64(t, t.op("fsub", t.of(0.0, f64), t.abs(x)))
    return t.div(t.where(t.test("<", x, 0.0), e, t.of(1.0, f64)), t.add(e, 1.0))


# ---------------------------------------------------------------- sine and cosine

_SIN = (-0.16666654516758744, 0.008332154770862365, -0.00019514454499509545)
_COS = (0.0416666467150533, -0.0013887359781771349, 2.4437532053694813e-05)
_HALF_PI_HIGH, _HALF_PI_LOW = 1.57079632673412561417, 6.07710050650619224932e-11
_LARGE = 2.0**20


def _wave(t: Lane, x: Value, quarter: int, name: str) -> Value:
    """Return sin(x + quarter * pi/2)."""
    wide = t.convert("fpext", t.where(t.test("<", t.abs(x), _LARGE), x, 0.0), f64)
    n = intrinsic(t.b, "rint", t.mul(wide, 0.6366197723675814))
    reduced = t.convert("fptrunc", t.sub(t.sub(wide, t.mul(n, _HALF_PI_HIGH)), t.mul(n, _HALF_PI_LOW)), f32)
    quadrant = t.op("add", t.convert("fptosi", n, i32), quarter)
    square = t.mul(reduced, reduced)
    sine = t.mad(t.mul(square, reduced), t.poly(square, _SIN), reduced)
    cosine = t.mad(t.mul(square, square), t.poly(square, _COS), t.mad(square, -0.5, 1.0))
    value = t.where(t.test("!=", t.op("and", quadrant, 1), 0), cosine, sine)
    flip = t.op("shl", t.op("and", quadrant, 2), 30)
    near = t.float(t.op("xor", t.bits(value), flip))
    return _unless_large(t, x, near, name)


def _unless_large(t: Lane, x: Value, near: Value, name: str) -> Value:
    """Return `near` where |x| is small, and what the C library says elsewhere."""
    return _unless(t, Value(bool_, t.b.pure(f"fcmp uge {t.abs(x).typed}, {t.of(_LARGE).text}"), t.lanes), near, name, (x,))


def _unless(t: Lane, chosen: Value, near: Value, name: str, args: tuple[Value, ...]) -> Value:
    """Return `near`, but what the C library says in lanes that are chosen; it is only called when there is such a lane."""
    b = t.b
    any_chosen = chosen.text
    if t.lanes:
        fn = b.declare(f"llvm.vector.reduce.or.v{t.lanes}i1", f"i1 @({chosen.type})")
        any_chosen = b.pure(f"call i1 {fn}({chosen.typed})")
    slow, end = b.fresh_label("large"), b.fresh_label("end")
    b.open_placeholder()
    origin = b.label
    b.write(f"br i1 {any_chosen}, label %{slow}, label %{end}")
    b.enter()
    b.start(slow)
    exact = select(b, chosen, libm(b, name, args), near)
    b.write(f"br label %{end}")
    b.leave()
    b.region.placeholder = None
    b.start(end)
    return Value(f32, b.op(f"phi {near.type} [ {near.text}, %{origin} ], [ {exact.text}, %{slow} ]"), t.lanes)


# ---------------------------------------------------------------- inverses of sine, cosine and tangent

_ASIN = (0.16666754, 0.07495242, 0.0454771, 0.02414762, 0.04221854)
_ATAN = (-0.33332955, 0.19977925, -0.13879844, 0.08060292)
_TAN_PI_8, _TAN_3_PI_8 = 0.4142135623730950, 2.414213562373095
_HALF_PI, _HALF_PI_REST = 1.57079637050628662109375, -4.37113900018624283e-8
_PI, _PI_REST = 2 * _HALF_PI, 2 * _HALF_PI_REST


def _with_sign(t: Lane, x: Value, sign: Value) -> Value:
    """Return |x| with the sign of another number."""
    return intrinsic(t.b, "copysign", x, sign)


def _cubic(t: Lane, x: Value, square: Value, coefficients: Sequence[float]) -> Value:
    """Return x + x^3 P(x^2)."""
    return t.mad(t.mul(x, square), t.poly(square, coefficients), x)


def _asin(t: Lane, x: Value) -> Value:
    size = t.abs(x)
    outer = t.test(">", size, 0.5)
    square = t.where(outer, t.mul(t.sub(t.of(1.0), size), 0.5), t.mul(x, x))
    arc = _cubic(t, t.where(outer, intrinsic(t.b, "sqrt", square), size), square, _ASIN)
    return _with_sign(t, t.where(outer, t.add(t.mad(arc, -2.0, _HALF_PI), _HALF_PI_REST), arc), x)


def _acos(t: Lane, x: Value) -> Value:
    size = t.abs(x)
    outer = t.test(">", size, 0.5)
    square = t.where(outer, t.mul(t.sub(t.of(1.0), size), 0.5), t.mul(x, x))
    arc = _cubic(t, t.where(outer, intrinsic(t.b, "sqrt", square), x), square, _ASIN)
    twice = t.add(arc, arc)
    far = t.where(t.test("<", x, 0.0), t.add(t.sub(t.of(_PI), twice), _PI_REST), twice)
    return t.where(outer, far, t.add(t.sub(t.of(_HALF_PI), arc), _HALF_PI_REST))


def _atan(t: Lane, x: Value) -> Value:
    size = t.abs(x)
    far, middle = t.test(">", size, _TAN_3_PI_8), t.test(">", size, _TAN_PI_8)
    above = t.where(far, -1.0, t.where(middle, t.sub(size, 1.0), size))
    below = t.where(far, size, t.where(middle, t.add(size, 1.0), t.of(1.0)))
    part = t.div(above, below)
    arc = _cubic(t, part, t.mul(part, part), _ATAN)
    start = t.where(far, t.of(_HALF_PI), t.where(middle, t.of(_HALF_PI / 2), t.of(0.0)))
    rest = t.where(far, t.of(_HALF_PI_REST), t.where(middle, t.of(_HALF_PI_REST / 2), t.of(0.0)))
    return _with_sign(t, t.add(start, t.add(arc, rest)), x)


# ---------------------------------------------------------------- hyperbolic functions and their inverses

_SINH = (0.166666665, 0.00833335060, 0.000198360662, 2.81743973e-06)
_WIDE_AREA = 2.0**13
"""From which on areas are the logarithm of twice their argument."""


def _half_exponentials(t: Lane, size: Value) -> tuple[Value, Value]:
    """Return e^x / 2 and e^-x / 2."""
    n, whole, r = _reduced_exp(t, t.at_most(size, 92.0))
    half = _scaled(t, t.mul(_exp_part(t, r), 0.5), n, whole)
    return half, t.div(t.of(0.25), half)


def _cosh(t: Lane, x: Value) -> Value:
    return t.add(*_half_exponentials(t, t.abs(x)))


def _sinh(t: Lane, x: Value) -> Value:
    size = t.abs(x)
    far = t.sub(*_half_exponentials(t, size))
    return _with_sign(t, t.where(t.test("<", size, 1.0), _cubic(t, size, t.mul(size, size), _SINH), far), x)


def _area(t: Lane, x: Value, more: Value) -> Value:
    """Return log(1 + more), or log(2 x) where x is large."""
    wide = t.test(">", x, _WIDE_AREA)
    e, m = _normal(t, x)
    far = _log_sum(t, t.op("add", e, 1), t.sub(m, 1.0))
    return t.where(t.test("<", x, INF), t.where(wide, far, _log1p(t, t.where(wide, 0.0, more))), x)


def _asinh(t: Lane, x: Value) -> Value:
    size = t.abs(x)
    square = t.mul(size, size)
    root = intrinsic(t.b, "sqrt", t.add(square, 1.0))
    return _with_sign(t, _area(t, size, t.add(size, t.div(square, t.add(root, 1.0)))), x)


def _acosh(t: Lane, x: Value) -> Value:
    beyond = t.sub(x, 1.0)
    root = intrinsic(t.b, "sqrt", t.mul(beyond, t.add(beyond, 2.0)))
    return t.where(t.test("<", x, 1.0), NAN, _area(t, x, t.add(beyond, root)))


def _atanh(t: Lane, x: Value) -> Value:
    size = t.abs(x)
    return _with_sign(t, t.mul(_log1p(t, t.div(t.add(size, size), t.sub(t.of(1.0), size))), 0.5), x)


# ---------------------------------------------------------------- remainders

_MOST_QUOTIENT = 2.0**28


def _fmod(t: Lane, x: Value, y: Value) -> Value:
    """Return x - y trunc(x / y): in f64 products of y with small whole numbers are exact, and a quotient is wrong by one at most."""
    above, below = (t.convert("fpext", t.abs(v), f64) for v in (x, y))
    quotient = t.div(above, below)
    rest = t.sub(above, t.mul(intrinsic(t.b, "trunc", quotient), below))
    rest = t.where(t.test("<", rest, 0.0), t.add(rest, below), rest)
    rest = t.convert("fptrunc", t.where(t.test(">=", rest, below), t.sub(rest, below), rest), f32)
    near = _with_sign(t, t.where(t.test("==", below, INF), t.abs(x), rest), x)
    large = t.b.pure(f"fcmp uge {quotient.typed}, {t.of(_MOST_QUOTIENT, f64).text}")
    return _unless(t, Value(bool_, large, t.lanes), near, "fmod", (x, y))


# ---------------------------------------------------------------- powers

_ATANH = (0.3333333335537685, 0.19999992253153423, 0.14286596890236056, 0.11067403883263854, 0.10062981100270878)
_EXP2_WIDE = (
    0.6931471805482112,
    0.24022650698110767,
    0.05550410935269634,
    0.0096181286161073,
    0.0013333454857994871,
    0.000154038254646602,
    1.5309156732533878e-05,
    1.3178934292060792e-06,
)


def _pow(t: Lane, x: Value, y: Value) -> Value:
    """Return x^y: in f64 the product y log2|x| keeps enough digits for an f32 result."""
    size = t.abs(x)
    logarithm = _wide_log2(t, size)
    exponent = t.mul(t.convert("fpext", y, f64), logarithm)
    of_one = Value(bool_, t.b.pure(f"and {of_lanes('i1', t.lanes)} {t.test('==', size, 1.0).text}, {t.test('==', y, y).text}"), t.lanes)
    limited = t.at_most(t.at_least(t.where(of_one, t.of(0.0, f64), exponent), -200.0), 200.0)
    positive = t.convert("fptrunc", _wide_exp2(t, limited), f32)
    half = t.mul(y, 0.5)
    whole = t.test("==", intrinsic(t.b, "trunc", y), y)
    even = t.test("==", intrinsic(t.b, "trunc", half), half)
    negative = t.test("<", t.bits(x), t.of(0, i32))
    signed = t.where(even, positive, t.mul(positive, -1.0))
    undefined = t.where(t.test("==", x, -INF), positive, t.where(t.test("==", x, 0.0), positive, NAN))
    below = t.where(whole, signed, undefined)
    result = t.where(negative, t.where(t.test("==", x, x), below, NAN), positive)
    return t.where(t.test("==", y, 0.0), 1.0, t.where(t.test("==", x, 1.0), 1.0, result))


POWERS = (0.25, 0.5, 0.75, 1.5, 2.0, 3.0, 4.0)
"""Exponents for which products and square roots are as good: no step overflows, or loses digits, where the result does not."""


def power(b: Builder, x: Value, exponent: float) -> Value:
    """Return `x` to the power of one of `POWERS`."""
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


def _wide_log2(t: Lane, size: Value) -> Value:
    """Return log2 of an f32 >= 0 as f64; -inf for 0."""
    e, m = _normal(t, size)
    wide = t.convert("fpext", m, f64)
    s = t.div(t.sub(wide, 1.0), t.add(wide, 1.0))
    square = t.mul(s, s)
    series = t.mad(t.mul(square, t.poly(square, _ATANH)), s, s)
    result = t.add(t.convert("sitofp", e, f64), t.mul(series, 2 * _LOG2E))
    edge = t.convert("fpext", t.where(t.test("==", size, 0.0), -INF, size), f64)
    inside = Value(bool_, t.b.pure(f"and {of_lanes('i1', t.lanes)} {t.test('>', size, 0.0).text}, {t.test('<', size, INF).text}"), t.lanes)
    return t.where(inside, result, edge)


def _wide_exp2(t: Lane, x: Value) -> Value:
    """Return 2^x as f64, for |x| <= 200."""
    n = intrinsic(t.b, "rint", x)
    r = t.sub(x, n)
    fraction = t.mad(r, t.poly(r, _EXP2_WIDE), 1.0)
    # A NaN has no whole part; the fraction keeps it.
    number = t.where(t.test("==", n, n), n, 0.0)
    whole = t.convert("fptosi", number, i32)
    biased = Value(i32, t.b.pure(f"add {whole.typed}, {t.of(1023, i32).text}"), t.lanes)
    wide = of_lanes("i64", t.lanes)
    shift = "splat (i64 52)" if t.lanes else "52"
    bits = t.b.pure(f"shl {wide} {t.b.pure(f'zext {biased.typed} to {wide}')}, {shift}")
    return t.mul(fraction, Value(f64, t.b.pure(f"bitcast {wide} {bits} to {of_lanes('double', t.lanes)}"), t.lanes))


_POLYNOMIAL: dict[str, Callable[..., Value]] = {
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
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "fmod": _fmod,
    "pow": _pow,
}
_POLYNOMIAL_F64: dict[str, Callable[..., Value]] = {
    "exp": _exp_f64,
    "expm1": _expm1_f64,
    "log": _log_f64,
    "tanh": _tanh_f64,
    "sigmoid": _sigmoid_f64,
}
