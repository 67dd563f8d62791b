"""Numbers to be sorted, and the order that NumPy's stable sort gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    """Return few distinct numbers and the ends of their type, among them NaN, infinities and zeros of both signs."""
    kind = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if kind.kind in "iu":
        ends = [np.iinfo(kind).min, np.iinfo(kind).max]
        small = rng.integers(-4 if kind.kind == "i" else 0, 5, shape).astype(kind)
    else:
        ends = [np.nan, np.inf, -np.inf, -0.0]
        small = (rng.integers(-4, 5, shape) / 2).astype(kind)
    strange = np.array(ends, kind)[rng.integers(0, len(ends), shape)]
    return np.where(rng.random(shape) < 0.2, strange, small).astype(kind)


def ranks(x: Array) -> Array:
    """Return unsigned integers in the order of numbers: equal where these are, greatest for NaN."""
    known = np.sort(x[x == x].astype(np.float64) if x.dtype.kind not in "iu" else x.reshape(-1))
    wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    return np.where(x != x, x.size, np.searchsorted(known, wide))


def expected(x: Array, axis: int, *, descending: bool) -> Array:
    key = ranks(x)
    return np.argsort(-key if descending else key, axis=axis, kind="stable")
