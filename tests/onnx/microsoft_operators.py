"""Operators of onnxruntime, one a model, next to onnxruntime or to what their documentation says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx_evaluate import staged

Array = np.ndarray[Any, Any]
F32, I32, I64, U8, I8 = np.float32, np.int32, np.int64, np.uint8, np.int8


def draw(*shape: int, seed: int = 0, dtype: Any = F32) -> Array:
    random = np.random.default_rng(seed + sum(shape))
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return np.asarray(random.integers(info.min, info.max, shape, endpoint=True), dtype)
    return np.asarray(random.standard_normal(shape), dtype)


def model(
    op: str,
    feeds: Mapping[str, Array],
    names: Sequence[str],
    outputs: int,
    constants: Sequence[str],
    domain: str,
    version: int = 17,
    **attributes: Any,
) -> ModelProto:
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items() if n not in constants
    ]
    results = [helper.make_tensor_value_info(f"y{k}", TensorProto.UNDEFINED, None) for k in range(outputs)]
    for result in results:
        result.ClearField("type")
    fixed = [numpy_helper.from_array(feeds[n], n) for n in constants]
    graph = helper.make_graph([node], "g", inputs, results, fixed)
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(
    op: str,
    *arrays: Array | None,
    outputs: int = 1,
    constants: Sequence[int] = (),
    steps: int = 0,
    domain: str = "com.microsoft",
    version: int = 17,
    tolerance: float = 2e-5,
    **attributes: Any,
) -> None:
    """Compare an operator with onnxruntime; quantised results may be `steps` apart."""
    names = ["" if a is None else f"x{k}" for k, a in enumerate(arrays)]
    feeds = {f"x{k}": a for k, a in enumerate(arrays) if a is not None}
    fixed = [f"x{k}" for k in constants]
    made = model(op, feeds, names, outputs, fixed, domain, version, **attributes)
    given = {n: a for n, a in feeds.items() if n not in fixed}
    expected = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)
    found = staged(made, given)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind in "iu":
            assert np.abs(a.astype(np.int64) - b.astype(np.int64)).max(initial=0) <= steps
        else:
            np.testing.assert_allclose(a, b, rtol=10 * tolerance, atol=tolerance)


def number(value: float) -> Array:
    return np.asarray(value, F32)


def by_formula(op: str, expected: Array, *arrays: Array, **attributes: Any) -> None:
    """Compare an operator that onnxruntime has for graphics processors alone with what its documentation says."""
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    (found,) = staged(model(op, feeds, list(feeds), 1, [], "com.microsoft", **attributes), feeds)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
