"""Libraries that the tests of this folder share, each made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl

OPERATORS = """
op scaled[T: float](x: T[N], attr by: float = 2.0) -> (y: T[N]) { y[i] = x[i] * by }
op first(x: f32[N], size k in 0..N) -> (y: f32[k]) { y[i] = x[i]   for i in 0..k }
op pick(x: f32[N], at: i64[M]) -> (y: f32[M]) { y[i] = x[at[i]] }
op both(N: f32[D.., N], M: i8[M]) -> (y: f32[D.., N], z: i8[M]) {
    y[i.., j] = N[i.., j]
    z[i] = M[i]
}
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


@pytest.fixture(scope="session")
def operators() -> tl.Operators:
    return tl.parse(OPERATORS)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, operators: tl.Operators) -> Path:
    """Return a folder of libraries: `first` and `pick` of open sizes, `product` of two threads, `net` with and without an open batch."""
    root = tmp_path_factory.mktemp("libraries")
    operators.first.save(root / "first", {"x": X, "k": 2}, symbolic=True, targets=LEVELS)
    operators.pick.save(root / "pick", {"x": X, "at": np.array([0, 1])}, symbolic=True, targets="x86-64", max={"M": 1000})
    square = np.eye(64, dtype=np.float32)
    operators.product.save(root / "product", {"a": square, "b": square}, targets="x86-64-v2", threads=2)
    tl.build(network(2), root / "net", targets=("x86-64-v2", "x86-64"), library="net", threads=2)
    tl.build(network("batch"), root / "open", targets="x86-64", library="open_net", max={"batch": 4}, weights="inside", threads=1)
    return root
