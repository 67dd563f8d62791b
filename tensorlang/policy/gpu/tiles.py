"""Tiles of a product on a graphics processor: how many warps share a block's tile, how their lanes stand in it, what each lane computes.

    rows      warps x lanes x times x each         a block's tile is the product of all four, a thread's register tile of the last two:
    columns   warps x lanes x times x each         `times` groups of `each` neighbours

Every element that a warp reads from shared memory serves a row or a column of its register tiles, so large tiles read little and small ones
give work to more of the processor. The choice is the one of least cost in a model of both: nothing in it was measured on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from tensorlang.policy.machine import Device

DEPTHS = (16, 8)
"""How much of a sum may be copied at a time."""
SHARED = 128
"""Bytes that a multiprocessor reads from its shared memory in a cycle."""
FETCHED = 32
"""Bytes that reach a multiprocessor from the second-level cache in a cycle, about."""
BEGUN = 1500
"""Cycles until the first products of a block, and after the last: a copy from memory, the results stored."""
ROUND = 40
"""Cycles that a stretch of the sum takes beside its products: a barrier, the next copies begun."""
REGISTERS = 64 * 1024
"""Of a multiprocessor."""
THREADS = 1024
"""That a multiprocessor keeps at a time on every generation, and there are more on some."""
BUSY = 2
"""Warps of a scheduler that hide what each of them waits for."""
STRETCH = 160
"""Terms of a sum that are copied at a time at most."""
STRETCHES = (32, 16, 8, 4, 2, 1)
"""How many of the longest reduction, of these."""
PARTS = (2, 4, 8, 16)
"""Into how many sums a long one may be cut."""
LAUNCH = 4000
"""Cycles of another launch."""
MOVED = 2048
"""Bytes that a device moves to and from its second-level cache in a cycle, about."""
COPY = 6
"""Instructions that copy an element by itself, its place in both memories found first."""
ALONE = 1.5
"""How much longer a warp takes that has a scheduler to itself."""
SCHEDULERS = 4
"""Of a multiprocessor: each begins one instruction of a warp in a cycle."""


@dataclass(frozen=True, slots=True)
class Side:
    """The tile of a block along one axis of a product."""

    warps: int
    lanes: int
    times: int
    each: int

    @property
    def tile(self) -> int:
        return self.warps * self.lanes * self.times * self.each

    @property
    def own(self) -> int:
        """Return how many elements along the axis one thread computes."""
        return self.times * self.each


@dataclass(frozen=True, slots=True)
class Tiles:
    rows: Side
    columns: Side
    depth: int

    @property
    def warps(self) -> int:
        return self.rows.warps * self.columns.warps


@dataclass(frozen=True, slots=True)
class Size:
    """A product: `batch` of them, each of `rows` by `columns` sums over `depth`. `loads` operands of it go through registers into shared
    memory."""

    batch: int
    rows: int
    columns: int
    depth: int
    through: int


def tiles_for(size: Size, machine: Device) -> tuple[Tiles, float]:
    """Return the tiles of least cost, and that; of equal ones the largest."""
    found = min(_tiles(size), key=lambda t: (cost(t, size, machine), -t.rows.tile * t.columns.tile))
    return found, cost(found, size, machine)


def parts_for(depth: int, least: int, results: int, cycles: Callable[[int], float]) -> int:
    """Return into how many sums of `least` terms at least to cut sums of `depth` terms, where as many take `cycles(parts)` and adding them
    up for so many `results` takes another launch."""
    parts = [n for n in PARTS if depth % n == 0 and depth // n >= least]
    return min([1, *parts], key=lambda n: cycles(n) + (LAUNCH + 8 * n * results / MOVED if n > 1 else 0))


def _tiles(size: Size) -> Iterator[Tiles]:
    depths = [n for n in DEPTHS if size.depth % n == 0] or [min(DEPTHS[-1], size.depth)]
    for rows_own, columns_own in ((8, 8), (8, 4), (4, 8), (4, 4)):
        for rows_lanes in (4, 8, 2):
            for rows_warps, columns_warps in ((4, 2), (2, 4), (2, 2), (4, 1), (1, 4), (2, 1), (1, 2), (1, 1)):
                rows = Side(rows_warps, rows_lanes, *_groups(rows_own))
                columns = Side(columns_warps, 32 // rows_lanes, *_groups(columns_own))
                for depth in depths:
                    found = Tiles(rows, columns, depth)
                    if _registers(found, size) <= REGISTERS // (2 * 32 * max(found.warps, 4)):
                        yield found


def _groups(own: int) -> tuple[int, int]:
    return max(1, own // 4), min(own, 4)


def _registers(t: Tiles, size: Size) -> int:
    """Return about how many registers a thread takes: its sums, what it multiplies, addresses, and copies on their way."""
    sums, read = t.rows.own * t.columns.own, t.rows.own + t.columns.own
    copied = (t.rows.tile + t.columns.tile) * t.depth // (32 * t.warps)
    return sums + 2 * read + 22 + copied * size.through // 2


def cost(t: Tiles, size: Size, machine: Device) -> float:
    """Return about how many cycles the product takes."""
    blocks = size.batch * -(-size.rows // t.rows.tile) * -(-size.columns // t.columns.tile)
    least = -(-blocks // machine.blocks)
    room = max(1, min(REGISTERS // (_registers(t, size) * 32 * t.warps), THREADS // (32 * t.warps)))
    together = min(room, least)
    rounds = -(-least // together)
    warps = together * t.warps
    of_each = -(-warps // SCHEDULERS)
    issued = (t.rows.own * t.columns.own + (t.rows.own + t.columns.own) / 4 + 1) * (of_each if of_each >= BUSY else ALONE)
    read = sum(max(side.lanes * side.own * 4 / SHARED, side.own / 4) for side in (t.rows, t.columns)) * warps
    fetched = 4 * (t.rows.tile + t.columns.tile) * together / FETCHED
    return rounds * (size.depth * max(issued, read, fetched) + -(-size.depth // t.depth) * ROUND + BEGUN)


# ---------------------------------------------------------------- windows


@dataclass(frozen=True, slots=True)
class Window:
    """Windows along an axis of `extent` points: `taps` of them for each point, `reach` from first to last, `stride` to the next point's."""

    extent: int
    stride: int
    reach: int
    taps: int

    def box(self, points: int) -> int:
        """Return how much the windows of so many neighbours cover."""
        return (points - 1) * self.stride + self.reach


