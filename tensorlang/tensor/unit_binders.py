"""Indices that take one value are that value.

    before   y[p] = sum(c, r in 0..1) x[c, p + r] * w[c, r]          after   y[p] = sum(c) x[c, p] * w[c, 0]
    before   y[g in 0..1, f] = sum(c) x[8*g + c] * w[g, f, c]        after   y[g, f] = sum(c) x[c] * w[g, f, c]

A reduction without indices left is one step: its initial value combined with the body. An axis of a result that stands alone as an index
stays: it says which axes of tensors belong together.
"""

from __future__ import annotations

from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.nodes import Definition, Expr, Program, Reduce
from tensorlang.tensor.walk import map_children, map_pieces, map_values, rebuild, substitute


def drop_unit_binders(program: Program) -> Program:
    """Return `program` without such indices of reductions, as long as one index remains; no bit of a result changes."""
    return map_values(program, _dropped)


def drop_unit_axes(definition: Definition) -> Definition:
    """Return `definition` with no index that is computed with an axis of one value; no bit of a result changes."""
    shape = definition.tensors[0].shape
    fixed = {axis: affine.ZERO for axis, extent in zip(definition.axes, shape, strict=True) if affine.constant(extent) == 1}

    def index(e: Affine) -> Affine:
        return e if isinstance(e, AffineName) else affine.substitute(e, fixed)

    def value(e: Expr) -> Expr:
        return rebuild(e, value, index, lambda cond: affine.substitute_cond(cond, fixed))

    return map_pieces(definition, value) if fixed else definition


def _dropped(e: Expr) -> Expr:
    e = map_children(_dropped, e)
    if not isinstance(e, Reduce):
        return e
    fixed = {b.name: b.lo for b in e.binders if b.extent == 1}
    if len(fixed) == len(e.binders):
        fixed.pop(e.binders[-1].name, None)
    if not fixed:
        return e
    left = tuple(replace(b, lo=affine.substitute(b.lo, fixed), hi=affine.substitute(b.hi, fixed)) for b in e.binders if b.name not in fixed)
    return replace(
        e,
        binders=left,
        body=tuple(substitute(b, fixed) for b in e.body),
        where=affine.substitute_cond(e.where, fixed),
        filter=None if e.filter is None else substitute(e.filter, fixed),
    )
