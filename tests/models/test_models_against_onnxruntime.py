"""Every architecture that ships with the project or with the `onnx` package, with random weights, computes what onnxruntime computes, but
for those that have no layer of their own, and for layers that are those before them once more.

The bound is the largest error over the largest value: f32 rounding over a few hundred layers stays well below it, a wrong layer does not.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, helper

import tensorlang as tl
from stdlib import models
from stdlib.onnx.weights import randomise
from tensorlang.graph.nodes import Value

BOUND = 1e-4
ALIKE = {
    "light_zfnet512": "light_bvlc_alexnet, but for windows of convolutions and maxima: tests/onnx/test_against_onnxruntime.py",
    "vgg16": "light_bvlc_alexnet, light_resnet50, but for windows of maxima: tests/onnx/test_against_onnxruntime.py",
    "light_vgg19": "light_bvlc_alexnet, light_resnet50, but for windows of maxima: tests/onnx/test_against_onnxruntime.py",
    "bert_base": "minilm_l6",
    "light_resnet50": "examples/07_resnet50.py, which tests/test_examples.py runs, compares it with three others",
    "resnet50": "light_resnet50, light_densenet121, mobilenet_v2: strides stand elsewhere",
    "light_squeezenet": "squeezenet11, light_inception_v1",
    "light_inception_v2": "light_inception_v1, light_densenet121, but for windows of averages: tests/onnx/test_against_onnxruntime.py",
}
"""Models all of whose layers are those of others, by the names of these."""
SHORTENED = {
    "vit_base": {"add_38": "add_8"},
    "gpt2": {"add_63": "add_13"},
    "light_densenet121": {"fc6_1": "r293"},
    "light_inception_v1": {"prob_1": "r37"},
}
"""What is read, or returned, in place of what more layers of the same kinds make: transformers have two of their twelve layers, DenseNet
has two of its four blocks and Inception two of its nine modules. The other models are as deep as they ship."""


def shortened(name: str) -> ModelProto:
    """Return a model, with the `ConstantOfShape` that it ships for weights, without the layers that `SHORTENED` leaves out."""
    model, instead = models.bare(name), SHORTENED.get(name, {})
    for node in model.graph.node:
        node.input[:] = [instead.get(value, value) for value in node.input]
    for output in model.graph.output:
        output.CopyFrom(helper.make_tensor_value_info(instead.get(output.name, output.name), output.type.tensor_type.elem_type, None))
    needed, kept = {output.name for output in model.graph.output}, list[NodeProto]()
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(kept))
    return model


def feed(value: Value, rng: np.random.Generator) -> np.ndarray:
    if value.dtype.is_float:
        return rng.standard_normal(value.shape).astype(value.dtype.numpy)
    if "mask" in value.name:
        return np.ones(value.shape, value.dtype.numpy)
    return rng.integers(0, 1000, value.shape).astype(value.dtype.numpy)


@pytest.mark.parametrize("name", [name for name in models.names() if name not in ALIKE])
def test_a_model_with_random_weights_agrees_with_onnxruntime(name: str) -> None:
    model = randomise(shortened(name), seed=11)
    compiled = tl.compile(model)
    rng = np.random.default_rng(5)
    feeds = {value.name: feed(value, rng) for value in compiled.inputs}
    got = compiled.run(feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    want = dict(zip(names, session.run(names, feeds), strict=True))
    assert list(got) == names
    for output in names:
        assert np.std(want[output]) > 0, "the expected output is uniform: it would not show a wrong layer"
        error = float(np.max(np.abs(got[output] - want[output])) / np.max(np.abs(want[output])))
        assert error <= BOUND, f"`{output}` is off by {error:.2e}"
