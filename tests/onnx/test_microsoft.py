"""Operators that onnxruntime writes into models compute what onnxruntime computes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from microsoft_operators import F32, I8, I32, U8, by_formula, check, draw, model, number
from onnx import TensorProto, helper
from onnx_evaluate import staged

from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError


@pytest.mark.parametrize("op", ["Gelu", "BiasGelu", "FastGelu", "QuickGelu"])
def test_gelus(op: str) -> None:
    arrays = (draw(2, 3, 8), draw(8)) if op in ("BiasGelu", "FastGelu") else (draw(2, 3, 8),)
    check(op, *arrays)


@pytest.mark.parametrize("attributes", [{}, {"transA": 1, "alpha": 0.5}, {"transB": 1}, {"transA": 1, "transB": 1}])
def test_fused_products_turn_and_scale(attributes: dict[str, Any]) -> None:
    a = draw(2, 5, 3) if attributes.get("transA") else draw(2, 3, 5)
    b = draw(2, 4, 5) if attributes.get("transB") else draw(2, 5, 4)
    check("FusedMatMul", a, b, **attributes)


def test_a_fused_product_turns_its_batch() -> None:
    check("FusedMatMul", draw(3, 2, 5), draw(2, 5, 4), transBatchA=1)


@pytest.mark.parametrize(
    "activation", [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4]), ("Tanh", [])]
)
def test_fused_convolutions(activation: tuple[str, list[float]]) -> None:
    given = {"activation_params": activation[1]} if activation[1] else {}
    check("FusedConv", draw(1, 3, 6, 6), draw(4, 3, 3, 3), draw(4), pads=[1, 1, 1, 1], activation=activation[0], **given)


def test_what_is_added_to_a_fused_convolution() -> None:
    check("FusedConv", draw(1, 3, 6, 6), draw(4, 3, 3, 3), draw(4), draw(1, 4, 4, 4), activation="Relu")


@pytest.mark.parametrize("bias", [True, False])
def test_skip_layer_normalisation(bias: bool) -> None:
    more = draw(8, seed=3) if bias else None
    arrays = (draw(2, 3, 8), draw(2, 3, 8, seed=1), draw(8), draw(8, seed=2))
    check("SkipLayerNormalization", *arrays, *([more] if bias else []), epsilon=1e-5)
    made = ("SkipSimplifiedLayerNormalization", draw(2, 3, 8), draw(2, 3, 8, seed=1), draw(8))
    check(*made, *([more] if bias else []), epsilon=1e-5)


def test_the_sum_of_a_skip_is_a_result() -> None:
    arrays = {"x0": draw(2, 3, 8), "x1": draw(2, 3, 8, seed=1), "x2": draw(8), "x3": draw(8, seed=2)}
    made = model("SkipLayerNormalization", arrays, list(arrays), 4, [], "com.microsoft")
    made.graph.node[0].output[1] = made.graph.node[0].output[2] = ""
    del made.graph.output[1:3]
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for a, b in zip(staged(made, arrays), session.run(None, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_normalisation_without_a_mean_stands_in_the_domain_of_onnx_too() -> None:
    check("SimplifiedLayerNormalization", draw(2, 3, 8), draw(8), domain="", axis=-1, epsilon=1e-6)


def test_copies_between_a_host_and_a_device_are_what_they_copy() -> None:
    x = draw(2, 3)
    for op in ("MemcpyFromHost", "MemcpyToHost"):
        assert np.array_equal(staged(model(op, {"x": x}, ["x"], 1, [], ""), {"x": x})[0], x)


@pytest.mark.parametrize("segments", [True, False])
def test_embeddings_are_normalised(segments: bool) -> None:
    ids = np.asarray([[1, 2, 3], [4, 0, 5]], I32)
    kinds = (np.asarray([[0, 1, 1], [0, 0, 1]], I32), draw(2, 8)) if segments else (None, None)
    mask = np.asarray([[1, 1, 0], [1, 1, 1]], I32)
    check("EmbedLayerNormalization", ids, kinds[0], draw(6, 8), draw(4, 8), kinds[1], draw(8), draw(8, seed=1), mask, outputs=2)


# ---- attention


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [None, "lengths", "keys"])
def test_attention_of_one_product(causal: int, mask: str | None) -> None:
    given = {"lengths": np.asarray([3, 5], I32), "keys": np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], I32)}
    check("Attention", draw(2, 5, 8), draw(8, 24) / 4, draw(24), given[mask] if mask else None, num_heads=2, unidirectional=causal)


def test_attention_of_one_product_with_a_past() -> None:
    check("Attention", draw(2, 3, 8), draw(8, 24) / 4, draw(24), None, draw(2, 2, 2, 4, 4), outputs=2, num_heads=2, unidirectional=1)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_several_heads(causal: int) -> None:
    q, k, v = draw(2, 4, 8), draw(2, 4, 8, seed=1), draw(2, 4, 8, seed=2)
    check("MultiHeadAttention", q, k, v, draw(24), num_heads=2, unidirectional=causal)
    check("MultiHeadAttention", q, k, v, None, None, draw(1, 2, 4, 4), num_heads=2, scale=0.3)
    check("MultiHeadAttention", q, k, v, None, np.asarray([[1, 1, 0, 1], [1, 0, 0, 1]], I32), num_heads=2)


def test_attention_of_several_heads_with_a_past() -> None:
    past = draw(2, 2, 3, 4), draw(2, 2, 3, 4, seed=5)
    q, k, v = draw(2, 1, 8), draw(2, 1, 8, seed=1), draw(2, 1, 8, seed=2)
    check("MultiHeadAttention", q, k, v, None, None, None, *past, outputs=3, num_heads=2)


def test_packed_heads_are_those_that_are_not() -> None:
    """Of packed ones onnxruntime has code for graphics processors alone."""
    whole = draw(2, 4, 2, 3, 4)
    apart = [np.ascontiguousarray(whole[:, :, :, k]).reshape(2, 4, 8) for k in range(3)]
    pairs = np.ascontiguousarray(whole[:, :, :, 1:])
    found = []
    for arrays in ([whole], [apart[0], pairs], apart):
        feeds = {f"x{k}": array for k, array in enumerate(arrays)}
        found += staged(model("MultiHeadAttention", feeds, list(feeds), 1, [], "com.microsoft", num_heads=2), feeds)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-6)


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("width", [-1, 3])
@pytest.mark.parametrize("length", [1, 5])
def test_grouped_queries_go_on_from_what_was_there(rotary: int, width: int, length: int) -> None:
    batch, heads, shared, size, past = 2, 4, 2, 16, 0 if length > 1 else 5
    total = past + length
    before = draw(batch, shared, past, size), draw(batch, shared, past, size, seed=3)
    ends = np.full(batch, total - 1, I32)
    tables = (draw(16, size // 2), draw(16, size // 2, seed=1)) if rotary else (None, None)
    arrays = draw(batch, length, heads * size), draw(batch, length, shared * size, seed=1), draw(batch, length, shared * size, seed=2)
    attributes = {"num_heads": heads, "kv_num_heads": shared, "local_window_size": width, "do_rotary": rotary}
    check("GroupQueryAttention", *arrays, *before, ends, np.asarray(total, I32), *(tables if rotary else ()), outputs=3, **attributes)


def test_grouped_queries_of_rows_of_different_lengths() -> None:
    arrays = [draw(2, 1, 32), draw(2, 1, 16, seed=1), draw(2, 1, 16, seed=2), draw(2, 2, 5, 8), draw(2, 2, 5, 8, seed=3)]
    feeds = {f"x{k}": a for k, a in enumerate([*arrays, np.asarray([5, 3], I32), np.asarray(6, I32)])}
    made = model("GroupQueryAttention", feeds, list(feeds), 3, [], "com.microsoft", num_heads=4, kv_num_heads=2)
    expected = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    found = staged(made, feeds)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for a, b in zip(found[1:], expected[1:], strict=True):  # of what lies behind the end of a row nothing is said
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1, :, :4], b[1, :, :4])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("each", [True, False])
def test_rotations(interleaved: int, each: bool) -> None:
    places = np.asarray([[0, 3, 1], [2, 2, 5]]) if each else np.asarray([2])
    check("RotaryEmbedding", draw(2, 3, 16), places, draw(6, 4), draw(6, 4, seed=1), interleaved=interleaved)
    check("RotaryEmbedding", draw(2, 2, 3, 8), places, draw(6, 4), draw(6, 4, seed=1), interleaved=interleaved)


# ---- quantised


@pytest.mark.parametrize("dtype", [U8, I8])
def test_quantised_elements(dtype: Any) -> None:
    x, z = draw(2, 6, dtype=dtype), np.asarray(3, dtype)
    y = draw(2, 6, dtype=dtype, seed=1)
    for op in ("QLinearAdd", "QLinearMul"):
        check(op, x, number(0.1), z, y, number(0.05), z, number(0.2), z, steps=1)
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        check(op, x, number(0.05), z, number(0.02), z, steps=1, constants=[1, 2, 3, 4])
    check("QLinearSoftmax", x, number(0.05), z, number(1 / 256), np.asarray(0, dtype), steps=1, constants=[1, 2, 3, 4], opset=13, axis=-1)


def test_quantised_pictures() -> None:
    x, z = draw(2, 3, 4, 4, dtype=U8), np.asarray(7, U8)
    check("QLinearGlobalAveragePool", x, number(0.1), z, number(0.05), z, steps=1)
    check("NhwcMaxPool", draw(1, 5, 5, 3, dtype=U8), kernel_shape=[2, 2], strides=[2, 2])
    parts = [draw(2, 3, dtype=U8), number(0.1), z, draw(2, 3, dtype=U8, seed=1), number(0.2), z]
    check("QLinearConcat", number(0.15), z, *parts, axis=1, steps=1, constants=[0, 1, 3, 4, 6, 7])


def test_quantised_products() -> None:
    a, b, az, bz = draw(4, 8, dtype=U8), draw(8, 5, dtype=I8), np.asarray(9, U8), np.asarray(0, I8)
    check("MatMulIntegerToFloat", a, b, number(0.1), number(0.02), az, bz, draw(5))
    check("DynamicQuantizeMatMul", draw(4, 8), b, number(0.02), bz, draw(5))
    fixed = {"constants": [1, 2, 4, 5]}
    check("QGemm", a, number(0.1), az, b, number(0.02), bz, draw(5, dtype=I8).astype(I32), number(0.5), np.asarray(3, U8), steps=1, **fixed)
    check("QGemm", a, number(0.1), az, b, number(0.02), bz, **fixed)


@pytest.mark.parametrize("zeros", [None, U8])
@pytest.mark.parametrize("rows", [32, 40])
def test_products_with_weights_of_four_bits(zeros: Any, rows: int) -> None:
    blocks, columns = -(-rows // 16), 6
    w, scales = draw(columns, blocks, 8, dtype=U8), np.abs(draw(columns * blocks)) * 0.1
    points = None if zeros is None else draw(columns * (-(-blocks // 2)), dtype=U8)
    arrays = [draw(3, rows), w, scales, *([points] if points is not None else [])]
    fixed = list(range(1, len(arrays)))
    check("MatMulNBits", *arrays, constants=fixed, K=rows, N=columns, bits=4, block_size=16)
    names = {f"x{k}": a for k, a in enumerate(arrays)}
    made = [
        model("MatMulNBits", names, list(names), 1, [f"x{k}" for k in c], "com.microsoft", K=rows, N=columns, bits=4, block_size=16)
        for c in (fixed, [])
    ]
    one, other = (staged(m, {k: v for k, v in names.items() if k in {i.name for i in m.graph.input}})[0] for m in made)
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_rows_of_a_table_of_four_bits() -> None:
    ids = np.asarray([[1, 3], [0, 2]])
    check(
        "GatherBlockQuantized",
        draw(4, 16, dtype=U8),
        ids,
        np.abs(draw(4, 2)),
        draw(4, 1, dtype=U8),
        block_size=16,
        bits=4,
        quantize_axis=1,
        constants=[0, 2, 3],
    )


def test_products_that_turn_or_end_in_an_activation() -> None:
    check("FusedGemm", draw(3, 4), draw(4, 5), draw(5), activation="Relu", alpha=0.5)
    check("FusedGemm", draw(3, 4), draw(5, 4), draw(3, 1), activation="LeakyRelu", activation_alpha=0.2, transB=1)
    for name, parameters in (("Elu", {"alpha": 0.7}), ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("Selu", {"alpha": 1.5, "gamma": 1.1})):
        given = {f"activation_{which}": value for which, value in parameters.items()}
        check("FusedGemm", draw(3, 4), draw(4, 5), draw(5), activation=name, **given)
    check("TransposeMatMul", draw(2, 4, 3), draw(2, 4, 5), transA=1, alpha=2.0)


def test_quantised_windows_and_choices() -> None:
    x, z = draw(1, 3, 4, 4, dtype=U8), np.asarray(7, U8)
    check("QLinearAveragePool", x, number(0.1), z, number(0.05), z, steps=1, kernel_shape=[2, 2], strides=[2, 2])
    other, chosen = draw(1, 3, 4, 4, dtype=U8, seed=1), draw(1, 3, 4, 4) > 0
    fixed = {"constants": [2, 3, 5, 6, 7, 8]}
    check("QLinearWhere", chosen, x, number(0.1), z, other, number(0.05), z, number(0.1), z, steps=1, **fixed)


def test_halves_are_gated() -> None:
    x, bias = draw(2, 3, 8), draw(8)
    left, right = np.split((x + bias).astype(np.float64), 2, axis=-1)
    erf = np.vectorize(math.erf)(right / math.sqrt(2))
    by_formula("BiasSplitGelu", (left * right * (1 + erf) / 2).astype(F32), x, bias)
    by_formula("BiasAdd", x + bias + x, x, bias, x)


@pytest.mark.parametrize("activation", [0, 1])
def test_groups_of_channels_at_the_end_are_normalised(activation: int) -> None:
    x, g, b = draw(2, 4, 4, 6), draw(6), draw(6, seed=1)
    parts = x.astype(np.float64).reshape(2, 16, 3, 2)
    mean, var = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    y = ((parts - mean) / np.sqrt(var + 1e-5)).reshape(x.shape) * g + b
    expected = y / (1 + np.exp(-y)) if activation else y
    by_formula("GroupNorm", expected.astype(F32), x, g, b, groups=3, activation=activation, epsilon=1e-5)


def test_convolutions_with_channels_at_the_end() -> None:
    x, w, b = draw(2, 5, 6, 4), draw(6, 3, 3, 2), draw(6)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=2, pads=[1, 0, 1, 0], strides=[2, 1])
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xwby"]
    made = helper.make_model(
        helper.make_graph([node], "g", values[:3], values[3:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x.transpose(0, 3, 1, 2), "w": w.transpose(0, 3, 1, 2), "b": b})[0].transpose(0, 2, 3, 1)
    by_formula("NhwcConv", expected, x, w, b, group=2, pads=[1, 0, 1, 0], strides=[2, 1])


@pytest.mark.parametrize(
    ("op", "what"),
    [("PagedAttention", r"PagedAttention of the domain `com\.microsoft`"), ("BeamSearch", "BeamSearch, which runs a decoder .*: import")],
)
def test_what_the_table_lacks_is_refused_by_name(op: str, what: str) -> None:
    made = model(op, {"x0": draw(2)}, ["x0"], 1, [], "com.microsoft")
    with pytest.raises(CompileError, match=what):
        Importer().load(made)
