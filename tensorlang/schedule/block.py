"""Cut a sum at multiples of a block: the terms of whole blocks, and the rest.

    before   m[i, j] = a[i, j] - sum(k in 0..j) m[i, k] * m[k, j]                                    block k by 16
    after    m[i, j] = a[i, j] - (sum(k in 0..16 * (j // 16)) m[i, k] * m[k, j]
                                  + sum(k.rest in 16 * (j // 16)..j) m[i, k.rest] * m[k.rest, j])

Where a range begins at an index as well, what comes before its first whole block is `k.first`. Elements of one block of columns need the
same whole blocks, and all of these lie in blocks that are done by then: that is what blocked factorisations and dynamic programming
consist of. Regroups the sum, so it asks for a reducer of one operation with an identity, and for a program that is not `strict`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binary, Binder, Definition, Expr, Piece, Program, Reduce
from tensorlang.tensor.walk import fresh_for, reduces, replaced, substitute

Operation = Literal["+", "*", "min", "max"]
OPERATIONS: dict[str | None, Operation] = {"sum": "+", "prod": "*", "min": "min", "max": "max"}
"""What puts the parts of a reduction together, by its kind."""


def block(program: Program, binder: str, by: int) -> Program | str:
    """Return the program with the reduction over `binder` cut at multiples of `by`, or the reason why it cannot be."""
    found = [(d, p, r) for d in program.definitions for p in d.pieces for r in reduces(p.value) if any(b.name == binder for b in r.binders)]
    if not found:
        return f"there is no reduction over `{binder}`"
    definition, piece, reduce = found[0]
    if program.mode == "strict":
        return "the operator is `strict`: its reductions keep their order"
    operation = OPERATIONS.get(reduce.reducer.kind)
    if operation is None or reduce.reducer.identity is None or reduce.init is not None or len(reduce.body) != 1:
        return f"`{reduce.reducer.name}` is not one operation with an identity, or starts from a value"
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
    first = lo if affine.name_set(lo).isdisjoint(axes) else affine.scale(by, affine.ceil_div(lo, by))
    last = hi if affine.name_set(hi).isdisjoint(axes) else affine.scale(by, affine.floor(hi, by))
    found = [("", first, last)]
    if last != hi:
        found.append(("rest", affine.maximum(first, last), hi))
    if first != lo:
        found.append(("first", lo, affine.minimum(first, hi)))
    return found
