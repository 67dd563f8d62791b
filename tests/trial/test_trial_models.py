"""What people hand to models by mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tensorlang as tl

X = np.ones((2, 3), np.float32)


def relu(rows: int | str) -> bytes:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (rows, 3)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return content


@pytest.mark.parametrize("feeds", [X, [X], None, "x"])
@pytest.mark.parametrize("rows", [2, "rows"])
def test_feeds_that_have_no_names_are_refused(feeds: Any, rows: int | str) -> None:
    model = tl.compile(relu(rows))
    with pytest.raises(tl.CompileError, match=r"R0301.*by name"):
        model.run(feeds)
    assert model.run({"x": X})["y"].tolist() == X.tolist()


@pytest.mark.parametrize("shapes", [{"x": "ab"}, {"x": (2.5, 3)}, {"x": 3}, [(2, 3)], {"x": None}, {"x": (True, 3)}])
def test_shapes_that_are_none_are_refused(shapes: Any) -> None:
    with pytest.raises(tl.CompileError, match="C0106"):
        tl.compile(relu("rows"), shapes=shapes)


@pytest.mark.parametrize("call", [lambda: tl.compile("a\0b.onnx"), lambda: tl.load("a\0b.tl")])
def test_a_path_with_a_nul_byte_is_one_diagnostic(call: Callable[[], Any]) -> None:
    with pytest.raises(tl.CompileError):
        call()
