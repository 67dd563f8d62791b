"""Arithmetic on expressions and conditions themselves: sums are kept as terms and a constant, so equal sums look alike.

plus(8*io, minus(ii, io))      7*io + ii
floor_div(8*io + 7, 8)         io
from_linear(x - 4*(x // 4))    x % 4
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import assert_never

from polyhedral.expr import Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale


@dataclass(frozen=True, slots=True)
class Linear:
    """`constant + Σ factor * term`, where a term is a name, a floor division, or a minimum or maximum."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int


@lru_cache(maxsize=1 << 16)
def linear(expr: Expr) -> Linear:
    """Return `expr` as a sum of terms in order of first appearance; zero factors are dropped."""
    terms: dict[Expr, int] = {}
    constant = _collect(expr, 1, terms)
    return Linear(tuple((t, f) for t, f in terms.items() if f), constant)


def _collect(expr: Expr, factor: int, terms: dict[Expr, int]) -> int:
    match expr:
        case Int(value):
            return factor * value
        case Add(lhs, rhs):
            return _collect(lhs, factor, terms) + _collect(rhs, factor, terms)
        case Scale(by, value):
            return _collect(value, factor * by, terms)
        case Mod(value, divisor):
            constant = _collect(value, factor, terms)
            return constant + _collect(Floor(value, divisor), -factor * divisor, terms)
        case Floor(value, 1):
            return _collect(value, factor, terms)
        case Name() | Floor() | Min() | Max():
            terms[expr] = terms.get(expr, 0) + factor
            return 0
        case _:
            assert_never(expr)


def names_in(node: Expr | Cond) -> frozenset[str]:
    """Return the names that `node` mentions."""
    match node:
        case Int():
            return frozenset()
        case Name(name):
            return frozenset((name,))
        case Add(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs) | Compare(_, lhs, rhs):
            return names_in(lhs) | names_in(rhs)
        case Scale(_, value) | Floor(value, _) | Mod(value, _):
            return names_in(value)
        case And(conds) | Or(conds):
            return frozenset().union(*(names_in(c) for c in conds))
        case Not(cond):
            return names_in(cond)
        case _:
            assert_never(node)


def substitute(expr: Expr, by: Mapping[str, Expr]) -> Expr:
    """Return `expr` with names replaced at once, kept in sum form."""
    match expr:
        case Int():
            return expr
        case Name(name):
            return by.get(name, expr)
        case Add(lhs, rhs):
            return plus(substitute(lhs, by), substitute(rhs, by))
        case Scale(factor, value):
            return times(factor, substitute(value, by))
        case Floor(value, divisor):
            return floor_div(substitute(value, by), divisor)
        case Mod(value, divisor):
            return modulo(substitute(value, by), divisor)
        case Min(lhs, rhs):
            return minimum((substitute(lhs, by), substitute(rhs, by)))
        case Max(lhs, rhs):
            return maximum((substitute(lhs, by), substitute(rhs, by)))
        case _:
            assert_never(expr)


def substitute_cond(cond: Cond, by: Mapping[str, Expr]) -> Cond:
    match cond:
        case Compare(op, lhs, rhs):
            return Compare(op, substitute(lhs, by), substitute(rhs, by))
        case And(conds):
            return And(tuple(substitute_cond(c, by) for c in conds))
        case Or(conds):
            return Or(tuple(substitute_cond(c, by) for c in conds))
        case Not(inner):
            return Not(substitute_cond(inner, by))
        case _:
            assert_never(cond)


@lru_cache(maxsize=1 << 14)
def has_extremum(expr: Expr) -> bool:
    match expr:
        case Min() | Max():
            return True
        case Add(lhs, rhs):
            return has_extremum(lhs) or has_extremum(rhs)
        case Scale(_, value) | Floor(value, _) | Mod(value, _):
            return has_extremum(value)
        case Int() | Name():
            return False
        case _:
            assert_never(expr)


_OPPOSITE = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}


def negated(cond: Cond) -> Cond:
    """Return the condition that holds where `cond` does not, with negation pushed into the comparisons."""
    match cond:
        case Compare(op, lhs, rhs):
            return Compare(_OPPOSITE[op], lhs, rhs)  # type: ignore[arg-type]
        case And(conds):
            return Or(tuple(negated(c) for c in conds))
        case Or(conds):
            return And(tuple(negated(c) for c in conds))
        case Not(inner):
            return inner
        case _:
            assert_never(cond)


def all_of(*conds: Cond) -> Cond:
    """Return the conjunction, flattened."""
    flat: list[Cond] = []
    for cond in conds:
        flat.extend(cond.conds if isinstance(cond, And) else (cond,))
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def plus(lhs: Expr, rhs: Expr) -> Expr:
    return from_linear(*_sum(lhs, rhs, 1))


