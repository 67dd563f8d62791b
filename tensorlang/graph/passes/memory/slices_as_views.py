"""Read what is cut out of a value where it lies.

    before   m = conv(x, w)    a = m[:, 0:96]    c = m[:, 96:112]         m, a and c in blocks of channels, [n, c // 16, h, w, c % 16]
    after    m = conv(x, w)    part of m -> a    part of m -> c           nothing runs: a and c are stretches of the memory of m

A kernel that only copies becomes a `Part` when element after element of its result lies the same number of cells behind the one it copies,
which is proven as for joins, and when that is where a value may begin. What is joined to another value already has its place there.
What the graph takes or returns lies in memory of the caller, which may begin anywhere: of that only row-major parts are taken.
"""

from __future__ import annotations

from typing import Any

from tensorlang.graph.edit import is_stored_in_order, members, rebuilt
from tensorlang.graph.nodes import Graph, Join, Kernel, Node, Part, View
from tensorlang.graph.passes.memory.concat_in_place import is_dense, segment
from tensorlang.graph.passes.memory.layout import layouts_of
from tensorlang.graph.plan import ALIGNMENT, storages
from tensorlang.graph.programs import is_single
from tensorlang.graph.sizes import is_least, same


def slices_as_views(graph: Graph) -> Graph:
    """Return the graph with every kernel that copies a stretch of memory replaced by a part."""
    joined, callers = _joined(graph), _of_the_caller(graph)
    return rebuilt(graph, [_part(graph, node, joined, callers) for node in graph.nodes])


def _of_the_caller(graph: Graph) -> set[str]:
    """Return the values that lie in memory of inputs or outputs."""
    roots = storages(graph)
    given = {*graph.inputs, *(roots[name] for name in graph.outputs)}
    return {name for name, root in roots.items() if root in given}


def _joined(graph: Graph) -> set[str]:
    """Return the values that lie in others, themselves or as what they are views of."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        match node:
            case Join():
                found |= {*node.inputs}
            case View() if node.output in found:
                found.add(node.input)
            case _:
                pass
    return found


def _part(graph: Graph, node: Node, joined: set[str], callers: set[str]) -> Node:
    if not isinstance(node, Kernel) or not is_single(node.program) or len(node.inputs) != 1 or node.outputs[0] in joined:
        return node
    program, layouts = node.program, layouts_of(graph, node)
    [definition] = program.definitions
    if node.inputs[0] in graph.constants or node.outputs[0] in graph.outputs:
        return node
    if node.inputs[0] in callers and not is_stored_in_order(graph.values[node.outputs[0]]):
        return node
    if not is_dense(program, program.results[0], layouts, graph.symbols):
        return node
    found = segment(program, definition, definition.pieces[0], layouts, graph.symbols)
    if found is None:
        return node
    start: Any = found.start * -definition.tensors[0].dtype.size_bytes
    if not is_least(start) or not same(start % ALIGNMENT, 0):
        return node
    return Part(node.name, node.inputs[0], node.outputs[0], start, members(node))
