"""Kernels with one planted mistake each are caught, and the report says what is wrong.

A mistake in synchronisation or in an address is reported whatever order the threads take: it is looked for on every seed. A mistake that
is only a wrong number has no report; then the result differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from handwritten import ELEMENTWISE, MATMUL, NARROW, ONE, PIPELINE, ROW_SUM, SOFTMAX, TRANSPOSE, TWO_PASSES, WARP_PRODUCTS, WARP_SCAN, Case

from codegen.gpu.emulator import SEEDS, EmulatorError, Library, build, run
from codegen.gpu.program import Kernel, Launch, Program
from codegen.loops.nodes import FloorDiv, Int, Var

BARRIER = "    tl_barrier();\n"
LOADED = "        tl_barrier();\n        TL_UNROLL"
USED = "        tl_barrier();\n    }"


FILLED = MATMUL.kernel().text[MATMUL.kernel().text.index("        x_s[ty") :].partition("TL_UNROLL")[0] + "TL_UNROLL"


@dataclass(frozen=True)
class Mistake:
    """`old` in a kernel's text became `new`. `report` is a part of what is said about it, or empty when only the result is wrong."""

    what: str
    case: Case
    old: str
    new: str
    report: str

    @property
    def label(self) -> str:
        return f"{self.case.name}: {self.what}"


