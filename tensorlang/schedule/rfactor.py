"""Factor a reduction: partial results of interleaved subsets, or of stretches of neighbours, then their combination.

    before   y[i] = sum(k) x[i, k]                                                   rfactor k by 4
    after    y.part[i, k.in] = sum(k.out in 0 .. ceildiv(K, 4), 4*k.out + k.in < K) x[i, 4*k.out + k.in]
             y[i]            = sum(k.in in 0 .. 4) y.part[i, k.in]

    before   y[i] = sum(k) x[i, k]                                                   rfactor k to 4096
    after    y.part[i, k.out] = sum(k.in in 0 .. 4096, 4096*k.out + k.in < K) x[i, 4096*k.out + k.in]
             y[i]             = sum(k.out in 0 .. ceildiv(K, 4096)) y.part[i, k.out]

    before   m[i], at[i] = first_max(k) (x[i, k], k)                                 rfactor k by 4
    after    m.part[i, k.in], m.part1[i, k.in] = first_max(k.out in …) (x[i, 4*k.out + k.in], 4*k.out + k.in)
             m[i], at[i]                       = first_max(k.in in 0 .. 4) (m.part[i, k.in], m.part1[i, k.in])

Regroups the reduction, so it asks for a reducer that is associative and commutative, and for a program that is not `strict`. The reducer
has an identity, or each part has terms. An initial value (`from`) joins the final combination, once. Where an element does not ask for
the reduction, its partial results are the identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyhedral import affine
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from polyhedral.sets import bounds
from tensorlang.tensor.facts import Place, binder_cond, box, context_of, is_choice, reductions
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binder, Definition, Expr, Holds, Piece, Program, Read, Reduce, Select, Tensor, as_value
from tensorlang.tensor.walk import fresh_for, reduces, replaced, substitute


@dataclass(frozen=True, slots=True)
class Found:
    """A reduction over a range, and the equation that it stands in."""

    definition: Definition
    piece: Piece
    reduce: Reduce
    binder: Binder


def reduction_over(program: Program, called: str) -> Found | str:
    """Return the first reduction over a range that is called so, or the reason why its terms may not be taken in another order. The range
    `k` of a sum in `s` is `k`, or `s.k` where one before it is called so."""
    found = next((f for f in _reductions(program) if called == f.binder.name), None)
    found = found or next((f for f in _reductions(program) if called in _full_names(f)), None)
    if found is None:
        return f"there is no reduction over `{called}`"
    return "the operator is `strict`: its reductions keep their order" if program.mode == "strict" else found


def name_of(program: Program, definition: Definition, binder: str) -> str:
    """Return what a range of a definition's reductions is called: its own name, or its full one where another definition has that first."""
    first = next(f for f in _reductions(program) if f.binder.name == binder)
    own = definition.tensors[0].name
    return binder if first.definition.tensors[0].name == own else f"{own}.{binder}"


def _reductions(program: Program) -> Iterator[Found]:
    for definition in program.definitions:
        for piece in definition.pieces:
            for reduce in reduces(piece.value):
                yield from (Found(definition, piece, reduce, binder) for binder in reduce.binders)


def _full_names(found: Found) -> Iterator[str]:
    yield from (f"{tensor.name}.{found.binder.name}" for tensor in found.definition.tensors)


