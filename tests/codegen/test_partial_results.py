"""A loop that collects terms one by one, in any order, collects several results in lanes."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import LEVELS, check

from codegen.dtypes import DTYPES, DType
from codegen.llvm.emit import emit
from codegen.llvm.target import host, named
from codegen.loops.parser import parse
from codegen.loops.partial_results import with_partial_results
from codegen.loops.printer import show
from codegen.loops.verify import verify

TEXT = """func f()(x: {t}[77], w: {t}[3], out y: {t}[]) {{
    alloc s: {t}[1] registers
    s[0] = x[0]
    for i in 1 .. {n} serial {{
        s[0] = {value}
    }}
    y[] = s[0]
}}
"""


def four(_: DType) -> int:
    return 4


@pytest.mark.parametrize("dtype", ["i32", "i64", "f32", "f64"])
@pytest.mark.parametrize("value", ["max(s[0], x[i])", "min(x[76 - i] - w[2], s[0])", "max(s[0], x[i] * x[i - 1])"])
def test_minima_and_maxima_are_collected_in_lanes(value: str, dtype: str) -> None:
    _computes_the_same(TEXT.format(t=dtype, n=76, value=value), dtype)


@pytest.mark.parametrize(("level", "vector"), [("x86-64", "<4 x i32>"), ("x86-64-v3", "<8 x i32>"), ("x86-64-v4", "<16 x i32>")])
def test_registers_collect_as_many_as_they_have_lanes(level: str, vector: str) -> None:
    text = TEXT.replace("77", "400").format(t="i32", n=400, value="max(s[0], x[i])")
    assert f"phi {vector}" in emit(parse(text), named(level))


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_sums_of_whole_numbers_are_collected_in_lanes(dtype: str) -> None:
    _computes_the_same(TEXT.format(t=dtype, n=65, value="s[0] + x[i]"), dtype)


def _computes_the_same(text: str, dtype: str) -> None:
    made = with_partial_results(parse(text), four)
    verify(made)
    assert "vector 4" in show(made)
    rng = np.random.default_rng(3)
    kind = DTYPES[dtype].numpy
    x, w = rng.integers(-9, 10, 77).astype(kind), np.ones(3, kind)
    if dtype[0] == "f":
        x[3], x[4] = -0.0, 0.0
    for special in (x, np.where(np.arange(77) == 70, np.nan, x) if dtype[0] == "f" else x):
        check(text, targets=[LEVELS[0], host()], x=special.astype(kind), w=w, y=np.zeros((), kind))


@pytest.mark.parametrize(
    ("dtype", "n", "value"),
    [
        ("f32", 76, "s[0] + x[i]"),  # rounded in another order
        ("i32", 76, "s[0] - x[i]"),
        ("i32", 76, "max(s[0] + 1_i32, x[i])"),
        ("i32", 32, "max(s[0], x[i])"),  # short
        ("i32", 30, "max(s[0], x[2 * i])"),  # no neighbours
        ("i32", 76, "max(s[0], w[2])"),
        ("i32", 76, "max(s[0], x[value(x[i] % 3_i32)])"),
    ],
)
def test_what_depends_on_the_order_or_reads_no_neighbours_is_collected_one_by_one(dtype: str, n: int, value: str) -> None:
    function = parse(TEXT.format(t=dtype, n=n, value=value))
    assert with_partial_results(function, four) == function


def test_nothing_within_lanes_is_collected_in_lanes() -> None:
    text = TEXT.format(t="i32", n=76, value="max(s[0], x[i])")
    head, rest = text.split("    alloc")
    inside = f"{head}    for r in 0 .. 4 vector {{\n    alloc{rest.replace('y[] = s[0]', 'y[] = y[] + s[0]')}}}\n"
    function = parse(inside)
    assert with_partial_results(function, four) == function
