"""Sums that are asked for: of which others ask for few, as data say (`tensorlang.policy.asked`). They are computed in the loops that ask.

    y[i] = sum(k, start[i] <= k, k < start[i + 1]) sqrt(sum(c) sq(x[i, c] - z[k, c]))

    at y.sum in y at k      for each term of a range, rather than for all `k` of each `i`

The loops over the range stay loops: vectors go along an axis of the sum outside, or along the terms of the one inside. What a condition
asks of a term it then asks of the sum that was computed for it, too (`codegen.loops.sink`).
"""

from __future__ import annotations

from collections.abc import Sequence

from polyhedral.expr import Name
from tensorlang.policy.asked import asks_in_one_sum, is_sparse
from tensorlang.policy.cpu.inner_loops import add_inner_loops, best_inner_loops
from tensorlang.policy.cpu.nests import lanes_of_row
from tensorlang.policy.deriver import Deriver, in_order, is_local, mark_parallel
from tensorlang.policy.groups import FusionGroup, recurs
from tensorlang.policy.scatters import ranges_of_data, scattered_axes
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import extents, readers
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import definers, reads, reduces


def with_asked_sums(d: Deriver, groups: Sequence[FusionGroup]) -> list[FusionGroup]:
    """Return the groups with one for each sum that asks for few elements of others and for these, where it was."""
    alone = {g.head.tensors[0].name for g in groups if g.members == (g.head,)}
    asked: dict[str, list[Definition]] = {}
    for made in d.program.definitions:
        reader = _asking(d, made)
        if reader is not None and {made.tensors[0].name, reader.tensors[0].name} <= alone:
            asked.setdefault(reader.tensors[0].name, []).append(made)
    gone = {made.tensors[0].name for every in asked.values() for made in every}
    return [_with(g, asked.get(g.head.tensors[0].name, ())) for g in groups if g.head.tensors[0].name not in gone]


def _with(group: FusionGroup, asked: Sequence[Definition]) -> FusionGroup:
    return FusionGroup(group.head, (*asked, group.head), 0, asked=True) if asked else group


def _asking(d: Deriver, made: Definition) -> Definition | None:
    """Return the one definition that asks for elements of a sum, few of them and each at one place of a sum of its own; None where there is
    none."""
    name, by_name = made.tensors[0].name, definers(d.program)
    read_by = readers(d.program).get(name, [])
    if len(read_by) != 1 or len(made.tensors) > 1 or not is_local(d, made) or recurs(d.program, made):
        return None
    reader = by_name[read_by[0]]
    if not asks_in_one_sum(reader, name) or recurs(d.program, reader) or not is_sparse(d.program, made):
        return None
    places = {r.index for r in reads(reader.pieces[0].value) if r.tensor == name}
    return reader if len(places) == 1 and all(isinstance(slot, Name) for index in places for slot in index) else None


def derive_asked_sum(d: Deriver, group: FusionGroup) -> None:
    """Schedule a sum that asks, term by term, and for each term the sums that it asks for."""
    *asked, reader = group.members
    name, sizes, value = reader.tensors[0].name, extents(reader), reader.pieces[0].value
    scattered = scattered_axes(reader)
    named, indexed = scattered if scattered is not None else ((), frozenset().union(*ranges_of_data(reader).values()))
    outer = [a for a in reader.axes if a in indexed]
    terms = [*outer, *(b.name for e in reduces(value) for b in e.binders), *named]
    inner = rest = [a for a in reader.axes if a not in terms]
    lanes = lanes_of_row(sizes[rest[-1]], d.lanes_of(reader)) if rest else 1
    if lanes > 1:
        *before, last = rest
        d.add(d.schedule.split(full(name, last), lanes, (f"{last}_o", f"{last}_v")))
        inner = [*before, f"{last}_o", f"{last}_v"]
    d.add(in_order(d.schedule, name, [*terms, *inner]))
    if lanes > 1:
        d.add(d.schedule.vectorize(full(name, inner[-1])))
    for made in asked:
        d.add(d.schedule.at(made.tensors[0].name, full(name, terms[-1])))
        place = next(r.index for r in reads(value) if r.tensor == made.tensors[0].name)
        free = [a for a, slot in zip(made.axes, place, strict=True) if isinstance(slot, Name) and slot.name in rest]
        add_inner_loops(d, made, free, best_inner_loops(d, made, free))
    mark_parallel(d, group.members, outer, sizes)
