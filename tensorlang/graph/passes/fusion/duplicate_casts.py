"""Give every reader of a widened value a widening of its own.

    before   t = dequantise(q)    u = t + a    v = relu(t)
    after    t = dequantise(q)    t' = dequantise(q)    u = t + a    v = relu(t')

Each can then be part of the kernel that reads it, and the narrow value is all that is stored. Readers come before what they read: one that
widens, too, is repeated first, and each of its copies then reads a value of its own.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.graph.edit import Additions, reads, with_reads
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.passes.fusion.fuse import kind_of


def duplicate_casts(graph: Graph) -> Graph:
    """Return the graph with cheap kernels that make one value wider repeated for each of their readers."""
    new = Additions(graph)
    done: dict[str, Node] = {}
    read_by: dict[str, list[str]] = {name: [] for name in graph.values}
    for node in reversed(graph.nodes):
        copies: list[Kernel] = []
        for reader in reversed(read_by[node.outputs[0]][:-1]) if isinstance(node, Kernel) and _widens(graph, node) else ():
            assert isinstance(node, Kernel)
            [output] = node.outputs
            copy = new.add(replace(graph.values[output], name=f"{output} for {reader}"))
            copies.append(replace(node, name=new.label(f"{node.name} for {reader}"), outputs=(copy,)))
            done[reader] = with_reads(done[reader], {output: copy})
        for each in (*reversed(copies), node):
            done[each.name] = each
            for name in dict.fromkeys(reads(each)):
                read_by[name].append(each.name)
    return new.rebuilt(reversed(done.values()))


def _widens(graph: Graph, node: Kernel) -> bool:
    if len(node.inputs) != 1 or len(node.outputs) != 1 or node.outputs[0] in graph.outputs or node.inputs[0] in graph.constants:
        return False
    if graph.values[node.inputs[0]].dtype.size_bytes >= graph.values[node.outputs[0]].dtype.size_bytes:
        return False
    kind = kind_of(node.program)
    return kind.pointwise and kind.cheap and bool(kind.in_place)
