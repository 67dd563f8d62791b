"""Sums of products of f32 become sums of products of bf16: numbers are taken apart, and the parts that matter are multiplied.

    before   y[i, j] = sum(k in 0..K) a[i, k] * b[k, j]                              f32
    after    a'[i, .] = a2 a1 a1    b'[., j] = b1 b2 b1                              bf16, three times K elements along k
             y[i, j] = sum(k in 0..3*K) f32(a'[i, k]) * f32(b'[k, j])                summed in f32

a1 is a rounded to bf16, a2 what that leaves rounded to bf16, a3 what that leaves. Which parts are multiplied is `TERMS`, smallest products
first, so that they are added up before the large ones are there. What is left out of a product is at most 2^-16 of it with three terms
and 2^-25 with six, where f32 itself rounds each sum by 2^-24. Elements smaller than 2^-102 lose parts that would be subnormal. An
infinity, a NaN, or a number larger than the largest bf16 (3.39e38) makes the sums that it is part of NaN.

Parts of constants are made here, those of other values by a kernel that reads the value once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from codegen.dtypes import bf16, f32
from polyhedral import affine
from polyhedral.expr import Int, Name
from tensorlang.graph.edit import Additions
from tensorlang.graph.nodes import Graph, Kernel, Node, Value
from tensorlang.graph.passes.precision.products import Product, products
from tensorlang.graph.programs import axes_of, here, tensor_of, with_sizes
from tensorlang.graph.sizes import to_expr
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import Contraction
from tensorlang.tensor.nodes import (
    Binary,
    Call,
    Cast,
    Const,
    Definition,
    Dynamic,
    Expr,
    Piece,
    Program,
    Read,
    Reduce,
    Select,
    SplitProduct,
    Tensor,
)

TERMS: Mapping[int, tuple[tuple[int, int], ...]] = {
    3: ((1, 0), (0, 1), (0, 0)),
    6: ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0)),
}
"""Which part of each operand is multiplied, for three and for six products of bf16 in the place of one of f32."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Splittable:
    """A contraction in the definition of `result` that is to be made of parts: `refusal` says why it stays as it is; without one, `binder`
    goes along `axes[k]` of operand k, and along no other."""

    result: str
    contraction: Contraction
    refusal: str = ""
    binder: str = ""
    axes: tuple[int, int] = (0, 0)

    @property
    def tensors(self) -> tuple[str, str]:
        return self.contraction.tensors


def split_bf16(graph: Graph, count: int, least: int = 1) -> Graph:
    """Return the graph with sums of products of parts, `count` (3 or 6) for one, where there are `least` rows and columns of them."""
    state = _State(graph, count, Additions(graph))
    nodes: list[Node] = []
    for node in graph.nodes:
        if not isinstance(node, Kernel):
            nodes.append(node)
            continue
        changed = _changed(state, node, [p for p in splittable(node.program, least) if not p.refusal])
        nodes += [*state.kernels, changed]
        state.kernels.clear()
    return state.new.rebuilt(nodes)


# ---------------------------------------------------------------- what can be split


def splittable(program: Program, least: int = 1) -> tuple[Splittable, ...]:
    """Return the contractions of f32 in the program, and why those that stay do: because of what they are (`products`), or because parts
    cannot lie one after another along an index of the sum, or fill no tile."""
    return tuple(_judged(program, found, least) for found in products(program))


def _judged(program: Program, found: Product, least: int) -> Splittable:
    c = found.contraction
    kept = Splittable(found.definition.tensors[0].name, c, found.refusal)
    if found.refusal:
        return kept
    if not all(f.is_padded_with_zeros for f in c.factors):
        return replace(kept, refusal="what lies around an operand is not zero")
    binder = next((n for n in found.binders if _is_free(c, n) and all(_axis(program, r, n) is not None for r in c.reads)), None)
    if binder is None:
        return replace(kept, refusal="parts cannot lie one after another along an index of the sum")
    rows, columns = (_extent(found.definition, c.axes_of(side)) for side in (0, 1))
    if min(rows, columns) < least:
        return replace(kept, refusal=f"{rows} x {columns} sums fill no tile of {least} x {least}")
    first, second = (_axis(program, r, binder) for r in c.reads)
    assert first is not None and second is not None
    return replace(kept, binder=binder, axes=(first, second))


def _axis(program: Program, read: Read, binder: str) -> int | None:
    """Return the one axis along which the binder, and it alone, moves an element through a dimension that the caller sees, or None."""
    tensor = walk.tensor_table(program)[read.tensor]
    places = [k for k, slot in enumerate(read.index) if not isinstance(slot, Dynamic) and binder in affine.name_set(slot)]
    if len(places) != 1 or read.index[places[0]] != Name(binder):
        return None
    first = tensor.groups[tensor.dimension_of(places[0])][0]
    return places[0] if all(n == Int(1) for n in tensor.shape[first : places[0]]) else None


def _is_free(c: Contraction, binder: str) -> bool:
    """Tell whether what is summed asks for nothing but the range of the binder, which begins at 0."""
    others = {n for b in c.reduce.binders if b.name != binder for side in (b.lo, b.hi) for n in affine.names(side)}
    masks = {n for f in c.factors if f.mask is not None for n in walk.index_names(f.mask)}
    begins = next(affine.constant(b.lo) for b in c.reduce.binders if b.name == binder)
    return begins == 0 and c.reduce.init is None and binder not in {*others, *masks, *affine.names(c.reduce.where)}


