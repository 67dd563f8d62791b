"""Operators and models travel to other processes as what they were made of; what was compiled they find in the cache there."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
import pytest
from network_writer import NetworkWriter

import tensorlang as tl
from codegen.errors import InternalError as InternalErrorOfCode
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.diagnostics import InternalError
from tensorlang.runtime.model import CompiledModel

T = TypeVar("T")

TEXT = """
op scale[T: float](x: T[N], attr by: float = 2.0) -> (y: T[N]) { y[i] = x[i] * by }
op total[T](x: T[M, N]) -> (y: T[M]) { y[i] = sum(j) x[i, j] }
"""
X = np.arange(6, dtype=np.float32)


def again(made: T) -> T:
    found: T = pickle.loads(pickle.dumps(made))
    return found


def written() -> onnx.ModelProto:
    net = NetworkWriter()
    return net.model((6,), net.op("Relu", net.op("Sub", "x", net.constant(np.full(6, 2, np.float32)))))


def run(model: tl.CompiledModel) -> list[float]:
    [result] = model.run({"x": X}).values()
    listed: list[float] = result.tolist()
    return listed


def test_an_operator_computes_the_same_after_a_pickle_and_a_copy() -> None:
    operator = tl.parse(TEXT, threads=1).scale
    expected = operator(X, by=3.0)
    for other in (again(operator), copy.deepcopy(operator)):
        assert other.signature == operator.signature
        np.testing.assert_array_equal(other(X, by=3.0), expected)


def test_an_operator_keeps_the_schedule_and_the_knobs_it_was_given() -> None:
    operator = tl.parse(TEXT).scale.schedule("knobs lanes in {2, 4}\nsplit y.i by lanes -> io, ii\nvectorize ii", lanes=4)
    kept = again(operator)
    assert (kept.given, kept.knobs) == (operator.given, operator.knobs)
    np.testing.assert_array_equal(kept(X), operator(X))


def test_the_operators_of_a_text_keep_mode_and_sizes() -> None:
    ops = again(tl.parse(TEXT, mode="strict", sizes="symbolic", threads=1))
    assert list(ops) == ["scale", "total"]
    assert (ops.total.module.mode, ops.total.sizes, ops.total.tools.threads) == ("strict", "symbolic", 1)
    np.testing.assert_array_equal(ops.total(X.reshape(2, 3)), [3, 12])


def test_a_model_is_compiled_again_from_its_file_wherever_the_process_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(written(), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(tl.compile("m.onnx", threads=1))
    monkeypatch.chdir("/")
    assert run(pickle.loads(pickled)) == [0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize("source", [written(), written().SerializeToString()], ids=["object", "bytes"])
def test_a_model_keeps_what_it_was_compiled_with(source: object) -> None:
    model = again(tl.compile(source, precision="bf16", threads=1, winograd=False, force_precision=True))
    assert run(model) == [0, 0, 0, 1, 2, 3]
    tools = model._tools
    assert (tools.threads, tools.winograd, tools.precision.requested) == (1, False, "bf16")


def test_workers_started_afresh_run_operators_and_models() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as workers:
        assert workers.submit(tl.parse(TEXT, threads=1).total, X.reshape(2, 3)).result().tolist() == [3, 12]
        assert workers.submit(tl.compile(written(), threads=1).run, {"x": X}).result().popitem()[1].tolist() == [0, 0, 0, 1, 2, 3]


def test_a_model_of_a_graph_in_memory_says_that_it_cannot_travel() -> None:
    model = tl.compile(written(), threads=1)
    alone = CompiledModel(model._load, toolchain(threads=1))
    with pytest.raises(pickle.PicklingError, match="graph in memory"):
        pickle.dumps(alone)


@pytest.mark.parametrize(
    "raised", [InternalErrorOfCode("emit", "a loop that never ends"), InternalError("lower", "a loop that never ends")]
)
def test_an_internal_error_of_another_process_says_what_it_said_there(raised: Exception) -> None:
    found = again(raised)
    assert (type(found), str(found)) == (type(raised), str(raised))
