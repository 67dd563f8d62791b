"""Scalar expressions: from the syntax tree to typed tensor-IR expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from codegen.dtypes import DTYPES, DType, bool_, f32, f64, nearest_tf32
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import arith, bounds, typed
from tensorlang.check.module import Module
from tensorlang.check.problems import did_you_mean, error, uncallable, used_at
from tensorlang.check.reads import bring_in, element, find_tensor, read, refine
from tensorlang.check.reduction import condition, reduction, type_named
from tensorlang.check.runs import Run, joined
from tensorlang.check.scope import Context, Copies, Scope, expand, no_shadowing, unbound
from tensorlang.check.types import ARITY, BITS, BUILTINS, CONSTANTS, ELEMENTARY, FOLDS, LIMITS, PASSABLE, belongs, holding
from tensorlang.check.values import Choice, Cnd, Fn, Idx, Limit, Num, Packed, Str, Tensor, Tup, Val, Value
from tensorlang.check.walk import is_used_lazily, uses
from tensorlang.diagnostics import Span
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.depth import is_deep
from tensorlang.tensor.walk import children, refresh, value_names


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
            return _apply(ctx, scope, node)
        case sx.Reduction():
            return reduction(ctx, scope, node)
        case sx.Unary("-", inner):
            return arith.minus(value(ctx, scope, inner), node.span)
        case sx.Unary("not", inner):
            return arith.negation(value(ctx, scope, inner), node.span)
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
    a = value(ctx, scope, lhs)
    if op in ("and", "or"):
        known = typed.truth(a, span)
        if isinstance(known, bool) and known == (op == "or"):
            return Num(known)
        return arith.logic(op, a, value(ctx, _under(ctx, scope, lhs, op == "and"), rhs), span)
    return arith.binary(op, a, value(ctx, scope, rhs), span)


def _chain(ctx: Context, scope: Scope, node: sx.Chain) -> Value:
    """Return what operators one after the other come to, as `_binary` would of two at a time."""
    if node.rest[0].op in ("and", "or"):
        return _junction(ctx, scope, node.rest[0].op, (node.first, *(link.rhs for link in node.rest)), node.span)
    out, run = value(ctx, scope, node.first), Run(ctx.names, node.span)
    for link in node.rest:
        out = arith.binary(link.op, run.named(out), value(ctx, scope, link.rhs), link.span)
    return run.whole(out)


def _junction(ctx: Context, scope: Scope, op: str, conds: Sequence[sx.Node], span: Span) -> Value:
    """Return many conditions joined by `and` or `or`, those on the left of one another decided first."""
    found: list[Value] = []
    for cond in conds:
        found.append(value(ctx, scope, cond))
        known = typed.truth(found[-1], cond.span)
        if isinstance(known, bool) and known == (op == "or"):
            break
        scope = _under(ctx, scope, cond, op == "and")
    return joined(lambda a, b: arith.logic(op, a, b, span), found)


def _compare(ctx: Context, scope: Scope, node: sx.Compare) -> Value:
    items = [value(ctx, scope, item) for item in node.items]
    out: Value = Num(True)
    for op, a, b in zip(node.ops, items, items[1:], strict=False):
        out = arith.logic("and", out, arith.compare(op, a, b, node.span), node.span)
    return out


def _if(ctx: Context, scope: Scope, node: sx.IfElse) -> Value:
    cond = value(ctx, scope, node.cond)
    known = typed.truth(cond, node.cond.span)
    if isinstance(known, bool):
        return value(ctx, scope, node.then if known else node.orelse)
    then = value(ctx, _under(ctx, scope, node.cond, True), node.then)
    orelse = value(ctx, _under(ctx, scope, node.cond, False), node.orelse)
    return arith.choose(cond, then, orelse, node.span)


def _under(ctx: Context, scope: Scope, cond: sx.Node, holds: bool) -> Scope:
    """Return the scope where `cond` holds (or does not), knowing what it says of integer values."""
    facts = dict(scope.refined)
    for op, a, b in _facts(ctx, scope, cond, holds):
        for op_, x, y in ((op, a, b), (_FLIPPED[op], b, a)):
            if isinstance(x, Val) and isinstance(y, Num | Idx):
                lo, hi = facts.get(x.expr, (x.lo, x.hi))
                facts[x.expr] = _narrowed(op_, lo, hi, arith.interval(y)[0], scope.ranges)
    return replace(scope, refined=facts)


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "!=": "=="}


def _facts(ctx: Context, scope: Scope, cond: sx.Node, holds: bool) -> list[tuple[str, Value, Value]]:
    match cond:
        case sx.Binary("and", lhs, rhs) if holds:
            return _facts(ctx, scope, lhs, True) + _facts(ctx, scope, rhs, True)
        case sx.Binary("or", lhs, rhs) if not holds:
            return _facts(ctx, scope, lhs, False) + _facts(ctx, scope, rhs, False)
        case sx.Chain(first, rest) if rest[0].op == ("and" if holds else "or"):
            return [fact for part in (first, *(link.rhs for link in rest)) for fact in _facts(ctx, scope, part, holds)]
        case sx.Unary("not", inner):
            return _facts(ctx, scope, inner, not holds)
        case sx.Member(inner, sx.Range(lo, hi)):
            return _facts(ctx, scope, sx.Compare((lo, inner, hi), ("<=", "<"), span=cond.span), holds)
        case sx.Compare(items, ops) if holds or len(ops) == 1:
            if any(isinstance(item, sx.Reduction | sx.Apply) for item in items):
                return []
            values = [value(ctx, scope, item) for item in items]
            said = [op if holds else _NEGATED.get(op, "") for op in ops]
            return [(op, a, b) for op, a, b in zip(said, values, values[1:], strict=False) if op in _FLIPPED]
        case _:
            return []


def _narrowed(
    op: str, lo: px.Expr | None, hi: px.Expr | None, y: px.Expr | None, ranges: bounds.Ranges
) -> tuple[px.Expr | None, px.Expr | None]:
    """Return the interval [lo, hi) cut by `value op y`; `ranges` are those of indices."""
    if y is None:
        return lo, hi
    after = affine.add(y, affine.ONE)
    match op:
        case "<":
            return lo, _lesser(hi, y, ranges)
        case "<=":
            return lo, _lesser(hi, after, ranges)
        case ">":
            return _greater(lo, after, ranges), hi
        case ">=":
            return _greater(lo, y, ranges), hi
        case _:
            return _greater(lo, y, ranges), _lesser(hi, after, ranges)


def _greater(known: px.Expr | None, said: px.Expr, ranges: bounds.Ranges) -> px.Expr:
    return said if known is None else bounds.larger(known, said, ranges)


def _lesser(known: px.Expr | None, said: px.Expr, ranges: bounds.Ranges) -> px.Expr:
    return said if known is None else bounds.smaller(known, said, ranges)


def _let(ctx: Context, scope: Scope, node: sx.LetIn) -> Value:
    no_shadowing(scope, node.name, node.span, "name")
    bound = value(ctx, scope, node.value)
    return bind_once(ctx, scope, {node.name: bound}, {node.name: uses(node.body, node.name)}, node.body, node.span)


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
    out = value(ctx, scope.bind(bound), body)
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


# ---------------------------------------------------------------- calls


def _apply(ctx: Context, scope: Scope, node: sx.Apply) -> Value:
    name = node.name
    found = scope.values.get(name)
    if isinstance(found, Fn):
        return _call(ctx, scope, found.name, node, found.module)
    if name in ctx.dtypes or (name in DTYPES and name not in ctx.module.functions):
        (argument,) = _arguments(ctx, scope, node, 1)
        return arith.cast(argument, ctx.dtypes.get(name) or DTYPES[name], node.span)
    if name in ctx.open_types:
        (argument,) = _arguments(ctx, scope, node, 1)
        return argument if isinstance(argument, Num) else Val(typed.coerce(argument, None, node.span), None)
    if found is not None:
        raise error(
            "T0127",
            f"`{name}` is not a function",
            node.span,
            "called here",
            help=f"index it: `{name}[…]`" if isinstance(found, Tensor) else "write `*` for a product",
        )
    return _call(ctx, scope, name, node, ctx.module)


def _call(ctx: Context, scope: Scope, name: str, node: sx.Apply, module: Module) -> Value:
    """Return what a call gives of what `module` calls `name`."""
    if name in module.functions:
        return _inlined(ctx, scope, module.functions[name], node, module.home(name))
    if name in BUILTINS:
        return _builtin(ctx, scope, name, node)
    if name in module.operators:
        raise error(
            "T0128",
            f"`{name}` is an operator, and operators work on whole tensors",
            node.span,
            "called inside an expression",
            help=f"call it in an equation of its own: `t = {name}(…)`, then read `t[…]`",
        )
    known = [*module.functions, *module.operators, *BUILTINS, *DTYPES]
    raise uncallable(name, node.span, known, module.reducers)


def _arguments(ctx: Context, scope: Scope, node: sx.Apply, count: int | None) -> list[Value]:
    for argument in node.args:
        if isinstance(argument, sx.Keyword):
            raise error("T0129", f"`{node.name}` takes no named arguments", argument.span, "here", help="give it by position")
    out = [value(ctx, at, item) for item, at in expand(scope, node.args)]
    if count is not None and len(out) != count:
        raise error(
            "T0129",
            f"`{node.name}` takes {count} argument{'s' * (count != 1)} and is given {len(out)}",
            node.span,
            "called here",
            help=f"give exactly {count}",
        )
    return out


WRITTEN_OUT = 4096
"""How many calls of functions an operator may come to, which takes about a second."""


def _inlined(ctx: Context, scope: Scope, function: sx.ScalarFunction, node: sx.Apply, home: Module) -> Value:
    if next(ctx.written_out) > WRITTEN_OUT:
        raise error(
            "T0156",
            f"`{ctx.operator.name}` calls functions that call functions, more than {WRITTEN_OUT} in all",
            node.span,
            "this call is one too many",
            help="functions are written out where they are called: define a tensor for a part that is needed more than once",
        )
    arguments = _arguments(ctx, scope, node, None)
    if len(arguments) != len(function.params):
        raise error(
            "T0129",
            f"`{function.name}` takes {len(function.params)} argument{'s' * (len(function.params) != 1)} and is given {len(arguments)}",
            node.span,
            "called here",
            help=f"it is declared as `fn {function.name}({', '.join(n for n, _ in function.params)})`",
        )
    dtypes = _parameter_types(ctx, function, arguments, node.span)
    open_types = frozenset(g.name for g in function.generics if g.name not in dtypes) if any(map(_inferring, arguments)) else frozenset()
    inner = replace(ctx, module=home, dtypes=dtypes, open_types=open_types, local_names=frozenset(), tensors={})
    names: dict[str, Value] = {}
    for (name, type_), argument in zip(function.params, arguments, strict=True):
        names[name] = _typed(argument, type_, dtypes, function, node.span)
    counts = {name: uses(function.value, name) for name, _ in function.params}
    inside = replace(scope, values={}, positions={}, copies=None, indexing=False)
    with used_at(node.span, function.span, "in this call"):
        return bind_once(inner, inside, names, counts, function.value, node.span)


def _inferring(argument: Value) -> bool:
    """Tell whether a value comes from a tensor whose type is being inferred."""
    return isinstance(argument, Val) and argument.dtype is None


def _parameter_types(ctx: Context, function: sx.ScalarFunction, arguments: list[Value], span: Span) -> dict[str, DType]:
    """Return what the generics of a function stand for in this call."""
    bounds = {g.name: g.bound for g in function.generics}
    out: dict[str, DType] = {}
    for (_, type_), argument in zip(function.params, arguments, strict=True):
        dtype = typed.dtype_of(argument)
        if type_ in bounds and dtype is not None:
            if not belongs(dtype, bounds[type_]):
                raise error(
                    "T0136",
                    f"`{function.name}` takes `{bounds[type_]}`, and this is `{dtype}`",
                    span,
                    "called here",
                    help="cast the argument",
                )
            if out.setdefault(type_, dtype) != dtype:
                raise typed.mixed(out[type_], dtype, span)
    return out


def _typed(argument: Value, type_: str | None, dtypes: dict[str, DType], function: sx.ScalarFunction, span: Span) -> Value:
    if type_ is None:
        return argument
    dtype = dtypes.get(type_) or DTYPES.get(type_)
    if dtype is None:
        if any(g.name == type_ for g in function.generics):
            return argument
        raise error(
            "T0104",
            f"there is no element type `{type_}`",
            function.span,
            f"parameter type of `{function.name}`",
            help=did_you_mean(type_, DTYPES, f"declare it: `fn {function.name}[{type_}](…)`"),
        )
    own = typed.dtype_of(argument)
    if own is not None and own != dtype:
        raise error(
            "T0136", f"`{function.name}` takes `{dtype}`, and this is `{own}`", span, "called here", help=f"cast the argument: `{dtype}(…)`"
        )
    if isinstance(argument, Val | Idx | Cnd | Tup):
        return argument
    return Val(typed.coerce(argument, dtype, span), dtype)


# ---------------------------------------------------------------- functions of the language itself


def _builtin(ctx: Context, scope: Scope, name: str, node: sx.Apply) -> Value:
    if name in ("rank", "pos", "before"):
        return _pack_word(ctx, scope, name, node)
    if name == "sat":
        (argument,) = _arguments(ctx, scope, node, 1)
        if len(node.slots) != 1:
            raise error("T0129", "`sat` needs the type to saturate to", node.span, "here", help="`sat[i8](x)`")
        return arith.cast(argument, type_named(ctx, scope, node.slots[0]), node.span, saturate=True)
    if name in FOLDS:
        return _fold(ctx, name, _arguments(ctx, scope, node, None), node.span)
    if name in ELEMENTARY:
        return _elementary(name, _arguments(ctx, scope, node, ARITY.get(name, 1)), node.span)
    if name in BITS:
        a, b = _arguments(ctx, scope, node, 2)
        return arith.binary(name, a, b, node.span)
    match name:
        case "abs":
            return _abs(_arguments(ctx, scope, node, 1)[0], node.span)
        case "bitnot":
            return _bitnot(_arguments(ctx, scope, node, 1)[0], node.span)
        case "clamp":
            x, lo, hi = _arguments(ctx, scope, node, 3)
            return arith.binary("min", arith.binary("max", x, lo, node.span), hi, node.span)
        case "wrap" | "reflect":
            at, extent = _arguments(ctx, scope, node, 2)
            return _brought_in(ctx, name, at, extent, node.span)
        case _:
            return _linear(_arguments(ctx, scope, node, None), node.span)


def _brought_in(ctx: Context, name: str, at: Value, extent: Value, span: Span) -> Value:
    if isinstance(at, Num):
        at = Idx(typed.whole(at.value, span), True)
    if isinstance(extent, Num):
        extent = Idx(typed.whole(extent.value, span), True)
    if not isinstance(at, Idx | Val) or not isinstance(extent, Idx):
        raise error("T0119", f"`{name}(i, n)` takes an index and a size", span, "here", help=f"`x[{name}(i + 1, N)]`")
    return bring_in(ctx, at, extent.expr, name, span)


def _fold(ctx: Context, name: str, items: list[Value], span: Span) -> Value:
    empty = {"sum": Num(0), "prod": Num(1)}
    if not items:
        if name in empty:
            return empty[name]
        raise error("T0129", f"`{name}` of nothing has no value", span, "no arguments", help="give at least one")
    op = {"sum": "+", "prod": "*"}.get(name, name)
    out, run = items[0], Run(ctx.names, span)
    for item in items[1:]:
        out = arith.binary(op, run.named(out), item, span)
    return run.whole(out)


def _linear(items: list[Value], span: Span) -> Value:
    """Return the row-major position: `linear(i.., N..)`."""
    if len(items) % 2:
        raise error("T0129", "`linear` takes as many sizes as indices", span, f"{len(items)} arguments", help="`linear(i.., N..)`")
    half = len(items) // 2
    out: Value = Num(0)
    for index, size in zip(items[:half], items[half:], strict=True):
        out = arith.binary("+", arith.binary("*", out, size, span), index, span)
    return out


def _pack_word(ctx: Context, scope: Scope, name: str, node: sx.Apply) -> Value:
    argument = node.args[0] if len(node.args) == 1 else None
    if isinstance(argument, sx.Pack):
        argument = argument.value
    if not isinstance(argument, sx.Id):
        raise error("T0129", f"`{name}` takes the name of a pack", node.span, "here", help=f"`{name}(D)`")
    if name == "before":
        if scope.copies is None or argument.name not in scope.copies.packs:
            raise error(
                "T0137",
                f"`before({argument.name})` needs `for each` around it",
                node.span,
                "no copies here",
                help=f"`y[before({argument.name}) + j] = x[j]   for each x`",
            )
        return _before(scope.copies, argument.name, node.span)
    if name == "pos":
        if argument.name not in scope.positions:
            raise error(
                "T0137",
                f"`pos({argument.name})` needs an expansion of `{argument.name}` around it",
                node.span,
                "no position here",
                help=f"`(… pos({argument.name}) …)..`",
            )
        return Num(scope.positions[argument.name])
    pack = scope.values.get(argument.name)
    if isinstance(pack, Packed):
        return Num(len(pack.items))
    if isinstance(pack, Tensor):
        return Num(len(pack.dims))
    if argument.name in scope.positions or pack is not None:
        raise error("T0137", f"`rank({argument.name})` needs a pack or a tensor", node.span, "here", help="ask outside the expansion")
    raise unbound(argument.name, scope, node.span)


def _before(copies: Copies, name: str, span: Span) -> Value:
    """Return the sum of the sizes of a pack before the position."""
    items, sums = copies.packs[name].items, copies.sums.setdefault(name, [Num(0)])
    while len(sums) <= copies.position:
        sums.append(arith.binary("+", sums[-1], items[len(sums) - 1], span) if len(sums) > 1 else items[0])
    return sums[copies.position]


_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp, "sqrt": math.sqrt, "log": math.log, "log2": math.log2, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "tanh": math.tanh, "erf": math.erf, "floor": math.floor, "ceil": math.ceil, "round": round, "trunc": math.trunc, "log1p": math.log1p,
    "expm1": math.expm1, "round_tf32": lambda x: float(nearest_tf32(np.asarray(x, np.float32))),
}  # fmt: skip


def _elementary(name: str, items: list[Value], span: Span) -> Value:
    if all(isinstance(v, Num) for v in items):
        return _known_elementary(name, [v.value for v in items if isinstance(v, Num)], span)
    dtype = typed.dtype_of(items[0])
    for item in items[1:]:
        dtype = arith.meeting_type(items[0], item, span)
    if any(isinstance(v, Idx) for v in items):
        raise error(
            "T0112", f"`{name}` is a function of floats, and an index is an `i64`", span, "called here", help=f"cast it: `{name}(f32(i))`"
        )
    if all(isinstance(v, Num | Limit | Choice) for v in items):
        raise error("T0117", "this has no type: only numbers meet here", span, "which type?", help="cast one: `f32(…)`")
    if dtype is not None and not dtype.is_float:
        raise error(
            "T0114",
            f"`{name}` is not defined for `{dtype}`",
            span,
            "a function of floats",
            help=f"cast the argument: `{name}({holding(dtype, f32) or f64}(…))`",
        )
    if name == "round_tf32" and dtype == f64:
        help = f"cast the argument: `{name}(f32(…))`"
        raise error("T0114", f"`{name}` is not defined for `{dtype}`", span, "a function of f32", help=help)
    call = ir.Call(name, tuple(typed.coerce(v, dtype, span) for v in items), span=span)
    return Val(call, bool_ if name in ("isnan", "isinf") else dtype)


def _known_elementary(name: str, numbers: list[int | float | bool], span: Span) -> Value:
    try:
        if name == "pow":
            return Num(math.pow(numbers[0], numbers[1]))
        if name in _FUNCTIONS:
            return Num(_FUNCTIONS[name](numbers[0]))
    except (ValueError, OverflowError, ZeroDivisionError, TypeError):
        raise error(
            "T0118", f"`{name}` of {', '.join(map(str, numbers))} is no number", span, "outside its domain", help="change the argument"
        ) from None
    dtype = f64
    call = ir.Call(name, tuple(ir.Const(float(n), f64, span=span) for n in numbers), span=span)
    return Val(call, bool_ if name in ("isnan", "isinf") else dtype)


def _abs(argument: Value, span: Span) -> Value:
    match argument:
        case Num(number):
            return Num(abs(number))
        case Idx():
            return arith.binary("max", argument, arith.minus(argument, span), span)
        case Val(expr, dtype) if dtype != bool_:
            return Val(ir.Unary("abs", expr, span=span), dtype)
        case Choice(cond, then, orelse):
            return Choice(cond, _abs(then, span), _abs(orelse, span))
        case Val() | Cnd():
            raise arith.undefined("abs", "`bool`", span)
        case _:
            raise typed.not_scalar(argument, span)


def _bitnot(argument: Value, span: Span) -> Value:
    match argument:
        case Num(number) if isinstance(number, int):
            return Num(~number)
        case Val(expr, dtype) if dtype is None or dtype.is_integer:
            return Val(ir.Unary("bitnot", expr, span=span), dtype)
        case Idx(expr):
            return Val(ir.Unary("bitnot", ir.IndexValue(expr, span=span), span=span), typed.dtype_of(argument))
        case _:
            raise arith.undefined("bitnot", f"`{typed.dtype_of(argument) or 'this'}`", span)


__all__ = ["value"]
