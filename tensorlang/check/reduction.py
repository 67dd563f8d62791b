"""Reductions: binders and their ranges, conditions, the reducer made concrete for its types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegen.dtypes import DTYPES, DType, bool_, compute_dtype, f32
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import arith, typed
from tensorlang.check.assumed import under
from tensorlang.check.module import prelude
from tensorlang.check.problems import NeedsStatic, did_you_mean, error, labelled, used_at
from tensorlang.check.ranges import agreed, bound_names, near_size, places
from tensorlang.check.reducers import components_apart, make_reducer
from tensorlang.check.scope import Context, Scope, expand_pack, no_shadowing
from tensorlang.check.suggest import written
from tensorlang.check.values import Cnd, Idx, Num, Packed, Tup, Val, Value
from tensorlang.check.walk import descendants, uses
from tensorlang.diagnostics import Span
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.walk import refresh


@dataclass(frozen=True, slots=True)
class Binders:
    """What the parentheses of a reduction say."""

    scope: Scope
    binders: tuple[ir.Binder, ...]
    conditions: tuple[sx.Node, ...]
    init: sx.Node | None


def reduction(ctx: Context, scope: Scope, node: sx.Reduction) -> Value:
    """Return the value of `R[acc](binders) body`: one component, several, or what the reducer yields."""
    reducer = ctx.module.reducers[node.reducer]
    parts = _binders(ctx, scope, node)
    inside, where, filters = _conditions(ctx, replace(parts.scope, indexing=False), parts.conditions)
    skips: list[Value] = []
    body = ctx.value(replace(inside, skips=skips), node.body)
    for skip in skips:
        where, filters = _add(skip, where, filters, node.span)
    filter_ = None
    for condition in filters:
        filter_ = condition if filter_ is None else ir.Binary("and", filter_, condition, span=node.span)
    init = None if parts.init is None else ctx.value(replace(scope, indexing=False), parts.init)
    _check_summands(node, reducer, body)
    note = f"what is reduced ends with its product: anything more stands in parentheses, `{node.reducer}(…) (…)`"
    with used_at(node.span, reducer.span, "in this reduction", note):
        there = replace(ctx, module=ctx.module.reducer_module(node.reducer))
        return _reduced(there, scope, node, reducer, Terms(parts, body, init, where, filter_))


@dataclass(frozen=True, slots=True)
class Terms:
    parts: Binders
    body: Value
    init: Value | None
    where: px.Cond
    filter: ir.Expr | None


def _reduced(ctx: Context, scope: Scope, node: sx.Reduction, reducer: sx.Reducer, terms: Terms) -> Value:
    if isinstance(terms.body, Tup) and (len(reducer.left) == 1 or reducer.lift is not None):
        return _componentwise(ctx, scope, node, reducer, terms)
    lifted = _lift(ctx, reducer, terms.body, _position(terms.parts.binders, node.span), node.span)
    init = None if terms.init is None else _lift(ctx, reducer, terms.init, Num(0), node.span)
    langs = _component_types(ctx, scope, node, reducer, terms.body, lifted)
    named = _accumulators(ctx, scope, node, langs)
    accs = tuple(map(compute_dtype, named))
    body = tuple(_accumulated(v, lang, acc, node.span) for v, lang, acc in zip(lifted, langs, accs, strict=True))
    start = None
    if init is not None:
        start = tuple(_accumulated(v, lang, acc, node.span) for v, lang, acc in zip(init, langs, accs, strict=True))
    made = make_reducer(ctx, reducer, accs)
    if not _may_regroup(ctx, reducer, made, start is not None):
        made = replace(made, commutative=False, kind=None)
    reduce = ir.Reduce(made, terms.parts.binders, body, terms.where, terms.filter, start, span=node.span)
    return _result(ctx, scope, reducer, reduce, named if node.acc else tuple(langs), node.span)


def _may_regroup(ctx: Context, reducer: sx.Reducer, made: ir.Reducer, has_start: bool) -> bool:
    """Tell whether terms may be combined in any grouping and order: by reducers of the library, and those that keep what they promise."""
    if made.commutative and not ctx.module.trusted and reducer is not prelude().reducers.get(reducer.name):
        from tensorlang.check.law_tests import keeps_laws  # imports NumPy

        return keeps_laws(ctx, reducer, made.dtypes, has_start)
    return made.commutative


def _componentwise(ctx: Context, scope: Scope, node: sx.Reduction, reducer: sx.Reducer, terms: Terms) -> Value:
    """A reducer of one value acts on each component of a tuple by itself."""
    assert isinstance(terms.body, Tup)
    out = []
    for position, item in enumerate(terms.body.items):
        init = terms.init.items[position] if isinstance(terms.init, Tup) and position < len(terms.init.items) else terms.init
        value = _reduced(ctx, scope, node, reducer, replace(terms, body=item, init=init))
        if position and isinstance(value, Val):
            value = replace(value, expr=refresh(value.expr, ctx.names))
        out.append(value)
    return Tup(tuple(out))


# ---------------------------------------------------------------- binders


def _binders(ctx: Context, scope: Scope, node: sx.Reduction) -> Binders:
    inner, conditions, init = scope, [], None
    pending: list[tuple[str, str, sx.Range | None, Scope, Span]] = []
    for binder in node.binders:
        if isinstance(binder, sx.From):
            init = binder.value
            continue
        bound = next(iter(bound_names(inner, (binder,))), None)
        if bound is None:
            _refuse_hiding(ctx, inner, binder)
            conditions.append(binder)
            continue
        name, pack, range_ = bound
        if name in ctx.local_names or name in ctx.tensors:
            no_shadowing(inner.bind({name: ctx.tensors.get(name, Num(0))}), name, binder.span, "reduction index")
        inner, added = _bind(ctx, inner, name, pack, range_, binder)
        pending += added
    if not pending and any(isinstance(b, sx.Pack) or (isinstance(b, sx.Member) and isinstance(b.value, sx.Pack)) for b in node.binders):
        return _one_term(ctx, inner, conditions, init)
    if not pending:
        known = {*inner.values, *ctx.tensors, *ctx.local_names}
        open_names = [n.name for n in descendants(node.body) if isinstance(n, sx.Id) and n.name not in known]
        help = f"name one: `{node.reducer}({_told_range(node) or (open_names[0] if open_names else 'k')}) …`"
        raise error("T0123", "this reduction has no index to run over", node.span, "nothing to reduce", help=help)
    return Binders(*_with_ranges(ctx, inner, pending, node), tuple(conditions), init)


def _told_range(node: sx.Reduction) -> str | None:
    """Return the binder that `0 <= i < n` stands for."""
    for binder in node.binders:
        match binder:
            case sx.Compare((lo, sx.Id(name), hi), ("<=", "<" | "<=" as last)) if lo.span.end and hi.span.end:
                return f"{name} in {written(lo.span)}..{written(hi.span)}{' + 1' if last == '<=' else ''}"
            case _:
                pass
    return None


def _check_summands(node: sx.Reduction, reducer: sx.Reducer, body: Value) -> None:
    """Raise T0114 where the library's `sum` is of truth values, or its `mean` of integers."""
    dtype, at = typed.dtype_of(body), node.body.span
    if dtype is None or reducer.span.source.name != "prelude.tl" or not at.end:
        return
    what = written(at)
    inner = what[1:-1] if what.startswith("(") and what.endswith(")") and ")" not in what[1:-1] else what
    head = written(node.span)[: at.start - node.span.start].rstrip()
    if dtype == bool_ and node.reducer in ("sum", "prod", "mean"):
        count = f"{head.removesuffix(')')}, {inner}) i64(1)" if node.reducer == "sum" and head.endswith(")") else ""
        help = f"count where it holds: `{count}`, or cast: `i64({inner})`" if count else f"cast it: `f32({inner})`"
        raise error("T0114", f"`{node.reducer}` is of numbers, and this is `bool`", at, "true or false", help=help)
    if node.reducer == "mean" and dtype.is_integer:
        help = f"cast what is averaged: `{head} f32({inner})`"
        raise error("T0114", f"a mean is a quotient of floats, and this is `{dtype}`", at, f"this is `{dtype}`", help=help)


