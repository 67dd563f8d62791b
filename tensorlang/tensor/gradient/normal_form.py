"""Programs before they are differentiated: every reduction that is no plain sum is all of its definition.

    before   y[i] = sqrt(sum(k) x[i, k] * x[i, k]) + max(k) x[i, k]
    after    y_sum[i] = sum(k) x[i, k] * x[i, k]
             y_max[i] = max(k) x[i, k]
             y[i]     = sqrt(y_sum[i]) + y_max[i]

A sum stays where it is added, subtracted, negated, or multiplied with what does not vary: its derivative never asks for its value. Of what
is left no value of a reduction is computed twice. Reducers whose components are added one by one, such as `mean`, become sums; other
reducers that choose none of their terms, such as `prod`, become recurrences, whose derivatives are recurrences again, unless they come to
sums relative to a maximum (`relative`). Names of values are
written out but where that would make an expression large: `terms` go through such a `let` once, whatever its name is used for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from polyhedral import affine
from polyhedral.expr import TRUE, Add, Cond, Floor, Int, Max, Min, Mod, Scale
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.diagnostics import CompileError, Span, error
from tensorlang.tensor.depth import LARGE
from tensorlang.tensor.facts import facts, negative_facts
from tensorlang.tensor.gradient.algebra import conjunction, sum_reducer, without_lets
from tensorlang.tensor.gradient.relative import TwoPasses
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import (
    Binary,
    Binder,
    Cast,
    Const,
    Definition,
    Expr,
    Holds,
    Let,
    Name,
    Piece,
    Program,
    Project,
    Read,
    Reduce,
    Reducer,
    Select,
    Tensor,
    TupleOf,
    Unary,
    as_value,
)
from tensorlang.tensor.walk import (
    Fresh,
    fresh_for,
    index_names,
    map_children,
    nodes,
    reduces,
    refresh,
    substitute,
    substitute_names,
    tensor_names,
    value_names,
)

IsActive = Callable[[Expr], bool]


def not_differentiable(what: str, why: str, span: Span, help: str | None = None) -> CompileError:
    """Return T0180: `what` has no derivative here."""
    return error("T0180", f"{what} is not differentiated", span, "here", notes=(why,), help=help)


def normal_form(program: Program, active: frozenset[str]) -> Program:
    """Return an equal program in which a reduction is a plain sum that is added to its definition, or all of a definition. `active` are
    the tensors that derivatives are asked for, or that depend on these."""
    lifted = lift(program)
    fresh, out = fresh_for(lifted), list[Definition]()
    known = set(active) | {t.name for d in lifted.definitions for t in d.tensors if t.name not in {n.name for n in _tensors(program)}}
    for definition in (part for d in lifted.definitions for part in _by_components(d, fresh)):
        work = _Outlining(lifted, definition, fresh, lambda e: not tensor_names(e).isdisjoint(known))
        rewritten = work.whole()
        out += [*work.made, rewritten]
    two_passes = TwoPasses(fresh)
    return redefined(lifted, (step for d in out for step in _differentiable(d, two_passes, fresh)))


def _by_components(definition: Definition, fresh: Fresh) -> list[Definition]:
    """Return a definition of several sums as one for each of them, any other as it is."""
    values = [p.value for p in definition.pieces]
    if len(definition.tensors) < 2 or not any(isinstance(v, Reduce) for v in values):
        return [definition]
    if not all(_adds(v.reducer) if isinstance(v, Reduce) else isinstance(v, TupleOf) for v in values):
        return [definition]

    def of(value: Expr, k: int) -> Expr:
        return _single(value, k, fresh) if isinstance(value, Reduce) else value.items[k] if isinstance(value, TupleOf) else value

    return [
        replace(definition, tensors=(tensor,), pieces=tuple(replace(p, value=of(p.value, k)) for p in definition.pieces))
        for k, tensor in enumerate(definition.tensors)
    ]


def _tensors(program: Program) -> list[Tensor]:
    return [*program.params, *(t for d in program.definitions for t in d.tensors)]


# ---------------------------------------------------------------- reductions apart


@dataclass(slots=True)
class _Outlining:
    """Gives the reductions of one definition definitions of their own."""

    program: Program
    definition: Definition
    fresh: Fresh
    is_active: IsActive
    made: list[Definition] = field(default_factory=list)

    def whole(self) -> Definition:
        definition = self.definition
        match definition.pieces:
            case (Piece(Reduce() as e, guard),) if guard == TRUE and len(definition.tensors) == len(e.reducer.dtypes):
                return replace(definition, pieces=(replace(definition.pieces[0], value=with_large_lets(e)),))
        pieces = tuple(replace(p, value=self.linear(p.value, p.guard)) for p in definition.pieces)
        return replace(definition, pieces=pieces)

    def linear(self, e: Expr, guard: Cond) -> Expr:
        """Return `e`, which is added to its definition."""
        match e:
            case Reduce() if e.reducer.kind == "sum" or _adds(e.reducer):
                return with_large_lets(e) if e.reducer.kind == "sum" else self.outlined(e, guard)
            case Binary("+" | "-", lhs, rhs):
                return replace(e, lhs=self.linear(lhs, guard), rhs=self.linear(rhs, guard))
            case Binary("*", lhs, rhs) if not self.is_active(rhs):
                return replace(e, lhs=self.linear(lhs, guard), rhs=self.value(rhs, guard))
            case Binary("*", lhs, rhs) if not self.is_active(lhs):
                return replace(e, lhs=self.value(lhs, guard), rhs=self.linear(rhs, guard))
            case Binary("/", lhs, rhs) if not self.is_active(rhs):
                return replace(e, lhs=self.linear(lhs, guard), rhs=self.value(rhs, guard))
            case Unary("neg", value):
                return replace(e, value=self.linear(value, guard))
            case Cast(dtype, value) if dtype.is_float:
                return replace(e, value=self.linear(value, guard))
            case Select(cond, then, orelse):
                yes, no = affine.conj(guard, facts(cond)), affine.conj(guard, negative_facts(cond))
                return replace(e, cond=self.value(cond, guard), then=self.linear(then, yes), orelse=self.linear(orelse, no))
            case TupleOf(items):
                return replace(e, items=tuple(self.linear(i, guard) for i in items))
            case Let():
                kept = self.kept(e, guard)
                return self.linear(self.opened(e, guard), guard) if kept is None else kept
            case _:
                return self.value(e, guard)

    def value(self, e: Expr, guard: Cond) -> Expr:
        """Return `e`, whose value derivatives ask for."""
        match e:
            case Reduce():
                return self.outlined(e, guard)
            case Project(Reduce() as of, position):
                return self.component(of, position, guard)
            case Let():
                kept = self.kept(e, guard)
                return self.value(self.opened(e, guard), guard) if kept is None else kept
            case Select(cond, then, orelse):
                yes, no = affine.conj(guard, facts(cond)), affine.conj(guard, negative_facts(cond))
                return replace(e, cond=self.value(cond, guard), then=self.value(then, yes), orelse=self.value(orelse, no))
            case _:
                return map_children(lambda c: self.value(c, guard), e)

    def kept(self, e: Let, guard: Cond) -> Let | None:
        """Return `e` with what it reduces outlined where it is to keep its name; None where its value is to stand in the name's places."""
        if isinstance(e.value, Reduce):
            return None
        bound = self.value(e.value, guard)
        return replace(e, value=bound, body=self.value(e.body, guard)) if _keeps_its_name(e, bound) else None

    def opened(self, e: Let, guard: Cond) -> Expr:
        """Return the body of `e` with its value in place of its name."""
        if isinstance(e.value, Reduce) and len(e.value.body) > 1:
            parts = tuple(self.component(e.value, k, guard) for k in range(len(e.value.body)))
            return _projected(e.body, e.name, parts)
        bound = self.value(e.value, guard)
        if isinstance(bound, TupleOf):
            return _projected(e.body, e.name, bound.items)
        return substitute_names(e.body, {e.name: bound})

    def component(self, e: Reduce, position: int, guard: Cond) -> Expr:
        if _adds(e.reducer):
            return self.outlined(_single(e, position, self.fresh), guard)
        read = self.outlined(e, guard)
        return read.items[position] if isinstance(read, TupleOf) else read

    def outlined(self, e: Reduce, guard: Cond) -> Expr:
        """Return the element of a new tensor that holds `e` wherever `guard` is true, or a tuple of such elements."""
        definition = self.definition
        axes, like = definition.axes, definition.tensors[0]
        for made in self.made:
            if made.pieces[0].value == e and made.pieces[0].guard == guard:
                return _elements(made, definition.axes)
        stem = f"{like.name}_{e.reducer.name}"
        tensors = tuple(Tensor(self.fresh(stem), dtype, like.shape, span=e.span) for dtype in e.reducer.dtypes)
        pieces = [Piece(with_large_lets(e), guard, span=e.span)]
        if guard != TRUE:
            start = e.reducer.identity or tuple(Const(dtype.zero, dtype) for dtype in e.reducer.dtypes)
            pieces.append(Piece(as_value(start), affine.negate(guard), otherwise=True, span=e.span))
        self.made.append(Definition(tensors, axes, tuple(pieces), span=e.span))
        return _elements(self.made[-1], definition.axes)


