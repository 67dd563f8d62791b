"""Derivatives of what a rule makes: its nodes, backwards.

torch has an operator for the derivative of many others. Its rule is that of the other, read from its results to its arguments:

    avg_pool2d_backward(grad, x, …)       the mean of windows of x, and what each of its kernels adds to the derivative by x

Each kernel has a program, whose equations are turned round. Of what the rule makes, what the derivative reads stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from stdlib.aten.call import Call
from tensorlang.diagnostics import CompileError
from tensorlang.graph.edit import reads, writes
from tensorlang.graph.nodes import Kernel, Node, Value, View
from tensorlang.tensor.gradient import gradient
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import prove
from tensorlang.tensor.walk import definition_reads, fresh_for, tensor_table


def derivatives(
    n: Call,
    slope: Value | Sequence[Value | None],
    by: Sequence[Value],
    forward: Callable[..., Value | Sequence[Value]],
    asked: Sequence[bool] = (True, True, True),
) -> tuple[Value | None, ...]:
    """Return the derivatives of a number by those of the values `by` that are `asked` for, None for the others. `forward` makes of all
    these values another one for the graph, by which the derivative is `slope`, or several with one each, None for those that the number
    does not depend on. Raises Unsupported where something else than kernels makes them, or one that has no derivative."""
    by = [_another(n, value) if value in by[:k] else value for k, value in enumerate(by)]
    start = len(n.builder.nodes)
    made = forward(*by)
    results, given = (made,) if isinstance(made, Value) else made, (slope,) if isinstance(slope, Value) else slope
    nodes = n.builder.nodes[start:]
    slopes = _Slopes(n, {result.name: known for result, known in zip(results, given, strict=True) if known is not None})
    active = _depending(nodes, {value.name for value, needed in zip(by, asked, strict=False) if needed})
    for node in reversed(nodes):
        match node:
            case _ if not any(name in active and name in slopes.known for name in writes(node)):
                pass
            case View(input=source, output=view):
                slopes.add(source, n.view(slopes.known[view], n.builder.values[source].shape))
            case Kernel():
                slopes.through(node, active)
            case _:
                raise n.unsupported("derivatives of what loops or kernels of its own compute")
    n.builder.nodes[start : start + len(nodes)] = _read(nodes, n.builder.nodes[start + len(nodes) :])
    return tuple(slopes.of(value) if needed else None for value, needed in zip(by, asked, strict=False))


def _another(n: Call, x: Value) -> Value:
    """Return a value of the same elements: where one is given twice, there is a derivative for each time."""
    y = n.result(x.dtype, x.shape)
    n.builder.nodes.append(View(n.builder.label(n.node.label), x.name, y.name, (n.node.label,)))
    return y


def _read(nodes: Sequence[Node], later: Sequence[Node]) -> list[Node]:
    """Return those of some nodes that later ones read, or others of them that are read."""
    names, kept = {name for node in later for name in reads(node)}, list[Node]()
    for node in reversed(nodes):
        if not names.isdisjoint(writes(node)):
            names.update(reads(node))
            kept.append(node)
    return kept[::-1]


def _depending(nodes: Sequence[Node], by: set[str]) -> set[str]:
    """Return the values that depend on others, these among them."""
    found = set(by)
    for node in nodes:
        if not found.isdisjoint(reads(node)):
            found.update(writes(node))
    return found


class _Slopes:
    """What is known so far of the derivatives by values of the graph."""

    def __init__(self, n: Call, known: dict[str, Value]) -> None:
        self._call, self.known = n, known

    def of(self, value: Value) -> Value:
        return self.known.get(value.name) or self._call.filled(value.shape, value.dtype, 0)

    def add(self, name: str, slope: Value) -> None:
        before = self.known.get(name)
        self.known[name] = slope if before is None else self._call.op("add", before, slope)

    def through(self, kernel: Kernel, active: set[str]) -> None:
        """Add what the results of a kernel say of its inputs that are `active`."""
        values = self._call.builder.values
        by = tuple(k for k, name in enumerate(kernel.inputs) if name in active and values[name].dtype.is_float)
        results = [k for k, name in enumerate(kernel.outputs) if values[name].dtype.is_float]
        if not by or not results:
            return
        try:
            program, read = _reversed(kernel.program, by)
        except CompileError as refused:
            raise self._call.unsupported(refused.diagnostics[0].title) from None
        taken = [*(values[name] for name in kernel.inputs), *(self.of(values[kernel.outputs[k]]) for k in results)]
        found = self._call.apply(program, [taken[k] for k in read])
        for k, slope in zip(by, found, strict=True):
            self.add(kernel.inputs[k], slope)


@lru_cache(maxsize=1024)
def _reversed(program: Program, by: tuple[int, ...]) -> tuple[Program, tuple[int, ...]]:
    """Return the derivatives by some parameters of a program, in their order, and which it reads of the parameters and of the derivatives
    by results."""
    fresh, tensors = fresh_for(program), tensor_table(program)
    params = [program.params[k].name for k in by]
    names = {name: fresh(f"d_{name}") for name in (*params, *(r for r in program.results if tensors[r].dtype.is_float))}
    made = gradient(program, params, names, f"{program.name}_gradient")
    named = frozenset[str]().union(*map(definition_reads, made.definitions))
    read = tuple(k for k, param in enumerate(made.params) if param.name in named)
    made = replace(made, params=tuple(made.params[k] for k in read))
    prove(made)
    return made, read
