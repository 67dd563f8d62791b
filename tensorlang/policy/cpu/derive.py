"""A schedule for a program that nobody scheduled, chosen without search from the shape of its equations.

    strips          chains of maps and windows over large tensors: a few rows of all of them at a time (`strips`)
    fused           tensors that need each other at their own points alone, or for the terms of sums: in one loop nest (`loop_fusion`)
    joint           recurrences along one axis and what is made of their steps: in the same loops over steps and points (`joint_steps`)
    short rows      several tensors of rows that fill no vector: lanes are rows (`row_lanes`)
    rows            several tensors that agree on their leading axes (softmax, layer norm): computed row by row, rows in parallel
    terms           what recurrences along rows make without themselves, in loops of its own (`recurrence_terms`)
    rows copied     what several elements of a step read of the one before it, so that steps are computed in place (`step_rows`)
    asked           sums of which others ask for few, as data say: where they are asked for (`asked_sums`)
    again           few elements that sums need for each term, where they are read (`inlined_terms`)
    recurrence      in an order that the dependences allow: by blocks, diagonals, tiles of steps, or what each loop carries (`nests`)
    sums, pieces    the inner loops of least predicted cycles: lanes, points that are computed together, copies (`inner_loops`)
    anything else   vectors along the axis that walks memory in unit steps, the outermost axis in parallel

What comes out is an ordinary schedule: it prints in the language, can be pasted and edited, and is proven like any other. Register tiles of
products, what they copy and their instructions are written in the language alone (`stdlib/schedules`): where no schedule of a role serves a
product, it is a sum like others here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress

from tensorlang.policy.cpu.asked_sums import derive_asked_sum, with_asked_sums
from tensorlang.policy.cpu.inlined_terms import with_inlined_terms
from tensorlang.policy.cpu.inner_loops import add_inner_loops, best_inner_loops, is_in_phases, moves_in_phases, phases_along
from tensorlang.policy.cpu.joint_steps import derive_joint_steps
from tensorlang.policy.cpu.loop_fusion import derive_fused, named_after, with_sums_apart
from tensorlang.policy.cpu.narrow_rows import derive_narrow_rows, has_narrow_rows
from tensorlang.policy.cpu.nested_rows import shared_strips
from tensorlang.policy.cpu.nests import derive_nest
from tensorlang.policy.cpu.recurrence_terms import with_terms_apart
from tensorlang.policy.cpu.recurrences import derive_recurrence, is_joined
from tensorlang.policy.cpu.row_lanes import derive_row_lanes, has_row_lanes
from tensorlang.policy.cpu.scatter_fusion import fuse_scatters
from tensorlang.policy.cpu.shared_scatters import derive_shared_scatters
from tensorlang.policy.cpu.shared_sums import shared_sums
from tensorlang.policy.cpu.step_rows import with_rows_apart
from tensorlang.policy.cpu.strips import Strip, add_strip, inside_of, repeats_recurrences
from tensorlang.policy.cpu.unread import trim_unread
from tensorlang.policy.deriver import Deriver, deriver, mark_parallel
from tensorlang.policy.groups import FusionGroup, derive_rows, fusion_groups, recurs
from tensorlang.policy.machine import Machine
from tensorlang.policy.pointwise import derive_pointwise, reduction_lanes
from tensorlang.policy.scatters import scattered_axes
from tensorlang.schedule.plan import Storage, full
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import extents
from tensorlang.tensor.nodes import Definition, Program
from tensorlang.tensor.walk import components, definition_reads, is_recurrence, reads, reduces


def derive(
    program: Program,
    machine: Machine,
    layouts: Mapping[str, Storage] | None = None,
    constants: frozenset[str] = frozenset(),
    *,
    plain: bool = False,
    at: Mapping[str, int] | None = None,
) -> Schedule:
    """Return a schedule for `program` on `machine`. Inputs in `constants` are stored as `derive_layouts` says, if anywhere. `plain`: loops
    of sums, pieces and recurrences run in an order that is legal, and nothing else is asked of them. `at`: samples of open sizes."""
    d = replace(deriver(program, machine, layouts or {}, constants, at), plain=plain)
    d = d if plain else with_sums_apart(with_rows_apart(with_terms_apart(with_inlined_terms(d))))
    groups = fusion_groups(d)
    for strip in _needed_first(d, shared_strips(d, groups if plain else with_asked_sums(d, groups))):
        _derive_strip(d, strip)
    if not plain:
        fuse_scatters(d)
        trim_unread(d, d.program.definitions)
    return d.schedule


def _needed_first(d: Deriver, found: Sequence[Strip]) -> list[Strip]:
    """Return strips with recurrences, and what is made of them, after the recurrences that they need, in whose loops they may run."""
    places, made = dict[str, int](), set[str]()
    for k, part in enumerate(components(d.program)):
        names = {m.tensors[0].name for m in part}
        places |= dict.fromkeys(names, k)
        made |= names if is_recurrence(part) or any(made & definition_reads(m) for m in part) else set()
    own = [not x.inside and x.group.head.tensors[0].name in made for x in found]
    following = iter(sorted(compress(found, own), key=lambda x: places[x.group.head.tensors[0].name]))
    return [next(following) if is_own else x for x, is_own in zip(found, own, strict=True)]


def derive_strip(d: Deriver, strip: Strip) -> Schedule:
    """Return the derived directives for one group alone, with those that are computed inside it."""
    own = replace(d, schedule=Schedule(d.program.name), rewritten=0, alone=True)
    _derive_strip(own, strip)
    return own.schedule


def _derive_strip(d: Deriver, strip: Strip) -> None:
    if not strip.inside or d.plain:
        _derive_group(d, strip.group)
        return
    first = named_after(strip.group)
    if strip.group.fused:
        _derive_alone(d, strip, strip.group)
    over = add_strip(d, strip, first)
    for group in (*strip.inside, *(() if strip.group.fused else (strip.group,))):
        _derive_alone(d, strip, group)
        named = named_after(group).tensors[0].name
        if group is not strip.group and (group.fused or named in strip.rows_of):
            d.add(d.schedule.at(named, strip.rows_of.get(named, full(first.tensors[0].name, over))))
    if repeats_recurrences(d, strip):
        return
    members = [m for group in (*strip.inside, strip.group) for m in group.members if m is not first]
    sizes, outer = extents(first), first.axes[: strip.depth]
    mark_parallel(d, [*members, first], [*outer, over], {**sizes, over: (sizes[first.axes[strip.row]] or 0) // max(1, strip.rows)})


def _derive_alone(d: Deriver, strip: Strip, group: FusionGroup) -> None:
    """Schedule a group of a strip, by one thread."""
    within = inside_of(d, strip, group)
    if strip.rows_of and not group.fused:
        inside = group.head.axes[1:]
        add_inner_loops(within, group.head, inside, best_inner_loops(within, group.head, inside))
    else:
        _derive_inside(within, group)
    d.add(within.schedule)


def _derive_inside(d: Deriver, group: FusionGroup) -> None:
    """Schedule a group in the loop over strips as where it stands alone: what others are computed in says nothing about its loops."""
    alone = replace(d, schedule=replace(d.schedule, directives=d.schedule.directives[: d.rewritten]))
    if recurs(d.program, group.head):
        derive_recurrence(alone, group.head)
    else:
        _derive_group(alone, group)
    d.add(replace(d.schedule, directives=(*d.schedule.directives, *alone.since.directives)))


def _derive_group(d: Deriver, group: FusionGroup) -> None:
    if group.joint:
        if not derive_joint_steps(d, group) and not derive_shared_scatters(d, group):
            for head in group.members:
                _derive_group(d, FusionGroup(head, (head,), len(head.axes)))
        return
    if group.asked:
        derive_asked_sum(d, group)
        return
    joined = {id(m) for m in group.members if not d.plain and is_joined(d, m)}
    if joined:
        for member in (m for m in group.members if id(m) not in joined):
            _one(d, member)
    elif group.fused:
        derive_fused(d, group)
    elif group.transformed is not None:
        for definition in group.members:
            _one(d, definition)
    elif not d.plain and has_row_lanes(d, group):
        derive_row_lanes(d, group)
    elif len(group.members) > 1:
        derive_rows(d, group)
    elif recurs(d.program, group.head):
        derive_recurrence(d, group.head)
    else:
        _one(d, group.head)


def _one(d: Deriver, definition: Definition) -> None:
    """Schedule one definition at the root."""
    if not definition.axes:
        before = d.schedule
        if d.plain or not shared_sums(d, definition):
            reduction_lanes(d, definition)
        if d.schedule == before and not d.plain and _is_row_major(d, definition):
            add_inner_loops(d, definition, (), best_inner_loops(d, definition, ()))
        return
    if not d.plain and scattered_axes(definition) is None and has_narrow_rows(d, definition):
        derive_narrow_rows(d, definition)
    elif _has_sums(definition) or (_is_row_major(d, definition) and (len(definition.pieces) > 1 or is_in_phases(d, definition))):
        derive_nest(d, definition)
    else:
        d.add(d.schedule.distribute(definition.tensors[0].name) if len(definition.pieces) > 1 else d.schedule)
        derive_pointwise(d, definition)
        if not d.plain and moves_in_phases(d, definition):
            _add_phases(d, definition)


def _add_phases(d: Deriver, definition: Definition) -> None:
    """Write out the phases of a row: what is the same for all of them is made once."""
    name, last = definition.tensors[0].name, definition.axes[-1]
    d.add(d.schedule.split(full(name, last), phases_along(definition, last)[-1], (f"{last}_q", f"{last}_r")))
    d.add(d.schedule.unroll(full(name, f"{last}_r")))


def _has_sums(definition: Definition) -> bool:
    return any(True for p in definition.pieces for _ in reduces(p.value))


def _is_row_major(d: Deriver, definition: Definition) -> bool:
    return not d.layouts.keys() & {definition.tensors[0].name, *(r.tensor for p in definition.pieces for r in reads(p.value))}
