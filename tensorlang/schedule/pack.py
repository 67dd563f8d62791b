"""Copies of tensors: the rewriting behind `pack`.

    before   y[n, f, p] = sum(c, r) (if 0 <= p + r - 1 < H then x[n, c, p + r - 1] else 0) * w[f, c, r]
    after    x.pack[n, c, h] = if 0 <= h - 1 < H then x[n, c, h - 1] else 0             for a box that holds every p + r
             y[n, f, p] = sum(c, r) x.pack[n, c, p + r] * w[f, c, r]

Where every read of the tensor is padded in the same way, the copy holds the padding and its readers need no condition. Otherwise the copy
is the tensor itself. Equations that the tensor depends on (its own recurrence) go on reading the tensor, and so do all reads but those
along one axis of an equation where such an axis is named. How the copy is stored and where it is computed are decided by the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from polyhedral import affine
from polyhedral.expr import TRUE, Compare, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.diagnostics import NOWHERE
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binder, Const, Definition, Dynamic, Expr, Holds, Piece, Program, Read, Reduce, Reducer, Select, Tensor
from tensorlang.tensor.padding import canonical, in_range
from tensorlang.tensor.walk import components, fresh_for, index_names, map_children, reads, tensor_table, value_names

Ranges = Mapping[str, tuple[Affine, Affine]]
"""Name → [lo, hi)."""


@dataclass(frozen=True, slots=True)
class _Padded:
    """A read with the value it has outside; `fill` None: it never leaves the tensor. `where`: what holds wherever it is read."""

    index: tuple[Affine, ...]
    fill: Expr | None
    ranges: Ranges
    where: Cond = TRUE


@dataclass(frozen=True, slots=True)
class Along:
    """The reads in the equation of `reader` whose subscripts have its axis or binder `name`."""

    reader: str
    name: str

    def __str__(self) -> str:
        return f"{self.reader}.{self.name}"


def pack(program: Program, tensor: str, along: Along | None = None) -> tuple[Program, str] | str:
    """Return the program with a copy of `tensor` for its readers, or for those reads alone, and the copy's name; or the reason why there is
    none to be made."""
    table = tensor_table(program)
    own = _needed_for(program, tensor)
    redirected = [d for d in program.definitions if d not in own and (along is None or d.tensors[0].name == along.reader)]
    padded = (r for d in redirected for p in d.pieces for r in _padded(p.value, tensor, table[tensor], _axes(d)))
    found = [r for r in padded if _is_along(r.index, along)]
    if not found:
        who = f"no equation {'outside its own recurrence ' if own else ''}" if along is None else f"along `{along}` nothing "
        return f"{who}reads `{tensor}` at an index that is known at compile time"
    fills = {r.fill for r in found}
    fill = next(iter(fills)) if len(fills) == 1 else None
    fill = fill if fill is not None and _is_the_same_everywhere(fill, program) else None
    box = _box(table[tensor], found) if fill is not None else None
    name = fresh_for(program)(f"{tensor}.pack")
    source = table[tensor]
    rank = len(source.shape)
    axes = axes_of_copy(program, tensor, rank, along)
    if box is None:
        lows: tuple[Affine, ...] = (affine.ZERO,) * rank
        shape = source.shape
    else:
        lows = tuple(lo for lo, _ in box)
        shape = tuple(affine.sub(hi, lo) for lo, hi in box)
    index = tuple(affine.add(axis, lo) for axis, lo in zip(axes, lows, strict=True))
    value: Expr = Read(tensor, index, span=source.span)
    if box is not None and fill is not None:
        inside = affine.conj(*(affine.within(i, 0, extent) for i, extent in zip(index, source.shape, strict=True)))
        box_ranges = dict(zip(axes, ((affine.ZERO, s) for s in shape), strict=True))
        inside = affine.conj(*(c for c in affine.conjuncts(inside) if not _always(c, box_ranges)))
        value = Select(Holds(inside), value, fill)
    copy = Definition((Tensor(name, source.dtype, shape, span=source.span),), axes, (Piece(value, span=source.span),), span=source.span)

    def redirect(e: Expr) -> Expr:
        skipped = _skipped(e, tensor, source)
        if isinstance(e, Reduce) and skipped is not None and box is not None and skipped.fill == fill and _is_along(skipped.index, along):
            return replace(e, where=TRUE, body=(Read(name, _moved(skipped.index, lows), span=e.body[0].span),))
        match e:
            case Select(Holds(cond), Read(t, idx), other) if (
                t == tensor and box is not None and other == fill and in_range(cond, idx, source) and _is_along(idx, along)
            ):
                return Read(name, _moved(idx, lows), span=e.span)
            case Read(t, idx) if t == tensor and all(not isinstance(s, Dynamic) for s in idx) and _is_along(idx, along):
                return Read(name, _moved(idx, lows), span=e.span)
            case _:
                return map_children(redirect, e)

    definitions = tuple(
        replace(d, pieces=tuple(replace(p, value=redirect(p.value)) for p in d.pieces)) if d in redirected else d
        for d in program.definitions
    )
    first = next(k for k, (old, new) in enumerate(zip(program.definitions, definitions, strict=True)) if old != new)
    return redefined(program, (*definitions[:first], copy, *definitions[first:])), name


def _is_along(index: tuple[Affine | Dynamic, ...], along: Along | None) -> bool:
    return along is None or any(along.name in affine.name_set(s) for s in index if not isinstance(s, Dynamic))


def _is_the_same_everywhere(fill: Expr, program: Program) -> bool:
    return index_names(fill) <= set(program.sizes) and not value_names(fill)


def _needed_for(program: Program, tensor: str) -> tuple[Definition, ...]:
    """Return the definition of `tensor` and those it goes in a circle with: they cannot read a copy that is made from it."""
    return next((g for g in components(program) if any(t.name == tensor for d in g for t in d.tensors)), ())


def _axes(definition: Definition) -> dict[str, tuple[Affine, Affine]]:
    return {a: (affine.ZERO, s) for a, s in zip(definition.axes, definition.tensors[0].shape, strict=True)}


def axes_of_copy(program: Program, tensor: str, rank: int, along: Along | None = None) -> tuple[str, ...]:
    """Return axis names for a copy of a tensor, or of what is read of it `along` an axis: those of its definition, or of the names it is
    read by, or a0, a1, …"""
    for d in program.definitions:
        if d.tensors[0].name == tensor:
            return d.axes
    for d in (d for d in program.definitions if along is None or d.tensors[0].name == along.reader):
        for p in d.pieces:
            for e in (r for r in reads(p.value) if r.tensor == tensor and _is_along(r.index, along)):
                names = tuple(s.name if isinstance(s, AffineName) else f"a{k}" for k, s in enumerate(e.index))
                if len(set(names)) == rank:
                    return names
    return tuple(f"a{k}" for k in range(rank))


def _padded(e: Expr, tensor: str, source: Tensor, ranges: Ranges) -> list[_Padded]:
    """Return every read of `tensor` in `e` at affine indices, with its fill value where it stands in an in-range `Select`."""
    skipped = _skipped(e, tensor, source)
    if isinstance(e, Reduce) and skipped is not None:
        return [replace(skipped, ranges={**ranges, **_binders(e.binders)})]
    match e:
        case Select(Holds(cond), Read(t, index), fill) if t == tensor and in_range(cond, index, source):
            return [_Padded(tuple(s for s in index if not isinstance(s, Dynamic)), fill, ranges)]
        case Read(t, index) if t == tensor and all(not isinstance(s, Dynamic) for s in index):
            return [_Padded(tuple(s for s in index if not isinstance(s, Dynamic)), None, ranges)]
        case Reduce():
            ranges = {**ranges, **_binders(e.binders)}
        case _:
            pass
    out: list[_Padded] = []

    def visit(child: Expr) -> Expr:
        out.extend(_padded(child, tensor, source, ranges))
        return child

    map_children(visit, e)
    if isinstance(e, Reduce) and e.init is None:
        return [replace(r, where=affine.conj(r.where, e.where)) for r in out]
    return out


def _skipped(e: Expr, tensor: str, source: Tensor) -> _Padded | None:
    """Return the read of a reduction that leaves out what lies outside the tensor: as good as reading the reducer's identity there."""
    match e:
        case Reduce(reducer=Reducer(identity=(Const() as identity,), kind=kind), body=(Read(t, index),), filter=None) if t == tensor:
            known = kind in ("max", "min", "sum") and e.where != TRUE and in_range(e.where, index, source)
            return _Padded(tuple(s for s in index if not isinstance(s, Dynamic)), replace(identity, span=NOWHERE), {}) if known else None
        case _:
            return None


