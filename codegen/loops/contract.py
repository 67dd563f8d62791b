"""Round a product and the sum it stands in once.

    before   y[i] = a[i] * b[i] + c[i]          y[i] = c[i] - a[i] * b[i]
    after    y[i] = fma(a[i], b[i], c[i])       y[i] = fma(-a[i], b[i], c[i])

Changes results by what rounding the product would have; for programs that allow it everywhere. Floats only. `separate` goes back: machines
without the instruction would compute the same bits by many.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from codegen.loops.nodes import Binary, Expr, Fma, For, Function, If, Index, Stmt, Unary
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import map_expr, map_index, map_stmt


def contract(function: Function) -> Function:
    """Return `function` with every product that is added to something, or subtracted, fused with that."""
    return replace(function, body=_block(function.body, Env.of(function)))


def separate(function: Function) -> Function:
    """Return `function` with every multiply-add as a product and a sum, which round one after the other."""

    def index(e: Index) -> Index:
        return map_index(e, index, separated)

    def separated(e: Expr) -> Expr:
        match map_expr(e, index, separated):
            case Fma(a, b, c):
                return Binary("+", c, Binary("*", a, b))
            case other:
                return other

    def statement(s: Stmt) -> Stmt:
        return map_stmt(s, index, separated, statement)

    return replace(function, body=tuple(map(statement, function.body)))


def _block(block: Iterable[Stmt], env: Env) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in block:
        out.append(_statement(s, env))
        env = env.after(s)
    return tuple(out)


def _statement(s: Stmt, env: Env) -> Stmt:
    match s:
        case For():
            return replace(s, body=_block(s.body, env.with_loop(s)))
        case If():
            return replace(s, cond=_fused(s.cond, env), then=_block(s.then, env), orelse=_block(s.orelse, env))
        case _:
            return map_stmt(s, lambda e: _index(e, env), lambda e: _fused(e, env), lambda inner: inner)


def _index(e: Index, env: Env) -> Index:
    return map_index(e, lambda child: _index(child, env), lambda child: _fused(child, env))


def _fused(e: Expr, env: Env) -> Expr:
    if isinstance(e, Binary) and e.op in ("+", "-") and not dtype_of(e, env).is_float:
        return map_expr(e, lambda child: _index(child, env), lambda child: _fused(child, env))
    match map_expr(e, lambda child: _index(child, env), lambda child: _fused(child, env)):
        case Binary("+", Binary("*", a, b), c) | Binary("+", c, Binary("*", a, b)):
            return Fma(a, b, c)
        case Binary("-", Binary("*", a, b), c):
            return Fma(a, b, Unary("neg", c))
        case Binary("-", c, Binary("*", a, b)):
            return Fma(Unary("neg", a), b, c)
        case other:
            return other
