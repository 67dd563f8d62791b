"""Expressions and conditions as text for people.

8*io + ii    (i + 7) // 8    i % 4    min(8, N - 8*io)    i < N and j != 0
"""

from __future__ import annotations

from typing import assert_never

from polyhedral.expr import Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale


def show_expr(expr: Expr) -> str:
    match expr:
        case Int(value):
            return str(value)
        case Name(name):
            return name
        case Add(lhs, Int(value)) if value < 0:
            return f"{show_expr(lhs)} - {-value}"
        case Add(lhs, Scale(factor, value)) if factor < 0:
            return f"{show_expr(lhs)} - {_scaled(-factor, value)}"
        case Add(lhs, rhs):
            return f"{show_expr(lhs)} + {show_expr(rhs)}"
        case Scale(factor, value):
            return _scaled(factor, value) if factor >= 0 else f"-{_scaled(-factor, value)}"
        case Floor(value, divisor):
            return f"{_operand(value)} // {divisor}"
        case Mod(value, divisor):
            return f"{_operand(value)} % {divisor}"
        case Min():
            return f"min({', '.join(show_expr(v) for v in _operands(expr, Min))})"
        case Max():
            return f"max({', '.join(show_expr(v) for v in _operands(expr, Max))})"
        case _:
            assert_never(expr)


def _operands(expr: Expr, node: type[Min] | type[Max]) -> list[Expr]:
    if isinstance(expr, Min | Max) and isinstance(expr, node):
        return _operands(expr.lhs, node) + _operands(expr.rhs, node)
    return [expr]


def _scaled(factor: int, value: Expr) -> str:
    return _operand(value) if factor == 1 else f"{factor}*{_operand(value)}"


def _operand(value: Expr) -> str:
    match value:
        case Name() | Min() | Max():
            return show_expr(value)
        case Int(number) if number >= 0:
            return show_expr(value)
        case _:
            return f"({show_expr(value)})"


def show_cond(cond: Cond) -> str:
    match cond:
        case Compare(op, lhs, rhs):
            return f"{show_expr(lhs)} {op} {show_expr(rhs)}"
        case And(()):
            return "true"
        case Or(()):
            return "false"
        case And(conds):
            return " and ".join(_clause(c) for c in conds)
        case Or(conds):
            return " or ".join(_clause(c) for c in conds)
        case Not(inner):
            return f"not ({show_cond(inner)})"
        case _:
            assert_never(cond)


def _clause(cond: Cond) -> str:
    return show_cond(cond) if isinstance(cond, Compare | Not) else f"({show_cond(cond)})"
