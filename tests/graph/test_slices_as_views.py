"""Parts: what is cut out of a value is read where it lies, where a value may begin there."""

from __future__ import annotations

import pytest
from small_graphs import at, graph, kernel, single, tensor, unary

from polyhedral.expr import Add, Int, Name
from tensorlang.graph.nodes import Part
from tensorlang.graph.passes.clean.cse import cse
from tensorlang.graph.passes.memory.slices_as_views import slices_as_views
from tensorlang.graph.verify import verify
from tensorlang.tensor.nodes import Program


def cut(columns: int, row: int) -> Program:
    read = at("x", Add(Name("i"), Int(row)), "j")
    return single("cut", [tensor("x", 3, columns)], tensor("y", 1, columns), "ij", read)


@pytest.mark.parametrize(("columns", "starts"), [(16, [64, 128]), (3, [])])
def test_rows_are_parts_where_they_are_aligned(columns: int, starts: list[int]) -> None:
    nodes = [
        kernel(unary("exp", 3, columns), "x", "m"),
        kernel(cut(columns, 1), "m", "a"),
        kernel(cut(columns, 2), "m", "b"),
        kernel(unary("exp", 1, columns), "a", "y"),
        kernel(unary("exp", 1, columns), "b", "z"),
    ]
    g = verify(slices_as_views(graph({"x": (3, columns)}, nodes, ["y", "z"])))
    assert [node.start for node in g.nodes if isinstance(node, Part)] == starts
    assert len(cse(g).nodes) == 5  # of one shape, and still not the same
