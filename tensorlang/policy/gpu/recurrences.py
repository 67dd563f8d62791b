"""How recurrences run on a graphics processor: as little as possible one after the other.

    threads     a thread for each point of the loops that carry nothing, which walks through all steps
    launches    each iteration of the outermost loops is launches of its own, over all that carries nothing inside
    one block   the loops as they are, the innermost of those that carry nothing over threads
    rows        a block for each point of the loops that carry nothing, whose threads share the sums of each step
    fronts      every loop carries dependences: one is skewed by multiples of others, so that these carry nothing inside of it, and is
                walked by one block, or by one for each point of the loops that carry nothing, or is launches

What they take is compared in terms of a sum that a thread adds up one after the other; the first in that order that is proven is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from typing import TypeAlias

from polyhedral.deps import dependences
from polyhedral.directions import MOST_SKEW, Distances, distances_of
from polyhedral.order import parallel_loops
from polyhedral.space import OperationLimit, limited
from tensorlang.diagnostics import CompileError
from tensorlang.policy.deriver import Deriver, device_of, is_local
from tensorlang.policy.folds import folded
from tensorlang.policy.gpu.access import is_shared, shape_of, terms_of
from tensorlang.policy.gpu.recurrence_cost import (
    BARRIER,
    block_terms,
    has_blocks,
    launch_terms,
    points_of,
    rounds,
    shared_terms,
    terms_of_element,
)
from tensorlang.policy.gpu.threads import add_blocks, add_elements, share_sums, spread
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import proven
from tensorlang.schedule.plan import Plan, full, owned
from tensorlang.schedule.recurrence import innermost_apart, legal_order
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import extents
from tensorlang.tensor.nodes import Definition, Program
from tensorlang.tensor.walk import component_of, tensor_table

LAUNCHES = 2048
"""Launches of a recurrence at most."""
MOST_PLACES = 3
"""Loops over blocks that a launch has at most."""

_Add: TypeAlias = Callable[[], bool]
"""Adds the directives of a form; tells whether there is such a form."""
_Form: TypeAlias = tuple[float, Schedule, _Add]
"""With the terms that it takes, and the schedule that it is added to."""


def derive_recurrence(d: Deriver, definition: Definition) -> None:
    """Add the directives for the recurrence that `definition` belongs to, all of it where that is the first of it. No more steps are kept
    than are needed."""
    group = component_of(d.program, definition)
    if definition is not group[0]:
        return
    r = _recurrence(d, group)
    for _, ordered, add in sorted((*_forms(d, r), *_joined_forms(d, r)), key=lambda form: form[0]):
        d.schedule = ordered
        if add() and r.is_legal(d):
            break
    else:
        d.schedule = r.ordered
    _fold(d, r)


@dataclass(frozen=True, slots=True)
class _Recurrence:
    """`own`: the directives that put the loops of the group into an order that dependences allow; `ordered`: the schedule with these;
    `others`: the directives for all other recurrences."""

    group: tuple[Definition, ...]
    own: Schedule
    ordered: Schedule
    others: Schedule
    plan: Plan
    free: frozenset[str]
    """The loops that carry nothing inside those that stand around them."""

    @property
    def axes(self) -> list[list[str]]:
        """Return for each tensor the axes that carry nothing."""
        return [[a for a in m.axes if full(m.tensors[0].name, a) in self.free] for m in self.group]

    def is_legal(self, d: Deriver) -> bool:
        """Tell whether what is said of the group so far is legal where all others run in an order that their dependences allow."""
        try:
            proven(d.program, replace(d.schedule, directives=(*d.schedule.directives, *self.others.directives)), advised=False)
        except CompileError:
            return False
        return True


def _recurrence(d: Deriver, group: tuple[Definition, ...]) -> _Recurrence:
    own, others = (_in_order(d.program, members) for members in (group, [x for x in d.program.definitions if x not in group]))
    return _recurrence_in(d, group, own, others)


def _recurrence_in(d: Deriver, group: tuple[Definition, ...], own: Schedule, others: Schedule) -> _Recurrence:
    plan = apply(d.program, own)
    free = parallel_loops(plan.placed, dependences(plan.placed.scop))
    ordered = replace(d.schedule, directives=(*d.schedule.directives, *own.directives))
    return _Recurrence(group, own, ordered, others, plan, frozenset(free))


def _in_order(program: Program, members: Sequence[Definition]) -> Schedule:
    order = Schedule(program.name)
    for member in members:
        order = legal_order(order, program, member)
    return order


def _forms(d: Deriver, r: _Recurrence) -> Iterator[_Form]:
    """Yield what adds each form, with the terms that it takes."""
    group, axes = r.group, r.axes
    serial = [points_of(m, [a for a in m.axes if a not in own]) for m, own in zip(group, axes, strict=True)]
    spare = [points_of(m, own) for m, own in zip(group, axes, strict=True)]
    if all(axes):
        yield (
            sum(s * rounds(n, 1) * terms_of_element(m) for m, s, n in zip(group, serial, spare, strict=True)),
            r.ordered,
            partial(_by_threads, d, r),
        )
    for count in range(1, len(group[0].axes)):
        launched = _in_launches(d, r, count)
        if launched is not None:
            yield launched, r.ordered, partial(_by_launches, d, r, count)
    yield sum(block_terms(d, m, own) for m, own in zip(group, axes, strict=True)), r.ordered, partial(_by_one_block, d, r)
    yield from _with_distances(d, r)


def _joined_forms(d: Deriver, r: _Recurrence) -> Iterator[_Form]:
    """Yield the forms of what shares all loops once the innermost ones are one."""
    found = innermost_apart(r.plan, r.group) if len(r.group) > 1 else {}
    if found:
        joined = r.own.together(*found, into=tuple({*found.values()}))
        yield from _with_distances(d, _recurrence_in(d, r.group, joined, r.others))


def _with_distances(d: Deriver, r: _Recurrence) -> Iterator[_Form]:
    """Yield the forms for tensors that share all their loops."""
    statements = [s for m in r.group for s in r.plan.stages.of(m)]
    if not _may_have_fronts(d, r):
        return
    try:
        with limited():
            distances = distances_of(r.plan.placed, dict.fromkeys((s.name for s in statements), 0))
            loops = distances.loops
            if any(len(m.axes) != len(loops) or None in shape_of(m) or 0 in shape_of(m) for m in r.group):
                return
            apart, sizes = tuple(loop for loop in loops if distances.free([loop])), _extents(d, loops)
            front = _front(distances, sizes, apart) if len(loops) > len(apart) + 1 else None
    except OperationLimit:
        return
    yield from _by_rows(d, r, loops, apart)
    if front is not None:
        yield from _along_front(d, r, front)


def _may_have_fronts(d: Deriver, r: _Recurrence) -> bool:
    """Tell whether tensors share all their loops, and either several of these carry dependences, or there are sums to share: where one loop
    alone does, each of its steps is all that a front is."""
    nests = {r.plan.placed.nests[s.name].loops for m in r.group for s in r.plan.stages.of(m) if s.phase == "define"}
    several = any(len(m.axes) - len(own) > 1 for m, own in zip(r.group, r.axes, strict=True))
    return len(nests) == 1 and (several or any(is_shared(d, m, len(m.axes)) for m in r.group))


# ---------------------------------------------------------------- points that carry nothing


def _by_threads(d: Deriver, r: _Recurrence) -> bool:
    if not _share(d, r):
        return False
    add_elements(d, r.group[0], r.axes[0])
    return True


def _share(d: Deriver, r: _Recurrence) -> bool:
    """Make one loop of those over each axis that carries nothing, of all that are computed step by step together; tell whether there are
    such axes and they are alike."""
    group, axes = r.group, r.axes
    shapes = [[extents(member)[a] for a in own] for member, own in zip(group, axes, strict=True)]
    if not axes[0] or any(shape != shapes[0] for shape in shapes):
        return False
    for k, axis in enumerate(axes[0] if len(group) > 1 else ()):
        loops = [full(member.tensors[0].name, own[k]) for member, own in zip(group, axes, strict=True)]
        d.add(d.schedule.together(*loops, into=(axis,)))
    return True


def _steps(r: _Recurrence, count: int) -> list[list[str]]:
    """Return for each tensor the outermost `count` axes that carry dependences."""
    return [[a for a in member.axes if a not in own][:count] for member, own in zip(r.group, r.axes, strict=True)]


def _in_launches(d: Deriver, r: _Recurrence, count: int) -> float | None:
    """Return what launches for each iteration of the outermost `count` loops that carry dependences take; None where there are too many,
    or nothing that they could be launches of."""
    total = 0.0
    for member, own, outer in zip(r.group, r.axes, _steps(r, count), strict=True):
        many, walked = points_of(member, outer), points_of(member, [a for a in member.axes if a not in (*own, *outer)])
        if not (own or walked == 1) or len(outer) != count or None in shape_of(member) or many * len(r.group) > LAUNCHES:
            return None
        if terms_of(member, len(member.axes)) is None:
            return None
        total += many * launch_terms(d, member, points_of(member, own), walked)
    return total


def _by_launches(d: Deriver, r: _Recurrence, count: int) -> bool:
    """Give what carries nothing to the grid inside of the outermost `count` loops that do, of which each iteration is launches of its own.
    All tensors share the loops of the first one's steps."""
    steps, group = _steps(r, count), r.group
    loops = [full(group[0].tensors[0].name, a) for a in steps[0]]
    for member, own, outer in zip(group, r.axes, steps, strict=True):
        name = member.tensors[0].name
        if len(own) + count == len(member.axes) and has_blocks(d, member, points_of(member, own)):
            if own:
                d.add(d.schedule.order(*loops, *(full(name, a) for a in own)))
                add_blocks(d, member, own)
            share_sums(d, member)
        else:
            add_elements(d, member, own, neighbours=False, steps=dict(zip(outer, loops, strict=True)))
    return True


