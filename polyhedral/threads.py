"""Which accesses of the threads of one block meet in a cell with no barrier between them.

Threads run on their own between barriers. Time is where all of them are together: the positions and loops that no thread differs in.

    touch      { [vars, thread] : when } -> [time], -> [cell]
    barrier    { [vars] : when } -> [time]
    exposed    { t -> t' : t <= t', two threads touch a cell at t and t', one writes, and no barrier b has t < b < t' }

Sizes and the block's place in the grid are parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import islpy as isl

from polyhedral.expr import Compare, Cond, Expr, Int, Name
from polyhedral.space import DEFAULT_LIMIT, DT, Frame, OperationLimit, limited, smallest_point
from polyhedral.terms import all_of
from polyhedral.verdict import Unknown

THREAD = "thread"


@dataclass(frozen=True, slots=True)
class Touch:
    """An access to `cell` of `memory` (None: any coordinate) by the thread called `thread`, at `time`, for all `variables` with `when`."""

    memory: str
    cell: tuple[Expr | None, ...]
    writes: bool
    time: tuple[Expr, ...]
    variables: tuple[str, ...]
    when: Cond


@dataclass(frozen=True, slots=True)
class Moment:
    """When all threads wait for each other."""

    time: tuple[Expr, ...]
    variables: tuple[str, ...]
    when: Cond


@dataclass(frozen=True, slots=True)
class Clash:
    """Two threads touch one cell, at `times`, and neither waits. `first` and `second` are the positions of the touches."""

    first: int
    second: int
    threads: tuple[int, int]
    cell: tuple[int, ...]
    params: dict[str, int]
    times: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Meeting:
    first: int
    second: int
    pairs: isl.Map
    """Every two points of time at which different threads touch one cell."""


class Block:
    """The accesses of the threads of a block. `params` are sizes and places of the block, which keep to `context`."""

    def __init__(self, touches: Sequence[Touch], params: tuple[str, ...], context: Cond, threads: int) -> None:
        self.touches = tuple(touches)
        self.params = params
        self.depth = max((len(t.time) for t in touches), default=0)
        self.context = Frame(params, ()).set(context).params()
        self._threads = threads
        self._meetings: list[_Meeting] | None = None

    def exposed(self, barriers: Sequence[Moment], limit: int = DEFAULT_LIMIT) -> Clash | Unknown | None:
        """Return two accesses that `barriers` leave unordered, None when there are none, or `Unknown` past `limit` steps of arithmetic."""
        try:
            with limited(limit):
                return self._exposed(barriers)
        except OperationLimit as stopped:
            return Unknown(str(stopped))

    def _exposed(self, barriers: Sequence[Moment]) -> Clash | None:
        if self._meetings is None:
            self._meetings = list(self._all())
        apart = self._apart(barriers)
        for meeting in self._meetings:
            left = meeting.pairs.subtract(apart) if apart is not None else meeting.pairs
            if not left.is_empty():
                return self._witness(meeting, left)
        return None

    def _all(self) -> Iterator[_Meeting]:
        for k, first in enumerate(self.touches):
            for n, second in enumerate(self.touches):
                if first.memory == second.memory and (first.writes or second.writes):
                    pairs = self._together(first, second)
                    if not pairs.is_empty():
                        yield _Meeting(k, n, pairs)

    def _together(self, first: Touch, second: Touch) -> isl.Map:
        met = self._at(first).apply_range(self._other(first, second)).apply_range(self._at(second).reverse())
        space = met.get_space()
        return met.intersect(isl.Map.lex_le(space.domain())).coalesce()

    def _at(self, touch: Touch) -> isl.Map:
        """Return `{ [time] -> [thread, cell] }`."""
        frame = Frame(self.params, (*touch.variables, THREAD, *(f"free{k}" for k, c in enumerate(touch.cell) if c is None)))
        inside = all_of(touch.when, Compare(">=", Name(THREAD), Int(0)), Compare("<", Name(THREAD), Int(self._threads)))
        domain = frame.set(inside).intersect_params(self.context)
        time = frame.multi_pw_aff(_padded(touch.time, self.depth))
        cell = frame.multi_pw_aff([Name(THREAD), *(Name(f"free{k}") if c is None else c for k, c in enumerate(touch.cell))])
        to_time, to_cell = (isl.Map.from_pw_multi_aff(e).intersect_domain(domain) for e in (time, cell))
        return to_time.reverse().apply_range(to_cell)

    def _other(self, first: Touch, second: Touch) -> isl.Map:
        """Return `{ [thread, cell] -> [thread', cell] : thread != thread' }`."""
        n = 1 + len(first.cell)
        frame = Frame(self.params, tuple(f"x{k}" for k in range(n)))
        same = isl.Map.universe(frame.space.map_from_set())
        for k in range(1, n):
            same = same.equate(DT.in_, k, DT.out, k)
        return same.order_lt(DT.in_, 0, DT.out, 0).union(same.order_gt(DT.in_, 0, DT.out, 0))

    def _apart(self, barriers: Sequence[Moment]) -> isl.Map | None:
        """Return `{ t -> t' : t < b < t' for some barrier b }`."""
        moments: isl.Set | None = None
        for barrier in barriers:
            frame = Frame(self.params, barrier.variables)
            domain = frame.set(barrier.when).intersect_params(self.context)
            time = isl.Map.from_pw_multi_aff(frame.multi_pw_aff(_padded(barrier.time, self.depth))).intersect_domain(domain).range()
            moments = time if moments is None else moments.union(time)
        if moments is None:
            return None
        before = isl.Map.lex_lt(moments.get_space()).intersect_range(moments)
        return before.apply_range(isl.Map.lex_lt(moments.get_space()))

    def _witness(self, meeting: _Meeting, left: isl.Map) -> Clash:
        first, second = self.touches[meeting.first], self.touches[meeting.second]
        sizes, both = smallest_point(left.wrap().flatten())
        times = both[: self.depth], both[self.depth :]
        one, two = (self._fixed(self._at(t), sizes, time).range() for t, time in ((first, times[0]), (second, times[1])))
        pairs = self._other(first, second).intersect_domain(one).intersect_range(two)
        _, met = smallest_point(pairs.wrap().flatten())
        n = 1 + len(first.cell)
        params = dict(zip(self.params, sizes, strict=True))
        return Clash(meeting.first, meeting.second, (met[0], met[n]), met[1:n], params, times)

    def _fixed(self, at: isl.Map, sizes: tuple[int, ...], time: tuple[int, ...]) -> isl.Map:
        for k, value in enumerate(sizes):
            at = at.fix_val(DT.param, k, isl.Val(value))
        for k, value in enumerate(time):
            at = at.fix_val(DT.in_, k, isl.Val(value))
        return at


def _padded(time: tuple[Expr, ...], depth: int) -> tuple[Expr, ...]:
    return (*time, *(Int(0) for _ in range(depth - len(time))))
