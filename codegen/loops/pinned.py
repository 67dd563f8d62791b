"""Run a loop for one iteration where a condition leaves it only one.

    before   for n in 0 .. N { for j in 0 .. J { if ids[k] == n { y[n, j] = y[n, j] + u[k, j] } } }
    after    for n in max(0, ids[k]) .. max(-1, min(N - 1, ids[k])) + 1 { for j in 0 .. J { y[n, j] = y[n, j] + u[k, j] } }

Conditions first leave the loops that they do not depend on, then the equations among them become bounds. Only serial loops are pinned: of
lanes, threads and copies there have to be as many as was said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce

from codegen.loops.nodes import Add, Binary, Compare, Expr, For, Function, If, Index, IndexValue, Int, Load, Max, Min, Stmt, ValueIndex, Var
from codegen.loops.nodes import Name as ValueName
from codegen.loops.walk import binders, free_vars, map_stmt, stores, surely_runs, walk

_LEAVES = ("serial", "vector", "unroll")
"""Loops that a condition may leave: their iterations are the block's own."""


def pinned(function: Function) -> Function:
    """Return `function` with loops that conditions pin to one iteration bounded by it."""
    return replace(function, body=tuple(map(_pinned, function.body)))


def _pinned(stmt: Stmt) -> Stmt:
    stmt = map_stmt(stmt, lambda index: index, lambda expr: expr, _pinned)
    if not isinstance(stmt, For) or stmt.kind not in _LEAVES or len(stmt.body) != 1:
        return stmt
    match stmt.body[0]:
        case If(cond, then, ()):
            conditions = [*_conjuncts(cond)]
        case _:
            return stmt
    if stmt.kind == "serial":
        for condition in conditions:
            value = _equal_to(condition, stmt.var)
            if value is not None and _is_fixed(value, stmt):
                rest = _guarded([c for c in conditions if c is not condition], then)
                before = Max(_less(stmt.lo), Min(_less(stmt.hi), ValueIndex(value)))
                return replace(stmt, lo=Max(stmt.lo, ValueIndex(value)), hi=Add(before, Int(1)), body=rest)
    outside = [c for c in conditions if stmt.var not in free_vars(c) and _is_fixed(c, stmt)]
    if not outside:
        return stmt
    inside = [c for c in conditions if c not in outside]
    runs = [] if surely_runs(stmt) else [Compare("<", IndexValue(stmt.lo), IndexValue(stmt.hi))]
    return If(_all([*runs, *outside]), (replace(stmt, body=_guarded(inside, then)),), ())


def _less(e: Index) -> Index:
    return Int(e.value - 1) if isinstance(e, Int) else Add(e, Int(-1))


def _conjuncts(cond: Expr) -> Iterator[Expr]:
    match cond:
        case Binary("and", lhs, rhs):
            yield from _conjuncts(lhs)
            yield from _conjuncts(rhs)
        case _:
            yield cond


def _all(conditions: Iterable[Expr]) -> Expr:
    return reduce(lambda lhs, rhs: Binary("and", lhs, rhs), conditions)


def _guarded(conditions: list[Expr], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return (If(_all(conditions), body, ()),) if conditions else body


def _equal_to(condition: Expr, var: str) -> Expr | None:
    """Return what a condition says that `var` is, of data."""
    match condition:
        case Compare("==", IndexValue(Var(name)), value) | Compare("==", value, IndexValue(Var(name))):
            data = any(isinstance(part, Load | ValueName) for part in walk(value))
            return value if name == var and data and var not in free_vars(value) else None
        case _:
            return None


def _is_fixed(e: Expr, loop: For) -> bool:
    """Tell whether an expression is the same in all iterations of a loop, as far as what they store and bind goes."""
    written = {s.buffer for s in stores(*loop.body)}
    bound = {loop.var, *binders(*loop.body)}
    parts = list(walk(e))
    return not any((isinstance(p, Load) and p.buffer in written | bound) or (isinstance(p, ValueName) and p.name in bound) for p in parts)