def _elements(made: Definition, axes: tuple[str, ...]) -> Expr:
    return as_value(tuple(Read(t.name, tuple(map(AffineName, axes)), span=made.span) for t in made.tensors))


def _projected(e: Expr, name: str, parts: tuple[Expr, ...]) -> Expr:
    match e:
        case Project(Name(n), position) if n == name:
            return parts[position]
        case Name(n) if n == name:
            return TupleOf(parts)
        case _:
            return map_children(lambda c: _projected(c, name, parts), e)


def _adds(reducer: Reducer) -> bool:
    """Tell whether every component of a reducer is a sum by itself."""
    names = zip(reducer.left, reducer.right, reducer.combine, strict=True)
    zeros = reducer.identity is not None and all(getattr(i, "value", None) == 0 for i in reducer.identity)
    return zeros and all(combine == Binary("+", Name(left), Name(right)) for left, right, combine in names)


def _single(e: Reduce, position: int, fresh: Fresh) -> Reduce:
    """Return the sum that one component of a reduction is."""
    dtype = e.reducer.dtypes[position]
    init = None if e.init is None else (e.init[position],)
    copy = refresh(replace(e, reducer=sum_reducer(dtype), body=(e.body[position],), init=init), fresh)
    assert isinstance(copy, Reduce)
    return copy


