"""A short row that an iteration stores and the next one reads, element by element or elsewhere, stays in registers, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from llvm_run import check

from codegen.llvm.target import host
from codegen.loops.carried_rows import carried_rows
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

HEAD = "func f(N)(x: f32[8], out y: f32[N, 8]) {\nfor j in 0 .. 8 vector 8 { y[0, j] = x[j] }\n"
SUMS = """for t in 1 .. N {
    alloc s: f32[8] registers
    for j in 0 .. 8 vector 8 { s[j] = x[j] }
    for k in 0 .. 8 unroll 8 { for j in 0 .. 8 vector 8 { s[j] = fma(y[t - 1, k], x[j], s[j]) } }
    for j in 0 .. 8 vector 8 { y[t, j] = s[j] * 0.125_f32 }
}"""
NEIGHBOURS = """for t in 1 .. N {
    alloc s: f32[8] registers
    for j in 0 .. 7 vector 7 { s[j] = y[t - 1, j + 1] }
    s[7] = x[0]
    for j in 0 .. 8 vector 8 { y[t, j] = (s[j] + y[t - 1, j]) * 0.5_f32 }
}"""
IN_PIECES = """for t in 1 .. N {
    alloc s: f32[] registers
    s[] = 0.0_f32
    for k in 0 .. 8 unroll 8 { s[] = s[] + y[t - 1, k] * 0.1_f32 }
    y[t, 0] = s[]
    for j in 1 .. 8 vector 7 { y[t, j] = y[t - 1, j - 1] * x[j] }
}"""
IN_TURNS = """alloc z: f32[2, 8] stack
for j in 0 .. 8 vector 8 { z[0, j] = x[j] }
for t in 1 .. N {
    alloc s: f32[] registers
    s[] = 0.0_f32
    for k in 0 .. 8 unroll 8 { s[] = s[] + z[(t - 1) % 2, k] }
    for j in 0 .. 8 unroll 8 { z[t % 2, j] = (x[j] - s[]) * 0.25_f32 }
    for j in 0 .. 8 vector 8 { y[t, j] = z[t % 2, j] }
}"""


def after(body: str, room: int = 64) -> Function:
    function = parse(f"{HEAD}{body}\n}}")
    verify(function)
    made = carried_rows(function, room)
    verify(made)
    return made


def test_terms_of_a_sum_are_elements_of_a_register() -> None:
    text = show(after(SUMS))
    assert "alloc t_row: f32[8] registers" in text and "s[j] = fma(t_row[k], x[j], s[j])" in text
    assert "if index(1) < index(N)" in text, "nothing is read of a row that no iteration asks for"


@pytest.mark.parametrize("body", [SUMS, NEIGHBOURS, IN_PIECES], ids=["terms of a sum", "neighbours", "in pieces"])
@pytest.mark.parametrize("n", [1, 2, 19])
def test_a_carried_row_has_the_bits_that_memory_had(n: int, body: str) -> None:
    x = np.random.default_rng(n).standard_normal(8).astype(np.float32)
    assert "t_row" in show(after(body))
    before = check(f"{HEAD}{body}\n}}", {"N": n}, targets=[host()], x=x, y=np.zeros((n, 8), np.float32))
    made = check(show(after(body)), {"N": n}, x=x, y=np.zeros((n, 8), np.float32))
    assert_same_bits(made["y"], before["y"], "carried")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (SUMS.replace("t - 1, k", "t - 2 + min(t, 1), k"), "a row of another iteration"),
        (SUMS.replace("for k in 0 .. 8 unroll 8", "for k in 0 .. 8"), "places that are known at run time"),
        (NEIGHBOURS.replace("y[t - 1, j + 1]", "y[t - 1, (j + 5) % 8]"), "lanes that do not lie side by side"),
        (IN_PIECES.replace("y[t, 0]", "y[t, 1]"), "an element that is stored twice"),
        (IN_PIECES.replace("* x[j]", "* y[t, 0]"), "what the same iteration has stored"),
        (SUMS.replace("y[t, j] =", "if x[j] > 0.0_f32 { y[t, j] =").replace("0.125_f32 }", "0.125_f32 } }"), "a part of it alone"),
        (SUMS.replace("for j in 0 .. 8 vector 8 { y[t, j]", "for j in 1 .. 8 vector 7 { y[t, j]"), "a part of it alone"),
        (SUMS.replace("for j in 0 .. 8 vector 8 { y[t, j]", "for j in 0 .. 4 vector 4 { y[t, j]"), "elements that no iteration stores"),
        (NEIGHBOURS.replace("y[t - 1, j + 1]", "x[j + 1]"), "its own element alone, which needs no row"),
        (IN_TURNS, "what the same iteration has stored"),
    ],
)
def test_memory_is_read_back_for(body: str, why: str) -> None:
    assert "t_row" not in show(after(body)), why


def test_a_row_that_finds_no_room_stays_in_memory() -> None:
    assert "t_row" not in show(after(SUMS, room=16))
