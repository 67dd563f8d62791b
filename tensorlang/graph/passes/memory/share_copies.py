"""Copies of stretches of memory that are equally long become one kernel, wherever the stretches begin.

    before   a[i] = x[i]    b[i] = x[i + 3]    c[i] = x[i + 6]        three kernels to compile
    after    part of x -> a'    a[i] = a'[i]    and so on             one, called three times: a part costs nothing

A value that is split into thousands would otherwise be as many kernels as it has pieces. That a kernel copies a stretch is proven as for
joins. Parts that only a copy reads may begin at any element: kernels take what callers give them, and that is aligned no better.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.dtypes import DType
from tensorlang.graph.edit import Additions, members
from tensorlang.graph.nodes import Graph, Kernel, Node, Part
from tensorlang.graph.passes.memory.concat_in_place import is_dense, segment
from tensorlang.graph.passes.memory.layout import layouts_of
from tensorlang.graph.programs import copy_program, is_single


def share_copies(graph: Graph) -> Graph:
    """Return the graph with kernels that copy stretches of one length and type as copies of parts, where several would differ."""
    starts = {node.name: start for node in graph.nodes if (start := _start(graph, node)) is not None}
    of: dict[tuple[DType, tuple[int, ...]], set[object]] = {}
    for node in graph.nodes:
        if isinstance(node, Kernel) and node.name in starts:
            made = graph.values[node.outputs[0]]
            of.setdefault((made.dtype, made.shape), set()).add((graph.values[node.inputs[0]].shape, starts[node.name]))
    copies = {key: copy_program(*key) for key, found in of.items() if len(found) > 1}
    new = Additions(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        cut = node if isinstance(node, Kernel) and node.name in starts else None
        value = graph.values[cut.outputs[0]] if cut is not None else None
        copy = copies.get((value.dtype, value.shape)) if value is not None else None
        if cut is None or value is None or copy is None:
            nodes.append(node)
            continue
        part = new.add(replace(value, name=f"{value.name} where it lies"))
        nodes.append(Part(new.label(f"part {part}"), cut.inputs[0], part, starts[node.name], members(node)))
        nodes.append(Kernel(node.name, copy, (part,), cut.outputs, members=members(node)))
    return new.rebuilt(nodes)


def _start(graph: Graph, node: Node) -> int | None:
    """Return from which byte on of its input a kernel copies a stretch, or None where it does something else."""
    if not isinstance(node, Kernel) or not is_single(node.program) or len(node.inputs) != 1 or node.inputs[0] in graph.constants:
        return None
    program = node.program
    if layouts_of(graph, node) or not is_dense(program, program.results[0], {}):
        return None
    [definition] = program.definitions
    found = segment(program, definition, definition.pieces[0], {})
    return None if found is None or found.start > 0 else -found.start * definition.tensors[0].dtype.size_bytes
