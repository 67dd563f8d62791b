"""What holds inside loops and conditions: `Scope.nonnegative` proves that an expression is at least 0 wherever a scope is entered.

    for i in 0 .. N: for j in 8*i .. min(8*i + 8, M): if j < K        8*i + 8 - j >= 0 ?   M - 1 - j >= 0 ?   K - 1 - j >= 0 ?

Most such questions are decided by putting the bounds of names in for the names, from the innermost name outwards: a name with a positive
coefficient is least at its lower bound, one with a negative coefficient at its upper bound. Where a bound is a minimum or maximum, one of
its operands has to do, or all of them. What is left over, and what needs a condition that bounds several names at once, is asked of isl.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, And, Compare, Cond, Expr, Floor, Int, Max, Min, Name, Not, Or, Scale
from polyhedral.ranges import Range, range_of
from polyhedral.sets import implies
from polyhedral.verdict import Proven

_STEPS = 400
"""How many expressions one question looks at before isl is asked."""
_DEEPEST = 24
"""How many operands of minima and maxima one question chooses between, one inside the other."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Names, each with bounds in terms of those before it, and conditions that hold.

    `bounds`: name → its least and its greatest value, inclusive, None where there is none; `ranges`: the same in numbers."""

    bounds: Mapping[str, tuple[Expr | None, Expr | None]] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    facts: tuple[Cond, ...] = ()

    def with_name(self, name: str, low: Expr | None, high: Expr | None) -> Scope:
        """Return the scope with one more name, between `low` and `high`."""
        least = self.ranges.get(name, (None, None))[0] if low is None else self.range_of(low)[0]
        greatest = self.ranges.get(name, (None, None))[1] if high is None else self.range_of(high)[1]
        return Scope({**self.bounds, name: (low, high)}, {**self.ranges, name: (least, greatest)}, self.facts)

    def with_number(self, name: str, low: int, high: int) -> Scope:
        """Return the scope with one more name, of which only these numbers are known, that may be too large to calculate with."""
        return Scope({**self.bounds, name: (None, None)}, {**self.ranges, name: (low, high)}, self.facts)

    def with_fact(self, cond: Cond) -> Scope:
        """Return the scope where `cond` holds as well: bounds of single names become tighter, the rest is kept as it is."""
        if cond == TRUE:
            return self
        scope = self
        for part in _conjuncts(cond):
            scope = scope._tightened(part)
        return scope

    def _tightened(self, cond: Cond) -> Scope:
        bounds, facts = dict(self.bounds), (*self.facts, cond)
        for terms, constant in map(_terms, affine.inequalities(cond)):
            name = self._innermost(terms)
            if name is None or name not in bounds or abs(terms[Name(name)]) != 1:
                continue
            factor = terms[Name(name)]
            rest = _expression({t: -factor * f for t, f in terms.items() if t != Name(name)}, -factor * constant)
            low, high = bounds[name]
            if factor > 0:
                low = rest if low is None else affine.maximum(low, rest)
            else:
                high = rest if high is None else affine.minimum(high, rest)
            bounds[name] = (low, high)
        if bounds == self.bounds:
            return replace(self, facts=facts)
        scope = Scope({}, self.ranges, facts)
        for name, (low, high) in bounds.items():  # numbers that follow from tighter ones are tighter too
            scope = scope.with_name(name, low, high)
        return scope

    def _innermost(self, terms: Mapping[Expr, int]) -> str | None:
        """Return the innermost name of a sum, where that is a term of its own."""
        mentioned = {name for term in terms for name in affine.name_set(term)}
        inner = next((name for name in reversed(list(self.bounds)) if name in mentioned), None)
        only = inner is not None and not any(inner in affine.name_set(t) for t in terms if not isinstance(t, Name))
        return inner if only else None

    # ------------------------------------------------------------ in numbers

    def range_of(self, e: Expr) -> Range:
        """Return numbers that `e` lies between wherever the scope is entered."""
        return range_of(e, self.ranges)

    # ------------------------------------------------------------ proofs

    def nonnegative(self, e: Expr) -> bool:
        """Return whether `e >= 0` is proven."""
        low, _ = self.range_of(e)
        if low is not None and low >= 0:
            return True
        return self._eliminated(e) or self.implied(Compare(">=", e, Int(0)))

    def _eliminated(self, e: Expr) -> bool:
        form = affine.linear(e)
        terms = dict(form.terms)
        if _Elimination(self).least(terms, form.constant, 1, 0):
            return True
        goal = set(terms)
        for known, constant in self._known():
            if goal & known.keys():
                less = _less(terms, known)
                if _Elimination(self).least(less, form.constant - constant, 1, 0):
                    return True
        return False

    def _known(self) -> Iterator[tuple[dict[Expr, int], int]]:
        """Yield the sums that conditions say are not negative."""
        for fact in self.facts:
            yield from map(_terms, affine.inequalities(fact))

    def implied(self, claim: Cond) -> bool:
        """Return whether isl proves `claim` from the bounds and conditions of all names that have to do with it."""
        names, given = self._relevant(claim)
        return isinstance(implies((), names, And(tuple(given)), claim), Proven)

    def is_impossible(self) -> bool:
        """Return whether isl proves that no numbers keep all bounds and conditions: what stands there is never come to."""
        given = [c for name, sides in self.bounds.items() for c in _sides(name, *sides)] + list(self.facts)
        names = set().union(*map(affine.name_set, given))
        return isinstance(implies((), tuple(sorted(names)), And(tuple(given)), FALSE), Proven)

    def _relevant(self, claim: Cond) -> tuple[tuple[str, ...], list[Cond]]:
        """Return the names that `claim` depends on, and what is known of them."""
        needed = set(affine.name_set(claim))
        conds = [c for name, sides in self.bounds.items() for c in _sides(name, *sides)] + list(self.facts)
        mentioned = [affine.name_set(c) for c in conds]
        grown = True
        while grown:
            grown = False
            for of in mentioned:
                if of & needed and not of <= needed:
                    needed |= of
                    grown = True
        return tuple(sorted(needed)), [c for c, of in zip(conds, mentioned, strict=True) if of <= needed]


@dataclass(slots=True)
class _Elimination:
    """One question, with what is left of its steps."""

    scope: Scope
    steps: int = _STEPS
    order: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.order = {name: level for level, name in enumerate(self.scope.bounds)}

    def least(self, terms: dict[Expr, int], constant: int, scale: int, depth: int) -> bool:
        """Return whether `terms + constant`, which is `scale` times an integer or less than that, proves this integer not negative."""
        self.steps -= 1
        if self.steps < 0 or depth > _DEEPEST:
            return False
        if not terms:
            return constant + scale - 1 >= 0
        atom = max(terms, key=self._level)
        factor = terms[atom]
        rest = {t: f for t, f in terms.items() if t != atom}
        match atom:
            case Name(name):
                low, high = self.scope.bounds.get(name, (None, None))
                bound = low if factor > 0 else high
                return bound is not None and self._put(rest, constant, factor, bound, scale, depth)
            case Floor(value, divisor):
                low_number, high_number = self.scope.range_of(value)
                number = low_number if factor > 0 else high_number
                if number is not None and self.least(rest, constant + factor * (number // divisor), scale, depth):
                    return True
                wider = {t: f * divisor for t, f in rest.items()}
                inner = affine.add(value, Int(1 - divisor)) if factor > 0 else value
                return self._put(wider, constant * divisor, factor, inner, scale * divisor, depth)
            case Min(lhs, rhs) | Max(lhs, rhs):
                either = isinstance(atom, Min) == (factor < 0)
                found = (self._put(rest, constant, factor, side, scale, depth + 1) for side in (lhs, rhs))
                return any(found) if either else all(found)
            case _:
                return False

    def _put(self, rest: dict[Expr, int], constant: int, factor: int, value: Expr, scale: int, depth: int) -> bool:
        """Go on with `value` in the place of what was taken out of `rest`."""
        form = affine.linear(value)
        terms = dict(rest)
        for term, by in form.terms:
            terms[term] = terms.get(term, 0) + factor * by
        return self.least({t: f for t, f in terms.items() if f}, constant + factor * form.constant, scale, depth)

    def _level(self, atom: Expr) -> tuple[int, int]:
        """Return what comes out first: what mentions the innermost name, and of those what is no name itself."""
        inner = max((self.order.get(name, -1) for name in affine.name_set(atom)), default=-1)
        return inner, 0 if isinstance(atom, Name) else 1


def _conjuncts(cond: Cond) -> Iterator[Cond]:
    match cond:
        case And(conds):
            for inner in conds:
                yield from _conjuncts(inner)
        case Not(inner):
            yield from _conjuncts(affine.negate(inner))
        case Compare() | Or():
            yield cond
        case _:
            assert_never(cond)


def _terms(e: Expr) -> tuple[dict[Expr, int], int]:
    form = affine.linear(e)
    return dict(form.terms), form.constant


def _less(terms: Mapping[Expr, int], known: Mapping[Expr, int]) -> dict[Expr, int]:
    result = dict(terms)
    for term, factor in known.items():
        result[term] = result.get(term, 0) - factor
    return {t: f for t, f in result.items() if f}


def _expression(terms: Mapping[Expr, int], constant: int) -> Expr:
    result: Expr = Int(constant)
    for term, factor in terms.items():
        result = affine.add(result, Scale(factor, term))
    return result


def _sides(name: str, low: Expr | None, high: Expr | None) -> Iterable[Cond]:
    if low is not None:
        yield Compare(">=", Name(name), low)
    if high is not None:
        yield Compare("<=", Name(name), high)
