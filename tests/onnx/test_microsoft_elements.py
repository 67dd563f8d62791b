"""Operators of onnxruntime that move, choose and combine elements compute what onnxruntime computes, or what their documentation says."""

from __future__ import annotations

import numpy as np
import pytest
from microsoft_operators import F32, I32, I64, by_formula, check, draw, model
from onnx_evaluate import staged

from stdlib.onnx import Importer
from tensorlang.diagnostics import CompileError


def test_what_onnx_has_too_is_computed_alike() -> None:
    x = draw(3, 4)
    check("Trilu", x, np.asarray(1), upper=0, constants=[1])
    check("Trilu", draw(2, 3, 3))
    check("ExpandDims", x, np.asarray(-2, I32), constants=[1])
    check("GatherND", x, np.asarray([[0, 1], [2, -1]]))
    check("Pad", x, np.asarray([[1, 0, 0, 2]]), np.asarray([0.5], F32), constants=[1])
    check("Pad", x, np.asarray([1, 0, 0, 2]), mode="reflect", constants=[1])
    check("Range", np.asarray(2, I32), np.asarray([9], I32), np.asarray(3, I32), constants=[0, 1, 2])
    check("Range", np.asarray(1.5, F32), np.asarray(4.0, F32), constants=[0, 1])
    check("GridSample", draw(1, 2, 4, 5), draw(1, 3, 3, 2) / 2, mode="bilinear", padding_mode="border")


def test_stretches_of_an_axis() -> None:
    x = draw(2, 9, 3)
    check("UnfoldTensor", x, dim=1, size=4, step=2)
    check("UnfoldTensor", x, size=3)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [[3, 4], [1, 2]])
def test_boxes_of_images_resized(mode: str, size: list[int]) -> None:
    boxes = np.asarray([[0.1, 0.2, 0.8, 0.9], [-0.2, 0.0, 1.0, 1.3], [0.9, 0.1, 0.2, 0.66]], F32)
    feeds = (draw(2, 3, 5, 6), boxes, np.asarray([1, 0, 1], I32), np.asarray(size, I32))
    check("CropAndResize", *feeds, mode=mode, extrapolation_value=0.25, constants=[3])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_words_that_would_repeat_a_sequence(size: int) -> None:
    words = np.asarray([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4]])
    check("NGramRepeatBlock", words, draw(2, 6), ngram_size=size)


@pytest.mark.parametrize("positive", [0, 1])
def test_hashes_of_numbers(positive: int) -> None:
    for dtype in (I32, np.uint32, I64, np.float32, np.float64):
        check("MurmurHash3", np.asarray([3, 1, 4, 200000], dtype), seed=42, positive=positive)


@pytest.mark.parametrize("shape", [(1, 1), (4, 6), (1, 5, 3), (1, 7)])
@pytest.mark.parametrize("drawn", [False, True])
def test_sequences_are_laid_along_each_other(shape: tuple[int, ...], drawn: bool) -> None:
    """Where several ways are alike, columns go on."""
    check("DynamicTimeWarping", draw(*shape) if drawn else np.ones(shape, np.float32))


def test_whether_all_is_finite() -> None:
    fine, infinite, undefined = (np.asarray([1, v], F32) for v in (2, -np.inf, np.nan))
    asked = ({}, {"isinf_only": 1}, {"isnan_only": 1})
    for parts, wanted in (((fine, fine), (1, 1, 1)), ((fine, infinite), (0, 0, 1)), ((undefined, fine), (0, 1, 0))):
        for attributes, expected in zip(asked, wanted, strict=True):
            feeds = {f"x{k}": a for k, a in enumerate(parts)}
            (found,) = staged(model("IsAllFinite", feeds, list(feeds), 1, [], "com.microsoft", **attributes), feeds)
            assert found.shape == () and found == bool(expected)


def test_matrices() -> None:
    check("Inverse", draw(2, 4, 4))
    check("Inverse", np.asarray([[0, 2], [1, 0]], F32))
    check("MatMulInteger16", draw(3, 5, dtype=np.int16), draw(5, 4, dtype=np.int16))
    for metric in ("sqeuclidean", "euclidean"):
        check("CDist", draw(3, 4), draw(5, 4), metric=metric)


def test_a_transposed_convolution_whose_padding_is_an_input() -> None:
    check("ConvTransposeWithDynamicPads", draw(1, 2, 4, 4), draw(2, 3, 3, 3), np.asarray([1, 0, 1, 2]), draw(3), constants=[2])


def test_gates() -> None:
    x, y, silu = draw(2, 3, 4), draw(2, 3, 4, seed=1), lambda v: v / (1 + np.exp(-v))
    check("ScaledSiLU", x, alpha=2.0)
    check("GatedAdd", x, y, draw(2, 3, 1))
    check("GatedRMSNorm", x, np.abs(draw(2)), y)
    check("GatedRMSNorm", x, np.abs(draw(4)), y, activation="sigmoid", epsilon=1e-3)
    gate, up = np.minimum(x, 0.5), np.clip(y, -0.5, 0.5)
    expected = gate / (1 + np.exp(-1.7 * gate)) * (up + 1)
    attributes = {"limit": 0.5, "activation_alpha": 1.7, "activation_beta": 1.0}
    by_formula("SwiGLU", expected.astype(F32), x, y, **attributes)
    by_formula("SwiGLU", silu(x[..., :2]) * x[..., 2:], x)


