"""Cut a sum at multiples of a block: the terms of whole blocks, and the rest.

    before   m[i, j] = a[i, j] - sum(k in 0..j) m[i, k] * m[k, j]                                    block k by 16
    after    m[i, j] = a[i, j] - (sum(k in 0..16 * (j // 16)) m[i, k] * m[k, j]
                                  + sum(k.rest in 16 * (j // 16)..j) m[i, k.rest] * m[k.rest, j])

Where a range begins at an index as well, what comes before its first whole block is `k.first`. A maximum or minimum that starts from a
value does so in every part. Elements of one block of columns need the same whole blocks, and all of these lie in blocks that are done by
then: that is what blocked factorisations and dynamic programming consist of. Regroups the sum, so it asks for a reducer of one operation
with an identity, and for a program that is not `strict`.
"""

from __future__ import annotations

from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.schedule.rfactor import reduction_over
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import OPERATIONS, Binary, Binder, Definition, Expr, Piece, Program, Reduce
from tensorlang.tensor.walk import fresh_for, replaced, substitute

_CUT = ("sum", "prod", "min", "max")
"""The kinds of reductions that can be cut."""


def block(program: Program, called: str, by: int) -> Program | str:
    """Return the program with the reduction over a range that is `called` so cut at multiples of `by`, or the reason why it cannot be."""
    found = reduction_over(program, called)
    if isinstance(found, str):
        return found
    definition, piece, reduce, binder = found.definition, found.piece, found.reduce, found.binder.name
    operation = OPERATIONS[reduce.reducer.kind] if reduce.reducer.kind in _CUT else None
    if (
        operation is None
        or reduce.reducer.identity is None
        or len(reduce.body) != 1
        or (reduce.init is not None and operation not in ("min", "max"))
    ):
        return f"`{reduce.reducer.name}` is not one operation with an identity, or adds to a value that it starts from"
    if len(reduce.binders) != 1 or reduce.filter is not None:
        return "only a reduction over one range without a condition on data can be cut"
    (old,) = reduce.binders
    ranges = _ranges(old, by, definition.axes)
    if len(ranges) == 1:
        return f"the range of `{binder}` is the same for all elements"
    fresh = fresh_for(program)
    parts: list[Expr] = []
    for name, lo, hi in ranges:
        new = binder if not name else fresh(f"{binder}.{name}")
        to = {binder: AffineName(new)}
        body = tuple(substitute(b, to) for b in reduce.body)
        parts.append(replace(reduce, binders=(Binder(new, lo, hi),), body=body, where=affine.substitute_cond(reduce.where, to)))
    whole = parts[0]
    for part in parts[1:]:
        whole = Binary(operation, whole, part, span=reduce.span)
    at = program.definitions.index(definition)
    return redefined(program, (*program.definitions[:at], _with(definition, piece, reduce, whole), *program.definitions[at + 1 :]))


def _with(definition: Definition, piece: Piece, reduce: Reduce, whole: Expr) -> Definition:
    pieces = tuple(replace(p, value=replaced(p.value, reduce, whole)) if p is piece else p for p in definition.pieces)
    return replace(definition, pieces=pieces)


def _ranges(binder: Binder, by: int, axes: tuple[str, ...]) -> list[tuple[str, Affine, Affine]]:
    """Return the ranges that a binder's is cut into, each with what it is called, whole blocks first."""
    lo, hi = binder.lo, binder.hi
    first = lo if affine.name_set(lo).isdisjoint(axes) else _after(lo, by, axes)
    last = hi if affine.name_set(hi).isdisjoint(axes) else _before(hi, by, axes)
    found = [("", first, last)]
    if last != hi:
        found.append(("rest", affine.maximum(first, last), hi))
    if first != lo:
        found.append(("first", lo, affine.minimum(first, hi)))
    return found


def _after(lo: Affine, by: int, axes: tuple[str, ...]) -> Affine:
    """Return a multiple of `by` that is no less than `lo`, the same for all elements of a block along the axis that `lo` counts from."""
    axis, offset = _counted(lo, axes)
    if axis is None:
        return affine.scale(by, affine.ceil_div(lo, by))
    return affine.add(affine.scale(by, affine.floor(AffineName(axis), by)), by * -(-(by - 1 + offset) // by))


def _before(hi: Affine, by: int, axes: tuple[str, ...]) -> Affine:
    """Return a multiple of `by` that is no more than `hi`, the same for all elements of a block along the axis that `hi` counts from."""
    axis, offset = _counted(hi, axes)
    if axis is None:
        return affine.scale(by, affine.floor(hi, by))
    return affine.add(affine.scale(by, affine.floor(AffineName(axis), by)), by * (offset // by))


def _counted(e: Affine, axes: tuple[str, ...]) -> tuple[str | None, int]:
    """Return the axis and the number that `e` is the sum of; no axis where it is something else."""
    form = affine.affine_form(e)
    if form is None or len(form[0]) != 1:
        return None, 0
    ((name, factor),) = form[0].items()
    return (name, form[1]) if factor == 1 and name in axes else (None, 0)
