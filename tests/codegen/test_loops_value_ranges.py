"""Between which numbers integers lie follows from what stores them, and quotients of what is never less than zero have the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.dtypes import i64
from codegen.llvm.emit import emit
from codegen.llvm.target import host
from codegen.loops.nodes import Binary, Load, Store, Var
from codegen.loops.parser import parse
from codegen.loops.value_ranges import ValueRanges, Whole, value_ranges
from codegen.loops.walk import stores

HEAD = "func f(N)(x: i64[N], out y: i64[N]) {\n"
GENERATOR = "y[0] = 1_i64\nfor i in 1 .. N { y[i] = y[i - 1] * 48271_i64 % 2147483647_i64 }"


def found(body: str, buffer: str = "y") -> Whole | None:
    return value_ranges(parse(f"{HEAD}{body}\n}}")).of(Load(buffer, (Var("i"),)))


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        (GENERATOR, 0, 2147483646),
        ("for i in 0 .. N { y[i] = x[i] % 7_i64 - 3_i64 }", -3, 3),
        ("for i in 0 .. N { let n = min(max(x[i], 0_i64), 9_i64)\n y[i] = n * n }", 0, 81),
        ("for i in 0 .. 12 { y[i] = select(x[i] > 0_i64, index(2*i), 5_i64) }", 0, 22),
        ("for i in 0 .. N { y[i] = i64(x[i] > 0_i64) }", 0, 1),
        ("for i in 0 .. N { y[i] = i64(u8(x[i])) // 2_i64 }", 0, 127),
        ("y[0] = 0_i64\nfor i in 1 .. N { y[i] = y[i - 1] + 1_i64 }", None, None),
        ("for i in 0 .. N { y[i] = x[i] % 7_i64\n y[i] = x[i] }", None, None),
        ("for i in 0 .. N { y[i] = index(i) }", None, None),
        ("for i in 0 .. N { y[i] = (x[i] % 5_i64) * 4611686018427387904_i64 }", None, None),
        ("for i in 0 .. N { y[i] = x[i] % (x[i] % 5_i64 - 2_i64) }", None, None),
    ],
)
def test_elements_lie_between_what_is_stored_to_them(body: str, low: int | None, high: int | None) -> None:
    whole = -(1 << 63), (1 << 63) - 1
    assert found(body) == Whole(i64, *(whole if low is None or high is None else (low, high)))


@pytest.mark.parametrize(
    ("value", "high"),
    [
        ("select(x[i] > 0_i64, index(i), at[])", 11),
        ("select(x[i] > 0_i64, old, new)", 11),
        ("min(max(old, new), 40_i64)", 40),
        ("select(x[i] > 0_i64, old + 1_i64, new)", (1 << 63) - 1),
        ("select(x[i] > 0_i64, x[i], old)", (1 << 63) - 1),
    ],
)
def test_what_an_element_keeps_adds_nothing_to_what_is_stored(value: str, high: int) -> None:
    body = "alloc at: i64[] registers\nat[] = 3_i64\nfor i in 0 .. 12 { let old = at[]\n let new = index(i)\n at[] = VALUE }"
    of = found(body.replace("VALUE", value), "at")
    assert of is not None and (of.low >= 0) == (high < 1 << 62) and of.high == high


def test_of_what_a_caller_fills_its_type_is_known_alone() -> None:
    assert found(GENERATOR, "x") == Whole(i64, -(1 << 63), (1 << 63) - 1)


def quotient(body: str) -> str | None:
    """Return the type without a sign in which the last value that is stored divides."""
    function = parse(f"{HEAD}{body}\n}}")
    *_, last = stores(*function.body)
    assert isinstance(last, Store) and isinstance(last.value, Binary)
    dtype = value_ranges(function).unsigned(last.value)
    return None if dtype is None else dtype.name


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("(x[i] % 100_i64) // 7_i64", "u32"),
        ("(x[i] % 100_i64) * 4294967296_i64 // 7_i64", "u64"),
        ("(x[i] % 100_i64) % (x[i] % 9_i64)", "u32"),
        ("(x[i] % 100_i64) // 8_i64", None),
        ("(x[i] % 100_i64 - 1_i64) % 7_i64", None),
        ("(x[i] % 100_i64) % -7_i64", None),
    ],
)
def test_quotients_of_what_is_not_negative_need_no_sign(value: str, name: str | None) -> None:
    assert quotient(f"for i in 0 .. N {{ y[i] = {value} }}") == name


@pytest.mark.parametrize(
    ("value", "step"),
    [
        ("(x[i] % 100_i64 + x[i] % 100_i64) % 100_i64", -100),
        ("(x[i] % 100_i64 - x[i] % 101_i64) % 100_i64", 100),
        ("(x[i] % 100_i64 + x[i] % 102_i64) % 100_i64", None),
        ("(x[i] % 100_i64 - x[i] % 102_i64) % 100_i64", None),
        ("(x[i] % 100_i64 + x[i] % 100_i64) % -100_i64", None),
        ("x[i] % 100_i64", None),
        ("x[i] % 9223372036854775807_i64", None),
    ],
)
def test_remainders_that_are_a_step_away_at_most_are_told(value: str, step: int | None) -> None:
    function = parse(f"{HEAD}for i in 0 .. N {{ y[i] = {value} }}\n}}")
    (made,) = (s.value for s in stores(*function.body))
    assert isinstance(made, Binary)
    assert value_ranges(function).remainder_step(made) == step


def test_nothing_is_known_without_a_function() -> None:
    assert ValueRanges().unsigned(Binary("%", Load("x", ()), Load("x", ()))) is None


BODIES = {
    "remainders from step to step": GENERATOR,
    "remainders in lanes": "for b in 0 .. N // 8 { for v in 0 .. 8 vector 8 { y[8*b + v] = (x[8*b + v] % 1000_i64 + 5_i64) % 37_i64 } }",
    "wide ones in lanes": """
        for b in 0 .. N // 8 { for v in 0 .. 8 vector 8 {
            y[8*b + v] = (x[8*b + v] % 1000000007_i64) * 1000000006_i64 // 998244353_i64 } }""",
    "sums and differences of remainders": """
        for i in 0 .. N {
            y[i] = (x[i] % 100_i64 + x[i] % 99_i64) % 100_i64 * 1000_i64 + (x[i] % 100_i64 - x[i] % 101_i64) % 100_i64 }""",
    "sums of remainders in lanes": """
        for b in 0 .. N // 8 { for v in 0 .. 8 vector 8 { y[8*b + v] = (x[8*b + v] % 50_i64 - x[8*b + v] % 36_i64) % 50_i64 } }""",
    "by data, which may be zero": "for i in 0 .. N { y[i] = (x[i] % 1000_i64) % (x[i] % 3_i64) + (x[i] % 1000_i64) // (x[i] % 3_i64) }",
    "by data in lanes": """
        for b in 0 .. N // 8 { for v in 0 .. 8 vector 8 { y[8*b + v] = (x[8*b + v] % 5000_i64) // (x[8*b + v] % 3_i64) } }""",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_quotients_without_a_sign_have_the_same_bits(body: str) -> None:
    x = np.random.default_rng(1).integers(-(1 << 62), 1 << 62, 24)
    check(f"{HEAD}{body}\n}}", {"N": 24}, x=x, y=np.zeros(24, np.int64))


def test_remainders_of_what_is_not_negative_are_not_rounded_down() -> None:
    text = emit(parse(f"{HEAD}{GENERATOR}\n}}"), host())
    assert "udiv i64" in text and "sdiv" not in text
