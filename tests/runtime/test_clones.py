"""Clones of a model: code and weights are shared, threads and memory for values in between are their own."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl

X = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)


def layer() -> onnx.ModelProto:
    """Return relu(x w) for x: f32[batch, 96], with loops that are worth two threads."""
    w = np.random.default_rng(0).standard_normal((96, 192)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", n]) for name, n in (("x", 96), ("y", 192)))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "layer", [x], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def model() -> tl.CompiledModel:
    return tl.compile(layer(), threads=2, sizes="symbolic")


def threads_of_this_process(expected: int | None = None) -> int:
    """Return how many there are; the system may need a moment until it is those expected, where one has just ended."""
    gc.collect()
    for _ in range(1000):
        found = len(os.listdir("/proc/self/task"))
        if expected in (None, found):
            break
        time.sleep(0.01)
    return found


def test_clones_share_weights_and_code_also_of_shapes_that_come_later(model: tl.CompiledModel) -> None:
    clone = model.clone()
    expected = clone(X)
    np.testing.assert_array_equal(model(X), expected)
    assert clone.made.summary.weights is model.made.summary.weights
    assert clone.made.executable.library is model.made.executable.library
    np.testing.assert_array_equal(clone(X[:5]), model(X)[:5])
    assert "batch" in repr(clone)


def test_models_and_their_clones_run_in_several_threads_at_once(model: tl.CompiledModel) -> None:
    expected, wrong = model(X), list[str]()

    def work(name: str, own: tl.CompiledModel) -> None:
        for _ in range(100):
            if not np.array_equal(own(X), expected):
                wrong.append(name)

    runs = {"model": model, "the same again": model, "clone": model.clone(), "one thread": model.clone(threads=1)}
    workers = [threading.Thread(target=work, args=pair) for pair in runs.items()]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_a_clone_has_threads_of_its_own_which_end_with_it(model: tl.CompiledModel) -> None:
    model(X)
    time.sleep(0.1)  # until threads of clones that are gone are, too
    before = threads_of_this_process()
    one, two = model.clone(threads=1), model.clone(threads=2)
    one(X)
    assert threads_of_this_process(before) == before
    two(X)
    assert threads_of_this_process(before + 1) == before + 1
    del two
    assert threads_of_this_process(before) == before


@pytest.mark.parametrize("threads", [0, 3, -1, True, 1.0, "2"])
def test_threads_that_the_code_is_not_for_are_refused(model: tl.CompiledModel, threads: object) -> None:
    with pytest.raises(tl.CompileError, match=r"(?s)C0107.*compiled for 2: give a number from 1 to 2"):
        model.clone(threads=threads)  # type: ignore[arg-type]


def test_a_pickle_of_a_clone_makes_a_clone(model: tl.CompiledModel) -> None:
    found = pickle.loads(pickle.dumps(model.clone(threads=1)))
    np.testing.assert_array_equal(found(X), model(X))
    assert "for cpu, 1 thread" in repr(found)


def test_a_child_of_a_fork_starts_threads_anew(model: tl.CompiledModel) -> None:
    clone = model.clone()
    expected = clone(X)
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(clone(X), expected) and np.array_equal(model.clone()(X), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
