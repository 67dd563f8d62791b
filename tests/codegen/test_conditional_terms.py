"""Whole numbers that are added under a condition are added without a branch, where that reads and touches nothing more."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.loops.conditional_terms import with_conditional_terms
from codegen.loops.nodes import Function, If
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify
from codegen.loops.walk import statements

COUNT = "n[0] = n[0] + 1_i32"


def function(body: str, sum_type: str = "i32", space: str = "registers", kind: str = "serial") -> Function:
    return parse(f"""func f()(x: i32[40], w: i32[9], a: bool[9], out y: {sum_type}[1]) {{
        alloc n: {sum_type}[1] {space}
        n[0] = 0_{sum_type}
        for k in 0 .. 40 {kind} {{ {body} }}
        y[0] = n[0] }}""")


def branches(f: Function) -> int:
    made = with_conditional_terms(f)
    verify(made)
    return sum(isinstance(s, If) for s in statements(*made.body))


@pytest.mark.parametrize(
    "body",
    [
        f"if x[k] > 3_i32 {{ {COUNT} }}",
        f"if x[k] >= 0_i32 and a[value(i64(x[k]))] {{ {COUNT} }}",
        "let t = x[k] * 2_i32\nif t > 3_i32 { n[0] = n[0] + (t - 1_i32) }",
    ],
)
def test_terms_that_read_no_memory_are_added_or_zeros_are(body: str) -> None:
    f = function(body)
    assert branches(f) == 0
    x = np.resize(np.array([-5, 8, 3, -1, 0, 4, 2], np.int32), 40)
    a = np.arange(9) % 2 == 0
    for text in (f, with_conditional_terms(f)):
        check(show(text), x=x, w=np.arange(9, dtype=np.int32), a=a, y=np.zeros(1, np.int32))


@pytest.mark.parametrize(
    "refused",
    [
        function("if x[k] >= 0_i32 { n[0] = n[0] + w[value(i64(x[k]))] }"),
        function(f"if x[k] >= 0_i32 {{ {COUNT} }}", space="stack"),
        function("if x[k] >= 0_i32 { n[0] = n[0] + 1.5_f64 }", "f64"),
        function("if x[k] >= 0_i32 { n[0] = n[0] * 3_i32 }"),
        function(f"if x[k] >= 0_i32 {{ {COUNT} }} else {{ n[0] = 0_i32 }}"),
    ],
    ids=["a term in memory", "a sum in memory", "floats, of which a zero has a sign", "a product", "two sides"],
)
def test_others_are_branched_around(refused: Function) -> None:
    assert branches(refused) == 1
