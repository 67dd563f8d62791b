"""Sums over the terms that a congruence leaves, as sums over phases: transposed convolutions without a test for every term.

    before   y = conv_transpose(x, w)                    w: 64 x 32 x 4 x 4
    after    v = phases(w)                               v: 64 x 32 x 2 x 2 x 2 x 2, computed now where w is constant
             y = four convolutions of x and v            each writes every other element along both axes

`tensor.phases` says what the new program is; no bit of a result changes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorlang.graph.edit import Additions, members
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.tensor.phases import by_phases, masked, reading, written_out
from tensorlang.tensor.unit_binders import drop_unit_binders
from tensorlang.tensor.walk import caller_shape


def phases(graph: Graph) -> Graph:
    """Return the graph with all such sums rewritten, and with what they read at places of a class written out before."""
    new = Additions(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _rewritten(new, node) if isinstance(node, Kernel) else [node]
    return new.rebuilt(nodes)


def _rewritten(new: Additions, node: Kernel) -> list[Node]:
    program = by_phases(node.program)
    if program is node.program:
        return [node]
    program = drop_unit_binders(program)
    copies = written_out(program)
    before: list[Node] = []
    inputs = list(node.inputs)
    for name, copy in copies.items():
        position = next(k for k, p in enumerate(program.params) if p.name == name)
        source = new[inputs[position]]
        label = new.label(f"phases of {source.name}")
        made = new.add(replace(source, name=label, shape=caller_shape(copy.definitions[0].tensors[0], {}), layout=None))
        before.append(Kernel(label, copy, (source.name,), (made,), members=members(node)))
        inputs[position] = made
    program = masked(reading(program, copies), _finite(new, node))
    return [*before, replace(node, program=program, inputs=tuple(inputs))]


def _finite(new: Additions, node: Kernel) -> frozenset[str]:
    """Return the parameters of a kernel that are constants without an infinity or a NaN, as are their copies."""
    constants = new.graph.constants
    pairs = zip(node.program.params, node.inputs, strict=True)
    return frozenset(p.name for p, name in pairs if name in constants and np.isfinite(constants[name].astype(np.float64)).all())
