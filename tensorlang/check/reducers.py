"""Reducers made concrete for the types of their components."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from codegen.dtypes import DType
from tensorlang.check import typed
from tensorlang.check.problems import error
from tensorlang.check.scope import Context, Scope
from tensorlang.check.values import Tup, Val
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.walk import value_names


def make_reducer(ctx: Context, reducer: sx.Reducer, dtypes: tuple[DType, ...]) -> ir.Reducer:
    """Return the reducer for components of these types."""
    generics = {g.name: dtypes[min(p, len(dtypes) - 1)] for p, g in enumerate(reducer.generics)}
    inner = replace(ctx, dtypes=generics)
    names = {name: Val(ir.Name(name), dtype) for side in (reducer.left, reducer.right) for name, dtype in zip(side, dtypes, strict=True)}
    combined = inner.value(Scope(names), reducer.combine)
    items = combined.items if isinstance(combined, Tup) else (combined,)
    if len(items) != len(dtypes):
        raise error(
            "T0125",
            f"reducer `{reducer.name}` combines {len(dtypes)} components into {len(items)}",
            reducer.combine.span,
            "here",
            help="give as many as the operands have",
        )
    combine = tuple(typed.coerce(v, d, reducer.combine.span) for v, d in zip(items, dtypes, strict=True))
    identity = _identity(inner, reducer, dtypes)
    kind = None if reducer.ordered else kind_of(combine, reducer.left[0], reducer.right[0])
    return ir.Reducer(reducer.name, reducer.left, reducer.right, dtypes, combine, identity, not reducer.ordered, kind)


def _identity(ctx: Context, reducer: sx.Reducer, dtypes: tuple[DType, ...]) -> tuple[ir.Expr, ...] | None:
    if isinstance(reducer.identity, sx.Id) and reducer.identity.name == "none":
        return None
    value = ctx.value(Scope({}), reducer.identity)
    items = value.items if isinstance(value, Tup) else (value,)
    if len(items) != len(dtypes):
        raise error(
            "T0125",
            f"reducer `{reducer.name}` has {len(dtypes)} components and an identity of {len(items)}",
            reducer.identity.span,
            "here",
            help="give one identity a component, or `from none`",
        )
    return tuple(typed.coerce(v, d, reducer.identity.span) for v, d in zip(items, dtypes, strict=True))


_KINDS = {"+": "sum", "*": "prod", "min": "min", "max": "max", "or": "any", "and": "all"}


def kind_of(combine: tuple[ir.Expr, ...], left: str, right: str) -> str | None:
    """Return the shape that the code generators know, when combining `left` with `right` is exactly that operation."""
    match combine:
        case (ir.Binary(op, ir.Name(a), ir.Name(b)),) if {a, b} == {left, right}:
            return _KINDS.get(op)
        case _:
            return None


# ---------------------------------------------------------------- components


def components_apart(reduce: ir.Reduce) -> tuple[ir.Reduce, ...] | None:
    """Return the reductions of one component each that a reduction of several is, where each of them is combined by itself and of a shape
    that the code generators know; None where some are not."""
    positions = range(len(reduce.reducer.dtypes))
    if any(needed(reduce.reducer, [p]) != [p] for p in positions):
        return None
    found = tuple(restricted(reduce, [p]) for p in positions)
    return found if all(r.reducer.kind is not None for r in found) else None


def needed(reducer: ir.Reducer, positions: Collection[int]) -> list[int]:
    """Return the components that those at `positions` are combined from."""
    kept = {*positions}
    while True:
        read = {name for p in kept for name in value_names(reducer.combine[p])}
        more = {p for p, sides in enumerate(zip(reducer.left, reducer.right, strict=True)) if read & {*sides}}
        if more <= kept:
            return sorted(kept)
        kept |= more


def restricted(reduce: ir.Reduce, kept: Sequence[int]) -> ir.Reduce:
    """Return the reduction of some components of one alone, which are combined from no others."""

    def of(items: tuple[ir.Expr, ...] | None) -> tuple[ir.Expr, ...] | None:
        return None if items is None else tuple(items[p] for p in kept)

    whole = reduce.reducer
    if len(kept) == len(whole.dtypes):
        return reduce
    combine = tuple(whole.combine[p] for p in kept)
    reducer = replace(
        whole,
        left=tuple(whole.left[p] for p in kept),
        right=tuple(whole.right[p] for p in kept),
        dtypes=tuple(whole.dtypes[p] for p in kept),
        combine=combine,
        identity=of(whole.identity),
        kind=kind_of(combine, whole.left[kept[0]], whole.right[kept[0]]) if len(kept) == 1 and whole.commutative else None,
    )
    return replace(reduce, reducer=reducer, body=tuple(reduce.body[p] for p in kept), init=of(reduce.init))
