"""Arrays compared bit for bit: -0 is not 0, and NaN is NaN whichever bits it has."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def same_bits(have: Array, want: Array) -> Array:
    """Return where two arrays of one shape and type agree."""
    have, want = np.asarray(have), np.asarray(want)
    assert have.dtype == want.dtype and have.shape == want.shape, (have.dtype, have.shape, want.dtype, want.shape)
    both = (have != have) & (want != want)
    if have.dtype.name in ("int4", "uint4"):
        return np.asarray(have == want)
    unsigned = f"u{have.dtype.itemsize}"
    return np.asarray((np.ascontiguousarray(have).view(unsigned) == np.ascontiguousarray(want).view(unsigned)).reshape(have.shape) | both)


def difference(have: Array, want: Array) -> str:
    """Return the first element that differs, in words; "" where none does."""
    wrong = np.argwhere(~same_bits(have, want))
    if not len(wrong):
        return ""
    at = tuple(int(k) for k in wrong[0])
    return f"[{', '.join(map(str, at))}] is {have[at]!r}, not {want[at]!r} ({len(wrong)} differ)"


def assert_same_bits(have: Array, want: Array, what: str = "") -> None:
    """Check that two arrays agree."""
    text = difference(have, want)
    assert not text, what + text
