"""Attention in one pass over the keys: what `fuse_attention` would join, rewritten so that neither scores nor weights are ever stored.

    before   s = kernel(q, k, mask)     p = softmax(s)     y = kernel(p, v)
    after    y = kernel(q, k, mask, v)             blocks of keys one after another; why it is the same says `tensorlang.tensor.online`

What is no softmax to the letter stays as it is. A mask that is a constant band, as that of causal attention, becomes a condition first
(`bands.py`): then blocks of keys that no query of a block sees are left out. Keys and values that several heads share are read where they
lie (`moved.py`).
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.passes.fusion.band_masks import with_conditions
from tensorlang.graph.passes.fusion.broadcast_views import without_moves
from tensorlang.graph.passes.fusion.fuse_attention import chained
from tensorlang.policy.gpu.attention import blocks
from tensorlang.tensor import online as algebra
from tensorlang.tensor.idioms import online_of
from tensorlang.tensor.lift import lift


def online_attention(graph: Graph, element_bytes: int = 4) -> Graph:
    """Return the graph with each product of a softmax of a product as one kernel that goes through the keys once. `element_bytes`: of what
    is going to be multiplied, which says how large blocks can be."""

    def chosen(sizes: algebra.Sizes) -> tuple[int, int] | None:
        return blocks(replace(sizes, element_bytes=min(sizes.element_bytes, element_bytes) if element_bytes < 4 else sizes.element_bytes))

    def rewritten(kernel: Kernel) -> Kernel | None:
        known = with_conditions(graph, without_moves(graph, kernel))
        program = algebra.online(known.program, chosen)
        return None if program is None or online_of(lift(program)) is None else replace(known, program=program)

    return chained(graph, rewritten)
