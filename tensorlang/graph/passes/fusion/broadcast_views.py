"""What is repeated or transposed before a kernel reads it is read where it lies: heads of keys that several heads of queries share.

    before   t[g, r, j, c] = k[g, 0, j, c]      v = view(t)      s[h, i, j] = sum(c) q[h, i, c] * v[h, j, c]        h = 2*g + r
    after                                                        s[h, i, j] = sum(c) q[h, i, c] * k[h // 2, 0, j, c]

The same elements are read, so nothing else changes. A kernel that repeats a value costs a launch and the memory of every repetition; here
there is only an index that is divided. A transpose counts where it leaves the last axis in place: then neighbours stay neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Int, Mod, Name
from tensorlang.graph.edit import producers
from tensorlang.graph.nodes import Graph, Kernel, Node, View
from tensorlang.graph.programs import single_value, tensor_of
from tensorlang.tensor.nodes import Dynamic, Program, Read
from tensorlang.tensor.walk import map_values, reads, substitute_reads


def without_moves(graph: Graph, kernel: Kernel) -> Kernel:
    """Return the kernel with inputs that repeat or transpose another value read from that value."""
    made = producers(graph)
    for position in range(len(kernel.inputs)):
        while (found := _moved(graph, made, kernel.inputs[position])) is not None:
            changed = _reading(graph, kernel, position, *found)
            if changed is kernel:
                break
            kernel = changed
    return kernel


def _moved(graph: Graph, made: Mapping[str, Node], value: str) -> tuple[Kernel, tuple[int, ...]] | None:
    """Return the kernel that only moves elements to make `value`, perhaps seen in another shape, and the shape that it has."""
    node = made.get(value)
    maker = made.get(node.input) if isinstance(node, View) else node
    if not isinstance(maker, Kernel) or maker.program.sizes or len(maker.inputs) != 1 or len(maker.program.params) != 1:
        return None
    read = single_value(maker.program)
    [param], [definition] = maker.program.params, maker.program.definitions
    result = definition.tensors[0]
    if not isinstance(read, Read) or any(isinstance(slot, Dynamic) for slot in read.index) or param.dtype != result.dtype:
        return None
    shape = tuple(affine.constant(e) or 0 for e in result.shape)
    larger = prod(shape) > prod(graph.values[maker.inputs[0]].shape) > 0
    last = bool(read.index) and read.index[-1] == Name(definition.axes[-1]) and param.shape[-1] == result.shape[-1]
    return (maker, shape) if larger or last else None


def _reading(graph: Graph, kernel: Kernel, position: int, maker: Kernel, shape: tuple[int, ...]) -> Kernel:
    """Return the kernel reading what `maker` reads, or as it is where data says which elements it reads."""
    program = kernel.program
    param = program.params[position]
    seen = tuple(affine.constant(e) or 0 for e in param.shape)
    read, [definition] = single_value(maker.program), maker.program.definitions
    assert isinstance(read, Read)
    source = replace(tensor_of(param.name, graph.values[maker.inputs[0]]), shape=maker.program.params[0].shape)
    extents = dict(zip(definition.axes, shape, strict=True))
    slots = tuple(_plain(slot, extents) for slot in read.index if not isinstance(slot, Dynamic))

    def moved(r: Read) -> Read:
        if r.tensor != param.name or any(isinstance(slot, Dynamic) for slot in r.index):
            return r
        parts = _parts(tuple(slot for slot in r.index if not isinstance(slot, Dynamic)), seen, shape)
        at = dict(zip(definition.axes, parts, strict=True))
        return replace(r, index=tuple(affine.substitute(slot, at) for slot in slots))

    asked = [r for d in program.definitions for p in d.pieces for r in reads(p.value) if r.tensor == param.name]
    if not asked or any(moved(r) is r for r in asked):
        return kernel
    changed: Program = map_values(program, lambda e: substitute_reads(e, moved))
    params = (*program.params[:position], source, *program.params[position + 1 :])
    inputs = (*kernel.inputs[:position], maker.inputs[0], *kernel.inputs[position + 1 :])
    return replace(kernel, program=replace(changed, params=params), inputs=inputs)


def _plain(slot: Affine, extents: Mapping[str, int]) -> Affine:
    """Return an index without a remainder that says nothing."""
    match slot:
        case Mod(Name(name) as axis, n) if extents.get(name) == n:
            return axis
        case _:
            return slot


def _parts(index: tuple[Affine, ...], seen: tuple[int, ...], shape: tuple[int, ...]) -> list[Affine]:
    """Return where element `index` of a value of the shape `seen` lies when its elements have the shape `shape`."""
    out: list[Affine] = []
    left, own = list(zip(index, seen, strict=True)), list(shape)
    while left or own:
        here, there = [left.pop(0)] if left else [], [own.pop(0)] if own else []
        while prod(n for _, n in here) != prod(there) or (own and own[0] == 1) or (left and left[0][1] == 1):
            behind = prod(n for _, n in here) < prod(there) or (left and left[0][1] == 1)
            here, there = ([*here, left.pop(0)], there) if behind else (here, [*there, own.pop(0)])
        at: Affine = Int(0)
        for slot, n in here:
            at = affine.add(affine.scale(n, at), slot)
        for k, n in enumerate(there):
            after = prod(there[k + 1 :])
            part = affine.floor(at, after) if after > 1 else at
            out.append(part if prod(there[:k]) == 1 else affine.mod(part, n) if n > 1 else Int(0))
    return out
