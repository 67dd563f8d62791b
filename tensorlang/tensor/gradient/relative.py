"""Reductions to a maximum and to sums relative to it, such as `logsumexp` and attention in one pass, in two passes.

    before   m[i], s[i] = logsumexp(k) (x[i, k], 1)
    after    m[i]       = max(k) x[i, k]
             w[i, k]    = if x[i, k] == m[i] then 1 else exp(x[i, k] - m[i])
             s[i]       = sum(k) w[i, k]

What combines (m1, s1) and (m2, s2) to m = max(m1, m2) and s1 * exp(m1 - m) + s2 * exp(m2 - m) makes of all terms (m[k], s[k]) their maximum
and the sum of s[k] * exp(m[k] - m), as exp(a - b) * exp(b - c) = exp(a - c). The derivative of a sum does not go from step to step, and
of a maximum that cancels in the results nothing is left (`invariant`). A maximum has those axes alone that its terms have, and equal ones
are one, so that they cancel against each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import permutations

from polyhedral import affine
from polyhedral.expr import TRUE
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.gradient.algebra import exponent_of, is_number, product, sum_reducer, without_lets
from tensorlang.tensor.nodes import Binary, Binder, Definition, Expr, Name, Piece, Read, Reduce, Reducer, Tensor, TupleOf
from tensorlang.tensor.walk import Fresh, index_names, map_children, refresh, rename_binders, substitute

Weight = Callable[[Expr, Expr], Expr]
"""From what a term is relative to, and the maximum of that, to the factor of the term."""


@dataclass(slots=True)
class TwoPasses:
    """Makes maxima, factors and sums of reductions, those that are equal once for all definitions of a program."""

    fresh: Fresh
    made: dict[tuple[Expr, tuple[Affine, ...]], str] = field(default_factory=dict)
    """The tensor that holds a value, whose axes have the names of their places, and its shape."""

    def of(self, definition: Definition, e: Reduce) -> list[Definition] | None:
        """Return what stands in place of a definition whose first piece is `e`; None where that is no such reduction."""
        weights, tensors = _weights(e.reducer), definition.tensors
        if weights is None or tuple(t.dtype for t in tensors) != e.reducer.dtypes:
            return None
        maximum = replace(e, reducer=_maximum(e.reducer), body=e.body[:1], init=e.init and e.init[:1])
        out, greatest = self._maximum(definition, maximum)
        held: dict[Expr, Expr] = {}
        for k, weight in enumerate(weights, 1):
            factor = weight(e.body[0], greatest)
            if factor not in held:
                kept, held[factor] = self._kept(definition, e, factor)
                out += kept
            start = e.init and (product(e.init[k], weight(e.init[0], greatest)),)
            summed = replace(e, reducer=sum_reducer(e.reducer.dtypes[k]), body=(product(e.body[k], held[factor]),), init=start)
            out.append(_component(definition, k, refresh(summed, self.fresh)))
        return out

    def _maximum(self, definition: Definition, e: Reduce) -> tuple[list[Definition], Read]:
        """Return the definitions of a maximum over those axes of a definition that it depends on, and its element there."""
        whole = [_component(definition, 0, refresh(e, self.fresh))]
        here = Read(definition.tensors[0].name, tuple(map(AffineName, definition.axes)), span=e.span)
        if definition.pieces[0].guard != TRUE:
            return whole, here
        axes = tuple(a for a in definition.axes if a in index_names(e))
        found, read = self._tensor(definition, axes, (), e, here.tensor if axes == definition.axes else None)
        copied = [] if read.tensor == here.tensor else [_component(definition, 0, read)]
        return [*found, *copied], read

    def _kept(self, definition: Definition, e: Reduce, factor: Expr) -> tuple[list[Definition], Expr]:
        """Return the definition of a tensor of the factors of all terms, and that of the term at hand: a derivative reads them, too. Of
        terms that are no box, or of which only some can be computed, the factor as it is."""
        bounds = frozenset[str]().union(*(affine.name_set(bound) for b in e.binders for bound in (b.lo, b.hi)))
        asked = e.filter is not None or e.where != TRUE or definition.pieces[0].guard != TRUE
        if asked or bounds & {*definition.axes, *(b.name for b in e.binders)}:
            return [], factor
        axes = tuple(a for a in definition.axes if a in index_names(factor))
        return self._tensor(definition, axes, e.binders, factor, None)

    def _tensor(
        self, definition: Definition, axes: tuple[str, ...], binders: tuple[Binder, ...], value: Expr, name: str | None
    ) -> tuple[list[Definition], Read]:
        """Return the definition of a tensor that holds `value` for all values of some axes and of binders, none where there is one already,
        and its element there. `name`: that of a tensor of the definition, None for a new one."""
        extents = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
        shape = (*(extents[a] for a in axes), *(affine.sub(b.hi, b.lo) for b in binders))
        index = (*map(AffineName, axes), *(affine.sub(AffineName(b.name), b.lo) for b in binders))
        own = tuple(self.fresh(b.name) for b in binders)
        places = {n: AffineName(f"?{k}") for k, n in enumerate((*axes, *own))}
        moved = substitute(value, {b.name: affine.add(b.lo, n) for b, n in zip(binders, own, strict=True)})
        inner = {b.name: f"?{k}" for k, b in enumerate(value.binders, len(places))} if isinstance(value, Reduce) else {}
        general = substitute(moved, places)
        key = (rename_binders(general, inner) if isinstance(general, Reduce) else general), shape
        if key in self.made:
            return [], Read(self.made[key], index, span=value.span)
        self.made[key] = name or self.fresh(f"{definition.tensors[0].name}_{'weights' if binders else 'max'}")
        tensor = Tensor(self.made[key], definition.tensors[0].dtype, shape, span=value.span)
        piece = Piece(refresh(moved, self.fresh), span=value.span)
        return [Definition((tensor,), (*axes, *own), (piece,), span=value.span)], Read(tensor.name, index, span=value.span)


def _weights(reducer: Reducer) -> list[Weight] | None:
    """Return the factor of each component but the first, which is a maximum; None of any other reducer."""
    combine, identity = tuple(map(without_lets, reducer.combine)), reducer.identity
    if len(combine) < 2 or identity is None or not all(t.is_float for t in reducer.dtypes):
        return None
    if not is_number(identity[0], -math.inf) or not all(is_number(start, 0) for start in identity[1:]):
        return None
    left, right = (tuple(map(Name, side)) for side in (reducer.left, reducer.right))
    greatest = combine[0]
    if greatest not in (Binary("max", left[0], right[0]), Binary("max", right[0], left[0])):
        return None
    sums = zip(left[1:], right[1:], combine[1:], strict=True)
    factors = [_factor(value, (mine, left[0]), (other, right[0]), greatest) for mine, other, value in sums]
    return None if None in factors else [_weight(f, right[0], greatest) for f in factors if f is not None]


def _factor(value: Expr, mine: tuple[Name, Name], other: tuple[Name, Name], greatest: Expr) -> Expr | None:
    """Return the factor of what is right, where `value` adds what is left and right, each times its exponential relative to `greatest`."""

    def scaled(e: Expr, by: tuple[Name, Name]) -> Expr | None:
        factors = permutations((e.lhs, e.rhs)) if isinstance(e, Binary) and e.op == "*" else ()
        return next((f for state, f in factors if state == by[0] and exponent_of(f) == Binary("-", by[1], greatest)), None)

    parts = permutations((value.lhs, value.rhs)) if isinstance(value, Binary) and value.op == "+" else ()
    return next((f for a, b in parts if scaled(a, mine) is not None and (f := scaled(b, other)) is not None), None)


def _weight(factor: Expr, of: Name, greatest: Expr) -> Weight:
    """Return the factor of a term, from that of a component which is relative to `of` as `greatest` is the maximum."""

    def weight(term: Expr, maximum: Expr) -> Expr:
        def placed(e: Expr) -> Expr:
            return maximum if e == greatest else term if e == of else map_children(placed, e)

        return placed(factor)

    return weight


def _maximum(reducer: Reducer) -> Reducer:
    """Return the first component of a reducer alone."""
    assert reducer.identity is not None
    combine = Binary("max", Name("a"), Name("b"))
    return Reducer("max", ("a",), ("b",), reducer.dtypes[:1], (combine,), reducer.identity[:1], True, "max")


def _component(definition: Definition, k: int, value: Expr) -> Definition:
    """Return the definition of one of the tensors, where the first piece has this value."""
    first, *others = definition.pieces
    kept = (replace(p, value=p.value.items[k]) if isinstance(p.value, TupleOf) else p for p in others)
    return replace(definition, tensors=definition.tensors[k : k + 1], pieces=(replace(first, value=value), *kept))