def rfactor(program: Program, called: str, by: int, *, chunked: bool = False) -> Program | str:
    """Return the program with the reduction over a range that is `called` so factored into `by` interleaved partial results, or, where it
    is `chunked`, one for each run of so many neighbours, or the reason why it cannot be."""
    found = reduction_over(program, called)
    if isinstance(found, str):
        return found
    definition, piece, reduce, old = found.definition, found.piece, found.reduce, found.binder
    asked = context_of(reductions(piece.value, Place())[reduce])
    if not reduce.reducer.commutative or (reduce.reducer.identity is None and not _has_terms_everywhere(reduce, old, by, asked, chunked)):
        return f"`{reduce.reducer.name}` is not associative, not commutative or has no identity for these types"
    several = len(reduce.body) != 1 and not is_choice(reduce.reducer)
    if several or len(definition.pieces) != 1 or piece.guard != TRUE:
        return "only a reduction of one value, or to one of its terms, in a tensor with a single unguarded equation can be factored"
    fresh = fresh_for(program)
    binder = old.name
    outer, inner = fresh(f"{binder}.out"), fresh(f"{binder}.in")
    k = affine.add(old.lo, affine.scale(by, AffineName(outer)), inner)
    longest = _longest(program, found) if chunked else affine.sub(old.hi, old.lo)
    if longest is None:
        return f"other ranges of the reduction say how long `{old.name}` is, and no size how long at most"
    count = affine.ceil_div(longest, by)
    width = affine.to_expr(by)
    kept, parts, summed, length = (outer, count, inner, width) if chunked else (inner, width, outer, count)
    to = {binder: k}
    others = (replace(b, lo=affine.substitute(b.lo, to), hi=affine.substitute(b.hi, to)) for b in reduce.binders if b is not old)
    binders = tuple(Binder(summed, affine.ZERO, length) if b is old else next(others) for b in reduce.binders)
    extent = affine.difference(old.hi, old.lo)
    inside = affine.substitute_cond(reduce.where, to)
    if extent is None or extent % by:
        inside = affine.conj(inside, affine.compare("<", k, old.hi))
    partial = replace(
        reduce,
        binders=binders,
        body=tuple(substitute(b, to) for b in reduce.body),
        where=inside,
        filter=None if reduce.filter is None else substitute(reduce.filter, to),
        init=None,
    )
    axes = (*definition.axes, kept)
    shape = (*definition.tensors[0].shape, parts)
    called_parts = [fresh(f"{definition.tensors[0].name}.part{k or ''}") for k in range(len(reduce.body))]
    tensors = tuple(Tensor(n, dtype, shape, span=reduce.span) for n, dtype in zip(called_parts, reduce.reducer.dtypes, strict=True))
    value: Expr = partial
    if asked != TRUE and reduce.reducer.identity is not None:
        value = Select(Holds(asked), partial, as_value(reduce.reducer.identity), span=reduce.span)
    made = Definition(tensors, axes, (Piece(value, span=reduce.span),), span=reduce.span)
    lane = fresh(f"{binder}.lane")
    place = (*(AffineName(a) for a in definition.axes), AffineName(lane))
    read = tuple(Read(n, place, span=reduce.span) for n in called_parts)
    combined = replace(reduce, binders=(Binder(lane, affine.ZERO, parts),), body=read, where=TRUE, filter=None)

    new = replace(definition, pieces=(replace(piece, value=replaced(piece.value, reduce, combined)),))
    at = program.definitions.index(definition)
    return redefined(program, (*program.definitions[:at], made, new, *program.definitions[at + 1 :]))


def _longest(program: Program, found: Found) -> Affine | None:
    """Return how many values a range of a reduction has at most for the terms of an element; None where no bound is known."""
    binders = [b.name for b in found.reduce.binders]
    extent = affine.sub(found.binder.hi, found.binder.lo)
    if not affine.name_set(extent) & {*binders}:
        return extent
    terms = affine.conj(program.context, box(found.definition), binder_cond(found.reduce))
    return bounds((*program.sizes, *found.definition.axes), binders, terms, extent)[1]


def _has_terms_everywhere(reduce: Reduce, binder: Binder, by: int, asked: Cond, chunked: bool) -> bool:
    """Tell whether every partial result is made of one term at least: those of stretches are, and interleaved ones of `by` terms or
    more."""
    extent = affine.constant(affine.sub(binder.hi, binder.lo))
    alone = len(reduce.binders) == 1 and reduce.filter is None and reduce.where == TRUE and asked == TRUE
    return alone and extent is not None and extent > 0 and (chunked or extent >= by)
