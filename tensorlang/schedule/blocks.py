"""Arrays in the blocks that layouts describe, and back: for running plans on arrays whose caller stores them in a layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyhedral import affine
from tensorlang.schedule.plan import Storage

Array = np.ndarray[Any, Any]


def to_block(storage: Storage, axes: Sequence[str], array: Array, sizes: Mapping[str, int], fill: Any) -> Array:
    """Return the block that holds `array`, over `axes`, as `storage` says; cells without an element hold `fill`."""
    shape = tuple(int(affine.evaluate(s, sizes)) for s in storage.shape)
    block = np.full(shape, fill, array.dtype)
    block[_cells(storage, axes, array.shape, sizes)] = array
    return block


def from_block(storage: Storage, axes: Sequence[str], block: Array, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Array:
    """Return the array of `shape` that `block` holds as `storage` says."""
    return np.asarray(block[_cells(storage, axes, shape, sizes)])


def _cells(storage: Storage, axes: Sequence[str], shape: tuple[int, ...], sizes: Mapping[str, int]) -> tuple[Array, ...]:
    """Return, for each dimension of the block, where along it each element lies."""
    grid = dict(zip(axes, np.indices(shape, dtype=np.int64), strict=True))
    return tuple(np.broadcast_to(affine.evaluate(d, {**sizes, **grid}), shape) for d in storage.dims)
