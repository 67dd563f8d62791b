"""Which tensors a kernel had better take and return row-major, though its schedule would like them in blocks of channels.

    y[f, p] = sum(c) w[f, c] * x[c, p]        a product of matrices: vectors of pixels need no block of channels

What is row-major whatever the kernel prefers (what a model takes and returns) is copied into blocks before the kernel and out of them after
it, which takes a fifth of the time of a convolution of one point. Rows of x can be read where they are in either case: scalars for vectors
of channels, vectors for scalars of weights. So the copy of the result stands against what vectors of pixels waste on the last of them.
Windows of every channel alone (depthwise convolution, pooling) slide along rows as well as along channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from math import prod

from codegen.dtypes import compute_dtype
from codegen.loops.dots import group
from tensorlang.policy.cpu.cost import COPY_BYTES, multiply_cycles
from tensorlang.policy.deriver import Deriver, bytes_of
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.shape import Contraction, contraction, extents, unit_stride
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import reads, tensor_table

WASTE = 1.2
"""How many times the lanes of a row's vectors may be its elements."""


def left_row_major(d: Deriver, definition: Definition, blocked: Mapping[str, Layout], fixed: frozenset[str]) -> frozenset[str]:
    """Return those of `blocked` to leave row-major, as those in `fixed` are."""
    result = definition.tensors[0]
    given = {r.tensor for p in definition.pieces for r in reads(p.value)} & blocked.keys() - d.constants
    c = contraction(definition, definition.axes[-1])
    if not {*given, result.name} <= fixed:
        return frozenset()
    if c is None:
        return frozenset(blocked) if _in_rows(d, definition) else frozenset()
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


def _in_rows(d: Deriver, definition: Definition) -> bool:
    """Tell whether windows that every channel has for itself slide along rows of vectors: no products of two tensors along other axes, and
    few lanes behind the end of a row."""
    sizes = extents(definition)
    row = sizes[definition.axes[-1]] or 0
    product = any(contraction(definition, axis) is not None for axis in definition.axes if sizes[axis] != 1)
    lanes = d.machine.lanes(compute_dtype(definition.tensors[0].dtype))
    return not product and row >= lanes and -(-row // lanes) * lanes <= WASTE * row


def _wasted(d: Deriver, definition: Definition, c: Contraction, sizes: Mapping[str, int | None]) -> float:
    """Return the cycles that the lanes behind the last pixel take."""
    lanes = d.machine.lanes(compute_dtype(c.reduce.reducer.dtypes[0]))
    row = tuple(takewhile(lambda a: a in c.columns, reversed(definition.axes)))
    pixels = prod(sizes[a] or 0 for a in row)
    others = prod(sizes[a] or 0 for a in (*definition.axes, *c.inner) if a not in row)
    return multiply_cycles(others * (-(-pixels // lanes) - pixels / lanes))
