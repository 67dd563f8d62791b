"""Comparisons of indices, with each other and with data.

What bounds decide is decided now. Of lanes that count up, the first or the last ones are what comes out.
"""

from __future__ import annotations

from typing import Literal as Word
from typing import NamedTuple, assert_never

from codegen.dtypes import DType, bool_, holds, i64
from codegen.llvm import arithmetic
from codegen.llvm.addresses import lane_stride
from codegen.llvm.convert import cast
from codegen.llvm.facts import Poly
from codegen.llvm.index_arithmetic import index_value
from codegen.llvm.masks import clamped, first_lanes, lanes_before, positive
from codegen.llvm.state import Scope, State, same_lanes
from codegen.llvm.values import Value, integer_range, literal
from codegen.loops.nodes import CompareOp
from codegen.polynomials import ONE, atom_poly


def compare_indices(state: State, op: CompareOp, left: Poly, right: Poly, scope: Scope) -> Value:
    """Return whether `left op right`, decided now when the bounds allow it."""
    b = state.builder
    match op:
        case "<":
            return _is_positive(state, right - left, scope)
        case ">":
            return _is_positive(state, left - right, scope)
        case "<=":
            return _is_positive(state, right - left + ONE, scope)
        case ">=":
            return _is_positive(state, left - right + ONE, scope)
        case "==" | "!=":
            difference = left - right
            if difference.constant is not None:
                return literal((difference.constant == 0) == (op == "=="), bool_)
            if b.facts.at_least(difference, 1) or b.facts.at_most(difference, -1):
                return literal(op == "!=", bool_)
            return arithmetic.compare(b, op, index_value(state, left, scope), index_value(state, right, scope))
        case _:
            assert_never(op)


def _is_positive(state: State, p: Poly, scope: Scope) -> Value:
    b = state.builder
    if b.facts.at_least(p, 1):
        return literal(True, bool_)
    if b.facts.at_most(p, 0):
        return literal(False, bool_)
    stride = lane_stride(p, scope.lanes, b)
    if stride == 0 or scope.lanes is None:
        return Value(bool_, positive(b, p))
    if stride not in (1, -1):
        zero = Value(i64, "zeroinitializer", scope.lanes.count)
        return arithmetic.compare(b, ">", index_value(state, p, scope), zero)
    rest = p.plus(atom_poly(scope.lanes.atom), -stride)
    if stride == -1:
        return Value(bool_, first_lanes(b, rest, scope.lanes.count), scope.lanes.count)
    return arithmetic.negated(b, Value(bool_, first_lanes(b, ONE - rest, scope.lanes.count), scope.lanes.count))


def compare_with_data(state: State, op: CompareOp, index: Poly, data: Value, scope: Scope) -> Value:
    """Return whether `index op data`. Where the lanes of an index are compared with a number that all of them share, a number of the first
    or of the last lanes is what comes out, whatever the data are: the difference is saturated."""
    b, lanes = state.builder, scope.lanes
    if lanes is None or data.lanes or data.dtype != i64 or lane_stride(index, lanes, b) != 1:
        return arithmetic.compare(b, op, index_value(state, index, scope), data)
    first = index - atom_poly(lanes.atom)
    fn = b.declare("llvm.ssub.sat.i64", "i64 @(i64, i64)")
    distance = b.pure(f"call i64 {fn}(i64 {data.text}, i64 {b.index(first)})")
    if op in ("<", ">="):
        count = clamped(b, distance, 0, lanes.count, b.depth)
    else:
        count = b.pure(f"add nsw i64 {clamped(b, distance, -1, lanes.count - 1, b.depth)}, 1")
    before = Value(bool_, lanes_before(b, count, lanes.count, b.depth), lanes.count)
    return before if op in ("<", "<=") else arithmetic.negated(b, before)


def compare_widened(state: State, op: CompareOp, x: Value, limit: float, dtype: DType) -> Value:
    """Return whether `dtype(x) op limit`, in the type of `x` where that has both: there are more lanes in a register."""
    if x.dtype.is_integer and holds(dtype, x.dtype):
        least, most = integer_range(x.dtype)
        if least <= limit <= most:
            return arithmetic.compare(state.builder, op, x, literal(limit, x.dtype))
    return arithmetic.compare(state.builder, op, cast(state.builder, x, dtype, False), literal(limit, dtype))


class Moved(NamedTuple):
    """`at + by`, or `at - by`, as `sign` says, which wraps nowhere."""

    at: Poly
    sign: Word["+", "-"]
    by: Value


def compare_moved(state: State, op: CompareOp, moved: Moved, limit: Value, scope: Scope) -> Value:
    """Return whether `moved op limit`: for a number that all lanes of an index share, what the index is compared with is that much less, or
    more."""
    b, lanes = state.builder, scope.lanes
    if lanes is None or moved.by.lanes or limit.lanes or lane_stride(moved.at, lanes, b) != 1:
        sum_ = arithmetic.binary(b, moved.sign, *same_lanes(b, index_value(state, moved.at, scope), moved.by))
        return arithmetic.compare(b, op, sum_, limit)
    fn = b.declare(f"llvm.s{'sub' if moved.sign == '+' else 'add'}.sat.i64", "i64 @(i64, i64)")
    distance = Value(i64, b.pure(f"call i64 {fn}(i64 {limit.text}, i64 {moved.by.text})"))
    return compare_with_data(state, op, moved.at, distance, scope)
