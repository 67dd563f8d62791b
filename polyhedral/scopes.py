"""What holds inside loops and conditions: `Scope.nonnegative` proves that an expression is at least 0 wherever a scope is entered.

    for i in 0 .. N: for j in 8*i .. min(8*i + 8, M): if j < K        8*i + 8 - j >= 0 ?   M - 1 - j >= 0 ?   K - 1 - j >= 0 ?

Most such questions are decided by putting the bounds of names in for the names, from the innermost name outwards: a name with a positive
coefficient is least at its lower bound, one with a negative coefficient at its upper bound. Where a bound is a minimum or maximum, one of
its operands has to do, or all of them. What is left over, and what needs a condition that bounds several names at once, is asked of isl.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias, TypeVar, assert_never

from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, And, Compare, Cond, Expr, Floor, Int, Max, Min, Name, Not, Or, Scale
from polyhedral.ranges import Range, range_of
from polyhedral.sets import implies
from polyhedral.verdict import Proven

_STEPS = 100
"""How many expressions one question looks at before isl is asked."""
_DEEPEST = 24
"""How many operands of minima and maxima one question chooses between, one inside the other."""
_MOST_SUMS = 128
"""How many sums are taken from one condition."""
_Atom = TypeVar("_Atom", Expr, int)


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
        elimination = _Elimination(self)
        terms, constant = elimination.form(e)
        if elimination.proves(terms, constant):
            return True
        for known, offset in self._known():
            less = elimination.form_of(known)
            shared = less.keys() & terms.keys()
            times = {1, *(terms[atom] // less[atom] for atom in shared if terms[atom] % less[atom] == 0)} if shared else set()
            if any(n > 0 and elimination.proves(_plus(terms, -n, less), constant - n * offset) for n in sorted(times)):
                return True
        return False

    def _known(self) -> Iterator[tuple[Mapping[Expr, int], int]]:
        """Yield sums that conditions say are not negative."""
        for fact in self.facts:
            for e in affine.inequalities(fact):
                yield from islice(_consequences(*_terms(e)), _MOST_SUMS)

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


_Form: TypeAlias = tuple[dict[int, int], int]
"""A sum: the coefficient of each atom, by its number, and a constant."""


class _Elimination:
    """Questions about one scope. Atoms of sums are numbers here: they are looked up far more often than there are any."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._order = {name: level for level, name in enumerate(scope.bounds)}
        self._numbers: dict[Expr, int] = {}
        self._atoms: list[Expr] = []
        self._levels: list[tuple[int, int]] = []
        self._forms: dict[tuple[int, bool], _Form | None] = {}
        self._chosen: dict[int, Sequence[_Form]] = {}
        self._steps = 0

    def form(self, e: Expr) -> _Form:
        linear = affine.linear(e)
        return self.form_of(dict(linear.terms)), linear.constant

    def form_of(self, terms: Mapping[Expr, int]) -> dict[int, int]:
        """Return the coefficients of a sum by numbers of atoms."""
        return {self._number(atom): factor for atom, factor in terms.items()}

    def proves(self, terms: dict[int, int], constant: int) -> bool:
        """Return whether `terms + constant >= 0` is proven."""
        self._steps = _STEPS
        return self._least(terms, constant, 1, 0)

    def _number(self, atom: Expr) -> int:
        found = self._numbers.get(atom)
        if found is None:
            found = self._numbers[atom] = len(self._atoms)
            self._atoms.append(atom)
            # What mentions the innermost name comes out first, and of that what is made of most: what it is made of may then cancel.
            mentioned = [self._order.get(name, -1) for name in affine.names(atom)]
            self._levels.append((max(mentioned, default=-1), 0 if isinstance(atom, Name) else len(mentioned)))
        return found

    def _least(self, terms: dict[int, int], constant: int, scale: int, depth: int) -> bool:
        """Return whether `terms + constant`, which is `scale` times an integer or less than that, proves this integer not negative."""
        self._steps -= 1
        if self._steps < 0 or depth > _DEEPEST:
            return False
        if not terms:
            return constant + scale - 1 >= 0
        atom = max(terms, key=self._levels.__getitem__)
        rest = dict(terms)
        factor = rest.pop(atom)
        match self._atoms[atom]:
            case Name():
                bound = self._side(atom, factor > 0)
                return bound is not None and self._put(rest, constant, factor, bound, scale, depth)
            case Floor(value, divisor):
                low_number, high_number = self._scope.range_of(value)
                number = low_number if factor > 0 else high_number
                if number is not None and self._least(rest, constant + factor * (number // divisor), scale, depth):
                    return True
                wider = {t: f * divisor for t, f in rest.items()}
                inner = self._side(atom, factor > 0)
                assert inner is not None
                return self._put(wider, constant * divisor, factor, inner, scale * divisor, depth)
            case Min() | Max() as extreme:
                either = isinstance(extreme, Min) == (factor < 0)
                sums = [(_plus(rest, factor, terms), constant + factor * offset) for terms, offset in self._operands(atom, extreme)]
                sums.sort(key=lambda form: len(form[0]))  # what cancels most is likeliest to do
                found = (self._least(terms, offset, scale, depth + 1) for terms, offset in sums)
                return any(found) if either else all(found)
            case _:
                return False

    def _side(self, atom: int, first: bool) -> _Form | None:
        """Return what may stand in the place of an atom: its lower bound, and its upper one where not `first`, times the divisor for a
        quotient. None where there is none."""
        if (atom, first) not in self._forms:
            side = self._written_side(self._atoms[atom], first)
            self._forms[atom, first] = None if side is None else self.form(side)
        return self._forms[atom, first]

    def _written_side(self, atom: Expr, first: bool) -> Expr | None:
        match atom:
            case Name(name):
                return self._scope.bounds.get(name, (None, None))[0 if first else 1]
            case Floor(value, divisor):
                return affine.add(value, Int(1 - divisor)) if first else value
            case _:
                return None

    def _operands(self, atom: int, extreme: Min | Max) -> Sequence[_Form]:
        """Return what a minimum or maximum is one of."""
        if atom not in self._chosen:
            self._chosen[atom] = [self.form(e) for e in affine.operands(extreme, type(extreme))]
        return self._chosen[atom]

    def _put(self, rest: dict[int, int], constant: int, factor: int, value: _Form, scale: int, depth: int) -> bool:
        """Go on with `value` in the place of what was taken out of `rest`."""
        terms, offset = value
        return self._least(_plus(rest, factor, terms), constant + factor * offset, scale, depth)


def _plus(terms: Mapping[_Atom, int], factor: int, others: Mapping[_Atom, int]) -> dict[_Atom, int]:
    """Return `terms + factor * others` without zeros."""
    result = dict(terms)
    for atom, by in others.items():
        total = result.get(atom, 0) + factor * by
        if total:
            result[atom] = total
        else:
            result.pop(atom, None)
    return result


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


def _consequences(terms: Mapping[Expr, int], constant: int) -> Iterator[tuple[Mapping[Expr, int], int]]:
    """Yield sums that are not negative where the given one is not: with each operand in the place of a minimum, or of a maximum that is
    taken off, and then without quotients too, as `i // 4 - 2` says `i - 8`: claims are about what is divided."""
    for atom, factor in terms.items():
        if isinstance(atom, Min | Max) and isinstance(atom, Min) == (factor > 0):
            rest = {t: f for t, f in terms.items() if t != atom}
            for operand in (atom.lhs, atom.rhs):
                others, offset = _terms(operand)
                yield from _consequences(_plus(rest, factor, others), constant + factor * offset)
            return
    yield terms, constant
    for atom, factor in terms.items():
        if isinstance(atom, Floor):
            rest = {t: f * atom.divisor for t, f in terms.items() if t != atom}
            others, offset = _terms(atom.value if factor > 0 else affine.add(atom.value, Int(1 - atom.divisor)))
            yield from _consequences(_plus(rest, factor, others), constant * atom.divisor + factor * offset)
            return


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
