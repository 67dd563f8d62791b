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
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from tensorlang.policy.cpu.cost import FAR_BYTES, STREAM_BYTES, step_cycles
from tensorlang.policy.deriver import Deriver
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

OPEN_TILES = 10
"""Of a register tile whose last rows are open: there are loops for each number of tiles that is left over (`codegen.loops.unswitch`)."""

SHRUNK = (1, 2, 4)
"""Into how many parts tiles of open extents are cut along each of them, for blocks to be good at smaller sizes than the samples, too."""


def blocks(
    counts: tuple[int, ...],
    points: int,
    channels: int,
    columns: int,
    element: int,
    machine: Machine,
    images: int = 1,
    is_open: bool = False,
) -> Blocks:
    """Return the sizes that make the products of `points` matrices cheapest: `counts` tiles along the spatial axes of each of `images`,
    `channels` summed, `columns` computed, elements of `element` bytes. Where counts are open, they are samples.

    Where blocks of tiles do not come out even for the threads, every thread may take a part of the columns of all of them: it transforms
    all tiles itself. Its part of the weights stays in the second-level cache for that, or is read once, for the tiles of a single image."""
    products = _Products(counts, points, channels, columns, element, images, is_open)
    weights = points * channels * columns * element
    whole = _blocks(products, machine, 1)
    if weights // machine.threads <= NEAR * machine.l2_bytes:
        parted = _blocks(products, machine, machine.threads)
        return min(whole, parted, key=lambda b: b.cycles)
    if images * prod(counts[:-2]) > 1 or machine.threads == 1:
        return whole
    shared = _blocks(products, machine, machine.threads, one=True)
    far = weights / FAR_BYTES
    sooner = max(shared.cycles, far / machine.threads) < 0.98 * max(whole.cycles, far)
    return shared if sooner and shared.cycles < LONGER * whole.cycles else whole


@dataclass(frozen=True, slots=True)
class _Products:
    """What `blocks` is asked about."""

    counts: tuple[int, ...]
    points: int
    channels: int
    columns: int
    element: int
    images: int
    is_open: bool


def _blocks(p: _Products, machine: Machine, parts: int, one: bool = False) -> Blocks:
    """Return the best sizes for so many parts; with `one`, of blocks that hold all tiles."""
    lanes = machine.vector_bytes // p.element
    columns = -(-p.columns // (parts * lanes)) * lanes if parts > 1 else p.columns
    streamed = p.points * p.channels * columns * p.element / STREAM_BYTES
    best: Blocks | None = None
    for across in _divisors(p.counts[-1]):
        for down in range(1, (p.counts[-2] if len(p.counts) > 1 else 1) + 1):
            tiles = (*(1,) * (len(p.counts) - 2), down, across)[-len(p.counts) :]
            if one and tiles != p.counts:
                continue
            found = _registers(tiles, p, columns, lanes, machine.vector_registers)
            again = p.points * prod(tiles) * -(-p.channels // lanes) * TRANSFORMATION * (parts - 1) / parts
            held = p.points * down * across * p.channels * p.element
            written = p.points * down * across * found.vectors * lanes * p.element
            spilled = max(0.0, held + written / 2 - 0.4 * machine.l2_bytes) / machine.l2_bytes
            cycles = 0.0
            for counts in _at_hand(p):
                number = p.images * parts * prod(-(-n // t) for n, t in zip(counts, tiles, strict=True))
                turns = -(-number // machine.threads) / p.images
                steps = found.cycles if not p.is_open else _covered(counts, found, columns, lanes) * p.images * parts / number
                taken = turns * (p.points * p.channels * steps * (1 + 0.5 * spilled) + 0.3 * streamed + again)
                cycles += taken * prod(p.counts) / prod(counts)
            if best is None or cycles < best.cycles * 0.98:
                best = Blocks(tiles, found.rows, found.vectors, cycles, parts)
    assert best is not None
    return replace(best, cycles=best.cycles / len(_at_hand(p)))


def _at_hand(p: _Products) -> tuple[tuple[int, ...], ...]:
    """Return the counts of tiles that blocks are to be good at: smaller ones, too, where these are open."""
    return tuple(tuple(-(-n // share) for n in p.counts) for share in (SHRUNK if p.is_open else (1,)))


def _registers(tiles: tuple[int, ...], p: _Products, columns: int, lanes: int, registers: int) -> Blocks:
    """Return the register tile that covers a block in the least cycles for one step along the channels. Only sizes without a rest count."""
    best: Blocks | None = None
    whole = p.is_open or all(n % t == 0 for n, t in zip(p.counts, tiles, strict=True))
    downs = _divisors(tiles[-2]) if len(tiles) > 1 and whole else (1,)
    for vectors in range(1, 5):
        for across in _divisors(tiles[-1]):
            for down in downs:
                height = down * across
                if height * vectors + vectors + 1 > registers - 1 or (p.is_open and height > OPEN_TILES):
                    continue
                rows = (*(1,) * (len(tiles) - 2), down, across)[-len(tiles) :]
                found = Blocks(tiles, rows, vectors, 0.0)
                if p.is_open:
                    cycles = sum(_covered(c, found, columns, lanes) * prod(p.counts) / prod(c) for c in _at_hand(p))
                else:
                    cycles = prod(tiles) // height * _column_cycles(height, vectors, columns, lanes)
                if best is None or cycles < best.cycles * 0.995:
                    best = replace(found, cycles=cycles)
    assert best is not None
    return best


def _covered(counts: tuple[int, ...], found: Blocks, columns: int, lanes: int) -> float:
    """Return the cycles of one step along the channels for all tiles, the register tiles at their edges smaller."""
    sides = [((1, n),) if side == 1 else ((side, n // side), (n % side, 1)) for n, side in zip(counts, found.rows, strict=True)]
    every = ((prod(s for s, _ in tile), prod(n for _, n in tile)) for tile in product(*sides))
    return sum(n * _column_cycles(height, found.vectors, columns, lanes) for height, n in every if height and n)


def _column_cycles(height: int, vectors: int, columns: int, lanes: int) -> float:
    """Return the cycles of one step along the channels for so many tiles and all columns."""
    ragged = 1.03 if columns % (vectors * lanes) else 1.0
    return step_cycles(height, vectors, LOAD) * -(-columns // (vectors * lanes)) * ragged


def _divisors(n: int) -> tuple[int, ...]:
    return tuple(k for k in range(n, 0, -1) if n % k == 0)


def blocks_of(found: Transformed, d: Deriver) -> Blocks | None:
    """Return the sizes of blocks for a program, or None when its extents are not known, and no samples of them are."""
    sizes, settled = extents(found.product), d.settled(found.product)
    axes = found.axes(found.product, "tile")
    counts = tuple(sizes[a] or 0 for a in axes)
    points = prod(sizes[a] or 0 for a in found.axes(found.product, "point"))
    channels, columns = sizes[found.contraction.inner[0]], sizes[found.contraction.columns[0]]
    element = tensor_table(d.program)[found.weights].dtype.size_bytes
    if not all(counts) or not points or not channels or not columns:
        return None
    images = prod(sizes[a] or 1 for a in found.axes(found.product, "batch"))
    is_open = any(settled[a] is None for a in axes)
    return blocks(counts, points, channels, columns, element, d.machine, images, is_open)
