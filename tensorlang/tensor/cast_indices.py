"""Compare an index as an index, and read at it, where a cast to another integer type leaves it what it is.

    before   y[n] = sum(k, ids[k] == i32(n)) x[k]                   z[n] = x[i32(n) + 1 | 0]           n in 0..50
    after    y[n] = sum(k, i64(ids[k]) == n) x[k]                   z[n] = x[n + 1 | 0]

Then data say which terms there are, as where nobody wrote the cast: each goes where it is named, and a loop from where to where they say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from codegen.dtypes import DType, i64, limits, u64
from polyhedral import affine
from polyhedral.expr import TRUE, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.ranges import Range, range_of
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binary, Cast, Compare, Const, Definition, Dynamic, Expr, Holds, IndexValue, Program, Read, Reduce, Slot
from tensorlang.tensor.prove import reads_in_bounds
from tensorlang.tensor.walk import map_children, map_pieces, nodes

Ranges = Mapping[str, Range]
"""Of the indices, where numbers say them."""


def with_plain_indices(program: Program) -> Program:
    """Return `program` with such comparisons between indices, or of an index with an `i64`, and with such reads, in definitions whose reads
    are then proven to be in bounds; every result stays the same, bit for bit."""
    new = tuple(_definition(program, d) for d in program.definitions)
    return program if all(a is b for a, b in zip(new, program.definitions, strict=True)) else redefined(program, new)


def _definition(program: Program, definition: Definition) -> Definition:
    if not any(isinstance(n, Cast) and n.dtype.is_integer and _of_index(n) for p in definition.pieces for n in nodes(p.value)):
        return definition
    shape = zip(definition.axes, definition.tensors[0].shape, strict=True)
    ranges = {axis: _from_to(affine.ZERO, extent, {}) for axis, extent in shape}
    new = map_pieces(definition, lambda value: _plain(value, ranges))
    others = (new if d is definition else d for d in program.definitions)
    return new if new != definition and reads_in_bounds(redefined(program, others), new) else definition


def _of_index(e: Expr) -> bool:
    return any(isinstance(n, IndexValue) for n in nodes(e))


def _from_to(lo: Affine, hi: Affine, ranges: Ranges) -> Range:
    last = range_of(hi, ranges)[1]
    return range_of(lo, ranges)[0], None if last is None else last - 1


def _plain(e: Expr, ranges: Ranges) -> Expr:
    if isinstance(e, Reduce):
        for binder in e.binders:
            ranges = {**ranges, binder.name: _from_to(binder.lo, binder.hi, ranges)}
    inside = map_children(lambda child: _plain(child, ranges), e)
    match inside:
        case Compare():
            return _compared(inside, ranges)
        case Binary("and" | "or" as op, Holds(lhs), Holds(rhs)):
            return Holds(affine.conj(lhs, rhs) if op == "and" else affine.disj(lhs, rhs), span=e.span)
        case Read(index=index):
            return replace(inside, index=tuple(_slot(s, ranges) for s in index))
        case Reduce(filter=condition) if condition is not None:
            where, kept = _apart(condition)
            return replace(inside, where=affine.conj(inside.where, where), filter=kept)
        case _:
            return inside


def _slot(slot: Slot, ranges: Ranges) -> Slot:
    index = _index(slot.value, ranges) if isinstance(slot, Dynamic) else None
    return slot if index is None else index[0]


def _compared(e: Compare, ranges: Ranges) -> Expr:
    left, right = _index(e.lhs, ranges), _index(e.rhs, ranges)
    if left is not None and right is not None:
        return Holds(affine.compare(e.op, left[0], right[0]), span=e.span)
    if left is not None and _is_exact_in_i64(left):
        return replace(e, lhs=_value(left[0], e.lhs), rhs=_widened(e.rhs, left[1]))
    if right is not None and _is_exact_in_i64(right):
        return replace(e, lhs=_widened(e.lhs, right[1]), rhs=_value(right[0], e.rhs))
    return e


def _is_exact_in_i64(found: tuple[Affine, DType]) -> bool:
    """Tell whether an integer is an index, and what it is compared with the same number as an `i64`."""
    return affine.constant(found[0]) is None and found[1] != u64


def _value(index: Affine, e: Expr) -> Expr:
    return e if isinstance(e, IndexValue) else IndexValue(index, span=e.span)


def _widened(e: Expr, dtype: DType) -> Expr:
    return e if dtype == i64 else Cast(i64, e, span=e.span)


def _index(e: Expr, ranges: Ranges) -> tuple[Affine, DType] | None:
    """Return the index that an integer is and the integer's type, where nothing that it is made of leaves its type."""
    match e:
        case IndexValue(index):
            return index, i64
        case Const(int() as number, dtype) if dtype.is_integer:
            return affine.to_expr(number), dtype
        case Cast(dtype, value) if dtype.is_integer and (of := _index(value, ranges)) is not None:
            index = of[0]
        case Binary("+" | "-" | "*" as op, lhs, rhs):
            x, y = _index(lhs, ranges), _index(rhs, ranges)
            made = None if x is None or y is None else _computed(op, x[0], y[0])
            if x is None or made is None:
                return None
            index, dtype = made, x[1]
        case _:
            return None
    (low, high), (least, most) = range_of(index, ranges), limits(dtype)
    return (index, dtype) if low is not None and high is not None and least <= low and high <= most else None


def _computed(op: str, x: Affine, y: Affine) -> Affine | None:
    return affine.mul(x, y) if op == "*" else affine.add(x, y) if op == "+" else affine.sub(x, y)


def _apart(condition: Expr) -> tuple[Cond, Expr | None]:
    """Return what a condition says of places, and the rest of it."""
    match condition:
        case Holds(cond):
            return cond, None
        case Binary("and", lhs, rhs):
            (here, left), (there, right) = _apart(lhs), _apart(rhs)
            rest = replace(condition, lhs=left, rhs=right) if left is not None and right is not None else left or right
            return affine.conj(here, there), rest
        case _:
            return TRUE, condition
