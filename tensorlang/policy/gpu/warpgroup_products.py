"""Products that four warps compute together from shared memory: whether a tensor is one on a device that has instructions
for it, how large the tiles are, and into how many parts sums are cut.

    y[batch, i, j] = f(sum(k, c) a[batch, i, k, c] * b[batch, j, k, c])

Both operands lie along c. A block has one or two groups of four warps, each with 64 rows or twice as many, and up to 256 columns; a stretch
of c has 128 bytes. The choice is the one of least cost in a model, against products of single warps, too: nothing in it was measured on a
device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, prod

from codegen.gpu.matrix import INSTRUCTIONS, Instruction
from polyhedral import affine
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.gpu.product_shapes import Operand
from tensorlang.policy.gpu.tiles import parts_for
from tensorlang.policy.gpu.warp_products import BEGUN, WAITED, Matrices, Side, device_of, matrices_of, stripe
from tensorlang.policy.groups import Cluster
from tensorlang.policy.machine import Device
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import tensor_table

ROW_BYTES = 128
"""Of what is copied of an operand's row at a time."""
ROWS = 64
"""Of the sums of an instruction."""
WIDTHS = (256, 192, 128, 96, 64, 48, 32, 16, 8)
"""Columns of one, of those that there are; all columns, where it takes as many, are another."""
KEPT = 128
"""Sums that a thread has at most."""
STAGES = 4
SHARED = 220 * 1024
"""Bytes of the copies of a block."""
MULTIPLIED = 2048
"""Products of 16-bit elements that a multiprocessor adds in a cycle."""
READ = 128
"""Bytes that it reads from its shared memory in a cycle."""
FETCHED = 64
"""Bytes that reach it from the second-level cache in a cycle at most."""
LEAST_PART = 128
"""Terms that each part of a sum keeps."""
DIMENSIONS = 5
"""Of a tensor that boxes are copied of, at most."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles of a block: so many groups of four warps of so many rows and columns."""

    rows: Side
    columns: int

    @property
    def bytes(self) -> int:
        """Return what a stretch of the sum takes of shared memory."""
        return ROW_BYTES * (self.rows.tile + self.columns)


@dataclass(frozen=True, slots=True)
class WarpgroupProduct:
    """`stripe`: rows of tiles that blocks go through together; `boxes`: whether both operands are copied as boxes of tensors; `beside`:
    whether a thread beside two groups asks for them; `turns`: how many blocks take turns with the tiles, 0 where each has one."""

    product: Matrices
    instruction: Instruction
    tiles: Tiles
    block: int
    buffers: int
    stripe: int
    boxes: bool
    beside: bool
    turns: int


