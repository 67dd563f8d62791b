"""The operators of the library that people reach for, called in an operator of a user's file: packs, attributes, defaults, results."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest

import tensorlang as tl

Array = np.ndarray[Any, Any]
R = np.random.default_rng(0)
X = R.standard_normal((2, 3, 4), dtype=np.float32)
Y = R.standard_normal((2, 3, 4), dtype=np.float32)
M, W = R.standard_normal((5, 4), dtype=np.float32), R.standard_normal((4, 6), dtype=np.float32)
IMAGE = R.standard_normal((1, 4, 7, 6), dtype=np.float32)
TAPS = R.standard_normal((6, 4, 3, 3), dtype=np.float32)
IDS = np.array([2, 0, -1], np.int64)
D = "x: f32[D..]"
SAME = f"({D}) -> (y: f32[D..])"
ROWS = "(x: f32[D.., N]) -> (y: f32[D.., N])"


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normalised(x: Array, axes: tuple[int, ...] = (-1,)) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def windows(x: Array, size: int, stride: int = 1, pad: int = 0, fill: float = 0.0) -> Array:
    """Return x[n, c, p, q] as windows [n, c, p, q, r, s]."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))[:, :, ::stride, ::stride]


def conv(x: Array, w: Array, stride: int = 1, pad: int = 0) -> Array:
    return np.einsum("ncpqrs,fcrs->nfpq", windows(x, w.shape[2], stride, pad), w)


