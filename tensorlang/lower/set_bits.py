"""What a condition of loops says of bits: which numbers lack one that it finds set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from codegen.dtypes import i64
from codegen.loops.nodes import Binary, Compare, CompareOp, Const, Expr

_NEGATED: Mapping[CompareOp, CompareOp] = {"==": "!=", "!=": "=="}


def without_set_bit(cond: Compare) -> tuple[Expr, tuple[Expr, ...]] | None:
    """Return the number in which a comparison finds a bit set, `bitand(s, shl(1, j)) != 0` or `bitand(shr(s, j), 1) == 1`, and how it is
    written without that bit; None where it finds none. Bits are those of 64."""
    match cond:
        case Compare("!=", Binary("bitand", number, Binary("shl", Const(1, dtype), _) as bit), Const(0)) if dtype == i64:
            pass
        case Compare("!=", Binary("bitand", Binary("shl", Const(1, dtype), _) as bit, number), Const(0)) if dtype == i64:
            pass
        case Compare("!=", Binary("bitand", Binary("shr", number, place), Const(1, dtype)), Const(0)) if dtype == i64:
            bit = Binary("shl", Const(1, i64), place)
        case Compare("==", Binary("bitand", Binary("shr", number, place), Const(1, dtype)), Const(1)) if dtype == i64:
            bit = Binary("shl", Const(1, i64), place)
        case _:
            return None
    return number, (Binary("-", number, bit), Binary("bitxor", number, bit), Binary("bitxor", bit, number))


def negated(cond: Compare) -> Compare:
    """Return what holds where `cond` does not, of comparisons for equality; others as they are."""
    return replace(cond, op=_NEGATED.get(cond.op, cond.op))
