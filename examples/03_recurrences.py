"""Tensors defined by themselves: the heat equation in time, and Cholesky's factorisation.

The compiler finds an order that computes each element after those it needs, and proves it. Where none exists it shows the cycle.
"""

from __future__ import annotations

import numpy as np

import tensorlang as tl

ops = tl.parse("""
op heat(u0: f64[N], attr steps: int = 50) -> (u: f64[N]) {
    s[0, i]     = u0[i]
    s[t + 1, i] = s[t, i] + 0.25 * (s[t, i - 1] - 2 * s[t, i] + s[t, i + 1])   for t in 0..steps, i in 1..N-1
    s[t + 1, i] = s[t, i]                                                      otherwise
    u[i]        = s[steps, i]
}

op cholesky(a: f64[N, N]) -> (l: f64[N, N]) {
    l[i, i] = sqrt(a[i, i] - sum(k in 0..i) l[i, k] * l[i, k])
    l[i, j] = (a[i, j] - sum(k in 0..j) l[i, k] * l[j, k]) / l[j, j]   for j in 0..i
    l[i, j] = 0                                                        otherwise
}
""")

u = np.zeros(11)
u[5] = 1
print("heat", np.round(ops.heat(u), 3).tolist())
expected = u.copy()
for _ in range(50):
    expected[1:-1] += 0.25 * (expected[:-2] - 2 * expected[1:-1] + expected[2:])
np.testing.assert_allclose(ops.heat(u), expected, rtol=1e-12)

m = np.random.default_rng(0).standard_normal((30, 40))
a = m @ m.T
np.testing.assert_allclose(ops.cholesky(a), np.linalg.cholesky(a), rtol=1e-9, atol=1e-9)
print("cholesky is NumPy's")

print("\nwithout an order it is refused:")
try:
    tl.parse("op f(x: f64[N]) -> (y: f64[N]) { y[i] = x[i] + y[N - 1 - i] }").f(np.ones(3))
except tl.CompileError as problem:
    print(problem)
