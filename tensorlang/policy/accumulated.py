"""Sums of all that a recurrence makes: each term is added where it is made, so that nothing of the recurrence has to be kept for them.

h[i, j] = f(h[i - 1, j - 1], h[i - 1, j], h[i, j - 1])
best    = max(i, j) h[i, j]                                   together h, best -> i, j
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from polyhedral import affine
from polyhedral.expr import Expr, Name
from tensorlang.tensor.nodes import Definition, Program, Read
from tensorlang.tensor.scop import in_order
from tensorlang.tensor.walk import components, definers, definition_reads, index_names, reads, reduces


def accumulations(program: Program, group: Sequence[Definition]) -> tuple[Definition, ...]:
    """Return the sums over all elements of tensors of `group`, where these are a recurrence of which nobody else reads more than single
    elements: each element is a term of its own, terms may come in any order, and need nothing that is made of the group later."""
    made = {t.name for d in group for t in d.tensors}
    local = made - {*program.results}
    if not any(made & definition_reads(d) for d in group):
        return ()
    readers = [d for d in program.definitions if not any(d is m for m in group) and made & definition_reads(d)]
    after = _made_of(program, made)
    found = tuple(d for d in readers if _accumulates(program, d, local, made, after - made))
    others = [d for d in readers if not any(d is x for x in found)]
    few = all(not index_names(r) for d in others for p in d.pieces for r in reads(p.value) if r.tensor in made)
    return found if few else ()


def _made_of(program: Program, names: Collection[str]) -> set[str]:
    """Return these tensors and all that are made of them."""
    found = set(names)
    for group in components(program):
        if any(found & definition_reads(d) for d in group):
            found |= {t.name for d in group for t in d.tensors}
    return found


def _accumulates(program: Program, definition: Definition, local: set[str], made: set[str], after: set[str]) -> bool:
    """Tell whether a definition is one sum over all elements of tensors of a recurrence."""
    if len(definition.tensors) > 1 or len(definition.pieces) != 1 or definition_reads(definition) & after:
        return False
    (piece,) = definition.pieces
    sums = list(reduces(piece.value))
    if len(sums) != 1 or in_order(sums[0].reducer, program.mode) or not made & definition_reads(definition) <= local:
        return False
    (total,) = sums
    extents = dict(zip(definition.axes, definition.tensors[0].shape, strict=True)) | {b.name: b.hi for b in total.binders}
    whole = all(affine.same(b.lo, affine.ZERO) for b in total.binders)
    inside = [r for e in (*total.body, *((total.filter,) if total.filter is not None else ())) for r in reads(e) if r.tensor in made]
    if not whole or len(inside) != sum(r.tensor in made for r in reads(piece.value)):
        return False
    table = definers(program)
    places = {frozenset(zip(table[r.tensor].axes, r.index, strict=True)) for r in inside}
    return len(places) == 1 and all(_is_whole(r, table[r.tensor].tensors[0].shape, extents) for r in inside)


def _is_whole(read: Read, shape: Sequence[Expr], extents: Mapping[str, Expr]) -> bool:
    """Tell whether a read goes through all elements of a tensor of this shape, one in each iteration of loops of these extents."""
    names = [s.name for s in read.index if isinstance(s, Name)]
    if len(names) < len(read.index) or {*names} != extents.keys() or len({*names}) < len(names):
        return False
    return all(affine.same(extents[name], n) for name, n in zip(names, shape, strict=True))
