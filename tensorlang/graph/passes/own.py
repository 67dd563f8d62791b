"""Give every reader of a widened value a widening of its own.

    before   t = dequantise(q)    u = t + a    v = relu(t)
    after    t = dequantise(q)    t' = dequantise(q)    u = t + a    v = relu(t')

Each can then be part of the kernel that reads it, and the narrow value is all that is stored.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.graph.edit import consumers, fresh, rebuilt, with_reads
from tensorlang.graph.nodes import Graph, Kernel, Node, Value
from tensorlang.graph.passes.fuse import kind_of


def own(graph: Graph) -> Graph:
    """Return the graph with cheap kernels that make one value wider repeated for each of their readers."""
    readers = consumers(graph)
    values: dict[str, Value] = {}
    taken, names = {*graph.values}, {node.name for node in graph.nodes}
    nodes: list[Node] = []
    renamed: dict[str, dict[str, str]] = {}
    for node in graph.nodes:
        node = with_reads(node, renamed.get(node.name, {}))
        nodes.append(node)
        if not isinstance(node, Kernel) or not _widens(graph, node):
            continue
        [output] = node.outputs
        for reader in readers[output][1:]:
            copy, label = fresh(taken, f"{output} for {reader.name}"), fresh(names, f"{node.name} for {reader.name}")
            taken.add(copy)
            names.add(label)
            values[copy] = replace(graph.values[output], name=copy)
            nodes.append(replace(node, name=label, outputs=(copy,)))
            renamed.setdefault(reader.name, {})[output] = copy
    return rebuilt(graph, nodes, values=values.values())


def _widens(graph: Graph, node: Kernel) -> bool:
    if len(node.inputs) != 1 or len(node.outputs) != 1 or node.outputs[0] in graph.outputs or node.inputs[0] in graph.constants:
        return False
    wider = graph.values[node.inputs[0]].dtype.size_bytes < graph.values[node.outputs[0]].dtype.size_bytes
    kind = kind_of(node.program)
    return wider and kind.pointwise and kind.cheap and bool(kind.in_place)
