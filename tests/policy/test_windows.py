"""Windows that move: all terms of their sums are written out, so that what several of them read is loaded once."""

from __future__ import annotations

import pytest
from scheduled_programs import assert_same, operator

from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
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
    (unrolled,) = (show(d) for d in found.directives if show(d).startswith("unroll"))
    assert {"y.r", "y.s"} <= {*unrolled.removeprefix("unroll ").split(", ")}
    assert_same(program, proven(program, found), {})
