"""Ask each axis alone for what data say of a row-major number of several.

    before   z[p, q] = sum(k, i64(l[k]) == 8*p + q) x[k]                            q in 0..8
    after    z[p, q] = sum(k, p == i64(l[k]) // 8 and q == i64(l[k]) % 8) x[k]

Then a term of the sum is for one element, which data name along each axis, and no element is asked for each term.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from codegen.dtypes import i64
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binary, Compare, Const, Definition, Expr, IndexValue, Program, Reduce
from tensorlang.tensor.walk import chained, map_children, map_pieces, nodes, tensor_names

Extents = Mapping[str, int]
"""Of the indices that count from 0 up to a number."""


def with_digits(program: Program) -> Program:
    """Return `program` with its equations of data and row-major numbers of axes and binders taken apart; every result stays the same, bit
    for bit."""
    new = tuple(_definition(d) for d in program.definitions)
    return program if new == program.definitions else redefined(program, new)


def _definition(definition: Definition) -> Definition:
    if not any(isinstance(n, Compare) for p in definition.pieces for n in nodes(p.value)):
        return definition
    shape = zip(definition.axes, definition.tensors[0].shape, strict=True)
    extents = {a: n for a, e in shape if (n := affine.constant(e)) is not None}
    return map_pieces(definition, lambda value: _taken_apart(value, extents))


def _taken_apart(e: Expr, extents: Extents) -> Expr:
    if isinstance(e, Reduce):
        counted = {b.name: n for b in e.binders if affine.constant(b.lo) == 0 and (n := affine.constant(b.hi)) is not None}
        extents = {**{n: x for n, x in extents.items() if all(n != b.name for b in e.binders)}, **counted}
    inside = map_children(lambda child: _taken_apart(child, extents), e)
    match inside:
        case Compare("==", lhs, rhs) if not tensor_names(lhs) or not tensor_names(rhs):
            index, data = (rhs, lhs) if tensor_names(lhs) else (lhs, rhs)
            digits = _digits(_index(index), extents) if tensor_names(data) else None
            return inside if digits is None else _each(digits, data, inside)
        case _:
            return inside


def _index(e: Expr) -> Affine | None:
    """Return the index that an integer is, if it is one."""
    match e:
        case IndexValue(index):
            return index
        case Const(int() as number, dtype) if dtype == i64:
            return affine.to_expr(number)
        case Binary("+" | "-" | "*" as op, lhs, rhs):
            x, y = _index(lhs), _index(rhs)
            if x is None or y is None:
                return None
            return affine.mul(x, y) if op == "*" else affine.add(x, y) if op == "+" else affine.sub(x, y)
        case _:
            return None


def _digits(index: Affine | None, extents: Extents) -> list[tuple[str, int]] | None:
    """Return the names of a row-major number of several and how much one of each counts, the most first; None where it is none."""
    form = None if index is None else affine.affine_form(index)
    if form is None or form[1] != 0 or len(form[0]) < 2:
        return None
    found = sorted(form[0].items(), key=lambda item: -item[1])
    for (_, larger), (name, weight) in pairwise(found):
        if name not in extents or weight <= 0 or larger != weight * extents[name]:
            return None
    return found if found[-1][1] == 1 else None


def _each(digits: list[tuple[str, int]], data: Expr, equation: Compare) -> Expr:
    parts: list[Expr] = []
    for k, (name, weight) in enumerate(digits):
        digit = data if weight == 1 else Binary("//", data, Const(weight, i64), span=equation.span)
        if k:
            digit = Binary("%", digit, Const(digits[k - 1][1] // weight, i64), span=equation.span)
        parts.append(replace(equation, lhs=IndexValue(AffineName(name)), rhs=digit))
    return chained("and", parts, equation.span)
