"""Questions about a graph, and the one way to build a changed one.

Passes are pure: they collect new nodes, values and constants and hand them to `rebuilt`, which sorts, drops what nothing defines any more
and keeps the rest as it was.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from operator import is_
from typing import Any, assert_never

import numpy as np

from tensorlang.diagnostics import InternalError
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Node, Part, Value, View
from tensorlang.schedule.layout import is_in_order


def reads(node: Node) -> tuple[str, ...]:
    """Return the names of the values the node reads, in order, repetitions included."""
    match node:
        case Kernel() | Extern() | Loop():
            return node.inputs
        case View() | Part():
            return (node.input,)
        case Join():
            return node.inputs
        case _:
            assert_never(node)


def writes(node: Node) -> tuple[str, ...]:
    """Return the names of the values the node defines, in order."""
    match node:
        case Kernel() | Extern() | Loop():
            return node.outputs
        case View() | Join() | Part():
            return (node.output,)
        case _:
            assert_never(node)


def with_reads(node: Node, names: Mapping[str, str]) -> Node:
    """Return the node reading `names[v]` wherever it read `v`; values not in `names` stay."""
    if not any(name in names for name in reads(node)):
        return node
    match node:
        case Kernel() | Join() | Extern() | Loop():
            return replace(node, inputs=tuple(names.get(v, v) for v in node.inputs))
        case View() | Part():
            return replace(node, input=names.get(node.input, node.input))
        case _:
            assert_never(node)


def producers(graph: Graph) -> dict[str, Node]:
    """Return the node that defines each value; inputs and constants are absent."""
    return {name: node for node in graph.nodes for name in writes(node)}


def consumers(graph: Graph) -> dict[str, list[Node]]:
    """Return the nodes that read each value, once each, in order. Being an output of the graph is not counted."""
    table: dict[str, list[Node]] = {name: [] for name in graph.values}
    for node in graph.nodes:
        for name in dict.fromkeys(reads(node)):
            table[name].append(node)
    return table


def uses(graph: Graph) -> Counter[str]:
    """Return how often each value is read by nodes or returned by the graph."""
    return Counter([*graph.outputs, *(name for node in graph.nodes for name in reads(node))])


def members(node: Node) -> tuple[str, ...]:
    """Return the names of the model's nodes that `node` computes: its own when no pass has merged it with others."""
    return node.members or (node.name,)


def size_bytes(value: Value) -> int:
    """Return how many bytes the memory of `value` takes, its layout's padding included."""
    shape = value.shape if value.layout is None else value.layout.shape
    return prod(shape) * value.dtype.size_bytes


def is_stored_in_order(value: Value) -> bool:
    """Tell whether a value is row-major, perhaps with room between its rows, so that it may begin at any element."""
    return value.layout is None or is_in_order(value.layout.dims, value.layout.axes)


def rebuilt(
    graph: Graph,
    nodes: Iterable[Node],
    *,
    values: Iterable[Value] = (),
    constants: Mapping[str, np.ndarray[Any, Any]] | None = None,
    replaced: Mapping[str, str] | None = None,
) -> Graph:
    """Return the graph with `nodes` instead of its own, in topological order.

    `values` and `constants` are added (or take the place of those of the same name). `replaced[v] = w` makes every reader of `v` read `w`,
    through chains of replacements. An output that is replaced keeps its name: it becomes a view of `w`.
    Values and constants that nothing reads or defines are dropped; nodes are never dropped here. A graph that this leaves as it was is
    returned itself.
    """
    nodes, values = tuple(nodes), tuple(values)
    if not (values or constants or replaced) and _unchanged(graph, nodes):
        return graph
    table = dict(graph.values) | {value.name: value for value in values}
    arrays = dict(graph.constants) | dict(constants or {})
    final = _resolve(replaced or {})
    body = [with_reads(node, final) for node in nodes] if final else list(nodes)
    body += [View(name=f"output {out}", input=final[out], output=out) for out in dict.fromkeys(graph.outputs) if out in final]
    used = {*graph.inputs, *graph.outputs}
    for node in body:
        used.update(reads(node), writes(node))
    return replace(
        graph,
        values={name: value for name, value in table.items() if name in used},
        constants={name: array for name, array in arrays.items() if name in used},
        nodes=sorted_nodes(graph.name, body),
    )


