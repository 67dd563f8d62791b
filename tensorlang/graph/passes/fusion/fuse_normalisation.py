"""A product and the normalisation of its rows as one kernel, where that pays.

    before   t = kernel(x, w, b, r)     y = layer_norm(t, g, o)            t is written, and read three times
    after    y = kernel(x, w, b, r, g, o)                                  a block of rows of t at a time, while it is in the cache

Joined are a contraction, with what is done to its result element by element, and what reduces along the last axis of that result alone,
when nobody else reads it. The pass only joins; in what blocks of rows that is computed is found, and proven, by the schedule of the kernel
(`tensorlang.policy.cpu.row_epilogues`). `worth(product, rows)` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from polyhedral.expr import Name
from tensorlang.graph.compose import composed
from tensorlang.graph.edit import consumers, members, producers, rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.programs import is_contraction, is_single, recurs, reduces
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import index_names, reads

Worth: TypeAlias = Callable[[Program, Program], bool]


def fuse_normalisation(graph: Graph, worth: Worth) -> Graph:
    """Return the graph with products whose rows are normalised next as one kernel with that."""
    made, read_by = producers(graph), consumers(graph)
    joined: dict[str, Kernel] = {}
    for node in graph.nodes:
        for name in node.inputs if isinstance(node, Kernel) else ():
            maker = made.get(name)
            alone = len(read_by[name]) == 1 and name not in graph.outputs
            if isinstance(node, Kernel) and isinstance(maker, Kernel) and alone and maker.name not in {k.name for k in joined.values()}:
                rows = finishes_rows(node, name) and is_single(maker.program) and is_contraction(maker.program)
                if rows and maker.program.mode == node.program.mode and worth(maker.program, node.program):
                    joined[node.name] = maker
    gone = {maker.name for maker in joined.values()}
    kept = [node for node in graph.nodes if node.name not in gone]
    return rebuilt(graph, [_one(graph, joined[n.name], n) if isinstance(n, Kernel) and n.name in joined else n for n in kept])


def finishes_rows(node: Kernel, value: str) -> bool:
    """Tell whether a kernel reduces rows of `value` along its last axis, in several steps, and nothing else, and makes as many rows."""
    program = node.program
    if node.inputs.count(value) != 1 or len(program.results) != 1 or len(program.definitions) < 2:
        return False
    if recurs(program) or is_contraction(program) or not reduces(program):
        return False
    param = program.params[node.inputs.index(value)]
    rank = len(param.shape)
    result = next(d for d in program.definitions if d.tensors[0].name == program.results[0])
    if param.grouping or rank < 2 or result.tensors[0].shape != param.shape:
        return False
    for definition in program.definitions:
        leading = tuple(Name(a) for a in definition.axes[: rank - 1])
        if len(definition.pieces) != 1 or len(definition.axes) not in (rank, rank - 1):
            return False
        own = [
            r
            for r in reads(definition.pieces[0].value)
            if len(r.index) >= rank - 1 and set(index_names(r)) & set(definition.axes[: rank - 1])
        ]
        if any(r.index[: rank - 1] != leading for r in own):
            return False
    return True


def _one(graph: Graph, product: Kernel, rows: Kernel) -> Node:
    program, inputs = composed(graph, (product, rows))
    return replace(rows, program=program, inputs=inputs, operator="", attrs=(), members=(*members(product), *members(rows)))
