"""Reductions over windows, made of reductions over shorter ones: the rewriting behind `compose`.

    before   y[i] = sum(k in 0..10) x[i + k]                                         compose y.k by 3
    after    y.window[i] = sum(k in 0..3) x[i + k]
             y[i] = y.window[i] + y.window[i + 3] + y.window[i + 6] + x[i + 9]

    before   y[i, j] = max(a in 0..7, b in 0..7) x[i + a, j + b]                     compose y.b
    after    y.window[i, j] = max(b in 0..7) x[i, j + b]
             y[i, j] = max(a in 0..7) y.window[i + a, j]

    before   y[i, j] = sum(a in 0..7, b in 0..7) w[a] * v[b] * x[i + a, j + b]       compose y.b
    after    y.window[i, j] = sum(b in 0..7) v[b] * x[i, j + b]
             y[i, j] = sum(a in 0..7) w[a] * y.window[i + a, j]

What is reduced has to differ with the sum of an axis and a multiple of the index alone, `i + k`, `t - k` or `i + 2*k`, at the edges of
tensors, too; but of a sum over windows along several axes factors may be weights, which stay with the index that they differ with.
Neighbours then have most of their terms in common, and of a window of many terms few are left. Terms of a sum are grouped otherwise than a
`strict` operator allows. Windows of minima and maxima, and of truths, may overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from types import UnionType

from polyhedral import affine
from polyhedral.expr import TRUE, Int
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.schedule.scan import terms_between
from tensorlang.schedule.shape import OPEN_EXTENT
from tensorlang.tensor.facts import Place, has_gather, reductions
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import (
    OPERATIONS,
    Binary,
    Binder,
    Call,
    Compare,
    Definition,
    Expr,
    Holds,
    Piece,
    Program,
    Read,
    Reduce,
    Select,
    Tensor,
    Unary,
)
from tensorlang.tensor.walk import (
    chained,
    definers,
    fresh_for,
    index_names,
    nodes,
    operands,
    reads,
    refresh,
    replaced,
    substitute,
    value_names,
)

MOST_WINDOWS = 8
"""How many windows of one length make a longer one at most."""
CALL_LOADS = 8
"""Loads that take as long as an elementary function."""
STORED = 2
"""What it takes to store an element of a window and to load it again, in terms."""
STORED_IN_ROWS = 4
"""The same, where it is read in other rows: of these a strip stores several, and some of its neighbours' again."""


@dataclass(frozen=True, slots=True)
class Window:
    """A reduction whose terms differ with `axis + factor * binder` alone; `others`: its other binders that are windows, too, each with its
    axis and factor. The terms of the rest of the binders are reduced for each term of this one. `outside`: of a sum with weights, of which
    `written` has the factors that differ with the binder, the others; None where there are no weights. `whole`: the reduction as the piece
    has it."""

    piece: Piece
    written: Reduce
    binder: Binder
    axis: str
    factor: int
    others: Mapping[str, tuple[str, int]]
    whole: Reduce
    outside: tuple[Expr, ...] | None = None

    @property
    def count(self) -> int:
        """Return how many terms a window has along its binder."""
        return self.binder.extent or 0

    @property
    def loads(self) -> int:
        """Return what a term takes where each window computes it anew, as so many loads: windows beside each other share what is simple."""
        return self._points() * (1 + CALL_LOADS * self._count(Call))

    @property
    def operations(self) -> int:
        """Return how many operations a term takes, that by which it is reduced among them: a product is added in one."""
        fused = sum(isinstance(part, Binary) and part.op == "*" for part in self.written.body) if self.written.reducer.kind == "sum" else 0
        return self.loads + self._points() * (self._count(Unary | Binary | Compare | Holds | Select) - fused)

    def _count(self, kinds: type | UnionType) -> int:
        return sum(isinstance(n, kinds) for part in _parts(self.written) for n in nodes(part))

    def _points(self) -> int:
        own = [b.extent for b in self.written.binders if b is not self.binder and b.name not in self.others]
        return prod(OPEN_EXTENT if n is None else n for n in own)

    @property
    def may_overlap(self) -> bool:
        """Tell whether terms may be reduced several times."""
        return self.written.reducer.kind in ("min", "max", "any", "all")


def composed(program: Program, tensor: str, binder: str, lengths: Sequence[int]) -> Program | str:
    """Return the program with the reduction of `tensor` over a window of `binder` as one of windows of these lengths, each longer than the
    one before, or the reason why it is none."""
    definition = definers(program).get(tensor)
    if program.mode == "strict":
        return "the operator is `strict`: its reductions keep their order"
    found = [w for w in windows(definition) if w.binder.name == binder] if definition else []
    window = next((w for w in found if lengths or w.others), found[0] if found else None)
    if definition is None or window is None:
        return f"no reduction of `{tensor}` has terms that differ with the sum of an axis and `{binder}` alone"
    if lengths and window.outside is not None:
        return f"each term has a weight of its own along `{binder}`, so that no window is made of others"
    if not all(low < high for low, high in zip((0, *lengths), (*lengths, window.count), strict=True)):
        return f"windows of it have {window.count} terms, and shorter ones come first"
    if not lengths and not window.others:
        return "it is a window of one index alone, which is made of shorter ones where `by` says of which lengths"
    return _composed(program, definition, window, lengths)


