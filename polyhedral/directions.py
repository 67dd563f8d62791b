"""Along which loops the dependences of some statements point, in whatever order these loops are.

    distances   { [target - source] } along the loops that all the statements have, for the part of a source and that of a target
    legal       no distance is lexicographically negative
    free        loops along which no distance is left that the loops outside have not settled
    wavefront   a loop skewed by a multiple of another, so that every distance points forwards along it: the other carries nothing inside

Statements belong to parts, which run one after the other inside the loops outside `separate`, and together in all loops where nothing is
separated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from typing import TypeAlias

import islpy as isl

from polyhedral.deps import dependences
from polyhedral.order import Checker
from polyhedral.schedule import Schedule
from polyhedral.space import DT, integer, limited, val

MOST_SKEW = 4
"""Of one loop by another, by how much it is tried."""
_Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Along:
    """Where some distances point along a loop: whether any does backwards, and the least of those forwards, 0 where there is none."""

    backwards: bool
    forwards: int


@dataclass(frozen=True, slots=True, eq=False)
class Distances:
    """`between[p, q]`: the distances of dependences of part q on part p along `loops`."""

    loops: tuple[str, ...]
    between: Mapping[tuple[int, int], isl.Set]
    _left: dict[tuple[_Pair, frozenset[str]], isl.Set] = field(default_factory=dict, init=False, repr=False)
    _along: dict[tuple[_Pair, frozenset[str], str], _Along] = field(default_factory=dict, init=False, repr=False)

    def is_legal(self, order: Sequence[str]) -> bool:
        """Tell whether loops in this order, with all parts in all of them, keep every dependence."""
        return not any(found.backwards for pair in self.between for _, found in self._levels(order, pair))

    def free(self, order: Sequence[str], separate: int | None = None) -> tuple[str, ...]:
        """Return the loops that carry nothing. `separate`: the number of loops outside those that each part has by itself."""
        carrying = {loop for loop, found in self._carried(order, separate) if found.backwards or found.forwards}
        return tuple(loop for loop in order if loop not in carrying)

    def least_distances(self, order: Sequence[str], separate: int | None = None) -> dict[str, int]:
        """Return the loops that carry dependences in a legal order, each with the least distance of them: so many iterations, one after
        the other, need none of each other. `separate`: as `free` has it."""
        found: dict[str, int] = {}
        for loop, along in self._carried(order, separate):
            if along.forwards:
                found[loop] = min(found.get(loop, along.forwards), along.forwards)
        return found

    def least_between(self, loop: str) -> dict[tuple[int, int], int | None]:
        """Return for each pair of parts of which one needs the other the least distance along a loop; None where there is no least."""
        position = self.loops.index(loop)
        return {pair: _least(d, {position: 1}) for pair, d in self.between.items() if not d.is_empty()}

    def separable(self, order: Sequence[str]) -> int | None:
        """Return the least number of outer loops inside which the parts may run one after the other, or None when they may not at all."""
        backwards = [(p, q) for p, q in self.between if p > q]
        for depth in range(len(order) + 1):
            if all(self._level(pair, order[:depth]).is_empty() for pair in backwards):
                return depth
        return None

    def wavefront(self, outer: Sequence[str], skewed: str, along: str, separate: bool) -> int | None:
        """Return the least multiple of `along` (`MOST_SKEW` at most) that, added to `skewed`, makes every distance point forwards along it
        that the loops `outer` do not settle, so that `along` carries nothing inside; None where none does. `separate`: parts run one
        after the other inside `outer`."""
        if not self.is_legal(outer):
            return None
        inner = [self._level((p, q), outer) for p, q in self.between if p == q or not separate]
        first, second = self.loops.index(skewed), self.loops.index(along)
        found = (f for f in range(1, MOST_SKEW + 1) if all(_goes_on(left, first, second, f) for left in inner))
        return next(found, None)

    def may_run_in_blocks(self, outer: Sequence[str], loop: str, separate: bool) -> bool:
        """Tell whether blocks of a loop need nothing of later ones inside the loops `outer`: no distance that these leave points backwards
        along it. `separate`: as `wavefront` has it."""
        pairs = [(p, q) for p, q in self.between if p == q or not separate]
        return not any(self._found(pair, frozenset(outer), loop).backwards for pair in pairs)

    def is_wavefront(self, factors: Mapping[str, int]) -> bool:
        """Tell whether every distance points forwards along the sum of all loops, each as many times as `factors` says: what has one sum
        needs nothing of each other."""
        by_position = {self.loops.index(loop): factor for loop, factor in factors.items()}
        return all(_is_forwards(d, by_position) for d in self.between.values())

    def permutable_skew(self, skewed: str, along: str) -> int | None:
        """Return the least multiple of `along` (from 0 to `MOST_SKEW`) that, added to `skewed`, leaves no distance backwards along either,
        so that both loops may be tiled; None where none does."""
        if any(self._found(pair, frozenset(), along).backwards for pair in self.between):
            return None
        first, second = self.loops.index(skewed), self.loops.index(along)
        found = (f for f in range(MOST_SKEW + 1) if all(_below(d, {first: 1, second: f}, 0).is_empty() for d in self.between.values()))
        return next(found, None)

    def permutable_offsets(self, skewed: str, along: str) -> tuple[int, Mapping[int, int]] | None:
        """Return the least multiple of `along` (from 0 to `MOST_SKEW`), and for each part the least offset, that, added to `skewed`, leave
        no distance backwards along either, so that both loops of all parts may be tiled; None where none do."""
        if any(self._found(pair, frozenset(), along).backwards for pair in self.between):
            return None
        first, second = self.loops.index(skewed), self.loops.index(along)
        known = {pair: d for pair, d in self.between.items() if not d.is_empty()}
        for factor in range(MOST_SKEW + 1):
            least = {pair: _least(d, {first: 1, second: factor}) for pair, d in known.items()}
            offsets = _offsets({p for pair in self.between for p in pair}, least)
            if offsets is not None:
                return factor, offsets
        return None

    def offsets(self, loop: str, outer: Sequence[str]) -> Mapping[int, int] | None:
        """Return for each part the least offset that, added to a loop, leaves no distance backwards along it inside the loops `outer`, so
        that all parts may share it; None where none do."""
        position = self.loops.index(loop)
        left = ((pair, self._level(pair, outer)) for pair in self.between)
        least = {pair: _least(d, {position: 1}) for pair, d in left if not d.is_empty()}
        return _offsets({p for pair in self.between for p in pair}, least)

    def _carried(self, order: Sequence[str], separate: int | None) -> Iterable[tuple[str, _Along]]:
        """Yield each loop with the distances that those outside it leave, of parts as far as they share loops, and of each by itself."""
        for p, q in self.between:
            yield from self._levels(order if p == q else order[:separate], (p, q))

    def _levels(self, order: Sequence[str], pair: _Pair) -> Iterable[tuple[str, _Along]]:
        """Yield each loop with the distances of a pair of parts that the loops outside it leave."""
        for depth, loop in enumerate(order):
            yield loop, self._found(pair, frozenset(order[:depth]), loop)

    def _level(self, pair: _Pair, settled: Iterable[str]) -> isl.Set:
        """Return the distances of a pair of parts that some loops leave."""
        key = pair, frozenset(settled)
        if key not in self._left:
            none = val(0)
            self._left[key] = reduce(lambda d, loop: d.fix_val(DT.set, self.loops.index(loop), none), key[1], self.between[pair])
        return self._left[key]

    def _found(self, pair: _Pair, settled: frozenset[str], loop: str) -> _Along:
        """Return where the distances of a pair of parts that some loops leave point along another one."""
        key = pair, settled, loop
        if key not in self._along:
            self._along[key] = _along_loop(self._level(pair, settled), self.loops.index(loop))
        return self._along[key]


def _along_loop(distances: isl.Set, position: int) -> _Along:
    """Return where distances point along the loop at a position; the least forwards is 1 where it is not known."""
    backwards = not distances.upper_bound_val(DT.set, position, val(-1)).is_empty()
    forwards = distances.lower_bound_val(DT.set, position, val(1))
    if forwards.is_empty():
        return _Along(backwards, 0)
    least = forwards.dim_min_val(position)
    return _Along(backwards, integer(least) if least.is_int() else 1)


def distances_of(schedule: Schedule, parts: Mapping[str, int]) -> Distances:
    """Return the distances between statements, along the loops that all of them have. `parts`: the statements, each with its part.

    Raises `OperationLimit` where isl does not find them in time."""
    placements = {n.placement: parts[s] for s in parts for n in schedule.placements(s)}
    nests = [schedule.nests[p] for p in placements]
    common = tuple(loop for loop in nests[0].loops if all(loop in n.loops for n in nests))
    between: dict[tuple[int, int], isl.Set] = {}
    with limited():
        checker = Checker(schedule, dependences(schedule.scop), {})
        for index, dep in enumerate(checker.deps):
            if dep.source not in parts or dep.target not in parts:
                continue
            for source, target in product(schedule.placements(dep.source), schedule.placements(dep.target)):
                pairs = checker.placed(index, dep, source.placement, target.placement)
                pairs = _along(_along(pairs, DT.in_, source.loops, common), DT.out, target.loops, common)
                key = parts[dep.source], parts[dep.target]
                deltas = pairs.deltas()
                between[key] = between[key].union(deltas).coalesce() if key in between else deltas
    return Distances(common, between)


def _goes_on(distances: isl.Set, skewed: int, along: int, factor: int) -> bool:
    """Tell whether `skewed + factor * along` is positive for all distances that are not zero along both."""
    rest = _below(distances, {skewed: 1, along: factor}, 1)
    return rest.is_subset(rest.fix_val(DT.set, skewed, val(0)).fix_val(DT.set, along, val(0)))


def _is_forwards(distances: isl.Set, factors: Mapping[int, int]) -> bool:
    """Tell whether the sum of all dimensions times `factors` is positive for all distances that are not zero along all of them."""
    rest = _below(distances, factors, 1)
    none = val(0)
    return rest.is_subset(reduce(lambda d, position: d.fix_val(DT.set, position, none), range(rest.dim(DT.set)), rest))


def _below(distances: isl.Set, factors: Mapping[int, int], least: int) -> isl.Set:
    """Return the distances for which the sum of dimensions times `factors` is less than `least`."""
    rest = _sum(distances, factors).neg().add_constant_val(val(least - 1))
    zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(distances.get_space()))
    return distances.intersect(isl.Set.from_basic_set(rest.ge_basic_set(zero)))


def _sum(distances: isl.Set, factors: Mapping[int, int]) -> isl.Aff:
    space = isl.LocalSpace.from_space(distances.get_space())
    parts = (isl.Aff.var_on_domain(space, DT.set, position).scale_val(val(factor)) for position, factor in factors.items())
    return reduce(lambda a, b: a + b, parts)


def _least(distances: isl.Set, factors: Mapping[int, int]) -> int | None:
    """Return the least sum of dimensions times `factors`; None where there is none."""
    found = distances.min_val(_sum(distances, factors))
    return integer(found) if found.is_int() else None


def _offsets(parts: Iterable[int], least: Mapping[tuple[int, int], int | None]) -> dict[int, int] | None:
    """Return the least offsets of parts with which nothing points backwards (longest paths; Bellman 1958), or None where a circle does.
    `least`: how far each pair of parts goes forwards at least."""
    offsets = dict.fromkeys(parts, 0)
    for _ in range(len(offsets) + 1):
        changed = False
        for (source, target), forwards in least.items():
            if forwards is None:
                return None
            if offsets[target] < offsets[source] - forwards:
                offsets[target], changed = offsets[source] - forwards, True
        if not changed:
            return offsets
    return None


def _along(pairs: isl.Map, side: DT, loops: Sequence[str], kept: Sequence[str]) -> isl.Map:
    for position in reversed([k for k, loop in enumerate(loops) if loop not in kept]):
        pairs = pairs.project_out(side, position, 1)
    return pairs.set_tuple_name(side, "")
