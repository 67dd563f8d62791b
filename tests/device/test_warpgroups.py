"""Products that four warps compute together from shared memory: in every order of threads what the operator says, with every barrier
needed, and the machine code's own instructions for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from batch import Made, difference, library
from batch import named as by_name
from executors import Executor
from test_matrix import OPERATOR, made, normal

from codegen.cuda.arch import named
from codegen.cuda.compile import compiled, source
from codegen.cuda.sass import count, opcodes
from codegen.loops.nodes import Barrier, Function, Stmt
from codegen.loops.parser import parse
from codegen.loops.printer import show
from codegen.loops.walk import map_stmt, walk
from tensorlang.diagnostics import CompileError
from tensorlang.lower.barriers import exposed

SCHEDULE = """
schedule matmul for cuda {
    split i by 128 -> io, ib
    split ib by 64 -> iw, mi
    split j by 128 -> jo, ni
    split k by 64 -> ko, kb
    split kb by 16 -> kf, ki
    order io, jo, ko, iw, kf, mi, ni, ki
    cache a in shared at ko as [i, k] with swizzle (128)
    cache b in shared at ko as [j, k] with swizzle (128)
    stages ko by 3
    bind io, jo, iw to block.y, block.x, warpgroup
    unroll kf
    tensorize mi, ni, ki with wgmma_bf16
}
"""
HALF = OPERATOR.replace("bf16", "f16")
COLUMNS_ACROSS = OPERATOR.replace("b: bf16[N, K]", "b: bf16[K, N]").replace("b[j, k]", "b[k, j]")
PANELS = SCHEDULE.replace("as [j, k]", "as [j // 64, k, j % 64]")
ROWS_IN_PANELS = PANELS.replace("as [i, k]", "as [i // 64, k, i % 64]")
NARROW = "j // 32, k, j % 32] with swizzle (64)"
BYTES = """
op matmul(a: i8[M, K], b: i8[N, K]) -> (y: i32[M, N]) { y[i, j] = sum(k) i32(a[i, k]) * i32(b[j, k]) }
"""
VARIANTS = {
    "in stages": (OPERATOR + SCHEDULE, (normal(256, 192), normal(128, 192))),
    "one group of warps, a step of the sum at a time": (
        OPERATOR
        + SCHEDULE.replace("split i by 128", "split i by 64").replace("    stages ko by 3\n", "").replace("split j by 128", "split j by 8"),
        (normal(128, 64), normal(16, 64)),
    ),
    "narrow rows": (
        HALF
        + SCHEDULE.replace("split k by 64", "split k by 32").replace("swizzle (128)", "swizzle (64)").replace("wgmma_bf16", "wgmma_f16"),
        (normal(128, 96, dtype=np.float16), normal(128, 96, dtype=np.float16)),
    ),
    "bytes": (
        BYTES
        + SCHEDULE.replace("split k by 64", "split k by 128").replace("split kb by 16", "split kb by 32").replace("wgmma_bf16", "wgmma_s8"),
        tuple(np.random.default_rng(n).integers(-128, 128, (n, 256)).astype(np.int8) for n in (128, 256)),
    ),
    "edges": (OPERATOR + SCHEDULE, (normal(150, 104), normal(198, 104))),
    "columns across the sum": (COLUMNS_ACROSS + PANELS, (normal(256, 192), normal(192, 256))),
    "both across the sum, at edges": (
        COLUMNS_ACROSS.replace("a: bf16[M, K]", "a: bf16[K, M]").replace("a[i, k]", "a[k, i]") + ROWS_IN_PANELS,
        (normal(104, 152), normal(104, 200)),
    ),
    "narrow panels": (
        COLUMNS_ACROSS + PANELS.replace("split j by 128", "split j by 96").replace("j // 64, k, j % 64] with swizzle (128)", NARROW),
        (normal(128, 64), normal(64, 192)),
    ),
}


@pytest.fixture(scope="module")
def variants() -> dict[str, Made]:
    return {name: made(text, f"warpgroup_{k}", *arrays) for k, (name, (text, arrays)) in enumerate(VARIANTS.items())}


def test_a_product_of_four_warps_is_that_of_the_operator_in_every_order_of_threads(variants, executor: Executor):
    compiled_ = library(variants.values(), executor)
    for name, each in variants.items():
        arrays = by_name(each.program, VARIANTS[name][1])
        assert (name, difference(each, arrays, {}, compiled_, close=1e-2)) == (name, "")


def test_no_barrier_around_products_of_four_warps_can_be_left_out(variants):
    for name, each in variants.items():
        function = each.lowered.function
        barriers = sum(isinstance(n, Barrier) for n in walk(*function.body))
        assert barriers > 0
        assert exposed(function) is None
        for k in range(barriers):
            assert exposed(without_barrier(function, k)) is not None, f"{name}, barrier {k}"


def without_barrier(function: Function, number: int) -> Function:
    seen = iter(range(1000))

    def stmt(s: Stmt) -> Stmt:
        new = map_stmt(s, lambda i: i, lambda e: e, stmt)
        body = getattr(new, "body", None)
        return replace(new, body=left(body)) if body else new

    def left(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(s for s in body if not isinstance(s, Barrier) or next(seen) != number)

    return replace(function, body=left(tuple(stmt(s) for s in function.body)))


def test_the_machine_code_multiplies_from_shared_memory_and_spills_nothing(variants):
    each = variants["in stages"]
    made_ = compiled(source(each.kernels), named("cuda:sm_90a"))
    (usage,), (found,) = made_.usage.values(), opcodes(made_.cubin).values()
    assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (0, 0, 0)
    assert count(found, "HGMMA.64x128x16.F32.BF16") % 4 == 0 < count(found, "HGMMA")
    assert count(found, "LDGSTS") > 0 == count(found, "LDSM")


OWN = """
instruction own(c: f32[64, 32], a: bf16[64, 16], b: bf16[32, 16]) -> (d: f32[64, 32]) for sm_90a
    where c[m, n] in warpgroup(32 * (m // 16) + 4 * (m % 8) + n % 8 // 2, n % 2 + 2 * (m % 16 // 8) + 4 * (n // 8)) {
    d[m, n] = c[m, n] + sum(k in 0..16) f32(a[m, k]) * f32(b[n, k])
}
"""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("32 * (m // 16) + 4 * (m % 8)", "32 * (m % 8 // 2) + 4 * (m % 2 + 2 * (m // 16))", "holds `c.*` as element"),
        ("sm_90a", "sm_90", "`m64n32k16_bf16` is an instruction of sm_90a, not of sm_90"),
        ("in warpgroup", "in warp", "cannot be shared|is element .* of thread"),
        (r"b: bf16[32, 16]", "b: bf16[32, 16]", ""),
    ],
)
def test_a_declaration_has_to_hold_the_sums_where_the_hardware_does(old, new, why):
    text = OPERATOR + SCHEDULE.replace("split j by 128", "split j by 32").replace("wgmma_bf16", "own") + OWN.replace(old, new)
    if not why:
        assert made(text, "own", *VARIANTS["in stages"][1]).kernels
        return
    with pytest.raises(CompileError, match=why):
        made(text, "refused", *VARIANTS["in stages"][1])


def test_the_loops_are_what_their_text_says(variants):
    for each in variants.values():
        assert parse(show(each.lowered.function)) == each.lowered.function


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("block.x, warpgroup", "block.x, warp", "`y_mi.*` is a part of an instruction of four warps, and `y_iw.*` is bound to warp"),
        (" with swizzle (128)", "", "lies in no rows of 32, 64 or 128 bytes"),
        ("as [j, k] with swizzle (128)", "as [k, j] with swizzle (128)", "lies in no rows"),
        (
            "    cache a in shared at ko as [i, k] with swizzle (128)\n",
            "",
            "`a` is multiplied by four warps from shared memory, and lies in no",
        ),
        ("split ib by 64", "split ib by 32", "`y.mi` has 32 iterations, the instruction 64"),
    ],
)
def test_products_that_the_hardware_cannot_read_are_refused(old, new, why):
    assert old in SCHEDULE
    with pytest.raises(CompileError, match=why):
        made(OPERATOR + SCHEDULE.replace(old, new), "refused", *VARIANTS["in stages"][1])
