import json
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.dtypes import DTYPES, DType, bf16, f32, f64, i8, i32, u8
from codegen.errors import InternalError
from codegen.loops.evaluate import packed, unpacked
from codegen.loops.interp import run
from codegen.loops.parser import parse, parse_index
from codegen.loops.printer import show
from codegen.loops.scalars import Value, binary, call, cast, fma, nearest
from codegen.loops.verify import verify

floats32 = st.floats(width=32)
bytes8 = st.integers(-128, 127)


def evaluate(text: str, dtype: DType = f32, **arrays: np.ndarray) -> np.ndarray:
    """Return what `text` computes in a function that may read `arrays`."""
    params = "".join(f", {name}: {_name(a)}[{', '.join(map(str, a.shape))}]" for name, a in arrays.items())
    function = parse(f"func f()(out result: {dtype}[1]{params}) {{ result[0] = {text} }}")
    verify(function)
    result = np.zeros(1, dtype.numpy)
    assert run(function, {}, {"result": result, **arrays}) == 0
    return result[0]


def _name(array: np.ndarray) -> str:
    return next(d.name for d in DTYPES.values() if d.numpy == array.dtype)


def test_the_first_row_of_a_buffer_and_the_parameter_that_it_lies_in_are_one_memory() -> None:
    function = parse("""
        func f()(out y: f32[4], out seen: f32[4]) {
            alloc u: f32[2, 4] heap (begins y)
            for i in 0 .. 4 { u[0, i] = 1.0_f32 }
            y[1] = 2.0_f32
            u[1, 2] = 3.0_f32
            for i in 0 .. 4 { seen[i] = u[0, i] }
        }""")
    verify(function)
    y, seen = (np.zeros(4, np.float32) for _ in range(2))
    assert run(function, {}, {"y": y, "seen": seen}) == 0
    assert y.tolist() == seen.tolist() == [1, 2, 1, 1]

    racing = parse("""
        func f()(out y: f32[4]) {
            alloc u: f32[2, 4] heap (begins y)
            for i in 0 .. 4 { u[0, i] = 1.0_f32 }
            for i in 0 .. 3 parallel {
                y[i] = u[0, i + 1]
            }
        }""")
    with pytest.raises(InternalError, match=r"races: y\[1\] is touched by iterations 0 and 1"):
        run(racing, {}, {"y": y})


def test_a_tiled_product_is_a_product() -> None:
    function = parse("""
        func matmul(M, N, K)(a: f32[M, K], b: f32[K, N], out c: f32[M, N]) {
            for i in 0 .. M parallel {
                for jo in 0 .. (N + 3) // 4 {
                    alloc acc: f32[4] registers
                    for j in 0 .. 4 vector 4 { acc[j] = 0.0_f32 }
                    for k in 0 .. K {
                        for j in 0 .. min(4, N - 4*jo) vector 4 { acc[j] = fma(a[i, k], b[k, 4*jo + j], acc[j]) }
                    }
                    for j in 0 .. min(4, N - 4*jo) vector 4 { c[i, 4*jo + j] = acc[j] }
                }
            }
        }""")
    verify(function)
    rng = np.random.default_rng(0)
    for m, n, k in [(3, 7, 5), (0, 4, 2), (2, 4, 0), (1, 1, 1)]:
        a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in [(m, k), (k, n)])
        c = np.full((m, n), np.nan, np.float32)
        assert run(function, {"M": m, "N": n, "K": k}, {"a": a, "b": b, "c": c}) == 0
        assert np.array_equal(c, a @ b)


@given(floats32, floats32, floats32)
def test_fused_multiply_add_rounds_once(a: float, b: float, c: float) -> None:
    values = [np.float32(v) for v in (a, b, c)]
    result = fma(*(Value(f32, v) for v in values)).scalar
    if not all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            wide = np.float64(a) * np.float64(b) + np.float64(c)
        assert np.array_equal(result, np.float32(wide), equal_nan=True)
    elif np.isfinite(result):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        error = abs(Fraction(float(result)) - exact)
        for other in (np.nextafter(result, np.float32(-np.inf)), np.nextafter(result, np.float32(np.inf))):
            assert not np.isfinite(other) or error <= abs(Fraction(float(other)) - exact)


def test_fused_multiply_add_differs_from_two_roundings() -> None:
    # a * b + c lies 2**-70 below the midpoint of two f32; f64 rounds it onto the midpoint, from where f32 rounds to the wrong side.
    a, b, c = np.float32(1 + 2**-23), np.float32((1 - 2**-23) * 2**-24), np.float32(1 + 2**-23)
    assert fma(Value(f32, a), Value(f32, b), Value(f32, c)).scalar == c
    assert np.float32(np.float64(a) * np.float64(b) + np.float64(c)) != c


