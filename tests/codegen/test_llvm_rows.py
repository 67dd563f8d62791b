"""Rows of registers that are no whole vectors begin with a vector of their own all the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from llvm_run import LEVELS, check

from codegen.llvm.emit import emit
from codegen.llvm.jit import assembly
from codegen.llvm.target import host, named
from codegen.loops.parser import parse


def tile(columns: int, total: str = "fma(a[i, k], b[k, 16*u + j], acc[i, 16*u + j])") -> str:
    vectors = -(-columns // 16)
    loops = f"for i in 0 .. 3 unroll 3 {{ for u in 0 .. {vectors} unroll {vectors} {{ for j in 0 .. min(16, {columns} - 16*u) vector 16"
    return f"""func f()(a: f32[3, 5], b: f32[5, {columns}], out y: f32[3, {columns}]) {{
        alloc acc: f32[3, {columns}] registers
        {loops} {{ acc[i, 16*u + j] = 0.0_f32 }} }} }}
        for k in 0 .. 5 {{ {loops} {{ acc[i, 16*u + j] = {total} }} }} }} }}
        {loops} {{ y[i, 16*u + j] = acc[i, 16*u + j] }} }} }} }}"""


def arrays(columns: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(columns)
    made = {"a": (3, 5), "b": (5, columns), "y": (3, columns)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in made.items()}


@pytest.mark.parametrize("columns", [*range(1, 18), 23, 31, 33, 47])
def test_rows_of_any_length_give_the_same(columns: int) -> None:
    check(tile(columns), rtol=1e-5, targets=[host(), LEVELS[1]], **arrays(columns))


@pytest.mark.parametrize("columns", [3, 7, 9, 15, 23, 31])
def test_accumulators_are_vectors_and_need_no_mask(columns: int) -> None:
    text = emit(parse(tile(columns)), host())
    loop = text[text.index("phi <") :]
    assert not re.search(r"(insert|extract)element <\d+ x float>.*i64 [1-9]", loop)
    assert not re.search(r"select <\d+ x i1>.*float", loop)


@pytest.mark.parametrize("columns", [7, 9, 31])
def test_lanes_that_a_condition_leaves_out_keep_what_they_hold(columns: int) -> None:
    text = tile(columns, "select(b[k, 16*u + j] < 0.0_f32, acc[i, 16*u + j], a[i, k])")
    check(text, targets=[host()], **arrays(columns))
    guarded = (
        tile(columns)
        .replace("{ acc[i, 16*u + j] = fma", "{ if b[k, 16*u + j] < 0.0_f32 { acc[i, 16*u + j] = fma")
        .replace("acc[i, 16*u + j]) } } } }", "acc[i, 16*u + j]) } } } } }", 1)
    )
    check(guarded, rtol=1e-5, targets=[host()], **arrays(columns))


@pytest.mark.parametrize("columns", [37, 41])
def test_accumulators_are_vectors_where_loops_that_store_them_end_somewhere_in_a_row(columns: int) -> None:
    stores = f"for u in 0 .. {-(-columns // 16)} unroll {-(-columns // 16)} {{ for j in 0 .. min(16, {columns} - 16*u) vector 16 {{ y["
    part = "for u in 0 .. N // 16 + 1 unroll 3 { for j in 0 .. min(16, N + i - 16*u + 1) vector 16 { y["
    text = tile(columns).replace(stores, part).replace("func f()", "func f(N)")
    assert part in text
    written = emit(parse(text), named("x86-64-v4"))
    assert "phi <16 x float>" in written and "phi float" not in written
    for size in (0, 15, columns - 3):
        check(text, {"N": size}, rtol=1e-5, targets=[host(), LEVELS[1]], **arrays(columns))


@pytest.mark.parametrize(("rows", "start", "lanes"), [(1, 1, 15), (4, 1, 15), (4, 3, 13), (4, 2, 9), (3, 1, 8)])
def test_accumulators_stay_vectors_where_loops_begin_within_a_row(rows: int, start: int, lanes: int) -> None:
    whole = f"for i in 0 .. {rows} unroll {rows} {{ for j in 0 .. 16 vector 16 {{"
    text = f"""func f()(a: f32[9], x: f32[{rows}, 16], out y: f32[{rows}, 16]) {{
        alloc acc: f32[{rows}, 16] registers
        {whole} acc[i, j] = 1.0_f32 }} }}
        for k in 0 .. 9 {{
            for i in 0 .. {rows} unroll {rows} {{ for j in {start} .. {start + lanes} vector {lanes} {{
                acc[i, j] = acc[i, j] + select(x[i, j] < a[k], a[k], x[i, j - 1]) }} }}
            {whole} if x[i, j] < a[k] {{ acc[i, j] = acc[i, j] * 0.5_f32 }} }} }}
        }}
        {whole} y[i, j] = acc[i, j] }} }} }}"""
    random = np.random.default_rng(rows)
    x, a = random.standard_normal((rows, 16)).astype(np.float32), random.standard_normal(9).astype(np.float32)
    check(text, a=a, x=x, y=np.zeros_like(x))
    loop = emit(parse(text), named("x86-64-v4"))
    assert "phi <16 x float>" in loop and "phi float" not in loop


@pytest.mark.parametrize(("length", "lanes"), [(50, 2), (51, 3), (57, 9), (56, 8)])
def test_accumulators_stay_vectors_where_what_is_left_of_a_row_comes_behind_a_loop(length: int, lanes: int) -> None:
    rows = "for i in 0 .. 2 unroll 2"
    text = f"""func f()(x: f32[2, {length}], out y: f32[2, 16]) {{
        alloc acc: f32[2, 16] registers
        {rows} {{ for j in 0 .. 16 vector 16 {{ acc[i, j] = 0.0_f32 }} }}
        for k in 0 .. 3 {{ {rows} {{ for j in 0 .. 16 vector 16 {{ acc[i, j] = acc[i, j] + x[i, 16*k + j] }} }} }}
        {rows} {{ for j in 0 .. {lanes} vector {lanes} {{ acc[i, j] = acc[i, j] + x[i, j + 48] }} }}
        {rows} {{ for j in 0 .. 16 vector 16 {{ y[i, j] = acc[i, j] }} }} }}"""
    x = np.random.default_rng(length).standard_normal((2, length)).astype(np.float32)
    check(text, targets=[host(), LEVELS[1]], x=x, y=np.zeros((2, 16), np.float32))
    written = emit(parse(text), named("x86-64-v4"))
    assert written.count("phi <16 x float>") == 2 and "phi <2" not in written and "insertelement" not in written


@pytest.mark.parametrize("start", [0, 3])
def test_lanes_that_sizes_leave_out_keep_what_they_hold(start: int) -> None:
    text = f"""func f(N)(out y: f32[16]) {{
        alloc acc: f32[16] registers
        for j in 0 .. 16 vector 16 {{ acc[j] = 1.0_f32 }}
        for j in {start} .. min(N, 16) vector 16 {{ acc[j] = acc[j] + 2.0_f32 }}
        for j in 0 .. 16 vector 16 {{ y[j] = acc[j] }} }}"""
    for size in (2, 9):
        check(text, {"N": size}, targets=[host()], y=np.zeros(16, np.float32))


def test_rows_that_loops_of_several_lengths_walk() -> None:
    text = """func f()(x: f32[2, 13], out y: f32[2, 13]) {
        alloc t: f32[2, 13] registers
        for i in 0 .. 2 unroll 2 { for j in 0 .. 13 vector 13 { t[i, j] = x[i, j] } }
        for i in 0 .. 2 unroll 2 { for j in 0 .. 5 vector 5 { t[i, j + 4] = t[i, j + 4] * 2.0_f32 } }
        for i in 0 .. 2 unroll 2 { for j in 0 .. 13 vector 13 { y[i, j] = t[i, j] } } }"""
    check(text, targets=[host()], **dict(zip("xy", np.random.default_rng(0).random((2, 2, 13), np.float32), strict=True)))


@pytest.mark.parametrize("start", [0, 1])
def test_a_load_keeps_its_mask_where_a_sum_begins_with_it(start: int) -> None:
    """LLVM made one instruction of the load, the product and the constant that other lanes keep, and took the load out of it unmasked."""
    text = f"""func f(N)(x: f64[N], out y: f64[N]) {{
        for i in 1 - N .. 1 {{
            alloc acc: f64[8] registers
            for j in 0 .. 8 vector 8 {{ acc[j] = {start}.0_f64 }}
            if index(max(-1*i // 8 + 1, N // 8)) < index((N + 7) // 8) {{
                for j in 0 .. N - 8*max(-1*i // 8 + 1, N // 8) vector 8 {{
                    acc[j] = fma(x[8*max(-1*i // 8 + 1, N // 8) + j], 1.0_f64, acc[j])
                }}
            }}
            alloc total: f64[] registers
            total[] = 0.0_f64
            for j in 0 .. 8 vector 8 {{ total[] = total[] + acc[j] }}
            y[-1*i] = total[]
        }} }}"""
    v4 = named("x86-64-v4")
    assert not re.findall(r"vmovupd\s+\(%\w+\), %zmm\d+$", assembly(emit(parse(text), v4), v4), re.MULTILINE)
    x = np.random.default_rng(start).integers(-9, 9, 13).astype(np.float64)
    check(text, {"N": 13}, targets=[host(), LEVELS[1]], x=x, y=np.zeros(13))


TRIANGLE = """func f(N)(x: f64[9, 8], out y: f64[8]) {
    alloc acc: f64[8] registers
    for j in 0 .. 8 vector 8 { if index(j) >= index(FIRST) { acc[PLACE] = 1.0_f64 } }
    for k in 0 .. 9 { for j in 0 .. 8 vector 8 { if index(j) >= index(N) { acc[PLACE] = acc[PLACE] + x[k, j] } } }
    for j in 0 .. 8 vector 8 { if index(j) >= index(FIRST) { y[j] = acc[PLACE] } }
    }"""


@pytest.mark.parametrize(("first", "place", "chosen"), [("N", "j", False), ("N - 1", "j", True), ("N", "7 - j", True)])
def test_old_values_are_kept_where_other_lanes_see_them(first: str, place: str, chosen: bool) -> None:
    text = TRIANGLE.replace("FIRST", first).replace("PLACE", place)
    assert bool(re.search(r"select <8 x i1>.* double>", emit(parse(text), named("x86-64-v3")))) == chosen
    x = np.random.default_rng(0).random((9, 8))
    check(text, {"N": 3}, targets=[host(), *LEVELS], x=x, y=np.zeros(8))


@pytest.mark.parametrize(
    ("row", "loop", "condition"),
    [
        (16, "for j in 2 .. 16 vector 16", "index(j) >= index(N)"),
        (14, "for j in 2 .. 14 vector 16", "x[0, j] > 0_i16"),
        (5, "for j in 0 .. min(N, 5) vector 16", "true"),
        (5, "for j in 0 .. min(N, 5) vector 16", "x[0, j] > 0_i16"),
    ],
)
def test_lanes_beyond_a_row_of_registers_leave_the_next_row_as_it_is(row: int, loop: str, condition: str) -> None:
    lanes, whole = f"{loop} {{ if {condition} {{ BODY }} }}", f"for j in 0 .. {row} vector {row} {{ BODY }}"
    x = np.random.default_rng(row).integers(-9, 9, (2, row)).astype(np.int16)
    for others in (lanes, whole):
        text = f"""func f(N)(x: i16[2, {row}], out y: i16[2, {row}]) {{
            alloc acc: i16[2, {row}] registers
            for r in 0 .. 2 unroll 2 {{ {others.replace("BODY", "acc[1 - r, j] = x[1 - r, j]")} }}
            for r in 0 .. 2 unroll 2 {{ {lanes.replace("BODY", "acc[1 - r, j] = acc[1 - r, j] + x[0, j]")} }}
            for r in 0 .. 2 unroll 2 {{ {others.replace("BODY", "y[r, j] = acc[r, j]")} }}
        }}"""
        check(text, {"N": 4}, targets=[host(), *LEVELS[:1]], x=x, y=np.zeros((2, row), np.int16))


@pytest.mark.parametrize(("columns", "vectors"), [(36, 3), (52, 4)])
def test_nothing_is_computed_in_whole_vectors_that_no_lane_takes_part_in(columns: int, vectors: int) -> None:
    lanes = f"for j in 0 .. {columns} vector 64"
    text = f"""func f()(x: i32[9, {columns}], out y: i32[{columns}]) {{
        alloc acc: i32[64] registers
        {lanes} {{ acc[j] = 1_i32 }}
        for k in 0 .. 9 {{ {lanes} {{ acc[j] = acc[j] + x[k, j] }} }}
        {lanes} {{ y[j] = acc[j] }}
    }}"""
    v4 = named("x86-64-v4")
    assert len(re.findall(r"vpaddd\s.*%zmm", assembly(emit(parse(text), v4), v4))) == vectors
    check(text, targets=[host(), *LEVELS], x=np.arange(9 * columns, dtype=np.int32).reshape(9, columns), y=np.zeros(columns, np.int32))


def test_masks_from_before_a_loop_are_vectors_in_it_on_processors_without_registers_for_them() -> None:
    text = TRIANGLE.replace("FIRST", "N").replace("PLACE", "j").replace("x[k, j]", "x[k, j - N]")
    v3 = named("x86-64-v3")
    found = assembly(emit(parse(text), v3), v3)
    loop = found[: found.index("\tj", found.index("vaddpd"))].rsplit("LBB", 1)[1]
    assert "vmaskmovpd" in loop
    assert not re.search("vpmovsx|vpslld|vpunpck", loop)
    check(text, {"N": 3}, targets=[host(), *LEVELS], x=np.random.default_rng(0).random((9, 8)), y=np.zeros(8))


def test_masks_from_before_a_loop_serve_all_accesses_of_loops_inside_it() -> None:
    text = """func f(N)(x: u8[4, 5, N], out y: u8[4, N]) {
        for i in 0 .. 4 {
            for j in 0 .. N vector 32 { y[i, j] = x[i, 0, j] }
            for k in 1 .. 5 { for r in 0 .. 2 unroll 2 { for j in 0 .. N vector 32 { y[i, j] = y[i, j] + x[i, k, j] } } }
        } }"""
    check(text, {"N": 7}, targets=LEVELS, x=np.arange(140, dtype=np.uint8).reshape(4, 5, 7), y=np.zeros((4, 7), np.uint8))
