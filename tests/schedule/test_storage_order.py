"""Layouts that permute dimensions become the order of axes: elements lie where they did, and axes that are neighbours in memory merge."""

from __future__ import annotations

import numpy as np
import pytest

from codegen.cuda.arch import named
from codegen.dtypes import from_numpy
from polyhedral import affine
from polyhedral.expr import Name
from stdlib.library import roles
from tensorlang.backends.cuda.machine import like
from tensorlang.backends.gpu.build import device_kernel
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import Source
from tensorlang.graph.relayout import to_layout
from tensorlang.planning import Rules
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.storage_order import in_storage_order
from tensorlang.syntax.parse import parse
from tensorlang.tensor.flatten import flatten
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import tensor_table

CONV = """
op conv(x: bf16[N, C, H, W], w: bf16[O, C], b: f32[O], r: f32[N, O, H, W]) -> (y: f32[N, O, H, W]) {
    s[n, o, h, w0] = sum(c) f32(x[n, c, h, w0]) * f32(w[o, c])
    y[n, o, h, w0] = max(s[n, o, h, w0] + b[o] + r[n, o, h, w0], 0.0)
}
"""
SHAPES = {"x": (2, 64, 5, 8), "w": (72, 64), "b": (72,), "r": (2, 72, 5, 8)}


def last(shape: tuple[int, ...]) -> Layout:
    """Return the layout with channels last."""
    n, c, h, w = shape
    return Layout(("n", "c", "h", "w"), tuple(map(Name, "nhwc")), (n, h, w, c))


LAST = {"x": last(SHAPES["x"]), "r": last(SHAPES["r"]), "y": last(SHAPES["r"])}


def program() -> Program:
    dtypes = {"x": "bfloat16", "w": "bfloat16", "b": "float32", "r": "float32"}
    arguments = [ArgType(from_numpy(np.dtype(dtypes[name])), shape) for name, shape in SHAPES.items()]
    return instantiate(load_module(parse(Source("conv.tl", CONV))), "conv", arguments, {}, {})


def arrays() -> dict[str, np.ndarray]:
    types = {p.name: p.dtype.numpy for p in program().params}
    return {name: np.random.default_rng(k).standard_normal(s).astype(types[name]) for k, (name, s) in enumerate(SHAPES.items())}


def test_the_elements_of_every_tensor_lie_where_the_layouts_put_them() -> None:
    permuted, left = in_storage_order(program(), LAST)
    assert left == {}
    assert {t.name: tuple(map(affine.constant, t.shape)) for t in permuted.params} == {
        **SHAPES,
        "x": LAST["x"].shape,
        "r": LAST["r"].shape,
    }
    given = arrays()
    stored = {name: to_layout(a, LAST[name]).reshape(LAST[name].shape) if name in LAST else a for name, a in given.items()}
    expected, found = interpret(program(), {}, given)["y"], interpret(permuted, {}, stored)["y"]
    np.testing.assert_array_equal(found, to_layout(expected, LAST["y"]).reshape(LAST["y"].shape))


def test_points_of_all_lines_and_samples_are_one_axis_then_in_tensors_between_too() -> None:
    merged = flatten(in_storage_order(program(), LAST)[0])
    assert {t.name: tuple(map(affine.constant, t.shape)) for t in tensor_table(merged).values()} == {
        "x": (80, 64),
        "w": (72, 64),
        "b": (72,),
        "r": (80, 72),
        "s": (80, 72),
        "y": (80, 72),
    }


@pytest.mark.parametrize(
    "other",
    [
        Layout(("n", "c", "h", "w"), (Name("n"), Name("h"), affine.add(Name("w"), 1), Name("c")), (2, 5, 10, 64)),
        Layout(
            ("n", "c", "h", "w"), (Name("n"), affine.floor(Name("c"), 8), Name("h"), Name("w"), affine.mod(Name("c"), 8)), (2, 8, 5, 8, 8)
        ),
    ],
    ids=["with room around", "in blocks of channels"],
)
def test_a_layout_that_does_more_than_permute_stays_one(other: Layout) -> None:
    permuted, left = in_storage_order(program(), {**LAST, "x": other})
    assert left == {"x": other}
    assert {tuple(map(affine.constant, p.shape)) for p in permuted.params} == {SHAPES["x"], SHAPES["w"], SHAPES["b"], LAST["r"].shape}


def test_a_program_whose_tensors_lie_row_major_stays_as_it_is() -> None:
    assert in_storage_order(program(), {}) == (program(), {})


def test_a_convolution_of_single_points_is_one_product_for_all_samples() -> None:
    machine = like(named("cuda:sm_90a"))
    made = device_kernel(program(), "conv", rules=Rules(roles()), layouts=LAST, machine=machine)
    assert "role warp_product" in made.origin and "fuse" not in made.schedule
