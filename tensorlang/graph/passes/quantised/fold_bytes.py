"""Constant folding that leaves what is dequantised as the bytes that it is.

    before   v = slice(w)    x = dequantise(v)    y = dequantise(quantise(u))    w, u constant
    after    x = dequantise(v)    y = dequantise(q)    v, q constant

The passes over quantised values read constants as bytes with a scale and a zero point, and find them only where nothing is left to
compute between.
"""

from __future__ import annotations

from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.clean.fold import fold
from tensorlang.graph.quantised import dequantising


def fold_bytes(graph: Graph) -> Graph:
    """Return the graph with every node folded that depends on constants alone and dequantises none."""
    return fold(graph, lambda node: isinstance(node, Kernel) and dequantising(graph, node) is not None)
