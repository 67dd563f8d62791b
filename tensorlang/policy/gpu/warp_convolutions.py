"""Convolutions that warps of a graphics processor multiply in matrices: whether a tensor is one, and how large the tiles are.

    y[batch, n, h, i, j] = f(sum(r, s, c) a[batch, n, 2*h + r - 1, 2*i + s - 1, c] * b[batch, j, r, s, c])

Neighbours along a line (i) are the rows of an instruction, j its columns, c its sum. A block copies the box that the windows of its points
cover, with the padding around it, `block` of c at a time, and multiplies at each place of a window what lies there. The channels of both
operands lie next to each other, in whole 16 bytes, and lines have sixteen points at least. The
choice is the one of least cost in a model: nothing in it was measured on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from codegen.gpu.matrix import Instruction
from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.gpu.product_shapes import Operand, lying_of, operands_of, slots_of
from tensorlang.policy.gpu.products import product_of
from tensorlang.policy.gpu.warp_products import (
    BEGUN,
    FETCHED,
    LEAST,
    MULTIPLIED,
    READ,
    ROW_BYTES,
    SHARED,
    STAGES,
    Side,
    instruction_for,
    is_swift,
)
from tensorlang.policy.groups import Cluster, recurs
from tensorlang.policy.machine import Device
from tensorlang.policy.pointwise import stored_axis
from tensorlang.schedule.shape import extents
from tensorlang.tensor.nodes import Read

PAD_BYTES = 16
"""Behind the channels of a point in its copy, so that eight neighbours lie in different banks."""
SUMS, SUMS_THROUGH = 2048, 1024
"""Of a warp at most; fewer where what is copied goes through registers."""
WARPS = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block computes: `lines` of `points` for so many `columns`."""

    lines: Side
    points: Side
    columns: Side

    @property
    def warps(self) -> int:
        return self.lines.warps * self.points.warps * self.columns.warps

    @property
    def own(self) -> int:
        """Return how many rows a warp has."""
        return self.lines.own * self.points.own


@dataclass(frozen=True, slots=True)
class WarpWindows:
    instruction: Instruction
    batch: tuple[str, ...]
    a: Operand
    b: Operand
    outer: tuple[str, ...]
    height: tuple[str, ...]
    width: str
    deep: str
    others: tuple[str, ...]
    tile: Tile
    block: int
    """How much of the longest reduction is copied at a time."""
    row_bytes: int
    buffers: int
    cycles: float
    """About how many it takes."""


def warp_windows(d: Deriver, cluster: Cluster) -> WarpWindows | None:
    """Return a tensor by itself as a convolution that an instruction of a warp computes, or None."""
    definition = cluster.head
    c = product_of(d, definition) if len(cluster.members) == 1 and not recurs(d.program, definition) else None
    if c is None or not isinstance(d.machine, Device) or not d.machine.matrices or d.program.mode == "strict":
        return None
    if stored_axis(d, definition) not in c.columns:
        return None
    sizes = {axis: e or 1 for axis, e in extents(definition).items()}
    a, b = operands_of(d, definition, c)
    instruction = instruction_for(d, c, a, b)
    lying = lying_of(a, sizes)
    if instruction is None or lying is None or (lying.is_plain and not c.padded):
        return None
    height, width = lying.axis, a.axes[-1]
    deep = max(c.inner, key=lambda k: sizes[k])
    others = tuple(k for k in c.inner if k != deep)
    if not all(is_swift(d, o, sizes, deep) for o in (a, b)) or Name(deep) not in slots_of(a.read):
        return None
    grid = prod(sizes[x] for x in (*c.batch, *a.axes[:-1], *b.axes[:-1]) if x != height)
    shape = _Shape(sizes, a.read, grid, height, width, b.axes[-1], deep, others, instruction, padded=c.padded)
    blocks = d.machine.blocks
    found = min(shape.choices(), key=lambda choice: shape.cost(choice, blocks), default=None)
    if found is None:
        return None
    outer = tuple(x for x in a.axes[:-1] if x != height)
    tile, row_bytes = found
    high_axes = (height,) if height else ()
    block, cycles = row_bytes // instruction.rows.size_bytes, shape.cost(found, blocks)[0]
    buffers = shape.buffers(tile, row_bytes)
    return WarpWindows(instruction, c.batch, a, b, outer, high_axes, width, deep, others, tile, block, row_bytes, buffers, cycles)


