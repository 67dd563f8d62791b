"""Writes that put into a cell the very value that it holds already, where an axis of a tensor is folded.

    u[t + 1, x] = u[t, x]      of which two steps are kept      u[t + 1, x] goes where u[t - 1, x] lies, which is the same value
    u[t + 1, x] = b[x]         of which m steps are kept        so does u[t + 1, x] with u[t + 1 - m, x]

Such a write is left out, but for the first into each cell: the fixed rim of a stencil is written once for each step that is kept, and not
in every step. Of a proven schedule with proven storage the rest computes the same. Between two writes into a cell of a tensor that is
folded along one axis nothing else is written there. A copy needs what it is a copy of, so whoever reads it runs after the first of them, on
whatever threads; of values that are the same without one needing the other, the order of the loops has to say so, and one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import islpy as isl

from polyhedral.deps import access_map
from polyhedral.expr import Name
from polyhedral.model import AT_ONCE, Statement
from polyhedral.schedule import Schedule
from polyhedral.space import OperationLimit, limited, val


def without_rewrites(schedule: Schedule, folds: Mapping[str, tuple[int, int]]) -> Schedule:
    """Return the schedule without the instances that write what their cells hold. `folds`: tensor → the one axis along which it is folded,
    and for how many steps it is kept; its elements lie in a buffer of their own, apart but for that. A write that can only be told from
    others by more conditions than before stays."""
    nests = dict(schedule.nests)
    for tensor, (axis, modulus) in folds.items():
        writers = [s for s in schedule.scop.statements if s.write.tensor == tensor]
        try:
            with limited():
                again = _written_again(schedule, writers, axis, modulus)
                if again is None or again.is_empty() or not _is_written_once(schedule, writers):
                    continue
                for statement in writers:
                    skipped = access_map(schedule.scop, statement, statement.write).intersect_range(again).domain()
                    for nest in () if skipped.is_empty() else schedule.placements(statement.name):
                        left = nest.points.subtract(skipped.preimage_multi_aff(nest.back)).coalesce()
                        if left.n_basic_set() <= nest.points.coalesce().n_basic_set():
                            nests[nest.placement] = replace(nest, points=left)
        except OperationLimit:
            continue
    return replace(schedule, nests=nests)


def _written_again(schedule: Schedule, writers: list[Statement], axis: int, modulus: int) -> isl.Set | None:
    """Return the elements whose value is that of the element before them in their cell; None where there are none."""
    found: list[isl.Set] = []
    copied: dict[int, list[isl.Set]] = {}
    for statement in (s for s in writers if s.role == "define" and s.write.is_exact):
        write = access_map(schedule.scop, statement, statement.write)
        if _axis_name(statement, axis) in statement.same_along:
            elements = _written(schedule, statement)
            again = elements.intersect(_moved(elements, axis, modulus))
            if not again.is_empty() and _follow(schedule, statement, again, axis, modulus):
                found.append(again)
        for access in (a for a in statement.copied if a.tensor == statement.write.tensor and a.is_exact):
            pairs = write.reverse().apply_range(access_map(schedule.scop, statement, access))
            for step in (k for k in range(1, modulus + 1) if modulus % k == 0):
                elements = pairs.intersect(_translation(pairs, axis, -step)).domain()
                if not elements.is_empty():
                    copied.setdefault(step, []).append(elements)
    for step, parts in copied.items():
        elements = reduce(isl.Set.union, parts).coalesce()
        found.append(reduce(isl.Set.intersect, (_moved(elements, axis, step * k) for k in range(modulus // step))))
    return reduce(isl.Set.union, found).coalesce() if found else None


def _written(schedule: Schedule, statement: Statement) -> isl.Set:
    """Return the elements that a statement writes where it runs: what nobody needs may be left out of its loops."""
    write = access_map(schedule.scop, statement, statement.write)
    placed = (write.preimage_domain_multi_aff(n.back).intersect_domain(n.points).range() for n in schedule.placements(statement.name))
    return reduce(isl.Set.union, placed).coalesce()


def _follow(schedule: Schedule, statement: Statement, again: isl.Set, axis: int, modulus: int) -> bool:
    """Tell whether a statement writes elements after those that lie before them in their cells, all in one thread."""
    (nest, *others) = schedule.placements(statement.name)
    if others or any(loop.mark in AT_ONCE for loop in schedule.places[nest.placement].loops):
        return False
    write = access_map(schedule.scop, statement, statement.write).preimage_domain_multi_aff(nest.back).intersect_domain(nest.points)
    before = _translation(isl.Map.identity(again.get_space().map_from_set()), axis, -modulus).intersect_domain(again)
    pairs = write.apply_range(before).apply_range(write.reverse()).intersect_params(nest.context)
    return bool(pairs.is_subset(isl.Map.lex_gt(nest.points.get_space())))


def _axis_name(statement: Statement, axis: int) -> str | None:
    """Return the iterator of a statement that is the index along an axis of what it writes; None where it is none alone."""
    index = statement.write.index[axis]
    return index.name if isinstance(index, Name) else None


def _moved(elements: isl.Set, axis: int, distance: int) -> isl.Set:
    """Return the elements so far behind others along an axis."""
    return elements.apply(_translation(isl.Map.identity(elements.get_space().map_from_set()), axis, distance))


def _translation(like: isl.Map, axis: int, distance: int) -> isl.Map:
    """Return `{ [x] -> [y] }` of elements of which one lies so far behind the other along an axis, in the space of `like`."""
    space = like.get_space().domain()
    origin = isl.MultiVal.zero(space).set_val(axis, val(distance))
    return isl.Map.from_multi_aff(isl.MultiAff.identity_on_domain_space(space).add_constant_multi_val(origin))


def _is_written_once(schedule: Schedule, writers: list[Statement]) -> bool:
    """Tell whether no instance of a statement runs twice."""
    for statement in writers:
        placed = [(nest.points.intersect_params(nest.context), nest) for nest in schedule.placements(statement.name)]
        maps = [isl.Map.from_multi_aff(nest.back).intersect_domain(points) for points, nest in placed]
        if not all(m.is_injective() for m in maps):
            return False
        if any(not one.range().is_disjoint(other.range()) for k, one in enumerate(maps) for other in maps[:k]):
            return False
    return True