def _one_term(ctx: Context, scope: Scope, conditions: Sequence[sx.Node], init: sx.Node | None) -> Binders:
    """A reduction over packs of length 0 has exactly one term."""
    name = ctx.names("unit")
    return Binders(scope.bounded({name: (affine.ZERO, affine.ONE)}), (ir.Binder(name, affine.ZERO, affine.ONE),), tuple(conditions), init)


def _refuse_hiding(ctx: Context, scope: Scope, binder: sx.Node) -> None:
    """A bare name among the binders that means something already is a mistake, not a condition."""
    name = (
        binder.name
        if isinstance(binder, sx.Id)
        else binder.value.name
        if isinstance(binder, sx.Pack) and isinstance(binder.value, sx.Id)
        else None
    )
    if name is not None:
        no_shadowing(scope, name, binder.span, "reduction index")


def _bind(
    ctx: Context, scope: Scope, name: str, pack: bool, range_: sx.Range | None, binder: sx.Node
) -> tuple[Scope, list[tuple[str, str, sx.Range | None, Scope, Span]]]:
    if not pack:
        unique = ctx.names(name)
        return scope.bind({name: Idx(px.Name(unique))}), [(name, unique, range_, scope, binder.span)]
    length = scope.lengths.get(name)
    if length is None:
        raise unknown_length(name, binder.span)
    uniques = [ctx.names(f"{name}.{p}") for p in range(length)]
    added = []
    for position, unique in enumerate(uniques):
        at = scope
        if range_ is not None:
            packs = [n for n, v in scope.values.items() if isinstance(v, Packed) and position < len(v.items)]
            at = scope.at(packs, position)
        added.append((f"{name}.{position}", unique, range_, at, binder.span))
    return scope.bind({name: Packed(tuple(Idx(px.Name(u)) for u in uniques))}), added


