"""Make one reduction of two of which the inner one is all that the outer one reduces.

    before   y[i, j] = sum(k) (sum(l) x[i + k, j + l])
    after    y[i, j] = sum(k, l) x[i + k, j + l]

    before   y[i] = sum(k, p[i] <= k, k < p[i + 1]) (sum(l) v[k, l] * x[l])
    after    y[i] = sum(k, l, p[i] <= k, k < p[i + 1]) v[k, l] * x[l]

Then the inner one needs no tensor of its own. It keeps that where several points share it, or what it reads: there a tensor saves work.
Points that a condition tells apart seldom share a term: they ask for terms of their own.
Sums and products that round are left as they are in `strict` mode, where their order is part of what they mean.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from polyhedral import affine
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Definition, Expr, Piece, Program, Reduce
from tensorlang.tensor.walk import index_names, map_children, reads, reduces


def with_flat_reductions(program: Program) -> Program:
    """Return `program` with reductions that reduce nothing but another one of their kind as one with it."""
    return redefined(program, [_flat_definition(d, program.mode == "strict") for d in program.definitions])


def _flat_definition(definition: Definition, strict: bool) -> Definition:
    def flat(piece: Piece) -> Piece:
        if not any(isinstance(e.body[0], Reduce) for e in reduces(piece.value)):
            return piece
        return replace(piece, value=_flat(piece.value, frozenset(definition.axes), strict))

    return replace(definition, pieces=tuple(map(flat, definition.pieces)))


def _flat(e: Expr, around: Set[str], strict: bool) -> Expr:
    if not isinstance(e, Reduce):
        return map_children(lambda c: _flat(c, around, strict), e)
    here = around | {b.name for b in e.binders}
    outer = map_children(lambda c: _flat(c, here, strict), e)
    assert isinstance(outer, Reduce)
    inner = outer.body[0]
    if not isinstance(inner, Reduce) or not _are_one(outer, inner, here, strict):
        return outer
    return replace(outer, binders=(*outer.binders, *inner.binders), body=inner.body, where=affine.conj(outer.where, inner.where))


def _are_one(outer: Reduce, inner: Reduce, around: Set[str], strict: bool) -> bool:
    """Tell whether folding the results of `inner` is folding all that it folds, and something is read for each of these terms alone: what
    several points in `around` share is computed once, and a product of matrices keeps its register tiles."""
    kind, dtype = outer.reducer.kind, outer.reducer.dtypes[0]
    is_same = kind is not None and kind == inner.reducer.kind and outer.reducer.dtypes == inner.reducer.dtypes
    is_plain = inner.filter is None and outer.init is None and inner.init is None
    rounds = kind in ("sum", "prod") and dtype.is_float
    apart = frozenset() if outer.filter is None else index_names(outer.filter)
    terms = (around - apart) | {b.name for b in (*outer.binders, *inner.binders)}
    return is_same and is_plain and not (rounds and strict) and any(terms <= index_names(r) for r in reads(inner.body[0]))
