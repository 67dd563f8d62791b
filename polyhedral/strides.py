"""Loops whose values lie some apart, counted one by one.

    { [p, q] : 0 <= q < 32 and (p + q) % 2 == 0 }     half of the iterations over q do nothing
    q = 2*k + p % 2                                   for k in 0 .. 16

Changes of variables that keep no volume (diamonds: `p = t + i, q = t - i`) leave such loops, and conditions of parity do. A loop keeps its
name, and its order; nothing else of a schedule sees its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyhedral.expr import Add, Expr, Mod, Name, Scale
from polyhedral.model import BLOCKS, THREADS, Loop, Mark, Tree
from polyhedral.nest import Nest
from polyhedral.schedule import Schedule, placements_in
from polyhedral.space import DT, Frame, integer


def counted(schedule: Schedule) -> Schedule:
    """Return a schedule that runs the same statements in the same order, whose loops of processors have no gaps that they have in every
    round of the loops around them."""
    if not any(basic.dim(DT.div) for nest in schedule.nests.values() for basic in nest.points.get_basic_sets()):
        return schedule
    nests = dict(schedule.nests)
    for node in schedule.tree:
        nests |= _counted(node, 0, nests)
    return replace(schedule, nests=nests)


def _counted(node: Tree, depth: int, nests: Mapping[str, Nest]) -> dict[str, Nest]:
    """Return the nests below a node with what loops count from it inwards."""
    if not isinstance(node, Loop):
        return {}
    found = {placement: nests[placement] for placement in placements_in(node)}
    value = None if node.mark in BLOCKS | THREADS else _value(list(found.values()), depth, node.mark)
    if value is not None:
        found = {placement: nest.counting(node.name, value) for placement, nest in found.items()}
    for inner in node.body:
        found |= _counted(inner, depth + 1, found)
    return found


def _value(nests: Sequence[Nest], depth: int, mark: Mark) -> Expr | None:
    """Return what the loop at a depth is when it counts the values that it has in any of the nests; None where these lie side by side.
    What runs in tiles counts from 0 on in each round, so that its length stays a constant."""
    points = isl.Set.empty(Frame(nests[0].params, nests[0].loops[: depth + 1]).space)
    for nest in nests:
        inside = nest.points.intersect_params(nest.context)
        points = points.union(inside.project_out(DT.set, depth + 1, len(nest.loops) - depth - 1))
    if points.is_empty():
        return None
    found = points.get_stride_info(depth)
    step = integer(found.get_stride())
    if step < 2:
        return None
    frame = Frame(nests[0].params, nests[0].loops[: depth + 1])
    first = frame.expr(found.get_offset())
    return Add(Scale(step, Name(frame.dims[depth])), first if mark in ("serial", "parallel") else Mod(first, step))