CASES: dict[str, tuple[str, str, tuple[Array, ...], Callable[..., Any]]] = {
    "softmax": (ROWS, "y = softmax(x)", (X,), softmax),
    "softmax of an axis": (SAME, "y = softmax(x, axis = 1)", (X,), lambda x: softmax(x, 1)),
    "softmax, axis by position": (SAME, "y = softmax(x, -2)", (X,), lambda x: softmax(x, 1)),
    "log_softmax": (ROWS, "y = log_softmax(x)", (X,), lambda x: np.log(softmax(x))),
    "layer_norm": ("(x: f32[D.., N], g: f32[N]) -> (y: f32[D.., N])", "y = layer_norm(x, g)", (X, Y[0, 0]), lambda x, g: normalised(x) * g),
    "layer_norm without a scale": (ROWS, "y = layer_norm(x, eps = 1e-5)", (X,), normalised),
    "layer_norm of two axes": (
        "(x: f32[A, B, C]) -> (y: f32[A, B, C])",
        "y = layer_norm(x, axis = -2)",
        (X,),
        lambda x: normalised(x, (1, 2)),
    ),
    "layer_norm_statistics": (
        "(x: f32[D.., N]) -> (y: f32[D.., N], m: f32[D..])",
        "y, m, _ = layer_norm_statistics(x)",
        (X,),
        lambda x: (normalised(x), x.mean(-1)),
    ),
    "rms_norm": (ROWS, "y = rms_norm(x)", (X,), lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)),
    "batch_norm": (
        "(x: f32[N, C, H..], k: f32[C]) -> (y: f32[N, C, H..])",
        "y = batch_norm(x, k, k, k, k)",
        (IMAGE, np.abs(M[0])),
        lambda x, k: (x - k[:, None, None]) / np.sqrt(k[:, None, None] + 1e-5) * k[:, None, None] + k[:, None, None],
    ),
    "group_norm": (
        "(x: f32[N, C, H, W], g: f32[C]) -> (y: f32[N, C, H, W])",
        "y = group_norm(x, g, g, groups = 2)",
        (IMAGE, M[0]),
        lambda x, g: normalised(x.reshape(1, 2, 2, 7, 6), (2, 3, 4)).reshape(x.shape) * g[:, None, None] + g[:, None, None],
    ),
    "instance_norm": (
        "(x: f32[N, C, H..], g: f32[C]) -> (y: f32[N, C, H..])",
        "y = instance_norm(x, g, g)",
        (IMAGE, M[0]),
        lambda x, g: normalised(x, (2, 3)) * g[:, None, None] + g[:, None, None],
    ),
    "l2_normalise": (ROWS, "y = l2_normalise(x)", (X,), lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)),
    "matmul": ("(x: f32[M, K], w: f32[K, N]) -> (y: f32[M, N])", "y = matmul(x, w)", (M, W), np.matmul),
    "matmul of many": ("(x: f32[D.., M, K], w: f32[K, N]) -> (y: f32[D.., M, N])", "y = matmul(x, w)", (X, W), np.matmul),
    "gemm": ("(x: f32[M, K], w: f32[K, N]) -> (y: f32[M, N])", "y = gemm(x, w)", (M, W), np.matmul),
    "gemm_nt": (
        "(x: f32[M, K], w: f32[N, K], c: f32[N]) -> (y: f32[M, N])",
        "y = gemm_nt(x, w, c)",
        (M, W.T.copy(), W[0]),
        lambda x, w, c: x @ w.T + c,
    ),
    "conv": (
        "(x: f32[N, C, H.., W], w: f32[F, C, 3, 3]) -> (y: f32[N, F, H.., W])",
        "y = conv(x, w, lo = 1, hi = 1)",
        (IMAGE, TAPS),
        lambda x, w: conv(x, w, 1, 1),
    ),
    "conv with a stride": (
        "(x: f32[N, C, H, W], w: f32[F, C, R, S]) -> (y: f32[N, F, (H - R) // 2 + 1, (W - S) // 2 + 1])",
        "y = conv(x, w, stride = (2, 2))",
        (IMAGE, TAPS),
        lambda x, w: conv(x, w, 2),
    ),
    "max_pool": (
        "(x: f32[N, C, H, W]) -> (y: f32[N, C, H // 2, W // 2])",
        "y = max_pool(x, kernel = (2, 2), stride = (2, 2))",
        (IMAGE,),
        lambda x: windows(x, 2, 2).max((-2, -1)),
    ),
    "max_pool_at": (
        "(x: f32[N, C, H, W]) -> (y: f32[N, C, H // 2, W // 2], at: i64[N, C, H // 2, W // 2])",
        "y, at = max_pool_at(x, kernel = (2, 2), stride = (2, 2))",
        (IMAGE,),
        lambda x: (windows(x, 2, 2).max((-2, -1)), None),
    ),
    "average_pool": (
        "(x: f32[N, C, H, W]) -> (y: f32[N, C, H, W])",
        "y = average_pool(x, kernel = (3, 3), lo = 1, hi = 1)",
        (IMAGE,),
        lambda x: windows(x, 3, 1, 1).mean((-2, -1)),
    ),
    "arg_max": ("(x: f32[D.., N]) -> (y: i64[D..]) where N > 0", "y = arg_max(x)", (X,), lambda x: x.argmax(-1)),
    "arg_min of an axis": ("(x: f32[N, M]) -> (y: i64[M]) where N > 0", "y = arg_min(x, axis = 0)", (M,), lambda x: x.argmin(0)),
    "top_largest": (
        "(x: f32[D.., N]) -> (y: f32[D.., 2], at: i64[D.., 2]) where N >= 2",
        "y, at = top_largest(x, count = 2)",
        (X,),
        lambda x: (-np.sort(-x)[..., :2], np.argsort(-x)[..., :2]),
    ),
    "top_smallest": (
        "(x: f32[D.., N]) -> (y: f32[D.., 2]) where N >= 2",
        "y, _ = top_smallest(x, count = 2)",
        (X,),
        lambda x: np.sort(x)[..., :2],
    ),
    "cumsum": (ROWS, "y = cumsum(x)", (X,), lambda x: x.cumsum(-1)),
    "cumsum of an axis": (SAME, "y = cumsum(x, axis = 0)", (X,), lambda x: x.cumsum(0)),
    "cumprod": (ROWS, "y = cumprod(x)", (X,), lambda x: x.cumprod(-1)),
    "reduce_sum": ("(x: f32[D.., N]) -> (y: f32[D..])", "y = reduce_sum(x)", (X,), lambda x: x.sum(-1)),
    "reduce_mean of two axes": (
        "(x: f32[A, B, C]) -> (y: f32[A])",
        "y = reduce_mean(x, axis = 1, count = 2)",
        (X,),
        lambda x: x.mean((1, 2)),
    ),
    "reduce_max": ("(x: f32[D.., N]) -> (y: f32[D..])", "y = reduce_max(x)", (X,), lambda x: x.max(-1)),
    "reduce_log_sum_exp": ("(x: f32[D.., N]) -> (y: f32[D..])", "y = reduce_log_sum_exp(x)", (X,), lambda x: np.log(np.exp(x).sum(-1))),
    "transpose": ("(x: f32[A, B, C]) -> (y: f32[C, A, B])", "y = transpose(x, perm = (2, 0, 1))", (X,), lambda x: x.transpose(2, 0, 1)),
    "concat": ("(x: f32[N, M], z: f32[N, M]) -> (y: f32[N + N, M])", "y = concat(x, z)", (M, M), lambda x, z: np.concatenate([x, z])),
    "pad": (
        "(x: f32[N, M], v: f32) -> (y: f32[N + 2, M + 2])",
        "y = pad(x, v, lo = 1, hi = 1)",
        (M, M[0, 0]),
        lambda x, v: np.pad(x, 1, constant_values=v),
    ),
    "slice": (
        "(x: f32[N]) -> (y: f32[2]) where N >= 4",
        "y = slice(x, start = (1,), step = (2,), length = (2,))",
        (X[0, 0],),
        lambda x: x[1:4:2],
    ),
    "tile": ("(x: f32[N]) -> (y: f32[3*N])", "y = tile(x, times = (3,))", (X[0, 0],), lambda x: np.tile(x, 3)),
    "gather": (
        "(x: f32[N, M], ids: i64[K] in -N..N) -> (y: f32[K, M])",
        "y = gather(x, ids, axis = 0)",
        (M, IDS),
        lambda x, ids: x[ids],
    ),
    "one_hot": (
        "(ids: i64[K], v: f32[2]) -> (y: f32[K, 4])",
        "y = one_hot(ids, v, axis = 1, depth = 4)",
        (IDS, X[0, 0, :2]),
        lambda i, v: np.where(np.eye(4, dtype=bool)[i], v[1], v[0]),
    ),
    "select": ("(c: bool[D..], x: f32[D..], z: f32[D..]) -> (y: f32[D..])", "y = select(c, x, z)", (X > 0, X, Y), np.where),
    "clip": (SAME, "y = clip(x, lo = -0.5, hi = 0.5)", (X,), lambda x: x.clip(-0.5, 0.5)),
    "maximum": ("(x: f32[D..], z: f32[D..]) -> (y: f32[D..])", "y = maximum(x, z)", (X, Y), np.maximum),
    "add, broadcast": ("(x: f32[D.., N], z: f32[N]) -> (y: f32[D.., N])", "y = add(x, z)", (X, Y[0, 0]), np.add),
    "map": (SAME, "y = map(x, f = gelu)", (X,), lambda x: 0.5 * x * (1 + np.vectorize(erf)(x * 0.7071067811865476))),
    "triangle_lower": ("(x: f32[D.., M, N]) -> (y: f32[D.., M, N])", "y = triangle_lower(x)", (X,), np.tril),
}


