"""What is done to a value before it is quantised, in few operations.

    detours      f32(i32(sat[u8](round(e) + 3)) - 3)       ->  min(max(round(e), -3), 252)
    limits       sat[u8](round(relu(min(max(r, -9), 90) * 3)))   ->  sat[u8](round(r * 3))         for what saturates anyway
    factors      round((f32(s) * a + y * b) / c)   ->  round(f32(s) * (a/c) + y * (b/c))     through relu, too
    offsets      f32(i32(q) - 128) * b                     ->  f32(i32(q)) * b - 128*b

Integers of eight bits are floats, too, so the first two change nothing but what a NaN becomes, which bytes cannot hold. The others
regroup products of constants, where a sum `s` of integers takes part that stands for a sum of floats: no order of such a sum is the right
one, and what is left of rounding is less than in any of them. What bytes alone are made into is computed as the model says, operation by
operation: there are few values of it, those of one scale meet half of a unit again and again (bytes of a scale, added, in bytes of twice
the scale), and the last bit of a float decides to which byte these round. Programs in `strict` mode are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from codegen.dtypes import DType, f32, i32
from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.quantised import is_byte
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Binary, Call, Cast, Const, Expr, Let, Program, Read, Reduce, Unary

Terms: TypeAlias = Sequence[tuple[float, Expr]]
"""A sum of expressions, each times a number."""


@dataclass(frozen=True, slots=True)
class Names:
    """The tensors of a program that hold bytes, and those that hold integers of 32 bits, sums of products of bytes among them."""

    bytes: frozenset[str] = frozenset()
    sums: frozenset[str] = frozenset()

    @staticmethod
    def of(program: Program) -> Names:
        tensors = tuple(walk.tensors(program))
        return Names(frozenset(t.name for t in tensors if is_byte(t.dtype)), frozenset(t.name for t in tensors if t.dtype == i32))


def requantise(graph: Graph) -> Graph:
    """Return the graph with fewer operations before values are quantised."""
    known: dict[int, Program] = {}  # by identity: most nodes of a long graph share a few

    def kernel(node: Node) -> Node:
        if not isinstance(node, Kernel) or node.program.mode == "strict":
            return node
        program = known[id(node.program)] = known.get(id(node.program)) or _program(node.program)
        return node if program is node.program else replace(node, program=program)

    return rebuilt(graph, [kernel(node) for node in graph.nodes])


def _program(program: Program) -> Program:
    """Return the program with its numbers brought together, or itself."""
    names = Names.of(program)
    changed = walk.map_values(program, lambda e: regrouped(in_floats(e), names))
    return program if changed == program else changed


# ---------------------------------------------------------------- detours


def in_floats(e: Expr) -> Expr:
    """Return `e` without detours through bytes."""
    match walk.map_children(in_floats, e):
        case Cast(to, Binary("-", Cast(wide, Cast(narrow, rounded, True)), Const(zero))) if _detour(to, wide, narrow, rounded):
            return _shifted(_limited(rounded, narrow), -int(zero))
        case Cast(to, Cast(wide, Cast(narrow, rounded, True))) if _detour(to, wide, narrow, rounded):
            return _limited(rounded, narrow)
        case other:
            return other


def _detour(to: DType, wide: DType, narrow: DType, rounded: Expr) -> bool:
    return to == f32 and wide == i32 and is_byte(narrow) and _is_rounded(rounded)


def _is_rounded(e: Expr) -> bool:
    match e:
        case Binary("+", Call("round"), Const()):
            return True
        case _:
            return False


def _limited(e: Expr, dtype: DType) -> Expr:
    """Return the whole number `e` limited to the range of `dtype`: its offset, a whole number too, is added afterwards."""
    assert isinstance(e, Binary) and isinstance(e.rhs, Const)
    low, high = _range(dtype)
    zero = int(e.rhs.value)
    limited = Binary("min", Binary("max", e.lhs, _const(low - zero)), _const(high - zero))
    return _shifted(limited, zero)


def _range(dtype: DType) -> tuple[int, int]:
    return (0, 255) if dtype.kind == "uint" else (-128, 127)


def _shifted(e: Expr, by: int) -> Expr:
    match e:
        case Binary("+", inner, Const(number)):
            by += int(number)
            e = inner
        case _:
            pass
    return e if by == 0 else Binary("+", e, _const(by))


def _const(number: float) -> Const:
    return Const(float(np.float32(number)), f32)


# ---------------------------------------------------------------- factors, offsets, limits


def regrouped(e: Expr, names: Names) -> Expr:
    """Return `e` with constants between a sum of integers and its rounding to a byte brought together, and without limits that the bytes
    have anyway."""
    match walk.map_children(lambda child: regrouped(child, names), e):
        case Cast(dtype, Binary("+", Call("round", (value,)), Const(zero)), True) as cast if is_byte(dtype) and zero == int(zero):
            low, high = _range(dtype)
            inside = _unlimited(_together(value, names), low - int(zero), high - int(zero))
            return replace(cast, value=Binary("+", Call("round", (inside,)), _const(zero)))
        case Binary("min", Binary("max", Call("round", (value,)), Const() as low_), Const() as high_):
            return Binary("min", Binary("max", Call("round", (_together(value, names),)), low_), high_)
        case other:
            return other


def _together(e: Expr, names: Names) -> Expr:
    return _sum(*_terms(e, 1.0, names.bytes)) if _holds_sum(e, names) else e


def _holds_sum(e: Expr, names: Names) -> bool:
    """Tell whether a sum of integers is part of `e`, other than one that is rounded to a byte before."""
    match e:
        case Call("round"):
            return False
        case Reduce(reducer):
            return reducer.dtypes == (i32,)
        case Read(tensor):
            return tensor in names.sums
        case _:
            return any(_holds_sum(child, names) for child in walk.children(e))


def _terms(e: Expr, factor: float, narrow: frozenset[str]) -> tuple[Terms, float]:
    """Return `e * factor` as a sum of terms and a number."""
    match e:
        case Const(number, dtype) if dtype == f32:
            return [], factor * float(number)
        case Binary("*", x, Const(number)) | Binary("*", Const(number), x) if np.isfinite(number):
            return _terms(x, factor * float(number), narrow)
        case Binary("/", x, Const(number)) if np.isfinite(number) and number != 0:
            return _terms(x, factor / float(number), narrow)
        case Binary("+" | "-" as op, x, y):
            first, a = _terms(x, factor, narrow)
            second, b = _terms(y, factor if op == "+" else -factor, narrow)
            return [*first, *second], a + b
        case Unary("neg", x):
            return _terms(x, -factor, narrow)
        case Binary("max", x, Const(0)) if factor > 0:
            return [(1.0, Binary("max", _sum(*_terms(x, factor, narrow)), _const(0)))], 0.0
        case Cast(to, Binary("-" | "+" as op, Cast(wide, read), Const(zero))) if to == f32 and wide == i32 and _is_element(read, narrow):
            return [(factor, Cast(f32, Cast(i32, read)))], factor * (-int(zero) if op == "-" else int(zero))
        case Let(body=body) if factor == 1:
            return [(1.0, replace(e, body=_sum(*_terms(body, 1.0, narrow))))], 0.0
        case _:
            return [(factor, e)], 0.0


def _is_element(e: Expr, narrow: frozenset[str]) -> bool:
    """Tell whether `e` reads a byte: the difference of one and a small number is a float."""
    return isinstance(e, Read) and e.tensor in narrow


def _sum(terms: Terms, number: float) -> Expr:
    """Return the sum, each product next to the sum it is added to."""
    products = [x if k == 1 else Binary("*", x, _const(k)) for k, x in terms]
    total: Expr | None = None if number == 0 and products else _const(number)
    for product in products:
        total = product if total is None else Binary("+", product, total)
    assert total is not None
    return total


def _unlimited(e: Expr, low: int, high: int) -> Expr:
    """Return what is as good as `e` once it is rounded and limited to [low, high]."""
    match e:
        case Binary("max", x, Const(0)) if low == 0:
            return _unlimited(x, low, high)
        case Binary("*", x, Const(factor)) if factor > 0:
            return replace(e, lhs=_within(x, low, high, float(factor)))
        case Binary("/", x, Const(divisor)) if divisor > 0:
            return replace(e, lhs=_within(x, low, high, 1 / float(divisor)))
        case _:
            return _within(e, low, high, 1.0)


def _within(e: Expr, low: int, high: int, factor: float) -> Expr:
    """Return `e` without limits that `e * factor`, limited to [low, high] and rounded, has anyway."""
    match e:
        case Binary("min", x, Const(most)) if np.float32(most) * np.float32(factor) > high - 0.5:
            return _within(x, low, high, factor)
        case Binary("min", x, Const() as most):
            return Binary("min", _within(x, low, high, factor), most)
        case Binary("max", x, Const(least)) if np.float32(least) * np.float32(factor) < low + 0.5:
            return _within(x, low, high, factor)
        case _:
            return e