def unknown_length(name: str, span: Span) -> Exception:
    return error(
        "T0134",
        f"it cannot be told how many dimensions `{name}..` stands for",
        span,
        "a pack of unknown length",
        help=f"use `{name}..` alone in one read or beside packs whose length is known, or write the indices out",
    )


def _with_ranges(
    ctx: Context, scope: Scope, pending: list[tuple[str, str, sx.Range | None, Scope, Span]], node: sx.Reduction
) -> tuple[Scope, tuple[ir.Binder, ...]]:
    found = None
    binders: list[ir.Binder] = []
    for name, unique, range_, at, span in pending:
        if range_ is not None:
            earlier = at.bind({})
            lo, hi = bound(ctx, earlier, range_.lo), bound(ctx, earlier, range_.hi)
        else:
            if found is None:
                found = list(places(ctx, scope, node.body))
                found += [p for b in node.binders for p in places(ctx, scope, b)]
            own = [p for p in found if p.index == unique]
            lo, hi = agreed(own, name, span, "reduction index", None if own else near_size(ctx, scope, [node.body], name))
        binders.append(ir.Binder(unique, lo, hi, span=span))
        scope = scope.bounded({unique: (lo, hi)})
    return scope, tuple(binders)


def bound(ctx: Context, scope: Scope, node: sx.Node) -> px.Expr:
    """Return a bound of a range as an index expression. Raises T0124 when it is none."""
    if any(isinstance(n, sx.Id | sx.Index) and n.name in ctx.local_names for n in descendants(node)):
        raise data_bound("is computed from data", node.span)
    match ctx.value(scope, node):
        case Idx(at):
            return at
        case Num(number) if isinstance(number, bool | int) or number.is_integer():
            return typed.whole(number, node.span)
        case Val(_, _, _, _, factors) if factors & ctx.sizes:
            raise NeedsStatic(factors & ctx.sizes, node.span, "multiplies or divides in a range")
        case other:
            if not isinstance(other, Val):
                raise data_bound("is not a whole number", node.span)
            scalar = next((p for p in ctx.operator.params if isinstance(node, sx.Id) and p.kind == "tensor" and p.name == node.name), None)
            raise data_bound("is computed from data", node.span, scalar)


def data_bound(what: str, span: Span, scalar: sx.Param | None = None) -> Exception:
    """Return T0124 for a bound of a range; `scalar`: the parameter of no dimensions that the bound is."""
    help = "bounds are sums of sizes and indices with whole factors; filter instead: `sum(k, k < n[i]) …`"
    if scalar is not None:
        name = scalar.name
        help = f"let the caller tell it before the data is there, `size {name}` among the parameters; or filter: `sum(k, k < {name}) …`"
    labels = [(span, "not an index expression"), *([(scalar.span, "a value, known when the operator runs")] if scalar is not None else [])]
    return labelled("T0124", f"this bound of a range {what}", labels, help=help)


