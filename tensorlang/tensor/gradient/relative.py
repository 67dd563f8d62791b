"""Reductions to a maximum and to sums relative to it, such as `logsumexp` and attention in one pass, in two passes.

    before   m[i], s[i] = logsumexp(k) (x[i, k], 1)
    after    m[i]       = max(k) x[i, k]
             w[i, k]    = if x[i, k] == m[i] then 1 else exp(x[i, k] - m[i])
             s[i]       = sum(k) w[i, k]

What combines (m1, s1) and (m2, s2) to m = max(m1, m2) and s1 * exp(m1 - m) + s2 * exp(m2 - m) makes of all terms (m[k], s[k]) their maximum
and the sum of s[k] * exp(m[k] - m), as exp(a - b) * exp(b - c) = exp(a - c). The derivative of a sum does not go from step to step, and
of a maximum that cancels in the results nothing is left (`invariant`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

from polyhedral import affine
from polyhedral.expr import TRUE
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.gradient.algebra import exponent_of, is_number, product, sum_reducer, without_lets
from tensorlang.tensor.nodes import Binary, Definition, Expr, Name, Piece, Read, Reduce, Reducer, Tensor, TupleOf
from tensorlang.tensor.walk import Fresh, map_children, refresh, substitute

Weight = Callable[[Expr, Expr], Expr]
"""From what a term is relative to, and the maximum of that, to the factor of the term."""


def in_two_passes(definition: Definition, e: Reduce, fresh: Fresh) -> list[Definition] | None:
    """Return a maximum, factors and sums in place of a definition whose first piece is `e`; None where it is no such reduction."""
    weights, tensors = _weights(e.reducer), definition.tensors
    if weights is None or tuple(t.dtype for t in tensors) != e.reducer.dtypes:
        return None
    greatest = Read(tensors[0].name, tuple(map(AffineName, definition.axes)), span=e.span)
    maximum = replace(e, reducer=_maximum(e.reducer), body=e.body[:1], init=e.init and e.init[:1])
    made = [_component(definition, 0, refresh(maximum, fresh))]
    held: dict[Expr, Expr] = {}
    for k, weight in enumerate(weights, 1):
        factor = weight(e.body[0], greatest)
        if factor not in held:
            kept = _kept(definition, e, factor, fresh)
            made += [] if kept is None else [kept[0]]
            held[factor] = factor if kept is None else kept[1]
        start = e.init and (product(e.init[k], weight(e.init[0], greatest)),)
        summed = replace(e, reducer=sum_reducer(e.reducer.dtypes[k]), body=(product(e.body[k], held[factor]),), init=start)
        made.append(_component(definition, k, refresh(summed, fresh)))
    return made


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


def _kept(definition: Definition, e: Reduce, factor: Expr, fresh: Fresh) -> tuple[Definition, Expr] | None:
    """Return a tensor of the factors of all terms, and that of the term at hand: a derivative reads them, too. None where terms are no box,
    or not all of them can be computed."""
    bounds = frozenset[str]().union(*(affine.name_set(bound) for b in e.binders for bound in (b.lo, b.hi)))
    asked = e.filter is not None or e.where != TRUE or definition.pieces[0].guard != TRUE
    if asked or bounds & {*definition.axes, *(b.name for b in e.binders)}:
        return None
    shape = (*definition.tensors[0].shape, *(affine.sub(b.hi, b.lo) for b in e.binders))
    own = [fresh(b.name) for b in e.binders]
    tensor = Tensor(fresh(f"{definition.tensors[0].name}_weights"), e.reducer.dtypes[0], shape, span=e.span)
    value = refresh(substitute(factor, {b.name: affine.add(b.lo, name) for b, name in zip(e.binders, own, strict=True)}), fresh)
    made = Definition((tensor,), (*definition.axes, *own), (Piece(value, span=e.span),), span=e.span)
    index = (*map(AffineName, definition.axes), *(affine.sub(AffineName(b.name), b.lo) for b in e.binders))
    return made, Read(tensor.name, index, span=e.span)
