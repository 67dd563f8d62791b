"""Fold per-channel arithmetic into the weights of the contraction before it.

    before   t[n,f,p] = b[f] + sum(c, r) x[n,c,p+r] * w[f,c,r]       y[n,f,p] = (t[n,f,p] - m[f]) * g[f] / sqrt(v[f] + eps) + h[f]
    after    y[n,f,p] = b'[f] + sum(c, r) x[n,c,p+r] * w'[f,c,r]     w' = w * a    b' = b * a + c     where y = a[f] * t + c[f]

`a` and `c` are read off the second program, whichever operator it came from: batch normalisation, multiplication, addition, subtraction,
division by constants that depend on one dimension of `t`. Products are regrouped, so results differ in the last bits; programs in `strict`
mode are left alone, and so are values that others read. Without a bias in the first program, `c` remains as an addition, which fusion makes
part of it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from codegen.dtypes import DType, f32, f64
from polyhedral import affine
from polyhedral.expr import Int, Name
from tensorlang.graph.edit import consumers, fresh, members, rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node, Value
from tensorlang.graph.programs import channel_program, param_named, reads_in_place, single, single_value
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import sum_and_rest
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Binary, Const, Dynamic, Expr, Let, Program, Read, Tensor, Unary

Array = np.ndarray[Any, Any]
Form: TypeAlias = tuple[Expr | None, Expr | None]


def fold_scales(graph: Graph) -> Graph:
    """Return the graph with every per-channel scale after a contraction with constant weights folded into them."""
    readers = consumers(graph)
    changed: dict[str, Node | None] = {}
    values: list[Value] = []
    constants: dict[str, Array] = {}
    taken = set(graph.values)
    for node in graph.nodes:
        after = readers[node.outputs[0]] if isinstance(node, Kernel) and len(node.outputs) == 1 else []
        if not isinstance(node, Kernel) or len(after) != 1 or node.outputs[0] in graph.outputs or node.name in changed:
            continue
        [reader] = after
        folded = _folded(graph, node, reader) if isinstance(reader, Kernel) and reader.name not in changed else None
        if folded is None:
            continue
        assert isinstance(reader, Kernel)
        changed |= {node.name: folded.first, reader.name: folded.second}
        for value, array in folded.constants:
            name = fresh(taken, value.name)
            taken.add(name)
            values.append(replace(value, name=name))
            constants[name] = array
    nodes = [n for node in graph.nodes if (n := changed.get(node.name, node)) is not None]
    return rebuilt(graph, nodes, values=values, constants=constants)


@dataclass(frozen=True, slots=True)
class Folded:
    first: Kernel
    second: Kernel | None
    constants: tuple[tuple[Value, Array], ...]


@dataclass(frozen=True, slots=True)
class Linear:
    """A program `bias + sum x * weight`: parameter names, and the dimensions of result and weight (as the caller sees them) that the
    channel is along; a bias has no other."""

    weight: str
    bias: str | None
    result_dim: int
    weight_dim: int


def _folded(graph: Graph, first: Kernel, second: Kernel) -> Folded | None:
    bound = first.bound
    param = next(p.name for p, v in zip(second.program.params, second.inputs, strict=True) if v == first.outputs[0])
    others = second.bound
    others.pop(param)
    if "strict" in (first.program.mode, second.program.mode) or first.outputs[0] in others.values():
        return None
    if not all(v in graph.constants for v in others.values()) or not reads_in_place(second.program, param):
        return None
    for linear in linear_forms(first.program, frozenset(p for p, v in bound.items() if v in graph.constants)):
        channel = channel_form(second.program, param, linear.result_dim, {p: graph.constants[v] for p, v in others.items()})
        if channel is not None and (linear.bias is not None or channel.scale is not None):
            return _rescaled(graph, first, second, linear, channel, bound)
    return None


def _rescaled(graph: Graph, first: Kernel, second: Kernel, linear: Linear, channel: Channel, bound: dict[str, str]) -> Folded:
    """Return both kernels as one, or as one and an addition."""
    made: list[tuple[Value, Array]] = []
    taken: dict[str, Value] = {}

    def constant(old: str, array: Array) -> str:
        name = fresh(ChainMap(graph.values, taken), f"{old} for {second.name}")
        taken[name] = replace(graph.values[old], name=name)
        made.append((taken[name], array.astype(graph.constants[old].dtype)))
        return name

    names = dict(bound)
    weight = graph.constants[bound[linear.weight]]
    if channel.scale is not None:
        shape = [1] * weight.ndim
        shape[linear.weight_dim] = -1
        names[linear.weight] = constant(bound[linear.weight], weight.astype(np.float64) * channel.scale.reshape(shape))
    program, result = first.program, second.outputs[0]
    if linear.bias is not None:
        bias = graph.constants[bound[linear.bias]].astype(np.float64)
        names[linear.bias] = constant(bound[linear.bias], bias * _or(channel.scale, 1.0) + _or(channel.offset, 0.0))
    inputs = tuple(names[p.name] for p in program.params)
    both = (*members(first), *members(second))
    if linear.bias is not None or channel.offset is None:
        return Folded(replace(first, inputs=inputs, outputs=(result,), members=both), None, tuple(made))
    value = graph.values[result]
    name = fresh(taken, f"offset of {second.name}")
    made.append((Value(name, value.dtype, (value.shape[linear.result_dim],)), channel.offset.astype(value.dtype.numpy)))
    addition = channel_program("+", value.dtype, value.shape, linear.result_dim)
    return Folded(
        replace(first, inputs=inputs),
        replace(second, program=addition, inputs=(first.outputs[0], name), operator="", attrs=()),
        tuple(made),
    )


def _or(array: Array | None, default: float) -> Array | float:
    return default if array is None else array


# ---------------------------------------------------------------- bias + sum x * w


def linear_forms(program: Program, constant: frozenset[str]) -> Iterator[Linear]:
    """Yield the ways to read the program as `bias + sum x * weight` with constant weight and bias, channel dimension by dimension."""
    value = single_value(program)
    if value is None or program.definitions[0].tensors[0].dtype not in (f32, f64):
        return
    parts = sum_and_rest(value)
    if parts is None or len(parts[1]) > 1 or not all(isinstance(t, Read) and t.tensor in constant for t in parts[1]):
        return
    total, bias = parts[0], next(iter(parts[1]), None)
    if total.reducer.kind != "sum" or total.init is not None or total.filter is not None:
        return
    factors = [f for f in walk.operands("*", total.body[0]) if isinstance(f, Read) and f.tensor in constant]
    if len(factors) != 1 or sum(r.tensor == factors[0].tensor for r in walk.reads(value)) != 1:
        return
    definition = program.definitions[0]
    for position, group in enumerate(definition.tensors[0].groups):
        axes = tuple(Name(definition.axes[k]) for k in group)
        weight = _dim_indexed_by(program, factors[0], axes)
        if weight is None:
            continue
        if bias is None:
            yield Linear(factors[0].tensor, None, position, weight)
        elif isinstance(bias, Read) and bias.index == axes and _dim_indexed_by(program, bias, axes) == 0:
            yield Linear(factors[0].tensor, bias.tensor, position, weight)


def _dim_indexed_by(program: Program, read: Read, axes: tuple[Name, ...]) -> int | None:
    """Return the dimension of the tensor that is indexed by exactly `axes`, the other dimensions not mentioning them."""
    tensor = param_named(program, read.tensor)
    wanted = tuple(n for a, n in zip(program.definitions[0].axes, program.definitions[0].tensors[0].shape, strict=True) if Name(a) in axes)
    found = [
        k
        for k, group in enumerate(tensor.groups)
        if tuple(read.index[i] for i in group) == axes and tuple(tensor.shape[i] for i in group) == wanted
    ]
    elsewhere = [s for k, g in enumerate(tensor.groups) if [k] != found for s in (read.index[i] for i in g)]
    clean = all(not isinstance(s, Dynamic) and not {a.name for a in axes} & set(affine.names(s)) for s in elsewhere)
    return found[0] if len(found) == 1 and clean else None


# ---------------------------------------------------------------- a[c] * x + c[c]


@dataclass(frozen=True, slots=True)
class Channel:
    """`scale[c] * x + offset[c]` in f64; None is one, or zero."""

    scale: Array | None
    offset: Array | None


def channel_form(program: Program, param: str, dim: int, constants: dict[str, Array]) -> Channel | None:
    """Return scale and offset of a program that is affine in `param`, with coefficients that depend on dimension `dim` alone."""
    value = single_value(program)
    definition = program.definitions[0]
    groups = definition.tensors[0].groups
    if value is None or dim >= len(groups) or len(groups[dim]) != 1 or definition.tensors[0].dtype not in (f32, f64):
        return None
    axis = definition.axes[groups[dim][0]]
    extent = definition.tensors[0].shape[groups[dim][0]]
    form = affine_in(value, param, definition.tensors[0].dtype)
    if form is None or not isinstance(extent, Int):
        return None
    parts = [_along(program, part, axis, extent, constants) if part is not None else None for part in form]
    if any(part is not None and result is None for part, result in zip(form, parts, strict=True)):
        return None
    return Channel(*parts)


def _along(program: Program, e: Expr, axis: str, extent: Int, constants: dict[str, Array]) -> Array | None:
    """Return the values of `e` along `axis`, or None when it depends on others."""
    if walk.index_names(e) - {axis}:
        return None
    dtype = program.definitions[0].tensors[0].dtype
    used = walk.tensor_names(e)
    params = tuple(p for p in program.params if p.name in used)
    small = single("channel", params, Tensor("channel", dtype, (extent,)), (axis,), e)
    result = interpret(small, {}, {p.name: constants[p.name] for p in params})["channel"].astype(np.float64)
    return result if bool(np.isfinite(result).all()) else None


def affine_in(e: Expr, param: str, dtype: DType) -> Form | None:
    """Return (a, c) with `e = a * x + c`, where `x` is a read of `param` that neither mentions; None stands for a = 1, c = 0."""
    match e:
        case Read(tensor=name) if name == param:
            return None, None
        case Let(name=name, value=value, body=body):
            return affine_in(walk.substitute_names(body, {name: value}), param, dtype)
        case Unary(op="neg", value=value):
            return _then(value, param, dtype, lambda a, c: (_neg(a, dtype), c and Unary("neg", c)))
        case Binary(op="+" | "*", lhs=lhs, rhs=rhs) if param not in walk.tensor_names(lhs):
            return affine_in(replace(e, lhs=rhs, rhs=lhs), param, dtype)
        case Binary(op="-", lhs=lhs, rhs=rhs) if param not in walk.tensor_names(lhs):
            return _then(rhs, param, dtype, lambda a, c: (_neg(a, dtype), lhs if c is None else Binary("-", lhs, c)))
        case Binary(rhs=rhs) if param in walk.tensor_names(rhs):
            return None
        case Binary(op="+", lhs=lhs, rhs=rhs):
            return _then(lhs, param, dtype, lambda a, c: (a, rhs if c is None else Binary("+", c, rhs)))
        case Binary(op="-", lhs=lhs, rhs=rhs):
            return _then(lhs, param, dtype, lambda a, c: (a, Unary("neg", rhs) if c is None else Binary("-", c, rhs)))
        case Binary(op="*", lhs=lhs, rhs=rhs):
            return _then(lhs, param, dtype, lambda a, c: (rhs if a is None else Binary("*", a, rhs), c and Binary("*", c, rhs)))
        case Binary(op="/", lhs=lhs, rhs=rhs):
            return _then(lhs, param, dtype, lambda a, c: (Binary("/", a or Const(1.0, dtype), rhs), c and Binary("/", c, rhs)))
        case _:
            return None


def _neg(a: Expr | None, dtype: DType) -> Expr:
    return Const(-1.0, dtype) if a is None else Unary("neg", a)


def _then(e: Expr, param: str, dtype: DType, f: Callable[[Expr | None, Expr | None], Form]) -> Form | None:
    inner = affine_in(e, param, dtype)
    return None if inner is None else f(*inner)
