"""Attention in one pass over the keys: a reducer whose components have different ranks.

`m` and `l` are, for each row, the largest score so far and the sum of `exp` below it; `a` is the row of weighted values that goes with
them. Whenever the largest grows, what was summed before is scaled down. Parts of a row combine in any order and grouping: that is what
`reducer` promises, and it is tried out before it is believed.
"""

from __future__ import annotations

import numpy as np

import tensorlang as tl

ops = tl.parse("""
fn shrink[T: float](a: T, m) = if a == m then 1 else exp(a - m)

reducer online (m1, l1, a1) (m2, l2, a2) from (-inf, 0, 0) =
    let m = max(m1, m2)
    in (m, l1 * shrink(m1, m) + l2 * shrink(m2, m), a1 * shrink(m1, m) + a2 * shrink(m2, m))

op attention(q: f32[H, L, D], k: f32[H, S, D], v: f32[H, S, E]) -> (y: f32[H, L, E]) {
    s[h, i, j]                      = sum(c) q[h, i, c] * k[h, j, c]
    m[h, i], l[h, i], a[h, i, e] = online(j) (s[h, i, j], 1, v[h, j, e])
    y[h, i, e]                      = a[h, i, e] / l[h, i]
}
""")

random = np.random.default_rng(0)
q, k, v = (random.standard_normal(shape, dtype=np.float32) for shape in ((4, 50, 32), (4, 70, 32), (4, 70, 48)))
scores = q @ k.transpose(0, 2, 1)
weights = np.exp(scores - scores.max(-1, keepdims=True))
np.testing.assert_allclose(ops.attention(q, k, v), weights / weights.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)
print(f"attention of {q.shape} over {k.shape}: as softmax(q kᵀ) v, the scores seen once")