def is_padding(packed: tuple[Program, str]) -> bool:
    """Tell whether a copy holds padding, so that its readers are spared a condition."""
    program, name = packed
    definition = next(d for d in program.definitions if d.tensors[0].name == name)
    return isinstance(definition.pieces[0].value, Select)


def _binders(binders: tuple[Binder, ...]) -> dict[str, tuple[Affine, Affine]]:
    return {b.name: (b.lo, b.hi) for b in binders}


def _moved(index: tuple[Affine | Dynamic, ...], lows: tuple[Affine, ...]) -> tuple[Affine | Dynamic, ...]:
    return tuple(s if isinstance(s, Dynamic) else affine.sub(s, lo) for s, lo in zip(index, lows, strict=True))


def interval(e: Affine, ranges: Ranges) -> tuple[Affine, Affine] | None:
    """Return [lo, hi) of a linear expression over names with ranges, each of which may depend on names before it; names without a range
    stand for themselves."""
    low, last = _extreme(e, ranges, least=True), _extreme(e, ranges, least=False)
    return None if low is None or last is None else (low, affine.add(last, 1))


def _extreme(e: Affine, ranges: Ranges, *, least: bool) -> Affine | None:
    """Return the least or the greatest value of `e`, innermost names first: their bounds depend on those outside. Quotients of sizes,
    as the number of windows that fit is one, stay what they are."""
    for name in reversed(list(ranges)):
        found, _ = affine.terms(e)
        if any(name in affine.names(atom) for atom in found if atom != AffineName(name)):
            return None
        factor = found.get(AffineName(name), 0)
        if factor:
            lo, hi = ranges[name]
            e = affine.substitute(e, {name: lo if (factor > 0) == least else affine.sub(hi, 1)})
    return e


