"""Names for values: what is used more than once is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.check.scope import Context, Scope
from tensorlang.check.values import Choice, Tup, Val, Value
from tensorlang.check.walk import is_used_lazily
from tensorlang.diagnostics import Span
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.depth import is_deep
from tensorlang.tensor.walk import children, refresh, value_names


def bind_once(ctx: Context, scope: Scope, names: dict[str, Value], counts: dict[str, int], body: sx.Node, span: Span) -> Value:
    """Return the value of `body` with names bound; what is used more than once is computed once."""
    lets: list[tuple[str, ir.Expr]] = []
    bound: dict[str, Value] = {}
    for name, item in names.items():
        if isinstance(item, Val) and _deserves_name(item.expr, name, counts[name], body):
            unique = ctx.names(name)
            lets.append((unique, item.expr))
            item = replace(item, expr=ir.Name(unique, span=span))
        bound[name] = item
    skips = scope.skips if scope.skips is not None else []
    before = len(skips)
    out = ctx.value(scope.bind(bound), body)
    for position in range(before, len(skips)):  # what `skip` puts on the reduction leaves the reach of these names
        left = _wrapped(ctx, skips[position], lets, span)
        skips[position] = replace(left, expr=refresh(left.expr, ctx.names)) if isinstance(left, Val) else left
    return _wrapped(ctx, out, lets, span)


def _deserves_name(expr: ir.Expr, name: str, count: int, body: sx.Node) -> bool:
    """Tell whether a value is computed once under its name: where `body` uses it again, and where it would make `body` nest too deeply."""
    if count > 1:
        return not isinstance(expr, ir.Const | ir.Name | ir.IndexValue)
    return count == 1 and is_deep(expr, children) and not is_used_lazily(body, name)


def _wrapped(ctx: Context, out: Value, lets: Sequence[tuple[str, ir.Expr]], span: Span) -> Value:
    match out:
        case Val(expr):
            return replace(out, expr=_with_lets(expr, lets, span))
        case Tup(items):
            whole = [_wrapped(ctx, item, lets, span) for item in items]
            fresh = [replace(v, expr=refresh(v.expr, ctx.names)) if p and isinstance(v, Val) and lets else v for p, v in enumerate(whole)]
            return out if not lets else Tup(tuple(fresh))
        case Choice(cond, then, orelse):
            return Choice(_with_lets(cond, lets, span), _wrapped(ctx, then, lets, span), _wrapped(ctx, orelse, lets, span))
        case _:
            return out


def _with_lets(expr: ir.Expr, lets: Sequence[tuple[str, ir.Expr]], span: Span) -> ir.Expr:
    for name, bound in reversed(lets):
        if _mentions(expr, name):
            expr = bound if expr == ir.Name(name) else ir.Let(name, bound, expr, span=span)
    return expr


def _mentions(expr: ir.Expr, name: str) -> bool:
    return name in value_names(expr)
