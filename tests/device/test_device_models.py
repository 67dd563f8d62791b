"""Whole models on a device give what they give on a processor, in every precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from executors import Executor
from network_writer import NetworkWriter
from onnx import TensorProto, helper, numpy_helper
from usual_device import device_model

import tensorlang as tl
from codegen.cuda.arch import named
from codegen.dtypes import bf16
from stdlib import models
from stdlib.library import roles
from stdlib.onnx import Importer
from tensorlang.backends.cuda.boards import products_of_bf16
from tensorlang.backends.cuda.machine import machine_code
from tensorlang.graph.nodes import Kernel
from tensorlang.graph.precisions import chosen_on
from tensorlang.planning import Rules

Array = np.ndarray[Any, Any]


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


def channels() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Return a network of convolutions that want their channels last: 1 x 1, depthwise, with strides, of sums and of what is joined."""
    n = Network()
    stem = n.add("Relu", n.add("Conv", "x", n.weight(16, 3, 3, 3), n.weight(16), pads=[1, 1, 1, 1]))
    wide = n.add("Relu", n.add("Conv", stem, n.weight(32, 16, 1, 1), n.weight(32)))
    deep = n.add("Relu", n.add("Conv", wide, n.weight(32, 1, 3, 3), n.weight(32), pads=[1, 1, 1, 1], group=32))
    added = n.add("Add", n.add("Conv", deep, n.weight(16, 32, 1, 1)), stem)
    halved = n.add("Relu", n.add("Conv", added, n.weight(24, 16, 3, 3), n.weight(24), pads=[1, 1, 1, 1], strides=[2, 2]))
    joined = n.add("Concat", halved, n.add("MaxPool", added, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), axis=1)
    last = n.add("Conv", joined, n.weight(12, 40, 1, 1))
    return n.model((1, 3, 11, 9), n.add("Gemm", n.add("Flatten", n.add("GlobalAveragePool", last)), n.weight(10, 12), transB=1)), (
        1,
        3,
        11,
        9,
    )


def attention(tokens: int = 10, count: int = 4, width: int = 8) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    n, wide = Network(), count * width
    heads = n.weight(0)
    n.weights[-1] = numpy_helper.from_array(np.array([1, tokens, count, width]), heads)
    rows = n.weight(0)
    n.weights[-1] = numpy_helper.from_array(np.array([1, tokens, wide]), rows)

    def project(perm: list[int]) -> str:
        return n.add("Transpose", n.add("Reshape", n.add("MatMul", "x", n.weight(wide, wide)), heads), perm=perm)

    scores = n.add("Softmax", n.add("MatMul", project([0, 2, 1, 3]), project([0, 2, 3, 1])), axis=3)
    mixed = n.add("Reshape", n.add("Transpose", n.add("MatMul", scores, project([0, 2, 1, 3])), perm=[0, 2, 1, 3]), rows)
    added = n.add("Add", n.add("MatMul", mixed, n.weight(wide, wide)), "x")
    return n.model((1, tokens, wide), n.add("LayerNormalization", added, n.weight(wide), n.weight(wide))), (1, tokens, wide)


