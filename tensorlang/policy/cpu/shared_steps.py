"""Recurrences that need each other, with sums and maps of what they make, in the loops of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from polyhedral.directions import distances_of
from polyhedral.expr import Name as AffineName
from polyhedral.space import OperationLimit, limited
from tensorlang.policy.cpu.cost import PARTS_CYCLES
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.cpu.nests import chosen_order, has_no_sums, loops_of, reads_of_step, statements_of
from tensorlang.policy.cpu.wavefronts import (
    Wavefront,
    add_diagonal_layout,
    add_wavefront,
    best_shared_wavefront,
    is_passing,
    kept_diagonals,
    waiting_cycles,
)
from tensorlang.policy.deriver import Deriver, in_order, is_local, is_threading_profitable, shared_loops
from tensorlang.policy.folds import folded
from tensorlang.schedule.apply import apply
from tensorlang.schedule.directives.loops import MOST_LANES
from tensorlang.schedule.plan import Plan, full, owned
from tensorlang.schedule.recurrence import innermost_apart
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Definition, Slot
from tensorlang.tensor.walk import component_of, reads, reduces, tensor_table

VECTORS = (4, 2)
"""Of points that go through steps beside each other."""
WAITING = 2.0
"""How many times as long as points wait for themselves vectors of them have to take to run one by one: estimates of latency are of no more
than their order."""


def derive_shared_steps(d: Deriver, plan: Plan, group: Sequence[Definition], sums: Sequence[Definition] = ()) -> bool:
    """Add the directives for tensors that share all their loops, or may: lanes along one that carries nothing, else a wavefront; tell
    whether there is either. `sums`: those over all that they make, which run in these loops along a wavefront."""
    if not all(has_no_sums(member) for member in group):
        return False
    before, joined = d.schedule, innermost_apart(plan, group)
    least = inf
    if joined:
        least = inf if sums else _apart_cycles(d, plan, group)
        d.add(d.schedule.together(*joined, into=tuple({*joined.values()})))
        plan = apply(d.program, d.since, d.layouts)
    shared = {plan.placed.nests[s].loops for member in group for s in statements_of(plan, member)} if sums else set()
    if sums and (len(shared) != 1 or any({*member.axes} != {*group[0].axes} for member in group)):
        d.schedule = before
        return False
    for loops in shared:
        if not join(d, group[0], loops, sums):
            return False
        plan = apply(d.program, d.since, d.layouts)
    found = _best_shared(d, plan, group, sums, lanes=not joined and not sums)
    if found is None or (found[1] is not None and found[1].cycles >= least):
        d.schedule = before
        return False
    group, front = found
    local = [member for member in group if is_local(d, member)]
    if front is not None:
        # Points of a diagonal need none of it but their own: pieces of any of the tensors may have loops of their own along it.
        apart = not front.rows and any(len(member.pieces) > 1 for member in group)
        add_wavefront(d, group[0], front, nested=False, apart=apart)
    placed = apply(d.program, d.since, d.layouts)
    for member in local:
        if front is not None and not front.rows:
            passing = replace(front, passing=is_passing(d, member, (*group, *sums)))
            add_diagonal_layout(d, member, passing, {}, kept_diagonals(placed, member, passing, {}))
            continue
        for name, axis, count in folded(placed, member, member.axes):
            d.add(d.schedule.fold(name, axis, count))
    return True


def join(d: Deriver, member: Definition, loops: Sequence[str], found: Sequence[Definition]) -> bool:
    """Let sums and maps of all elements of a recurrence run in its loops, those of `member`, after whose axes they are called; tell whether
    they can."""
    tensors = tensor_table(d.program)
    owner, axes = owned(loops[0], tensors)[0], [owned(loop, tensors)[1] for loop in loops]
    turned = {o.name for x in d.since.directives if x.name in ("reverse", "skew") for o in x.operands if isinstance(o, syntax.Id)}
    if any(x.name == "skew" and x.operands[0] in [syntax.Id(loop) for loop in loops] for x in d.since.directives):
        return False
    ended: list[tuple[str, list[str]]] = []
    for x in found:
        own = own_point(d, member, x)
        called = [slot.name for a in axes if isinstance(slot := own[a], AffineName)]
        name, binders = x.tensors[0].name, [b.name for p in x.pieces for r in reduces(p.value) for b in r.binders]
        for loop, there in zip(loops, called, strict=True):
            d.add(d.schedule.reverse(full(name, there)) if loop in turned else d.schedule)
        d.add(in_order(d.schedule, name, called) if called != [*x.axes, *binders] else d.schedule)
        d.add(d.schedule.together(owner, name, into=axes))
        kept = [a for a in axes if own[a] in {AffineName(n) for n in x.axes}]
        if kept and binders:
            ended.append((name, kept))
    # Loops that the whole sum is in may be skewed by others, which its end is not in. All share their loops before one ends in others.
    for name, kept in ended:
        into = [f"{a}_{name.replace('.', '_')}" for a in kept]
        d.add(d.schedule.distribute(f"{name}.0", at=[full(owner, a) for a in kept], into=into))
    return True


def own_point(d: Deriver, member: Definition, follower: Definition) -> dict[str, Slot]:
    """Return by the axes of a recurrence at which point what is made of all its elements reads them."""
    group = component_of(d.program, member)
    table = {t.name: x for x in group for t in x.tensors if {*x.axes} == {*member.axes}}
    found = (r for p in follower.pieces for r in reads(p.value) if r.tensor in table)
    read = next(found)
    return dict(zip(table[read.tensor].axes, read.index, strict=True))


def _apart_cycles(d: Deriver, plan: Plan, group: Sequence[Definition]) -> float:
    """Return the cycles of an element of all tensors of a group where not all of them share their innermost loops: those at least that
    elements wait for each other which such a loop makes one after the other, and lanes for those of their own step."""
    inner: dict[str, list[Definition]] = {}
    for member in group:
        inner.setdefault(plan.placed.nests[statements_of(plan, member)[0]].loops[-1], []).append(member)
    found = [_loop_cycles(d, plan, members, group) for members in inner.values()]
    waiting = {t.name for members, (_, waits) in zip(inner.values(), found, strict=True) if waits for m in members for t in m.tensors}
    lanes = [m for members, (_, waits) in zip(inner.values(), found, strict=True) if not waits for m in members]
    late = [PARTS_CYCLES / (extents(m)[m.axes[-1]] or OPEN_EXTENT) for m in lanes if reads_of_step(m) & waiting]
    return sum(cycles for cycles, _ in found) + sum(late)


def _loop_cycles(d: Deriver, plan: Plan, members: Sequence[Definition], group: Sequence[Definition]) -> tuple[float, bool]:
    """Return the same of some of a group that share a loop of their own, and whether elements wait for each other: lanes are for one
    alone."""
    if len(members) > 1:
        return max(sum(cycles_of(d, member, InnerLoops()) for member in members), waiting_cycles(members)), True
    loops = loops_of(plan, members[0], group)
    chosen = chosen_order(d, members[0], loops) if loops is not None else None
    if loops is None or chosen is None:
        return inf, False
    waits = bool(chosen.axes) and chosen.axes[-1] not in loops.free(chosen.axes, chosen.separate)
    return max(chosen.inner.cycles, waiting_cycles(members) if waits else 0.0), waits


def _best_shared(
    d: Deriver, plan: Plan, group: Sequence[Definition], sums: Sequence[Definition], *, lanes: bool
) -> tuple[list[Definition], Wavefront | None] | None:
    """Return the tensors of a group, the one after which their loops are called first, and the wavefront that they run along; none where
    `lanes` have been made of an axis. None where there is neither."""
    own = {name: k for k, name in enumerate(name for member in group for name in statements_of(plan, member))}
    try:
        with limited():
            distances = distances_of(plan.placed, own)
            tensors = tensor_table(d.program)
            called = {owned(loop, tensors)[0] for loop in distances.loops}
            axes = [owned(loop, tensors)[1] for loop in distances.loops]
            ordered = sorted(group, key=lambda member: member.tensors[0].name not in called)
            share_all = all(len(member.axes) == len(axes) for member in group)  # whatever each of them calls its axes
            if not share_all or len(axes) < 2 or called != {ordered[0].tensors[0].name}:
                return None
            carrying_none = distances.free(distances.loops)
            free = [a for a, loop in zip(axes, distances.loops, strict=True) if loop in carrying_none]
            if free:
                return (ordered, None) if lanes and _add_lanes(d, ordered, axes, free[-1]) else None
            local = [member for member in group if is_local(d, member)]
            alike = all({*member.axes} == {*axes} for member in group)
            front = best_shared_wavefront(d, ordered, axes, distances, local, sums) if len(axes) == 2 and alike else None
            return (ordered, front) if front is not None else None
    except OperationLimit:
        return None


def vectors_beside(d: Deriver, group: Sequence[Definition], points: int, work: float, waiting: float) -> int:
    """Return how many vectors of points go through the steps of a group beside each other, where registers hold what is made for these:
    while one waits, others compute. `work`, `waiting`: the cycles of a point, and those of a step until the next one."""
    lanes, room = min(d.lanes_of(m) for m in group), d.machine.vector_registers // len(group)
    if work * lanes >= WAITING * waiting:
        return 1
    return next((n for n in VECTORS if n <= room and n * lanes <= min(points, MOST_LANES)), 1)


def _add_lanes(d: Deriver, group: Sequence[Definition], axes: Sequence[str], axis: str) -> bool:
    """Let points along an axis of which none needs another be lanes, inside all other loops; tell whether there are enough of them."""
    name, lanes = group[0].tensors[0].name, min(d.lanes_of(m) for m in group)
    extent = extents(group[0])[axis] or OPEN_EXTENT
    if lanes < 2 or extent < lanes:
        return False
    position = group[0].axes.index(axis)
    local = tuple(t.name for m in group if is_local(d, m) for t in m.tensors)
    work = sum(cycles_of(d, m, InnerLoops(vector=(m.axes[position],), packed=local)) for m in group)
    lanes *= vectors_beside(d, group, extent, work, waiting_cycles(group))
    d.add(d.schedule.split(full(name, axis), lanes, (f"{axis}_o", f"{axis}_v")))
    d.add(in_order(d.schedule, name, [f"{axis}_o", *(a for a in axes if a != axis), f"{axis}_v"]))
    d.add(d.schedule.vectorize(full(name, f"{axis}_v")))
    if is_threading_profitable(d, group):
        chosen = shared_loops([f"{axis}_o"], [-(-extent // lanes)], d.machine.threads)
        d.add(d.schedule.parallel(*(full(name, loop) for loop in chosen)) if chosen else d.schedule)
    return True
