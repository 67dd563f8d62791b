"""What products look like to a schedule for a graphics processor: which axes stand for rows and columns of a tile, and how large it is.

    y[batch, i, j] = f(sum(k, c) a[batch, i, k, c] * b[batch, j, k, c])                                       `product`
    y[batch, i, n, h, w] = f(sum(r, s, c) a[batch, i, c, r, s] * b[batch, n, c, 2*h + r - 1, 2*w + s - 1])    `windows`

j, or w, is the axis in which the result lies in memory; c is the longest reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.gpu.products import product_of
from tensorlang.policy.gpu.tiles import Box, Size, Tiles, Window, boxes_for, parts_for, tiles_for
from tensorlang.policy.groups import recurs
from tensorlang.policy.machine import Device
from tensorlang.policy.pointwise import stored_axis
from tensorlang.schedule.shape import Contraction, extents, unit_stride
from tensorlang.tensor.nodes import Definition, Dynamic, Read


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


LEAST, LEAST_WINDOWS = 64, 8
"""Terms of the longest reduction that each part of a sum keeps, without windows and with them."""


def product(d: Deriver, definition: Definition) -> Product | None:
    """Return a tensor by itself as a product of two that are read at the very points of its loops, or None."""
    found = _operands(d, definition)
    if found is None or found.across or found.contraction.padded:
        return None
    tiles, _ = tiles_for(found.size(1), _device(d))
    long = found.sizes[found.deep] > tiles.depth
    return Product(found.contraction.batch, found.a, found.b, found.deep, found.others, tiles, long)


def windows(d: Deriver, definition: Definition) -> Windows | None:
    """Return a tensor by itself as a product with windows of one operand, or None."""
    found = _operands(d, definition)
    lying = found.windows() if found is not None and (found.across or found.contraction.padded) else None
    best = found.boxes(1, _device(d)) if found is not None and lying is not None else None
    if found is None or lying is None or best is None:
        return None
    tiles, _ = best
    outer = tuple(x for x in found.b.axes[:-1] if x != lying.axis)
    height = (lying.axis,) if lying.axis else ()
    long = found.sizes[found.deep] > tiles.depth
    return Windows(found.contraction.batch, found.a, found.b, outer, height, found.b.axes[-1], found.deep, found.others, tiles, long)


def parts_of(d: Deriver, definition: Definition) -> tuple[str, int] | None:
    """Return the longest reduction of a product and how much of it one block sums up, where blocks are too few for a large device, or None
    where they are not."""
    found = _operands(d, definition)
    if found is None or ((found.across or found.contraction.padded) and found.windows() is None):
        return None
    results = prod(found.sizes[x] for x in definition.axes)
    depth, device = found.sizes[found.deep], _device(d)
    if found.across or found.contraction.padded:
        parts = parts_for(depth, LEAST_WINDOWS, results, lambda n: best[1] if (best := found.boxes(n, device)) else inf)
    else:
        parts = parts_for(depth, LEAST, results, lambda n: tiles_for(found.size(n), device)[1])
    return (found.deep, depth // parts) if parts > 1 else None


@dataclass(frozen=True, slots=True)
class Lying:
    """How windows lie: down along `axis` (None: along one axis only), and across along the last axis. `is_plain`: elements themselves."""

    axis: str | None
    down: Window
    across: Window
    is_plain: bool


@dataclass(frozen=True, slots=True)
class _Operands:
    """A contraction with its operands, its longest reduction and the others, and all extents; `across` are names in windows of b."""

    contraction: Contraction
    a: Operand
    b: Operand
    deep: str
    others: tuple[str, ...]
    sizes: Mapping[str, int]
    across: frozenset[str]

    def size(self, parts: int) -> Size:
        """Return the product as so many with shorter sums."""
        grid = prod(self.sizes[x] for x in (*self.contraction.batch, *self.a.axes[:-1], *self.b.axes[:-1]))
        rows, columns = self.sizes[self.a.axes[-1]], self.sizes[self.b.axes[-1]]
        return Size(grid * parts, rows, columns, self.sizes[self.deep] // parts, (not self.a.unit) + (not self.b.unit))

    def windows(self) -> Lying | None:
        return lying_of(self.b, self.sizes)

    def boxes(self, parts: int, machine: Device) -> tuple[Box, float] | None:
        """Return the box of least cost, and that, for so many products with shorter sums; None where windows are too large for any."""
        lying = self.windows()
        assert lying is not None
        grid = prod(self.sizes[x] for x in (*self.contraction.batch, *self.a.axes[:-1], *(x for x in self.b.axes[:-1] if x != lying.axis)))
        taps = prod(self.sizes[k] for k in self.others)
        depth = self.sizes[self.deep] // parts
        return boxes_for(grid * parts, self.sizes[self.a.axes[-1]], depth, lying.down, lying.across, taps, machine)


def _operands(d: Deriver, definition: Definition) -> _Operands | None:
    c = product_of(d, definition) if not recurs(d.program, definition) else None
    if c is None:
        return None
    sizes = {axis: e or 1 for axis, e in extents(definition).items()}
    a, b = operands_of(d, definition, c)
    lying = [s for s in slots_of(b.read) if not isinstance(s, Name) and set(affine.names(s)) & set(b.axes)]
    across = frozenset(name for slot in lying for name in affine.names(slot))
    deep = max([k for k in c.inner if k not in across] or c.inner, key=lambda k: sizes[k])
    return _Operands(c, a, b, deep, tuple(k for k in c.inner if k != deep), sizes, across)


def operands_of(d: Deriver, definition: Definition, c: Contraction) -> tuple[Operand, Operand]:
    """Return which operand has the rows and which the columns: the result lies in memory along the columns."""
    rows, columns = _operand(d, c.rows, c.x_read), _operand(d, c.columns, c.w_read)
    return (columns, rows) if stored_axis(d, definition) in c.rows else (rows, columns)


def _operand(d: Deriver, axes: tuple[str, ...], read: Read) -> Operand:
    return Operand(axes, read, unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], axes[-1]))


def lying_of(operand: Operand, sizes: Mapping[str, int]) -> Lying | None:
    """Return how windows of an operand lie, or None where they overlap in another way than by a stride."""
    width = operand.axes[-1]
    slots = {axis: slot for axis in operand.axes for slot in slots_of(operand.read) if axis in affine.names(slot)}
    height = next((x for x in reversed(operand.axes[:-1]) if sizes[x] > 1 and not isinstance(slots.get(x), Name)), None)
    across, down = (_window_of(slots.get(x) if x else None, x, sizes) for x in (width, height))
    if across is None or down is None:
        return None
    return Lying(height, down, across, height is None and slots.get(width) == Name(width))


def _window_of(slot: Affine | None, axis: str | None, sizes: Mapping[str, int]) -> Window | None:
    """Return how windows lie along an axis (None: they do not), or None where they overlap in another way than by a stride."""
    if axis is None or slot is None:
        return Window(1, 1, 1, 1)
    form = affine.affine_form(slot)
    if form is None or form[0].get(axis, 0) < 1:
        return None
    taps = {name: (scale, sizes[name]) for name, scale in form[0].items() if name != axis}
    reach = sum(abs(scale) * (extent - 1) for scale, extent in taps.values()) + 1
    return Window(sizes[axis], form[0][axis], reach, prod(extent for _, extent in taps.values()))


def slots_of(read: Read) -> Iterator[Affine]:
    return (s for s in read.index if not isinstance(s, Dynamic))


def _device(d: Deriver) -> Device:
    assert isinstance(d.machine, Device)
    return d.machine
