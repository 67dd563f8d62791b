"""Indices and conditions of the loop IR as expressions and conditions of sets, where they are quasi-affine."""

from __future__ import annotations

from collections.abc import Callable

from codegen.loops import nodes as loops
from polyhedral import expr as sets

Other = Callable[[loops.Index], sets.Expr | None]
"""What stands for an index that is not quasi-affine."""


def _nothing(e: loops.Index) -> None:
    return None


def to_expr(e: loops.Index, other: Other = _nothing) -> sets.Expr | None:
    """Return `e` as a quasi-affine expression, or None where it is none, and `other` has nothing for what is not."""
    match e:
        case loops.Int(value):
            return sets.Int(value)
        case loops.Var(name):
            return sets.Name(name)
        case loops.Mul(loops.Int(scale), factor) | loops.Mul(factor, loops.Int(scale)):
            inner = to_expr(factor, other)
            return None if inner is None else sets.Scale(scale, inner)
        case loops.FloorDiv(value, loops.Int(divisor)) | loops.Mod(value, loops.Int(divisor)):
            inner = to_expr(value, other)
            return None if inner is None else (sets.Floor if isinstance(e, loops.FloorDiv) else sets.Mod)(inner, divisor)
        case loops.Add(lhs, rhs) | loops.Min(lhs, rhs) | loops.Max(lhs, rhs):
            left, right = to_expr(lhs, other), to_expr(rhs, other)
            if left is None or right is None:
                return None
            match e:
                case loops.Add():
                    return sets.Add(left, right)
                case loops.Min():
                    return sets.Min(left, right)
                case loops.Max():
                    return sets.Max(left, right)
        case _:
            return other(e)


def to_cond(e: loops.Expr) -> sets.Cond | None:
    """Return what `e` says about indices, or None where it is about something else too."""
    match e:
        case loops.Compare(op, loops.IndexValue(lhs), loops.IndexValue(rhs)):
            left, right = to_expr(lhs), to_expr(rhs)
            return None if left is None or right is None else sets.Compare(op, left, right)
        case loops.Compare(op, loops.IndexValue(lhs), loops.Const(value)) if isinstance(value, int):
            left = to_expr(lhs)
            return None if left is None else sets.Compare(op, left, sets.Int(value))
        case loops.Binary(("and" | "or") as op, lhs_value, rhs_value):
            one, two = to_cond(lhs_value), to_cond(rhs_value)
            if one is None or two is None:
                return None
            return sets.And((one, two)) if op == "and" else sets.Or((one, two))
        case loops.Unary("not", value):
            inner = to_cond(value)
            return None if inner is None else sets.Not(inner)
        case _:
            return None


def within(var: str, lo: loops.Index, hi: loops.Index) -> list[sets.Cond]:
    """Return what is known of the variable of a loop: up to two conditions."""
    low, high = to_expr(lo), to_expr(hi)
    out: list[sets.Cond] = []
    if low is not None:
        out.append(sets.Compare(">=", sets.Name(var), low))
    if high is not None:
        out.append(sets.Compare("<", sets.Name(var), high))
    return out
