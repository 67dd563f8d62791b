"""Maps of a step: of tensors that need each other step by step, those that read one another at their own points run in one loop nest.

    l[t, i]     = u[t, i] + s[t, i] / 2                              together l, r, q -> i
    r[t, i]     = u[t, i + 1] - s[t, i + 1] / 2              →       split l.i by 32 -> i_o, i_v
    q[t, i]     = flux(l[t, i], r[t, i])                             order l.i_o, l.i_v
    u[t + 1, i] = u[t, i] - (q[t, i] - q[t, i - 1])                  vectorize l.i_v

What they alone read is then kept for the points of a vector, in registers, and what several read is loaded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from polyhedral import affine
from polyhedral.directions import distances_of
from polyhedral.expr import Name as AffineName
from polyhedral.space import OperationLimit, limited
from tensorlang.policy.cpu.along import remainders
from tensorlang.policy.deriver import PARALLEL_WORK, Deriver, in_order, mark_parallel
from tensorlang.policy.pointwise import shared_axis
from tensorlang.schedule.apply import apply
from tensorlang.schedule.directives.loops import MOST_LANES
from tensorlang.schedule.plan import Plan, full
from tensorlang.schedule.shape import OPEN_EXTENT, extents, work_of_definition
from tensorlang.tensor.nodes import Definition, Read
from tensorlang.tensor.walk import definition_reads, reads, reduces

VECTORS = (4, 2)
"""How many vectors of points are computed beside each other, where registers hold what is made of them."""


@dataclass(frozen=True, slots=True)
class StepMaps:
    """Tensors that share the loops of their last `count` axes, in the order in which they are computed; that of the axis at `position` runs
    in `lanes` elements."""

    members: tuple[Definition, ...]
    count: int
    position: int
    lanes: int


def step_maps(d: Deriver, plan: Plan, group: Sequence[Definition]) -> list[StepMaps]:
    """Return those tensors of a group that run together inside of the loops that all of it shares: maps that follow each other, where fewer
    elements are loaded and stored."""
    makes = {s.name: m for m in group for s in plan.stages.of(m)}
    nests = [n for place in plan.placed.places if (n := plan.placed.nests[place]).statement in makes]
    shared = set.intersection(*({*n.loops} for n in nests))
    loops = {m.tensors[0].name: [loop for loop in n.loops if loop not in shared] for n in nests if (m := makes[n.statement])}
    found: list[list[Definition]] = [[]]
    for m in sorted(group, key=lambda m: [*loops].index(m.tensors[0].name)) if shared else ():
        own = loops[m.tensors[0].name]
        if not own or own != [full(m.tensors[0].name, a) for a in m.axes[-len(own) :]] or not _is_map(m, m.axes[-len(own) :]):
            found.append([])
        elif found[-1] and len(own) == len(loops[found[-1][0].tensors[0].name]) and _have_alike(m, found[-1][0], len(own)):
            found[-1].append(m)
        else:
            found.append([m])
    parts = ((part, len(loops[part[0].tensors[0].name])) for members in found for part in _parts(d, members, loops))
    together = (_together(d, part, count) for part, count in parts if len(part) > 1)
    return [maps for maps in together if maps is not None]


def _is_map(m: Definition, own: Sequence[str]) -> bool:
    """Tell whether points along axes are computed without a sum, and neighbours alike, but for those at edges."""
    in_turn = any({*own} & affine.name_set(r) for p in m.pieces for r in remainders(p.guard))
    return len(m.tensors) == 1 and not in_turn and not any(True for p in m.pieces for _ in reduces(p.value))


def _have_alike(m: Definition, other: Definition, count: int) -> bool:
    """Tell whether the last axes of two tensors are as long."""
    return all(affine.same(x, y) for x, y in zip(m.tensors[0].shape[-count:], other.tensors[0].shape[-count:], strict=False))


def _parts(d: Deriver, members: Sequence[Definition], loops: Mapping[str, Sequence[str]]) -> list[Sequence[Definition]]:
    """Return tensors that follow each other in parts that load and store the fewest elements for each point, parts of few before others."""
    best: list[tuple[int, list[Sequence[Definition]]]] = [(0, [])]
    for end in range(1, len(members) + 1):
        options = [(start, members[start:end]) for start in reversed(range(end))]
        legal = [(k, part) for k, part in options if len(part) == 1 or _reads_own_points(part, len(loops[part[0].tensors[0].name]))]
        best.append(min(((best[k][0] + _accesses(d, part), [*best[k][1], part]) for k, part in legal), key=lambda found: found[0]))
    return best[-1][1]


def _reads_own_points(members: Sequence[Definition], count: int) -> bool:
    """Tell whether tensors read each other in the same step at their own points alone."""
    made = {m.tensors[0].name for m in members}
    found = ((m, r) for m in members for p in m.pieces for r in reads(p.value) if r.tensor in made)
    return all(_is_own(m, r) or r.index[:-count] != tuple(map(AffineName, m.axes[:-count])) for m, r in found)


def _accesses(d: Deriver, members: Sequence[Definition]) -> int:
    """Return how many elements are loaded and stored for each point where tensors share its loops."""
    made, own = {m.tensors[0].name for m in members}, {id(m) for m in members}
    loaded = {r for m in members for p in m.pieces for r in reads(p.value) if r.tensor not in made or not _is_own(m, r)}
    others = {r for x in d.program.definitions if id(x) not in own for r in definition_reads(x)}
    return len(loaded) + len(made & (others | {r.tensor for r in loaded} | {*d.program.results}))


def _is_own(m: Definition, read: Read) -> bool:
    return read.index == tuple(map(AffineName, m.axes))


def _together(d: Deriver, members: Sequence[Definition], count: int) -> StepMaps | None:
    """Return how some tensors share the loops of their last axes; None where they may not."""
    lanes = min(d.lanes_of(m) for m in members)
    position = shared_axis(d, members, range(len(members[0].axes) - count, len(members[0].axes)))
    if position is None or not _carry_nothing(d, members, count):
        return None
    extent = extents(members[0])[members[0].axes[position]] or OPEN_EXTENT
    room = d.machine.vector_registers // (2 * len(members))
    vectors = next((n for n in VECTORS if n <= room and n * lanes <= min(extent, MOST_LANES)), 1)
    return StepMaps(tuple(members), count, position, lanes * vectors)


def _carry_nothing(d: Deriver, members: Sequence[Definition], count: int) -> bool:
    """Tell whether no point along the last axes of some tensors needs another of the same step where they share loops."""
    names, own = [m.tensors[0].name for m in members], members[0].axes[-count:]
    try:
        with limited():
            plan = apply(d.program, replace(d, schedule=d.schedule.together(*names, into=own)).since, d.layouts)
            distances = distances_of(plan.placed, {s.name: k for k, m in enumerate(members) for s in plan.stages.of(m)})
            free = {*distances.free(distances.loops)}
    except OperationLimit:
        return False
    return distances.is_legal(distances.loops) and {full(names[0], a) for a in own} <= free


def derive_step_maps(d: Deriver, maps: StepMaps) -> None:
    """Add the directives for tensors that share the loops of their last axes."""
    first, *others = maps.members
    name, own, axis, sizes = first.tensors[0].name, list(first.axes[-maps.count :]), first.axes[maps.position], extents(first)
    d.add(d.schedule.together(name, *(m.tensors[0].name for m in others), into=tuple(own)))
    d.add(d.schedule.split(full(name, axis), maps.lanes, (f"{axis}_o", f"{axis}_v")))
    outer = [*(a for a in own if a != axis), f"{axis}_o"]
    d.add(in_order(d.schedule, name, [*outer, f"{axis}_v"]))
    d.add(d.schedule.vectorize(full(name, f"{axis}_v")))
    steps = prod(sizes[a] or OPEN_EXTENT for a in first.axes[: -maps.count])
    if d.machine.threads > 1 and sum(map(work_of_definition, maps.members)) // max(1, steps) >= PARALLEL_WORK:
        blocks = {f"{axis}_o": -(-(sizes[axis] or OPEN_EXTENT) // maps.lanes)}
        mark_parallel(d, (*others, first), outer, {**sizes, **blocks})
