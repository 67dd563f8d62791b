"""Candidates for products that threads multiply by themselves: how many warps share a block's tile, how their lanes stand in it, and what
each lane computes.

Every element that a warp reads from shared memory serves a row or a column of its register tiles, so large tiles read little and small ones
give work to more of the processor. Where an operand is read in windows, a block copies the box that those of its points cover.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tensorlang.policy.gpu.candidates import AxisTile, Candidate, Level, Tile
from tensorlang.policy.gpu.cost import Work, cost, resident_blocks
from tensorlang.policy.gpu.forms import Form, Kind, Windows
from tensorlang.policy.machine import GpuMachine

ELEMENT_BYTES = 4
"""Of what is multiplied, whatever is read: f32."""
DEPTHS = (16, 8)
"""How much of a sum may be copied at a time; of windows, of the longest reduction:"""
WINDOW_DEPTHS = (32, 16, 8, 4, 2, 1)
MOST_TERMS = 160
"""Terms of windows that are copied at a time at most: what is multiplied is written out."""
LEAST_PART, LEAST_WINDOW_PART = 64, 8
"""Terms of the longest reduction that each part of a cut sum keeps, without windows and with them."""
LATENCY = 1.5
"""Of a warp that has a scheduler to itself, over the instructions that it issues: it waits for what it has read, estimated."""
COPY_INSTRUCTIONS = 6
"""That copy an element by itself, its place in both memories found first."""
SPARE_REGISTERS, SPARE_WINDOW_REGISTERS = 22, 36
"""Of a thread, beside its sums and what it multiplies: addresses and counters, as compiled."""
SUMS = 64
"""Of a thread at most."""
WAVEFRONT_BYTES = 32
"""That lanes read for each element of a register tile at least: 16 bytes for each of them take a cycle, however few are different."""
PAD = 4
"""Elements behind a row of a copy."""


def by_threads(form: Form, parts: int, machine: GpuMachine) -> Iterator[Candidate]:
    """Yield the tiles of threads for a form, each of whose sums is cut into `parts`."""
    depth = form.depth // parts
    if form.kind is Kind.PRODUCT and (parts == 1 or depth >= LEAST_PART):
        yield from _products(form, parts, depth, machine)
    if form.kind is Kind.IMPLICIT_GEMM and not form.is_direct and parts == 1:
        yield from _products(form, parts, depth, machine)
    windows = form.windows
    if windows is not None and windows.operand is form.b and (parts == 1 or (depth >= LEAST_WINDOW_PART and not windows.is_parted)):
        yield from _windows(form, windows, parts, depth, machine)


def _products(form: Form, parts: int, depth: int, machine: GpuMachine) -> Iterator[Candidate]:
    depths = [n for n in DEPTHS if depth % n == 0] or [min(DEPTHS[-1], depth)]
    for (rows_own, columns_own), rows_lanes, warps in product(
        ((8, 8), (8, 4), (4, 8), (4, 4)), (4, 8, 2), ((4, 2), (2, 4), (2, 2), (4, 1), (1, 4), (2, 1), (1, 2), (1, 1))
    ):
        rows = AxisTile(warps[0], rows_lanes, *_groups(rows_own))
        tile = Tile(rows, AxisTile(warps[1], machine.warp // rows_lanes, *_groups(columns_own)))
        for block in depths:
            registers = _registers(form, tile, block, machine)
            if registers <= machine.limits.registers_per_multiprocessor // (2 * machine.warp * max(tile.warps, 4)):
                yield _product(form, tile, block, registers, parts, depth, machine)


def _product(form: Form, tile: Tile, block: int, registers: int, parts: int, depth: int, machine: GpuMachine) -> Candidate:
    sides = (tile.rows, tile.columns)
    copied_bytes = ELEMENT_BYTES * (tile.rows.tile + tile.columns.tile + 2 * PAD) * block * form.taps
    instructions = tile.rows.per_lane * tile.columns.per_lane + (tile.rows.per_lane + tile.columns.per_lane) / 4 + 1
    if form.kind is Kind.IMPLICIT_GEMM:
        instructions += (tile.rows.tile + tile.columns.tile) / (machine.warp * tile.warps) * COPY_INSTRUCTIONS
    work = Work(
        blocks=tile.blocks(form, parts),
        warps=tile.warps,
        resident=resident_blocks(machine, tile.warps, 2 * copied_bytes, registers),
        terms=depth * form.taps,
        barriers=-(-depth // block),
        issue_cycles=instructions,
        shared_bytes=tile.warps * sum(_read_bytes(side) for side in sides),
        global_bytes=ELEMENT_BYTES * sum(side.tile for side in sides),
        row_bytes=0,
        latency_cycles=LATENCY * instructions,
    )
    return Candidate(form, Level.THREAD, tile, block, 2 if depth > block else 1, cost(work, machine))


def _groups(own: int) -> tuple[int, int]:
    """Return how many groups of how many neighbours so many elements of a thread are: 16 bytes each, where there are so many."""
    return max(1, own // 4), min(own, 4)


def _registers(form: Form, tile: Tile, depth: int, machine: GpuMachine) -> int:
    """Return about how many registers a thread takes: its sums, what it multiplies, addresses, and copies on their way."""
    sums, read = tile.rows.per_lane * tile.columns.per_lane, tile.rows.per_lane + tile.columns.per_lane
    copied = (tile.rows.tile + tile.columns.tile) * depth // (machine.warp * tile.warps)
    through = (not form.a.unit) + (not form.b.unit)
    return sums + 2 * read + SPARE_REGISTERS + copied * through // 2


def _read_bytes(side: AxisTile) -> float:
    """Return what a warp reads of one operand for a term: neighbouring lanes read the same at once."""
    return side.per_lane * max(ELEMENT_BYTES * side.lanes, WAVEFRONT_BYTES)


# ---------------------------------------------------------------- windows


def _windows(form: Form, windows: Windows, parts: int, depth: int, machine: GpuMachine) -> Iterator[Candidate]:
    for wide, high in product(_points(form.columns), _lines(form.lines)):
        lanes = wide.lanes * high.lanes
        for own, warps in product((8, 4), (1, 2, 4, 8)):
            tile = Tile(AxisTile(warps, machine.warp // max(1, lanes), *_groups(own)), wide, high)
            sums = own * high.per_lane * wide.per_lane
            if lanes > machine.warp or sums > SUMS or high.warps * warps > 8 or (warps > 1 and tile.rows.tile >= 2 * form.rows):
                continue
            fitting = (n for n in WINDOW_DEPTHS if depth % n == 0 and 2 * _copied(form, windows, tile, n) <= machine.shared_bytes)
            for n in [n for n in fitting if n * form.taps <= MOST_TERMS or n == 1][:2]:
                yield _window(form, windows, tile, n, parts, depth, machine)


def _window(form: Form, windows: Windows, tile: Tile, block: int, parts: int, depth: int, machine: GpuMachine) -> Candidate:
    threads = machine.warp * tile.warps
    rows, wide, high = tile.rows, tile.columns, tile.lines
    sums, seen = rows.per_lane * high.per_lane * wide.per_lane, windows.across.box(wide.per_lane, 1)
    terms = block * form.taps
    elements = block * rows.tile * form.taps + windows.box(high.tile, wide.tile, block)
    reads = high.per_lane * min(seen / max(1, windows.across.taps), wide.per_lane)
    instructions = sums + rows.per_lane / 4 + reads + 1 + elements / threads * COPY_INSTRUCTIONS / terms
    registers = sums + rows.per_lane + high.per_lane * seen + SPARE_WINDOW_REGISTERS
    work = Work(
        blocks=tile.blocks(form, parts),
        warps=tile.warps,
        resident=resident_blocks(machine, tile.warps, 2 * _copied(form, windows, tile, block), registers),
        terms=depth * form.taps,
        barriers=-(-depth // block),
        issue_cycles=instructions,
        shared_bytes=tile.warps * (reads * ELEMENT_BYTES * machine.warp + _read_bytes(rows)),
        global_bytes=ELEMENT_BYTES * elements / terms,
        row_bytes=0,
        latency_cycles=LATENCY * instructions,
    )
    return Candidate(form, Level.THREAD, tile, block, 2 if depth > block else 1, cost(work, machine))


def _points(extent: int) -> Iterator[AxisTile]:
    """Yield what may become of a line: tiles that divide it, or hold all of it, with little to spare."""
    for lanes, each in product((1, 2, 4, 8, 16, 32), (8, 7, 6, 5, 4, 3, 2, 1)):
        if extent % (lanes * each) == 0 or extent <= lanes * each < 2 * extent:
            yield AxisTile(1, lanes, 1, each)
    if extent > 256:
        yield AxisTile(1, 32, 1, 4)


def _lines(extent: int) -> Iterator[AxisTile]:
    """Yield what may become of several lines, likewise."""
    for warps, lanes, times in product((1, 2, 4), (1, 2, 4, 8, 16, 32), (1, 2)):
        tile = warps * lanes * times
        if extent % tile == 0 or extent <= tile < 2 * extent:
            yield AxisTile(warps, lanes, times, 1)


def _copied(form: Form, windows: Windows, tile: Tile, depth: int) -> int:
    """Return the bytes of one stretch of both copies."""
    return ELEMENT_BYTES * (depth * (tile.rows.tile + PAD) * form.taps + windows.box(tile.lines.tile, tile.columns.tile, depth))
