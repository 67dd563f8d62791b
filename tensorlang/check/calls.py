"""Calls inside of expressions: casts, functions, which are written out, and functions of the language itself."""

from __future__ import annotations

import re
from dataclasses import replace

from codegen.dtypes import DTYPES, DType
from tensorlang.check import arith, typed
from tensorlang.check.builtins import arguments, builtin
from tensorlang.check.lets import bind_once
from tensorlang.check.module import Module, unknown_type
from tensorlang.check.problems import error, uncallable, used_at
from tensorlang.check.scope import Context, Scope
from tensorlang.check.suggest import written
from tensorlang.check.types import BUILTINS, belongs
from tensorlang.check.values import Cnd, Fn, Idx, Num, Tensor, Tup, Val, Value
from tensorlang.check.walk import uses
from tensorlang.diagnostics import Edit, Span
from tensorlang.syntax import nodes as sx


def apply(ctx: Context, scope: Scope, node: sx.Apply) -> Value:
    """Return the value of a call. Raises T0101, T0127 to T0129, T0136 and T0156."""
    name = node.name
    found = scope.values.get(name)
    if isinstance(found, Fn):
        return _call(ctx, scope, found.name, node, found.module)
    if name in ctx.dtypes or (name in DTYPES and name not in ctx.module.functions):
        (argument,) = arguments(ctx, scope, node, 1)
        return arith.cast(argument, ctx.dtypes.get(name) or DTYPES[name], node.span)
    if name in ctx.open_types:
        (argument,) = arguments(ctx, scope, node, 1)
        return argument if isinstance(argument, Num) else Val(typed.coerce(argument, None, node.span), None)
    if found is not None:
        if isinstance(found, Tensor):
            inside = written(node.span)[len(name) + 1 : -1] if node.args else "…"
            opened = Span(node.span.source, node.span.start + len(name), node.span.start + len(name) + 1)
            closed = Span(node.span.source, node.span.end - 1, node.span.end)
            edits = (Edit(opened, "["), Edit(closed, "]")) if node.args and written(opened) == "(" else ()
            help = f"indices stand in square brackets: `{name}[{inside}]`"
            raise error("T0127", f"`{name}` is a tensor, not a function", node.span, "called here", help=help, edits=edits)
        raise error("T0127", f"`{name}` is not a function", node.span, "called here", help="write `*` for a product")
    return _call(ctx, scope, name, node, ctx.module)


def _call(ctx: Context, scope: Scope, name: str, node: sx.Apply, module: Module) -> Value:
    """Return what a call gives of what `module` calls `name`."""
    if name in module.functions:
        return _inlined(ctx, scope, module.functions[name], node, module.defining_module(name))
    if name in BUILTINS:
        return builtin(ctx, scope, name, node)
    if name in module.operators:
        raise error(
            "T0128",
            f"`{name}` is an operator, and operators work on whole tensors",
            node.span,
            "called inside an expression",
            help=_called_apart(name, node),
        )
    known = [*module.functions, *module.operators, *BUILTINS, *DTYPES]
    tensors = {n for n, v in {**ctx.tensors, **scope.values}.items() if isinstance(v, Tensor)}
    raise uncallable(name, node.span, known, module.reducers, tensors=tensors)


def _called_apart(name: str, node: sx.Apply) -> str:
    """Return how an operator is called that stands in an expression: with whole tensors, in an equation of its own."""
    reads = [argument for argument in node.args if isinstance(argument, sx.Index)]
    if len(reads) != len(node.args) or not reads or not all(read.span.end for read in reads):
        return f"call it in an equation of its own: `t = {name}(…)`, then read `t[…]`"
    whole = ", ".join(read.name for read in reads)
    return f"call it in an equation of its own: `t = {name}({whole})`, then read `t{written(reads[0].span)[len(reads[0].name) :]}`"


WRITTEN_OUT = 4096
"""How many calls of functions an operator may come to, which takes about a second."""


def _inlined(ctx: Context, scope: Scope, function: sx.ScalarFunction, node: sx.Apply, defining: Module) -> Value:
    if next(ctx.written_out) > WRITTEN_OUT:
        raise error(
            "T0156",
            f"`{ctx.operator.name}` calls functions that call functions, more than {WRITTEN_OUT} in all",
            node.span,
            "this call is one too many",
            help="functions are written out where they are called: define a tensor for a part that is needed more than once",
        )
    given = arguments(ctx, scope, node, None)
    if len(given) != len(function.params):
        raise error(
            "T0129",
            f"`{function.name}` takes {len(function.params)} argument{'s' * (len(function.params) != 1)} and is given {len(given)}",
            node.span,
            "called here",
            help=f"it is declared as `fn {function.name}({', '.join(n for n, _ in function.params)})`",
        )
    dtypes = _parameter_types(ctx, function, given, node.span)
    open_types = frozenset(g.name for g in function.generics if g.name not in dtypes) if any(map(_inferring, given)) else frozenset()
    inner = replace(ctx, module=defining, dtypes=dtypes, open_types=open_types, local_names=frozenset(), tensors={})
    names: dict[str, Value] = {}
    for (name, type_), argument in zip(function.params, given, strict=True):
        names[name] = _typed(argument, type_, dtypes, function, node.span)
    counts = {name: uses(function.value, name) for name, _ in function.params}
    inside = replace(scope, values={}, positions={}, copies=None, indexing=False)
    with used_at(node.span, function.span, "in this call"):
        return bind_once(inner, inside, names, counts, function.value, node.span)


def _written_type(function: sx.ScalarFunction, type_: str) -> Span:
    """Return where the parameters of a function say a type."""
    span = function.span
    found = re.search(rf":\s*({re.escape(type_)})\b", span.source.text[span.start : span.end])
    return span if found is None else Span(span.source, span.start + found.start(1), span.start + found.end(1))


def _inferring(argument: Value) -> bool:
    """Tell whether a value comes from a tensor whose type is being inferred."""
    return isinstance(argument, Val) and argument.dtype is None


def _parameter_types(ctx: Context, function: sx.ScalarFunction, given: list[Value], span: Span) -> dict[str, DType]:
    """Return what the generics of a function stand for in this call."""
    bounds = {g.name: g.bound for g in function.generics}
    out: dict[str, DType] = {}
    for (_, type_), argument in zip(function.params, given, strict=True):
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
        raise unknown_type(type_, _written_type(function, type_), DTYPES, f"fn {function.name}")
    own = typed.dtype_of(argument)
    if own is not None and own != dtype:
        raise error(
            "T0136", f"`{function.name}` takes `{dtype}`, and this is `{own}`", span, "called here", help=f"cast the argument: `{dtype}(…)`"
        )
    if isinstance(argument, Val | Idx | Cnd | Tup):
        return argument
    return Val(typed.coerce(argument, dtype, span), dtype)
