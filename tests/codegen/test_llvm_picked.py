"""Lanes in a known order that lie in few vectors are reads of these and shuffles, and nothing beyond them is touched."""

import math
import re

import numpy as np
import pytest
from bits import assert_same_bits
from guarded import SIDES, walled
from llvm_run import check, native, run_native, values

from codegen.llvm.emit import emit
from codegen.llvm.target import host, named
from codegen.loops.parser import parse

ORDERS = {
    "the first again": "max(0, j - 3)",
    "the last again": "min(15, j + 2)",
    "mirrored": "max(3 - j, j - 3)",
    "pairs": "j // 2",
    "from both ends": "min(j, 15 - j)",
    "around": "(j + 5) % 16",
}


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8", "u8", "i16", "u64", "bool", "u4"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_picked_elements_are_those_that_lanes_read(order: str, dtype: str) -> None:
    rows = f"for i in 0 .. 3 {{ for j in 0 .. 16 vector 16 {{ y[i, j] = x[i, {order}] }} }}"
    check(
        f"func f()(x: {dtype}[3, 16], out y: {dtype}[3, 16]) {{ {rows} }}",
        x=values(dtype, 48).reshape(3, 16),
        y=np.zeros((3, 16), values(dtype, 1).dtype),
    )


APART = {"two rows": "(j + 1) % 2, j // 2", "four rows": "j % 4, j // 4", "halves": "j // 8, 20 - j % 8"}


@pytest.mark.parametrize("lanes", [4, 11, 16])
@pytest.mark.parametrize("place", APART.values(), ids=APART)
def test_elements_of_few_vectors_are_those_that_lanes_read(place: str, lanes: int) -> None:
    text = f"func f()(x: f32[4, 21], out y: f32[16]) {{ for j in 0 .. {lanes} vector {lanes} {{ y[j] = x[{place}] }} }}"
    check(text, x=values("f32", 84).reshape(4, 21), y=np.zeros(16, np.float32))


def test_rows_that_are_interleaved_are_a_vector_each() -> None:
    text = "func f()(x: f32[2, 99], out y: f32[16]) { for j in 0 .. 16 vector 16 { y[j] = x[j % 2, j // 2 + 7] } }"
    written = emit(parse(text), named("x86-64-v4"))
    assert written.count("shufflevector") == 4 and "insertelement" not in written  # two make vectors of 16 lanes of the rows' eight
    assert "masked" not in written


@pytest.mark.parametrize("lanes", [2, 3, 5, 11, 13])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_lanes_that_take_no_part_pick_nothing(order: str, lanes: int) -> None:
    text = f"func f()(x: f32[16], out y: f32[16]) {{ for j in 0 .. {lanes} vector {lanes} {{ y[j] = x[{order}] }} }}"
    check(text, x=values("f32", 16), y=np.zeros(16, np.float32))


@pytest.mark.parametrize(("shape", "place"), [((9,), "min(8, max(0, j - 3))"), ((2, 8), "j % 2, j // 2"), ((4, 5), "j % 4, 4 - j // 4")])
def test_nothing_outside_is_read(shape: tuple[int, ...], place: str) -> None:
    text = f"func f()(x: f32{[*shape]}, out y: f32[16]) {{ for j in 0 .. 16 vector 16 {{ y[j] = x[{place}] }} }}"
    x, y = values("f32", math.prod(shape)).reshape(shape), np.zeros(16, np.float32)
    want = check(text, targets=[host()], x=x, y=y)
    for side in SIDES:
        assert run_native(parse(text), {}, {"x": walled(x, side), "y": y}, host()) == 0
        assert_same_bits(y, want["y"], side)


def test_one_vector_is_read_where_lanes_were() -> None:
    text = "func f()(x: f32[64], out y: f32[64]) { for j in 0 .. 16 vector 16 { y[j] = x[max(0, j - 3)] } }"
    written = emit(parse(text), named("x86-64-v4"))
    assert written.count("shufflevector") == 1 and "insertelement" not in written


