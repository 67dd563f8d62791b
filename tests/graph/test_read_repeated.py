"""What is repeated for a product is read where it lies: heads of keys that several heads of queries share."""

from __future__ import annotations

import numpy as np
import pytest
from small_graphs import SUM, at, run, tensor
from test_algebra import random

import tensorlang as tl
from codegen.dtypes import f32
from polyhedral.expr import Int
from tensorlang.graph.nodes import Graph, Kernel, Node, Value, View
from tensorlang.graph.passes.clean.dce import dce
from tensorlang.graph.passes.fusion.read_repeated import read_repeated
from tensorlang.graph.verify import verify
from tensorlang.tensor.nodes import Binary, Binder, Definition, Expr, Piece, Program, Read, Reduce, Tensor


def program(name: str, params: list[Tensor], result: Tensor, axes: str, value: Expr) -> Program:
    return Program(name, (), tuple(params), (result.name,), (Definition((result,), tuple(axes), (Piece(value),)),))


def scores(order: str, read: Read) -> Graph:
    """Return `s[h, i, j] = sum(c) q[h, i, c] * v[…]` of 6 heads, where v repeats each of three heads twice, one by one or all of them."""
    whole = (3, 2, 5, 4) if order == "each" else (2, 3, 5, 4)
    before = (3, 1, 5, 4) if order == "each" else (1, 3, 5, 4)
    source = at("x", "a", 0, "j", "c") if order == "each" else at("x", 0, "b", "j", "c")
    tile = program("tile", [tensor("x", *before)], tensor("t", *whole), "abjc", source)
    total = Reduce(SUM, (Binder("c", Int(0), Int(4)),), (Binary("*", at("q", "h", "i", "c"), read),))
    product = program("scores", [tensor("q", 6, 7, 4), tensor("v", 6, 5, 4)], tensor("s", 6, 7, 5), "hij", total)
    nodes = (Kernel("tile", tile, ("x",), ("t",)), View("see", "t", "v"), Kernel("scores", product, ("q", "v"), ("s",)))
    shapes = {"x": before, "t": whole, "v": (6, 5, 4), "q": (6, 7, 4), "s": (6, 7, 5)}
    return verify(Graph("g", ("x", "q"), ("s",), {n: Value(n, f32, shape) for n, shape in shapes.items()}, {}, nodes))


@pytest.mark.parametrize("order", ["each", "all"])
def test_a_product_reads_what_is_repeated(order: str) -> None:
    g = scores(order, at("v", "h", "j", "c"))
    found = verify(dce(read_repeated(g)))
    [kernel] = found.nodes
    assert isinstance(kernel, Kernel) and kernel.inputs == ("q", "x")
    assert [len(d.axes) for d in kernel.program.definitions] == [4]
    feeds = {name: random(*g.values[name].shape) for name in g.inputs}
    np.testing.assert_array_equal(run(found, feeds)["s"], run(g, feeds)["s"])


def test_one_of_the_repetitions_is_read_as_it_was() -> None:
    g = scores("each", at("v", 0, "j", "c"))
    assert read_repeated(g).nodes == g.nodes


ATTENTION = """
op attention(q: f32[6, 9, 4], k: f32[6, 5, 4], v: f32[6, 5, 3], b: f32[6, 9, 5]) -> (y: f32[9, 6, 3]) {
    s[h, i, j] = sum(c) q[h, i, c] * k[h, j, c]
    t[h, i, j] = s[h, i, j] + b[h, i, j]
    m[h, i]    = max(j) t[h, i, j]
    p[h, i, j] = exp(t[h, i, j] - m[h, i])
    y[i, h, c] = sum(j) p[h, i, j] * v[h, j, c]
}
"""


def attention(text: str, repeated: str) -> Graph:
    """Return attention of 6 heads, where each of three heads of the values `repeated` stands for two."""
    given = {"q": (6, 9, 4), "k": (6, 5, 4), "v": (6, 5, 3), "b": (6, 9, 5)}
    shapes: dict[str, tuple[int, ...]] = {**given, "y": (9, 6, 3)}
    nodes: list[Node] = []
    for name in repeated:
        shape = given[name][1:]
        tile = program("tile", [tensor("x", 3, 1, *shape)], tensor("t", 3, 2, *shape), "abjc", at("x", "a", 0, "j", "c"))
        shapes |= {f"{name}_x": (3, 1, *shape), f"{name}_t": (3, 2, *shape)}
        nodes += [Kernel(f"tile {name}", tile, (f"{name}_x",), (f"{name}_t",)), View(f"see {name}", f"{name}_t", name)]
    op = tl.parse(text).attention.symbolic_program({})
    nodes.append(Kernel("attention", op, tuple(given), ("y",)))
    values = {n: Value(n, f32, shape) for n, shape in shapes.items()}
    return verify(Graph("g", tuple(f"{n}_x" if n in repeated else n for n in given), ("y",), values, {}, tuple(nodes)))


@pytest.mark.parametrize("repeated", ["kv", "k", "v"])
def test_attention_reads_what_is_repeated_and_has_the_axis_of_heads_in_two_throughout(repeated: str) -> None:
    g = attention(ATTENTION, repeated)
    found = verify(dce(read_repeated(g)))
    [kernel] = found.nodes
    assert isinstance(kernel, Kernel) and kernel.inputs == g.inputs
    assert [len(d.axes) for d in kernel.program.definitions] == [4, 4, 3, 4, 4]
    feeds = {name: random(*g.values[name].shape) for name in g.inputs}
    np.testing.assert_array_equal(run(found, feeds)["y"], run(g, feeds)["y"])


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("b[h, i, j]\n", "b[h, i, j] + b[0, i, j]\n"),
        ("b[h, i, j]\n", "b[h, i, j] * f32(h)\n"),
        ("v[h, j, c]", "v[5 - h, j, c]"),
        ("p[h, i, j] * v", "p[5 - h, i, j] * v"),
    ],
)
def test_heads_that_are_counted_somewhere_stay_one_axis(written: str, instead: str) -> None:
    g = attention(ATTENTION.replace(written, instead), "k")
    assert read_repeated(g).nodes == g.nodes
