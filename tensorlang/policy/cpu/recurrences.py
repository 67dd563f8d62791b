"""Schedules for tensors that are defined through themselves, or through each other.

order         their loops run in an order that the dependences allow; those that carry none are like those of any other equation (`nests`)
groups        what needs each other runs by blocks, in joint loops, in lines, by rows, written out, or each by itself
followers     sums, maps and other recurrences of what a recurrence makes run in its loops, where fewer steps are kept then, or registers
              hold them
storage       what is no result is kept for as many steps as it is needed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, takewhile

from polyhedral.directions import distances_of
from polyhedral.expr import Name as AffineName
from polyhedral.space import OperationLimit, limited
from tensorlang.lower.prefetch import LINE_BYTES
from tensorlang.policy.cpu.blocks import derive_blocks
from tensorlang.policy.cpu.joint_rows import derive_joint_rows
from tensorlang.policy.cpu.lines import derive_lines
from tensorlang.policy.cpu.nests import derive_member, statements_of, updated
from tensorlang.policy.cpu.outer_lanes import derive_outer_lanes
from tensorlang.policy.cpu.recurrence_storage import add_storage
from tensorlang.policy.cpu.shared_steps import derive_shared_steps, join, own_point
from tensorlang.policy.cpu.step_maps import derive_step_maps, step_maps
from tensorlang.policy.cpu.step_sums import derive_step_sums, step_sums
from tensorlang.policy.cpu.wavefronts import (
    Wavefront,
)
from tensorlang.policy.cpu.written_steps import has_written_steps, is_quick, is_written_out
from tensorlang.policy.deriver import Deriver, bytes_of, in_order, is_local, is_threading_profitable, shared_loops
from tensorlang.policy.folds import folded
from tensorlang.policy.followers import Follower, accumulations, followers, is_backwards, may_follow
from tensorlang.policy.legality import in_legal_order, is_proven
from tensorlang.schedule.apply import apply
from tensorlang.schedule.plan import Plan, full, owned
from tensorlang.schedule.recurrence import legal_order
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Definition, Slot
from tensorlang.tensor.walk import component_of, components, is_recurrence, reads, reduces, tensor_table


def derive_recurrence(d: Deriver, definition: Definition) -> None:
    """Add the directives for all that needs `definition` and is needed by it, where it is the first of them."""
    group = component_of(d.program, definition)
    if definition is not group[0] or (not d.plain and derive_blocks(d, group)):
        return
    for member in group:
        d.add(legal_order(d.schedule, d.program, member))
    if d.plain:
        return
    plan, before = apply(d.program, d.since, d.layouts), d.schedule
    is_written = not d.at_once and has_written_steps(d, plan, group)
    if not d.at_once and (_derive_accumulated(d, plan, group) or _derive_followed(d, plan, group, is_written)):
        if is_proven(in_legal_order(d)):
            return
        d.schedule = before
    if is_written:
        for member in group:
            derive_member(d, plan, member, group, written=True)
        add_storage(d, [(member, None) for member in group if is_local(d, member)])
        return
    if len(group) > 1 and (derive_joint_rows(d, plan, group) or derive_shared_steps(d, plan, group)):
        return
    if len(group) > 2 and not d.at_once and derive_lines(d, plan, group):
        return
    if len(group) > 1 and not d.at_once and derive_outer_lanes(d, plan, group):
        return
    together = step_maps(d, plan, group) if len(group) > 1 and not d.at_once else []
    sums = step_sums(d, plan, group) if len(group) > 1 and not d.at_once else []
    shared = {m.tensors[0].name for members in (*(maps.members for maps in together), *sums) for m in members}
    found = [None if m.tensors[0].name in shared else derive_member(d, plan, m, group) for m in group]
    for maps in together:
        derive_step_maps(d, maps)
    for members in sums:
        derive_step_sums(d, members)
    (front,) = found if len(found) == 1 else (None,)
    if front is not None and front.shared and is_local(d, group[0]) and not _keeps_steps(d, group[0], front):
        d.schedule = before
        found = [derive_member(d, plan, group[0], group, share=False)]
    rows = _derive_rows(d, plan, group) if len(group) > 1 else frozenset[str]()
    add_storage(d, [(member, front) for member, front in zip(group, found, strict=True) if is_local(d, member)], rows)


def _derive_accumulated(d: Deriver, plan: Plan, group: Sequence[Definition]) -> bool:
    """Add the directives for a recurrence with sums and maps of all that it makes in its loops: along a wavefront, or, of maps alone, in
    lanes and threads as they come; tell whether there are any, and less is kept for them."""
    found = _own(d, group, accumulations(d.program, group))
    if not found:
        return False
    if len(group) > 1:
        return derive_shared_steps(d, plan, group, found)
    (member,), before = group, d.schedule
    loops = plan.placed.nests[statements_of(plan, member)[0]].loops
    time = owned(loops[0], tensor_table(d.program))[1]
    found = [x for x in found if not _is_turned(member, time, x, own_point(d, member, x)[time])]
    if not found:
        return False
    maps = not any(True for x in found for p in x.pieces for _ in reduces(p.value))
    if not join(d, member, loops, found):
        return False
    front = derive_member(d, apply(d.program, d.since, d.layouts), member, group, share=False, joined=found)
    start = len(d.schedule.directives)
    if front is not None or maps:
        add_storage(d, [(member, front)])
    if front is None and len(d.schedule.directives) == start:
        d.schedule = before
        return False
    return True


def _own(d: Deriver, group: Sequence[Definition], found: Sequence[Definition]) -> list[Definition]:
    """Return those first ones that no later recurrence is read by, but for those among them: what reads several of them runs with the
    last."""
    every = components(d.program)
    start = next(k for k, g in enumerate(every) if any(x is group[0] for x in g)) + 1
    later = [g for g in every[start:] if not any(x is g[0] for x in found)]
    return list(takewhile(lambda x: not any(may_follow(d.program, g, x) for g in later), found))


def _derive_followed(d: Deriver, plan: Plan, group: Sequence[Definition], is_written: bool) -> bool:
    """Add the directives for a recurrence with what needs single steps of it in its loop over steps, where no near cache holds all steps
    and a few then do, where registers hold them (`is_written`, or single elements that steps which are written out need), or where a step
    of which few are kept changes what data name and no more; tell whether it runs so."""
    first, before = plan.placed.nests[statements_of(plan, group[0])[0]].loops[0], d.schedule
    _, time = owned(first, tensor_table(d.program))
    if any(time not in x.axes for x in group) or any(plan.placed.nests[s].loops[0] != first for x in group for s in statements_of(plan, x)):
        return False
    own = {t.name: x.axes.index(time) for x in group for t in x.tensors}
    if all(r.index[own[r.tensor]] == AffineName(time) for x in group for p in x.pieces for r in reads(p.value) if r.tensor in own):
        return False
    local, single = [x for x in group if is_local(d, x)], all(len(x.axes) == 1 for x in group)
    far = [x for x in local if updated(x) or bytes_of(d, (x.tensors[0].name,)) > d.machine.l2_bytes]
    found = followers(d.program, group, own) if far or (local and (is_written or single)) else ()
    own_members = _own(d, group, [m for x in found for m in x.members])
    found = tuple(takewhile(lambda x: any(x.members[-1] is m for m in own_members), found))
    later = list(chain(*takewhile(lambda part: part[0] is not group[0], reversed(components(d.program)))))
    found = tuple(takewhile(lambda x: any(x.members[0] is m for m in later), found))  # What comes before has its loops.
    found = tuple(takewhile(lambda x: not any(_is_turned(group[0], time, m, AffineName(x.step)) for m in x.members), found))
    backwards = is_backwards(group, own)
    written = _written(d, group, found, backwards=backwards) if is_written or single else ()
    if is_written or any(is_recurrence(x.members) and len(x.members[0].axes) > 1 for x in written):
        found, is_written = written, True
    shrunk = local if is_written else far
    read = {r for x in found for r in x.reads()}
    if not any(x.tensors[0].name in read for x in shrunk):
        return False
    if backwards and not is_written and any(x.offset for x in found):
        return False
    found = _add_followers(d, group, first, found, backwards=backwards, soon=is_written)
    if not found:
        return False
    members = [*group, *(m for x in found for m in x.members)]
    shared = apply(d.program, d.since, d.layouts)
    summed = {full(m.tensors[0].name, x.step): 1 for x in found for m in x.members if x.step not in m.axes}
    inside = replace(d, at_once=summed)
    for member in members:
        derive_member(inside, shared, member, members, written=is_written)
    d.schedule = inside.schedule
    start = len(d.schedule.directives)
    add_storage(d, [(member, None) for member in members if is_local(d, member)])
    kept = {x.operands[0].name for x in d.schedule.directives[start:] if x.name == "fold" and isinstance(x.operands[0], syntax.Id)}
    if not any(x.tensors[0].name in kept for x in shrunk):
        d.schedule = before
        return False
    return True


def _written(d: Deriver, group: Sequence[Definition], found: Sequence[Follower], *, backwards: bool) -> tuple[Follower, ...]:
    """Return those first followers of a recurrence whose steps are written out that may run with it: recurrences that are written out
    themselves, as long as all are code that processors keep decoded, and what is as soon made of each step by itself."""
    members = [*group]

    def is_taken(x: Follower) -> bool:
        if not is_recurrence(x.members):
            return is_quick(x.members[0], x.step)
        members.extend(x.members)
        if not is_written_out(members) or all(len(m.axes) == 1 for m in x.members):
            return is_written_out(members)
        alone = replace(d)
        _add_step_loop(alone, x, backwards=backwards)
        return has_written_steps(alone, apply(d.program, alone.since, d.layouts), x.members)

    return tuple(takewhile(is_taken, found))


def _add_followers(
    d: Deriver, group: Sequence[Definition], loop: str, found: Sequence[Follower], *, backwards: bool, soon: bool
) -> tuple[Follower, ...]:
    """Let followers share the loop over steps of a recurrence, each so many steps after its own; return them. `soon`: as soon as all that
    it reads is made, so that registers hold it; those for which most steps would be kept all the same stay by themselves."""
    owner, time = owned(loop, tensor_table(d.program))
    before = d.schedule

    def share(some: Sequence[Follower], later: Sequence[int]) -> None:
        d.schedule = before
        names = [_add_step_loop(d, x, backwards=backwards) for x in some]
        for x, name, n in zip(some, names, later, strict=True):
            d.add(d.schedule.shift(full(name, x.step), x.offset + n) if x.offset + n else d.schedule)
        d.add(d.schedule.together(owner, *names, into=(time,)) if names else d.schedule)

    share(found, [0] * len(found))
    later = _later_by(apply(d.program, d.since, d.layouts), group, found, loop) if soon else []
    if any(later):
        most = (extents(group[0])[time] or OPEN_EXTENT) // 2
        later = list(takewhile(lambda n: n < most, later))
        found = found[: len(later)]
        share(found, later)
    return tuple(found)


def _add_step_loop(d: Deriver, follower: Follower, *, backwards: bool) -> str:
    """Let the loop of a follower over steps be its first; return the tensor after which it is called."""
    first, *others = follower.members
    name = first.tensors[0].name
    if others:
        for m in follower.members:
            d.add(legal_order(d.schedule, d.program, m))
        plan = apply(d.program, d.since, d.layouts)
        return owned(plan.placed.nests[statements_of(plan, first)[0]].loops[0], tensor_table(d.program))[0]
    inside = [a for a in (*first.axes, *(b.name for p in first.pieces for r in reduces(p.value) for b in r.binders)) if a != follower.step]
    d.add(in_order(d.schedule, name, [follower.step, *inside]) if first.axes[:1] != (follower.step,) and inside else d.schedule)
    d.add(d.schedule.reverse(full(name, follower.step)) if backwards else d.schedule)
    return name


def _later_by(plan: Plan, group: Sequence[Definition], found: Sequence[Follower], step: str) -> list[int]:
    """Return how many steps later each follower has to run, or earlier if negative, so that all that it reads is just made; nothing where
    it cannot be told."""
    parts = [[*group], *(x.members for x in found)]
    statements = [(s, k) for k, members in enumerate(parts) for m in members for s in statements_of(plan, m)]
    own = {s: k for s, k in statements if step in plan.placed.nests[s].loops}  # A sum over steps begins before them.
    try:
        with limited():
            least = distances_of(plan.placed, own).least_between(step)
    except OperationLimit:
        return []
    later = [0] * len(parts)
    for k in range(1, len(parts)):
        needed = [n if n is None else later[p] - n for (p, q), n in least.items() if q == k > p]
        later[k] = max((n for n in needed if n is not None), default=0) if None not in needed else 0
    return later[1:]


def _is_turned(member: Definition, time: str, follower: Definition, step: Slot) -> bool:
    """Tell whether a recurrence lies in rows of a step, on axis `time`, and a map of it across them, steps next to each other: each would
    write everywhere."""
    across = any(step == AffineName(a) for a in _axes_of_line(follower)) and time not in _axes_of_line(member)
    return across and len(follower.axes) == len(member.axes)


def _axes_of_line(definition: Definition) -> set[str]:
    """Return the last axes of a tensor whose elements it takes to fill a line of memory."""
    sizes, size = extents(definition), definition.tensors[0].dtype.size_bytes
    found: list[str] = []
    for axis in reversed(definition.axes):
        if size >= LINE_BYTES:
            break
        found.append(axis)
        size *= sizes[axis] or OPEN_EXTENT
    return {*found}


def is_joined(d: Deriver, definition: Definition) -> bool:
    """Tell whether a definition runs in loops of a recurrence that it is made of."""
    part = component_of(d.program, definition)
    if _names_together(d.since, part) or not d.alone:
        return _names_together(d.since, part)
    found = (group for group in components(d.program) if may_follow(d.program, group, definition))
    return any(_names_together(_beside(d, group[0]), part) for group in found)


def _beside(d: Deriver, first: Definition) -> Schedule:
    """Return the directives that a recurrence gets by itself, whose tensors need `first` and are needed by it: once for all that asks."""
    alone = replace(d, schedule=replace(d.schedule, directives=d.schedule.directives[: d.rewritten]))
    asked = first.tensors[0].name, alone.schedule, d.program, d.machine, d.separate, d.constants, d.plain
    key = *asked, *(frozenset(m.items()) for m in (d.layouts, d.at_once, d.open_extents))
    if key not in d.beside:
        derive_recurrence(alone, first)
        d.beside[key] = alone.since
    return d.beside[key]


def _names_together(schedule: Schedule, part: Sequence[Definition]) -> bool:
    """Tell whether one of those that need each other shares loops: of a component one names them for all."""
    names = {syntax.Id(m.tensors[0].name) for m in part}
    return any(x.name == "together" and not names.isdisjoint(x.operands) for x in schedule.directives)


def _keeps_steps(d: Deriver, definition: Definition, front: Wavefront) -> bool:
    """Tell whether a wavefront over several steps leaves it enough to keep a few of them."""
    placed = apply(d.program, d.since, d.layouts)
    return any(True for _ in folded(placed, definition, front.outer[-1:]))


def _derive_rows(d: Deriver, plan: Plan, group: Sequence[Definition]) -> frozenset[str]:
    """Give the rows of a group to threads: its outermost loops, where they carry nothing from one to the other. Return their axes."""
    if not is_threading_profitable(d, group):
        return frozenset()
    own = {name: k for k, name in enumerate(name for member in group for name in statements_of(plan, member))}
    try:
        distances = distances_of(plan.placed, own)
    except OperationLimit:
        return frozenset()
    free = distances.free(distances.loops)
    outer = list(takewhile(lambda loop: loop in free, distances.loops))
    axes = {loop: next((a for m in group for a in m.axes if loop == full(m.tensors[0].name, a)), None) for loop in outer}
    sizes = {a: e for m in group for a, e in extents(m).items()}
    rows = list(takewhile(lambda loop: (a := axes[loop]) is not None and all(a in m.axes for m in group), outer))
    chosen = shared_loops(rows, [sizes[axes[loop] or ""] or OPEN_EXTENT for loop in rows], d.machine.threads)
    d.add(d.schedule.parallel(*chosen) if chosen else d.schedule)
    return frozenset(a for loop in chosen if (a := axes[loop]) is not None)
