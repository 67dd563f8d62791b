"""Dead code elimination: drop nodes, constants and values that no output depends on.

    before   b = relu(a)    c = exp(a)    output b
    after    b = relu(a)                  output b

Inputs stay, read or not: they are part of how the model is called. A kernel with several outputs stays while one of them is needed.
"""

from __future__ import annotations

from tensorlang.graph.edit import reads, rebuilt, writes
from tensorlang.graph.nodes import Graph, Node


def dce(graph: Graph) -> Graph:
    """Return the graph without what its outputs do not depend on."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.intersection(writes(node)):
            needed.update(reads(node))
            kept.append(node)
    return rebuilt(graph, reversed(kept))