def test_what_is_added_before_softmax_gelu_and_dropout() -> None:
    x, bias = draw(2, 3, 4), draw(4)
    total = np.exp(x + bias)
    by_formula("BiasSoftmax", total / total.sum(-1, keepdims=True), x, bias, axis=2, is_inner_broadcast=0)
    by_formula("BiasDropout", x + bias + x, x, bias, x)
    product = (x @ draw(4, 5)).astype(np.float64) + draw(5)
    gelu = 0.5 * product * (1 + np.tanh(np.sqrt(2 / np.pi) * (product + 0.044715 * product**3)))
    by_formula("GemmFastGelu", gelu.astype(F32), x, draw(4, 5), draw(5))


def test_groups_of_channels_of_a_sum_are_normalised() -> None:
    x, skip, bias, g, b = draw(2, 4, 4, 6), draw(2, 6), draw(6), draw(6), draw(6, seed=1)
    total = x + skip[:, None, None, :] + bias
    parts = total.astype(np.float64).reshape(2, 16, 3, 2)
    y = (parts - parts.mean((1, 3), keepdims=True)) / np.sqrt(parts.var((1, 3), keepdims=True) + 1e-5)
    by_formula("SkipGroupNorm", (y.reshape(x.shape) * g + b).astype(F32), x, g, b, skip, bias, groups=3, activation=0)


def test_complex_numbers_and_their_transforms() -> None:
    a, b, x = draw(3, 4, 2), draw(4, 2), draw(2, 8)
    numbers = [v[..., 0] + 1j * v[..., 1] for v in (a, b)]
    for op, product in (("ComplexMul", numbers[0] * numbers[1]), ("ComplexMulConj", numbers[0] * np.conj(numbers[1]))):
        by_formula(op, np.stack([product.real, product.imag], -1).astype(F32), a, b)
    half = np.fft.rfft(x)
    pairs = np.stack([half.real, half.imag], -1).astype(F32)
    by_formula("Rfft", pairs, x, signal_ndim=1)
    by_formula("Irfft", x, pairs, signal_ndim=1)


def test_biases_by_distance() -> None:
    table = draw(8, 2)
    (found,) = staged(
        model("RelativePositionBias", {"x0": table, "x1": np.asarray([3]), "x2": np.asarray([3])}, ["x0", "x1", "x2"], 1, ["x1", "x2"],
              "com.microsoft", max_distance=128, is_bidirectional=1),
        {"x0": table},
    )  # fmt: skip
    buckets = np.asarray([[0, 5, 6], [1, 0, 5], [2, 1, 0]])
    np.testing.assert_array_equal(found, table.reshape(2, 8)[:, buckets][None])
    q, eye = draw(1, 3, 8), np.ones((1, 2, 1, 1), F32)
    weight, rel = draw(4, 6), draw(1, 2, 3, 3)
    heads = (q + 1).reshape(1, 3, 2, 4).transpose(0, 2, 1, 3).astype(np.float64)
    gates = 1 / (1 + np.exp(-(heads @ weight + 0.5).reshape(1, 2, 3, 2, 3).sum(-1)))
    expected = (gates[..., :1] * (gates[..., 1:] - 1) + 2) * rel
    arrays = (q, np.ones(8, F32), rel, weight, np.full(6, 0.5, F32), eye)
    by_formula("GatedRelativePositionBias", expected.astype(F32), *arrays, num_heads=2)


def test_operators_that_onnx_had_on_trial() -> None:
    x = draw(1, 3, 4, 5)
    check("ImageScaler", x, domain="", version=8, scale=0.5, bias=[1.0, 2.0, 3.0])
    check("Affine", x, domain="", version=8, alpha=2.0, beta=0.5)
    check("Scale", x, domain="", version=8, scale=3.0)
    check("ScaledTanh", x, domain="", version=8, alpha=2.0, beta=0.5)
    check("ParametricSoftplus", x, domain="", version=8, alpha=2.0, beta=0.5)
    check("Crop", x, domain="", version=8, border=[1, 0, 1, 2])
    check("Crop", x, domain="", version=8, border=[1, 1, 0, 0], scale=[2, 3])
    check("DynamicSlice", x, np.array([1, -3]), np.array([3, 9]), np.array([2, 3]), domain="", version=8, constants=[1, 2, 3])


def test_what_a_rule_does_not_look_at_is_refused() -> None:
    for attributes, inputs, what in (({"unknown": 1}, 1, "the attribute `unknown`"), ({}, 2, "input 1")):
        feeds = {f"x{k}": draw(2) for k in range(inputs)}
        with pytest.raises(CompileError, match=f"QuickGelu with {what}"):
            Importer().load(model("QuickGelu", feeds, list(feeds), 1, [], "com.microsoft", **attributes))
