"""The command line as tests call it, and a model for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tensorlang import cli


def run(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, str, str]:
    """Return the exit code of a call, and what it wrote to both streams."""
    code = cli._guarded([str(a) for a in argv])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def saved(path: Path, nodes: Sequence[NodeProto]) -> Path:
    """Write a model of x: [2, 4] and a weight w: [4, 3] that computes y: [2, 3], and return where."""
    weight = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 4]), ("y", [2, 3])))
    graph = helper.make_graph(nodes, "net", [x], [y], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path
