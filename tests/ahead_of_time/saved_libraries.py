"""Operators, a model and arrays that tests of libraries share."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPERATORS = """
op scaled[T: float](x: T[N], attr by: float = 2.0) -> (y: T[N]) { y[i] = x[i] * by }
op first(x: f32[N], size k in 0..N) -> (y: f32[k]) { y[i] = x[i]   for i in 0..k }
op pick(x: f32[N], at: i64[M]) -> (y: f32[M]) { y[i] = x[at[i]] }
op both(N: f32[D.., N], M: i8[M]) -> (y: f32[D.., N], z: i8[M]) {
    y[i.., j] = N[i.., j]
    z[i] = M[i]
}
op stretched(x: f32[N], size by) -> (y: f32[N*by]) { y[i] = x[i // by]   for i in 0..N*by }
op product(a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]) { c[i, j] = sum(k) a[i, k] * b[k, j] }
"""
LEVELS = ("x86-64-v3", "x86-64-v2", "x86-64")
X = np.arange(5, dtype=np.float32)
IMAGE = np.linspace(-1, 1, 2 * 3 * 8 * 8, dtype=np.float32).reshape(2, 3, 8, 8)


def network(batch: int | str) -> onnx.ModelProto:
    """Return a convolution with a bias, Relu, and a mean over the pixels: (batch, 3, 8, 8) to (batch, 4)."""
    rng = np.random.default_rng(3)
    weight, bias = rng.standard_normal((4, 3, 3, 3)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "weight", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["label"]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, 8, 8])
    label = helper.make_tensor_value_info("label", TensorProto.FLOAT, [batch, 4])
    constants = [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")]
    graph = helper.make_graph(nodes, "net", [image], [label], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