def test_what_is_stored_in_between_is_read_again() -> None:
    text = """func f()(x: f32[16], out y: f32[16], out z: f32[16]) {
        for j in 0 .. 16 vector 16 { y[j] = z[max(0, j - 1)] }
        for j in 0 .. 16 vector 16 { z[j] = x[j] }
        for j in 0 .. 16 vector 16 { y[j] = y[j] + z[max(0, j - 1)] }
    }"""
    check(text, x=values("f32", 16), y=np.zeros(16, np.float32), z=values("f32", 16, 1))
    assert native(parse(text), host())


def test_data_that_each_lane_has_in_a_register_name_places_of_their_own() -> None:
    text = """func f()(p: i32[16], x: f32[16], out y: f32[16]) {
        for j in 0 .. 16 vector 16 {
            alloc at: i32[1] registers
            at[0] = p[j] + 1_i32
            y[j] = x[value(max(min(i64(at[0]), 15_i64), 0_i64))]
        }
    }"""
    check(text, p=np.arange(16, dtype=np.int32)[::-1] * 3 % 16, x=values("f32", 16), y=np.zeros(16, np.float32))


LOOKED_UP = "for j in 0 .. 16 vector 16 { y[j] = x[value(min(max(i64(n[j]), 0_i64), 299_i64))] }"


@pytest.mark.parametrize("places", ["i8", "u8", "i16", "i32", "i64", "u64"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "u8"])
def test_elements_that_data_name_are_those_within_limits_whatever_type_the_places_have(dtype: str, places: str) -> None:
    n = np.array([0, 1, 3, 127, -1, -128, 299, 300, 2, 50, 49, 48, 47, 255, -300, 9]).astype(values(places, 1).dtype)
    y = np.zeros(16, values(dtype, 1).dtype)
    check(f"func f()(x: {dtype}[300], n: {places}[16], out y: {dtype}[16]) {{ {LOOKED_UP} }}", x=values(dtype, 300), n=n, y=y)


def test_elements_that_data_name_are_gathered_by_places_of_their_own_width() -> None:
    written = emit(parse(f"func f()(x: f32[300], n: i32[16], out y: f32[16]) {{ {LOOKED_UP} }}"), named("x86-64-v4"))
    assert "@llvm.masked.gather.v16f32" in written and "insertelement" not in written
    assert "@llvm.smin.v16i32" in written and "v16i64" not in written


@pytest.mark.parametrize("level", ["x86-64-v3", "aarch64"])
def test_elements_that_data_name_are_loaded_one_by_one_where_no_instruction_gathers_them(level: str) -> None:
    """Places are widened behind being taken out of their vector: LLVM then loads each where it lies, and makes no vectors of addresses."""
    looked_up = "for j in 0 .. 8 vector 8 { y[j] = x[value(n[j])] }"
    written = emit(parse(f"func f()(x: f32[300], n: i32[8], out y: f32[8]) {{ {looked_up} }}"), named(level))
    assert written.count("extractelement <8 x i32>") == written.count("load float") == 8
    assert not re.search(r"call .*gather|extractelement <8 x i64>|x ptr>,", written)


@pytest.mark.parametrize("twice", ["x[j // 2] + x[j // 2]", "2_u8 * x[j // 2]", "x[j // 2] + x[j // 2 + 1]"])
def test_picked_bytes_are_added_in_time(twice: str) -> None:
    """LLVM comes to no end with sums of bytes that it sees to be picked in one order of 64."""
    text = f"func f()(x: u8[64], out y: u8[64]) {{ for j in 0 .. 64 vector 64 {{ y[j] = {twice} }} }}"
    check(text, targets=[host()], x=values("u8", 64), y=np.zeros(64, np.uint8))


def test_what_all_lanes_share_at_the_last_rows_is_one_element() -> None:
    rows = "for k in 0 .. 7 { for j in 0 .. 16 vector 16 { y[j] = y[j] + w[x[2*(M // 2), k], j] } }"
    text = f"func f(M)(x: u8[M, 7], w: f32[256, 16], out y: f32[16]) {{ {rows.replace('x[2*(M // 2), k]', 'value(x[2*(M // 2), k])')} }}"
    written = emit(parse(text), named("x86-64-v4"))
    assert not re.search(r"load <16 x i\d+>|masked\.(load|gather)", written)
    arrays = {"x": values("u8", 21).reshape(3, 7), "w": values("f32", 4096).reshape(256, 16), "y": np.zeros(16, np.float32)}
    check(text, sizes={"M": 2 + 1}, **arrays)
