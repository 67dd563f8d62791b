"""Terms that go where a recurrence says: moved in the step that says where, rather than in loops of their own.

    for k: to[k] = next[digit(w[k])]; next[digit(w[k])] += 1        for k:
    for k: y[to[k]] = w[k]                                     →        to = next[digit(w[k])]; next[digit(w[k])] = to + 1
                                                                        y[to] = w[k]

So sorting by counting, and whatever else puts elements where a running count tells, reads its elements once, and what the steps say is
kept for a step. The loops of several rows come along. What is derived so is proven before it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from polyhedral.expr import Name
from tensorlang.policy.deriver import Deriver, is_local
from tensorlang.policy.folds import folded
from tensorlang.policy.groups import recurs
from tensorlang.policy.legality import is_proven
from tensorlang.policy.scatters import scattered_axes
from tensorlang.schedule.apply import apply, outline
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Definition, Read
from tensorlang.tensor.walk import components, reads, reduces


def with_fused_scatters(d: Deriver, schedule: Schedule) -> Schedule:
    """Return a schedule of all parts of a program with scatters in the steps of recurrences."""
    whole = replace(d, schedule=schedule)
    fuse_scatters(whole)
    return whole.schedule


def fuse_scatters(d: Deriver) -> None:
    """Add the directives that let scatters share the steps of the recurrences that say where their terms go."""
    groups = [g for g in components(d.program) if recurs(d.program, g[0])]
    for definition in d.program.definitions if groups else ():
        for group in groups:
            step = _step(definition, group)
            if step is not None:
                _fuse(d, definition, group, *step)


def _step(definition: Definition, group: tuple[Definition, ...]) -> tuple[Read, str] | None:
    """Return the read of a tensor of a group whose elements say where the terms of a scatter go, each its own, and the binder along them;
    None where there is none."""
    sums = [r for p in definition.pieces for r in reduces(p.value)]
    if scattered_axes(definition) is None or any(len(r.binders) != 1 or r.filter is None for r in sums):
        return None
    made = {m.tensors[0].name for m in group if m is not definition and scattered_axes(m) is None}
    terms = ((r.binders[0].name, read) for r in sums if r.filter is not None for read in reads(r.filter))
    return next(((read, k) for k, read in terms if read.tensor in made and Name(k) == read.index[-1]), None)


def _fuse(d: Deriver, definition: Definition, group: tuple[Definition, ...], step: Read, binder: str) -> None:
    name, started = definition.tensors[0].name, d.schedule
    d.add(_undistributed(started, group) if len(group) == 1 else started)
    for _ in range(sum(1 for p in definition.pieces for _ in reduces(p.value))):
        loops = outline(d.program, d.since, d.layouts).loops
        stage = next(s for s in (m.tensors[0].name for m in group) if s in loops)
        into = loops[stage][: len(step.index)] if definition not in group else ()
        names = [loop.removeprefix(f"{stage}.") for loop in into] if name in loops and into else [binder]
        joint = d.schedule.together(stage if into and name in loops else step.tensor, name, into=names)
        if not _is_proven(d, joint):
            return d.add(started)
        d.add(joint)
    for schedule in _kept_for_a_step(d, group):
        if _is_proven(d, schedule):
            d.add(schedule)


def _undistributed(schedule: Schedule, group: tuple[Definition, ...]) -> Schedule:
    """Return the schedule with the pieces of a recurrence in one loop: loops of each by itself are not shared."""
    apart = [syntax.Id(m.tensors[0].name) for m in group]
    return replace(schedule, directives=tuple(x for x in schedule.directives if x.name != "distribute" or x.operands[0] not in apart))


def _kept_for_a_step(d: Deriver, group: tuple[Definition, ...]) -> Iterator[Schedule]:
    """Yield the schedule with one more axis folded, along which nothing reads a member of the group in later loops any more."""
    for member in group:
        if is_local(d, member):
            for name, axis, count in folded(apply(d.program, d.since, d.layouts), member, member.axes):
                yield d.schedule.fold(name, axis, count)


def _is_proven(d: Deriver, schedule: Schedule) -> bool:
    """Tell whether a schedule makes sense, and computes what the program says."""
    return is_proven(replace(d, schedule=schedule))
