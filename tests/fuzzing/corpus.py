"""Texts and models to begin with: what the repository itself holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from golden_case import cases, source
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parent.parent.parent
_PROGRAMS = ("stdlib", "tests/programs", "benchmarks")
_BLOCK = re.compile(
    r"```tl[-\w]*[^\n]*\n(.*?)```|(?:'''|\"\"\")((?:strict |fast |reduce )?(?:op|fn|schedule|reducer) .*?)(?:'''|\"\"\")", re.S
)
_DECLARATION = re.compile(r"^(?=(?:extern |strict |reduce |fast |ordered )*(?:op|fn|reducer|schedule|tactic|instruction)\b)", re.M)
TOKEN = re.compile(r"\s+|\w+|\.\.|->|//|==|!=|<=|>=|\"[^\"\n]*\"|.", re.S)


@dataclass(frozen=True)
class Corpus:
    """`files`: whole texts; `pieces`: for each text its declarations; `tokens`: the words they are made of."""

    files: tuple[str, ...]
    pieces: tuple[tuple[str, ...], ...]
    tokens: tuple[str, ...]


@cache
def corpus() -> Corpus:
    texts: list[str] = []
    for folder in _PROGRAMS:
        texts += [path.read_text("utf-8") for path in sorted((ROOT / folder).rglob("*.tl"))]
    texts += [source(path) for path in cases("bad_syntax")]
    for path in [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*.py")), ROOT / "README.md"]:
        texts += [a or b for a, b in _BLOCK.findall(path.read_text("utf-8"))]
    pieces = tuple(tuple(p for p in _DECLARATION.split(text) if p.strip()) for text in texts)
    tokens = sorted({t for text in texts for t in TOKEN.findall(text) if not t.isspace()})
    return Corpus(tuple(texts), pieces, tuple(tokens))


@cache
def models() -> tuple[bytes, ...]:
    """Return small models, serialised: one of several nodes, and what onnx ships as tests of single nodes."""
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    paths = sorted((data / "node").glob("*/model.onnx")) + sorted((data / "simple").glob("*/model.onnx"))
    return (_several().SerializeToString(), *(p.read_bytes() for p in paths if p.stat().st_size < 4000))


def _several() -> onnx.ModelProto:
    weights = np.arange(18, dtype=np.float32).reshape(2, 1, 3, 3)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "several",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 16])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array([2, -1]), "s")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
