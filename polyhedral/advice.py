"""What would make a schedule legal: loop' = loop + factor * by, so that a backwards distance becomes forwards. Found by trying, returned
only when proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from polyhedral import affine
from polyhedral.deps import Dep, dependences
from polyhedral.errors import NestError
from polyhedral.expr import Name
from polyhedral.nest import Nest
from polyhedral.order import Storage, Violation, check, distance
from polyhedral.schedule import Schedule, placements_in
from polyhedral.space import Frame, OperationLimit, limited
from polyhedral.verdict import Proven

MAX_FACTOR = 4
MAX_TRIALS = 16


def suggest_skew(schedule: Schedule, violation: Violation, storage: Storage | None = None) -> tuple[str, str, int] | None:
    """Return (loop, by, factor) such that skewing `loop` by `factor * by` makes the schedule legal: loops of the schedule as it is, or the
    iterators of the statement to be skewed before they are split. None when no such skew was found."""
    if violation.kind != "order" or violation.loop is None:
        return None
    try:
        with limited():
            if violation.loop not in violation.source.iters:
                return _skew_of_iterators(schedule, violation) or _skew_of_loops(schedule, violation.loop, storage)
            return _skew_of_loops(schedule, violation.loop, storage)
    except OperationLimit:
        return None


def _skew_of_loops(schedule: Schedule, loop: str, storage: Storage | None) -> tuple[str, str, int] | None:
    deps = dependences(schedule.scop)
    affected = [p for node in schedule.tree for p in placements_in(node) if loop in schedule.nests[p].loops]
    common = [n for n in schedule.nests[affected[0]].loops if n != loop and all(n in schedule.nests[p].loops for p in affected)]
    for by, factor in _candidates(common):
        try:
            nests = {p: n.skew(loop, by, factor) if p in affected else n for p, n in schedule.nests.items()}
        except NestError:
            continue
        if isinstance(check(replace(schedule, nests=nests), deps, storage=storage), Proven):
            return loop, by, factor
    return None


def _candidates(names: Sequence[str]) -> Iterator[tuple[str, int]]:
    tried = [(n, f) for f in range(1, MAX_FACTOR + 1) for n in names]
    yield from tried[:MAX_TRIALS]


def _skew_of_iterators(schedule: Schedule, violation: Violation) -> tuple[str, str, int] | None:
    """Return a skew of the violated loop's iterator after which every distance of the statement on itself is nonnegative along both."""
    statement = violation.source.statement
    if statement != violation.target.statement:
        return None
    nest = schedule.placements(statement)[0]
    relations = [d for d in dependences(schedule.scop) if d.hard and d.source == d.target == statement]
    for iterator in _iterators_of(nest, violation.loop):
        for other in nest.iters:
            factor = None if other == iterator else _least_factor(nest, relations, iterator, other)
            if factor is not None:
                return iterator, other, factor
    return None


def _iterators_of(nest: Nest, loop: str | None) -> list[str]:
    return [name for name, expr in nest.iter_exprs().items() if loop in affine.name_set(expr) and affine.linear(expr).terms]


def _least_factor(nest: Nest, deps: Sequence[Dep], iterator: str, by: str) -> int | None:
    """Return the least factor up to `MAX_FACTOR` with distance(iterator) + factor * distance(by) >= 0 <= distance(by), or None."""
    b = nest.iters.index(by)
    if any((low := distance(d.relation, b)[0]) is None or low < 0 for d in deps):
        return None
    for factor in range(1, MAX_FACTOR + 1):
        change: Mapping[str, int] = {iterator: 1, by: factor}
        if all(_never_negative(d, nest, change) for d in deps):
            return factor
    return None


def _never_negative(dep: Dep, nest: Nest, weights: Mapping[str, int]) -> bool:
    along = Frame(nest.params, nest.iters).aff(affine.from_terms({Name(n): f for n, f in weights.items()}, 0))
    low = dep.relation.deltas().min_val(along)
    return bool(low.is_int() and low.is_nonneg())
