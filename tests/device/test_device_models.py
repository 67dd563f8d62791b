"""Whole models on the emulated device give what they give on a processor."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from device_programs import run_model
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl
from codegen.cuda.arch import named
from stdlib import models
from stdlib.onnx import Importer
from tensorlang.device.build import device_model
from tensorlang.device.machine import machine_code


class Network:
    """Nodes and weights as they are added."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array((self.rng.standard_normal(shape) * 0.2).astype(np.float32), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def model(self, shape: tuple[int, ...], output: str) -> onnx.ModelProto:
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        returned = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", [given], [returned], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def convolutions() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    n = Network()
    first = n.add("Relu", n.add("Conv", "x", n.weight(8, 3, 3, 3), n.weight(8), pads=[1, 1, 1, 1], strides=[2, 2]))
    pooled = n.add("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2])
    left = n.add("Conv", pooled, n.weight(16, 8, 1, 1), n.weight(16))
    right = n.add("Conv", pooled, n.weight(16, 8, 3, 3), n.weight(16), pads=[1, 1, 1, 1])
    mean = n.add("Flatten", n.add("GlobalAveragePool", n.add("Relu", n.add("Concat", left, right, axis=1))))
    return n.model((1, 3, 32, 32), n.add("Softmax", n.add("Gemm", mean, n.weight(10, 32), n.weight(10), transB=1), axis=1)), (1, 3, 32, 32)


def attention() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    n = Network()
    heads = n.weight(0)
    n.weights[-1] = numpy_helper.from_array(np.array([1, 10, 4, 8]), heads)
    rows = n.weight(0)
    n.weights[-1] = numpy_helper.from_array(np.array([1, 10, 32]), rows)

    def project(perm: list[int]) -> str:
        return n.add("Transpose", n.add("Reshape", n.add("MatMul", "x", n.weight(32, 32)), heads), perm=perm)

    scores = n.add("Softmax", n.add("MatMul", project([0, 2, 1, 3]), project([0, 2, 3, 1])), axis=3)
    mixed = n.add("Reshape", n.add("Transpose", n.add("MatMul", scores, project([0, 2, 1, 3])), perm=[0, 2, 1, 3]), rows)
    added = n.add("Add", n.add("MatMul", mixed, n.weight(32, 32)), "x")
    return n.model((1, 10, 32), n.add("LayerNormalization", added, n.weight(32), n.weight(32))), (1, 10, 32)


@pytest.mark.parametrize("made", [convolutions, attention])
def test_a_model_on_the_emulated_device_equals_the_model_on_the_processor(made):
    model, shape = made()
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    expected = tl.compile(model).run({"x": x})
    device = device_model(Importer().load(model))
    for seed in (0, 4, 8):
        found = run_model(device, {"x": x}, seed)
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def of_size(name: str, size: int) -> tuple[onnx.ModelProto, str]:
    """Return a model of the zoo for images of `size` by `size`, and the name of its input."""
    model = models.load(name)
    constants = {tensor.name for tensor in model.graph.initializer}
    (image,) = (value for value in model.graph.input if value.name not in constants)
    for axis in (2, 3):
        image.type.tensor_type.shape.dim[axis].dim_value = size
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model, image.name


def test_a_network_of_the_zoo_runs_whole_and_is_clean_machine_code() -> None:
    model, image = of_size("light_squeezenet", 32)
    x = np.random.default_rng(3).standard_normal((1, 3, 32, 32)).astype(np.float32)
    expected = tl.compile(model, importers=[Importer()]).run({image: x})
    device = device_model(Importer().load(model))
    found = run_model(device, {image: x})
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5 * float(np.abs(array).max()))
    for arch in ("sm_80", "sm_90a"):
        for code in machine_code([made.launched for made in device.kernels.values()], named(f"cuda:{arch}"), None, 2):
            assert not any(usage.spills or usage.stack_bytes for usage in code.usage.values())
