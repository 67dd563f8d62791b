"""Rows of a batch are proven to be independent, through reshapes, transpositions and recurrences, or what mixes them is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.helper import make_node as node

import tensorlang as tl
from stdlib.onnx.importer import imported
from tensorlang.graph.independent_rows import rows_of, rows_of_program
from tensorlang.graph.sizes import Symbols
from tensorlang.saved.package import Rows

Shape = tuple[int | str, ...]


def found(nodes: Sequence[NodeProto], x: Shape = ("b", 3, 4), y: Shape = ("b", 3, 4), whole: bool = False, **constants: Any) -> Rows:
    """Return the verdict on a model x -> y with the constants of those names, whose `x` is of integers where it is `whole`."""
    kind = TensorProto.INT64 if whole else TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("x", kind, x)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)]
    arrays = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    made = helper.make_model(helper.make_graph(list(nodes), "g", inputs, outputs, arrays), opset_imports=[helper.make_opsetid("", 18)])
    names = [n for n in x if isinstance(n, str)]
    symbols = Symbols({f"size.{n}": 5 + k for k, n in enumerate(names)})
    shape: Any = tuple(symbols.symbol(f"size.{n}") if isinstance(n, str) else n for n in x)
    return rows_of(imported(made, {"x": shape}, {}))


def ints(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int64)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


TURNED = node("Transpose", ["x"], ["t"], perm=[1, 0, 2])
BACK = node("Transpose", ["u"], ["y"], perm=[1, 0, 2])
INDEPENDENT: dict[str, dict[str, Any]] = {
    "elementwise": {"nodes": [node("Relu", ["x"], ["y"])]},
    "softmax of rows": {"nodes": [node("Softmax", ["x"], ["y"], axis=-1)]},
    "sums along another axis": {"nodes": [node("CumSum", ["x", "a"], ["y"])], "a": np.int64(1)},
    "batch norm of constants": {
        "nodes": [node("BatchNormalization", ["x", "s", "s", "s", "s"], ["y"])],
        "s": floats(3),
    },
    "a product of flattened rows": {
        "nodes": [node("Reshape", ["x", "s"], ["r"]), node("MatMul", ["r", "w"], ["z"]), node("Reshape", ["z", "back"], ["y"])],
        "s": ints(-1, 4),
        "w": floats(4, 4),
        "back": ints(-1, 3, 4),
    },
    "softmax over another axis, which comes first": {"nodes": [TURNED, node("Softmax", ["t"], ["u"], axis=0), BACK]},
    "a product of rows that lie inside": {
        "nodes": [
            TURNED,
            node("Reshape", ["t", "s"], ["f"]),
            node("MatMul", ["f", "w"], ["z"]),
            node("Reshape", ["z", "back"], ["u"]),
            BACK,
        ],
        "s": ints(-1, 4),
        "w": floats(4, 4),
        "back": ints(3, -1, 4),
    },
    "zeros of the shape": {"nodes": [node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["z"]), node("Add", ["x", "z"], ["y"])]},
    "rows of a table": {
        "nodes": [node("Gather", ["w", "x"], ["e"]), node("ReduceMean", ["e", "a"], ["y"], keepdims=0)],
        "x": ("b", 5),
        "y": ("b", 4),
        "whole": True,
        "w": floats(9, 4),
        "a": ints(1),
    },
    "a recurrence": {
        "nodes": [TURNED, node("LSTM", ["t", "w", "w"], ["", "h"], hidden_size=4), node("Squeeze", ["h", "a"], ["y"])],
        "y": ("b", 4),
        "w": floats(1, 16, 4),
        "a": ints(0),
    },
    "groups of channels": {
        "nodes": [
            node("Reshape", ["x", "s"], ["r"]),
            node("InstanceNormalization", ["r", "w", "w"], ["z"]),
            node("Reshape", ["z", "back"], ["y"]),
        ],
        "x": ("b", 4, 6),
        "y": ("b", 4, 6),
        "s": ints(0, 2, -1),
        "w": floats(2),
        "back": ints(-1, 4, 6),
    },
    "heads of any length as rows of a product": {
        "nodes": [
            node("Shape", ["x"], ["sx"]),
            node("Reshape", ["x", "s"], ["h"]),
            node("Transpose", ["h"], ["q4"], perm=[0, 2, 1, 3]),
            node("Shape", ["q4"], ["s4"]),
            node("Reshape", ["q4", "one"], ["q"]),
            node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
            node("MatMul", ["q", "k"], ["scores"]),
            node("Softmax", ["scores"], ["p"], axis=-1),
            node("MatMul", ["p", "q"], ["o"]),
            node("Reshape", ["o", "s4"], ["o4"]),
            node("Transpose", ["o4"], ["ot"], perm=[0, 2, 1, 3]),
            node("Reshape", ["ot", "sx"], ["y"]),
        ],
        "x": ("b", 6, 8),
        "y": ("b", 6, 8),
        "s": ints(0, 0, 2, 4),
        "one": ints(-1, 6, 4),
    },
}


@pytest.mark.parametrize("case", INDEPENDENT)
def test_rows_are_proven_independent(case: str) -> None:
    assert found(**INDEPENDENT[case]) == Rows("independent", "")


MIXED: dict[str, tuple[dict[str, Any], str]] = {
    "softmax over the batch": (
        {"nodes": [node("Softmax", ["x"], ["y"], axis=0)]},
        "`x[0, 0, 0]` and `x[1, 0, 0]`, which are of rows 0 and 1",
    ),
    "a mean over everything": (
        {"nodes": [node("ReduceMean", ["x"], ["m"], keepdims=0), node("Sub", ["x", "m"], ["y"])]},
        "reads `x[0, 0, 0]` and `x[1, 0, 0]`",
    ),
    "batch norm in training": (
        {"nodes": [node("BatchNormalization", ["x", "s", "s", "s", "s"], ["y", "", ""], training_mode=1)], "s": floats(3)},
        "(batch_norm_training): `m[0]` reads",
    ),
    "softmax over flattened rows": (
        {
            "nodes": [node("Reshape", ["x", "s"], ["r"]), node("Softmax", ["r"], ["z"], axis=0), node("Reshape", ["z", "back"], ["y"])],
            "s": ints(-1, 4),
            "back": ints(-1, 3, 4),
        },
        "(softmax): `m[0]` reads `x[0, 0]` and `x[5, 0]`",
    ),
    "sums over the batch": ({"nodes": [node("CumSum", ["x", "a"], ["y"])], "a": np.int64(0)}, "which are of rows 0 and 1"),
    "a scale of the whole batch": (
        {"nodes": [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])]},
        "which are of rows 0 and 1",
    ),
}


@pytest.mark.parametrize("case", MIXED)
def test_an_element_that_reads_two_rows_is_named(case: str) -> None:
    given, said = MIXED[case]
    verdict = found(**given)
    assert verdict.verdict == "mixed" and said in verdict.why


UNPROVEN: dict[str, tuple[dict[str, Any], str]] = {
    "the rows in reverse": (
        {"nodes": [node("Slice", ["x", "a", "e", "z", "a"], ["y"])], "a": ints(-1), "e": ints(-(2**31)), "z": ints(0)},
        "`y[0, 0, 0]`, of row 0, reads `x[1, 0, 0]`, of row 1",
    ),
    "the number of rows": (
        {
            "nodes": [
                node("Shape", ["x"], ["s"], end=1),
                node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
                node("Mul", ["x", "f"], ["y"]),
            ]
        },
        "depends on the batch size",
    ),
    "the number of the row": (
        {
            "nodes": [
                node("Shape", ["x"], ["s"], end=1),
                node("Squeeze", ["s"], ["n"]),
                node("Range", ["zero", "n", "one"], ["r"]),
                node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
                node("Reshape", ["f", "column"], ["c"]),
                node("Add", ["x", "c"], ["y"]),
            ],
            "zero": np.int64(0),
            "one": np.int64(1),
            "column": ints(-1, 1, 1),
        },
        "it is not proven that `y` keeps rows apart",
    ),
}


@pytest.mark.parametrize("case", UNPROVEN)
def test_what_is_not_proven_says_where_the_proof_ends(case: str) -> None:
    given, said = UNPROVEN[case]
    verdict = found(**given)
    assert verdict.verdict == "unknown" and said in verdict.why


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("op f(x: f32[B, N]) -> (y: f32[B]) { y[i] = sum(j) x[i, j] }", "independent"),
        ("op f(x: f32[B, N], w: f32[B, N]) -> (y: f32[B]) { y[i] = sum(j) x[i, j] * w[i, j] }", "independent"),
        ("op f(x: f32[B, 4]) -> (y: f32[B, 2]) { t[n] = x[n // 4, n % 4] for n in 0..4*B\ny[i, j] = t[4*i + j] }", "independent"),
        ("op f(x: f32[B, 4]) -> (y: f32[B, 2]) { t[n] = x[n // 4, n % 4] for n in 0..4*B\ny[i, j] = t[2*i + j] }", "unknown"),
        ("op f(x: f32[B]) -> (y: f32[B]) { y[i] = x[i] - x[0] }", "mixed"),
        ("op f(x: f32[B]) -> (y: f32[B]) { y[i] = x[i] + f32(i) }", "unknown"),
        ("op f(x: f32[B]) -> (y: f32[B]) { y[i] = if i == 0 then 0.0 else x[i] }", "unknown"),
        ("op f(x: f32[B, N]) -> (y: f32[B, N]) { y[i, j] = x[i, j] * f32(B) }", "unknown"),
    ],
)
def test_operators_are_looked_at_as_models_are(text: str, verdict: str) -> None:
    assert rows_of_program(tl.parse(text).f.symbolic_program({})).verdict == verdict
