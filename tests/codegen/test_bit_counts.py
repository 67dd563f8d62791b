"""Sums of bits, of pairs and of fours are the number of bits that are 1, which processors count."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import check

from codegen.llvm.emit import emit
from codegen.llvm.target import named
from codegen.loops.parser import parse

TEXT = """func f()(x: {t}[40], out y: {t}[40]) {{
    for i in 0 .. 40 vector 40 {{
        let u = x[i] & {most}_{t}
        let a = u - {halves}
        let b = {pairs}
        y[i] = (b + (b >> 4_{t}) & {m17}_{t}) * {m255}_{t} >> {top}_{t}
    }}
}}
"""


def counting(bits: int, **change: str) -> str:
    t, every = f"u{bits}", (1 << bits) - 1
    m3, m5 = every // 3, every // 5
    parts = {
        "most": str(every - 1),
        "halves": f"(u >> 1_{t} & {m3}_{t})",
        "pairs": f"(a & {m5}_{t}) + (a >> 2_{t} & {m5}_{t})",
        "m17": str(every // 17),
        "m255": str(every // 255),
        "top": str(bits - 8),
    }
    return TEXT.format(t=t, **parts | change)


def numbers(bits: int) -> np.ndarray:
    x = np.random.default_rng(0).integers(0, 1 << bits, 40, np.uint64, endpoint=False) if bits < 64 else None
    x = np.random.default_rng(0).integers(0, 2**63, 40, np.uint64) * np.uint64(3) if x is None else x
    x[:2] = 0, (1 << bits) - 1
    return x.astype(f"u{bits // 8}")


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("swapped", [False, True])
def test_bits_are_counted_by_an_instruction(bits: int, swapped: bool) -> None:
    m5 = ((1 << bits) - 1) // 5
    change = {"pairs": f"({m5}_u{bits} & a >> 2_u{bits}) + (a & {m5}_u{bits})"} if swapped else {}
    text = counting(bits, **change)
    assert "llvm.ctpop" in emit(parse(text), named("x86-64-v3"))
    check(text, x=numbers(bits), y=np.zeros(40, f"u{bits // 8}"))


@pytest.mark.parametrize(
    "change",
    [
        {"halves": "(u >> 2_u32 & 1431655765_u32)"},
        {"halves": "(x[i] >> 1_u32 & 1431655765_u32)"},
        {"pairs": "(a & 858993459_u32) + (u >> 2_u32 & 858993459_u32)"},
        {"m17": "252645136"},
        {"m255": "16843008"},
        {"top": "23"},
    ],
)
def test_what_only_looks_like_it_is_computed_as_it_stands(change: dict[str, str]) -> None:
    text = counting(32, **change)
    assert "llvm.ctpop" not in emit(parse(text), named("x86-64-v3"))


def test_what_is_stored_between_the_sums_is_not_read_again() -> None:
    text = counting(32).replace("let u = x[i] & 4294967294_u32", "y[i] = x[i]").replace("u - ", "y[i] - ").replace("(u >>", "(y[i] >>")
    assert "llvm.ctpop" not in emit(parse(text), named("x86-64-v3"))
