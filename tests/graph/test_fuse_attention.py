"""Attention becomes one kernel, and only where nobody sees what lies between."""

from __future__ import annotations

import numpy as np
import pytest
from small_graphs import SUM, at, graph, kernel, matmul, single, softmax, tensor, unary
from test_algebra import random, run

from codegen.dtypes import f32
from polyhedral.expr import Int
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.passes.fusion.fuse_attention import fuse_attention
from tensorlang.graph.programs import transpose_program
from tensorlang.graph.verify import verify
from tensorlang.policy.cpu.derive import derive
from tensorlang.policy.machine import Machine
from tensorlang.schedule.check import proven
from tensorlang.tensor.nodes import Binary, Binder, Program, Reduce


def attention(rows: int = 20, keys: int = 12, outputs: tuple[str, ...] = ("y",), between: str = "softmax") -> Graph:
    middle: Program = softmax(rows, keys) if between == "softmax" else unary("relu", rows, keys)
    nodes: list[Node] = [
        kernel(transpose_program(f32, (keys, 8), (1, 0)), "k", "t"),
        kernel(matmul(rows, keys, 8), "q t", "s"),
        kernel(middle, "s", "p"),
        kernel(matmul(rows, 5, keys), "p v", "y"),
    ]
    return graph({"q": (rows, 8), "k": (keys, 8), "v": (keys, 5)}, nodes, list(outputs))


def kernels(g: Graph) -> list[tuple[str, ...]]:
    return [n.members for n in g.nodes if isinstance(n, Kernel)]


def test_a_product_of_a_softmax_of_a_product_is_one_kernel() -> None:
    g = attention()
    done = verify(fuse_attention(fuse(g)))
    assert kernels(done) == [("transpose t", "matmul s", "softmax p", "matmul y")]
    feeds = {"q": random(20, 8), "k": random(12, 8, seed=1), "v": random(12, 5, seed=2)}
    np.testing.assert_allclose(run(done, feeds)["y"], run(g, feeds)["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seen", ["s", "p"])
def test_scores_that_somebody_sees_are_stored(seen: str) -> None:
    assert len(kernels(fuse_attention(fuse(attention(outputs=("y", seen)))))) == 3


def test_a_few_rows_are_not_worth_a_block() -> None:
    assert len(kernels(fuse_attention(fuse(attention(rows=3))))) == 3


def test_products_without_a_softmax_between_stay_apart() -> None:
    assert len(kernels(fuse_attention(fuse(attention(between="relu"))))) == 2


def test_a_transpose_that_keeps_the_last_axis_joins_the_product_before_it() -> None:
    total = Reduce(SUM, (Binder("k", Int(0), Int(3)),), (Binary("*", at("a", "h", "i", "k"), at("b", "k", "j")),))
    batched = single("bmm", [tensor("a", 2, 6, 3), tensor("b", 3, 4)], tensor("y", 2, 6, 4), "hij", total)
    shapes = {"a": (2, 6, 3), "b": (3, 4)}
    moved = graph(shapes, [kernel(batched, "a b", "t"), kernel(transpose_program(f32, (2, 6, 4), (1, 0, 2)), "t", "y")], ["y"])
    done = verify(fuse(moved))
    [node] = done.nodes
    assert isinstance(node, Kernel)
    assert len(node.program.definitions) == 1
    feeds = {"a": random(2, 6, 3), "b": random(3, 4, seed=1)}
    np.testing.assert_allclose(run(done, feeds)["y"], run(moved, feeds)["y"], rtol=1e-5, atol=1e-6)
    across = graph(shapes, [kernel(batched, "a b", "t"), kernel(transpose_program(f32, (2, 6, 4), (0, 2, 1)), "t", "y")], ["y"])
    assert len(fuse(across).nodes) == 2


def test_one_kernel_of_attention_has_a_proven_schedule_even_when_derived() -> None:
    [node] = [n for n in fuse_attention(fuse(attention())).nodes if isinstance(n, Kernel)]
    assert node.program.definitions[0].tensors[0].shape == (Int(20), Int(12))
    proven(node.program, derive(node.program, Machine(target="cpu")))
