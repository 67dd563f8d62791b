"""Views move behind pointwise kernels; what is computed stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_graphs import add_row, at, binary, graph, kernel, matmul, single, tensor, unary
from test_algebra import random, run, settle

from codegen.dtypes import f32
from polyhedral.expr import Int, Name
from tensorlang.graph.nodes import Graph, Kernel, View
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.passes.fusion.sink_views import sink_views
from tensorlang.graph.verify import verify
from tensorlang.tensor.nodes import Binary, Cast, IndexValue, Tensor


def kernels(g: Graph) -> list[str]:
    return [n.program.name for n in g.nodes if isinstance(n, Kernel)]


def test_an_activation_and_a_residual_behind_a_view_join_the_product() -> None:
    nodes = [
        kernel(matmul(6, 4, 3), "x w", "t"),
        View("->2x3x4", "t", "v"),
        kernel(unary("erf", 2, 3, 4), "v", "e"),
        kernel(binary("*", 2, 3, 4), "v e", "m"),
        kernel(binary("+", 2, 3, 4), "m r", "y"),
    ]
    shapes = {"x": (6, 3), "w": (3, 4), "r": (2, 3, 4)}
    g = graph(shapes, nodes, ["y"])
    done = verify(fuse(settle(verify(sink_views(g)))))
    assert kernels(done) == ["matmul_erf_mul_add"]
    feeds = {name: random(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    np.testing.assert_allclose(run(done, feeds)["y"], run(g, feeds)["y"], rtol=1e-5, atol=1e-6)


def test_what_is_added_along_axes_that_both_shapes_have_joins_the_product() -> None:
    added = Binary("+", Binary("+", at("a", "i", "j", "k"), at("b", "k")), at("c", "i", "k"))
    bias = single("bias", [tensor("a", 1, 6, 4), tensor("b", 4), tensor("c", 1, 4)], tensor("y", 1, 6, 4), "ijk", added)
    nodes = [kernel(matmul(6, 4, 3), "x w", "t"), View("->1x6x4", "t", "v"), kernel(bias, "v b c", "y")]
    shapes = {"x": (6, 3), "w": (3, 4), "b": (4,), "c": (1, 4)}
    g = graph(shapes, nodes, ["y"])
    done = verify(fuse(settle(verify(sink_views(g)))))
    assert kernels(done) == ["matmul_bias"]
    feeds = {name: random(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    np.testing.assert_allclose(run(done, feeds)["y"], run(g, feeds)["y"], rtol=1e-5, atol=1e-6)


def test_a_kernel_that_reads_along_a_dimension_of_its_own_stays_behind_the_view() -> None:
    nodes = [kernel(matmul(6, 4, 3), "x w", "t"), View("->12x2", "t", "v"), kernel(add_row(12, 2), "v b", "y")]
    g = graph({"x": (6, 3), "w": (3, 4), "b": (2,)}, nodes, ["y"])
    assert sink_views(g).nodes == g.nodes


def test_a_kernel_that_computes_with_positions_stays_behind_the_view() -> None:
    numbered = single(
        "numbered", [tensor("x", 12, 2)], tensor("y", 12, 2), "ij", Binary("*", at("x", "i", "j"), Cast(f32, IndexValue(Name("i"))))
    )
    nodes = [kernel(matmul(6, 4, 3), "x w", "t"), View("->12x2", "t", "v"), kernel(numbered, "v", "y")]
    g = graph({"x": (6, 3), "w": (3, 4)}, nodes, ["y"])
    assert sink_views(g).nodes == g.nodes


GROUPED = (0, 2, 1)
"""Of a tensor whose caller sees 1x6x4 where a program has 2x3x4."""


def test_a_kernel_whose_axes_are_parts_of_dimensions_moves_where_it_reads_in_place() -> None:
    box = [replace(tensor(name, 2, 3, 4), grouping=GROUPED) for name in "aby"]
    added = single("add", box[:2], box[2], "ijk", Binary("+", at("a", *"ijk"), at("b", *"ijk")))
    nodes = [kernel(matmul(4, 6, 3), "x w", "t"), View("->1x6x4", "t", "v"), kernel(added, "v r", "y")]
    g = graph({"x": (4, 3), "w": (3, 6), "r": (1, 6, 4)}, nodes, ["y"])
    g = replace(g, values={**g.values, "y": replace(g.values["y"], shape=(1, 6, 4))})
    assert [n.program.params[0].shape for n in verify(sink_views(g)).nodes if isinstance(n, Kernel)] == [(Int(4), Int(3)), (Int(4), Int(6))]


@pytest.mark.parametrize(
    ("grouping", "bias", "index"),
    [(GROUPED, tensor("b", 3), "j"), ((), replace(tensor("b", 2, 3), grouping=(2,)), "ij")],
    ids=["result", "bias"],
)
def test_a_kernel_that_reads_along_parts_of_dimensions_stays_behind_the_view(grouping: tuple[int, ...], bias: Tensor, index: str) -> None:
    box = [replace(tensor(name, 2, 3, 4), grouping=grouping) for name in "ay"]
    added = single("add", [box[0], bias], box[1], "ijk", Binary("+", at("a", *"ijk"), at("b", *index)))
    seen = (1, 6, 4) if grouping else (2, 3, 4)
    nodes = [kernel(matmul(6, 4, 3), "x w", "t"), View("->" + "x".join(map(str, seen)), "t", "v"), kernel(added, "v b", "y")]
    g = graph({"x": (6, 3), "w": (3, 4), "b": (6,) if bias.grouping else (3,)}, nodes, ["y"])
    g = replace(g, values={**g.values, "y": replace(g.values["y"], shape=seen)})
    assert verify(sink_views(g)).nodes == g.nodes


def test_a_view_of_an_input_stays() -> None:
    nodes = [View("->4", "x", "v"), kernel(unary("relu", 4), "v", "y")]
    g = graph({"x": (2, 2)}, nodes, ["y"])
    assert sink_views(g).nodes == g.nodes
