"""A call of an operator of ATen as its rule sees it: a function of the graph that grows, and of the arguments as ATen has them.

    def addmm(n: Call, bias, x, y, *, beta=1, alpha=1) -> Value:
        return n.op("gemm", x, y, bias)

Tensors are values of the graph, sizes are integers or open sizes. Whoever wants a rule of ONNX has it by `n.onnx`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from onnx import NodeProto

from codegen.dtypes import DTYPES, DType
from stdlib.onnx.graph_builder import Builder
from stdlib.onnx.items import Item
from stdlib.onnx.model import Node as OnnxNode
from stdlib.onnx.site import Site
from stdlib.onnx.table import TABLE
from stdlib.onnx.table.elementwise import cast
from tensorlang.graph.nodes import Value
from tensorlang.graph.ratios import Ratio
from tensorlang.graph.sizes import Size, same
from tensorlang.torch.program import Block, Node

Number: TypeAlias = "int | float | bool | Size"
Operand: TypeAlias = "Value | Number | Ratio"
Rule: TypeAlias = "Callable[..., Any]"
RunsBlock: TypeAlias = "Callable[[Block, Sequence[Any]], tuple[Any, ...]]"
Graph: TypeAlias = "Callable[..., Sequence[Item]]"


class Call(Site):
    """A node of a program of ATen, and the means to say what becomes of it."""

    def __init__(self, builder: Builder, call: Node, used: Collection[int] = (), run: RunsBlock | None = None) -> None:
        """`used`: which of several results the program reads; `run` returns what a graph of the program returns for arguments."""
        node = _onnx_node(call.name, call.op, (call.name,), {}, 1)
        super().__init__(builder, node, (), None)
        self.call, self._used, self._run_graph = call, used, run

    def uses(self, k: int) -> bool:
        """Tell whether the program reads result `k` of several."""
        return k in self._used

    @property
    def dtype(self) -> DType:
        """The element type that torch gives the result."""
        return self.dtypes[0]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The element types that torch gives the results."""
        return tuple(result[0] for result in self.call.results if result is not None)

    def cast(self, x: Value, dtype: DType) -> Value:
        """Return a value in another element type. What is no number becomes a truth, any other than 0 is true."""
        if dtype == DTYPES["bool"] and x.dtype != dtype:
            return self.op("logical_not", self.op("equal", x, self.filled((), x.dtype, 0)))
        return cast(self, x, dtype)

    def value(self, x: Operand, dtype: DType | None = None) -> Value:
        """Return an operand as a value, in an element type or, of a number, in that which torch gives it."""
        if isinstance(x, Value):
            return x if dtype is None else self.cast(x, dtype)
        if isinstance(x, Size):
            held = np.empty((), object)
            held[()] = x
            return self.value(self.of_sizes(held, DTYPES["i64"]), dtype)
        if isinstance(x, Ratio):
            return self.cast(self.op("div", *self.operands(x.numerator, x.divisor, dtype=DTYPES["f64"])), dtype or DTYPES["f64"])
        return self.filled((), dtype or _of_number(x), x)

    def operands(self, *xs: Operand, dtype: DType | None = None) -> tuple[Value, ...]:
        """Return operands in one element type: the one given, or what torch promotes theirs to."""
        dtype = dtype or promoted(xs)
        return tuple(self.value(x, dtype) for x in xs)

    def onnx(self, op: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Any:
        """Return what the rule of an operator of ONNX makes of inputs and attributes: the result, or all where there are several."""
        results = self._by_rule(op, outputs, attributes, lambda node: Site(self.builder, node, inputs, None))
        return results[0] if outputs == 1 else results

    def returned(self, block: Block, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return what a graph of the program returns for arguments."""
        assert self._run_graph is not None
        return self._run_graph(block, args)

    def controlled(
        self, op: str, inputs: Sequence[Value | None], outputs: int, graphs: Mapping[str, Graph], **attributes: Any
    ) -> tuple[Value, ...]:
        """Return what the rule of an operator of ONNX makes that runs graphs; these are functions of what they are given."""
        return self._by_rule(op, outputs, attributes, lambda node: _Controlled(self.builder, node, inputs, graphs))

    def _by_rule(self, op: str, outputs: int, attributes: dict[str, Any], site: Callable[[OnnxNode], Site]) -> tuple[Any, ...]:
        """Return what the newest rule of an operator of ONNX makes at the site of a node."""
        entry = max((e for e in TABLE[op] if not e.domain), key=lambda e: e.last)
        names = tuple(f"{self.call.name} {k}" for k in range(outputs))
        found = entry.rule(site(_onnx_node(self.node.label, op, names, attributes, entry.last)))
        results = found if isinstance(found, tuple) else (found,)
        return results[:outputs]

    def ints(self, *given: Number) -> Value:
        """Return integers as a vector."""
        return self.constant(np.asarray(given, np.int64))

    def axis(self, axis: int, rank: int, *_: object, end: bool = False) -> int:  # type: ignore[override]
        """Return an axis counted from the front; a scalar has one, too."""
        return self.axis_of(axis, max(rank, 1), end=end)

    def axes(self, given: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
        """Return axes counted from the front, all where none are given."""
        named = (given,) if isinstance(given, int) else tuple(given or ())
        return tuple(self.axis(a, rank) for a in named) if named else tuple(range(rank))

    def reshaped(self, x: Value, shape: Sequence[int]) -> Value:
        """Return the elements under another shape, of which one extent may be -1."""
        rest = prod(n for n in shape if not same(n, -1))
        return self.view(x, tuple(prod(x.shape) // rest if same(n, -1) else n for n in shape))


class _Controlled(Site):
    """A node of ONNX whose graphs are functions."""

    def __init__(self, builder: Builder, node: OnnxNode, inputs: Sequence[Item], graphs: Mapping[str, Graph]) -> None:
        super().__init__(builder, node, inputs, None)
        self._graphs = graphs

    def run(self, attribute: str, inputs: Sequence[Item], which: str = "") -> tuple[Item, ...]:
        return tuple(self._graphs[attribute](*inputs))


def _onnx_node(label: str, op: str, outputs: tuple[str, ...], attributes: dict[str, Any], since: int) -> OnnxNode:
    return OnnxNode(label, "", op, since, since, (), outputs, attributes, NodeProto())


def _of_number(x: Number | Ratio) -> DType:
    return DTYPES["bool" if isinstance(x, bool) else "f32" if isinstance(x, (float, Ratio)) else "i64"]


_CATEGORY = {"bool": 0, "uint": 1, "int": 1, "float": 2}


def promoted(xs: Sequence[Operand]) -> DType:
    """Return the element type that torch computes in: that of tensors with dimensions; of scalars, and then of numbers, only where they are
    of a higher kind, floats above integers above truths."""
    groups: list[list[DType]] = [
        [x.dtype for x in xs if isinstance(x, Value) and x.shape],
        [x.dtype for x in xs if isinstance(x, Value) and not x.shape],
        [_of_number(x) for x in xs if not isinstance(x, Value)],
    ]
    found: DType | None = None
    for group in groups:
        for dtype in group[:1]:
            for other in group[1:]:
                dtype = wider(dtype, other)
            if found is None or _CATEGORY[dtype.kind] > _CATEGORY[found.kind]:
                found = dtype
    assert found is not None
    return found


def wider(a: DType, b: DType) -> DType:
    """Return the element type that holds what two types hold, as torch has it."""
    if a == b or b.kind == "bool":
        return a
    if a.kind == "bool" or _CATEGORY[a.kind] < _CATEGORY[b.kind]:
        return b
    if _CATEGORY[a.kind] > _CATEGORY[b.kind]:
        return a
    if a.is_float:
        return DTYPES["f32"] if a.bits == b.bits else max(a, b, key=lambda d: d.bits)
    if a.kind == b.kind:
        return max(a, b, key=lambda d: d.bits)
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    return signed if signed.bits > unsigned.bits else DTYPES[f"i{min(64, 2 * unsigned.bits)}"]
