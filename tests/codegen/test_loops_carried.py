"""What an iteration stores and the next one reads goes from one to the other in a register, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from llvm_run import check

from codegen.llvm.target import host
from codegen.loops.carried import carried
from codegen.loops.nodes import Function
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

HEAD = "func f(N)(x: f32[N], out y: f32[N]) {\n"


def after(body: str) -> Function:
    function = parse(f"{HEAD}{body}\n}}")
    verify(function)
    made = carried(function)
    verify(made)
    return made


def test_a_running_sum_keeps_its_last_element_in_a_register() -> None:
    text = show(after("for i in 1 .. N { y[i] = y[i - 1] + x[i] }"))
    assert "alloc i_last: f32[1] registers" in text
    assert "if index(1) < index(N)" in text
    assert "let i_new = i_last[0] + x[i]" in text


BODIES = {
    "one step": "y[0] = x[0]\nfor i in 1 .. N { y[i] = y[i - 1] * 0.5_f32 + x[i] }",
    "two steps": "for i in 0 .. min(N, 2) { y[i] = x[i] }\nfor i in 2 .. N { y[i] = y[i - 1] * 0.5_f32 + x[i] - y[i - 2] }",
    "two buffers": """
        alloc z: f32[64] stack
        y[0] = x[0]
        z[0] = 1.0_f32
        for i in 1 .. N { let s = z[i - 1] + x[i]
            y[i] = y[i - 1] * s
            z[i] = y[i] - s }""",
    "where data say": """
        alloc z: f32[64] stack
        z[0] = x[0]
        for i in 1 .. 38 { z[i] = select(x[min(i, N - 1)] > 0.0_f32, z[i - 1] + 1.0_f32, 0.25_f32) }
        for i in 0 .. N { y[i] = z[i] }""",
    "four beside each other": """
        alloc z: f32[8, 4] stack
        for t in 0 .. 4 vector 4 { z[0, t] = 1.0_f32 }
        for i in 1 .. 8 { for t in 0 .. 4 vector 4 { z[i, t] = z[i - 1, t] * x[0] + 0.5_f32 } }
        for i in 0 .. min(N, 8) { y[i] = z[i, 3] }""",
    "two rows that take turns": """
        alloc z: f32[2] stack
        z[0] = x[0]
        for i in 1 .. 9 { z[i % 2] = z[(i - 1) % 2] + x[0] }
        y[0] = z[0]""",
    "what is read when the next one is stored": """
        alloc z: f32[2] stack
        alloc w: f32[2] stack
        z[0] = x[0]
        w[0] = 1.0_f32
        for i in 1 .. 9 { z[i % 2] = z[(i - 1) % 2] + x[0]
            w[i % 2] = w[(i - 1) % 2] * z[(i - 1) % 2] }
        y[0] = w[0]""",
    "one element again and again": """
        alloc z: f32[6] stack
        z[0] = x[0]
        z[1] = x[0] * 2.0_f32
        for i in 2 .. 12 { z[min(i, 5)] = z[min(i - 1, 5)] + z[min(i - 2, 5)] * 0.5_f32 }
        y[0] = z[5]""",
    "a row and what no vector holds of it": """
        alloc z: f32[8, 6] stack
        for t in 0 .. 6 { z[0, t] = 1.0_f32 }
        for i in 1 .. 8 {
            for t in 0 .. 4 vector 4 { z[i, t] = z[i - 1, t] * x[0] + z[i - 1, t + 1] }
            z[i, 4] = z[i - 1, 4] + z[i, 3]
            z[i, 5] = z[i - 1, 5] - z[i, 4] * z[i - 1, 4]
        }
        for i in 0 .. min(N, 8) { y[i] = z[i, 3] + z[i, 4] * z[i, 5] }""",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("n", [1, 37])
def test_a_carried_element_has_the_bits_that_memory_had(n: int, body: str) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    assert "_last" in show(after(body))
    before = check(f"{HEAD}{body}\n}}", {"N": n}, targets=[host()], x=x, y=np.zeros(n, np.float32))
    made = check(show(after(body)), {"N": n}, x=x, y=np.zeros(n, np.float32))
    assert_same_bits(made["y"], before["y"], "carried")


@pytest.mark.parametrize(
    "body",
    [
        "for i in 2 .. N { y[i] = y[i - 2] + x[i] }",
        "for i in 1 .. N - 4 { for t in 0 .. 4 unroll 4 { y[i + t] = y[i + t - 1] + x[i] } }",
        "for i in 1 .. N { for t in 0 .. 4 unroll 4 { y[i] = y[i - 1] + x[t] } }",
        "for i in 3 .. N { y[i % 3] = y[(i - 2) % 3] + x[i] }",
        "for i in 1 .. N { y[i] = select(x[i] > 0.0_f32, y[i - 1], x[i]) }\n    for i in 0 .. N { y[i] = x[i] }",
        "for i in 0 .. N { y[i] = select(index(i) >= 1_i64, y[max(0, i - 1)], x[i]) }",
        "for i in 1 .. N { y[i] = x[i] }",
        "alloc z: f32[64] stack\n for i in 1 .. 64 { y[i // 64] = x[0]\n z[i] = y[(i - 1) // 64] }",
        "for i in 1 .. N { y[N - i] = y[N - i - 1] + x[i] }",
        "alloc z: f32[64] stack\n for i in 2 .. 64 { y[i % 1] = x[0]\n z[i] = y[(i - 1) % 1] }",
        "for i in 1 .. N - 4 { for t in 0 .. 4 vector 4 { y[t] = x[i + t] }\n y[i] = y[i - 1] }",
        "alloc z: f32[64, 6] stack\n for i in 1 .. 64 { for t in 0 .. 4 vector 4 { z[i, t] = z[i - 1, t] }\n z[i, i % 4] = x[0] }",
    ],
)
def test_other_loops_stay_as_they_are(body: str) -> None:
    function = parse(f"{HEAD}{body}\n}}")
    assert carried(function) == function
