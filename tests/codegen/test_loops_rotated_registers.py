"""Rings of few steps are turned in registers, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from llvm_run import WIDTHS, check, values

from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.rotated_registers import rotated_registers
from codegen.loops.verify import verify

HEAD = "func f(N)(x: f64[N, 4], out y: f64[N, 4]) {\n"
FORWARDS = """alloc s: f64[2, 3] stack
    for i in 0 .. 3 { s[0, i] = x[0, i] }
    for t in 1 .. N {
        for i in 0 .. 3 unroll 3 { s[t % 2, i] = s[(t + 1) % 2, 2 - i] * 0.5_f64 + x[t, i] }
        if x[t, 3] > 0.0_f64 { s[t % 2, 1] = s[(t + 1) % 2, 0] }
        for i in 0 .. 3 { y[t, i] = select(index(i) == 0_i64, s[t % 2, 0], select(index(i) == 1_i64, s[t % 2, 1], s[t % 2, 2])) }
    }
    y[0, 0] = s[(N - 1) % 2, 0]"""
BACKWARDS = """alloc s: f64[2, 3] stack
    for i in 0 .. 2 { for k in 0 .. 3 { s[i, k] = x[i, k] } }
    for t in 2 .. N {
        for i in 0 .. 2 unroll 2 { s[i, (-1*t + 1) % 3] = s[1 - i, (-1*t + 2) % 3] - s[i, -1*t % 3] + x[t, i] }
        y[t, 0] = s[0, (1 - t) % 3]
        y[t, 1] = s[1, (1 - t) % 3]
    }"""
LANES = """alloc s: f64[3, 2, 4] stack
    for k in 0 .. 3 { for p in 0 .. 2 { for j in 0 .. 4 { s[k, p, j] = x[k, j] } } }
    for t in 3 .. N {
        for p in 0 .. 2 unroll 2 { for j in 0 .. 4 vector 4 { s[t % 3, p, j] = s[(t + 2) % 3, 1 - p, j] - s[(t + 1) % 3, p, j] + x[t, j] } }
        for j in 0 .. 4 vector 4 { y[t, j] = s[t % 3, 0, j] + s[t % 3, 1, j] }
    }"""
NUMBERS = """alloc s: f64[3] stack
    for k in 0 .. 3 { s[k] = x[k, 0] }
    for t in 3 .. N {
        s[t % 3] = s[(t + 1) % 3] * s[(t + 2) % 3] + x[t, 0]
        y[t, 0] = s[t % 3]
    }"""
EMPTY = """alloc s: f64[2, 1] stack
    for k in 0 .. 2 { s[k, 0] = x[k, 0] }
    for t in 9 .. N { s[t % 2, 0] = s[(t + 1) % 2, 0] + x[t, 0] }
    y[0, 0] = s[0, 0]
    y[1, 0] = s[1, 0]"""


def after(body: str, most: int = 16) -> Function:
    function = parse(f"{HEAD}{body}\n}}")
    verify(function)
    made = rotated_registers(function, most)
    verify(made)
    return made


@pytest.mark.parametrize("body", [FORWARDS, BACKWARDS, LANES, NUMBERS, EMPTY], ids=["forwards", "backwards", "lanes", "numbers", "empty"])
@pytest.mark.parametrize("steps", [3, 4, 17])
def test_each_step_finds_those_before_it_in_the_same_registers(body: str, steps: int) -> None:
    x = values("f64", 4 * steps).reshape(steps, 4)
    x[-1, 1] = -0.0
    before = check(f"{HEAD}{body}\n}}", {"N": steps}, targets=WIDTHS[:1], x=x, y=np.zeros_like(x))
    text = show(after(body))
    assert "alloc t_ring: f64" in text
    found = check(text, {"N": steps}, targets=WIDTHS, x=x, y=np.zeros_like(x))
    assert_same_bits(found["y"], before["y"], "y")


@pytest.mark.parametrize(
    "body",
    [
        FORWARDS.replace("2 - i", "value(i64(x[t, 3]))"),
        FORWARDS.replace("s[(t + 1) % 2, 0]", "s[0, 0]"),
        FORWARDS.replace("s[(t + 1) % 2, 0]", "s[(2*t + 1) % 2, 0]"),
        FORWARDS.replace("s[(t + 1) % 2, 0]", "s[(1 - t) % 2, 0]"),
        FORWARDS.replace("for i in 0 .. 3 unroll 3 { s[t", "for i in 0 .. 3 { s[t"),
        FORWARDS.replace("stack", "heap"),
        LANES.replace("s[t % 3, 0, j] + s[t % 3, 1, j]", "s[t % 3, 0, j] + s[t % 3, 1, 2]"),
    ],
    ids=["data", "one place", "another multiple", "both ways", "a loop that is not written out", "heap", "an element of lanes"],
)
def test_a_ring_of_which_a_loop_may_ask_for_other_elements_stays_in_memory(body: str) -> None:
    assert "t_ring" not in show(after(body))


def test_so_does_one_for_which_there_are_no_registers_left() -> None:
    assert "t_ring" not in show(after(FORWARDS, 5)) and "t_ring" in show(after(FORWARDS, 6))
