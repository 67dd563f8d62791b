"""The order in which the factors of a reduction are combined, two parts at a time, that takes the least time.

    sum(a, b, c) u[i, a] * v[a, b] * w[b, c] * x[c, j]         ((u v) (w x)), with a and c reduced first

Every order is looked at, part by part: what a set of factors costs does not depend on the others but for the indices that these have, too.
Sets of factors and of indices are bits of a number. Costs are in points of single loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, prod

MATRIX_POINTS = 8
"""How many points of a product of matrices, of which registers keep a tile, take as long as one of another reduction."""
LEAST_SIDE = 4
"""Rows, and columns, from which on a product of matrices fills a tile."""
TENSOR_POINTS = 200
"""Points that take as long as loops of their own take to begin."""


@dataclass(frozen=True, slots=True)
class Step:
    """`parts`, factors by their positions or tensors that other steps make, are combined for all values of their indices, of which those in
    `kept` are indices of the result and those in `reduced` are not. `cost`: with all that it needs."""

    parts: tuple[int | Step, ...]
    kept: int
    reduced: int
    cost: float


@dataclass(frozen=True, slots=True)
class _Terms:
    """Parts that are combined where they are needed, `products` times for each point, after `cost` points elsewhere."""

    parts: tuple[int | Step, ...]
    products: int
    cost: float

    def at(self, points: float) -> float:
        """Return what they cost where they are needed for so many points."""
        return self.cost + self.products * points


@dataclass
class FactorOrder:
    """`names`: the indices of each factor; `sizes`: how many values each index takes; `binders`: the indices that are reduced. `boxed`:
    those of which a tensor can have all values. `matrices`: whether two parts may be a product of matrices. `most`: elements of a tensor
    that is made on the way, unless a factor or the result has more."""

    names: tuple[int, ...]
    sizes: tuple[int, ...]
    binders: int
    boxed: int
    matrices: bool
    most: int
    _points: dict[int, int] = field(default_factory=dict)
    _made: dict[int, Step | int] = field(default_factory=dict)
    _spread: dict[int, _Terms] = field(default_factory=dict)

    @property
    def whole(self) -> int:
        return (1 << len(self.names)) - 1

    @property
    def as_written(self) -> float:
        """Return what one loop nest over all indices costs: in its innermost loop only what changes there is multiplied."""
        indices = self._union(self.whole)
        points = self.points(indices)
        if len(self.names) == 2 and self._is_matrix(*self.names, self.binders):
            return points / MATRIX_POINTS
        changing = min(sum(names >> k & 1 for names in self.names) for k in range(len(self.sizes)) if indices >> k & 1)
        return float(points * max(1, changing - 1))

    def points(self, names: int) -> int:
        """Return how many points there are for these indices."""
        if names not in self._points:
            self._points[names] = prod(size for k, size in enumerate(self.sizes) if names >> k & 1)
        return self._points[names]

    def best(self) -> Step:
        """Return the steps that cost least."""
        found = self._result(self.whole)
        return found if isinstance(found, Step) else Step((found,), self.names[found], 0, 0.0)

    def _union(self, factors: int) -> int:
        out = 0
        for k, names in enumerate(self.names):
            out |= names if factors >> k & 1 else 0
        return out

    def _kept(self, factors: int) -> int:
        """Return the indices that are left of a set of factors: those that other factors have, too, or the result."""
        return self._union(factors) & (~self.binders | self._union(self.whole & ~factors))

    def _result(self, factors: int) -> Step | int:
        """Return what a set of factors becomes: a factor itself, or a step."""
        if factors not in self._made:
            self._made[factors] = self._cheapest(factors)
        return self._made[factors]

    def _cheapest(self, factors: int) -> Step | int:
        kept = self._kept(factors)
        alone = factors.bit_length() - 1 if factors & (factors - 1) == 0 else None
        if alone is not None:
            reduced = self.names[alone] & ~kept
            cost = self.points(self.names[alone]) + self._storing(factors, kept, reduced)
            return Step((alone,), kept, reduced, cost) if reduced else alone
        found = min((self._combined(left, factors ^ left) for left in _halves(factors)), key=lambda step: step.cost)
        return Step(found.parts, kept, found.reduced, found.cost + self._storing(factors, kept, found.reduced))

    def _storing(self, factors: int, kept: int, reduced: int) -> float:
        """Return what it costs to make a tensor of a set of factors, none where that is the whole."""
        if factors == self.whole:
            return 0.0
        elements = self.points(kept)
        return inf if elements > self._most() or (not reduced and kept & ~self.boxed) else elements + TENSOR_POINTS

    def _most(self) -> int:
        return max(self.most, self.points(self._kept(self.whole)), *map(self.points, self.names))

    def _combined(self, left: int, right: int) -> Step:
        """Return the step that combines two sets of factors."""
        sides = self._kept(left), self._kept(right)
        inner, kept = sides[0] | sides[1], self._kept(left | right)
        points = self.points(inner)
        reduced = inner & ~kept
        a, b = (self._terms(side, points) for side in (left, right))
        step = Step((*a.parts, *b.parts), kept, reduced, points + a.at(points) + b.at(points))
        if not self._is_matrix(*sides, reduced):
            return step
        stored = self._result(left), self._result(right)
        cost = points / MATRIX_POINTS + sum(part.cost for part in stored if isinstance(part, Step))
        return min(step, Step(stored, kept, reduced, cost), key=lambda s: s.cost)

    def _terms(self, factors: int, points: int) -> _Terms:
        """Return how a set of factors is had for so many points with least cost: as a tensor, or combined there."""
        made = self._result(factors)
        stored = _Terms((made,), 0, made.cost if isinstance(made, Step) else 0.0)
        return stored if isinstance(made, int) or made.reduced else min(stored, self._spread_out(factors), key=lambda t: t.at(points))

    def _spread_out(self, factors: int) -> _Terms:
        """Return the parts of a set of factors that can be combined without reducing anything last."""
        if factors not in self._spread:
            kept = self._kept(factors)
            points = self.points(kept)
            pairs = ((left, factors ^ left) for left in _halves(factors))
            halves = ([self._terms(side, points) for side in pair] for pair in pairs if self._kept(pair[0]) | self._kept(pair[1]) == kept)
            found = (_Terms((*a.parts, *b.parts), a.products + b.products + 1, a.cost + b.cost) for a, b in halves)
            self._spread[factors] = min(found, key=lambda t: t.at(points))
        return self._spread[factors]

    def _is_matrix(self, left: int, right: int, reduced: int) -> bool:
        """Tell whether two parts with these indices make a product of matrices: rows, columns, and sums along what both have."""
        side = min(self.points(left & ~right), self.points(right & ~left))
        return self.matrices and left & right & reduced != 0 and side >= LEAST_SIDE


def _halves(factors: int) -> Iterator[int]:
    """Yield the ways to part a set of factors in two, by the part that its first one is in."""
    first = factors & -factors
    rest = factors ^ first
    other = rest
    while other:
        other = (other - 1) & rest
        yield first | other
