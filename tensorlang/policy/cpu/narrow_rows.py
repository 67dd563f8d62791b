"""Rows of few elements, as points and colours have: lanes are rows, and the elements of each are written out.

    q[n, i] = t[i] + sum(j) r[i, j] * p[n, j]        i, j in 0..3, or an equation for each i
                                                     split q.n by 16 -> n_o, n_v
                                                     order q.n_o, q.j, q.i_t, q.n_v;  unroll q.i_t, q.j;  vectorize q.n_v

Vectors along a row would be empty for the most part. Lanes that are rows read elements a few apart: whole vectors hold these, and are
shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from codegen.dtypes import compute_dtype
from codegen.loops.written_out import MOST_TERMS
from polyhedral import affine
from polyhedral.expr import Floor
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.inner_cost import InnerLoops
from tensorlang.policy.cpu.inner_loops import add_inner_loops
from tensorlang.policy.cpu.shared_sums import names_of_shared, shared_sums
from tensorlang.policy.deriver import Deriver, mark_parallel
from tensorlang.policy.pointwise import moves_one_by_one
from tensorlang.policy.scatters import ranges_of_data
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.tensor.nodes import Definition, Dynamic, Piece, Read
from tensorlang.tensor.walk import definition_reads, index_names, reads, reduces, tensor_table

MOST_ELEMENTS = 4
"""Of a row: of so many vectors one is made by shuffles."""


def has_narrow_rows(d: Deriver, definition: Definition) -> bool:
    """Tell whether a tensor is made of many rows of few elements, and all that lanes of rows read lies as near. Rows of which data say
    where their terms begin and end have few in common."""
    if len(definition.axes) < 2 or len(definition.tensors) != 1 or definition.tensors[0].name in d.open_rows:
        return False
    if any(affine.name_set(p.guard) - {definition.axes[-1]} for p in definition.pieces) or len({*map(_sums, definition.pieces)}) > 1:
        return False
    if d.layouts.keys() & {definition.tensors[0].name, *definition_reads(definition)}:
        return False
    sizes, (rows, last) = extents(definition), definition.axes[-2:]
    if rows in frozenset().union(*ranges_of_data(definition).values()):
        return False
    lanes = d.machine.lanes(compute_dtype(definition.tensors[0].dtype))
    if not 1 < (sizes[last] or 0) <= MOST_ELEMENTS or (sizes[rows] or OPEN_EXTENT) < 2 * lanes:
        return False
    found = [r for p in definition.pieces for r in reads(p.value) if rows in index_names(r)]
    return moves_one_by_one(d, definition, last) or all(_is_near(d, r, rows) for r in found)


def _sums(piece: Piece) -> bool:
    return any(True for _ in reduces(piece.value))


def _is_near(d: Deriver, read: Read, axis: str) -> bool:
    """Tell whether neighbours along an axis lie as few elements apart as a row has at most, wherever they begin, `u[n + k]`; `u[n // 2]` is
    the same for some of them."""
    shape = tensor_table(d.program)[read.tensor].shape
    places = [k for k, slot in enumerate(read.index) if isinstance(slot, Dynamic) or axis in affine.name_set(slot)]
    slot = read.index[places[0]] if len(places) == 1 else None
    if slot is None or isinstance(slot, Dynamic):
        return False
    walked = slot.value if isinstance(slot, Floor) else slot
    if axis in affine.name_set(affine.sub(walked, AffineName(axis))):
        return False
    behind = [affine.constant(extent) for extent in shape[places[0] + 1 :]]
    return all(e is not None for e in behind) and prod(e or 1 for e in behind) <= MOST_ELEMENTS


def add_narrow_rows(d: Deriver, definition: Definition, order: Sequence[str]) -> list[str]:
    """Add the inner loops of a tensor that has narrow rows, inside its axes in this order, of which the last are those of `definition`;
    return the loops outside of them, outermost first."""
    sizes, (rows, last) = extents(definition), definition.axes[-2:]
    vector = () if moves_one_by_one(d, definition, last) else (rows,)
    outer = add_inner_loops(d, definition, order, InnerLoops(vector, rows=((last, sizes[last] or 1),)))
    gone = names_of_shared(shared_sums(d, definition))
    binders = [b for p in definition.pieces for r in reduces(p.value) for b in r.binders if b.name not in gone]
    name = definition.tensors[0].name
    if binders and prod(sizes[b.name] or MOST_TERMS + 1 for b in binders) <= MOST_TERMS:
        d.add(d.schedule.unroll(*(full(name, b.name) for b in binders)))
    return outer


def derive_narrow_rows(d: Deriver, definition: Definition) -> None:
    """Add the directives for a tensor by itself that has narrow rows."""
    outer = add_narrow_rows(d, definition, definition.axes)
    sizes, (rows, last) = extents(definition), definition.axes[-2:]
    lanes = d.machine.lanes(compute_dtype(definition.tensors[0].dtype))
    known = {**sizes, f"{last}_o": 1, f"{rows}_o": -(-(sizes[rows] or OPEN_EXTENT) // lanes)}
    mark_parallel(d, (definition,), outer, known)
