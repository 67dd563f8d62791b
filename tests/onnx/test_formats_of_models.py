"""Models as text, and files in a format that is no ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_evaluate import evaluate

import tensorlang as tl
from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError

TEXT = '<ir_version: 9, opset_import: ["" : 18]> g (float[2,3] x) => (float[2,3] y) <float[3] w = {1, 2, 3}> { t = Mul(x, w)  y = Relu(t) }'
MODEL = onnx.parser.parse_model(TEXT)
FORMATS = {".onnxtxt": TEXT, ".textproto": str(MODEL), ".onnxjson": json_format.MessageToJson(MODEL)}


def refused(path: Path) -> str:
    with pytest.raises(CompileError) as caught:
        Importer().load(str(path))
    assert [d.code for d in caught.value.diagnostics] == ["O001"]
    return str(caught.value)


@pytest.mark.parametrize("suffix", FORMATS)
def test_models_are_read_from_text(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"net{suffix}"
    path.write_text(FORMATS[suffix])
    assert Importer().matches(str(path))
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    np.testing.assert_array_equal(evaluate(Importer().load(str(path)), {"x": x})[0], np.maximum(x * [1, 2, 3], 0))


def test_a_dimension_of_minus_one_is_open() -> None:
    model = onnx.ModelProto.FromString(MODEL.SerializeToString())
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    made = tl.compile(model, threads=1)
    assert made.inputs[0].shape == (None, 3)
    for rows in (2, 5):
        np.testing.assert_array_equal(made(np.ones((rows, 3), np.float32)), np.tile(np.float32([1, 2, 3]), (rows, 1)))


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("text", [b"", b"g (", b"\xff\xfe", b"[" * 3000, b'{"graph": 1}'])
def test_text_that_is_no_model_is_refused(suffix: str, text: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"net{suffix}"
    path.write_bytes(text)
    with pytest.raises(CompileError) as caught:
        Importer().load(str(path))
    assert all(d.code.startswith("O0") for d in caught.value.diagnostics)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(FORMATS)), st.integers(0, 2000), st.binary(max_size=3), st.integers(0, 3))
def test_changed_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, suffix: str, at: int, put: bytes, cut: int) -> None:
    data = FORMATS[suffix].encode()
    path = tmp_path_factory.getbasetemp() / f"changed{suffix}"
    path.write_bytes(data[: at % len(data)] + put + data[at % len(data) + cut :])
    try:
        Importer().load(str(path))
    except CompileError as problem:
        assert all(d.code.startswith("O0") for d in problem.diagnostics)


@pytest.mark.parametrize("name", ["net.ort", "net.onnx"])
def test_a_model_in_the_format_of_onnxruntime_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x18\0\0\0ORTM" + bytes(40))
    assert Importer().matches(str(path)) and "the format of onnxruntime (ORT)" in refused(path)
