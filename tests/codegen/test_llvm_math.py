"""Elementary functions: the error of the f32 ones in units in the last place, their special values, and f64 against the C library."""

import math

import numpy as np
import pytest
from bits import assert_same_bits
from llvm_run import WIDTHS, run_native

from codegen.dtypes import DTYPES, f32
from codegen.llvm.target import Target
from codegen.loops import scalars
from codegen.loops.parser import parse
from tensorlang.tensor import arith

INF, NAN = float("inf"), float("nan")
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    INF,
    -INF,
    NAN,
    1e-45,
    -1e-45,
    1e-39,
    3.4e38,
    -3.4e38,
    88.8,
    89.5,
    -87.5,
    -100.0,
    -103.5,
    -105.0,
    0.5,
    1e-20,
]
UNARY = {
    # name: (reference in f64, arguments, largest error in ulp)
    "exp": (np.exp, [(-104, 89)], 1.2),
    "exp2": (np.exp2, [(-150, 128)], 1.2),
    "expm1": (np.expm1, [(-18, 89), (-0.5, 0.5), (-1e-3, 1e-3)], 1.5),
    "log": (np.log, [(0, 3), (0.9, 1.1), (1e-39, 1e-37), (1, 1e30)], 0.9),
    "log2": (np.log2, [(0, 3), (0.9, 1.1), (1e-39, 1e-37), (1, 1e30)], 1.8),
    "log1p": (np.log1p, [(-1, 3), (-0.1, 0.1), (-1e-6, 1e-6), (1, 1e30)], 1.65),
    "tanh": (np.tanh, [(-10, 10), (-0.6, 0.6), (-1e-3, 1e-3)], 5.7),
    "erf": (np.vectorize(math.erf), [(-4, 4), (-1, 1), (-1e-3, 1e-3)], 6.0),
    "sigmoid": (lambda x: np.exp(-np.logaddexp(0, -x)), [(-105, 20), (-1, 1)], 2.25),
    "sin": (np.sin, [(-10, 10), (-1e6, 1e6), (-1e10, 1e10)], 1.6),
    "cos": (np.cos, [(-10, 10), (-1e6, 1e6), (-1e10, 1e10)], 1.6),
    "sqrt": (np.sqrt, [(0, 1e30)], 0.51),
    "rsqrt": (lambda x: 1 / np.sqrt(x), [(0, 1e30)], 1.5),
    "tan": (np.tan, [(-3, 3), (-1e6, 1e6), (-1e10, 1e10)], 3.5),
    "asin": (np.arcsin, [(-1, 1), (-0.5, 0.5), (-1e-3, 1e-3)], 2.0),
    "acos": (np.arccos, [(-1, 1), (-0.5, 0.5), (0.99, 1)], 1.6),
    "atan": (np.arctan, [(-9, 9), (-1, 1), (-1e-3, 1e-3), (-1e30, 1e30)], 2.2),
    "sinh": (np.sinh, [(-89.4, 89.4), (-1.5, 1.5), (-1e-3, 1e-3)], 2.0),
    "cosh": (np.cosh, [(-89.4, 89.4), (-1.5, 1.5)], 2.0),
    "asinh": (np.arcsinh, [(-9, 9), (-1e-3, 1e-3), (-3e4, 3e4), (-3e38, 3e38)], 3.0),
    "acosh": (np.arccosh, [(1, 9), (1, 1.001), (1, 3e4), (1, 3e38)], 3.0),
    "atanh": (np.arctanh, [(-1, 1), (-1e-3, 1e-3), (0.99, 1)], 3.0),
    "floor": (np.floor, [(-9, 9)], 0.0),
    "ceil": (np.ceil, [(-9, 9)], 0.0),
    "round": (np.rint, [(-9, 9)], 0.0),
    "trunc": (np.trunc, [(-9, 9)], 0.0),
}  # fmt: skip
BINARY = {
    "pow": (np.power, [(0, 20), (-20, 20)], 0.51),
    "fmod": (np.fmod, [(-99, 99), (-9, 9)], 0.0),
    "atan2": (np.arctan2, [(-9, 9), (-9, 9)], 3.0),
}


