"""Element types, and values of each to try."""

from __future__ import annotations

from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType
from tensorlang.tensor.arith import integer_range

Array = np.ndarray[Any, Any]
TYPES = list(DTYPES.values())
NUMBERS = [d for d in TYPES if d.name != "bool"]
CHAINS = {
    "f32": "f32(f16(f32(x[i])))",
    "i32": "i32(i4(i64(x[i])))",
    "u64": "u64(u4(u64(x[i])))",
    "f64": "f64(f8e4m3(f64(x[i])))",
    "i8": "i8(f8e5m2(f32(x[i])))",
    "bf16": "bf16(i16(x[i]))",
}
"""Type of the result → casts of casts of `x[i]`."""


def samples(dtype: DType, count: int = 67) -> Array:
    """Return values of every magnitude, the extremes among them."""
    rng = np.random.default_rng(dtype.bits)
    if dtype.name == "bool":
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.is_integer:
        low, high = integer_range(dtype)
        edges = [low, high, 0, 1, max(low, -1), high // 2 + 1]
        some = [int(low + (high - low) * float(f)) for f in rng.random(count - len(edges))]
        return (
            np.array([*edges, *(min(max(v, low), high) for v in some)], object)
            .astype(np.int64 if dtype.kind == "int" else np.uint64)
            .astype(dtype.numpy)
        )
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        448.0,
        465.0,
        -480.0,
        61440.0,
        65519.0,
        65520.0,
        3.3e38,
        1e-9,
        2.0**63,
        -(2.0**31) - 3,
    ]
    with np.errstate(over="ignore"):
        return np.concatenate([edges, rng.standard_normal(count - len(edges)) * 10.0 ** rng.integers(-6, 12, count - len(edges))]).astype(
            dtype.numpy
        )
