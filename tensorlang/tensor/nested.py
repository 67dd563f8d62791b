"""Give every reduction inside another reduction a tensor of its own, and reductions their own copies of the names they use.

    before   y[i] = sum(k in 0..i) x[k] * (sum(j in 0..k) a[k, j])
    after    y.sum[k] = sum(j in 0..k) a[k, j]      for what is known of k, 0 otherwise
             y[i]     = sum(k in 0..i) x[k] * y.sum[k]

A reduction that decides whether another one is asked for, which for that has to be known apart, gets a tensor of its own in the same way.
What is asked for under a condition takes the condition along, where an index from data may be in its range for no other reason.

The tensor has the axes and outer indices that the inner reduction uses, each over the smallest range from zero that holds its values; all
axes and outer indices in scope, where fewer would lose a condition that keeps its reads in bounds or its range from being empty. Of fewer
than all, the one along which most of what it reads lies side by side comes last, as neighbours then do in the tensor as well
(`contiguous`); what is for each term of a sum keeps the order of the terms, whose loops it may share. What `j != i` leaves out is computed
all the same, where its reads are in bounds: then a sum that reads the tensor can make it in its own loops.

    before   let v = f(x[i]) in sum(k) v * w[k]
    after    let v = f(x[i]) in sum(k) f(x[i]) * w[k]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from polyhedral import affine
from polyhedral.expr import TRUE, Compare, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.sets import bounds, is_empty
from polyhedral.verdict import Proven
from tensorlang.diagnostics import InternalError
from tensorlang.tensor.facts import Place, box, context_of, has_gather, keeps_conditions, map_parts, path_condition, reductions
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import (
    Const,
    Definition,
    Dynamic,
    Expr,
    Let,
    Piece,
    Program,
    Project,
    Read,
    Reduce,
    Select,
    Tensor,
    TupleOf,
    as_value,
)
from tensorlang.tensor.prove import is_sound
from tensorlang.tensor.walk import (
    Fresh,
    children,
    fresh_for,
    index_names,
    map_children,
    reads,
    reduces,
    refresh,
    substitute,
    substitute_names,
    value_names,
)

Ranges: TypeAlias = dict[str, tuple[Affine | None, Affine | None]]
"""Least and greatest value of each index in scope, over the sizes."""


def lift_nested(program: Program) -> Program:
    """Return `program` with no reduction inside another and none that uses a `let` around it; every result is the same bit for bit."""
    fresh = fresh_for(program)
    pending = [_with_own_names(d, fresh) for d in program.definitions]
    out: list[Definition] = []
    while pending:
        definition = pending.pop(0)
        lifting = _Nested(program, definition, fresh)
        pieces = tuple(lifting.piece(p) for p in definition.pieces)
        # What was lifted may have reductions inside its own.
        pending = [*lifting.made, *pending]
        out.append(replace(definition, pieces=pieces))
    return redefined(program, out)


# ---------------------------------------------------------------- names


def _with_own_names(definition: Definition, fresh: Fresh) -> Definition:
    def closed(piece: Piece) -> Piece:
        return replace(piece, value=_closed(piece.value, {}, fresh)) if any(map(value_names, reduces(piece.value))) else piece

    return replace(definition, pieces=tuple(map(closed, definition.pieces)))


def _closed(e: Expr, lets: dict[str, Expr], fresh: Fresh) -> Expr:
    """Return `e` with the values of `lets` in place of their names inside reductions."""
    match e:
        case Reduce():
            used = {n: lets[n] for n in sorted(value_names(e)) if n in lets}
            e = substitute_names(e, {n: refresh(v, fresh) for n, v in used.items()}) if used else e
            return map_children(lambda c: _closed(c, {}, fresh), e)
        case Let(name, value, body):
            value = _closed(value, lets, fresh)
            whole = substitute_names(value, lets) if value_names(value) & set(lets) else value
            return replace(e, value=value, body=_closed(body, {**lets, name: whole}, fresh))
        case _:
            return map_children(lambda c: _closed(c, lets, fresh), e)


# ---------------------------------------------------------------- reductions


@dataclass(slots=True)
class Lifting:
    """What is made of the reductions of a definition that get tensors of their own: `made`, in order."""

    program: Program
    definition: Definition
    fresh: Fresh
    made: list[Definition] = field(default_factory=list)

    def program_with(self, made: Definition) -> Program:
        """Return the program with what has been lifted, and one more."""
        return replace(self.program, definitions=(*self.program.definitions, *self.made, made))


@dataclass(slots=True)
class _Nested(Lifting):
    def piece(self, piece: Piece) -> Piece:
        every = list(reduces(piece.value))
        asking = any(map(keeps_conditions, every))
        if not asking and not any(True for e in every for part in children(e) for _ in reduces(part)):
            return piece
        place = Place(affine.conj(box(self.definition), piece.guard), self.definition.axes, box(self.definition))
        found = reductions(piece.value, place) if asking else {}
        deciding = {e for r, around in found.items() if keeps_conditions(r) for e in _deciding(around)}
        decided = {e: self.outline(e, found[e]) for e in found if e in deciding}
        return replace(piece, value=self.outside(piece.value, place, decided))

    def outside(self, e: Expr, place: Place, decided: Mapping[Reduce, Expr]) -> Expr:
        """Return what is in no reduction, its reductions without reductions in their parts, but for those whose values are `decided`."""
        match e:
            case Project(Reduce() as reduce, position) if reduce in decided:
                return _component(decided[reduce], position)
            case Reduce():
                return decided[e] if e in decided else map_parts(self.inside, e, place)
            case _:
                return map_parts(lambda part, there: self.outside(part, there, decided), e, place)

    def inside(self, e: Expr, place: Place) -> Expr:
        """Return a part of an outermost reduction, without reductions."""
        match e:
            case Project(Reduce() as reduce, position):
                return _component(self.outline(reduce, [place]), position)
            case Reduce():
                return self.outline(e, [place])
            case _:
                return map_parts(self.inside, e, place)

    def outline(self, e: Reduce, places: list[Place]) -> Expr:
        """Define a tensor that holds `e` for where it is asked for, and return its element here, or a tuple of them."""
        place, known = places[0], context_of(places)
        if isinstance(is_empty(self.program.sizes, place.scope, self._given(known)), Proven):
            return _never(e)
        condition = path_condition(places) if has_gather(e) else None
        value: Expr = e if condition is None else Select(condition, e, _never(e), span=e.span)
        used = index_names(value)
        least = tuple(n for n in place.scope if n in used)
        candidates = [place.scope] if least == place.scope else [contiguous(least, value), place.scope]
        shapes = {n: bounds(self.program.sizes, place.scope, self._given(place.ranges), AffineName(n)) for n in place.scope}
        conditions = dict.fromkeys((known if has_gather(e) else _without_holes(known), known))
        tries = [(names, cond) for names in candidates for cond in conditions]
        for names, cond in tries:
            made = self._definition(e, value, names, cond, shapes)
            if (names, cond) == tries[-1] or is_sound(self.program_with(made), made):
                self.made.append(made)
                index = tuple(affine.sub(n, _low(shapes[n][0], n)) for n in names)
                return as_value(tuple(Read(t.name, index, span=e.span) for t in made.tensors), e.span)
        raise AssertionError("the last candidate is always taken")

    def _given(self, known: Cond) -> Cond:
        return affine.conj(self.program.context, *(affine.compare(">=", s, 0) for s in self.program.sizes), known)

    def _definition(
        self, e: Reduce, value: Expr, names: tuple[str, ...], known: Cond, shapes: dict[str, tuple[Affine | None, Affine | None]]
    ) -> Definition:
        prefix = f"{self.definition.tensors[0].name}.{e.reducer.name}"
        axes = {n: self.fresh(n) for n in names}
        back = {n: affine.add(a, _low(shapes[n][0], n)) for n, a in axes.items()}
        shape = tuple(affine.add(affine.sub(_low(shapes[n][1], n), _low(shapes[n][0], n)), 1) for n in names)
        parts = range(len(e.body))
        tensors = tuple(Tensor(self.fresh(prefix if not p else f"{prefix}.{p}"), e.reducer.dtypes[p], shape, span=e.span) for p in parts)
        local = [c for c in affine.conjuncts(known) if set(affine.names(c)) <= {*names, *self.program.sizes}]
        guard = affine.substitute_cond(affine.conj(*local), back)
        inside = affine.conj(*(c for c in affine.conjuncts(guard) if c not in affine.conjuncts(_box(axes, names, shape))))
        pieces = [Piece(substitute(refresh(value, self.fresh) if value is not e else e, back), inside, span=e.span)]
        if inside != TRUE:
            pieces.append(Piece(_never(e), affine.negate(inside), otherwise=True, span=e.span))
        return Definition(tensors, tuple(axes[n] for n in names), tuple(pieces), span=e.span)


def contiguous(names: tuple[str, ...], e: Expr) -> tuple[str, ...]:
    """Return `names` with that one last along which fewest reads of `e` find elements that lie apart, in their order where it is last."""
    apart = Counter(n for read in dict.fromkeys(reads(e)) for n in index_names(read) if not _is_contiguous(read, n))
    last = min(reversed(names), key=lambda n: apart[n], default="")
    return (*(n for n in names if n != last), *(n for n in names if n == last))


def _is_contiguous(read: Read, name: str) -> bool:
    """Tell whether neighbours lie side by side where `name`, which is used, grows by one."""
    last = read.index[-1]
    form = None if isinstance(last, Dynamic) else affine.affine_form(last)
    return form is not None and abs(form[0].get(name, 0)) == 1 and name not in index_names(replace(read, index=read.index[:-1]))


def _without_holes(known: Cond) -> Cond:
    """Return what is known but for `j != i` and the like: the few elements that this leaves out are sooner computed than asked about."""
    return affine.conj(*(c for c in affine.conjuncts(known) if not (isinstance(c, Compare) and c.op == "!=")))


def _box(axes: dict[str, str], names: tuple[str, ...], shape: tuple[Affine, ...]) -> Cond:
    return affine.conj(*(affine.within(axes[n], 0, s) for n, s in zip(names, shape, strict=True)))


def _low(bound: Affine | None, name: str) -> Affine:
    if bound is None:
        raise InternalError("lift", f"not supported yet: a reduction inside another whose index `{name}` has no single bound")
    return bound


def _deciding(places: list[Place]) -> Iterator[Reduce]:
    """Yield the reductions in the conditions at `places`."""
    for place in places:
        condition = place.condition()
        if condition is not None:
            yield from reductions(condition, Place())


def _component(value: Expr, position: int) -> Expr:
    return value.items[position] if isinstance(value, TupleOf) else value


def _never(e: Reduce) -> Expr:
    """Return a value of the type of `e` for where it is not asked for."""
    return as_value(tuple(Const(d.zero, d) for d in e.reducer.dtypes))
