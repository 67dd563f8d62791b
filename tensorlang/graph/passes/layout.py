"""Layouts: keep values in the order in memory that the kernels around them want.

    before   t = conv(x, w)             u = relu(pool(t))    v = conv(u, k)          output v
    after    t = conv(x, w') blocked    u = ... blocked      v = conv(u, k')         output v, row-major          w', k' laid out now

`wishes(graph, kernel)` says how a kernel would like its parameters and its result, by the names of its program. Constants are laid out at
compile time. A result gets the layout its kernel wishes; kernels without wishes whose elements come from places near by (pointwise,
pooling) take over the layout of what they read. Where a reader wants another order than a value has, one copy is inserted for all of them.
Graph inputs and outputs, views, and kernels that nobody asked stay row-major.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from polyhedral.expr import Expr, Floor, Int, Mod, Name
from tensorlang.graph.edit import fresh, rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node, Value, View
from tensorlang.graph.programs import copy_program, is_contraction, recurs, reduces
from tensorlang.graph.relayout import relaid
from tensorlang.graph.verify import result_tensors
from tensorlang.schedule.layout import Layout
from tensorlang.tensor import affine
from tensorlang.tensor.nodes import Program

Wishes: TypeAlias = Callable[[Graph, Kernel], Mapping[str, Layout]]
Array = np.ndarray[Any, Any]


def layout(graph: Graph, wishes: Wishes) -> Graph:
    """Return the graph with layouts assigned, constants laid out, and copies where they meet."""
    state = _State(graph, dict(graph.values))
    for node in graph.nodes:
        match node:
            case View():
                state.nodes.append(replace(node, input=state.arranged(node.input, None)))
            case Kernel():
                _kernel(state, node, wishes(graph, node))
    return rebuilt(graph, state.nodes, values=state.values.values(), constants=state.constants)


def layouts_of(graph: Graph, kernel: Kernel) -> dict[str, Layout]:
    """Return the layouts of the kernel's parameters and results by the names of its program; row-major ones are absent."""
    names = (*(p.name for p in kernel.program.params), *kernel.program.results)
    pairs = zip(names, (*kernel.inputs, *kernel.outputs), strict=True)
    return {name: found for name, v in pairs if (found := graph.values[v].layout) is not None}


@dataclass(slots=True)
class _State:
    graph: Graph
    values: dict[str, Value]
    constants: dict[str, Array] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    copies: dict[tuple[str, Layout | None], str] = field(default_factory=dict)

    def arranged(self, name: str, wanted: Layout | None) -> str:
        """Return the value with the elements of `name` in the layout `wanted`: itself, or a copy that is made once."""
        value = self.values[name]
        if value.layout == wanted:
            return name
        if (name, wanted) not in self.copies:
            copy = replace(value, name=fresh(self.values, f"{name} laid out"), layout=wanted)
            self.values[copy.name] = copy
            self.copies[name, wanted] = copy.name
            if name in self.graph.constants and wanted is not None:
                self.constants[copy.name] = relaid(self.graph.constants[name], wanted)
            else:
                self.nodes.append(Kernel(f"lay out {copy.name}", copy_program(value.dtype, value.shape), (name,), (copy.name,)))
        return self.copies[name, wanted]


def _kernel(state: _State, node: Kernel, wished: Mapping[str, Layout]) -> None:
    graph, program = state.graph, node.program
    wanted = {v: named_alike(wished[p.name]) for p, v in zip(program.params, node.inputs, strict=True) if p.name in wished}
    results: dict[str, Layout | None] = {
        v: named_alike(wished[t.name]) if t.name in wished and v not in graph.outputs else None
        for t, v in zip(result_tensors(program), node.outputs, strict=True)
    }
    spread = None if wished or len(node.outputs) != 1 or not _keeps_layouts(program) else _common(state, node)
    if spread is not None and node.outputs[0] not in graph.outputs:
        results[node.outputs[0]] = retargeted(spread, graph.values[node.outputs[0]].shape)
    kept = {found for found in results.values() if found is not None}
    inputs = []
    for name in node.inputs:
        now = state.values[name].layout
        fits = now is not None and any(retargeted(now, graph.values[v].shape) in kept for v in node.outputs)
        inputs.append(state.arranged(name, wanted.get(name, now if fits else None)))
    for name, found in results.items():
        state.values[name] = replace(state.values[name], layout=found)
    state.nodes.append(replace(node, inputs=tuple(inputs)))


def _keeps_layouts(program: Program) -> bool:
    """Tell whether a kernel may take over the layout of what it reads: neighbouring elements of its result read neighbouring elements."""
    if recurs(program) or is_contraction(program):
        return False
    return not reduces(program) or len(program.params) == 1


def _common(state: _State, node: Kernel) -> Layout | None:
    """Return the layout of the largest input that has the rank of the result and a layout that the result can have."""
    shape = state.graph.values[node.outputs[0]].shape
    found = [
        state.values[name] for name in node.inputs if state.values[name].layout is not None and len(state.values[name].shape) == len(shape)
    ]
    for value in sorted(found, key=lambda v: -int(np.prod(v.shape))):
        if value.layout is not None and value.shape[:2] == shape[:2] and retargeted(value.layout, shape) is not None:
            return value.layout
    return None


# ---------------------------------------------------------------- layouts


def retargeted(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """Return the same arrangement for a tensor of another shape, or None when it has gaps or borders and its block cannot be told."""
    if len(shape) != len(layout.axes):
        return None
    extents = dict(zip(layout.axes, shape, strict=True))
    block = [_extent(e, extents) for e in layout.dims]
    return None if None in block else replace(layout, shape=tuple(n for n in block if n is not None))


def _extent(e: Expr, extents: Mapping[str, int]) -> int | None:
    match e:
        case Name(name):
            return extents[name]
        case Floor(value=Name(name), divisor=divisor):
            return -(-extents[name] // divisor)
        case Mod(value=Name(), divisor=divisor):
            return divisor
        case _:
            return None


def named_alike(layout: Layout) -> Layout:
    """Return the same arrangement with its axes called d0, d1, … and without storage dimensions of one cell: equal memory, equal layouts."""
    to: dict[str, Expr] = {axis: Name(f"d{k}") for k, axis in enumerate(layout.axes)}
    kept = [(affine.substitute(e, to), n) for e, n in zip(layout.dims, layout.shape, strict=True) if not (n == 1 and e == Int(0))]
    return Layout(tuple(f"d{k}" for k in range(len(layout.axes))), tuple(e for e, _ in kept), tuple(n for _, n in kept))
