"""Parts: what is cut out of a value is read where it lies, where a value may begin there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_graphs import at, graph, kernel, single, tensor, unary

from codegen.dtypes import f32
from polyhedral.expr import Add, Floor, Int, Mod, Name
from tensorlang.graph.nodes import Part
from tensorlang.graph.passes.clean.cse import cse
from tensorlang.graph.passes.memory.slices_as_views import slices_as_views
from tensorlang.graph.plan import planned
from tensorlang.graph.programs import copy_program
from tensorlang.graph.verify import verify
from tensorlang.schedule.layout import Layout
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


PIXEL = (1, 32, 1, 1)
BLOCKS = Layout(
    ("d0", "d1", "d2", "d3"), (Name("d0"), Floor(Name("d1"), 16), Name("d2"), Name("d3"), Mod(Name("d1"), 16)), (1, 2, 1, 1, 16)
)


@pytest.mark.parametrize(
    ("source", "returned", "kinds"),
    [("m", ["y"], ["Kernel", "Part", "Kernel"]), ("m", ["y", "m"], ["Kernel"] * 3), ("x", ["y", "m"], ["Kernel"] * 3)],
    ids=["of the arena", "returned", "given"],
)
def test_no_part_in_another_layout_lies_in_memory_of_the_caller(source: str, returned: list[str], kinds: list[str]) -> None:
    nodes = [
        kernel(unary("exp", *PIXEL), "x", "m"),
        kernel(copy_program(f32, PIXEL), source, "blocks"),  # the same bytes in the same order
        kernel(unary("exp", *PIXEL), "blocks", "y"),
    ]
    plain = graph({"x": PIXEL}, nodes, returned)
    g = verify(slices_as_views(replace(plain, values={**plain.values, "blocks": replace(plain.values["blocks"], layout=BLOCKS)})))
    assert [type(node).__name__ for node in g.nodes] == kinds
    planned(g)
