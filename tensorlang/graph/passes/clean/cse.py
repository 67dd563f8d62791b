"""Common subexpression elimination: compute a value once.

    before   a = exp(x)    b = exp(x)    c = a + b
    after    a = exp(x)                  c = a + a

Two nodes are one when they run the same program (its name aside) on the same values, two constants when they hold the same bits: 0.0 and
-0.0 differ, a NaN equals itself. Programs have no effects, so every pair that is found is merged.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any, assert_never

import numpy as np

from tensorlang.graph.edit import rebuilt, with_reads, writes
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Node, Part, View
from tensorlang.graph.programs import program_key

Array = np.ndarray[Any, Any]
_SMALL = 1 << 10


def cse(graph: Graph) -> Graph:
    """Return the graph with equal constants and equal nodes merged; the first of each stays."""
    replaced = _equal_constants(graph)
    seen: dict[object, Node] = {}
    keys: dict[int, str] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        node = with_reads(node, replaced)
        first = seen.setdefault(_key(graph, node, keys), node)
        if first is node:
            kept.append(node)
        else:
            replaced |= dict(zip(writes(node), writes(first), strict=True))
    return rebuilt(graph, kept, replaced=replaced)


def digest(array: Array) -> str:
    """Return a hash of dtype, shape and bits."""
    state = sha256(f"{array.dtype.name}{array.shape}".encode())
    state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def _equal_constants(graph: Graph) -> dict[str, str]:
    sizes: dict[tuple[object, ...], list[str]] = {}
    for name, array in graph.constants.items():
        sizes.setdefault((array.dtype.str, array.shape, graph.values[name].layout, _sample(array)), []).append(name)
    replaced: dict[str, str] = {}
    for names in sizes.values():
        seen: dict[str, str] = {}
        for name in names if len(names) > 1 else ():
            first = seen.setdefault(digest(graph.constants[name]), name)
            if first != name and name not in graph.outputs:
                replaced[name] = first
    return replaced


def _sample(array: Array) -> bytes:
    """Return the bytes of a few elements: large constants that differ there need not be hashed."""
    return array[tuple(slice(0, 2) for _ in array.shape)].tobytes() if array.size > _SMALL else b""


def _key(graph: Graph, node: Node, keys: dict[int, str]) -> object:
    match node:
        case Kernel(program=program):
            text = keys.setdefault(id(program), "") or program_key(program)
            keys[id(program)] = text
            return ("kernel", text, node.inputs, tuple(graph.values[name].layout for name in node.outputs))
        case Extern() | Loop():
            return (type(node).__name__, node.name)  # nobody says that it computes the same twice
        case View():
            return ("view", node.input, replace(graph.values[node.output], name=""))
        case Join():
            return ("join", node.inputs, replace(graph.values[node.output], name=""))
        case Part():
            return ("part", node.input, node.start, replace(graph.values[node.output], name=""))
        case _:
            assert_never(node)
