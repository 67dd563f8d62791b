"""Windows that move: all terms of their sums are written out, so that what several of them read is loaded once."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.printer import show

MACHINE = Machine(target="cpu", threads=2)
SIGNATURE = "x: i32[2, 40, 40], w: i32[2, 5, 5]) -> (y: i32[2, 20, 20])"
INSIDE = "2*p + r >= 2 and 2*p + r < 42 and 2*q + s >= 2 and 2*q + s < 42"
ELEMENT = f"(if {INSIDE} then x[c, 2*p + r - 2, 2*q + s - 2] else 0)"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(f"y[c, p, q] = sum(r in 0..5, s in 0..5) {ELEMENT} * w[c, r, s]", id="sums"),
        pytest.param(f"y[c, p, q] = w[c, 0, 0] + max(r in 0..5, s in 0..5) {ELEMENT}", id="maxima"),
    ],
)
def test_all_terms_of_a_window_at_a_stride_are_written_out(body: str) -> None:
    program = operator(SIGNATURE, body)
    found = derive(program, MACHINE)
    assert {"y.r", "y.s"} <= _unrolled(found)
    assert_same(program, proven(program, found), {})


def test_all_terms_of_rows_of_a_few_elements_are_written_out() -> None:
    program = operator("a: f32[400, 8]) -> (y: f32[400])", "y[i] = sum(k in 0..8) abs(a[i, k])")
    assert "y.k" in _unrolled(derive(program, MACHINE))


def test_terms_of_windows_that_move_in_steps_of_no_one_length_are_not_written_out() -> None:
    body = "y[c, o] = sum(s in 0..2) x[c, min(39, s + 9*o // 11)] * w[o, s]"
    program = operator("x: f32[640, 40], w: f32[49, 2]) -> (y: f32[640, 49])", body)
    assert "y.s" not in _unrolled(derive(program, MACHINE))


def _unrolled(found: Schedule) -> set[str]:
    texts = (show(d).removeprefix("unroll ") for d in found.directives if show(d).startswith("unroll"))
    return {loop for text in texts for loop in text.split(", ")}