@pytest.mark.parametrize("case", CASES)
def test_an_operator_of_the_library_is_called_in_an_operator_of_ones_own(case: str) -> None:
    signature, body, arrays, reference = CASES[case]
    ops = tl.parse(f"use std ({case.split()[0].strip(',')})\nop own{signature} {{\n    {body}\n}}\n")
    found, expected = ops.own(*arrays), reference(*arrays)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for got, wanted in pairs:
        if wanted is not None:
            assert got.shape == np.shape(wanted)
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


def test_calls_are_nested_and_their_results_indexed_in_equations() -> None:
    text = """
use std (softmax, matmul, transpose)
use std.norm as n

op attend(q: f32[B.., L, E], k: f32[B.., S, E], v: f32[B.., S, E]) -> (y: f32[B.., L, E]) {
    s[b.., i, j] = (sum(e) q[b.., i, e] * k[b.., j, e]) / sqrt(f32(E))
    a = matmul(softmax(s), v)
    h = n.rms_norm(a)
    y[b.., i, e] = a[b.., i, e] + h[b.., i, e]
}
"""
    q, k, v = (R.standard_normal((2, 3, 4), dtype=np.float32) for _ in range(3))
    a = softmax(q @ k.transpose(0, 2, 1) / 2) @ v
    expected = a + a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(tl.parse(text).attend(q, k, v), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("module", tl.std.__doc__ and sorted({t.split(":")[0] for t in tl.std.__doc__.split("\n") if t.startswith("std.")}))
def test_every_module_is_used_as_a_whole_and_under_a_name(module: str) -> None:
    tl.parse(f"use {module}\nuse {module} as m\n")


def test_all_modules_are_used_together() -> None:
    ops = tl.parse("use std\nuse std as s\nop f(x: f32[N]) -> (y: f32[N]) {\n    y = s.softmax(softmax(x))\n}\n")
    np.testing.assert_allclose(ops.f(X[0, 0]), softmax(softmax(X[0, 0])), rtol=1e-5)


GROUPED = """
use std.conv (conv)

op f(x: f32[N, C, H, W], v: f32[F, A, R, S], w: f32[F, B, R, S])
    -> (y: f32[N, F, H - R + 1, W - S + 1], total: f32[F], z: f32[N, F, H - 2*R + 2, W - 2*S + 2]) {
    total[f] = sum(n, p, q) y[n, f, p, q]
    y = conv(x, v, group = 2)
    z = conv(y, w, group = 3)
}
"""


def test_a_result_in_groups_is_the_dimension_that_is_declared_and_may_be_grouped_anew() -> None:
    v, w = TAPS[:, :2].copy(), np.flip(TAPS[:, 2:], 1).copy()
    y, total, z = tl.parse(GROUPED).f(IMAGE, v, w)
    expected = np.concatenate([conv(IMAGE[:, 2 * g : 2 * g + 2], v[3 * g : 3 * g + 3]) for g in range(2)], 1)
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(total, expected.sum((0, 2, 3)), rtol=2e-5, atol=2e-5)
    again = np.concatenate([conv(expected[:, 2 * g : 2 * g + 2], w[2 * g : 2 * g + 2]) for g in range(3)], 1)
    np.testing.assert_allclose(z, again, rtol=1e-4, atol=1e-4)


def test_groups_of_another_size_than_there_are_do_not_fit() -> None:
    with pytest.raises(tl.CompileError, match="`x` gives C = 2, `w` gives C = 3"):
        tl.parse(GROUPED).f(IMAGE, TAPS[:, :2].copy(), TAPS[:, :3].copy())
