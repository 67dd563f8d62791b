"""Whole models through `tl.compile`, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorlang as tl
from stdlib.onnx import Importer
from tensorlang.backends.cpu.toolchain import toolchain
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Kernel
from tensorlang.graph.options import Options
from tensorlang.graph.pipeline import optimise

RNG = np.random.default_rng(5)


def model(nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], weights: dict[str, Any]) -> onnx.ModelProto:
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", declared, results, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def weight(*shape: int) -> np.ndarray[Any, Any]:
    return (RNG.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)


def residual_net(channels: int) -> onnx.ModelProto:
    """Convolution, batch normalisation, pooling, a residual block, concatenation, mean, a linear layer."""
    c = channels
    weights: dict[str, Any] = {
        "w0": weight(c, 3, 3, 3),
        "w1": weight(c, c, 3, 3),
        "b1": weight(c),
        "w2": weight(c, c, 1, 1),
        "wl": weight(2 * c, 5),
        "bl": weight(5),
    }
    weights |= {name: np.abs(weight(c)) + 0.5 for name in ("scale", "bias", "mean", "var")}
    weights["axes"] = np.array([2, 3], np.int64)
    conv = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], **conv, strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c0", "scale", "bias", "mean", "var"], ["n0"]),
        helper.make_node("Relu", ["n0"], ["r0"]),
        helper.make_node("MaxPool", ["r0"], ["p0"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Conv", ["p0", "w1", "b1"], ["c1"], **conv),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"]),
        helper.make_node("Add", ["c2", "p0"], ["a2"]),
        helper.make_node("Relu", ["a2"], ["r2"]),
        helper.make_node("Concat", ["r2", "p0"], ["k"], axis=1),
        helper.make_node("ReduceMean", ["k", "axes"], ["m"], keepdims=0),
        helper.make_node("Gemm", ["m", "wl", "bl"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    return model(nodes, {"x": [1, 3, 32, 32]}, ["y", "r2"], weights)


def reference(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(a) for a in session.run(None, feeds)]


@pytest.mark.parametrize(("channels", "threads"), [(32, 2), (10, 1)])
def test_a_residual_network_agrees_with_onnxruntime(channels: int, threads: int) -> None:
    proto = residual_net(channels)
    x = RNG.standard_normal((1, 3, 32, 32)).astype(np.float32)
    compiled = tl.compile(proto, threads=threads, importers=[Importer()])
    got, want = compiled.run({"x": x}), reference(proto, {"x": x})
    assert list(got) == ["y", "r2"]
    for mine, theirs in zip(got.values(), want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, strict=True)


def test_normalisation_and_activations_are_part_of_the_convolutions_and_blocks_stay_blocks() -> None:
    done = optimise(Importer().load(residual_net(32)), Options(toolchain(threads=1).preferred_layouts))
    kernels = [n for n in done.nodes if isinstance(n, Kernel)]
    convolutions = [n for n in kernels if n.program.name.startswith("conv")]
    assert len(convolutions) == 3
    assert len(kernels) <= 10
    assert not any("batch" in n.program.name for n in kernels)
    blocked = [name for name, value in done.values.items() if value.layout is not None and name not in done.constants]
    assert len(blocked) >= 4


def test_open_dimensions_are_compiled_for_the_arrays_that_come(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Tanh", ["t"], ["y"])]
    proto = model(nodes, {"x": ["batch", 7]}, ["y"], {"w": weight(7, 4)})
    path = tmp_path / "net.onnx"
    onnx.save(proto, path)
    compiled = tl.compile(path, threads=1, importers=[Importer()])
    for batch in (1, 6):
        x = RNG.standard_normal((batch, 7)).astype(np.float32)
        np.testing.assert_allclose(compiled.run({"x": x})["y"], reference(proto, {"x": x})[0], rtol=1e-4, atol=1e-5)
    fixed = tl.compile(path, threads=1, shapes={"x": (3, 7)}, importers=[Importer()])
    assert fixed.inputs[0].shape == (3, 7)


@pytest.mark.parametrize("channels", [5, 32])
def test_a_model_in_bf16_is_near_the_one_in_f32_with_weights_of_half_the_size(channels: int) -> None:
    proto = residual_net(channels)
    exact = tl.compile(proto, threads=1, importers=[Importer()])
    name = exact.inputs[0].name
    x = RNG.standard_normal(exact.inputs[0].shape).astype(np.float32)
    narrow = tl.compile(proto, precision="bf16", threads=1, importers=[Importer()])
    want, got = (next(iter(m.run({name: x}).values())) for m in (exact, narrow))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, atol=0.02 * np.abs(want).max())
    assert (np.abs(got - want) > 0).any()


@pytest.mark.parametrize(("queries", "keys", "width"), [(37, 33, 1), (33, 33, 31), (17, 16, 7)])
def test_attention_in_bf16_is_near_the_one_in_f32_at_odd_sizes(queries: int, keys: int, width: int) -> None:
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    shapes = {"q": [1, 1, queries, 64], "k": [1, 1, 64, keys], "v": [1, 1, keys, width]}
    proto = model(nodes, shapes, ["y"], {})
    feeds = {name: (RNG.standard_normal(shape) / 3).astype(np.float32) for name, shape in shapes.items()}
    want, got = (tl.compile(proto, precision=p, threads=1, importers=[Importer()]).run(feeds)["y"] for p in ("f32", "bf16"))
    np.testing.assert_allclose(got, want, atol=0.03 * np.abs(want).max())


@pytest.mark.parametrize("precision", ["bf16x3", "bf16x6"])
def test_sums_of_bf16_products_are_those_of_f32_where_they_would_not_pay(precision: str) -> None:
    proto = residual_net(8)
    exact, split = (tl.compile(proto, precision=p, threads=1, importers=[Importer()]) for p in ("f32", precision))
    name = exact.inputs[0].name
    x = RNG.standard_normal(exact.inputs[0].shape).astype(np.float32)
    want, got = (next(iter(m.run({name: x}).values())) for m in (exact, split))
    np.testing.assert_array_equal(got, want)
    said = [line for line in split.explain().splitlines() if f"precision {precision}: contractions stay f32; " in line]
    assert len(said) == 1 and "precision" not in exact.explain()


@pytest.mark.parametrize(("channels", "precision", "error"), [(32, "bf16x3", 1e-4), (10, "bf16x6", 1e-6)])
def test_whoever_insists_on_sums_of_bf16_products_gets_them_where_they_can_be(channels: int, precision: str, error: float) -> None:
    proto = residual_net(channels)
    x = RNG.standard_normal((1, 3, 32, 32)).astype(np.float32)
    compiled = tl.compile(proto, precision=precision, force_precision=True, threads=1, importers=[Importer()])
    for got, want in zip(compiled.run({"x": x}).values(), reference(proto, {"x": x}), strict=True):
        assert np.abs(got - want).max() <= error * np.abs(want).max()
    said = compiled.explain()
    assert said.count(f"are {precision}") == 3  # convolutions of the block, and the linear layer
    assert "stay f32: 3 products along" in said
    with pytest.raises(CompileError, match="C0108"):
        tl.compile(proto, force_precision="yes", importers=[Importer()])  # type: ignore[arg-type]


def test_what_no_importer_reads_is_refused() -> None:
    with pytest.raises(CompileError, match="O0001"):
        tl.compile("model.xyz", importers=[Importer()])
    with pytest.raises(CompileError, match="C0103"):
        tl.compile(residual_net(4), precision="f17", importers=[Importer()])
    with pytest.raises(CompileError, match="C0101"):
        tl.compile(residual_net(4), target="abacus", importers=[Importer()])


@pytest.mark.parametrize(
    ("op", "gates", "options"), [("GRU", 3, {}), ("GRU", 3, {"linear_before_reset": 1}), ("LSTM", 4, {}), ("RNN", 1, {})]
)
def test_a_recurrent_layer_computes_the_same_with_constant_weights_as_with_fed_ones(op: str, gates: int, options: dict[str, int]) -> None:
    steps, batch, width, hidden = 3, 2, 5, 20
    nodes = [helper.make_node(op, ["x", "w", "r"], ["y"], hidden_size=hidden, **options)]
    weights = {"w": weight(1, gates * hidden, width), "r": weight(1, gates * hidden, hidden)}
    x = RNG.standard_normal((steps, batch, width)).astype(np.float32)
    shapes: dict[str, list[Any]] = {"x": [steps, batch, width]}
    constant = model(nodes, shapes, ["y"], weights)
    fed = model(nodes, shapes | {name: list(array.shape) for name, array in weights.items()}, ["y"], {})
    with_constants = tl.compile(constant, threads=1, importers=[Importer()]).run({"x": x})["y"]
    with_inputs = tl.compile(fed, threads=1, importers=[Importer()]).run({"x": x, **weights})["y"]
    np.testing.assert_allclose(with_constants, with_inputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(with_constants, reference(constant, {"x": x})[0], rtol=1e-5, atol=1e-6)


def embedding(nodes: list[Any]) -> onnx.ModelProto:
    ids = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", 3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    arrays = [numpy_helper.from_array(np.ones((9, 8), np.float32), "table"), numpy_helper.from_array(np.int64(1), "one")]
    made = helper.make_graph(nodes, "net", [ids], [result], arrays)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("how", ["run", "prepared", "profile"])
def test_data_out_of_range_in_a_model_is_told_with_its_node_its_element_and_the_line_that_asks_for_it(how: str) -> None:
    gather = helper.make_node("Gather", ["table", "later"], ["y"], name="embed")
    net = tl.compile(embedding([helper.make_node("Add", ["tokens", "one"], ["later"], name="next"), gather]), threads=1)
    good, bad = np.array([[0, 1, 2]]), np.array([[0, 7, 9]])
    assert net.run({"tokens": good})["y"].shape == (1, 3, 8)
    with pytest.raises(tl.RunError) as refused:
        run = net.prepared({"tokens": bad}) if how == "prepared" else lambda: getattr(net, how)({"tokens": bad})
        run()
    (problem,) = refused.value.diagnostics
    assert problem.code == "R0306"
    assert "`embed`" in str(refused.value), "the node"
    assert "[0, 2]` is 10, outside its declared range -9..9" in problem.title or "index 10 is out of bounds" in problem.title
    (label,) = problem.labels
    assert label.span.source.name.endswith("stdlib/ops/index.tl")
    assert net.run({"tokens": good})["y"].shape == (1, 3, 8)


def test_padding_around_an_axis_of_one_element_that_a_layout_in_blocks_leaves_out() -> None:
    pool = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 3, 3], pads=[0, 0, 1, 0, 1, 2], count_include_pad=1)
    proto, feeds = model([pool], {"x": [1, 16, 5, 4, 1]}, ["y"], {}), {"x": RNG.standard_normal((1, 16, 5, 4, 1)).astype(np.float32)}
    got = tl.compile(proto, threads=1, importers=[Importer()]).run(feeds)
    np.testing.assert_allclose(got["y"], reference(proto, feeds)[0], rtol=1e-5, atol=1e-6, strict=True)
