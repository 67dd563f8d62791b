"""Definitions that are computed together, row by row: which they are, and their schedule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.inner_loops import add_inner_loops, best_inner_loops
from tensorlang.policy.cpu.narrow_rows import add_narrow_rows, has_narrow_rows
from tensorlang.policy.cpu.winograd import Transformed, transformed
from tensorlang.policy.deriver import Deriver, mark_parallel
from tensorlang.policy.pointwise import vector_axis
from tensorlang.policy.scatters import range_of_terms, scattered_axes
from tensorlang.schedule.shape import extents, innermost_axis, is_product, readers
from tensorlang.tensor.idioms import Online, online_of
from tensorlang.tensor.nodes import Definition, Dynamic, Program, Read
from tensorlang.tensor.walk import component_of, definition_reads, is_recurrence, reads

FEWEST_LANES = 4
"""Elements of a row of which vectors are made."""


@dataclass(frozen=True, slots=True)
class FusionGroup:
    """Definitions computed together: `head`, and `members` (it among them) that agree with it on `depth` leading axes, or that make up a
    contraction between transformations, or attention in one pass over the keys. `fused`: they share all their loops; `joint`:
    their steps, or terms that data name; `asked`: the last asks for few elements of the first."""

    head: Definition
    members: tuple[Definition, ...]
    depth: int
    transformed: Transformed | None = None
    online: Online | None = None
    fused: bool = False
    joint: bool = False
    asked: bool = False


def fusion_groups(d: Deriver, *, vectors: bool = True) -> list[FusionGroup]:
    """Return the definitions, each in one group. A tensor joins the group that holds all its readers when they read it at their own
    point along at least one leading axis; contractions, recurrences, scattered sums and tensors in pieces stay by themselves. All of a
    contraction between transformations is one group. `vectors`: an axis that vectors of a member run along is left to it."""
    program = d.program
    attention = online_of(program) if not vectors else None
    if attention is not None:
        return [FusionGroup(attention.result, attention.members, 0, online=attention)]
    found = transformed(program)
    if found is not None:
        return [FusionGroup(found.result, found.members, 0, found)]
    alone = {x.tensors[0].name for x in program.definitions if len(x.pieces) != 1 or recurs(program, x) or is_product(x)} | d.separate
    sent = (x for x in program.definitions if scattered_axes(x) is not None or range_of_terms(x) is not None or _is_across(d, x))
    alone |= {x.tensors[0].name for x in sent if vectors}
    readers_of = readers(program)
    taken: set[str] = set()
    out: list[FusionGroup] = []
    for head in reversed(program.definitions):
        name = head.tensors[0].name
        if name in taken:
            continue
        members, depth = [head], len(head.axes)
        for candidate in reversed(program.definitions) if name not in alone else ():
            made = candidate.tensors[0].name
            inside = {m.tensors[0].name for m in members}
            if made in taken or made in alone or made in inside or made in program.results or len(candidate.tensors) > 1:
                continue
            if not readers_of.get(made) or not set(readers_of[made]) <= inside:
                continue
            shared = min(depth, len(candidate.axes), *(agreement(m, candidate) for m in members if made in definition_reads(m)))
            if vectors:
                shared = _rows_shared(d, candidate, shared, len(head.axes))
            if shared > 0 and candidate.tensors[0].shape[:shared] == head.tensors[0].shape[:shared]:
                members.append(candidate)
                depth = shared
        if vectors and len(members) > 1 and not _has_lanes(members, depth):
            members, depth = [head], len(head.axes)
        taken |= {m.tensors[0].name for m in members}
        out.append(FusionGroup(head, tuple(reversed(members)), depth))
    return list(reversed(out))


def runs_between(others: Iterable[Sequence[FusionGroup]], groups: Sequence[FusionGroup]) -> bool:
    """Tell whether some of the others, each of which runs as a whole, would have to run between members of groups that run as one: they
    need what one makes, and make what another needs, be it by way of further ones."""
    waiting = [_made_and_read(x) for x in others]
    reached, needed = _made_and_read(groups)
    later: set[str] = set()
    while after := [(made, read) for made, read in waiting if read & reached]:
        later.update(*(made for made, _ in after))
        waiting = [x for x in waiting if x not in after]
        reached = later
    return bool(later & needed)


def _made_and_read(groups: Sequence[FusionGroup]) -> tuple[set[str], set[str]]:
    members = [m for g in groups for m in g.members]
    return {t.name for m in members for t in m.tensors}, {r for m in members for r in definition_reads(m)}


def recurs(program: Program, definition: Definition) -> bool:
    """Tell whether a definition needs itself, directly or by others."""
    return is_recurrence(component_of(program, definition))


def _rows_shared(d: Deriver, definition: Definition, shared: int, count: int) -> int:
    """Return how many of the `shared` leading axes of a definition and a reader with `count` axes remain, where vectors need one: of a
    point of both not the last, and not the axis along which vectors compute windows, as they lie, for which there are neighbours to read.
    """
    along = vector_axis(d, definition)
    if along not in definition.axes:
        return shared
    if along in definition.axes[:shared] and any(_is_window(r, along) for p in definition.pieces for r in reads(p.value)):
        return definition.axes.index(along)
    return shared - 1 if shared == count else shared


def _is_across(d: Deriver, definition: Definition) -> bool:
    """Tell whether a definition reads, or makes, a tensor whose neighbours in memory lie along another axis than its last one, as in blocks
    of channels: then elements of a row lie far apart, and lanes had better be elements of several rows."""
    stored = {definition.tensors[0].name, *definition_reads(definition)} & d.layouts.keys()
    return any(innermost_axis(d.layouts[name]) != d.axes[name][-1] for name in stored)


def _has_lanes(members: Sequence[Definition], depth: int) -> bool:
    """Tell whether lanes may be elements of rows, on `depth` axes, that members have or reduce, or rows, of which all read their own."""
    extent_of = [(name, e) for m in members for name, e in extents(m).items() if name not in m.axes[:depth]]
    return any(e is None or e >= FEWEST_LANES for _, e in extent_of) or all(reads_own_rows(m, m.axes[depth - 1]) for m in members)


def reads_own_rows(definition: Definition, row: str) -> bool:
    """Tell whether a definition reads along one axis at its own point alone, or what does not depend on that."""
    places = (s for p in definition.pieces for r in reads(p.value) for s in r.index)
    return all(s == AffineName(row) or (not isinstance(s, Dynamic) and row not in affine.name_set(s)) for s in places)


def _is_window(read: Read, axis: str) -> bool:
    """Tell whether what is read lies beside the point of an axis."""
    return any(not isinstance(s, Dynamic) and axis in affine.name_set(s) and s != AffineName(axis) for s in read.index)


def agreement(reader: Definition, read: Definition) -> int:
    """Return along how many leading axes `reader` reads `read` at its own point."""
    depth = len(read.axes)
    for piece in reader.pieces:
        for r in reads(piece.value):
            if r.tensor == read.tensors[0].name:
                same = 0
                for axis, slot in zip(reader.axes, r.index, strict=False):
                    if not (isinstance(slot, AffineName) and slot.name == axis):
                        break
                    same += 1
                depth = min(depth, same)
    return depth


def derive_rows(d: Deriver, group: FusionGroup) -> None:
    head, depth = group.head, group.depth
    name = head.tensors[0].name
    loop = head.axes[depth - 1]
    for definition in group.members:
        if definition is not head:
            d.add(d.schedule.at(definition.tensors[0].name, f"{name}.{loop}"))
        inside = definition.axes[depth:]
        if len(inside) >= 2 and has_narrow_rows(d, definition):
            add_narrow_rows(d, definition, inside)
        else:
            add_inner_loops(d, definition, inside, best_inner_loops(d, definition, inside))
    mark_parallel(d, (*(m for m in group.members if m is not head), head), list(head.axes[:depth]), extents(head))
