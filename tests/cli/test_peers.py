"""Peers: every library runs the same task, on its own arrays, and says which precision it computes in."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from tensorlang.diagnostics import CompileError
from tensorlang.shell.peers import PEERS, Task, peers, runs

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(12, dtype=np.float32).reshape(3, 4)


def product() -> bytes:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("a", [2, 3]), ("b", [3, 4]), ("y", [2, 4]))]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "product", ports[:2], ports[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert isinstance(model, onnx.ModelProto)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("results", [(), (np.zeros((2, 4), np.float32),)], ids=["new arrays", "arrays that exist"])
@pytest.mark.parametrize("peer", [p for p in PEERS if p.installed], ids=lambda p: p.name)
def test_a_peer_computes_the_task(peer: object, results: tuple[np.ndarray, ...]) -> None:
    assert peer in PEERS
    calls = {"numpy": lambda a, b, y=None: np.matmul(a, b, out=y), "torch": lambda a, b, y=None: a @ b if y is None else y.copy_(a @ b)}
    for run in runs(Task({"a": A, "b": B}, product(), calls, results=results), 1, [p for p in PEERS if p is peer]).values():
        run()
        np.testing.assert_allclose(run()[0], A @ B, rtol=1e-2)
        assert not results or not results[0].any()


def test_torch_as_a_peer_leaves_gradients_on() -> None:
    runs(Task({"a": A, "b": B}, calls={"torch": torch.matmul}), 1, peers(["torch"]))["torch"]()
    assert torch.is_grad_enabled()


def test_a_peer_without_the_task_is_left_out() -> None:
    assert runs(Task({"a": A}), 1, peers(["onnxruntime", "numpy"])) == {}


@pytest.mark.parametrize("name", ["nobody", ""])
def test_a_peer_that_nobody_knows_is_refused_by_name(name: str) -> None:
    with pytest.raises(CompileError, match="C0221"):
        peers([name])
