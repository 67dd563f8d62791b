"""Which range an index has (rule B1): where it stands plainly between brackets, it ranges over that dimension.

    sum(k) x[i, k] * w[j, k]      k in 0..K, from the second dimension of x and of w
    sum(k) x[k + 1]               not plain: the range must be written

Plain places in padded reads, and under conditions on the index, count only if there is no other: there it may leave the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check.problems import NeedsStatic, error, labelled
from tensorlang.check.scope import Context, Scope, expand
from tensorlang.check.values import Idx, Num, Packed, Str, Tensor, Value
from tensorlang.check.walk import children, descendants
from tensorlang.diagnostics import CompileError, Edit, Span
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.notation import bare


@dataclass(frozen=True, slots=True)
class Place:
    """One plain place of an index: a dimension of `tensor` of that size."""

    index: str
    size: px.Expr
    tensor: str
    span: Span
    padded: bool
    read: sx.Index | None = None
    """Where it stands, when all indices there are single, and the sizes of the dimensions of `tensor`."""
    sizes: tuple[px.Expr, ...] = ()


def places(ctx: Context, scope: Scope, node: sx.Node, boxed: frozenset[str] | None = None) -> Iterator[Place]:
    """Yield the plain places of every index in an expression. `boxed`: the local tensors whose boxes may be used (None: all)."""
    match node:
        case sx.Index(name, slots, mode):
            yield from _read_places(ctx, scope, node, boxed)
            for slot, at in _expanded(scope, slots):
                yield from places(ctx, at, slot, boxed)
            if mode is not None:
                yield from places(ctx, scope, mode, boxed)
        case sx.Pack():
            for inner, at in _expanded(scope, (node,)):
                yield from places(ctx, at, inner, boxed)
        case sx.Reduction(_, _, binders, _):
            introduced = list(bound_names(scope, binders))
            inside = replace(scope, values={**scope.values, **{n: _placeholder(scope, n, pack) for n, pack, _ in introduced}})
            guarded = _conditioned(
                inside, (b for b in binders if not isinstance(b, sx.From) and next(bound_names(scope, (b,)), None) is None)
            )
            for child in children(node):
                yield from _weakened(places(ctx, inside, child, boxed), guarded)
        case sx.IfElse(cond, then, orelse):
            yield from places(ctx, scope, cond, boxed)
            guarded = _conditioned(scope, (cond,))
            yield from _weakened(places(ctx, scope, then, boxed), guarded)
            yield from _weakened(places(ctx, scope, orelse, boxed), guarded)
        case sx.LetIn(name, value, body):
            yield from places(ctx, scope, value, boxed)
            yield from places(ctx, scope.bind({name: Str(name)}), body, boxed)
        case _:
            for child in children(node):
                yield from places(ctx, scope, child, boxed)


def _weakened(found: Iterator[Place], guarded: frozenset[str]) -> Iterator[Place]:
    """Places of an index under a condition on it are like those of padded reads: the condition may keep it inside."""
    return (replace(p, padded=True) if p.index in guarded else p for p in found)


def _conditioned(scope: Scope, conds: Iterable[sx.Node]) -> frozenset[str]:
    """Return the unique names of the indices that conditions mention."""
    out = set()
    for cond in conds:
        for node in descendants(cond):
            if isinstance(node, sx.Id):
                value = scope.values.get(node.name)
                for item in value.items if isinstance(value, Packed) else (value,):
                    if isinstance(item, Idx) and isinstance(item.expr, px.Name):
                        out.add(item.expr.name)
    return frozenset(out)


def _expanded(scope: Scope, items: Iterable[sx.Node]) -> list[tuple[sx.Node, Scope]]:
    """Expand what can be expanded; mistakes are reported when the expression itself is checked."""
    try:
        return list(expand(scope, items))
    except CompileError:
        return []


def _placeholder(scope: Scope, name: str, pack: bool) -> Idx | Packed:
    if not pack:
        return Idx(px.Name("?" + name))
    return Packed(tuple(Idx(px.Name(f"?{name}.{p}")) for p in range(scope.lengths.get(name, 0))))


def bound_names(scope: Scope, binders: Iterable[sx.Node]) -> Iterator[tuple[str, bool, sx.Range | None]]:
    """Yield (name, is a pack, range) of the indices that a list of binders introduces; the rest are conditions."""
    for binder in binders:
        match binder:
            case sx.Id(name) if name not in scope.values:
                yield name, False, None
            case sx.Pack(sx.Id(name)) if name not in scope.values:
                yield name, True, None
            case sx.Member(sx.Id(name), range_) if name not in scope.values:
                yield name, False, range_
            case sx.Member(sx.Pack(sx.Id(name)), range_) | sx.Pack(sx.Member(sx.Id(name), range_)) if name not in scope.values:
                yield name, True, range_
            case _:
                pass


def _read_places(ctx: Context, scope: Scope, node: sx.Index, boxed: frozenset[str] | None) -> Iterator[Place]:
    tensor = scope.values.get(node.name) or ctx.tensors.get(node.name)
    if not isinstance(tensor, Tensor) or (boxed is not None and node.name in ctx.local_names and node.name not in boxed):
        return
    slots = _expanded(scope, node.slots)
    if len(slots) != len(tensor.dims):
        return
    for dim, (slot, at) in zip(tensor.dims, slots, strict=True):
        if isinstance(slot, sx.TupleOf):
            parts = _expanded(at, slot.items)
            pairs = list(zip(parts, dim.sizes, strict=True)) if dim.composite and len(parts) == len(dim.sizes) else []
        else:
            pairs = [((slot, at), dim.sizes[0])] if not dim.composite else []
            if dim.composite and (whole := affine.product(dim.sizes)) is not None:
                pairs = [((slot, at), whole)]
        for (inner, inside), size in pairs:
            index = plain(ctx, inside, inner, size)
            if index is not None:
                yield Place(index, size, node.name, inner.span, node.mode is not None, node, tuple(d.sizes[0] for d in tensor.dims))


def _swapped(place: Place, size: px.Expr) -> Edit | None:
    """Return a read with two indices exchanged so that the index of this place stands where there are `size` elements."""
    read = place.read
    if read is None or read.mode is not None or not all(isinstance(slot, sx.Id) for slot in read.slots):
        return None
    names = [slot.name for slot in read.slots if isinstance(slot, sx.Id)]
    here = next((k for k, slot in enumerate(read.slots) if slot.span == place.span), None)
    there = [k for k, extent in enumerate(place.sizes) if extent == size and k != here]
    if here is None or len(there) != 1:
        return None
    names[here], names[there[0]] = names[there[0]], names[here]
    return Edit(read.span, f"{read.name}[{', '.join(names)}]")


def plain(ctx: Context, scope: Scope, node: sx.Node, size: px.Expr) -> str | None:
    """Return the unique name of the index that a slot consists of; `size - 1 - i` runs over the same range as `i`."""
    match node:
        case sx.Id(name):
            value = scope.values.get(name)
        case sx.Index(name, (sx.Id(position),), None) if isinstance(pack := scope.values.get(name), Packed):
            at = scope.values.get(position)
            inside = isinstance(at, Num) and isinstance(at.value, int) and 0 <= at.value < len(pack.items)
            value = pack.items[int(at.value)] if inside and isinstance(at, Num) else None
        case sx.IfElse(cond, then, orelse) if isinstance(chosen := _quiet(ctx, scope, cond), Num):
            return plain(ctx, scope, then if chosen.value else orelse, size)
        case sx.Binary("-", _, rhs) if isinstance(rhs, sx.Id | sx.Binary | sx.Number):
            value = _quiet(ctx, scope, node)
            mirrored = affine.sub(affine.sub(size, affine.ONE), value.expr) if isinstance(value, Idx) else None
            return mirrored.name if isinstance(mirrored, px.Name) and mirrored != size else None
        case _:
            return None
    return value.expr.name if isinstance(value, Idx) and isinstance(value.expr, px.Name) else None


def _quiet(ctx: Context, scope: Scope, node: sx.Node) -> Value | None:
    """Return a value, or None where there is a mistake: it is reported when the expression itself is checked."""
    try:
        return ctx.value(replace(scope, indexing=True), node)
    except (CompileError, NeedsStatic):
        return None


def near_size(ctx: Context, scope: Scope, nodes: Iterable[sx.Node], name: str) -> str | None:
    """Return the size of the one dimension that an index of this name takes part in indexing, `x[i - 1, 2*j]`, in expressions: by the name
    that a parameter declares it with, whatever number it is here."""
    sizes = set()
    declared = {p.name: p.type.dims or () for p in ctx.operator.params if isinstance(p.type, sx.TensorType)}
    for read in (r for node in nodes for r in descendants(node) if isinstance(r, sx.Index)):
        tensor = scope.values.get(read.name) or ctx.tensors.get(read.name)
        if isinstance(tensor, Tensor) and len(tensor.dims) == len(read.slots):
            used = (any(isinstance(n, sx.Id) and n.name == name for n in descendants(slot)) for slot in read.slots)
            names = declared.get(read.name, ())
            written = names if len(names) == len(tensor.dims) else (None,) * len(tensor.dims)
            found = ((dim, node) for dim, node, uses in zip(tensor.dims, written, used, strict=True) if uses and len(dim.sizes) == 1)
            sizes |= {px.Name(node.name) if isinstance(node, sx.Id) else dim.sizes[0] for dim, node in found}
    return bare(sizes.pop()) if len(sizes) == 1 else None


def unknown_range(names: Mapping[str, str | None], span: Span, what: str) -> CompileError:
    """Return the error (T0121) for indices that stand plainly in no bracket, each with a size to name, if one is near."""
    first, *_ = names
    ranges = ", ".join(f"{name} in 0..{near or 'n'}" for name, near in names.items())
    help = f"write its range: `{ranges}`" if what == "reduction index" else f"write its range after the expression: `for {ranges}`"
    return error("T0121", f"the range of {what} `{first}` cannot be told", span, f"`{first}` stands alone in no bracket", help=help)


def agreed(found: list[Place], name: str, span: Span, what: str, near: str | None = None) -> tuple[px.Expr, px.Expr]:
    """Return the range that the plain places of an index agree on. `near`: a size to name where there are none. Raises T0121 (none)
    and T0122 (they disagree)."""
    counted = [p for p in found if not p.padded] or found
    if not counted:
        raise unknown_range({name: near}, span, what)
    first = counted[0]
    for other in counted[1:]:
        if other.size != first.size:
            swapped = _swapped(other, first.size) or _swapped(first, other.size)
            apart = affine.constant(affine.sub(other.size, first.size))
            least = other.size if apart is not None and apart < 0 else first.size
            range_ = f"{name} in 0..{bare(least)}"
            help = f"make the sizes equal, or write the range: `{range_ if what == 'reduction index' else f'for {range_}'}`"
            raise labelled(
                "T0122",
                f"`{name}` indexes dimensions of different sizes",
                [
                    (first.span, f"`{first.tensor}` has {bare(first.size)} here"),
                    (other.span, f"`{other.tensor}` has {bare(other.size)} here"),
                ],
                help=f"are its indices in a wrong order? write `{swapped.text}`; or {help}" if swapped else help,
                edits=(swapped,) if swapped else (),
            )
    return affine.ZERO, first.size
