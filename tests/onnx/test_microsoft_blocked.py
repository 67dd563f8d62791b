"""Models that onnxruntime has laid out for one processor, with channels in blocks, compute what they computed before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from microsoft_operators import Array, draw
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx_evaluate import staged

from stdlib.onnx import Importer
from stdlib.onnx.channel_blocks import NCHWC
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Kernel
from tensorlang.graph.passes.clean.dce import dce


def node(op: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, [output], name=f"{op} {output}", domain=domain, **attributes)


def model(nodes: list[NodeProto], shape: tuple[int, ...], **weights: Array) -> ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", shape), ("y", None)))
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(a, name) for name, a in weights.items()])
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 17), ("com.microsoft", 1), (NCHWC, 1))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def run(proto: ModelProto, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return np.asarray(onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"]).run(None, {"x": x})[0])


def laid_out(proto: ModelProto, folder: Path) -> ModelProto:
    """Return what onnxruntime makes of a model for this processor."""
    options, path = onnxruntime.SessionOptions(), folder / "optimised.onnx"
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath, options.log_severity_level = str(path), 3
    onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return onnx.load(path)


def test_a_network_is_computed_as_it_was(tmp_path: Path) -> None:
    """Plain channels, few and many; one kernel for each channel; pooling; what is added; channels that fill no block; another size."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], "a", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], "r"),
        node("MaxPool", ["r"], "p", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["p", "w1"], "d", group=16, pads=[1, 1, 1, 1]),
        node("Conv", ["d", "w2", "b0"], "e"),
        node("Add", ["e", "p"], "s"),
        node("HardSwish", ["s"], "h"),
        node("AveragePool", ["h"], "v", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Concat", ["v", "p"], "c", axis=1),
        node("Conv", ["c", "w3"], "f"),
        node("Resize", ["f", "", "scales"], "u", mode="linear"),
        node("GlobalMaxPool", ["u"], "g"),
        node("Mul", ["u", "g"], "m"),
        node("Conv", ["m", "w4"], "y"),
    ]
    weights = {"w0": draw(16, 3, 3, 3), "b0": draw(16), "w1": draw(16, 1, 3, 3), "w2": draw(16, 16, 1, 1), "w3": draw(4, 32, 1, 1)}
    whole = model(nodes, (1, 3, 4, 4), **weights, w4=draw(12, 4, 1, 1), scales=np.asarray([1, 1, 2, 2], np.float32))
    made, x = laid_out(whole, tmp_path), draw(1, 3, 4, 4)
    assert {n.op_type for n in made.graph.node if n.domain == NCHWC} >= {"Conv", "MaxPool", "AveragePool", "ReorderOutput"}
    np.testing.assert_allclose(staged(made, {"x": x})[0], run(whole, x), rtol=1e-3, atol=1e-4)
    compiled = dce(Importer().load(made, {"x": x.shape}))
    assert not [n.name for n in compiled.nodes if isinstance(n, Kernel) and n.operator == "transpose"]


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("between", [node("Softmax", ["b"], "s", axis=1), node("Mul", ["b", "k"], "s"), node("Identity", ["b"], "s")])
def test_what_stands_between_reads_memory_as_it_is(between: NodeProto, last: int) -> None:
    """The factors differ from place to place of memory, and the sums are of what lies apart by one image."""
    nodes = [
        node("ReorderInput", ["x"], "b", NCHWC, channels_last=last),
        between,
        node("ReorderOutput", ["s"], "y", NCHWC, channels=12, channels_last=last),
    ]
    shape = (2, 2, 3, 12) if last else (2, 12, 2, 3)
    made = model(nodes, shape, k=draw(2, 16, 2, 3))
    np.testing.assert_allclose(staged(made, {"x": draw(*shape)})[0], run(made, draw(*shape)), rtol=1e-5)


@pytest.mark.parametrize(
    "mode", [("nearest", "asymmetric"), ("linear", "asymmetric"), ("linear", "align_corners"), ("linear", "half_pixel")]
)
def test_blocks_grow_as_onnxruntime_makes_them_grow(mode: tuple[str, str]) -> None:
    grown = node("Upsample", ["b"], "s", NCHWC, scales=[1, 1, 3, 2], mode=mode[0], coordinate_transformation_mode=mode[1])
    made = model([node("ReorderInput", ["x"], "b", NCHWC), grown, node("ReorderOutput", ["s"], "y", NCHWC, channels=16)], (1, 16, 3, 4))
    x = draw(1, 16, 3, 4)
    np.testing.assert_allclose(staged(made, {"x": x})[0], run(made, x), rtol=1e-5, atol=1e-6)


def in_blocks(w: Array, block: int, deep: bool) -> Array:
    """Return filters in blocks of output channels, and of input channels where these are deep."""
    o, i, *window = w.shape
    if deep:
        return w.reshape(o // block, block, i // block, block, *window).transpose(0, 2, 4, 5, 3, 1).reshape(w.shape)
    return w.reshape(o // block, block, i, *window).transpose(0, 2, 3, 4, 1).reshape(w.shape)


@pytest.mark.parametrize(("block", "filled", "used"), [(8, 24, 24), (8, 32, 28), (16, 32, 20), (16, 16, 8), (8, 8, 3)])
def test_the_length_of_blocks_follows_from_how_they_are_filled(block: int, filled: int, used: int) -> None:
    """Eight channels are half a block of 16, and a block of 8 that holds none is not there."""
    w, v, x = draw(filled, 3, 3, 3), draw(filled, filled, 1, 1), draw(1, 3, 5, 5)
    nodes = [
        node("Conv", ["x", "w"], "a", NCHWC, pads=[1, 1, 1, 1]),
        node("Conv", ["a", "v"], "b", NCHWC, activation="Relu"),
        node("MaxPool", ["b"], "c", NCHWC, kernel_shape=[2, 2], storage_order=0),
        node("ReorderOutput", ["c"], "y", NCHWC, channels=used),
    ]
    if (block, filled) == (8, 32):  # nothing but another value of the model tells
        nodes.append(node("Conv", ["x", "told"], "unread", NCHWC))
    made = model(nodes, x.shape, w=in_blocks(w, block, False), v=in_blocks(v, block, True), told=draw(8, 3, 1, 1))
    plain = [
        node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]),
        node("Conv", ["a", "v"], "b"),
        node("Relu", ["b"], "r"),
        node("MaxPool", ["r"], "y", kernel_shape=[2, 2]),
    ]
    expected = run(model(plain, x.shape, w=w, v=v), x)[:, :used]
    np.testing.assert_allclose(staged(made, {"x": x})[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", [0, 8, 25])
def test_channels_that_leave_a_block_empty_are_refused(channels: int) -> None:
    nodes = [node("Conv", ["x", "w"], "a", NCHWC), node("ReorderOutput", ["a"], "y", NCHWC, channels=channels)]
    with pytest.raises(CompileError, match="channels in 24, in blocks of 8"):
        Importer().load(model(nodes, (1, 3, 4, 4), w=draw(24, 3, 1, 1)))


def test_an_operator_that_the_domain_does_not_have_is_named() -> None:
    with pytest.raises(CompileError, match=r"operator Relu of the domain `com\.microsoft\.nchwc`"):
        Importer().load(model([node("Relu", ["x"], "y", NCHWC)], (1, 16, 4, 4)))
