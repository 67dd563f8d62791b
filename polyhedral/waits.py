"""When threads wait: what they wait for as relations over points of time.

    moments     { [time] }                  all of them wait for each other
    ended       { t -> w : t < w }          the wait w ends what was begun at t
    reclaimed   { t -> t' }                 what was released after t has been reclaimed before t'

Whose time it is, and how expressions over its variables become relations, is for whoever asks to say (`Mapped`): the threads of one block
(`polyhedral.threads`), or the blocks of a cluster (`polyhedral.clusters`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias, TypeVar

import islpy as isl

from polyhedral.expr import Cond, Expr, Int
from polyhedral.space import DT, val

Relation = TypeVar("Relation", isl.Map, isl.Set)

Mapped: TypeAlias = Callable[[tuple[str, ...], Cond, Sequence[Expr]], isl.Map]
"""Variables, what holds of them, and expressions → `{ [vars] : when } -> [values]`."""


@dataclass(frozen=True, slots=True)
class Ending:
    """When every thread waits for its own asynchronous accesses in groups below `ended`, or for those that another has begun."""

    time: tuple[Expr, ...]
    variables: tuple[str, ...]
    when: Cond
    ended: Expr
    of: str = ""
    of_others: bool = False


@dataclass(frozen=True, slots=True)
class Signal:
    """When all threads of one side are where number `number` of `of` is given, or waited for."""

    of: str
    time: tuple[Expr, ...]
    variables: tuple[str, ...]
    when: Cond
    number: Expr


@dataclass(frozen=True, slots=True)
class Moment:
    """When all threads wait for each other."""

    time: tuple[Expr, ...]
    variables: tuple[str, ...]
    when: Cond


@dataclass(frozen=True, slots=True)
class Times:
    """Points of time of `depth` coordinates."""

    depth: int
    mapped: Mapped

    def moments(self, barriers: Sequence[Moment]) -> isl.Set | None:
        """Return when all wait for each other; None where they never do."""
        return _union(self._at(b, b.time[: self.depth]).range() for b in barriers)

    def numbered(self, signals: Iterable[Signal]) -> isl.Map | None:
        """Return `{ [time] -> [number] }`; None where there are no signals."""
        return _union(self._at(s, s.time).reverse().apply_range(self.mapped(s.variables, s.when, (s.number,))) for s in signals)

    def reclaimed(self, releases: Sequence[Signal], reclaims: Sequence[Signal]) -> isl.Map | None:
        """Return `{ t -> t' : t < u, number(u) <= number(v), v < t' }` for releases u and reclaims v of the same."""
        found: list[isl.Map] = []
        for of in sorted({r.of for r in reclaims}):
            given, taken = (self.numbered(s for s in side if s.of == of) for side in (releases, reclaims))
            if given is not None and taken is not None:
                before = isl.Map.lex_lt(given.get_space().domain())
                enough = isl.Map.lex_le(given.get_space().range())
                found.append(before.apply_range(given).apply_range(enough).apply_range(taken.reverse()).apply_range(before))
        out = _union(found)
        return None if out is None else out.coalesce()

    def ended(self, groups: isl.Map, endings: Iterable[Ending]) -> isl.Map | None:
        """Return `{ t -> w : t < w, and the wait w ends what was begun at t }`, of what `groups`, `{ [time] -> [group] }`, says."""
        below = isl.Map.lex_lt(groups.get_space().range())

        def by(ending: Ending) -> isl.Map:
            ended = self.mapped(ending.variables, ending.when, (ending.ended,))
            found = groups.apply_range(below).apply_range(ended.reverse()).apply_range(self._at(ending, ending.time))
            return found.intersect(isl.Map.lex_lt(found.get_space().domain()))

        return _union(map(by, endings))

    def _at(self, event: Ending | Signal | Moment, time: tuple[Expr, ...]) -> isl.Map:
        return self.mapped(event.variables, event.when, padded(time, self.depth))


def before(moments: isl.Set | None) -> isl.Map | None:
    """Return `{ t -> t' : t < b < t' for some b in moments }`."""
    if moments is None:
        return None
    earlier = isl.Map.lex_lt(moments.get_space()).intersect_range(moments)
    return earlier.apply_range(isl.Map.lex_lt(moments.get_space()))


def padded(time: tuple[Expr, ...], depth: int) -> tuple[Expr, ...]:
    """Return a point of time with as many coordinates as all have."""
    return (*time, *(Int(0) for _ in range(depth - len(time))))


def fixed(at: isl.Map, sizes: tuple[int, ...], time: tuple[int, ...]) -> isl.Map:
    """Return what `at`, `{ [time] -> … }`, says of one point of time, for these values of its parameters."""
    for kind, values in ((DT.param, sizes), (DT.in_, time)):
        for k, value in enumerate(values):
            at = at.fix_val(kind, k, val(value))
    return at


def _union(parts: Iterable[Relation]) -> Relation | None:
    found = list(parts)
    return reduce(type(found[0]).union, found) if found else None
