"""Which accesses of a cluster of blocks meet in the memory of one block with no barrier of the cluster between them.

Blocks of a cluster run the same statements at the same times; each has its own memory, and the threads of each touch that alone. A shared
box is written by all: each block asks for a part of it, which lands in the memory of every one of them, as part of the group that each of
them waits for.

    touch      { [vars, thread, block] : when } -> [time], -> [block, owner, cell]      owner = block; of a shared box: every block
    exposed    { t -> t' : t <= t', two blocks touch a cell of one owner at t and t', the second with a shared box, and no barrier b of the
                 cluster has t < b < t' }
               of an asynchronous first one: and no wait w, barrier b has t < w < b < t'
               of a second one by a producer: no release u that all blocks are told, and reclaim v, instead of the
                 barrier, have t < u, number(u) <= number(v), v < t'

Every block is told by all of them, so who reclaims a number in one block knows of all that have released it.

That a box has landed where its owner touches it later is for `polyhedral.threads`: there the block itself asks for all of a shared box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import islpy as isl

from polyhedral import affine
from polyhedral.expr import Compare, Cond, Expr, Int, Name, Scale
from polyhedral.space import DEFAULT_LIMIT, DT, Frame, OperationLimit, limited, smallest_point
from polyhedral.threads import Accesses, AccessPair, ThreadAccess
from polyhedral.verdict import Unknown
from polyhedral.waits import Ending, Moment, Signal, before, fixed

_CLUSTER = "cluster"
_OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Part:
    """What a block asks for of a shared box: where variable `variable` of the touch is in the block's own stretch of `length`."""

    variable: str
    length: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Blocks `low` + 0, 1, 2, … by the variable `block`, `count` of them to a cluster, where `when` holds; each of `threads` threads."""

    params: tuple[str, ...]
    block: str
    low: Expr
    count: int
    when: Cond
    threads: int


@dataclass(frozen=True, slots=True)
class RemoteConflict:
    """Two blocks touch one cell of the memory of `owner`, the second by a shared box. `first` and `second` are positions of touches."""

    first: int
    second: int
    blocks: tuple[int, int]
    owner: int
    cell: tuple[int, ...]
    params: dict[str, int]
    times: tuple[tuple[int, ...], tuple[int, ...]]


class Cluster(Accesses):
    """The accesses of the blocks of a cluster to memory that shared boxes land in; `parts` are those of the shared ones, by position."""

    def __init__(
        self,
        touches: Sequence[ThreadAccess],
        parts: dict[int, Part],
        grid: Grid,
        endings: Sequence[Ending] = (),
        releases: Sequence[Signal] = (),
        reclaims: Sequence[Signal] = (),
    ) -> None:
        self.parts = parts
        self.grid = grid
        params = (*(p for p in grid.params if p != grid.block), _CLUSTER)
        super().__init__(touches, params, (grid.block, _OWNER), grid.threads, endings, releases, reclaims)
        self._meetings: list[AccessPair] | None = None

    def exposed(self, barriers: Sequence[Moment], limit: int = DEFAULT_LIMIT) -> RemoteConflict | Unknown | None:
        """Return two accesses that `barriers` of the cluster leave unordered, None when there are none, or `Unknown` past `limit` steps of
        arithmetic."""
        try:
            with limited(limit):
                return self._exposed(barriers)
        except OperationLimit as stopped:
            return Unknown(str(stopped))

    def _exposed(self, barriers: Sequence[Moment]) -> RemoteConflict | None:
        if self._meetings is None:
            far = [(n, self.touches[n]) for n in self.parts]
            pairs = ((AccessPair(k, n, self._together(k, n))) for k, t in enumerate(self.touches) for n, u in far if t.memory == u.memory)
            self._meetings = [m for m in pairs if not m.pairs.is_empty()]
            self._reclaimed = self._times.reclaimed(self.releases, self.reclaims) if self._meetings else None
        if not self._meetings:
            return None
        met = before(self._times.moments(barriers))
        for meeting in self._meetings:
            if not self._is_parted(meeting, met):
                return self._witness(meeting, self._left(meeting, met))
        return None

    def _apart(self, meeting: AccessPair, met: isl.Map | None) -> isl.Map | None:
        """Return the points of time between which the blocks of a meeting wait for each other; `met`: those with a barrier between them."""
        first, second = self.touches[meeting.first], self.touches[meeting.second]
        following = self._reclaimed if second.by_producer else met
        if first.group is None:
            return None if first.by_producer else following
        ended = None if following is None else self._ended(meeting.first)
        return None if ended is None or following is None else ended.apply_range(following)

    def _together(self, first: int, second: int) -> isl.Map:
        """Return every two points of time at which two blocks touch a cell, or one does in the memory of another."""
        one, two = self._at(first), self._at(second).reverse()
        apart = one.apply_range(_same_cell(one.range().get_space(), alone=False)).apply_range(two)
        alone = one.apply_range(_same_cell(one.range().get_space(), alone=True)).apply_range(two)
        space = apart.get_space().domain()
        return apart.intersect(isl.Map.lex_le(space)).union(alone.intersect(isl.Map.lex_lt(space))).coalesce()

    def _own(self, position: int) -> tuple[Cond, ...]:
        part, block = self.parts.get(position), self.grid.block
        if part is None:
            return (self._in_cluster(_OWNER), Compare("==", Name(_OWNER), Name(block)))
        start = affine.scale(part.length, self._number(block))
        inside = (Compare(">=", Name(part.variable), start), Compare("<", Name(part.variable), affine.add(start, Int(part.length))))
        return (self._in_cluster(_OWNER), *inside)

    def _domain(self, frame: Frame, when: Cond) -> isl.Set:
        return frame.set(affine.conj(when, self.grid.when, self._in_cluster(self.grid.block)))

    def _number(self, block: str) -> Expr:
        """Return the number of a block in its cluster."""
        return affine.sub(affine.sub(Name(block), self.grid.low), Scale(self.grid.count, Name(_CLUSTER)))

    def _in_cluster(self, block: str) -> Cond:
        number = self._number(block)
        return affine.conj(Compare(">=", number, Int(0)), Compare("<", number, Int(self.grid.count)))

    def _mapped(self, variables: tuple[str, ...], when: Cond, values: Sequence[Expr]) -> isl.Map:
        frame = Frame(self.params, (*variables, self.grid.block))
        return isl.Map.from_pw_multi_aff(frame.multi_pw_aff(values)).intersect_domain(self._domain(frame, when))

    def _witness(self, meeting: AccessPair, left: isl.Map) -> RemoteConflict:
        sizes, both = smallest_point(left.wrap().flatten())
        moments = both[: self.depth], both[self.depth :]
        one, two = (fixed(self._at(p), sizes, t).range() for p, t in ((meeting.first, moments[0]), (meeting.second, moments[1])))
        space = one.get_space()
        meet = _same_cell(space, alone=False)
        if moments[0] != moments[1]:
            meet = meet.union(_same_cell(space, alone=True))
        _, met = smallest_point(meet.intersect_domain(one).intersect_range(two).wrap().flatten())
        n = 2 + len(self.touches[meeting.first].cell)
        params = {name: value for name, value in zip(self.params, sizes, strict=True) if name != _CLUSTER}
        return RemoteConflict(meeting.first, meeting.second, (met[0], met[n]), met[1], met[2:n], params, moments)


def _same_cell(space: isl.Space, *, alone: bool) -> isl.Map:
    """Return `{ [block, owner, cell] -> [block', owner, cell] }` of two blocks, or, `alone`, of one that is not the owner."""
    same = isl.Map.universe(space.map_from_set())
    for k in range(1, space.dim(DT.set)):
        same = same.equate(DT.in_, k, DT.out, k)
    if not alone:
        return same.order_lt(DT.in_, 0, DT.out, 0).union(same.order_gt(DT.in_, 0, DT.out, 0))
    same = same.equate(DT.in_, 0, DT.out, 0)
    return same.order_lt(DT.in_, 0, DT.in_, 1).union(same.order_gt(DT.in_, 0, DT.in_, 1))
