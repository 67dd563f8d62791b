"""Which kernels sum products of dequantised bytes: `y[n, f] = b[f] + sum(c) x[n, c] * w[f, c]`, with `x` and `w` made of bytes.

Operators on integers, which take the zero points off before they multiply, are seen as such products too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codegen.dtypes import DType, f32, i32
from tensorlang.graph.edit import Additions, consumers, producers
from tensorlang.graph.nodes import Graph, Kernel, Node, Value
from tensorlang.graph.programs import is_single, single_value
from tensorlang.graph.quantised import (
    Dequantising,
    dequantising,
    is_byte,
)
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import Contraction, Factor, contraction, sum_and_rest
from tensorlang.tensor.nodes import (
    Cast,
    Const,
    Expr,
    Program,
    Read,
    Reduce,
    Tensor,
)

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class State(Additions):
    """What a pass over quantised values knows of its graph, and what it adds; `gone` are the nodes that go."""

    made: dict[str, Node] = field(kw_only=True)
    readers: dict[str, list[Node]] = field(kw_only=True)
    gone: set[str] = field(default_factory=set)

    @staticmethod
    def of(graph: Graph) -> State:
        return State(graph, made=producers(graph), readers=consumers(graph))

    def constant(self, stem: str, array: Array, dtype: DType) -> str:
        return self.add(Value(stem, dtype, array.shape), np.ascontiguousarray(array.astype(dtype.numpy)))

    def value(self, stem: str, dtype: DType, shape: tuple[int, ...]) -> str:
        return self.add(Value(stem, dtype, shape))

    def dequantised(self, name: str) -> Dequantising | None:
        maker = self.made.get(name)
        return dequantising(self.graph, maker) if isinstance(maker, Kernel) else None


@dataclass(frozen=True, slots=True)
class Operand:
    """A factor of the products: the read, the condition under which it is in its tensor, and the bytes behind it."""

    read: Read
    inside: Expr | None
    tensor: Tensor
    value: str
    bytes: Dequantising
    unknown: Expr | None = None
    """The zero point where it is not known when compiling."""


@dataclass(frozen=True, slots=True)
class ByteContraction:
    """`rest + reduce` of a program, where `reduce` sums the products of `a` and `b`."""

    program: Program
    reduce: Reduce
    a: Operand
    b: Operand
    rest: tuple[Expr, ...]


def byte_contraction(state: State, node: Kernel) -> ByteContraction | None:
    """Return the one sum of products of bytes in the kernel's program, or None. The constant operand, if any, is the second."""
    program = node.program
    value = single_value(program)
    if value is None or program.sizes or not is_single(program) or program.mode == "strict":
        return None
    if program.definitions[0].tensors[0].dtype not in (f32, i32):
        return None
    parts = sum_and_rest(value)
    if parts is None:
        return None
    total, rest = parts
    found = contraction(total)
    if not isinstance(found, Contraction) or found.is_guarded:
        return None
    bound = node.bound
    first, second = (_operand(state, program, bound, f) for f in found.factors)
    if first is None or second is None or first.tensor.name == second.tensor.name:
        return None
    if first.bytes.source in state.graph.constants and second.bytes.source in state.graph.constants:
        return None
    if first.bytes.source in state.graph.constants or second.inside is not None:
        first, second = second, first
    used = {first.tensor.name, second.tensor.name}
    if second.inside is not None or any(walk.tensor_names(t) & used for t in rest):
        return None
    return ByteContraction(program, total, first, second, rest)


def _operand(state: State, program: Program, bound: dict[str, str], f: Factor) -> Operand | None:
    """Return a factor that is a dequantised element, or one of a byte less its zero point, as operators on integers write it."""
    tensor = next((p for p in program.params if p.name == f.read.tensor), None)
    if tensor is None or f.is_indexed_by_data or f.rounding or f.saturates:
        return None
    if f.casts == (i32,):
        return _less_zero(state, bound, f, tensor)
    found = state.dequantised(bound[tensor.name])
    plain = not f.casts and f.zero is None and f.is_padded_with_zeros
    return Operand(f.read, f.mask, tensor, bound[tensor.name], found) if plain and found is not None else None


def _less_zero(state: State, bound: dict[str, str], f: Factor, tensor: Tensor) -> Operand | None:
    """Return the operand `i32(e) - zero`."""
    zero = Const(0, i32) if f.zero is None else f.zero
    if not is_byte(tensor.dtype) or (f.outside is not None and zero not in (f.outside, Cast(i32, f.outside))):
        return None
    number = _uniform(state, bound, zero)
    if number is None and (f.mask is not None or walk.index_names(zero)):
        return None
    found = Dequantising(bound[tensor.name], np.ones((), np.float32), np.array(number or 0), None)
    return Operand(f.read, f.mask, tensor, bound[tensor.name], found, zero if number is None else None)


def _uniform(state: State, bound: dict[str, str], zero: Expr) -> int | None:
    """Return the one value of a constant."""
    match zero:
        case Const(number):
            return int(number)
        case Cast(_, Const(number)):
            return int(number)
        case Cast(_, Read(name)) if bound.get(name) in state.graph.constants:
            array = state.graph.constants[bound[name]]
            return int(array.flat[0]) if array.size and (array == array.flat[0]).all() else None
        case _:
            return None
