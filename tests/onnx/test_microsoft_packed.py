"""Sequences without their padding, as onnxruntime packs them for devices: what they come to is that of its operators with padding."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from microsoft_operators import F32, I32, Array, draw, model
from onnx.parser import parse_model
from onnx_evaluate import staged

import tensorlang as tl

PACKED = """<ir_version: 9, opset_import: ["": 18, "com.microsoft": 1]>
net (float[b, s, 8] x, int32[b] counts, float[8, 24] w, float[24] bias, float[b, 2, s, s] scores)
=> (float[b, s, 8] y, float[t, 8] rows, int32[b, s] offsets, int32[e] ends, int32[1] longest) {
    rows, offsets, ends, longest = com.microsoft.RemovePadding(x, counts)
    BODY
    y = com.microsoft.RestorePadding(found, offsets)
}"""
ATTENTION = "found = com.microsoft.PackedAttention <num_heads = 2> (rows, w, bias, offsets, ends, scores)"
APART = """projected = MatMul(rows, w)
    parts = Constant <value_ints = [8, 8, 8]> ()
    q, k, v = Split <axis = 1> (projected, parts)
    found = com.microsoft.PackedMultiHeadAttention <num_heads = 2> (q, k, v, bias, offsets, ends, scores)"""
TOGETHER = """projected = MatMul(rows, w)
    apart = Constant <value_ints = [0, 3, 2, 4]> ()
    form = Reshape(projected, apart)
    heads = Transpose <perm = [0, 2, 1, 3]> (form)
    found = com.microsoft.PackedMultiHeadAttention <num_heads = 2> (heads, , , bias, offsets, ends, scores)"""


@pytest.mark.parametrize("body", [ATTENTION, APART, TOGETHER])
def test_attention_of_packed_sequences_is_that_of_padded_ones(body: str) -> None:
    packed = tl.compile(parse_model(PACKED.replace("BODY", body)).SerializeToString(), threads=1)
    w, bias = draw(8, 24) / 4, draw(24)
    for lengths, steps in (([3, 1, 4], 4), ([5, 5], 5), ([2], 6), ([1, 6, 2, 3], 7)):
        counts, batch = np.array(lengths, I32), len(lengths)
        x, scores = draw(batch, steps, 8), draw(batch, 2, steps, steps)
        y, rows, offsets, ends, longest = packed.run({"x": x, "counts": counts, "w": w, "bias": bias, "scores": scores}).values()
        there = np.arange(steps) < counts[:, None]
        np.testing.assert_array_equal(rows, x[there])
        np.testing.assert_array_equal(offsets.reshape(-1), [*np.flatnonzero(there), *np.flatnonzero(~there)])
        assert (ends.tolist(), longest.tolist()) == ([0, *np.cumsum(lengths).tolist()], [max(lengths)])
        np.testing.assert_allclose(y[there], padded(x, w, bias, counts, scores)[there], rtol=1e-4, atol=1e-5)
        assert not y[~there].any()


def padded(x: Array, w: Array, bias: Array, counts: Array, scores: Array) -> Array:
    feeds = {"x": x, "w": w, "b": bias, "m": counts, "s": scores}
    made = model("Attention", feeds, ["x", "w", "b", "m", "", "s"], 1, [], "com.microsoft", num_heads=2)
    found: Array = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    return found


def test_no_tokens_at_all_are_padding() -> None:
    packed = tl.compile(parse_model(PACKED.replace("BODY", ATTENTION)).SerializeToString(), threads=1)
    feeds = {"x": draw(2, 3, 8), "counts": np.zeros(2, I32), "w": draw(8, 24), "bias": draw(24), "scores": draw(2, 2, 3, 3)}
    y, rows, _, ends, longest = packed.run(feeds).values()
    assert (rows.shape, ends.tolist(), longest.tolist()) == ((0, 8), [0, 0, 0], [0])
    assert not y.any()


def test_states_are_turned_by_angles() -> None:
    angles, states = draw(2, 3, 4), [draw(2, 2, 3, 4, seed=k).astype(np.float16) for k in range(4)]
    feeds = dict(zip("eabcd", [angles, *states], strict=True))
    found = staged(model("GemmaRotaryEmbedding", feeds, list(feeds), 2, [], "com.microsoft"), feeds)
    cosines, sines = (f(angles)[:, None].astype(np.float16).astype(F32) for f in (np.cos, np.sin))
    for y, x, turned in zip(found, states[::2], states[1::2], strict=True):
        np.testing.assert_allclose(y.astype(F32), x * cosines + turned * sines, rtol=2e-3, atol=2e-3)


def test_bytes_are_multiplied_and_summed_as_integers_of_32_bits() -> None:
    a, b = np.arange(250, 256, dtype=np.uint8).reshape(2, 3), np.array([[7], [200]], np.uint8)
    feeds = {"a": a, "z": np.array(251, np.uint8), "b": b, "y": np.array(9, np.uint8)}
    (product,) = staged(model("MulInteger", feeds, list(feeds), 1, [], "com.microsoft"), feeds)
    np.testing.assert_array_equal(product, (a.astype(I32) - 251) * (b.astype(I32) - 9), strict=True)
    (total,) = staged(model("ReduceSumInteger", {"a": a}, ["a"], 1, [], "com.microsoft", axes=[1], keepdims=0), {"a": a})
    np.testing.assert_array_equal(total, a.sum(1, dtype=np.uint32), strict=True)


def test_a_product_may_end_in_a_function_and_a_table_has_rows_of_tokens() -> None:
    a, b, ids = draw(3, 4), draw(5, 4), np.array([[2, 0, 2]])
    how = {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.25}
    (found,) = staged(model("FusedMatMulActivation", {"a": a, "b": b}, ["a", "b"], 1, [], "com.microsoft", **how), {"a": a, "b": b})
    expected = a @ b.T / 2
    np.testing.assert_allclose(found, np.where(expected < 0, expected / 4, expected), rtol=1e-5, atol=1e-6)
    (rows,) = staged(model("TorchEmbedding", {"w": b, "i": ids}, ["w", "i"], 1, [], "com.microsoft"), {"w": b, "i": ids})
    np.testing.assert_array_equal(rows, b[ids])