def _by_one_block(d: Deriver, r: _Recurrence) -> bool:
    for member in r.group:
        _add_one_block(d, member, r.free)
    return True


def _add_one_block(d: Deriver, definition: Definition, free: frozenset[str]) -> None:
    """Spread the innermost of the axes that carry nothing over threads, or, where there is none, the terms of sums."""
    name, sizes = definition.tensors[0].name, extents(definition)
    inner = next((a for a in reversed(definition.axes) if full(name, a) in free and sizes[a] != 1), None)
    if 0 in shape_of(definition):
        return
    if inner is None:
        share_sums(d, definition)
        return
    _spread_over(d, full(name, inner), sizes[inner], d.machine.threads)


def _spread_over(d: Deriver, loop: str, extent: int | None, threads: int) -> None:
    """Give a loop to threads, each of which takes every so many-th of its iterations."""
    if extent is not None and extent <= threads:
        d.add(d.schedule.bind(loop, to="thread"))
        return
    name, last = loop.rsplit(".", 1)
    split = d.schedule.split(loop, threads, (f"{last}.o", f"{last}.t"))
    d.add(split.bind(f"{name}.{last}.t", to="thread"))


# ---------------------------------------------------------------- sums that threads of a block share


def _by_rows(d: Deriver, r: _Recurrence, loops: Sequence[str], apart: Sequence[str]) -> Iterator[_Form]:
    """Yield the form in which blocks share the sums of each step, one for each point of the loops `apart`, which carry nothing at all."""
    if any(is_shared(d, m, len(m.axes)) for m in r.group):
        rows, total = prod(map(_extents(d, apart).__getitem__, apart)), 0.0
        for m in r.group:
            terms, team = shared_terms(d, m)
            total += points_of(m, m.axes) / rows * terms * rounds(rows, team)
        yield total, r.ordered, partial(_add_rows, d, r, loops, apart)


