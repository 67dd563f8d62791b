"""The eighteen models become verified graphs with the shapes and types they declare, quickly, and compute what onnxruntime computes."""

from __future__ import annotations

from time import process_time

import numpy as np
import onnxruntime
import pytest
from onnx_evaluate import evaluate

from stdlib import models
from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Kernel
from tensorlang.graph.verify import verify

SHAPES = {
    "bert_base": (1, 128, 768), "minilm_l6": (1, 128, 384), "gpt2": (1, 128, 50257), "light_densenet121": (1, 1000, 1, 1),
    "light_squeezenet": (1, 1000, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", models.names())
def test_a_model_becomes_a_verified_graph(name: str) -> None:
    model = models.bare(name)
    start = process_time()
    graph = verify(Importer().load(model))
    assert process_time() - start < 3
    assert [graph.values[o].shape for o in graph.outputs] == [SHAPES.get(name, (1, 1000))]
    assert all(not isinstance(n, Kernel) or n.operator for n in graph.nodes)


def test_importing_again_gives_the_same_graph() -> None:
    first, second = (Importer().load(models.bare("squeezenet11")) for _ in range(2))
    assert (first.inputs, first.outputs, first.values, first.nodes) == (second.inputs, second.outputs, second.values, second.nodes)


def test_random_weights_are_the_same_for_the_same_seed() -> None:
    one, same, other = (models.load("squeezenet11", seed) for seed in (1, 1, 2))
    assert one.SerializeToString(deterministic=True) == same.SerializeToString(deterministic=True)
    assert one.SerializeToString(deterministic=True) != other.SerializeToString(deterministic=True)


def test_names_that_are_no_model_are_refused() -> None:
    with pytest.raises(CompileError, match="resnet50"):
        models.load("resnet51")


def test_every_kernel_of_squeezenet_computes_what_onnxruntime_computes() -> None:
    model = models.load("squeezenet11", seed=3)
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = 35
    x = np.random.default_rng(0).standard_normal((1, 3, 35, 35), dtype=np.float32)
    (expected,) = peer(model.SerializeToString()).run(None, {"x": x})
    (actual,) = evaluate(Importer().load(model), {"x": x})
    # Twenty-six convolutions of up to 4608 terms each: a few thousand rounding errors of the largest activation.
    assert np.abs(actual - expected).max() <= 2000 * np.finfo(np.float32).eps * np.abs(expected).max()


def peer(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options)
