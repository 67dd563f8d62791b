"""An operand of a product that is read for something else as well is two params of the kernel, with one value.

    before   y[i, j] = sum(k) a[i, k] * w[k, j] + a[i, j]            y = kernel(a, w)
    after    y[i, j] = sum(k) a[i, k] * w[k, j] + b[i, j]            y = kernel(a, w, a)

So a schedule may copy what the product reads, stretch by stretch, and leave the other reads where they are. That is for graphics
processors, whose products read copies alone.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Binary, Expr, Program, Read, Reduce


def alias_operands(graph: Graph) -> Graph:
    """Return the graph with such operands told apart."""
    return rebuilt(graph, [_told_apart(node) if isinstance(node, Kernel) else node for node in graph.nodes])


def _told_apart(kernel: Kernel) -> Kernel:
    inputs = dict(zip((p.name for p in kernel.program.params), kernel.inputs, strict=True))
    for name in _multiplied(kernel.program):
        fresh = walk.fresh_for(kernel.program)(name)
        changed = walk.map_values(kernel.program, lambda e, old=name, new=fresh: _renamed(e, old, new))  # type: ignore[misc]
        if name in inputs and changed != kernel.program:
            param = next(p for p in changed.params if p.name == name)
            changed = replace(changed, params=(*changed.params, replace(param, name=fresh)))
            kernel = replace(kernel, program=changed, inputs=(*kernel.inputs, inputs[name]))
    return kernel


def _multiplied(program: Program) -> list[str]:
    """Return the tensors that products of two are summed up of."""
    found = (r for d in program.definitions for p in d.pieces for r in walk.reduces(p.value) if _is_product(r))
    return sorted({read.tensor for r in found for b in r.body for read in walk.reads(b)})


def _is_product(e: Expr) -> bool:
    match e:
        case Reduce(body=(Binary("*", lhs, rhs),)):
            return len({r.tensor for side in (lhs, rhs) for r in walk.reads(side)}) > 1
        case _:
            return False


def _renamed(e: Expr, old: str, new: str) -> Expr:
    """Return `e` with the reads of a tensor outside of sums of products as reads of another."""
    match e:
        case Reduce() if _is_product(e):
            return e
        case Read(name) if name == old:
            return replace(e, tensor=new, index=e.index)
        case _:
            return walk.map_children(lambda child: _renamed(child, old, new), e)
