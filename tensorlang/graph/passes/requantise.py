"""Quantise and dequantise at once, in floats.

    before   f32(i32(sat[u8](round(e) + 3)) - 3) * s
    after    min(max(round(e) + 3, 0), 255) - 3) * s

Integers of eight bits are floats, too, so nothing changes but what a NaN becomes, which no bytes can hold: it stays one.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.dtypes import DType, f32, i32
from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.quantised import is_byte
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Binary, Call, Cast, Const, Expr


def requantise(graph: Graph) -> Graph:
    """Return the graph with values that are dequantised where they are quantised kept in floats."""
    return rebuilt(graph, [_kernel(node) for node in graph.nodes])


def _kernel(node: Node) -> Node:
    if not isinstance(node, Kernel) or node.program.mode == "strict":
        return node
    program = walk.map_values(node.program, in_floats)
    return node if program == node.program else replace(node, program=program)


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
    whole = isinstance(rounded, Binary) and rounded.op == "+" and isinstance(rounded.lhs, Call) and rounded.lhs.fn == "round"
    return to == f32 and wide == i32 and is_byte(narrow) and whole


def _limited(e: Expr, dtype: DType) -> Expr:
    """Return the whole number `e` limited to the range of `dtype`: its offset, a whole number too, is added afterwards."""
    assert isinstance(e, Binary) and isinstance(e.rhs, Const)
    low, high = (0, 255) if dtype.kind == "uint" else (-128, 127)
    zero = int(e.rhs.value)
    limited = Binary("min", Binary("max", e.lhs, Const(float(low - zero), f32)), Const(float(high - zero), f32))
    return _shifted(limited, zero)


def _shifted(e: Expr, by: int) -> Expr:
    match e:
        case Binary("+", inner, Const(number)):
            by += int(number)
            e = inner
        case _:
            pass
    return e if by == 0 else Binary("+", e, Const(float(by), f32))
