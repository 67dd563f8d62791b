"""Compute once, before a loop, what every iteration would compute anew.

    before   for e in 0 .. 768 { y[m, e] = (x[m, e] - mean[]) / sqrt(v[] + eps) }
    after    let h = sqrt(v[] + eps)
             for e in 0 .. 768 { y[m, e] = (x[m, e] - mean[]) / h }

Only expressions with a division or an elementary function in them move, since a value kept across a loop costs a register. An expression
moves when it mentions neither the loop's variable nor anything the body binds or stores to, and when it is evaluated in every iteration.
A serial loop that may not run at all stands under a condition then, with what is computed before it: nothing is read or divided that was
not before (`if 0 < N // 16 { let h = sqrt(v[] + eps) for jo in 0 .. N // 16 { … } }`). What is read at an index from data stays behind
the checks of the loop. Parallel loops are left alone: their bodies become functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from codegen.loops.nodes import (
    Binary,
    Call,
    Compare,
    Expr,
    For,
    Function,
    If,
    IndexValue,
    Let,
    Load,
    Name,
    Require,
    Select,
    Stmt,
    Store,
    ValueIndex,
)
from codegen.loops.walk import Fresh, binders, free_vars, map_expr, names, runs_at_least_once, statements, stores, walk

_DIVISIONS = ("/", "//", "%")


def hoist(function: Function) -> Function:
    """Return `function` with such expressions bound before the outermost loop they do not depend on."""
    fresh = Fresh({*names(*function.body), *binders(*function.body), *(p.name for p in function.params), *function.sizes})
    return replace(function, body=_block(function.body, fresh))


def _block(body: Iterable[Stmt], fresh: Fresh) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                out += _before(replace(stmt, body=_block(stmt.body, fresh)), fresh)
            case If():
                out.append(replace(stmt, then=_block(stmt.then, fresh), orelse=_block(stmt.orelse, fresh)))
            case _:
                out.append(stmt)
    return tuple(out)


def _before(loop: For, fresh: Fresh) -> tuple[Stmt, ...]:
    """Return a loop behind what is computed before it, both under a condition where it may not run."""
    runs = runs_at_least_once(loop)
    if loop.kind == "parallel" or not (runs or loop.kind == "serial"):
        return (loop,)
    lets: list[Stmt] = []
    hoisted = _hoisted(loop, fresh, lets)
    if runs or not lets:
        return (*lets, hoisted)
    return (If(Compare("<", IndexValue(loop.lo), IndexValue(loop.hi)), (*lets, hoisted)),)


def _hoisted(loop: For, fresh: Fresh, before: list[Stmt]) -> For:
    """Return `loop` without its invariant expressions, whose bindings are appended to `before`."""
    bound = {loop.var, *binders(*loop.body)}
    written = {s.buffer for s in stores(*loop.body)}
    checks = any(isinstance(s, Require) for s in statements(*loop.body))
    known: dict[Expr, Name] = {}

    def movable(e: Expr) -> bool:
        if not _expensive(e) or free_vars(e) & bound:
            return False
        parts = list(walk(e))
        if checks and any(isinstance(p, ValueIndex) for p in parts):
            return False
        return not any((isinstance(p, Name) and p.name in bound) or (isinstance(p, Load) and p.buffer in written | bound) for p in parts)

    def rewrite(e: Expr) -> Expr:
        if movable(e):
            if e not in known:
                known[e] = Name(fresh("invariant"))
                before.append(Let(known[e].name, e))
            return known[e]
        match e:
            case Select(cond, then, orelse):
                return replace(e, cond=rewrite(cond), then=then, orelse=orelse)
            case Binary("and" | "or", lhs, rhs):
                return replace(e, lhs=rewrite(lhs), rhs=rhs)
            case _:
                return map_expr(e, lambda index: index, rewrite)

    def statement(s: Stmt) -> Stmt:
        match s:
            case Store():
                return replace(s, value=rewrite(s.value))
            case Let():
                return replace(s, value=rewrite(s.value))
            case _:
                return s

    return replace(loop, body=tuple(statement(s) for s in loop.body))


def _expensive(e: Expr) -> bool:
    return any(isinstance(p, Call) or (isinstance(p, Binary) and p.op in _DIVISIONS) for p in walk(e))
