"""Graph passes, each on the smallest graph that shows it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_graphs import binary, graph, kernel, unary

from codegen.dtypes import f32
from polyhedral.expr import Expr, Floor, Name
from tensorlang.diagnostics import InternalError
from tensorlang.graph.nodes import Graph, Value, View
from tensorlang.graph.passes.clean.cse import cse
from tensorlang.graph.passes.clean.dce import dce
from tensorlang.graph.sizes import Symbols
from tensorlang.graph.verify import problems, verify
from tensorlang.schedule.layout import Layout


def test_dead_nodes_and_their_constants_go() -> None:
    nodes = [kernel(unary("exp", 4), "x", "a"), kernel(binary("+", 4), "a w", "dead"), kernel(unary("exp", 4), "a", "y")]
    g = verify(dce(graph({"x": (4,), "unused": (2,)}, nodes, ["y"], {"w": np.ones(4, np.float32)})))
    assert [n.name for n in g.nodes] == ["exp a", "exp y"]
    assert set(g.values) == {"x", "unused", "a", "y"}
    assert g.constants == {}


def test_equal_nodes_are_computed_once_through_chains() -> None:
    nodes = [
        kernel(unary("exp", 4), "x", "a"),
        kernel(unary("exp", 4), "x", "b"),
        kernel(unary("tanh", 4), "a", "c"),
        kernel(unary("tanh", 4), "b", "d"),
        kernel(binary("+", 4), "c d", "y"),
    ]
    g = verify(dce(cse(graph({"x": (4,)}, nodes, ["y"]))))
    assert [n.name for n in g.nodes] == ["exp a", "tanh c", "add y"]
    assert g.nodes[-1].inputs == ("c", "c")  # type: ignore[union-attr]


def test_what_reads_the_same_in_another_order_is_something_else() -> None:
    nodes = [kernel(binary("-", 4), "x z", "a"), kernel(binary("-", 4), "z x", "b"), kernel(binary("+", 4), "a b", "y")]
    assert len(cse(graph({"x": (4,), "z": (4,)}, nodes, ["y"])).nodes) == 3


def test_equal_constants_are_one_but_a_negative_zero_is_not_a_zero() -> None:
    arrays = {"p": np.zeros(4, np.float32), "q": np.zeros(4, np.float32), "n": -np.zeros(4, np.float32)}
    nodes = [kernel(binary("+", 4), "x p", "a"), kernel(binary("+", 4), "x q", "b"), kernel(binary("+", 4), "x n", "c")]
    nodes.append(kernel(binary("+", 4), "a b", "d"))
    nodes.append(kernel(binary("+", 4), "c d", "y"))
    g = verify(cse(graph({"x": (4,)}, nodes, ["y"], arrays)))
    assert set(g.constants) == {"p", "n"}
    assert [n.name for n in g.nodes] == ["add a", "add c", "add d", "add y"]


def test_a_merged_output_is_still_returned_under_its_name() -> None:
    nodes = [kernel(unary("exp", 4), "x", "a"), kernel(unary("exp", 4), "x", "b")]
    g = verify(cse(graph({"x": (4,)}, nodes, ["a", "b"])))
    assert g.outputs == ("a", "b")
    assert isinstance(g.nodes[-1], View)


def laid(g: Graph, dim: Expr, extent: int) -> Graph:
    """Return the graph with its value `a` in a block of one dimension."""
    return replace(g, values={**g.values, "a": replace(g.values["a"], layout=Layout(("i",), (dim,), (extent,)))})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: replace(g, outputs=("nothing",)), "`nothing` is never defined"),
        (lambda g: replace(g, nodes=g.nodes[::-1]), "before it is defined"),
        (lambda g: replace(g, nodes=(*g.nodes, g.nodes[0])), "2 nodes are called"),
        (lambda g: replace(g, nodes=(replace(g.nodes[0], inputs=("x", "x")), g.nodes[1])), "2 inputs for 1"),
        (lambda g: replace(g, values={**g.values, "a": replace(g.values["a"], shape=(5,))}), "binds output `a`"),
        (lambda g: laid(g, Floor(Name("i"), 2), 2), r"the layout of `a` loses elements: the elements \[0\] and \[1\] share one cell"),
        (lambda g: laid(g, Name("i"), 3), r"the layout of `a` loses elements: the element \[3\] lies outside its block"),
    ],
)
def test_a_broken_graph_is_refused_with_what_is_broken(change, message: str) -> None:  # type: ignore[no-untyped-def]
    g = graph({"x": (4,)}, [kernel(unary("exp", 4), "x", "a"), kernel(unary("tanh", 4), "a", "y")], ["y"])
    assert list(problems(g)) == []
    with pytest.raises(InternalError, match=message):
        verify(change(g))


def test_a_layout_keeps_elements_as_far_as_is_assumed_of_open_sizes() -> None:
    symbols = Symbols({"size.h": 8})
    h = symbols.symbol("size.h")
    rows, block = (h + 7) // 8, (h + 3) // 8
    value = Value("x", f32, (rows,), Layout(("i",), (Name("i"),), (block,)))  # type: ignore[arg-type]
    inner = Graph("g", (), (), {"x": value}, {}, (), symbols)
    assert [str(problem) for problem in problems(inner) if "lies outside its block where size.h = 1" in problem]
    assert rows == block
    assert not [problem for problem in problems(inner) if "outside" in problem]


def test_a_layout_keeps_as_many_elements_as_open_sizes_are_assumed_to_make() -> None:
    symbols = Symbols({"size.h": 4})
    count = symbols.symbol("size.h") * symbols.symbol("size.h")
    value = Value("x", f32, (count,), Layout(("i",), (Name("i"),), (16,)))
    inner = Graph("g", (), (), {"x": value}, {}, (), symbols)
    assert [str(problem) for problem in problems(inner) if "outside" in problem]
    assert count == 16
    assert not [problem for problem in problems(inner) if "outside" in problem]
