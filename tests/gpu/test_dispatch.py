"""Launches over sizes become launches with numbers: grids, scratch memory, arguments in the order that kernels take them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen.dtypes import bf16, f32
from codegen.errors import InternalError
from codegen.gpu.dispatch import Dispatch, dispatches, scratch_layout
from codegen.gpu.program import Kernel, Launch, Program, Scratch
from codegen.loops.nodes import Add, FloorDiv, Index, Int, Mul, Var

N, M = Var("N"), Var("M")
FIRST = Kernel("first", "", ("x", "partial"), ("N",), (256, 1, 1), shared_bytes=1024)
SECOND = Kernel("second", "", ("partial", "y"), ("N", "M"), (32, 4, 1), shared_bytes=64 * 1024, checks=True)


def ceildiv(e: Index, n: int) -> Index:
    return FloorDiv(Add(e, Int(n - 1)), Int(n))


SUM = Program(
    "sum",
    ("x", "y"),
    ("N", "M"),
    (FIRST, SECOND),
    (Launch("first", (ceildiv(N, 256), M, Int(1))), Launch("second", (M, Int(1), Int(1)))),
    (Scratch("partial", f32, Mul(N, M)), Scratch("half", bf16, N)),
)


def test_grids_scratch_and_arguments_are_numbers() -> None:
    assert dispatches(SUM, {"N": 1000, "M": 3}, {"x": 0x1000, "y": 0x2000}, scratch=0x8000, status=0x40) == (
        Dispatch("first", (4, 3, 1), (256, 1, 1), 0, (0x1000, 0x8000, 1000)),
        Dispatch("second", (3, 1, 1), (32, 4, 1), 65536, (0x8000, 0x2000, 1000, 3, 0x40)),
    )


def test_scratch_buffers_lie_apart_and_aligned() -> None:
    layout = scratch_layout(SUM, {"N": 5, "M": 13})
    assert layout.offsets == {"partial": 0, "half": 512}  # 260 bytes take 512
    assert layout.size_bytes == 768


def test_a_launch_without_blocks_is_left_out() -> None:
    assert [d.kernel for d in dispatches(SUM, {"N": 0, "M": 3}, {"x": 1, "y": 2}, 3, 4)] == ["second"]
    assert dispatches(SUM, {"N": 0, "M": 0}, {"x": 1, "y": 2}, 3, 4) == ()


def test_what_a_kernel_takes_has_to_be_given() -> None:
    with pytest.raises(InternalError, match="`second` takes `y`"):
        dispatches(SUM, {"N": 1, "M": 1}, {"x": 1}, 2, 3)
    with pytest.raises(InternalError, match="`second` checks its data, and there is no status word"):
        dispatches(SUM, {"N": 1, "M": 1}, {"x": 1, "y": 1}, 2)
    with pytest.raises(InternalError, match="`K` is not a size"):
        dispatches(replace(SUM, launches=(Launch("first", (Var("K"), Int(1), Int(1))),)), {"N": 1, "M": 1}, {"x": 1, "y": 1})
