"""Attention whose scores and mask are functions of the caller's (`flex_attention`), as torch defines it: a product, these functions for
every query and key, a softmax and a product."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention, math_attention

from tensorlang.torch.axis_orders import inverse, order_of


def write_attention_out(module: Any) -> bool:
    """Let a graph, which is changed, compute this attention by other operators when torch captures it. Tell whether it has any."""
    parts = (part for part in module.modules() if isinstance(part, torch.fx.GraphModule))
    found = [node for part in parts for node in part.graph.nodes if node.target is flex_attention]
    for node in found:
        node.target = _written_out
    return bool(found)


def _written_out(query: Any, *args: Any) -> tuple[Any, ...]:
    """The result lies in memory as queries do, which is what the nodes behind it were captured for."""
    y, *others = math_attention(query, *args)
    order = order_of(query)
    return (y if order is None else y.permute(order).contiguous().permute(inverse(order))), *others
