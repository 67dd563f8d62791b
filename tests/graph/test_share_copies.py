"""Stretches: copies of equally long stretches of memory are one kernel, wherever these begin."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_graphs import at, graph, kernel, run, single, tensor, unary

import tensorlang as tl
from polyhedral.expr import Add, Int, Max, Name, Scale
from tensorlang.graph.nodes import Graph, Kernel, Part
from tensorlang.graph.passes.memory import concat_in_place
from tensorlang.graph.passes.memory.share_copies import share_copies
from tensorlang.graph.programs import program_key
from tensorlang.graph.verify import verify
from tensorlang.tensor.nodes import Program


def piece(length: int, start: int, of: int = 12) -> Program:
    return single("cut", [tensor("x", of)], tensor("y", length), "i", at("x", Add(Name("i"), Int(start))))


def pieces(*found: tuple[int, int]) -> Graph:
    nodes = [kernel(piece(length, start), "x", f"y{k}") for k, (length, start) in enumerate(found)]
    return graph({"x": (12,)}, nodes, [f"y{k}" for k in range(len(found))])


def test_equally_long_pieces_are_copies_of_parts() -> None:
    g = pieces((3, 0), (3, 3), (3, 7), (2, 10))
    found = verify(share_copies(g))
    assert [node.start for node in found.nodes if isinstance(node, Part)] == [0, 12, 28]
    assert len({program_key(node.program) for node in found.nodes if isinstance(node, Kernel)}) == 2
    x = np.arange(12, dtype=np.float32)
    for name, array in run(g, {"x": x}).items():
        np.testing.assert_array_equal(run(found, {"x": x})[name], array)


@pytest.mark.parametrize(
    "g",
    [
        pieces((3, 0), (4, 3)),
        pieces((3, 2)),
        graph({"x": (12,)}, [kernel(unary("exp", 12), "x", "a"), kernel(unary("relu", 12), "x", "b")], ["a", "b"]),
        graph({}, [kernel(piece(3, 0), "x", "a"), kernel(piece(3, 4), "x", "b")], ["a", "b"], {"x": np.ones(12, np.float32)}),
    ],
)
def test_pieces_that_differ_in_more_or_are_constant_stay(g: Graph) -> None:
    assert share_copies(g) is g


def test_what_is_not_in_one_piece_stays() -> None:
    columns = [single("cut", [tensor("x", 4, 6)], tensor("y", 4, 2), "ij", at("x", "i", Add(Name("j"), Int(k)))) for k in (0, 2, 4)]
    g = graph({"x": (4, 6)}, [kernel(program, "x", f"y{k}") for k, program in enumerate(columns)], ["y0", "y1", "y2"])
    assert share_copies(g) is g


def test_a_value_split_into_many_takes_one_kernel() -> None:
    count = 40
    shapes = [(3 * count, 1), *((3, 1) for _ in range(count))]
    x, *ys = (helper.make_tensor_value_info(f"v{k}", TensorProto.FLOAT, shape) for k, shape in enumerate(shapes))
    node = helper.make_node("Split", ["v0"], [y.name for y in ys], axis=0)
    model = helper.make_model(helper.make_graph([node], "g", [x], ys), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = tl.compile(model.SerializeToString())
    data = np.arange(3 * count, dtype=np.float32).reshape(-1, 1)
    for k, array in enumerate(made.run({"v0": data}).values()):
        np.testing.assert_array_equal(array, data[3 * k : 3 * k + 3])
    assert len({artifact.symbol for artifact in made._static.executable.artifacts}) == 1  # type: ignore[union-attr]


def test_boundaries_of_many_axes_are_no_copies_of_parts_without_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """isl takes minutes to find the least distance between what is written and what is read at 3 x 3 x 3 x 3 boundaries."""
    monkeypatch.setattr(concat_in_place, "bounds", lambda *_: pytest.fail("two elements tell"))
    extents = (8, 7, 8, 4)
    mirrored = [Max(Add(Scale(-1, Name(i)), Int(2 * n)), Add(Name(i), Int(-1))) for i, n in zip("ijkl", extents, strict=True)]
    program = single("mirror", [tensor("x", *extents)], tensor("y", *extents), "ijkl", at("x", *mirrored))
    g = graph({"x": extents}, [kernel(program, "x", f"y{k}") for k in range(2)], ["y0", "y1"])
    assert share_copies(g) is g
