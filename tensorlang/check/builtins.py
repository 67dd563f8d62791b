"""Functions of the language itself: of packs and indices, folds, elementary functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

from codegen.dtypes import DTYPES, DType, bool_, called_dtype, compute_dtype, f32, f64, nearest_tf32, u32, u64
from tensorlang.check import arith, typed
from tensorlang.check.problems import error
from tensorlang.check.reads import index_in_bounds, refined
from tensorlang.check.reduction import type_named
from tensorlang.check.runs import Run
from tensorlang.check.scope import Context, Copies, Scope, expand, unbound
from tensorlang.check.suggest import at_operands, binder_as_argument, fold_of_a_tensor, fold_of_element, written
from tensorlang.check.types import ARITY, BITS, CASTS, ELEMENTARY, FOLDS, holding
from tensorlang.check.values import Choice, Cnd, Idx, Limit, Num, Packed, Tensor, Val, Value
from tensorlang.diagnostics import CompileError, Span
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir


def arguments(ctx: Context, scope: Scope, node: sx.Apply, count: int | None) -> list[Value]:
    """Return the values of the arguments of a call. Raises T0129 unless there are `count` (None: any number)."""
    for argument in node.args:
        if isinstance(argument, sx.Keyword):
            over = argument.name in ("axis", "axes", "dim", "keepdims") and node.name in FOLDS
            help = f"a reduction names the indices that it runs over: `{node.name}(k) x[…, k]`" if over else "give it by position"
            raise error("T0129", f"`{node.name}` takes no named arguments", argument.span, "here", help=help)
    out = [ctx.value(at, item) for item, at in expand(scope, node.args)]
    if count is not None and len(out) != count:
        raise error(
            "T0129",
            f"`{node.name}` takes {count} argument{'s' * (count != 1)} and is given {len(out)}",
            node.span,
            "called here",
            help=f"give exactly {count}",
        )
    return out


def builtin(ctx: Context, scope: Scope, name: str, node: sx.Apply) -> Value:
    """Return the value of a call of one of `BUILTINS`."""
    try:
        return _called(ctx, scope, name, node)
    except CompileError as problem:
        if problem.diagnostics[0].code not in ("T0110", "T0112", "T0116") or any(isinstance(a, sx.Pack | sx.Keyword) for a in node.args):
            raise
        raise at_operands(problem, scope, name, node.span, *((a.span, ctx.value(scope, a)) for a in node.args)) from None


def _called(ctx: Context, scope: Scope, name: str, node: sx.Apply) -> Value:
    if name in ("rank", "pos", "before"):
        return _pack_word(ctx, scope, name, node)
    if name in CASTS:
        return _cast(ctx, scope, name, node)
    if name == "width":
        return _width(ctx, scope, node)
    if name in FOLDS:
        if (binder := binder_as_argument(node, scope)) is not None:
            raise binder
        given = arguments(ctx, scope, node, None)
        if len(given) == len(node.args) == 1 and isinstance(given[0], Tensor) and given[0].dims:
            raise fold_of_a_tensor(node, given[0], scope)
        if len(given) == len(node.args) == 1 and not isinstance(node.args[0], sx.Pack):
            raise fold_of_element(node, scope)
        return _fold(ctx, name, given, node.span)
    if name in ELEMENTARY:
        return _elementary(name, arguments(ctx, scope, node, ARITY.get(name, 1)), node.span)
    if name in BITS:
        a, b = arguments(ctx, scope, node, 2)
        return refined(scope, arith.binary(name, a, b, node.span))
    match name:
        case "abs":
            return _abs(arguments(ctx, scope, node, 1)[0], node.span)
        case "bitnot":
            return _bitnot(arguments(ctx, scope, node, 1)[0], node.span)
        case "bits":
            return _bits(arguments(ctx, scope, node, 1)[0], node.span)
        case "from_bits":
            return _from_bits(arguments(ctx, scope, node, 1)[0], node.span)
        case "clamp":
            x, lo, hi = arguments(ctx, scope, node, 3)
            return arith.binary("min", arith.binary("max", x, lo, node.span), hi, node.span)
        case "wrap" | "reflect":
            at, extent = arguments(ctx, scope, node, 2)
            return _brought_in(ctx, name, at, extent, node.span)
        case _:
            return _linear(arguments(ctx, scope, node, None), node.span)


def _cast(ctx: Context, scope: Scope, name: str, node: sx.Apply) -> Value:
    """Return a value in the type that is named, saturated, or in the type that this one is computed in."""
    (argument,) = arguments(ctx, scope, node, 1)
    if len(node.slots) != 1:
        what, example = ("to saturate to", "sat[i8](x)") if name == "sat" else ("that is computed with", "wide[T](x)")
        raise error("T0129", f"`{name}` needs the type {what}", node.span, "here", help=f"`{example}`")
    named = type_named(ctx, scope, node.slots[0])
    return arith.cast(argument, named if name == "sat" else compute_dtype(named), node.span, saturate=name == "sat")


def _width(ctx: Context, scope: Scope, node: sx.Apply) -> Value:
    """Return how many bits an element of a type has."""
    named = node.args[0] if len(node.args) == 1 else None
    if not isinstance(named, sx.Id):
        raise error("T0129", "`width` takes the name of a type", node.span, "here", help="`width(T)`")
    return Num(type_named(ctx, scope, named).bits)


def _brought_in(ctx: Context, name: str, at: Value, extent: Value, span: Span) -> Value:
    if isinstance(at, Num):
        at = Idx(typed.whole(at.value, span), True)
    if isinstance(extent, Num):
        extent = Idx(typed.whole(extent.value, span), True)
    if not isinstance(at, Idx | Val) or not isinstance(extent, Idx):
        raise error("T0119", f"`{name}(i, n)` takes an index and a size", span, "here", help=f"`x[{name}(i + 1, N)]`")
    return index_in_bounds(ctx, at, extent.expr, name, span)


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


def _round_tf32(x: float) -> float:
    import numpy as np

    return float(nearest_tf32(np.asarray(x, np.float32)))


_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp, "sqrt": math.sqrt, "log": math.log, "log2": math.log2, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "tanh": math.tanh, "erf": math.erf, "floor": math.floor, "ceil": math.ceil, "round": round, "trunc": math.trunc, "log1p": math.log1p,
    "expm1": math.expm1, "round_tf32": _round_tf32,
}  # fmt: skip


def _of_floats(name: str, dtype: DType, span: Span) -> str:
    """Return what to write where a function of floats is given integers."""
    inner = written(span)[len(name) + 1 : -1] if span.end and written(span).startswith(f"{name}(") else ""
    inner = inner if inner and ARITY.get(name, 1) == 1 else "…"
    if holding(dtype, f32) == f32:
        return f"cast the argument: `{name}(f32({inner}))`"
    return f"cast the argument: `{name}(f32({inner}))`, which may round, or `{name}(f64({inner}))`"


def _elementary(name: str, items: list[Value], span: Span) -> Value:
    if all(isinstance(v, Num) for v in items):
        return _known_elementary(name, [v.value for v in items if isinstance(v, Num)], span)
    dtype = typed.dtype_of(items[0])
    for item in items[1:]:
        dtype = arith.common_type(items[0], item, span)
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
            help=_of_floats(name, dtype, span),
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


def _bits(argument: Value, span: Span) -> Value:
    """Return the bits of a number as an unsigned integer of its width; narrow floats are computed in f32."""
    dtype = typed.dtype_of(argument)
    if dtype is None:
        raise error("T0117", "`bits` of a number without a type", span, "which type?", help="cast it: `bits(f32(…))`")
    if dtype.is_integer:
        return arith.cast(argument, DTYPES[f"u{dtype.bits}"], span)
    if not dtype.is_float:
        raise arith.undefined("bits", f"`{dtype}`", span)
    wide = compute_dtype(dtype)
    return Val(ir.Call("bits", (typed.coerce(argument, dtype, span),), span=span), called_dtype("bits", wide))


def _from_bits(argument: Value, span: Span) -> Value:
    """Return the float whose bits are those of an unsigned integer."""
    dtype = typed.dtype_of(argument)
    if dtype is None:
        raise error("T0117", "`from_bits` of a number without a type", span, "which type?", help="cast it: `from_bits(u32(…))`")
    if dtype not in (u32, u64):
        raise arith.undefined("from_bits", f"`{dtype}`", span)
    return Val(ir.Call("from_bits", (typed.coerce(argument, dtype, span),), span=span), called_dtype("from_bits", dtype))


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
