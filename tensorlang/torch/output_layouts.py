"""How outputs of a graph lie in memory that are views of what a call is given.

torch returns views of the tensors themselves: it asks a result of the graph for extents, strides and where it begins, and for nothing else.
Results of compiled models are row-major, so those outputs are made with the memory layout that torch says, and no element of
them is computed.

    x[:, x.shape[1] - 2 :]     extents [rows, 2], strides [columns, 1], beginning at columns - 2
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch._functorch._aot_autograd.schemas import OutputType

Number: TypeAlias = Any
"""An int or a `torch.SymInt`."""


@dataclass(frozen=True, slots=True)
class OutputLayout:
    """`value` has it in symbols; `symbols` says of each which argument tells it, and what of that: an extent, a stride, where it begins, or
    the argument itself."""

    value: torch.Tensor
    symbols: Mapping[Any, tuple[int, str, int]]

    def made(self, args: Sequence[Any]) -> torch.Tensor:
        """Return a tensor in this layout, of any elements."""

        def number(n: Number) -> int:
            if isinstance(n, int):
                return n
            expression = n.node.expr
            return int(expression.xreplace({s: _told(args, *self.symbols[s]) for s in expression.free_symbols}))

        size, stride = tuple(map(number, self.value.shape)), tuple(map(number, self.value.stride()))
        start = number(self.value.storage_offset())
        room = start + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if 0 not in size else start
        with torch.inference_mode():  # torch asks other tensors how they were made, too
            return torch.empty(room, dtype=self.value.dtype).as_strided(size, stride, start)


def output_layouts(graph: Any) -> dict[int, OutputLayout]:
    """Return the layouts of the outputs that are views of inputs, by their places."""
    context = torch._guards.TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    if known is None:
        return {}
    (output,) = graph.graph.find_nodes(op="output")
    returned = output.args[0][known.num_mutated_inp_runtime_indices :]
    symbols = dict(_symbols(graph))
    return {
        k: OutputLayout(node.meta["val"], symbols)
        for k, (node, info) in enumerate(zip(returned, known.output_info, strict=False), known.num_mutated_inp_runtime_indices)
        if info.output_type == OutputType.alias_of_input
    }


def leave_out(graph: Any, places: Container[int]) -> None:
    """Let a graph, which is changed, return nothing at these places, and compute nothing for them alone; a graph that returns no other
    tensor stays as it is."""
    (output,) = graph.graph.find_nodes(op="output")
    results = output.args[0]
    if any(k not in places and isinstance(a, torch.fx.Node) and isinstance(a.meta.get("val"), torch.Tensor) for k, a in enumerate(results)):
        output.args = (tuple(None if k in places else a for k, a in enumerate(results)),)
        graph.graph.eliminate_dead_code()


def _symbols(graph: Any) -> Iterator[tuple[Any, tuple[int, str, int]]]:
    """Yield the symbols of a graph, and what of which argument each of them is."""
    for k, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        value = node.meta.get("val")
        told: list[tuple[Number, str, int]] = [(value, "", 0)]
        if isinstance(value, torch.Tensor):
            told = [(value.storage_offset(), "storage_offset", 0)]
            told += [(n, "size", axis) for axis, n in enumerate(value.shape)]
            told += [(n, "stride", axis) for axis, n in enumerate(value.stride())]
        for n, what, axis in told:
            if isinstance(n, torch.SymInt) and n.node.expr.is_symbol:
                yield n.node.expr, (k, what, axis)


def _told(args: Sequence[Any], k: int, what: str, axis: int) -> int:
    match what:
        case "size":
            return int(args[k].size(axis))
        case "stride":
            return int(args[k].stride(axis))
        case "storage_offset":
            return int(args[k].storage_offset())
        case _:
            return int(args[k])
