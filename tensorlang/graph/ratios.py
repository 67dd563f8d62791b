"""Floats that shape arithmetic computes of open sizes, as exporters write `ceil(height / 14)`: which number each was rounded from.

    Ratio      number = numerator / divisor, of a size and a positive integer, no further than `off` sevenths of 1/divisor from the float

A number whose divisor is a power of two is a float itself, as numerators are kept small (`_most`), and so are the numbers that it is made
of by what is computed here: all of them, or one alone may be none, and then it is scaled by powers of two, divided, or added to. So where
a number is a whole one the float is that number. Any other lies 1/divisor from a whole one at least, further than the float from it, and
to round the float down or up is to round the number. What has no such proof is `Inexact`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, isfinite, lcm
from typing import Any

from tensorlang.graph.sizes import Extent, OpenSize, Size, sample_of

OFF = 7
"""Floats differ from their numbers by less than so many sevenths of 1/divisor."""


class Inexact(Exception):
    """What a float is rounded to is not known for all sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class Ratio:
    """`digits`: those of a float of its type in binary."""

    numerator: Extent
    divisor: int
    digits: int
    off: int = 0

    @property
    def is_exact(self) -> bool:
        return _is_power(self.divisor)

    def __neg__(self) -> Ratio:
        return replace(self, numerator=-self.numerator)

    def __add__(self, other: Ratio) -> Ratio:
        if not (self.is_exact or other.is_exact):
            raise Inexact
        divisor = lcm(self.divisor, other.divisor)
        a, b = divisor // self.divisor, divisor // other.divisor
        return _rounded(self.numerator * a + other.numerator * b, divisor, self.digits, self.off * a + other.off * b + 1)

    def __sub__(self, other: Ratio) -> Ratio:
        return self + -other

    def __mul__(self, other: Ratio) -> Ratio:
        if not other.is_exact:
            return other * self if self.is_exact else _fail()
        if not self.is_exact and not (isinstance(other.numerator, int) and _is_power(other.numerator)):
            raise Inexact
        off = 0 if self.is_exact else self.off * int(other.numerator)
        return _rounded(self.numerator * other.numerator, self.divisor * other.divisor, self.digits, off)

    def __truediv__(self, other: Ratio) -> Ratio:
        by = other.numerator
        if not isinstance(by, int) or by == 0 or not other.is_exact:
            raise Inexact
        sign = 1 if by > 0 else -1
        off = self.off * other.divisor + 1
        return _rounded(self.numerator * (sign * other.divisor), self.divisor * abs(by), self.digits, off)

    def floor(self) -> Ratio:
        return self._of(self.numerator // self.divisor)

    def ceil(self) -> Ratio:
        return self._of((self.numerator + (self.divisor - 1)) // self.divisor)

    def trunc(self) -> Ratio:
        return self.floor() if self.numerator >= 0 else self.ceil()

    def _of(self, whole: Extent) -> Ratio:
        return Ratio(whole, 1, self.digits)

    def cast(self, digits: int) -> Ratio:
        """Return the same as a float of another type."""
        return _rounded(self.numerator, self.divisor, digits, self.off + (digits < self.digits))

    @property
    def whole(self) -> Extent:
        """The integer that it is. Raises Inexact where it is none."""
        return self.numerator if self.divisor == 1 else _fail()

    @property
    def number(self) -> float:
        """The float that it is for all sizes. Raises Inexact where there is none."""
        if not isinstance(self.numerator, int) or not self.is_exact:
            raise Inexact
        return self.numerator / self.divisor

    def __lt__(self, other: Ratio) -> bool:
        return bool((self - other).numerator < 0)

    def __le__(self, other: Ratio) -> bool:
        return bool((self - other).numerator <= 0)

    def __gt__(self, other: Ratio) -> bool:
        return bool((self - other).numerator > 0)

    def __ge__(self, other: Ratio) -> bool:
        return bool((self - other).numerator >= 0)

    def __eq__(self, other: object) -> bool:
        return bool((self - other).numerator == 0) if isinstance(other, Ratio) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return bool((self - other).numerator != 0) if isinstance(other, Ratio) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __float__(self) -> float:
        if isinstance(self.numerator, Size):
            raise OpenSize(self.numerator)
        return self.number

    def __index__(self) -> int:
        raise OpenSize(*([self.numerator] if isinstance(self.numerator, Size) else []), why="a float of sizes is no integer")


def ratio(n: Any, digits: int) -> Ratio:
    """Return an integer, a size or a float of so many digits as a float. Raises Inexact where it is not known."""
    if isinstance(n, (int, Size)):
        return _rounded(n, 1, digits, 0)
    if not isfinite(n):
        raise Inexact
    return Ratio(*float(n).as_integer_ratio(), digits)


def _rounded(numerator: Extent, divisor: int, digits: int, off: int) -> Ratio:
    common = gcd(_multiple_of(numerator), divisor)
    if common > 1:
        numerator, divisor, off = numerator // common, divisor // common, -(-off // common)
    off = 0 if _is_power(divisor) else off
    most = _most(digits)
    if off >= OFF or abs(sample_of(numerator)) > most or not -most <= numerator <= most:
        raise Inexact
    return Ratio(numerator, divisor, digits, off)


def _most(digits: int) -> int:
    """Return how large numerators are at most: to round adds a seventh of 1/divisor at most."""
    return int(2 ** (digits - 3))


def _multiple_of(n: Extent) -> int:
    return n.formula.multiple_of() if isinstance(n, Size) else n


def _is_power(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def _fail() -> Any:
    raise Inexact
