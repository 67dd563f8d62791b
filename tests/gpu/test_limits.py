"""What a kernel asks for beyond what its target has is told before anything is compiled, launched or run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tensorlang as tl
from codegen.cuda.arch import named
from codegen.dtypes import DTYPES
from codegen.gpu.limits import Excess, Usage, exceeded, exceeded_at, exceeded_by, resident_blocks
from codegen.gpu.program import Kernel, Launch, Program
from codegen.loops.nodes import Add, FloorDiv, Index, Int, Var
from tensorlang.backends.gpu.limits import limits_of
from tensorlang.backends.gpu.vendor import Board
from tensorlang.runtime.work import Work, work_of

SM_80, SM_86, SM_90 = (named(f"cuda:{name}").limits for name in ("sm_80", "sm_86", "sm_90"))
FINE = Kernel("k", "", ("x", "y"), ("N",), (256, 1, 1), 16 * 1024)


def program(kernel: Kernel, grid: tuple[Index, Index, Index] = (Int(1), Int(1), Int(1))) -> Program:
    return Program("p", kernel.buffers, kernel.sizes, (kernel,), (Launch(kernel.name, grid),))


def test_a_kernel_within_all_limits_exceeds_none() -> None:
    assert exceeded(program(FINE), SM_80) == ()


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (replace(FINE, block=(2048, 1, 1)), ["2048 threads along x; the limit is 1024", "2048 threads per block; the limit is 1024"]),
        (replace(FINE, block=(8, 1, 128)), ["128 threads along z; the limit is 64"]),
        (replace(FINE, block=(64, 32, 1)), ["2048 threads per block; the limit is 1024"]),
        (replace(FINE, shared_bytes=164 * 1024), ["167936 bytes of shared memory; the limit is 166912"]),
        (replace(FINE, buffers=tuple(map(str, range(600)))), ["4808 bytes of arguments; the limit is 4096"]),
        (replace(FINE, block=(1024, 1, 1), min_blocks=3), ["3072 threads on a multiprocessor; the limit is 2048"]),
        (
            replace(FINE, shared_bytes=96 * 1024, min_blocks=2),
            ["198656 bytes of shared memory on a multiprocessor; the limit is 167936"],
        ),
    ],
)
def test_what_a_kernel_wants_too_much_of_is_told_with_the_limit(kernel: Kernel, found: list[str]) -> None:
    assert [str(e) for e in exceeded(program(kernel), SM_80)] == [f"`k` needs {text}" for text in found]


def test_a_larger_device_has_room_for_what_a_smaller_one_has_not() -> None:
    large = program(replace(FINE, shared_bytes=160 * 1024))
    assert exceeded(large, SM_90) == exceeded(large, SM_80) == ()
    assert exceeded(large, SM_86) == (Excess("k", "bytes of shared memory", 160 * 1024, 99 * 1024),)


def test_grids_are_checked_when_sizes_are_known() -> None:
    rows = FloorDiv(Add(Var("N"), Int(63)), Int(64))
    tall = program(FINE, (Int(1), rows, Int(1)))
    assert exceeded_at(tall, SM_80, {"N": 65535 * 64}) == ()
    assert exceeded_at(tall, SM_80, {"N": 65535 * 64 + 1}) == (Excess("k", "blocks along y", 65536, 65535),)
    assert exceeded_at(program(FINE, (rows, Int(1), Int(1))), SM_80, {"N": 2**31 * 64})[0].limit == 2**31 - 1


def test_registers_that_a_block_cannot_have_are_told_after_compiling() -> None:
    wide = replace(FINE, block=(1024, 1, 1))
    assert exceeded_by(wide, Usage(64), SM_80) == ()
    assert exceeded_by(wide, Usage(65), SM_80) == (Excess("k", "registers per block", 32 * 2304, 65536),)


def test_shared_memory_asked_for_at_the_launch_counts_after_compiling_too() -> None:
    large = replace(FINE, shared_bytes=160 * 1024)
    assert exceeded_by(large, Usage(32, shared_bytes=4096), SM_80) == (Excess("k", "bytes of shared memory", 164 * 1024, 163 * 1024),)


@pytest.mark.parametrize(
    ("kernel", "usage", "blocks"),
    [
        (FINE, Usage(32), 8),  # 2048 threads
        (replace(FINE, block=(32, 1, 1)), Usage(16), 32),  # 32 blocks
        (FINE, Usage(64), 4),  # 65536 registers
        (FINE, Usage(65), 3),  # rounded up to 72
        (FINE, Usage(16, shared_bytes=40 * 1024), 4),  # 164 KiB, a KiB more for each
        (replace(FINE, shared_bytes=96 * 1024), Usage(32), 1),
        (replace(FINE, block=(1024, 1, 1)), Usage(96), 0),
    ],
)
def test_the_scarcest_resource_says_how_many_blocks_run_at_a_time(kernel: Kernel, usage: Usage, blocks: int) -> None:
    assert resident_blocks(kernel, usage, SM_80) == blocks


# ---------------------------------------------------------------- what explain says


BOARD = Board("board", 1e12, 2e12, 1e11)


@pytest.mark.parametrize(
    ("kernel", "usage", "found"),
    [
        (FINE, Usage(registers=32), []),
        (FINE, Usage(registers=255), ["registers"]),
        (replace(FINE, shared_bytes=100 * 1024), Usage(registers=32, shared_bytes=100 * 1024), ["shared memory"]),
        (replace(FINE, block=(16, 1, 1)), Usage(registers=32), ["blocks"]),
    ],
)
def test_few_resident_threads_are_told_with_what_is_scarce(kernel: Kernel, usage: Usage, found: list[str]) -> None:
    roofline, *others = limits_of(program(kernel), Work(10, 50, 50), {"k": usage}, SM_80, BOARD)
    assert str(roofline) == "bound by memory: at best 0.0 us on board (10 operations, 100 bytes)"
    assert [limit.kind for limit in others] == ["occupancy"] * len(found)
    assert all(f"for want of {scarce}; try " in str(limit) for scarce, limit in zip(found, others, strict=True))


@pytest.mark.parametrize(
    ("dtype", "factor", "result", "rate"),
    [
        ("f32", "{}", "f32", 1e12),
        ("bf16", "f32({})", "f32", 2e12),
        ("f16", "f32({})", "f32", 2e12),
        ("i8", "i32({})", "i32", 4e12),
        ("f32", "round_tf32({})", "f32", 1e12),
    ],
)
def test_products_are_bounded_by_what_units_for_matrices_take_of_their_elements(dtype: str, factor: str, result: str, rate: float) -> None:
    a, b = factor.format("a[i, k]"), factor.format("b[k, j]")
    text = f"op f(a: {dtype}[M, K], b: {dtype}[K, N]) -> (y: {result}[M, N]) {{ y[i, j] = sum(k) {a} * {b} }}"
    work = work_of(tl.parse(text).f.program(*(np.zeros((512, 512), DTYPES[dtype].numpy) for _ in range(2))))
    assert work.flops == 2 * 512**3
    assert BOARD.seconds(work) == pytest.approx(2 * 512**3 / rate) and BOARD.seconds(work + work) == pytest.approx(4 * 512**3 / rate)


def test_spills_are_told_with_the_bytes_that_each_thread_moves() -> None:
    _, spills, *_ = limits_of(program(FINE), Work(1, 1, 1), {"k": Usage(255, 8, 16)}, SM_80, None)
    assert (spills.kind, spills.reason) == ("spills", "`k`: 255 registers are not enough: each thread moves 24 bytes to memory and back")


def test_without_a_known_board_or_machine_code_the_work_alone_is_told() -> None:
    [only] = limits_of(program(FINE), Work(10, 50, 50), {}, SM_80, None)
    assert str(only) == "10 operations, 100 bytes; no board is known to bound them by"
