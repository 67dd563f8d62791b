"""Whole numbers that loops carry through minima and maxima are kept in lanes, all of which hold the same."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.llvm.emit import emit
from codegen.llvm.target import host, named
from codegen.loops.chain_registers import chains_in_vectors
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.verify import verify

TEXT = """func f()(x: i32[9], b: {t}[9], out y: i32[9], out z: i32[]) {{
    alloc s: {t}[1] registers
    alloc r: i32[1] registers
    s[0] = b[0]
    r[0] = 3_i32
    for i in 0 .. 9 serial {{
        {body}
    }}
    z[] = r[0]
}}
"""
CHAINS = [
    "r[0] = max(r[0], 0_i32) + x[i]    y[i] = r[0]",
    "let p = min(max(r[0] - x[i], -5_i32), 5_i32)    y[i] = p    r[0] = p",
    "s[0] = min(s[0] + b[i], r[0])    r[0] = max(-r[0], s[0])    y[i] = s[0] - r[0]",
    "let q = x[i] * x[i]    let p = max(r[0], abs(s[0]) - q)    s[0] = p ^ r[0]    r[0] = min(p, 7_i32)    y[i] = q + p    y[8 - i] = q",
]
OTHERS = [
    "r[0] = r[0] + x[i]    y[i] = r[0]",  # a sum takes one instruction anywhere
    "r[0] = select(r[0] < x[i], x[i], max(r[0], 1_i32))    y[i] = r[0]",
    "r[0] = max(r[0], 0_i32) * x[i]    y[i] = r[0]",
    "r[0] = min(max(r[0], 0_i32), 8_i32)    y[value(r[0])] = 1_i32",
    "r[0] = max(r[0], y[8 - i])    y[i] = r[0]",  # what is stored is read
    "r[0] = max(r[0], x[value(r[0] % 9_i32)])    y[i] = r[0]",
    "y[i] = max(x[i], 0_i32)",
]


@pytest.mark.parametrize("body", CHAINS)
def test_a_chain_is_kept_in_lanes_and_computes_the_same(body: str) -> None:
    text = TEXT.format(t="i32", body=body)
    made = chains_in_vectors(parse(text))
    verify(made)
    assert "vector 4" in show(made)
    rng = np.random.default_rng(5)
    x, b = (rng.integers(-9, 10, 9).astype(np.int32) for _ in range(2))
    for code in (text, show(made)):
        check(code, targets=[host()], x=x, b=b, y=np.zeros(9, np.int32), z=np.zeros((), np.int32))


@pytest.mark.parametrize("body", OTHERS)
def test_other_loops_stay_as_they_are(body: str) -> None:
    function = parse(TEXT.format(t="i32", body=body))
    assert chains_in_vectors(function) == function


def test_numbers_of_64_bits_stay_in_general_registers() -> None:
    function = parse(TEXT.format(t="i64", body="s[0] = max(s[0], b[i])"))
    assert chains_in_vectors(function) == function


@pytest.mark.parametrize(("level", "found"), [("x86-64", False), ("x86-64-v2", True), ("x86-64-v4", True), ("aarch64", False)])
def test_chains_are_in_lanes_where_a_minimum_of_those_is_one_instruction_and_faster(level: str, found: bool) -> None:
    assert ("smax.v4i32" in emit(parse(TEXT.format(t="i32", body=CHAINS[0])), named(level))) == found
