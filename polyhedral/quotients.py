"""Quotients of parameters as parameters of their own, so that what is known of them survives every projection.

    before    context  [n] : n >= 1                                      domain  [n] -> [o, i] : 4*o + i < 8*((n + 15) // 16) ...
    after     context  [n, q] : n >= 1 and 16*q <= n + 15 < 16*q + 16    domain  [n, q] -> [o, i] : 4*o + i < 8*q ...

In a set a quotient is one more unknown, and bounds of loops are taken of constraints without unknowns: before, the outer loop would go
beyond `o < 2*((n + 15) // 16)` and its body ask a condition. A parameter is no unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

import islpy as isl

from polyhedral import affine
from polyhedral.expr import Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale
from polyhedral.space import DT, Frame, cond_of
from polyhedral.text import show


@dataclass(frozen=True, slots=True)
class Named:
    """Sets whose last parameters are quotients of the others; `meaning` says of what."""

    params: tuple[str, ...]
    context: isl.Set
    domains: dict[str, isl.Set]
    meaning: dict[str, Expr]


def name_quotients(domains: Mapping[str, tuple[tuple[str, ...], isl.Set]], params: tuple[str, ...], context: isl.Set) -> Named:
    """Return `domains`, each given with the names of its dimensions, and `context`, which has none, over a parameter more for each quotient
    of `params` in a domain. A name is the quotient as text, which is no name of anything else."""
    quotients = _Quotients(params)
    conds = {key: quotients.of_cond(cond_of(points, Frame(params, dims))) for key, (dims, points) in domains.items() if _has_divs(points)}
    if not quotients.values:
        return Named(params, context, {key: points for key, (_, points) in domains.items()}, {})
    named = (*params, *quotients.values)
    known = Frame(named, ()).set(quotients.definitions()).params()

    def over(points: isl.Set) -> isl.Set:
        return points.align_params(known.get_space()).intersect_params(known)

    sets = {key: over(Frame(named, dims).set(conds[key]) if key in conds else points) for key, (dims, points) in domains.items()}
    return Named(named, over(context), sets, quotients.meaning())


def _has_divs(points: isl.Set) -> bool:
    return any(basic.dim(DT.div) > 0 for basic in points.get_basic_sets())


class _Quotients:
    """Names for quotients of `params`, in the order in which they are met; a value may have earlier names in it."""

    def __init__(self, params: tuple[str, ...]) -> None:
        self.params = frozenset(params)
        self.values: dict[str, Floor] = {}

    def meaning(self) -> dict[str, Expr]:
        """Return the quotient of parameters that each name stands for."""
        result: dict[str, Expr] = {}
        for name, value in self.values.items():
            result[name] = affine.substitute(value, result)
        return result

    def definitions(self) -> Cond:
        """Return the condition that every name has its value: `d*q <= x < d*q + d` where it is `x // d`."""
        return affine.conj(
            *(affine.within(affine.sub(v.value, affine.scale(v.divisor, name)), 0, v.divisor) for name, v in self.values.items())
        )

    def of_cond(self, cond: Cond) -> Cond:
        match cond:
            case Compare(op, lhs, rhs):
                return Compare(op, self.of_expr(lhs), self.of_expr(rhs))
            case And(conds) | Or(conds):
                return type(cond)(tuple(map(self.of_cond, conds)))
            case Not(inner):
                return Not(self.of_cond(inner))
            case _:
                assert_never(cond)

    def of_expr(self, e: Expr) -> Expr:
        match e:
            case Int() | Name():
                return e
            case Add(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs):
                return type(e)(self.of_expr(lhs), self.of_expr(rhs))
            case Scale(factor, value):
                return Scale(factor, self.of_expr(value))
            case Floor(value, divisor):
                return self._quotient(e, Floor(self.of_expr(value), divisor))
            case Mod(value, divisor):
                return Add(self.of_expr(value), Scale(-divisor, self.of_expr(Floor(value, divisor))))
            case _:
                assert_never(e)

    def _quotient(self, written: Floor, named: Floor) -> Expr:
        if (known := affine.constant(written)) is not None:
            return Int(known)
        if not affine.name_set(written) <= self.params:
            return named
        name = show(written)
        self.values.setdefault(name, named)
        return Name(name)