def _unchanged(graph: Graph, nodes: tuple[Node, ...]) -> bool:
    """Tell whether `nodes` are those of the graph, and use all its values."""
    if len(nodes) != len(graph.nodes) or not all(map(is_, nodes, graph.nodes)):
        return False
    used = {*graph.inputs, *graph.outputs}
    for node in nodes:
        used.update(reads(node), writes(node))
    return len(used) == len(graph.values) and graph.constants.keys() <= used


def sorted_nodes(graph_name: str, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes in a topological order that keeps the given one where it can: what a node reads is made before it."""
    pending = tuple(nodes)
    if _in_order(pending):
        return pending
    maker = {name: k for k, node in enumerate(pending) for name in writes(node)}
    waits = [{maker[name] for name in reads(node) if name in maker} for node in pending]
    order: list[int] = []
    state = [0] * len(pending)
    for root in range(len(pending)):
        stack = [root]
        while stack:
            k = stack[-1]
            if state[k] == 2:
                stack.pop()
                continue
            missing = [d for d in sorted(waits[k]) if state[d] != 2]
            if not missing:
                state[k] = 2
                order.append(k)
                stack.pop()
                continue
            if state[k] == 1 and any(state[d] == 1 for d in missing):
                raise InternalError("graph", f"the nodes of `{graph_name}` form a cycle through `{pending[k].name}`")
            state[k] = 1
            stack.extend(d for d in reversed(missing) if state[d] == 0)
    return tuple(pending[k] for k in order)


def _in_order(nodes: tuple[Node, ...]) -> bool:
    """Tell whether every node stands behind those that define what it reads."""
    ahead = {name for node in nodes for name in writes(node)}
    for node in nodes:
        if not ahead.isdisjoint(reads(node)):
            return False
        ahead.difference_update(writes(node))
    return True


def row_bytes(value: Value) -> int:
    """Return how many bytes each of the rows takes that a row-major value consists of."""
    return prod(value.shape[1:]) * value.dtype.size_bytes


def fresh(taken: Container[str], stem: str) -> str:
    """Return `stem`, or one of `stem.1`, `stem.2`, … that is not taken: the first, where those that are taken leave no gap. However many
    these are, few are asked for. `taken` is asked, not copied: a set, or a `ChainMap` of all the tables that names are in."""
    if stem not in taken:
        return stem
    last, free = 0, 1
    while f"{stem}.{free}" in taken:
        last, free = free, 2 * free
    while free - last > 1:
        middle = (last + free) // 2
        last, free = (middle, free) if f"{stem}.{middle}" in taken else (last, middle)
    return f"{stem}.{free}"


@dataclass(slots=True)
class Additions:
    """What a pass adds to a graph, under names that nothing there has: values, with the elements of constants, and labels of nodes."""

    graph: Graph
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)
    """The names of all nodes, once one is asked for."""

    def __getitem__(self, name: str) -> Value:
        """Return a value of the graph, or one that was added."""
        return self.values.get(name) or self.graph.values[name]

    def add(self, value: Value, array: np.ndarray[Any, Any] | None = None) -> str:
        """Add a value, a constant where `array` has its elements, and return its name: its own, or one like it that is free."""
        name = fresh(ChainMap(self.graph.values, self.values), value.name)
        self.values[name] = replace(value, name=name)
        if array is not None:
            self.constants[name] = array
        return name

    def label(self, stem: str) -> str:
        """Return the name of a node to add."""
        if not self.labels:
            self.labels |= {node.name for node in self.graph.nodes}
        name = fresh(self.labels, stem)
        self.labels.add(name)
        return name

    def rebuilt(self, nodes: Iterable[Node]) -> Graph:
        """Return the graph with `nodes` instead of its own, and what was added."""
        return rebuilt(self.graph, nodes, values=self.values.values(), constants=self.constants)


def _resolve(replaced: Mapping[str, str]) -> dict[str, str]:
    """Return where each chain of replacements ends; every link is followed once."""
    final: dict[str, str] = {}
    for name in replaced:
        passed = []
        while name in replaced and name not in final:
            passed.append(name)
            name = replaced[name]
        final |= dict.fromkeys(passed, final.get(name, name))
    return final
