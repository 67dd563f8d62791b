"""Round to tf32 what contractions multiply, so that a graphics processor's instructions for matrices may multiply it.

    before   y[i, j] = sum(k in 0..K) a[i, k] * b[k, j]                                            f32
    after    y[i, j] = sum(k in 0..K) round_tf32(a[i, k]) * round_tf32(b[k, j])

What is stored stays f32, sums too.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.precision.products import products
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import multiplied
from tensorlang.tensor.nodes import Binary, Call, Expr, Program, Reduce


def round_to_tf32(graph: Graph) -> Graph:
    """Return the graph with contractions of f32 that multiply what is rounded to tf32."""
    nodes = [replace(n, program=with_rounded(n.program)) if isinstance(n, Kernel) else n for n in graph.nodes]
    return rebuilt(graph, nodes)


def with_rounded(program: Program) -> Program:
    """Return the program with both operands of its contractions rounded."""
    found = {p.contraction.reduce for p in products(program) if not p.refusal}

    def changed(e: Expr) -> Expr:
        pair = multiplied(e) if e in found else None
        if pair is None or not isinstance(e, Reduce):
            return walk.map_children(changed, e)
        lhs, rhs = (Call("round_tf32", (side,)) for side in pair)
        return replace(e, body=(Binary("*", lhs, rhs),))

    return walk.map_values(program, changed) if found else program
