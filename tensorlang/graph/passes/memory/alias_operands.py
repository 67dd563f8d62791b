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
from tensorlang.tensor.contraction import sums_products
from tensorlang.tensor.nodes import Expr, Program, Read


def alias_operands(graph: Graph) -> Graph:
    """Return the graph with such operands told apart."""
    return rebuilt(graph, [_told_apart(node) if isinstance(node, Kernel) else node for node in graph.nodes])


def _told_apart(kernel: Kernel) -> Kernel:
    inputs = kernel.bound
    for name in _multiplied(kernel.program):
        fresh = walk.fresh_for(kernel.program)(name)
        changed = walk.map_values(kernel.program, lambda e, old=name, new=fresh: _renamed(e, old, new))  # type: ignore[misc]
        if name in inputs and changed != kernel.program:
            param = next(p for p in changed.params if p.name == name)
            changed = replace(changed, params=(*changed.params, replace(param, name=fresh)))
            kernel = replace(kernel, program=changed, inputs=(*kernel.inputs, inputs[name]))
    return kernel


def _multiplied(program: Program) -> list[str]:
    """Return the tensors whose elements sums of products multiply."""
    found = (r for d in program.definitions for p in d.pieces for r in walk.reduces(p.value) if sums_products(r))
    return sorted({name for r in found for body in r.body for name in walk.tensor_names(body)})


def _renamed(e: Expr, old: str, new: str) -> Expr:
    """Return `e` with the reads of a tensor outside of sums of products as reads of another."""
    match e:
        case _ if sums_products(e):
            return e
        case Read(name) if name == old:
            return replace(e, tensor=new, index=e.index)
        case _:
            return walk.map_children(lambda child: _renamed(child, old, new), e)
