"""A graph of open sizes at sizes that are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorlang.graph.nodes import Graph, Join, Loop, Node, Part, Value
from tensorlang.graph.sizes import is_open, value_at


def graph_at(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return the graph with the shapes that its values have for these sizes; programs of kernels keep their symbols."""
    values = {name: sized(value, sizes) for name, value in graph.values.items()}
    return replace(graph, values=values, nodes=tuple(_node_at(node, sizes) for node in graph.nodes))


def sized(value: Value, sizes: Mapping[str, int]) -> Value:
    """Return a value with the shape that it has for these sizes."""
    layout = value.layout
    if layout is not None and is_open(layout.shape):
        layout = replace(layout, shape=tuple([value_at(n, sizes) for n in layout.shape]))
    if layout is value.layout and not is_open(value.shape):
        return value
    return Value(value.name, value.dtype, tuple([value_at(n, sizes) for n in value.shape]), layout)


def _node_at(node: Node, sizes: Mapping[str, int]) -> Node:
    match node:
        case Part():
            return replace(node, start=value_at(node.start, sizes))
        case Join(starts=starts) if starts is not None:
            return replace(node, starts=tuple(value_at(start, sizes) for start in starts))
        case Loop():
            return replace(node, body=graph_at(node.body, sizes))
        case _:
            return node
