"""Contractions between transformations: what a program looks like that multiplies tiles of points, and how large its blocks should be.

    rows[…]  = linear in x                      at most one such tensor on each side, and one tensor of tiles
    tiles[…] = linear in rows
    y.tiles[n, a, b, i, j, f] = sum(c) tiles[n, a, b, i, j, c] * u[f, c, a, b]
    y.rows[…] = linear in y.tiles
    y[n, f, h, w] = e(y.rows[n, h // 4, w // 4, h % 4, …, f])

Only the shape of the equations counts, not which numbers the transformations have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Floor
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import FAR_BYTES, STREAM_BYTES, step_cycles
from tensorlang.policy.machine import Machine
from tensorlang.schedule.shape import Contraction, contraction, extents
from tensorlang.tensor.nodes import Definition, Dynamic, Program, Read
from tensorlang.tensor.walk import definers, reads, reduces, tensor_table


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
    spatial: Mapping[str, int]
    kinds: Mapping[str, Mapping[str, str]]
    """Definition (by its tensor) → axis → "batch", "tile", "point" or "channel"."""

    @property
    def members(self) -> tuple[Definition, ...]:
        return (*self.before, self.tiles, self.product, *self.after, self.result)

    def axes(self, definition: Definition, kind: str) -> tuple[str, ...]:
        """Return the axes of one kind, in order."""
        kinds = self.kinds[definition.tensors[0].name]
        return tuple(a for a in definition.axes if kinds[a] == kind)


def transformed(program: Program) -> Transformed | None:
    """Return the program as a transformed contraction, or None when it is something else."""
    table = definers(program)
    if len(program.results) != 1 or len(program.definitions) < 3 or any(len(d.pieces) != 1 or len(d.tensors) != 1 for d in table.values()):
        return None
    result = table[program.results[0]]
    after = list(_chain(result, table))
    if not after or _local(result, table) is None:
        return None
    *middle, product = after
    c = contraction(product, product.axes[-1]) if product.axes else None
    if c is None or c.x not in table or c.w in table or len(c.inner) != 1 or len(c.columns) != 1:
        return None
    tiles = table[c.x]
    before = list(_chain(tiles, table))
    sources = {r.tensor for r in _reads(before[-1] if before else tiles)}
    if len(sources) != 1 or any(any(True for _ in reduces(d.pieces[0].value)) for d in (*before, tiles, *middle, result)):
        return None
    if {d.tensors[0].name for d in (result, *after, tiles, *before)} != table.keys():
        return None
    spatial, kinds = _kinds(program, result, tuple(after), c, tiles, tuple(before))
    if not spatial or any(not k for k in kinds.values()):
        return None
    return Transformed(result, tuple(reversed(middle)), product, tiles, tuple(reversed(before)), sources.pop(), c.w, c, spatial, kinds)


def _reads(definition: Definition) -> Iterator[Read]:
    return (r for p in definition.pieces for r in reads(p.value))


def _local(definition: Definition, table: Mapping[str, Definition]) -> Definition | None:
    """Return the one definition that another reads."""
    found = {r.tensor for r in _reads(definition)} & table.keys()
    return table[found.pop()] if len(found) == 1 else None


def _chain(definition: Definition, table: Mapping[str, Definition]) -> Iterator[Definition]:
    """Yield what a definition reads, what that reads, and so on, to the first that reduces, or that is of a recurrence."""
    seen = {definition.tensors[0].name}
    while (following := _local(definition, table)) is not None and following.tensors[0].name not in seen:
        seen.add(following.tensors[0].name)
        yield following
        if any(True for _ in reduces(following.pieces[0].value)):
            return
        definition = following


def _kinds(
    program: Program,
    result: Definition,
    after: tuple[Definition, ...],
    c: Contraction,
    tiles: Definition,
    before: tuple[Definition, ...],
) -> tuple[dict[str, int], dict[str, dict[str, str]]]:
    """Return the axes of the result that tiles cut, and the kinds of all axes of the others; an axis of no kind leaves its stage empty."""
    spatial: dict[str, int] = {}
    kinds: dict[str, dict[str, str]] = {}
    first = next(r for r in _reads(result) if r.tensor == after[0].tensors[0].name)
    for slot in first.index:
        match slot:
            case Floor(AffineName(axis), divisor):
                spatial[axis] = divisor
            case _:
                pass
    column = next((a for a in result.axes if _is_column(a, first, after, c)), None)
    own = {a: "tile" if a in spatial else "channel" if a == column else "batch" for a in result.axes}
    kinds[result.tensors[0].name] = own
    reader, known = result, own
    for definition in (*after, tiles, *before):
        name = definition.tensors[0].name
        read = next(r for r in _reads(reader) if r.tensor == name)
        found = {a: _kind(slot, known, reader is result) for a, slot in zip(definition.axes, read.index, strict=True)}
        kinds[name] = {a: k for a, k in found.items() if k is not None} if None not in found.values() else {}
        reader, known = definition, {**kinds[name], c.inner[0]: "channel"} if definition is after[-1] else kinds[name]
        if definition is after[-1]:
            known[definition.axes[-1]] = "column"
    return spatial, kinds


def _is_column(axis: str, read: Read, after: tuple[Definition, ...], c: Contraction) -> bool:
    """Tell whether an axis of the result is the one that indexes the weights alone, followed through the definitions in between."""
    name = axis
    for k, definition in enumerate(after):
        position = next((n for n, slot in enumerate(read.index) if slot == AffineName(name)), None)
        if position is None:
            return False
        name = definition.axes[position]
        if k + 1 < len(after):
            read = next(r for r in _reads(definition) if r.tensor == after[k + 1].tensors[0].name)
    return name == c.columns[0]


def _kind(slot: Affine | Dynamic, known: Mapping[str, str], cut: bool) -> str | None:
    """Return the kind of an axis that is read at `slot`, an expression over axes of known kinds."""
    match slot:
        case AffineName(name) if not cut or known.get(name) != "tile":
            return known.get(name)
        case Floor(AffineName(name), _) if cut:
            return "tile"
        case Dynamic():
            return None
        case _:
            names = set(affine.names(slot))
            return "point" if not names or (cut and all(known.get(n) == "tile" for n in names)) else None


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