def _position(binders: tuple[ir.Binder, ...], span: Span) -> Value:
    """Return the row-major position of a term."""
    out: Value = Num(0)
    for binder in binders:
        extent = Idx(affine.sub(binder.hi, binder.lo))
        here = Idx(affine.sub(px.Name(binder.name), binder.lo)) if len(binders) > 1 else Idx(px.Name(binder.name))
        out = arith.binary("+", arith.binary("*", out, extent, span), here, span)
    return out


def _conditions(ctx: Context, scope: Scope, nodes: tuple[sx.Node, ...]) -> tuple[Scope, px.Cond, list[ir.Expr]]:
    """Return the scope in which conditions hold, each of which is asked where those before it do, and what they say of indices and of
    data."""
    where: px.Cond = px.TRUE
    filters: list[ir.Expr] = []
    for node in nodes:
        skips: list[Value] = []
        value = condition(ctx, replace(scope, skips=skips), node)
        for found in (*skips, value):  # a condition is asked only where all that it reads is there
            where, filters = _add(found, where, filters, node.span)
        scope = under(ctx, replace(scope, skips=[]), node, True)
    return scope, where, filters


def condition(ctx: Context, scope: Scope, node: sx.Node) -> Value:
    """Return a condition, `c..` expanded to a conjunction."""
    if not isinstance(node, sx.Pack):
        return ctx.value(scope, node)
    out: Value = Num(True)
    for inner, at in expand_pack(scope, node):
        out = arith.logic("and", out, ctx.value(at, inner), node.span)
    return out


def _add(value: Value, where: px.Cond, filters: list[ir.Expr], span: Span) -> tuple[px.Cond, list[ir.Expr]]:
    match typed.truth(value, span):
        case bool(known):
            return (where if known else px.FALSE), filters
        case px.Compare() | px.And() | px.Or() | px.Not() as cond:
            return affine.conj(where, cond), filters
        case computed:
            return where, [*filters, computed]


# ---------------------------------------------------------------- types and the reducer itself


def _lift(ctx: Context, reducer: sx.Reducer, body: Value, position: Value, span: Span) -> tuple[Value, ...]:
    if reducer.lift is not None:
        value_name, index_name, lifted = reducer.lift
        names = {value_name: body} | ({index_name: position} if index_name else {})
        body = ctx.value(Scope(names), lifted)
    items = body.items if isinstance(body, Tup) else (body,)
    if len(items) != len(reducer.left):
        raise error(
            "T0125",
            f"reducer `{reducer.name}` combines {len(reducer.left)} components and is given {len(items)}",
            span,
            "reduced here",
            help=f"give it a tuple: `{reducer.name}(k) ({', '.join(reducer.left)})`" if len(reducer.left) > 1 else "give it one value",
        )
    return items


def _component_types(
    ctx: Context, scope: Scope, node: sx.Reduction, reducer: sx.Reducer, body: Value, lifted: tuple[Value, ...]
) -> list[DType | None]:
    """Return the language type of each component; numbers take the type of the body, or that of the accumulator where all are numbers."""
    fallback = next((d for d in (typed.dtype_of(v) for v in (body, *lifted)) if d is not None), None)
    if isinstance(body, Tup):
        fallback = next((d for v in body.items if (d := typed.dtype_of(v)) is not None), None)
    out: list[DType | None] = []
    for value in lifted:
        own = typed.dtype_of(value)
        numeric = isinstance(value, Num) and isinstance(value.value, bool)
        out.append(bool_ if numeric else own if own is not None or isinstance(value, Val) else fallback)
    if all(d is None for d in out) and not any(isinstance(v, Val) for v in lifted):
        if node.acc:
            return list(_accumulators(ctx, scope, node, out))
        dtype = "f32" if any(isinstance(v, Num) and isinstance(v.value, float) for v in lifted) else "i64"
        raise error(
            "T0117",
            "the terms of this reduction have no type: they are only numbers",
            node.span,
            "which type?",
            help=f"cast the body: `{dtype}(1)`, or name the accumulator: `{reducer.name}[{dtype}](k) …`",
        )
    return out


def _accumulators(ctx: Context, scope: Scope, node: sx.Reduction, langs: list[DType | None]) -> tuple[DType, ...]:
    """Return the language type in which each component accumulates: narrow floats are computed in f32, as everywhere."""
    if not node.acc:
        return tuple(lang if lang is not None else f32 for lang in langs)
    if len(node.acc) not in (1, len(langs)):
        raise error(
            "T0125",
            f"{len(node.acc)} accumulator types for {len(langs)} components",
            node.span,
            "here",
            help="give one type, or one a component",
        )
    named = [type_named(ctx, scope, acc) for acc in node.acc]
    return tuple(named * len(langs) if len(named) == 1 else named)


