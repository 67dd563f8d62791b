"""Reductions whose terms grow along an axis as running ones: each element takes up where its neighbour ended (prefix sums; for several
axes, summed areas).

    before   y[i] = sum(k in 0..i) x[k]                                              scan y.i
    after    y[0] = 0                                     y[i] = y[i - 1] + x[i - 1]

    before   s[i, j] = max(a in 0..i + 1, b in 0..j + 1) x[a, b]                     scan s.i, s.j
    after    s.scan[i, 0] = x[i, 0]                       s.scan[i, j] = max(s.scan[i, j - 1], x[i, j])
             s[0, j] = s.scan[0, j]                       s[i, j] = max(s[i - 1, j], s.scan[i, j])

What is reduced has to be the same for both neighbours, the range of one of them inside of that of the other, and the terms that come new
few: one, where the reduction begins with more than nothing, `last(k in 0..i + 1, x[k] > 0, from -1) x[k]`. Where the reduction is a part of
an equation, or is rounded when it is stored, it gets a tensor of its own. Terms keep their order, and sums are grouped otherwise than a
`strict` operator allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from codegen.dtypes import compute_dtype
from polyhedral import affine, sets
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.verdict import Proven
from tensorlang.tensor.facts import Place, has_gather, reductions
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import (
    OPERATIONS,
    Binary,
    Binder,
    Const,
    Definition,
    Expr,
    Holds,
    Piece,
    Program,
    Read,
    Reduce,
    Select,
    Tensor,
    TupleOf,
    as_value,
)
from tensorlang.tensor.walk import Fresh, definers, fresh_for, index_names, refresh, replaced, substitute, substitute_names, value_names

FEW = 4
"""How many terms more than its neighbour an element may have."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How a reduction in a piece grows along an axis: its elements begin with those `step` before, and the terms that are new are those for
    which `binder` is in `new`, after the others or `first`. It runs in a tensor over `axes` where `guard` holds: in that of the piece,
    where it is the `whole` of it, or in one of its own, which knows nothing of other axes and of conditions around the reduction. `reduce`
    is what is `written`, with conditions on its binders as their ranges."""

    piece: Piece
    written: Reduce
    reduce: Reduce
    whole: bool
    axes: tuple[str, ...]
    guard: Cond
    step: int
    binder: Binder
    new: tuple[Affine, Affine]
    first: bool


def scanned(program: Program, tensor: str, axis: str) -> Program | str:
    """Return the program with a reduction of `tensor` as one that runs along `axis`, or the reason why there is none."""
    definition = defined_along(program, tensor, axis)
    if isinstance(definition, str):
        return definition
    if has_one_place(definition, axis):
        return program
    if program.mode == "strict":
        return "the operator is `strict`: its reductions keep their order"
    growth = next(growths(program, definition, axis), None)
    if growth is None:
        return f"no reduction of `{tensor}` has the terms of its neighbour along `{axis}`, and few more"
    return running(program, definition, axis, growth)


def defined_along(program: Program, tensor: str, axis: str) -> Definition | str:
    """Return the definition of `tensor`, or the reason why nothing of it can run along `axis`."""
    definition = definers(program).get(tensor)
    if definition is None or axis not in definition.axes:
        return f"there is no tensor `{tensor}` with an axis `{axis}` defined here"
    return definition


def points(program: Program, axes: Sequence[str], shape: Mapping[str, Affine]) -> Cond:
    """Return where some axes of these extents are."""
    ranges = (*(affine.compare(">=", s, 0) for s in program.sizes), *(affine.within(a, 0, shape[a]) for a in axes))
    return affine.conj(program.context, *ranges)


def has_one_place(definition: Definition, axis: str) -> bool:
    """Tell whether nothing runs along an axis, whatever the equations say: it has no two elements."""
    extent = affine.constant(definition.tensors[0].shape[definition.axes.index(axis)])
    return extent is not None and extent <= 1


def running(program: Program, definition: Definition, axis: str, growth: Growth) -> Program:
    """Return the program with a reduction of `definition` that grows along an axis as one that runs."""
    at = program.definitions.index(definition)
    made = _running(program, definition, axis, growth)
    return redefined(program, (*program.definitions[:at], *made, *program.definitions[at + 1 :]))


def growths(program: Program, definition: Definition, axis: str) -> Iterator[Growth]:
    """Yield the reductions of a definition that grow along an axis; none of an operator that keeps their order."""
    if program.mode == "strict" or len(definition.tensors) > 1:
        return
    for piece in definition.pieces:
        for written, places in reductions(piece.value, Place()).items():
            if axis in index_names(written):
                growth = _growth(program, definition, piece, written, axis, any(place.given for place in places))
                if growth is not None:
                    yield growth


def _ranged(sizes: tuple[str, ...], axes: tuple[str, ...], e: Reduce, axis: str, context: Cond) -> Reduce:
    """Return a reduction with what its conditions say of one binder and an axis as a bound of that binder."""
    binders, kept = {b.name: b for b in e.binders}, list[Cond]()
    for cond in affine.conjuncts(e.where):
        rest = list(affine.inequalities(cond))
        form = affine.affine_form(rest[0]) if len(rest) == 1 else None
        own = [name for name in form[0] if name in binders] if form is not None and axis in form[0] else []
        if form is None or len(own) != 1 or abs(form[0][own[0]]) != 1:
            kept.append(cond)
            continue
        binder, factor = binders[own[0]], form[0][own[0]]
        bound = affine.sub(rest[0], affine.scale(factor, binder.name))
        if factor > 0:
            lo = affine.neg(bound)
            inside = isinstance(sets.implies(sizes, axes, context, affine.compare(">=", lo, binder.lo)), Proven)
            binders[binder.name] = replace(binder, lo=lo if inside else affine.maximum(lo, binder.lo))
        else:
            hi = affine.add(bound, 1)
            inside = isinstance(sets.implies(sizes, axes, context, affine.compare("<=", hi, binder.hi)), Proven)
            binders[binder.name] = replace(binder, hi=hi if inside else affine.minimum(hi, binder.hi))
    return replace(e, binders=tuple(binders.values()), where=affine.conj(*kept)) if len(kept) < len(affine.conjuncts(e.where)) else e


def _is_same_along(e: Reduce, axis: str) -> bool:
    """Tell whether nothing but the ranges of a reduction differs along an axis."""
    parts = (*e.body, *(() if e.filter is None else (e.filter,)), *(e.init or ()))
    return all(axis not in index_names(part) and not value_names(part) for part in parts) and axis not in affine.name_set(e.where)


def _growth(program: Program, definition: Definition, piece: Piece, written: Reduce, axis: str, is_asked_for: bool) -> Growth | None:
    """Return how a reduction grows, None where it does not. `is_asked_for`: it stands under a condition."""
    sizes, tensor = program.sizes, definition.tensors[0]
    whole = piece.value == written and tensor.dtype == written.reducer.dtypes[0] == compute_dtype(tensor.dtype)
    shape = dict(zip(definition.axes, tensor.shape, strict=True))
    axes = definition.axes if whole else tuple(a for a in definition.axes if a == axis or a in index_names(written))
    guards = affine.conjuncts(piece.guard)
    kept = tuple(c for c in guards if affine.name_set(c) & shape.keys() <= set(axes))
    if has_gather(written) and (is_asked_for or len(axes) < len(shape) or len(kept) < len(guards)):
        return None  # it would read at indices from data that no element asks for
    guard = affine.conj(*kept)
    context = affine.conj(points(program, axes, shape), guard)
    e = _ranged(sizes, axes, written, axis, context)
    bounds = [(b, is_end) for b in e.binders for is_end, bound in ((False, b.lo), (True, b.hi)) if axis in affine.name_set(bound)]
    if not _is_same_along(e, axis) or len(bounds) != 1:
        return None
    binder, is_end = bounds[0]
    if any(binder.name in affine.name_set(other.lo) | affine.name_set(other.hi) for other in e.binders):
        return None
    outer = e.binders[: e.binders.index(binder)]
    known = affine.conj(context, *(affine.within(b.name, b.lo, b.hi) for b in outer))
    names = (*axes, *(b.name for b in outer))
    for step in (1, -1):
        before = {axis: affine.sub(axis, step)}
        if is_end:
            lo, hi = affine.substitute(binder.hi, before), binder.hi
        else:
            lo, hi = binder.lo, affine.substitute(binder.lo, before)
        count = affine.sub(hi, lo)
        claim = affine.conj(affine.compare(">=", count, 0), affine.compare("<=", count, FEW))
        if affine.constant(count) == 0 or not isinstance(sets.implies(sizes, names, known, claim), Proven):
            continue
        after = affine.conj(known, _has_neighbour(axis, step, guard, shape[axis]))
        if isinstance(sets.is_empty(sizes, names, after), Proven):
            continue
        inside = affine.compare("<=", binder.lo, lo) if is_end else affine.compare("<=", hi, binder.hi)
        if not isinstance(sets.implies(sizes, names, after, inside), Proven):
            lo, hi = (affine.maximum(binder.lo, lo), hi) if is_end else (lo, affine.minimum(hi, binder.hi))
        one = affine.difference(hi, lo) == 1
        if e.reducer.identity is None and not one and (affine.difference(hi, lo) or 0) < 1:
            continue
        alone = one and e.binders == (binder,)
        if not alone and (e.init is not None or OPERATIONS.get(e.reducer.kind) is None):
            continue
        if not is_end and OPERATIONS.get(e.reducer.kind) is None:
            continue
        return Growth(piece, written, e, whole, axes, guard, step, binder, (lo, hi), not is_end)
    return None


def _has_neighbour(axis: str, step: int, guard: Cond, extent: Affine) -> Cond:
    """Return the condition that the element `step` before is there, and comes from an equation with the same guard."""
    before = affine.sub(axis, step)
    there = affine.compare(">=", before, 0) if step > 0 else affine.compare("<", before, extent)
    return affine.conj(there, affine.substitute_cond(guard, {axis: before}))


def _running(program: Program, definition: Definition, axis: str, growth: Growth) -> tuple[Definition, ...]:
    """Return what `definition` becomes, after the tensor that holds the running reduction where that is one of its own."""
    fresh, e, tensor, guard = fresh_for(program), growth.reduce, definition.tensors[0], growth.guard
    if growth.whole:
        pieces = _pieces(growth, (tensor,), axis, fresh)
        kept = tuple(p for old in definition.pieces for p in (pieces if old is growth.piece else (old,)))
        return (replace(definition, pieces=kept),)
    shape = tuple(s for a, s in zip(definition.axes, tensor.shape, strict=True) if a in growth.axes)
    runs = tuple(Tensor(fresh(f"{tensor.name}.scan"), dtype, shape, span=e.span) for dtype in e.reducer.dtypes)
    pieces = _pieces(growth, runs, axis, fresh)
    if guard != TRUE:
        nothing = e.reducer.identity or tuple(Const(dtype.zero, dtype) for dtype in e.reducer.dtypes)
        pieces = (*pieces, Piece(as_value(nothing), affine.negate(guard), otherwise=True, span=e.span))
    read = as_value(tuple(Read(run.name, tuple(map(AffineName, growth.axes)), span=e.span) for run in runs))
    asked = tuple(replace(p, value=replaced(p.value, growth.written, read)) if p is growth.piece else p for p in definition.pieces)
    return Definition(runs, growth.axes, pieces, span=definition.span), replace(definition, pieces=asked)


def _pieces(growth: Growth, runs: tuple[Tensor, ...], axis: str, fresh: Fresh) -> tuple[Piece, ...]:
    """Return the equations of a running reduction where it runs: without the neighbour all terms, elsewhere the new ones."""
    e, binder, axes, guard = growth.reduce, growth.binder, growth.axes, growth.guard
    extent = runs[0].shape[axes.index(axis)]
    neighbour = _has_neighbour(axis, growth.step, guard, extent)
    start = affine.ZERO if growth.step > 0 else affine.sub(extent, 1)
    at_start = {} if axis in affine.name_set(guard) else {axis: start}
    first = terms_between(e, binder, affine.substitute(binder.lo, at_start), affine.substitute(binder.hi, at_start), fresh)
    nothing = e.reducer.identity[0] if e.reducer.kind == "sum" and e.reducer.identity is not None and e.init is None else None
    if runs[0].dtype.is_float and nothing is not None and not isinstance(first, Reduce) and first is not nothing:
        first = Binary("+", nothing, first, span=e.span)  # the sum of -0 alone is 0
    index = tuple(affine.sub(a, growth.step) if a == axis else AffineName(a) for a in axes)
    before = tuple(Read(run.name, index, span=e.span) for run in runs)
    lo, hi = growth.new
    asks = e.filter is not None or e.where != TRUE
    keeps = e.reducer.identity is None or (e.init is not None and e.reducer.kind == "sum" and runs[0].dtype.is_float)  # -0 + 0 is 0
    if asks and keeps and e.binders == (binder,) and affine.difference(hi, lo) == 1:
        condition, term = _term(e, binder, lo)
        value = _chosen(condition, _joined(growth, before, term), before)
    else:
        new = terms_between(replace(e, init=None), binder, lo, hi, fresh)
        value = _joined(growth, before, new.items if isinstance(new, TupleOf) else (new,))
    later = refresh(as_value(value), fresh)
    return Piece(first, affine.conj(guard, affine.negate(neighbour)), span=e.span), Piece(later, affine.conj(guard, neighbour), span=e.span)


def _joined(growth: Growth, before: tuple[Expr, ...], new: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return what a reduction comes to with its new terms, whose parts are `new`."""
    e = growth.reduce
    operation = OPERATIONS.get(e.reducer.kind)
    if operation is not None:
        both = (*new, *before) if growth.first else (*before, *new)
        return (Binary(operation, *both, span=e.span),)
    to = dict(zip((*e.reducer.left, *e.reducer.right), (*before, *new), strict=True))
    return tuple(substitute_names(part, to) for part in e.reducer.combine)


