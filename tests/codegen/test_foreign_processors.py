"""Kernels for processors that are not here, run by emulators: they compute what this machine computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulated import Array, computed

import tensorlang as tl
from codegen.llvm.target import named

OPS = """
op product(x: f32[M, K], w: f32[K, N], b: f32[N]) -> (y: f32[M, N]) {
    y[i, j] = max(0.0, b[j] + sum(k) x[i, k] * w[k, j])
}
op softmax(x: f32[M, N]) -> (y: f32[M, N]) {
    m[i] = max(j) x[i, j]
    e[i, j] = exp(x[i, j] - m[i])
    s[i] = sum(j) e[i, j]
    y[i, j] = e[i, j] / s[i]
}
op conv(x: f32[C, H, W], w: f32[O, C, 3, 3]) -> (y: f32[O, H - 2, W - 2]) {
    y[o, h, v] = sum(c, r, s) x[c, h + r, v + s] * w[o, c, r, s]
}
op bytes(x: u8[M, K], w: i8[K, N]) -> (y: i32[M, N]) {
    y[i, j] = sum(k) i32(x[i, k]) * i32(w[k, j])
}
op signed(x: i8[M, K], w: i8[K, N]) -> (y: i32[M, N]) {
    y[i, j] = sum(k) i32(x[i, k]) * i32(w[k, j])
}
op halves(x: bf16[M, K], w: bf16[K, N], h: f16[N]) -> (y: f16[M, N]) {
    y[i, j] = f16(f32(h[j]) + sum(k) f32(x[i, k]) * f32(w[k, j]))
}
op narrowed(x: f32[M, N]) -> (y: u8[M, N], z: i8[M, N]) {
    y[i, j] = u8(round(x[i, j] * 40.0) + 128.0)
    z[i, j] = i8(round(x[i, j] * 90.0))
}
op rows(x: f32[N, D], at: i64[M] in 0..N) -> (y: f32[M, D], best: i64[M]) {
    y[i, d] = x[at[i], d] / (1.0 + abs(x[at[i], d]))
    best[i] = argmax(d) x[at[i], d]
}
strict op totals(x: f64[M, N], n: i32[N]) -> (y: f64[M], q: i32[N]) {
    y[i] = sum(j) x[i, j] * 3.0
    q[j] = n[j] // 3 + n[j] % 5 * 7
}
"""


def _arrays() -> dict[str, dict[str, Array]]:
    rng = np.random.default_rng(5)

    def f32(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    return {
        "product": {"x": f32(9, 21), "w": f32(21, 19), "b": f32(19)},
        "softmax": {"x": f32(5, 37)},
        "conv": {"x": f32(3, 9, 13), "w": f32(5, 3, 3, 3)},
        "bytes": {"x": rng.integers(0, 256, (6, 19)).astype(np.uint8), "w": rng.integers(-128, 128, (19, 17)).astype(np.int8)},
        "signed": {"x": rng.integers(-128, 128, (6, 19)).astype(np.int8), "w": rng.integers(-128, 128, (19, 17)).astype(np.int8)},
        "halves": {
            "x": f32(4, 18).astype(ml_dtypes.bfloat16),
            "w": f32(18, 13).astype(ml_dtypes.bfloat16),
            "h": f32(13).astype(np.float16),
        },
        "narrowed": {"x": f32(3, 37)},
        "rows": {"x": f32(7, 11), "at": np.array([6, 0, 3])},
        "totals": {"x": rng.standard_normal((4, 23)), "n": rng.integers(-99, 99, 23).astype(np.int32)},
    }


ARRAYS = _arrays()
HERE = tl.parse(OPS)


@pytest.mark.parametrize("target", ["aarch64", "aarch64-v8.2", "wasm32", "wasm32-relaxed"])
@pytest.mark.parametrize("name", ARRAYS)
def test_a_kernel_computes_elsewhere_what_it_computes_here(name: str, target: str) -> None:
    arrays = ARRAYS[name]
    operator = HERE[name]
    expected = operator(**arrays)
    found = computed(operator.program(**arrays), named(target), arrays)
    for ours, theirs in zip(expected if isinstance(expected, tuple) else (expected,), found.values(), strict=True):
        assert ours.dtype == theirs.dtype
        if name in ("bytes", "signed", "narrowed", "totals") or ours.dtype == np.int64:
            np.testing.assert_array_equal(theirs, ours)
        else:
            close = {"atol": 4e-3, "rtol": 4e-3} if ours.dtype == np.float16 else {"atol": 2e-6, "rtol": 2e-6}
            np.testing.assert_allclose(theirs.astype(np.float64), ours.astype(np.float64), **close)
