"""A loop that goes on with what it has collected runs in lanes, which are combined in logarithmically many steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvm_run import LEVELS, check

from codegen.dtypes import DTYPES, DType
from codegen.errors import InternalError
from codegen.llvm.emit import emit
from codegen.llvm.target import host, named
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.running_lanes import with_running_lanes
from codegen.loops.verify import verify

TEXT = """func f()(x: {t}[77], w: {t}[3], out y: {t}[77]) {{
    alloc s: {t}[1] registers
    s[0] = x[0]
    for i in 0 .. {n} serial {{
        {before}
        s[0] = {value}
        y[{at}] = s[0]
    }}
}}
"""

SOME = [LEVELS[0], *(level for level in LEVELS if level.name == "x86-64-v3"), host()]
"""Processors with registers of three sizes, as far as their code runs here."""


def four(_: DType) -> int:
    return 4


def text(value: str, dtype: str = "i32", n: int = 77, at: str = "i", before: str = "") -> str:
    return TEXT.format(t=dtype, n=n, value=value, at=at, before=before)


def in_lanes(source: str) -> Function:
    made = with_running_lanes(parse(source), four)
    verify(made)
    assert "vector 4" in show(made)
    return made


def arrays(dtype: str) -> dict[str, Any]:
    rng, kind = np.random.default_rng(3), DTYPES[dtype].numpy
    drawn = rng.integers(0 if dtype[0] in "ub" else -9, 10, 77)
    x = drawn > 8 if dtype == "bool" else drawn.astype(kind)
    return {"x": x, "w": np.ones(3, x.dtype), "y": np.zeros(77, x.dtype)}


@pytest.mark.parametrize("dtype", ["i8", "u16", "i32", "i64"])
@pytest.mark.parametrize("value", ["s[0] + x[i]", "bitxor(x[i], s[0])", "max(s[0], x[i])", "s[0] * (x[i] + w[0])"])
def test_whole_numbers_are_collected_in_lanes(value: str, dtype: str) -> None:
    value = value.replace("bitxor(x[i], s[0])", "(x[i] ^ s[0])")
    in_lanes(text(value, dtype))
    check(text(value, dtype), targets=[LEVELS[0], host()], **arrays(dtype))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("value", ["max(s[0], x[i])", "min(x[i] - w[2], s[0])"])
def test_minima_and_maxima_of_floats_are_collected_in_lanes(value: str, dtype: str) -> None:
    in_lanes(text(value, dtype))
    given = arrays(dtype)
    given["x"][3], given["x"][4] = -0.0, 0.0
    check(text(value, dtype), targets=[LEVELS[0], host()], **given)
    given["x"][50] = np.nan
    check(text(value, dtype), targets=[LEVELS[0], host()], **given)


@pytest.mark.parametrize("value", ["s[0] or x[i]", "x[i] and s[0]", "s[0] != x[i]"])
def test_truths_are_collected_as_bits_of_a_number(value: str) -> None:
    in_lanes(text(value, "bool"))
    check(text(value, "bool"), targets=SOME, **arrays("bool"))


@pytest.mark.parametrize(
    "value", ["x[i] + s[0] - w[1]", "select(x[i] > 0_i32, s[0] + 1_i32, s[0])", "select(x[i] > 0_i32, s[0], s[0] + x[i] - 2_i32)"]
)
def test_what_is_added_is_told_from_sums_and_choices(value: str) -> None:
    in_lanes(text(value))
    check(text(value), targets=[host()], **arrays("i32"))


AGAIN = [
    "select(x[i] > 2_i32, x[i], max(s[0], x[i]))",
    "select(x[i] > 2_i32, s[0] + 1_i32, 0_i32)",
    "select(x[i] > 2_i32, s[0] + 1_i32, select(x[i] > 1_i32, s[0] - x[i], w[0])) + 1_i32",
    "select(x[i] > 2_i32, 9_i32, select(x[i] > 0_i32, min(x[i], s[0]), s[0]))",
]


@pytest.mark.parametrize("value", AGAIN)
def test_collecting_may_begin_again_where_data_say(value: str) -> None:
    made = with_running_lanes(parse(text(value)), lambda _: 8)
    verify(made)
    assert "vector 8" in show(made)
    check(text(value), targets=SOME, **arrays("i32"))
    # With fewer lanes that takes longer than one after the other.
    assert with_running_lanes(parse(text(value)), four) == parse(text(value))


@pytest.mark.parametrize("value", ["select(w[0], s[0] or x[i], false)", "select(x[i], x[i - 1] != w[1], s[0])", "not w[0] or s[0] or x[i]"])
def test_truths_may_begin_again_where_data_say(value: str) -> None:
    source = text(value, "bool").replace("for i in 0", "for i in 1")
    in_eight = with_running_lanes(parse(source), lambda _: 8)
    verify(in_eight)
    assert "vector 8" in show(in_eight)
    check(source, targets=SOME, **arrays("bool"))


def test_a_running_result_may_be_made_of_another() -> None:
    two = """func f()(x: i32[77], out y: i32[77]) {
    alloc inside: bool[1] registers
    alloc s: i32[1] registers
    inside[0] = false
    s[0] = 0_i32
    for i in 0 .. 77 serial {
        inside[0] = inside[0] != (x[i] == 3_i32)
        let n = s[0] + select(x[i] > 2_i32 and not inside[0], 1_i32, 0_i32)
        y[i] = n
        s[0] = n
    }
}
"""
    in_lanes(two)
    given = arrays("i32")
    check(two, targets=SOME, x=given["x"], y=given["y"])


def test_rows_may_be_stored_from_their_end() -> None:
    backwards = text("min(s[0], x[76 - i])", at="76 - i")
    in_lanes(backwards)
    check(backwards, targets=[LEVELS[0], host()], **arrays("i32"))


def test_how_many_iterations_there_are_may_be_left_to_the_run() -> None:
    open_ = """func f(n)(x: i32[n], out y: i32[n]) {
    alloc s: i32[1] registers
    s[0] = 0_i32
    for i in 0 .. n serial {
        let new = s[0] + x[i]
        y[i] = new
        s[0] = new
    }
}
"""
    in_lanes(open_)
    for n in (0, 3, 16, 37):
        check(open_, targets=[host()], sizes={"n": n}, x=np.arange(n, dtype=np.int32), y=np.zeros(n, np.int32))


@pytest.mark.parametrize(("level", "vector"), [("x86-64", "<4 x i32>"), ("x86-64-v3", "<8 x i32>"), ("x86-64-v4", "<16 x i32>")])
def test_as_many_are_collected_as_a_register_has_lanes(level: str, vector: str) -> None:
    assert f"store {vector}" in emit(parse(text("s[0] + x[i]")), named(level))


@pytest.mark.parametrize(
    "source",
    [
        text("s[0] + x[i]", "f32"),  # rounded in another order
        text("x[i] - s[0]"),
        text("max(s[0] + 1_i32, x[i])"),
        text("s[0] + s[0] * x[i]"),
        text("s[0] + x[i]", n=7),  # short
        text("s[0] + x[2 * i]", n=38),  # no neighbours
        text("s[0] + x[i]", at="2 * i", n=38),
        text("s[0] + y[76 - i]"),  # read back
        text("s[0] + x[value(x[i] % 3_i32)]"),
        text("select(x[i] > 2_i32, x[i], s[0])"),  # kept or not
        text("select(s[0] > 2_i32, x[i], s[0] + 1_i32)"),
        text("s[0] + x[i]", before="let old = s[0]"),
        text("s[0] + x[i]", before="y[i] = s[0]"),
    ],
)
def test_what_depends_on_the_order_or_reads_no_neighbours_is_collected_one_by_one(source: str) -> None:
    function = parse(source)
    assert with_running_lanes(function, four) == function


BESIDE = """func f()(x: i32[77], out y: i32[8]) {
    alloc s: i32[8] stack
    for l in 0 .. 8 { s[l] = x[l + 9] }
    for l in 0 .. 8 vector 8 { BODY }
    for l in 0 .. 8 { y[l] = s[l] }
}
"""


def test_lanes_that_each_keep_their_own_collect_nothing_together() -> None:
    check(BESIDE.replace("BODY", "let n = s[l] + x[l]\n s[l] = n"), targets=[host()], x=arrays("i32")["x"], y=np.zeros(8, np.int32))


def test_what_lanes_collect_one_after_the_other_is_no_running_result() -> None:
    wrong = BESIDE.replace("BODY", "for k in 0 .. 3 serial { let n = s[0] + x[k + l]\n s[0] = n }")
    with pytest.raises(InternalError, match="writes one address from all lanes"):
        verify(parse(wrong))


def test_lanes_that_keep_something_else_are_no_running_result() -> None:
    wrong = """func f()(x: i32[8], out y: i32[8]) {
    alloc s: i32[1] registers
    s[0] = 0_i32
    for l in 0 .. 8 vector 8 {
        let n = s[0] + x[l]
        y[l] = s[0]
        s[0] = n
    }
}
"""
    with pytest.raises(InternalError, match="writes one address from all lanes"):
        verify(parse(wrong))