def _always(cond: Cond, ranges: Ranges) -> bool:
    match canonical(cond):
        case Compare("<=", _, e):
            span = interval(e, ranges)
            low = affine.constant(span[0]) if span else None
            return low is not None and low >= 0
        case _:
            return False


def _within(r: _Padded, axis: int, extent: Affine) -> tuple[Affine, Affine] | None:
    """Return the range of a subscript: where a condition keeps it from one end of the tensor or both, no further than there."""
    span, kept = interval(r.index[axis], r.ranges), {canonical(c) for c in affine.conjuncts(r.where)}
    if span is None or not kept:
        return span
    first, last = (canonical(c) for c in (affine.compare("<=", affine.ZERO, r.index[axis]), affine.compare("<", r.index[axis], extent)))
    lo, beyond = affine.constant(span[0]), affine.constant(affine.sub(span[1], extent))
    return (
        affine.ZERO if first in kept and lo is not None and lo < 0 else span[0],
        extent if last in kept and beyond is not None and beyond > 0 else span[1],
    )


def _box(source: Tensor, found: list[_Padded]) -> list[tuple[Affine, Affine]] | None:
    """Return, per axis, the range that the reads touch: the hull when all bounds are constant, the common one otherwise."""
    out: list[tuple[Affine, Affine]] = []
    for axis, extent in enumerate(source.shape):
        spans = [_within(r, axis, extent) for r in found]
        if any(s is None for s in spans):
            return None
        lows, highs = [s[0] for s in spans if s], [s[1] for s in spans if s]
        if len(set(lows)) == 1 and len(set(highs)) == 1:
            lo, hi = lows[0], highs[0]
        else:
            los, his = [affine.constant(x) for x in lows], [affine.constant(x) for x in highs]
            if any(x is None for x in (*los, *his)):
                return None
            lo, hi = affine.to_expr(min(x for x in los if x is not None)), affine.to_expr(max(x for x in his if x is not None))
        unpadded = affine.constant(lo) is not None and affine.constant(affine.sub(hi, extent)) is not None
        if unpadded and (affine.constant(lo) or 0) >= 0 and (affine.constant(affine.sub(hi, extent)) or 0) <= 0:
            lo, hi = affine.ZERO, extent
        out.append((lo, hi))
    return out
