"""Depthwise convolutions on blocks of channels: the library's schedule of windows, with a copy of the padded rows for a few points."""

from __future__ import annotations

import pytest
from schedule_trial import differs, small_arrays

from codegen.dtypes import f32
from polyhedral import affine
from polyhedral.expr import Expr, Name
from stdlib.library import library
from tensorlang.backends.cpu.driver import loops_of
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import Module, load_module
from tensorlang.diagnostics import Source
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import Chosen, search
from tensorlang.schedule.check import proven
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.storage import axis_names
from tensorlang.syntax.parse import parse
from tensorlang.tensor.nodes import Program

LANES = 16
MODULE = """
op depthwise(x: f32[N, C, H, W], w: f32[C, R, S], attr stride: int = 1)
        -> (y: f32[N, C, (H + stride - 1) // stride, (W + stride - 1) // stride]) {
    y[n, c, p, q] = sum(r, s) x[n, c, stride*p + r - R // 2, stride*q + s - S // 2 | 0] * w[c, r, s]
}
op plain(x: f32[N, C, H, W], w: f32[C, R, S]) -> (y: f32[N, C, H - R + 1, W - S + 1]) {
    y[n, c, p, q] = sum(r, s) x[n, c, p + r, q + s] * w[c, r, s]
}
"""


def module() -> Module:
    return load_module(parse(Source("mine.tl", MODULE)), [library()])


def blocks(program: Program, name: str, axis: int, shape: tuple[int, ...]) -> Storage:
    """Return the storage in blocks of sixteen along an axis, the place in a block last."""
    dims: list[Expr] = [Name(a) for a in axis_names(program, name)]
    extents: list[Expr] = [affine.to_expr(n) for n in shape]
    dims.append(affine.mod(dims[axis], LANES))
    extents.append(affine.to_expr(LANES))
    dims[axis], extents[axis] = affine.floor(dims[axis], LANES), affine.ceil_div(extents[axis], LANES)
    return Storage(tuple(dims), tuple(extents))


def shapes(channels: int, side: int, window: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (1, channels, side, side), (channels, window, window)


def scheduled(operator: str, channels: int, side: int, window: int, attrs: dict[str, object]) -> tuple[Program, dict[str, Storage], Chosen]:
    given, weights = shapes(channels, side, window)
    program = instantiate(module(), operator, [ArgType(f32, given), ArgType(f32, weights)], attrs)
    [result] = [t for d in program.definitions for t in d.tensors if t.name == "y"]
    made = tuple(affine.constant(e) or 0 for e in result.shape)
    layouts = {"x": blocks(program, "x", 1, given), "w": blocks(program, "w", 0, weights), "y": blocks(program, "y", 1, made)}
    found = search(module(), operator, program, attrs, "cpu", Machine(target="cpu", threads=2), layouts=layouts).chosen
    assert found is not None
    return program, layouts, found


@pytest.mark.parametrize(
    ("channels", "side", "window", "stride"), [(32, 14, 3, 1), (16, 7, 3, 1), (48, 9, 5, 1), (32, 15, 3, 2), (20, 6, 3, 1)]
)
def test_a_padded_window_runs_in_the_role_of_windows_and_computes_the_same(channels: int, side: int, window: int, stride: int) -> None:
    program, layouts, found = scheduled("depthwise", channels, side, window, {"stride": stride})
    assert "p.padded, rank(l) >= 1, rank(n) >= 1" in found.origin
    plan = proven(program, found.schedule, layouts)
    assert plan.depth["x.pack"] >= 1, "rows are copied inside the loop over them"
    assert not differs(program, loops_of(plan, "kernel"), {}, small_arrays(program, {}, 0), layouts, natively=True)


def test_a_window_without_padding_reads_its_input_where_it_is() -> None:
    program, layouts, found = scheduled("plain", 32, 14, 3, {})
    assert "p.padded" not in found.origin and "pack x" not in str(found.schedule)
    assert not differs(
        program, loops_of(proven(program, found.schedule, layouts), "kernel"), {}, small_arrays(program, {}, 0), layouts, natively=True
    )
