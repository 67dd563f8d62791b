"""Whether results under another schedule are those of a program's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

TOLERANCES = {2: 1e-2, 4: 1e-5, 8: 1e-13}
"""Differences of results, relative to the largest, that another order of sums may make, by the bytes of a float."""


def agree(found: Sequence[Array], expected: Sequence[Array], *, exactly: bool, kernels: int = 1) -> bool:
    """Tell whether results are equal, or, unless they have to be, as near as another order of sums leaves them in each of so many kernels
    one after the other."""
    return all(_agrees(a, b, exactly, kernels) for a, b in zip(found, expected, strict=True))


def _agrees(found: Array, expected: Array, exactly: bool, kernels: int) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if found.tobytes() == expected.tobytes():
        return True
    if exactly or not np.issubdtype(expected.dtype, np.floating):
        return False
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return False
    largest = float(np.abs(b[finite]).max(initial=0.0))
    allowed = TOLERANCES.get(expected.dtype.itemsize, 0.0) * kernels * largest
    return bool((np.abs(a[finite] - b[finite]) <= allowed).all())