def _extent(definition: Definition, axes: tuple[str, ...]) -> int:
    extents = dict(zip(definition.axes, definition.tensors[0].shape, strict=True))
    return prod(affine.constant(extents[a]) or 1 for a in axes)


# ---------------------------------------------------------------- rewriting


@dataclass(slots=True)
class _State:
    """`kernels`: those that make the parts that the next node reads; `made`: the value of the parts of a value, by how it was split."""

    graph: Graph
    products: int
    new: Additions
    made: dict[tuple[str, int, tuple[int, ...]], str] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)


def _changed(state: _State, kernel: Kernel, found: list[Splittable]) -> Kernel:
    """Return the kernel with these sums of products made of parts."""
    for each in found:
        program, inputs = kernel.program, list(kernel.inputs)
        taken = walk.fresh_for(program)
        to: list[tuple[Read, Read]] = []
        params = list(program.params)
        for side, (read, axis) in enumerate(zip(each.contraction.reads, each.axes, strict=True)):
            which = tuple(term[side] for term in TERMS[state.products])
            position = next(k for k, p in enumerate(params) if p.name == read.tensor)
            tensor = _longer(params[position], taken(f"{read.tensor}_parts"), axis, len(which))
            params.append(tensor)
            inputs.append(_parts_of(state, inputs[position], params[position].dimension_of(axis), which))
            to.append((read, replace(read, tensor=tensor.name)))
        long = _of_parts(each, to, state.products)
        changed = walk.map_values(program, lambda e, old=each.contraction.reduce, new=long: walk.replaced(e, old, new))  # type: ignore[misc]
        used = {r.tensor for d in changed.definitions for p in d.pieces for r in walk.reads(p.value)}
        kept = [(p, v) for p, v in zip(params, inputs, strict=True) if p.name in used]
        first, second = (parts.tensor for _, parts in to)
        idioms = (*program.idioms, SplitProduct(each.result, (first, second), state.products))
        changed = replace(changed, params=tuple(p for p, _ in kept), idioms=idioms)
        kernel = replace(kernel, program=changed, inputs=tuple(v for _, v in kept))
    return kernel


def _longer(tensor: Tensor, name: str, axis: int, times: int) -> Tensor:
    """Return a bf16 tensor that has `times` as many elements along an axis."""
    shape = tuple(affine.scale(times, n) if k == axis else n for k, n in enumerate(tensor.shape))
    return replace(tensor, name=name, dtype=bf16, shape=shape)


def _of_parts(found: Splittable, to: list[tuple[Read, Read]], products: int) -> Reduce:
    """Return the sum over the products of parts."""
    reduce = found.contraction.reduce
    [body] = reduce.body
    for read, parts in to:
        body = _with_part(body, read, parts)
    binders = tuple(replace(b, hi=affine.scale(products, b.hi)) if b.name == found.binder else b for b in reduce.binders)
    return replace(reduce, binders=binders, body=(body,))


def _with_part(e: Expr, read: Read, parts: Read) -> Expr:
    match e:
        case Read() if e == read:
            return Cast(f32, parts)
        case Select(cond, then, Const(0.0)) if then == read:
            return Cast(f32, Select(cond, parts, Const(0.0, bf16)))  # so that a copy can hold the padding
        case Binary("*", lhs, rhs):
            return Binary("*", _with_part(lhs, read, parts), _with_part(rhs, read, parts))
        case _:
            return e


# ---------------------------------------------------------------- parts


def _parts_of(state: _State, name: str, axis: int, which: tuple[int, ...]) -> str:
    """Return the value that has the parts `which` of a value one after the other along an axis."""
    key = (name, axis, which)
    if key not in state.made:
        value = state.graph.values[name]
        shape = tuple(n * len(which) if k == axis else n for k, n in enumerate(value.shape))
        array = state.graph.constants.get(name)
        label = state.new.add(Value(f"{name} in parts", bf16, shape), None if array is None else parts(array, axis, which))
        state.made[key] = label
        if array is None:
            state.kernels.append(Kernel(f"split {name}", parts_program(value, axis, which), (name,), (label,)))
    return state.made[key]


def parts(array: Array, axis: int, which: tuple[int, ...]) -> Array:
    """Return the parts `which` (0: the largest) of the numbers of an f32 array, one after the other along `axis`."""
    rest, found = np.asarray(array, np.float32), []
    with np.errstate(invalid="ignore", over="ignore"):
        for _ in range(max(which) + 1):
            found.append(rest.astype(bf16.numpy))
            rest = rest - found[-1].astype(np.float32)
    return np.concatenate([found[p] for p in which], axis)


def parts_program(value: Value, axis: int, which: tuple[int, ...]) -> Program:
    """Return what `parts` computes, as a program."""
    axes = axes_of(len(value.shape))
    source, extent = tensor_of("x", value), to_expr(value.shape[axis])
    result = _longer(source, "y", axis, len(which))
    pieces = []
    for k, part in enumerate(which):
        first, end = affine.scale(k, extent), affine.scale(k + 1, extent)
        index = tuple(affine.sub(Name(a), first) if a == axes[axis] else i for a, i in zip(axes, here(axes), strict=True))
        pieces.append(Piece(Cast(bf16, _part(Read("x", index), part)), affine.within(axes[axis], first, end)))
    return with_sizes(Program("split", (), (source,), ("y",), (Definition((result,), axes, tuple(pieces)),)))


def _part(x: Expr, part: int) -> Expr:
    rest = x
    for _ in range(part):
        rest = Binary("-", rest, Call("round_bf16", (rest,)))
    return Call("round_bf16", (rest,))
