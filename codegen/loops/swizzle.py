"""Where the cells of a swizzled buffer lie: the columns of 16 bytes of a row are exchanged by the number of the row.

    swizzle 64, rows of 64 bytes      row 0, 1    0 1 2 3
                                      row 2, 3    1 0 3 2
                                      row 4, 5    2 3 0 1
                                      row 6, 7    3 2 1 0      and so on from row 8

Column c of a row lies at c xor r, where r numbers stretches of 128 bytes, or rows where they are longer, modulo the columns of `swizzle`
bytes. Threads that touch one column of neighbouring rows so find it in different banks, with nothing left free. Where rows have at most
128 bytes this is how the hardware's own copies and matrix products number columns (32, 64 and 128 bytes). No cell leaves the stretch of
`swizzle` bytes that it is in, and 16 bytes stay together, so that it is a bijection, and vectors remain whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.loops.nodes import Buffer, Int

SPANS = (32, 64, 128)
"""Bytes within which columns are exchanged."""
COLUMN_BYTES = 16
STRETCH_BYTES = 128
"""What all banks hold one word of."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """Cell number `n` lies at `n xor ((n // row) % columns * column)`; `row` and `column` count elements."""

    row: int
    columns: int
    column: int

    def place(self, cell: int) -> int:
        """Return where the cell of that number lies."""
        return cell ^ (cell // self.row % self.columns * self.column)


def swizzle(buffer: Buffer) -> Swizzle | None:
    """Return how the cells of `buffer` are exchanged, or None where they lie in order."""
    if not buffer.swizzle:
        return None
    size = buffer.dtype.size_bytes
    return Swizzle(max(STRETCH_BYTES // size, _row(buffer)), buffer.swizzle // COLUMN_BYTES, COLUMN_BYTES // size)


def swizzle_problem(span: int, row: int, size_bytes: int) -> str:
    """Return why rows of `row` elements cannot be swizzled by `span` bytes; "" where they can."""
    if span not in SPANS:
        return f"columns are exchanged within {', '.join(map(str, SPANS[:-1]))} or {SPANS[-1]} bytes, not {span}"
    if row * size_bytes % span:
        return f"its rows have {row * size_bytes} bytes, which is no multiple of {span}"
    return ""


def _row(buffer: Buffer) -> int:
    last = buffer.shape[-1]
    assert isinstance(last, Int)
    return last.value
