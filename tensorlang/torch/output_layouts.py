"""How outputs of a graph lie in memory that are views: of what a call is given, or of what the graph computes.

Of views of inputs torch returns such of the tensors themselves: it asks a result of the graph for extents, strides and where it begins, and
for nothing else. Results of compiled models are row-major, so those outputs are made with the memory layout that torch says, and no element
of them is computed.

    x[:, x.shape[1] - 2 :]     extents [rows, 2], strides [columns, 1], beginning at columns - 2

What derivatives read of the inputs, as they are or views of them, is such further outputs of a graph: these are the tensors themselves.

Of other outputs, views share the memory of what they are views of, as in torch: who writes to one of them changes the others.

    y = x + 1; return y, y[0]  y is computed, and the second output is made of it
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch._functorch._aot_autograd.schemas import OutputType
from torch.fx.experimental.symbolic_shapes import statically_known_true

from tensorlang.torch.axis_orders import is_row_major, order_of

Number: TypeAlias = Any
"""An int or a `torch.SymInt`."""
Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""Extents, strides and where it begins."""


@dataclass(frozen=True, slots=True)
class OutputLayout:
    """`value` has it in symbols; `symbols` says of each which argument tells it, and what of that: an extent, a stride, where it begins, or
    the argument itself."""

    value: torch.Tensor
    symbols: Mapping[Any, tuple[int, str, int]]
    _known: Layout | None = field(init=False)
    """The layout, where it is the same in every call."""

    def __post_init__(self) -> None:
        size, stride, start = layout = tuple(self.value.shape), tuple(self.value.stride()), self.value.storage_offset()
        object.__setattr__(self, "_known", layout if all(isinstance(n, int) for n in (*size, *stride, start)) else None)

    def is_told(self) -> bool:
        """Tell whether the arguments of a call tell all of its symbols."""
        numbers = (*self.value.shape, *self.value.stride(), self.value.storage_offset())
        return all(n.node.expr.free_symbols <= self.symbols.keys() for n in numbers if not isinstance(n, int))

    def made(self, args: Sequence[Any]) -> torch.Tensor:
        """Return a tensor in this layout, of any elements."""
        size, stride, start = self._numbers(args)
        room = start + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if 0 not in size else start
        with torch.inference_mode():  # torch asks other tensors how they were made, too
            return torch.empty(room, dtype=self.value.dtype).as_strided(size, stride, start)

    def of(self, tensor: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        """Return a view of a tensor in this layout."""
        return tensor.as_strided(*self._numbers(args))

    def of_input(self, tensor: torch.Tensor, start: Number, args: Sequence[Any]) -> torch.Tensor:
        """Return a view of an argument in this layout, whose beginning is `start` in symbols."""
        size, stride, first = self._numbers(args)
        return tensor.as_strided(size, stride, tensor.storage_offset() + first - self._number(start, args))

    def _numbers(self, args: Sequence[Any]) -> Layout:
        if self._known is not None:
            return self._known
        size, stride = (tuple(self._number(n, args) for n in of) for of in (self.value.shape, self.value.stride()))
        return size, stride, self._number(self.value.storage_offset(), args)

    def _number(self, n: Number, args: Sequence[Any]) -> int:
        if isinstance(n, int):
            return n
        expression = n.node.expr
        return int(expression.xreplace({s: _told(args, *self.symbols[s]) for s in expression.free_symbols}))


@dataclass(frozen=True, slots=True)
class InputView:
    """An output that is an input, the one at `place`, or with a layout a view of it; `start` is where the input begins, in symbols."""

    place: int
    start: Number
    layout: OutputLayout | None

    def made(self, args: Sequence[Any]) -> torch.Tensor:
        tensor: torch.Tensor = args[self.place]
        return tensor if self.layout is None else self.layout.of_input(tensor, self.start, args)


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


def input_views(graph: Any, places: Container[int]) -> dict[int, InputView]:
    """Let a graph, which is changed, return nothing for the outputs, but those at `places`, that are inputs which stay as they are, or
    views of them. Return what these are, by their places."""
    context = torch._guards.TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    (output,) = graph.graph.find_nodes(op="output")
    given = graph.graph.find_nodes(op="placeholder")
    changed = {given[k] for k in known.mutated_inp_runtime_indices} if known is not None else set(given)
    symbols, found = dict(_symbols(graph)), dict[int, InputView]()
    for k, node in enumerate(output.args[0]):
        if k in places or not isinstance(node, torch.fx.Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        base = _source(node)
        if base.op == "placeholder" and base not in changed and base.meta["val"].dtype == node.meta["val"].dtype:
            layout, start = OutputLayout(node.meta["val"], symbols), base.meta["val"].storage_offset()
            if base is node or layout.is_told():
                found[k] = InputView(given.index(base), start, None if base is node else layout)
    leave_out(graph, found)
    return found


def output_views(graph: Any) -> dict[int, tuple[int, OutputLayout]]:
    """Let a graph, which is changed, return nothing for outputs that are views of what it computes, and behind the others what these are
    views of. Return the output that each of them is a view of, and its layout, by their places. One view alone, of a part of what nobody
    else is returned, is computed by itself."""
    (output,) = graph.graph.find_nodes(op="output")
    results, symbols = list(output.args[0]), dict(_symbols(graph))
    bases = {k: base for k, a in enumerate(results) if isinstance(a, torch.fx.Node) and (base := _base(a)) is not None}
    views = Counter(bases.values())
    found = {}
    for k, base in bases.items():
        value, whole = results[k].meta["val"], base.meta["val"]
        if base in output.args[0] or views[base] > 1 or statically_known_true(value.numel() >= whole.numel()):
            layout = OutputLayout(value, symbols)
            if layout.is_told():
                if base not in results:
                    results.append(base)
                found[k] = results.index(base), layout
    output.args = (tuple(None if k in found else a for k, a in enumerate(results)),)
    graph.graph.eliminate_dead_code()
    return found


def _base(node: Any) -> Any:
    """Return what the graph computes that a value is a view of, and that lies in memory without gaps; None where there is no such thing."""
    value, base = node.meta.get("val"), _source(node)
    whole = base.meta.get("val")
    if base is node or base.op != "call_function" or not isinstance(whole, torch.Tensor) or whole.dtype != value.dtype:
        return None
    order = order_of(whole)
    lies_whole = is_row_major(whole if order is None else whole.permute(order)) and statically_known_true(whole.storage_offset() == 0)
    return base if lies_whole else None


def _source(node: Any) -> Any:
    """Return what a value is a view of that is none itself."""
    while (before := _viewed(node)) is not None:
        node = before
    return node


def _viewed(node: Any) -> Any:
    """Return what a value is a view of, with the same elements; None where it is none."""
    call = node.args[0] if node.target is operator.getitem else node
    op = call.target if isinstance(call, torch.fx.Node) else None
    if (
        not isinstance(op, torch._ops.OpOverload)
        or op in _OF_OTHER_ELEMENTS
        or not call.args
        or not isinstance(call.args[0], torch.fx.Node)
    ):
        return None
    shared = [r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns]
    return call.args[0] if shared and all(shared) else None


_OF_OTHER_ELEMENTS = (torch.ops.aten._conj.default, torch.ops.aten._neg_view.default)


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
