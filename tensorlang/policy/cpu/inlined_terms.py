"""Rematerialisation: what sums need for each of their terms, and maps of the components of vectors and matrices, is made again where it is
read, where that is faster than to store it (Briggs, Cooper and Torczon 1992, of registers).

    w[i, t, k] = a[t, k] * x[i] + b[t, k]
    y[i]       = min(t, w[i, t, 0] >= 0, w[i, t, 1] >= 0) w[i, t, 2]     →     inline w

    d[t, c] = p[t, c] - q[t, c]
    y[t]    = d[t, 0] * d[t, 0] + d[t, 1] * d[t, 1]                      →     inline d

A tensor that sums read at their own points alone shares their loops (`loop_fusion`) and is left to that, one of which windows are read to
strips of rows (`strips`): each of its elements is needed for many terms. But one that is made in phases, as numbers of four bits are of
bytes, `q[k // 2]`, is made in those of a sum that reads each of its elements for one term.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from codegen.loops.written_out import MOST_TERMS
from polyhedral import affine
from polyhedral.expr import TRUE
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import from_memory_cycles
from tensorlang.policy.cpu.inner_loops import best_inner_loops, phases_along
from tensorlang.policy.deriver import Deriver, bytes_of, deriver_of, is_local
from tensorlang.schedule.shape import OPEN_EXTENT, extents, is_product
from tensorlang.tensor.dead_code import eliminate_dead
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Read
from tensorlang.tensor.simplify import can_inline, inline
from tensorlang.tensor.walk import definers, definition_reads, nodes, reads, reduces

MOST_READS = 8
"""How often a tensor may be written into what reads it: beyond that code grows, and little is gained."""
MOST_OPERATIONS = 16
"""Operations and reads of an element that is computed in its readers."""
MOST_NODES = 600
"""Operations and reads of a definition into which others are written: what is computed again is computed once, but looked at each time."""


def with_inlined_terms(d: Deriver) -> Deriver:
    """Return the state with tensors that sums read for their terms written into these, where that pays. Open sizes stay as they are: their
    loops are chosen for samples."""
    if d.open_extents:
        return d
    for definition in d.program.definitions:
        if _may_be_inlined(d, definition):
            name = definition.tensors[0].name
            made = lift(eliminate_dead(inline(d.program, name)))
            inlined = deriver_of(made, d.machine, d.layouts, d.constants, d.schedule.inline(name))
            grown = max((sum(1 for p in x.pieces for _ in nodes(p.value)) for x in made.definitions), default=0)
            gone = not any(name in definition_reads(x) for x in made.definitions)
            if gone and grown <= MOST_NODES and _takes_less(d, inlined, definition):
                return with_inlined_terms(inlined)
    return d


def _may_be_inlined(d: Deriver, definition: Definition) -> bool:
    """Tell whether a tensor is a map of which few elements are read for each term of some sums, or by maps, by nothing else, some at places
    that are the same for all of them, and no windows; or one in phases, of which each element is read for one term."""
    name = definition.tensors[0].name
    readers = [x for x in d.program.definitions if name in definition_reads(x)]
    if not is_local(d, definition) or not can_inline(definition) or not readers:
        return False
    is_whole = [p.guard for p in definition.pieces] == [TRUE]
    if is_whole and _is_for_one_term(definition, readers) and any(phases_along(definition, a) for a in definition.axes):
        return True
    if max(sum(1 for _ in nodes(p.value)) for p in definition.pieces) > MOST_OPERATIONS or any(map(_is_long_product, readers)):
        return False
    own = [r for x in readers for p in x.pieces for r in reads(p.value) if r.tensor == name]
    if not is_whole and not all(_tells_piece(definition, r) for r in own):
        return False
    made = [e for x in readers for p in x.pieces for e in (tuple[Expr, ...](reduces(p.value)) or (p.value,))]
    in_terms = [r for e in made for r in reads(e) if r.tensor == name]
    if len(own) != len(in_terms) or len({*own}) > MOST_READS or any(isinstance(s, Dynamic) for r in own for s in r.index):
        return False
    fixed = [[affine.constant(s) is not None for s in r.index if not isinstance(s, Dynamic | AffineName)] for r in own]
    return any(fixed) and all(all(known) for known in fixed)


def _tells_piece(definition: Definition, read: Read) -> bool:
    """Tell whether the place of an element says which piece it is of, as constants do where components have equations of their own."""
    known = {
        a
        for a, slot in zip(definition.axes, read.index, strict=True)
        if not isinstance(slot, Dynamic) and affine.constant(slot) is not None
    }
    return all(affine.name_set(p.guard) <= known for p in definition.pieces)


def _is_for_one_term(definition: Definition, readers: Sequence[Definition]) -> bool:
    """Tell whether one sum reads a tensor, and each of its elements for one of its terms alone."""
    (first, *others), name = readers, definition.tensors[0].name
    if others or len(first.pieces) != 1:
        return False
    of_tensor = {r for r in reads(first.pieces[0].value) if r.tensor == name}
    sums = [e for e in reduces(first.pieces[0].value) if any(r in of_tensor for r in reads(e))]
    if len(of_tensor) != 1 or len(sums) != 1:
        return False
    (read,) = of_tensor
    every = {*first.axes, *(b.name for b in sums[0].binders)}
    return (
        all(isinstance(slot, AffineName) for slot in read.index)
        and {slot.name for slot in read.index if isinstance(slot, AffineName)} == every
    )


def _is_long_product(definition: Definition) -> bool:
    """Tell whether a definition is a product of many terms, which has register tiles."""
    sizes = extents(definition)
    terms = (sizes[b.name] or OPEN_EXTENT for p in definition.pieces for r in reduces(p.value) for b in r.binders)
    return is_product(definition) and prod(terms) > MOST_TERMS


def _takes_less(d: Deriver, inlined: Deriver, definition: Definition) -> bool:
    """Tell whether a tensor takes more cycles to make, to store and to load than its readers, those that something needs, take for what
    they make of it again."""
    name, after = definition.tensors[0].name, definers(inlined.program)
    readers = [x for x in d.program.definitions if name in definition_reads(x) and x.tensors[0].name in after]
    size = bytes_of(d, (name,))
    before = _cycles(d, definition) + 2 * from_memory_cycles(size, size, d.machine.l2_bytes)
    before += sum(_cycles(d, x) for x in readers)
    return sum(_cycles(inlined, after[x.tensors[0].name]) for x in readers) < before


def _cycles(d: Deriver, definition: Definition) -> float:
    return _elements(definition) * best_inner_loops(d, definition, definition.axes).cycles


def _elements(definition: Definition) -> int:
    sizes = extents(definition)
    return prod(sizes[a] or OPEN_EXTENT for a in definition.axes)
