"""Sums whose terms go to the elements that the same data name, in the same loop over terms: a table of groups with several columns.

    n[g] = sum(k, ids[k] == g) 1                                 order n.k, n.g;  order s.k, s.g
    s[g] = sum(k, ids[k] == g) x[k]                        →     together n, s -> k, g

Where neighbouring terms go to one element, each addition waits for the one before it to be stored; those of other sums are made meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.policy.deriver import Deriver, bytes_of, in_order
from tensorlang.policy.groups import FusionGroup
from tensorlang.policy.legality import is_proven
from tensorlang.policy.scatters import scattered_axes
from tensorlang.tensor.nodes import Definition, Reduce
from tensorlang.tensor.walk import component_of, definition_reads, is_recurrence, substitute


def with_shared_scatters(d: Deriver, groups: Sequence[FusionGroup]) -> list[FusionGroup]:
    """Return the groups with one for those sums that share their loops, where the caches of a core hold all of them."""
    found = list(groups)
    for group in groups:
        others = _alike(d, group.head) if any(g is group for g in found) else []
        touched = [g for g in found if any(g.head is m for m in (group.head, *others))]
        names = [m.tensors[0].name for m in (group.head, *others)]
        if len(touched) < 2 or any(len(g.members) > 1 or g.joint for g in touched) or bytes_of(d, names) > d.machine.l2_bytes:
            continue
        found[found.index(touched[-1])] = FusionGroup(group.head, (group.head, *others), len(group.head.axes), joint=True)
        found = [g for g in found if not any(g is other for other in touched)]
    return found


def derive_shared_scatters(d: Deriver, group: FusionGroup) -> bool:
    """Add the directives for sums that share their loops; tell whether they may."""
    first, *others = group.members
    if [m.tensors[0].name for m in _alike(d, first)] != [m.tensors[0].name for m in others]:
        return False
    before, loops = d.schedule, [_loops(m) for m in group.members]
    for m, own in zip(group.members, loops, strict=True):
        d.add(in_order(d.schedule, m.tensors[0].name, own))
    d.add(d.schedule.together(*(m.tensors[0].name for m in group.members), into=loops[0]))
    if not is_proven(d):
        d.schedule = before
    return d.schedule is not before


def _alike(d: Deriver, first: Definition) -> list[Definition]:
    """Return the sums after a definition over the same terms, which go to the same elements, and need nothing but what comes before it."""
    after = d.program.definitions[next(k for k, x in enumerate(d.program.definitions) if x is first) :]
    made, terms = {t.name for x in after for t in x.tensors}, _terms(d, first)
    free = [x for x in after[1:] if made.isdisjoint(definition_reads(x))] if terms is not None else []
    return [x for x in free if terms is not None and (found := _terms(d, x)) is not None and _same(first, terms, x, found)]


def _terms(d: Deriver, definition: Definition) -> Reduce | None:
    """Return the sum that a definition is, if data name its elements along all axes, and it lies in rows."""
    scattered, (piece, *more) = scattered_axes(definition), definition.pieces
    if more or scattered is None or len(scattered[0]) != len(definition.axes) or not isinstance(piece.value, Reduce):
        return None
    stored = d.layouts.keys() & {t.name for t in definition.tensors}
    return None if stored or is_recurrence(component_of(d.program, definition)) else piece.value


def _same(first: Definition, terms: Reduce, other: Definition, found: Reduce) -> bool:
    """Tell whether two sums have terms for the same indices, which data name alike."""
    shapes = first.tensors[0].shape, other.tensors[0].shape
    if (
        len(shapes[0]) != len(shapes[1])
        or len(terms.binders) != len(found.binders)
        or not all(affine.same(a, b) for a, b in zip(*shapes, strict=True))
    ):
        return False
    names = [*zip((b.name for b in found.binders), (b.name for b in terms.binders), strict=True), *zip(other.axes, first.axes, strict=True)]
    to = {own: Name(there) for own, there in names}

    ranges = [(affine.substitute(b.lo, to), affine.substitute(b.hi, to)) for b in found.binders]
    alike = ranges == [(b.lo, b.hi) for b in terms.binders] and affine.substitute_cond(found.where, to) == terms.where
    return alike and found.filter is not None and substitute(found.filter, to) == terms.filter


def _loops(definition: Definition) -> list[str]:
    (piece,) = definition.pieces
    assert isinstance(piece.value, Reduce)
    return [*(b.name for b in piece.value.binders), *definition.axes]
