"""Between which numbers floats lie follows from what computes them; what is known is not asked for where one becomes an integer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_run import check

from codegen.dtypes import DTYPES, f32, f64, u8
from codegen.llvm.emit import emit
from codegen.llvm.target import named
from codegen.loops import interp
from codegen.loops.float_ranges import Floats, of_whole
from codegen.loops.nodes import Load, Var
from codegen.loops.parser import parse
from codegen.loops.value_ranges import Whole, value_ranges

INF = math.inf


def floats(value: str) -> Floats | None:
    """Return what is known of a value of floats and bytes of which nothing is."""
    text = f"func f(N)(x: f32[N], n: u8[N], out y: f32[N], out k: u8[N]) {{ for i in 0 .. N {{ y[i] = {value}\n k[i] = u8(y[i]) }} }}"
    return value_ranges(parse(text)).floats(Load("y", (Var("i"),)))


@pytest.mark.parametrize(
    ("value", "low", "high", "nan"),
    [
        ("x[i]", -INF, INF, True),
        ("max(0.0_f32, min(1.0_f32, x[i]))", 0, 1, True),
        ("max(0.0_f32, min(1.0_f32, x[i])) * 255.0_f32 + 0.5_f32", 0.5, 255.5, True),
        ("f32(n[i]) * 2.0_f32 - 1.0_f32", -1, 509, False),
        ("f32(n[i]) / 2.0_f32", 0, 127.5, False),
        ("2.0_f32 / f32(n[i])", -INF, INF, True),
        ("f32(n[i]) - x[i]", -INF, INF, True),
        ("x[i] * x[i]", 0, INF, True),
        ("abs(x[i])", 0, INF, True),
        ("floor(f32(n[i]) * 0.3_f32)", 0, 76, False),
        ("select(x[i] > 1.0_f32, 1.0_f32, select(x[i] < 0.0_f32, 0.0_f32, x[i]))", 0, 1, True),
        ("select(1.0_f32 >= x[i] and x[i] >= 0.0_f32, x[i], 0.5_f32)", 0, 1, False),
        ("select(x[i] != x[i], 0.0_f32, x[i])", -INF, INF, False),
        ("fma(f32(n[i]), 1.0_f32, x[i])", -INF, INF, True),
        ("select(1.0_f32 < 2.0_f32, f32(n[i]), 300.0_f32)", 0, 300, False),
    ],
)
def test_floats_lie_between_what_computes_them(value: str, low: float, high: float, nan: bool) -> None:
    assert floats(value) == Floats(f32, low, high, nan)


@pytest.mark.parametrize(
    ("value", "low", "high", "nan"),
    [
        ("tanh(x[i])", -1, 1, True),
        ("sigmoid(f32(n[i]))", 0, 1, False),
        ("exp(-f32(n[i]))", 0, 1, False),
        ("sqrt(f32(n[i]))", 0, 15.9, False),
        ("sqrt(x[i])", 0, INF, True),
        ("log(f32(n[i]))", -INF, 5.5, False),
        ("cos(x[i])", -1, 1, True),
        ("fma(f32(n[i]), 2.0_f32, -1.0_f32)", -1, 509, False),
        ("exp(select(x[i] < 1.0_f32, 0.0_f32, 88.722_f32))", 1, INF, False),
    ],
)
def test_what_is_computed_with_an_error_lies_a_little_beyond(value: str, low: float, high: float, nan: bool) -> None:
    found = floats(value)
    assert found is not None and found.nan == nan
    assert found.low <= low and found.high >= high
    assert found.low >= low - 0.6 if math.isfinite(low) else found.low == low
    assert found.high <= high + 0.6 if math.isfinite(high) else found.high == high


def test_an_integer_that_has_more_bits_than_a_double_is_rounded_once() -> None:
    n = (1 << 54) + (1 << 30) + 1  # next to the middle of two floats, which it is once it was rounded to a double
    assert of_whole(0, n, f32).high == float(np.array(n).astype(np.float32)) > float(np.float32(float(n)))


def test_integers_that_floats_become_are_limited_by_them() -> None:
    text = "func f(N)(x: f32[N], out y: i32[N]) { for i in 0 .. N { y[i] = i32(max(-7.5_f32, min(9.9_f32, x[i]))) } }"
    found = value_ranges(parse(text)).of(Load("y", (Var("i"),)))
    assert found is not None and (found.low, found.high) == (-7, 9)


def test_a_nan_becomes_a_zero() -> None:
    text = "func f(N)(x: f64[N], out y: u8[N]) { for i in 0 .. N { y[i] = u8(max(5.0_f64, min(9.0_f64, x[i]))) } }"
    assert value_ranges(parse(text)).of(Load("y", (Var("i"),))) == Whole(u8, 0, 9)


NUMBERS = st.sampled_from([-INF, -1e30, -3.5, -1.0, -0.0, 0.0, 1e-38, 0.75, 1.0, 2.5, 1e30, INF, math.nan])
TERMS = ("x[0]", "x[1]", "max(-1.0_T, min(2.5_T, x[0]))", "T(n[0])", "abs(x[1])", "0.3_T", "1e30_T", "min(0.75_T, x[1])", "exp(x[0])")
MADE = ("a + b", "a - b", "a * b", "a / b", "max(a, b)", "min(a, b)", "fma(a, b, a)", "select(a < 1.0_T, a, b)", "floor(a) * a", "-a")


@settings(max_examples=50)
@given(NUMBERS, NUMBERS, st.integers(0, 255), st.sampled_from(TERMS), st.sampled_from(TERMS), st.sampled_from(MADE), st.sampled_from(MADE))
def test_what_is_computed_lies_in_the_range_that_was_found(x: float, y: float, n: int, a: str, b: str, first: str, second: str) -> None:
    for dtype in (f32, f64):
        text = f"""func f()(x: T[2], n: u8[1], out y: T[2], out k: u8[2]) {{
            let a = {a}
            let b = {b}
            y[0] = {first}
            let c = y[0]
            y[1] = {second.replace("b", "c")}
            k[0] = u8(y[0] * 1.0_T)
            }}""".replace("T", dtype.name)
        function = parse(text)
        with np.errstate(all="ignore"):
            arrays = {
                "x": np.array([x, y], dtype.numpy),
                "n": np.array([n], np.uint8),
                "y": np.zeros(2, dtype.numpy),
                "k": np.zeros(2, np.uint8),
            }
            interp.run(function, {}, arrays)
        found = value_ranges(function).floats(Load("y", (Var("i"),)))
        assert found is not None
        assert all(found.nan if math.isnan(v) else found.low <= v <= found.high for v in arrays["y"].tolist()), (found, arrays)


SPECIAL = [math.nan, -INF, INF, -1e30, 1e30, -0.0, 0.0, -0.9, 0.9, -1.0, 127.9, 255.9, 256.0, 2147483648.0, -2147483649.0, 1e19, 3e9]
CONVERSIONS = [f"{t}({v})" for t in ("u8", "i16", "i32", "u32", "i64", "u64") for v in (
    "max(0.0_T, min(100.0_T, x[i]))", "max(-100.0_T, min(100.0_T, x[i]))", "min(100.0_T, x[i])", "max(-100.0_T, x[i])",
    "select(x[i] > 5.0_T, 5.0_T, -1.0_T)",
)]  # fmt: skip
CLAMPED = ["min(max(i32(min(255.0_T, x[i])), 0_i32), 255_i32)", "max(i32(min(255.0_T, x[i])), -3_i32)", "max(min(i64(x[i]), 9_i64), 0_i64)",
           "min(i32(max(-5.0_T, x[i])), 7_i32)", "max(min(i32(max(5.0_T, min(100.0_T, x[i]))), 90_i32), 0_i32)"]  # fmt: skip


@pytest.mark.parametrize("kind", ["", " vector 17"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_integers_made_of_floats_in_known_ranges_have_the_same_bits(dtype: str, kind: str) -> None:
    values = CONVERSIONS + CLAMPED
    types = [v.split("(")[0] for v in CONVERSIONS] + ["i32", "i32", "i64", "i32", "i32"]
    outs = ", ".join(f"out y{k}: {t}[17]" for k, t in enumerate(types))
    loops = "\n".join(f"for i in 0 .. 17{kind} {{ y{k}[i] = {v} }}" for k, v in enumerate(values))
    x = np.resize(np.array(SPECIAL, DTYPES[dtype].numpy), 17)
    arrays: dict[str, Any] = {f"y{k}": np.zeros(17, DTYPES[t].numpy) for k, t in enumerate(types)}
    check(f"func f()(x: {dtype}[17], {outs}) {{ {loops} }}".replace("_T", f"_{dtype}"), x=x, **arrays)


def test_neither_limits_nor_questions_are_left_of_what_is_known() -> None:
    text = """func f(N)(x: f32[N], t: u8[256], out y: u8[N]) { for i in 0 .. N {
        require i64(i32(max(0.0_f32, min(255.0_f32, x[i])))) >= 0_i64 and i64(i32(max(0.0_f32, min(255.0_f32, x[i])))) < 256_i64 else 1
        y[i] = t[value(max(min(i32(min(255.0_f32, x[i])), 255_i32), 0_i32))] } }"""
    made = emit(parse(text), named("x86-64-v3"))
    assert "ret i32 1" not in made and "fptosi.sat" not in made and "@llvm.smin" not in made and "@llvm.smax" in made


def test_a_question_that_says_between_which_numbers_arguments_lie_stays() -> None:
    text = """func f(N)(n: i64[N], out y: i64[N]) {
        for i in 0 .. N { require n[i] >= 0_i64 and n[i] < 9_i64 else 1 }
        for i in 0 .. N { y[i] = n[i] } }"""
    assert "ret i32 1" in emit(parse(text), named("x86-64-v3"))