MISTAKES = (
    # ---- barriers
    Mistake("no barrier before a tile is read", MATMUL, LOADED, "        TL_UNROLL", "shared|race"),
    Mistake("no barrier before a tile is refilled", MATMUL, USED, "    }", "race: .* shared"),
    Mistake(
        "the barrier moved before the tile is filled",
        MATMUL,
        FILLED,
        "        tl_barrier();\n" + FILLED[: -len(LOADED)] + LOADED[22:],
        "nobody has written|race",
    ),
    Mistake(
        "a barrier that some threads pass by",
        MATMUL,
        LOADED,
        "        if (i < N) tl_barrier();\n        TL_UNROLL",
        "tl_barrier of line|race|nobody has written",
    ),
    Mistake("a barrier that a warp passes by", ROW_SUM, "    tl_barrier()", "    if (tl_warp() < 3) tl_barrier()", "leave|left"),
    Mistake("threads outside leave before a barrier", MATMUL, "    tl_f32 sum", "    if (j >= N) return;\n    tl_f32 sum", "leave|left"),
    Mistake(
        "two barriers where one is shared",
        MATMUL,
        LOADED,
        "        if (tx < 8) tl_barrier(); else\n        tl_barrier();\n        TL_UNROLL",
        "comes to tl_barrier of line .* while others wait in tl_barrier of line",
    ),
    Mistake("no barrier before a tile is read", TRANSPOSE, BARRIER, "", "nobody has written|race"),
    Mistake("only warps wait for the tile", TRANSPOSE, "tl_barrier()", "tl_warp_barrier()", "nobody has written|race"),
    Mistake("no barrier before a tile is read", NARROW, BARRIER, "", "nobody has written|race"),
    Mistake("no barrier before partial sums are read", ROW_SUM, BARRIER, "", "nobody has written|race"),
    Mistake("no barrier before partial maxima are read", SOFTMAX, "    tl_barrier();\n    most", "    most", "nobody has written|race"),
    Mistake("no barrier before partial results are replaced", SOFTMAX, "    tl_barrier();\n    if", "    if", "race: .* shared part_s"),
    Mistake("no barrier before partial sums are read", SOFTMAX, "    tl_barrier();\n    sum", "    sum", "race: .* shared part_s"),
    Mistake("no barrier of the warp after writing", WARP_SCAN, "    tl_warp_barrier();\n    for", "    for", "nobody has written|race"),
    Mistake(
        "no barrier of the warp after reading", WARP_SCAN, "        tl_warp_barrier();\n        x_s", "        x_s", "race: .* shared x_s"
    ),
    Mistake("one warp barrier for two warps", WARP_SCAN, "x_s[t ^ step]", "x_s[63 - t]", "nobody has written|race"),
    Mistake(
        "one lane waits elsewhere",
        WARP_SCAN,
        "    tl_warp_barrier()",
        "    if (t % 32 == 5) tl_barrier(); else tl_warp_barrier()",
        "deadlock: 62 threads wait in tl_warp_barrier of line 8, 2 in tl_barrier of line 8,",
    ),
    # ---- asynchronous copies
    Mistake("the wait lets one copy too many pass", PIPELINE, "TL_COPY_WAIT(1)", "TL_COPY_WAIT(2)", "copy into it is under way"),
    Mistake("no wait", PIPELINE, "        TL_COPY_WAIT(1);\n", "", "copy into it is under way"),
    Mistake(
        "no barrier after the wait",
        PIPELINE,
        "TL_COPY_WAIT(1);\n        tl_barrier();",
        "TL_COPY_WAIT(1);",
        "race|under way|nobody has written",
    ),
    Mistake("no barrier before the stage is refilled", PIPELINE, "        tl_barrier();\n    }", "    }", "race|under way"),
    Mistake("the stage in use is refilled", PIPELINE, "(1 - stage) * 128", "stage * 128", "under way|race"),
    Mistake("the copies of a tile are not committed", PIPELINE, "        tl_copy_commit();\n", "", "under way"),
    Mistake("the last copies are not waited for", PIPELINE, "if (k + 1 < T)", "if (k < T)", "under way that it has not waited for"),
    Mistake("copies of twelve bytes' distance", PIPELINE, "x_s + 4 * t, x", "x_s + 3 * t, x", "misaligned"),
    Mistake("a copy without predicate", PIPELINE, ", next < N)", ", true)", "out of bounds: reads x"),
    # ---- addresses
    Mistake("a swizzle on one side only", TRANSPOSE, "(tx ^ r)", "tx", ""),
    Mistake("a swizzle that is no permutation", TRANSPOSE, "(tx ^ r)", "(tx | r)", "race|nobody has written"),
    Mistake("a swizzle that leaves the tile", TRANSPOSE, "(tx ^ r)", "(tx + r)", "race|out of bounds|nobody has written"),
    Mistake("rows one short", TRANSPOSE, "tile_s[r * 32", "tile_s[r * 31", "race|nobody has written"),
    Mistake("a tail that is not cut off", ELEMENTWISE, "i + 4 <= N", "i < N", "out of bounds: reads x"),
    Mistake("a tail that ends one late", ELEMENTWISE, "j < N", "j <= N", "out of bounds: reads x"),
    Mistake("a tail that ends one early", ELEMENTWISE, "j < N", "j < N - 1", ""),
    Mistake("vectors at odd places", ELEMENTWISE, "tl_i64 i = 4 *", "tl_i64 i = 1 + 4 *", "misaligned|out of bounds"),
    Mistake(
        "a predicate on the wrong axis",
        TRANSPOSE,
        "i0 + r < M && j0 + tx < N",
        "j0 + r < M && i0 + tx < N",
        "out of bounds|nobody has written",
    ),
    Mistake("a store one row too far", MATMUL, "if (i < N && j < N) y", "if (i <= N && j < N) y", "out of bounds: writes y"),
    Mistake("a load one element before", MATMUL, "x[i * N + k + tx]", "x[i * N + k + tx - 1]", ""),
    Mistake("an array beyond the arena", MATMUL, "arena, 1024, 256", "arena, 1028, 256", "out of bounds: shared w_s"),
    Mistake("more shared memory than the launch has", MATMUL, "arena, 2048", "arena, 4096", "declares 4096 bytes"),
    Mistake("a step of shared memory too far", MATMUL, "r < 16", "r < 17", "out of bounds: reads shared"),
    Mistake("an index of a local array too far", ELEMENTWISE, "j < 4", "j < 5", "out of bounds: index 4 of an array in line"),
    Mistake(
        "an index that overflows",
        ELEMENTWISE,
        "(tl_i64)tl_block_x() * 64 +",
        "(tl_block_x() + 2147483647) +",
        "overflow: an integer in line",
    ),
    # ---- collectives
    Mistake("a shuffle that only some lanes reach", ROW_SUM, "if (tl_warp() == 0)", "if (tl_warp() == 0 && tl_lane() < 4)", "leave|left"),
    Mistake("a shuffle with a mask too large", ROW_SUM, "mask, 4)", "mask, 2)", "a mask of 2 leaves the 2 lanes"),
    Mistake("a shuffle with a mask too small", ROW_SUM, "int mask = 16", "int mask = 8", ""),
    Mistake("a warp that leaves out its last step", ROW_SUM, "int mask = 16; mask > 0", "int mask = 16; mask > 1", ""),
    Mistake("every lane writes the partial sum", ROW_SUM, "if (tl_lane() == 0) part_s", "part_s", "race: writes shared part_s"),
    # ---- products of warps
    Mistake("no barrier before matrices are loaded", WARP_PRODUCTS, BARRIER, "", "nobody has written|race"),
    Mistake("no barrier before matrices are replaced", WARP_PRODUCTS, "        tl_barrier();\n    }", "    }", "race: .* shared"),
    Mistake(
        "rows at odd addresses",
        WARP_PRODUCTS,
        "lane % 16) * 24 +",
        "lane % 16) * 20 +",
        "misaligned: reads 16 bytes of shared x_s|nobody has written",
    ),
    Mistake(
        "a row too far", WARP_PRODUCTS, "(lane % 16 * 24", "((lane % 16 + 1) * 24", "out of bounds: reads shared w_s|nobody has written"
    ),
    Mistake("rows of global memory", WARP_PRODUCTS, "(a, x_s + ", "(a, x + ", "tl_ldmatrix_x4 of line 22: reads memory that is not shared"),
    Mistake(
        "lanes that load no rows", WARP_PRODUCTS, "        tl_ldmatrix_x4(a", "        if (lane < 16) tl_ldmatrix_x4(a", "comes to tl_"
    ),
    Mistake(
        "a product that one warp leaves out by halves",
        WARP_PRODUCTS,
        "        tl_mma_m16n8k16_bf16(d[1]",
        "        if (lane < 16 || warp) tl_mma_m16n8k16_bf16(d[1]",
        "tl_mma_m16n8k16_bf16 of line",
    ),
    Mistake("rows that are not transposed", WARP_PRODUCTS, "tl_ldmatrix_x4_trans", "tl_ldmatrix_x4", ""),
    Mistake("sums stored where they are not", WARP_PRODUCTS, "lane % 4 * 2 + r % 2", "lane % 4 + r % 2 * 4", ""),
    # ---- between blocks and launches
    Mistake("every block writes the same element", TWO_PASSES, "part[tl_block_x()]", "part[0]", "race|nobody has written"),
    Mistake(
        "a partial sum that is left out",
        TWO_PASSES,
        "if (tl_thread_x() == 0)",
        "if (tl_thread_x() == 0 && tl_block_x())",
        "reads part.0., which nobody has written",
    ),
)


