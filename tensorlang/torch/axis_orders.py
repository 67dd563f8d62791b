"""Tensors whose axes lie in memory in another order than they are numbered: matrices by columns, images whose channels are last.

Arrays of compiled models are row-major. A graph takes and returns such a tensor with its axes in the order of memory, and permutes
inside, where that is an order of loops. So what is given is read where it lies, and results lie as torch says.

    x: f32[2, 8, 16, 16], strides (2048, 1, 128, 8)     order (0, 2, 3, 1): taken as f32[2, 16, 16, 8]
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

Order: TypeAlias = tuple[int, ...]
"""Axes, from the one whose elements are farthest from each other in memory to the one where they are nearest."""


@dataclass(frozen=True, slots=True)
class AxisOrders:
    """In which order a graph takes and returns the axes of those inputs and outputs that are not row-major, by their places."""

    inputs: Mapping[int, Order]
    outputs: Mapping[int, Order]

    def taken(self, k: int, tensor: torch.Tensor) -> torch.Tensor:
        """Return a view of an input as the graph takes it."""
        order = self.inputs.get(k)
        return tensor if order is None else tensor.permute(order)


def order_of(value: Any) -> Order | None:
    """Return in which order the axes of a tensor lie in memory, with gaps between elements or without; None where that is the order of
    their numbers, or where elements share memory."""
    if not isinstance(value, torch.Tensor) or is_row_major(value) or 0 in value.shape:
        return None
    steps = [step if isinstance(step, int) else step.node.hint for step in value.stride()]
    if not all(steps):
        return None
    order = tuple(sorted(range(value.dim()), key=lambda axis: -steps[axis]))
    return order if order != tuple(range(value.dim())) else None


def is_row_major(value: torch.Tensor) -> bool:
    """Tell whether a tensor lies in memory row by row, without gaps, whatever its sizes are."""
    step: Any = 1
    for axis in reversed(range(value.dim())):
        extent: Any = value.shape[axis]
        if not statically_known_true(extent == 1) and not statically_known_true(value.stride(axis) == step):
            return False
        step = step * extent
    return True


def output_orders(graph: Any, returned: Container[int]) -> dict[int, Order]:
    """Return the orders of those outputs of a graph that are `returned`; complex numbers have their parts along one more axis."""
    (output,) = graph.graph.find_nodes(op="output")
    values = {k: a.meta.get("val") for k, a in enumerate(output.args[0]) if isinstance(a, torch.fx.Node) and k in returned}
    orders = {k: order for k, value in values.items() if (order := order_of(value)) is not None}
    return {k: (*order, len(order)) if values[k].is_complex() else order for k, order in orders.items()}


def permute_ends(graph: Any, outputs: Mapping[int, Order]) -> AxisOrders:
    """Let a graph, which is changed, take its inputs in the order of their memory, and return outputs in these orders."""
    inputs = {}
    for k, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        order = order_of(node.meta.get("val"))
        if order is not None:
            inputs[k] = order
            with graph.graph.inserting_after(node):
                moved = _permuted(graph.graph, node, inverse(order))
            node.replace_all_uses_with(moved, delete_user_cb=lambda user, moved=moved: user is not moved)
            moved.meta, node.meta = dict(node.meta), {**node.meta, "val": node.meta["val"].permute(order)}
    (output,) = graph.graph.find_nodes(op="output")
    results = list(output.args[0])
    for k, order in outputs.items():
        with graph.graph.inserting_before(output):
            moved = _permuted(graph.graph, results[k], order)
        moved.meta = {**results[k].meta, "val": results[k].meta["val"].permute(order)}
        results[k] = moved
    output.args = (tuple(results),)
    return AxisOrders(inputs, outputs)


def _permuted(graph: Any, node: Any, order: Order) -> Any:
    return graph.call_function(torch.ops.aten.permute.default, (node, list(order)))


def inverse(order: Order) -> Order:
    """Return the order that undoes another."""
    return tuple(order.index(axis) for axis in range(len(order)))