def evaluate(fn: str, arrays: list[np.ndarray], target: Target, result: str | None = None, last: str = "") -> np.ndarray:
    """Return `fn` of the arrays and, if given, of the constant `last`: sixteen lanes at a time, and the last few elements one by one."""
    n = len(arrays[0])
    dtype = "f32" if arrays[0].dtype == np.float32 else "f64"
    params = ", ".join(f"x{i}: {dtype}[{n}]" for i in range(len(arrays)))
    vector = ", ".join(f"x{i}[16*io + j]" for i in range(len(arrays)))
    single = ", ".join(f"x{i}[j]" for i in range(len(arrays)))
    constant = f", {last}_{dtype}" if last else ""
    text = f"""func f()({params}, out y: {result or dtype}[{n}]) {{
        for io in 0 .. {n // 16} {{ for j in 0 .. 16 vector 16 {{ y[16*io + j] = {fn}({vector}{constant}) }} }}
        for j in {n // 16 * 16} .. {n} {{ y[j] = {fn}({single}{constant}) }} }}"""
    y = np.zeros(n, DTYPES[result].numpy if result else arrays[0].dtype)
    given = {f"x{i}": a for i, a in enumerate(arrays)}
    assert run_native(parse(text), {}, {**given, "y": y}, target) == 0
    return y


def ulps(actual: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest error of `actual` (f32), in units of the last place of the exact result."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(exact.astype(np.float32))
    size = np.abs(exact[finite])
    with np.errstate(all="ignore"):
        unit = np.maximum(2.0 ** (np.floor(np.log2(np.where(size > 0, size, 1))) - 23), 2.0**-149)
    return float(np.max(np.abs(actual[finite].astype(np.float64) - exact[finite]) / unit, initial=0))


def arguments(ranges: list[tuple[float, float]], count: int = 20003) -> np.ndarray:
    random = np.random.default_rng(7)
    return np.concatenate([random.uniform(low, high, count) for low, high in ranges]).astype(np.float32)


@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
@pytest.mark.parametrize("fn", UNARY)
def test_error_of_f32_functions(fn: str, target: Target) -> None:
    reference, ranges, limit = UNARY[fn]
    x = arguments(ranges)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    error = ulps(evaluate(fn, [x], target), exact)
    assert error <= limit


@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
@pytest.mark.parametrize("fn", BINARY)
def test_error_of_f32_functions_of_two_arguments(fn: str, target: Target) -> None:
    reference, ranges, limit = BINARY[fn]
    random = np.random.default_rng(8)
    x, y = (random.uniform(low, high, 5003).astype(np.float32) for low, high in ranges)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64), y.astype(np.float64))
    assert ulps(evaluate(fn, [x, y], target), exact) <= limit


@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
@pytest.mark.parametrize("fn", ["tanh", "erf"])
def test_sigmoids_are_odd_and_never_leave_their_range(fn: str, target: Target) -> None:
    x = np.concatenate([np.linspace(0, 12, 48000), np.geomspace(1e-38, 1e38, 3200)]).astype(np.float32)
    y = evaluate(fn, [x], target)
    assert y.max() == 1 and (y[x > 10] == 1).all()
    np.testing.assert_array_equal(evaluate(fn, [-x], target), -y)


@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
@pytest.mark.parametrize("fn", ["min", "max"])
@pytest.mark.parametrize("place", [0, 7, 16, 63, None])
def test_extremes_over_lanes_find_nan(fn: str, place: int | None, target: Target) -> None:
    x = np.arange(64, dtype=np.float32) - 20
    if place is not None:
        x[place] = NAN
    text = f"""func f()(x: f32[64], out y: f32[]) {{
        y[] = {"inf" if fn == "min" else "-inf"}_f32
        for j in 0 .. 64 vector 64 {{ y[] = {fn}(y[], x[j]) }} }}"""
    y = np.zeros((), np.float32)
    assert run_native(parse(text), {}, {"x": x, "y": y}, target) == 0
    np.testing.assert_array_equal(y, getattr(np, fn)(x))


