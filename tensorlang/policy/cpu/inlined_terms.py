"""Rematerialisation: what sums need for each of their terms is made again where it is read, where that is faster than to store it (Briggs,
Cooper and Torczon 1992, of registers).

    w[i, t, k] = a[t, k] * x[i] + b[t, k]
    y[i]       = min(t, w[i, t, 0] >= 0, w[i, t, 1] >= 0) w[i, t, 2]     →     inline w

A tensor that sums read at their own points alone shares their loops (`loop_fusion`) and is left to that, one of which windows are read to
strips of rows (`strips`): each of its elements is needed for many terms.
"""

from __future__ import annotations

from math import prod

from codegen.loops.written_out import MOST_TERMS
from polyhedral import affine
from polyhedral.expr import TRUE
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import from_memory_cycles
from tensorlang.policy.cpu.inner_loops import best_inner_loops
from tensorlang.policy.deriver import Deriver, bytes_of, deriver_of, is_local
from tensorlang.schedule.shape import OPEN_EXTENT, extents, is_product
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Definition, Dynamic
from tensorlang.tensor.simplify import can_inline, inline
from tensorlang.tensor.walk import definers, definition_reads, nodes, reads, reduces

MOST_READS = 8
"""How often a tensor may be written into what reads it: beyond that code grows, and little is gained."""
MOST_OPERATIONS = 16
"""Operations and reads of an element that is computed in its readers."""


def with_inlined_terms(d: Deriver) -> Deriver:
    """Return the state with tensors that sums read for their terms written into these, where that pays. Open sizes stay as they are: their
    loops are chosen for samples."""
    if d.open_extents:
        return d
    for definition in d.program.definitions:
        if _may_be_inlined(d, definition):
            name = definition.tensors[0].name
            made = lift(inline(d.program, name))
            inlined = deriver_of(made, d.machine, d.layouts, d.constants, d.schedule.inline(name))
            if not any(name in definition_reads(x) for x in made.definitions) and _takes_less(d, inlined, definition):
                return with_inlined_terms(inlined)
    return d


def _may_be_inlined(d: Deriver, definition: Definition) -> bool:
    """Tell whether a tensor is a map of which few elements are read for each term of some sums, by nothing else, some at places that
    are the same for all of them, and no windows."""
    name = definition.tensors[0].name
    readers = [x for x in d.program.definitions if name in definition_reads(x)]
    if not is_local(d, definition) or not can_inline(definition) or [p.guard for p in definition.pieces] != [TRUE] or not readers:
        return False
    if sum(1 for _ in nodes(definition.pieces[0].value)) > MOST_OPERATIONS or any(map(_is_long_product, readers)):
        return False
    own = [r for x in readers for p in x.pieces for r in reads(p.value) if r.tensor == name]
    in_terms = [r for x in readers for p in x.pieces for e in reduces(p.value) for r in reads(e) if r.tensor == name]
    if len(own) != len(in_terms) or len({*own}) > MOST_READS or any(isinstance(s, Dynamic) for r in own for s in r.index):
        return False
    fixed = [[affine.constant(s) is not None for s in r.index if not isinstance(s, Dynamic | AffineName)] for r in own]
    return any(fixed) and all(all(known) for known in fixed)


def _is_long_product(definition: Definition) -> bool:
    """Tell whether a definition is a product of many terms, which has register tiles."""
    sizes = extents(definition)
    terms = (sizes[b.name] or OPEN_EXTENT for p in definition.pieces for r in reduces(p.value) for b in r.binders)
    return is_product(definition) and prod(terms) > MOST_TERMS


def _takes_less(d: Deriver, inlined: Deriver, definition: Definition) -> bool:
    """Tell whether a tensor takes more cycles to make, to store and to load than its readers take for what they make of it again."""
    name = definition.tensors[0].name
    readers = [x.tensors[0].name for x in d.program.definitions if name in definition_reads(x)]
    size = bytes_of(d, (name,))
    before = _cycles(d, definition) + 2 * from_memory_cycles(size, size, d.machine.l2_bytes)
    before += sum(_cycles(d, definers(d.program)[r]) for r in readers)
    return sum(_cycles(inlined, definers(inlined.program)[r]) for r in readers) < before


def _cycles(d: Deriver, definition: Definition) -> float:
    return _elements(definition) * best_inner_loops(d, definition, definition.axes).cycles


def _elements(definition: Definition) -> int:
    sizes = extents(definition)
    return prod(sizes[a] or OPEN_EXTENT for a in definition.axes)
