"""The layout pass: blocked chains, copies only at borders, constants laid out at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from small_graphs import at, binary, conv1x1, graph, kernel, tensor, unary

from codegen.dtypes import f32
from polyhedral.expr import Add, Compare, Floor, Int, Mod, Name
from tensorlang.graph.nodes import Graph, Kernel, View
from tensorlang.graph.parser import parse
from tensorlang.graph.passes.memory.layout import canonical, layout, layouts_of
from tensorlang.graph.programs import transpose_program
from tensorlang.graph.relayout import to_layout
from tensorlang.graph.verify import verify
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import Definition, Piece, Program

C = Name("c")
K4 = Add(Name("k"), Int(-4))


def blocked(n: int, c: int, p: int) -> Layout:
    return Layout(("n", "c", "p"), (Name("n"), Floor(C, 4), Name("p"), Mod(C, 4)), (n, -(-c // 4), p, 4))


def preferred_layouts(graph: Graph) -> Callable[[Kernel], Mapping[str, Layout]]:
    return lambda node: wish(graph, node)


def wish(graph: Graph, node: Kernel) -> Mapping[str, Layout]:
    """Convolutions want everything in blocks of four channels, and their weights transposed."""
    if node.operator != "conv":
        return {}
    x, y, w = (graph.values[v].shape for v in (node.inputs[0], node.outputs[0], node.inputs[1]))
    turned = Layout(("f", "c"), (Name("c"), Name("f")), w[::-1])
    return {"x": blocked(*x), "y": blocked(*y), "w": turned}


def names(g: Graph) -> list[str]:
    return [n.name for n in g.nodes]


def chain() -> Graph:
    arrays = {
        "w": np.arange(32, dtype=np.float32).reshape(4, 8),
        "v": np.ones((8, 4), np.float32),
        "b": np.ones(4, np.float32),
        "d": np.ones(8, np.float32),
    }
    nodes = [
        kernel(conv1x1(1, 8, 4, 6), "x w b", "t"),
        kernel(unary("relu", 1, 4, 6), "t", "u"),
        kernel(conv1x1(1, 4, 8, 6), "u v d", "s"),
        kernel(binary("+", 1, 8, 6), "s s", "y"),
    ]
    return graph({"x": (1, 8, 6)}, nodes, ["y"], arrays)


def test_a_chain_of_convolutions_stays_in_blocks_and_copies_stand_at_the_borders_alone() -> None:
    done = verify(layout(chain(), preferred_layouts))
    assert names(done) == ["lay out x laid out", "conv t", "relu u", "conv s", "add y"]
    assert done.values["u"].layout is not None
    assert done.values["u"].layout == done.values["t"].layout
    assert done.values["y"].layout is None


def test_constants_keep_their_elements_and_get_a_layout_of_their_own() -> None:
    done = layout(chain(), preferred_layouts)
    conv = next(n for n in done.nodes if n.name == "conv t")
    assert isinstance(conv, Kernel)
    weight = conv.inputs[1]
    np.testing.assert_array_equal(done.constants[weight], chain().constants["w"])
    wished = done.values[weight].layout
    assert wished is not None
    np.testing.assert_array_equal(to_layout(done.constants[weight], wished), chain().constants["w"].T)
    assert set(layouts_of(done, conv)) == {"x", "y", "w"}


def test_without_wishes_nothing_changes() -> None:
    g = chain()
    assert layout(g, lambda graph: lambda node: {}).nodes == g.nodes


def test_a_view_reads_row_major() -> None:
    nodes = [kernel(conv1x1(1, 8, 4, 6), "x w b", "t"), View("->24", "t", "f"), kernel(unary("relu", 24), "f", "y")]
    arrays = {"w": np.ones((4, 8), np.float32), "b": np.ones(4, np.float32)}
    done = verify(layout(graph({"x": (1, 8, 6)}, nodes, ["y"], arrays), preferred_layouts))
    assert names(done) == ["lay out x laid out", "conv t", "lay out t laid out", "->24", "relu y"]


def test_blocks_of_the_last_dimension_are_row_major_memory() -> None:
    last = Layout(("a", "b"), (Name("a"), Floor(Name("b"), 4), Mod(Name("b"), 4)), (3, 2, 4))
    assert canonical(last, (3, 8)) is None
    assert canonical(last, (3, 7)) is not None


def test_storage_dimensions_of_one_cell_are_left_out() -> None:
    layout = Layout(("a", "b"), (Int(0), Name("b"), Name("a")), (1, 8, 3))
    assert canonical(layout, (3, 8)) == Layout(("d0", "d1"), (Name("d1"), Name("d0")), (8, 3))


def test_what_a_reader_wishes_is_written_by_a_kernel_without_wishes() -> None:
    nodes = [kernel(unary("relu", 1, 8, 6), "x", "r"), kernel(conv1x1(1, 8, 4, 6), "r w b", "y")]
    arrays = {"w": np.ones((4, 8), np.float32), "b": np.ones(4, np.float32)}
    done = verify(layout(graph({"x": (1, 8, 6)}, nodes, ["y"], arrays), preferred_layouts))
    assert names(done) == ["relu r", "conv y", "lay out y"]
    assert done.values["r"].layout is not None


def test_a_transpose_reads_blocks_and_does_not_take_them_over() -> None:
    nodes = [
        kernel(conv1x1(1, 8, 4, 4), "x w b", "t"),
        kernel(transpose_program(f32, (1, 4, 4), (0, 2, 1)), "t", "u"),
        kernel(unary("relu", 1, 4, 4), "u", "y"),
    ]
    arrays = {"w": np.ones((4, 8), np.float32), "b": np.ones(4, np.float32)}
    done = verify(layout(graph({"x": (1, 8, 4)}, nodes, ["y"], arrays), preferred_layouts))
    assert names(done) == ["lay out x laid out", "conv t", "transpose u", "relu y"]
    assert done.values["u"].layout is None


def test_what_blocks_do_not_cut_evenly_does_not_take_them_over() -> None:
    """The first three of four channels: the last block would have a cell without an element."""
    first = Program(
        "first",
        (),
        (tensor("a", 1, 4, 6),),
        ("y",),
        (Definition((tensor("y", 1, 3, 6),), ("n", "k", "p"), (Piece(at("a", "n", "k", "p")),)),),
    )
    nodes = [kernel(conv1x1(1, 8, 4, 6), "x w b", "t"), kernel(first, "t", "u"), kernel(unary("relu", 1, 3, 6), "u", "y")]
    arrays = {"w": np.ones((4, 8), np.float32), "b": np.ones(4, np.float32)}
    done = verify(layout(graph({"x": (1, 8, 6)}, nodes, ["y"], arrays), preferred_layouts))
    assert done.values["t"].layout is not None and done.values["u"].layout is None


def test_a_concatenation_of_whole_blocks_stays_in_blocks() -> None:
    parts = (Piece(at("a", "n", "k", "p"), Compare("<", Name("k"), Int(4))), Piece(at("b", "n", K4, "p"), Compare(">=", Name("k"), Int(4))))
    whole = Definition((tensor("y", 1, 8, 6),), ("n", "k", "p"), parts)
    joined = Program("concat", (), (tensor("a", 1, 4, 6), tensor("b", 1, 4, 6)), ("y",), (whole,))
    nodes = [
        kernel(conv1x1(1, 8, 4, 6), "x w b", "s"),
        kernel(conv1x1(1, 8, 4, 6), "x v b", "t"),
        kernel(joined, "s t", "u"),
        kernel(conv1x1(1, 8, 4, 6), "u v b", "y"),
    ]
    arrays = {"w": np.ones((4, 8), np.float32), "v": np.zeros((4, 8), np.float32), "b": np.ones(4, np.float32)}
    done = verify(layout(graph({"x": (1, 8, 6)}, nodes, ["y"], arrays), preferred_layouts))
    assert names(done) == ["lay out x laid out", "conv s", "conv t", "concat u", "conv y", "lay out y"]
    u = done.values["u"].layout
    assert u is not None
    assert u.shape == (1, 2, 6, 4)


def test_layouts_are_of_the_sizes_that_values_are_written_with() -> None:
    """A program may write a size as another that it has to be equal to."""
    text = """graph "g"
inputs "x"
outputs "y"
size "size.n" sample 3
size "size.m" sample 3
assume ((1)*`size.m`) + ((-1)*`size.n`) == 0
value "x": f32[`size.m`, 4]
value "y": f32[`size.n`, 4]
kernel "k" ("x") -> ("y") = p0

program p0
op f(x: f32[`size.n`, 4]) -> (y: f32[`size.n`, 4]) {
    y[i, j] = x[i, j] + 1.0
}
"""
    opened = parse(text, {})
    assert opened.symbols is not None
    n, m = (opened.symbols.symbol(f"size.{name}") for name in "nm")
    rows, turned = (Layout(("i", "j"), tuple(map(Name, order)), block) for order, block in (("ij", (n, 4)), ("ji", (4, n))))  # type: ignore[arg-type]
    assert names(verify(layout(opened, lambda _graph: lambda _node: {"x": rows}))) == ["k"]
    done = verify(layout(opened, lambda _graph: lambda _node: {"x": turned}))
    assert [v.layout.shape for v in done.values.values() if v.layout is not None] == [(4, m)]
