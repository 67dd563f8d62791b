"""Write constants of one value into the programs that read them.

    before   y[i, j] = x[i, j] / s[]        s = constant f32[] of 8.0
    after    y[i, j] = x[i, j] / 8.0

    before   y[i] = x[i] / 1.4142135
    after    y[i] = x[i] * 0.70710678        in programs that are not strict: the last bit may differ

Only in programs without reductions, where a constant tensor is never an operand to be packed. All elements must have the same bits. What
this exposes (`x * 1`, `x - 0`) is removed, as far as no bit changes.
"""

from __future__ import annotations

from dataclasses import replace
from math import copysign
from typing import Any

import numpy as np

from codegen.dtypes import compute_dtype, f32
from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.programs import is_pointwise
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Binary, Const, Expr, Program, Read

_SAMPLE = 64
"""How many elements are looked at before all of them are: large constants of one value are rare."""


def inline_constants(graph: Graph) -> Graph:
    """Return the graph with constants of one value moved into pointwise programs."""
    uniform = {name: value for name, array in graph.constants.items() if (value := _uniform(array)) is not None}
    return rebuilt(graph, [_inlined(graph, node, uniform) for node in graph.nodes])


def _inlined(graph: Graph, node: Node, uniform: dict[str, Any]) -> Node:
    if not isinstance(node, Kernel) or not any(name in uniform for name in node.inputs) or not is_pointwise(node.program):
        return node
    pairs = list(zip(node.program.params, node.inputs, strict=True))
    literal = {
        param.name: Const(uniform[name], compute_dtype(param.dtype))
        for param, name in pairs
        if name in uniform and param.name not in node.program.results
    }
    kept = [(param, name) for param, name in pairs if param.name not in literal]
    program = replace(_with_literals(node.program, literal), params=tuple(param for param, _ in kept))
    return replace(node, program=program, inputs=tuple(name for _, name in kept))


def _with_literals(program: Program, literal: dict[str, Const]) -> Program:
    def read(r: Read) -> Expr:
        return literal.get(r.tensor, r)

    def simplified(e: Expr) -> Expr:
        plain = neutral(walk.substitute_reads(e, read))
        return plain if program.mode == "strict" else multiplied(plain)

    return walk.map_values(program, simplified)


def multiplied(e: Expr) -> Expr:
    """Return `e` with f32 divisions by a number as multiplications by its reciprocal, where that is neither subnormal nor infinite."""
    match walk.map_children(multiplied, e):
        case Binary(op="/", lhs=x, rhs=Const(value=number, dtype=dtype)) if dtype == f32 and 2.0**-120 < abs(number) < 2.0**120:
            return Binary("*", x, Const(1.0 / float(number), f32))
        case other:
            return other


def neutral(e: Expr) -> Expr:
    """Return `e` without operations that change no bit: x * 1, x / 1, x - 0, x + -0; integers also x + 0."""
    match walk.map_children(neutral, e):
        case Binary(op="*", lhs=x, rhs=Const() as c) | Binary(op="*", lhs=Const() as c, rhs=x) if _is(c, 1.0):
            return x
        case Binary(op="/", lhs=x, rhs=Const() as c) if _is(c, 1.0):
            return x
        case Binary(op="-", lhs=x, rhs=Const() as c) if _is(c, 0.0):
            return x
        case Binary(op="+", lhs=x, rhs=Const() as c) | Binary(op="+", lhs=Const() as c, rhs=x) if _is(c, _zero(c)):
            return x
        case other:
            return other


def _zero(c: Const) -> float:
    """Return what adding to anything of the type of `c` changes no bit."""
    return 0.0 if c.dtype.is_integer else -0.0


def _is(c: Const, value: float) -> bool:
    """Tell whether a constant is `value`, the sign of zero included."""
    return float(c.value) == value and copysign(1.0, c.value) == copysign(1.0, value)


def _uniform(array: np.ndarray[Any, Any]) -> float | int | bool | None:
    """Return the value that all elements have, bit for bit, or None."""
    if array.size == 0:
        return None
    if not _same_bits(array[tuple(slice(_SAMPLE) if k == array.ndim - 1 else slice(2) for k in range(array.ndim))]) or not _same_bits(
        array
    ):
        return None
    first = array[(0,) * array.ndim]
    if array.dtype.kind == "b":
        return bool(first)
    return int(first) if array.dtype.kind in "iu" or array.dtype.name in ("int4", "uint4") else float(first)


def _same_bits(array: np.ndarray[Any, Any]) -> bool:
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    return bool((bits == bits[0]).all())
