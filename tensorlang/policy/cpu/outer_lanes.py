"""Outer lanes: tensors that need each other in loops of different depth, whose outermost points need none of each other.

    p[b, k, t] = p[b, k, t - 1] * x[b, k] + c[b, t]              split p.b by 8 -> b_o, b_v
    d[b, k, t] = d[b, k, t - 1] * x[b, k] + p[b, k, t - 1]   →   order p.b_o, p.k, p.t, d.t, p.b_v
    x[b, k + 1] = x[b, k] - p[b, k, T] / d[b, k, T]              vectorize p.b_v

Loops inside of the ones that all share are steps of their own, or short: a vector of points goes through all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import mul

from polyhedral import affine
from polyhedral.directions import distances_of
from polyhedral.space import OperationLimit, limited
from tensorlang.policy.cpu.inner_cost import InnerLoops, cycles_of
from tensorlang.policy.cpu.nests import Order, chosen_order, has_no_sums, loops_of, statements_of
from tensorlang.policy.cpu.recurrence_storage import add_storage
from tensorlang.policy.cpu.shared_steps import vectors_beside
from tensorlang.policy.cpu.step_sums import share_loop, step_sums
from tensorlang.policy.cpu.wavefronts import waiting_cycles
from tensorlang.policy.deriver import Deriver, is_local, is_threading_profitable, shared_loops
from tensorlang.policy.legality import in_legal_order, is_proven
from tensorlang.schedule.plan import Plan, full, owned
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import distance, reduces, tensor_table

WORTH = 0.7
"""Share of the cycles of tensors that have schedules of their own which lanes outside of all loops take at most: estimates are of no more
than their order."""


def derive_outer_lanes(d: Deriver, plan: Plan, group: Sequence[Definition]) -> bool:
    """Add the directives for tensors that share a loop which carries nothing: its points are lanes, inside of all other loops. Tell whether
    there is such a loop, and it takes less than a schedule of its own for each tensor."""
    shared = _shared_loops(plan, group)
    free = _free_among(plan, group, shared)
    orders = [_own_order(d, plan, m, group) for m in group] if free else []
    known = [(m, order) for m, order in zip(group, orders, strict=False) if order is not None]
    if len(known) < len(group) or all(not order.axes and has_no_sums(m) for m, order in known):
        return False
    apart = sum(_points(m) * order.inner.cycles for m, order in known)
    found = [(lanes, loop) for loop in free if (lanes := _lanes_along(d, plan, group, loop)) is not None]
    lanes, loop = min(found, default=(None, ""), key=lambda x: x[0].cycles)
    if lanes is None or lanes.cycles > WORTH * apart:
        return False
    before = d.schedule
    _add_outer_lanes(d, plan, known, loop, [x for x in shared if x != loop], lanes.count)
    if not is_proven(in_legal_order(d)):
        d.schedule = before
        return False
    add_storage(d, [(m, None) for m in group if is_local(d, m)])
    return True


def _shared_loops(plan: Plan, group: Sequence[Definition]) -> list[str]:
    """Return the loops that all statements of a group are in, outermost first."""
    nests = [plan.placed.nests[s].loops for m in group for s in statements_of(plan, m)]
    return [loop for loop in nests[0] if all(loop in other for other in nests)]


def _free_among(plan: Plan, group: Sequence[Definition], shared: Sequence[str]) -> list[str]:
    """Return those of some loops that carry nothing even where they are outermost: no point along them needs another."""
    if not shared:
        return []
    try:
        with limited():
            distances = distances_of(plan.placed, {s: k for k, m in enumerate(group) for s in statements_of(plan, m)})
            return [x for x in shared if x in distances.free([x, *(other for other in shared if other != x)])]
    except OperationLimit:
        return []


def _own_order(d: Deriver, plan: Plan, member: Definition, group: Sequence[Definition]) -> Order | None:
    """Return the order of the loops that a member does not share, and what would run innermost; None where there is none."""
    loops = loops_of(plan, member, group)
    order = chosen_order(d, member, loops) if loops is not None else None
    if loops is None or order is None:
        return None
    separate = None if order.separate is None else max(0, order.separate - len(loops.outside))
    is_free = not order.axes or order.axes[-1] in loops.free(order.axes, order.separate)
    waiting = 0.0 if is_free and order.axes else waiting_cycles([member])
    inner = replace(order.inner, cycles=max(order.inner.cycles, waiting))
    return replace(order, separate=separate, inner=inner)


def _points(member: Definition) -> int:
    sizes = extents(member)
    return prod(sizes[a] or OPEN_EXTENT for a in member.axes)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """How many lanes there are, of one vector or several beside each other, and the cycles of all points of a group."""

    count: int
    cycles: float


def _lanes_along(d: Deriver, plan: Plan, group: Sequence[Definition], loop: str) -> _Lanes | None:
    """Return the lanes that points along a loop may be, which wait together; None where an axis is too short, or no loop of its own."""
    axes = [_axis_along(plan, m, loop) for m in group]
    lanes, points = (
        min(d.lanes_of(m) for m in group),
        min((extents(m)[a] or OPEN_EXTENT for m, a in zip(group, axes, strict=True) if a), default=0),
    )
    if None in axes or not 2 <= lanes <= points:
        return None
    local = tuple(t.name for m in group if is_local(d, m) for t in m.tensors)
    work = [cycles_of(d, m, InnerLoops(vector=(a,), packed=local)) for m, a in zip(group, axes, strict=True) if a]
    waiting = [waiting_cycles([m]) for m in group]
    counts = [_points(m) for m in group]
    lanes *= vectors_beside(d, group, points, *(sum(map(mul, counts, cycles)) for cycles in (work, waiting)))
    return _Lanes(lanes, sum(n * max(w, wait / lanes) for n, w, wait in zip(counts, work, waiting, strict=True)))


def _axis_along(plan: Plan, member: Definition, loop: str) -> str | None:
    """Return the axis that a loop is over, for all statements of a member; None where it is over none, or several."""
    nests = [plan.placed.nests[s] for s in statements_of(plan, member)]
    exprs = [(axis, e) for n in nests for axis, e in n.iter_exprs().items() if loop in affine.name_set(e)]
    found = {axis for axis, _ in exprs}
    straight = all(distance(e, loop) is not None for _, e in exprs)
    return found.pop() if straight and len(found) == 1 and found <= {*member.axes} else None


def _add_outer_lanes(
    d: Deriver, plan: Plan, orders: Sequence[tuple[Definition, Order]], loop: str, around: Sequence[str], lanes: int
) -> None:
    """Add the directives for a group in lanes along a `loop`, inside of those `around` and of all that a member does not share."""
    group = [m for m, _ in orders]
    inner, callers = list[str](), dict[str, str]()
    for first, *others in step_sums(d, plan, group):
        share_loop(d, [first, *others])
        callers |= {m.tensors[0].name: first.tensors[0].name for m in others}
    for m, order in orders:
        name, own = m.tensors[0].name, [full(m.tensors[0].name, a) for a in order.axes]
        if order.separate is not None and order.separate < len(own):
            d.add(d.schedule.distribute(name, at=own[order.separate]))
        binders = [b.name for p in m.pieces for r in reduces(p.value) for b in r.binders]
        inner += own if name in callers else [*own, *(full(name, b) for b in binders)]
    owner, axis = owned(loop, tensor_table(d.program))
    outer, vector = f"{axis}_o", f"{axis}_v"
    d.add(d.schedule.split(loop, lanes, (outer, vector)))
    d.add(d.schedule.order(*(full(owner, outer), *around, *dict.fromkeys(inner), full(owner, vector))))
    d.add(d.schedule.vectorize(full(owner, vector)))
    if is_threading_profitable(d, group):
        extent = next((extents(m)[axis] for m in group if m.tensors[0].name == owner), None) or OPEN_EXTENT
        chosen = shared_loops([outer], [-(-extent // lanes)], d.machine.threads)
        d.add(d.schedule.parallel(*(full(owner, x) for x in chosen)) if chosen else d.schedule)
