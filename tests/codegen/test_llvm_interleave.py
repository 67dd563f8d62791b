"""Rows of few elements are read and written as whole vectors, which are shuffled; nothing beyond the rows is touched."""

import numpy as np
import pytest
from guarded import walled
from llvm_run import check, run_native, values

from codegen.llvm.emit import emit
from codegen.llvm.target import host
from codegen.loops.parser import parse

MATRIX = """func f(N)(x: {dtype}[N, {count}], out y: {dtype}[N, {count}]) {{
    for no in 0 .. N // {lanes} {{
        for i in 0 .. {count} unroll {count} {{ for n in 0 .. {lanes} vector {lanes} {{
            y[{lanes}*no + n, i] = x[{lanes}*no + n, {count} - 1 - i]
        }} }}
    }}
    for i in 0 .. {count} unroll {count} {{ for n in 0 .. N % {lanes} vector {lanes} {{
        y[{lanes}*(N // {lanes}) + n, i] = x[{lanes}*(N // {lanes}) + n, {count} - 1 - i]
    }} }}
}}"""


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "u8", "bool", "u4"])
@pytest.mark.parametrize("count", [2, 3, 6, 7, 8])
def test_rows_of_few_elements_are_those_that_lanes_read_and_write(count: int, dtype: str) -> None:
    text = MATRIX.format(dtype=dtype, count=count, lanes=8)
    for rows in (7, 16):
        x = values(dtype, rows * count).reshape(rows, count)
        check(text, {"N": rows}, x=x, y=np.zeros_like(x))


@pytest.mark.parametrize("side", ["low", "high"])
@pytest.mark.parametrize("rows", [0, 9, 32])
@pytest.mark.parametrize("count", [3, 8])
def test_nothing_beyond_rows_of_few_elements_is_touched(side: str, rows: int, count: int) -> None:
    x = np.arange(rows * count, dtype=np.float32).reshape(rows, count)
    given = {"x": walled(x, side), "y": walled(np.zeros_like(x), side)}  # type: ignore[arg-type]  # one of both sides
    assert run_native(parse(MATRIX.format(dtype="f32", count=count, lanes=16)), {"N": rows}, given, host()) == 0
    assert np.array_equal(given["y"], x[:, ::-1])


def test_rows_are_written_as_whole_vectors() -> None:
    text = """func f(N)(x: f32[N, 3], out y: f32[N, 3]) {
        for no in 0 .. N // 16 { for i in 0 .. 3 unroll 3 { for n in 0 .. 16 vector 16 { y[16*no + n, i] = x[16*no + n, 2 - i] } } }
    }"""
    emitted = emit(parse(text), host())
    assert emitted.count("store <16 x float>") == 3
    assert emitted.count("load <16 x float>") == 3


@pytest.mark.parametrize(("count", "shuffles"), [(2, 2), (4, 8), (6, 18), (8, 24)])
def test_rows_of_an_even_number_of_elements_are_put_together_of_two_halves(count: int, shuffles: int) -> None:
    text = f"""func f()(x: f32[{count}, 16], out y: f32[16, {count}]) {{
        for i in 0 .. {count} unroll {count} {{ for n in 0 .. 16 vector 16 {{ y[n, i] = x[i, n] }} }}
    }}"""
    assert emit(parse(text), host()).count("shufflevector") == shuffles


def test_as_many_rows_as_a_size_says_are_written_as_vectors_whose_first_elements_they_are() -> None:
    text = emit(parse(MATRIX.format(dtype="f32", count=3, lanes=16)), host())
    assert text.count("call void @llvm.masked.store") == 3
    assert "scatter" not in text


