"""Recurrences that people know (PolyBench): native code under derived schedules, the interpreter and NumPy loops agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guarded import agrees

import tensorlang as tl
from tensorlang.tensor.interp import interpret

Array = np.ndarray[Any, Any]
PROGRAMS = Path(__file__).parent.parent / "programs" / "recurrences.tl"
N = 9


@pytest.fixture(scope="module")
def ops() -> tl.Operators:
    return tl.load(PROGRAMS)


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def dominant() -> Array:
    a = normal(N, N)
    return a @ a.T + 12 * np.eye(N)


def jacobi2d(a: Array, steps: int) -> Array:
    for _ in range(steps):
        b = a.copy()
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a = b
    return a


def seidel2d(a: Array, steps: int) -> Array:
    a = a.copy()
    for _ in range(steps):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                a[i, j] = a[i - 1 : i + 2, j - 1 : j + 2].sum() / 9
    return a


def fdtd2d(ex: Array, ey: Array, hz: Array, f: Array, steps: int) -> tuple[Array, ...]:
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    for t in range(steps):
        ey[0] = f[t]
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def adi_rows(u: Array, a: float = 0.25) -> Array:
    p, q, v = np.zeros_like(u), np.ones_like(u), np.ones_like(u)
    for j in range(1, u.shape[1]):
        p[:, j] = a / (1.5 - a * p[:, j - 1])
        q[:, j] = (u[:, j] + a * q[:, j - 1]) / (1.5 - a * p[:, j - 1])
    for j in range(u.shape[1] - 2, -1, -1):
        v[:, j] = p[:, j] * v[:, j + 1] + q[:, j]
    return v


def durbin(r: Array) -> Array:
    y = np.zeros_like(r)
    y[0] = alpha = -r[0]
    beta = 1.0
    for k in range(1, len(r)):
        beta *= 1 - alpha * alpha
        alpha = -(r[k] + r[k - 1 :: -1][:k] @ y[:k]) / beta
        y[:k] += alpha * y[:k][::-1]
        y[k] = alpha
    return y


def floyd_warshall(w: Array) -> Array:
    w = w.copy()
    for k in range(N):
        w = np.minimum(w, w[:, k : k + 1] + w[k : k + 1])
    return w


def nussinov(seq: Array) -> Array:
    n = len(seq)
    t = np.zeros((n, n), np.int32)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            inner = t[i + 1, j - 1] + (seq[i] + seq[j] == 3)
            t[i, j] = max([t[i, j - 1], t[i + 1, j], inner, *(t[i, k] + t[k + 1, j] for k in range(i + 1, j))])
    return np.asarray(t[0, n - 1])


def lu(a: Array) -> Array:
    a = a.copy()
    for i in range(N):
        for j in range(N):
            a[i, j] -= a[i, : min(i, j)] @ a[: min(i, j), j]
            a[i, j] /= a[j, j] if j < i else 1
    return a


def trisolv(lower: Array, b: Array) -> Array:
    return np.linalg.solve(np.tril(lower), b)


def gramschmidt(a: Array) -> tuple[Array, ...]:
    q, r = np.linalg.qr(a)
    signs = np.sign(np.diag(r))
    return q * signs, r * signs[:, None]


CASES: dict[str, tuple[Callable[..., Any], tuple[Array, ...], dict[str, Any]]] = {
    "jacobi2d": (jacobi2d, (normal(N, N),), {"steps": 3}),
    "seidel2d": (seidel2d, (normal(N, N),), {"steps": 3}),
    "fdtd2d": (fdtd2d, (normal(N, N + 1), normal(N, N + 1) + 1, normal(N, N + 1) - 1, normal(3)), {"steps": 3}),
    "adi_rows": (adi_rows, (normal(N, N + 2),), {}),
    "durbin": (durbin, (normal(N) * 0.1,), {}),
    "floyd_warshall": (floyd_warshall, (np.random.default_rng(1).integers(1, 50, (N, N)).astype(np.int32),), {}),
    "nussinov": (nussinov, (np.random.default_rng(1).integers(0, 4, 12).astype(np.int32),), {}),
    "lu": (lu, (dominant(),), {}),
    "trisolv": (trisolv, (dominant(), normal(N)), {}),
    "gramschmidt": (gramschmidt, (normal(N + 2, N),), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_recurrence_computes_what_its_loops_do(ops: tl.Operators, name: str) -> None:
    reference, args, attrs = CASES[name]
    want = reference(*args, **attrs)
    program = ops[name].program(*args, **attrs)
    meant = interpret(program, {}, dict(zip((p.name for p in program.params), args, strict=True)))
    got = ops[name](*args, **attrs)
    wants, gots = (v if isinstance(v, tuple) else (v,) for v in (want, got))
    for result, w, g in zip(program.results, wants, gots, strict=True):
        np.testing.assert_allclose(meant[result], w, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("result", ["c", "e"])
@pytest.mark.parametrize(
    "step", ["(c[k, d] + 1, e[k, d] * 2)", "if d == ids[k] then (c[k, d + 1 | clamp], e[k, d] + 1) else (c[k, d], e[k, d])"]
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_one_of_two_tensors_that_are_defined_together_is_the_result(result: str, step: str, symbolic: bool) -> None:
    text = f"""op f(ids: i32[N] in 0..8, b: i64[8]) -> ({result}: i64[N + 1, 8]) {{
        c[0, d], e[0, d] = (b[d], b[d])    for d in 0..8
        c[k + 1, d], e[k + 1, d] = {step}    for k in 0..N, d in 0..8
    }}"""
    for ids in ([], [3], [7, 0, 7, 7, 2]):
        agrees(text, np.array(ids, np.int32), np.arange(8), symbolic=symbolic)
