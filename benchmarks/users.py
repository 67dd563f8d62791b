"""What benchmarks/users.tl is called with, and what a user would write instead: NumPy, torch, a plain loop for numba."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Call: TypeAlias = Callable[..., object]
TORCH = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


@dataclass(frozen=True, slots=True)
class User:
    """An operator of users.tl: shapes of its arguments (a string begins with the type of what is not f32, a number is its range)."""

    name: str
    shapes: tuple[Any, ...]
    numpy: Call | None = None
    torch: Call | None = None
    loop: Call | None = None
    """A function of the arguments and of an array `y` that it fills, which numba can compile."""

    def arrays(self, seed: int) -> tuple[Array, ...]:
        """Return random arguments, the same for the same seed."""
        rng = np.random.default_rng(seed)
        return tuple(_array(s, rng) for s in self.shapes)

    def calls(self) -> dict[str, Call]:
        """Return what libraries of arrays call instead; those that are not installed are left out."""
        return {name: call for name, call in (("numpy", self.numpy), ("torch", self.torch if TORCH else None)) if call is not None}


def _array(shape: Any, rng: np.random.Generator) -> Array:
    if isinstance(shape, Mapping):
        found: Array = rng.integers(shape.get("low", 0), shape["high"], shape["shape"]).astype(shape.get("type", "i8"))
        return found
    made: Array = rng.standard_normal(shape).astype(np.float32)
    return made


def whole(high: int, *shape: int, low: int = 0, type: str = "i8") -> dict[str, Any]:
    """Return the description of an argument of whole numbers below `high`."""
    return {"high": high, "shape": shape, "low": low, "type": type}


N = 1 << 18


def users() -> tuple[User, ...]:
    """Return every operator of users.tl."""
    t: Any = TORCH
    x, f = np, np.float32
    return (
        User("saxpy", ((), (N,), (N,)), lambda a, u, v: a * u + v, lambda a, u, v: t.add(a * u, v)),
        User(
            "polynomial",
            ((N,),),
            lambda u: (((f(0.1) * u + f(0.2)) * u - f(0.3)) * u + f(0.4)) * u - f(0.5),
            lambda u: (((0.1 * u + 0.2) * u - 0.3) * u + 0.4) * u - 0.5,
            _polynomial,
        ),
        User("normal_density", ((N,),), lambda u: x.exp(f(-0.5) * u * u) * f(0.39894), lambda u: t.exp(-0.5 * u * u) * 0.39894),
        User(
            "haversine",
            ((N,), (N,), (N,), (N,)),
            lambda a, b, c, d: f(2) * x.sqrt(x.sin((c - a) * f(0.5)) ** 2 + x.cos(a) * x.cos(c) * x.sin((d - b) * f(0.5)) ** 2),
            lambda a, b, c, d: 2 * t.sqrt(t.sin((c - a) * 0.5) ** 2 + t.cos(a) * t.cos(c) * t.sin((d - b) * 0.5) ** 2),
        ),
        User(
            "complex_product",
            ((256, 256),) * 4,
            lambda a, b, c, d: (a @ c - b @ d, a @ d + b @ c),
            lambda a, b, c, d: (a @ c - b @ d, a @ d + b @ c),
        ),
        User(
            "gated",
            ((128, 512), (512, 1024), (512, 1024)),
            lambda a, u, v: (a @ u) / (1 + x.exp(-(a @ u))) * (a @ v),
            lambda a, u, v: t.nn.functional.silu(a @ u) * (a @ v),
        ),
        User("min_plus", ((200, 200), (200, 200)), lambda a, b: (a[:, :, None] + b[None]).min(1), None, _min_plus),
        User("covariance", ((1000, 200),), lambda u: (u - u.mean(0)).T @ (u - u.mean(0)) / f(len(u)), lambda u: t.cov(u.T, correction=0)),
        User("distances", ((500, 32), (600, 32)), lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1), lambda a, b: t.cdist(a, b) ** 2),
        User("manhattan", ((500, 32), (600, 32)), None, lambda a, b: t.cdist(a, b, p=1), _manhattan),
        User("double_product", (whole(9, 300, 300, type="f8"), whole(9, 300, 300, type="f8")), lambda a, b: a @ b, lambda a, b: a @ b),
        User("whole_product", (whole(9, 256, 256, type="i1"), whole(9, 256, 256, type="i1")), None, lambda a, b: t._int_mm(a, b)),
        User("quadratic", ((64, 200), (200, 200)), lambda u, a: ((u @ a) * u).sum(1), lambda u, a: ((u @ a) * u).sum(1)),
        User("trace_of_product", ((700, 500), (500, 700)), lambda a, b: x.sum(a * b.T), lambda a, b: (a * b.T).sum()),
        User("khatri_rao", ((100, 48), (120, 48)), lambda a, b: a[:, None] * b[None], lambda a, b: a[:, None] * b[None]),
        User(
            "factored",
            ((60, 70, 80), (70, 16), (80, 16)),
            lambda u, b, c: x.einsum("ijr,jr->ir", u @ c, b),
            lambda u, b, c: t.einsum("ijr,jr->ir", u @ c, b),
        ),
        User("column_sums", ((2048, 512),), lambda u: u.sum(0), lambda u: u.sum(0)),
        User("row_norms", ((2048, 500),), lambda u: x.sqrt((u * u).sum(1)), lambda u: t.linalg.vector_norm(u, dim=1)),
        User(
            "standard",
            ((2000, 300),),
            lambda u: (u - u.mean(0)) / x.sqrt(u.var(0) + f(1e-5)),
            lambda u: (u - u.mean(0)) / t.sqrt(u.var(0, correction=0) + 1e-5),
        ),
        User("log_sum_exp", ((500, 1000),), None, lambda u: t.logsumexp(u, 1)),
        User("cosine", ((2000, 256), (2000, 256)), None, lambda a, b: t.cosine_similarity(a, b)),
        User("prefix", ((N,),), lambda u: x.concatenate((x.zeros(1, f), x.cumsum(u))), None, _prefix),
        User("smoothed", ((64, 4000),), None, None, _smoothed),
        User("running_max", ((64, 4000),), lambda u: x.maximum.accumulate(u, 1), lambda u: t.cummax(u, 1)[0]),
        User(
            "filter", ((65536,), (64,)), lambda u, w: x.correlate(u, w, "valid"), lambda u, w: t.conv1d(u[None, None], w[None, None])[0, 0]
        ),
        User("blur", ((720, 1280),), None, None, _blur),
        User("sobel", ((720, 1280),), None, None, _sobel),
        User("laplace", ((720, 1280),), None, lambda u: t.conv2d(u[None, None], _STAR)[0, 0], _laplace),
        User("heat", ((96, 96, 96),), None, None, _heat),
        User("dilated", ((720, 1280),), None, lambda u: t.max_pool2d(u[None], 3, 1, 1)[0]),
        User("luminance", ((480, 640, 3),), lambda u: u @ _LUMINANCE, lambda u: u @ t.from_numpy(_LUMINANCE)),
        User(
            "planes",
            (whole(256, 224, 224, 3, type="u1"),),
            lambda u: u.transpose(2, 0, 1) * f(1 / 255) - f(0.5),
            lambda u: u.permute(2, 0, 1) * (1 / 255) - 0.5,
            _planes,
        ),
        User(
            "halved",
            ((720, 1280),),
            lambda u: (u[::2, ::2] + u[::2, 1::2] + u[1::2, ::2] + u[1::2, 1::2]) * f(0.25),
            lambda u: t.nn.functional.avg_pool2d(u[None], 2)[0],
        ),
        User("turned", ((720, 1280),), lambda u: x.ascontiguousarray(u[::-1].T), lambda u: t.rot90(u, -1).contiguous()),
        User(
            "rotary",
            ((128, 12, 2, 32), (128, 32), (128, 32)),
            None,
            lambda u, c, s: t.stack(
                (u[:, :, 0] * c[:, None] - u[:, :, 1] * s[:, None], u[:, :, 1] * c[:, None] + u[:, :, 0] * s[:, None]), 2
            ),
        ),
        User(
            "butterflies",
            ((64, 2, 2048),),
            lambda u: x.stack((u[:, 0] + u[:, 1], u[:, 0] - u[:, 1]), 1),
            lambda u: t.stack((u[:, 0] + u[:, 1], u[:, 0] - u[:, 1]), 1),
        ),
        User(
            "embedding_sum",
            ((5000, 64), whole(5000, 256, 20)),
            lambda w, i: w[i].sum(1),
            lambda w, i: t.nn.functional.embedding_bag(i, w, mode="sum"),
        ),
        User(
            "sparse_rows", ((1000, 12), whole(1000, 1000, 12), (1000, 64)), None, lambda v, i, u: (v[..., None] * u[i]).sum(1), _sparse_rows
        ),
        User(
            "segment_sums",
            ((5000, 64), whole(1000, 5000), (1000,)),
            None,
            lambda u, i, like: t.zeros(1000, 64).index_add_(0, i, u),
            _segment_sums,
        ),
        User(
            "counts",
            (whole(256, N), (256,)),
            lambda i, like: x.bincount(i, minlength=256),
            lambda i, like: t.bincount(i, minlength=256),
            _counts,
        ),
        User("cross_entropy", ((128, 1000), whole(1000, 128)), None, lambda u, i: t.nn.functional.cross_entropy(u, i, reduction="none")),
        User("bilinear", ((32, 64), (48, 64, 80), (32, 80)), None, lambda u, w, v: t.nn.functional.bilinear(u, v, w)),
        User("banded", ((256, 33), (288, 256)), None, None, _banded),
        User("lower_product", ((300, 300), (300, 200)), lambda a, b: x.tril(a) @ b, lambda a, b: t.tril(a) @ b),
    )


_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
_STAR = TORCH.tensor([[[[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]]]]) if TORCH else None


def loop_of(user: User) -> Call | None:
    """Return the plain loop compiled by numba, as a function of the arguments and the result; None without a loop or numba."""
    if user.loop is None or importlib.util.find_spec("numba") is None:
        return None
    found: Call = importlib.import_module("numba").njit(user.loop)
    return found


# ---------------------------------------------------------------- plain loops


def _polynomial(x, y):
    for i in range(x.size):
        y[i] = (((np.float32(0.1) * x[i] + np.float32(0.2)) * x[i] - np.float32(0.3)) * x[i] + np.float32(0.4)) * x[i] - np.float32(0.5)


def _min_plus(a, b, y):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            y[i, j] = np.inf
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                y[i, j] = min(y[i, j], a[i, k] + b[k, j])


def _manhattan(a, b, y):
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            s = np.float32(0)
            for d in range(a.shape[1]):
                s += abs(a[i, d] - b[j, d])
            y[i, j] = s


def _prefix(x, y):
    y[0] = 0
    for i in range(x.size):
        y[i + 1] = y[i] + x[i]


def _smoothed(x, y):
    for i in range(x.shape[0]):
        y[i, 0] = x[i, 0]
        for k in range(1, x.shape[1]):
            y[i, k] = np.float32(0.9) * y[i, k - 1] + np.float32(0.1) * x[i, k]


def _blur(x, y):
    h, w = x.shape
    r = np.empty_like(x)
    for i in range(h):
        for j in range(w):
            r[i, j] = (x[i, max(j - 1, 0)] + 2 * x[i, j] + x[i, min(j + 1, w - 1)]) * np.float32(0.25)
    for i in range(h):
        for j in range(w):
            y[i, j] = (r[max(i - 1, 0), j] + 2 * r[i, j] + r[min(i + 1, h - 1), j]) * np.float32(0.25)


def _sobel(x, y):
    h, w = x.shape
    for i in range(1, h - 1):
        for j in range(1, w - 1):
            u = x[i - 1, j + 1] - x[i - 1, j - 1] + 2 * (x[i, j + 1] - x[i, j - 1]) + x[i + 1, j + 1] - x[i + 1, j - 1]
            v = x[i + 1, j - 1] - x[i - 1, j - 1] + 2 * (x[i + 1, j] - x[i - 1, j]) + x[i + 1, j + 1] - x[i - 1, j + 1]
            y[i - 1, j - 1] = np.sqrt(u * u + v * v)


def _laplace(x, y):
    h, w = x.shape
    for i in range(1, h - 1):
        for j in range(1, w - 1):
            y[i - 1, j - 1] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] - 4 * x[i, j]


def _heat(x, y):
    n = x.shape[0] - 1
    for i in range(1, n):
        for j in range(1, n):
            for k in range(1, n):
                y[i - 1, j - 1, k - 1] = x[i, j, k] + np.float32(0.1) * (
                    x[i - 1, j, k] + x[i + 1, j, k] + x[i, j - 1, k] + x[i, j + 1, k] + x[i, j, k - 1] + x[i, j, k + 1] - 6 * x[i, j, k]
                )


def _planes(x, y):
    for c in range(3):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[c, i, j] = np.float32(x[i, j, c]) * np.float32(1 / 255) - np.float32(0.5)


def _sparse_rows(v, at, x, y):
    for i in range(v.shape[0]):
        for d in range(x.shape[1]):
            y[i, d] = 0
        for k in range(v.shape[1]):
            for d in range(x.shape[1]):
                y[i, d] += v[i, k] * x[at[i, k], d]


def _segment_sums(x, ids, like, y):
    y[:] = 0
    for k in range(x.shape[0]):
        for d in range(x.shape[1]):
            y[ids[k], d] += x[k, d]


def _counts(ids, like, y):
    y[:] = 0
    for k in range(ids.size):
        y[ids[k]] += 1


def _banded(a, x, y):
    for i in range(a.shape[0]):
        for d in range(x.shape[1]):
            y[i, d] = 0
        for k in range(a.shape[1]):
            for d in range(x.shape[1]):
                y[i, d] += a[i, k] * x[i + k, d]
