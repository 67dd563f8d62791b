"""What is done to a value before it is quantised, in few operations.

    detours      f32(i32(sat[u8](round(e) + 3)) - 3)       ->  min(max(round(e), -3), 252)
    factors      round((x * a + y * b) * c)                ->  round(x * (a*c) + y * (b*c))        and relu(x * a) * c  ->  relu(x * (a*c))
    offsets      f32(i32(q) - 128) * b                     ->  f32(i32(q)) * b - 128*b
    limits       sat[u8](round(relu(min(max(r, -9), 90) * 3)))   ->  sat[u8](round(r * 3))         for what saturates anyway

Integers of eight bits are floats, too, so the first and the last change nothing but what a NaN becomes, which bytes cannot hold. The others
regroup products of constants: what is rounded to a byte moves by a few units in the last place of a float, so a byte by one unit at most.
Programs in `strict` mode are left alone; the others may round a product and the sum it stands in once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from codegen.dtypes import DType, f32, i32
from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.quantised import is_byte
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Binary, Call, Cast, Const, Expr, Let, Program, Read, Unary

Terms: TypeAlias = Sequence[tuple[float, Expr]]
"""A sum of expressions, each times a number."""


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
    narrow = frozenset(t.name for t in walk.tensors(program) if is_byte(t.dtype))
    changed = walk.map_values(program, lambda e: regrouped(in_floats(e), narrow))
    return program if changed == program else replace(changed, mode="fast")


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


def regrouped(e: Expr, narrow: frozenset[str] = frozenset()) -> Expr:
    """Return `e` with constants before every rounding to bytes brought together, and without limits that the bytes have anyway. `narrow`:
    the tensors of bytes."""
    match walk.map_children(lambda child: regrouped(child, narrow), e):
        case Cast(dtype, Binary("+", Call("round", (value,)), Const(zero)), True) as cast if is_byte(dtype) and zero == int(zero):
            low, high = _range(dtype)
            inside = _unlimited(_sum(*_terms(value, 1.0, narrow)), low - int(zero), high - int(zero))
            return replace(cast, value=Binary("+", Call("round", (inside,)), _const(zero)))
        case Binary("min", Binary("max", Call("round", (value,)), Const() as low_), Const() as high_):
            inside = _sum(*_terms(value, 1.0, narrow))
            return Binary("min", Binary("max", Call("round", (inside,)), low_), high_)
        case other:
            return other


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
            return Binary("*", _within(x, low, high, float(factor)), _const(factor))
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
