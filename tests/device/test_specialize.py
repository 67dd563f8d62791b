"""Boxes that a thread beside those of the block asks for (`specialize`), products that go on while the next begin, and what orders them: in
every order of threads what the operator says; a signal too early, too late, missing or with a wrong number is refuted by the proof and
found by the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from batch import Made, difference, library
from batch import named as by_name
from test_matrix import OPERATOR, made, normal

from codegen.loops.nodes import Barrier, Beside, Wait
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.walk import walk

SCHEDULE = """
schedule matmul for cuda {
    split i by 128 -> io, ib
    split ib by 64 -> iw, mi
    split j by 32 -> jo, ni
    split k by 64 -> ko, kb
    split kb by 16 -> kf, ki
    order io, jo, ko, iw, kf, mi, ni, ki
    cache a in shared at ko as [i, k] with swizzle (128)
    cache b in shared at ko as [j, k] with swizzle (128)
    stages ko by 3 with tma
    specialize ko with registers (40, 232)
    bind io, jo, iw to block.y, block.x, warpgroup
    unroll kf
    tensorize mi, ni, ki with wgmma_bf16
}
"""
ONE = SCHEDULE.replace("split i by 128", "split i by 64").replace("(40, 232)", "(24, 240)")
TURNS = SCHEDULE.replace("    unroll kf", "    persistent jo by 3\n    unroll kf")
ROWS = "op rows(a: f32[M, K], w: f32[K, N]) -> (y: f32[M, N]) { y[i, j] = sum(k) a[i, k] * w[k, j] }"
PLAIN = """
schedule rows for cuda {
    tile y (i, j) by (16, 32) -> io, jo, ii, ji
    split k by 32 -> ko, ki
    order io, jo, ko, ii, ji, ki
    cache a in shared at ko as [i, k]
    cache w in shared at ko as [k, j]
    stages ko by 2 with tma
    specialize ko
    bind io, jo to block.y, block.x
    bind ii, ji to thread.y, thread.x
}
"""
F32 = np.float32
CASES = {
    "two groups of warps": ("matmul", OPERATOR + SCHEDULE, (normal(256, 512), normal(64, 512))),
    "one group of warps": ("matmul", OPERATOR + ONE, (normal(64, 384), normal(64, 384))),
    "edges": ("matmul", OPERATOR + SCHEDULE, (normal(150, 456), normal(70, 456))),
    "fewer iterations than stages": ("matmul", OPERATOR + SCHEDULE, (normal(128, 128), normal(32, 128))),
    "blocks that take turns": ("matmul", OPERATOR + TURNS, (normal(300, 320), normal(90, 320))),
    "turns with fewer iterations than stages": ("matmul", OPERATOR + TURNS, (normal(256, 128), normal(160, 128))),
    "threads that read boxes": ("rows", ROWS + PLAIN, (normal(40, 100, dtype=F32), normal(100, 72, dtype=F32))),
    "turns of threads that ask themselves": (
        "matmul",
        OPERATOR + TURNS.replace("    specialize ko with registers (40, 232)\n", ""),
        (normal(300, 320), normal(90, 320)),
    ),
    "products under way beside copies": (
        "matmul",
        OPERATOR + SCHEDULE.replace(" with tma\n    specialize ko with registers (40, 232)", ""),
        (normal(150, 328), normal(70, 328)),
    ),
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Made]:
    return {name: made(text, f"beside_{k}", *arrays, operator=op) for k, (name, (op, text, arrays)) in enumerate(CASES.items())}


def test_what_a_thread_beside_the_others_brings_is_what_the_operator_reads_in_every_order(cases):
    compiled_ = library(cases.values())
    for name, each in cases.items():
        arrays = by_name(each.program, CASES[name][2])
        assert (name, difference(each, arrays, {}, compiled_, seeds=range(9), close=1e-2)) == (name, "")


def test_nobody_waits_for_the_whole_block_where_a_thread_stands_beside_it(cases):
    for name, each in cases.items():
        nodes = list(walk(*each.lowered.function.body))
        if any(isinstance(n, Beside) for n in nodes):
            assert not any(isinstance(n, Barrier) for n in nodes), name
    for name in ("two groups of warps", "products under way beside copies"):
        assert [n.pending for n in walk(*cases[name].lowered.function.body) if isinstance(n, Wait) and n.of == "products"] == [1, 0]


def test_the_loops_are_what_their_text_says(cases):
    for each in cases.values():
        assert parse(show(each.lowered.function)) == each.lowered.function
