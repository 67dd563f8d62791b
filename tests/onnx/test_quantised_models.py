"""Small quantised networks, compiled: what onnxruntime computes operator by operator, up to a unit of the quantised result."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from network_writer import NetworkWriter
from onnx import TensorProto, helper, numpy_helper

import tensorlang

Array = np.ndarray[Any, Any]


class Network(NetworkWriter):
    """Writes operators between quantised values."""

    def __init__(self, dtype: Any, seed: int = 0) -> None:
        super().__init__(seed)
        self.dtype = dtype

    def quantised(self, x: str, scale: float, zero: int = 128) -> str:
        number = zero if self.dtype == np.uint8 else zero - 128
        s, z = self.constant(np.array(scale, np.float32)), self.constant(np.array(number, self.dtype))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, s, z), s, z)

    def weights(self, *shape: int, axis: int = 0) -> str:
        array = self.constant(self.rng.integers(-127, 128, shape).astype(np.int8))
        scales = self.constant(self.rng.uniform(0.001, 0.002, shape[axis]).astype(np.float32))
        return self.op("DequantizeLinear", array, scales, self.constant(np.zeros(shape[axis], np.int8)), axis=axis)


def compared(model: onnx.ModelProto, x: Array, unit: float, units: float) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    [want] = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    [got] = tensorlang.compile(model).run({"x": x}).values()
    assert len(np.unique(want)) > 20
    assert np.abs(got - want).max() <= units * unit * 1.001
    assert (np.abs(got - want) > 0.5 * unit).mean() < 0.05


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_network_of_convolutions(dtype: Any) -> None:
    n = Network(dtype)
    x = n.quantised("x", 0.0213)
    first = n.op("Relu", n.quantised(n.op("Conv", x, n.weights(32, 3, 7, 7), pads=[3, 3, 3, 3], strides=[2, 2]), 0.0471))
    pooled = n.quantised(n.op("MaxPool", first, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 0.0229, 0)
    bias = n.constant(n.rng.standard_normal(32).astype(np.float32))
    inner = n.quantised(n.op("Relu", n.op("Conv", pooled, n.weights(32, 32, 3, 3), bias, pads=[1, 1, 1, 1])), 0.0317, 0)
    outer = n.quantised(n.op("Conv", inner, n.weights(32, 32, 1, 1)), 0.0419)
    joined = n.quantised(n.op("Relu", n.quantised(n.op("Add", outer, pooled), 0.0531)), 0.0277, 0)
    result = n.quantised(n.op("Conv", joined, n.weights(48, 32, 3, 3), strides=[2, 2]), 0.0611)
    values = n.rng.standard_normal((1, 3, 37, 33)).astype(np.float32)
    # A byte that rounds the other way in between moves what follows by a fraction of a unit, and there are four layers.
    compared(n.model(values.shape, result), values, 0.0611, 2)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_products_of_constants_and_of_values(dtype: Any) -> None:
    n = Network(dtype)
    x = n.quantised("x", 0.0213)
    keys = n.op("Add", n.quantised(n.op("MatMul", x, n.weights(50, 24, axis=1)), 0.0131), n.constant(n.rng.random(24).astype(np.float32)))
    turned = n.quantised(n.op("Transpose", n.op("Reshape", keys, n.constant(np.array([20, 3, 8]))), perm=[1, 2, 0]), 0.0149, 90)
    queries = n.quantised(n.op("Transpose", n.op("Reshape", keys, n.constant(np.array([20, 3, 8]))), perm=[1, 0, 2]), 0.0157, 110)
    scores = n.quantised(n.op("Softmax", n.quantised(n.op("MatMul", queries, turned), 0.0419), axis=-1), 0.0039, 0)
    result = n.quantised(n.op("MatMul", scores, queries), 0.0061)
    values = n.rng.standard_normal((20, 50)).astype(np.float32)
    compared(n.model(values.shape, result), values, 0.0061, 3)


@pytest.mark.parametrize("dtype, low, high", [(TensorProto.INT8, -128, 127), (TensorProto.UINT4, 0, 15)])
@pytest.mark.parametrize("axis, block", [(0, 4), (0, 5), (1, 8)])
def test_weights_in_blocks_have_a_scale_each(dtype: int, low: int, high: int, axis: int, block: int) -> None:
    rng, shape = np.random.default_rng(0), (16, 24)
    blocks = tuple(-(-extent // block) if k == axis else extent for k, extent in enumerate(shape))
    q, zero = rng.integers(low, high + 1, shape), rng.integers(0, 4, blocks)
    scale, x = rng.uniform(0.1, 1, blocks).astype(np.float32), rng.standard_normal((5, 16), dtype=np.float32)
    stored = [helper.make_tensor(n, dtype, a.shape, a.ravel().tolist()) for n, a in (("q", q), ("z", zero))]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis, block_size=block),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [5, 16]), ("y", [5, 24]))]
    graph = helper.make_graph(nodes, "blocks", ends[:1], ends[1:], [*stored, numpy_helper.from_array(scale, "s")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    of = np.arange(shape[axis]) // block
    want = x @ ((q - np.take(zero, of, axis)) * np.take(scale, of, axis))
    np.testing.assert_allclose(tensorlang.compile(model, threads=1).run({"x": x})["y"], want, rtol=1e-5, atol=1e-4)
