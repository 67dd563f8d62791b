"""Candidates for products that warps multiply by instructions for matrices, each by itself or four together from shared memory.

While a block multiplies a stretch of the sum, the next ones are on their way into shared memory. A side of a form that is shorter than a
tile has smaller tiles; edges are filled up with zeros. Four warps have 64 rows or twice as many of up to 256 columns. Operands lie along
the sum or, of 16 bits, across it, in panels.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from codegen.gpu.matrix import INSTRUCTIONS, Instruction, may_lie_across
from tensorlang.policy.gpu.candidates import AxisTile, Candidate, Level, Tile
from tensorlang.policy.gpu.cost import START_CYCLES, Work, cost, resident_blocks
from tensorlang.policy.gpu.forms import VECTOR_BYTES, Form, Kind
from tensorlang.policy.machine import GpuMachine

ROW_BYTES = (64, 32)
"""Of what is copied of an operand's row at a time, the wish first."""
WARPGROUP_ROW_BYTES = (128, 64)
"""The same where four warps multiply: rows of the orders in which shared memory is exchanged."""
STAGES = 4
"""Stretches of the sum that are copied or on their way."""
SHARED_BYTES = 72 * 1024
"""Of the copies of a block: every generation has room for one, most for two."""
WARPGROUP_SHARED_BYTES = 220 * 1024
"""Of the copies of a block of Hopper, which has 227 KiB: what else it shares is less than the rest."""
SUMS, THROUGH_SUMS = 4096, 1024
"""Of a warp at most; fewer where what is copied goes through registers."""
WINDOW_SUMS, PADDED_WINDOW_SUMS = 2048, 1024
"""The same where it goes through windows, whose addresses take registers; fewer where zeros around an operand are put in."""
WINDOW_WARPS = 8
"""Of a block that goes through windows at most."""
WARPGROUP_ROWS = 64
"""Of an instruction of four warps."""
WARPGROUP_COLUMNS = (256, 192, 128, 96, 64, 48, 32, 16, 8)
"""Of one, of those that there are; all columns, where it takes as many, are another."""
PANELS = (64, 32, 16)
"""Elements of 16 bits of a panel that lies across the sum: a row of each order in which shared memory is exchanged."""
WARPGROUP_SUMS = 128
"""Of a thread at most where four warps multiply."""
OTHER_REGISTERS = 90
"""Of a thread of four warps, beside its sums."""
LEAST_PART = 128
"""Terms that each part of a cut sum keeps."""
PAD_BYTES = 16
"""Behind what is copied of a point that windows cover, so that eight neighbours lie in different banks."""
LATENCY_CYCLES = 2
"""Of a term: 16 of them wait for the sums of those before."""
STRETCH_CYCLES, WARPGROUP_STRETCH_CYCLES = 64, 128
"""Of a stretch of the sum, hidden like the latency of its terms: a barrier, and the first loads; of four warps, which wait for each
other."""
GATHER_CYCLES = 80
"""Of 16 bytes that a thread which multiplies copies itself, from where windows see them: some sixteen instructions, each of which waits for
the one before. Estimated from times of whole kernels on an H200."""