def test_fused_multiply_add_is_the_exact_sum_to_the_nearest_even() -> None:
    """Products near ties, sums that all but cancel, numbers below the normal ones, results beyond the largest."""
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 32, (1500, 3), dtype=np.uint32)
    bits[:500] = bits[:500] & 0x807FF800 | rng.integers(124, 130, (500, 3), dtype=np.uint32) << 23
    for x, y, z in bits.view(np.float32):
        with np.errstate(all="ignore"):
            against = -x * y
            beside = np.nextafter(against, z)
        for c in (z, against, beside):
            if np.isfinite(np.array([x, y, c])).all() and (exact := Fraction(float(x)) * Fraction(float(y)) + Fraction(float(c))):
                found = fma(Value(f32, x), Value(f32, y), Value(f32, c)).scalar
                assert found.tobytes() == nearest(exact, f32).tobytes(), (x, y, c)


def test_fused_multiply_add_keeps_the_sign_of_zero() -> None:
    zero, one = Value(f64, np.float64(0.0)), Value(f64, np.float64(-1.0))
    assert math.copysign(1, fma(zero, one, Value(f64, np.float64(-0.0))).scalar) == -1
    assert math.copysign(1, fma(zero, one, zero).scalar) == 1


def test_fused_multiply_add_does_not_overflow_before_the_sum() -> None:
    most = Value(f32, np.finfo(np.float32).max)
    assert fma(most, most, Value(f32, np.float32(-np.inf))).scalar == -np.inf
    huge = Value(f64, np.finfo(np.float64).max)
    assert fma(huge, huge, Value(f64, np.float64(-1.0))).scalar == np.inf


def test_powers_of_minus_infinity_and_of_minus_zero_are_not_square_roots() -> None:
    half = Value(f32, np.float32(0.5))
    assert call("pow", [Value(f32, np.float32(-np.inf)), half]).scalar == np.inf
    assert math.copysign(1, call("pow", [Value(f32, np.float32(-0.0)), half]).scalar) == 1


@given(bytes8, bytes8, st.sampled_from(["+", "-", "*"]))
def test_integers_wrap(x: int, y: int, op: str) -> None:
    with np.errstate(over="ignore"):
        expected = {"+": np.add, "-": np.subtract, "*": np.multiply}[op](np.int8(x), np.int8(y))
    assert binary(op, Value(i8, x), Value(i8, y)).scalar == int(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-7_i32 // 2_i32", -4),
        ("-7_i32 % 2_i32", 1),
        ("7_i32 // 0_i32", 0),
        ("7_i32 % 0_i32", 0),
        ("i32(u8(300_i32))", 44),
        ("i32(u8.sat(300_i32))", 255),
        ("i32(u8(-5.5_f32))", 0),
        ("i32(nan_f32)", 0),
        ("i32(inf_f32)", 2**31 - 1),
        ("i32(-2.9_f32)", -2),
        ("i32(i4(9_i32))", -7),
        ("1_i32 << 40_i32", 0),
        ("-8_i32 >> 1_i32", -4),
        ("i32(true ^ true)", 0),
        ("i32(nan_f32 != nan_f32) + i32(nan_f32 < 1.0_f32)", 1),
        ("i32(round(2.5_f32))", 2),
    ],
)
def test_integer_rules(text: str, expected: int) -> None:
    assert evaluate(text, i32) == expected


def test_minimum_and_maximum_propagate_nan() -> None:
    assert np.isnan(evaluate("min(nan_f32, 1.0_f32)")) and np.isnan(evaluate("max(1.0_f32, nan_f32)"))
    assert np.signbit(evaluate("min(0.0_f32, -0.0_f32)")) and not np.signbit(evaluate("max(-0.0_f32, 0.0_f32)"))


def test_f32_arithmetic_stays_in_f32() -> None:
    assert evaluate("(1.0_f32 + 0x1p-24_f32) - 1.0_f32") == 0
    assert evaluate("f32((1.0_f64 + 0x1p-24_f64) - 1.0_f64)") == np.float32(2**-24)


def test_conversion_to_a_narrow_float_rounds_once() -> None:
    # Through f32 this would first fall onto the midpoint of 1 and 1 + 2**-7, and then to the even side.
    assert evaluate("bf16(0x1.0100000001p+0_f64)", bf16) == ml_dtypes.bfloat16(1 + 2**-7)


@given(st.floats(), st.sampled_from(["f32", "f16"]))
def test_conversions_of_floats_are_those_of_numpy(x: float, name: str) -> None:
    with np.errstate(all="ignore"):
        expected = np.float64(x).astype(DTYPES[name].numpy)
    assert np.array_equal(cast(DTYPES[name], Value(f64, np.float64(x))).scalar, expected, equal_nan=True)


def test_the_other_side_of_a_choice_is_not_evaluated() -> None:
    a = np.ones(1, np.float32)
    assert evaluate("select(true, a[0], a[7])", a=a) == 1
    assert evaluate("i32(false and a[7] > 0.0_f32)", i32, a=a) == 0
    assert evaluate("i32(true or a[7] > 0.0_f32)", i32, a=a) == 1


def test_values_can_be_indices() -> None:
    a, k = np.arange(4, dtype=np.float32), np.array([250], np.uint8)
    assert evaluate("a[value(k[0]) - 248]", a=a, k=k) == 2
    assert evaluate("index(3*5 % 4)", DTYPES["i64"]) == 3
    assert u8.numpy == k.dtype