# ---------------------------------------------------------------- reductions step by step


def chooses(reducer: Reducer) -> bool:
    """Tell whether the result is always one of the terms, whichever of equal ones."""
    if reducer.kind in ("max", "min"):
        return True
    return (
        reducer.commutative and all(_side(reducer, c) for c in reducer.combine) and len({_shape(reducer, c) for c in reducer.combine}) == 1
    )


def _side(reducer: Reducer, e: Expr) -> bool:
    return isinstance(e, Name) or (isinstance(e, Select) and _side(reducer, e.then) and _side(reducer, e.orelse))


def _shape(reducer: Reducer, e: Expr) -> object:
    match e:
        case Name(name):
            return "left" if name in reducer.left else "right"
        case Select(cond, then, orelse):
            return cond, _shape(reducer, then), _shape(reducer, orelse)
        case _:
            return None


def _differentiable(definition: Definition, two_passes: TwoPasses, fresh: Fresh) -> list[Definition]:
    """Return the definition of a reduction that neither adds nor chooses as sums and maxima, or as a recurrence; any other as it is."""
    e = definition.pieces[0].value
    if not isinstance(e, Reduce) or e.reducer.kind == "sum" or chooses(e.reducer) or _adds(e.reducer):
        return [definition]
    if not all(t.dtype.is_float for t in definition.tensors) and not any(t.dtype.is_float for t in definition.tensors):
        return [definition]
    extents = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
    grown = grown_along(definition, e, extents)
    relative = None if grown is not None else two_passes.of(definition, e)
    return _stepwise(definition, e, grown, fresh) if relative is None else relative


