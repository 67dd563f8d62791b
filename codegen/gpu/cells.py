"""How C names the cells of buffers: in registers by subscripts, in memory by their number, exchanged where rows are swizzled."""

from __future__ import annotations

from dataclasses import replace

from codegen.gpu.expressions import ATOM, Printer
from codegen.gpu.vectors import offset
from codegen.loops.nodes import Buffer, FloorDiv, Index, Int, Load, Mod, Mul
from codegen.loops.swizzle import Swizzle, swizzle

PRIVATE = ("registers", "stack")
"""Spaces that each thread has of its own: arrays with constant subscripts."""


def element(buffer: Buffer, index: tuple[Index, ...], p: Printer) -> str:
    """Return the place of an element, to be read or assigned."""
    name = p.names(buffer.name)
    if buffer.space in PRIVATE:
        return name + "".join(f"[{p.index(e)}]" for e in index)
    return f"{name}[{cell(buffer, index, p)}]"


def cell(buffer: Buffer, index: tuple[Index, ...], p: Printer, level: int = 0) -> str:
    """Return the number of an element in memory, in parentheses when it binds less tightly than `level`."""
    number = offset(buffer, index)
    exchanged = swizzle(buffer)
    if exchanged is None:
        return p.index(number, level)
    column = p.algebra.simplify(Mul(Mod(_stretch(buffer, index, exchanged), Int(exchanged.columns)), Int(exchanged.column)))
    if column == Int(0):
        return p.index(number, level)
    text = f"{p.index(number, ATOM)} ^ {p.index(column, ATOM)}"
    return f"({text})" if level else text


def _stretch(buffer: Buffer, index: tuple[Index, ...], exchanged: Swizzle) -> Index:
    """Return the number of the stretch that a cell is in: some whole rows of it, where they fill one."""
    rows = replace(buffer, shape=buffer.shape[:-1])
    match buffer.shape[-1]:
        case Int(row) if exchanged.row % row == 0:
            return FloorDiv(offset(rows, index[:-1]), Int(exchanged.row // row))
        case _:
            return FloorDiv(offset(buffer, index), Int(exchanged.row))


def registers_from(first: Load, p: Printer) -> str:
    """Return the address of registers that follow each other along the last axis, `first` on."""
    last = p.index(first.index[-1], 11)
    row = p.names(first.buffer) + "".join(f"[{p.index(e)}]" for e in first.index[:-1])
    return row if last == "0" else f"{row} + {last}"


def descriptor(buffer: Buffer, first: Load, across: bool, p: Printer) -> str:
    """Return where the hardware finds a matrix whose rows are those of `buffer`, from `first` on; `across`: whose panels these are."""
    at = p.index(offset(buffer, first.index), 11)
    next_panel = 16
    if across:
        lines = buffer.shape[-2]
        assert isinstance(lines, Int), "buffers in shared memory have constant extents"
        next_panel = lines.value * buffer.swizzle
    return f"tl_descriptor({p.names(buffer.name)} + {at}, {next_panel}, {8 * buffer.swizzle}, {buffer.swizzle})"


def cell_count(buffer: Buffer) -> int:
    """Return how many cells a buffer has, extents that are not known counting as one."""
    total = 1
    for extent in buffer.shape:
        total *= extent.value if isinstance(extent, Int) else 1
    return total
