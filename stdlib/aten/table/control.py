"""Operators that run graphs: branches, loops, scans, and graphs that are there once for several calls.

They are made by the rules of ONNX's If, Loop and Scan, whose graphs are functions here. What else a graph reads torch gives it as operands
behind those that change from turn to turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call, Rule
from tensorlang.graph.nodes import Value
from tensorlang.torch.program import Block


def chosen(n: Call, condition: Value | bool, then: Block, other: Block, operands: Sequence[Any] = ()) -> tuple[Value, ...]:
    if not isinstance(condition, Value):
        return _tensors(n, n.returned(then if condition else other, operands))
    graphs = {
        "then_branch": lambda: _tensors(n, n.returned(then, operands)),
        "else_branch": lambda: _tensors(n, n.returned(other, operands)),
    }
    return n.controlled("If", (n.cast(condition, DTYPES["bool"]),), len(then.outputs), graphs)


def repeated(n: Call, condition: Block, body: Block, carried: Sequence[Any], operands: Sequence[Any] = ()) -> tuple[Value, ...]:
    """Turns end when the condition does not hold of what the last of them has left."""
    initial = _tensors(n, carried)

    def holds(values: Sequence[Value]) -> Value:
        (truth,) = _tensors(n, n.returned(condition, (*values, *operands)))
        return n.view(n.cast(truth, DTYPES["bool"]), ())

    def turn(number: Value, before: Value, *values: Value) -> tuple[Value, ...]:
        after = _tensors(n, n.returned(body, (*values, *operands)))
        return holds(after), *after

    return n.controlled("Loop", (None, holds(initial), *initial), len(initial), {"body": turn})


def scan(n: Call, combine: Block, init: Sequence[Any], xs: Sequence[Value], operands: Sequence[Any] = ()) -> tuple[Value, ...]:
    """Rows of `xs`, one after the other."""

    def turn(*given: Value) -> tuple[Value, ...]:
        return _tensors(n, n.returned(combine, (*given, *operands)))

    given = (*_tensors(n, init), *xs)
    return n.controlled("Scan", given, len(combine.outputs), {"body": turn}, num_scan_inputs=len(xs))


def mapped(n: Call, f: Block, xs: Sequence[Value], operands: Sequence[Any] = ()) -> tuple[Value, ...]:
    return scan(n, f, (), xs, operands)


def called(n: Call, block: Block, name: str, *operands: Any) -> tuple[Any, ...]:
    """A graph that is there once for several calls."""
    return n.returned(block, operands)


def under_gradients(n: Call, enabled: bool, block: Block, *operands: Any) -> tuple[Any, ...]:
    return n.returned(block, operands)


def under_casts(n: Call, device: str, dtype: Any, enabled: bool, cached: bool | None, block: Block, *operands: Any) -> tuple[Any, ...]:
    """Its casts are operators of the graph already."""
    return n.returned(block, operands)


def _tensors(n: Call, values: Sequence[Any]) -> tuple[Value, ...]:
    for value in values:
        if not isinstance(value, Value):
            raise n.unsupported("an integer that branches or turns change")
    return tuple(values)


RULES: dict[str, Rule] = {
    "cond": chosen,
    "while_loop": repeated,
    "scan": scan,
    "map_impl": mapped,
    "invoke_subgraph": called,
    "wrap_with_set_grad_enabled": under_gradients,
    "wrap_with_autocast": under_casts,
}
