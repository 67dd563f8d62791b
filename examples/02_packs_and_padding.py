"""Any rank with packs, any number of tensors with `each`, and what a read finds outside of its tensor."""

from __future__ import annotations

import numpy as np

import tensorlang as tl

ops = tl.parse("""
op softmax[T: float](x: T[D.., N]) -> (y: T[D.., N]) {
    m[d..]    = max(j) x[d.., j]
    e[d.., j] = exp(x[d.., j] - m[d..])
    y[d.., j] = e[d.., j] / sum(k) e[d.., k]
}

op concat[T](each x: T[A.., each N, B..], attr axis: int) -> (y: T[A.., sum(N..), B..]) where rank(A) == axis {
    y[a.., before(N) + j, b..] = x[a.., j, b..]   for each x
}

op blur[T: float](x: T[N]) -> (zero: T[N], edge: T[N], ring: T[N], mirror: T[N]) {
    zero[i]   = (x[i - 1 | 0] + x[i] + x[i + 1 | 0]) / 3
    edge[i]   = (x[i - 1 | clamp] + x[i] + x[i + 1 | clamp]) / 3
    ring[i]   = (x[i - 1 | wrap] + x[i] + x[i + 1 | wrap]) / 3
    mirror[i] = (x[i - 1 | reflect] + x[i] + x[i + 1 | reflect]) / 3
}
""")

random = np.random.default_rng(0)
for shape in ((5,), (3, 5), (2, 3, 4, 5)):
    x = random.standard_normal(shape, dtype=np.float32)
    e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(ops.softmax(x), e / e.sum(-1, keepdims=True), rtol=1e-5)
    print(f"softmax of rank {x.ndim} is right")

parts = tuple(random.standard_normal((2, n, 3), dtype=np.float32) for n in (1, 4, 0, 2))
np.testing.assert_array_equal(ops.concat(parts, axis=1), np.concatenate(parts, axis=1))
print(f"concat of {len(parts)} tensors is right")

x = np.array([3, 0, 0, 6], np.float32)
for name, found in zip(("zero", "edge", "ring", "mirror"), ops.blur(x), strict=True):
    print(f"{name:7} {found.tolist()}")
