"""Boxes of tensors in the shapes that convolutions and products of many need: with padding around, every second element, axes in another
order, several boxes for one copy. In every order of threads what the operator says."""

from __future__ import annotations

import numpy as np
import pytest
from batch import Made, difference, library
from batch import named as by_name
from executors import Executor
from test_matrix import made, normal

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from codegen.loops.nodes import Alloc, Boxes, Int
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.walk import walk
from tensorlang.diagnostics import CompileError

WINDOWS = """
op conv(x: bf16[N, H, W, C], w: bf16[F, R, S, C], attr lo: int = 1, attr step: int = 1)
    -> (y: bf16[N, (H + 2*lo - R) // step + 1, (W + 2*lo - S) // step + 1, F]) {
    y[n, h, v, f] = bf16(sum(r, s, c) f32(x[n, step*h + r - lo, step*v + s - lo, c | 0]) * f32(w[f, r, s, c]))
}
schedule conv for cuda {
    split y.c by 32 -> co, ci
    cache x in shared at y.co with swizzle (64)
    cache w in shared at y.co as [y.r, y.s, y.f, y.ci] with swizzle (64)
    split y.h by 2 -> ho, hb
    split y.v by 16 -> io, ir
    split y.f by 16 -> jo, jb
    split y.jb by 8 -> jn, jr
    split y.ci by 16 -> cf, cr
    order y.n, y.jo, y.ho, y.io, y.co, y.hb, y.r, y.s, y.cf, y.jn, y.ir, y.jr, y.cr
    fuse y.n, y.jo -> g
    bind y.g, y.ho, y.io, y.hb to block.z, block.y, block.x, warp
    stages y.co by 2 with tma
    unroll y.r, y.s, y.cf, y.jn
    tensorize y.ir, y.jr, y.cr
}
"""
PIXELS = """
op pixels(x: f32[H, W, C], w: f32[F, C], attr first: int = 0) -> (y: f32[(H - first + 1) // 2, (W - first + 1) // 2, F]) {
    p[h, v, c] = x[2*h + first, 2*v + first, c]  for h in 0..(H - first + 1) // 2, v in 0..(W - first + 1) // 2, c in 0..C
    y[h, v, f] = sum(c) p[h, v, c] * w[f, c]
}
schedule pixels for cuda {
    split y.c by 8 -> co, ci
    split y.h by 2 -> ho, hi
    split y.v by 8 -> vo, vi
    order y.ho, y.vo, y.co, y.hi, y.vi, y.f, y.ci
    at p at y.co
    cache p in shared
    stages y.co by 2 with tma
    bind y.ho, y.vo, y.hi, y.vi to block.y, block.x, thread.y, thread.x
}
"""
MANY = """
op many(a: f32[B, M, H, K], b: f32[1, K, N]) -> (y: f32[B, H, M, N]) { y[n, h, i, j] = sum(k) a[n, i, h, k] * b[0, k, j] }
schedule many for cuda {
    tile y (i, j) by (16, 32) -> io, jo, ii, ji
    split ji by 16 -> jh, jl
    split k by 16 -> ko, ki
    order n, h, io, jo, ko, ii, jh, jl, ki
    cache a in shared at ko as [i, k]
    cache b in shared at ko as [jh, k, jl]
    stages ko by 3 with tma
    fuse n, h -> g
    bind g, io, jo, ii, jl to block.z, block.y, block.x, thread.y, thread.x
}
"""
F32 = np.float32
CASES = {
    "windows": ("conv", WINDOWS, {}, (normal(1, 5, 18, 64), normal(24, 3, 3, 64))),
    "windows without padding": ("conv", WINDOWS, {"lo": 0}, (normal(2, 4, 18, 48), normal(16, 3, 3, 48))),
    "windows at every second point": ("conv", WINDOWS, {"step": 2}, (normal(1, 7, 35, 40), normal(16, 3, 3, 40))),
    "every second point": ("pixels", PIXELS, {}, (normal(5, 18, 24, dtype=F32), normal(3, 24, dtype=F32))),
    "every second point after the first": ("pixels", PIXELS, {"first": 1}, (normal(6, 17, 20, dtype=F32), normal(3, 20, dtype=F32))),
    "axes in another order": ("many", MANY, {}, (normal(2, 20, 3, 36, dtype=F32), normal(1, 36, 40, dtype=F32))),
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Made]:
    return {
        name: made(text, f"shapes_{k}", *arrays, operator=op, **attrs) for k, (name, (op, text, attrs, arrays)) in enumerate(CASES.items())
    }


def test_boxes_of_every_shape_bring_what_the_operator_reads(cases, executor: Executor):
    compiled_ = library(cases.values(), executor)
    for name, each in cases.items():
        arrays = by_name(each.program, CASES[name][3])
        assert (name, difference(each, arrays, {}, compiled_, close=1e-2)) == (name, "")


def test_the_device_copies_all_of_it(cases):
    for each in cases.values():
        made_ = compiled(source(each.kernels), named("cuda:sm_90a"))
        (usage,), (found,) = made_.usage.values(), opcodes(made_.cubin).values()
        assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (0, 0, 0)
        assert any(name.startswith("UTMALDG") for name in found)
        assert count(found, "LDGSTS") == 0


def test_boxes_are_told_as_few_as_there_are(cases):
    def boxes(name: str) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        function = cases[name].lowered.function
        first = next(n for n in walk(*function.body) if isinstance(n, Boxes))
        return [(b.extents, b.order, b.steps) for b in first.boxes]

    assert boxes("windows") == [((1, 4, 18, 32), (), ()), ((16, 3, 3, 32), (1, 2, 0, 3), ())]
    assert boxes("every second point") == [((2, 8, 8), (), (2, 2, 1))]
    assert boxes("axes in another order") == [((1, 16, 1, 16), (), ()), ((1, 16, 16), (), ()), ((1, 16, 16), (), ())]


def test_rows_are_added_where_boxes_would_begin_between_patterns(cases):
    function = cases["windows at every second point"].lowered.function
    (copy,) = (n.buffer for n in walk(*function.body) if isinstance(n, Alloc) and n.buffer.name == "x_pack")
    assert copy.shape == (Int(2), Int(168), Int(32))  # 5 * 33 pixels of 64 bytes, in patterns of 512


SLICES = """
op part(x: f32[M, K], w: f32[F, K]) -> (y: f32[M, F]) {
    p[i, k] = if k < 20 then x[i, k] else 0.0
    y[i, f] = sum(k) p[i, k] * w[f, k]
}
schedule part for cuda {
    split y.k by 8 -> ko, ki
    split y.i by 32 -> io, ii
    order io, ko, ii, y.f, ki
    at p at y.ko
    cache p in shared
    stages y.ko by 2 with tma
    bind io, ii to block.x, thread.x
}
"""


def test_zeros_inside_of_the_tensor_are_no_box():
    with pytest.raises(CompileError, match="it has zeros elsewhere than outside of the tensor"):
        made(SLICES, "refused", normal(64, 24, dtype=F32), normal(3, 24, dtype=F32), operator="part")


def test_the_loops_are_what_their_text_says(cases):
    for each in cases.values():
        assert parse(show(each.lowered.function)) == each.lowered.function
