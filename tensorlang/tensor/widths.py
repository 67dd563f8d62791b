"""How large the numbers of index arithmetic become. Proofs are about integers; code computes with 64 bits.

    n * i <= n      with n = 2**62 is true for i = 2 in 64 bits, where n * i is no more than -2**63

So every part of an index expression is shown to stay below 2**62, half of what would still fit: the difference of two fits then, too, which
is what a comparison may become. Sizes, and numbers of elements, are no larger than `LARGEST`, which calls check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from polyhedral.expr import Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale
from tensorlang.tensor import affine

LARGEST = 2**48
"""The largest size, and the largest number of elements of a tensor: more than any memory holds."""
BOUND = 2**62
"""What every part of an index expression stays below."""

Limits = Mapping[str, int]
"""Name → the greatest absolute value that it may have."""


def greatest(e: Expr, limits: Limits) -> tuple[int, int]:
    """Return bounds on the absolute value of `e`, and on those of all its parts, in whichever order sums are added up."""
    match e:
        case Int(value):
            return abs(value), abs(value)
        case Name(name):
            return limits[name], limits[name]
        case Add(lhs, rhs):
            (a, first), (b, second) = greatest(lhs, limits), greatest(rhs, limits)
            return a + b, max(first, second, a + b)
        case Scale(factor, value):
            a, parts = greatest(value, limits)
            return abs(factor) * a, max(parts, abs(factor) * a, abs(factor))
        case Floor(value, divisor):
            a, parts = greatest(value, limits)
            return a // divisor + 1, max(parts, a // divisor + 1, divisor)
        case Mod(value, divisor):
            _, parts = greatest(value, limits)
            return divisor - 1, max(parts, divisor)
        case Min(lhs, rhs) | Max(lhs, rhs):
            (a, first), (b, second) = greatest(lhs, limits), greatest(rhs, limits)
            return max(a, b), max(first, second)
        case _:
            assert_never(e)


def pieces(e: Expr) -> Iterator[Expr]:
    """Yield the parts of `e`, and `e`, that code may compute: terms before their sums."""
    match e:
        case Int() | Name():
            pass
        case Add(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs):
            yield from pieces(lhs)
            yield from pieces(rhs)
        case Scale(_, value) | Floor(value, _) | Mod(value, _):
            yield from pieces(value)
        case _:
            assert_never(e)
    yield e


def sides(cond: Cond) -> Iterator[Expr]:
    """Yield what the comparisons in `cond` compare."""
    match cond:
        case Compare(_, lhs, rhs):
            yield lhs
            yield rhs
        case And(conds) | Or(conds):
            for inner in conds:
                yield from sides(inner)
        case Not(inner):
            yield from sides(inner)
        case _:
            assert_never(cond)


def stays_narrow(e: Expr) -> Cond:
    """Return the condition that `e` is between -BOUND and BOUND."""
    return affine.conj(affine.compare(">", e, -BOUND), affine.compare("<", e, BOUND))