def by_warps(form: Form, parts: int, machine: GpuMachine) -> Iterator[Candidate]:
    """Yield the tiles of single warps for a form, each of whose sums is cut into `parts`."""
    instruction = next((i for i in _instructions(form) if i.warps == 1), None) if machine.matrices else None
    depth = _depth(form, parts)
    if instruction is None or depth is None:
        return
    blocks = [(n, n // form.element_bytes) for n in ROW_BYTES]
    if form.kind is Kind.WINDOWS:
        cut = [(n, block) for n, block in blocks if block % instruction.shape[2] == 0 and depth % block == 0 and depth > block]
        tiles = [*_window_tiles(form)] if _is_by_boxes(form) else []
    else:
        cut = [(n, block) for n, block in blocks if block % instruction.shape[2] == 0 and block <= depth][:1]
        tiles = [*_tiles(form)] if _is_by_rows(form) else []
    for (row_bytes, block), tile in product(cut, tiles):
        copied_bytes = _copied_bytes(form, tile, row_bytes)
        stages = min(STAGES, SHARED_BYTES // copied_bytes, -(-depth // block))
        if 2 * copied_bytes <= SHARED_BYTES and (parts == 1 or depth % block == 0):
            work = Work(
                blocks=tile.blocks(form, parts),
                warps=tile.warps,
                resident=resident_blocks(machine, tile.warps, STAGES * copied_bytes),
                terms=depth * form.taps,
                barriers=0,
                issue_cycles=_multiplied_cycles(form, tile, tile.warps, machine.rates.warp_products, machine),
                shared_bytes=form.element_bytes * tile.warps * (tile.rows.per_lane * tile.lines.per_lane + tile.columns.per_lane),
                global_bytes=copied_bytes / (block * form.taps),
                row_bytes=row_bytes,
                latency_cycles=LATENCY_CYCLES + STRETCH_CYCLES / (block * form.taps),
            )
            yield Candidate(form, Level.WARP, tile, block, stages, cost(work, machine), instruction, row_bytes)


def _is_by_rows(form: Form) -> bool:
    """Tell whether warps go through rows of both operands: of what is read as it is, or, in whole vectors, of what windows see."""
    return form.is_vectored if form.kind is Kind.IMPLICIT_GEMM else form.is_direct and form.kind is Kind.PRODUCT


def _is_by_boxes(form: Form) -> bool:
    """Tell whether warps go through the boxes that windows cover, of whole points."""
    return form.windows is not None and form.windows.operand is form.a and form.is_vectored and not form.windows.is_parted


def _tiles(form: Form) -> Iterator[Tile]:
    sums = SUMS if form.is_vectored else THROUGH_SUMS
    for (rows_warps, columns_warps), rows_times, columns_times in product(
        ((2, 2), (1, 4), (4, 1), (1, 2), (2, 1), (2, 4), (4, 2), (1, 1)), (4, 2, 1), (8, 4, 2, 1)
    ):
        tile = Tile(AxisTile(rows_warps, 1, rows_times, 16), AxisTile(columns_warps, 1, columns_times, 8))
        if tile.rows.tile <= form.rows and tile.columns.tile <= form.columns and tile.rows.per_lane * tile.columns.per_lane <= sums:
            yield tile


def _window_tiles(form: Form) -> Iterator[Tile]:
    sums = PADDED_WINDOW_SUMS if form.is_padded else WINDOW_SUMS
    for warps, times, along, columns_warps, columns_times in product((1, 2, 4), (1, 2, 4), (1, 2), (1, 2, 4), (8, 4, 2, 1)):
        tile = Tile(AxisTile(1, 1, along, 16), AxisTile(columns_warps, 1, columns_times, 8), AxisTile(warps, 1, times, 1))
        inside = tile.lines.tile < 2 * form.lines and tile.rows.tile <= form.rows and tile.columns.tile <= form.columns
        uneven = form.grid > 1 and form.columns % tile.columns.tile != 0
        if (
            inside
            and not uneven
            and tile.warps <= WINDOW_WARPS
            and tile.rows.per_lane * tile.lines.per_lane * tile.columns.per_lane <= sums
        ):
            yield tile


def by_warpgroups(form: Form, parts: int, machine: GpuMachine) -> Iterator[Candidate]:
    """Yield the tiles of four warps together for a form, each of whose sums is cut into `parts`."""
    depth = _depth(form, parts)
    if not machine.warpgroups or not form.is_vectored or depth is None or not _is_by_rows(form):
        return
    row_bytes = next((n for n in WARPGROUP_ROW_BYTES if depth * form.element_bytes >= 2 * n), None)
    if row_bytes is None:  # copies are hidden behind products, and there are none before the last stretch
        return
    block = row_bytes // form.element_bytes
    known = {i.shape[1]: i for i in _instructions(form) if i.warps > 1 and (may_lie_across(i) or not any(form.across))}
    panels = {width: next((p for p in PANELS if width % p == 0), 0) if form.across[1] else 0 for width in known}
    known = {width: i for width, i in known.items() if panels[width] or not form.across[1]}
    gathered = form.kind is Kind.IMPLICIT_GEMM or not machine.boxes
    for width, groups, times, most in product(sorted(known), (1, 2), (1, 2), (STAGES, STAGES - 1) if gathered else (STAGES,)):
        tile = Tile(AxisTile(groups, 1, times, WARPGROUP_ROWS), AxisTile(each=width))
        copied_bytes = _copied_bytes(form, tile, row_bytes)
        wide = width in WARPGROUP_COLUMNS or width == form.columns
        fits = tile.rows.tile <= form.rows and width <= form.columns and 2 * copied_bytes <= WARPGROUP_SHARED_BYTES
        if not (wide and fits) or width * times > 2 * WARPGROUP_SUMS or (parts > 1 and depth % block):
            continue
        beside = not gathered and groups == 2  # a thread beside those that multiply asks for the next tile's copies meanwhile
        turns = -(-tile.blocks(form, parts) // machine.blocks) if beside else 1
        stages = min(most, WARPGROUP_SHARED_BYTES // copied_bytes, turns * -(-depth // block))
        threads = 4 * machine.warp * tile.warps
        stretch_cycles = WARPGROUP_STRETCH_CYCLES + (copied_bytes / VECTOR_BYTES / threads * GATHER_CYCLES if gathered else 0)
        work = Work(
            blocks=tile.blocks(form, parts),
            warps=4 * tile.warps,
            resident=resident_blocks(machine, 4 * tile.warps, most * copied_bytes, _registers_of(tile)),
            terms=depth * form.taps,
            barriers=0,
            issue_cycles=_multiplied_cycles(form, tile, 4 * tile.warps, machine.rates.warpgroup_products, machine),
            shared_bytes=form.element_bytes * _shared_elements(tile),
            global_bytes=copied_bytes / (block * form.taps),
            row_bytes=row_bytes,
            latency_cycles=LATENCY_CYCLES + stretch_cycles / (block * form.taps),
            start_cycles=START_CYCLES / 2 if turns > 1 else START_CYCLES,
        )
        yield Candidate(form, Level.WARPGROUP, tile, block, stages, cost(work, machine), known[width], row_bytes, panels[width])


def _shared_elements(tile: Tile) -> int:
    """Return how many elements of both operands shared memory moves for a term: every product of four warps reads its rows and columns, and
    copies write each once."""
    read = tile.rows.warps * tile.rows.times * (WARPGROUP_ROWS + tile.columns.tile)
    return read + tile.rows.tile + tile.columns.tile


def _registers_of(tile: Tile) -> int:
    """Return the registers of a thread of four warps: of its sums, and some for all else."""
    return tile.rows.times * tile.columns.tile // 2 + OTHER_REGISTERS


def _instructions(form: Form) -> Iterator[Instruction]:
    """Yield the instructions that multiply elements like these, and sum like this."""
    for i in INSTRUCTIONS if form.is_exact and not form.is_strict else ():
        if (i.rows, i.columns, i.sums) == form.dtypes and i.rounded == form.is_rounded:
            yield i


def _depth(form: Form, parts: int) -> int | None:
    """Return how much of the longest reduction a part of every sum has; None where sums are not cut into so many."""
    depth = form.depth // parts
    return depth if parts == 1 or (form.kind is Kind.PRODUCT and depth >= LEAST_PART) else None


def _multiplied_cycles(form: Form, tile: Tile, warps: int, products: int, machine: GpuMachine) -> float:
    """Return the cycles in which a scheduler multiplies a term of a warp's tile, where all of them multiply so many 16-bit elements."""
    return tile.size / warps * form.element_bytes / 2 / (products / machine.rates.schedulers)


def _copied_bytes(form: Form, tile: Tile, row_bytes: int) -> int:
    """Return the bytes of one stretch of both operands."""
    columns = tile.columns.tile * form.taps * row_bytes
    if form.windows is None:
        return columns + tile.rows.tile * form.taps * row_bytes
    return columns + form.windows.box(tile.lines.tile, tile.rows.tile, 1) * (row_bytes + PAD_BYTES)
