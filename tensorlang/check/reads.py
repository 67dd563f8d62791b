"""Reading an element: slots against dimensions, what lies outside, data-dependent indices.

x[i - 1 | 0]         if i - 1 >= 0 then x[i - 1] else 0
x[i - 1 | clamp]     x[max(i - 1, 0)]
x[i + 1 | wrap]      x[(i + 1) % 8], and of N elements: if i + 1 - N >= 0 then x[i + 1 - N] else x[i + 1]
x[i - 1 | reflect]   x[min(max(i - 1, 1 - i), …)]
sum(r) x[i - r | skip]   the reduction runs over i - r >= 0 only
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from codegen.dtypes import DType, bool_, compute_dtype, i64, u64
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import arith, bounds, typed
from tensorlang.check.foreign import nearest
from tensorlang.check.problems import NeedsStatic, counted, did_you_mean, error
from tensorlang.check.scope import Context, Scope, expand
from tensorlang.check.suggest import written
from tensorlang.check.values import Choice, Cnd, Dim, Idx, Num, Packed, Tensor, Val, Value
from tensorlang.diagnostics import Edit, Span
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.notation import bare


@dataclass(frozen=True, slots=True)
class Entry:
    """One axis of a read: where (None when nothing is stored), at what, of which extent."""

    axis: int | None
    at: Idx | Val
    size: px.Expr
    span: Span


def find_tensor(ctx: Context, scope: Scope, name: str, span: Span) -> Tensor:
    """Return the tensor of that name. Raises T0105 (there is none), T0107 (its box is not known)."""
    found = scope.values.get(name)
    if isinstance(found, Tensor):
        return found
    if found is None and name in ctx.tensors:
        return ctx.tensors[name]
    if name in ctx.local_names:
        raise error(
            "T0107",
            f"the shape of `{name}` cannot be told",
            span,
            "read here",
            help=f"give the ranges of its indices: `{name}[i] = … for i in 0..n`",
        )
    if found is not None:
        kind = "a pack" if isinstance(found, Packed) else "an index or a number"
        raise error(
            "T0108",
            f"`{name}` is {kind}, not a tensor",
            span,
            "indexed here",
            help=f"write `{name}..`, or index a pack by a position of its own"
            if isinstance(found, Packed)
            else "only tensors and packs are indexed",
        )
    known = [*ctx.tensors, *ctx.local_names, *(n for n, v in scope.values.items() if isinstance(v, Tensor))]
    if name.swapcase() in known:
        raise error("T0105", f"there is no tensor `{name}`", span, "read here", help=f"did you mean `{name.swapcase()}`?")
    raise error(
        "T0105",
        f"there is no tensor `{name}`",
        span,
        "read here",
        help=did_you_mean(name, known, f"define it: `{name}[…] = …`, or make it a parameter"),
    )


def read(ctx: Context, scope: Scope, node: sx.Index) -> Value:
    """Return the value of `name[slots | mode]`."""
    tensor = find_tensor(ctx, scope, node.name, node.span)
    inner = replace(scope, indexing=True)
    slots = list(expand(inner, node.slots))
    check_rank(tensor, len(slots), node.span)
    entries = [entry for dim, (slot, at) in zip(tensor.dims, slots, strict=True) for entry in _entries(ctx, at, dim, slot)]
    if tensor.constant is not None:
        return tensor.constant
    return element(ctx, scope, tensor, entries, node)


def check_rank(tensor: Tensor, count: int, span: Span) -> None:
    if len(tensor.dims) != count:
        raise error(
            "T0132",
            f"`{tensor.name}` has {counted(len(tensor.dims), 'dimension')} and is given {_indices(count)}",
            span,
            f"shape [{show_dims(tensor)}]",
            help="write one index a dimension, or a pack `d..` for several",
        )


def _indices(count: int) -> str:
    return "1 index" if count == 1 else f"{count} indices"


def show_dims(tensor: Tensor) -> str:
    return ", ".join(bare(d.sizes[0]) if not d.composite else f"({', '.join(bare(s) for s in d.sizes)})" for d in tensor.dims)


def _entries(ctx: Context, scope: Scope, dim: Dim, slot: sx.Node) -> list[Entry]:
    if isinstance(slot, sx.TupleOf):
        parts = list(expand(scope, slot.items))
        if not dim.composite or len(parts) != len(dim.sizes):
            what = f"has {len(dim.sizes)} components" if dim.composite else "is not composite"
            raise error(
                "T0133",
                f"a tuple of {len(parts)} indices for a dimension that {what}",
                slot.span,
                "indexed here",
                help="index it by as many indices as it was declared with, or by one plain index",
            )
        at = [_index(ctx, s, ctx.value(s, n), n.span) for n, s in parts]
        return [Entry(axis, i, size, n.span) for axis, i, size, (n, _) in zip(dim.axes, at, dim.sizes, parts, strict=True)]
    index = _index(ctx, scope, ctx.value(scope, slot), slot.span)
    if not dim.composite:
        return [Entry(dim.axes[0], index, dim.sizes[0], slot.span)]
    return [
        Entry(axis, i, size, slot.span)
        for axis, i, size in zip(dim.axes, _digits(ctx, index, dim.sizes, slot.span), dim.sizes, strict=True)
    ]


def _digits(ctx: Context, index: Idx | Val, sizes: tuple[px.Expr, ...], span: Span) -> list[Idx | Val]:
    """Return the components of a row-major index."""
    out: list[Idx | Val] = []
    rest: Idx | Val = index
    for position in reversed(range(len(sizes))):
        if position == 0 or all(affine.constant(s) == 1 for s in sizes[:position]):
            out = [*[Idx(affine.ZERO) for _ in range(position)], rest, *out]
            break
        size = sizes[position]
        if affine.constant(size) == 1:
            out.insert(0, Idx(affine.ZERO))
            continue
        out.insert(0, _index(ctx, None, arith.binary("%", rest, Idx(size, True), span), span))
        rest = _index(ctx, None, arith.binary("//", rest, Idx(size, True), span), span)
    return out


def _index(ctx: Context, scope: Scope | None, value: Value, span: Span) -> Idx | Val:
    """Return a slot's value as an index expression or as an integer computed from data. Raises NeedsStatic (rule P8)."""
    match value:
        case Num(number) if isinstance(number, bool | int) or number.is_integer():
            return Idx(typed.whole(number, span), True)
        case Idx():
            return value
        case Val(_, dtype, _, _, factors) if dtype is None or dtype.is_integer:
            if factors & ctx.sizes:
                raise NeedsStatic(factors & ctx.sizes, span, "multiplies or divides an index")
            return value
        case Choice():
            return Val(typed.coerce(value, i64, span), i64)
        case Val(_, dtype):
            what = f"of type `{dtype}`"
        case Num(number):
            what = f"{number}"
        case Cnd():
            what = "a condition"
        case _:
            raise typed.not_scalar(value, span)
    raise error(
        "T0119",
        f"an index is a whole number, and this is {what}",
        span,
        "used as an index",
        help=f"cast it: `i64({written(span) if span.end else '…'})`",
    )


