"""Maps of ai.onnx.ml are dictionaries for whoever runs a model, as in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

import tensorlang as tl
from tensorlang.diagnostics import CompileError, RunError

F32, I64 = np.float32, np.int64
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def tensor(name: str, kind: int = FLOAT, shape: tuple[int | str, ...] | None = None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def mapped(name: str, key: int, kind: int, several: bool = False) -> ValueInfoProto:
    one = helper.make_map_type_proto(key, helper.make_tensor_type_proto(kind, None if several else ()))
    return helper.make_value_info(name, helper.make_sequence_type_proto(one) if several else one)


def model(op: str, taken: ValueInfoProto, made: ValueInfoProto, **attributes: Any) -> ModelProto:
    node = helper.make_node(op, [taken.name], [made.name], domain="ai.onnx.ml", **attributes)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "g", [taken], [made]), opset_imports=opsets, ir_version=9)


def both(made: ModelProto, fed: object) -> tuple[Any, Any]:
    """Return what this and onnxruntime compute."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return tl.compile(made, threads=1).run({"x": fed})["y"], session.run(None, {"x": fed})[0]


LABELS = [("int64s", [3, 1, 2]), ("strings", ["c", "a", "b"])]


@pytest.mark.parametrize(("kind", "labels"), LABELS)
@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (0, 3)])
def test_scores_become_dictionaries(kind: str, labels: list[Any], shape: tuple[int, ...]) -> None:
    y = mapped("y", INT64 if kind == "int64s" else STRING, FLOAT, several=True)
    made = model("ZipMap", tensor("x", shape=("n", 3)), y, **{f"classlabels_{kind}": labels})
    ours, theirs = both(made, np.random.default_rng(0).random(shape, F32))
    assert ours == theirs and all(type(v) is float for row in ours for v in row.values())


def test_labels_are_remembered_from_run_to_run() -> None:
    y = mapped("y", STRING, FLOAT, several=True)
    made = tl.compile(model("ZipMap", tensor("x", shape=("n", 2)), y, classlabels_strings=["left", "right"]), threads=1)
    row = {"left": 0.25, "right": 0.75}
    for rows in (1, 1, 3, 3, 1):
        assert made.run({"x": np.array([[0.25, 0.75]] * rows, F32)})["y"] == [row] * rows


def test_labels_that_do_not_fit_the_scores_are_refused() -> None:
    y = mapped("y", INT64, FLOAT, several=True)
    made = tl.compile(model("ZipMap", tensor("x", shape=(2, 3)), y, classlabels_int64s=[1, 2]), threads=1)
    with pytest.raises(CompileError, match="2 labels"):
        made.run({"x": np.zeros((2, 3), F32)})


def test_labels_of_another_type_than_declared_are_refused() -> None:
    y = mapped("y", STRING, FLOAT, several=True)
    made = tl.compile(model("ZipMap", tensor("x", shape=(2, 2)), y, classlabels_int64s=[1, 2]), threads=1)
    with pytest.raises(CompileError, match="O012"):
        made.run({"x": np.zeros((2, 2), F32)})


@pytest.mark.parametrize(
    ("key", "held", "vocabulary", "fed"),
    [
        (STRING, FLOAT, {"string_vocabulary": ["a", "b", "c"]}, {"c": 1.5, "a": 2.0, "z": 4.0}),
        (INT64, FLOAT, {"int64_vocabulary": [5, -1, 9]}, {9: 1.0, 5: 0.25}),
        (STRING, FLOAT, {"string_vocabulary": ["a", "b"]}, {}),
    ],
)
def test_a_dictionary_becomes_a_row(key: int, held: int, vocabulary: dict[str, Any], fed: dict[Any, Any]) -> None:
    made = model("DictVectorizer", mapped("x", key, held), tensor("y", held), **vocabulary)
    if fed:
        ours, theirs = both(made, fed)
        assert ours.dtype == theirs.dtype and ours.tolist() == theirs.tolist()
    else:
        assert tl.compile(made, threads=1).run({"x": fed})["y"].tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("held", "fed", "attributes"),
    [
        (FLOAT, {4: 1.5, 1: 2.5, 0: 3.75}, {"cast_to": "TO_FLOAT"}),
        (FLOAT, {4: 1.5, 1: 2.5}, {"cast_to": "TO_INT64"}),
        (FLOAT, {4: 1.5, 1: 2.5}, {"cast_to": "TO_FLOAT", "map_form": "SPARSE", "max_map": 6}),
        (FLOAT, {4: 1.5, 1: 2.5}, {"cast_to": "TO_FLOAT", "map_form": "SPARSE", "max_map": 3}),
    ],
)
def test_what_a_dictionary_holds_becomes_a_row(held: int, fed: dict[int, Any], attributes: dict[str, Any]) -> None:
    kinds = {"TO_FLOAT": FLOAT, "TO_INT64": INT64, "TO_STRING": STRING}
    ours, theirs = both(model("CastMap", mapped("x", INT64, held), tensor("y", kinds[attributes["cast_to"]]), **attributes), fed)
    assert ours.dtype == theirs.dtype and ours.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("op", "key", "held", "kind", "attributes", "fed", "expected"),
    [
        ("DictVectorizer", STRING, INT64, INT64, {"string_vocabulary": ["a", "b"]}, {"b": 7}, [0, 7]),
        ("DictVectorizer", INT64, STRING, STRING, {"int64_vocabulary": [5, 9]}, {9: "x"}, ["", "x"]),
        ("CastMap", INT64, STRING, FLOAT, {"cast_to": "TO_FLOAT"}, {4: "1.5", 1: "2"}, [2.0, 1.5]),
        ("CastMap", INT64, STRING, STRING, {"cast_to": "TO_STRING"}, {4: "a", 1: "b"}, ["b", "a"]),
        ("CastMap", INT64, STRING, FLOAT, {"cast_to": "TO_FLOAT", "map_form": "SPARSE", "max_map": 3}, {1: "2"}, [0.0, 2.0, 0.0]),
    ],
)
def test_dictionaries_that_onnxruntime_is_not_given_from_python(
    op: str, key: int, held: int, kind: int, attributes: dict[str, Any], fed: dict[Any, Any], expected: list[Any]
) -> None:
    made = model(op, mapped("x", key, held), tensor("y", kind), **attributes)
    assert tl.compile(made, threads=1).run({"x": fed})["y"].tolist() == [expected]


@pytest.mark.parametrize("fed", [{1: 2.0}, [1.0], {"a": "b"}, {"a": [1.0]}, {"a": None}])
def test_what_is_no_such_dictionary_is_refused(fed: Any) -> None:
    made = tl.compile(model("DictVectorizer", mapped("x", STRING, FLOAT), tensor("y"), string_vocabulary=["a"]), threads=1)
    with pytest.raises(RunError, match="R0305"):
        made.run({"x": fed})
    assert "map of text to f32" in str(made.inputs[0])
