"""Elements of a short row that data name are picked from registers that hold the row."""

import numpy as np
import pytest
from guarded import SIDES, walled
from llvm_run import check, run_native, values

from codegen.llvm.emit import emit
from codegen.llvm.target import host, named
from codegen.loops.parser import parse

PLACES = "value(max(0_i32, min({most}_i32, at[i, j])))"


def text(dtype: str, lanes: int, length: int, rows: int = 3) -> str:
    place = PLACES.format(most=length - 1)
    body = f"for j in 0 .. {lanes} vector {lanes} {{ y[i, j] = x[i, {place}] }}"
    given = f"at: i32[{rows}, {lanes}], x: {dtype}[{rows}, {length}], out y: {dtype}[{rows}, {lanes}]"
    return f"func f()({given}) {{ for i in 0 .. {rows} {{ {body} }} }}"


def places(rows: int, lanes: int, length: int) -> np.ndarray:
    return (np.arange(rows * lanes, dtype=np.int32).reshape(rows, lanes) * 7 - 2) % (length + 2) - 1


@pytest.mark.parametrize("lanes", [3, 8, 16, 32])
@pytest.mark.parametrize(("dtype", "length"), [("f32", 12), ("f32", 16), ("i32", 7), ("f64", 8), ("u64", 5), ("f32", 17), ("i16", 9)])
def test_lanes_get_the_elements_of_a_row_that_data_name(dtype: str, length: int, lanes: int) -> None:
    given = values(dtype, 3 * length).reshape(3, length)
    check(text(dtype, lanes, length), at=places(3, lanes, length), x=given, y=np.zeros((3, lanes), given.dtype))


@pytest.mark.parametrize(
    ("dtype", "length", "lanes"),
    [("f32", 32, 16), ("f32", 50, 19), ("f64", 31, 8), ("i16", 90, 32), ("u8", 64, 64), ("i8", 100, 64), ("u8", 256, 64), ("u8", 200, 70)],
)
def test_a_row_may_lie_in_several_registers(dtype: str, length: int, lanes: int) -> None:
    given = values(dtype, 3 * length).reshape(3, length)
    check(text(dtype, lanes, length), at=places(3, lanes, length), x=given, y=np.zeros((3, lanes), given.dtype))


def test_a_row_that_fits_registers_is_permuted_and_a_longer_one_gathered() -> None:
    short, two, four, long = (emit(parse(text("f32", 16, length)), named("x86-64-v4")) for length in (16, 17, 64, 65))
    assert "permvar.sf" in short and "gather" not in short
    assert "vpermi2var.ps" in two and "gather" not in two and "vpermi2var.ps" in four and "gather" not in four
    assert "gather" in long and "perm" not in long
    assert "vpermi2var.qi" in emit(parse(text("u8", 64, 256)), named("x86-64-amx"))
    assert "avx2.permps" in emit(parse(text("f32", 8, 8)), named("x86-64-v3"))


def test_rows_that_lanes_do_not_share_are_gathered() -> None:
    place = PLACES.format(most=7).replace("[i, j]", "[j]")
    lanes = f"func f()(at: i32[16], x: f32[16, 8], out y: f32[16]) {{ for j in 0 .. 16 vector 16 {{ y[j] = x[j, {place}] }} }}"
    assert "permvar" not in emit(parse(lanes), named("x86-64-v4"))
    check(lanes, at=places(1, 16, 8)[0], x=values("f32", 128).reshape(16, 8), y=np.zeros(16, np.float32))


def test_a_row_that_is_written_is_read_anew() -> None:
    place = PLACES.format(most=7).replace("[i, j]", "[j]")
    first, second = (f"for j in 0 .. 8 vector 8 {{ y[{k}, j] = x[0, {place}] }}" for k in (0, 1))
    changed = "for j in 0 .. 8 vector 8 { x[0, j] = x[0, j] + 1.0_f32 }"
    written = f"func f()(at: i32[8], out x: f32[2, 8], out y: f32[2, 8]) {{ {first} {changed} {second} }}"
    check(written, at=places(1, 8, 8)[0], x=values("f32", 16).reshape(2, 8), y=np.zeros((2, 8), np.float32))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("length", [5, 12, 16])
def test_nothing_outside_of_the_row_is_read(length: int, side: str) -> None:
    function = parse(text("f32", 16, length, 1))
    at, x = places(1, 16, length), values("f32", length).reshape(1, length)
    y = np.zeros((1, 16), np.float32)
    assert run_native(function, {}, {"at": at, "x": walled(x, side), "y": y}, host()) == 0
    assert (y[0] == x[0][np.clip(at[0], 0, length - 1)]).all()


def test_a_row_that_no_lane_asks_for_is_not_read() -> None:
    place = PLACES.format(most=7).replace("[i, j]", "[j]")
    body = f"for j in 0 .. 8 vector 8 {{ if r[0] >= 0_i32 {{ y[j] = x[value(max(0_i32, min(0_i32, r[0]))), {place}] }} }}"
    some = f"func f()(r: i32[1], at: i32[8], x: f32[1, 8], out y: f32[8]) {{ {body} }}"
    for r in (-1, 0):
        check(some, r=np.array([r], np.int32), at=places(1, 8, 8)[0], x=values("f32", 8).reshape(1, 8), y=np.zeros(8, np.float32))
