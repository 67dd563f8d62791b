"""Joint rows: fields of a step that no near cache holds run row by row in one loop, each so many rows behind the others that what it needs
of this step is there. Of what is made on the way a few rows are kept.

    a[t, i, j]     = f(u[t, i - 1, j], u[t, i + 1, j])         shift u.i by 1;  together a, u -> i
    u[t + 1, i, j] = g(a[t, i - 1, j], a[t, i + 1, j])         fold a at i by 3;  fold u at t by 1

Where there is room for tiles of several steps, rows run in these (`time_tiles`), which threads share; otherwise one thread goes through the
rows of each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from polyhedral.directions import distances_of
from polyhedral.space import OperationLimit, limited
from tensorlang.policy.cpu.inner_cost import InnerLoops
from tensorlang.policy.cpu.inner_loops import add_inner_loops, best_inner_loops
from tensorlang.policy.cpu.nests import Loops, loops_of, statements_of
from tensorlang.policy.cpu.strips import MOST_TERMS
from tensorlang.policy.cpu.time_tiles import add_time_tile, best_row_offsets, best_shared_tile, may_be_large
from tensorlang.policy.deriver import Deriver, in_order, is_local
from tensorlang.policy.folds import least_folded
from tensorlang.schedule.apply import apply
from tensorlang.schedule.plan import Plan, full, owned
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import reduces, tensor_table


class _Field(NamedTuple):
    """A tensor that has rows in a step: its loops, the first of which is over rows, and the loops inside of that."""

    definition: Definition
    loops: Loops
    inner: InnerLoops

    @property
    def rows(self) -> str:
        return self.loops.axes[0]


def derive_joint_rows(d: Deriver, plan: Plan, group: Sequence[Definition]) -> bool:
    """Add the directives for fields that run row by row; tell whether they do."""
    if not may_be_large(d, group) or not all(is_local(d, member) and _has_few_terms(member) for member in group):
        return False
    known = [f for f in (_field(d, plan, member, group) for member in group) if f is not None]
    if len(known) < len(group):
        return False
    (step,) = known[0].loops.outside
    first, time = owned(step, tensor_table(d.program))
    known.sort(key=lambda f: f.loops.name != first)
    group, spaces = [f.definition for f in known], [f.rows for f in known]
    if known[0].loops.name != first or time not in group[0].axes:
        return False
    names = [f.loops.name for f in known]
    shared = replace(d, schedule=d.schedule.together(*names, into=spaces[:1]))
    placed = apply(d.program, shared.since, d.layouts)
    own = {name: k for k, member in enumerate(group) for name in statements_of(placed, member)}
    try:
        with limited():
            distances = distances_of(placed.placed, own)
            tile = best_shared_tile(d, group, time, spaces, distances)
            offsets = tile.offsets if tile is not None else best_row_offsets(d, group, step, time, spaces, distances)
    except OperationLimit:
        return False
    if offsets is None:
        return False
    for f, offset in zip(known, offsets, strict=True):
        d.add(d.schedule.shift(full(f.loops.name, f.rows), offset) if offset else d.schedule)
    d.add(d.schedule.together(*names, into=spaces[:1]))
    if tile is not None:
        within = add_time_tile(d, group[0], tile)
        d.add(in_order(d.schedule, first, within))
    for f in known:
        outer = add_inner_loops(d, f.definition, f.loops.axes[1:], f.inner)
        apart = len(f.definition.pieces) > 1
        d.add(d.schedule.distribute(f.loops.name, at=full(f.loops.name, outer[0])) if apart else d.schedule)
    placed = apply(d.program, d.since, d.layouts)
    for f in known:
        axes = f.definition.axes
        orders = [axes, [f.rows, *(a for a in axes if a != f.rows)]] if tile is not None else [axes]
        for name, axis, count in least_folded(placed, f.definition, orders):
            d.add(d.schedule.fold(name, axis, count))
    return True


def _has_few_terms(member: Definition) -> bool:
    """Tell whether elements are sums of windows at most, of which those beside each other share what they read."""
    found = (r for p in member.pieces for r in reduces(p.value))
    return all(prod(b.extent or MOST_TERMS + 1 for b in r.binders) <= MOST_TERMS for r in found)


def _field(d: Deriver, plan: Plan, member: Definition, group: Sequence[Definition]) -> _Field | None:
    """Return a member of a group as one that is computed row by row in each step, in vectors along its rows; None where it is not."""
    loops = loops_of(plan, member, group)
    if loops is None or len(loops.outside) != 1 or len(loops.axes) < 2 or loops.free(loops.axes, None) != list(loops.axes):
        return None
    inner = replace(best_inner_loops(d, member, loops.axes[1:]), rows=())
    return _Field(member, loops, inner) if inner.vector and inner.vector[0] in loops.axes[1:] else None
