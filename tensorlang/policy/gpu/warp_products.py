"""Products that warps of a graphics processor compute by instructions for matrices: whether a tensor is one, and how large the tiles are.

    y[batch, i, j] = f(sum(k, c) a[batch, i, k, c] * b[batch, j, k, c])

j is the axis in which the result lies in memory, c the longest reduction. A block has `warps` x `times` matrices of an instruction along
i and j; while it multiplies a stretch of c, the next ones are on their way into shared memory. Edges are filled up with zeros; a side that
is shorter than one tile has smaller tiles. The choice is the one of least cost in a model: nothing in it was measured on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from codegen.gpu.matrix import INSTRUCTIONS, Instruction
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.gpu.product_shapes import Operand, operands_of
from tensorlang.policy.gpu.products import product_of
from tensorlang.policy.groups import Cluster, recurs
from tensorlang.policy.machine import Device
from tensorlang.schedule.forms import factors_of, is_rounded, rounded_factors_of
from tensorlang.schedule.shape import Contraction, extents, unit_stride
from tensorlang.tensor.nodes import Definition, Dynamic, Read
from tensorlang.tensor.walk import tensor_table

ROW_BYTES = (64, 32)
"""Of what is copied of an operand's row at a time, the wish first."""
STAGES = 4
SHARED = 72 * 1024
"""Bytes of the copies of a block: every generation has room for one, most for two."""
MULTIPLIED = 1024
"""Products of 16-bit elements that a multiprocessor adds in a cycle, at least."""
READ = 128
"""Bytes that it reads from its shared memory in a cycle."""
FETCHED = 32
"""Bytes that reach it from the second-level cache in a cycle, about."""
STRIPES = tuple(range(16, 0, -1))
"""Rows of tiles that blocks go through together, the wish first."""
LEAST = 2
"""Cycles that a step of the sum takes, however small the tile."""
WAITED = 4
"""The same where a block has a multiprocessor to itself: 16 steps wait for the sums of those before, 32 for a barrier and loads."""
BEGUN = 2000
"""Cycles until the first products of a block, and after the last."""


@dataclass(frozen=True, slots=True)
class Side:
    """The tile of a block along one axis: `warps` of `times` matrices that are `each` wide."""

    warps: int
    times: int
    each: int

    @property
    def own(self) -> int:
        """Return how much a warp has."""
        return self.times * self.each

    @property
    def tile(self) -> int:
        return self.warps * self.own


@dataclass(frozen=True, slots=True)
class WarpProduct:
    instruction: Instruction
    batch: tuple[str, ...]
    a: Operand
    b: Operand
    deep: str
    others: tuple[str, ...]
    rows: Side
    columns: Side
    block: int
    """How much of the longest reduction is copied at a time."""
    row_bytes: int
    buffers: int
    stripe: int
    """Rows of tiles that blocks go through together."""


