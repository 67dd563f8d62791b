"""Reductions that go through the bits of a number take them at once, and give what they gave, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from scheduled_programs import operator

from codegen.dtypes import DTYPES
from tensorlang.tensor.bit_sums import with_bit_sums
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import reduces


def of(word: str, result: str, value: str) -> Program:
    return operator(f"x: {word}[9, 2], w: i32[9]) -> (y: {result}[9])", f"y[i] = {value}")


def values(word: str) -> np.ndarray:
    dtype = DTYPES[word].numpy
    drawn = np.random.default_rng(1).integers(0, 256, (9, 2, dtype.itemsize), dtype=np.uint8).view(dtype)[..., 0]
    drawn[0] = 0
    drawn[1] = -1 if DTYPES[word].kind == "int" else ~drawn[0]
    drawn[2] = np.array(1, drawn.dtype) << np.array(8 * dtype.itemsize - 1, drawn.dtype)
    return drawn


def binders(program: Program) -> set[str]:
    return {b.name for d in program.definitions for p in d.pieces for e in reduces(p.value) for b in e.binders}


TAKEN = [
    ("u64", "i32", "sum[i32](k in 0..64) i32(bitand(shr(x[i, 0], u64(k)), 1))"),
    ("u8", "u8", "sum(k in 0..8) bitand(1, shr(x[i, 0], u8(k)))"),
    ("i16", "i8", "sum[i8](k in 3..16, from 125) i8(shr(x[i, 0], i16(k)) % 2)"),
    ("u32", "f32", "sum[f32](k in 0..32) f32(bitand(shr(x[i, 0], u32(31 - k)), 1))"),
    ("u32", "i32", "sum[i32](k in 0..16, bitand(x[i, 0], shl(1, u32(2*k))) != 0, w[i] > 0) w[i]"),
    ("i32", "i32", "let u = bitxor(x[i, 0], x[i, 1]) in sum[i32](k in 1..32) (if bitand(u, shl(1, i32(k))) == 0 then 1 else 0)"),
    ("i64", "i64", "64 - sum(k in 0..64) i64(shr(x[i, 0], k) != 0)"),
    ("u16", "bool", "any(k in 0..16) (bitand(shr(x[i, 0], u16(k)), 1) == 1 and not bitand(shr(x[i, 1], u16(k)), 1) == 1)"),
    ("u32", "bool", "all(k in 0..32, bitand(shr(x[i, 0], u32(k)), 1) == 1) (bitand(shr(x[i, 1], u32(k)), 1) == 1)"),
    ("u32", "i64", "min(k in 0..32, bitand(shr(x[i, 0], u32(k)), 1) == 1, from 32) k"),
    ("i64", "i32", "max[i32](k in 5..64, bitand(shl(1, k), x[i, 0]) == shl(1, k), from -1) i32(k)"),
    ("u32", "i64", "min(k in 0..32, w[i] >= 0, bitand(shr(x[i64(w[i]), 0], u32(k)), 1) == 1, from 32) k"),
    ("u8", "i64", "max(k in 0..7, bitand(shr(x[i, 0], u8(k + 1)), 1) == 1, from -1) k"),
]  # fmt: skip


@pytest.mark.parametrize(("word", "result", "value"), TAKEN, ids=[value for _, _, value in TAKEN])
def test_bits_are_taken_at_once(word: str, result: str, value: str) -> None:
    program = of(word, result, value)
    at_once = with_bit_sums(program)
    verify(at_once)
    assert "k" not in binders(at_once)
    given = {"x": values(word), "w": np.arange(-3, 6, dtype=np.int32)}
    want, found = (interpret(p, {}, given)["y"] for p in (program, at_once))
    assert_same_bits(found, want)


def test_other_binders_stay() -> None:
    at_once = with_bit_sums(of("u32", "i32", "sum[i32](j in 0..2, k in 0..32) i32(bitand(shr(x[i, j], u32(k)), 1))"))
    assert binders(at_once) == {"j"}


@pytest.mark.parametrize(
    "value",
    [
        "sum[i32](k in 0..33) i32(bitand(shr(x[i, 0], u32(k)), 1))",
        "sum[i32](k in 0..32) i32(bitand(shr(x[i, 0], u32(k)), 3))",
        "sum[i32](k in 0..2) i32(bitand(shr(x[i, k], u32(k)), 1))",
        "sum[i32](k in 0..32) i32(bitand(shr(x[i, 0], u32(k)), 1)) * i32(k)",
        "sum[i32](k in 0..32) i32(bitand(shr(x[i, 0], u32(w[i])), 1))",
        "i32(sum[f32](k in 0..32, from 16777216) f32(bitand(shr(x[i, 0], u32(k)), 1)))",
        "i32(sum[f32](k in 0..32) f32(bitand(shr(x[i, 0], u32(k)), 1)) * 0.1)",
        "sum[i32](k in 0..32, bitand(x[i, 0], shl(1, u32(k))) == 1) 1",
        "i32(min[u8](k in -4..4, bitand(shr(x[i, 0], u32(k + 4)), 1) == 1, from 255) u8(k))",
        "sum[i32](k in 0..32, bitand(shr(x[i, 0], u32(k)), 1) == 1) w[i64(w[i])]",
        "sum[i32](k in 0..32, bitand(shr(x[i, 0], u32(k)), 1) == 1, w[i64(w[i])] > 0) 1",
        "i32(any(k in 0..32) (bitand(shr(x[i, 0], u32(k)), 1) == 1 and bitand(shr(x[i64(w[i]), 0], u32(k)), 1) == 1))",
    ],
)
def test_what_are_not_bits_of_one_word_stays(value: str) -> None:
    program = of("u32", "i32", value)
    assert with_bit_sums(program) == program
