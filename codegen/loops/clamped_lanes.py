"""Lanes that read the last element in reach where their own lies outside: the element for all of these, and neighbours for the others.

    before   for v in 0 .. 16 vector 16 { y[v] = x[max(0, v + s)] }
    after    for v in 0 .. 16 vector 16 { y[v] = select(v + s < 0, x[0], x[v + s]) }

    before   for v in 0 .. 16 vector 16 { y[v] = x[max(0, start[k] + v)] }
    after    for v in 0 .. 16 vector 16 { y[v] = select(start[k] + v < 0, x[0], x[start[k] + v]) }

Lanes whose elements are limited lie no fixed distance apart, and would be read one by one; now they are a vector under a condition and an
element that all lanes share, where the target loads such elements under masks. Where unrolling makes constants of what is compared, reads
stay as they are: which lanes read what is known then, and one vector is read and permuted.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal as Word

from codegen.dtypes import i64
from codegen.loops.indices import coefficients
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
    Compare,
    Const,
    Dot,
    Expr,
    For,
    Function,
    Index,
    IndexValue,
    Int,
    Load,
    Max,
    Min,
    Mul,
    Select,
    Stmt,
    ValueIndex,
    Var,
)
from codegen.loops.walk import binders, free_vars, map_expr, map_stmt, names, statements, walk


def clamped_lanes(function: Function, masked_bytes: Container[int]) -> Function:
    """Return a function that does the same as `function`, in which vectors read such lanes by conditions, those of elements of so many
    bytes."""
    buffers = (*function.params, *(s.buffer for s in statements(*function.body) if isinstance(s, Alloc)))
    scope = _Scope(frozenset(buffer.name for buffer in buffers if buffer.dtype.size_bytes in masked_bytes))
    return replace(function, body=tuple(_stmt(s, scope) for s in function.body)) if scope.buffers else function


@dataclass(frozen=True, slots=True)
class _Scope:
    """`buffers`: what is read so; `lane`: the variable of the vector loop at hand, None outside of one; `constant`: variables that
    unrolling makes constant; `bound`: names that are bound inside of the vector loop, each lane to a value of its own."""

    buffers: frozenset[str]
    lane: str | None = None
    constant: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Limits:
    """A place `own` within limits that all lanes share, the outermost first."""

    own: Expr
    around: tuple[tuple[Word["min", "max"], Expr], ...]


def _stmt(s: Stmt, scope: _Scope) -> Stmt:
    if isinstance(s, For):
        is_constant = s.kind in ("unroll", "vector") and isinstance(s.lo, Int)
        constant = scope.constant | {s.var} if is_constant else scope.constant - {s.var}
        scope = replace(scope, constant=constant)
        if s.kind == "vector":
            scope = replace(scope, lane=s.var, bound=frozenset(binders(*s.body)))
    return map_stmt(s, lambda e: e, lambda e: _expr(e, scope), lambda inner: _stmt(inner, scope))


def _expr(e: Expr, scope: _Scope) -> Expr:
    match e:
        case Dot():  # whose operands stay in memory
            return e
        case Load(buffer, (*outer, Min() | Max() | ValueIndex() as place)) if buffer in scope.buffers and scope.lane is not None:
            limits = _limits(place.value if isinstance(place, ValueIndex) else IndexValue(place), scope, scope.lane)
            return e if limits is None else _chosen(e, tuple(outer), limits)
        case _:
            return map_expr(e, lambda index: index, lambda inner: _expr(inner, scope))


def _chosen(load: Load, outer: tuple[Index, ...], limits: _Limits) -> Expr:
    """Return the element at a place of a row: where the innermost limit is reached, the one there."""
    found: Expr = replace(load, index=(*outer, _as_index(limits.own)))
    for k, (kind, limit) in enumerate(limits.around):
        reached = Compare(">" if kind == "min" else "<", limits.own, limit)
        there = reduce(lambda at, by: _limited(by[0], by[1], at), reversed(limits.around[:k]), limit)
        found = Select(reached, replace(load, index=(*outer, _as_index(there))), found)
    return found


def _limits(place: Expr, scope: _Scope, lane: str) -> _Limits | None:
    """Return the limits of an index of neighbours, from lane to lane, of which not all is constant; None of any other."""
    if _is_same(place, scope, lane) or (isinstance(place, IndexValue) and free_vars(place) <= scope.constant):
        return None
    around: list[tuple[Word["min", "max"], Expr]] = []
    while (found := _sides(place)) is not None:
        kind, lhs, rhs = found
        limit, place = (rhs, lhs) if not _is_same(lhs, scope, lane) else (lhs, rhs)
        if not _is_same(limit, scope, lane):
            return None
        around.append((kind, limit))
    own = _neighbours(place, scope, lane) if around else None
    return None if own is None else _Limits(own, tuple(around))


def _sides(place: Expr) -> tuple[Word["min", "max"], Expr, Expr] | None:
    match place:
        case IndexValue(Min(lhs, rhs)):
            return "min", IndexValue(lhs), IndexValue(rhs)
        case IndexValue(Max(lhs, rhs)):
            return "max", IndexValue(lhs), IndexValue(rhs)
        case Binary("min" | "max" as kind, lhs, rhs):
            return kind, lhs, rhs
        case _:
            return None


def _limited(kind: Word["min", "max"], limit: Expr, place: Expr) -> Expr:
    if isinstance(limit, IndexValue) and isinstance(place, IndexValue):
        return IndexValue((Min if kind == "min" else Max)(limit.index, place.index))
    return Binary(kind, limit, place)


def _as_index(place: Expr) -> Index:
    return place.index if isinstance(place, IndexValue) else ValueIndex(place)


def _is_same(e: Expr, scope: _Scope, lane: str) -> bool:
    """Tell whether all lanes share a value."""
    return lane not in free_vars(e) and scope.bound.isdisjoint(names(e))


def _neighbours(place: Expr, scope: _Scope, lane: str) -> Expr | None:
    """Return a place of neighbours as an index, or as data that all lanes share and an index; None for another."""
    parts = _sum(place, scope, lane)
    if parts is None:
        return None
    data, at = parts
    form = coefficients(at)
    lies = form is not None and form[0].get(Var(lane)) == 1 and not any(lane in free_vars(atom) for atom in form[0] if atom != Var(lane))
    if not lies or any(isinstance(n, ValueIndex) for n in walk(at)):
        return None
    return IndexValue(at) if data is None else Binary("+", data, IndexValue(at))


def _sum(e: Expr, scope: _Scope, lane: str) -> tuple[Expr | None, Index] | None:
    """Return data and an index that a sum is made of, in any order: integers that wrap may be added up in any."""
    match e:
        case IndexValue(index):
            return None, index
        case Const(int(number), dtype) if dtype == i64:
            return None, Int(number)
        case Binary("+" | "-" as op, lhs, rhs) if not _is_same(e, scope, lane):
            left, right = _sum(lhs, scope, lane), _sum(rhs, scope, lane)
            if left is None or right is None or (op == "-" and right[0] is not None):
                return None
            at = Add(left[1], right[1] if op == "+" else Mul(Int(-1), right[1]))
            given = [d for d in (left[0], right[0]) if d is not None]
            return (reduce(lambda a, b: Binary("+", a, b), given) if given else None), at
        case _:
            return (e, Int(0)) if _is_same(e, scope, lane) else None
