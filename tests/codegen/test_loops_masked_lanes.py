"""Lanes along registers begin at the first element, and a condition leaves out those that have nothing to do."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from llvm_run import check

from codegen.llvm.emit import emit
from codegen.llvm.target import host
from codegen.loops.demote import demote
from codegen.loops.interp import run
from codegen.loops.masked_lanes import masked_lanes
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.simplify import simplify
from codegen.loops.verify import verify

TEXT = """func f(n)(x: f32[40, 40], out y: f32[8]) {{
    alloc a: f32[8] {space}
    for v in 0 .. 8 vector 8 {{ a[v] = 0.0_f32 }}
    for i in 0 .. 32 {{
        {loop} {{ {body} }}
    }}
    for v in 0 .. 8 vector 8 {{ y[v] = a[v] }}
}}
"""
SUM = "a[v] = a[v] + x[i, v]"


def function_of(loop: str, body: str = SUM, space: str = "registers") -> Function:
    return simplify(parse(TEXT.format(loop=loop, body=body, space=space)))


@pytest.mark.parametrize(
    "loop",
    [
        "for v in i % 8 .. 8 vector 8",
        "for v in i + 1 - 8*((i + 1) // 8) .. 8 vector 8",
        "for v in max(0, i - 24) .. 5 vector 8",
        "for v in i // 8 .. min(8, i + 1) vector 8",
    ],
)
def test_a_sum_whose_lanes_begin_anywhere_stays_in_registers(loop: str) -> None:
    function = function_of(loop)
    after = masked_lanes(function)
    verify(after)
    assert "stack" in show(demote(function)) and "stack" not in show(demote(after))
    results = []
    for f in (function, after):
        arrays = {"x": np.linspace(-2, 3, 1600, dtype=np.float32).reshape(40, 40), "y": np.zeros(8, np.float32)}
        assert run(f, {"n": 3}, arrays) == 0
        results.append(arrays["y"])
    assert_same_bits(*results)


@pytest.mark.parametrize("loop", ["for v in 1 .. 8 vector 7", "for v in 2 .. 7 vector 5", "for v in 3 .. 8 vector 5"])
def test_lanes_that_begin_within_a_register_stay_where_they_are(loop: str) -> None:
    function = function_of(loop)
    after = masked_lanes(function)
    verify(after)
    text = emit(after, host())
    assert "shufflevector <8 x float>" in emit(function, host()) and "shufflevector <8 x float>" not in text
    check(show(after), {"n": 3}, x=np.linspace(-2, 3, 1600, dtype=np.float32).reshape(40, 40), y=np.zeros(8, np.float32))


@pytest.mark.parametrize(
    ("loop", "body", "space"),
    [
        ("for v in i % 8 .. 8 vector 8", SUM, "stack"),
        ("for v in i % 8 .. 8 vector 8", "y[v] = a[0] + x[i, v]", "registers"),
        ("for v in i .. i + 8 vector 8", "a[v - i] = a[v - i] + x[i, v]", "registers"),
        ("for v in 1 .. 5 vector 4", SUM, "registers"),
        ("for v in 4 .. 8 vector 4", SUM, "registers"),
        ("for v in 2 .. 8 vector 6", "y[v] = a[0] + x[i, v]", "registers"),
        ("for v in i % 8 .. 8", SUM, "registers"),
    ],
)
def test_other_loops_stay(loop: str, body: str, space: str) -> None:
    function = function_of(loop, body, space)
    assert masked_lanes(function) == function
