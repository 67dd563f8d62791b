"""Operators of onnxruntime on quantised numbers compute what onnxruntime computes, or what their documentation says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from microsoft_operators import F32, I8, I32, U8, Array, check, draw, model, number
from onnx_evaluate import staged

POINT = np.asarray(7, U8)


def test_softmax_over_all_axes_from_one_on() -> None:
    x, fixed = draw(2, 3, 4, dtype=U8), {"constants": [1, 2, 3, 4]}
    check("QLinearSoftmax", x, number(0.05), POINT, number(1 / 256), np.asarray(0, U8), opset=12, axis=1, steps=1, **fixed)


@pytest.mark.parametrize("kernel", [U8, I8])
def test_pictures_whose_channels_are_the_last_axis(kernel: Any) -> None:
    x, w = draw(1, 5, 6, 4, dtype=U8), draw(3, 4, 3, 3, dtype=kernel)
    feeds = (x, number(0.02), POINT, w, number(0.01), np.asarray(0, kernel), number(0.3), POINT, draw(3, dtype=I8).astype(I32))
    check("QLinearConv", *feeds, channels_last=1, pads=[1, 1, 1, 1], strides=[2, 1], steps=1, constants=range(1, 9))
    pool = (x, number(0.02), POINT, number(0.02), POINT)
    check("QLinearAveragePool", *pool, kernel_shape=[2, 3], channels_last=1, steps=1)
    check("QLinearGlobalAveragePool", *pool, channels_last=1, steps=1)


def test_means_along_axes() -> None:
    x = draw(2, 3, 4, dtype=U8)
    feeds = {f"x{k}": a for k, a in enumerate((x, number(0.1), POINT, number(0.05), POINT))}
    (found,) = staged(model("QLinearReduceMean", feeds, list(feeds), 1, [], "com.microsoft", axes=[-1], keepdims=0), feeds)
    expected = np.clip(np.round(((x.astype(F32) - 7) * 0.1).mean(-1) / 0.05) + 7, 0, 255)
    assert found.dtype == U8 and np.abs(found - expected).max() <= 1


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("points", [True, False])
def test_weights_of_a_few_bits(bits: int, points: bool) -> None:
    columns, rows, size = 6, 40, 16
    blocks = -(-rows // size)
    w = draw(columns, blocks, size * bits // 8, dtype=U8)
    zeros = [draw(columns * -(-blocks * bits // 8), dtype=U8)] if points else []
    arrays = [draw(3, rows), w, np.abs(draw(columns * blocks)) * 0.1, *zeros]
    check("MatMulNBits", *arrays, constants=range(1, len(arrays)), K=rows, N=columns, bits=bits, block_size=size, accuracy_level=1)


@pytest.mark.parametrize("fixed", [(), (1,), (3,)])
def test_weights_and_their_points_are_each_given_when_a_model_is_made_or_runs(fixed: tuple[int, ...]) -> None:
    arrays = [draw(3, 40), draw(6, 3, 8, dtype=U8), np.abs(draw(18)), draw(6, 2, dtype=U8)]
    check("MatMulNBits", *arrays, constants=fixed, K=40, N=6, bits=4, block_size=16, accuracy_level=1)
    table = [draw(4, 16, dtype=U8), np.asarray([1, 3]), np.abs(draw(4, 2)), draw(4, 1, dtype=U8)]
    check("GatherBlockQuantized", *table, constants=[0 if k == 1 else k for k in fixed], block_size=16, bits=4, quantize_axis=1)


def test_an_input_says_in_which_block_each_row_of_weights_lies() -> None:
    order = np.asarray([0, 2, 1, 0] * 12, I32)
    arrays = [draw(3, 48), draw(6, 3, 8, dtype=U8), np.abs(draw(6, 3)), None, order, draw(6)]
    check("MatMulNBits", *arrays, constants=[1, 2, 4], K=48, N=6, bits=4, block_size=16)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", [True, False])
def test_rows_of_tables_of_a_few_bits(bits: int, points: bool) -> None:
    zeros = [draw(4, 2 * bits // 8, dtype=U8)] if points else []
    arrays = [draw(4, 32 * bits // 8, dtype=U8), np.asarray([[1, 3], [0, 2]]), np.abs(draw(4, 2)), *zeros]
    check("GatherBlockQuantized", *arrays, block_size=16, bits=bits, quantize_axis=1, constants=[0, *range(2, len(arrays))])


@pytest.mark.parametrize("kind", [0, 1])
def test_weights_that_are_one_of_sixteen_numbers(kind: int) -> None:
    arrays = (draw(2, 3, 24), draw(24 * 5 // 2, dtype=U8), np.abs(draw(8)))
    check("MatMulBnb4", *arrays, K=24, N=5, block_size=16, quant_type=kind, constants=[1, 2])


@pytest.mark.parametrize("each_column", [True, False])
@pytest.mark.parametrize("past", [0, 3])
def test_attention_of_a_quantised_product(each_column: bool, past: int) -> None:
    x, w = draw(2, 4, 8, dtype=U8), draw(8, 24, dtype=I8)
    scale = np.abs(draw(24)) * 0.01 if each_column else number(0.01)
    zero = np.zeros(24, I8) if each_column else np.asarray(0, I8)
    before = [draw(2, 2, 2, past, 4)] if past else []
    arrays = (x, w, draw(24), number(0.02), scale, None, POINT, zero, *before)
    check("QAttention", *arrays, num_heads=2, unidirectional=1, outputs=2 if past else 1, constants=[1, 3, 4, 6, 7])


def test_quantised_embeddings() -> None:
    ids, kinds, mask = (np.asarray(rows, I32) for rows in ([[1, 2, 3], [4, 0, 5]], [[0, 1, 1], [0, 0, 1]], [[1, 1, 0], [1, 1, 1]]))
    tables = [draw(*shape, dtype=U8) for shape in ((6, 8), (4, 8), (2, 8), (8,), (8,))]
    scales, points = [number(0.01 * k) for k in range(1, 6)], [np.asarray(k, U8) for k in range(5)]
    arrays: list[Array] = [ids, kinds, *tables, mask, *scales, *points]
    check("QEmbedLayerNormalization", *arrays, outputs=2, constants=range(2, 7))


def by_steps(x: Array, w: Array, r: Array, b: Array, scales: tuple[float, float]) -> Array:
    """Return the states of an LSTM whose products are those of quantised numbers."""

    def product(a: Array, weights: Array, scale: float) -> Array:
        low, high = min(a.min(), 0), max(a.max(), 0)
        step = np.float32(high - low) / 255 if high > low else np.float32(1)
        zero = np.round(-low / step)
        q = np.clip(np.round(a / step) + zero, 0, 255)
        return (q - zero) @ weights.astype(np.float64) * step * scale

    h = c = np.zeros((x.shape[1], r.shape[0]))
    projected = product(x.reshape(-1, x.shape[2]), w, scales[0]).reshape(*x.shape[:2], -1) + b[: w.shape[1]] + b[w.shape[1] :]
    states = []
    for row in projected:
        i, o, f, g = np.split(row + product(h, r, scales[1]), 4, axis=-1)
        i, o, f = (1 / (1 + np.exp(-v)) for v in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        states.append(h)
    return np.stack(states)


def test_lstm_of_quantised_weights() -> None:
    x, w, r, b = draw(3, 1, 5), draw(1, 5, 16, dtype=I8), draw(1, 4, 16, dtype=I8), draw(1, 32)
    scales = [np.asarray([0.01], F32), np.zeros(1, I8), np.asarray([0.02], F32), np.zeros(1, I8)]
    arrays = (x, w, r, b, None, None, None, None, *scales)
    check("DynamicQuantizeLSTM", *arrays, outputs=3, hidden_size=4, constants=[1, 2, 8, 9, 10, 11], tolerance=5e-3)
    check("DynamicQuantizeLSTM", *arrays, outputs=3, hidden_size=4, constants=[1, 2, 8, 9, 10, 11], tolerance=5e-3, clip=0.05)
    feeds = {f"x{k}": a for k, a in enumerate(arrays) if a is not None}
    names = [f"x{k}" if f"x{k}" in feeds else "" for k in range(len(arrays))]
    found = staged(model("DynamicQuantizeLSTM", feeds, names, 1, [], "com.microsoft", hidden_size=4), feeds)[0]
    np.testing.assert_allclose(found[:, 0], by_steps(x, w[0], r[0], b[0], (0.01, 0.02)), rtol=1e-4, atol=1e-5)
