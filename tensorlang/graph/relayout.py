"""Constants in another memory layout, and back.

    (n, c) -> [n // 16, c, n % 16] in [ceil(N/16), C, 16]      cells that no element maps to hold `fill`

The usual layouts (each axis kept, shifted, or split in two by one factor) are a pad, a reshape and a transpose of the array; any other is
scattered through its index expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from polyhedral import affine
from polyhedral.expr import Expr, Floor, Mod
from tensorlang.diagnostics import InternalError
from tensorlang.schedule.layout import Layout

Array = np.ndarray[Any, Any]


def to_layout(array: Array, layout: Layout, fill: Any = 0) -> Array:
    """Return the dense block that holds the elements of `array` (one dimension for each axis of the layout) where the layout puts them."""
    block = np.empty(layout.shape, array.dtype)
    lay_out(array, layout, block, fill)
    return block


def lay_out(array: Array, layout: Layout, block: Array, fill: Any = 0) -> None:
    """Write the elements of `array` where the layout puts them in `block`, `fill` into its other cells, and nothing anywhere else."""
    if array.ndim != len(layout.axes):
        raise InternalError("layout", f"a layout of {len(layout.axes)} axes for an array of {array.ndim}")
    moved = _transposed(array, layout, fill)
    if moved is not None:
        block[...] = moved
    else:
        block.fill(fill)
        block[_indices(layout, array.shape)] = array


def restored(block: Array, layout: Layout, shape: tuple[int, ...]) -> Array:
    """Return the array of `shape` whose elements `block` holds: the inverse of `to_layout`."""
    return block[_indices(layout, shape)]


def _indices(layout: Layout, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Return for each storage dimension the index of every element, as arrays that broadcast to `shape`."""
    grid = dict(zip(layout.axes, np.ogrid[tuple(slice(n) for n in shape)], strict=True))
    return tuple(np.broadcast_to(affine.evaluate(e, grid), shape) for e in layout.dims)


def _transposed(array: Array, layout: Layout, fill: Any) -> Array | None:
    """Return the block as a view: the array padded, its dimensions split and permuted; or None when the layout is not of that form."""
    axes = [_axis(axis, layout) for axis in layout.axes]
    padding: list[tuple[int, int]] = []
    for known, n in zip(axes, array.shape, strict=True):
        if known is None or known.shift < 0 or known.shift + n > prod(known.extents):
            return None
        padding.append((known.shift, prod(known.extents) - known.shift - n))
    split = [known for known in axes if known is not None]
    places = [place for known in split for place in known.places]
    if sorted(places) != list(range(len(layout.dims))):
        return None
    padded = np.pad(array, padding, constant_values=fill) if any(p != (0, 0) for p in padding) else array
    flat = padded.reshape([n for known in split for n in known.extents])
    return flat.transpose(np.argsort(places))


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis moved by `shift` and split row-major into storage dimensions `places` of `extents`."""

    shift: int
    places: tuple[int, ...]
    extents: tuple[int, ...]


def _axis(axis: str, layout: Layout) -> _Axis | None:
    mine = [(k, _split(e, axis)) for k, e in enumerate(layout.dims) if axis in affine.names(e)]
    match mine:
        case [(k, ("whole", _, shift))]:
            return _Axis(shift, (k,), (layout.shape[k],))
        case [(k, ("outer", factor, shift)), (j, ("inner", other, moved))] | [(j, ("inner", other, moved)), (k, ("outer", factor, shift))]:
            same = factor == other == layout.shape[j] and shift == moved
            return _Axis(shift, (k, j), (layout.shape[k], factor)) if same else None
        case _:
            return None


def _split(e: Expr, axis: str) -> tuple[str, int, int] | None:
    """Return which part of the shifted axis an index is: all of it, its quotient, or its remainder; with divisor and shift."""
    match e:
        case Floor(value=value, divisor=divisor):
            part = _split(value, axis)
            return ("outer", divisor, part[2]) if part is not None and part[0] == "whole" else None
        case Mod(value=value, divisor=divisor):
            part = _split(value, axis)
            return ("inner", divisor, part[2]) if part is not None and part[0] == "whole" else None
        case _:
            form = affine.affine_form(e)
            return ("whole", 1, form[1]) if form is not None and form[0] == {axis: 1} else None
