"""Index expressions and conditions of the polyhedral side as those of the loop IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Literal, assert_never

from codegen.dtypes import bool_
from codegen.loops import nodes as loops
from polyhedral import expr as sets

Names = Callable[[str], loops.Index]


def to_index(e: sets.Expr, names: Names) -> loops.Index:
    """Return `e` with each name replaced by what `names` says."""
    match e:
        case sets.Int(value):
            return loops.Int(value)
        case sets.Name(name):
            return names(name)
        case sets.Add(lhs, rhs):
            return loops.Add(to_index(lhs, names), to_index(rhs, names))
        case sets.Scale(factor, value):
            return loops.Mul(to_index(value, names), loops.Int(factor))
        case sets.Floor(value, divisor):
            return loops.FloorDiv(to_index(value, names), loops.Int(divisor))
        case sets.Mod(value, divisor):
            return loops.Mod(to_index(value, names), loops.Int(divisor))
        case sets.Min(lhs, rhs):
            return loops.Min(to_index(lhs, names), to_index(rhs, names))
        case sets.Max(lhs, rhs):
            return loops.Max(to_index(lhs, names), to_index(rhs, names))
        case _:
            assert_never(e)


def to_bool(cond: sets.Cond, names: Names) -> loops.Expr:
    """Return `cond` as a value of type bool."""
    match cond:
        case sets.Compare(op, lhs, rhs):
            return loops.Compare(op, loops.IndexValue(to_index(lhs, names)), loops.IndexValue(to_index(rhs, names)))
        case sets.And(()):
            return loops.Const(True, bool_)
        case sets.Or(()):
            return loops.Const(False, bool_)
        case sets.And(conds):
            return _junction("and", [to_bool(c, names) for c in conds])
        case sets.Or(conds):
            return _junction("or", [to_bool(c, names) for c in conds])
        case sets.Not(inner):
            return loops.Unary("not", to_bool(inner, names))
        case _:
            assert_never(cond)


_NESTED = 32


def _junction(op: Literal["and", "or"], conds: Sequence[loops.Expr]) -> loops.Expr:
    """Return conditions joined, in a nest that is no deeper than the logarithm of their number where they are many."""
    if len(conds) <= _NESTED:
        return reduce(lambda a, b: loops.Binary(op, a, b), conds)
    middle = len(conds) // 2
    return loops.Binary(op, _junction(op, conds[:middle]), _junction(op, conds[middle:]))