def _add_rows(d: Deriver, r: _Recurrence, loops: Sequence[str], apart: Sequence[str]) -> bool:
    d.add(d.schedule.order(*apart, *(loop for loop in loops if loop not in apart)) if len(loops) > 1 else d.schedule)
    _add_apart(d, apart)
    for member in r.group:
        share_sums(d, member)
    return True


def _add_apart(d: Deriver, apart: Sequence[str]) -> None:
    """Give loops that carry nothing to blocks."""
    loop, *others = apart or ("",)
    for k, other in enumerate(others):
        name = loop.rsplit(".", 1)[0]
        d.add(d.schedule.fuse(loop, other, f"row{k}"))
        loop = f"{name}.row{k}"
    d.add(d.schedule.bind(loop, to="block.x") if loop else d.schedule)


def _extents(d: Deriver, loops: Sequence[str]) -> dict[str, int]:
    """Return the extents of the axes that loops are named after."""
    tensors, by_name = tensor_table(d.program), {t.name: x for x in d.program.definitions for t in x.tensors}
    found = {loop: owned(loop, tensors) for loop in loops}
    return {loop: extents(by_name[tensor])[axis] or 1 for loop, (tensor, axis) in found.items()}


# ---------------------------------------------------------------- fronts


@dataclass(frozen=True, slots=True)
class _Front:
    """What has one sum of the loop `skewed` and multiples of others does not need each other: those of `others`, the longest of which is
    last. `apart`: loops that carry nothing at all; `steps`: how many such sums there are."""

    apart: tuple[str, ...]
    skewed: str
    factors: Mapping[str, int]
    others: tuple[str, ...]
    steps: int
    sizes: Mapping[str, int]

    @property
    def rows(self) -> int:
        return prod(self.sizes[loop] for loop in self.apart)

    @property
    def points(self) -> int:
        """Return of how many points a step consists, as a rule, for each point of the loops `apart`."""
        return -(-self.sizes[self.skewed] * prod(self.sizes[loop] for loop in self.others) // self.steps)

    @property
    def beside(self) -> int:
        """Return how many points the loops have that threads walk."""
        return prod(self.sizes[loop] for loop in self.others[:-1])


def _front(distances: Distances, sizes: Mapping[str, int], apart: Sequence[str]) -> _Front | None:
    """Return the front with the fewest steps; None where there is none."""
    rest = [loop for loop in distances.loops if loop not in apart]
    found: list[_Front] = []
    for skewed in reversed(rest):
        others = sorted((loop for loop in rest if loop != skewed), key=lambda loop: sizes[loop])
        for multiples in product(range(MOST_SKEW + 1), repeat=len(others)):
            factors = {loop: factor for loop, factor in zip(others, multiples, strict=True) if factor}
            steps = sizes[skewed] + sum(factor * (sizes[loop] - 1) for loop, factor in factors.items())
            found.append(_Front(tuple(apart), skewed, factors, tuple(others), steps, sizes))
    ordered = sorted(found, key=lambda front: (front.steps, -front.sizes[front.others[-1]]))
    return next((front for front in ordered if distances.is_wavefront({**front.factors, front.skewed: 1})), None)


def _along_front(d: Deriver, r: _Recurrence, front: _Front) -> Iterator[_Form]:
    """Yield the forms of a front: in one block, or in one for each point of the loops that stand apart, and in launches."""
    threads = _threads_of_front(d, front)
    each = max(1, front.points // front.beside)
    elements = front.beside * -(-each // threads) * sum(map(terms_of_element, r.group))
    yield front.steps * (BARRIER + elements) * rounds(front.rows, threads), r.ordered, partial(_add_front_in_blocks, d, front)
    outside = (*front.apart, *front.others)
    if front.steps <= LAUNCHES and len(outside) <= MOST_PLACES:
        terms = max(launch_terms(d, m, front.rows * front.points, 1) for m in r.group)
        by_blocks = any(has_blocks(d, m, front.rows * front.points) for m in r.group)
        yield front.steps * terms, r.ordered, partial(_add_front_in_launches, d, r, front, by_blocks=by_blocks)


def _threads_of_front(d: Deriver, front: _Front) -> int:
    """Return how many threads of a block walk along a front: more than usual, where there are few blocks."""
    machine, extent = device_of(d), front.sizes[front.others[-1]]
    most = machine.most_threads if front.rows <= machine.blocks else machine.threads
    return max(machine.warp, min(most, 1 << (extent - 1).bit_length()))


def _add_skewed(d: Deriver, front: _Front, order: Sequence[str]) -> None:
    for other, factor in front.factors.items():
        d.add(d.schedule.skew(front.skewed, other, factor))
    d.add(d.schedule.order(*order))


def _add_front_in_blocks(d: Deriver, front: _Front) -> bool:
    _add_skewed(d, front, (*front.apart, front.skewed, *front.others))
    _add_apart(d, front.apart)
    _spread_over(d, front.others[-1], None, _threads_of_front(d, front))
    return True


def _add_front_in_launches(d: Deriver, r: _Recurrence, front: _Front, *, by_blocks: bool) -> bool:
    outside = [*front.apart, *front.others]
    _add_skewed(d, front, (front.skewed, *outside))
    places = ("block.z", "block.y", "block.x")[-len(outside) :]
    if by_blocks:
        d.add(d.schedule.bind(*outside, to=places))
        for member in r.group:
            share_sums(d, member)
        return True
    name, last = outside[-1].rsplit(".", 1)
    threads = spread(device_of(d), front.rows * front.points)
    d.add(d.schedule.split(outside[-1], threads, (f"{last}.o", f"{last}.t")))
    d.add(d.schedule.bind(*outside[:-1], f"{name}.{last}.o", f"{name}.{last}.t", to=(*places, "thread")))
    return True


# ---------------------------------------------------------------- what is kept


def _fold(d: Deriver, r: _Recurrence) -> None:
    """Keep as few steps of tensors that nobody outside sees as do."""
    before = d.schedule
    local = [member for member in r.group if is_local(d, member)]
    placed = apply(d.program, d.schedule, d.layouts) if local else None
    for member in local:
        assert placed is not None
        for name, axis, count in tuple(folded(placed, member, member.axes)):
            d.add(d.schedule.fold(name, axis, count))
    if d.schedule != before and not r.is_legal(d):
        d.schedule = before
