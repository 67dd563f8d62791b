"""Models whose sizes stay open have one set of kernels on a device, which are told the sizes of each combination."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from executors import Executor
from onnx import TensorProto, helper, numpy_helper
from usual_device import USUAL, device_graph

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from fake_cuda import FakeCuda

import tensorlang as tl
from stdlib.library import roles
from stdlib.onnx import Importer
from tensorlang.backends.cuda.vendor import NVIDIA
from tensorlang.backends.gpu.build import open_kernels
from tensorlang.backends.gpu.open_sizes import OpenOnDevice
from tensorlang.backends.gpu.tools import device_tools
from tensorlang.diagnostics import CompileError
from tensorlang.graph.sizes import Symbols
from tensorlang.planning import Rules
from tensorlang.runtime.open_sizes import OpenShapes, sizes_of
from tensorlang.runtime.protocol import quiet

SHAPE = ("batch", "tokens", 16)


def weights(*shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    rng = np.random.default_rng(7)
    return [numpy_helper.from_array((0.2 * rng.standard_normal(s)).astype(np.float32), f"w{k}") for k, s in enumerate(shapes)]


def model(nodes: list[onnx.NodeProto], initializers: list[onnx.TensorProto], shape: tuple[int | str, ...] = SHAPE) -> onnx.ModelProto:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    returned = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", [given], [returned], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def weighted() -> onnx.ModelProto:
    """Return a network that normalises tokens, weighs each of their features over all tokens of a sample, and adds what was given."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "w0", "w1"], ["n"]),
        helper.make_node("Transpose", ["n"], ["k"], perm=[0, 2, 1]),
        helper.make_node("Softmax", ["k"], ["p"], axis=2),
        helper.make_node("Transpose", ["p"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Add", ["t", "x"], ["y"]),
    ]
    return model(nodes, weights((16,), (16,)))


def opened(net: onnx.ModelProto) -> OpenOnDevice:
    """Return a model of open sizes, without machine code."""
    open_shapes = OpenShapes(Importer().signature(net).inputs)
    given = open_shapes.given()
    assert given is not None
    symbols = Symbols({name: 12 + 5 * k for k, name in enumerate(open_shapes.names.values())})
    loaded = Importer().load(net, given.at(sizes_of(symbols, {})).shapes)
    graph = device_graph(loaded)
    made, calls = open_kernels(graph, None, quiet, Rules(roles(), target=USUAL.target), 1, machine=USUAL)
    tools = device_tools(NVIDIA, "cuda:sm_90a", cache=False)
    return OpenOnDevice(graph, made, calls, loaded.outputs, (), tools, None)


def test_one_set_of_kernels_is_right_for_every_batch_and_length(executor: Executor) -> None:
    net = weighted()
    made, expected = opened(net), tl.compile(net)
    for batch, tokens in ((2, 33), (3, 5)):
        x = np.random.default_rng(batch).standard_normal((batch, tokens, 16)).astype(np.float32)
        known = made.model_at(dict(zip(made.symbols.samples, (batch, tokens), strict=True)))
        np.testing.assert_allclose(executor(known, {"x": x}, 4)["y"], expected.run({"x": x})["y"], rtol=1e-5, atol=1e-5)


def test_models_for_arrays_with_room_are_not_supported_yet() -> None:
    made = opened(model([helper.make_node("Relu", ["x"], ["y"])], []))
    assert [value.name for value in (*made.inputs, *made.outputs)] == ["x", "y"] and not made.buffers
    with pytest.raises(CompileError, match=r"C0105.*room for larger sizes"):
        made.bound({}, [], [])


def floats(address: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.ctypeslib.as_array((ctypes.c_float * int(np.prod(shape))).from_address(address)).reshape(shape)


def shifted(grid: tuple[int, ...], x: int, w: int, y: int, batch: int) -> None:
    floats(y, batch, 4)[:] = np.maximum(floats(x, batch, 4) + floats(w, 4), 0)


def test_a_model_of_symbolic_sizes_is_compiled_once_and_told_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda({"tl_0_0": shifted})
    fake.install(monkeypatch)
    nodes = [helper.make_node("Add", ["x", "w0"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    net = tl.compile(model(nodes, weights((4,)), ("batch", 4)), target="cuda:sm_90a", sizes="symbolic")
    (weight,) = weights((4,))
    for batch in (3, 70):
        x = np.random.default_rng(batch).standard_normal((batch, 4)).astype(np.float32)
        np.testing.assert_array_equal(net.run({"x": x})["y"], np.maximum(x + numpy_helper.to_array(weight), 0))
        assert "tl_0_0: " in net.explain({"x": x})