def _stepwise(definition: Definition, e: Reduce, grown: Grown | None, fresh: Fresh) -> list[Definition]:
    """Return the definition of a reduction as a recurrence; as it is where its terms are in no order that sizes tell."""
    start, guard = e.init or e.reducer.identity, definition.pieces[0].guard
    if start is None:
        return [definition]
    step, shape = fresh(f"{e.binders[0].name}_step"), definition.tensors[0].shape
    extents = dict(zip(definition.axes, shape, strict=True))
    widened = (grown.binders, TRUE) if grown is not None else with_whole_ranges(e.binders, extents)
    backwards = grown is not None and grown.backwards
    length = None if widened is None else affine.product(affine.sub(b.hi, b.lo) for b in widened[0])
    if widened is None or length is None:
        return [definition]
    place = _places(widened[0], affine.sub(length, step) if backwards else affine.sub(step, 1))
    if place is None:
        return [definition]
    where = affine.conj(widened[1], e.where)
    axis = None if grown is None else grown.axis
    at = definition.axes.index(axis) if axis else 0
    others = [a for a in definition.axes if a != axis]
    axes = (*others[:at], step, *others[at:])
    shape = tuple(affine.add(length, 1) if a == step else extents[a] for a in axes)
    states = tuple(
        Tensor(fresh(f"{t.name}_partial"), dtype, shape, span=e.span) for t, dtype in zip(definition.tensors, e.reducer.dtypes, strict=True)
    )

    def after(count: Affine) -> tuple[Expr, ...]:
        index = tuple(count if a == step else AffineName(a) for a in axes)
        return tuple(Read(s.name, index, span=e.span) for s in states)

    combined = _with_one_more(e, after(affine.sub(step, 1)), place, where, backwards=backwards)
    first = affine.compare("==", step, 0)
    pieces = [Piece(as_value(start), first, span=e.span), Piece(as_value(combined), affine.negate(first), otherwise=True, span=e.span)]
    if guard != TRUE:
        begins = affine.disj(first, affine.negate(guard))
        pieces = [
            Piece(as_value(combined), affine.negate(begins), span=e.span),
            Piece(as_value(start), begins, otherwise=True, span=e.span),
        ]
    recurrence = Definition(states, axes, tuple(pieces), span=e.span)
    last = as_value(after(grown.count if grown else length))
    return [recurrence, replace(definition, pieces=(replace(definition.pieces[0], value=last), *definition.pieces[1:]))]


def _with_one_more(e: Reduce, before: tuple[Expr, ...], place: Mapping[str, Affine], where: Cond, *, backwards: bool) -> tuple[Expr, ...]:
    """Return what a reduction comes to after the term at `place`, from what it came to `before`: that term is the next one, or the one
    before all where it goes backwards, and none where `where` or the filter leaves it out."""
    term = tuple(substitute(b, place) for b in e.body)
    sides = (*term, *before) if backwards else (*before, *term)
    names: dict[str, Expr] = dict(zip((*e.reducer.left, *e.reducer.right), sides, strict=True))
    combined = tuple(without_lets(substitute_names(c, names)) for c in e.reducer.combine)
    tests = (*(() if where == TRUE else (Holds(where),)), *(() if e.filter is None else (e.filter,)))
    asked = conjunction(tuple(substitute(test, place) for test in tests))
    return combined if asked is None else tuple(Select(asked, a, b) for a, b in zip(combined, before, strict=True))


@dataclass(frozen=True, slots=True)
class Grown:
    """A reduction of which a definition has every beginning, or every end, along `axis`: the first `count` terms of `binders`, or the
    last."""

    axis: str
    backwards: bool
    binders: tuple[Binder, ...]
    count: Affine


def grown_along(definition: Definition, e: Reduce, extents: Mapping[str, Affine]) -> Grown | None:
    """Return how a reduction grows along an axis that nothing but one end of its outermost range names; None where there is no such axis.

    y[i, j] = prod(k in 0..j+1) x[i, k]    the first j + 1 of the factors
    y[i, j] = prod(k in j..N) x[i, k]      the last N - j, where the order of two terms does not matter"""
    first, *inner = e.binders
    parts = (*e.body, *(e.init or ()), *(() if e.filter is None else (e.filter,)))
    conds = (e.where, definition.pieces[0].guard, *(bound for b in inner for bound in (b.lo, b.hi)))
    named = frozenset[str]().union(*map(index_names, parts), *map(affine.name_set, conds))
    for axis in (a for a in definition.axes if a not in named):
        backwards = axis in affine.name_set(first.lo)
        if backwards == (axis in affine.name_set(first.hi)) or (backwards and (e.init is not None or not e.reducer.commutative)):
            continue
        last = affine.sub(extents[axis], 1)
        bound = _extreme(first.lo if backwards else first.hi, {axis: (affine.ZERO, last)}, 0 if backwards else 1)
        count = affine.product(affine.sub(b.hi, b.lo) for b in e.binders)
        # One place further, too, so that there are no fewer than no terms where the axis is empty.
        beyond = (affine.ZERO, extents[axis]) if backwards else (Int(-1), last)
        fewest = _extreme(affine.sub(first.hi, first.lo), {axis: beyond}, 0)
        if bound is None or count is None or fewest is None or not _is_natural(fewest):
            continue
        whole = replace(first, lo=bound) if backwards else replace(first, hi=bound)
        if {*definition.axes}.isdisjoint(affine.name_set(whole.lo) | affine.name_set(whole.hi)):
            return Grown(axis, backwards, (whole, *inner), count)
    return None


