"""What the copies of an unrolled loop read across rows is loaded by rows, and is the same."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import SIDES, walled
from llvm_run import run_native

from codegen.llvm.emit import emit
from codegen.llvm.target import host, named
from codegen.loops.parser import parse


def text(dtype: str, lanes: int, value: str, rows: int = 32, columns: int = 48) -> str:
    return f"""func f()(x: {dtype}[{rows}, {columns}], out y: {dtype}[{columns}, {rows}]) {{
        for jo in 0 .. {rows // lanes} {{ for io in 0 .. {columns // lanes} {{
            for i in 0 .. {lanes} unroll {lanes} {{ for j in 0 .. {lanes} vector {lanes} {{
                y[{lanes}*io + i, {lanes}*jo + j] = {value} }} }} }} }} }}"""


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "u16", "i64"])
def test_squares_are_turned(dtype: str, lanes: int) -> None:
    function = parse(text(dtype, lanes, f"x[{lanes}*jo + j, {lanes}*io + i]"))
    x = np.arange(32 * 48).reshape(32, 48).astype(np.dtype({"f": "f", "i": "i", "u": "u"}[dtype[0]] + str(int(dtype[1:]) // 8)))
    y = np.zeros((48, 32), x.dtype)
    assert run_native(function, {}, {"x": x, "y": y}, host()) == 0
    np.testing.assert_array_equal(y, x.T)
    assert f"insertelement <{lanes} x" not in emit(function, host())


@pytest.mark.parametrize(("lanes", "copies"), [(16, 12), (12, 12), (16, 3), (5, 7), (8, 16), (4, 2)])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8"])
def test_as_many_columns_as_there_are_copies_are_turned(dtype: str, lanes: int, copies: int) -> None:
    body = f"""func f()(x: {dtype}[{lanes}, 2, {copies + 6}], out y: {dtype}[{copies}, {lanes}]) {{
        for i in 0 .. {copies} unroll {copies} {{ for j in 0 .. {lanes} vector {lanes} {{ y[i, j] = x[j, 1, i + 5] }} }} }}"""
    x = np.arange(lanes * 2 * (copies + 6)).reshape(lanes, 2, -1).astype(dtype.replace("8", "1").replace("32", "4").replace("64", "8"))
    for side in SIDES:
        y = np.zeros((copies, lanes), x.dtype)
        assert run_native(parse(body), {}, {"x": walled(x, side), "y": y}, host()) == 0
        np.testing.assert_array_equal(y, x[:, 1, 5 : 5 + copies].T)
    made = emit(parse(body), host())
    assert "gather" not in made and f"insertelement <{1 << (lanes - 1).bit_length()} x" not in made


@pytest.mark.parametrize(("rows", "columns"), [(32, 48), (37, 21), (16, 16), (15, 64), (1, 3), (0, 5)])
def test_squares_of_buffers_of_open_sizes_are_turned(rows: int, columns: int) -> None:
    body = """func f(M, N)(x: f32[M, N], out y: f32[N, M]) {
        for jo in 0 .. M // 16 { for io in 0 .. N // 16 {
            for i in 0 .. 16 unroll 16 { for j in 0 .. 16 vector 16 { y[16*io + i, 16*jo + j] = x[16*jo + j, 16*io + i] } } } } }"""
    x, y = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns), np.zeros((columns, rows), np.float32)
    assert run_native(parse(body), {"M": rows, "N": columns}, {"x": x, "y": y}, host()) == 0
    m, n = rows - rows % 16, columns - columns % 16
    np.testing.assert_array_equal(y[:n, :m], x[:m, :n].T)
    assert not y[n:].any() and not y[:, m:].any()
    assert "insertelement <16 x" not in emit(parse(body), host())


def test_rows_as_far_apart_as_sizes_say_are_found_from_the_first_of_them() -> None:
    body = """func f(M, N)(x: f32[M, N], out y: f32[N, 16]) {
        for io in 0 .. N // 16 {
            if index(M) >= 16_i64 {
                for i in 0 .. 16 unroll 16 { for j in 0 .. 16 vector 16 { y[16*io + i, j] = x[j, 16*io + i] } } } } }"""
    assert emit(parse(body), host()).count("freeze ptr") == 1


@pytest.mark.parametrize("rows", [0, 1, 7, 15, 16])
def test_rows_that_are_left_over_are_turned_and_no_others_are_touched(rows: int) -> None:
    function = parse("""func f(M)(x: f32[M, 16], out y: f32[16, M]) {
        for i in 0 .. 16 unroll 16 { for j in 0 .. M vector 16 { y[i, j] = x[j, i] } } }""")
    x = np.arange(rows * 16, dtype=np.float32).reshape(rows, 16)
    for side in SIDES:
        y = np.zeros((16, rows), np.float32)
        assert run_native(function, {"M": rows}, {"x": walled(x, side), "y": y}, host()) == 0
        np.testing.assert_array_equal(y, x.T)
    made = emit(function, host())
    assert "gather" not in made and made.count("select i1") == 16, "each row is asked for once"


def test_what_only_some_copies_read_is_not_touched() -> None:
    value = "select(index(16*io + i) < 40_i64, x[16*jo + j, 16*io + i], 0.0_f32)"
    function = parse(text("f32", 16, value, columns=48).replace("x: f32[32, 48]", "x: f32[32, 40]"))
    x = np.arange(32 * 40, dtype=np.float32).reshape(32, 40)
    y = np.ones((48, 32), np.float32)
    assert run_native(function, {}, {"x": x, "y": y}, host()) == 0
    np.testing.assert_array_equal(y, np.pad(x, ((0, 0), (0, 8))).T)
    assert "load <4 x float>" not in emit(function, host())


def test_a_store_between_the_copies_is_seen() -> None:
    body = """func f()(out x: f32[16, 16]) {
        for i in 0 .. 16 unroll 16 { for j in 0 .. 16 vector 16 { x[i, j] = x[j, i] } } }"""
    x = np.arange(256, dtype=np.float32).reshape(16, 16)
    expected = x.copy()
    for i in range(16):
        expected[i] = expected[:, i]
    assert run_native(parse(body), {}, {"x": x}, host()) == 0
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("column", ["max(0, i - 1)", "min(i, 2)", "(i + 1) % 4", "i // 2"])
def test_columns_that_are_neighbours_in_some_copies_alone_are_read_one_by_one(column: str) -> None:
    body = f"""func f()(x: i8[4, 9], out y: i8[4, 4]) {{
        for i in 0 .. 4 unroll 4 {{ for j in 0 .. 4 vector 4 {{ y[i, j] = x[j, {column}] }} }} }}"""
    x, y = np.arange(36, dtype=np.int8).reshape(4, 9), np.zeros((4, 4), np.int8)
    assert run_native(parse(body), {}, {"x": x, "y": y}, host()) == 0
    places = {"max": [0, 0, 1, 2], "min": [0, 1, 2, 2], "(i ": [1, 2, 3, 0], "i /": [0, 0, 1, 1]}[column[:3]]
    np.testing.assert_array_equal(y, x[:, places].T)
    assert "load <4 x i8>" not in emit(parse(body), host())


def test_lanes_that_only_some_copies_have_are_not_read_for_the_others() -> None:
    body = """func f()(x: i8[16], out y: i8[4, 4]) {
        for i in 0 .. 4 unroll 4 { for j in 0 .. i + 1 vector 4 { y[i, j] = x[4*j + i] } } }"""
    x, y = np.arange(16, dtype=np.int8), np.zeros((4, 4), np.int8)
    assert run_native(parse(body), {}, {"x": x, "y": y}, host()) == 0
    np.testing.assert_array_equal(y, np.tril(x.reshape(4, 4).T))
    assert "<i32 0, i32 4, i32 1, i32 5>" not in emit(parse(body), host())  # how squares are turned


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8"])
def test_columns_of_an_open_number_are_turned_and_no_others_are_touched(dtype: str) -> None:
    function = parse(f"""func f(M, N)(x: {dtype}[M, N], out y: {dtype}[N, M]) {{
        for i in 0 .. min(16, N) unroll 16 {{ for j in 0 .. min(16, M) vector 16 {{ y[i, j] = x[j, i] }} }} }}""")
    for rows, columns in [(16, 5), (16, 16), (3, 7), (1, 1), (15, 12), (0, 4), (4, 0), (16, 1)]:
        x = np.arange(rows * columns).reshape(rows, columns).astype(dtype.replace("8", "1").replace("32", "4").replace("64", "8"))
        for side in SIDES:
            y = np.zeros((columns, rows), x.dtype)
            assert run_native(function, {"M": rows, "N": columns}, {"x": walled(x, side), "y": y}, host()) == 0
            np.testing.assert_array_equal(y, x.T)
    assert "gather" not in emit(function, named("x86-64-v4"))
