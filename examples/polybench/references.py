"""The kernels of the PolyBench suite in plain NumPy: what the operators of the files here compute, one function of the same name for each.

python examples/polybench/references.py        compares all of them for small sizes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tensorlang as tl

Array = np.ndarray[Any, Any]
HERE = Path(__file__).parent
FILES = ("products", "solvers", "dynamic", "stencils")

# ---------------------------------------------------------------- products


def covariance(x: Array) -> Array:
    around = x - x.mean(0)
    return around.T @ around / (len(x) - 1)


def correlation(x: Array) -> Array:
    around = x - x.mean(0)
    spread = np.sqrt((around * around).mean(0))
    unit = around / (np.sqrt(len(x)) * np.where(spread <= 0.1, 1, spread))
    c = unit.T @ unit
    np.fill_diagonal(c, 1)
    return c


def gemm(a: Array, b: Array, c: Array) -> Array:
    return 1.2 * c + 1.5 * (a @ b)


def two_products(a: Array, b: Array, c: Array, d: Array) -> Array:
    return 1.2 * d + (1.5 * (a @ b)) @ c


def three_products(a: Array, b: Array, c: Array, d: Array) -> Array:
    return (a @ b) @ (c @ d)


def atax(a: Array, x: Array) -> Array:
    return a.T @ (a @ x)


def bicg(a: Array, p: Array, r: Array) -> tuple[Array, Array]:
    return a @ p, a.T @ r


def doitgen(a: Array, c: Array) -> Array:
    return a @ c


def mvt(a: Array, x1: Array, x2: Array, y1: Array, y2: Array) -> tuple[Array, Array]:
    return x1 + a @ y1, x2 + a.T @ y2


def gemver(a: Array, u1: Array, v1: Array, u2: Array, v2: Array, y: Array, z: Array) -> tuple[Array, Array, Array]:
    b = a + np.outer(u1, v1) + np.outer(u2, v2)
    x = z + 1.2 * (b.T @ y)
    return b, x, 1.5 * (b @ x)


def gesummv(a: Array, b: Array, x: Array) -> Array:
    return 1.5 * (a @ x) + 1.2 * (b @ x)


def symm(a: Array, b: Array, c: Array) -> Array:
    return 1.2 * c + 1.5 * (np.tril(a) + np.tril(a, -1).T) @ b


def syrk(a: Array, c: Array) -> Array:
    return np.where(np.tri(len(c), dtype=bool), 1.2 * c + 1.5 * (a @ a.T), c)


def syr2k(a: Array, b: Array, c: Array) -> Array:
    return np.where(np.tri(len(c), dtype=bool), 1.2 * c + 1.5 * (b @ a.T + a @ b.T), c)


def trmm(a: Array, b: Array) -> Array:
    return 1.5 * (b + np.tril(a, -1).T @ b)


# ---------------------------------------------------------------- solvers


def cholesky(a: Array) -> Array:
    return np.linalg.cholesky(a)


def lu(a: Array) -> Array:
    m = a.copy()
    for k in range(len(m)):
        m[k + 1 :, k] /= m[k, k]
        m[k + 1 :, k + 1 :] -= np.outer(m[k + 1 :, k], m[k, k + 1 :])
    return m


def ludcmp(a: Array, b: Array) -> Array:
    return np.linalg.solve(a, b)


def trisolv(l: Array, b: Array) -> Array:
    return np.linalg.solve(np.tril(l), b)


def durbin(r: Array) -> Array:
    """Solve the Toeplitz system with ones along its diagonal."""
    column = np.concatenate([[1.0], r[:-1]])
    n = np.arange(len(r))
    return np.linalg.solve(column[abs(n[:, None] - n)], -r)


def gramschmidt(a: Array) -> tuple[Array, Array]:
    q, r = np.linalg.qr(a)
    signs = np.sign(np.diag(r))
    return q * signs, r * signs[:, None]


# ---------------------------------------------------------------- paths, filters, dynamic programming


def floyd_warshall(w: Array) -> Array:
    d = w.copy()
    for k in range(len(d)):
        d = np.minimum(d, d[:, k, None] + d[k])
    return d


def nussinov(seq: Array) -> Array:
    n = len(seq)
    t = np.zeros((n, n), np.int32)
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            pair = int(seq[i] + seq[j] == 3 and i < j - 1)
            best = max(t[i, j - 1], t[i + 1, j], t[i + 1, j - 1] + pair)
            t[i, j] = max([best, *(t[i, k] + t[k + 1, j] for k in range(i + 1, j))])
    return t


def deriche(x: Array) -> Array:
    a = 0.25
    k = (1 - np.exp(-a)) ** 2 / (1 + 2 * a * np.exp(-a) - np.exp(2 * a))
    ahead, behind = (k, k * np.exp(-a) * (a - 1)), (k * np.exp(-a) * (a + 1), -k * np.exp(-2 * a))
    b1, b2 = 2.0**-a, -np.exp(-2 * a)

    def along(rows: Array) -> Array:
        """Return what the filter makes of rows, forwards and backwards."""
        y, z = np.zeros_like(rows), np.zeros_like(rows)
        padded = np.pad(rows, ((0, 0), (2, 2)))
        for j in range(rows.shape[1]):
            past = [y[:, j - d] if j >= d else 0 for d in (1, 2)]
            y[:, j] = ahead[0] * padded[:, j + 2] + ahead[1] * padded[:, j + 1] + b1 * past[0] + b2 * past[1]
        for j in reversed(range(rows.shape[1])):
            past = [z[:, j + d] if j + d < rows.shape[1] else 0 for d in (1, 2)]
            z[:, j] = behind[0] * padded[:, j + 3] + behind[1] * padded[:, j + 4] + b1 * past[0] + b2 * past[1]
        return y + z

    return along(along(x).T).T


def alignment(a: Array, b: Array) -> Array:
    h = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    for i in range(len(a)):
        for j in range(len(b)):
            h[i + 1, j + 1] = max(0, h[i, j] + (3 if a[i] == b[j] else -2), h[i, j + 1] - 2, h[i + 1, j] - 2)
    return h.max()


# ---------------------------------------------------------------- stencils


def jacobi_1d(a: Array, steps: int) -> Array:
    for _ in range(steps):
        b = a.copy()
        b[1:-1] = 0.33333 * (a[:-2] + a[1:-1] + a[2:])
        a = b
    return a


def jacobi_2d(a: Array, steps: int) -> Array:
    for _ in range(steps):
        b = a.copy()
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a = b
    return a


def heat_3d(a: Array, steps: int) -> Array:
    inner = (slice(1, -1),) * 3
    for _ in range(steps):
        b = a.copy()
        b[inner] += 0.125 * sum(np.diff(a, 2, k)[tuple(slice(None) if m == k else slice(1, -1) for m in range(3))] for k in range(3))
        a = b
    return a


def seidel_2d(a: Array, steps: int) -> Array:
    a = a.copy()
    for _ in range(steps):
        for i in range(1, len(a) - 1):
            for j in range(1, len(a) - 1):
                a[i, j] = a[i - 1 : i + 2, j - 1 : j + 2].sum() / 9
    return a


def fdtd_2d(ex0: Array, ey0: Array, hz0: Array, f: Array, steps: int) -> tuple[Array, Array, Array]:
    ex, ey, hz = ex0.copy(), ey0.copy(), hz0.copy()
    for t in range(steps):
        ey[0] = f[t]
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def adi(a: Array, steps: int) -> Array:
    n, u, v = len(a), a.copy(), np.zeros_like(a)
    m1, m2 = 2 * n * n / steps, n * n / steps

    def implicit(x: Array, along: float, across: float) -> Array:
        """Return the rows that solve a tridiagonal system for each inner row of `x`, whose neighbours are those in the rows beside it."""
        y = np.ones_like(x)
        for i in range(1, n - 1):
            p, q = np.zeros(n), np.ones(n)
            for j in range(1, n - 1):
                below = 1 + along - along / 2 * p[j - 1]
                p[j] = along / 2 / below
                given = across / 2 * (x[i - 1, j] + x[i + 1, j]) + (1 - across) * x[i, j]
                q[j] = (given + along / 2 * q[j - 1]) / below
            for j in reversed(range(1, n - 1)):
                y[i, j] = p[j] * y[i, j + 1] + q[j]
        return y

    for _ in range(steps):
        v = implicit(u.T, m1, m2).T
        u[1:-1] = implicit(v, m2, m1)[1:-1]
    return u


# ---------------------------------------------------------------- small arguments


def arguments(n: int) -> Mapping[str, dict[str, Any]]:
    """Return arguments for every kernel, by its name, with extents about `n`."""
    random = np.random.default_rng(n)
    real = random.standard_normal
    m, k = n + 3, n + 1
    around = real((n, n))
    bases = random.integers(0, 4, n).astype(np.int32)
    vectors = {name: real(n) for name in ("u1", "v1", "u2", "v2", "y", "z", "x1", "x2", "y1", "y2")}
    dominant = around + 2 * n * np.eye(n)
    return {
        "covariance": {"x": real((m, n))},
        "correlation": {"x": real((m, n))},
        "gemm": {"a": real((m, k)), "b": real((k, n)), "c": real((m, n))},
        "two_products": {"a": real((m, k)), "b": real((k, n)), "c": real((n, k)), "d": real((m, k))},
        "three_products": {"a": real((m, k)), "b": real((k, n)), "c": real((n, m)), "d": real((m, k))},
        "atax": {"a": real((m, n)), "x": real(n)},
        "bicg": {"a": real((m, n)), "p": real(n), "r": real(m)},
        "doitgen": {"a": real((m, k, n)), "c": real((n, n))},
        "mvt": {"a": around, **{name: vectors[name] for name in ("x1", "x2", "y1", "y2")}},
        "gemver": {"a": around, **{name: vectors[name] for name in ("u1", "v1", "u2", "v2", "y", "z")}},
        "gesummv": {"a": around, "b": real((n, n)), "x": real(n)},
        "symm": {"a": around, "b": real((n, m)), "c": real((n, m))},
        "syrk": {"a": real((n, m)), "c": around},
        "syr2k": {"a": real((n, m)), "b": real((n, m)), "c": around},
        "trmm": {"a": around, "b": real((n, m))},
        "cholesky": {"a": around @ around.T + n * np.eye(n)},
        "lu": {"a": dominant},
        "ludcmp": {"a": dominant, "b": real(n)},
        "trisolv": {"l": dominant, "b": real(n)},
        "durbin": {"r": real(n) / (4 * n)},
        "gramschmidt": {"a": real((m, n))},
        "floyd_warshall": {"w": random.integers(1, 99, (n, n)).astype(np.int32)},
        "nussinov": {"seq": bases},
        "deriche": {"x": real((m, n))},
        "alignment": {"a": bases, "b": random.integers(0, 4, m).astype(np.int32)},
        "jacobi_1d": {"a": real(n), "steps": 4},
        "jacobi_2d": {"a": around, "steps": 4},
        "heat_3d": {"a": real((n, n, n)), "steps": 3},
        "seidel_2d": {"a": around, "steps": 3},
        "fdtd_2d": {"ex0": real((m, n)), "ey0": real((m, n)), "hz0": real((m, n)), "f": real(4), "steps": 4},
        "adi": {"a": around, "steps": 3},
    }


def operators() -> Mapping[str, Callable[..., Any]]:
    """Return the compiled operators of all files by name."""
    return {name: getattr(ops, name) for ops in (tl.load(HERE / f"{file}.tl") for file in FILES) for name in dir(ops)}


def compare(operator: Callable[..., Any], name: str, n: int) -> None:
    """Assert that an operator computes what the reference called `name` does."""
    given = arguments(n)[name]
    found, expected = operator(**given), globals()[name](**given)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


if __name__ == "__main__":
    for kernel, compiled in operators().items():
        compare(compiled, kernel, 12)
        print(f"{kernel:16} is NumPy's")
