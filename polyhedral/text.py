"""Expressions and conditions as text for people: sums begin with what is added.

8*io + ii    (i + 7) // 8    i % 4    min(8, N - 8*io)    i < N and j != 0

The largest factor stands first, as in loops; in the language (`tensorlang.tensor.notation`) names are quoted and in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from polyhedral.affine import operands, terms
from polyhedral.expr import Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale


@dataclass(frozen=True, slots=True)
class Notation:
    """How a name is written, and whether sums begin with the largest factor rather than with the first name."""

    name: Callable[[str], str] = str
    largest_first: bool = True


PLAIN = Notation()


def show(e: Expr, notation: Notation = PLAIN) -> str:
    """Return `e` as text: `2*p + r - 1`, `i // 2`, `min(a, b)`."""
    match e:
        case Int(value):
            return str(value)
        case Name(name):
            return notation.name(name)
        case Add() | Scale():
            return _sum(e, notation)
        case Floor(value, divisor):
            return f"{_factor(value, notation)} // {divisor}"
        case Mod(value, divisor):
            return f"{_factor(value, notation)} % {divisor}"
        case Min():
            return f"min({', '.join(show(o, notation) for o in operands(e, Min))})"
        case Max():
            return f"max({', '.join(show(o, notation) for o in operands(e, Max))})"
        case _:
            assert_never(e)


def _sum(e: Expr, notation: Notation) -> str:
    coefficients, const = terms(e)
    text = ""
    order = (lambda k: (k < 0, -abs(k))) if notation.largest_first else (lambda k: (k < 0, 0))
    for atom, k in sorted(coefficients.items(), key=lambda item: order(item[1])):
        body = (show(atom, notation) if k == 1 else _factor(atom, notation)) if abs(k) == 1 else f"{abs(k)}*{_factor(atom, notation)}"
        text += (" + " if k > 0 else " - ") + body if text else body if k > 0 else f"-{body}"
    if not text:
        return str(const)
    return text + (f" + {const}" if const > 0 else f" - {-const}" if const < 0 else "")


def _factor(e: Expr, notation: Notation) -> str:
    match e:
        case Name() | Min() | Max():
            return show(e, notation)
        case Int(value) if value >= 0:
            return str(value)
        case _:
            return f"({show(e, notation)})"


def show_cond(cond: Cond, notation: Notation = PLAIN) -> str:
    """Return `cond` as text; conjunctions as `a and b`."""
    match cond:
        case Compare(op, lhs, rhs):
            return f"{show(lhs, notation)} {op} {show(rhs, notation)}"
        case And(()):
            return "true"
        case Or(()):
            return "false"
        case And(conds):
            return " and ".join(_junct(c, Or, notation) for c in conds)
        case Or(conds):
            return " or ".join(_junct(c, And, notation) for c in conds)
        case Not(inner):
            return f"not ({show_cond(inner, notation)})"
        case _:
            assert_never(cond)


def _junct(cond: Cond, other: type[And] | type[Or], notation: Notation) -> str:
    return f"({show_cond(cond, notation)})" if isinstance(cond, other) and cond.conds else show_cond(cond, notation)
