"""Programs of one expression: the local tensors of a pointwise program are written where they are read.

    before   op gelu: t[i] = x[i] / 1.41421354      y[i] = 0.5 * x[i] * (1 + erf(t[i]))
    after    op gelu: y[i] = 0.5 * x[i] * (1 + erf(x[i] / 1.41421354))

The other passes recognise programs by their one expression. Literals are folded and decided selects resolved on the way; programs that
reduce or recur keep their tensors. Nothing changes a bit of a result.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.programs import program_key, recurs, reduces
from tensorlang.tensor.absorb import absorb
from tensorlang.tensor.dead_code import eliminate_dead
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.simplify import common_subexpressions, inline_all, simplify
from tensorlang.tensor.unit_binders import drop_unit_binders


def inline_locals(graph: Graph) -> Graph:
    """Return the graph with every program tidied; equal programs are tidied once."""
    known: dict[str, Program] = {}
    same: dict[int, Program] = {}

    def tidied(node: Node) -> Node:
        if not isinstance(node, Kernel):
            return node
        program = same.get(id(node.program))
        if program is None:
            key = f"{node.program.name} {program_key(node.program)}"
            if key not in known:
                known[key] = inlined_program(node.program)
            program = same[id(node.program)] = known[key]
        return node if program is node.program else replace(node, program=program)

    return rebuilt(graph, [tidied(node) for node in graph.nodes])


def inlined_program(program: Program) -> Program:
    """Return the program without local tensors where it neither reduces nor recurs, and with what is known in it resolved."""
    if len(program.definitions) > 1 and not reduces(program) and not recurs(program):
        program = common_subexpressions(eliminate_dead(inline_all(program, lambda definition, reads: True)))
    return absorb(simplify(drop_unit_binders(program)))
