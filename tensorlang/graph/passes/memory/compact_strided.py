"""Of what the graph takes, lay out only what a contraction reads.

    before   y[f, p, q] = sum(c) w[f, c] * x[c, 2*p, 2*q]
    after    t[c, p, q] = x[c, 2*p, 2*q]                    y[f, p, q] = sum(c) w[f, c] * t[c, p, q]

A contraction reads every element many times, so inputs (and views) that it would like in another order are copied first; three quarters
of this one would be copied for nothing. What is left is contiguous along q, too: a product of matrices. Values that other kernels make
stay as they are, because those write them in the order that is wished.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Int, Name
from tensorlang.graph.edit import Additions
from tensorlang.graph.nodes import Graph, Kernel, Node, Value, View
from tensorlang.graph.programs import axes_of, is_contraction, single
from tensorlang.graph.sizes import Extent, Symbols, same, sample_of, to_expr
from tensorlang.tensor import walk
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Program, Read, Slot, Tensor


def compact_strided(graph: Graph) -> Graph:
    """Return the graph with copies of those elements that contractions read at a stride, in front of them."""
    given = {*graph.inputs, *(node.output for node in graph.nodes if isinstance(node, View))} - graph.constants.keys()
    state = _State(Additions(graph))
    for node in graph.nodes:
        if isinstance(node, Kernel) and is_contraction(node.program):
            for position, name in enumerate(node.inputs):
                found = _strided(node.program, position, graph.symbols) if name in given else None
                node = _split(state, node, position, found) if found is not None else node
        state.nodes.append(node)
    return state.new.rebuilt(state.nodes)


@dataclass(slots=True)
class _State:
    new: Additions
    nodes: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Strided:
    """The one read of a parameter; along some dimensions it visits `stride * axis + offset` for each place of an axis that lies inside."""

    read: Read
    dims: tuple[_Dim | None, ...]


@dataclass(frozen=True, slots=True)
class _Dim:
    """`extent` places of an axis are in the parameter, `count` as programs have it: others, of padding, are not read."""

    axis: str
    extent: Extent
    count: Affine
    stride: int
    offset: int


def _strided(program: Program, position: int, symbols: Symbols | None) -> _Strided | None:
    """Return how the program reads a parameter, when that is once, at strides along some dimensions."""
    param = program.params[position]
    found = [(d, r) for d in program.definitions for p in d.pieces for r in walk.reads(p.value) if r.tensor == param.name]
    if len(found) != 1 or param.declared_range is not None:
        return None
    [(definition, read)] = found
    dims = tuple(_dim(definition, slot, size, symbols) for slot, size in zip(read.index, param.shape, strict=True))
    return _Strided(read, dims) if any(dims) else None


def _dim(definition: Definition, slot: Slot, size: Affine, symbols: Symbols | None) -> _Dim | None:
    form = None if isinstance(slot, Dynamic) else affine.affine_form(slot)
    match form:
        case ({**terms}, int(offset)) if len(terms) == 1 and offset >= 0:
            [(axis, stride)] = terms.items()
        case _:
            return None
    extents = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
    if axis not in extents or stride < 2:
        return None
    extent, whole = (affine.constant(n) if symbols is None else symbols.size(n) for n in (extents[axis], size))
    if extent is None or whole is None:
        return None
    inside = -(-(whole - offset) // stride)
    if isinstance(extent, int) and isinstance(inside, int):
        there = min(extent, max(0, inside))
        return _Dim(axis, there, Int(there), stride, offset)
    return _Dim(axis, extent, extents[axis], stride, offset) if same(extent, inside) else None


def _split(state: _State, node: Kernel, position: int, found: _Strided) -> Kernel:
    """Return the node reading a sample, which is added before it; or as it is where the sample is no smaller."""
    param, value = node.program.params[position], state.new.graph.values[node.inputs[position]]
    dims = _ungrouped(found, param)
    if dims is None or sample_of(prod(shape := _sizes(value.shape, dims))) >= sample_of(prod(value.shape)):
        return node
    name = state.new.add(Value(f"{value.name} of {node.name}", value.dtype, shape))
    state.nodes.append(Kernel(f"sample {name}", _copy(value, shape, dims), (value.name,), (name,)))
    index = tuple(s if dim is None else Name(dim.axis) for s, dim in zip(found.read.index, found.dims, strict=True))
    read = replace(found.read, index=index)

    def rewritten(e: Expr) -> Expr:
        return read if e == found.read else walk.map_children(rewritten, e)

    definitions = tuple(replace(d, pieces=tuple(replace(p, value=rewritten(p.value)) for p in d.pieces)) for d in node.program.definitions)
    extents = tuple(n if dim is None else dim.count for n, dim in zip(param.shape, found.dims, strict=True))
    params = tuple(replace(p, shape=extents) if k == position else p for k, p in enumerate(node.program.params))
    inputs = tuple(name if k == position else v for k, v in enumerate(node.inputs))
    return replace(node, program=redefined(replace(node.program, params=params), definitions), inputs=inputs)


def _ungrouped(found: _Strided, param: Tensor) -> tuple[_Dim | None, ...] | None:
    """Return the dimensions as the value has them, which keeps those in a group as one; None when one of a group is strided."""
    groups = [[found.dims[k] for k in group] for group in param.groups]
    if any(len(g) > 1 and any(g) for g in groups):
        return None
    return tuple(g[0] if len(g) == 1 else None for g in groups)


def _sizes(shape: tuple[int, ...], dims: tuple[_Dim | None, ...]) -> tuple[Any, ...]:
    return tuple(n if dim is None else dim.extent for n, dim in zip(shape, dims, strict=True))


def _copy(value: Value, shape: tuple[int, ...], dims: tuple[_Dim | None, ...]) -> Program:
    axes = axes_of(len(shape))
    index = tuple(
        Name(axis) if dim is None else affine.add(affine.scale(dim.stride, Name(axis)), affine.to_expr(dim.offset))
        for axis, dim in zip(axes, dims, strict=True)
    )
    source = Tensor("x", value.dtype, tuple(map(to_expr, value.shape)))
    return single("sample", (source,), Tensor("y", value.dtype, tuple(map(to_expr, shape))), axes, Read("x", index))
