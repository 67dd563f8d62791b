"""What is normalised and needed later as a second result of one kernel."""

from __future__ import annotations

import numpy as np
import pytest
from small_graphs import Array, binary, graph, kernel, matmul, run, softmax, unary
from test_algebra import random

from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.passes.fusion.live_out import live_out
from tensorlang.graph.passes.memory.alias_operands import alias_operands
from tensorlang.graph.verify import verify


def residual(first: str = "+", last: int = 6) -> Graph:
    """Return `t = x + r; y = softmax(t); u = t + y`."""
    nodes = [
        kernel(binary(first, 4, 6), "x r", "t"),
        kernel(softmax(4, last), "t", "y"),
        kernel(binary("+", 4, 6), "t y", "u"),
    ]
    return graph({"x": (4, 6), "r": (4, 6)}, nodes, ["u"])


def names(g: Graph) -> list[tuple[str, ...]]:
    return [node.outputs for node in g.nodes if isinstance(node, Kernel)]


def test_a_sum_that_is_normalised_and_needed_later_is_a_second_result() -> None:
    g = residual()
    made = verify(live_out(g))
    assert names(made) == [("t", "y"), ("u",)]
    feeds: dict[str, Array] = {"x": random(4, 6), "r": random(4, 6, seed=1)}
    np.testing.assert_array_equal(run(made, feeds)["u"], run(g, feeds)["u"])


def test_a_sum_that_the_model_returns_is_one_too() -> None:
    g = graph({"x": (4, 6), "r": (4, 6)}, [kernel(binary("*", 4, 6), "x r", "t"), kernel(softmax(4, 6), "t", "y")], ["y", "t"])
    assert names(verify(live_out(g))) == [("t", "y")]


@pytest.mark.parametrize(
    "nodes",
    [
        [kernel(binary("+", 4, 6), "x r", "t"), kernel(softmax(4, 6), "t", "y")],
        [kernel(unary("exp", 4, 6), "x", "t"), kernel(softmax(4, 6), "t", "y"), kernel(binary("+", 4, 6), "t r", "u")],
        [kernel(binary("+", 4, 6), "x r", "t"), kernel(matmul(4, 6, 6), "t w", "y"), kernel(binary("+", 4, 6), "t y", "u")],
        [kernel(binary("+", 4, 6), "x r", "t"), kernel(binary("+", 4, 6), "t x", "u"), kernel(softmax(4, 6), "t", "y")],
    ],
    ids=["read once", "takes long", "no rows", "needed before"],
)
def test_everything_else_stays_as_it_is(nodes: list[Kernel]) -> None:
    made = {v for n in nodes for v in n.outputs}
    g = graph({"x": (4, 6), "r": (4, 6), "w": (6, 6)}, nodes, sorted(made & {"u", "y"}))
    assert live_out(g).nodes == g.nodes


def test_an_operand_of_a_product_that_is_read_again_is_two_params_of_one_value() -> None:
    g = fuse(graph({"x": (6, 6), "w": (6, 6)}, [kernel(matmul(6, 6, 6), "x w", "t"), kernel(binary("+", 6, 6), "t x", "y")], ["y"]))
    made = verify(alias_operands(g))
    [node] = made.nodes
    assert isinstance(node, Kernel) and sorted(node.inputs) == ["w", "x", "x"]
    feeds: dict[str, Array] = {"x": random(6, 6), "w": random(6, 6, seed=1)}
    np.testing.assert_array_equal(run(made, feeds)["y"], run(g, feeds)["y"])
    assert alias_operands(made).nodes == made.nodes
