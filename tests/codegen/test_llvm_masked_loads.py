"""Neighbours of which a mask takes some: one load where it takes all of them, on processors without loads under masks."""

from __future__ import annotations

import numpy as np
import pytest
from llvm_run import LEVELS, check

from codegen.llvm.emit import emit
from codegen.llvm.target import named
from codegen.loops.parser import parse

TEXT = """func f(n, m)(x: {t}[n], at: i64[m], out y: {t}[m, 16]) {{
    for i in 0 .. m serial {{
        for k in 0 .. 16 vector 16 {{
            y[i, k] = select(at[i] + index(k) >= 0_i64 and at[i] + index(k) < index(n), x[value(at[i] + index(k))], {zero})
        }}
    }}
}}
"""
ZEROS = {"u8": "0_u8", "i16": "0_i16", "f32": "0.0_f32"}
SOME = [t for t in LEVELS if t.name in ("x86-64", "x86-64-v3", "x86-64-v4")]


@pytest.mark.parametrize("dtype", [*ZEROS])
def test_what_lies_inside_is_loaded_and_nothing_else_is_touched(dtype: str) -> None:
    kind = {"u8": np.uint8, "i16": np.int16, "f32": np.float32}[dtype]
    x = np.arange(1, 41).astype(kind)
    at = np.array([0, 24, 25, 39, 40, -1, -15, -16, 7, 1 << 40])
    check(TEXT.format(t=dtype, zero=ZEROS[dtype]), {"n": 40, "m": 10}, targets=SOME, x=x, at=at, y=np.zeros((10, 16), kind))


@pytest.mark.parametrize(("level", "dtype", "asked"), [("x86-64", "f32", 1), ("x86-64-v3", "u8", 1), ("x86-64-v3", "f32", 0)])
def test_all_lanes_are_asked_about_together_where_no_instruction_takes_a_mask(level: str, dtype: str, asked: int) -> None:
    text = emit(parse(TEXT.format(t=dtype, zero=ZEROS[dtype])), named(level))
    assert text.count("icmp eq i16") == asked


def test_a_mask_that_is_made_before_loops_serves_several_loads_in_them() -> None:
    text = """func f(n, m)(x: i16[m, n], z: i16[m, n], out y: i16[m, n]) {
        for i in 0 .. m serial {
            for k in 0 .. min(n, 16) vector 16 {
                y[i, k] = x[i, k] + z[i, k]
            }
        }
    }"""
    for n in (3, 16):
        x = np.arange(5 * n, dtype=np.int16).reshape(5, n)
        check(text, {"n": n, "m": 5}, targets=SOME, x=x, z=x * 2, y=np.zeros((5, n), np.int16))


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3"])
def test_lanes_that_are_known_to_be_the_first_are_a_shorter_vector(level: str) -> None:
    text = """func f()(x: u8[5, 11], out y: u8[5, 11]) {
        for i in 0 .. 5 serial {
            for k in 0 .. 11 vector 11 {
                y[i, k] = 255_u8 - x[i, k]
            }
        }
    }"""
    x = np.arange(55, dtype=np.uint8).reshape(5, 11)
    check(text, targets=[t for t in SOME if t.name == level], x=x, y=np.zeros((5, 11), np.uint8))
    assert "llvm.masked" not in emit(parse(text), named(level))
    assert "<11 x i8>" in emit(parse(text), named(level))


ROWS = """func f()(out y: {t}[5, {lanes}]) {{
    for i in 0 .. 5 serial {{
        for k in 0 .. {lanes} vector 32 {{
            y[i, k] = y[i, k] + y[i, k]
        }}
    }}
}}
"""


@pytest.mark.parametrize(("lanes", "masked"), [(1, False), (2, False), (3, True), (18, False), (19, True), (24, False)])
def test_a_row_that_ends_in_half_a_register_or_less_is_written_without_a_mask(lanes: int, masked: bool) -> None:
    """Loads of the next row would wait until what a mask leaves out of a store has reached the cache."""
    text = ROWS.format(t="f64", lanes=lanes)
    check(text, targets=[t for t in SOME if t.name == "x86-64-v4"], y=np.arange(5.0 * lanes).reshape(5, lanes))
    assert ("llvm.masked.store" in emit(parse(text), named("x86-64-v4"))) == masked


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 6), ("f32", 31), ("f64", 3), ("i64", 19), ("i32", 13)])
def test_a_row_of_known_length_is_written_in_parts_of_registers_where_stores_under_masks_may_be_slow(dtype: str, lanes: int) -> None:
    text, kind = ROWS.format(t=dtype, lanes=lanes), {"f": "float", "i": "int"}[dtype[0]] + dtype[1:]
    check(text, targets=[t for t in SOME if t.name == "x86-64-v3"], y=np.arange(5 * lanes, dtype=kind).reshape(5, lanes))
    assert "llvm.masked.store" not in emit(parse(text), named("x86-64-v3"))


PLACES = """func f(m)(x: {t}[40, 3], at: i32[m, 16], out y: {t}[m, 16]) {{
    for i in 0 .. m serial {{
        for k in 0 .. 16 vector 16 {{
            y[i, k] = {zero}
            if at[i, k] >= 0_i32 and x[value(i64(at[i, k])), 1] > {zero} {{
                y[i, k] = x[value(i64(at[i, k])), 1] + x[value(i64(at[i, k])), 2]
            }}
        }}
    }}
}}
"""


@pytest.mark.parametrize("dtype", [*ZEROS])
def test_places_that_data_name_are_read_where_data_name_any_and_nothing_else_is(dtype: str) -> None:
    kind = {"u8": np.uint8, "i16": np.int16, "f32": np.float32}[dtype]
    x = np.random.default_rng(1).integers(0, 3, (40, 3)).astype(kind)
    at = np.resize(np.array([0, 39, -1, 5, -(1 << 31), 12, 38], np.int32), (10, 16))
    at[3] = -7
    check(PLACES.format(t=dtype, zero=ZEROS[dtype]), {"m": 10}, targets=SOME, x=x, at=at, y=np.zeros((10, 16), kind))


@pytest.mark.parametrize(("level", "dtype", "gathers"), [("x86-64-v4", "f32", 2), ("x86-64-v4", "u8", 0), ("x86-64-v3", "f32", 0)])
def test_lanes_are_loaded_one_by_one_where_no_instruction_gathers_them_and_once_for_a_condition_and_what_it_decides(
    level: str, dtype: str, gathers: int
) -> None:
    text = emit(parse(PLACES.format(t=dtype, zero=ZEROS[dtype])), named(level))
    assert text.count("call <16 x float> @llvm.masked.gather") == gathers
    assert "masked.gather.v16i8" not in text
    loads = text.count("= load float") + text.count("= load i8")
    assert loads == (0 if gathers else 32)