@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
@pytest.mark.parametrize("fn", UNARY)
def test_special_arguments(fn: str, target: Target) -> None:
    x = np.array(SPECIAL, np.float32)
    with np.errstate(all="ignore"):
        expected = UNARY[fn][0](x.astype(np.float64)).astype(np.float32)
    actual = evaluate(fn, [x], target)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=2e-45)


@pytest.mark.parametrize("target", WIDTHS[::2], ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fn", ["pow", "atan2"])
def test_functions_of_two_special_numbers(fn: str, dtype: type, target: Target) -> None:
    numbers = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, -2.5, INF, -INF, NAN, 1e-45, 3e38, -1e30]
    numbers += [5e-324, 1e-310, -1e308, 1e300] if dtype == np.float64 else []
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(numbers, numbers))
    with np.errstate(all="ignore"):
        expected = BINARY[fn][0](x.astype(np.longdouble), y.astype(np.longdouble)).astype(dtype)
    tolerance = {"rtol": 1e-6, "atol": 2e-45} if dtype == np.float32 else {"rtol": 1e-15, "atol": 5e-324}
    np.testing.assert_allclose(evaluate(fn, [x, y], target), expected, **tolerance)


@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact_whatever_the_quotient_and_have_the_sign_of_the_dividend(dtype: type, target: Target) -> None:
    random = np.random.default_rng(5)
    numbers = [0.0, -0.0, 1.0, -1.0, 3.0, 0.1, -0.3, 1e-45, 5e-40, 1e-38, 7e20, 3.4e38, -3.4e38, INF, -INF, NAN]
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(numbers, numbers))
    close = random.integers(1, 4000, 2048).astype(dtype) * dtype(0.1)
    x, y = np.concatenate([x, close, np.nextafter(close, dtype(0))]), np.concatenate([y, np.full(4096, 0.1, dtype)])
    with np.errstate(all="ignore"):
        assert_same_bits(np.abs(evaluate("fmod", [x, y], target)), np.abs(np.fmod(x, y)))
        kept = np.isfinite(x) & (y != 0) & (y == y)
        np.testing.assert_array_equal(np.signbit(evaluate("fmod", [x, y], target))[kept], np.signbit(x)[kept])


