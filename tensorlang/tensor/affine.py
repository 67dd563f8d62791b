"""Arithmetic on the index expressions of `polyhedral.expr`: constructors that fold, substitution, evaluation, text.

The constructors return a canonical sum: one term per name, in alphabetical order, then one per non-linear part, the constant last.

    add(2*p, r, -1, p)  ->  3*p + r - 1        floor(2*i + 5, 2)  ->  i + 2        mod(4*i + j, 4)  ->  j % 4

Two expressions built here that differ by a constant are recognised as such (`difference`), and building is idempotent: rebuilding a
canonical expression gives it back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Literal, TypeAlias, assert_never

import numpy as np

from polyhedral.expr import FALSE, TRUE, Add, And, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name, Not, Or, Scale

Relation: TypeAlias = Literal["<", "<=", "==", "!=", ">=", ">"]
Terms: TypeAlias = dict[Expr, int]
"""Coefficient of each name or non-linear part (Floor, Mod, Min, Max)."""

ZERO = Int(0)
ONE = Int(1)

# ---------------------------------------------------------------- sums


def terms(e: Expr) -> tuple[Terms, int]:
    """Return `e` as coefficients of its names and non-linear parts, and a constant. No coefficient is zero."""
    out: Terms = {}
    const = _collect(e, 1, out)
    return {atom: k for atom, k in out.items() if k}, const


def _collect(e: Expr, factor: int, out: Terms) -> int:
    match e:
        case Int(value):
            return factor * value
        case Add(lhs, rhs):
            return _collect(lhs, factor, out) + _collect(rhs, factor, out)
        case Scale(k, value):
            return _collect(value, factor * k, out)
        case Name() | Floor() | Mod() | Min() | Max():
            out[e] = out.get(e, 0) + factor
            return 0
        case _:
            assert_never(e)


def from_terms(coefficients: Terms, const: int = 0) -> Expr:
    """Return the canonical sum with these coefficients; the inverse of `terms`."""
    ordered = sorted(((atom, k) for atom, k in coefficients.items() if k), key=lambda item: _order(item[0]))
    parts: list[Expr] = [atom if k == 1 else Scale(k, atom) for atom, k in ordered]
    if const or not parts:
        parts.append(Int(const))
    return reduce(Add, parts)


def _order(atom: Expr) -> tuple[int, str]:
    return (0, atom.name) if isinstance(atom, Name) else (1, repr(atom))


def affine_form(e: Expr) -> tuple[dict[str, int], int] | None:
    """Return the coefficients of the names in `e` and the constant, or None when `e` is not linear."""
    coefficients, const = terms(e)
    named = {atom.name: k for atom, k in coefficients.items() if isinstance(atom, Name)}
    return (named, const) if len(named) == len(coefficients) else None


def constant(e: Expr) -> int | None:
    """Return the value of `e` if it is a constant."""
    coefficients, const = terms(e)
    return None if coefficients else const


def difference(a: Expr, b: Expr) -> int | None:
    """Return `a - b` if it is a constant."""
    return constant(sub(a, b))


def same(a: Expr, b: Expr) -> bool:
    """Tell whether the canonical sums of `a` and `b` are equal (sufficient, not necessary, for equality of values)."""
    return difference(a, b) == 0


# ---------------------------------------------------------------- constructors


def to_expr(e: Expr | int | str) -> Expr:
    """Return an expression for an integer, a name, or an expression."""
    match e:
        case int():
            return Int(e)
        case str():
            return Name(e)
        case _:
            return e


def add(*parts: Expr | int | str) -> Expr:
    out: Terms = {}
    const = sum(_collect(to_expr(p), 1, out) for p in parts)
    return from_terms(out, const)


def sub(a: Expr | int | str, b: Expr | int | str) -> Expr:
    return add(a, Scale(-1, to_expr(b)))


def scale(factor: int, e: Expr | str) -> Expr:
    coefficients, const = terms(to_expr(e))
    return from_terms({atom: factor * k for atom, k in coefficients.items()} if factor else {}, factor * const)


def neg(e: Expr | str) -> Expr:
    return scale(-1, e)


def mul(a: Expr, b: Expr) -> Expr | None:
    """Return the product if a side is constant, else None: it is not quasi-affine."""
    match constant(a), constant(b):
        case int(k), _:
            return scale(k, b)
        case _, int(k):
            return scale(k, a)
    return None


def floor(e: Expr, divisor: int) -> Expr:
    """Return `e // divisor`, divisor > 0."""
    if divisor == 1:
        return add(e)
    coefficients, const = terms(e)
    whole = {atom: k // divisor for atom, k in coefficients.items() if k % divisor == 0}
    rest = {atom: k for atom, k in coefficients.items() if k % divisor}
    if not rest:
        return from_terms(whole, const // divisor)
    part = Floor(from_terms(rest, const % divisor), divisor)
    return from_terms({**whole, part: whole.get(part, 0) + 1}, const // divisor)


def ceil_div(e: Expr, divisor: int) -> Expr:
    return floor(add(e, divisor - 1), divisor)


def mod(e: Expr, divisor: int) -> Expr:
    """Return `e % divisor`, divisor > 0."""
    coefficients, const = terms(e)
    rest = {atom: k % divisor for atom, k in coefficients.items() if k % divisor}
    if not rest:
        return Int(const % divisor)
    return Mod(from_terms(rest, const % divisor), divisor)


def minimum(*parts: Expr) -> Expr:
    return _extreme(Min, lambda d: d <= 0, parts)


def maximum(*parts: Expr) -> Expr:
    return _extreme(Max, lambda d: d >= 0, parts)


def _extreme(kind: type[Min] | type[Max], first_wins: Callable[[int], bool], parts: tuple[Expr, ...]) -> Expr:
    """Fold `kind` over parts, dropping those that a constant distance shows to lose."""
    kept: list[Expr] = []
    for part in (add(p) for p in parts):
        for i, other in enumerate(kept):
            distance = difference(other, part)
            if distance is not None:
                kept[i] = other if first_wins(distance) else part
                break
        else:
            kept.append(part)
    return reduce(kind, sorted(kept, key=repr))


def clamp(e: Expr, lo: Expr, hi: Expr) -> Expr:
    """Return `e` moved into [lo, hi - 1]."""
    return minimum(maximum(e, lo), sub(hi, ONE))


def normal(e: Expr) -> Expr:
    """Return `e` rebuilt with the constructors of this module."""
    return substitute(e, {})


# ---------------------------------------------------------------- conditions

_NEGATED: dict[str, Relation] = {"<": ">=", "<=": ">", "==": "!=", "!=": "==", ">=": "<", ">": "<="}
_RELATION: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}


def compare(op: Relation, lhs: Expr | int | str, rhs: Expr | int | str) -> Cond:
    """Return the comparison, decided when the sides differ by a constant."""
    a, b = to_expr(lhs), to_expr(rhs)
    distance = difference(a, b)
    if distance is not None:
        return TRUE if _RELATION[op](distance, 0) else FALSE
    return Compare(op, add(a), add(b))


def within(e: Expr | str, lo: Expr | int, hi: Expr | int | str) -> Cond:
    """Return `lo <= e < hi`."""
    return conj(compare(">=", e, lo), compare("<", e, hi))


def conj(*conds: Cond) -> Cond:
    """Return the conjunction, flattened and without repetitions."""
    return _junction(And, Or, conds)


def disj(*conds: Cond) -> Cond:
    return _junction(Or, And, conds)


def _junction(kind: type[And] | type[Or], dual: type[And] | type[Or], conds: Iterable[Cond]) -> Cond:
    parts: dict[Cond, None] = {}
    for cond in conds:
        if cond == dual(()):
            return cond
        parts.update(dict.fromkeys(cond.conds if isinstance(cond, kind) else (cond,)))
    return next(iter(parts)) if len(parts) == 1 else kind(tuple(parts))


def negate(cond: Cond) -> Cond:
    """Return the opposite condition, with negation pushed to the comparisons."""
    match cond:
        case Compare(op, lhs, rhs):
            return Compare(_NEGATED[op], lhs, rhs)
        case And(conds):
            return disj(*map(negate, conds))
        case Or(conds):
            return conj(*map(negate, conds))
        case Not(inner):
            return inner
        case _:
            assert_never(cond)


def conjuncts(cond: Cond) -> tuple[Cond, ...]:
    return cond.conds if isinstance(cond, And) else (cond,)


# ---------------------------------------------------------------- names and substitution


def names(e: Expr) -> Iterator[str]:
    """Yield the names in `e` from left to right, repeated as they are."""
    match e:
        case Int():
            return
        case Name(name):
            yield name
        case Add(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs):
            yield from names(lhs)
            yield from names(rhs)
        case Scale(_, value) | Floor(value, _) | Mod(value, _):
            yield from names(value)
        case _:
            assert_never(e)


def name_set(e: Expr) -> frozenset[str]:
    """Return the names in `e`."""
    return frozenset(names(e))


def cond_names(cond: Cond) -> Iterator[str]:
    match cond:
        case Compare(_, lhs, rhs):
            yield from names(lhs)
            yield from names(rhs)
        case And(conds) | Or(conds):
            for part in conds:
                yield from cond_names(part)
        case Not(inner):
            yield from cond_names(inner)
        case _:
            assert_never(cond)


def substitute(e: Expr, to: Mapping[str, Expr]) -> Expr:
    """Return `e` with names replaced simultaneously, canonical again."""
    match e:
        case Int():
            return e
        case Name(name):
            return to.get(name, e)
        case Add(lhs, rhs):
            return add(substitute(lhs, to), substitute(rhs, to))
        case Scale(factor, value):
            return scale(factor, substitute(value, to))
        case Floor(value, divisor):
            return floor(substitute(value, to), divisor)
        case Mod(value, divisor):
            return mod(substitute(value, to), divisor)
        case Min(lhs, rhs):
            return minimum(substitute(lhs, to), substitute(rhs, to))
        case Max(lhs, rhs):
            return maximum(substitute(lhs, to), substitute(rhs, to))
        case _:
            assert_never(e)


def substitute_cond(cond: Cond, to: Mapping[str, Expr]) -> Cond:
    match cond:
        case Compare(op, lhs, rhs):
            return compare(op, substitute(lhs, to), substitute(rhs, to))
        case And(conds):
            return conj(*(substitute_cond(c, to) for c in conds))
        case Or(conds):
            return disj(*(substitute_cond(c, to) for c in conds))
        case Not(inner):
            return negate(substitute_cond(inner, to))
        case _:
            assert_never(cond)


# ---------------------------------------------------------------- evaluation (integers, or NumPy arrays that broadcast)


def evaluate(e: Expr, env: Mapping[str, Any]) -> Any:
    """Return the value of `e`; `env` gives integers or i64 arrays."""
    match e:
        case Int(value):
            return value
        case Name(name):
            return env[name]
        case Add(lhs, rhs):
            return evaluate(lhs, env) + evaluate(rhs, env)
        case Scale(factor, value):
            return factor * evaluate(value, env)
        case Floor(value, divisor):
            return evaluate(value, env) // divisor
        case Mod(value, divisor):
            return evaluate(value, env) % divisor
        case Min(lhs, rhs):
            return _either(np.minimum, min, evaluate(lhs, env), evaluate(rhs, env))
        case Max(lhs, rhs):
            return _either(np.maximum, max, evaluate(lhs, env), evaluate(rhs, env))
        case _:
            assert_never(e)


def _either(arrays: Callable[[Any, Any], Any], integers: Callable[[int, int], int], a: Any, b: Any) -> Any:
    return integers(a, b) if isinstance(a, int) and isinstance(b, int) else arrays(a, b)


def holds(cond: Cond, env: Mapping[str, Any]) -> Any:
    """Return the truth of `cond`: a bool, or an array of them."""
    match cond:
        case Compare(op, lhs, rhs):
            return _RELATION[op](evaluate(lhs, env), evaluate(rhs, env))
        case And(conds):
            return reduce(lambda a, b: a & b, (holds(c, env) for c in conds), True)
        case Or(conds):
            return reduce(lambda a, b: a | b, (holds(c, env) for c in conds), False)
        case Not(inner):
            return np.logical_not(holds(inner, env))
        case _:
            assert_never(cond)


# ---------------------------------------------------------------- text

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = """op fn for in let if then else otherwise and or not attr size each where from broadcast extern knobs at by as to with"""
RESERVED = frozenset(re.findall(r"\w+", _RESERVED))


def quoted(name: str) -> str:
    """Return `name` as the language writes it: in backquotes unless it is a plain word."""
    return name if _WORD.fullmatch(name) and name not in RESERVED else f"`{name}`"


def show(e: Expr) -> str:
    """Return `e` in the notation of the language: `2*p + r - 1`, `i // 2`, `min(a, b)`."""
    match e:
        case Int(value):
            return str(value)
        case Name(name):
            return quoted(name)
        case Add() | Scale():
            return _show_sum(e)
        case Floor(value, divisor):
            return f"{_show_factor(value)} // {divisor}"
        case Mod(value, divisor):
            return f"{_show_factor(value)} % {divisor}"
        case Min(lhs, rhs):
            return f"min({show(lhs)}, {show(rhs)})"
        case Max(lhs, rhs):
            return f"max({show(lhs)}, {show(rhs)})"
        case _:
            assert_never(e)


def _show_sum(e: Expr) -> str:
    coefficients, const = terms(e)
    text = ""
    for atom, k in sorted(coefficients.items(), key=lambda item: item[1] < 0):
        body = (show(atom) if k == 1 else _show_factor(atom)) if abs(k) == 1 else f"{abs(k)}*{_show_factor(atom)}"
        text += (" + " if k > 0 else " - ") + body if text else body if k > 0 else f"-{body}"
    if not text:
        return str(const)
    return text + (f" + {const}" if const > 0 else f" - {-const}" if const < 0 else "")


def _show_factor(e: Expr) -> str:
    match e:
        case Name() | Min() | Max():
            return show(e)
        case Int(value) if value >= 0:
            return str(value)
        case _:
            return f"({show(e)})"


def show_cond(cond: Cond) -> str:
    """Return `cond` in the notation of the language; conjunctions as `a and b`."""
    match cond:
        case Compare(op, lhs, rhs):
            return f"{show(lhs)} {op} {show(rhs)}"
        case And(()):
            return "true"
        case Or(()):
            return "false"
        case And(conds):
            return " and ".join(_show_junct(c, Or) for c in conds)
        case Or(conds):
            return " or ".join(_show_junct(c, And) for c in conds)
        case Not(inner):
            return f"not ({show_cond(inner)})"
        case _:
            assert_never(cond)


def _show_junct(cond: Cond, other: type[And] | type[Or]) -> str:
    return f"({show_cond(cond)})" if isinstance(cond, other) and cond.conds else show_cond(cond)
