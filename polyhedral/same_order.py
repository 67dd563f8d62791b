"""Whether two schedules run the same iterations in the same order, however their loops count: a skew that nothing makes use of changes
numbers alone. Loops run alike where the same instances run together in each of them, and the same before others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import islpy as isl

from polyhedral.model import Leaf, Loop, Tree
from polyhedral.nest import Nest
from polyhedral.schedule import Schedule
from polyhedral.space import DT, OperationLimit, limited


def in_same_order(one: Schedule, other: Schedule) -> bool:
    """Return whether two schedules run the same iterations in the same order and way; False where that takes too long to know."""
    if _shape(one) != _shape(other):
        return False
    try:
        with limited():
            return _in_step(one, other)
    except OperationLimit:
        return False


def _shape(schedule: Schedule) -> tuple[object, ...]:
    """Return the loops around each placement. Lanes, copies and threads of a loop that runs once are serial."""
    nests = schedule.nests

    def plain(node: Tree) -> Tree:
        if isinstance(node, Leaf):
            return node
        marked = node.mark in ("vector", "unroll", "parallel")
        once = marked and all(n.extent(node.name) == 1 for n in nests.values() if node.name in n.loops)
        return replace(node, body=tuple(map(plain, node.body)), mark="serial" if once else node.mark)

    return tuple(map(plain, schedule.tree)), {name: (n.statement, n.loops) for name, n in nests.items()}


def _in_step(one: Schedule, other: Schedule) -> bool:
    """Tell whether the placements of one tree run alike. What nests share has to count alike in all of them, and so has what marked loops
    run in lanes, copies or threads; of other loops nobody sees more than the order in which they reach their innermost iterations."""
    shared = Counter(place.loops[:depth] for place in one.places.values() for depth in range(1, len(place.loops) + 1))
    beside: dict[tuple[Loop, ...], isl.Map] = {}
    for placement, place in one.places.items():
        nest, there = one.nests[placement], other.nests[placement]
        if any(loop.mark != "serial" and nest.extent(loop.name) != there.extent(loop.name) for loop in place.loops):
            return False
        same = _same_instances(nest, there)
        if same is None:
            return False
        for depth in range(1, len(place.loops) + 1):
            around, marked = place.loops[:depth], any(loop.mark != "serial" for loop in place.loops[depth - 1 : depth + 1])
            if marked or shared[around] > 1 or depth == len(place.loops):
                outer = _outermost(depth, same)
                beside[around] = beside[around].union(outer).coalesce() if around in beside else outer
    return all(map(_keeps_order, beside.values()))


def _same_instances(one: Nest, other: Nest) -> isl.Map | None:
    """Return { [loops] -> [loops of other] } where they run the same instance, which each may run more than once only where both count
    alike; None where one of the two runs others."""
    if one.points.is_equal(other.points) and one.iter_exprs() == other.iter_exprs():
        return one.points.identity() if one.box.is_equal(other.box) else None
    points, others = (n.points.intersect_params(n.context) for n in (one, other))
    run, there = (isl.Map.from_multi_aff(n.back).intersect_domain(p) for n, p in ((one, points), (other, others)))
    same = run.apply_range(there.reverse())
    return same if same.domain().is_equal(points) and same.range().is_equal(others) else None


def _outermost(count: int, beside: isl.Map) -> isl.Map:
    """Return what is left of a relation between points where their outermost loops count alone."""
    for kind in (DT.in_, DT.out):
        beside = beside.project_out(kind, count, beside.dim(kind) - count)
    return beside


def _keeps_order(beside: isl.Map) -> bool:
    """Tell whether a relation between points is one to one, and whether what is before something stays before it."""
    back = beside.reverse()
    here, there = (isl.Map.lex_lt(side.get_space()) for side in (beside.domain(), beside.range()))
    kept = back.apply_range(here).apply_range(beside).is_subset(there)
    return bool(kept and beside.apply_range(there).apply_range(back).is_subset(here))
