"""Tensors without the axes along which all their elements are the same: what a loop does not change is computed once (loop-invariant code
motion, of whole recurrences).

    before   p[t, i, 0] = 0          p[t, i, j] = c / (b - c * p[t, i, j - 1])          v[t, j, i] = p[t, i, j] * …
    after    p[0] = 0                p[j] = c / (b - c * p[j - 1])                      v[t, j, i] = p[j] * …
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Program, Read, Slot
from tensorlang.tensor.walk import definers, definition_reads, index_names, map_pieces, reads, substitute_reads

Axis: TypeAlias = tuple[str, str]
"""A tensor, and one of its axes."""


def invariant_axes(program: Program, group: Sequence[Definition]) -> tuple[Axis, ...]:
    """Return the most axes of the tensors of `group` along which all elements of each are the same. Results keep theirs."""
    local = [d for d in group if _why_fixed(program, d) is None]
    axes = {(d.tensors[0].name, axis) for d in local for axis in d.axes}
    # What varies makes what is made of it vary: until nothing new does.
    while varying := set(_varying(program, axes)):
        axes -= varying
    return tuple(found for d in local for axis in d.axes if (found := (d.tensors[0].name, axis)) in axes)


def without_axes(program: Program, axes: Collection[Axis]) -> Program | str:
    """Return `program` with tensors that lack these axes, or the reason why they cannot."""
    table = definers(program)
    for tensor, axis in axes:
        if tensor not in table or axis not in table[tensor].axes:
            return f"there is no tensor `{tensor}` with an axis `{axis}` defined here"
        why = _why_fixed(program, table[tensor])
        if why is not None:
            return why
    varying = next(_varying(program, axes), None)
    if varying is not None:
        return f"elements of `{varying[0]}` differ along `{varying[1]}`"

    def on_definition(d: Definition) -> Definition:
        name, read = d.tensors[0].name, map_pieces(d, lambda e: _read_without(table, e, axes))
        kept = [k for k, axis in enumerate(d.axes) if (name, axis) not in axes]
        if len(kept) == len(d.axes):
            return read
        tensor = replace(d.tensors[0], shape=tuple(d.tensors[0].shape[k] for k in kept))
        return replace(read, tensors=(tensor,), axes=tuple(d.axes[k] for k in kept))

    return redefined(program, map(on_definition, program.definitions))


def _why_fixed(program: Program, definition: Definition) -> str | None:
    """Return why a definition keeps its axes whatever they are; None where it need not."""
    if len(definition.tensors) > 1:
        return f"`{definition.tensors[0].name}` is one of several tensors that are computed together"
    name = definition.tensors[0].name
    return f"`{name}` is a result, of which every element is stored" if name in program.results else None


def _varying(program: Program, axes: Collection[Axis]) -> Iterator[Axis]:
    """Yield those of `axes` along which elements may differ: equations use them otherwise than for elements of these tensors at the same
    place, or read elements of these tensors at another place than their own, or at one that data name."""
    table, moved = definers(program), {tensor for tensor, _ in axes}
    for d in program.definitions:
        name = d.tensors[0].name
        if name not in moved and moved.isdisjoint(definition_reads(d)):
            continue
        for piece in d.pieces:
            lost = (((r.tensor, a), slot) for r in reads(piece.value) for slot, a in _indexed(table, r) if (r.tensor, a) in axes)
            for found, slot in lost:
                own = isinstance(slot, Name) and (name, slot.name) in axes
                if isinstance(slot, Dynamic) or (name in moved and not own):
                    yield found
            used = affine.name_set(piece.guard) | index_names(_read_without(table, piece.value, axes))
            yield from ((name, a) for a in d.axes if (name, a) in axes and a in used)


def _indexed(table: dict[str, Definition], read: Read) -> Iterator[tuple[Slot, str]]:
    """Yield the indices of a read of a tensor that is defined here, each with its axis."""
    if read.tensor in table:
        yield from zip(read.index, table[read.tensor].axes, strict=True)


def _read_without(table: dict[str, Definition], e: Expr, axes: Collection[Axis]) -> Expr:
    """Return `e` with reads that lack the indices of `axes`."""
    moved = {tensor for tensor, _ in axes}

    def on_read(read: Read) -> Expr:
        if read.tensor not in moved:
            return read
        return replace(read, index=tuple(slot for slot, a in _indexed(table, read) if (read.tensor, a) not in axes))

    return substitute_reads(e, on_read)
