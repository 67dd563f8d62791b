"""Canonical quasi-affine arithmetic over `polyhedral.expr`.

Every function returns an expression in normal form: a sum of `factor * atom` in a fixed order plus a constant, where an atom is a `Name`
or a `Floor`, `Mod`, `Min` or `Max` of normal forms. Equal sums are therefore equal objects: `add(i, n) == add(n, i)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, assert_never

from polyhedral.expr import FALSE, TRUE, Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale

CompareOp = Literal["<", "<=", "==", "!=", ">=", ">"]
Ranges = Mapping[str, tuple[Expr, Expr]]
"""Half-open ranges of indices. Names that are missing are sizes: integers >= 0."""

ZERO = Int(0)
ONE = Int(1)


@dataclass(frozen=True, slots=True)
class Linear:
    """`sum(factor * atom) + const`; atoms are distinct, factors are not zero."""

    terms: tuple[tuple[Expr, int], ...]
    const: int


@lru_cache(maxsize=65536)
def linear(e: Expr) -> Linear:
    """Return `e` as a linear form over atoms."""
    terms: dict[Expr, int] = {}
    const = _collect(e, 1, terms)
    return Linear(tuple(sorted(((a, f) for a, f in terms.items() if f), key=lambda t: _order(t[0]))), const)


def _collect(e: Expr, factor: int, terms: dict[Expr, int]) -> int:
    match e:
        case Int(value):
            return factor * value
        case Add(lhs, rhs):
            return _collect(lhs, factor, terms) + _collect(rhs, factor, terms)
        case Scale(f, value):
            return _collect(value, factor * f, terms)
        case _:
            terms[e] = terms.get(e, 0) + factor
            return 0


def _order(atom: Expr) -> tuple[int, str]:
    return (0, atom.name) if isinstance(atom, Name) else (1, repr(atom))


def of_linear(form: Linear) -> Expr:
    """Return the normal form of a linear form."""
    out: Expr | None = None
    for atom, factor in form.terms:
        term = atom if factor == 1 else Scale(factor, atom)
        out = term if out is None else Add(out, term)
    if out is None:
        return Int(form.const)
    return out if form.const == 0 else Add(out, Int(form.const))


def normal(e: Expr) -> Expr:
    """Return `e` in normal form, whoever built it."""
    return substitute(e, {})


def add(a: Expr, b: Expr) -> Expr:
    return of_linear(linear(Add(a, b)))


def sub(a: Expr, b: Expr) -> Expr:
    return of_linear(linear(Add(a, Scale(-1, b))))


def scale(factor: int, a: Expr) -> Expr:
    return of_linear(linear(Scale(factor, a)))


def total(items: list[Expr] | tuple[Expr, ...]) -> Expr:
    out: Expr = ZERO
    for item in items:
        out = add(out, item)
    return out


def constant(e: Expr) -> int | None:
    """Return the value of `e` when it is a number."""
    form = linear(e)
    return None if form.terms else form.const


def times(a: Expr, b: Expr) -> Expr | None:
    """Return `a * b`, or None when neither side is a number."""
    if (x := constant(a)) is not None:
        return scale(x, b)
    if (y := constant(b)) is not None:
        return scale(y, a)
    return None


def floordiv(a: Expr, divisor: int) -> Expr:
    """Return `a // divisor` (floor) for `divisor > 0`; multiples of the divisor are taken out."""
    form = linear(a)
    whole = Linear(tuple((t, f // divisor) for t, f in form.terms if f % divisor == 0), form.const // divisor)
    rest = Linear(tuple((t, f) for t, f in form.terms if f % divisor), form.const % divisor)
    if not rest.terms:
        return of_linear(whole)
    return add(of_linear(whole), Floor(of_linear(rest), divisor))


def mod(a: Expr, divisor: int) -> Expr:
    """Return `a % divisor` in [0, divisor) for `divisor > 0`."""
    form = linear(a)
    rest = Linear(tuple((t, f % divisor) for t, f in form.terms if f % divisor), form.const % divisor)
    return Int(rest.const) if not rest.terms else Mod(of_linear(rest), divisor)


def minimum(a: Expr, b: Expr) -> Expr:
    difference = constant(sub(a, b))
    if difference is not None:
        return a if difference <= 0 else b
    lo, hi = sorted((a, b), key=repr)
    return Min(lo, hi)


def maximum(a: Expr, b: Expr) -> Expr:
    difference = constant(sub(a, b))
    if difference is not None:
        return a if difference >= 0 else b
    lo, hi = sorted((a, b), key=repr)
    return Max(lo, hi)


def substitute(e: Expr, mapping: Mapping[str, Expr]) -> Expr:
    """Return `e` with names replaced, in normal form."""
    match e:
        case Int():
            return e
        case Name(name):
            return mapping.get(name, e)
        case Add(lhs, rhs):
            return add(substitute(lhs, mapping), substitute(rhs, mapping))
        case Scale(factor, value):
            return scale(factor, substitute(value, mapping))
        case Floor(value, divisor):
            return floordiv(substitute(value, mapping), divisor)
        case Mod(value, divisor):
            return mod(substitute(value, mapping), divisor)
        case Min(lhs, rhs):
            return minimum(substitute(lhs, mapping), substitute(rhs, mapping))
        case Max(lhs, rhs):
            return maximum(substitute(lhs, mapping), substitute(rhs, mapping))
        case _:
            assert_never(e)


def names(e: Expr) -> frozenset[str]:
    """Return the names that `e` mentions."""
    match e:
        case Int():
            return frozenset()
        case Name(name):
            return frozenset((name,))
        case Add(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs):
            return names(lhs) | names(rhs)
        case Scale(_, value) | Floor(value, _) | Mod(value, _):
            return names(value)
        case _:
            assert_never(e)


# ---------------------------------------------------------------- conditions


def compare(op: CompareOp, lhs: Expr, rhs: Expr) -> Cond:
    """Return the condition, decided when the two sides differ by a number."""
    difference = constant(sub(lhs, rhs))
    if difference is None:
        return Compare(op, lhs, rhs)
    return TRUE if _holds(op, difference) else FALSE


def _holds(op: CompareOp, difference: int) -> bool:
    match op:
        case "<":
            return difference < 0
        case "<=":
            return difference <= 0
        case "==":
            return difference == 0
        case "!=":
            return difference != 0
        case ">=":
            return difference >= 0
        case ">":
            return difference > 0
        case _:
            assert_never(op)


def conj(*conds: Cond) -> Cond:
    """Return the conjunction, flattened, without repetition."""
    out: list[Cond] = []
    for cond in conds:
        for part in cond.conds if isinstance(cond, And) else (cond,):
            if part == FALSE:
                return FALSE
            if part not in out:
                out.append(part)
    return out[0] if len(out) == 1 else And(tuple(out))


def disj(*conds: Cond) -> Cond:
    """Return the disjunction, flattened, without repetition."""
    out: list[Cond] = []
    for cond in conds:
        for part in cond.conds if isinstance(cond, Or) else (cond,):
            if part == TRUE:
                return TRUE
            if part not in out:
                out.append(part)
    return out[0] if len(out) == 1 else Or(tuple(out))


_OPPOSITE: dict[str, CompareOp] = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}


def negate(cond: Cond) -> Cond:
    """Return the complement, pushed to the comparisons."""
    match cond:
        case Compare(op, lhs, rhs):
            return Compare(_OPPOSITE[op], lhs, rhs)
        case And(conds):
            return disj(*(negate(c) for c in conds))
        case Or(conds):
            return conj(*(negate(c) for c in conds))
        case Not(inner):
            return inner
        case _:
            assert_never(cond)


def substitute_cond(cond: Cond, mapping: Mapping[str, Expr]) -> Cond:
    """Return `cond` with names replaced, decided where it can be."""
    match cond:
        case Compare(op, lhs, rhs):
            return compare(op, substitute(lhs, mapping), substitute(rhs, mapping))
        case And(conds):
            return conj(*(substitute_cond(c, mapping) for c in conds))
        case Or(conds):
            return disj(*(substitute_cond(c, mapping) for c in conds))
        case Not(inner):
            return negate(substitute_cond(inner, mapping))
        case _:
            assert_never(cond)


def cond_names(cond: Cond) -> frozenset[str]:
    match cond:
        case Compare(_, lhs, rhs):
            return names(lhs) | names(rhs)
        case And(conds) | Or(conds):
            return frozenset().union(*(cond_names(c) for c in conds))
        case Not(inner):
            return cond_names(inner)
        case _:
            assert_never(cond)


# ---------------------------------------------------------------- bounds


def surely_nonnegative(e: Expr, ranges: Ranges) -> bool:
    """Return whether `e >= 0` follows from the ranges of indices and from sizes being >= 0. A quick, incomplete test: it only decides
    whether a condition need be written down; what is written down is proven elsewhere."""
    form = linear(e)
    for _ in range(8):
        if all(f > 0 and isinstance(a, Name) and a.name not in ranges for a, f in form.terms):
            return form.const >= 0
        index = next(((a, f) for a, f in reversed(form.terms) if not isinstance(a, Name) or a.name in ranges), None)
        if index is None:
            return False
        atom, factor = index
        bound = _bound(atom, factor > 0, ranges)
        if bound is None:
            return False
        rest = Linear(tuple(t for t in form.terms if t[0] != atom), form.const)
        form = linear(add(of_linear(rest), scale(factor, bound)))
    return False


def _bound(atom: Expr, lower: bool, ranges: Ranges) -> Expr | None:
    """Return a lower (or inclusive upper) bound of an atom."""
    match atom:
        case Name(name):
            lo, hi = ranges[name]
            return lo if lower else sub(hi, ONE)
        case Mod(_, divisor):
            return ZERO if lower else Int(divisor - 1)
        case Min(lhs, rhs) if not lower:
            return rhs if isinstance(lhs, Name) and lhs.name in ranges else lhs
        case Max(lhs, rhs) if lower:
            return rhs if isinstance(lhs, Name) and lhs.name in ranges else lhs
        case Floor(value, divisor) if lower and surely_nonnegative(value, ranges):
            return ZERO
        case _:
            return None


def in_box(e: Expr, extent: Expr, ranges: Ranges) -> Cond:
    """Return `0 <= e < extent`, without the halves that surely hold."""
    below = TRUE if surely_nonnegative(e, ranges) else compare(">=", e, ZERO)
    above = TRUE if surely_nonnegative(sub(sub(extent, e), ONE), ranges) else compare("<", e, extent)
    return conj(below, above)


def larger(a: Expr, b: Expr) -> Expr:
    """Return max(a, b) of two expressions over sizes, without `Max` when sizes being >= 0 decides it."""
    if surely_nonnegative(sub(a, b), {}):
        return a
    if surely_nonnegative(sub(b, a), {}):
        return b
    return maximum(a, b)