def element(ctx: Context, scope: Scope, tensor: Tensor, entries: list[Entry], node: sx.Index) -> Value:
    """Return the read with what its mode says about the outside."""
    mode = node.mode
    word = mode.name if isinstance(mode, sx.Id) else None
    if word == "wrap" and word not in scope.values and (periods := _periods(scope, entries)) is not None:
        found = _in_periods(ctx, scope, tensor, entries, periods, node.span)
        if scope.indexing and isinstance(found, Choice):  # every case is an element: what is declared of these holds of it
            return Val(typed.coerce(found, i64, node.span), i64, tensor.lo, tensor.hi)
        return found
    if mode is None or (word in ("clamp", "wrap", "reflect") and word not in scope.values):
        placed = [e if word is None else replace(e, at=_brought_in(ctx, scope, e, word)) for e in entries]
        return _plain(ctx, scope, tensor, placed, node.span)
    entries = [replace(e, at=_compared(e.at, e.span)) for e in entries]
    inside = _inside(scope, entries, node.span)
    guarded = [replace(e, at=_known_inside(scope, e)) for e in entries]
    value = _plain(ctx, scope, tensor, guarded, node.span)
    if word == "skip" and "skip" not in scope.values:
        if scope.skips is None:
            raise error(
                "T0120",
                "`skip` drops a term of a reduction, but there is no reduction around this read",
                mode.span,
                "here",
                help="give a value for what lies outside: `| 0`",
            )
        scope.skips.append(inside)
        return value
    if word is not None and word not in scope.values and word not in ctx.tensors:
        called = _MODES_ELSEWHERE.get(word) or nearest(word, ("clamp", "wrap", "reflect", "skip"))
        if called is not None:
            help = f"it is called `{called}` here" if word in _MODES_ELSEWHERE else f"did you mean `{called}`?"
            title = f"`{word}` does not say what lies outside of a tensor"
            raise error("T0105", title, mode.span, "used for the elements outside", help=help, edits=(Edit(mode.span, called),))
    outside = ctx.value(replace(scope, indexing=False), mode)
    if isinstance(inside, Num) and inside.value:
        return value
    return arith.choose(inside, value, outside, node.span)


