"""Choices written with fewer instructions, each equal to what was there: what loops say in the words of their equations, in few of them.

select(c, true, d)                   c or d
select(c, d, false)                  c and d
select(c, select(d, x, y), y)        select(c and d, x, y)
x == y or (d or x > y)               x >= y or d
"""

from __future__ import annotations

from codegen.dtypes import bool_
from codegen.loops.nodes import Binary, BinaryOp, Compare, Const, Expr, Select

_TRUE, _FALSE = Const(True, bool_), Const(False, bool_)


def simplified(e: Select) -> Expr:
    """Return a choice in as few instructions as are known to do, itself where there are none better."""
    then, orelse = _part(e.then), _part(e.orelse)
    if then == _TRUE:
        return _logic("or", _part(e.cond), orelse)
    if orelse == _FALSE:
        return _logic("and", _part(e.cond), then)
    match then:
        case Select(inner, x, y) if y == orelse:
            return Select(_logic("and", _part(e.cond), _part(inner)), x, y)
        case _:
            return e


def _part(e: Expr) -> Expr:
    return simplified(e) if isinstance(e, Select) else e


def _logic(op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
    """Return an `and`, or an `or`, of which comparisons of the same two values are one."""
    match lhs, rhs:
        case Compare("==", x, y), Compare("<" | ">" as order, a, b) if op == "or" and (x, y) == (a, b):
            return Compare("<=" if order == "<" else ">=", x, y)
        case Compare("=="), Binary("or", first, Compare("<" | ">") as last) if op == "or":
            joined = _logic("or", lhs, last)
            return Binary("or", joined, first) if isinstance(joined, Compare) else Binary("or", lhs, rhs)
        case _:
            return Binary(op, lhs, rhs)
