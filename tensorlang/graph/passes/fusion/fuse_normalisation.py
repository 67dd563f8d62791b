"""A product and the normalisation of its rows as one kernel, where that pays.

    before   t = kernel(x, w, b, r)     y = layer_norm(t, g, o)            t is written, and read three times
    after    y = kernel(x, w, b, r, g, o)                                  a block of rows of t at a time, while it is in the cache

Joined are a contraction, with what is done to its result element by element, and what reduces along the last axis of that result alone,
when nobody else reads it. The pass only joins; in what blocks of rows that is computed is found, and proven, by the schedule of the kernel
(`tensorlang.policy.cpu.row_epilogues`). `is_epilogue_profitable(product, rows)` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from tensorlang.graph.compose import composed
from tensorlang.graph.edit import consumers, members, producers, rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.programs import finishes_rows, is_product
from tensorlang.tensor.nodes import Program

ProfitableEpilogue: TypeAlias = Callable[[Program, Program], bool]


def fuse_normalisation(graph: Graph, is_epilogue_profitable: ProfitableEpilogue) -> Graph:
    """Return the graph with products whose rows are normalised next as one kernel with that."""
    made, read_by = producers(graph), consumers(graph)
    joined: dict[str, Kernel] = {}
    for node in graph.nodes:
        for name in node.inputs if isinstance(node, Kernel) else ():
            maker = made.get(name)
            alone = len(read_by[name]) == 1 and name not in graph.outputs
            if isinstance(node, Kernel) and isinstance(maker, Kernel) and alone and maker.name not in {k.name for k in joined.values()}:
                rows = is_product(maker.program) and normalises(node, name)
                if rows and maker.program.mode == node.program.mode and is_epilogue_profitable(maker.program, node.program):
                    joined[node.name] = maker
    gone = {maker.name for maker in joined.values()}
    kept = [node for node in graph.nodes if node.name not in gone]
    return rebuilt(graph, [_one(graph, joined[n.name], n) if isinstance(n, Kernel) and n.name in joined else n for n in kept])


def normalises(node: Kernel, value: str) -> bool:
    """Tell whether a kernel reduces rows of `value`, which it takes once, and nothing else."""
    return node.inputs.count(value) == 1 and finishes_rows(node.program, node.program.params[node.inputs.index(value)].name)


def _one(graph: Graph, product: Kernel, rows: Kernel) -> Node:
    program, inputs = composed(graph, (product, rows))
    return replace(rows, program=program, inputs=inputs, operator="", attrs=(), members=(*members(product), *members(rows)))
