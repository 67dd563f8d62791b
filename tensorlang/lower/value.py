"""Scalar expressions of the tensor IR as those of the loop IR, at one loop point.

Reads become loads from the tensor's memory; reductions have been computed by then and become loads of their accumulators. Elements of
narrow float tensors are widened when loaded. A `Let` becomes a statement before the one at hand. On a side of a `Select`, which may not be
evaluated, its value takes its place instead; one that is large is computed before as well, under the conditions of that side:

    if c then (let p = long row in p + x[i]) else y[i]      let p = (if c then long row else 0);  if c then p + x[i] else y[i]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from codegen.dtypes import DType, compute_dtype, f32
from codegen.loops import nodes as loops
from codegen.loops.walk import children
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from tensorlang.lower.index import Names as IndexNames
from tensorlang.lower.index import to_bool, to_index
from tensorlang.tensor import nodes as tensor
from tensorlang.tensor.depth import is_large
from tensorlang.tensor.types import Types, dtype_of, scalar_dtype


@dataclass(slots=True)
class Point:
    """Where a statement runs: what its iterators are in terms of loops, how tensors are loaded, what stands for reductions.

    `before` collects statements that have to run first, whatever is chosen; `path` holds the conditions under which the expression at
    hand is evaluated."""

    iters: Mapping[str, Affine]
    names: IndexNames
    types: Types
    element: Callable[[str, tuple[tensor.Slot, ...], Point], loops.Load]
    reductions: Mapping[tensor.Reduce, tuple[loops.Expr, ...]]
    fresh: Callable[[str], str]
    values: dict[str, loops.Expr] = field(default_factory=dict)
    tuples: dict[str, tuple[loops.Expr, ...]] = field(default_factory=dict)
    before: list[loops.Stmt] = field(default_factory=list)
    path: tuple[loops.Expr, ...] = ()

    def index(self, e: Affine) -> loops.Index:
        return to_index(affine.substitute(e, self.iters), self.names)


def value(e: tensor.Expr, point: Point) -> loops.Expr:
    """Return the loop-IR expression for `e`, which is no tuple."""
    match e:
        case tensor.Const(v, dtype):
            return loops.Const(v, compute_dtype(dtype))
        case tensor.IndexValue(index):
            return loops.IndexValue(point.index(index))
        case tensor.Read(name, index):
            load = point.element(name, index, point)
            dtype = point.types.tensors[name]
            return load if compute_dtype(dtype) == dtype else loops.Cast(f32, load)
        case tensor.Name(name):
            return point.values[name]
        case tensor.Unary(op, operand):
            return loops.Unary(op, value(operand, point))
        case tensor.Binary(("and" | "or") as op, lhs, rhs):
            left = value(lhs, point)
            return loops.Binary(op, left, _under(left if op == "and" else loops.Unary("not", left), rhs, point))
        case tensor.Binary(op, lhs, rhs):
            return loops.Binary(op, value(lhs, point), value(rhs, point))
        case tensor.Compare(op, lhs, rhs):
            return loops.Compare(op, value(lhs, point), value(rhs, point))
        case tensor.Holds(cond):
            return to_bool(affine.substitute_cond(cond, point.iters), point.names)
        case tensor.Select(cond, then, orelse):
            test = value(cond, point)
            return loops.Select(test, _under(test, then, point), _under(loops.Unary("not", test), orelse, point))
        case tensor.Cast(dtype, operand, saturate):
            cast = loops.Cast(dtype, value(operand, point), saturate)
            return cast if compute_dtype(dtype) == dtype else loops.Cast(f32, cast)
        case tensor.Call(fn, args):
            return loops.Call(fn, tuple(value(a, point) for a in args))
        case tensor.Let(name, bound, body):
            bind(name, bound, point)
            return value(body, point)
        case tensor.Project(inner, position):
            return components(inner, point)[position]
        case tensor.Reduce():
            return point.reductions[e][0]
        case tensor.TupleOf():
            raise TypeError("a tuple has components, not a value")
        case _:
            assert_never(e)


def components(e: tensor.Expr, point: Point) -> tuple[loops.Expr, ...]:
    """Return the components of a tuple, or the one value of anything else."""
    match e:
        case tensor.TupleOf(items):
            return tuple(value(i, point) for i in items)
        case tensor.Reduce():
            return point.reductions[e]
        case tensor.Name(name) if name in point.tuples:
            return point.tuples[name]
        case tensor.Let(name, bound, body):
            bind(name, bound, point)
            return components(body, point)
        case tensor.Select(cond, then, orelse) if _is_tuple(then, point):
            test = value(cond, point)
            outer, point.path = point.path, (*point.path, test)
            first = components(then, point)
            point.path = (*outer, loops.Unary("not", test))
            second = components(orelse, point)
            point.path = outer
            return tuple(loops.Select(test, a, b) for a, b in zip(first, second, strict=True))
        case _:
            return (value(e, point),)


def _is_tuple(e: tensor.Expr, point: Point) -> bool:
    match e:
        case tensor.TupleOf():
            return True
        case tensor.Reduce(reducer):
            return len(reducer.dtypes) > 1
        case tensor.Name(name):
            return name in point.tuples
        case tensor.Let(_, _, body):
            return _is_tuple(body, point)
        case tensor.Select(_, then):
            return _is_tuple(then, point)
        case _:
            return False


def _under(cond: loops.Expr, e: tensor.Expr, point: Point) -> loops.Expr:
    """Return the expression for something that is evaluated only where `cond` holds."""
    outer, point.path = point.path, (*point.path, cond)
    result = value(e, point)
    point.path = outer
    return result


def bind(name: str, bound: tensor.Expr, point: Point) -> None:
    """Give a value its name, for what is computed behind it."""
    dtype = dtype_of(bound, point.types)
    if _is_tuple(bound, point):
        assert isinstance(dtype, tuple)
        parts = zip(components(bound, point), dtype, strict=True)
        point.tuples[name] = tuple(_named(name, result, part, point) for result, part in parts)
    else:
        point.values[name] = _named(name, value(bound, point), scalar_dtype(bound, point.types), point)
    point.types = point.types.bind([name], [dtype])


def _named(name: str, result: loops.Expr, dtype: DType, point: Point) -> loops.Expr:
    """Return what stands for `result` from here on: a name, unless it is as simple as one, or may not be evaluated here and is small."""
    if isinstance(result, loops.Const | loops.Name) or (point.path and not is_large(result, children)):
        return result
    safe = point.fresh(name)
    for cond in reversed(point.path):
        result = loops.Select(cond, result, loops.zero(dtype))
    point.before.append(loops.Let(safe, result))
    return loops.Name(safe)