_MODES_ELSEWHERE = {
    **dict.fromkeys(("edge", "replicate", "replication", "nearest", "border", "repeat_edge", "clamp_to_edge"), "clamp"),
    **dict.fromkeys(("circular", "periodic", "torus", "repeat"), "wrap"),
    **dict.fromkeys(("mirror", "reflection", "reflect_interior", "mirror_interior"), "reflect"),
    **dict.fromkeys(("zero", "zeros", "constant", "pad", "none", "None"), "0"),
}  # fmt: skip
"""What NumPy, PyTorch, OpenCV and Halide call what lies outside → how it is written here."""


def _compared(at: Idx | Val, span: Span) -> Idx | Val:
    """Return an index as what is compared with extents: what is read is then known to be it."""
    return replace(at, expr=arith.widened(at, span), dtype=i64) if isinstance(at, Val) and at.dtype == u64 else at


def _inside(scope: Scope, entries: list[Entry], span: Span) -> Value:
    """Return the condition that every index lies in its extent."""
    out: Value = Num(True)
    for entry in entries:
        match entry.at:
            case Idx(at):
                out = arith.logic("and", out, Cnd(bounds.in_box(at, entry.size, scope.ranges)), span)
            case Val():
                below, above = _known_halves(scope, entry)
                if not below:
                    out = arith.logic("and", out, arith.compare(">=", entry.at, Num(0), span), span)
                if not above:
                    out = arith.logic("and", out, arith.compare("<", entry.at, Idx(entry.size, True), span), span)
    return out


def _known_halves(scope: Scope, entry: Entry) -> tuple[bool, bool]:
    """Return whether an index is surely 0 or more, and whether it is surely below its extent, by what is known of it."""
    lo, hi = arith.interval(entry.at)
    return (
        lo is not None and bounds.proven_nonnegative(lo, scope.ranges),
        hi is not None and bounds.proven_nonnegative(affine.sub(entry.size, hi), scope.ranges),
    )


def _known_inside(scope: Scope, entry: Entry) -> Idx | Val:
    at = entry.at
    return at if isinstance(at, Idx) else bounded(scope, bounded(scope, at, *at.within), affine.ZERO, entry.size)


MOST_PERIODS = 9
"""Reads that one with `wrap` may become where sizes are symbols."""


def _periods(scope: Scope, entries: list[Entry]) -> list[tuple[int, int]] | None:
    """Return for each index of a read how many periods it lies below its tensor at most, and how many above: few, so that cases tell which.
    None where a size that it leaves is a number, whose remainder is an index, or where the periods are not known or many."""
    found: list[tuple[int, int]] = []
    for entry in entries:
        if not isinstance(entry.at, Idx):
            return None
        if bounds.in_box(entry.at.expr, entry.size, scope.ranges) == px.TRUE:
            found.append((0, 0))
            continue
        beyond = affine.sub(affine.sub(entry.size, affine.ONE), entry.at.expr)
        below, above = (bounds.wraps(e, entry.size, scope.ranges, MOST_PERIODS) for e in (entry.at.expr, beyond))
        if affine.constant(entry.size) is not None or below is None or above is None:
            return None
        found.append((below, above))
    return found if 1 < prod(1 + below + above for below, above in found) <= MOST_PERIODS else None


def _in_periods(ctx: Context, scope: Scope, tensor: Tensor, entries: list[Entry], periods: list[tuple[int, int]], span: Span) -> Value:
    """Return a read as the case of each period that its indices may lie in: `if i < 1 then x[i - 1 + N] else x[i - 1]`."""
    at = next((k for k, (below, above) in enumerate(periods) if below or above), None)
    if at is None:
        return _plain(ctx, scope, tensor, entries, span)
    entry, (below, above) = entries[at], periods[at]
    assert isinstance(entry.at, Idx)
    index = entry.at.expr

    def moved(by: int) -> Value:
        expr = affine.add(index, affine.scale(by, entry.size))
        there = [*entries[:at], replace(entry, at=Idx(expr)), *entries[at + 1 :]]
        return _in_periods(ctx, scope, tensor, there, [*periods[:at], (0, 0), *periods[at + 1 :]], span)

    out = moved(below)
    for by in range(below - 1, -above - 1, -1):  # those further up come first
        starts = affine.compare(">=", affine.add(index, affine.scale(by, entry.size)), affine.ZERO)
        out = arith.choose(Cnd(starts), moved(by), out, span)
    return out


