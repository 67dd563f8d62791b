"""Contractions whose sums run along k in vectors: which those are, and the sides of their register tile.

    columns in vectors    for k:          y[i, j..j+15]  += a[i, k] * b[k, j..j+15]          half a vector takes as long as one
    sums in vectors       for k by 16:    p[i, j, 0..15] += a[i, k..k+15] * b[j, k..k+15]    then y[i, j] = all lanes of p[i, j]

The second reads both operands along k, whatever the number of columns, and pays for combining the lanes of every element at the end. It
is for few columns, for a matrix times a vector, and for a transposed b that is not used often enough to be worth copying.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.policy.cpu.cost import load_cycles, multiply_cycles
from tensorlang.policy.cpu.register_tiles import ROWS_IN_A_SET, product_step_cycles
from tensorlang.policy.deriver import Deriver, bytes_of
from tensorlang.schedule.shape import Contraction, extents, unit_stride
from tensorlang.schedule.storage import is_row_major
from tensorlang.tensor.nodes import Definition, Dynamic

ACROSS_CYCLES = 6.0
"""Of combining the lanes of one vector."""
TURNED_CYCLES = 0.3
"""Of copying one element across."""
GATHERED_CYCLES = 2.5
"""Of reading one element across."""
LOOP_CYCLES = 0.5
"""Of a step of the sum beside its multiply-adds: its loop."""
IN_FLIGHT = 8
"""Accumulators that keep both multipliers busy: two, for the four cycles that a sum takes."""

BLOCKS_OF_OPEN = 8
"""Blocks of a sum of open length, about, that are worth as many accumulators: all of them run for what is left behind the last block."""
ROWS_OF_A_VECTOR = 4
"""Rows to multiply with a vector at once where no cache holds them: memory is read fastest in few stretches, from a cache in one."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The loop along which sums run in vectors, the sides of the register tile, how many elements of the sum to take at once, and whether
    to copy b first."""

    binder: str
    rows: int
    columns: int
    block: int
    copies: bool


def sums_along(d: Deriver, definition: Definition, c: Contraction, axis: str, lanes: int) -> Sums | None:
    """Return how to sum along k in vectors, or None where columns in vectors take less time, or where the operands do not lie that way."""
    sizes = extents(definition)
    binder = c.inner[-1] if c.inner else None
    if d.program.mode == "strict" or c.padded or binder is None:
        return None
    if not all(is_row_major(d.program, name, d.layouts.get(name)) for name in (c.x, c.w, definition.tensors[0].name)):
        return None
    if not unit_stride(_long(c.x_read.index, sizes), None, None, binder):
        return None
    if any(sizes[n] is None for n in (*c.batch, *c.rows, *c.columns, *c.inner)) or (sizes[binder] or 0) < lanes:
        return None
    known = {n: sizes[n] or 0 for n in sizes}
    batch, others = prod(known[n] for n in c.batch), prod(known[n] for n in (*c.batch, *c.inner) if n != binder)
    rows, columns, length = prod(known[r] for r in c.rows), prod(known[j] for j in c.columns), known[binder]
    copied = 0.0 if unit_stride(_long(c.w_read.index, sizes), None, None, binder) else TURNED_CYCLES * columns * length * batch
    found = min(_tiles(d.machine.vector_registers, rows, columns, -(-length // lanes)), default=None)
    if found is None:
        return None
    cost, r, q = found
    plain = product_step_cycles(d, c, sizes, axis, lanes) * length
    if c.w not in d.constants and not unit_stride(c.w_read.index, None, None, axis):
        plain += columns * length * (TURNED_CYCLES if rows >= 4 else GATHERED_CYCLES)
    if cost * others + ACROSS_CYCLES * rows * columns * batch + copied >= plain * others:
        return None
    if min(rows, columns) == 1 and bytes_of(d, (c.x if columns == 1 else c.w,)) <= d.machine.cache_bytes:
        r = q = 1
    blocks = 2 if d.settled(definition)[binder] is not None else BLOCKS_OF_OPEN
    together = next((n for n in (4, 2) if r * q * n <= 2 * IN_FLIGHT and length >= blocks * n * lanes), 1)
    return Sums(binder, r, q, together * lanes, copied > 0)


def _long(index: Sequence[Affine | Dynamic], sizes: Mapping[str, int | None]) -> tuple[Affine | Dynamic, ...]:
    """Return `index` without the slots at its end that have one value: what is before them walks memory."""
    kept = len(index)
    while kept > 1 and isinstance(slot := index[kept - 1], Name) and sizes.get(slot.name) == 1:
        kept -= 1
    return tuple(index[:kept])


def _tiles(registers: int, rows: int, columns: int, steps: int) -> Iterator[tuple[float, int, int]]:
    """Yield (cycles, rows, columns) of every register tile."""
    most = ROWS_IN_A_SET if min(rows, columns) > 1 else ROWS_OF_A_VECTOR
    for r in range(1, min(rows, most) + 1):
        for q in range(1, min(columns, most) + 1):
            if r * q + min(r, q) + 1 <= registers - 1:
                yield sum(n * _step_cycles(height, width) for n, height, width in _edges(rows, columns, r, q)) * steps, r, q


def _step_cycles(rows: int, columns: int) -> float:
    """Return the cycles of one step of the sums in a register tile: whoever has few enough to wait for them takes more steps at once."""
    return max(multiply_cycles(rows * columns), load_cycles(rows + columns)) + LOOP_CYCLES


def _edges(rows: int, columns: int, r: int, q: int) -> Iterator[tuple[int, int, int]]:
    """Yield how many tiles there are, and their rows and columns."""
    for count, height in ((rows // r, r), (1, rows % r)):
        for number, width in ((columns // q, q), (1, columns % q)):
            if height and width:
                yield count * number, height, width
