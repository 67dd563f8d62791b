"""Choices between floats that iterations of a serial loop wait for are branches, which a processor guesses."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.llvm.target import host
from codegen.loops.late_choices import with_late_choices
from codegen.loops.nodes import If, Select
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify
from codegen.loops.walk import statements, walk

TEXT = """func f()(x: f32[9], b: f32[9], out y: f32[9], out z: f32[]) {{
    alloc s: f32[1] registers
    alloc n: i32[1] registers
    s[0] = b[0]
    n[0] = 0_i32
    for i in 0 .. 9 serial {{
        {body}
    }}
    z[] = s[0]
}}
"""
LATE = {
    "the value itself": "let p = select(x[i] > s[0], x[i], x[i] - s[0])    y[i] = p    s[0] = p",
    "within an expression": "s[0] = min(select(s[0] > 0.5_f32, 0.5_f32 * s[0], s[0] + b[i]), 4.0_f32) - x[i]    y[i] = s[0]",
    "by a name": "let p = s[0] + x[i]    let q = select(p < 0.0_f32, -1.0_f32, 1.0_f32)    y[i] = q    s[0] = p - q",
    "one in another": "s[0] = select(s[0] > x[i], select(s[0] > b[i], b[i], s[0]), select(b[i] > x[i], b[i], s[0]))    y[i] = s[0]",
    "one in a condition": "s[0] = select(select(s[0] > x[i], b[i], x[i]) > 0.0_f32, s[0] - 1.0_f32, s[0] + x[i])    y[i] = s[0]",
    "one that only a condition lets read": (
        "s[0] = select(index(i) < 8_i64 and select(s[0] > b[i], x[i + 1], b[i]) > 0.0_f32, s[0] - 1.0_f32, s[0] + x[i])    y[i] = s[0]"
    ),
    "NaN": "s[0] = select(s[0] > 1.0_f32, 0.0_f32 / (x[i] - x[i]), s[0] + 0.5_f32)    y[i] = s[0]",
}
OTHERS = {
    "known early": "s[0] = select(x[i] > b[i], s[0] + x[i], s[0] - 1.0_f32)    y[i] = s[0]",
    "whole numbers": "n[0] = select(n[0] > 3_i32, 0_i32, n[0] + 1_i32)    y[i] = x[i]",
    "nothing carried": "y[i] = select(x[i] > b[i], x[i], b[i])",
    "much else": "s[0] = select(s[0] > x[i], b[i], s[0]) + (" + " + ".join(["x[i] * x[i]"] * 24) + ")    y[i] = s[0]",
    "too many": "s[0] = " + " + ".join(["select(s[0] > x[i], b[i], s[0])"] * 5) + "    y[i] = s[0]",
}


@pytest.mark.parametrize("body", LATE.values(), ids=LATE)
def test_a_choice_that_iterations_wait_for_is_a_branch_and_computes_the_same(body: str) -> None:
    text = TEXT.format(body=body)
    made = with_late_choices(parse(text))
    verify(made)
    assert any(isinstance(s, If) for s in statements(*made.body))
    rng = np.random.default_rng(5)
    x, b = (rng.integers(-3, 4, 9).astype(np.float32) for _ in range(2))
    for code in (text, show(made)):
        check(code, targets=[host()], x=x, b=b, y=np.zeros(9, np.float32), z=np.zeros((), np.float32))


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_other_choices_stay_as_they_are(body: str) -> None:
    function = parse(TEXT.format(body=body))
    assert with_late_choices(function) == function


def test_a_choice_that_is_known_early_stays_one_beside_a_branch() -> None:
    made = with_late_choices(parse(TEXT.format(body=LATE["one in another"])))
    assert sum(isinstance(s, If) for s in statements(*made.body)) == 2
    assert sum(isinstance(n, Select) for n in walk(*made.body)) == 1
