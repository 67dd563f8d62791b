"""Image pipelines and recurrences over sequences in plain NumPy: what the operators of the files here compute, one function of the same
name for each.

python examples/pipelines/references.py        compares all of them for small sizes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tensorlang as tl

Array = np.ndarray[Any, Any]
HERE = Path(__file__).parent
FILES = ("images", "sequences")

# ---------------------------------------------------------------- images


def harris(x: Array) -> Array:
    n, m = x.shape
    shifted: Callable[[int, int], Array] = lambda i, j: x[i : n - 2 + i, j : m - 2 + j]  # noqa: E731
    gx = (shifted(0, 2) - shifted(0, 0) + 2 * (shifted(1, 2) - shifted(1, 0)) + shifted(2, 2) - shifted(2, 0)) / 12
    gy = (shifted(2, 0) - shifted(0, 0) + 2 * (shifted(2, 1) - shifted(0, 1)) + shifted(2, 2) - shifted(0, 2)) / 12
    windows: Callable[[Array], Array] = lambda g: sum(g[p : n - 4 + p, q : m - 4 + q] for p in range(3) for q in range(3))  # noqa: E731
    a, b, c = windows(gx * gx), windows(gx * gy), windows(gy * gy)
    return a * c - b * b - 0.04 * (a + c) ** 2


def _smooth(x: Array, axis: int, mode: str) -> Array:
    sides = [(2, 2) if k == axis else (0, 0) for k in range(x.ndim)]
    around = np.pad(x, sides, mode="edge") if mode == "edge" else np.pad(x, sides)
    parts = [np.take(around, range(k, k + x.shape[axis]), axis) for k in range(5)]
    return (parts[0] + 4 * parts[1] + 6 * parts[2] + 4 * parts[3] + parts[4]) / 16


def unsharp(x: Array) -> Array:
    v = _smooth(_smooth(x, 1, "edge"), 0, "edge")
    return np.where(np.abs(x - v) < 0.001, x, 4 * x - 3 * v)


def equalise(x: Array) -> Array:
    return (np.cumsum(np.bincount(x.ravel(), minlength=256))[x] * 255 // x.size).astype(np.int32)


def bilateral_grid(x: Array, P: int, Q: int) -> Array:
    i, j = np.indices(x.shape)
    counts, sums = np.zeros((P, Q, 12)), np.zeros((P, Q, 12))
    at = (x * 10 + 0.5).astype(int)
    np.add.at(counts, (i // 8, j // 8, at), 1)
    np.add.at(sums, (i // 8, j // 8, at), x)
    for axis in (2, 0, 1):
        counts, sums = _smooth(counts, axis, "zero"), _smooth(sums, axis, "zero")
    low = (x * 10).astype(int)
    part = x * 10 - low
    read: Callable[[Array], Array] = lambda g: (1 - part) * g[i // 8, j // 8, low] + part * g[i // 8, j // 8, low + 1]  # noqa: E731
    return read(sums) / read(counts)


def _half(x: Array, axis: int) -> Array:
    around = np.pad(x, [(1, 1) if k == axis else (0, 0) for k in range(x.ndim)], mode="edge")
    parts = [np.take(around, range(k, k + x.shape[axis] - 1, 2), axis) for k in range(4)]
    return (parts[0] + 3 * parts[1] + 3 * parts[2] + parts[3]) / 8


def local_laplacian(x: Array, P: int, Q: int, levels: int = 8, alpha: float = 0.5) -> Array:
    about = np.arange(levels)[:, None, None] / (levels - 1)
    bent = x + alpha * (x - about) * np.exp(-8 * (x - about) ** 2)
    pyramids, images = [bent], [x]
    for _ in range(2):
        pyramids.append(_half(_half(pyramids[-1], 1), 2))
        images.append(_half(_half(images[-1], 0), 1))
    twice: Callable[[Array], Array] = lambda g: g.repeat(2, -2).repeat(2, -1)  # noqa: E731
    result = np.zeros((P // 2, Q // 2))
    for level in (2, 1, 0):
        wanted = images[level] * (levels - 1)
        low = np.clip(wanted.astype(int), 0, levels - 2)
        part = wanted - low
        i, j = np.indices(low.shape)
        differences = pyramids[level] - (twice(pyramids[level + 1]) if level < 2 else 0)
        own = (1 - part) * differences[low, i, j] + part * differences[low + 1, i, j]
        result = own + (twice(result) if level < 2 else 0)
    return result


# ---------------------------------------------------------------- sequences


def global_alignment(a: Array, b: Array) -> Array:
    h = -2 * np.add.outer(np.arange(len(a) + 1), np.arange(len(b) + 1))
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            h[i, j] = max(h[i - 1, j - 1] + (3 if a[i - 1] == b[j - 1] else -1), max(h[i - 1, j], h[i, j - 1]) - 2)
    return h[-1, -1]


def local_alignment(a: Array, b: Array) -> Array:
    h = np.zeros((len(a) + 1, len(b) + 1), int)
    e, g = np.full_like(h, -100000), np.full_like(h, -100000)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            e[i, j] = max(e[i, j - 1] - 1, h[i, j - 1] - 3)
            g[i, j] = max(g[i - 1, j] - 1, h[i - 1, j] - 3)
            h[i, j] = max(0, h[i - 1, j - 1] + (3 if a[i - 1] == b[j - 1] else -1), e[i, j], g[i, j])
    return h.max()


def edit_distance(a: Array, b: Array) -> Array:
    d = np.add.outer(np.arange(len(a) + 1), np.arange(len(b) + 1))
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return d[-1, -1]


def warped_distance(a: Array, b: Array) -> Array:
    d = np.full((len(a) + 1, len(b) + 1), np.inf)
    d[0, 0] = 0
    for i in range(len(a)):
        for j in range(len(b)):
            d[i + 1, j + 1] = abs(a[i] - b[j]) + min(d[i, j + 1], d[i + 1, j], d[i, j])
    return d[-1, -1]


def viterbi(first: Array, change: Array, seen: Array) -> tuple[Array, Array]:
    v, back = first + seen[0], [np.zeros(len(first), int)]
    for row in seen[1:]:
        scores = v[:, None] + change
        back.append(scores.argmax(0))
        v = row + scores.max(0)
    path = [int(v.argmax())]
    for row in reversed(back[1:]):
        path.append(int(row[path[-1]]))
    return np.array(path[::-1]), v.max()


def lstm(x: Array, wx: Array, wh: Array, b: Array) -> Array:
    h = c = np.zeros(wh.shape[1])
    sigmoid: Callable[[Array], Array] = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    rows = []
    for row in x:
        q = wx @ row + wh @ h + b
        c = sigmoid(q[1]) * c + sigmoid(q[0]) * np.tanh(q[2])
        h = sigmoid(q[3]) * np.tanh(c)
        rows.append(h)
    return np.array(rows)


# ---------------------------------------------------------------- comparing


def arguments(n: int) -> Mapping[str, dict[str, Any]]:
    """Return arguments for every operator, by its name, with extents about `n`."""
    random = np.random.default_rng(n)
    letters: Callable[[int], Array] = lambda count: random.integers(0, 4, count).astype(np.int32)  # noqa: E731
    real, words = random.standard_normal, {"a": letters(n), "b": letters(n + 3)}
    rows, columns, states, width = -(-n // 4), n // 4 + 2, n + 2, n // 2 + 1
    return {
        "harris": {"x": real((n + 5, n + 8))},
        "unsharp": {"x": real((n, n + 3))},
        "equalise": {"x": random.integers(0, 256, (n, n + 3)).astype(np.int32)},
        "bilateral_grid": {"x": random.random((8 * rows, 8 * columns)) * 0.98, "P": rows, "Q": columns},
        "local_laplacian": {"x": random.random((4 * rows, 4 * columns)), "P": rows, "Q": columns},
        "global_alignment": words,
        "local_alignment": words,
        "edit_distance": words,
        "warped_distance": {"a": real(n), "b": real(n + 3)},
        "viterbi": {"first": real(states), "change": real((states, states)), "seen": real((n, states))},
        "lstm": {"x": real((n, width)), "wx": real((4, states, width)), "wh": real((4, states, states)) / n, "b": real((4, states))},
    }


def operators(threads: int | None = None) -> Mapping[str, Callable[..., Any]]:
    """Return the compiled operators of all files by name."""
    loaded = (tl.load(HERE / f"{file}.tl", threads=threads) for file in FILES)
    return {name: getattr(ops, name) for ops in loaded for name in dir(ops)}


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