def terms_between(e: Reduce, binder: Binder, lo: Affine, hi: Affine, fresh: Fresh) -> Expr:
    """Return the reduction of the terms for which `binder` is in `lo..hi`: a term where there is one, what it begins with where there is
    none."""
    start, count = e.init or e.reducer.identity, affine.difference(hi, lo)
    if count is not None and count <= 0 and start is not None:
        return as_value(start)
    rest = tuple(b for b in e.binders if b is not binder)
    has_condition = e.where != TRUE or e.filter is not None
    if count != 1 or e.init is not None or (not rest and e.reducer.identity is None and has_condition):
        return refresh(replace(e, binders=tuple(replace(b, lo=lo, hi=hi) if b is binder else b for b in e.binders)), fresh)
    condition, body = _term(e, binder, lo)
    if rest:
        to = {binder.name: lo}
        where, chosen = affine.substitute_cond(e.where, to), None if e.filter is None else substitute(e.filter, to)
        return refresh(replace(e, binders=rest, body=body, where=where, filter=chosen), fresh)
    return refresh(as_value(body if e.reducer.identity is None else _chosen(condition, body, e.reducer.identity)), fresh)


def _term(e: Reduce, binder: Binder, at: Affine) -> tuple[Expr | None, tuple[Expr, ...]]:
    """Return the condition on a term of a reduction, None where there is none, and its parts."""
    to = {binder.name: at}
    where, chosen = affine.substitute_cond(e.where, to), None if e.filter is None else substitute(e.filter, to)
    condition = chosen if where == TRUE else Holds(where) if chosen is None else Binary("and", Holds(where), chosen)
    return condition, tuple(substitute(part, to) for part in e.body)


def _chosen(condition: Expr | None, then: Sequence[Expr], orelse: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return the parts of one value where a condition holds, of another elsewhere."""
    if condition is None:
        return tuple(then)
    return tuple(Select(condition, a, b, span=a.span) for a, b in zip(then, orelse, strict=True))
