"""Values of expressions and conditions at a point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from polyhedral.expr import Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale


def evaluate(expr: Expr, at: Mapping[str, int]) -> int:
    match expr:
        case Int(value):
            return value
        case Name(name):
            return at[name]
        case Add(lhs, rhs):
            return evaluate(lhs, at) + evaluate(rhs, at)
        case Scale(factor, value):
            return factor * evaluate(value, at)
        case Floor(value, divisor):
            return evaluate(value, at) // divisor
        case Mod(value, divisor):
            return evaluate(value, at) % divisor
        case Min(lhs, rhs):
            return min(evaluate(lhs, at), evaluate(rhs, at))
        case Max(lhs, rhs):
            return max(evaluate(lhs, at), evaluate(rhs, at))
        case _:
            assert_never(expr)


def holds(cond: Cond, at: Mapping[str, int]) -> bool:
    match cond:
        case Compare(op, lhs, rhs):
            return _compare(op, evaluate(lhs, at), evaluate(rhs, at))
        case And(conds):
            return all(holds(c, at) for c in conds)
        case Or(conds):
            return any(holds(c, at) for c in conds)
        case Not(inner):
            return not holds(inner, at)
        case _:
            assert_never(cond)


def _compare(op: str, lhs: int, rhs: int) -> bool:
    match op:
        case "<":
            return lhs < rhs
        case "<=":
            return lhs <= rhs
        case "==":
            return lhs == rhs
        case "!=":
            return lhs != rhs
        case ">=":
            return lhs >= rhs
        case _:
            return lhs > rhs
