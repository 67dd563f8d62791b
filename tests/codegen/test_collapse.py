"""Nests of parallel loops are one range of iterations that can be cut anywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvm_run import check

from codegen.llvm import pool
from codegen.loops.collapse import nested, part
from codegen.loops.interp import run
from codegen.loops.nodes import For, Function, Int
from codegen.loops.parser import parse
from codegen.loops.printer import show

NEST = """func f()(x: f32[{0}, {1}, {2}], out y: f32[{0}, {1}, {2}]) {{
    for i in 0 .. {0} parallel {{ for j in 0 .. {1} parallel {{
        for k in 0 .. {2} parallel {{ y[i, j, k] = x[i, j, k] + 1.0_f32 }} }} }} }}"""
ROWS = """func rows()(x: f32[3, 5, 37], out y: f32[3, 5], out n: f32[3, 5]) {
    for i in 0 .. 3 parallel {
        for j in 0 .. 5 parallel {
            alloc s: f32[1] registers
            s[0] = 0.0_f32
            for k in 0 .. 37 { s[0] = s[0] + x[i, j, k] }
            y[i, j] = s[0]
        }
        for j in 0 .. 5 parallel { n[i, j] = y[i, j] * 2.0_f32 }
    } }"""


@given(st.tuples(*[st.integers(1, 5)] * 3), st.data())
def test_every_part_runs_just_its_iterations(extents: tuple[int, int, int], data: st.DataObject) -> None:
    function = parse(NEST.format(*extents))
    (loop,) = function.body
    assert isinstance(loop, For) and nested(loop) == extents[1:]
    total = int(np.prod(extents))
    begin = data.draw(st.integers(0, total - 1))
    end = data.draw(st.integers(begin + 1, total))
    piece = Function(function.name, (), function.params, (part(loop, nested(loop), Int(begin), Int(end)),), function.written)
    x, y = np.random.default_rng(0).random(extents, np.float32), np.zeros(extents, np.float32)
    run(piece, {}, {"x": x, "y": y})
    flat = np.zeros(total, np.float32)
    flat[begin:end] = x.reshape(-1)[begin:end] + 1
    np.testing.assert_array_equal(y.reshape(-1), flat)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("text", [NEST.format(7, 3, 5), NEST.format(1, 1, 64), NEST.format(1, 2, 3), ROWS])
def test_nests_give_the_same_result_on_any_number_of_threads(text: str, threads: int) -> None:
    function = parse(text)
    before = pool.threads()
    pool.set_threads(threads)
    try:
        arrays = {p.name: np.random.default_rng(1).random([s.value for s in p.shape], np.float32) for p in function.params}
        for _ in range(20):
            check(text, {}, **arrays)
    finally:
        pool.set_threads(before)


def test_a_loop_that_is_not_alone_in_its_body_is_left_to_itself() -> None:
    (loop,) = parse(ROWS).body
    assert isinstance(loop, For) and nested(loop) == ()


def test_a_part_is_loops_and_no_division_per_iteration() -> None:
    (loop,) = parse(NEST.format(7, 14, 3)).body
    assert isinstance(loop, For)
    text = show(Function("f", (), (), (part(loop, nested(loop), Int(5), Int(100)),)))
    assert text.count("//") <= 4 and text.count("for ") == 3
