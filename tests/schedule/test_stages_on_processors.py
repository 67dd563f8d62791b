"""`stages` on a processor: copies run ahead of the loop that needs them, and nothing that is computed changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang as tl
from codegen.errors import Unfit
from codegen.loops.interp import run
from codegen.loops.parser import parse
from codegen.loops.simplify import simplify
from codegen.loops.stages import staged
from codegen.loops.verify import verify
from tensorlang.diagnostics import CompileError

MATMUL = "op matmul(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) { c[i, j] = sum(k) a[i, k] * b[k, j] }"
SCHEDULE = """
    split k by {block} -> ko, ki
    split i by 4 -> io, ii
    split j by 16 -> jo, ji
    order jo, ko, io, ki, ii, ji
    pack b at ko as [k, j]
    unroll ii
    vectorize ji
    stages ko by {count}
"""


def operator(count: int, block: int = 8) -> tl.Operator:
    return tl.parse(MATMUL, threads=1).matmul.schedule(SCHEDULE.format(count=count, block=block))


def loops(count: int, m: int, k: int, n: int) -> str:
    found: dict[str, str] = {}
    operator(count).stages(np.ones((m, k), np.float32), np.ones((k, n), np.float32), dump=found.__setitem__)
    return found["loops"]


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 20), st.integers(1, 40), st.integers(1, 20), st.integers(1, 4))
def test_a_product_in_stages_is_the_product(m: int, k: int, n: int, count: int) -> None:
    a, b = (np.arange(r * c, dtype=np.float32).reshape(r, c) % 7 for r, c in ((m, k), (k, n)))
    np.testing.assert_array_equal(operator(count)(a, b), a @ b)


def test_a_copy_has_as_many_buffers_as_stages_and_its_pieces_go_with_the_turns_of_the_work() -> None:
    text = loops(2, 16, 32, 32)
    assert "alloc b_pack: f32[2, 8, 16]" in text
    assert "if index(c_ko + 1) < 4_i64 {" in text
    assert "b_pack[(c_ko + 1) % 2, 2*c_io + b_pack_k, " in text
    assert "b_pack[c_ko % 2, c_ki, c_ji]" in text


@pytest.mark.parametrize("n", [0, 3, 4, 5, 11])
def test_whole_tiles_and_the_last_one_each_have_copies_of_their_own(n: int) -> None:
    twice = tl.parse("op twice(x: i64[M, N]) -> (y: i64[M, N]) { y[i, j] = x[i, j] * 2 }", sizes="symbolic").twice
    tiled = twice.schedule("split j by 4 -> jo, ji\npack x at jo\nvectorize ji\nstages jo by 2")
    x = np.arange(3 * n).reshape(3, n)
    np.testing.assert_array_equal(tiled(x), 2 * x)


def test_what_is_prefetched_of_a_copy_is_of_the_stage_at_hand() -> None:
    text = SCHEDULE.format(count=2, block=8) + "prefetch `b.pack` at ki by 1"
    a, b = (np.arange(r * c, dtype=np.float32).reshape(r, c) % 7 for r, c in ((9, 20), (20, 19)))
    np.testing.assert_array_equal(tl.parse(MATMUL, threads=1).matmul.schedule(text)(a, b), a @ b)


def test_one_stage_is_none() -> None:
    assert "% 2" not in loops(1, 16, 32, 32)


def test_a_parallel_loop_has_no_stages() -> None:
    text = "split k by 8 -> ko, ki\nparallel i\npack b at i as [k, j]\nstages i by 2"
    with pytest.raises(CompileError, match="only a serial loop has stages"):
        tl.parse(MATMUL, threads=1).matmul.schedule(text)(np.ones((4, 8), np.float32), np.ones((8, 4), np.float32))


LOOPS = """
func f()(a: f32[6, 5] align 4, out y: f32[6] align 4) {
    for k in 0 .. 6 serial 6 (stages STAGES) {
        alloc s: f32[5] stack align 64
        for i in 0 .. 5 serial 5 {
            s[i] = a[k, i]
        }
        y[k] = 0.0_f32
        for r in 0 .. TURNS serial TURNS {
            y[k] = y[k] + s[r]
        }
        for q in 0 .. 5 serial 5 {
            y[k] = y[k] + s[q]
        }
    }
}
"""


@pytest.mark.parametrize("stages", [2, 3, 7])
@pytest.mark.parametrize("turns", [1, 2, 3, 5])
def test_every_element_is_copied_before_it_is_needed(stages: int, turns: int) -> None:
    function = simplify(staged(parse(LOOPS.replace("STAGES", str(stages)).replace("TURNS", str(turns)))))
    verify(function)
    a = np.random.default_rng(1).integers(0, 9, (6, 5)).astype(np.float32)
    y = np.full(6, np.nan, np.float32)
    run(function, {}, {"a": a, "y": y})
    np.testing.assert_array_equal(y, a[:, :turns].sum(1) + a.sum(1))


def test_what_an_iteration_writes_cannot_run_ahead() -> None:
    text = LOOPS.replace("STAGES", "2").replace("TURNS", "5").replace("s[i] = a[k, i]", "s[i] = y[0]")
    with pytest.raises(Unfit, match="copies nothing that could run ahead"):
        staged(parse(text))
