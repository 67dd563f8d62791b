"""What a step adds where data name the element is a choice: all other elements stay what they were.

    before   h[t, n] = h[t - 1, n] + (if n == ids[t - 1] then 1 else 0)
    after    h[t, n] = if n == ids[t - 1] then h[t - 1, n] + 1 else h[t - 1, n]

Then a step of which few are kept computes the elements that data name, and looks at no other. To add 0 changes no whole number and no float
but -0, which becomes 0: floats are left as they are written unless none of the tensor is -0, as all sums that begin with another number
show. To subtract 0 changes none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from codegen.dtypes import compute_dtype
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.facts import named_by_data
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binary, Cast, Compare, Const, Definition, Expr, IndexValue, Program, Read, Select, Unary
from tensorlang.tensor.types import Types, dtype_of, types_of
from tensorlang.tensor.walk import definition_reads, map_children, map_pieces, reduces

MOST_NAMED = 4
"""Elements that data may name in one step, for each of which the sum is written out."""


def with_updates(program: Program) -> Program:
    """Return `program` with such sums of recurrences as choices; every result stays the same, bit for bit."""
    types = types_of(program)
    new = tuple(_definition(d, types) for d in program.definitions)
    return program if new == program.definitions else redefined(program, new)


@dataclass(frozen=True, slots=True)
class _Sum:
    """What a sum is where none of some conditions holds, and whether 0 is added to that."""

    kept: Read
    conditions: tuple[Expr, ...]
    adds_zero: bool


def _definition(definition: Definition, types: Types) -> Definition:
    (tensor, *others), own = definition.tensors, {t.name for t in definition.tensors}
    if others or own.isdisjoint(definition_reads(definition)):
        return definition
    exact = tensor.dtype.is_integer or (
        compute_dtype(tensor.dtype) == tensor.dtype and all(_is_not_minus_zero(p.value, own) for p in definition.pieces)
    )

    def chosen(value: Expr) -> Expr:
        found = _sum(value, tensor.name, types)
        if found is None or (found.adds_zero and not exact) or len(found.conditions) > MOST_NAMED or any(True for _ in reduces(value)):
            return value
        if not all(_names_own(definition, condition, found.kept) for condition in found.conditions):
            return value
        result: Expr = found.kept
        for k, condition in reversed([*enumerate(found.conditions)]):
            result = Select(condition, _where(value, condition, found.conditions[:k]), result, span=value.span)
        return result

    return map_pieces(definition, chosen)


def _sum(e: Expr, tensor: str, types: Types) -> _Sum | None:
    """Return what a sum of an element of a tensor and of terms under conditions is without these terms; None for anything else."""
    match e:
        case Binary("+" | "-" as op, lhs, rhs):
            own, term = (lhs, rhs) if op == "-" or _conditions(rhs, types) else (rhs, lhs)
            found, conditions = _sum_or_own(own, tensor, types), _conditions(term, types)
            if found is None or not conditions:
                return None
            added = tuple(c for c in conditions if c not in found.conditions)
            return _Sum(found.kept, (*found.conditions, *added), found.adds_zero or op == "+")
        case _:
            return None


def _sum_or_own(e: Expr, tensor: str, types: Types) -> _Sum | None:
    return _Sum(e, (), False) if isinstance(e, Read) and e.tensor == tensor else _sum(e, tensor, types)


def _conditions(e: Expr, types: Types) -> tuple[Expr, ...]:
    """Return conditions of which none holds where an expression is 0, and not -0; none where there are no such conditions."""
    match e:
        case Select(condition, _, Const(0)) if not _is_minus_zero(e.orelse):
            return (condition,)
        case Select(condition, _, orelse):
            others = _conditions(orelse, types)
            return (condition, *others) if others else ()
        case Cast(_, Compare() | Binary("and" | "or") as condition):
            return (condition,)
        case Binary("+" | "-", lhs, rhs):
            left, right = _conditions(lhs, types), _conditions(rhs, types)
            return (*left, *right) if left and right else ()
        case Binary("*", lhs, rhs) if not isinstance(dtype := dtype_of(e, types), tuple) and dtype.is_integer:
            return _conditions(lhs, types) or _conditions(rhs, types)
        case _:
            return ()


def _names_own(definition: Definition, condition: Expr, kept: Read) -> bool:
    """Tell whether a condition says of axes of a definition that they are data, along which what is kept is read at its own place."""
    named = {name for name, _ in named_by_data(condition)} & {*definition.axes}
    return bool(named) and all(kept.index[definition.axes.index(axis)] == AffineName(axis) for axis in named)


def _where(e: Expr, condition: Expr, others: Collection[Expr]) -> Expr:
    """Return an expression where a condition holds, and none of some others."""
    match e:
        case Select(cond, then, _) if cond == condition:
            return _where(then, condition, others)
        case Select(cond, _, orelse) if cond in others:
            return _where(orelse, condition, others)
        case _:
            return map_children(lambda child: _where(child, condition, others), e)


def _is_minus_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e == Const(-0.0, e.dtype)


def _is_not_minus_zero(e: Expr, own: Collection[str]) -> bool:
    """Tell whether a number is never -0 if elements of tensors `own` are not: rounded to the nearest, a sum is -0 only where both sides
    are, a difference where its first is."""
    match e:
        case Const():
            return not _is_minus_zero(e)
        case Cast(_, Compare() | IndexValue()) | Unary("abs"):
            return True
        case Read(tensor):
            return tensor in own
        case Binary("+", lhs, rhs):
            return _is_not_minus_zero(lhs, own) or _is_not_minus_zero(rhs, own)
        case Binary("-", lhs):
            return _is_not_minus_zero(lhs, own)
        case Select(_, then, orelse):
            return _is_not_minus_zero(then, own) and _is_not_minus_zero(orelse, own)
        case _:
            return False
