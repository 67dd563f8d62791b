"""What products look like to a schedule for a graphics processor: which axes stand for rows and columns of a tile, and how large it is.

    y[batch, i, j] = f(sum(k, c) a[batch, i, k, c] * b[batch, j, k, c])                                       `product`
    y[batch, i, n, h, w] = f(sum(r, s, c) a[batch, i, c, r, s] * b[batch, n, c, 2*h + r - 1, 2*w + s - 1])    `windows`

j, or w, is the axis in which the result lies in memory; c is the longest reduction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.schedule.clusters import Cluster, recurs
from tensorlang.schedule.deriver import Deriver
from tensorlang.schedule.machine import Device
from tensorlang.schedule.pointwise import stored_axis
from tensorlang.schedule.products_device import product_of
from tensorlang.schedule.shape import Contraction, extents, unit_stride
from tensorlang.schedule.tiles_device import Box, Size, Tiles, Window, boxes_for, tiles_for
from tensorlang.tensor import affine
from tensorlang.tensor.nodes import Dynamic, Read


@dataclass(frozen=True, slots=True)
class Operand:
    """One of two that are multiplied: the axes of the result that it alone has, and whether it is contiguous along the last of them."""

    axes: tuple[str, ...]
    read: Read
    unit: bool


@dataclass(frozen=True, slots=True)
class Product:
    """`a` has the rows, `b` the columns; `long`: there is more than one stretch of the sum."""

    batch: tuple[str, ...]
    a: Operand
    b: Operand
    deep: str
    others: tuple[str, ...]
    tiles: Tiles
    long: bool


@dataclass(frozen=True, slots=True)
class Windows:
    """A product whose columns are points of one or two axes around which windows of `b` lie. `height` is () where there is but one."""

    batch: tuple[str, ...]
    a: Operand
    b: Operand
    outer: tuple[str, ...]
    height: tuple[str, ...]
    width: str
    deep: str
    others: tuple[str, ...]
    tiles: Box
    long: bool


def product(d: Deriver, cluster: Cluster) -> Product | None:
    """Return a tensor by itself as a product of two that are read at the very points of its loops, or None."""
    found = _operands(d, cluster)
    if found is None:
        return None
    c, a, b, deep, others, sizes = found
    if c.padded or not all(_is_plain(s) for s in b.read.index):
        return None
    grid = prod(sizes[x] for x in (*c.batch, *a.axes[:-1], *b.axes[:-1]))
    size = Size(grid, sizes[a.axes[-1]], sizes[b.axes[-1]], sizes[deep], (not a.unit) + (not b.unit))
    tiles = tiles_for(size, _device(d))
    return Product(c.batch, a, b, deep, others, tiles, sizes[deep] > tiles.depth)


def windows(d: Deriver, cluster: Cluster) -> Windows | None:
    """Return a tensor by itself as a product with windows of one operand, or None."""
    found = _operands(d, cluster)
    if found is None or all(_is_plain(s) for s in found[2].read.index):
        return None
    c, a, b, deep, others, sizes = found
    slots = {axis: slot for axis in b.axes for slot in _slots(b.read) if axis in affine.names(slot)}
    height = next((x for x in reversed(b.axes[:-1]) if sizes[x] > 1 and not isinstance(slots.get(x), Name)), None)
    across, down = (_window(slots.get(x) if x else None, x, sizes) for x in (b.axes[-1], height))
    grid = prod(sizes[x] for x in (*c.batch, *a.axes[:-1], *(x for x in b.axes[:-1] if x != height)))
    if across is None or down is None:
        return None
    tiles = boxes_for(grid, sizes[a.axes[-1]], sizes[deep], down, across, prod(sizes[k] for k in others), _device(d))
    outer = tuple(x for x in b.axes[:-1] if x != height)
    return Windows(c.batch, a, b, outer, (height,) if height else (), b.axes[-1], deep, others, tiles, sizes[deep] > tiles.depth)


def _operands(d: Deriver, cluster: Cluster) -> tuple[Contraction, Operand, Operand, str, tuple[str, ...], dict[str, int]] | None:
    """Return the contraction that a tensor by itself is, its operands, its longest reduction and the others, and all extents."""
    definition = cluster.head
    c = product_of(d, definition) if len(cluster.members) == 1 and not recurs(d.program, definition) else None
    if c is None:
        return None
    sizes = {axis: e or 1 for axis, e in extents(definition).items()}
    rows, columns = _operand(d, c.rows, c.x_read), _operand(d, c.columns, c.w_read)
    a, b = (columns, rows) if stored_axis(d, definition) in c.rows else (rows, columns)
    across = {name for slot in _slots(b.read) if not isinstance(slot, Name) for name in affine.names(slot)}
    deep = max([k for k in c.inner if k not in across] or c.inner, key=lambda k: sizes[k])
    return c, a, b, deep, tuple(k for k in c.inner if k != deep), sizes


def _operand(d: Deriver, axes: tuple[str, ...], read: Read) -> Operand:
    return Operand(axes, read, unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], axes[-1]))


def _window(slot: Affine | None, axis: str | None, sizes: dict[str, int]) -> Window | None:
    """Return how windows lie along an axis (None: they do not), or None where they overlap in another way than by a stride."""
    if axis is None or slot is None:
        return Window(1, 1, 1, 1)
    form = affine.affine_form(slot)
    if form is None or form[0].get(axis, 0) < 1:
        return None
    taps = {name: (scale, sizes[name]) for name, scale in form[0].items() if name != axis}
    reach = sum(abs(scale) * (extent - 1) for scale, extent in taps.values()) + 1
    return Window(sizes[axis], form[0][axis], reach, prod(extent for _, extent in taps.values()))


def _slots(read: Read) -> Iterator[Affine]:
    return (s for s in read.index if not isinstance(s, Dynamic))


def _is_plain(slot: Affine | Dynamic) -> bool:
    return isinstance(slot, Name) or (not isinstance(slot, Dynamic) and affine.constant(slot) is not None)


def _device(d: Deriver) -> Device:
    assert isinstance(d.machine, Device)
    return d.machine
