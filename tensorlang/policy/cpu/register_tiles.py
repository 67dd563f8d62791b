"""Sizes of the register tile of a contraction, and when operands are worth copying first: numbers for the schedules of its role."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from codegen.dtypes import DType, compute_dtype
from codegen.loops import dots
from polyhedral import affine
from polyhedral.expr import Floor
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import covered_cycles
from tensorlang.policy.deriver import ITERATIONS_PER_THREAD, Deriver, bytes_of, is_threading_profitable
from tensorlang.policy.machine import Machine
from tensorlang.schedule.shape import OPEN_EXTENT, Contraction, block_of, extents, innermost_axis, unit_stride
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import tensor_table

ROWS_IN_A_SET = 8
"""Lines that a set of the first-level cache holds on every machine of today, and leaves some for the other operand."""


WIDTHS = (1, 2, 3, 4, 8, 12, 16, 24)
"""Vectors that a register tile may be wide; more than `WIDEST` for a single row, which memory bounds: so much is read in one go."""

WIDEST = 4
"""Vectors that a register tile of several rows is wide at most."""

OPEN_ROWS = range(4, 13, 4)
"""Rows of a register tile where their number is open: multiples of four, as most numbers are."""

WORTH_OF_BLOCKS = 1.05
"""How many times faster a sum must be whose register tiles skip taps."""

WORTH_OTHER_ROWS = 0.8
"""What a product has to take with rows of register tiles along another axis, of what it takes along the last, whose rows are closer."""

PACKED_FROM = 512
"""Uses of an element that repay copying an operand whose rows could as well be read where they are."""


def tile_sizes(
    rows: int | None,
    columns: int | None,
    lanes: int,
    registers: int,
    heights: Collection[int] | None = None,
    widths: Collection[int] = WIDTHS,
    met: Callable[[int], float] = lambda rows: 1.0,
) -> tuple[int, int]:
    """Return (rows, vectors of columns) of the register tile with the least estimated time over the whole iteration space.

    A tile of m x v needs m*v accumulators, v operand vectors and one broadcast. `heights` and `widths`: the choices, if not
    every size is one; the smallest of them when none fits. `met`: the share of the steps of the sum that tiles of so many rows take."""
    best, best_cost = (min(heights or (1,)), min(widths)), float("inf")
    for v in sorted(widths):
        if columns is not None and v > 1 and (v - 1) * lanes >= columns:
            continue
        for m in sorted(heights or range(1, registers)):
            if m * v + (v if m > 1 else 1) + 1 > registers - 1 or (rows is not None and m > rows) or (v > WIDEST and rows != 1):
                break
            cost = _tiled_cycles(rows, columns, lanes, (m, v)) * met(m)
            if cost < best_cost * 0.995:
                best, best_cost = (m, v), cost
    return best


def extents_for_tile(d: Deriver, definition: Definition, row: str | None, axis: str, lanes: int) -> tuple[int | None, int | None]:
    """Return how many rows and columns a register tile is chosen for, None where any number may come. One row has wide tiles, of which most
    would be empty for few columns: there a sample stands for the columns, too."""
    sizes, settled = extents(definition), d.settled(definition)
    rows = settled[row] if row is not None else 1
    columns = sizes[axis] if rows == 1 else settled[axis]
    return rows, columns if columns is None or columns == settled[axis] else max(columns, WIDEST * lanes)


def _tiled_cycles(rows: int | None, columns: int | None, lanes: int, tile: tuple[int, int]) -> float:
    """Return the cycles of one step of the sum over all rows and columns, in register tiles of one size."""
    m, v = tile
    return covered_cycles(rows or 840, m, v) * -(-(columns or 1 << 20) // (v * lanes))


def rows_of_blocks(rows: int, columns: int, types: tuple[DType, DType, DType], met: Callable[[int], float], machine: Machine) -> int | None:
    """Return how many of these rows a register tile had better have for its sum to skip the taps that no row of it meets, None where that
    does not pay, or where other instructions than those of vectors multiply."""
    x, w, total = types
    lanes = machine.lanes(compute_dtype(total))
    if (x, w) in machine.dots | machine.tiles or columns < lanes:
        return None
    sizes = rows, columns, lanes
    plain = tile_sizes(*sizes, machine.vector_registers)
    tile = tile_sizes(*sizes, machine.vector_registers, met=met)
    worth = _tiled_cycles(*sizes, tile) * met(tile[0]) * WORTH_OF_BLOCKS < _tiled_cycles(*sizes, plain)
    return tile[0] if worth else None


def row_counts(d: Deriver, c: Contraction) -> range | None:
    """Return how many rows a register tile may have: any number (None), or few where rows of x lie a multiple of 4096 bytes apart, so that
    their elements meet in one set of the first-level cache; as many as conditions of the sum speak of together. Where it is not known how
    many rows there are, four, eight or twelve: that many leave nothing over most often, and there is code for each number that is left."""
    block = _block_of_conditions(c)
    if block is not None:
        return range(block, block + 1)
    most = ROWS_IN_A_SET if _meet_in_a_set(d, c) else OPEN_ROWS[-1]
    if c.rows and d.is_open(c.rows[-1]):
        return OPEN_ROWS[: most // OPEN_ROWS.step]
    return range(1, most + 1) if most == ROWS_IN_A_SET else None


def _meet_in_a_set(d: Deriver, c: Contraction) -> bool:
    """Tell whether rows of x lie a known multiple of 4096 bytes apart."""
    x = tensor_table(d.program)[c.x]
    if not c.rows or c.x in d.layouts or c.padded:
        return False
    pitch = x.dtype.size_bytes
    for slot, extent in reversed(list(zip(c.x_read.index, x.shape, strict=True))):
        if isinstance(slot, AffineName) and slot.name == c.rows[-1]:
            break
        if isinstance(slot, AffineName) and d.is_open(slot.name):
            return False
        pitch *= affine.constant(extent) or 1
    return pitch % 4096 == 0


def with_last_row(c: Contraction, row: str) -> Contraction:
    """Return a contraction whose register tiles have rows along the axis `row`."""
    return replace(c, rows=(*(n for n in c.rows if n != row), row))


def with_rows_of_tile(d: Deriver, definition: Definition, c: Contraction, axis: str, lanes: int) -> Contraction:
    """Return a contraction whose register tiles have rows along that of its axes of rows where they are full: the last one, unless along
    another it takes far fewer cycles, as along the steps of a recurrence whose batch is small."""
    sizes, settled = extents(definition), d.settled(definition)
    if any(sizes[n] is None for n in c.rows) or _block_of_conditions(c) is not None:
        return c

    def cycles(row: str) -> float:
        tile = tile_sizes(settled[row], settled[axis], lanes, d.machine.vector_registers, row_counts(d, with_last_row(c, row)))
        around = prod(sizes[n] or 0 for n in c.rows if n != row)
        return around * covered_cycles(sizes[row] or 0, *tile) * -(-(sizes[axis] or 1 << 20) // (tile[1] * lanes))

    best = min(reversed(c.rows), key=cycles, default=None)
    return c if best is None or cycles(best) > WORTH_OTHER_ROWS * cycles(c.rows[-1]) else with_last_row(c, best)


def _block_of_conditions(c: Contraction) -> int | None:
    """Return for how many rows at a time the conditions of the sum hold, where they say `p // block` of a row p."""
    conds = affine.conjuncts(c.reduce.where)
    atoms = {atom for cond in conds for e in affine.inequalities(cond) for atom in affine.terms(e)[0]}
    found = {atom.divisor for atom in atoms if isinstance(atom, Floor) and c.rows and atom.value == AffineName(c.rows[-1])}
    return found.pop() if len(found) == 1 else None


def product_step_cycles(d: Deriver, c: Contraction, sizes: Mapping[str, int | None], axis: str, lanes: int) -> float:
    """Return the cycles of one k-step over all rows and columns, which are known, in register tiles of vectors of columns."""
    row = (sizes[c.rows[-1]] or 0) if c.rows else 1
    m, v = tile_sizes(row, sizes[axis], lanes, d.machine.vector_registers, row_counts(d, c))
    full, rest = divmod(sizes[axis] or 0, v * lanes)
    once = full * covered_cycles(row, m, v) + (covered_cycles(row, m, -(-rest // lanes)) if rest else 0.0)
    return once * prod(sizes[n] or 0 for n in (*c.rows[:-1], *c.columns) if n != axis)


def blocked_binder(d: Deriver, c: Contraction) -> tuple[str, int] | None:
    """Return the binder along which x is stored in blocks, with the block."""
    storage = d.layouts.get(c.x)
    axis = innermost_axis(storage) if storage is not None else None
    if storage is None or axis is None:
        return None
    slot = c.x_read.index[d.axes[c.x].index(axis)]
    block = block_of(storage, axis)
    if block is None or not isinstance(slot, AffineName) or slot.name not in c.inner:
        return None
    return slot.name, block


@dataclass(frozen=True, slots=True)
class Grouped:
    """The reduction along which neighbours of x are multiplied and added in one instruction, `group` at a time; `block`: how many of its
    iterations stay together."""

    binder: str
    block: int
    group: int


def grouped(d: Deriver, c: Contraction) -> Grouped | None:
    """Return how the machine's dot products take the contraction, or None when its operands have none or do not lie that way."""
    table = tensor_table(d.program)
    total, types = c.reduce.reducer.dtypes[0], (table[c.x].dtype, table[c.w].dtype)
    if types not in d.machine.dots or dots.accumulator(*types) != total or (d.program.mode == "strict" and total.is_float):
        return None
    group, blocked = dots.group(types[0]), blocked_binder(d, c)
    if blocked is not None:
        return Grouped(*blocked, group) if blocked[1] % group == 0 else None
    storage = d.layouts.get(c.x)
    binder = next((k for k in reversed(c.inner) if unit_stride(c.x_read.index, storage, d.axes[c.x], k)), None)
    if binder is None:
        return None
    extent = extents_of(c).get(binder)
    if extent is not None and extent < group:
        return None
    return Grouped(binder, group if extent is None else -(-extent // group) * group, group)


SIDE = 16
"""Rows, columns and groups of a tile that the machine multiplies at once."""
FEWEST = 7
"""Rows and groups that are worth a tile."""


@dataclass(frozen=True, slots=True)
class Tiled:
    """How instructions for tiles take a contraction: the rows of a tile, how many groups of elements along the sum it has, and how many
    tiles of columns, of `SIDE` each, are multiplied together."""

    rows: int
    depth: int
    vectors: int


def tiled(d: Deriver, c: Contraction, rows: int | None, columns: int | None, lanes: int) -> Tiled | None:
    """Return how instructions for tiles take the contraction, or None where there are none or they would be mostly empty."""
    table = tensor_table(d.program)
    pairs = grouped(d, c)
    if pairs is None or (table[c.x].dtype, table[c.w].dtype) not in d.machine.tiles or lanes != SIDE:
        return None
    groups = pairs.block // pairs.group
    depth = next((n for n in range(SIDE, FEWEST - 1, -1) if groups % n == 0), SIDE)
    height = next((n for n in range(SIDE, FEWEST - 1, -1) if (rows or SIDE) % n == 0), SIDE)
    if (rows or SIDE) < height or groups < depth or (columns or SIDE) < SIDE:
        return None
    return Tiled(height, depth, 1 if columns is not None and columns <= SIDE else 2)


def extents_of(c: Contraction) -> dict[str, int | None]:
    return {b.name: affine.difference(b.hi, b.lo) if affine.constant(b.lo) == 0 else None for b in c.reduce.binders}


def is_packing_profitable(d: Deriver, c: Contraction, reuse: int, contiguous: bool) -> bool:
    """Tell whether w is read often enough to be copied first: rows that a vector can be read from are worth it when they are many and do
    not stay in the second-level cache, of which those that lie a power of two apart use a few sets."""
    if not contiguous:
        return reuse >= 4
    w = tensor_table(d.program).get(c.w)
    size = w.dtype.size_bytes if w is not None else 0
    for extent in w.shape if w is not None else ():
        size *= affine.constant(extent) or OPEN_EXTENT
    return reuse >= PACKED_FROM and size > d.machine.l2_bytes


def is_read_apart(d: Deriver, definition: Definition, around: int, columns: int, width: int) -> bool:
    """Tell whether every block of `width` columns, so many `around` them, is computed by one thread: there is but one, or there are blocks
    enough for all of them to share (`shared_loops`)."""
    if not is_threading_profitable(d, (definition,)):
        return True
    return around * -(-columns // width) >= ITERATIONS_PER_THREAD * d.machine.threads


def is_prefetch_profitable(d: Deriver, c: Contraction, definition: Definition, rows: Sequence[str], tile: tuple[int, int]) -> bool:
    """Tell whether to ask for the next columns of w while register tiles of (rows, columns) go through these: several tiles of `rows`
    read them, the first of which would wait for memory alone, and the second-level cache holds both. How often loops run is known then: all
    of them share what is asked for."""
    sizes = d.settled(definition)
    height, width = tile
    if any(sizes[name] is None for name in (*definition.axes, *c.inner)):
        return False
    columns = prod(sizes[name] or 0 for name in c.columns)
    panel = prod(sizes[name] or 0 for name in c.inner) * width * tensor_table(d.program)[c.w].dtype.size_bytes
    return prod(sizes[name] or 0 for name in rows) >= 2 * height and columns > width and 0 < 2 * panel <= d.machine.l2_bytes


def is_row_order_profitable(d: Deriver, c: Contraction, result: str, samples: int) -> bool:
    """Tell whether tiles go along rows of the result first, of so many `samples`. Rows that the second-level cache does not hold until the
    next block of columns are fetched again for it: the lines at its edges, and each line without those before it. That costs more than
    reading w anew for every tile, where the cache holds w."""
    w, y = (bytes_of(d, (name,)) // samples for name in (c.w, result))
    return 0 < 2 * w <= d.machine.l2_bytes < 2 * y
