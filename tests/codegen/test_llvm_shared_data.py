"""Lanes whose numbers meet data that all of them share: comparisons are numbers of lanes, and what is read lies side by side."""

import numpy as np
import pytest
from llvm_run import check, values

from codegen.llvm.emit import emit
from codegen.llvm.target import named
from codegen.loops.parser import parse

LIMITS = np.array(
    [-(2**63), 1 - 2**63, -65, -64, -63, -1, 0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 2**62, 2**63 - 65, 2**63 - 2, 2**63 - 1], np.int64
)


@pytest.mark.parametrize("sides", ["index(j + 3) {} w[i]", "w[i] {} index(j + 3)", "index(j - 60) {} w[i]"])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
def test_comparisons_with_any_number_are_those_of_the_interpreter(op: str, sides: str) -> None:
    text = f"for i in 0 .. {len(LIMITS)} {{ for j in 0 .. 16 vector 16 {{ y[i, j] = {sides.format(op)} }} }}"
    check(
        f"func f()(w: i64[{len(LIMITS)}], out y: bool[{len(LIMITS)}, 16]) {{ {text} }}",
        w=LIMITS,
        y=np.zeros((len(LIMITS), 16), np.bool_),
    )


@pytest.mark.parametrize("limit", ["0_i64", "16_i64", "index(i)", "w[0]"])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
def test_comparisons_of_what_lies_at_a_distance_are_those_of_the_interpreter(op: str, limit: str) -> None:
    moved = np.array([-(2**31), 1 - 2**31, -17, -16, -15, -1, 0, 1, 7, 15, 16, 17, 2**31 - 17, 2**31 - 1], np.int32)
    text = f"for i in 0 .. 14 {{ for j in 0 .. 16 vector 16 {{ y[i, j] = index(j + 3) + i64(v[i]) {op} {limit} "
    text += f"y[i + 14, j] = {limit} {op} index(j + 3) - i64(v[i]) }} }}"
    for last in (-3, 2**63 - 1, -(2**63)):
        arrays = {"v": moved, "w": np.array([last], np.int64), "y": np.zeros((28, 16), np.bool_)}
        check(f"func f()(v: i32[14], w: i64[1], out y: bool[28, 16]) {{ {text} }}", **arrays)


@pytest.mark.parametrize("moved", ["index(j) + i64(v[0]) < 9_i64", "index(j) - i64(v[0]) < index(9)", "0_i64 <= index(j) - i64(v[0])"])
def test_what_lies_at_a_distance_is_compared_by_a_number_of_lanes(moved: str) -> None:
    text = f"func f()(v: i32[1], out y: bool[16]) {{ for j in 0 .. 16 vector 16 {{ y[j] = {moved} }} }}"
    written = emit(parse(text), named("x86-64-v4"))
    assert "icmp ult <16 x i32>" in written and "<16 x i64>" not in written


def test_what_a_condition_reads_is_not_read_again_where_it_holds() -> None:
    text = "func f()(p: i32[9], x: f32[9], out y: f32[9]) { for i in 0 .. 9 { y[i] = select(p[i] > 0_i32, x[value(i64(p[i]))], 0.0_f32) } }"
    assert emit(parse(text), named("x86-64-v4")).count("= load i32") == 1


def test_a_comparison_is_a_number_of_lanes() -> None:
    text = "func f()(w: i64[1], out y: bool[16]) { for j in 0 .. 16 vector 16 { y[j] = index(j) < w[0] } }"
    assert "icmp ult <16 x i32>" in emit(parse(text), named("x86-64-v4"))


@pytest.mark.parametrize("place", ["index(j) - w[i]", "index(j) + w[i]", "w[i] + index(j)"])
def test_elements_at_a_distance_that_lanes_share_are_neighbours(place: str) -> None:
    sign = "-" if "-" in place else "+"
    inside = f"index(j) {sign} w[i] >= 0_i64 and index(j) {sign} w[i] < 16_i64"
    text = f"""func f()(w: i64[5], x: f32[16], out y: f32[5, 16]) {{
        for i in 0 .. 5 {{ for j in 0 .. 16 vector 16 {{ y[i, j] = select({inside}, x[value({place})], 0.0_f32) }} }}
    }}"""
    check(text, w=np.array([-5, 0, 3, 15, 40], np.int64), x=values("f32", 16), y=np.zeros((5, 16), np.float32))
    written = emit(parse(text), named("x86-64-v4"))
    assert "masked.load" in written and "masked.gather" not in written