def minus(lhs: Expr, rhs: Expr) -> Expr:
    return from_linear(*_sum(lhs, rhs, -1))


def _sum(lhs: Expr, rhs: Expr, sign: int) -> tuple[dict[Expr, int], int]:
    terms: dict[Expr, int] = {}
    constant = _collect(lhs, 1, terms) + _collect(rhs, sign, terms)
    return terms, constant


def times(factor: int, value: Expr) -> Expr:
    terms: dict[Expr, int] = {}
    constant = _collect(value, factor, terms)
    return from_linear(terms, constant)


def floor_div(value: Expr, divisor: int) -> Expr:
    """Return `value // divisor` with whole multiples taken out."""
    if divisor == 1:
        return from_linear(dict(linear(value).terms), linear(value).constant)
    form = linear(value)
    whole = {t: f // divisor for t, f in form.terms if f % divisor == 0}
    rest = {t: f for t, f in form.terms if f % divisor}
    quotient, remainder = divmod(form.constant, divisor)
    if not rest:
        return from_linear(whole, quotient)
    common = gcd(divisor, *rest.values())
    if common > 1:
        rest, remainder, divisor = {t: f // common for t, f in rest.items()}, remainder // common, divisor // common
        if divisor == 1:
            return plus(from_linear(whole, quotient), from_linear(rest, remainder))
    term = Floor(from_linear(rest, remainder), divisor)
    whole[term] = whole.get(term, 0) + 1
    return from_linear(whole, quotient)


def modulo(value: Expr, divisor: int) -> Expr:
    if isinstance(value, Int):
        return Int(value.value % divisor)
    return Mod(value, divisor)


def minimum(values: Sequence[Expr]) -> Expr:
    return _fold(Min, values)


def maximum(values: Sequence[Expr]) -> Expr:
    return _fold(Max, values)


def _fold(node: Callable[[Expr, Expr], Expr], values: Sequence[Expr]) -> Expr:
    constants = [v.value for v in values if isinstance(v, Int)]
    others: list[Expr] = list(dict.fromkeys(v for v in values if not isinstance(v, Int)))
    if constants:
        others.append(Int(min(constants) if node is Min else max(constants)))
    result = others[0]
    for value in others[1:]:
        result = node(result, value)
    return result


def from_linear(terms: Mapping[Expr, int], constant: int) -> Expr:
    """Return the sum as an expression: positive terms first, `x - d * (x // d)` as a remainder."""
    terms = with_remainders({t: f for t, f in terms.items() if f})
    ordered = sorted(terms.items(), key=lambda item: item[1] < 0)
    result: Expr | None = None
    for term, factor in ordered:
        part = term if factor == 1 else Scale(factor, term)
        result = part if result is None else Add(result, part)
    if result is None:
        return Int(constant)
    return Add(result, Int(constant)) if constant else result


def with_remainders(terms: dict[Expr, int]) -> dict[Expr, int]:
    for term, factor in list(terms.items()):
        if not isinstance(term, Floor) or factor % term.divisor:
            continue
        times_over = -factor // term.divisor
        inner = linear(term.value)
        if times_over and not inner.constant and all(terms.get(t) == times_over * f for t, f in inner.terms):
            rest = {t: f for t, f in terms.items() if t != term and t not in dict(inner.terms)}
            rest[Mod(term.value, term.divisor)] = times_over
            return with_remainders(rest)
    return terms


def comparison(terms: Mapping[Expr, int], constant: int, *, equality: bool = False) -> Compare:
    """Return `terms + constant >= 0` (or `== 0`) as a comparison without negative terms."""
    terms = with_remainders(dict(terms))
    positive = {t: f for t, f in terms.items() if f > 0}
    negative = {t: -f for t, f in terms.items() if f < 0}
    if equality:
        if not positive:
            positive, negative, constant = negative, positive, -constant
        return Compare("==", from_linear(positive, max(constant, 0)), from_linear(negative, max(-constant, 0)))
    if not negative:
        return Compare(">=", from_linear(positive, 0), Int(-constant))
    if constant < 0:
        return Compare("<", from_linear(negative, 0), from_linear(positive, constant + 1))
    return Compare("<=", from_linear(negative, 0), from_linear(positive, constant))


def nonnegative(params: Sequence[str]) -> Cond:
    """Return the condition that every size is at least 0."""
    return And(tuple(Compare(">=", Name(p), Int(0)) for p in params))


def fixed(sizes: Mapping[str, int]) -> Cond:
    return And(tuple(Compare("==", Name(n), Int(v)) for n, v in sizes.items()))
