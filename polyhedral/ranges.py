"""Between which numbers index expressions lie.

range_of(i // 4 + 3, {"i": (0, 15)})    (3, 6)        range_of(i % 4, {"i": (9, 10)})    (1, 2)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, assert_never

from polyhedral.expr import Add, Expr, Floor, Int, Max, Min, Mod, Name, Scale

Range: TypeAlias = tuple[int | None, int | None]
"""Inclusive; None is unbounded."""


def range_of(e: Expr, ranges: Mapping[str, Range]) -> Range:
    """Return numbers that `e` lies between wherever its names lie within `ranges`; a name that is missing there may be anything."""
    match e:
        case Int(value):
            return value, value
        case Name(name):
            return ranges.get(name, (None, None))
        case Add(lhs, rhs):
            (a, b), (c, d) = range_of(lhs, ranges), range_of(rhs, ranges)
            return None if a is None or c is None else a + c, None if b is None or d is None else b + d
        case Scale(factor, value):
            low, high = range_of(value, ranges)
            ends = [None if end is None else end * factor for end in (low, high)]
            return (ends[0], ends[1]) if factor >= 0 else (ends[1], ends[0])
        case Floor(value, divisor):
            low, high = range_of(value, ranges)
            return None if low is None else low // divisor, None if high is None else high // divisor
        case Mod(value, divisor):
            low, high = range_of(value, ranges)
            known = low is not None and high is not None and low // divisor == high // divisor
            return (low % divisor, high % divisor) if known else (0, divisor - 1)  # type: ignore[operator]
        case Min(lhs, rhs):
            (a, b), (c, d) = range_of(lhs, ranges), range_of(rhs, ranges)
            return None if a is None or c is None else min(a, c), min((x for x in (b, d) if x is not None), default=None)
        case Max(lhs, rhs):
            (a, b), (c, d) = range_of(lhs, ranges), range_of(rhs, ranges)
            return max((x for x in (a, c) if x is not None), default=None), None if b is None or d is None else max(b, d)
        case _:
            assert_never(e)