def mutants() -> Iterator[tuple[Mistake, Case]]:
    for n, m in enumerate(MISTAKES):
        yield m, m.case.changed(f"m{n}", m.old, m.new)


MUTANTS = tuple(mutants())


@pytest.fixture(scope="module")
def library() -> Library:
    kernels = [k for _, case in MUTANTS for k in case.program.kernels]
    return build({k.name: k for k in (*kernels, *(c.kernel() for c in (ELEMENTWISE, MATMUL)))}.values())


@pytest.mark.parametrize(("mistake", "case"), MUTANTS, ids=[m.label for m in MISTAKES])
def test_a_planted_mistake_is_caught_on_every_seed(mistake: Mistake, case: Case, library: Library) -> None:
    sizes = case.sizes[-1]
    for seed in SEEDS:
        if not mistake.report:
            assert not survives(case, library, sizes, seed), f"seed {seed}"
            continue
        with pytest.raises(EmulatorError, match=mistake.report):
            case.is_right(library, sizes, seed)


@pytest.mark.parametrize("case", [ELEMENTWISE, MATMUL], ids=lambda c: c.name)
def test_a_grid_that_is_rounded_down_leaves_elements_unset(case: Case, library: Library) -> None:
    tile = 256 if case is ELEMENTWISE else 16
    small = FloorDiv(Var("N"), Int(tile))
    grid = (small, ONE, ONE) if case is ELEMENTWISE else (small, small, ONE)
    assert not case.with_grid(*grid).is_right(library, case.sizes[-1], seed=0)


RAW = Kernel(
    "raw",
    """
TL_KERNEL(32, 0) raw(const tl_f32* TL_RESTRICT x, tl_f32* TL_RESTRICT y, tl_i64 N, tl_i64 shift) {
    tl_i64 i = tl_thread_x();
    if (i < N) y[i + shift] = x[i];
    if (N == 32) tl_load_f32x2(x + 1);
}
""",
    ("x", "y"),
    ("N", "shift"),
    (32, 1, 1),
)


@pytest.mark.parametrize(
    ("count", "shift", "report"),
    [
        (31, 1, "out of bounds: writes byte 0 after the end of y"),
        (31, -2, "out of bounds: writes 8 bytes before the start of y"),
        (32, 0, "misaligned: reads 8 bytes at an address that is no multiple of 8"),
    ],
)
def test_plain_pointers_are_watched_where_they_can_be(count: int, shift: int, report: str) -> None:
    program = Program("p", RAW.buffers, RAW.sizes, (RAW,), (Launch("raw", (ONE, ONE, ONE)),))
    x, y = np.zeros(count, np.float32), np.zeros(count, np.float32)
    with pytest.raises(EmulatorError, match=report):
        run(program, {"N": count, "shift": shift}, {"x": x, "y": y})
    assert not y.any()  # an argument is only written by a run that ends well


def test_a_report_names_kernel_block_and_thread(library: Library) -> None:
    _, case = next((m, c) for m, c in MUTANTS if m.what == "a store one row too far")
    with pytest.raises(EmulatorError) as caught:
        case.is_right(library, {"N": 20}, seed=0)
    assert str(caught.value) == (
        f"kernel `{case.kernel().name}`, block (0, 1, 0), thread (0, 4, 0): out of bounds: writes y[400], which has 400 elements"
    )
    assert (caught.value.block, caught.value.thread) == ((0, 1, 0), (0, 4, 0))


def survives(case: Case, library: Library, sizes: dict[str, int], seed: int) -> bool:
    try:
        return case.is_right(library, sizes, seed)
    except EmulatorError:
        return False
