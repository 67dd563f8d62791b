"""Sums and products of reals in a normal form: two expressions that are equal by the laws below look the same.

    a*(b + c) = a*b + a*c        exp(a) * exp(b) = exp(a + b)        exp(0) = 1         a * (1/a) = 1
    sum(j) a*f(j) = a * sum(j) f(j)      sum(j) (f(j) + g(j)) = sum(j) f(j) + sum(j) g(j)       a sum over parts is that of their sums
    max(a, max(b, c)) = max(a, b, c)     max(a, a) = a                                          and so are maxima

    real   ::= { term: rational }                     their sum
    term   ::= { atom: power } · exp(real)            their product
    atom   ::= a name, perhaps of a key | the largest of reals | a sum over a set of keys

A name of a key is a function of the key that a sum runs over. Denominators are single terms. What has no normal form here raises
`Unproven`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias


class Unproven(Exception):
    """Something is outside of what the normal form knows."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A number; `keyed`: one for each key."""

    name: str
    keyed: bool = False


@dataclass(frozen=True, slots=True)
class Largest:
    of: frozenset[Real]


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of `body` over the keys of a set."""

    over: str
    body: Real


Atom: TypeAlias = Symbol | Largest | Total


@dataclass(frozen=True, slots=True)
class Term:
    factors: frozenset[tuple[Atom, int]] = frozenset()
    exponent: frozenset[tuple[Term, Fraction]] = frozenset()


Real: TypeAlias = frozenset[tuple[Term, Fraction]]

UNIT = Term()
ZERO: Real = frozenset()
ONE: Real = frozenset({(UNIT, Fraction(1))})


def number(value: float) -> Real:
    return frozenset({(UNIT, Fraction(value))}) if value else ZERO


def atom(of: Atom) -> Real:
    return frozenset({(Term(frozenset({(of, 1)})), Fraction(1))})


def add(*reals: Real) -> Real:
    out: dict[Term, Fraction] = {}
    for real in reals:
        for term, factor in real:
            out[term] = out.get(term, Fraction(0)) + factor
    return frozenset((t, f) for t, f in out.items() if f)


def times(*reals: Real) -> Real:
    out = ONE
    for real in reals:
        out = add(*(frozenset({(_product(a, b), f * g)}) for a, f in out for b, g in real))
    return out


def minus(a: Real, b: Real) -> Real:
    return add(a, times(number(-1), b))


def inverse(a: Real) -> Real:
    """Return 1/a, of a single term."""
    if len(a) != 1:
        raise Unproven("a quotient by a sum of several terms")
    [(term, factor)] = a
    turned = Term(frozenset((x, -n) for x, n in term.factors), frozenset((t, -f) for t, f in term.exponent))
    return frozenset({(turned, 1 / factor)})


def exp(a: Real) -> Real:
    return frozenset({(Term(frozenset(), a), Fraction(1))})


def largest(*reals: Real) -> Real:
    found: set[Real] = set()
    for real in reals:
        match atom_of(real):
            case Largest(of):
                found |= of
            case _:
                found.add(real)
    return next(iter(found)) if len(found) == 1 else atom(Largest(frozenset(found)))


def total(over: Iterable[str], body: Real) -> Real:
    """Return the sum of `body` over the keys of several sets that share none."""
    return add(*(_summed(name, term, factor) for name in over for term, factor in body))


def replaced(real: Real, old: Atom, new: Real) -> Real:
    """Return `real` with `new` for `old`."""
    return add(*(times(frozenset({(UNIT, factor)}), _replaced(term, old, new)) for term, factor in real))


def _replaced(term: Term, old: Atom, new: Real) -> Real:
    parts = [exp(replaced(term.exponent, old, new))] if term.exponent else []
    for found, power in term.factors:
        one = new if found == old else atom(found)
        parts += [one] * power if power > 0 else [inverse(one)] * -power
    return times(*parts)


def atom_of(real: Real) -> Atom | None:
    """Return the atom that `real` is, or None where it is no single one."""
    if len(real) != 1:
        return None
    [(term, factor)] = real
    alone = factor == 1 and not term.exponent and [n for _, n in term.factors] == [1]
    return next(iter(term.factors))[0] if alone else None


def _product(a: Term, b: Term) -> Term:
    powers: dict[Atom, int] = {}
    for found, n in (*a.factors, *b.factors):
        powers[found] = powers.get(found, 0) + n
    return Term(frozenset((x, n) for x, n in powers.items() if n), add(a.exponent, b.exponent))


def _summed(over: str, term: Term, factor: Fraction) -> Real:
    """Return the sum of a term, what no key has outside of it."""
    inside = frozenset((x, n) for x, n in term.factors if _keyed(x))
    within = frozenset((t, f) for t, f in term.exponent if any(_keyed(x) for x, _ in t.factors) or t.exponent)
    outside = Term(term.factors - inside, term.exponent - within)
    summed = atom(Total(over, frozenset({(Term(inside, within), Fraction(1))})))
    return times(frozenset({(outside, factor)}), summed)


def _keyed(of: Atom) -> bool:
    match of:
        case Symbol(_, keyed):
            return keyed
        case Largest(reals):
            return any(_keyed(x) for real in reals for term, _ in real for x, _ in term.factors)
        case Total():
            return False
