"""Small models of mixed types and shared memory: what only looks like a copy, and what has its place already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from random_models import Array
from small_graphs import graph, kernel, run, unary

import tensorlang as tl
from stdlib.onnx import Importer
from tensorlang.diagnostics import InternalError
from tensorlang.graph.nodes import Graph, Kernel, Part, View
from tensorlang.graph.options import Options
from tensorlang.graph.passes.fusion.duplicate_casts import duplicate_casts
from tensorlang.graph.passes.memory.copy_outputs import copy_outputs
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.plan import Constant, planned
from tensorlang.graph.verify import verify
from tensorlang.schedule.layout import Layout

NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)


def node(op: str, inputs: str, results: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), results.split(), **attributes)


def model(nodes: list[NodeProto], inputs: dict[str, tuple[int, tuple[int, ...]]], results: str, constants: dict[str, Array]) -> ModelProto:
    given = [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()]
    returned = [onnx.ValueInfoProto(name=name) for name in results.split()]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    made = helper.make_graph(nodes, "g", given, returned, stored)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def agrees(made: ModelProto, feeds: dict[str, Array]) -> None:
    expected = run(Importer().load(made), feeds)
    actual = tl.compile(made, threads=1, importers=[Importer()]).run(feeds)
    for name, result in expected.items():
        np.testing.assert_array_equal(np.asarray(actual[name]).astype(np.float64), result.astype(np.float64))


def whole(dtype: int, *shape: int) -> Array:
    return np.random.default_rng(0).integers(-3, 4, shape).astype(helper.tensor_dtype_to_np_dtype(dtype))


@pytest.mark.parametrize("dtype", NARROW)
def test_a_widening_that_stays_a_kernel_is_no_copy(dtype: int) -> None:
    nodes = [node("Cast", "x", "t", to=TensorProto.FLOAT), node("MatMul", "t w", "y")]
    agrees(model(nodes, {"x": (dtype, (4, 8))}, "y", {"w": whole(TensorProto.FLOAT, 8, 3)}), {"x": whole(dtype, 4, 8)})


@pytest.mark.parametrize("dtype", NARROW)
def test_what_is_widened_and_concatenated_is_no_join(dtype: int) -> None:
    nodes = [
        node("Relu" if dtype in NARROW[:2] else "Identity", "x", "r"),
        node("Cast", "r", "a", to=TensorProto.FLOAT),
        node("Cast", "x", "b", to=TensorProto.FLOAT),
        node("Concat", "a b", "y", axis=0),
    ]
    agrees(model(nodes, {"x": (dtype, (4, 64))}, "y", {}), {"x": whole(dtype, 4, 64)})


SPLITS = {
    "the parts of one value": ([node("Concat", "a b c", "y", axis=0)], "y"),
    "the parts of one value turned round": ([node("Concat", "b a c", "y", axis=0)], "y"),
    "one part, and what is made of it": ([node("Concat", "a b c", "t", axis=0), node("Sqrt", "t", "y")], "y"),
    "the whole and a part of it": ([node("Concat", "r a c", "y", axis=0)], "y"),
    "a part, seen in another shape": ([node("Reshape", "a s", "v"), node("Relu", "v", "w"), node("Concat", "w v", "y", axis=0)], "y"),
    "a part that is returned": ([node("Concat", "a b c", "y", axis=0)], "y a"),
    "a view of a part that is returned": ([node("Reshape", "a s", "v"), node("Concat", "b c", "y", axis=0)], "y v"),
}


@pytest.mark.parametrize(("nodes", "results"), SPLITS.values(), ids=SPLITS.keys())
def test_what_is_cut_out_is_concatenated_again(nodes: list[NodeProto], results: str) -> None:
    before = [node("Relu", "x", "r"), node("Split", "r n", "a b", axis=0), node("Exp", "b", "c")]
    constants = {"n": np.array([4, 4]), "s": np.array([8, 32])}
    made = model([*before, *nodes], {"x": (TensorProto.FLOAT, (8, 64))}, results, constants)
    feeds = {"x": whole(TensorProto.FLOAT, 8, 64)}
    want = run(Importer().load(made), feeds)
    got = tl.compile(made, threads=1, importers=[Importer()]).run(feeds)
    for name, result in want.items():
        np.testing.assert_allclose(got[name], result, rtol=1e-6)


def test_samples_of_what_is_cut_out_are_joined_once() -> None:
    nodes = [
        node("Relu", "x", "r"),
        node("Split", "r n", "a b", axis=1),
        node("Reshape", "a s", "v"),
        node("Exp", "b", "c"),
        node("Concat", "v v", "y", axis=1),
        node("Concat", "c b", "z", axis=1),
    ]
    made = model(nodes, {"x": (TensorProto.FLOAT, (3, 64))}, "y z v", {"n": np.array([32, 32]), "s": np.array([3, 16, 2])})
    before, feeds = Importer().load(made), {"x": whole(TensorProto.FLOAT, 3, 64)}
    after = optimise(before, Options(near_bytes=64))
    want, got = run(before, feeds), run(after, feeds)
    planned(after)
    assert all(np.array_equal(want[a], got[b]) for a, b in zip(before.outputs, after.outputs, strict=True))


def test_a_value_that_is_widened_twice_is_repeated_for_each_reader_of_each() -> None:
    nodes = [
        node("Cast", "x", "h", to=TensorProto.FLOAT16),
        node("Relu", "h", "r"),
        node("Cast", "h", "f", to=TensorProto.FLOAT),
        node("Neg", "f", "n"),
        node("Exp", "f", "e"),
    ]
    made = model(nodes, {"x": (TensorProto.INT8, (4,))}, "r n e", {})
    before, feeds = Importer().load(made), {"x": whole(TensorProto.INT8, 4)}
    after = verify(duplicate_casts(before))
    readers = [v for n in after.nodes for v in getattr(n, "inputs", ()) if v not in ("x",)]
    assert len(readers) == len(set(readers))
    want, got = run(before, feeds), run(after, feeds)
    assert all(np.array_equal(want[name], got[name]) for name in before.outputs)


def test_what_goes_wrong_in_a_pass_is_an_internal_error_that_names_it() -> None:
    def broken(graph: Graph) -> Callable[[Kernel], dict[str, Layout]]:
        raise KeyError("w")

    with pytest.raises(InternalError, match=r"`layout`.*KeyError: 'w'"):
        optimise(Importer().load(model([node("Relu", "x", "y")], {"x": (1, (4,))}, "y", {})), Options(broken))


def test_a_part_of_a_constant_lies_behind_its_beginning() -> None:
    nodes = [View("->32", "w", "v"), Part("cut", "v", "p", 64), kernel(unary("exp", 16), "p", "y")]
    g = graph({}, [nodes[0], nodes[2]], ["y"], {"w": np.zeros((2, 16), np.float32)})
    value = next(iter(g.values.values()))
    g = replace(g, nodes=tuple(nodes), values=g.values | {"p": replace(value, name="p", shape=(16,), layout=None)})
    assert planned(verify(g)).places["p"] == Constant("w", 64)


def test_a_view_of_a_part_is_returned_as_a_copy() -> None:
    g = graph({"x": (4, 16)}, [kernel(unary("exp", 4, 16), "x", "t"), kernel(unary("exp", 4, 16), "t", "y")], ["y"])
    values = g.values | {n: replace(g.values["t"], name=n, shape=s) for n, s in {"p": (1, 16), "v": (16,)}.items()}
    nodes = (*g.nodes, Part("cut", "t", "p", 64), View("->16", "p", "v"))
    done = verify(copy_outputs(replace(g, nodes=nodes, values=values, outputs=("y", "v"))))
    planned(done)
    assert done.outputs == ("y", "v returned")
