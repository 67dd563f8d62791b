"""Give a reduction a tensor of its own where it does not need all the axes around it.

    before   y[d, j] = e[d, j] / sum(k) e[d, k]              the sum would be taken anew for each j
    after    y.sum[d] = sum(k) e[d, k]
             y[d, j]  = e[d, j] / y.sum[d]

Nothing is lifted from where a condition guards it (a guarded piece, a side of a `Select`, what comes after `and` or `or`, the terms that a
filter leaves), unless it is one of the piece that speaks of the remaining axes alone. What is then still inside the body of another
reduction `tensorlang.tensor.nested` lifts, whatever it uses; what is left gets its conditions (`tensorlang.tensor.guarded`).
"""

from __future__ import annotations

from dataclasses import replace

from codegen.dtypes import DType
from polyhedral import affine
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.guarded import guarded
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nested import lift_nested
from tensorlang.tensor.nodes import Binary, Definition, Expr, Piece, Program, Read, Reduce, Select, Tensor
from tensorlang.tensor.walk import Fresh, fresh_for, index_names, map_children, tensor_names, value_names


def lift(program: Program) -> Program:
    """Return `program` with all such reductions lifted: lifting again changes nothing. Tensors hold what they held, bit for bit."""
    fresh = fresh_for(program)
    out: list[Definition] = []
    for definition in program.definitions:
        made: list[Definition] = []
        extents = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
        own = {t.name for t in definition.tensors}
        pieces = tuple(
            replace(p, value=_lift(p.value, definition.axes, extents, p.guard, own, definition.tensors[0].name, fresh, made))
            for p in definition.pieces
        )
        out += [*made, replace(definition, pieces=pieces)]
    lifted = redefined(program, out)
    if lifted != program:
        return lift(lifted)
    whole = guarded(lift_nested(program))
    return program if whole == program else lift(whole)


def _lift(
    e: Expr,
    axes: tuple[str, ...],
    extents: dict[str, Affine],
    guard: Cond,
    own: set[str],
    prefix: str,
    fresh: Fresh,
    made: list[Definition],
) -> Expr:
    match e:
        case Reduce():
            inner = {
                **extents,
                **{b.name: b.hi for b in e.binders if affine.constant(b.lo) == 0 and not set(affine.names(b.hi)) & set(extents)},
            }
            around = (*axes, *(b.name for b in e.binders))
            if e.filter is None:
                e = replace(e, body=tuple(_lift(b, around, inner, _deeper(guard, e), own, prefix, fresh, made) for b in e.body))
            used = tuple(a for a in axes if a in index_names(e))
            free = set(affine.names(guard)) & set(axes)
            if used == axes or not free <= set(used) or any(a not in extents for a in used):
                return e
            if value_names(e) or tensor_names(e) & own or len(e.body) != 1 or (guard != TRUE and e.reducer.identity is None):
                return e
            return _outline(e, used, extents, guard, prefix, fresh, made)
        case Select(cond):
            # A reduction on a chosen side may read what exists only there: it stays.
            return replace(e, cond=_lift(cond, axes, extents, guard, own, prefix, fresh, made))
        case Binary("and" | "or", lhs):
            return replace(e, lhs=_lift(lhs, axes, extents, guard, own, prefix, fresh, made))
        case _:
            return map_children(lambda child: _lift(child, axes, extents, guard, own, prefix, fresh, made), e)


def _deeper(guard: Cond, e: Reduce) -> Cond:
    return affine.conj(guard, e.where)


def _outline(
    e: Reduce, used: tuple[str, ...], extents: dict[str, Affine], guard: Cond, prefix: str, fresh: Fresh, made: list[Definition]
) -> Read:
    """Define a tensor over `used` that holds `e`, and return its element here."""
    dtype: DType = e.reducer.dtypes[0]
    tensor = Tensor(fresh(f"{prefix}.{e.reducer.name}"), dtype, tuple(extents[a] for a in used), span=e.span)
    inside = affine.conj(*(c for c in affine.conjuncts(guard) if set(affine.names(c)) & set(used)))
    pieces = [Piece(e, inside, span=e.span)]
    if inside != TRUE and e.reducer.identity is not None:
        pieces.append(Piece(e.reducer.identity[0], affine.negate(inside), otherwise=True, span=e.span))
    made.append(Definition((tensor,), used, tuple(pieces), span=e.span))
    return Read(tensor.name, tuple(AffineName(a) for a in used), span=e.span)
