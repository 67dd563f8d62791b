"""Conditions that say no more than that an index lies in a tensor: how padding looks once it is part of an expression."""

from __future__ import annotations

from polyhedral.expr import Compare, Cond
from polyhedral.expr import Expr as Affine
from tensorlang.tensor import affine
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
    match cond:
        case Compare("<=", lhs, rhs):
            return Compare("<=", affine.ZERO, _sorted(affine.sub(rhs, lhs)))
        case Compare(">=", lhs, rhs):
            return Compare("<=", affine.ZERO, _sorted(affine.sub(lhs, rhs)))
        case Compare("<", lhs, rhs):
            return Compare("<=", affine.ZERO, _sorted(affine.sub(affine.sub(rhs, lhs), 1)))
        case Compare(">", lhs, rhs):
            return Compare("<=", affine.ZERO, _sorted(affine.sub(affine.sub(lhs, rhs), 1)))
        case _:
            return cond


def _sorted(e: Affine) -> Affine:
    coefficients, const = affine.terms(e)
    return affine.from_terms(dict(sorted(coefficients.items(), key=lambda item: affine.show(item[0]))), const)
