"""Writes ONNX models of one input operator by operator, naming values and constants as they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


class NetworkWriter:
    """Operators and constants so far. `rng` draws weights."""

    def __init__(self, seed: int = 0) -> None:
        self.rng, self.count = np.random.default_rng(seed), 0
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: Array) -> str:
        self.count += 1
        self.constants.append(numpy_helper.from_array(array, f"c{self.count}"))
        return f"c{self.count}"

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        self.count += 1
        self.nodes.append(helper.make_node(kind, list(inputs), [f"v{self.count}"], **attrs))
        return f"v{self.count}"

    def model(self, shape: tuple[int, ...], result: str) -> onnx.ModelProto:
        """Return the model of input `x` and output `result`, in f32."""
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "quantised", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
