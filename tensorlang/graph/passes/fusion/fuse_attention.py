"""Attention as one kernel: a product whose rows another product makes, with a softmax between, so that the scores are never stored whole.

    before   s = kernel(q, k, mask)     p = softmax(s)     y = kernel(p, v)           three kernels, s and p in memory
    after    y = kernel(q, k, mask, v)                                                one: s and p for a block of rows at a time

Joined are a contraction, what reduces along the last axis of its result and nothing else's, and the contraction that reads those rows by
itself, when nobody else reads what lies between. The pass only joins; that rows can be computed in blocks is found, and proven, by the
schedule of the kernel (`tensorlang.policy.cpu.row_chains`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polyhedral.expr import Name
from tensorlang.graph.compose import composed
from tensorlang.graph.edit import consumers, members, producers, rebuilt
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.programs import expressions, finishes_rows, is_product
from tensorlang.graph.sizes import sample_of
from tensorlang.tensor.nodes import Program, Read

LEAST_ROWS = 8


def fuse_attention(graph: Graph) -> Graph:
    """Return the graph with each product of a softmax of a product as one kernel."""
    return chained(graph, lambda kernel: kernel)


def chained(graph: Graph, rewritten: Callable[[Kernel], Kernel | None]) -> Graph:
    """Return the graph with each product of a softmax of a product as the one kernel that `rewritten` makes of what joins them; as they
    were where it makes none."""
    made, read_by = producers(graph), consumers(graph)
    joined: dict[str, Kernel] = {}
    gone: set[str] = set()

    def alone(value: str) -> Kernel | None:
        """Return the kernel that makes `value` for one reader alone."""
        maker = made.get(value)
        only = isinstance(maker, Kernel) and len(read_by[value]) == 1 and value not in graph.outputs and len(maker.outputs) == 1
        return maker if only and isinstance(maker, Kernel) else None

    for last in graph.nodes:
        found = [] if not isinstance(last, Kernel) or not is_product(last.program) else [alone(v) for v in _row_operands(last)]
        for rows in found:
            first = alone(rows.inputs[0]) if rows is not None and _is_softmax(rows.program) else None
            if rows is None or first is None or not isinstance(last, Kernel) or not is_product(first.program):
                continue
            if len({first.program.mode, rows.program.mode, last.program.mode}) == 1 and _rows(graph, rows) >= LEAST_ROWS:
                one = rewritten(_one(graph, (first, rows, last)))
                if one is None:
                    continue
                joined[last.name] = one
                gone |= {first.name, rows.name}
                break
    return rebuilt(graph, [joined.get(node.name, node) for node in graph.nodes if node.name not in gone])


def _rows(graph: Graph, kernel: Kernel) -> int:
    shape = graph.values[kernel.outputs[0]].shape
    return sample_of(shape[-2]) if len(shape) >= 2 else 1


def _is_softmax(program: Program) -> bool:
    """Tell whether the program reduces the rows of its one parameter, and nothing else."""
    return len(program.params) == 1 and finishes_rows(program, program.params[0].name)


def _row_operands(kernel: Kernel) -> list[str]:
    """Return the inputs of which the contraction reads rows: the last index is what it sums over, the others are axes of the result."""
    [definition] = kernel.program.definitions
    out = []
    for param, value in zip(kernel.program.params, kernel.inputs, strict=True):
        reads = [e for e in expressions(kernel.program) if isinstance(e, Read) and e.tensor == param.name]
        if len(reads) != 1 or not reads[0].index or kernel.inputs.count(value) != 1:
            continue
        *leading, last = [slot.name if isinstance(slot, Name) else "" for slot in reads[0].index]
        if last not in definition.axes and last and all(name in definition.axes for name in leading) and leading:
            out.append(value)
    return out


def _one(graph: Graph, kernels: tuple[Kernel, Kernel, Kernel]) -> Kernel:
    program, inputs = composed(graph, kernels)
    last = kernels[-1]
    names = tuple(name for node in kernels for name in members(node))
    return replace(last, program=replace(program, name="attention"), inputs=inputs, operator="", attrs=(), members=names)
