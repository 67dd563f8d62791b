"""Proofs about integer sets, each under a limit of operations, each refutation with the smallest counter-example.

Sizes take whatever values `context` or `given` allows; say `N >= 0` there. All expressions are over `params` and `iters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import ParamSpec

import islpy as isl

from polyhedral import affine
from polyhedral.expr import TRUE, And, Cond, Expr
from polyhedral.record import named, note
from polyhedral.recurrence import Edge, well_founded
from polyhedral.space import DT, Frame, OperationLimit, limited, smallest_point, val
from polyhedral.verdict import Proven, Refuted, Unknown, Verdict

__all__ = [
    "Edge",
    "bounds",
    "covers",
    "disjoint",
    "implies",
    "is_empty",
    "needed",
    "well_founded",
]

P = ParamSpec("P")


def _within_limit(proof: Callable[P, Verdict]) -> Callable[P, Verdict]:
    @wraps(proof)
    def run(*args: P.args, **kwargs: P.kwargs) -> Verdict:
        try:
            with limited():
                return proof(*args, **kwargs)
        except OperationLimit as limit:
            return Unknown(str(limit))

    return run


@_within_limit
def implies(params: Sequence[str], iters: Sequence[str], given: Cond, claim: Cond) -> Verdict:
    """Return whether `claim` holds at every integer point where `given` does."""
    frame = Frame(tuple(params), tuple(iters))
    conjuncts = claim.conds if isinstance(claim, And) else (claim,)
    points = frame.set(given)
    failing = [f for c in conjuncts if not (f := points.intersect(frame.set(affine.negate(c)))).is_empty()]
    if not failing:
        note("implies", "", _shown, frame, given, claim)
        return Proven()
    worst = failing[0]
    for other in failing[1:]:
        worst = worst.union(other)
    return _refuted(frame, worst)


def needed(params: Sequence[str], iters: Sequence[str], given: Cond, conds: Iterable[Cond]) -> list[Cond]:
    """Return the conditions that are not shown to follow from the others and from what is given."""
    kept = [c for c in conds if c != TRUE]
    for cond in tuple(kept):
        others = [c for c in kept if c is not cond]
        if isinstance(implies(params, iters, affine.conj(given, *others), cond), Proven):
            kept = others
    return kept


@_within_limit
def disjoint(params: Sequence[str], iters: Sequence[str], context: Cond, a: Cond, b: Cond) -> Verdict:
    """Return whether `a` and `b` never hold together; the witness is a common point."""
    frame = Frame(tuple(params), tuple(iters))
    verdict = _empty(frame, context, a, b)
    if isinstance(verdict, Proven):
        note("disjoint", "", _shown, frame, affine.conj(context, a), affine.conj(context, b))
    return verdict


@_within_limit
def is_empty(params: Sequence[str], iters: Sequence[str], context: Cond, domain: Cond = TRUE) -> Verdict:
    """Return whether no point satisfies both; the witness is a point that does."""
    return _empty(Frame(tuple(params), tuple(iters)), context, domain)


@_within_limit
def covers(params: Sequence[str], iters: Sequence[str], context: Cond, box: Cond, pieces: Sequence[Cond]) -> Verdict:
    """Return whether every point of `box` lies in one of `pieces`; the witness is a point that does not."""
    frame = Frame(tuple(params), tuple(iters))
    left = frame.set(context).intersect(frame.set(box))
    for piece in pieces:
        left = left.subtract(frame.set(piece))
    if not left.is_empty():
        return _refuted(frame, left)
    note("covers", "", _shown, frame, affine.conj(context, box), *pieces)
    return Proven()


def _shown(frame: Frame, *conds: Cond) -> list[isl.Set]:
    return [named(frame.set(c), frame.dims) for c in conds]


def _empty(frame: Frame, *conds: Cond) -> Verdict:
    points = frame.set(affine.conj(*conds))
    return Proven() if points.is_empty() else _refuted(frame, points)


def _refuted(frame: Frame, points: isl.Set) -> Refuted:
    sizes, point = smallest_point(points)
    return Refuted(dict(zip(frame.dims, point, strict=True)), dict(zip(frame.params, sizes, strict=True)))


def bounds(params: Sequence[str], iters: Sequence[str], domain: Cond, expr: Expr) -> tuple[Expr | None, Expr | None]:
    """Return the least and the greatest value of `expr` over `domain` in terms of the parameters; None where there is no bound, or where it
    is not one minimum or maximum of affine expressions, or where isl gave up."""
    frame = Frame(tuple(params), tuple(iters))
    try:
        with limited():
            values = isl.Map.from_pw_aff(frame.pw_aff(expr)).intersect_domain(frame.set(domain)).range()
            return _extreme(values, 0, isl.Set.dim_min), _extreme(values, 0, isl.Set.dim_max)
    except OperationLimit:
        return None, None


def _extreme(points: isl.Set, position: int, which: Callable[[isl.Set, int], isl.PwAff], offset: int = 0) -> Expr | None:
    bounded = isl.Set.dim_has_any_lower_bound if which is isl.Set.dim_min else isl.Set.dim_has_any_upper_bound
    if not bounded(points, DT.set, position) or points.is_empty():
        return None
    frame = Frame(tuple(str(points.get_dim_name(DT.param, p)) for p in range(points.dim(DT.param))), ())
    try:
        pw = which(points, position)
    except isl.Error as error:
        if "maximal number of operations" in str(error):
            raise
        return None
    return frame.piecewise(pw.add_constant_val(val(offset)))
