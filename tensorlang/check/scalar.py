"""Scalar expressions: from the syntax tree to typed tensor-IR expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorlang.check import arith, typed
from tensorlang.check.assumed import under
from tensorlang.check.calls import apply
from tensorlang.check.lets import bind_once
from tensorlang.check.problems import error
from tensorlang.check.reads import element, find_tensor, read, refine, refined
from tensorlang.check.reduction import condition, reduction
from tensorlang.check.runs import Run, joined
from tensorlang.check.scope import Context, Scope, expand, no_shadowing, unbound
from tensorlang.check.suggest import at_operands, within_reductions
from tensorlang.check.types import CONSTANTS, LIMITS, PASSABLE
from tensorlang.check.values import Fn, Limit, Num, Packed, Str, Tensor, Tup, Val, Value
from tensorlang.check.walk import uses
from tensorlang.diagnostics import CompileError, Span
from tensorlang.syntax import nodes as sx


def value(ctx: Context, scope: Scope, node: sx.Node) -> Value:
    """Return what an expression means. Raises CompileError at the first mistake in it."""
    match node:
        case sx.Number():
            return _number(node)
        case sx.Text(text):
            return Str(text)
        case sx.Id():
            return _name(ctx, scope, node)
        case sx.Index():
            return _indexed(ctx, scope, node)
        case sx.Apply():
            return apply(ctx, scope, node)
        case sx.Reduction():
            return reduction(ctx, scope, node)
        case sx.Unary("-", inner):
            return arith.minus(value(ctx, scope, inner), node.span)
        case sx.Unary("not", inner):
            negated = value(ctx, scope, inner)
            typed.truth(negated, inner.span)
            return arith.negation(negated, node.span)
        case sx.Unary(_, inner):
            return value(ctx, scope, inner)
        case sx.Binary(op, lhs, rhs):
            return _binary(ctx, scope, op, lhs, rhs, node.span)
        case sx.Chain():
            return _chain(ctx, scope, node)
        case sx.Compare():
            return _compare(ctx, scope, node)
        case sx.Member(inner, sx.Range(lo, hi)):
            chain = sx.Compare((lo, inner, hi), ("<=", "<"), span=node.span)
            return _compare(ctx, scope, chain)
        case sx.IfElse():
            return _if(ctx, scope, node)
        case sx.LetIn():
            return _let(ctx, scope, node)
        case sx.TupleOf(items):
            return Tup(tuple(value(ctx, at, item) for item, at in expand(scope, items)))
        case sx.Pack():
            return condition(ctx, scope, node)
        case _:
            raise error(
                "T0126", "this cannot stand in an expression", node.span, "here", help="write a number, a read `x[i]`, a call or arithmetic"
            )


def _number(node: sx.Number) -> Num:
    if not node.is_float:
        return Num(int(node.text))
    number = float(node.text)
    if math.isinf(number):
        raise error(
            "T0111", f"{node.text} is too large for any type", node.span, "overflows `f64`", help="write `inf` if infinity is meant"
        )
    return Num(number)


def _name(ctx: Context, scope: Scope, node: sx.Id) -> Value:
    name = node.name
    found = scope.values.get(name)
    if found is None and (name in ctx.tensors or name in ctx.local_names):
        found = find_tensor(ctx, scope, name, node.span)
    if isinstance(found, Tensor):
        if found.constant is not None and not found.dims:
            return found.constant
        return element(ctx, scope, found, [], sx.Index(name, (), span=node.span)) if not found.dims else found
    if isinstance(found, Packed):
        raise typed.not_scalar(found, node.span)
    if isinstance(found, Val):
        return refine(scope, found)
    if found is not None:
        return found
    if name in CONSTANTS:
        return Num(CONSTANTS[name])
    if name in LIMITS:
        return Limit(LIMITS[name])
    if name in ctx.module.functions or name in PASSABLE:
        return Fn(name, ctx.module)
    raise unbound(name, scope, node.span)


def _indexed(ctx: Context, scope: Scope, node: sx.Index) -> Value:
    pack = scope.values.get(node.name)
    if not isinstance(pack, Packed):
        return read(ctx, scope, node)
    position = value(ctx, scope, node.slots[0]) if len(node.slots) == 1 else None
    if not isinstance(position, Num) or not isinstance(position.value, int):
        raise error(
            "T0135",
            f"pack `{node.name}` is indexed by a position known now",
            node.span,
            "here",
            help=f"`{node.name}[0]`, `{node.name}[perm]..` with an attribute `perm`, or `{node.name}[pos(d)]..`",
        )
    if not 0 <= position.value < len(pack.items):
        raise error(
            "T0135",
            f"pack `{node.name}` has {len(pack.items)} positions, and {position.value} is none of them",
            node.span,
            "out of range",
            help="positions count from 0",
        )
    return pack.items[position.value]


def _binary(ctx: Context, scope: Scope, op: str, lhs: sx.Node, rhs: sx.Node, span: Span) -> Value:
    within_reductions(lhs, rhs)
    a = value(ctx, scope, lhs)
    if op in ("and", "or"):
        known = typed.truth(a, lhs.span)
        if isinstance(known, bool) and known == (op == "or"):
            return Num(known)
        b = value(ctx, under(ctx, scope, lhs, op == "and"), rhs)
        typed.truth(b, rhs.span)
        return arith.logic(op, a, b, span)
    b = value(ctx, scope, rhs)
    try:
        return refined(scope, arith.binary(op, a, b, span, scope.ranges))
    except CompileError as problem:
        raise at_operands(problem, scope, op, span, (lhs.span, a), (rhs.span, b)) from None


def _chain(ctx: Context, scope: Scope, node: sx.Chain) -> Value:
    """Return what operators one after the other come to, as `_binary` would of two at a time."""
    within_reductions(node.first, *(link.rhs for link in node.rest))
    if node.rest[0].op in ("and", "or"):
        return _junction(ctx, scope, node.rest[0].op, (node.first, *(link.rhs for link in node.rest)), node.span)
    out, run = value(ctx, scope, node.first), Run(ctx.names, node.span)
    left = node.first.span
    for link in node.rest:
        rhs = value(ctx, scope, link.rhs)
        try:
            out = arith.binary(link.op, run.named(out), rhs, link.span, scope.ranges)
        except CompileError as problem:
            raise at_operands(problem, scope, link.op, link.span, (left, out), (link.rhs.span, rhs)) from None
        left = link.span
    return run.whole(out)


def _junction(ctx: Context, scope: Scope, op: str, conds: Sequence[sx.Node], span: Span) -> Value:
    """Return many conditions joined by `and` or `or`, those on the left of one another decided first."""
    found: list[Value] = []
    for cond in conds:
        found.append(value(ctx, scope, cond))
        known = typed.truth(found[-1], cond.span)
        if isinstance(known, bool) and known == (op == "or"):
            break
        scope = under(ctx, scope, cond, op == "and")
    return joined(lambda a, b: arith.logic(op, a, b, span), found)


def _compare(ctx: Context, scope: Scope, node: sx.Compare) -> Value:
    within_reductions(*node.items)
    items = [value(ctx, scope, item) for item in node.items]
    out: Value = Num(True)
    spans = [item.span for item in node.items]
    for op, a, b, *at in zip(node.ops, items, items[1:], spans, spans[1:], strict=False):
        try:
            out = arith.logic("and", out, arith.compare(op, a, b, node.span), node.span)
        except CompileError as problem:
            raise at_operands(problem, scope, op, node.span, (at[0], a), (at[1], b)) from None
    return out


def _if(ctx: Context, scope: Scope, node: sx.IfElse) -> Value:
    cond = value(ctx, scope, node.cond)
    known = typed.truth(cond, node.cond.span)
    if isinstance(known, bool):
        return value(ctx, scope, node.then if known else node.orelse)
    then = value(ctx, under(ctx, scope, node.cond, True), node.then)
    orelse = value(ctx, under(ctx, scope, node.cond, False), node.orelse)
    try:
        return arith.choose(cond, then, orelse, node.span)
    except CompileError as problem:
        raise at_operands(problem, scope, "if", node.span, (node.then.span, then), (node.orelse.span, orelse)) from None


def _let(ctx: Context, scope: Scope, node: sx.LetIn) -> Value:
    no_shadowing(scope, node.name, node.span, "name")
    bound = value(ctx, scope, node.value)
    return bind_once(ctx, scope, {node.name: bound}, {node.name: uses(node.body, node.name)}, node.body, node.span)


__all__ = ["value"]
