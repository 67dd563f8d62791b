"""Write a reduction where it is read, so that what follows it happens on its accumulator, and what is only moved where it goes.

    before   t[i, j] = sum(k) x[i, k] * w[k, j]          y[i, j] = max(t[i, j] + b[j], 0)
    after    y[i, j] = max((sum(k) x[i, k] * w[k, j]) + b[j], 0)

A tensor is absorbed when it is no result, has one unguarded equation, and is read by one equation, at that equation's own point: every
axis of the reader once, over the same box. So nothing is computed twice, and a register tile can finish its elements before it stores
them. What the reader uses several times is bound by a `let`. A narrow float tensor rounds what it holds: the rounding becomes a cast.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.expr import TRUE
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Cast, Definition, Dynamic, Expr, Let, Name, Program, Read, Reduce
from tensorlang.tensor.walk import (
    components,
    definers,
    definition_reads,
    fresh_for,
    is_recurrence,
    map_children,
    reads,
    reduces,
    refresh,
    substitute,
)


def absorb(program: Program) -> Program:
    """Return `program` with such tensors absorbed by their readers; results stay the same, bit for bit."""
    recurring = [{t.name for d in group for t in d.tensors} for group in components(program) if is_recurrence(group)]
    for definition in program.definitions:
        name = definition.tensors[0].name
        if any(name not in group and name in definition_reads(definers(program)[t]) for group in recurring for t in group):
            continue
        made = absorbed(program, definition)
        if made is not None:
            return absorb(made)
    return program


def absorbed(program: Program, definition: Definition) -> Program | None:
    """Return `program` with one of its definitions absorbed by what reads it, or None where that is not possible."""
    for reader in program.definitions:
        value = _absorbed(program, definition, reader)
        if value is not None:
            rest = (
                replace(d, pieces=(replace(d.pieces[0], value=value),)) if d is reader else d
                for d in program.definitions
                if d is not definition
            )
            return redefined(program, rest)
    return None


def _absorbed(program: Program, definition: Definition, reader: Definition) -> Expr | None:
    """Return the reader's value with the definition written in it, or None when that is not possible."""
    name = definition.tensors[0].name
    if reader is definition or name in program.results or len(definition.tensors) != 1 or name not in definition_reads(reader):
        return None
    if any(name in definition_reads(d) for d in program.definitions if d is not reader):
        return None
    if len(definition.pieces) != 1 or definition.pieces[0].guard != TRUE or len(reader.pieces) != 1 or reader.pieces[0].guard != TRUE:
        return None
    moves = isinstance(reader.pieces[0].value, Read)
    if name in definition_reads(definition) or not (moves or any(True for _ in reduces(definition.pieces[0].value))):
        return None
    everywhere = [r for d in program.definitions for p in d.pieces for r in reads(p.value) if r.tensor == name]
    if len({r.index for r in everywhere}) != 1 or any(r.tensor == name for e in reduces(reader.pieces[0].value) for r in reads(e)):
        return None
    to = _point(definition, reader, everywhere[0])
    if to is None:
        return None
    tensor = definition.tensors[0]
    value = substitute(definition.pieces[0].value, {**{axis: AffineName(axis) for axis in reader.axes}, **to})  # no binder hides an axis
    if _binders(value) & _binders(reader.pieces[0].value):
        value = refresh(value, fresh_for(program))
    if compute_dtype(tensor.dtype) != tensor.dtype:
        value = Cast(tensor.dtype, value)
    if len(everywhere) == 1:
        return _replace(reader.pieces[0].value, everywhere[0], value)
    shared = fresh_for(program)(name)
    return Let(shared, value, _replace(reader.pieces[0].value, everywhere[0], Name(shared)))


def _binders(e: Expr) -> set[str]:
    return {binder.name for reduction in reduces(e) for binder in reduction.binders}


def _point(definition: Definition, reader: Definition, read: Read) -> dict[str, Affine] | None:
    """Return the definition's axes in terms of the reader's, when the read visits each element of the box once."""
    extents = dict(zip(reader.axes, reader.tensors[0].shape, strict=True))
    to: dict[str, Affine] = {}
    used: set[str] = set()
    for axis, extent, slot in zip(definition.axes, definition.tensors[0].shape, read.index, strict=True):
        if isinstance(slot, Dynamic):
            return None
        if isinstance(slot, AffineName) and slot.name in extents and slot.name not in used and extents[slot.name] == extent:
            used.add(slot.name)
        elif not (affine.constant(slot) == 0 and affine.constant(extent) == 1):
            return None
        to[axis] = slot
    left = [a for a in reader.axes if a not in used and affine.constant(extents[a]) != 1]
    return None if left else to


def _replace(e: Expr, read: Read, value: Expr) -> Expr:
    match e:
        case Read() if e == read:
            return value
        case Reduce():
            return e
        case _:
            return map_children(lambda child: _replace(child, read, value), e)
