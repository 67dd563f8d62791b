"""Which accesses of the threads of one block meet in a cell with no barrier between them.

Threads run on their own between barriers. Time is where all of them are together: the positions and loops that no thread differs in.

    touch      { [vars, thread] : when } -> [time], -> [cell]
    barrier    { [vars] : when } -> [time]
    exposed    { t -> t' : t <= t', two threads touch a cell at t and t', one writes, and no barrier b has t < b < t' }

An asynchronous access goes on after its time, until its own thread waits for it: groups of them are counted, and a wait says which have
ended.

    touch      { … -> [time] } with a group                      wait   { [vars] : when } -> [time], all groups below `ended` have ended
    exposed    { t -> t' : … and no wait w, barrier b has t < w < b < t' }, and by the same thread, if no wait w has t < w < t'

A producer meets the other threads of the block nowhere. What it has begun they wait for, each for itself; it waits until all of them have
released a number, or a greater one.

    release    { [vars] : when } -> [time], [number]             reclaim   likewise, by the producer
    exposed    { t -> t' : the producer does t', and no u, v have t < u, number(u) <= number(v), v < t' }

Time is that of the text, which has all of it in one order: what comes first there, and touches the same, is to come first. Sizes and the
block's place in the grid are parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import islpy as isl

from polyhedral import affine
from polyhedral.expr import And, Compare, Cond, Expr, Int, Name
from polyhedral.space import DEFAULT_LIMIT, DT, Frame, OperationLimit, limited, smallest_point
from polyhedral.verdict import Unknown
from polyhedral.waits import Ending, Moment, Signal, Times, before, fixed, padded

THREAD = "thread"


@dataclass(frozen=True, slots=True)
class ThreadAccess:
    """An access to `cell` of `memory` (None: any coordinate) by the thread called `thread`, at `time`, for all `variables` with `when`."""

    memory: str
    cell: tuple[Expr | None, ...]
    writes: bool
    time: tuple[Expr, ...]
    variables: tuple[str, ...]
    when: Cond
    group: Expr | None = None
    """The number of the group of asynchronous accesses that this one belongs to; None: it is over when the thread goes on."""
    of: str = ""
    """What the groups are of: each kind is counted for itself."""
    private: bool = False
    """Every thread has a memory of its own by this name, where accesses of the same kind are done in their order."""
    by_producer: bool = False
    """By the producer of a block whose warps are specialised."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two threads, or one whose access goes on, touch one cell, at `times`, and neither waits. `first` and `second` are the positions of
    the touches."""

    first: int
    second: int
    threads: tuple[int, int]
    cell: tuple[int, ...]
    params: dict[str, int]
    times: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class AccessPair:
    """Two accesses, by position, that meet in a cell."""

    first: int
    second: int
    pairs: isl.Map
    """Every two points of time at which different threads, or blocks, touch one cell."""
    own: bool = False
    """The same thread does, and the first access is asynchronous."""


class Accesses(ABC):
    """Accesses of `threads` threads, and of one beside them. `whose` are the variables that say whose memory a cell is in and who touches
    it: they stand before its coordinates."""

    def __init__(
        self,
        touches: Sequence[ThreadAccess],
        params: tuple[str, ...],
        whose: tuple[str, ...],
        threads: int,
        endings: Sequence[Ending],
        releases: Sequence[Signal],
        reclaims: Sequence[Signal],
    ) -> None:
        self.touches = tuple(touches)
        self.params = params
        self.endings = tuple(endings)
        self.releases, self.reclaims = tuple(releases), tuple(reclaims)
        timed: list[ThreadAccess | Ending | Signal] = [*touches, *endings, *releases, *reclaims]
        self.depth = max((len(e.time) for e in timed), default=0)
        self._whose = whose
        self._threads = threads
        self._times = Times(self.depth, self._mapped)
        self._reclaimed: isl.Map | None = None
        self._found: dict[int, tuple[isl.Map, isl.Map]] = {}
        self._placed: dict[int, isl.Map] = {}

    @abstractmethod
    def _domain(self, frame: Frame, when: Cond) -> isl.Set:
        """Return what holds of the variables of a frame, with what is known of all."""

    @abstractmethod
    def _mapped(self, variables: tuple[str, ...], when: Cond, values: Sequence[Expr]) -> isl.Map:
        """Return `{ [vars] : when } -> [values]`."""

    @abstractmethod
    def _apart(self, meeting: AccessPair, met: isl.Map | None) -> isl.Map | None:
        """Return the points of time between which those of a meeting wait for each other; `met`: those with a barrier between them."""

    def _left(self, meeting: AccessPair, met: isl.Map | None) -> isl.Map:
        """Return the points of time of a meeting between which nobody waits."""
        apart = self._apart(meeting, met)
        return meeting.pairs.subtract(apart) if apart is not None else meeting.pairs

    def _is_parted(self, meeting: AccessPair, met: isl.Map | None) -> bool:
        """Tell whether nothing is `_left`, which takes less than finding what is: the first point outside is enough."""
        apart = self._apart(meeting, met)
        return apart is not None and bool(meeting.pairs.is_subset(apart))

    def _own(self, position: int) -> tuple[Cond, ...]:
        """Return what holds of a touch besides what it says itself."""
        return ()

    def _frame(self, touch: ThreadAccess) -> Frame:
        free = (f"free{k}" for k, c in enumerate(touch.cell) if c is None)
        return Frame(self.params, (*touch.variables, *dict.fromkeys((THREAD, *self._whose)), *free))

    def _maps(self, position: int) -> tuple[isl.Map, isl.Map]:
        """Return `{ [vars, thread, whose] -> [time] }` and `{ [vars, thread, whose] -> [whose, cell] }`."""
        if position not in self._found:
            self._found[position] = self._made_maps(position)
        return self._found[position]

    def _made_maps(self, position: int) -> tuple[isl.Map, isl.Map]:
        touch = self.touches[position]
        frame = self._frame(touch)
        first, last = (self._threads, self._threads) if touch.by_producer else (0, self._threads - 1)
        threads = (Compare(">=", Name(THREAD), Int(first)), Compare("<=", Name(THREAD), Int(last)))
        domain = self._domain(frame, affine.conj(touch.when, *threads, *self._own(position)))
        cell = [*map(Name, self._whose), *(Name(f"free{k}") if c is None else c for k, c in enumerate(touch.cell))]
        to_time, to_cell = (
            isl.Map.from_pw_multi_aff(frame.multi_pw_aff(e)).intersect_domain(domain) for e in (padded(touch.time, self.depth), cell)
        )
        return to_time, to_cell

    def _at(self, position: int) -> isl.Map:
        """Return `{ [time] -> [whose, cell] }`."""
        if position not in self._placed:
            to_time, to_cell = self._maps(position)
            self._placed[position] = to_time.reverse().apply_range(to_cell)
        return self._placed[position]

    def _ended(self, position: int) -> isl.Map | None:
        """Return `{ t -> w : t < w, and the wait w ends what was begun at t }`."""
        touch = self.touches[position]
        assert touch.group is not None
        to_time, _ = self._maps(position)
        group = to_time.reverse().apply_range(isl.Map.from_pw_multi_aff(self._frame(touch).multi_pw_aff([touch.group])))
        return self._times.ended(group, (e for e in self.endings if e.of == touch.of))


class Block(Accesses):
    """The accesses of the threads of a block. `params` are sizes and places of the block, which keep to `context`."""

    def __init__(
        self,
        touches: Sequence[ThreadAccess],
        params: tuple[str, ...],
        context: Cond,
        threads: int,
        endings: Sequence[Ending] = (),
        releases: Sequence[Signal] = (),
        reclaims: Sequence[Signal] = (),
    ) -> None:
        self.context = Frame(params, ()).set(context).params()
        super().__init__(touches, params, (THREAD,), threads, endings, releases, reclaims)
        self._meetings: list[AccessPair] | None = None
        self._met: dict[tuple[int, int], isl.Map] = {}
        """Whenever different threads touch one cell with two accesses, whichever comes first, until the second is asked about the first."""
        self._ends: dict[int, isl.Map | None] = {}
        self._once_unordered: list[AccessPair] = []

    def exposed(self, barriers: Sequence[Moment], limit: int = DEFAULT_LIMIT) -> Conflict | Unknown | None:
        """Return two accesses that `barriers` leave unordered, None when there are none, or `Unknown` where two of them take more than
        `limit` steps of arithmetic, or finding those that meet does."""
        try:
            with limited(limit):
                meetings, met = self._meet(barriers)
            for meeting in meetings:
                with limited(limit):
                    parted = self._is_parted(meeting, met)
                if not parted:
                    self._once_unordered.append(meeting)
                    with limited(limit):
                        return self._witness(meeting, self._left(meeting, met))
        except OperationLimit as stopped:
            return Unknown(str(stopped))
        return None

    def is_ordered(self, barriers: Sequence[Moment], limit: int = DEFAULT_LIMIT) -> bool:
        """Tell whether `exposed` would return None, without looking for two accesses to show. Accesses that fewer barriers have left
        unordered come first: one barrier fewer leaves those unordered that it was put there for."""
        try:
            with limited(limit):
                meetings, met = self._meet(barriers)
            for meeting in (*reversed(self._once_unordered), *meetings):
                with limited(limit):
                    if not self._is_parted(meeting, met):
                        return False
        except OperationLimit:
            return False
        return True

    def _meet(self, barriers: Sequence[Moment]) -> tuple[list[AccessPair], isl.Map | None]:
        """Return the accesses that meet in a cell, and which times `barriers` part."""
        if self._meetings is None:
            self._meetings = list(self._all())
            self._reclaimed = self._times.reclaimed(self.releases, self.reclaims) if self._meetings else None
        return self._meetings, before(self._times.moments(barriers) if self._meetings else None)

    def _all(self) -> Iterator[AccessPair]:
        for k, first in enumerate(self.touches):
            for n, second in enumerate(self.touches):
                if first.memory == second.memory and (first.writes or second.writes):
                    if first.private and first.of == second.of:
                        continue
                    if not (first.private or (_is_of_first(first) and _is_of_first(second))):
                        pairs = self._together(k, n)
                        if not pairs.is_empty():
                            yield AccessPair(k, n, pairs)
                    if first.group is not None:
                        alone = self._alone(k, n)
                        if not alone.is_empty():
                            yield AccessPair(k, n, alone, own=True)

    def _together(self, first: int, second: int) -> isl.Map:
        if (second, first) in self._met:
            met = self._met.pop((second, first)).reverse()
        else:
            met = self._at(first).apply_range(self._other(self.touches[first])).apply_range(self._at(second).reverse())
            if first < second:
                self._met[first, second] = met
        space = met.get_space()
        return met.intersect(isl.Map.lex_le(space.domain())).coalesce()

    def _alone(self, first: int, second: int) -> isl.Map:
        """Return every two points of time at which one thread touches a cell with `first`, then, with another access, `second`."""
        met = self._at(first).apply_range(self._at(second).reverse())
        space = met.get_space().domain()
        once = first == second and self._is_once(first)
        return met.intersect(isl.Map.lex_lt(space) if once else isl.Map.lex_le(space)).coalesce()

    def _is_once(self, position: int) -> bool:
        """Tell whether no thread touches a cell twice at one time: `{ [vars, thread] -> [[time] -> [thread, cell]] }` is injective."""
        to_time, to_cell = self._maps(position)
        return bool(to_time.range_product(to_cell).is_injective())

    def _other(self, first: ThreadAccess) -> isl.Map:
        """Return `{ [thread, cell] -> [thread', cell] : thread != thread' }`."""
        n = 1 + len(first.cell)
        frame = Frame(self.params, tuple(f"x{k}" for k in range(n)))
        same = isl.Map.universe(frame.space.map_from_set())
        for k in range(1, n):
            same = same.equate(DT.in_, k, DT.out, k)
        return same.order_lt(DT.in_, 0, DT.out, 0).union(same.order_gt(DT.in_, 0, DT.out, 0))

    def _apart(self, meeting: AccessPair, met: isl.Map | None) -> isl.Map | None:
        """Return the points of time between which the threads of a meeting wait for each other; `met`: those with a barrier between them.

        The first access is over at t, or after a wait w for it, t < w. A thread that has waited for what another began has waited for that
        one; else a barrier follows, or, where the producer is second, it has reclaimed what was released."""
        first, second = self.touches[meeting.first], self.touches[meeting.second]
        following = self._reclaimed if second.by_producer else met
        if first.group is None:
            return None if first.by_producer else following
        if meeting.first not in self._ends:
            self._ends[meeting.first] = self._ended(meeting.first)
        ended = self._ends[meeting.first]
        if ended is None:
            return None
        if not second.by_producer and (meeting.own or any(e.of_others for e in self.endings if e.of == first.of)):
            return ended.apply_range(isl.Map.lex_lt(ended.get_space().range()))
        return None if following is None else ended.apply_range(following)

    def numbered(self, signals: Sequence[Signal]) -> isl.Map | None:
        """Return `{ [time] -> [number] }`; None where there are no signals."""
        return self._times.numbered(signals)

    def _domain(self, frame: Frame, when: Cond) -> isl.Set:
        return frame.set(when).intersect_params(self.context)

    def _mapped(self, variables: tuple[str, ...], when: Cond, values: Sequence[Expr]) -> isl.Map:
        frame = Frame(self.params, variables)
        return isl.Map.from_pw_multi_aff(frame.multi_pw_aff(values)).intersect_domain(self._domain(frame, when))

    def _witness(self, meeting: AccessPair, left: isl.Map) -> Conflict:
        first = self.touches[meeting.first]
        sizes, both = smallest_point(left.wrap().flatten())
        times = both[: self.depth], both[self.depth :]
        one, two = (fixed(self._at(t), sizes, time).range() for t, time in ((meeting.first, times[0]), (meeting.second, times[1])))
        meet = isl.Map.identity(one.get_space().map_from_set()) if meeting.own else self._other(first)
        pairs = meet.intersect_domain(one).intersect_range(two)
        _, met = smallest_point(pairs.wrap().flatten())
        n = 1 + len(first.cell)
        params = dict(zip(self.params, sizes, strict=True))
        return Conflict(meeting.first, meeting.second, (met[0], met[n]), met[1:n], params, times)


def _is_of_first(touch: ThreadAccess) -> bool:
    """Tell whether a touch says of itself that the first thread makes it: two of these are one thread's."""
    conds = touch.when.conds if isinstance(touch.when, And) else (touch.when,)
    return Compare("<", Name(THREAD), Int(1)) in conds
