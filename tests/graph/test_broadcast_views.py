"""What is repeated or transposed before attention is read where it lies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import run
from test_algebra import random

from codegen.dtypes import f32
from polyhedral import affine
from polyhedral.expr import Int, Mod, Name
from tensorlang.graph.nodes import Graph, Kernel, Value, View
from tensorlang.graph.passes.fusion.broadcast_views import _parts, without_moves
from tensorlang.graph.programs import single, tensor_of, transpose_program
from tensorlang.graph.verify import verify
from tensorlang.tensor.nodes import Binary, Const, Read


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), max_size=4), st.data())
def test_an_element_is_where_its_number_says(shape: list[int], data: st.DataObject) -> None:
    count = int(np.prod(shape))
    divisors = [n for n in range(1, count + 1) if count % n == 0]
    first = data.draw(st.sampled_from(divisors))
    seen = (first, count // first)
    parts = _parts((Name("a"), Name("b")), seen, tuple(shape))
    for number in range(count):
        at = dict(zip("ab", np.unravel_index(number, seen), strict=True))
        found = [affine.evaluate(part, {k: int(v) for k, v in at.items()}) for part in parts]
        assert tuple(found) == tuple(int(i) for i in np.unravel_index(number, shape))


def moved_before(kind: str) -> Graph:
    """Return `y = 2 * view(moved(x))`, of a value that is repeated, or transposed."""
    before = (2, 1, 3) if kind == "repeated" else (3, 2, 4)
    after, shape = ((2, 4, 3), (8, 3)) if kind == "repeated" else ((2, 3, 4), (6, 4))
    x, t, v = (Value(n, f32, s) for n, s in (("x", before), ("t", after), ("v", shape)))
    axes = ("i", "j", "k")
    repeat = single("tile", (tensor_of("x", x),), tensor_of("t", t), axes, Read("x", (Mod(Name("i"), 2), Int(0), Name("k"))))
    program = repeat if kind == "repeated" else transpose_program(f32, before, (1, 0, 2))
    doubled = Binary("*", Const(2.0, f32), Read("v", (Name("p"), Name("q"))))
    last = single("double", (tensor_of("v", v),), tensor_of("y", Value("y", f32, shape)), ("p", "q"), doubled)
    nodes = (Kernel("move", program, ("x",), ("t",)), View("see", "t", "v"), Kernel("last", last, ("v",), ("y",)))
    return Graph("g", ("x",), ("y",), {n.name: n for n in (x, t, v, Value("y", f32, shape))}, {}, nodes)


@pytest.mark.parametrize("kind", ["repeated", "transposed"])
def test_the_kernel_reads_what_was_moved(kind: str) -> None:
    g = verify(moved_before(kind))
    last = g.nodes[-1]
    assert isinstance(last, Kernel)
    found = without_moves(g, last)
    assert found.inputs == ("x",)
    done = verify(Graph(g.name, g.inputs, g.outputs, {n: g.values[n] for n in ("x", "y")}, {}, (found,)))
    feeds = {"x": random(*g.values["x"].shape)}
    np.testing.assert_array_equal(run(done, feeds)["y"], run(g, feeds)["y"])


def test_what_is_computed_before_stays() -> None:
    g = moved_before("repeated")
    first, last = g.nodes[0], g.nodes[-1]
    assert isinstance(first, Kernel) and isinstance(last, Kernel)
    value = first.program.definitions[0].pieces[0].value
    program = single("half", first.program.params, first.program.definitions[0].tensors[0], ("i", "j", "k"), Binary("+", value, value))
    other = Graph(g.name, g.inputs, g.outputs, g.values, {}, (Kernel("move", program, ("x",), ("t",)), *g.nodes[1:]))
    assert without_moves(other, last) is last
