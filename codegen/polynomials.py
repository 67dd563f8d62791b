"""Polynomials with integer coefficients: what index arithmetic of loops (`codegen.loops.indices`) and of emitted code
(`codegen.llvm.facts`) have in common.

    16*jo + 32*N + 3        {("jo",): 16, ("N",): 32, (): 3}

What they know of atoms and conclude from it is theirs. Atoms are variables and operations that are not polynomials there, and anything that
can be told apart here. Arithmetic is that of the integers; nothing wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from math import gcd
from typing import Any, Generic, TypeVar

A = TypeVar("A", bound=Hashable)


class Poly(Generic[A]):
    """A sum of products of atoms with coefficients, none of them zero; the empty product is the constant. Immutable; equal when its terms
    are, so the atoms of a product have to be in one order."""

    __slots__ = ("_key", "_products", "terms")

    def __init__(self, terms: Mapping[tuple[A, ...], int]) -> None:
        self.terms: dict[tuple[A, ...], int] = {m: c for m, c in terms.items() if c}
        self._key: frozenset[tuple[tuple[A, ...], int]] | None = None
        self._products: frozenset[tuple[A, ...]] | None = None

    @property
    def key(self) -> frozenset[tuple[tuple[A, ...], int]]:
        if self._key is None:
            self._key = frozenset(self.terms.items())
        return self._key

    @property
    def products(self) -> frozenset[tuple[A, ...]]:
        """The products of atoms of the terms, without the empty one."""
        if self._products is None:
            self._products = frozenset(filter(None, self.terms))
        return self._products

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return " + ".join("*".join((str(c), *map(str, m))) for m, c in sorted(self.terms.items(), key=str)) or "0"

    def plus(self, other: Poly[A], factor: int = 1) -> Poly[A]:
        """Return `self + factor * other`."""
        if not other.terms or not factor:
            return self
        terms = dict(self.terms)
        for m, c in other.terms.items():
            total = terms.get(m, 0) + factor * c
            if total:
                terms[m] = total
            else:
                terms.pop(m, None)
        return _of(terms)

    def __add__(self, other: Poly[A]) -> Poly[A]:
        return self.plus(other) if self.terms else other

    def __sub__(self, other: Poly[A]) -> Poly[A]:
        return self.plus(other, -1)

    def times(self, other: Poly[A], order: Callable[[A], Any] | None = None) -> Poly[A]:
        """Return the product, the atoms of each term sorted by `order`; by default by themselves."""
        if other.constant is not None:
            return self.scaled(other.offset)
        if self.constant is not None:
            return other.scaled(self.offset)
        terms: dict[tuple[A, ...], int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                product = tuple(sorted(m + n, key=order)) if m and n else m or n  # type: ignore[type-var,arg-type]
                terms[product] = terms.get(product, 0) + c * d
        return Poly(terms)

    __mul__ = times

    def scaled(self, factor: int) -> Poly[A]:
        if factor == 1:
            return self
        return _of({m: c * factor for m, c in self.terms.items()}) if factor else ZERO

    @property
    def constant(self) -> int | None:
        """The value, when there are no atoms."""
        count = len(self.terms)
        return 0 if count == 0 else self.terms.get(()) if count == 1 else None

    @property
    def offset(self) -> int:
        """The constant term."""
        return self.terms.get((), 0)

    def atoms(self) -> set[A]:
        return {a for m in self.terms for a in m}

    def without(self, *monomials: tuple[A, ...]) -> Poly[A]:
        """Return the sum of all other terms."""
        return _of({m: c for m, c in self.terms.items() if m not in monomials})

    def split(self, atom: A) -> tuple[Poly[A], Poly[A]] | None:
        """Return (c, r) with self == c * atom + r and neither mentioning `atom`, or None when it occurs twice in a product."""
        factor: dict[tuple[A, ...], int] = {}
        rest: dict[tuple[A, ...], int] = {}
        for m, c in self.terms.items():
            if atom not in m:
                rest[m] = c
            elif m.count(atom) > 1:
                return None
            else:
                factor[tuple(a for a in m if a != atom)] = c
        return _of(factor), _of(rest)

    def divided(self, divisor: Poly[A]) -> tuple[Poly[A], Poly[A]]:
        """Return (q, r) with self == divisor * q + r, where r has the terms that `divisor`, which has to be a single one with a positive
        coefficient for anything to be divided, does not divide; the offset of r is in [0, divisor) where that is a number."""
        if len(divisor.terms) != 1:
            return ZERO, self
        [(unit, scale)] = divisor.terms.items()
        if scale <= 0:
            return ZERO, self
        quotient: dict[tuple[A, ...], int] = {}
        rest: dict[tuple[A, ...], int] = {}
        for m, c in self.terms.items():
            left = _without(m, unit)
            if left is not None and (c % scale == 0 or not m):
                quotient[left], c = c // scale, c % scale
            if c:
                rest[m] = c
        return Poly(quotient), _of(rest)

    def exactly(self, divisor: Poly[A], order: Callable[[A], Any] | None = None) -> Poly[A] | None:
        """Return q with self == divisor * q, or None where no polynomial is that. `order` is that of the atoms of products."""

        def leading(poly: Poly[A]) -> tuple[A, ...]:
            return min(poly.terms, key=lambda m: (-len(m), [order(a) if order else a for a in m]))

        if not divisor.terms:
            return None
        first, quotient, rest = leading(divisor), ZERO, self
        while rest.terms:
            most = leading(rest)
            left, factor = _without(most, first), rest.terms[most]
            if left is None or factor % divisor.terms[first]:
                return None
            part = _of({left: factor // divisor.terms[first]})
            quotient, rest = quotient + part, rest - part.times(divisor, order)
        return quotient

    def multiple_of(self) -> int:
        """Return the greatest number known to divide the value (0 for the constant 0)."""
        return gcd(*self.terms.values()) if self.terms else 0


def _without(monomial: tuple[A, ...], unit: tuple[A, ...]) -> tuple[A, ...] | None:
    """Return the product of the atoms of `monomial` without those of `unit`; None if one is missing."""
    left = list(monomial)
    for atom in unit:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _of(terms: dict[tuple[A, ...], int]) -> Poly[A]:
    """Return the polynomial of terms without zeros."""
    poly: Poly[A] = Poly.__new__(Poly)
    poly.terms, poly._key, poly._products = terms, None, None
    return poly


@lru_cache(maxsize=1024)
def number(value: int) -> Poly[Any]:
    return _of({(): value} if value else {})


def atom_poly(atom: A) -> Poly[A]:
    return _of({(atom,): 1})


ZERO: Poly[Any] = number(0)
ONE: Poly[Any] = number(1)
