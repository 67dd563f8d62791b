"""Inputs for models: random, and the same for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

Array = np.ndarray[Any, Any]


def random_inputs(model: ModelProto, seed: int = 0) -> dict[str, Array]:
    """Return an array for every input: normally distributed numbers, small indices, masks of ones."""
    rng = np.random.default_rng(seed)
    constants = {i.name for i in model.graph.initializer}
    return {i.name: _random(i, rng) for i in model.graph.input if i.name not in constants}


def _random(value: onnx.ValueInfoProto, rng: np.random.Generator) -> Array:
    kind = value.type.tensor_type
    shape = [d.dim_value or 1 for d in kind.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return np.ones(shape, dtype) if "mask" in value.name else rng.integers(0, 1000, shape).astype(dtype)
