"""Round to tf32 what contractions multiply, so that a graphics processor's instructions for matrices may multiply it.

    before   y[i, j] = sum(k in 0..K) a[i, k] * b[k, j]                                            f32
    after    y[i, j] = sum(k in 0..K) round_tf32(a[i, k]) * round_tf32(b[k, j])

What is stored stays f32, sums too. Left alone is what `split_bf16` leaves alone: sums of few products, products inside products
(attention), `strict` kernels.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.precision.split_bf16 import considered
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Binary, Call, Expr, Program, Reduce


def round_to_tf32(graph: Graph) -> Graph:
    """Return the graph with contractions of f32 that multiply what is rounded to tf32."""
    nodes = [replace(n, program=with_rounded(n.program)) if isinstance(n, Kernel) else n for n in graph.nodes]
    return rebuilt(graph, nodes)


def with_rounded(program: Program) -> Program:
    """Return the program with both operands of its contractions rounded."""
    found = {p.reduce for p in considered(program) if not p.refusal}

    def changed(e: Expr) -> Expr:
        match e:
            case Reduce(body=(Binary("*", lhs, rhs),)) if e in found:
                return replace(e, body=(Binary("*", Call("round_tf32", (lhs,)), Call("round_tf32", (rhs,))),))
            case _:
                return walk.map_children(changed, e)

    return walk.map_values(program, changed) if found else program


def told(program: Program) -> tuple[str, ...]:
    """Return which products of a program that went through `round_to_tf32` multiply tf32, and why others do not, in words."""
    lines = []
    for e in dict.fromkeys(e for d in program.definitions for p in d.pieces for e in walk.reduces(p.value)):
        match e.body:
            case (Binary("*", Call("round_tf32", (lhs,)), Call("round_tf32", (rhs,))),):
                names = [r.tensor for side in (lhs, rhs) for r in walk.reads(side)]
                lines.append(f"products of {' and '.join(f'`{name}`' for name in names)} are tf32")
            case _:
                pass
    left = (p for p in considered(program) if p.refusal)
    return (*lines, *(f"products of {' and '.join(f'`{r.tensor}`' for r in p.reads)} stay f32: {p.refusal}" for p in left))