@dataclass(frozen=True, slots=True)
class _Shape:
    sizes: Mapping[str, int]
    read: Read
    grid: int
    height: str | None
    width: str
    column: str
    deep: str
    others: tuple[str, ...]
    instruction: Instruction
    padded: bool

    @property
    def lines(self) -> int:
        return self.sizes[self.height] if self.height else 1

    @property
    def taps(self) -> int:
        return prod(self.sizes[k] for k in self.others)

    def choices(self) -> Iterator[tuple[Tile, int]]:
        """Yield the tiles that fit, with how many bytes of channels are copied at a time."""
        for row_bytes in ROW_BYTES:
            block = row_bytes // self.instruction.rows.size_bytes
            if block % self.instruction.shape[2] == 0 and self.sizes[self.deep] % block == 0 and self.sizes[self.deep] > block:
                yield from ((t, row_bytes) for t in self._tiles() if self.buffers(t, row_bytes) >= 2)

    def _tiles(self) -> Iterator[Tile]:
        for warps, times, along, columns_warps, columns_times in product((1, 2, 4), (1, 2, 4), (1, 2), (1, 2, 4), (8, 4, 2, 1)):
            found = Tile(Side(warps, times, 1), Side(1, along, 16), Side(columns_warps, columns_times, 8))
            fits = found.lines.tile < 2 * self.lines and found.columns.tile <= self.sizes[self.column] and found.warps <= WARPS
            short = self.sizes[self.width] < found.points.tile
            uneven = self.grid > 1 and self.sizes[self.column] % found.columns.tile != 0
            if fits and not short and not uneven and found.own * found.columns.own <= (SUMS_THROUGH if self.padded else SUMS):
                yield found

    def copied(self, tile: Tile, row_bytes: int) -> int:
        """Return the bytes of one stretch of both operands."""
        return self._box(tile) * (row_bytes + PAD_BYTES) + tile.columns.tile * self.taps * row_bytes

    def _box(self, tile: Tile) -> int:
        """Return how many points the windows of a tile cover."""
        inside = {k: self.sizes[k] for k in self.others} | {self.width: tile.points.tile}
        inside |= {self.height: tile.lines.tile} if self.height else {}
        total = 1
        for slot in slots_of(self.read):
            form = affine.affine_form(slot)
            if form is not None and slot != Name(self.deep):
                total *= 1 + sum(abs(scale) * (inside.get(name, 1) - 1) for name, scale in form[0].items())
        return total

    def buffers(self, tile: Tile, row_bytes: int) -> int:
        """Return how many stretches of the sum a block has room for, of those there are."""
        stretches = self.sizes[self.deep] * self.instruction.rows.size_bytes // row_bytes
        return min(STAGES, SHARED // self.copied(tile, row_bytes), stretches)

    def cost(self, choice: tuple[Tile, int], at_once: int) -> tuple[float, int]:
        """Return about how many cycles it takes with so many blocks at once, and of what to take more where these are the same, negated."""
        tile, row_bytes = choice
        counts = ((self.lines, tile.lines), (self.sizes[self.width], tile.points), (self.sizes[self.column], tile.columns))
        blocks = self.grid * prod(-(-extent // side.tile) for extent, side in counts)
        rows = tile.lines.tile * tile.points.tile
        read = 2 * tile.warps * (tile.own + tile.columns.own) / READ
        multiplied = rows * tile.columns.tile / MULTIPLIED * max(1.0, 4 / tile.warps)
        steps = row_bytes // self.instruction.rows.size_bytes * self.taps
        fetched = self.copied(tile, row_bytes) / steps / FETCHED
        total = self.sizes[self.deep] * self.taps
        cycles = -(-blocks // at_once) * (total * max(read, multiplied, fetched, LEAST) + BEGUN)
        return cycles, -rows * tile.columns.tile * row_bytes
