"""Attention in one pass over the keys: what `chain` would join, rewritten so that neither scores nor weights are ever stored.

    before   s = kernel(q, k, mask)     p = softmax(s)     y = kernel(p, v)
    after    y = kernel(q, k, mask, v)             blocks of keys one after another; why it is the same says `tensorlang.tensor.online`

What is no softmax to the letter stays as it is.
"""

from __future__ import annotations

from tensorlang.graph.nodes import Graph
from tensorlang.graph.passes.chain import chained
from tensorlang.schedule.attention_device import blocks
from tensorlang.tensor import online as algebra


def online(graph: Graph) -> Graph:
    """Return the graph with each product of a softmax of a product as one kernel that goes through the keys once."""
    return chained(graph, lambda program: algebra.online(program, blocks))
