"""Initializers that are inputs, too: constants, unless a run gives them other values."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, parser

import tensorlang as tl
from tensorlang.diagnostics import CompileError, RunError

X, OTHER = np.ones(3, np.float32), np.array([5, 6, 7], np.float32)


def written(graph: str, version: int = 8) -> ModelProto:
    return parser.parse_model(f'<ir_version: {version}, opset_import: ["": 17]>\n{graph}')  # type: ignore[no-any-return]


SCALED = "g (float[3] x, float[3] w) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Mul(x, w) }"


def y(model: tl.CompiledModel, **feeds: Any) -> list[Any]:
    found: list[Any] = model.run(feeds)["y"].tolist()
    return found


def test_a_run_that_feeds_an_initializer_has_it_and_the_next_one_has_the_default_again() -> None:
    model = tl.compile(written(SCALED), threads=1)
    assert y(model, x=X) == [1, 2, 3]
    assert y(model, x=X, w=OTHER) == [5, 6, 7]
    assert y(model, x=X) == [1, 2, 3]
    assert model.prepared({"x": X, "w": OTHER})()["y"].tolist() == [5, 6, 7]
    assert y(pickle.loads(pickle.dumps(model)), x=X, w=OTHER) == y(model.clone(), x=X, w=OTHER) == [5, 6, 7]


def test_sizes_that_stay_open_and_initializers_that_decide_shapes_are_fed_as_well() -> None:
    scaled = tl.compile(written("g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {2}> { y = Mul(x, w) }"), threads=1)
    for n in (2, 3, 4):
        x = np.ones(n, np.float32)
        assert (y(scaled, x=x), y(scaled, x=x, w=np.full(1, 7, np.float32))) == ([2] * n, [7] * n)
    shaped = tl.compile(written("g (float[6] x, int64[2] s) => (float[A, B] y) <int64[2] s = {2, 3}> { y = Reshape(x, s) }"), threads=1)
    x = np.arange(6, dtype=np.float32)
    assert y(shaped, x=x) == x.reshape(2, 3).tolist()
    assert y(shaped, x=x, s=np.array([3, -1])) == x.reshape(3, 2).tolist()


def test_what_is_fed_from_the_start_is_an_input_like_the_others() -> None:
    model = tl.compile(written(SCALED), threads=1, fed=["w"])
    assert [t.name for t in model.inputs] == ["x", "w"]
    assert y(model, x=X, w=OTHER) == [5, 6, 7]
    with pytest.raises(RunError, match=r"R0301.*`w` is missing"):
        model.run({"x": X})


def test_only_what_a_model_lists_as_an_input_is_fed() -> None:
    hidden = written("g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Mul(x, w) }")
    for model in (hidden, written(SCALED, version=3)):  # before version 4 all initializers were listed
        with pytest.raises(RunError, match="R0302"):
            tl.compile(model, threads=1).run({"x": X, "w": OTHER})
        with pytest.raises(CompileError, match=r"C0148.*`w`"):
            tl.compile(model, threads=1, fed=["w"])
    with pytest.raises(RunError, match=r"R0304.*`w`"):
        tl.compile(written(SCALED), threads=1).run({"x": X, "w": np.ones(4, np.float32)})
