"""Contractions between transformations: what is known of a program that multiplies tiles of points, and how large its blocks should be.

    rows[…]  = linear in x                      at most one such tensor on each side, and one tensor of tiles
    tiles[…] = linear in rows
    y.tiles[n, a, b, i, j, f] = sum(c) tiles[n, a, b, i, j, c] * u[f, c, a, b]
    y.rows[…] = linear in y.tiles
    y[n, f, h, w] = e(y.rows[n, h // 4, w // 4, h % 4, …, f])

The rewrite that makes such a program says which definition is which (`tensorlang.tensor.idioms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tensorlang.policy.cpu.cost import FAR_BYTES, STREAM_BYTES, step_cycles
from tensorlang.policy.machine import Machine
from tensorlang.schedule.shape import Contraction, contraction, extents
from tensorlang.tensor.idioms import is_all
from tensorlang.tensor.nodes import Definition, MinimalFiltering, Program
from tensorlang.tensor.walk import definers, definition_reads, tensor_table


@dataclass(frozen=True, slots=True)
class Transformed:
    """`spatial` are the axes of the result that tiles cut, each with the side of its tile. The other names are axes of the definition they
    are said to be of; `points` of a definition are the axes that its transformation, or one after it, runs along."""

    result: Definition
    after: tuple[Definition, ...]
    product: Definition
    tiles: Definition
    before: tuple[Definition, ...]
    x: str
    weights: str
    contraction: Contraction
    idiom: MinimalFiltering

    @property
    def members(self) -> tuple[Definition, ...]:
        return (*self.before, self.tiles, self.product, *self.after, self.result)

    @property
    def spatial(self) -> Mapping[str, int]:
        return dict(zip(self.idiom.spatial, self.idiom.tile_sizes, strict=True))

    def axes(self, definition: Definition, kind: str) -> tuple[str, ...]:
        """Return the axes of one kind, "batch", "tile", "point" or "channel", in order."""
        return tuple(a for a in definition.axes if self._kind(definition, a) == kind)

    def _kind(self, definition: Definition, axis: str) -> str:
        whole = definition is self.result
        if axis in (self.idiom.spatial if whole else self.idiom.tile_axes):
            return "tile"
        if axis == (self.idiom.column if whole else definition.axes[-1]):
            return "channel"
        return "batch" if whole or axis not in self.idiom.point_axes else "point"


def transformed(program: Program) -> Transformed | None:
    """Return the program as a contraction between transformations, or None where it is something else, or does something besides."""
    idiom = next((i for i in program.idioms if isinstance(i, MinimalFiltering)), None)
    if idiom is None or not is_all(idiom, program):
        return None
    table = definers(program)
    product = table[idiom.product]
    found = contraction(product, product.axes[-1])
    if found is None or found.x != idiom.tiles:
        return None
    before, after = (tuple(table[name] for name in names) for names in (idiom.before, idiom.after))
    [x] = definition_reads(before[0] if before else table[idiom.tiles])
    return Transformed(table[idiom.result], after, product, table[idiom.tiles], before, x, found.w, found, idiom)


# ---------------------------------------------------------------- sizes of blocks


@dataclass(frozen=True, slots=True)
class Blocks:
    """`tiles`: how many tiles along each spatial axis one block holds; `rows`: how many of them, along the last two, a register tile;
    `vectors`: how many vectors of channels it has; `parts`: into how many parts the channels are cut, each with tiles of its own."""

    tiles: tuple[int, ...]
    rows: tuple[int, ...]
    vectors: int
    cycles: float
    """About what all products of one image cost."""
    parts: int = 1


LONGER = 1.05
"""How many times longer products may take where threads share the columns so that each reads a part of the weights."""

LOAD = 0.65
"""Cycles for each operand that a register tile loads, beside what its multiply-adds take."""

NEAR = 1.15
"""How much of the second-level cache weights may take that are read for one block of tiles after the other."""

TRANSFORMATION = 4.0
"""Cycles for one vector at one point of a tile, on either side of the products."""


def blocks(counts: tuple[int, ...], points: int, channels: int, columns: int, element: int, machine: Machine, images: int = 1) -> Blocks:
    """Return the sizes that make the products of `points` matrices cheapest: `counts` tiles along the spatial axes of each of `images`,
    `channels` summed, `columns` computed, elements of `element` bytes.

    Where blocks of tiles do not come out even for the threads, every thread may take a part of the columns of all of them: it transforms
    all tiles itself. Its part of the weights stays in the second-level cache for that, or is read once, for the tiles of a single image."""
    weights = points * channels * columns * element
    whole = _blocks(counts, points, channels, columns, element, machine, images, 1)
    if weights // machine.threads <= NEAR * machine.l2_bytes:
        parted = _blocks(counts, points, channels, columns, element, machine, images, machine.threads)
        return min(whole, parted, key=lambda b: b.cycles)
    if images * prod(counts[:-2]) > 1 or machine.threads == 1:
        return whole
    shared = _blocks(counts, points, channels, columns, element, machine, images, machine.threads, one=True)
    far = weights / FAR_BYTES
    sooner = max(shared.cycles, far / machine.threads) < 0.98 * max(whole.cycles, far)
    return shared if sooner and shared.cycles < LONGER * whole.cycles else whole


def _blocks(
    counts: tuple[int, ...],
    points: int,
    channels: int,
    columns: int,
    element: int,
    machine: Machine,
    images: int,
    parts: int,
    one: bool = False,
) -> Blocks:
    """Return the best sizes for so many parts; with `one`, of blocks that hold all tiles."""
    lanes = machine.vector_bytes // element
    columns = -(-columns // (parts * lanes)) * lanes if parts > 1 else columns
    best: Blocks | None = None
    for across in _divisors(counts[-1]):
        for down in range(1, (counts[-2] if len(counts) > 1 else 1) + 1):
            tiles = (*(1,) * (len(counts) - 2), down, across)[-len(counts) :]
            if one and tiles != counts:
                continue
            found = _registers(tiles, counts, columns, lanes, machine.vector_registers)
            number = images * parts * prod(-(-n // t) for n, t in zip(counts, tiles, strict=True))
            turns = -(-number // machine.threads) / images
            again = points * prod(tiles) * -(-channels // lanes) * TRANSFORMATION * (parts - 1) / parts
            held = points * down * across * channels * element
            written = points * down * across * found.vectors * lanes * element
            streamed = points * channels * columns * element / STREAM_BYTES
            spilled = max(0.0, held + written / 2 - 0.4 * machine.l2_bytes) / machine.l2_bytes
            cycles = turns * (points * channels * found.cycles * (1 + 0.5 * spilled) + 0.3 * streamed + again)
            if best is None or cycles < best.cycles * 0.98:
                best = Blocks(tiles, found.rows, found.vectors, cycles, parts)
    assert best is not None
    return best


def _registers(tiles: tuple[int, ...], counts: tuple[int, ...], columns: int, lanes: int, registers: int) -> Blocks:
    """Return the register tile that covers a block in the least cycles for one step along the channels. Only sizes without a rest count."""
    best: Blocks | None = None
    whole = all(n % t == 0 for n, t in zip(counts, tiles, strict=True))
    downs = _divisors(tiles[-2]) if len(tiles) > 1 and whole else (1,)
    for vectors in range(1, 5):
        for across in _divisors(tiles[-1]):
            for down in downs:
                height = down * across
                if height * vectors + vectors + 1 > registers - 1:
                    continue
                step = step_cycles(height, vectors, LOAD)
                ragged = 1.03 if columns % (vectors * lanes) else 1.0
                steps = prod(tiles) // height * -(-columns // (vectors * lanes)) * ragged
                rows = (*(1,) * (len(tiles) - 2), down, across)[-len(tiles) :]
                if best is None or step * steps < best.cycles * 0.995:
                    best = Blocks(tiles, rows, vectors, step * steps)
    assert best is not None
    return best


def _divisors(n: int) -> tuple[int, ...]:
    return tuple(k for k in range(n, 0, -1) if n % k == 0)


def blocks_of(found: Transformed, program: Program, machine: Machine) -> Blocks | None:
    """Return the sizes of blocks for a program, or None when its extents are not constant."""
    sizes = extents(found.product)
    counts = tuple(sizes[a] or 0 for a in found.axes(found.product, "tile"))
    points = prod(sizes[a] or 0 for a in found.axes(found.product, "point"))
    channels, columns = sizes[found.contraction.inner[0]], sizes[found.contraction.columns[0]]
    element = tensor_table(program)[found.weights].dtype.size_bytes
    if not all(counts) or not points or not channels or not columns:
        return None
    images = prod(sizes[a] or 1 for a in found.axes(found.product, "batch"))
    return blocks(counts, points, channels, columns, element, machine, images)
