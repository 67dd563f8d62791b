"""Copies that run ahead: right in every order of threads and copies, and every barrier and wait of them needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from device_programs import assert_computed, called, normal
from executors import Executor
from usual_device import device_loops, device_text

from codegen.errors import Unfit
from codegen.gpu.pipeline import pipeline_copies
from codegen.loops import nodes as loops
from codegen.loops.parser import parse as parse_loops
from codegen.loops.printer import show
from codegen.loops.walk import walk
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.lower.barriers import Exposed, exposed
from tensorlang.schedule.check import proven
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program

OWN = load_module(
    parse(
        Source(
            "own.tl",
            """op product(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) {
    c[i, j] = sum(k) a[i, k] * b[k, j]
}

op half(a: f16[M, K], b: f16[K, N]) -> (c: f32[M, N]) {
    c[i, j] = sum(k) f32(a[i, k]) * f32(b[k, j])
}

op filtered(x: f32[C, H], w: f32[F, C, 3]) -> (y: f32[F, H]) {
    y[f, p] = sum(c, r in 0..3) (if 1 <= p + r and p + r <= H then x[c, p + r - 1] else 0.0) * w[f, c, r]
}
""",
        )
    )
)


def tiled(program: Program, stages: int, tile: int = 16) -> Schedule:
    """Return a schedule of a product with tiles of both operands copied in stages: a's across, b's as it lies."""
    return (
        Schedule(program.name, "cuda")
        .tile("c", ("i", "j"), (tile, tile), into=("io", "jo", "ii", "ji"))
        .split("k", 8, ("ko", "ki"))
        .order("io", "jo", "ko", "ii", "ji", "ki")
        .cache("a", "shared", ["k", "i"], at="ko", pad=4)
        .pack("b", ["k", "j"], at="ko")
        .stages("ko", by=stages)
        .bind("io", "jo", to=("block.y", "block.x"))
        .bind("ii", "ji", to=("thread.y", "thread.x"))
    )


def function_of(program: Program, schedule: Schedule) -> loops.Function:
    return device_loops(proven(program, schedule), "kernel").function


@pytest.mark.parametrize(("m", "k", "n"), [(32, 32, 32), (19, 21, 35), (16, 5, 16), (3, 9, 4)])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_products_with_copies_ahead_are_right_in_every_order(m, k, n, stages, executor: Executor):
    a, b = normal(m, k), normal(k, n)
    program = called("product", a, b, module=OWN)
    assert_computed(executor, program, tiled(program, stages), a, b)


def test_narrow_elements_that_do_not_lie_in_four_bytes_go_through_registers(executor: Executor):
    a, b = normal(20, 30, dtype=np.float16), normal(30, 17, dtype=np.float16)
    program = called("half", a, b, module=OWN)
    assert "tl_copy_async" not in device_text(device_loops(proven(program, tiled(program, 2)), "kernel")).text
    assert_computed(executor, program, tiled(program, 2), a, b)


def test_what_a_copy_pads_with_is_copied_as_zeros_by_the_device(executor: Executor):
    x, w = normal(20, 37), normal(18, 20, 3)
    program = called("filtered", x, w, module=OWN)
    schedule = (
        Schedule("filtered", "cuda")
        .tile("y", ("f", "p"), (16, 16), into=("fo", "po", "fi", "pi"))
        .split("c", 4, ("co", "ci"))
        .order("fo", "po", "co", "fi", "pi", "ci", "r")
        .pack("x", ["c", "a1"], at="co")
        .stages("co", by=3)
        .bind("fo", "po", to=("block.y", "block.x"))
        .bind("fi", "pi", to=("thread.y", "thread.x"))
    )
    assert "tl_copy_async_zfill_4" in device_text(device_loops(proven(program, schedule), "kernel")).text
    assert_computed(executor, program, schedule, x, w)


def test_rows_of_shared_copies_are_padded_and_sums_are_in_registers():
    program = called("product", normal(32, 32), normal(32, 32), module=OWN)
    function = function_of(program, tiled(program, 2).cache("c", "registers"))
    buffers = {s.buffer.name: s.buffer for s in walk(*function.body) if isinstance(s, loops.Alloc)}
    assert buffers["a_pack"].shape == (loops.Int(2), loops.Int(8), loops.Int(20))
    assert buffers["c_0_acc"].space == "registers"


def test_more_than_a_thread_can_keep_is_copied_element_by_element(executor: Executor):
    a, b = normal(32, 200), normal(200, 32)
    program = called("product", a, b, module=OWN)
    schedule = (
        Schedule("product", "cuda")
        .tile("c", ("i", "j"), (32, 32), into=("io", "jo", "ii", "ji"))
        .split("k", 100, ("ko", "ki"))
        .order("io", "jo", "ko", "ji", "ki", "ii")
        .pack("a", ["k", "i"], at="ko")
        .stages("ko", by=2)
        .bind("io", "jo", to=("block.y", "block.x"))
        .bind("ji", to="thread.x")
        .unroll("ii")
    )
    assert "tl_copy_async_4" in device_text(device_loops(proven(program, schedule), "kernel")).text
    assert_computed(executor, program, schedule, a, b, seeds=range(3))


def test_neighbours_are_copied_sixteen_bytes_at_a_time():
    program = called("product", normal(64, 64), normal(64, 64), module=OWN)
    text = device_text(device_loops(proven(program, tiled(program, 2, tile=32)), "kernel")).text
    assert "tl_copy_async_" in text and "TL_COPY_WAIT(0)" in text and text.count("tl_barrier()") == 1


# ---------------------------------------------------------------- barriers and waits


def edited(body: tuple[loops.Stmt, ...]) -> Iterator[tuple[loops.Stmt, tuple[loops.Stmt, ...]]]:
    """Yield each barrier and wait below `body` with a body that does without: less one barrier, or with a wait for less."""
    for k, s in enumerate(body):
        before, after = body[:k], body[k + 1 :]
        match s:
            case loops.Barrier():
                yield s, (*before, *after)
            case loops.Wait(pending):
                yield s, (*before, *after)
                yield s, (*before, loops.Wait(pending + 1), *after)
            case loops.For():
                yield from ((found, (*before, replace(s, body=new), *after)) for found, new in edited(s.body))
            case loops.If():
                yield from ((found, (*before, replace(s, then=new), *after)) for found, new in edited(s.then))
            case _:
                pass


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("sizes", [(32, 64, 32), (19, 37, 35)])
def test_no_barrier_can_be_left_out_and_no_wait_can_be_weaker(sizes, stages):
    m, k, n = sizes
    program = called("product", normal(m, k), normal(k, n), module=OWN)
    function = function_of(program, tiled(program, stages))
    weaker = list(edited(function.body))
    assert {type(s) for s, _ in weaker} == {loops.Barrier, loops.Wait}
    for _, body in weaker:
        found = exposed(replace(function, body=body))
        assert isinstance(found, Exposed) and found.memory in ("a_pack", "b_pack"), show(replace(function, body=body))


AHEAD = """func kernel(K)(x: f32[K, 4], out y: f32[K, 4]) {
    for one in 0 .. 1 block.x {
        alloc s: f32[2, 4] shared
        for t in 0 .. 4 thread 4 {
            s[0, t] = x[0, t] later
        }
        commit
        for k in 0 .. K {
            wait 0
            barrier
            if index(k + 1) < index(K) {
                for t in 0 .. 4 thread 4 {
                    s[(k + 1) % 2, t] = x[k + 1, t] later
                }
            }
            commit
            for t in 0 .. 4 thread 4 {
                y[k, t] = s[k % 2, READ]
            }
        }
    }
}
"""


def test_a_thread_that_reads_only_its_own_copies_needs_the_wait_and_no_barrier():
    text = AHEAD.replace("READ", "t").replace("            barrier\n", "")
    assert exposed(parse_loops(text)) is None
    found = exposed(parse_loops(text.replace("wait 0", "wait 1")))
    assert isinstance(found, Exposed) and found.threads[0] == found.threads[1]
    assert "while its copy is under way" in str(found)


def test_a_thread_that_reads_the_copies_of_others_needs_both():
    text = AHEAD.replace("READ", "3 - t")
    assert exposed(parse_loops(text)) is None
    for worse in (text.replace("            barrier\n", ""), text.replace("wait 0", "wait 1"), text.replace("            commit\n", "")):
        assert isinstance(exposed(parse_loops(worse)), Exposed)


def test_a_barrier_before_the_wait_is_too_early():
    text = AHEAD.replace("READ", "3 - t").replace("            wait 0\n            barrier\n", "            barrier\n            wait 0\n")
    found = exposed(parse_loops(text))
    assert isinstance(found, Exposed) and found.threads[0] != found.threads[1]


def test_stages_of_a_loop_that_copies_nothing_ahead_are_refused():
    text = """func kernel()(x: f32[8, 4], out y: f32[8, 4]) {
    for one in 0 .. 1 block.x {
        for k in 0 .. 8 serial (stages 2) {
            for t in 0 .. 4 thread 4 {
                y[k, t] = x[k, t]
            }
        }
    }
}
"""
    with pytest.raises(Unfit, match="not supported yet"):
        pipeline_copies(parse_loops(text))
