"""Axes of open sizes that lie one after the other are one axis, as long as their product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

import tensorlang as tl
from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.graph.merged_axes import merged_axes
from tensorlang.graph.sizes import Symbols, laid_out
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.storage import stored_as
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.verify import verify
from tensorlang.tensor.walk import caller_shape, tensor_table

POINTWISE = "op f(x: f32[N, 8, H, W]) -> (y: f32[N, 8, H, W]) { y[n, c, h, w] = max(x[n, c, h, w], 0) }"
SAMPLES = {"N": 2, "H": 5, "W": 7}


def program(text: str) -> Program:
    [name] = ops = tl.parse(text)
    return ops[name].symbolic_program({})


def merged(given: Program, layouts: Mapping[str, Layout] | None = None) -> tuple[Program, Mapping[str, Layout], Symbols]:
    """Return a program with axes merged, the layouts of its tensors, and the symbols that it has then; nothing is assumed of these."""
    symbols = Symbols(dict(SAMPLES))
    made, moved = merged_axes(given, layouts or {}, symbols)
    assert not symbols.assumed
    return verify(made), moved, symbols


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (POINTWISE, ["8*H*N*W"]),
        ("op f(x: f32[N, 8, H, W]) -> (y: f32[8, N, H, W]) { y[c, n, h, w] = x[n, c, h, w] }", ["8", "N", "H*W"]),
        ("op f(x: f32[N, H, W]) -> (y: f32[N]) { y[n] = sum(h, w) x[n, h, w] }", ["N"]),
        ("op f(x: f32[N, H, W]) -> (y: f32[N, W, H]) { y[n, w, h] = x[n, h, w] }", ["N", "W", "H"]),
        ("op f(x: f32[N, 8, 4, W]) -> (y: f32[8, N, 4, W]) { y[c, n, h, w] = x[n, c, h, w] }", ["8", "N", "4", "W"]),
        ("op f(x: f32[N, N]) -> (y: f32[N - 1, N]) where N >= 1 { y[i, j] = x[i + 1, j] }", ["N - 1", "N"]),
    ],
    ids=["pointwise", "some", "terms", "transposed", "left to a schedule", "a difference"],
)
def test_axes_merge_whose_extents_have_a_symbol_for_their_product(text: str, expected: list[str]) -> None:
    given = program(text)
    made, _, symbols = merged(given)
    assert [str(symbols.size(n)) for n in tensor_table(made)["y"].shape] == expected
    sizes = symbols.with_products(SAMPLES)
    x = np.random.default_rng(1).standard_normal(caller_shape(given.params[0], sizes)).astype(np.float32)
    same_memory = x.reshape(caller_shape(made.params[0], sizes))
    before, after = interpret(given, SAMPLES, {"x": x})["y"], interpret(made, sizes, {"x": same_memory})["y"]
    assert after.tobytes() == before.tobytes()


def test_a_guard_that_always_holds_keeps_no_axes_apart() -> None:
    given = program(POINTWISE)
    [definition] = given.definitions
    [piece] = definition.pieces
    guard = affine.compare("<", Name(definition.axes[2]), Name("H"))
    guarded = replace(given, definitions=(replace(definition, pieces=(replace(piece, guard=guard),)),))
    assert merged(guarded)[0] == merged(given)[0]


def test_blocks_of_channels_keep_channels_and_merge_points() -> None:
    given = program(POINTWISE)
    symbols = Symbols(dict(SAMPLES))
    n, h, w = (symbols.symbol(name) for name in SAMPLES)
    dims = (Name("a0"), affine.floor(Name("a1"), 4), Name("a2"), Name("a3"), affine.mod(Name("a1"), 4))
    blocked = laid_out(Layout(("a0", "a1", "a2", "a3"), dims, (n, 2, h, w, 4)))  # type: ignore[arg-type]
    made, layouts, _ = merged(given, {"x": blocked, "y": blocked})
    assert [len(layout.dims) for layout in layouts.values()] == [4, 4]
    assert stored_as(made, layouts).keys() == {"x", "y"}
    weights = replace(blocked, dims=blocked.dims[::-1], shape=blocked.shape[::-1])
    assert merged(given, {"x": weights, "y": blocked})[:2] == (given, {"x": weights, "y": blocked})
