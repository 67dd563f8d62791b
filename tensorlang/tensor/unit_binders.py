"""Reduction indices that take one value are that value.

    before   y[p] = sum(c, r in 0..1) x[c, p + r] * w[c, r]          after   y[p] = sum(c) x[c, p] * w[c, 0]

A reduction without indices left is one step: its initial value combined with the body.
"""

from __future__ import annotations

from dataclasses import replace

from polyhedral import affine
from tensorlang.tensor.nodes import Expr, Program, Reduce
from tensorlang.tensor.walk import map_children, map_values, substitute


def drop_unit_binders(program: Program) -> Program:
    """Return `program` without such indices, as long as one index remains; no bit of a result changes."""
    return map_values(program, _dropped)


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
