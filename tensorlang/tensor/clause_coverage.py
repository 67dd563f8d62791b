"""Which clauses of a definition can meet, and what they cover together, told by the numbers in their guards.

    y[i] = …   for i == 0          [0, 0] of i
    y[i] = …   for i in 1..7       [1, 6] of i
    y[i] = …   for i >= N - 2      [-2, …] of i - N

A slab says between which numbers an axis, less what sizes say, lies. Two slabs that are apart in one of these need no proof, and slabs that
lie side by side are one: of a thousand clauses for single elements nothing is left to ask. What a guard says besides is left to proofs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from polyhedral import affine
from polyhedral.expr import Cond, Expr, Name

Key = tuple[str, frozenset[tuple[Expr, int]]]
"""An axis, and the sizes that are added to it, with their factors."""
Interval = tuple[float, float]
"""Whole numbers from the first to the last, both inside; infinite where there is no bound."""
_ALL: Interval = (-inf, inf)


@dataclass(frozen=True, slots=True)
class Slab:
    """`exact`: the guard says nothing else."""

    intervals: Mapping[Key, Interval]
    exact: bool

    def overlaps(self, other: Slab) -> bool:
        """Return False only where the numbers alone keep two slabs apart."""
        for key, (low, high) in self.intervals.items():
            first, last = other.intervals.get(key, _ALL)
            if first > high or low > last:
                return False
        return True


def slab(guard: Cond, axes: Sequence[str]) -> Slab:
    """Return what the numbers in a guard say of the axes."""
    intervals: dict[Key, Interval] = {}
    exact = True
    for cond in affine.conjuncts(guard):
        found = _side(cond, axes)
        if found is None:
            exact = False
            continue
        key, (low, high) = found
        first, last = intervals.get(key, _ALL)
        intervals[key] = max(low, first), min(high, last)
    return Slab(intervals, exact)


def _side(cond: Cond, axes: Sequence[str]) -> tuple[Key, Interval] | None:
    low, high = _ALL
    key: Key | None = None
    for e in affine.inequalities(cond):
        factors, const = affine.terms(e)
        mine = [a for a in axes if any(a in affine.name_set(atom) for atom in factors)]
        if len(mine) != 1 or abs(sign := factors.pop(Name(mine[0]), 0)) != 1 or any(mine[0] in affine.name_set(atom) for atom in factors):
            return None
        key = mine[0], frozenset((atom, sign * n) for atom, n in factors.items())
        low, high = (-const, high) if sign > 0 else (low, const)
    return None if key is None else (key, (low, high))


def overlapping(slabs: Sequence[Slab]) -> Iterator[tuple[int, int]]:
    """Yield the positions of all pairs that the numbers do not keep apart, the earlier first."""
    common = Counter(key for s in slabs for key in s.intervals).most_common(1)
    key = common[0][0] if common else None
    having = [k for k, s in enumerate(slabs) if key in s.intervals]
    lacking = [k for k, s in enumerate(slabs) if key not in s.intervals]
    if key is not None:
        yield from _sweep(slabs, having, key)
    for n, a in enumerate(lacking):
        for b in (*lacking[n + 1 :], *having):
            if slabs[a].overlaps(slabs[b]):
                yield min(a, b), max(a, b)


def _sweep(slabs: Sequence[Slab], positions: list[int], key: Key) -> Iterator[tuple[int, int]]:
    active: list[tuple[float, int]] = []
    for k in sorted(positions, key=lambda p: slabs[p].intervals[key]):
        while active and active[0][0] < slabs[k].intervals[key][0]:
            heappop(active)
        for _, other in active:
            if slabs[k].overlaps(slabs[other]):
                yield min(k, other), max(k, other)
        heappush(active, (slabs[k].intervals[key][1], k))


def together(guards: Sequence[Cond], slabs: Sequence[Slab]) -> list[Cond]:
    """Return conditions that hold where one of the guards does, and nowhere else: slabs side by side are one."""
    boxes = [dict(s.intervals) for s in slabs if s.exact]
    for key in dict.fromkeys(key for box in boxes for key in box):
        boxes = _joined(boxes, key)
    return [_condition(box) for box in boxes] + [g for g, s in zip(guards, slabs, strict=True) if not s.exact]


def _joined(boxes: list[dict[Key, Interval]], key: Key) -> list[dict[Key, Interval]]:
    """Join boxes that differ in one side only, where these sides touch."""
    groups: dict[frozenset[tuple[Key, Interval]], list[Interval]] = {}
    for box in boxes:
        others = frozenset((k, side) for k, side in box.items() if k != key)
        groups.setdefault(others, []).append(box.get(key, _ALL))
    return [dict(others) | ({key: side} if side != _ALL else {}) for others, intervals in groups.items() for side in _merged(intervals)]


def _merged(intervals: list[Interval]) -> Iterator[Interval]:
    low, high = None, -inf
    for first, last in sorted(side for side in intervals if side[0] <= side[1]):
        if low is not None and first > high + 1:
            yield low, high
            low, high = first, last
        else:
            low, high = first if low is None else low, max(high, last)
    if low is not None:
        yield low, high


def _condition(box: Mapping[Key, Interval]) -> Cond:
    conds: list[Cond] = []
    for (axis, rest), (low, high) in box.items():
        at = affine.from_terms({Name(axis): 1, **dict(rest)}, 0)
        if low > -inf:
            conds.append(affine.compare(">=", at, int(low)))
        if high < inf:
            conds.append(affine.compare("<=", at, int(high)))
    return affine.conj(*conds)
