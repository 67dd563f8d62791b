"""An operator of your own, called with NumPy arrays.

The equation says what each element is. Types and shapes are checked, a schedule is derived and proven, native code is made once for each
combination of types and shapes, and kept on disk.
"""

from __future__ import annotations

import numpy as np

import tensorlang as tl

ops = tl.parse("""
op linear_gelu[T: float](x: T[M, K], w: T[N, K], b: T[N] = 0) -> (y: T[M, N]) {
    s[i, j] = b[j] + sum(k) x[i, k] * w[j, k]
    y[i, j] = 0.5 * s[i, j] * (1 + erf(s[i, j] / sqrt(2)))
}
""")

random = np.random.default_rng(0)
x, w, b = (random.standard_normal(shape, dtype=np.float32) for shape in ((64, 96), (80, 96), (80,)))

print(ops)
y = ops.linear_gelu(x, w, b)
s = x @ w.T + b
approximate = np.tanh(0.7978845608 * (s + 0.044715 * s**3))
print(f"\ny is {y.dtype}{list(y.shape)}; the approximation by tanh differs by {np.abs(y - 0.5 * s * (1 + approximate)).max():.1e} at most")
print(f"without b: {ops.linear_gelu(x, w).shape}, in f64: {ops.linear_gelu(x.astype(np.float64), w.astype(np.float64)).dtype}")

print("\nwhat does not fit is refused:")
try:
    ops.linear_gelu(x, w[:, 1:])
except tl.CompileError as problem:
    print(problem)
