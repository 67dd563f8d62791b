"""Which tensors a kernel had better take and return row-major, though its schedule would like them in blocks of channels.

    y[f, p] = sum(c) w[f, c] * x[c, p]        a product of matrices: vectors of pixels need no block of channels

What is row-major whatever the kernel prefers (what a model takes and returns) is copied into blocks before the kernel and out of them after
it, which takes a fifth of the time of a convolution of one point. Rows of x can be read where they are in either case: scalars for vectors
of channels, vectors for scalars of weights. So the copy of the result stands against what vectors of pixels waste on the last of them.
Windows of every channel alone (depthwise convolution, pooling) slide along rows as well as along channels: there copies of both stand
against lanes behind the end of a row, elements that windows lie apart, and masks at its ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from math import prod

from codegen.dtypes import compute_dtype
from codegen.loops.dots import group
from codegen.loops.written_out import MOST_TERMS
from polyhedral import affine
from polyhedral.ranges import range_of
from tensorlang.policy.cpu.cost import COPY_BYTES, START_CYCLES, from_memory_cycles, load_cycles, multiply_cycles
from tensorlang.policy.deriver import Deriver, bytes_of
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.shape import Contraction, contraction, extents, step_inside, unit_stride
from tensorlang.tensor.nodes import Definition, Dynamic, Read
from tensorlang.tensor.walk import reads, reduces, tensor_table

MASKED_VECTOR = 3
"""Instructions of a vector that is loaded under a mask: comparing places, the load, and putting what stands outside in place."""


def left_row_major(d: Deriver, definition: Definition, blocked: Mapping[str, Layout], fixed: frozenset[str]) -> frozenset[str]:
    """Return those of `blocked` to leave row-major, as those in `fixed` are."""
    result = definition.tensors[0]
    given = {r.tensor for p in definition.pieces for r in reads(p.value)} & blocked.keys() - d.constants
    c = contraction(definition, definition.axes[-1])
    if not {*given, result.name} <= fixed:
        return frozenset()
    if c is None:
        return frozenset(blocked) if _slides_in_rows(d, definition, blocked) else frozenset()
    if not unit_stride(c.w_read.index, None, None, definition.axes[-1]):
        return frozenset()
    sizes = extents(definition)
    number = prod(sizes[a] or 0 for a in definition.axes)
    copied = number * result.dtype.size_bytes / COPY_BYTES
    if _dot_saves(d, c, sizes, number) > copied + bytes_of(d, given) / COPY_BYTES:
        return frozenset()
    return frozenset({*given, result.name} if _wasted(d, definition, c, sizes) <= copied else given)


def _dot_saves(d: Deriver, c: Contraction, sizes: Mapping[str, int | None], number: int) -> float:
    """Return the cycles that dot products of neighbouring channels save, which rows of pixels do not have next to each other."""
    table = tensor_table(d.program)
    types = (table[c.w].dtype, table[c.x].dtype)  # in blocks of channels the picture is the first operand
    if types not in d.machine.dots:
        return 0.0
    lanes = d.machine.lanes(compute_dtype(c.reduce.reducer.dtypes[0]))
    return multiply_cycles(number * prod(sizes[k] or 1 for k in c.inner) / lanes) * (1 - 1 / group(types[0]))


def _slides_in_rows(d: Deriver, definition: Definition, blocked: Mapping[str, Layout]) -> bool:
    """Tell whether windows that every channel has for itself slide along rows in no more cycles than through blocks of channels and the
    copies around them: there are no products of two tensors along other axes. In blocks, points of a register tile share a vector of
    weights; in rows these are loaded again in each step where the terms are too many to be written out."""
    sizes = extents(definition)
    if any(contraction(definition, axis) is not None for axis in definition.axes if sizes[axis] != 1):
        return False
    reduce = next(r for p in definition.pieces for r in reduces(p.value))
    lanes, row = d.machine.lanes(compute_dtype(reduce.reducer.dtypes[0])), definition.axes[-1]
    terms = prod(sizes[b.name] or 1 for b in reduce.binders)
    number = prod(sizes[a] or 0 for a in definition.axes) * terms
    extent = sizes[row] or 1
    read = [r for b in reduce.body for r in reads(b)]
    windows = [r for r in read if not isinstance(r.index[-1], Dynamic) and row in affine.name_set(r.index[-1])]
    weights = len(read) - len(windows)
    loads = sum(_row_loads(d, definition, r, lanes) for r in windows)
    if terms > MOST_TERMS:
        loads += weights
    vectors = number / extent * -(-extent // lanes)
    in_rows = vectors * max(multiply_cycles(1), load_cycles(loads))
    in_blocks = number / lanes * max(multiply_cycles(1), load_cycles(len(windows)))
    return in_rows <= in_blocks + sum(_copy_cycles(d, name) for name in blocked.keys() - d.constants)


def _row_loads(d: Deriver, definition: Definition, read: Read, lanes: int) -> float:
    """Return the instructions that load a vector of windows along a row: a vector for each element that they lie apart. Where one vector is
    longer than the row and windows begin or end outside, every load is under a mask."""
    row, slot = definition.axes[-1], read.index[-1]
    assert not isinstance(slot, Dynamic)
    sizes = extents(definition)
    ranges = {name: (0, n - 1) for name, n in sizes.items() if n is not None}
    low, high = range_of(slot, ranges)
    extent = affine.constant(tensor_table(d.program)[read.tensor].shape[-1])
    inside = None not in (low, high, extent) and low >= 0 and high < extent  # type: ignore[operator]
    masked = not inside and (sizes[row] or lanes) < lanes
    return abs(step_inside(slot, row) or lanes) * (MASKED_VECTOR if masked else 1)


def _copy_cycles(d: Deriver, name: str) -> float:
    """Return what a kernel takes that copies a tensor into or out of blocks, each of whose elements is read and written."""
    size = bytes_of(d, (name,))
    return START_CYCLES + from_memory_cycles(2 * size, size, d.machine.l2_bytes)


def _wasted(d: Deriver, definition: Definition, c: Contraction, sizes: Mapping[str, int | None]) -> float:
    """Return the cycles that the lanes behind the last pixel take."""
    lanes = d.machine.lanes(compute_dtype(c.reduce.reducer.dtypes[0]))
    row = tuple(takewhile(lambda a: a in c.columns, reversed(definition.axes)))
    pixels = prod(sizes[a] or 0 for a in row)
    others = prod(sizes[a] or 0 for a in (*definition.axes, *c.inner) if a not in row)
    return multiply_cycles(others * (-(-pixels // lanes) - pixels / lanes))