def windows(definition: Definition) -> Iterator[Window]:
    """Yield the windows of a definition of one piece, inner binders first."""
    if len(definition.tensors) > 1 or len(definition.pieces) > 1 or definition.pieces[0].guard != TRUE:
        return
    (piece,) = definition.pieces
    for e, places in reductions(piece.value, Place()).items():
        known = e.reducer.kind in OPERATIONS and len(e.body) == 1 and e.init is None and e.reducer.identity is not None
        if not known or has_gather(e) or any(place.given for place in places) or any(value_names(part) for part in _parts(e)):
            continue
        found = {b.name: along for b in e.binders if (along := _axis_of(definition, e, b)) is not None}
        axes = [axis for axis, _ in found.values()]
        for binder in reversed(e.binders):
            others = {name: along for name, along in found.items() if name != binder.name}
            is_plain = binder.name in found and len({*axes}) == len(axes)
            if is_plain:
                yield Window(piece, e, binder, *found[binder.name], others, e)
            weighted = _weighted(definition, piece, e, binder)
            if weighted is not None and not (is_plain and len(weighted.others) <= len(others)):
                yield weighted


@cache
def window_lengths(count: int, may_overlap: bool, stored: int = STORED) -> tuple[int, tuple[int, ...]]:
    """Return what an element of a window of `count` terms takes at least, in terms, and the lengths of windows that it is made of then.
    `stored`: what it takes to store an element of one and to load it again."""
    best: tuple[int, tuple[int, ...]] = (count, ())
    for many in range(2, MOST_WINDOWS + 1):
        length = -(-count // many) if may_overlap else count // many
        if 2 <= length < count:
            terms, lengths = window_lengths(length, may_overlap, stored)
            rest = 0 if may_overlap else count - many * length
            best = min(best, (terms + stored + many + rest, (*lengths, length)))
    return best


def _weighted(definition: Definition, piece: Piece, e: Reduce, binder: Binder) -> Window | None:
    """Return the windows along an index of a sum of products some factors of which are weights, which differ with an index alone; None
    where windows along other axes share nothing of them."""
    if e.reducer.kind != "sum" or e.filter is not None or e.where != TRUE:
        return None
    factors = [*operands("*", e.body[0])]
    inside = [f for f in factors if binder.name in index_names(f)]
    outside = tuple(f for f in factors if binder.name not in index_names(f))
    weighed = [f for f in inside if _axis_of(definition, replace(e, body=(f,)), binder) is not None]
    if not weighed:
        return None
    names, beyond = (frozenset[str]().union(*map(index_names, some)) for some in (inside, outside))
    along = _axis_of(definition, replace(e, body=(chained("*", weighed, e.span),)), binder)
    written = replace(e, body=(chained("*", inside, e.span),))
    others = {b.name: x for b in e.binders if b is not binder and (x := _axis_of(definition, written, b)) is not None}
    own = {b.name for b in e.binders} - others.keys() - {binder.name}
    if along is None or not others or not own <= names - beyond or len({along[0], *(a for a, _ in others.values())}) <= len(others):
        return None
    return Window(piece, written, binder, *along, others, e, outside)


def _parts(e: Reduce) -> tuple[Expr, ...]:
    return (*e.body, *(() if e.filter is None else (e.filter,)))


def _axis_of(definition: Definition, e: Reduce, binder: Binder) -> tuple[str, int] | None:
    """Return the axis and the factor with whose sum alone the terms of a reduction differ along an index; None where there are none."""
    bounds = frozenset[str]().union(*(affine.name_set(b.lo) | affine.name_set(b.hi) for b in e.binders))
    if affine.constant(binder.lo) is None or affine.constant(binder.hi) is None or binder.name in bounds or (binder.extent or 0) < 2:
        return None
    read = [names for part in _parts(e) for r in reads(part) if binder.name in (names := index_names(r))]
    for axis in definition.axes:
        if axis in bounds or axis not in _names(e) or any(axis not in names for names in read):
            continue
        for factor in (1, -1, 2, -2, 3, -3, 4, -4):
            if binder.name not in _names(_moved(e, {axis: affine.sub(axis, affine.scale(factor, binder.name))})):
                return axis, factor
    return None


def _names(e: Reduce) -> frozenset[str]:
    """Return the axes and binders that the terms of a reduction mention."""
    return frozenset(affine.name_set(e.where)).union(*(index_names(part) for part in _parts(e)))


def _moved(e: Reduce, to: Mapping[str, Affine]) -> Reduce:
    """Return a reduction with names in its terms replaced, binders among them."""
    body, where = tuple(substitute(part, to) for part in e.body), affine.substitute_cond(e.where, to)
    return replace(e, body=body, where=where, filter=None if e.filter is None else substitute(e.filter, to))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where windows along an axis lie: the element at 0 of one with `terms` terms begins `first(terms)` along the axis."""

    factor: int
    binder: Binder
    extent: Affine

    def first(self, terms: int) -> int:
        """Return where the first window of so many terms begins."""
        low, high = affine.constant(self.binder.lo) or 0, (affine.constant(self.binder.hi) or 0) - 1
        return self.factor * (low if self.factor > 0 else high - terms + 1)

    def slot(self, axis: str) -> Affine:
        """Return where the term of a point and the index lies among the places that windows share."""
        return affine.sub(affine.add(axis, affine.scale(self.factor, self.binder.name)), self.first(1))

    def size(self, terms: int) -> Affine:
        """Return how many windows of so many terms there are."""
        return affine.add(self.extent, abs(self.factor) * ((self.binder.extent or 0) - terms))


def _composed(program: Program, definition: Definition, window: Window, lengths: Sequence[int]) -> Program:
    fresh, e, tensor = fresh_for(program), window.written, definition.tensors[0]
    shape = dict(zip(definition.axes, tensor.shape, strict=True))
    places = {a: _Place(f, next(b for b in e.binders if b.name == n), shape[a]) for n, (a, f) in window.others.items()}
    place = _Place(window.factor, window.binder, shape[window.axis])
    low = affine.constant(window.binder.lo) or 0
    # Of the other windows one element is computed for each place that they share, and reduced afterwards.
    to = {a: affine.sub(affine.add(a, p.first(1)), affine.scale(p.factor, p.binder.name)) for a, p in places.items()}
    at_binder = {window.axis: affine.sub(window.axis, affine.scale(window.factor, window.binder.name))}
    inner = _moved(e, {**to, **(at_binder if window.outside is None else {})})
    axes = tuple(a for a in definition.axes if a in _names(inner) or a == window.axis)
    sizes = {**shape, **{a: p.size(1) for a, p in places.items()}}
    own = tuple(b for b in e.binders if b is not window.binder and b.name not in window.others)
    nothing = e.reducer.identity[0] if e.reducer.kind == "sum" and e.reducer.dtypes[0].is_float and e.reducer.identity else None

    def terms(first: Affine, count: int) -> Expr:
        """Return what so many terms come to, the first of them at a point of the axis."""
        at = {window.axis: affine.add(first, affine.scale(window.factor, window.binder.name))}
        several = replace(_moved(inner, at), binders=(*own, window.binder))
        value = terms_between(several, window.binder, Int(0), Int(count), fresh)
        if nothing is not None and not isinstance(value, Reduce):
            return Binary("+", nothing, value, span=e.span)  # the sum of -0 alone is 0
        return value

    made: list[Definition] = []

    def window_at(k: int, first: Affine) -> Expr:
        """Return the window of the `k`-th length that begins at a point of the axis."""
        read, begin = made[k].tensors[0].name, place.first(lengths[k])
        return Read(read, tuple(affine.sub(first, begin) if a == window.axis else AffineName(a) for a in axes), span=e.span)

    def longer(k: int, count: int, first: Affine) -> Expr:
        """Return a window of `count` terms, made of those of the last length before."""
        if k == 0:
            return terms(first, count)
        length, operation = lengths[k - 1], OPERATIONS[e.reducer.kind]
        whole = count // length
        begins = [length * n for n in range(whole)] + ([count - length] if window.may_overlap and count % length else [])
        parts = [window_at(k - 1, affine.add(first, window.factor * n)) for n in begins]
        for n in range(count if window.may_overlap else length * whole, count):
            at = affine.add(first, window.factor * n)
            parts.append(window_at(0, at) if lengths[0] == 1 else terms(at, 1))
        value = parts[0]
        for part in parts[1:]:
            value = Binary(operation, value, part, span=e.span)
        return value

    def definition_of(value: Expr, count: int) -> Definition:
        dims = tuple(place.size(count) if a == window.axis else sizes[a] for a in axes)
        held = Tensor(fresh(f"{tensor.name}.window"), e.reducer.dtypes[0], dims, span=e.span)
        return Definition((held,), axes, (Piece(value, TRUE, span=e.span),), span=definition.span)

    for k, count in enumerate(lengths):
        made.append(definition_of(longer(k, count, affine.add(window.axis, place.first(count))), count))
    if window.outside is None:
        value = longer(len(lengths), window.count, affine.add(window.axis, window.factor * low))
    else:
        value = refresh(replace(inner, binders=(*own, window.binder)), fresh)
    if places:
        made.append(definition_of(value, window.count))
        slots = tuple(places[a].slot(a) if a in places else AffineName(a) for a in axes)
        left = tuple(b for b in e.binders if b.name in window.others)
        term = chained("*", (*(window.outside or ()), Read(made[-1].tensors[0].name, slots, span=e.span)), e.span)
        value = replace(e, binders=left, body=(term,), where=TRUE, filter=None)
    asked = replace(definition, pieces=(replace(window.piece, value=replaced(window.piece.value, window.whole, value)),))
    at = program.definitions.index(definition)
    return redefined(program, (*program.definitions[:at], *made, asked, *program.definitions[at + 1 :]))
