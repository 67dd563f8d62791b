"""Let rows of scratch buffers begin where cache lines do.

    alloc v: f64[2, 513] heap   →   alloc v: f64[2, 520] heap

A vector that crosses a line takes two accesses. Where every row of a buffer has a few elements of the last line to itself, the blocks of
all rows lie in lines as those of the first row do. And a load whose address differs from that of an earlier store by a multiple of a page
waits for it on most processors: rows about as far apart get some more lines, so that what stands side by side in two of them is told apart.

    alloc t: f32[6, 6, 4, 16, 16] heap   →   alloc t: f32[6, 6, 4, 17, 16] heap

Lines a power of two apart share few sets of the first-level cache. Where more blocks of a buffer begin in a set than it holds lines, what
is computed of all of them at a time, as of the points of a tile, would drive itself out: blocks get a little more along the axis where that
is least.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd, prod

from codegen.loops.nodes import Alloc, Buffer, Function, Int, Stmt
from codegen.loops.notes import Begins
from codegen.loops.walk import map_stmt

LINE_BYTES = 64
LEAST_BYTES = 8 * LINE_BYTES
"""Of a row that a line more is little of."""
PAGE_BYTES = 4096
"""Addresses that differ by a multiple of this look alike to a load that asks which stores it has to wait for."""
APART_BYTES = 4 * LINE_BYTES
"""How far from such a multiple rows are that a block reads and writes at the same time."""

LINES_OF_A_SET = 8
"""That a set of the first-level cache holds on every machine of today."""


def with_aligned_rows(function: Function) -> Function:
    """Return `function` with longer rows in its scratch buffers, where it is known how long they are."""
    return replace(function, body=tuple(map(_stmt, function.body)))


def _stmt(s: Stmt) -> Stmt:
    made = map_stmt(s, lambda index: index, lambda expr: expr, _stmt)
    return Alloc(_aligned(made.buffer)) if isinstance(made, Alloc) else made


def _aligned(buffer: Buffer) -> Buffer:
    if buffer.space not in ("heap", "stack") or len(buffer.shape) < 2 or buffer.note(Begins) is not None:
        return buffer
    size = buffer.dtype.size_bytes
    *outer, last = buffer.shape
    if isinstance(last, Int) and last.value * size >= LEAST_BYTES and any(e != Int(1) for e in outer):
        last = Int(_row_bytes(last.value * size) // size)
    known = [e.value for e in (*outer, last) if isinstance(e, Int)]
    if len(known) < len(buffer.shape) or not all(known):
        return replace(buffer, shape=(*outer, last))
    return replace(buffer, shape=tuple(map(Int, _with_blocks_apart(known, size))))


def _with_blocks_apart(shape: list[int], size: int) -> list[int]:
    """Return a shape, of elements of `size` bytes, whose blocks along each axis begin in as many sets as they need, from the inside out."""
    for axis in reversed(range(len(shape) - 1)):
        if _meet(shape, axis, size):
            shape = next((longer for longer in _longer(shape, axis, size) if not _meet(longer, axis, size)), shape)
    return shape


def _meet(shape: list[int], axis: int, size: int) -> bool:
    """Tell whether more blocks along an axis begin in a set than it holds lines."""
    apart = gcd(PAGE_BYTES, prod(shape[axis + 1 :]) * size)
    return shape[axis] > 1 and apart > LINE_BYTES and prod(shape[: axis + 1]) * apart > LINES_OF_A_SET * PAGE_BYTES


def _longer(shape: list[int], axis: int, size: int) -> Iterator[list[int]]:
    """Yield shapes whose blocks along an axis have one more along an axis inside, a line more along the last, the smallest first; none that
    is longer by more than an eighth."""
    line = max(1, LINE_BYTES // size)
    every = [[*shape[:k], shape[k] + (line if k == len(shape) - 1 else 1), *shape[k + 1 :]] for k in range(axis + 1, len(shape))]
    yield from (longer for longer in sorted(every, key=prod) if 8 * prod(longer) <= 9 * prod(shape))


def _row_bytes(least: int) -> int:
    """Return how many bytes a row takes that holds so many."""
    whole = -(-least // LINE_BYTES) * LINE_BYTES
    beyond = (whole + APART_BYTES) % PAGE_BYTES
    return whole if beyond >= 2 * APART_BYTES else whole + 2 * APART_BYTES - beyond
