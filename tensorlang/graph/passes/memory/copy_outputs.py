"""Give every output of the graph memory of its own, written by a kernel.

    before   output x (an input)       y = view(t)   output t, y
    after    output x' = copy(x)       y = view(t)   output t, y' = copy(y)

The caller provides the memory of outputs; an output that is an input, a constant, a view of one, a part of another value, or shares its
memory with another output is therefore copied, and so is one that holds a value in another layout than row-major: kernels expect that to
begin at a multiple of the alignment, and the caller's memory begins anywhere. All other views stay views.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.graph.edit import Additions, is_stored_in_order, rebuilt, size_bytes
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.plan import storages
from tensorlang.graph.programs import copy_program


def copy_outputs(graph: Graph) -> Graph:
    """Return the graph with every output (named once each) the sole output on its storage."""
    roots = storages(graph)
    taken = {*graph.inputs, *graph.constants, *(roots[name] for name, value in graph.values.items() if not is_stored_in_order(value))}
    copies: list[Kernel] = []
    new = Additions(graph)
    names: list[str] = []
    for name in graph.outputs:
        if roots[name] not in taken and size_bytes(graph.values[roots[name]]) == size_bytes(graph.values[name]):
            taken.add(roots[name])
            names.append(name)
            continue
        value = graph.values[name]
        copy = new.add(replace(value, name=f"{name} returned"))
        copies.append(Kernel(new.label(f"return {name}"), copy_program(value.dtype, value.shape), (name,), (copy,)))
        names.append(copy)
    return rebuilt(replace(graph, outputs=tuple(names)), (*graph.nodes, *copies), values=new.values.values())