@pytest.mark.parametrize("target", WIDTHS[::2], ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("exponent", "limit"), [(-1, 0.51), (2, 0.51), (3, 1.3), (4, 1.95), (0.25, 0.85), (0.5, 0.51), (0.75, 2.2), (1.5, 1.3)]
)
def test_powers_with_a_small_exponent_are_quotients_products_and_roots(exponent: float, limit: float, target: Target) -> None:
    x = np.concatenate([arguments([(-9, 9)]), np.array(SPECIAL, np.float32)])
    actual = evaluate("pow", [x], target, last=str(float(exponent)))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), np.full(x.shape, exponent))
    assert ulps(actual, exact) <= limit
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(actual, exact.astype(np.float32), rtol=1e-6, atol=2e-45)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fn", ["isnan", "isinf"])
def test_classification(fn: str, dtype: type) -> None:
    x = np.array(SPECIAL, dtype)
    np.testing.assert_array_equal(evaluate(fn, [x], WIDTHS[0], "bool"), getattr(np, fn)(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_are_those_of_the_number_and_of_one_nan(dtype: type) -> None:
    whole = np.dtype(f"u{np.dtype(dtype).itemsize}")
    x = np.array([*SPECIAL, -1.5, 1 / 3], dtype)
    other_nan = (np.array([np.nan], dtype).view(whole) | whole.type((1 << (8 * whole.itemsize - 1)) + 5)).view(dtype)
    expected = np.where(np.isnan(x), dtype(np.nan), x).view(whole)
    of_nan = np.array([np.nan], dtype).view(whole)
    for arguments_, result in ((x, expected), (other_nan, of_nan)):
        np.testing.assert_array_equal(evaluate("bits", [arguments_], WIDTHS[0], f"u{8 * whole.itemsize}"), result)


F64 = {
    # name: (reference, arguments, largest error in ulp)
    "exp": (np.exp, [(-745, 709.7), (-1, 1), (-1e-9, 1e-9)], 1.0),
    "exp2": (np.exp2, [(-1074, 1023.9), (-1, 1), (-1e-9, 1e-9)], 1.1),
    "expm1": (np.expm1, [(-40, 709), (-0.5, 0.5), (-1e-9, 1e-9)], 2.0),
    "log": (np.log, [(0, 3), (0.9, 1.1), (1e-320, 1e-300), (1, 1e300)], 1.1),
    "log2": (np.log2, [(0, 3), (0.9, 1.1), (1e-320, 1e-300), (1, 1e300)], 1.1),
    "log1p": (np.log1p, [(-1, 3), (-0.1, 0.1), (-1e-9, 1e-9), (1, 1e300)], 1.6),
    "tanh": (np.tanh, [(-22, 22), (-0.6, 0.6), (-1e-9, 1e-9)], 3.0),
    "erf": (np.vectorize(math.erf), [(-6, 6), (-1, 1), (-1e-9, 1e-9)], 3.0),  # of them one may be the reference's
    "sigmoid": (lambda x: np.exp(-np.logaddexp(np.longdouble(0), -x)), [(-700, 40), (-1, 1)], 2.5),
    "sin": (np.sin, [(-10, 10), (-1e6, 1e6), (-1e10, 1e10)], 1.0),
    "cos": (np.cos, [(-10, 10), (-1e6, 1e6), (-1e10, 1e10)], 1.0),
    "tan": (np.tan, [(-10, 10), (-1e6, 1e6), (-1e10, 1e10)], 2.0),
    "asin": (np.arcsin, [(-1, 1), (-0.5, 0.5), (-1e-9, 1e-9)], 2.0),
    "acos": (np.arccos, [(-1, 1), (-0.5, 0.5), (0.99, 1)], 1.6),
    "atan": (np.arctan, [(-9, 9), (-1, 1), (-1e-9, 1e-9), (-1e300, 1e300)], 2.2),
    "sinh": (np.sinh, [(-710, 710), (-1.5, 1.5), (-1e-9, 1e-9)], 2.0),
    "cosh": (np.cosh, [(-710, 710), (-1.5, 1.5)], 2.0),
    "asinh": (np.arcsinh, [(-9, 9), (-1e-9, 1e-9), (-3e9, 3e9), (-8e307, 8e307)], 3.0),
    "acosh": (np.arccosh, [(1, 9), (1, 1.001), (1, 3e9), (1, 1e308)], 3.0),
    "atanh": (np.arctanh, [(-1, 1), (-1e-9, 1e-9), (0.99, 1)], 3.0),
}


@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
@pytest.mark.parametrize("fn", F64)
def test_the_error_of_f64_functions_is_bounded(fn: str, target: Target) -> None:
    reference, ranges, limit = F64[fn]
    random = np.random.default_rng(3)
    x = np.concatenate([random.uniform(low, high, 4003) for low, high in ranges])
    exact = reference(x.astype(np.longdouble))
    unit = np.maximum(np.spacing(np.abs(exact).astype(np.float64)), 2.0**-1074)
    assert np.max(np.abs(evaluate(fn, [x], target) - exact) / unit) <= limit


@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("fn", "ranges", "limit"),
    [
        ("pow", [(0.04, 20), (-200, 200)], 1.1),
        ("pow", [(0.999, 1.001), (-6e5, 6e5)], 1.1),
        ("pow", [(1e-320, 1e-300), (-1, 1)], 1.1),
        ("atan2", [(-9, 9), (-9, 9)], 3.0),
        ("fmod", [(-99, 99), (-1e-9, 1e-9)], 0.0),
    ],
)
def test_the_error_of_f64_functions_of_two_arguments_is_bounded(
    fn: str, ranges: list[tuple[float, float]], limit: float, target: Target
) -> None:
    reference, _, _ = BINARY[fn]
    x, y = (np.random.default_rng(8).uniform(low, high, 5003) for low, high in ranges)
    exact = reference(x.astype(np.longdouble), y.astype(np.longdouble))
    unit = np.maximum(np.spacing(np.abs(exact).astype(np.float64)), 2.0**-1074)
    assert np.max(np.abs(evaluate(fn, [x, y], target) - exact) / unit) <= limit


@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
@pytest.mark.parametrize("fn", F64)
def test_special_arguments_of_f64_functions(fn: str, target: Target) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 710.5, -746.5, 1e308, -1e308, 5e-324, -5e-324, 2.2e-308] * 3)
    with np.errstate(all="ignore"):
        exact = F64[fn][0](x.astype(np.longdouble)).astype(np.float64)
    got = evaluate(fn, [x], target)
    np.testing.assert_allclose(got, exact, rtol=1e-15, atol=5e-324)


