"""Quantised values: integers that stand for (q - zero) * scale. What passes ask of programs that make or read them, and those programs.

    quantise     y[d..] = sat[Q](round(x[d..] / scale) + zero)
    dequantise   y[d..] = f32(i32(x[d..]) - i32(zero[c])) * scale[c]        one number, or one an index of one dimension

Programs are recognised by their structure; scale and zero have to be known when compiling, or the answer is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from codegen.dtypes import DType, f32, i32
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Int
from tensorlang.graph.nodes import Graph, Kernel, Value
from tensorlang.graph.programs import axes_of, here, reads_in_place, single, single_value, tensor_of
from tensorlang.tensor import walk
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Binary, Call, Cast, Const, Expr, Program, Read, Tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Quantising:
    """`sat[dtype](round(source / scale) + zero)`."""

    source: str
    scale: float
    zero: int
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Dequantising:
    """`(source - zero) * scale`: `scale` in f32 and `zero` are numbers (`dim` None), or vectors along dimension `dim` of `source`."""

    source: str
    scale: Array
    zero: Array
    dim: int | None


def is_byte(dtype: DType) -> bool:
    return dtype.is_integer and dtype.bits == 8


# ---------------------------------------------------------------- questions


def quantising(graph: Graph, kernel: Kernel) -> Quantising | None:
    """Return what the kernel does when it quantises one value to bytes with numbers that are known."""
    program = kernel.program
    match single_value(program):
        case Cast(dtype, Binary("+", Call("round", (scaled,)), shift), True) if is_byte(dtype):
            pass
        case _:
            return None
    match scaled:
        case Binary("/", Read(name) as read, divisor) if reads_in_place(program, name):
            pass
        case _:
            return None
    table = {p.name: p for p in program.params}
    constants = _constants(graph, kernel)
    if name in constants or table[name].dtype != f32 or read.tensor != name or any(n != 1 for n in table[name].grouping):
        return None
    scale, zero = _number(program, divisor, f32, constants), _number(program, shift, f32, constants)
    if scale is None or zero is None or not np.isfinite(scale) or scale <= 0:
        return None
    return Quantising(kernel.bound[name], scale, int(zero), dtype)


def dequantising(graph: Graph, kernel: Kernel) -> Dequantising | None:
    """Return what the kernel does when it dequantises bytes with numbers that are known."""
    program = kernel.program
    match single_value(program):
        case Binary("*", Cast(to, Binary("-", Cast(wide, Read(name)), zero)), scale) if to == f32 and wide == i32:
            pass
        case Binary("*", Cast(to, Cast(wide, Read(name))), scale) if to == f32 and wide == i32:
            zero = Const(0, i32)
        case _:
            return None
    table = {p.name: p for p in program.params}
    if name not in table or not is_byte(table[name].dtype) or not reads_in_place(program, name):
        return None
    if any(n != 1 for n in table[name].grouping):
        return None
    constants = _constants(graph, kernel)
    constants.pop(name, None)
    axes = program.definitions[0].axes
    extents = program.definitions[0].tensors[0].shape
    unit: dict[str, Affine] = {axis: Int(0) for axis, n in zip(axes, extents, strict=True) if n == Int(1)}
    scale, zero = walk.substitute(scale, unit), walk.substitute(zero, unit)
    used = [k for k, axis in enumerate(axes) if axis in walk.index_names(scale) | walk.index_names(zero)]
    if len(used) > 1:
        return None
    dim = used[0] if used else None
    s, z = (_along(program, e, dim, dtype, constants) for e, dtype in ((scale, f32), (zero, i32)))
    if s is None or z is None or not np.isfinite(s).all():
        return None
    source = kernel.bound[name]
    return Dequantising(source, s, z, dim)


def _constants(graph: Graph, kernel: Kernel) -> dict[str, Array]:
    return {name: graph.constants[v] for name, v in kernel.bound.items() if v in graph.constants}


def _number(program: Program, e: Expr, dtype: DType, constants: Mapping[str, Array]) -> float | None:
    found = _along(program, e, None, dtype, constants)
    return None if found is None else float(found)


def _along(program: Program, e: Expr, dim: int | None, dtype: DType, constants: Mapping[str, Array]) -> Array | None:
    """Return the values of `e` along the dimension, or its one value, when it depends on constants and nothing else."""
    definition = program.definitions[0]
    axes = () if dim is None else (definition.axes[dim],)
    extents = () if dim is None else (definition.tensors[0].shape[dim],)
    used = walk.tensor_names(e)
    if walk.index_names(e) - {*axes} or not used <= constants.keys():
        return None
    params = tuple(p for p in program.params if p.name in used)
    small = single("numbers", params, Tensor("numbers", dtype, extents), axes, e)
    return np.asarray(interpret(small, {}, {p.name: constants[p.name] for p in params})["numbers"])


# ---------------------------------------------------------------- programs


def quantise_program(shape: tuple[int, ...], scale: float, zero: int, dtype: DType) -> Program:
    """Return `y = sat[dtype](round(x / scale) + zero)`."""
    source = tensor_of("x", Value("x", f32, shape))
    axes = axes_of(len(shape))
    return single("quantise", (source,), replace(source, name="y", dtype=dtype), axes, quantised(Read("x", here(axes)), scale, zero, dtype))


def quantised(e: Expr, scale: float, zero: int, dtype: DType) -> Expr:
    """Return `e` quantised; `scale` 1 stands for no quotient."""
    scaled = e if scale == 1 else Binary("/", e, Const(float(np.float32(scale)), f32))
    return Cast(dtype, Binary("+", Call("round", (scaled,)), Const(float(zero), f32)), True)


def dequantise_program(source: DType, shape: tuple[int, ...], found: Dequantising) -> Program | None:
    """Return `y = f32(i32(x) - zero) * scale` for numbers of one value each."""
    if found.dim is not None:
        return None
    x = tensor_of("x", Value("x", source, shape))
    axes = axes_of(len(shape))
    value: Expr = Cast(i32, Read("x", here(axes)))
    if int(found.zero):
        value = Binary("-", value, Const(int(found.zero), i32))
    value = Binary("*", Cast(f32, value), Const(float(found.scale), f32))
    return single("dequantise", (x,), replace(x, name="y", dtype=f32), axes, value)