def warp_product(d: Deriver, cluster: Cluster) -> WarpProduct | None:
    """Return a tensor by itself as a product that an instruction of a warp computes, or None."""
    found = matrices_of(d, cluster.head) if len(cluster.members) == 1 else None
    best = found.tiles(1, device_of(d)) if found is not None else None
    if found is None or best is None:
        return None
    row, column, _ = best
    stages = min(STAGES, SHARED // (found.stretch * (row.tile + column.tile)), -(-found.sizes[found.deep] // found.block))
    return WarpProduct(
        found.instruction,
        found.c.batch,
        found.a,
        found.b,
        found.deep,
        found.others,
        row,
        column,
        found.block,
        found.row_bytes,
        stages,
        stripe(found.sizes[found.a.axes[-1]], row),
    )


@dataclass(frozen=True, slots=True)
class Matrices:
    """A contraction that an instruction of a warp multiplies. `stretch`: bytes of what is copied at a time for each row or column of a
    tile; `swift`: both operands are copied 16 bytes at a time."""

    instruction: Instruction
    c: Contraction
    a: Operand
    b: Operand
    deep: str
    others: tuple[str, ...]
    sizes: Mapping[str, int]
    block: int
    row_bytes: int
    swift: bool

    @property
    def stretch(self) -> int:
        return self.row_bytes * prod(self.sizes[k] for k in self.others)

    def size(self, parts: int) -> tuple[int, int, int, int]:
        """Return the product as so many with shorter sums: how many, their rows and columns, the terms of each sum."""
        sizes = self.sizes
        grid = parts * prod(sizes[x] for x in (*self.c.batch, *self.a.axes[:-1], *self.b.axes[:-1]))
        total = sizes[self.deep] // parts * prod(sizes[k] for k in self.others)
        return grid, sizes[self.a.axes[-1]], sizes[self.b.axes[-1]], total

    def tiles(self, parts: int, machine: Device) -> tuple[Side, Side, float] | None:
        """Return the tiles of least cost, and that, for so many products with shorter sums; None where none fit."""
        grid, rows, columns, total = self.size(parts)
        fitting = (t for t in tiles(rows, columns, swift=self.swift) if 2 * self.stretch * (t[0].tile + t[1].tile) <= SHARED)
        costs = {t: cost_of(t[0], t[1], grid, rows, columns, total, machine, WAITED) for t in fitting}
        best = min(costs, key=lambda t: (costs[t], -t[0].tile * t[1].tile), default=None)
        return (*best, costs[best]) if best is not None else None


def matrices_of(d: Deriver, definition: Definition) -> Matrices | None:
    """Return a tensor as a product of matrices that warps of the device multiply, or None."""
    c = product_of(d, definition) if not recurs(d.program, definition) else None
    if c is None or c.padded or not isinstance(d.machine, Device) or not d.machine.matrices or d.program.mode == "strict":
        return None
    if not all(_is_plain(s, c) for s in c.x_read.index) or not c.batch + c.rows + c.columns:
        return None
    sizes = {axis: e or 1 for axis, e in extents(definition).items()}
    a, b = operands_of(d, definition, c)
    instruction = instruction_for(d, c, a, b)
    if instruction is None:
        return None
    deep = max(c.inner, key=lambda k: sizes[k])
    blocks = ((row_bytes, row_bytes // instruction.rows.size_bytes) for row_bytes in ROW_BYTES)
    fitting = next(((r, n) for r, n in blocks if n % instruction.shape[2] == 0 and n <= sizes[deep]), None)
    if fitting is None:
        return None
    swift = all(is_swift(d, o, sizes, o.axes[-1] if o.unit else deep) for o in (a, b))
    return Matrices(instruction, c, a, b, deep, tuple(k for k in c.inner if k != deep), sizes, fitting[1], fitting[0], swift)


def device_of(d: Deriver) -> Device:
    """Return the device that a schedule is derived for."""
    assert isinstance(d.machine, Device)
    return d.machine


def stripe(extent: int, rows: Side) -> int:
    """Return how many rows of tiles blocks go through together, of those that such a tile has along an axis."""
    tiles = -(-extent // rows.tile)
    return next(n for n in STRIPES if tiles % n == 0)


def instruction_for(d: Deriver, c: Contraction, a: Operand, b: Operand) -> Instruction | None:
    """Return the instruction that multiplies elements like these, and sums like this, or None."""
    rounded = is_rounded(c.reduce)
    factors = rounded_factors_of(c.reduce) if rounded else factors_of(c.reduce)
    if (factors is None and not c.padded) or c.reduce.init is not None:
        return None
    types = {name: t.dtype for name, t in tensor_table(d.program).items()}
    wanted = (types[a.read.tensor], types[b.read.tensor], c.reduce.reducer.dtypes[0])
    return next((i for i in INSTRUCTIONS if (i.rows, i.columns, i.sums) == wanted and i.rounded == rounded and i.warps == 1), None)


def is_swift(d: Deriver, operand: Operand, sizes: Mapping[str, int], axis: str) -> bool:
    """Tell whether 16 bytes at a time of an operand, which lies along `axis`, are copied as they are."""
    size = tensor_table(d.program)[operand.read.tensor].dtype.size_bytes
    return _lies(d, operand.read, axis) and sizes[axis] * size % 16 == 0


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


def _is_plain(slot: Affine | Dynamic, c: Contraction) -> bool:
    """Tell whether a subscript is a name or a constant, or goes through a stretch of a sum."""
    if isinstance(slot, Name | Dynamic):
        return isinstance(slot, Name)
    return set(affine.names(slot)) <= {*c.batch, *c.inner}


def tiles(rows: int, columns: int, *, swift: bool) -> Iterator[tuple[Side, Side]]:
    """Yield the tiles that fit sides of so many elements. What goes through registers into shared memory leaves less for sums."""
    for rows_warps, columns_warps in ((2, 2), (1, 4), (4, 1), (1, 2), (2, 1), (2, 4), (4, 2), (1, 1)):
        for rows_times in (4, 2, 1):
            for columns_times in (8, 4, 2, 1):
                row, column = Side(rows_warps, rows_times, 16), Side(columns_warps, columns_times, 8)
                if row.tile <= max(rows, 0) and column.tile <= columns and (swift or row.own * column.own <= 32 * 32):
                    yield row, column


def cost_of(row: Side, column: Side, grid: int, rows: int, columns: int, total: int, machine: Device, least: int = LEAST) -> float:
    """Return about how many cycles it takes, `least` for a step of the sum."""
    blocks = grid * -(-rows // row.tile) * -(-columns // column.tile)
    warps = row.warps * column.warps
    read = 2 * warps * (row.own + column.own) / READ
    multiplied = row.tile * column.tile / MULTIPLIED * max(1.0, 4 / warps)
    fetched = 2 * (row.tile + column.tile) / FETCHED
    return -(-blocks // machine.blocks) * (total * max(read, multiplied, fetched, least) + BEGUN)