def warpgroup_product(d: Deriver, cluster: Cluster) -> WarpgroupProduct | None:
    """Return a tensor by itself as a product that four warps compute together, or None where they cannot, or single warps are as fast."""
    found = matrices_of(d, cluster.head) if len(cluster.members) == 1 else None
    if found is None or not fits(d, found):
        return None
    machine = device_of(d)
    alone, best = found.tiles(1, machine), best_tiles(found, 1, machine)
    if best is None or (alone is not None and alone[2] < best[1]):
        return None
    tiles, _ = best
    [instruction] = [i for i in instructions_of(found) if i.shape[1] == tiles.columns]
    block = _block(found)
    stages = min(STAGES, SHARED // (tiles.bytes * _taps(found)), -(-found.sizes[found.deep] // block))
    boxes = all(_is_boxed(d, o) for o in (found.a, found.b))
    grid, rows, columns, _ = found.size(1)
    blocks = grid * -(-rows // tiles.rows.tile) * -(-columns // tiles.columns)
    turns = machine.blocks if blocks > machine.blocks else 0
    return WarpgroupProduct(found, instruction, tiles, block, stages, stripe(rows, tiles.rows), boxes, tiles.rows.warps == 2, turns)


def product_parts(d: Deriver, definition: Definition) -> tuple[str, int] | None:
    """Return the longest reduction of a product of warps and how much of it one block sums up, where blocks are too few for the device, or
    None where they are not, or where it is no product of warps."""
    found = matrices_of(d, definition)
    if found is None:
        return None
    results, depth, machine = prod(found.sizes[x] for x in definition.axes), found.sizes[found.deep], device_of(d)
    together = fits(d, found)

    def cycles(parts: int) -> float:
        alone, best = found.tiles(parts, machine), best_tiles(found, parts, machine) if together else None
        return min(alone[2] if alone is not None else inf, best[1] if best is not None else inf)

    parts = parts_for(depth, LEAST_PART, results, cycles)
    return (found.deep, depth // parts) if parts > 1 and depth // parts % found.block == 0 else None


def fits(d: Deriver, found: Matrices) -> bool:
    """Tell whether four warps of the device multiply operands like these: both lie along the sum, in whole vectors."""
    machine = device_of(d)
    return machine.warpgroups and found.swift and not found.a.unit and not found.b.unit and bool(instructions_of(found))


def instructions_of(found: Matrices) -> tuple[Instruction, ...]:
    one = found.instruction
    wanted = (one.rows, one.columns, one.sums)
    return tuple(i for i in INSTRUCTIONS if i.warps > 1 and (i.rows, i.columns, i.sums) == wanted)


def _block(found: Matrices) -> int:
    return ROW_BYTES // found.instruction.rows.size_bytes


def _taps(found: Matrices) -> int:
    return prod(found.sizes[k] for k in found.others)


def best_tiles(found: Matrices, parts: int, machine: Device) -> tuple[Tiles, float] | None:
    """Return the tiles of least cost for so many products with shorter sums, and that."""
    if found.sizes[found.deep] // parts < 2 * _block(found):
        return None
    grid, rows, columns, total = found.size(parts)
    fitting = (t for t in _tiles(found) if 2 * t.bytes * _taps(found) <= SHARED)
    costs = {t: _cost(t, grid, rows, columns, total, found.instruction.rows.size_bytes, machine) for t in fitting}
    best = min(costs, key=lambda t: (costs[t], -t.rows.tile * t.columns, t.columns, t.rows.warps), default=None)
    return (best, costs[best]) if best is not None else None


def _tiles(found: Matrices) -> Iterator[Tiles]:
    _, rows, columns, _ = found.size(1)
    widths = {i.shape[1] for i in instructions_of(found)}
    for groups, times, width in ((g, t, w) for g in (2, 1) for t in (2, 1) for w in {*WIDTHS, columns} & widths):
        side = Side(groups, times, ROWS)
        if width * times // 2 <= KEPT and side.tile <= rows and width <= columns:
            yield Tiles(side, width)


def _cost(t: Tiles, grid: int, rows: int, columns: int, total: int, size: int, machine: Device) -> float:
    """Return about how many cycles it takes."""
    blocks = grid * -(-rows // t.rows.tile) * -(-columns // t.columns)
    read = size * (t.rows.tile + t.columns * t.rows.warps * t.rows.times) / READ
    multiplied = size / 2 * t.rows.tile * t.columns / MULTIPLIED
    fetched = size * (t.rows.tile + t.columns) / FETCHED
    each = -(-blocks // machine.blocks)
    room = max(1, min(each, SHARED // (STAGES * t.bytes)))
    return each * total * max(read, multiplied, fetched, WAITED / room) + -(-each // room) * BEGUN


def _is_boxed(d: Deriver, operand: Operand) -> bool:
    """Tell whether boxes of an operand can be copied: few dimensions, all of them whole vectors apart."""
    name = operand.read.tensor
    storage, tensor = d.layouts.get(name), tensor_table(d.program)[name]
    shape = [affine.constant(n) for n in (storage.shape if storage is not None else tensor.shape)]
    last = next((n for n in reversed(shape) if n != 1), None)
    return last is not None and len(shape) <= DIMENSIONS and last * tensor.dtype.size_bytes % 16 == 0
