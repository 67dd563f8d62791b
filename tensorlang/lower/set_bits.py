"""What a condition of loops says of bits: which it finds set in a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from codegen.dtypes import i64
from codegen.loops.nodes import Binary, Compare, CompareOp, Const, Expr

_NEGATED: Mapping[CompareOp, CompareOp] = {"==": "!=", "!=": "=="}


def set_bit(cond: Compare) -> tuple[Expr, Expr] | None:
    """Return a number and a bit that a comparison finds set in it, `bitand(s, shl(1, j)) != 0` or `bitand(shr(s, j), 1) == 1`; None where
    it finds none. Bits are those of 64."""
    match cond:
        case Compare("!=", Binary("bitand", lhs, rhs), Const(0, dtype)) | Compare(
            "==", Binary("bitand", lhs, Const(1) as rhs), Const(1, dtype)
        ):
            found = (_found(number, mask) for number, mask in ((lhs, rhs), (rhs, lhs))) if dtype == i64 else ()
            return next((of for of in found if of is not None), None)
        case _:
            return None


def _found(number: Expr, mask: Expr) -> tuple[Expr, Expr] | None:
    """Return the number in which a bit is set where it has one of a mask, and the bit; None where several may be."""
    match number, mask:
        case Binary("shr", shifted, place), Const(1):
            return shifted, _bit(place)
        case _, Const(int(value)) if value > 0 and value.bit_count() == 1:
            return number, mask
        case _, Binary("shl", Const(1), _):
            return number, mask
        case _:
            return None


def without_bit(number: Expr, bit: Expr) -> tuple[Expr, ...]:
    """Return how a number in which a bit is set is written without it."""
    return Binary("-", number, bit), Binary("bitxor", number, bit), Binary("bitxor", bit, number)


def _bit(place: Expr) -> Expr:
    match place:
        case Const(int(k)) if 0 <= k < i64.bits - 1:
            return Const(1 << k, i64)
        case _:
            return Binary("shl", Const(1, i64), place)


def negated(cond: Compare) -> Compare:
    """Return what holds where `cond` does not, of comparisons for equality; others as they are."""
    return replace(cond, op=_NEGATED.get(cond.op, cond.op))
