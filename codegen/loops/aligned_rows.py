"""Let rows of scratch buffers begin where cache lines do.

    alloc v: f64[2, 513] heap   →   alloc v: f64[2, 520] heap

A vector that crosses a line takes two accesses. Where every row of a buffer has a few elements of the last line to itself, the blocks of
all rows lie in lines as those of the first row do. And a load whose address differs from that of an earlier store by a multiple of a page
waits for it on most processors: rows about as far apart get some more lines, so that what stands side by side in two of them is told apart.
"""

from __future__ import annotations

from dataclasses import replace

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


def with_aligned_rows(function: Function) -> Function:
    """Return `function` with longer rows in its scratch buffers, where it is known how long they are."""
    return replace(function, body=tuple(map(_stmt, function.body)))


def _stmt(s: Stmt) -> Stmt:
    made = map_stmt(s, lambda index: index, lambda expr: expr, _stmt)
    return Alloc(_aligned(made.buffer)) if isinstance(made, Alloc) else made


def _aligned(buffer: Buffer) -> Buffer:
    if buffer.space not in ("heap", "stack") or len(buffer.shape) < 2 or buffer.note(Begins) is not None:
        return buffer
    *outer, last = buffer.shape
    if not isinstance(last, Int) or last.value * buffer.dtype.size_bytes < LEAST_BYTES or all(e == Int(1) for e in outer):
        return buffer
    return replace(buffer, shape=(*outer, Int(_row_bytes(last.value * buffer.dtype.size_bytes) // buffer.dtype.size_bytes)))


def _row_bytes(least: int) -> int:
    """Return how many bytes a row takes that holds so many."""
    whole = -(-least // LINE_BYTES) * LINE_BYTES
    beyond = (whole + APART_BYTES) % PAGE_BYTES
    return whole if beyond >= 2 * APART_BYTES else whole + 2 * APART_BYTES - beyond