def type_named(ctx: Context, scope: Scope, node: sx.Node) -> DType:
    """Return the element type that an expression names."""
    name = node.name if isinstance(node, sx.Id) else ""
    if name in ctx.dtypes:
        return ctx.dtypes[name]
    if name in DTYPES:
        return DTYPES[name]
    raise error(
        "T0104",
        f"there is no element type `{name}`",
        node.span,
        "here",
        help=did_you_mean(name, [*DTYPES, *ctx.dtypes], "the types are " + ", ".join(DTYPES)),
    )


def _accumulated(value: Value, lang: DType | None, acc: DType, span: Span) -> ir.Expr:
    if lang is None:
        return typed.coerce(value, None, span)
    expr = typed.coerce(value, lang, span) if isinstance(value, Val | Cnd | Idx) else typed.coerce(value, acc, span)
    have = compute_dtype(lang) if isinstance(value, Val | Cnd | Idx) else acc
    return expr if have == acc or (compute_dtype(acc) == have and have != lang) else ir.Cast(acc, expr, span=span)


def _result(ctx: Context, scope: Scope, reducer: sx.Reducer, reduce: ir.Reduce, langs: tuple[DType | None, ...], span: Span) -> Value:
    """Return what the reducer yields. A component of a tensor whose type is being inferred has none: whatever it meets decides."""
    if len(reduce.body) == 1:
        value: Value = Val(reduce, langs[0])
        if reducer.project is None:
            return value
        return ctx.value(Scope({reducer.project[0][0]: value}), reducer.project[1])
    apart = components_apart(reduce)
    if reducer.project is None and apart is not None:
        return Tup(tuple(Val(refresh(r, ctx.names) if p else r, d) for p, (r, d) in enumerate(zip(apart, langs, strict=True))))
    if reducer.project is None:
        return Tup(tuple(Val(ir.Project(reduce, p, span=span), d) for p, d in enumerate(langs)), reduce)
    names, yielded = reducer.project
    if len(names) != len(langs):
        raise error(
            "T0125",
            f"`yield` of reducer `{reducer.name}` names {len(names)} of {len(langs)} components",
            yielded.span,
            "here",
            help="name every component",
        )
    if apart is not None:
        return _yielded_apart(ctx, reducer, names, yielded, apart, langs, span)
    mentioned = sum(uses(yielded, name) for name in names)
    source: ir.Expr = reduce if mentioned <= 1 else ir.Name(ctx.names(f"{reducer.name}_parts"), span=span)
    values = {name: Val(ir.Project(source, p, span=span), d) for p, (name, d) in enumerate(zip(names, langs, strict=True))}
    out = ctx.value(Scope(values), yielded)
    if isinstance(source, ir.Name):
        if not isinstance(out, Val):
            raise error(
                "T0125",
                f"`yield` of reducer `{reducer.name}` must give one value",
                yielded.span,
                "here",
                help="yield one component, or none at all to get the tuple",
            )
        return replace(out, expr=ir.Let(source.name, reduce, out.expr, span=span))
    return out


def _yielded_apart(
    ctx: Context,
    reducer: sx.Reducer,
    names: Sequence[str],
    yielded: sx.Node,
    apart: Sequence[ir.Reduce],
    langs: Sequence[DType | None],
    span: Span,
) -> Value:
    """Return what a reducer yields whose components are reductions by themselves."""
    values, bound_to = dict[str, Value](), list[tuple[str, ir.Expr]]()
    for position, (name, reduce, dtype) in enumerate(zip(names, apart, langs, strict=True)):
        found: ir.Expr = refresh(reduce, ctx.names) if position else reduce
        if uses(yielded, name) > 1:
            bound_to.append((ctx.names(f"{reducer.name}_{name}"), found))
            found = ir.Name(bound_to[-1][0], span=span)
        values[name] = Val(found, dtype)
    out = ctx.value(Scope(values), yielded)
    if not bound_to or not isinstance(out, Val):
        return out
    expr = out.expr
    for name, made in reversed(bound_to):
        expr = ir.Let(name, made, expr, span=span)
    return replace(out, expr=expr)


__all__ = ["bound", "condition", "reduction", "type_named", "unknown_length"]