MEMORY_ERRORS = {
    "a read beyond the end": ("c[0] = a[N]", r"`a\[N\]` touches a\[4\], outside its shape \(4,\)"),
    "a read before the start": ("c[0] = a[-1]", r"touches a\[-1\]"),
    "a write beyond the end": ("for i in 0 .. N + 1 { c[i] = 0.0_f32 }", r"touches c\[4\]"),
    "a read of memory that nobody has written": (
        "alloc t: f32[2] stack t[0] = 0.0_f32 c[0] = t[1]",
        r"`t\[1\]` reads t\[1\], which nobody has written",
    ),
    "memory of an earlier iteration": (
        "for i in 0 .. 2 { alloc t: f32[1] stack if index(i) == 0_i64 { t[0] = 0.0_f32 } c[0] = t[0] }",
        "nobody has written",
    ),
    "too many iterations": ("for i in 0 .. N vector 2 {}", "more often than its extent 2"),
    "a division by zero": ("c[N // (N - 4)] = 0.0_f32", "which is 0"),
    "two iterations that write one element": ("for i in 0 .. N parallel { c[i // 2] = 0.0_f32 }", r"races: c\[0\] .* 0 and 1"),
    "an iteration that reads what a later one writes": ("for i in 0 .. N - 1 parallel { c[i] = c[i + 1] }", r"races: c\[1\]"),
    "an iteration that reads what an earlier one wrote": ("for i in 1 .. N parallel { c[i] = c[i - 1] }", r"races: c\[1\]"),
    "a race of an inner loop": ("for i in 0 .. 1 parallel { for j in 0 .. 2 parallel { c[0] = 0.0_f32 } }", "parallel `j`"),
    "shared scratch": ("alloc t: f32[1] stack for i in 0 .. 2 parallel { t[0] = 0.0_f32 }", "races"),
}


@pytest.mark.parametrize(("body", "message"), MEMORY_ERRORS.values(), ids=MEMORY_ERRORS.keys())
def test_memory_is_watched_for(body: str, message: str) -> None:
    function = parse(f"func f(N)(a: f32[N], out c: f32[N]) {{ {body} }}")
    with pytest.raises(InternalError, match=message):
        run(function, {"N": 4}, {"a": np.ones(4, np.float32), "c": np.ones(4, np.float32)})


def test_private_scratch_and_shared_reads_are_no_races() -> None:
    function = parse("""
        func f(N)(a: f32[N], out c: f32[N]) {
            for i in 0 .. N parallel { alloc t: f32[1] stack t[0] = a[0] c[i] = t[0] + c[i] }
            for i in 0 .. N parallel { c[i] = c[i] + 1.0_f32 }
        }""")
    c = np.zeros(3, np.float32)
    run(function, {"N": 3}, {"a": np.full(3, 5, np.float32), "c": c})
    assert c.tolist() == [6, 6, 6]


def test_a_failed_requirement_returns_its_code() -> None:
    function = parse("func f(N)(out c: f32[1]) { require index(N) == 3_i64 else 7 prefetch c[9] locality 0 c[0] = 1.0_f32 }")
    c = np.zeros(1, np.float32)
    assert run(function, {"N": 2}, {"c": c}) == 7 and c[0] == 0
    assert run(function, {"N": 3}, {"c": c}) == 0 and c[0] == 1


def test_arguments_must_fit_the_header() -> None:
    function = parse("func f(N)(out c: f32[N]) {}")
    for sizes, arrays in [
        ({}, {"c": np.zeros(1, np.float32)}),
        ({"N": 1}, {}),
        ({"N": 2}, {"c": np.zeros(1, np.float32)}),
        ({"N": 1}, {"c": np.zeros(1, np.float64)}),
    ]:
        with pytest.raises(InternalError):
            run(function, sizes, arrays)


COPIES = """\
func f()(x: f32[4], out y: f32[4]) {
    alloc s: f32[2] shared
    s[0] = x[0] later
    commit
    for k in 0 .. 4 (stages 2) {
        if index(k) < 3_i64 {
            s[(k + 1) % 2] = x[k + 1] later
        }
        commit
        wait 1
        y[k] = s[k % 2]
    }
}
"""


def test_copies_land_when_they_are_waited_for() -> None:
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    assert show(parse(COPIES)) == COPIES
    verify(parse(COPIES))
    run(parse(COPIES), {}, {"x": x, "y": y})
    assert y.tolist() == x.tolist()


@pytest.mark.parametrize("worse", [COPIES.replace("wait 1", "wait 2"), COPIES.replace("        commit\n", "")])
def test_a_copy_that_may_not_have_landed_cannot_be_read(worse: str) -> None:
    with pytest.raises(InternalError, match="written"):
        run(parse(worse), {}, {"x": np.zeros(4, np.float32), "y": np.zeros(4, np.float32)})


@pytest.mark.parametrize("text", ["7", "N", "(N*M + 63) // 64 * 64", "min(N, 3) + max(M % 4, N)"])
def test_an_index_is_the_same_once_it_was_kept_as_json(text: str) -> None:
    index = parse_index(text)
    assert unpacked(json.loads(json.dumps(packed(index)))) == index