@pytest.mark.parametrize("rows", [1, 5, 16])
def test_copies_of_which_not_all_write_as_many_rows_as_a_size_says_each_write_theirs(rows: int) -> None:
    text = """func f(N)(x: f32[16, 3], out y: f32[16, 3]) {
        for i in 0 .. 3 unroll 3 { for n in 0 .. min(16, N + i // 2) vector 16 { y[n, i] = x[n, i] + 1.0_f32 } }
    }"""
    check(text, {"N": rows}, x=values("f32", 48).reshape(16, 3), y=np.zeros((16, 3), np.float32))


@pytest.mark.parametrize("first", ["i", "(i + 1) // 2", "8*(i // 2)", "i // 2"])
def test_copies_that_write_fewer_rows_than_others_each_write_theirs(first: str) -> None:
    text = f"""func f()(x: f32[16, 3], out y: f32[16, 3]) {{
        for i in 0 .. 3 unroll 3 {{ for n in {first} .. 16 vector 16 {{ y[n, i] = x[n, i] + 1.0_f32 }} }}
    }}"""
    check(text, x=values("f32", 48).reshape(16, 3), y=np.zeros((16, 3), np.float32))


@pytest.mark.parametrize("side", ["low", "high"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("cond", ["index(n) >= 2_i64", "index(n) >= 2_i64 and index(n) < 12_i64", "not (index(n) < 2_i64)"])
def test_of_elements_a_few_apart_those_that_no_lane_needs_are_left_out(cond: str, count: int, side: str) -> None:
    """Where it is known which lanes take part, from the first of them to the last."""
    text = f"""func f()(x: f32[{13 * count + 1}], out y: f32[16]) {{
        for n in 0 .. 16 vector 16 {{ y[n] = 0.0_f32 }}
        for n in 0 .. 16 vector 16 {{ if {cond} {{ y[n] = x[{count}*n - {2 * count}] }} }}
    }}"""
    assert "gather" not in emit(parse(text), host())
    x = values("f32", 13 * count + 1)
    check(text, x=x, y=np.zeros(16, np.float32))
    given = {"x": walled(x, side), "y": np.zeros(16, np.float32)}  # type: ignore[arg-type]  # one of both sides
    assert run_native(parse(text), {}, given, host()) == 0


@pytest.mark.parametrize("side", ["low", "high"])
@pytest.mark.parametrize(("count", "extent"), [(2, 26), (2, 27), (3, 40)])
def test_elements_a_few_apart_are_taken_out_of_vectors_whichever_lanes_take_part(count: int, extent: int, side: str) -> None:
    """Under the mask of the lanes, spread: a step moves the window over an edge on each side."""
    inside = f"index({count}*n + k) >= {count}_i64 and index({count}*n + k) < {extent + count}_i64"
    text = f"""func f()(x: f32[{extent}], out y: f32[2, 16]) {{
        for k in 0 .. 2 {{ for n in 0 .. 16 vector 16 {{
            y[k, n] = select({inside}, x[{count}*n + k - {count}], 0.0_f32)
        }} }}
    }}"""
    x = values("f32", extent)
    emitted = emit(parse(text), host())
    assert "gather" not in emitted
    assert ("masked.load" in emitted) == (x.itemsize in host().masked_bytes)
    check(text, x=x, y=np.zeros((2, 16), np.float32))
    given = {"x": walled(x, side), "y": np.zeros((2, 16), np.float32)}  # type: ignore[arg-type]  # one of both sides
    assert run_native(parse(text), {}, given, host()) == 0


@pytest.mark.parametrize("loop", ["0 .. 11", "0 .. N", "0 .. 11 - i", "0 .. N - i"])
def test_rows_of_fewer_lanes_are_written_as_vectors_with_the_rest_left_out(loop: str) -> None:
    text = f"""func f(N)(x: f32[2, 11], out y: f32[11, 2]) {{
        for i in 0 .. 2 unroll 2 {{ for n in {loop} vector 16 {{ y[n, i] = x[i, n] }} }}
    }}"""
    assert ("scatter" in emit(parse(text), host())) == (loop == "0 .. N - i")
    for size in (11, 3, 1) if "N" in loop else (11,):
        check(text, {"N": size}, targets=[host()], x=values("f32", 22).reshape(2, 11), y=np.zeros((11, 2), np.float32))


@pytest.mark.parametrize("side", ["low", "high"])
@pytest.mark.parametrize("size", [3, 11])
def test_rows_of_fewer_lanes_touch_nothing_beyond_them(side: str, size: int) -> None:
    text = """func f(N)(x: f32[2, N], out y: f32[N, 2]) {
        for i in 0 .. 2 unroll 2 { for n in 0 .. N vector 16 { y[n, i] = x[i, n] } }
    }"""
    x = values("f32", 2 * size).reshape(2, size)
    given = {"x": walled(x, side), "y": walled(np.zeros_like(x.T), side)}  # type: ignore[arg-type]  # one of both sides
    assert run_native(parse(text), {"N": size}, given, host()) == 0
    assert np.array_equal(given["y"], x.T)


def test_a_row_that_is_read_while_it_is_written_is_written_element_by_element() -> None:
    text = """func f()(x: f32[16, 3], out y: f32[16, 3]) {
        for i in 0 .. 3 unroll 3 { for n in 0 .. 16 vector 16 { y[n, i] = x[n, i] } }
        for i in 0 .. 3 unroll 3 { for n in 0 .. 16 vector 16 { y[n, i] = x[n, i] + y[n, 2 - i] } }
    }"""
    check(text, x=values("f32", 48).reshape(16, 3), y=np.zeros((16, 3), np.float32))


PHASES = """func f()(x: f32[32], out y: f32[64]) {{
    for i in 0 .. 2 unroll 2 {{ for n in 0 .. 32 vector 32 {{
        let more = x[5] > {least}
        if {cond} {{ y[2*n + i] = x[n] + 1.0_f32 }} else {{ if index(i) == 1_i64 {{ y[2*n + i] = x[n] - 1.0_f32 }} }}
    }} }}
}}"""


@pytest.mark.parametrize("least", ["-10.0_f32", "10.0_f32"])
@pytest.mark.parametrize(("cond", "together"), [("index(i) == 0_i64", True), ("more", False), ("more and index(i) == 0_i64", False)])
def test_copies_whose_number_says_what_they_store_write_rows_together(cond: str, together: bool, least: str) -> None:
    text = PHASES.format(cond=cond, least=least)
    check(text, x=values("f32", 32), y=np.zeros(64, np.float32))
    assert ("shufflevector" in emit(parse(text), host())) == together


@pytest.mark.parametrize(("first", "cond"), [("N", "index(c % 2) == 0_i64"), ("0", "f32(index(c)) * 2.0_f32 > 1.0_f32")])
def test_copies_that_do_not_know_what_they_store_each_store_it(first: str, cond: str) -> None:
    text = f"""func f(N)(x: f32[32], out y: f32[16, 3]) {{ for c in {first} .. {first} + 3 unroll 3 {{ for n in 0 .. 16 vector 16 {{
        if {cond} {{ y[n, c - {first}] = x[n] }} else {{ y[n, c - {first}] = x[n + 16] }}
    }} }} }}"""
    check(text, {"N": 5}, targets=[host()], x=values("f32", 32), y=np.zeros((16, 3), np.float32))


def test_what_lies_between_elements_a_few_apart_is_loaded_once_for_all_that_are_taken_of_it() -> None:
    """Rows of 32 elements are stretches of four."""
    text = """func f()(x: f32[2, 32], out y: f32[2, 8]) { for b in 0 .. 2 { for i in 0 .. 8 vector 8 {
        y[b, i] = max(max(x[b, 4*i], x[b, 4*i + 1]), max(x[b, 4*i + 2], x[b, 4*i + 3]))
    } } }"""
    assert emit(parse(text), host()).count("load <8 x float>") == 4
    check(text, x=values("f32", 64).reshape(2, 32), y=np.zeros((2, 8), np.float32))
