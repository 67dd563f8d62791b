"""Copies as boxes of tensors (TMA), in stages: in every order of threads and landings what the operator says, with every barrier and every
wait needed; and what is no box is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from batch import Made, difference, library
from batch import named as by_name
from executors import Executor
from test_matrix import OPERATOR, made, normal
from test_warpgroups import SCHEDULE as PRODUCTS
from test_warpgroups import without_barrier

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from codegen.loops.nodes import Barrier, Boxes, Function, Stmt, WaitBoxes
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.walk import map_stmt, walk
from tensorlang.backends.cuda.machine import machine_code
from tensorlang.diagnostics import CompileError
from tensorlang.lower.barriers import exposed

WARPGROUPS = PRODUCTS.replace("stages ko by 3", "stages ko by 3 with tma")
ROWS = "op rows(a: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * w[k, j] }"
PLAIN = """
schedule rows for cuda {
    tile y (i, j) by (16, 32) -> io, jo, ii, ji
    split k by 32 -> ko, ki
    order io, jo, ko, ii, ji, ki
    cache a in shared at ko as [i, k]
    cache w in shared at ko as [k, j]
    stages ko by 2 with tma
    bind io, jo to block.y, block.x
    bind ii, ji to thread.y, thread.x
}
"""
F32 = np.float32
CASES = {
    "products of four warps": ("matmul", OPERATOR + WARPGROUPS, (normal(256, 192), normal(128, 192))),
    "edges": ("matmul", OPERATOR + WARPGROUPS, (normal(150, 456), normal(198, 456))),
    "fewer iterations than stages": ("matmul", OPERATOR + WARPGROUPS, (normal(64, 128), normal(128, 128))),
    "threads that read boxes": ("rows", ROWS + PLAIN, (normal(40, 100, dtype=F32), normal(100, 72, dtype=F32))),
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Made]:
    return {name: made(text, f"boxes_{k}", *arrays, operator=op) for k, (name, (op, text, arrays)) in enumerate(CASES.items())}


def test_boxes_bring_what_the_operator_reads_in_every_order(cases, executor: Executor):
    compiled_ = library(cases.values(), executor)
    for name, each in cases.items():
        arrays = by_name(each.program, CASES[name][2])
        assert (name, difference(each, arrays, {}, compiled_, close=1e-2)) == (name, "")


def test_no_barrier_and_no_wait_around_boxes_can_be_left_out(cases):
    for name, each in cases.items():
        function = each.lowered.function
        assert any(isinstance(n, Boxes) for n in walk(*function.body))
        barriers = sum(isinstance(n, Barrier) for n in walk(*function.body))
        for k in range(barriers):
            assert exposed(without_barrier(function, k)) is not None, f"{name}, barrier {k}"
        assert exposed(without_waits(function)) is not None


def without_waits(function: Function) -> Function:
    def stmt(s: Stmt) -> Stmt:
        new = map_stmt(s, lambda i: i, lambda e: e, stmt)
        body = getattr(new, "body", None)
        return replace(new, body=tuple(s for s in body if not isinstance(s, WaitBoxes))) if body else new

    return replace(function, body=tuple(stmt(s) for s in function.body))


def test_one_thread_asks_for_each_box_and_nobody_copies(cases):
    for name in ("products of four warps", "threads that read boxes"):
        each = cases[name]
        made_ = compiled(source(each.kernels), named("cuda:sm_90a"))
        (usage,), (found,) = made_.usage.values(), opcodes(made_.cubin).values()
        assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (0, 0, 0)
        assert count(found, "UTMALDG.2D") > 0
        assert count(found, "LDGSTS") == count(found, "STS") == count(found, "LDG") == 0
        (kernel,) = each.kernels.kernels
        assert [m.buffer for m in kernel.maps] == list(each.kernels.params[:2])
        assert kernel.buffers == ("y",)


def test_the_loops_are_what_their_text_says(cases):
    for each in cases.values():
        assert parse(show(each.lowered.function)) == each.lowered.function


BOTH = ROWS + PLAIN
ARRAYS = normal(40, 100, dtype=F32), normal(100, 72, dtype=F32)


@pytest.mark.parametrize(
    ("text", "arrays", "why"),
    [
        (BOTH, (normal(40, 101, dtype=F32), normal(101, 72, dtype=F32)), "`a` has rows of 404 bytes, no multiple of 16"),
        (BOTH.replace("as [k, j]", "as [j, k]"), ARRAYS, "axes of `w` come in another order"),
        (BOTH.replace("[k, j]\n", "[k, j] with pad (4)\n"), ARRAYS, "it does not fill the buffer"),
        (BOTH.replace("(16, 32)", "(16, 2)"), ARRAYS, "its rows have 8 bytes, and that is no multiple of 16"),
        (
            BOTH.replace("ko as [i, k]", "ko as [i, k] with swizzle (32)"),
            ARRAYS,
            "128 bytes, and columns are exchanged within 32",
        ),
        (BOTH.replace("2 with tma", "2 with wings"), ARRAYS, "copies are made `with tma`"),
        (BOTH.replace("2 with tma", "1 with tma"), ARRAYS, "one stage is no stage ahead"),
    ],
)
def test_what_is_no_box_is_refused(text, arrays, why):
    with pytest.raises(CompileError, match=why):
        made(text, "refused", *arrays, operator="rows")


@pytest.mark.parametrize(
    ("case", "target", "why"),
    [
        ("threads that read boxes", "cuda:sm_80", "copies boxes of tensors, which `cuda:sm_80` does not"),
        ("products of four warps", "cuda:sm_90", "by `m64n128k16_bf16`, which `cuda:sm_90` does not have"),
    ],
)
def test_devices_without_boxes_and_products_of_four_warps_are_told_apart(cases, case, target, why):
    with pytest.raises(CompileError, match=why):
        machine_code([cases[case].kernels], named(target), None, 1)
