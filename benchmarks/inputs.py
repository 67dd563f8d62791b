"""Inputs for models: random, and the same for the same seed; of other batches, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

Array = np.ndarray[Any, Any]


def random_inputs(model: ModelProto, seed: int = 0) -> dict[str, Array]:
    """Return an array for every input: normally distributed numbers, small indices, masks of ones."""
    rng = np.random.default_rng(seed)
    constants = {i.name for i in model.graph.initializer}
    return {i.name: _random(i, rng) for i in model.graph.input if i.name not in constants}


def set_batch(model: onnx.ModelProto, batch: int) -> None:
    """Let the first axis of inputs and outputs be `batch`, and that of reshaped values (weights keep theirs); the rest follows."""
    graph = model.graph
    constants = {i.name: i for i in graph.initializer}
    for value in (*(i for i in graph.input if i.name not in constants), *graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    for node in graph.node:
        if node.op_type == "Reshape" and node.input[0] not in constants and node.input[1] in constants:
            shape = numpy_helper.to_array(constants[node.input[1]])
            constants[node.input[1]].CopyFrom(numpy_helper.from_array(np.array([batch, *shape[1:]]), node.input[1]))
    del graph.value_info[:]


def _random(value: onnx.ValueInfoProto, rng: np.random.Generator) -> Array:
    kind = value.type.tensor_type
    shape = [d.dim_value or 1 for d in kind.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return np.ones(shape, dtype) if "mask" in value.name else rng.integers(0, 1000, shape).astype(dtype)
