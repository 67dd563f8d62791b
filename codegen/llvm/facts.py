"""What is known about the bounds of named integers, for index arithmetic as polynomials over them.

    16*jo + 32*N + 3        {("%jo",): 16, ("%N",): 32, (): 3}

An *atom* is an i64 that the emitted code holds in a register: a loop variable, a size, or the result of an operation that is not a
polynomial (a quotient, a minimum, a loaded index). Flattened addresses in this form show which part changes in which loop, what the
stride along the lanes is, and what the address is a multiple of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from codegen import polynomials
from codegen.llvm.values import Value
from codegen.polynomials import ZERO, atom_poly, number

Monomial: TypeAlias = tuple[str, ...]
Poly: TypeAlias = polynomials.Poly[str]


@dataclass(frozen=True, slots=True)
class Atom:
    """An i64 held in a register. `depth` says in which nested region it is defined; `rank` orders atoms by definition.

    lower, upper   polynomials known to bound the value (inclusive); `every` bounds hold at once, for `some` only one of them
    floor          the value is `floor[0] // floor[1]`
    lanes          0 for a uniform number, otherwise the value is a vector of so many different numbers
    narrow         of a vector, what it was widened from, of which single lanes are taken
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
    narrow: Value | None = None


class Facts:
    """What is known about the atoms of one function."""

    def __init__(self) -> None:
        self.atoms: dict[str, Atom] = {}
        self._lower: dict[tuple[Poly, int], int | None] = {}
        """What was found of polynomials, with so much budget."""

    def add(self, atom: Atom) -> Poly:
        if atom.name in self.atoms:
            self._lower.clear()
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

    def lower(self, poly: Poly, budget: int = 10) -> int | None:
        """Return a number that `poly` is never below, or None when none was found."""
        constant = poly.constant
        if constant is not None:
            return constant
        if budget == 0:
            return None
        key = poly, budget
        if key not in self._lower:
            self._lower[key] = self._lower_of_last(poly, budget)
        return self._lower[key]

    def _lower_of_last(self, poly: Poly, budget: int) -> int | None:
        """Return a bound of `poly` from what is known of the last of its atoms to be defined."""
        name = max(poly.atoms(), key=lambda a: self.atoms[a].rank)
        parts = poly.split(name)
        if parts is None:
            return None
        factor, rest = parts
        sign = self._sign(factor, budget)
        if sign == 0:
            return None
        return self._best(self._replacements(self.atoms[name], factor, sign), rest, budget)

    def _best(self, options: Iterator[tuple[Poly, ...]], rest: Poly, budget: int) -> int | None:
        """Return the best of several bounds; an option of several polynomials is as good as its worst."""
        found: list[int] = []
        for option in options:
            values = [self.lower(p + rest, budget - 1) for p in option]
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

    def _sign(self, factor: Poly, budget: int) -> int:
        constant = factor.constant
        if constant is not None:
            return (constant > 0) - (constant < 0)
        low = self.lower(factor, budget - 1)
        if low is not None and low >= 0:
            return 1
        high = self.lower(factor.scaled(-1), budget - 1)
        return -1 if high is not None and high >= 0 else 0
