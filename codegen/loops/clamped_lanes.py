"""Lanes that read the last element in reach where their own lies outside: the element for all of these, and neighbours for the others.

    before   for v in 0 .. 16 vector 16 { y[v] = x[max(0, v + s)] }
    after    for v in 0 .. 16 vector 16 { y[v] = select(v + s < 0, x[0], x[v + s]) }

Lanes whose elements are limited lie no fixed distance apart, and would be read one by one; now they are a vector under a condition and an
element that all lanes share, where the target loads such elements under masks. Where unrolling makes constants of what is compared, reads
stay as they are: which lanes read what is known then, and one vector is read and permuted.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from functools import reduce

from codegen.loops.indices import coefficients
from codegen.loops.nodes import (
    Alloc,
    Compare,
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
    Select,
    Stmt,
    ValueIndex,
    Var,
)
from codegen.loops.walk import free_vars, map_expr, map_stmt, statements, walk


def clamped_lanes(function: Function, masked_bytes: Container[int]) -> Function:
    """Return a function that does the same as `function`, in which vectors read such lanes by conditions, those of elements of so many
    bytes."""
    buffers = (*function.params, *(s.buffer for s in statements(*function.body) if isinstance(s, Alloc)))
    scope = _Scope(frozenset(buffer.name for buffer in buffers if buffer.dtype.size_bytes in masked_bytes))
    return replace(function, body=tuple(_stmt(s, scope) for s in function.body)) if scope.buffers else function


@dataclass(frozen=True, slots=True)
class _Scope:
    """`buffers`: what is read so; `lane`: the variable of the vector loop at hand, None outside of one; `constant`: variables that
    unrolling makes constant."""

    buffers: frozenset[str]
    lane: str | None = None
    constant: frozenset[str] = frozenset()


def _stmt(s: Stmt, scope: _Scope) -> Stmt:
    if isinstance(s, For):
        is_constant = s.kind in ("unroll", "vector") and isinstance(s.lo, Int)
        constant = scope.constant | {s.var} if is_constant else scope.constant - {s.var}
        scope = replace(scope, lane=s.var if s.kind == "vector" else scope.lane, constant=constant)
    return map_stmt(s, lambda e: e, lambda e: _expr(e, scope), lambda inner: _stmt(inner, scope))


def _expr(e: Expr, scope: _Scope) -> Expr:
    match e:
        case Dot():  # whose operands stay in memory
            return e
        case Load(buffer, (*outer, Min() | Max() as place)) if scope.lane is not None and buffer in scope.buffers:
            return _chosen(e, tuple(outer), place, scope.lane) if _is_limited(place, scope.lane, scope.constant) else e
        case _:
            return map_expr(e, lambda index: index, lambda inner: _expr(inner, scope))


def _chosen(load: Load, outer: tuple[Index, ...], place: Index, lane: str) -> Expr:
    """Return the element at `place` of a row: where the innermost limit is reached, the one there."""
    around: list[tuple[type[Min | Max], Index]] = []
    while isinstance(place, Min | Max):
        limit, own = _sides(place, lane)
        around.append((type(place), limit))
        place = own
    found: Expr = replace(load, index=(*outer, place))
    for k, (kind, limit) in enumerate(around):
        reached = Compare(">" if kind is Min else "<", IndexValue(place), IndexValue(limit))
        there = reduce(lambda at, by: by[0](by[1], at), reversed(around[:k]), limit)
        found = Select(reached, replace(load, index=(*outer, there)), found)
    return found


def _sides(place: Min | Max, lane: str) -> tuple[Index, Index]:
    """Return the limit, which all lanes share, and what it limits."""
    return (place.rhs, place.lhs) if lane in free_vars(place.lhs) else (place.lhs, place.rhs)


def _is_limited(place: Index, lane: str, constant: frozenset[str]) -> bool:
    """Tell whether an index is of neighbours, from lane to lane, within limits that all lanes share and of which not all is constant."""
    if any(isinstance(n, ValueIndex) for n in walk(place)) or free_vars(place) <= constant:
        return False
    while isinstance(place, Min | Max):
        limit, place = _sides(place, lane)
        if lane in free_vars(limit):
            return False
    form = coefficients(place)
    return form is not None and form[0].get(Var(lane)) == 1 and not any(lane in free_vars(atom) for atom in form[0] if atom != Var(lane))
