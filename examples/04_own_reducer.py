"""A reducer of your own, over tuples: log-sum-exp and the element farthest from zero, each in one pass.

`reducer` promises that terms may be combined in any grouping and order. That is what allows lanes and threads to share the work, so the
promise is tried out on random values, infinities and NaN before it is believed.
"""

from __future__ import annotations

import numpy as np

import tensorlang as tl

ops = tl.parse("""
fn shrink[T: float](a: T, m) = if a == m then 1 else exp(a - m)

reducer log_sum (m1, s1) (m2, s2) from (-inf, 0) =
    let m = max(m1, m2) in (m, s1 * shrink(m1, m) + s2 * shrink(m2, m))
    lift v = (v, 1)
    yield (m, s) = m + log(s)

reducer farthest (v1, i1) (v2, i2) from (-1, 0) =
    if v1 > v2 or v1 == v2 and i1 <= i2 then (v1, i1) else (v2, i2)

op statistics(x: f32[B, N]) -> (total: f32[B], distance: f32[B], at: i64[B]) {
    total[b]           = log_sum(j) x[b, j]
    distance[b], at[b] = farthest(j) (abs(x[b, j]), j)
}
""")

x = np.random.default_rng(0).standard_normal((4, 1000), dtype=np.float32) * 30
total, distance, at = ops.statistics(x)
top = x.max(axis=1, keepdims=True)
np.testing.assert_allclose(total, (top[:, 0] + np.log(np.exp(x - top).sum(axis=1))), rtol=1e-6)
np.testing.assert_array_equal(at, np.abs(x).argmax(axis=1))
np.testing.assert_array_equal(distance, np.abs(x).max(axis=1))
print(f"log-sum-exp {np.round(total, 2).tolist()}\nfarthest    {np.round(distance, 2).tolist()} at {at.tolist()}")