def _is_natural(e: Affine) -> bool:
    """Tell whether `e` is a number, and no negative one."""
    known = affine.constant(e)
    return known is not None and known >= 0


def with_whole_ranges(binders: tuple[Binder, ...], extents: Mapping[str, Affine]) -> tuple[tuple[Binder, ...], Cond] | None:
    """Return binders whose ranges are those for all values of axes with these extents, and of binders before them, and where they are those
    of `binders`.

        j in 0..i    with i in 0..N    ->    j in 0..N-1 where j < i

    None where a bound is made of remainders of such names."""
    limits: dict[str, tuple[Affine, Affine]] = {name: (affine.ZERO, affine.sub(extent, 1)) for name, extent in extents.items()}
    made, inside = [], []
    for binder in binders:
        lo, hi = _extreme(binder.lo, limits, 0), _extreme(binder.hi, limits, 1)
        if lo is None or hi is None:
            return None
        if (lo, hi) != (binder.lo, binder.hi):
            inside.append(affine.within(binder.name, binder.lo, binder.hi))
            hi = affine.maximum(lo, hi)
        limits[binder.name] = (lo, affine.sub(hi, 1))
        made.append(replace(binder, lo=lo, hi=hi))
    return tuple(made), affine.conj(*inside)


def _extreme(e: Affine, limits: Mapping[str, tuple[Affine, Affine]], side: int) -> Affine | None:
    """Return no more than the least (`side` 0), or no less than the greatest (1), value of `e` over names between `limits`; None of
    remainders of them."""
    match e:
        case AffineName(name):
            return limits[name][side] if name in limits else e
        case Scale(factor, value):
            inner = _extreme(value, limits, side if factor > 0 else 1 - side)
            return None if inner is None else affine.scale(factor, inner)
        case Floor(value, divisor):
            inner = _extreme(value, limits, side)
            return None if inner is None else affine.floor(inner, divisor)
        case Add(lhs, rhs) | Min(lhs, rhs) | Max(lhs, rhs):
            left, right = _extreme(lhs, limits, side), _extreme(rhs, limits, side)
            if left is None or right is None:
                return None
            combine = {Add: affine.add, Min: affine.minimum, Max: affine.maximum}[type(e)]
            return combine(left, right)
        case Int() | Mod():
            return None if affine.name_set(e) & limits.keys() else e
        case _:
            assert_never(e)


def _places(binders: tuple[Binder, ...], number: Affine) -> dict[str, Affine] | None:
    """Return the values of binders at the point with a `number`, the last running fastest; None where these are no expressions over
    sizes."""
    place: dict[str, Affine] = {}
    inside = 1
    for binder in reversed(binders):
        digit, known = affine.floor(number, inside), affine.constant(affine.sub(binder.hi, binder.lo))
        if binder is not binders[0]:
            if known is None or known < 1:
                return None
            digit, inside = affine.mod(digit, known), inside * known
        place[binder.name] = affine.add(binder.lo, digit)
    return place


def with_large_lets(e: Expr) -> Expr:
    """Return `e` with values in place of the names that stand for small ones: what is written out in each place grows with every name
    that is made of others."""
    match e:
        case Let(name, value, body):
            bound = with_large_lets(value)
            if _keeps_its_name(e, bound):
                return replace(e, value=bound, body=with_large_lets(body))
            return with_large_lets(substitute_names(body, {name: bound}))
        case Project(TupleOf(items), position):
            return with_large_lets(items[position])
        case _:
            return map_children(with_large_lets, e)


def _keeps_its_name(e: Let, value: Expr) -> bool:
    """Tell whether the name of `value` stays, large as that is in all its places: a number that no reduction and no index in the body of
    `e` mentions."""
    uses = sum(1 for n in nodes(e.body) if n == Name(e.name))
    if isinstance(value, TupleOf) or uses < 2 or uses * sum(1 for _ in nodes(value)) < LARGE:
        return False
    return not any(isinstance(n, Reduce | Read | Project) and e.name in value_names(n) for n in nodes(e.body))


def has_reduction(e: Expr) -> bool:
    """Tell whether `e` reduces anything."""
    return any(True for _ in reduces(e))
