"""Graphs as text: what is printed, and that it reads back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden_case import GOLDEN
from small_graphs import add_row, graph, kernel, matmul, softmax, unary
from test_fuse import grouped_conv

from polyhedral.expr import Add, Floor, Int, Mod, Name
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Graph, Join, Kernel, Part, Value, View
from tensorlang.graph.parser import parse
from tensorlang.graph.passes.fusion.fuse import fuse
from tensorlang.graph.printer import show
from tensorlang.schedule.layout import Layout


def example() -> Graph:
    c = Name("d1")
    layout = Layout(("d0", "d1"), (Floor(c, 2), Add(Name("d0"), Int(1)), Mod(c, 2)), (3, 6, 2))
    nodes = [
        Kernel(
            'odd "name"\n%s',
            matmul(2, 5, 3),
            ("x", "w"),
            ("t",),
            "MatMul",
            (("axis", 1), ("pads", (1, 2)), ("eps", 1e-5), ("mode", "a{b}")),
            ("m", "n"),
        ),
        kernel(add_row(2, 5), "t b", "u"),
        kernel(softmax(2, 5), "u", "p"),
        View("v", "p", "y", ("reshape",)),
        kernel(unary("relu", 2, 5), "p", "z"),
        kernel(unary("relu", 2, 5), "t", "q"),
        Join("j", ("p", "q"), "s", ("side by side",)),
        Part("half", "s", "h", 40, ("sample",)),
    ]
    g = graph(
        {"x": (2, 3), "w": (3, 5), "b": (5,)}, [n for n in nodes if isinstance(n, Kernel)], ["z", "y", "q"], {"b": np.ones(5, np.float32)}
    )
    values = g.values | {
        "y": Value("y", g.values["p"].dtype, (10,)),
        "s": Value("s", g.values["p"].dtype, (4, 5)),
        "h": Value("h", g.values["p"].dtype, (2, 5)),
        "u": Value("u", g.values["u"].dtype, (2, 5), layout),
    }
    return Graph("net", ("x", "w"), ("z", "y", "q"), values, g.constants, tuple(nodes))


def same(a: Graph, b: Graph) -> None:
    assert (a.name, a.inputs, a.outputs, a.values) == (b.name, b.inputs, b.outputs, b.values)
    for mine, theirs in zip(a.nodes, b.nodes, strict=True):
        assert mine == theirs


@pytest.mark.parametrize("make", [example, lambda: fuse(example())], ids=["as imported", "fused"])
def test_what_is_printed_reads_back(make: Any) -> None:
    g = make()
    same(parse(show(g), g.constants), g)


def test_a_program_with_groups_of_axes_reads_back() -> None:
    program = grouped_conv(2, 3, 5, 2, 4)
    base = graph({"x": (2, 15, 4), "w": (6, 5), "t": (2, 6, 4)}, [], [])
    g = Graph("g", ("x", "w"), ("t",), base.values, {}, (kernel(program, "x w", "t"),))
    same(parse(show(g), {}), g)


def test_the_text_of_a_graph(golden: Any) -> None:
    golden(GOLDEN / "graph.txt", show(example()))


def test_a_constant_that_is_another_one_is_refused() -> None:
    g = example()
    with pytest.raises(CompileError, match="is not the one"):
        parse(show(g), {"b": np.zeros(5, np.float32)})
    with pytest.raises(CompileError, match="is not given"):
        parse(show(g), {})


@pytest.mark.parametrize("line", ["kernel x", "valu", 'value "x": f33[1]', 'view "a" "b"'])
def test_a_line_that_is_no_part_of_a_graph_is_refused(line: str) -> None:
    with pytest.raises(CompileError, match="O0002"):
        parse(f'graph "g"\ninputs\noutputs\n{line}\n', {})
