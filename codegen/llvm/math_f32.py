"""Elementary functions of f32; `math` says which there are, and what they err by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from codegen.dtypes import bool_, f32, f64, i32
from codegen.llvm.arithmetic import intrinsic
from codegen.llvm.notation import Lane, log_edges, unless
from codegen.llvm.values import Value, of_lanes

_MAGIC = 12582912.0
"""1.5 * 2^23: adding it pushes the fraction of a number out of an f32."""
_MAGIC_BITS = 0x4B400000
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6


def _nearest(t: Lane, x: Value) -> tuple[Value, Value]:
    """Return `x` (|x| < 2^22) rounded to a whole number, as f32 and as i32."""
    shifted = t.add(x, _MAGIC)
    return t.sub(shifted, _MAGIC), t.op("sub", t.bits(shifted), _MAGIC_BITS)


def _power_of_two(t: Lane, n: Value) -> Value:
    """Return 2^n for -126 <= n <= 127."""
    return t.float(t.op("shl", t.op("add", n, 127), 23))


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
    return t.mul(first, _power_of_two(t, t.op("sub", whole, half)))


def _has_scalef(t: Lane) -> bool:
    return t.lanes == 16 and t.b.target.vector_bits == 512


def _exp(t: Lane, x: Value) -> Value:
    limited = t.at_most(t.at_least(x, -104.0), 89.0)
    n, whole, r = _reduced_exp(t, limited)
    return _scaled(t, _exp_part(t, r), n, whole)


def _exp2(t: Lane, x: Value) -> Value:
    limited = t.at_most(t.at_least(x, -151.0), 129.0)
    whole, n = _nearest(t, limited)
    r = t.sub(limited, whole)
    return _scaled(t, t.mad(r, t.poly(r, _EXP2), 1.0), whole, n)


def _expm1(t: Lane, x: Value) -> Value:
    limited = t.at_most(t.at_least(x, -20.0), 89.0)
    _, n, r = _reduced_exp(t, limited)
    q = t.mad(t.mul(r, r), t.poly(r, _EXPM1), r)
    half = _power_of_two(t, t.op("sub", n, 1))
    scaled = t.mad(q, half, t.sub(half, 0.5))
    small = t.test("==", n, 0)
    return t.where(small, t.where(t.test("==", x, 0.0), x, q), t.add(scaled, scaled))


def half_exponentials(t: Lane, size: Value) -> tuple[Value, Value]:
    """Return e^x / 2 and e^-x / 2."""
    n, whole, r = _reduced_exp(t, t.at_most(size, 92.0))
    half = _scaled(t, t.mul(_exp_part(t, r), 0.5), n, whole)
    return half, t.div(t.of(0.25), half)


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


def _log_sum(t: Lane, e: Value, f: Value) -> Value:
    """Return e ln(2) + log(1 + f)."""
    n = t.convert("sitofp", e, f32)
    tail = t.mad(t.mul(f, f), t.poly(f, _LOG), t.mul(n, _LN2_LOW))
    return t.mad(n, _LN2_HIGH, t.add(f, tail))


def _log(t: Lane, x: Value) -> Value:
    e, m = _normal(t, x)
    return log_edges(t, x, 0.0, _log_sum(t, e, t.sub(m, 1.0)))


def _log1p(t: Lane, x: Value) -> Value:
    e, _ = _exponent(t, t.add(x, 1.0))
    scale = t.float(t.op("shl", t.op("sub", t.of(129, i32), e), 23))
    f = t.mad(t.mul(x, 0.25), scale, t.sub(t.mul(scale, 0.25), 1.0))
    unscaled = t.test("==", e, 0)
    result = _log_sum(t, e, t.where(unscaled, x, f))
    return log_edges(t, x, -1.0, t.where(t.test("==", x, 0.0), x, result))


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
    return log_edges(t, x, 0.0, t.add(lead, t.add(lost, tail)))


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


# ---------------------------------------------------------------- sine and cosine

_SIN = (-0.16666654516758744, 0.008332154770862365, -0.00019514454499509545)
_COS = (0.0416666467150533, -0.0013887359781771349, 2.4437532053694813e-05)
_HALF_PI_HIGH, _HALF_PI_LOW = 1.57079632673412561417, 6.07710050650619224932e-11
_LARGE = 2.0**20


def _sine_and_cosine(t: Lane, x: Value) -> tuple[Value, Value, Value]:
    """Return what remains of |x| < 2^20 by whole quarters of a turn, as its sine and cosine, and the number of quarters."""
    wide = t.convert("fpext", t.where(t.test("<", t.abs(x), _LARGE), x, 0.0), f64)
    n = intrinsic(t.b, "rint", t.mul(wide, 0.6366197723675814))
    reduced = t.convert("fptrunc", t.sub(t.sub(wide, t.mul(n, _HALF_PI_HIGH)), t.mul(n, _HALF_PI_LOW)), f32)
    square = t.mul(reduced, reduced)
    sine = t.mad(t.mul(square, reduced), t.poly(square, _SIN), reduced)
    cosine = t.mad(t.mul(square, square), t.poly(square, _COS), t.mad(square, -0.5, 1.0))
    return sine, cosine, t.convert("fptosi", n, i32)


def _wave(t: Lane, x: Value, quarter: int, name: str) -> Value:
    """Return sin(x + quarter * pi/2)."""
    near = t.quadrant(*_sine_and_cosine(t, x), quarter)
    return _unless_large(t, x, near if quarter else t.zero_kept(x, near), name)


def _tan(t: Lane, x: Value) -> Value:
    return _unless_large(t, x, t.zero_kept(x, t.slope(*_sine_and_cosine(t, x))), "tan")


def _unless_large(t: Lane, x: Value, near: Value, name: str) -> Value:
    """Return `near` where |x| is small, and what the C library says elsewhere."""
    return unless(t, Value(bool_, t.b.pure(f"fcmp uge {t.abs(x).typed}, {t.of(_LARGE).text}"), t.lanes), near, name, (x,))


# ---------------------------------------------------------------- remainders

_MOST_QUOTIENT = 2.0**28


def _fmod(t: Lane, x: Value, y: Value) -> Value:
    """Return x - y trunc(x / y): in f64 products of y with small whole numbers are exact, and a quotient is wrong by one at most."""
    above, below = (t.convert("fpext", t.abs(v), f64) for v in (x, y))
    quotient = t.div(above, below)
    rest = t.sub(above, t.mul(intrinsic(t.b, "trunc", quotient), below))
    rest = t.where(t.test("<", rest, 0.0), t.add(rest, below), rest)
    rest = t.convert("fptrunc", t.where(t.test(">=", rest, below), t.sub(rest, below), rest), f32)
    near = t.with_sign(t.where(t.test("==", below, inf), t.abs(x), rest), x)
    large = t.b.pure(f"fcmp uge {quotient.typed}, {t.of(_MOST_QUOTIENT, f64).text}")
    return unless(t, Value(bool_, large, t.lanes), near, "fmod", (x, y))


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


def _wide_log2(t: Lane, size: Value) -> Value:
    """Return log2 of an f32 >= 0 as f64; -inf for 0."""
    e, m = _normal(t, size)
    wide = t.convert("fpext", m, f64)
    s = t.div(t.sub(wide, 1.0), t.add(wide, 1.0))
    square = t.mul(s, s)
    series = t.mad(t.mul(square, t.poly(square, _ATANH)), s, s)
    result = t.add(t.convert("sitofp", e, f64), t.mul(series, 2 * _LOG2E))
    edge = t.convert("fpext", t.where(t.test("==", size, 0.0), -inf, size), f64)
    return t.where(t.conjunction(t.test(">", size, 0.0), t.test("<", size, inf)), result, edge)


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


def magnitude(t: Lane, size: Value, y: Value) -> Value:
    """Return |x|^y: in f64 the product y log2|x| keeps enough digits for an f32 result."""
    exponent = t.mul(t.convert("fpext", y, f64), _wide_log2(t, size))
    of_one = t.conjunction(t.test("==", size, 1.0), t.test("==", y, y))
    limited = t.at_most(t.at_least(t.where(of_one, t.of(0.0, f64), exponent), -200.0), 200.0)
    return t.convert("fptrunc", _wide_exp2(t, limited), f32)


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
