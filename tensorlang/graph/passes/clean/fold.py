"""Constant folding: what depends on constants alone is computed now.

    before   a = transpose(w)    b = view(w)    w constant
    after    a, b constants

The interpreter computes it, so folding cannot change a bit. A result that is much larger than what it is made from stays in the graph
(`ConstantOfShape` of a million elements costs less to compute than to store), and so does one whose evaluation would take too long.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, assert_never

import numpy as np

from polyhedral import affine
from polyhedral.expr import Int
from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Node, Part, View
from tensorlang.graph.programs import permutation
from tensorlang.tensor import walk
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Program

Array = np.ndarray[Any, Any]

LARGEST_GROWTH_BYTES = 1 << 16
LARGEST_GROWTH = 3
"""Times as large as what it is made from: filters of 3 x 3 x 3 in whole classes of a stride of two are 64 / 27 of what they were."""
LARGEST_WORK = 1 << 24
"""Points to evaluate: about ten seconds of the interpreter are never worth it, a tenth of one is."""


def fold(graph: Graph, left: Callable[[Node], bool] = lambda node: False) -> Graph:
    """Return the graph with every node whose inputs are all constants replaced by constants, where that pays, but those to be `left`."""
    constants = dict(graph.constants)
    kept: list[Node] = []
    for node in graph.nodes:
        made = None if left(node) else _evaluated(graph, node, constants)
        if made is None:
            kept.append(node)
        else:
            constants |= made
    return rebuilt(graph, kept, constants=constants)


def _evaluated(graph: Graph, node: Node, constants: dict[str, Array]) -> dict[str, Array] | None:
    match node:
        case View():
            if node.input not in constants:
                return None
            return {node.output: constants[node.input].reshape(graph.values[node.output].shape)}
        case Kernel():
            if not all(name in constants for name in node.inputs) or not _pays(graph, node):
                return None
            return _run(node, [constants[name] for name in node.inputs])
        case Join() | Part():
            return None  # what they are made of is never constant
        case Extern() | Loop():
            return None  # it runs where it was made for
        case _:
            assert_never(node)


def _run(node: Kernel, arrays: list[Array]) -> dict[str, Array]:
    perm = permutation(node.program)
    if perm is not None:
        return {node.outputs[0]: arrays[0].transpose(perm)}  # moved when it is laid out
    named = dict(zip((p.name for p in node.program.params), arrays, strict=True))
    results = interpret(node.program, {}, named)
    return dict(zip(node.outputs, (results[name] for name in node.program.results), strict=True))


def _pays(graph: Graph, node: Kernel) -> bool:
    if node.program.sizes:
        return False
    if permutation(node.program) is not None:
        return True
    stored = sum(_bytes(graph, name) for name in node.outputs)
    read = sum(_bytes(graph, name) for name in node.inputs)
    return stored <= LARGEST_GROWTH * read + LARGEST_GROWTH_BYTES and work(node.program) <= LARGEST_WORK


def work(program: Program) -> int:
    """Return about how many points the interpreter visits: elements, times the ranges of the reductions in them."""
    total = 0
    for definition in program.definitions:
        box = prod(_extent(n) for n in definition.tensors[0].shape)
        found = [e for piece in definition.pieces for e in walk.reduces(piece.value)]
        inner = max((prod(_extent(affine.sub(b.hi, b.lo)) for b in e.binders) for e in found), default=1)
        total += box * inner
    return total


def _extent(e: object) -> int:
    return max(1, e.value) if isinstance(e, Int) else 64


def _bytes(graph: Graph, name: str) -> int:
    value = graph.values[name]
    return prod(value.shape) * value.dtype.size_bytes