def _brought_in(ctx: Context, scope: Scope, entry: Entry, word: str) -> Idx | Val:
    """Return the index that `clamp`, `wrap` or `reflect` reads instead."""
    if all(_known_halves(scope, entry)):
        return entry.at
    return index_in_bounds(ctx, entry.at, entry.size, word, entry.span)


def index_in_bounds(ctx: Context, at: Idx | Val, size: px.Expr, word: str, span: Span) -> Idx | Val:
    """Return `at` brought into [0, size), or 0 where that is empty."""
    extent, zero = Idx(size, True), Num(0)
    last = arith.binary("-", extent, Num(1), span)
    match word:
        case "clamp":
            out = arith.binary("max", arith.binary("min", at, last, span), zero, span)
        case "wrap":
            out = zero if affine.constant(size) == 0 else arith.binary("%", at, extent, span)
        case _:
            out = _reflected(at, last, span)
    index = _index(ctx, None, out, span)
    return index if isinstance(index, Idx) else replace(index, lo=affine.ZERO, hi=affine.maximum(size, affine.ONE))


def _reflected(at: Idx | Val, last: Value, span: Span) -> Value:
    """Return `at` mirrored at 0 and at `last`, as often as needed; once where the size is symbolic, and 0 where `last` is 0."""
    period = arith.binary("*", Num(2), last, span)
    number = affine.constant(period.expr) if isinstance(period, Idx) else None
    if number is not None and number <= 0:
        return Num(0)
    if isinstance(at, Val) or number is not None:
        within = arith.binary("%", at, period, span)
        return arith.binary("min", within, arith.binary("-", period, within, span), span)
    positive = arith.binary("max", at, arith.minus(at, span), span)
    above = arith.binary("max", arith.binary("-", period, positive, span), arith.minus(last, span), span)  # < 0 for more than one element
    return arith.binary("min", positive, above, span)


def _plain(ctx: Context, scope: Scope, tensor: Tensor, entries: list[Entry], span: Span) -> Val:
    index: list[ir.Slot] = [px.Int(0)] * tensor.rank
    for entry in entries:
        if entry.axis is not None:
            index[entry.axis] = entry.at.expr if isinstance(entry.at, Idx) else dynamic(entry.at)
    dtype = tensor.dtype if tensor.dtype is not None else ctx.element_type(tensor.name)
    return typed_read(scope, ir.Read(tensor.name, tuple(index), span=span), dtype, tensor)


def dynamic(value: Val) -> ir.Dynamic:
    return ir.Dynamic(value.expr, value.lo, value.hi, span=value.expr.span)


def typed_read(scope: Scope, expr: ir.Expr, dtype: DType | None, tensor: Tensor) -> Val:
    """Return the read as a value: integers inside brackets are widened to i64, declared ranges are remembered."""
    if scope.indexing and dtype is not None and dtype.is_integer:
        wide = expr if dtype == i64 else ir.Cast(i64, expr, span=expr.span)
        as_read = None if dtype == i64 else Val(expr, dtype)
        return refine(scope, Val(wide, i64, tensor.lo, tensor.hi, narrow=arith.is_narrow(dtype), as_read=as_read))
    keep = dtype == i64
    return refine(scope, Val(expr, dtype, tensor.lo if keep else None, tensor.hi if keep else None))


def refine(scope: Scope, value: Val) -> Val:
    """Return the value with what conditions around it say."""
    lo, hi = scope.refined.get(value.expr, (None, None))
    return bounded(scope, value, lo, hi)


def refined(scope: Scope, value: Value) -> Value:
    """Return what is computed with what conditions around it say, which may bound it where they bound nothing that it is made of."""
    return refine(scope, value) if isinstance(value, Val) else value


def bounded(scope: Scope, value: Val, lo: px.Expr | None, hi: px.Expr | None) -> Val:
    """Return the value with what is known of it, and that it lies in [lo, hi), as far as these are given."""
    least = value.lo if lo is None else lo if value.lo is None else bounds.larger(value.lo, lo, scope.ranges)
    end = value.hi if hi is None else hi if value.hi is None else bounds.smaller(value.hi, hi, scope.ranges)
    return replace(value, lo=least, hi=end)


__all__ = [
    "bool_",
    "check_rank",
    "compute_dtype",
    "dynamic",
    "element",
    "find_tensor",
    "index_in_bounds",
    "read",
    "refine",
    "refined",
    "show_dims",
]