@dataclass(frozen=True, slots=True)
class Box:
    """The tile of a block: rows of the result by lines (`height`) of points (`width`); `depth` of the longest sum are copied at a time."""

    rows: Side
    height: Side
    width: Side
    depth: int

    @property
    def warps(self) -> int:
        return self.rows.warps * self.height.warps * self.width.warps


def boxes_for(grid: int, rows: int, depth: int, height: Window, width: Window, taps: int, machine: Device) -> tuple[Box, float] | None:
    """Return the box of least cost, and that, for `grid` products of `rows` rows, with sums over `depth` and `taps` points of windows; None
    where windows are so large that none fits shared memory."""
    found = {b: _cost_of_box(b, grid, rows, depth, height, width, taps, machine) for b in _boxes(rows, depth, height, width, taps, machine)}
    best = min(found, key=lambda b: (found[b], -b.rows.tile * b.width.tile), default=None)
    return (best, found[best]) if best is not None else None


def _boxes(rows: int, depth: int, height: Window, width: Window, taps: int, machine: Device) -> Iterator[Box]:
    for wide, high in product(_points(width), _lines(height)):
        lanes = wide.lanes * high.lanes
        for own, warps in product((8, 4), (1, 2, 4, 8)):
            side = Side(warps, 32 // max(1, lanes), *_groups(own))
            over = side.own * high.own * wide.own > 64 or high.warps * warps > 8 or (warps > 1 and side.tile >= 2 * rows)
            if lanes > 32 or over:
                continue
            fitting = (n for n in STRETCHES if depth % n == 0 and _shared(side, high, wide, n, height, width, taps) <= machine.shared_bytes)
            for n in [n for n in fitting if n * taps <= STRETCH or n == 1][:2]:
                yield Box(side, high, wide, n)


def _points(width: Window) -> Iterator[Side]:
    """Yield what may become of a line: tiles that divide it, or hold all of it, with little to spare."""
    for lanes, each in product((1, 2, 4, 8, 16, 32), (8, 7, 6, 5, 4, 3, 2, 1)):
        if width.extent % (lanes * each) == 0 or width.extent <= lanes * each < 2 * width.extent:
            yield Side(1, lanes, 1, each)
    if width.extent > 256:
        yield Side(1, 32, 1, 4)


def _lines(height: Window) -> Iterator[Side]:
    """Yield what may become of several lines, likewise."""
    for warps, lanes, times in product((1, 2, 4), (1, 2, 4, 8, 16, 32), (1, 2)):
        tile = warps * lanes * times
        if height.extent % tile == 0 or height.extent <= tile < 2 * height.extent:
            yield Side(warps, lanes, times, 1)


def _shared(rows: Side, high: Side, wide: Side, depth: int, height: Window, width: Window, taps: int) -> int:
    """Return the bytes of two stretches of both copies."""
    return 2 * 4 * depth * ((rows.tile + 4) * taps + height.box(high.tile) * width.box(wide.tile))


def _cost_of_box(b: Box, grid: int, rows: int, depth: int, height: Window, width: Window, taps: int, machine: Device) -> float:
    """Return about how many cycles it takes."""
    threads = 32 * b.warps
    blocks = grid * -(-rows // b.rows.tile) * -(-height.extent // b.height.tile) * -(-width.extent // b.width.tile)
    own = b.rows.own * b.height.own * b.width.own
    least = -(-blocks // machine.blocks)
    registers = own + b.rows.own + b.height.own * width.box(b.width.own) + 36
    room = max(1, min(REGISTERS // (registers * threads), THREADS // threads))
    together = min(room, least)
    of_each = -(-together * b.warps // SCHEDULERS)
    reads = b.height.own * min(width.box(b.width.own) / max(1, width.taps), b.width.own)
    copied = b.depth * (b.rows.tile * taps + height.box(b.height.tile) * width.box(b.width.tile)) / threads
    step = own + b.rows.own / 4 + reads + 1 + copied * COPY / (b.depth * taps)
    issued = step * (of_each if of_each >= BUSY else ALONE)
    lanes = b.width.lanes * b.height.lanes
    words = together * b.warps * (reads * max(1.0, lanes / 32) + max(b.rows.lanes * b.rows.own * 4 / SHARED, b.rows.own / 4))
    fetched = 4 * together * copied * threads / (b.depth * taps) / FETCHED
    stretches = -(-depth // b.depth)
    return -(-least // together) * (depth * taps * max(issued, words, fetched) + stretches * ROUND + BEGUN)