ODD = ("expm1", "log1p", "tanh", "erf", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
@pytest.mark.parametrize("fn", ODD)
def test_functions_that_are_zero_at_zero_keep_its_sign(fn: str, target: Target, dtype: type) -> None:
    got = evaluate(fn, [np.array([0.0, -0.0] * 17, dtype)], target)
    np.testing.assert_array_equal(np.signbit(got), [False, True] * 17)


@pytest.mark.parametrize("fn", [*UNARY, *BINARY])
def test_f64_functions_are_those_of_the_c_library(fn: str) -> None:
    reference, ranges, _ = (UNARY | BINARY)[fn]
    arity = 2 if fn in BINARY else 1
    random = np.random.default_rng(9)
    low, high = ranges[0]
    arrays = [random.uniform(low, high, 35) for _ in range(arity)]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(evaluate(fn, arrays, WIDTHS[0]), reference(*arrays), rtol=4e-16 * 4)


@pytest.mark.parametrize("target", WIDTHS, ids=lambda t: t.name)
def test_rounding_to_tf32_is_exact_for_every_class_of_numbers(target: Target) -> None:
    ends = [0x00000000, 0x00000001, 0x00000FFF, 0x00001000, 0x00001001, 0x007FEFFF, 0x007FF000, 0x007FFFFF, 0x00800000]  # subnormal
    ends += [0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F802FFF, 0x3F803000, 0x3F803001, 0x3FFFEFFF, 0x3FFFF000]  # ties and their neighbours
    ends += [0x7F7FEFFF, 0x7F7FF000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF]  # the largest, infinity, NaN
    bits = np.array([*ends, *np.random.default_rng(0).integers(0, 1 << 31, 200)], np.uint32)
    x = np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32)
    wide = np.where(np.isfinite(x), x, 0).astype(np.float64)
    step = 2.0 ** (np.maximum(np.frexp(wide)[1] - 1, -126) - 10)
    nearest = np.copysign(np.floor(np.abs(wide) / step + 0.5) * step, wide)
    with np.errstate(over="ignore"):
        expected = np.where(np.isfinite(x), nearest.astype(np.float32), x)
    loops = np.array([scalars.call("round_tf32", [scalars.Value(f32, v)]).scalar for v in x])
    with np.errstate(invalid="ignore"):
        tensors = arith.call("round_tf32", [x], f32)
    for got in (evaluate("round_tf32", [x], target), tensors, loops):
        assert_same_bits(got, expected)
