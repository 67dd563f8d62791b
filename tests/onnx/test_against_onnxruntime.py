"""A second opinion where onnx's reference is known to err or its cases are few: random attributes and shapes against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx_evaluate import Array, evaluate

from stdlib.onnx import Importer
from stdlib.onnx.table.einsum import contraction_path
from tensorlang.diagnostics import CompileError
from tensorlang.graph.nodes import Kernel

SOME = settings(max_examples=25, deadline=None, derandomize=True)


def model(op: str, inputs: dict[str, Array], constants: dict[str, Array], attributes: dict[str, Any], opset: int = 18) -> ModelProto:
    node = helper.make_node(op, [*inputs, *constants], ["y"], **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    out = helper.make_tensor_value_info("y", TensorProto.INT64 if op.startswith("Arg") else TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph([node], "one", infos, [out], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def agree(op: str, inputs: dict[str, Array], constants: dict[str, Array] | None = None, opset: int = 18, **attributes: Any) -> None:
    made = model(op, inputs, constants or {}, attributes, opset)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        (expected,) = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, inputs)
    except Exception:  # what the peer refuses it has no opinion on
        assume(False)
        return
    (actual,) = evaluate(Importer().load(made), inputs)
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    assert np.allclose(actual, expected, rtol=0, atol=1e-5 * scale, equal_nan=True)


def noise(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def test_batches_were_normalised_in_training_where_statistics_are_results() -> None:
    arrays = {name: np.abs(noise(3)) + k for k, name in enumerate(("scale", "bias", "mean", "var"))} | {"x": noise(2, 3, 4)}
    names, found = ["x", "scale", "bias", "mean", "var"], ["y", "means", "vars", "own mean", "own var"]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, arrays[n].shape) for n in names]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in found]
    graph = helper.make_graph([helper.make_node("BatchNormalization", names, found, momentum=0.75)], "net", infos, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, arrays)
    expected[4] = arrays["x"].var((0, 2))  # onnxruntime has one by its root there
    for actual, wanted in zip(evaluate(Importer().load(made), arrays), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 1, 2)])
def test_statistics_may_be_of_each_element_of_a_sample(shape: tuple[int, ...]) -> None:
    scale, bias, mean, var = (np.abs(noise(*shape[1:])) + k for k in range(4))
    agree("BatchNormalization", {"x": noise(*shape)}, {"s": scale, "b": bias, "m": mean, "v": var}, opset=7, spatial=0, epsilon=0.01)


TWICE = {"height_scale": 2.0, "width_scale": 1.0}


@pytest.mark.parametrize(
    ("op", "first", "now", "opset"),
    [
        ("Sum", {"consumed_inputs": [0, 0]}, {}, 8),
        ("Max", {"consumed_inputs": [0, 0]}, {}, 8),
        ("HardSigmoid", {}, {}, 6),
        ("Selu", {}, {"alpha": 1.6732, "gamma": 1.0507}, 6),
        ("LpPool", {"p": 3.0, "kernel_shape": [2, 1]}, {"p": 3, "kernel_shape": [2, 1]}, 11),
        ("Pad", {"paddings": [0, 0, 1, 0, 0, 1, 0, 2], "value": 0.5}, {"pads": [0, 0, 1, 0, 0, 1, 0, 2], "value": 0.5}, 2),
        ("Cast", {"to": "FLOAT16"}, {"to": 10}, 9),
        ("Upsample", TWICE, {"scales": [1.0, 1.0, 2.0, 1.0]}, 7),
        ("Tile", [3, 2], [[1, 1, 3, 1]], 6),
        ("Split", [1, 2], {"axis": 0, "split": [1, 2]}, 2),
    ],
)
def test_the_first_version_of_an_operator_is_what_later_ones_write_otherwise(op: str, first: Any, now: Any, opset: int) -> None:
    """onnxruntime has no kernels for these; Caffe2 wrote them. Lists are of further inputs, of the type of the first."""
    x = noise(3, 2, 4, 3)
    more = {"b": x[::-1].copy()} if op in ("Sum", "Max") else {}

    def run(given: Any, version: int, dtype: Any) -> list[Array]:
        extra = {f"c{k}": np.array(c, dtype).reshape(-1) for k, c in enumerate(given)} if isinstance(given, list) else {}
        if op == "Split" and extra:
            extra = {"c": np.array(given, dtype)}
        made = model(op, {"x": x, **more}, extra, {} if extra else given, version)
        if op == "Cast":
            made.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
        if op == "Split":
            made.graph.node[0].output.append("z")
            made.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
        return evaluate(Importer().load(made), {"x": x, **more})

    for found, expected in zip(run(first, 1, np.float32), run(now, opset, np.int64), strict=True):
        assert found.dtype == expected.dtype and np.array_equal(found, expected)


@pytest.mark.parametrize("bounds", [{}, {"min": -1.0}, {"max": 1.0}])
@pytest.mark.parametrize("opset", [6, 18])
def test_a_bound_that_is_not_given_is_the_last_finite_number(bounds: dict[str, float], opset: int) -> None:
    x = np.array([-np.inf, -3, 0.5, 3, np.inf, np.nan], np.float32)
    if opset == 6:
        agree("Clip", {"x": x}, opset=opset, **bounds)
    else:
        node = helper.make_node("Clip", ["x", "min" if "min" in bounds else "", "max" if "max" in bounds else ""], ["y"])
        for given in (bounds, {}):  # as constants, and as inputs
            made = model("Clip", {"x": x} | {n: np.float32(b) for n, b in bounds.items() if n not in given}, {}, {})
            made.graph.node[0].CopyFrom(node)
            made.graph.initializer.extend(numpy_helper.from_array(np.float32(b), n) for n, b in given.items())
            feeds = {"x": x} | {n: np.asarray(b, np.float32) for n, b in bounds.items() if n not in given}
            (expected,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
            assert np.array_equal(evaluate(Importer().load(made), feeds)[0], expected, equal_nan=True)


windows = st.fixed_dictionaries(
    {
        "kernel_shape": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "pads": st.tuples(*[st.integers(0, 1)] * 4),
        "ceil_mode": st.integers(0, 1),
    }
)
extents = st.tuples(st.integers(3, 7), st.integers(3, 7))


@SOME
@given(windows, extents)
def test_max_pool(window: dict[str, Any], extent: tuple[int, int]) -> None:
    agree("MaxPool", {"x": noise(1, 2, *extent)}, **window)


@SOME
@given(st.sampled_from(["MaxPool", "AveragePool"]), st.integers(1, 3), st.integers(1, 4), st.integers(1, 2))
def test_a_window_may_hang_over_where_extents_are_rounded_up(op: str, stride: int, window: int, extent: int) -> None:
    assume(window - extent < stride)
    agree(op, {"x": noise(1, 2, extent, 5)}, kernel_shape=[window, 1], strides=[stride, 1], ceil_mode=1)


@SOME
@given(windows, extents, st.integers(0, 1))
def test_average_pool(window: dict[str, Any], extent: tuple[int, int], include: int) -> None:
    agree("AveragePool", {"x": noise(1, 2, *extent)}, count_include_pad=include, **window)


@SOME
@given(st.sampled_from([(5,), (3, 4), (2, 3, 4)]), st.integers(1, 3))
def test_global_lp_pool(extents: tuple[int, ...], p: int) -> None:
    agree("GlobalLpPool", {"x": noise(2, 3, *extents)}, p=p)


@SOME
@given(windows, extents, st.sampled_from([(1, 2, 3), (2, 4, 4), (4, 4, 8)]), st.integers(1, 2))
def test_conv(window: dict[str, Any], extent: tuple[int, int], channels: tuple[int, int, int], dilation: int) -> None:
    group, c, f = channels
    del window["ceil_mode"]
    weights = noise(f - f % group, c // group, *window["kernel_shape"])
    bias = noise(weights.shape[0])
    agree("Conv", {"x": noise(2, c, *extent), "w": weights, "b": bias}, group=group, dilations=[dilation, 1], **window)


@SOME
@given(windows, extents, st.integers(1, 2), st.integers(0, 1))
def test_conv_transpose(window: dict[str, Any], extent: tuple[int, int], group: int, extra: int) -> None:
    del window["ceil_mode"]
    assume(all(extra < s for s in window["strides"]))
    weights = noise(2, 3, *window["kernel_shape"])
    agree("ConvTranspose", {"x": noise(1, 2, *extent), "w": weights}, group=group, output_padding=[extra, extra], **window)


@SOME
@given(st.integers(1, 6), st.integers(1, 5), st.floats(0.25, 1.0))
def test_lrn(size: int, channels: int, beta: float) -> None:
    assume(size % 2 == 1)  # the peer knows only odd sizes
    agree("LRN", {"x": noise(1, channels, 2, 3)}, size=size, beta=beta, alpha=0.5, bias=1.5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resized_to_nothing(mode: str) -> None:
    agree("Resize", {"x": noise(1, 2, 3, 3)}, {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 0.2, 2], np.float32)}, mode=mode)


@SOME
@given(
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]),
    st.tuples(st.integers(2, 9), st.integers(2, 9)),
)
def test_resize(mode: str, place: str, sizes: tuple[int, int]) -> None:
    constants = {"roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32), "sizes": np.array([1, 1, *sizes])}
    made = model("Resize", {"x": noise(1, 1, 4, 5)}, constants, {"mode": mode, "coordinate_transformation_mode": place})
    made.graph.node[0].input[1] = made.graph.node[0].input[2] = ""
    session = onnxruntime.InferenceSession(made.SerializeToString())
    (expected,) = session.run(None, {"x": noise(1, 1, 4, 5)})
    (actual,) = evaluate(Importer().load(made), {"x": noise(1, 1, 4, 5)})
    assert np.allclose(actual, expected, atol=1e-5)


@SOME
@given(st.sampled_from([0.5, 0.6, 0.75, 0.9, 1.0, 1.5, 1.7, 2.5]), st.sampled_from(["nearest", "linear"]))
def test_resize_before_there_were_coordinate_modes(scale: float, mode: str) -> None:
    agree("Resize", {"x": noise(1, 1, 2, 10)}, {"scales": np.array([1, 1, 1, scale], np.float32)}, opset=10, mode=mode)


@SOME
@given(st.integers(10, 40), st.sampled_from([0.1, 0.3, 0.7, 0.9, 1.1, 1.3]))
def test_a_resized_extent_is_a_product_of_f32(extent: int, scale: float) -> None:
    agree("Resize", {"x": noise(1, extent)}, {"r": np.zeros(0, np.float32), "s": np.array([1, scale], np.float32)}, mode="linear", opset=13)


def test_what_is_narrower_than_f32_is_resized_in_f32() -> None:
    x, constants = noise(1, 1, 3, 4), {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 1.5], np.float32)}
    results = []
    for same in (x.astype(np.float16), x.astype(np.float16).astype(np.float32)):
        made = model("Resize", {"x": same}, constants, {"mode": "cubic"}, 13)
        made.graph.output[0].type.tensor_type.elem_type = made.graph.input[0].type.tensor_type.elem_type
        results += evaluate(Importer().load(made), {"x": same})
    assert np.array_equal(results[0], results[1].astype(np.float16))


@SOME
@given(
    st.lists(st.integers(0, 3), unique=True, min_size=1),
    st.integers(0, 1),
    st.sampled_from(["Sum", "Mean", "Max", "Prod", "L2", "LogSumExp"]),
)
def test_reductions_over_any_axes(axes: set[int], keepdims: int, kind: str) -> None:
    agree(f"Reduce{kind}", {"x": noise(2, 3, 1, 4)}, {"axes": np.array(sorted(axes))}, keepdims=keepdims, opset=18)


@pytest.mark.parametrize("keepdims", [-1, 0, 1, 2])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ArgMax", "ArgMin"])
def test_one_alone_says_that_reduced_axes_stay(op: str, keepdims: int) -> None:
    agree(op, {"x": noise(2, 3)}, keepdims=keepdims, opset=13)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("size", [1, 2])
def test_a_window_of_one_element_has_no_period_but_its_own(op: str, periodic: int, size: int) -> None:
    agree(op, {}, {"size": np.asarray(size)}, periodic=periodic)


@SOME
@given(st.integers(0, 3), st.integers(0, 1))
def test_softmax_over_flattened_axes(axis: int, log: int) -> None:
    agree("LogSoftmax" if log else "Softmax", {"x": noise(2, 3, 4)[:, :, :]}, axis=min(axis, 2), opset=11)


def test_hardmax_of_nothing_is_nothing() -> None:
    made = model("Hardmax", {"x": noise(2, 0)}, {}, {}, 13)
    assert evaluate(Importer().load(made), {"x": noise(2, 0)})[0].shape == (2, 0)


paddings = st.integers(-3, 5)


@SOME
@given(st.sampled_from(["constant", "edge", "reflect", "wrap"]), paddings, paddings, paddings)
def test_negative_padding_cuts_before_the_rest_is_repeated(mode: str, top: int, left: int, right: int) -> None:
    agree("Pad", {"x": noise(5, 7)}, {"pads": np.array([top, left, 0, right])}, mode=mode, opset=21)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_what_has_no_elements_is_repeated_along_its_other_axes(mode: str) -> None:
    made = model("Pad", {"x": noise(2, 3, 0)}, {"pads": np.array([0, 2, 0, 1, 2, 0])}, {"mode": mode}, 21)
    assert evaluate(Importer().load(made), {"x": noise(2, 3, 0)})[0].shape == (3, 7, 0)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk,kl->il", ((3, 4), (4, 5), (5, 6))),
        ("tdbh,btf->bhf", ((3, 4, 2, 5), (2, 3, 6))),
        ("ii,i,ij->j", ((4, 4), (4,), (4, 3))),
        ("...a,ab,...b->...", ((2, 3, 4), (4, 5), (2, 3, 5))),
        ("i,j,k->", ((3,), (4,), (5,))),
        ("ij,jk->k", ((3, 4), (4, 5))),
        ("bi,bj,bk->bijk", ((2, 3), (2, 4), (2, 5))),
    ],
)
def test_products_of_several_operands(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    agree("Einsum", {f"x{k}": noise(*shape) for k, shape in enumerate(shapes)}, equation=equation)


def test_several_operands_are_contracted_in_pairs_where_that_saves_products() -> None:
    sizes = dict.fromkeys("bdfhijklt", 8)
    assert contraction_path(("ij", "jk", "kl"), "il", sizes) == (((0, 1), "ik"),)
    assert contraction_path(("ij", "jk", "kl"), "il", {**sizes, "i": 100}) == (((1, 2), "jl"),)
    assert contraction_path(("tdbh", "btf"), "bhf", sizes) == (((0,), "tbh"),)
    assert contraction_path(("ij", "jk"), "ik", sizes) == contraction_path(("bi", "bj", "bk"), "bijk", sizes) == ()


slices = st.tuples(st.integers(-8, 8), st.integers(-8, 8), st.integers(-3, 3).filter(bool))


@SOME
@given(slices, slices)
def test_slice(first: tuple[int, int, int], second: tuple[int, int, int]) -> None:
    starts, ends, steps = (np.array(v) for v in zip(first, second, strict=True))
    agree("Slice", {"x": noise(5, 6)}, {"starts": starts, "ends": ends, "axes": np.array([0, 1]), "steps": steps})


@pytest.mark.parametrize(
    "activations",
    [["HardSigmoid", "Tanh", "Tanh"], ["Sigmoid", "LeakyRelu", "Elu"], ["Sigmoid", "ThresholdedRelu", "Relu"]],
)
def test_functions_of_gates(activations: list[str]) -> None:
    numbers = {"HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01,), "Elu": (1.0,), "ThresholdedRelu": (1.0,)}
    alphas, betas = ([numbers[a][k] for a in activations if len(numbers.get(a, ())) > k] for k in (0, 1))
    given = {name: values for name, values in (("activation_alpha", alphas), ("activation_beta", betas)) if values}
    feeds = {"x": noise(3, 2, 4), "w": noise(1, 20, 4), "r": noise(1, 20, 5)}
    for more in (given,) if "ThresholdedRelu" in activations else ({}, given):  # of that one the peer takes another default than ONNX has
        agree("LSTM", feeds, hidden_size=5, activations=activations, **more)


def test_functions_of_gates_take_the_numbers_of_the_layer() -> None:
    one = {"activations": ["Affine", "LeakyRelu"], "activation_alpha": [0.7, 0.2], "activation_beta": [0.1]}
    agree("GRU", {"x": noise(3, 2, 4), "w": noise(1, 15, 4), "r": noise(1, 15, 5)}, hidden_size=5, **one)
    two = {"activations": ["ScaledTanh", "ThresholdedRelu"], "activation_alpha": [0.7, 0.2], "activation_beta": [0.4]}
    agree("RNN", {"x": noise(3, 2, 4), "w": noise(2, 5, 4), "r": noise(2, 5, 5)}, hidden_size=5, direction="bidirectional", **two)
    nothing = model(
        "RNN", {"x": noise(3, 2, 4), "w": noise(1, 5, 4), "r": noise(1, 5, 5)}, {}, {"hidden_size": 5, "activations": ["Affine"]}
    )
    with pytest.raises(CompileError, match="no alpha for the activation affine"):
        Importer().load(nothing)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("op", "gates", "after"), [("LSTM", 4, 0), ("GRU", 3, 0), ("GRU", 3, 1), ("RNN", 1, 0)])
def test_what_goes_into_gates_is_kept_within_a_limit(op: str, gates: int, after: int, direction: str) -> None:
    both = 1 + (direction == "bidirectional")
    stored = {"w": 2 * noise(both, gates * 4, 3), "r": 2 * noise(both, gates * 4, 4), "b": noise(both, 2 * gates * 4)}
    more = {"linear_before_reset": after} if op == "GRU" else {}
    agree(op, {"x": noise(5, 2, 3)}, stored, hidden_size=4, clip=0.5, direction=direction, **more)


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_what_is_forgotten_may_be_what_comes(direction: str) -> None:
    both = 1 + (direction == "bidirectional")
    feeds = {"w": noise(both, 16, 3), "r": noise(both, 16, 4), "b": noise(both, 32)}
    states = {"h": noise(both, 2, 4), "c": noise(both, 2, 4), "p": noise(both, 12)}
    lengths = {"lengths": np.array([5, 3], np.int32)}
    agree("LSTM", {"x": noise(5, 2, 3)}, feeds | lengths | states, hidden_size=4, direction=direction, input_forget=1)


@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 4), (2, 1, 4), (2, 3, 1)])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_scales_of_normalised_rows_broadcast(op: str, shape: tuple[int, ...]) -> None:
    feeds = {"x": noise(2, 3, 4), "g": noise(*shape), "b": noise(*shape)}
    if op == "RMSNormalization":
        del feeds["b"]
    agree(op, feeds, opset=23)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (1, 2), (0, 2), (0, 2, 3), (3,)])
def test_mean_and_variance_are_normalised_over_any_axes(axes: tuple[int, ...]) -> None:
    agree("MeanVarianceNormalization", {"x": noise(3, 4, 5, 6)}, axes=axes)
    made = Importer().load(model("MeanVarianceNormalization", {"x": noise(3, 4, 5, 6)}, {}, {"axes": axes}))
    is_moved = any(k.operator == "transpose" for k in made.nodes if isinstance(k, Kernel))
    assert is_moved == (axes in [(0, 2), (0, 2, 3)]), "axes side by side stay where they are"


def test_functions_of_onnx_know_the_defaults_of_their_attributes() -> None:
    agree("NegativeLogLikelihoodLoss", {"x": noise(3, 5), "t": np.array([4, 0, 2])}, opset=13)


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (1, 1, 1, 3), (1, 2, 1, 1), (1, 2, 3, 1, 2)])
@pytest.mark.parametrize("align", [0, 1])
def test_grids_are_moved_whatever_their_extents(size: tuple[int, ...], align: int) -> None:
    rank = len(size) - 2
    agree("AffineGrid", {"theta": noise(size[0], rank, rank + 1)}, {"size": np.array(size)}, opset=20, align_corners=align)


@pytest.mark.parametrize("batch", [0, 1])
def test_sequences_are_reversed_where_they_lie(batch: int) -> None:
    feeds = {"x": noise(4, 5, 3), "len": np.array([1, 4, 3, 2, 0][: (4, 5)[batch]])}
    agree("ReverseSequence", feeds, batch_axis=batch, time_axis=1 - batch)
    made = Importer().load(model("ReverseSequence", feeds, {}, {"batch_axis": batch, "time_axis": 1 - batch}))
    assert len(made.nodes) == 1


@pytest.mark.parametrize("depth", [np.nan, np.inf, -1.0])
def test_a_depth_that_is_no_number_of_elements_is_refused(depth: float) -> None:
    made = model("OneHot", {"x": np.array([1])}, {"d": np.array(depth, np.float32), "v": np.array([0, 1], np.float32)}, {})
    with pytest.raises(CompileError, match="the depth must be one number"):
        Importer().load(made)
