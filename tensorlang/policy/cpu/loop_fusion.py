"""Loop fusion: tensors that need each other at their own points alone, or read the same, are computed in one loop nest.

    u[i] = x[i] - m                              together u, v, y -> i
    v[i] = x[i] / s                   →          split u.i by 16 -> i_o, i_v
    y[i] = u[i] * u[i] + v[i]                    vectorize u.i_v

What no caller asked for is then kept for the points of a vector, in registers, and what several read is loaded once. Sums over the same
ranges share these loops, too: what both compute of a term is computed once.

    n[i] = sum(p) f(x[i + p]) * x[i + p]         together n, d, y -> i
    d[i] = sum(p) f(x[i + p])         →          together n, d -> p
    y[i] = n[i] / d[i]                           order n.i_o, n.p, n.i_v

Only tensors of one box, whose elements lie along memory like those that they read: there is nothing to turn. Products, which find register
tiles of their own, and sums along rows of several tensors stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.inner_loops import InnerLoops, best_inner_loops, cycles_of
from tensorlang.policy.cpu.narrow_rows import has_narrow_rows
from tensorlang.policy.cpu.strips import Strip
from tensorlang.policy.deriver import Deriver, bytes_of, mark_parallel
from tensorlang.policy.groups import FusionGroup, recurs
from tensorlang.policy.pointwise import accesses_along, crossing_axis
from tensorlang.schedule.directives.loops import MOST_LANES
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import OPEN_EXTENT, extents, is_product
from tensorlang.tensor.nodes import Definition, Dynamic, Read, Reduce
from tensorlang.tensor.scop import in_order as keeps_order
from tensorlang.tensor.walk import components, definition_reads, reads, reduces

MOST_FUSED = 24
"""Tensors in one loop nest: what they compute for a point still finds registers, and what they read streams of the prefetcher."""
WORTH_FUSING = 2.0
"""How many times the cycles of their own loops sums of the same elements may take in those that they share, before what is loaded and
computed once is taken off: measured, as sums of a window and of its squares take 0.57 of the time of their own loops."""


@dataclass(frozen=True, slots=True)
class SharedLoops:
    """How tensors run together: vectors of `lanes` elements along the axis at `position`, or along the last binder of sums (None)."""

    position: int | None
    lanes: int


def fused(d: Deriver, strips: Sequence[Strip]) -> list[Strip]:
    """Return the strips with those joined that may share a loop nest, each where the last of its members was."""
    if d.plain:
        return list(strips)
    found: list[list[Strip]] = []
    simple = {id(strip) for strip in strips if _is_simple(d, strip)}
    for strip in strips:
        others = (parts for parts in reversed(found) if id(parts[0]) in simple) if id(strip) in simple else ()
        into = next((parts for parts in others if _may_join(d, parts, strip)), None)
        if into is None:
            found.append([strip])
        else:
            found.remove(into)
            found.append([*into, strip])
    return [_joined(d, parts) if id(parts[0]) in simple else parts[0] for parts in found]


def _joined(d: Deriver, parts: Sequence[Strip]) -> Strip:
    members = _members(d, parts)
    if len(members) < 2 or shared_loops_of(d, members) is None:
        return parts[0]
    return Strip(FusionGroup(members[-1], members, len(members[-1].axes), fused=True))


def _members(d: Deriver, parts: Sequence[Strip]) -> tuple[Definition, ...]:
    """Return the definitions of some groups, in the order in which tensors are computed."""
    names = {m.tensors[0].name for part in parts for m in part.group.members}
    return tuple(x for x in _computed(d) if x.tensors[0].name in names)


def _computed(d: Deriver) -> list[Definition]:
    """Return all definitions in the order in which they are computed, unless directives say another."""
    return [x for group in components(d.program) for x in group]


def _may_join(d: Deriver, parts: Sequence[Strip], strip: Strip) -> bool:
    """Tell whether a simple group may share the loops of others before it: they read one another at their own points or the same tensors,
    and nothing outside has to run in between."""
    before, added = _members(d, parts), strip.group.members
    members = _members(d, (*parts, strip))
    near = len(members) <= MOST_FUSED and all(_has_same_box(members[0], m) for m in members) and _reads_own_points(members)
    if not near or not _is_free_between(d, members) or not _has_own_binders(members):
        return False
    made, read = {m.tensors[0].name for m in before}, {r for m in before for r in definition_reads(m)}
    common = any(made & {*definition_reads(m)} or read & {*definition_reads(m)} for m in added)
    return common and shared_loops_of(d, members) is not None


def _is_simple(d: Deriver, strip: Strip) -> bool:
    """Tell whether each member of a group may share its loops."""
    group = strip.group
    if strip.rows or group.transformed is not None or group.online is not None:
        return False
    return all(_is_single(d, m) for m in group.members) and _reads_own_points(group.members) and _has_own_binders(group.members)


def _is_single(d: Deriver, definition: Definition) -> bool:
    """Tell whether all elements of a tensor are computed alike, with one sum at most, whose terms may be added up in any order."""
    name = definition.tensors[0].name
    if len(definition.pieces) != 1 or len(definition.tensors) != 1 or name in d.separate or recurs(d.program, definition):
        return False
    if d.layouts.keys() & {name, *definition_reads(definition)} or has_narrow_rows(d, definition):
        return False
    found = list(reduces(definition.pieces[0].value))
    if not found:
        return bool(definition.axes)
    (first, *others) = found
    plain = first.reducer.kind in ("sum", "prod", "min", "max") and len(first.body) == 1 and first.filter is None and first.init is None
    return plain and not others and not keeps_order(first.reducer, d.program.mode) and not is_product(definition)


def _sum(definition: Definition) -> Reduce | None:
    return next(reduces(definition.pieces[0].value), None)


def _has_same_box(a: Definition, b: Definition) -> bool:
    shapes = zip(a.tensors[0].shape, b.tensors[0].shape, strict=False)
    return len(a.axes) == len(b.axes) and all(affine.same(x, y) for x, y in shapes)


def _has_own_binders(members: Sequence[Definition]) -> bool:
    """Tell whether no range of a sum depends on where it is, and no binder is called like an axis."""
    axes = {a for m in members for a in m.axes}
    found = [b for m in members for r in reduces(m.pieces[0].value) for b in r.binders]
    return not any(b.name in axes or axes & (affine.name_set(b.lo) | affine.name_set(b.hi)) for b in found)


def _reads_own_points(members: Sequence[Definition]) -> bool:
    """Tell whether members read one another at their own points alone."""
    names = {m.tensors[0].name for m in members}
    return all(r.index == tuple(map(AffineName, m.axes)) for m in members for p in m.pieces for r in reads(p.value) if r.tensor in names)


def _is_free_between(d: Deriver, members: Sequence[Definition]) -> bool:
    """Tell whether nothing that is made of one member is made before the last of them."""
    names = {m.tensors[0].name for m in members}
    every = _computed(d)
    between = (x for x in every[: every.index(members[-1])] if not {t.name for t in x.tensors} & names)
    return not any(names & {*definition_reads(x)} for x in between)


def shared_loops_of(d: Deriver, members: Sequence[Definition]) -> SharedLoops | None:
    """Return how members run together; None where loops of their own are better."""
    lanes = min(d.lanes_of(m) for m in members)
    sums = [m for m in members if _sum(m) is not None]
    position = _position(d, members) if members[0].axes else None
    if not sums:
        return SharedLoops(position, lanes) if position is not None else None
    own = [best_inner_loops(d, m, m.axes) for m in sums]
    vectors = max(1, min(MOST_LANES // lanes, d.machine.vector_registers // (2 * len(sums))))
    if position is None or any(x.vector != (m.axes[position],) for m, x in zip(sums, own, strict=True)):
        along = all(x.vector == (_last_binder(m),) for m, x in zip(sums, own, strict=True))
        one = not members[0].axes and len(_in_turn(members)) == 1
        return SharedLoops(None, lanes * vectors) if along and one else None
    extent = extents(members[0])[members[0].axes[position]] or OPEN_EXTENT
    vectors = next((n for n in (4, 2) if n <= vectors and n * lanes <= extent), 1)
    together = [cycles_of(d, m, InnerLoops((m.axes[position],), vectors)) for m in sums]
    most = WORTH_FUSING if all(_reads_alike(alike) for alike in _classes(members)) else 1.0
    worth = not any(x.packed for x in own) and sum(together) <= most * sum(x.cycles for x in own)
    return SharedLoops(position, lanes * vectors) if worth else None


def _last_binder(definition: Definition) -> str:
    found = _sum(definition)
    assert found is not None
    return found.binders[-1].name if found.binders else ""


def _classes(members: Sequence[Definition]) -> Iterator[list[Definition]]:
    """Yield the members that sum, those together whose sums run over the same ranges."""
    found: dict[tuple[tuple[Affine, Affine], ...], list[Definition]] = {}
    for m in members:
        for r in reduces(m.pieces[0].value):
            found.setdefault(tuple((b.lo, b.hi) for b in r.binders), []).append(m)
    yield from found.values()


def _reads_alike(alike: Sequence[Definition]) -> bool:
    """Tell whether sums over the same ranges read an element in common in each step."""
    found: list[set[Read]] = []
    for m in alike:
        to = {a: AffineName(f"{k} axis") for k, a in enumerate(m.axes)}
        for r in reduces(m.pieces[0].value):
            places = {**to, **{b.name: AffineName(f"{k} binder") for k, b in enumerate(r.binders)}}
            found.append({_renamed(read, places) for b in r.body for read in reads(b)})
    return len(found) < 2 or bool(set.intersection(*found))


def _renamed(read: Read, to: dict[str, AffineName]) -> Read:
    return replace(read, index=tuple(s if isinstance(s, Dynamic) else affine.substitute(s, to) for s in read.index))


def _position(d: Deriver, members: Sequence[Definition]) -> int | None:
    """Return the position of the axis along which vectors of all members take the fewest loads and stores; None where something would be
    turned."""
    count = len(members[0].axes)
    best = min(reversed(range(count)), key=lambda k: sum(accesses_along(d, m, m.axes[k]) for m in members))
    return best if all(crossing_axis(d, m, m.axes[best]) is None for m in members) else None


def derive_fused(d: Deriver, group: FusionGroup) -> None:
    """Add the directives for tensors that share a loop nest: vectors along the axis that most of them lie along in memory."""
    shared = shared_loops_of(d, group.members)
    assert shared is not None
    classes = _in_turn(group.members)
    first = classes[0][0]
    name, sizes = first.tensors[0].name, extents(first)
    members = [m for alike in classes for m in alike]
    if first.axes:
        d.add(d.schedule.together(*(m.tensors[0].name for m in members), into=first.axes))
    binders = list(_shared_binders(d, classes))
    if shared.position is None:
        inner = binders[-1].rpartition(".")[2]
        d.add(d.schedule.split(binders[-1], shared.lanes, (f"{inner}_o", f"{inner}_v")))
        d.add(d.schedule.vectorize(full(name, f"{inner}_v")))
        return
    axis = first.axes[shared.position]
    last_is_first = (*members[1:], first)
    if sizes[axis] is not None and (sizes[axis] or 0) < 2:
        mark_parallel(d, last_is_first, list(first.axes), sizes)
        return
    outer = [*(a for a in first.axes if a != axis), f"{axis}_o"]
    d.add(d.schedule.split(full(name, axis), shared.lanes, (f"{axis}_o", f"{axis}_v")))
    loops = [*(full(name, loop) for loop in outer), *binders, full(name, f"{axis}_v")]
    d.add(d.schedule.order(*loops) if len(loops) > 1 else d.schedule)
    d.add(d.schedule.vectorize(full(name, f"{axis}_v")))
    mark_parallel(d, last_is_first, outer, {**sizes, f"{axis}_o": -(-(sizes[axis] or OPEN_EXTENT) // shared.lanes)})
    large = [m.tensors[0].name for m in members if bytes_of(d, (m.tensors[0].name,)) > d.machine.cache_bytes]
    results = [n for n in large if n in d.program.results]
    d.add(d.schedule.stream(*results) if results else d.schedule)


def _in_turn(members: Sequence[Definition]) -> list[list[Definition]]:
    """Return the members in an order in which each comes behind what it reads, those together that share the loops of their sums: of sums
    over the same ranges all, where no term of one needs another."""
    alike = [c for c in _classes(members) if len(c) > 1 and not any(_needs_in_terms(m, c) for m in c)]
    while (found := _ordered(members, alike)) is None:
        alike = alike[:-1]
    return found


def _needs_in_terms(definition: Definition, others: Sequence[Definition]) -> bool:
    names = {m.tensors[0].name for m in others}
    return any(read.tensor in names for r in reduces(definition.pieces[0].value) for b in r.body for read in reads(b))


def _ordered(members: Sequence[Definition], alike: Sequence[list[Definition]]) -> list[list[Definition]] | None:
    """Return the members in parts, each behind all that it reads; None where parts need each other."""
    shared = {id(m) for c in alike for m in c}
    left = [*alike, *([m] for m in members if id(m) not in shared)]
    left.sort(key=lambda part: members.index(part[0]))
    found: list[list[Definition]] = []
    while left:
        waiting = {id(part): {m.tensors[0].name for other in left if other is not part for m in other} for part in left}
        ready = next((part for part in left if not any(waiting[id(part)] & {*definition_reads(m)} for m in part)), None)
        if ready is None:
            return None
        found.append(ready)
        left = [part for part in left if part is not ready]
    return found


def _shared_binders(d: Deriver, classes: Sequence[Sequence[Definition]]) -> Iterator[str]:
    """Let sums over the same ranges share their loops; yield the loops of all sums by their full names."""
    for alike in classes:
        found = _sum(alike[0])
        names = [b.name for b in found.binders] if found is not None else []
        if len(alike) > 1 and names:
            d.add(d.schedule.together(*(m.tensors[0].name for m in alike), into=names))
        yield from (full(alike[0].tensors[0].name, n) for n in names)
