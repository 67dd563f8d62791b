"""A block of a transformer in three files that use each other's operators and tactics and the standard library's; then the library alone.

`11_reuse/block.tl` uses `attention.tl` by name, `tiles.tl` under a name, and modules of the library. Both files have a function `scaled`:
each operator means the one of its own file.
"""

from __future__ import annotations

from math import erf
from pathlib import Path

import numpy as np

import tensorlang as tl

random = np.random.default_rng(0)
HERE = Path(__file__).parent / "11_reuse"
L, E, F, HEADS = 16, 32, 64, 4


def normalised(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g


def attention(x: np.ndarray, w: np.ndarray, out: np.ndarray) -> np.ndarray:
    q, k, v = (part.reshape(L, HEADS, E // HEADS).transpose(1, 0, 2) for part in np.split(x @ w.T, 3, 1))
    e = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(E // HEADS))
    return ((e / e.sum(-1, keepdims=True)) @ v).transpose(1, 0, 2).reshape(L, E) @ out.T


ops = tl.load(HERE / "block.tl")
x, w, out, up, down = (random.standard_normal(s, dtype=np.float32) / 5 for s in ((L, E), (3 * E, E), (E, E), (F, E), (E, F)))
g = np.ones(E, np.float32)
r = x + attention(normalised(x, g), w, out)
h = normalised(r, g) @ up.T
expected = r + (0.5 * h * (1 + np.vectorize(erf)(h * np.sqrt(0.5)))) @ down.T
np.testing.assert_allclose(ops.block(x, w, out, up, down, g, heads=HEADS), expected, rtol=1e-4, atol=1e-5)
print("the block is NumPy's")

np.testing.assert_allclose(ops.layer(x, up), 2 * x @ up.T, rtol=1e-4, atol=1e-5)
print(next(line.strip() for line in ops.layer.explain(x, up).split("\n") if "split i by" in line or "split y.i by" in line))

e = np.exp(x - x.max(-1, keepdims=True))
np.testing.assert_allclose(tl.std.softmax(x), e / e.sum(-1, keepdims=True), rtol=1e-5)
np.testing.assert_allclose(tl.std.norm.layer_norm(x), normalised(x, g), rtol=1e-4, atol=1e-5)
print("the library is NumPy's")
print(tl.std.softmax.__doc__)

for text in ("import std.norm", "op f(x: f32[N]) -> (y: f32[N]) { y = softmax(x) }", 'use "norms.tl"'):
    try:
        tl.parse(text, base=HERE)
    except tl.CompileError as refused:
        print(refused)
