"""Terms turned round: from where they are added to what is added there.

    d_x[2*i + k] += v[i, k]   for i in 0..N, k in 0..K      ->      d_x[j] = sum(i in 0..N, k in 0..K, 2*i + k == j) v[i, k]

Equalities are solved for an index that has the factor one, which is then no longer summed over: `i + k == j` leaves the sum over k of
`v[j - k, k]`, wherever `j - k` is an i. Quotients and remainders of an index become indices themselves, maxima and minima their two sides.
Data that say where something is added become conditions, `ids[k] == j`. Where data say which term of a sum is there at all, that term is
read: `if ids[i] == k` leaves of the sum over k of `v[k]` what `v[ids[i]]` is. What is not solved, as above, stays a condition of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from math import gcd

from codegen.dtypes import i64
from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, Add, And, Compare, Cond, Floor, Int, Max, Min, Mod, Not, Or, Scale
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.sets import implies, is_empty, needed
from polyhedral.verdict import Proven
from tensorlang.tensor.bands import WORTH_NARROWING, band_of
from tensorlang.tensor.gradient.algebra import equal
from tensorlang.tensor.gradient.normal_form import with_whole_ranges
from tensorlang.tensor.gradient.terms import Term
from tensorlang.tensor.nodes import Binary, Binder, Cast, Const, Dynamic, Expr, IndexValue, Read
from tensorlang.tensor.nodes import Compare as Test
from tensorlang.tensor.simplify import with_dynamic
from tensorlang.tensor.types import Types, scalar_dtype
from tensorlang.tensor.walk import index_names, operands, rebuild

OnAffine = Callable[[Affine], Affine]


@dataclass(frozen=True, slots=True)
class Solved:
    """What is added to an element: the sum of `value` over `binders`, where `where` holds and then `tests`, all of it only where `given`
    holds of the element. `named`: the tests that say which element data name."""

    value: Expr
    binders: tuple[Binder, ...]
    where: Cond
    given: Cond
    tests: tuple[Expr, ...]
    named: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """The tensor whose derivative is made: its axes and shape, what is known of the sizes, their names, and types of all tensors."""

    axes: tuple[str, ...]
    shape: tuple[Affine, ...]
    sizes: tuple[str, ...]
    context: Cond
    types: Types
    variable: Callable[[str], str]
    declared: Mapping[str, tuple[Affine, Affine]]
    """Parameters whose elements are promised to lie in a range, and that range."""

    @property
    def box(self) -> Cond:
        return affine.conj(self.context, *(affine.within(a, 0, s) for a, s in zip(self.axes, self.shape, strict=True)))


def solved(term: Term, target: Target) -> Iterator[Solved]:
    """Yield what a term adds to the element of its tensor at the axes of `target`."""
    named = tuple(_named(slot, axis, target) for slot, axis in zip(term.index, target.axes, strict=True) if isinstance(slot, Dynamic))
    plain = [(s, a) for s, a in zip(term.index, target.axes, strict=True) if not isinstance(s, Dynamic)]
    dynamic = ((slot, axis) for slot, axis in zip(term.index, target.axes, strict=True) if isinstance(slot, Dynamic))
    where = affine.conj(term.where, *(c for slot, axis in dynamic for c in _known(slot, axis)))
    for side in _without_extrema(_System(term.variables, tuple(plain), where, term.tests, named, term.value)):
        found = _finished(_eliminated(_narrowed(_eliminated(side, target)), target), target)
        if found is not None:
            yield found


def _named(slot: Dynamic, axis: str, target: Target) -> Expr:
    value = slot.value if scalar_dtype(slot.value, target.types) == i64 else Cast(i64, slot.value)
    return equal(value, IndexValue(AffineName(axis)))


def _known(slot: Dynamic, axis: str) -> Iterator[Cond]:
    """Yield between which elements of an axis data say where something is added."""
    if slot.lo is not None:
        yield affine.compare("<=", slot.lo, AffineName(axis))
    if slot.hi is not None:
        yield affine.compare("<", AffineName(axis), slot.hi)


@dataclass(frozen=True, slots=True)
class _System:
    """A term with its equations, `expression == axis`."""

    variables: tuple[Binder, ...]
    equations: tuple[tuple[Affine, str], ...]
    where: Cond
    tests: tuple[Expr, ...]
    named: tuple[Expr, ...]
    value: Expr
    digits: tuple[tuple[str, int], ...] = ()
    """Variables that are remainders, and how many values they have."""

    def mapped(self, f: OnAffine) -> _System:
        """Return the system with `f` applied to all index expressions but the ranges of variables."""

        def on_expr(e: Expr) -> Expr:
            return rebuild(e, on_expr, f, on_cond)

        def on_cond(cond: Cond) -> Cond:
            return map_cond(cond, f)

        return replace(
            self,
            equations=tuple((f(e), axis) for e, axis in self.equations),
            where=on_cond(self.where),
            tests=tuple(map(on_expr, self.tests)),
            named=tuple(map(on_expr, self.named)),
            value=on_expr(self.value),
        )

    def names(self) -> frozenset[str]:
        return frozenset(v.name for v in self.variables)

    def in_ranges(self) -> frozenset[str]:
        """Return the names that ranges of variables mention."""
        return frozenset[str]().union(*(affine.name_set(bound) for v in self.variables for bound in (v.lo, v.hi)))


def map_cond(cond: Cond, f: OnAffine) -> Cond:
    """Return `cond` with the sides of its comparisons replaced."""
    match cond:
        case Compare(op, lhs, rhs):
            return affine.compare(op, f(lhs), f(rhs))
        case And(conds):
            return affine.conj(*(map_cond(c, f) for c in conds))
        case Or(conds):
            return affine.disj(*(map_cond(c, f) for c in conds))
        case Not(inner):
            return affine.negate(map_cond(inner, f))


# ---------------------------------------------------------------- maxima and minima


def _without_extrema(system: _System) -> Iterator[_System]:
    """Yield the system for each side of the maxima and minima in its equations."""
    atom = next((a for e, _ in system.equations for a in _atoms(e, (Min, Max)) if set(affine.names(a)) & system.names()), None)
    if atom is None or not isinstance(atom, Min | Max):
        yield system
        return
    first = affine.compare(">=" if isinstance(atom, Max) else "<=", atom.lhs, atom.rhs)
    for value, cond in ((atom.lhs, first), (atom.rhs, affine.negate(first))):
        equations = tuple((_replaced(e, atom, value), axis) for e, axis in system.equations)
        yield from _without_extrema(replace(system, equations=equations, where=affine.conj(system.where, cond)))


def _atoms(e: Affine, kinds: tuple[type, ...]) -> Iterator[Affine]:
    """Yield the parts of `e` of some kinds, inner ones first."""
    for part in affine.parts(e):
        if not isinstance(part, Compare | And | Or | Not):
            yield from _atoms(part, kinds)
    if isinstance(e, kinds):
        yield e


def _replaced(e: Affine, old: Affine, new: Affine) -> Affine:
    return _rewritten(e, lambda atom: new if atom == old else None)


def _rewritten(e: Affine, f: Callable[[Affine], Affine | None]) -> Affine:
    """Return `e` with the parts replaced for which `f` has something else, the outermost first."""
    other = f(e)
    if other is not None:
        return other
    match e:
        case Int() | AffineName():
            return e
        case Add(lhs, rhs):
            return affine.add(_rewritten(lhs, f), _rewritten(rhs, f))
        case Scale(factor, value):
            return affine.scale(factor, _rewritten(value, f))
        case Floor(value, divisor):
            return affine.floor(_rewritten(value, f), divisor)
        case Mod(value, divisor):
            return affine.mod(_rewritten(value, f), divisor)
        case Min(lhs, rhs):
            return affine.minimum(_rewritten(lhs, f), _rewritten(rhs, f))
        case Max(lhs, rhs):
            return affine.maximum(_rewritten(lhs, f), _rewritten(rhs, f))


# ---------------------------------------------------------------- equations


def _eliminated(system: _System, target: Target) -> _System:
    """Return the system with every variable solved for that has the factor one in an equation, and quotients taken apart."""
    while True:
        step = _plain_step(system) or _told_step(system) or _quotient_step(system, target) or _looked_up_step(system, target)
        if step is None:
            return system
        system = step


def _plain_step(system: _System) -> _System | None:
    """Return the system without a variable that one of its equations tells; of all those the one with the fewest others beside it,
    and rather one that no range mentions."""
    best: tuple[tuple[int, bool, int], int, str, Affine, Cond] | None = None
    order = {v.name: k for k, v in enumerate(system.variables)}
    mentioned = system.in_ranges()
    for position, (e, axis) in enumerate(system.equations):
        form = affine.affine_form(e)
        if form is None:
            continue
        coefficients, _ = form
        free = {n: c for n, c in coefficients.items() if n in order}
        if any(abs(c) != 1 for c in free.values()) and len(free) > 1:
            continue
        for name, factor in free.items():
            rest = affine.sub(axis, affine.sub(e, affine.scale(factor, name)))
            if abs(factor) == 1:
                value, cond = affine.scale(factor, rest), TRUE
            else:
                signed = rest if factor > 0 else affine.neg(rest)
                value = affine.floor(signed, abs(factor))
                cond = affine.compare("==", affine.mod(signed, abs(factor)), 0)
            rank = len(free), name in mentioned, order[name]
            if best is None or rank < best[0]:
                best = rank, position, name, value, cond
    if best is None:
        return None
    (others, is_mentioned, _), position, name, value, cond = best
    if others > 1 and is_mentioned:  # what stands for it might be made of an index whose range mentions it
        apart = with_whole_ranges(system.variables, {})
        if apart is None:
            return None
        system = replace(system, variables=apart[0], where=affine.conj(system.where, apart[1]))
    return _without(system, position, name, value, cond)


def _without(system: _System, position: int | None, name: str, value: Affine, cond: Cond) -> _System:
    """Return the system without an equation and the variable that it tells."""
    gone = next(v for v in system.variables if v.name == name)
    asked = affine.conj(affine.within(value, gone.lo, gone.hi), cond)
    left = replace(
        system,
        variables=tuple(v for v in system.variables if v.name != name),
        equations=tuple(eq for k, eq in enumerate(system.equations) if k != position),
    )
    where = affine.conj(left.where, asked)
    digits = dict(system.digits)

    def on_affine(e: Affine) -> Affine:
        return _with_digits(affine.substitute(e, {name: value}), digits)

    out = replace(left, where=where).mapped(on_affine)
    return replace(out, variables=tuple(_with_range(v, on_affine) for v in out.variables))


def _with_range(variable: Binder, f: OnAffine) -> Binder:
    return replace(variable, lo=f(variable.lo), hi=f(variable.hi))


def _told_step(system: _System) -> _System | None:
    """Return the system without a variable that a condition tells, such as `i == 0`."""
    names = system.names()
    for cond in affine.conjuncts(system.where):
        if not isinstance(cond, Compare) or cond.op != "==":
            continue
        form = affine.affine_form(affine.sub(cond.lhs, cond.rhs))
        free = {n: c for n, c in form[0].items() if n in names} if form is not None else {}
        if len(free) != 1:
            continue
        [(name, factor)] = free.items()
        if abs(factor) == 1:
            rest = affine.sub(affine.scale(factor, name), affine.sub(cond.lhs, cond.rhs))
            return _without(system, None, name, affine.scale(factor, rest), TRUE)
    return None


def _quotient_step(system: _System, target: Target) -> _System | None:
    """Return the system with two variables in place of one: for `i // 4` and `i % 4`, of i, the variables q and r of i = 4*q + r."""
    ranges = {v.name: v for v in system.variables}
    for e, _ in system.equations:
        for atom in _atoms(e, (Floor, Mod)):
            assert isinstance(atom, Floor | Mod)
            form = affine.affine_form(atom.value)
            if form is None:
                continue
            coefficients, _ = form
            free = [n for n in coefficients if n in ranges]
            unit = next((n for n in free if abs(coefficients[n]) == 1), None)
            if unit is None or any({*affine.names(v.lo), *affine.names(v.hi)} & set(ranges) for n in free for v in (ranges[n],)):
                continue
            return _split(system, atom, unit, coefficients[unit], ranges, target)
    return None


def _looked_up_step(system: _System, target: Target) -> _System | None:
    """Return the system without a variable that a test says to be equal to data: what is read there is looked up."""
    tests = tuple(part for test in system.tests for part in operands("and", test))
    ranges = {v.name: v for v in system.variables}
    spoken_of = affine.name_set(system.where).union(system.in_ranges(), *(affine.name_set(e) for e, _ in system.equations))
    for k, test in enumerate(tests):
        for name, data in _told_by_data(test, target):
            if name not in ranges or name in spoken_of or any(name in index_names(before) for before in (data, *tests[:k])):
                continue
            inside, slot = _looked_up(data, ranges[name], target)
            parts = [with_dynamic(e, {name: slot}) for e in (*tests[k + 1 :], *system.named, system.value)]
            moved = [e for e in parts if e is not None]
            if len(moved) < len(parts):
                continue
            later = len(tests) - k - 1
            return replace(
                system,
                variables=tuple(v for v in system.variables if v.name != name),
                tests=(*tests[:k], *inside, *moved[:later]),
                named=tuple(moved[later:-1]),
                value=moved[-1],
            )
    return None


def _told_by_data(test: Expr, target: Target) -> Iterator[tuple[str, Expr]]:
    """Yield the indices that a test says to be equal to data, with these."""
    match test:
        case Test("==", data, IndexValue(index)) | Test("==", IndexValue(index), data) if not isinstance(data, IndexValue):
            form = affine.affine_form(index)
            for name, factor in form[0].items() if form is not None and scalar_dtype(data, target.types) == i64 else ():
                rest = affine.sub(index, affine.scale(factor, name))
                if factor == 1:
                    yield name, data if rest == affine.ZERO else Binary("-", data, _number(rest))
                elif factor == -1:
                    yield name, Binary("-", _number(rest), data)


def _looked_up(data: Expr, gone: Binder, target: Target) -> tuple[tuple[Expr, ...], Dynamic]:
    """Return the tests that data lie in the range of a variable, none where they are promised to, and the index that they are there."""
    source = data.value if isinstance(data, Cast) else data
    lo, hi = target.declared.get(source.tensor, (None, None)) if isinstance(source, Read) else (None, None)
    if lo is not None and hi is not None:
        fits = affine.disj(affine.compare(">=", lo, hi), affine.conj(affine.compare(">=", lo, gone.lo), affine.compare("<=", hi, gone.hi)))
        if isinstance(implies(target.sizes, (), target.context, fits), Proven):
            return (), Dynamic(data, lo, hi)
    inside = Binary("and", Test(">=", data, _number(gone.lo)), Test("<", data, _number(gone.hi)))
    return (inside,), Dynamic(data, gone.lo, gone.hi)


def _number(e: Affine) -> Expr:
    known = affine.constant(e)
    return IndexValue(e) if known is None else Const(known, i64)


def _split(system: _System, atom: Floor | Mod, name: str, factor: int, ranges: dict[str, Binder], target: Target) -> _System:
    inner, divisor = atom.value, atom.divisor
    quotient, digit = target.variable(f"{_stem(name)}_q"), target.variable(f"{_stem(name)}_r")
    rest = affine.sub(inner, affine.scale(factor, name))
    at = affine.add(affine.scale(divisor, quotient), digit)
    value = affine.scale(factor, affine.sub(at, rest))
    least, most = _extremes(inner, ranges)
    gone = ranges[name]
    made = (
        Binder(quotient, affine.floor(least, divisor), affine.add(affine.floor(most, divisor), 1)),
        Binder(digit, affine.ZERO, Int(divisor)),
    )
    digits = {**dict(system.digits), digit: divisor}

    def on_affine(e: Affine) -> Affine:
        return _with_digits(affine.substitute(e, {name: value}), digits)

    asked = affine.within(value, gone.lo, gone.hi)
    out = system.mapped(on_affine)
    variables = (w for v in system.variables for w in (made if v is gone else (_with_range(v, on_affine),)))
    return replace(out, variables=tuple(variables), where=affine.conj(out.where, asked), digits=tuple(digits.items()))


def _stem(name: str) -> str:
    return name.partition("?")[0]


def _extremes(e: Affine, ranges: dict[str, Binder]) -> tuple[Affine, Affine]:
    """Return the least and the greatest that a sum of variables can be."""
    form = affine.affine_form(e)
    assert form is not None
    low, high = [affine.to_expr(form[1])], [affine.to_expr(form[1])]
    for name, factor in form[0].items():
        if name not in ranges:
            low.append(affine.scale(factor, name))
            high.append(affine.scale(factor, name))
            continue
        ends = ranges[name].lo, affine.sub(ranges[name].hi, 1)
        low.append(affine.scale(factor, ends[0] if factor > 0 else ends[1]))
        high.append(affine.scale(factor, ends[1] if factor > 0 else ends[0]))
    return affine.add(*low), affine.add(*high)


def _with_digits(e: Affine, digits: dict[str, int]) -> Affine:
    """Return `e` with its quotients and remainders simplified, knowing that digits are not negative and how large they get."""

    def on_atom(atom: Affine) -> Affine | None:
        if not isinstance(atom, Floor | Mod):
            return None
        value, divisor = _with_digits(atom.value, digits), atom.divisor
        coefficients, const = affine.terms(value)
        low: dict[Affine, int] = {
            t: c for t, c in coefficients.items() if isinstance(t, AffineName) and t.name in digits and c > 0 and c % divisor
        }
        high = {t: c for t, c in coefficients.items() if t not in low}
        # What is left of the digits reaches less than `unit`, the greatest common factor of the rest.
        unit = _common(high.values(), const, divisor)
        most = sum(c * (digits[t.name] - 1) for t, c in low.items() if isinstance(t, AffineName))
        if not low or most >= unit or divisor % unit:
            return None
        whole = affine.from_terms({t: c // unit for t, c in high.items()}, const // unit)
        small = affine.from_terms(low, 0)
        if isinstance(atom, Floor):
            return affine.floor(whole, divisor // unit)
        return affine.add(affine.scale(unit, affine.mod(whole, divisor // unit)), small)

    return _rewritten(e, on_atom) if digits else e


def _common(factors: Iterable[int], const: int, divisor: int) -> int:
    return gcd(divisor, const, *factors)


# ---------------------------------------------------------------- bands


def _narrowed(system: _System) -> _System:
    """Return the system with variables that conditions keep within a band, of which each takes few values: where it lies in the band.

    p in 0..N where 2*h <= p + 1, p + 1 < 2*h + 4     ->     r in 0..4 where 0 <= 2*h + r - 1 < N, and p = 2*h + r - 1"""
    for variable in system.variables:
        if variable.name in system.in_ranges():
            continue
        # Equalities are left to who cuts sums into phases.
        band = band_of(variable, affine.conj(*(c for c in affine.conjuncts(system.where) if not (isinstance(c, Compare) and c.op == "=="))))
        if band is None or not band.is_narrow(variable, WORTH_NARROWING):
            continue
        asked = affine.within(variable.name, variable.lo, variable.hi)
        system = replace(system, where=affine.conj(system.where, asked))
        system = system.mapped(partial(affine.substitute, to={variable.name: band.at(variable.name)}))
        own = replace(variable, lo=affine.ZERO, hi=band.count)
        system = replace(system, variables=tuple(own if v is variable else v for v in system.variables))
    return system


# ---------------------------------------------------------------- what is left


def _finished(system: _System, target: Target) -> Solved | None:
    """Return what is added to an element, with nothing said that is known; None where that is nothing."""
    where = affine.conj(system.where, *(affine.compare("==", e, axis) for e, axis in system.equations))
    unsolved = [(e, axis) for e, axis in system.equations if affine.name_set(e)]
    system = system.mapped(lambda e: next((AffineName(axis) for left, axis in unsolved if affine.same(e, left)), e))
    names = tuple(v.name for v in system.variables)
    known = affine.conj(target.box, *(affine.within(v.name, v.lo, v.hi) for v in system.variables))
    scope = (*target.axes, *names)
    if where == FALSE or isinstance(is_empty(target.sizes, scope, known, where), Proven):
        return None
    of_element = [c for c in affine.conjuncts(where) if not affine.name_set(c) & {*names}]
    outside = needed(target.sizes, target.axes, target.box, of_element)  # not for what ranges tell: factors stand outside of sums
    inside = needed(target.sizes, scope, affine.conj(known, *outside), [c for c in affine.conjuncts(where) if c not in of_element])
    tests = tuple(part for test in system.tests for part in operands("and", test))
    telling = list(takewhile(lambda test: _names_element(test, target), tests))
    return Solved(
        system.value, system.variables, affine.conj(*inside), affine.conj(*outside), tests[len(telling) :], (*system.named, *telling)
    )


def _names_element(test: Expr, target: Target) -> bool:
    """Tell whether a test says that data name the element that something is added to."""
    return any(name in target.axes and name not in index_names(data) for name, data in _told_by_data(test, target))
