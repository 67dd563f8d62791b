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


@pytest.mark.parametrize("n", [1, 2, 37])
def test_a_carried_element_has_the_bits_that_memory_had(n: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    body = "y[0] = x[0]\nfor i in 1 .. N { y[i] = y[i - 1] * 0.5_f32 + x[i] }"
    before = check(f"{HEAD}{body}\n}}", {"N": n}, targets=[host()], x=x, y=np.zeros(n, np.float32))
    made = check(show(after(body)), {"N": n}, x=x, y=np.zeros(n, np.float32))
    assert_same_bits(made["y"], before["y"], "carried")


@pytest.mark.parametrize(
    "body",
    [
        "for i in 2 .. N { y[i] = y[i - 2] + x[i] }",
        "for i in 1 .. N { y[i] = y[i - 1] + y[0] }",
        "for i in 0 .. N { y[i] = select(index(i) >= 1_i64, y[max(0, i - 1)], x[i]) }",
        "for i in 1 .. N { y[i] = x[i] }",
        "for i in 1 .. N { y[N - i] = y[N - i - 1] + x[i] }",
    ],
)
def test_other_loops_stay_as_they_are(body: str) -> None:
    function = parse(f"{HEAD}{body}\n}}")
    assert carried(function) == function
