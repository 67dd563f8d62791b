"""Conditions that say no more than that an index lies in a tensor: how padding looks once it is part of an expression."""

from __future__ import annotations

from polyhedral import affine
from polyhedral.expr import Compare, Cond
from polyhedral.expr import Expr as Affine
from tensorlang.tensor.nodes import Dynamic, Tensor


def in_range(cond: Cond, index: tuple[Affine | Dynamic, ...], source: Tensor) -> bool:
    """Tell whether `cond` says no more than that the index lies in the tensor."""
    allowed: set[Cond] = set()
    for slot, extent in zip(index, source.shape, strict=True):
        if isinstance(slot, Dynamic):
            return False
        allowed |= {canonical(c) for c in affine.conjuncts(affine.within(slot, 0, extent))}
    return all(canonical(c) in allowed for c in affine.conjuncts(cond))


def canonical(cond: Cond) -> Cond:
    """Return an inequality as `0 <= e`."""
    match list(affine.inequalities(cond)):
        case [e]:
            return Compare("<=", affine.ZERO, e)
        case _:
            return cond
