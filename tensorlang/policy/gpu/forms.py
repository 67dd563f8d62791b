"""The forms in which a sum of products can be computed on a graphics processor, whatever computes it: what its rows, columns and terms are.

    y[batch, i, j] = f(sum(k, c) a[batch, i, k, c] * b[batch, j, k, c])                                         Kind.PRODUCT
    y[batch, i, n, h, w] = f(sum(r, s, c) a[batch, i, c, r, s] * b[batch, n, c, 2*h + r - 1, 2*w + s - 1])      Kind.WINDOWS
    y[batch, n, h, w, j] = f(sum(r, s, c) a[batch, n, 2*h + r - 1, 2*w + s - 1, c] * b[batch, j, r, s, c])      Kind.IMPLICIT_GEMM, too

The result lies in memory along the columns, which `b` has. A product goes through the last axis of either side, and its longest reduction
(`deep`); windows through the box of points that a tile looks at, which is copied once for all places of a window; an implicit GEMM counts
all axes of a side together, and all that is summed, and reads a point again for every place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.groups import recurs
from tensorlang.policy.pointwise import stored_axis
from tensorlang.schedule.forms import factors_of, is_rounded, rounded_factors_of
from tensorlang.schedule.shape import Contraction, contraction, extents, unit_stride
from tensorlang.tensor.nodes import Definition, Dynamic, Read
from tensorlang.tensor.walk import tensor_table

LEAST = 4
"""Rows, columns and terms of a contraction that is worth a tile: a register tile of a thread has four of each."""
VECTOR_BYTES = 16
"""Bytes that one asynchronous copy of a thread takes as they are."""


class Kind(Enum):
    PRODUCT = "product"
    WINDOWS = "windows"
    IMPLICIT_GEMM = "implicit GEMM"


@dataclass(frozen=True, slots=True)
class Operand:
    """One of two that are multiplied: the axes of the result that it alone has, and whether it is contiguous along the last of them."""

    axes: tuple[str, ...]
    read: Read
    unit: bool


@dataclass(frozen=True, slots=True)
class Window:
    """Windows along an axis of `extent` points: `taps` of them for each point, `reach` from first to last, `stride` to the next point's, at
    one step along the reduction that is copied in parts. `step`: how far the next such step lies, 0 where it leads elsewhere."""

    extent: int
    stride: int
    reach: int
    taps: int
    step: int = 0

    def box(self, points: int, depth: int) -> int:
        """Return how much the windows of so many neighbours cover, where so much of a sum is copied at a time."""
        return (points - 1) * self.stride + self.reach + (depth - 1) * self.step


@dataclass(frozen=True, slots=True)
class Windows:
    """How windows of an operand lie: down along `height` (None: along one axis only), and across along its last axis, `width`. `outer`: its
    other axes; `planes`: how many elements windows cover at a point of a line that slide along neither."""

    operand: Operand
    outer: tuple[str, ...]
    height: str | None
    width: str
    down: Window
    across: Window
    planes: int

    @property
    def is_parted(self) -> bool:
        """Tell whether windows themselves are copied in parts."""
        return self.down.step + self.across.step > 0

    def box(self, lines: int, points: int, depth: int) -> int:
        """Return how many elements the windows of so many points of so many lines cover, where so much of a sum is copied at a time."""
        return self.down.box(lines, depth) * self.across.box(points, depth) * self.planes * (1 if self.is_parted else depth)


@dataclass(frozen=True, slots=True)
class Form:
    """A contraction as `grid` products of `rows` by `columns` sums over `depth` x `taps` terms; with windows, along each of so many lines.

    `deep` is the longest reduction, of an implicit GEMM the channels; `others` are the rest, in order. `dtypes` are those of a, b and the
    sums. `is_direct`: operands are read at the very points of the loops, apart from stretches of a sum. `is_vectored`: both lie along the
    sum or their last axis in whole VECTOR_BYTES; `across`: which lie along that. `is_exact`: elements are multiplied as they are, or
    widened, or, where `is_rounded`, rounded to tf32: as instructions for matrices do, in another order than `is_strict` allows."""

    kind: Kind
    batch: tuple[str, ...]
    a: Operand
    b: Operand
    deep: str
    others: tuple[str, ...]
    sizes: Mapping[str, int]
    dtypes: tuple[DType, DType, DType]
    grid: int
    rows: int
    columns: int
    depth: int
    taps: int
    windows: Windows | None
    is_padded: bool
    is_direct: bool
    is_vectored: bool
    across: tuple[bool, bool]
    is_exact: bool
    is_rounded: bool
    is_strict: bool

    @property
    def element_bytes(self) -> int:
        return self.dtypes[0].size_bytes

    @property
    def lines(self) -> int:
        """Return along how many lines windows lie."""
        return self.sizes[self.windows.height] if self.windows is not None and self.windows.height is not None else 1


def product_of(d: Deriver, definition: Definition) -> Contraction | None:
    """Return the definition as a contraction with rows and columns of known extents enough for tiles, or None."""
    sizes = extents(definition)
    if any(e is None for e in sizes.values()):
        return None
    first = stored_axis(d, definition)
    for axis in ([first] if first else []) + [a for a in reversed(definition.axes) if a != first]:
        found = contraction(definition, axis, chunked=True)
        if found is not None and found.rows and found.columns:
            counts = (prod(sizes[a] or 1 for a in side) for side in (found.rows, found.columns, found.inner))
            return found if min(counts) >= LEAST else None
    return None


def forms(d: Deriver, definition: Definition) -> Iterator[Form]:
    """Yield the forms in which a tensor is a contraction that tiles of blocks compute."""
    c = product_of(d, definition) if not recurs(d.program, definition) else None
    if c is None:
        return
    sizes = {axis: e or 1 for axis, e in extents(definition).items()}
    rows, columns, stored = _operand(d, c.rows, c.x_read), _operand(d, c.columns, c.w_read), stored_axis(d, definition)
    a, b = (columns, rows) if stored in c.rows else (rows, columns)
    inside = {n for s in slots_of(c.x_read) if not isinstance(s, Name) and set(affine.names(s)) & {*c.rows} for n in affine.names(s)}
    longest = max([k for k in c.inner if k not in inside] or c.inner, key=lambda k: sizes[k])
    apart = {k for slot in slots_of(rows.read) for k in _apart(slot, rows.axes, sizes)}
    parted = max([k for k in c.inner if k not in inside or k in apart] or c.inner, key=lambda k: sizes[k])
    channels = next((k for k in c.inner if all(_is_vectored(d, o, sizes, k) for o in (a, b))), None)
    if not c.padded and not (inside and b is rows):
        yield _form(d, Kind.PRODUCT, c, a, b, longest, sizes)
    if (inside or c.padded) and stored in c.rows + c.columns and (windows := _windows(rows, c.inner, parted, sizes)) is not None:
        yield _form(d, Kind.WINDOWS, c, a, b, parted, sizes, windows)
    spread = inside or len([x for x in a.axes if sizes[x] > 1]) > 1
    if stored in c.columns and (c.padded or spread):
        yield _form(d, Kind.IMPLICIT_GEMM, c, a, b, channels or longest, sizes)


def _form(
    d: Deriver, kind: Kind, c: Contraction, a: Operand, b: Operand, deep: str, sizes: Mapping[str, int], windows: Windows | None = None
) -> Form:
    apart = () if kind is Kind.IMPLICIT_GEMM else (*a.axes[:-1], *b.axes[:-1])
    others = tuple(k for k in c.inner if k != deep)
    taps = prod(sizes[k] for k in others)
    table = tensor_table(d.program)
    rounded = is_rounded(c.reduce)
    factors = rounded_factors_of(c.reduce) if rounded else factors_of(c.reduce)
    across = (a.unit and kind is Kind.PRODUCT, b.unit and kind is Kind.PRODUCT)
    along = [o.axes[-1] if turned else deep for o, turned in zip((a, b), across, strict=True)]
    return Form(
        kind,
        c.batch,
        a,
        b,
        deep,
        others,
        sizes,
        (table[a.read.tensor].dtype, table[b.read.tensor].dtype, c.reduce.reducer.dtypes[0]),
        grid=prod(sizes[x] for x in (*c.batch, *apart) if windows is None or x != windows.height),
        rows=prod(sizes[x] for x in a.axes if x not in apart),
        columns=prod(sizes[x] for x in b.axes if x not in apart),
        depth=sizes[deep] * taps if kind is Kind.IMPLICIT_GEMM else sizes[deep],
        taps=1 if kind is Kind.IMPLICIT_GEMM else taps,
        windows=windows,
        is_padded=c.padded,
        is_direct=all(_is_direct(s, c) for s in c.x_read.index),
        is_vectored=all(_is_vectored(d, o, sizes, axis) for o, axis in zip((a, b), along, strict=True)),
        across=across,
        is_exact=(factors is not None or c.padded) and c.reduce.init is None,
        is_rounded=rounded,
        is_strict=d.program.mode == "strict",
    )


def _operand(d: Deriver, axes: tuple[str, ...], read: Read) -> Operand:
    return Operand(axes, read, unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], axes[-1]))


def _is_direct(slot: Affine | Dynamic, c: Contraction) -> bool:
    """Tell whether a subscript is a name, or goes through a stretch of a sum."""
    return isinstance(slot, Name) or (not isinstance(slot, Dynamic) and set(affine.names(slot)) <= {*c.batch, *c.inner})


def _is_vectored(d: Deriver, operand: Operand, sizes: Mapping[str, int], axis: str) -> bool:
    """Tell whether VECTOR_BYTES at a time of an operand, which lies along `axis`, are copied as they are."""
    size = tensor_table(d.program)[operand.read.tensor].dtype.size_bytes
    return _lies(d, operand.read, axis) and sizes[axis] * size % VECTOR_BYTES == 0


def _lies(d: Deriver, read: Read, axis: str) -> bool:
    """Tell whether elements along `axis` are next to each other, be it in stretches. Dimensions of one element are none."""
    storage, axes, shape = d.layouts.get(read.tensor), d.axes[read.tensor], tensor_table(d.program)[read.tensor].shape
    if storage is None or axes is None:
        slots = [s for s, n in zip(read.index, shape, strict=True) if affine.constant(n) != 1]
        return bool(slots) and unit_stride(tuple(slots), None, None, axis)
    last = next((e for e, n in reversed([*zip(storage.dims, storage.shape, strict=True)]) if affine.constant(n) != 1), None)
    if not isinstance(last, Name) or last.name not in axes:
        return False
    slot = read.index[axes.index(last.name)]
    form = None if isinstance(slot, Dynamic) else affine.affine_form(slot)
    once = sum(not isinstance(s, Dynamic) and axis in affine.names(s) for s in read.index) == 1
    return once and form is not None and form[0].get(axis) == 1


def _windows(operand: Operand, inner: tuple[str, ...], deep: str, sizes: Mapping[str, int]) -> Windows | None:
    """Return how windows of an operand lie, of whose points `deep` is copied in parts, or None where they overlap in another way than by a
    stride."""
    *before, width = operand.axes
    slots = {axis: slot for axis in operand.axes for slot in slots_of(operand.read) if axis in affine.names(slot)}
    height = next((x for x in reversed(before) if sizes[x] > 1 and not isinstance(slots.get(x), Name)), None)
    across, down = (_window(slots.get(x) if x else None, x, deep, sizes) for x in (width, height))
    if across is None or down is None:
        return None
    beside = [s for s in slots_of(operand.read) if not set(affine.names(s)) & {deep, height, width}]
    scales = [form[0] for s in beside if (form := affine.affine_form(s)) is not None]
    planes = prod(1 + sum(abs(n) * (sizes[k] - 1) for k, n in scale.items() if k in inner) for scale in scales)
    return Windows(operand, tuple(x for x in before if x != height), height, width, down, across, planes)


def _apart(slot: Affine, axes: Sequence[str], sizes: Mapping[str, int]) -> frozenset[str]:
    """Return the reductions through windows that do not overlap: parts of them are copied without copying anything twice."""
    axis = next((x for x in axes if x in affine.names(slot)), None)
    window = _window(slot, axis, "", sizes)
    return frozenset(affine.names(slot)) - {axis} if axis and window is not None and window.reach <= window.stride else frozenset()


def _window(slot: Affine | None, axis: str | None, deep: str, sizes: Mapping[str, int]) -> Window | None:
    """Return how windows lie along an axis (None: they do not), at one step along `deep`, or None where they overlap in another way than by
    a stride."""
    if axis is None or slot is None:
        return Window(1, 1, 1, 1)
    form = affine.affine_form(slot)
    if form is None or form[0].get(axis, 0) < 1:
        return None
    taps = {name: (scale, sizes[name]) for name, scale in form[0].items() if name not in (axis, deep)}
    reach = sum(abs(scale) * (extent - 1) for scale, extent in taps.values()) + 1
    return Window(sizes[axis], form[0][axis], reach, prod(extent for _, extent in taps.values()), abs(form[0].get(deep, 0)))


def slots_of(read: Read) -> Iterator[Affine]:
    """Yield the indices of an element that data do not decide."""
    return (s for s in read.index if not isinstance(s, Dynamic))