def residuals() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Return a network whose sums are normalised and needed later: before a product, and after one."""
    n = Network()
    first = n.add("Add", "x", n.weight(1, 12, 48))
    before = n.add("LayerNormalization", first, n.weight(48), n.weight(48))
    added = n.add("Add", n.add("Relu", n.add("MatMul", before, n.weight(48, 48))), first)
    after = n.add("LayerNormalization", added, n.weight(48), n.weight(48))
    return n.model((1, 12, 48), n.add("Add", after, n.add("MatMul", after, n.weight(48, 48)))), (1, 12, 48)


def test_a_sum_that_is_normalised_and_needed_later_is_made_by_one_kernel() -> None:
    device = device_model(Importer().load(residuals()[0]), rules=Rules(roles()))
    both = [call for call in device.calls if len(call.node.outputs) == 2]
    assert [call.node.program.name for call in both] == ["add_layer_norm"]
    kernel = device.kernels[both[0].kernel]
    assert "row_reduction" in kernel.origin and len(kernel.launched.launches) == 1


@cache
def on_the_processor(made: Callable[[], tuple[onnx.ModelProto, tuple[int, ...]]]) -> tuple[onnx.ModelProto, Array, dict[str, Array]]:
    """Return a model, its input, and what the processor makes of it."""
    model, shape = made()
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    return model, x, tl.compile(model).run({"x": x})


@pytest.mark.parametrize("made", [convolutions, channels, attention, residuals])
def test_a_model_on_the_device_equals_the_model_on_the_processor(made, executor: Executor):
    model, x, expected = on_the_processor(made)
    device = device_model(Importer().load(model))
    for seed in executor.seeds:
        found = executor(device, {"x": x}, seed)
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


ARCH = named("cuda:sm_90a")


ERRORS = {"bf16": 1e-2, "f16": 2e-3, "tf32": 2e-3, "bf16x3": 2e-5, "bf16x6": 1e-6}


@pytest.mark.parametrize(
    ("made", "precision"),
    [
        *((attention, precision) for precision in ERRORS),
        *((convolutions, precision) for precision in ("bf16", "tf32", "bf16x6")),  # one of each way to multiply less
        *((channels, precision) for precision in ("f16", "bf16x3")),
    ],
)
def test_a_reduced_precision_is_that_far_from_f32_and_no_further(made, precision: str, executor: Executor) -> None:
    model, x, results = on_the_processor(made)
    ((name, expected),) = results.items()
    device = device_model(Importer().load(model), precision=chosen_on(precision, None, force_precision=True))
    found = executor(device, {"x": x})[name]
    assert 0 < np.abs(found - expected).max() < ERRORS[precision] * np.abs(expected).max()
    dtypes = {str(value.dtype) for value in device.graph.values.values()}
    assert dtypes == {"f32", *({"tf32": (), "f16": ("f16",)}.get(precision, ("bf16",)))}


def test_f32_from_products_of_bf16_is_multiplied_by_warps_where_that_is_known_to_pay(executor: Executor) -> None:
    n = NetworkWriter(5)
    w = n.rng.standard_normal((64, 48)).astype(np.float32)
    model, x = n.model((32, 64), n.op("MatMul", "x", n.constant(w))), n.rng.standard_normal((32, 64)).astype(np.float32)
    for name, error in (("bf16x3", 2e-5), ("bf16x6", 1e-6)):
        used = {
            arch: chosen_on(name, products_of_bf16(named(arch))).used for arch in ("cuda:sm_75", "cuda:sm_80", "cuda:sm_86", "cuda:sm_120")
        }
        assert list(used.values()) == ["f32", name, name if name == "bf16x3" else "f32", "f32"]
        device = device_model(Importer().load(model), rules=Rules(roles()), precision=chosen_on(name, products_of_bf16(ARCH)))
        assert any("warp_product" in kernel.origin for kernel in device.kernels.values())
        (found,) = executor(device, {"x": x}).values()
        assert np.abs(found - x.astype(np.float64) @ w).max() < error * np.abs(x @ w).max()


def test_what_convolutions_multiply_in_16_bits_has_its_channels_last() -> None:
    graph = device_model(Importer().load(channels()[0]), precision=chosen_on("bf16", None)).graph
    for node in graph.nodes:
        assert isinstance(node, Kernel) and not node.name.startswith("lay out")
        if "conv" in node.program.name and graph.values[node.inputs[0]].dtype == bf16:
            x, w, y = (graph.values[v] for v in (*node.inputs[:2], node.outputs[0]))
            assert x.layout is not None and x.layout.shape[-1] == x.shape[1]
            assert w.shape[2:] == (1, 1) or (w.layout is not None and w.layout.shape[1:3] == (3, 3))
            assert y.shape[1] % 8 or (y.layout is not None and y.layout.shape[-1] == y.shape[1])
    assert all(v.layout is None for v in device_model(Importer().load(channels()[0])).graph.values.values())


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_attention_of_a_large_model_is_one_launch(precision: str) -> None:
    device = device_model(Importer().load(attention(128, 12, 64)[0]), precision=chosen_on(precision, None))
    (call,) = (c for c in device.calls if c.node.program.name == "attention")
    kernel = device.kernels[call.kernel]
    assert len(kernel.launched.launches) == 1 and "rfactor" not in kernel.schedule


def test_weights_that_f16_has_not_stay_f32() -> None:
    n = NetworkWriter()
    large = n.constant(np.full((16, 16), 1e5, np.float32))
    small = n.constant(n.rng.standard_normal((16, 16)).astype(np.float32))
    model = n.model((4, 16), n.op("MatMul", n.op("MatMul", "x", large), small))
    device = device_model(Importer().load(model), precision=chosen_on("f16", None))
    first, *_ = (node for node in device.graph.nodes if isinstance(node, Kernel) and "round" not in node.name)
    assert all(device.graph.values[v].dtype.name == "f32" for v in first.inputs)


def test_a_quantised_model_is_computed_in_bytes(executor: Executor) -> None:
    n = NetworkWriter(3)

    def quantised(x: str, scale: float) -> str:
        s, z = n.constant(np.array(scale, np.float32)), n.constant(np.array(128, np.uint8))
        return n.op("DequantizeLinear", n.op("QuantizeLinear", x, s, z), s, z)

    def weights(*shape: int) -> str:
        array, scales = n.rng.integers(-127, 128, shape).astype(np.int8), n.rng.uniform(0.001, 0.002, shape[0]).astype(np.float32)
        return n.op("DequantizeLinear", n.constant(array), n.constant(scales), n.constant(np.zeros(shape[0], np.int8)), axis=0)

    first = quantised(n.op("Relu", n.op("Conv", quantised("x", 0.02), weights(16, 8, 3, 3), pads=[1, 1, 1, 1])), 0.03)
    model = n.model((1, 8, 9, 11), quantised(n.op("Conv", first, weights(24, 16, 1, 1)), 0.05))
    x = np.random.default_rng(3).standard_normal((1, 8, 9, 11)).astype(np.float32)
    ((name, expected),) = tl.compile(model).run({"x": x}).items()
    device = device_model(Importer().load(model))
    found = executor(device, {"x": x})[name]
    assert np.abs(found - expected).max() <= 0.05 * 1.001 and (found != expected).mean() < 0.02
    assert {"u8", "i8"} <= {str(value.dtype) for value in device.graph.values.values()}


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


def test_a_network_of_the_zoo_runs_whole(executor: Executor) -> None:
    model, image = of_size("light_squeezenet", 32)
    x = np.random.default_rng(3).standard_normal((1, 3, 32, 32)).astype(np.float32)
    expected = tl.compile(model, importers=[Importer()]).run({image: x})
    device = device_model(Importer().load(model))
    found = executor(device, {image: x})
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5 * float(np.abs(array).max()))


def test_a_network_of_the_zoo_is_clean_machine_code() -> None:
    device = device_model(Importer().load(of_size("light_squeezenet", 32)[0]))
    for arch in ("sm_80", "sm_90a"):
        for code in machine_code([made.launched for made in device.kernels.values()], named(f"cuda:{arch}"), None, 2):
            assert not any(usage.spills or usage.stack_bytes for usage in code.usage.values())
