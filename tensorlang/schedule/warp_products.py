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
from polyhedral.expr import Name
from tensorlang.schedule.clusters import Cluster, recurs
from tensorlang.schedule.deriver import Deriver
from tensorlang.schedule.forms import factors_of, is_rounded, rounded_factors_of
from tensorlang.schedule.machine import Device
from tensorlang.schedule.product_shapes import Operand, operands_of
from tensorlang.schedule.products_device import product_of
from tensorlang.schedule.shape import Contraction, extents, unit_stride
from tensorlang.tensor import affine
from tensorlang.tensor.nodes import Dynamic
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
LEAST = 2
"""Cycles that a step of the sum takes, however small the tile."""
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


def warp_product(d: Deriver, cluster: Cluster) -> WarpProduct | None:
    """Return a tensor by itself as a product that an instruction of a warp computes, or None."""
    definition = cluster.head
    c = product_of(d, definition) if len(cluster.members) == 1 and not recurs(d.program, definition) else None
    if c is None or c.padded or not isinstance(d.machine, Device) or not d.machine.matrices or d.program.mode == "strict":
        return None
    if not all(_is_plain(s) for s in c.x_read.index) or not c.batch + c.rows + c.columns:
        return None
    sizes = {axis: e or 1 for axis, e in extents(definition).items()}
    a, b = operands_of(d, definition, c)
    instruction = instruction_for(d, c, a, b)
    if instruction is None:
        return None
    deep = max(c.inner, key=lambda k: sizes[k])
    for row_bytes in ROW_BYTES:
        block = row_bytes // instruction.rows.size_bytes
        if block % instruction.shape[2] == 0 and block <= sizes[deep]:
            break
    else:
        return None
    rows, columns = sizes[a.axes[-1]], sizes[b.axes[-1]]
    grid = prod(sizes[x] for x in (*c.batch, *a.axes[:-1], *b.axes[:-1]))
    others = tuple(k for k in c.inner if k != deep)
    stretch = row_bytes * prod(sizes[k] for k in others)
    swift = all(is_swift(d, o, sizes, o.axes[-1] if o.unit else deep) for o in (a, b))
    found = [t for t in tiles(rows, columns, swift=swift) if 2 * stretch * (t[0].tile + t[1].tile) <= SHARED]
    if not found:
        return None
    total = sizes[deep] * prod(sizes[k] for k in others)
    machine = d.machine
    row, column = min(found, key=lambda t: (cost_of(t[0], t[1], grid, rows, columns, total, machine), -t[0].tile * t[1].tile))
    stages = min(STAGES, SHARED // (stretch * (row.tile + column.tile)), -(-sizes[deep] // block))
    return WarpProduct(instruction, c.batch, a, b, deep, others, row, column, block, row_bytes, stages)


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
    tensor, storage = tensor_table(d.program)[operand.read.tensor], d.layouts.get(operand.read.tensor)
    index = operand.read.index
    if storage is None:  # axes of one element at the end change no address
        index = index[: max((k + 1 for k, e in enumerate(tensor.shape) if affine.constant(e) != 1), default=0)]
    lies = unit_stride(index, storage, d.axes[tensor.name], axis)
    return lies and sizes[axis] * tensor.dtype.size_bytes % 16 == 0


def _is_plain(slot: object) -> bool:
    return isinstance(slot, Name) or (not isinstance(slot, Dynamic) and affine.constant(slot) is not None)  # type: ignore[arg-type]


def tiles(rows: int, columns: int, *, swift: bool) -> Iterator[tuple[Side, Side]]:
    """Yield the tiles that fit sides of so many elements. What goes through registers into shared memory leaves less for sums."""
    for rows_warps, columns_warps in ((2, 2), (1, 4), (4, 1), (1, 2), (2, 1), (2, 4), (4, 2), (1, 1)):
        for rows_times in (4, 2, 1):
            for columns_times in (8, 4, 2, 1):
                row, column = Side(rows_warps, rows_times, 16), Side(columns_warps, columns_times, 8)
                if row.tile <= max(rows, 0) and column.tile <= columns and (swift or row.own * column.own <= 32 * 32):
                    yield row, column


def cost_of(row: Side, column: Side, grid: int, rows: int, columns: int, total: int, machine: Device) -> float:
    """Return about how many cycles it takes."""
    blocks = grid * -(-rows // row.tile) * -(-columns // column.tile)
    warps = row.warps * column.warps
    read = 2 * warps * (row.own + column.own) / READ
    multiplied = row.tile * column.tile / MULTIPLIED * max(1.0, 4 / warps)
    fetched = 2 * (row.tile + column.tile) / FETCHED
    return -(-blocks // machine.blocks) * (total * max(read, multiplied, fetched, LEAST) + BEGUN)
