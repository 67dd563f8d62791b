"""What holds where a part of a program is evaluated: boxes, guards, ranges of binders, conditions around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polyhedral.expr import TRUE, Cond
from tensorlang.tensor import affine
from tensorlang.tensor.nodes import (
    Binary,
    Definition,
    Expr,
    Holds,
    Reduce,
    Select,
    Unary,
)
from tensorlang.tensor.walk import children


def box(definition: Definition) -> Cond:
    """Return `0 <= axis < extent` for every axis of the definition."""
    return affine.conj(*(affine.within(a, 0, s) for a, s in zip(definition.axes, definition.tensors[0].shape, strict=True)))


def binder_cond(e: Reduce) -> Cond:
    """Return what holds of the binders of `e` inside its body: their ranges and `where`."""
    return affine.conj(*(affine.within(b.name, b.lo, b.hi) for b in e.binders), e.where)


def facts(e: Expr) -> Cond:
    """Return the polyhedral part of a condition: what surely holds where `e` is true."""
    match e:
        case Holds(cond):
            return cond
        case Binary("and", lhs, rhs):
            return affine.conj(facts(lhs), facts(rhs))
        case Binary("or", lhs, rhs):
            return affine.disj(facts(lhs), facts(rhs))
        case Unary("not", value):
            return negative_facts(value)
        case _:
            return TRUE


def negative_facts(e: Expr) -> Cond:
    """Return what surely holds where the condition `e` is false."""
    match e:
        case Holds(cond):
            return affine.negate(cond)
        case Binary("and", lhs, rhs):
            return affine.disj(negative_facts(lhs), negative_facts(rhs))
        case Binary("or", lhs, rhs):
            return affine.conj(negative_facts(lhs), negative_facts(rhs))
        case Unary("not", value):
            return facts(value)
        case _:
            return TRUE


@dataclass(frozen=True, slots=True)
class Visit:
    """A node where it stands: what is known there, and the axes and binders in scope."""

    node: Expr
    known: Cond
    scope: tuple[str, ...]


def visits(e: Expr, known: Cond = TRUE, scope: tuple[str, ...] = ()) -> Iterator[Visit]:
    """Yield every node in `e` with what is known where it is evaluated: `known`, the ranges of the enclosing binders, their conditions,
    and the conditions of selects and lazy `and`/`or`."""
    yield Visit(e, known, scope)
    match e:
        case Select(cond, then, orelse):
            yield from visits(cond, known, scope)
            yield from visits(then, affine.conj(known, facts(cond)), scope)
            yield from visits(orelse, affine.conj(known, negative_facts(cond)), scope)
        case Binary("and", lhs, rhs):
            yield from visits(lhs, known, scope)
            yield from visits(rhs, affine.conj(known, facts(lhs)), scope)
        case Binary("or", lhs, rhs):
            yield from visits(lhs, known, scope)
            yield from visits(rhs, affine.conj(known, negative_facts(lhs)), scope)
        case Reduce(_, binders, bodies, _, condition, init):
            for start in init or ():
                yield from visits(start, known, scope)
            inside = affine.conj(known, binder_cond(e))
            within = (*scope, *(b.name for b in binders))
            if condition is not None:
                yield from visits(condition, inside, within)
                inside = affine.conj(inside, facts(condition))
            for body in bodies:
                yield from visits(body, inside, within)
        case _:
            for child in children(e):
                yield from visits(child, known, scope)
