"""What is normalised next and needed later, as a second result of the kernel that normalises it.

    before   t = x + r            y = layer_norm(t, g, b)           u = t + …          t is written, and read twice
    after    t, y = kernel(x, r, g, b)                              u = t + …          x and r are read, t and y written, once

Joined are sums and products of a few values, element by element, with what reduces along the last axis of them alone. That is for
graphics processors: the schedule of the kernel keeps rows in registers and stores both results in one pass over them
(`tensorlang.tensor.live_out`).
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.graph.compose import composed
from tensorlang.graph.edit import consumers, members, producers, rebuilt
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.fusion.fuse_normalisation import normalises
from tensorlang.graph.programs import expressions, is_pointwise, is_single
from tensorlang.tensor.nodes import Call, Dynamic, Program, Read

MOST_READ = 4
"""Values that one is made of, where it is joined."""


def live_out(graph: Graph) -> Graph:
    """Return the graph with such values as second results."""
    made, read_by = producers(graph), consumers(graph)
    joined: dict[str, tuple[Kernel, str]] = {}
    for node in graph.nodes:
        for name in node.inputs if isinstance(node, Kernel) else ():
            maker, taken = made.get(name), {k.name for k, _ in joined.values()}
            if not isinstance(node, Kernel) or not isinstance(maker, Kernel) or {maker.name, node.name} & {*taken, *joined}:
                continue
            first = all(_position(graph, reader.name) >= _position(graph, node.name) for reader in read_by[name])
            elsewhere = len(read_by[name]) > 1 or name in graph.outputs
            if elsewhere and first and maker.program.mode == node.program.mode and _is_cheap(maker.program) and normalises(node, name):
                joined[node.name] = maker, name
    gone = {maker.name for maker, _ in joined.values()}
    kept = [node for node in graph.nodes if node.name not in gone]
    return rebuilt(graph, [_one(graph, *joined[n.name], n) if isinstance(n, Kernel) and n.name in joined else n for n in kept])


def _position(graph: Graph, name: str) -> int:
    return next(k for k, node in enumerate(graph.nodes) if node.name == name)


def _is_cheap(program: Program) -> bool:
    """Tell whether elements are sums and products of a few at indices known when compiling."""
    found = list(expressions(program))
    data = any(isinstance(s, Dynamic) for e in found if isinstance(e, Read) for s in e.index)
    few = sum(isinstance(e, Read) for e in found) <= MOST_READ
    return is_single(program) and is_pointwise(program) and few and not data and not any(isinstance(e, Call) for e in found)


def _one(graph: Graph, maker: Kernel, value: str, rows: Kernel) -> Kernel:
    program, inputs = composed(graph, (maker, rows), (value,))
    outputs = (value, *rows.outputs)
    return replace(rows, program=program, inputs=inputs, outputs=outputs, operator="", attrs=(), members=(*members(maker), *members(rows)))
