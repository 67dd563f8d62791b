"""Index arithmetic as polynomials over named integers, with what is known about their bounds.

    16*jo + 32*N + 3        {("%jo",): 16, ("%N",): 32, (): 3}

An *atom* is an i64 that the emitted code holds in a register: a loop variable, a size, or the result of an operation that is not a
polynomial (a quotient, a minimum, a loaded index). Flattened addresses in this form show which part changes in which loop, what the
stride along the lanes is, and what the address is a multiple of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Literal

Monomial = tuple[str, ...]


class Poly:
    """An integer polynomial. Immutable; equal when its terms are."""

    __slots__ = ("_key", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {m: c for m, c in terms.items() if c}
        self._key: frozenset[tuple[Monomial, int]] | None = None

    @property
    def key(self) -> frozenset[tuple[Monomial, int]]:
        if self._key is None:
            self._key = frozenset(self.terms.items())
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return " + ".join("*".join((str(c), *m)) for m, c in sorted(self.terms.items())) or "0"

    def __add__(self, other: Poly) -> Poly:
        if not other.terms:
            return self
        if not self.terms:
            return other
        terms = dict(self.terms)
        for m, c in other.terms.items():
            terms[m] = terms.get(m, 0) + c
        return Poly(terms)

    def __sub__(self, other: Poly) -> Poly:
        if not other.terms:
            return self
        terms = dict(self.terms)
        for m, c in other.terms.items():
            terms[m] = terms.get(m, 0) - c
        return Poly(terms)

    def __mul__(self, other: Poly) -> Poly:
        if other.constant is not None:
            return self.scaled(other.offset)
        if self.constant is not None:
            return other.scaled(self.offset)
        terms: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                product = tuple(sorted(m + n)) if m and n else m or n
                terms[product] = terms.get(product, 0) + c * d
        return Poly(terms)

    def scaled(self, factor: int) -> Poly:
        if factor == 1:
            return self
        return Poly({m: c * factor for m, c in self.terms.items()})

    @property
    def constant(self) -> int | None:
        """The value, when there are no atoms."""
        count = len(self.terms)
        return 0 if count == 0 else self.terms.get(()) if count == 1 else None

    @property
    def offset(self) -> int:
        """The constant term."""
        return self.terms.get((), 0)

    def atoms(self) -> set[str]:
        return {a for m in self.terms for a in m}

    def split(self, atom: str) -> tuple[Poly, Poly] | None:
        """Return (c, r) with self == c * atom + r and neither mentioning `atom`, or None when it occurs twice in a product."""
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            if atom not in m:
                rest[m] = c
            elif m.count(atom) > 1:
                return None
            else:
                factor[tuple(a for a in m if a != atom)] = c
        return Poly(factor), Poly(rest)

    def divided(self, divisor: int) -> tuple[Poly, Poly]:
        """Return (q, r) with self == divisor * q + r: r has the terms that `divisor` does not divide, and an offset in [0, divisor)."""
        quotient: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            if not m:
                quotient[m], rest[m] = divmod(c, divisor)
            elif c % divisor == 0:
                quotient[m] = c // divisor
            else:
                rest[m] = c
        return Poly(quotient), Poly(rest)

    def multiple_of(self) -> int:
        """Return the greatest number known to divide the value (0 for the constant 0)."""
        return gcd(*self.terms.values()) if self.terms else 0


ZERO = Poly({})
ONE = Poly({(): 1})


def number(value: int) -> Poly:
    return Poly({(): value})


def atom_poly(name: str) -> Poly:
    return Poly({(name,): 1})


@dataclass(frozen=True, slots=True)
class Atom:
    """An i64 held in a register. `depth` says in which nested region it is defined; `rank` orders atoms by definition.

    lower, upper   polynomials known to bound the value (inclusive); `every` bounds hold at once, for `some` only one of them
    floor          the value is `floor[0] // floor[1]`
    lanes          0 for a uniform number, otherwise the value is a vector of so many different numbers
    """

    name: str
    depth: int
    rank: int
    lower: tuple[Poly, ...] = ()
    upper: tuple[Poly, ...] = ()
    lower_kind: Literal["every", "some"] = "every"
    upper_kind: Literal["every", "some"] = "every"
    floor: tuple[Poly, int] | None = None
    lanes: int = 0


class Facts:
    """What is known about the atoms of one function."""

    def __init__(self) -> None:
        self.atoms: dict[str, Atom] = {}

    def add(self, atom: Atom) -> Poly:
        self.atoms[atom.name] = atom
        return atom_poly(atom.name)

    def next_rank(self) -> int:
        return len(self.atoms)

    def depth(self, names: Iterable[str]) -> int:
        return max((self.atoms[n].depth for n in names), default=0)

    def at_least(self, poly: Poly, bound: int) -> bool:
        """Return whether `poly >= bound` is certain."""
        low = self.lower(poly)
        return low is not None and low >= bound

    def at_most(self, poly: Poly, bound: int) -> bool:
        """Return whether `poly <= bound` is certain."""
        return self.at_least(poly.scaled(-1), -bound)

    def lower(self, poly: Poly, fuel: int = 10) -> int | None:
        """Return a number that `poly` is never below, or None when none was found."""
        constant = poly.constant
        if constant is not None:
            return constant
        if fuel == 0:
            return None
        name = max(poly.atoms(), key=lambda a: self.atoms[a].rank)
        parts = poly.split(name)
        if parts is None:
            return None
        factor, rest = parts
        sign = self._sign(factor, fuel)
        if sign == 0:
            return None
        return self._best(self._replacements(self.atoms[name], factor, sign), rest, fuel)

    def _best(self, options: Iterator[tuple[Poly, ...]], rest: Poly, fuel: int) -> int | None:
        """Return the best of several bounds; an option of several polynomials is as good as its worst."""
        found: list[int] = []
        for option in options:
            values = [self.lower(p + rest, fuel - 1) for p in option]
            known = [v for v in values if v is not None]
            if known and len(known) == len(values):
                found.append(min(known))
        return max(found, default=None)

    def _replacements(self, atom: Atom, factor: Poly, sign: int) -> Iterator[tuple[Poly, ...]]:
        """Yield polynomials no greater than `factor * atom`."""
        number_factor = factor.constant
        if atom.floor is not None and number_factor is not None and number_factor % atom.floor[1] == 0:
            dividend, divisor = atom.floor
            slack = number(divisor - 1) if sign > 0 else ZERO
            yield ((dividend - slack).scaled(number_factor // divisor),)
        bounds, kind = (atom.lower, atom.lower_kind) if sign > 0 else (atom.upper, atom.upper_kind)
        if kind == "some":
            yield tuple(factor * b for b in bounds)
        else:
            for b in bounds:
                yield (factor * b,)

    def _sign(self, factor: Poly, fuel: int) -> int:
        constant = factor.constant
        if constant is not None:
            return (constant > 0) - (constant < 0)
        low = self.lower(factor, fuel - 1)
        if low is not None and low >= 0:
            return 1
        high = self.lower(factor.scaled(-1), fuel - 1)
        return -1 if high is not None and high >= 0 else 0
