"""Loop fusion: tensors that need each other at their own points alone, or read the same, are computed in one loop nest.

    u[i] = x[i] - m                              together u, v, y -> i
    v[i] = x[i] / s                   →          split u.i by 16 -> i_o, i_v
    y[i] = u[i] * u[i] + v[i]                    vectorize u.i_v

What no caller asked for is then kept for the points of a vector, in registers, and what several read is loaded once. Only tensors without
sums, of one box, whose elements lie along memory like those that they read: there is nothing to turn, and no window that is worth a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.strips import Strip
from tensorlang.policy.deriver import Deriver, bytes_of, in_order, mark_parallel
from tensorlang.policy.groups import FusionGroup, recurs
from tensorlang.policy.pointwise import accesses_along, crossing_axis
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import definition_reads, reads, reduces

MOST_FUSED = 24
"""Tensors in one loop nest: what they compute for a point still finds registers, and what they read streams of the prefetcher."""


def fused(d: Deriver, strips: Sequence[Strip]) -> list[Strip]:
    """Return the strips with those joined that may share a loop nest, each where the last of its members was."""
    if d.plain:
        return list(strips)
    found: list[list[Strip]] = []
    for strip in strips:
        into = next((parts for parts in reversed(found) if _may_join(d, parts, strip)), None)
        if into is None:
            found.append([strip])
        else:
            found.remove(into)
            found.append([*into, strip])
    return [_joined(d, parts) for parts in found]


def _joined(d: Deriver, parts: Sequence[Strip]) -> Strip:
    members = _members(d, parts)
    if len(members) < 2 or not all(_is_simple(d, p) for p in parts):
        return parts[0]
    return Strip(FusionGroup(members[-1], members, len(members[-1].axes), fused=True))


def _members(d: Deriver, parts: Sequence[Strip]) -> tuple[Definition, ...]:
    """Return the definitions of some groups, in the order of the program."""
    names = {m.tensors[0].name for part in parts for m in part.group.members}
    return tuple(x for x in d.program.definitions if x.tensors[0].name in names)


def _may_join(d: Deriver, parts: Sequence[Strip], strip: Strip) -> bool:
    """Tell whether a group may share the loops of others before it: they read one another at their own points or the same tensors, and
    nothing outside has to run in between."""
    if not _is_simple(d, strip) or not all(_is_simple(d, p) for p in parts):
        return False
    before, added = _members(d, parts), strip.group.members
    members = _members(d, (*parts, strip))
    near = len(members) <= MOST_FUSED and all(_has_same_box(members[0], m) for m in members) and _reads_own_points(members)
    if not near or _vector_position(d, members) is None or not _is_free_between(d, members):
        return False
    made, read = {m.tensors[0].name for m in before}, {r for m in before for r in definition_reads(m)}
    return any(made & {*definition_reads(m)} or read & {*definition_reads(m)} for m in added)


def _is_simple(d: Deriver, strip: Strip) -> bool:
    """Tell whether all members of a group are computed point by point."""
    group = strip.group
    if strip.rows or group.transformed is not None or group.online is not None:
        return False
    return all(_is_pointwise(d, m) for m in group.members) and _reads_own_points(group.members)


def _is_pointwise(d: Deriver, definition: Definition) -> bool:
    name = definition.tensors[0].name
    if not definition.axes or len(definition.pieces) != 1 or len(definition.tensors) != 1 or name in d.separate:
        return False
    if recurs(d.program, definition) or d.layouts.keys() & {name, *definition_reads(definition)}:
        return False
    return not any(True for _ in reduces(definition.pieces[0].value))


def _has_same_box(a: Definition, b: Definition) -> bool:
    shapes = zip(a.tensors[0].shape, b.tensors[0].shape, strict=False)
    return len(a.axes) == len(b.axes) and all(affine.same(x, y) for x, y in shapes)


def _reads_own_points(members: Sequence[Definition]) -> bool:
    """Tell whether members read one another at their own points alone."""
    names = {m.tensors[0].name for m in members}
    return all(r.index == tuple(map(AffineName, m.axes)) for m in members for p in m.pieces for r in reads(p.value) if r.tensor in names)


def _is_free_between(d: Deriver, members: Sequence[Definition]) -> bool:
    """Tell whether nothing that is made of one member is made before the last of them."""
    names = {m.tensors[0].name for m in members}
    last = d.program.definitions.index(members[-1])
    between = (x for x in d.program.definitions[:last] if not {t.name for t in x.tensors} & names)
    return not any(names & {*definition_reads(x)} for x in between)


def _vector_position(d: Deriver, members: Sequence[Definition]) -> int | None:
    """Return the position of the axis along which vectors of all members take the fewest loads and stores; None where something would be
    turned."""
    count = len(members[0].axes)
    best = min(reversed(range(count)), key=lambda k: sum(accesses_along(d, m, m.axes[k]) for m in members))
    return best if all(crossing_axis(d, m, m.axes[best]) is None for m in members) else None


def derive_fused(d: Deriver, group: FusionGroup) -> None:
    """Add the directives for tensors that share a loop nest: vectors along the axis that most of them lie along in memory."""
    members, position = group.members, _vector_position(d, group.members)
    assert position is not None
    first = members[0]
    name, axis, sizes = first.tensors[0].name, first.axes[position], extents(first)
    d.add(d.schedule.together(*(m.tensors[0].name for m in members), into=first.axes))
    shared = (*members[1:], first)
    if sizes[axis] is not None and (sizes[axis] or 0) < 2:
        mark_parallel(d, shared, list(first.axes), sizes)
        return
    lanes = min(d.machine.lanes(compute_dtype(t.dtype)) for m in members for t in m.tensors)
    outer = [*(a for a in first.axes if a != axis), f"{axis}_o"]
    d.add(d.schedule.split(full(name, axis), lanes, (f"{axis}_o", f"{axis}_v")))
    d.add(in_order(d.schedule, name, [*outer, f"{axis}_v"]))
    d.add(d.schedule.vectorize(full(name, f"{axis}_v")))
    mark_parallel(d, shared, outer, {**sizes, f"{axis}_o": -(-(sizes[axis] or OPEN_EXTENT) // lanes)})
    large = [m.tensors[0].name for m in members if bytes_of(d, (m.tensors[0].name,)) > d.machine.cache_bytes]
    results = [n for n in large if n in d.program.results]
    d.add(d.schedule.stream(*results) if results else d.schedule)
