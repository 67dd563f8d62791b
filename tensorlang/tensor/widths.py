"""How large the numbers of index arithmetic become. Proofs are about integers; code computes with 64 bits.

    n * i <= n      with n = 2**62 is true for i = 2 in 64 bits, where n * i is no more than -2**63

So every part of an index expression is shown to stay below 2**62, half of what would still fit: the difference of two fits then, too, which
is what a comparison may become. Sizes, and numbers of elements, are no larger than `LARGEST`, which calls check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import assert_never

from polyhedral import affine
from polyhedral.expr import Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale
from polyhedral.ranges import Range, range_of

LARGEST = 2**48
"""The largest size, and the largest number of elements of a tensor: more than any memory holds."""
BOUND = 2**62
"""What every part of an index expression stays below."""

Limits = Mapping[str, int]
"""Name → the greatest absolute value that it may have."""
NOTHING: Mapping[str, Range] = MappingProxyType({})


def greatest(e: Expr, limits: Limits, ranges: Mapping[str, Range] = NOTHING) -> tuple[int, int]:
    """Return bounds on the absolute value of `e`, and on those of all its parts, in whichever order sums are added up. Where `ranges` say
    between which numbers names lie, what is clamped is no larger than its limits."""
    match e:
        case Int(value):
            return abs(value), abs(value)
        case Name(name):
            return limits[name], limits[name]
        case Add(lhs, rhs):
            (a, first), (b, second) = greatest(lhs, limits, ranges), greatest(rhs, limits, ranges)
            return a + b, max(first, second, a + b)
        case Scale(factor, value):
            a, parts = greatest(value, limits, ranges)
            return abs(factor) * a, max(parts, abs(factor) * a, abs(factor))
        case Floor(value, divisor):
            a, parts = greatest(value, limits, ranges)
            return a // divisor + 1, max(parts, a // divisor + 1, divisor)
        case Mod(value, divisor):
            _, parts = greatest(value, limits, ranges)
            return divisor - 1, max(parts, divisor)
        case Min(lhs, rhs) | Max(lhs, rhs):
            (a, first), (b, second) = greatest(lhs, limits, ranges), greatest(rhs, limits, ranges)
            low, high = range_of(e, ranges)
            clamped = max(a, b) if low is None or high is None else min(max(a, b), max(abs(low), abs(high)))
            return clamped, max(first, second)
        case _:
            assert_never(e)


def pieces(of: Expr | Cond) -> Iterator[Expr]:
    """Yield the expressions in `of`, itself included, that code may compute: terms before their sums."""
    for part in affine.parts(of):
        yield from pieces(part)
    if not isinstance(of, Compare | And | Or | Not):
        yield of


def compared(cond: Cond) -> Iterator[Expr]:
    """Yield what the comparisons in `cond` compare."""
    for part in affine.parts(cond):
        if isinstance(part, Compare | And | Or | Not):
            yield from compared(part)
        else:
            yield part


def within_bound(e: Expr) -> Cond:
    """Return the condition that `e` is between -BOUND and BOUND."""
    return affine.conj(affine.compare(">", e, -BOUND), affine.compare("<", e, BOUND))
