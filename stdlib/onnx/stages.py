"""What has to be computed of a model before its shapes are known, as a graph of its own.

values whose elements decide  ─►  DataDependent: small inputs that they are made of, or the part of the graph that computes them
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stdlib.onnx.graph_builder import Builder
from stdlib.onnx.items import is_small
from stdlib.onnx.model import Node
from stdlib.onnx.scope import Scope
from tensorlang.diagnostics import Diagnostic
from tensorlang.graph.data_dependent import DataDependent, HostCall
from tensorlang.graph.edit import reads, writes
from tensorlang.graph.nodes import Extern, Graph, Loop, Value
from tensorlang.graph.nodes import Node as GraphNode


def data_dependent(
    name: str,
    builder: Builder,
    inputs: Sequence[Value],
    unknown: Mapping[str, Diagnostic],
    calls: Sequence[HostCall],
    made: Sequence[tuple[Node, range]],
    outputs: Sequence[str],
    scope: Scope,
) -> DataDependent:
    """Return what is raised for values that are `unknown`, of which `calls` compute some. `made` says which nodes of the graph each node of
    the model has become; `outputs` and `scope` are those of the model."""
    taken = {value.name: value for value in inputs}
    makers = {v: k for k, node in enumerate(builder.nodes) for v in writes(node)}
    wanted: dict[str, None] = {}
    needed: set[int] = set()
    read = tuple(dict.fromkeys(v for call in calls for v in call.inputs))
    for value in read:
        needed |= _above(builder.nodes, makers, value)
    for value in unknown.keys() - {call.stem for call in calls}:
        above = _above(builder.nodes, makers, value)
        roots = [v for v in _read(builder.nodes, above, value) if v in taken]
        if (
            value not in builder.decided
            and all(is_small(taken[v]) for v in roots)
            and not any(isinstance(builder.nodes[k], Extern | Loop) for k in above)
        ):
            wanted |= dict.fromkeys(roots)
        else:
            wanted[value] = None
            needed |= above
    needed |= {makers[v] for v in builder.kept if all(makers.get(r) in needed for r in reads(builder.nodes[makers[v]]))}
    nodes = tuple(builder.nodes[k] for k in sorted(needed))
    elements = {v: builder.elements(v) for v in read}
    constants = {v: array for v, array in elements.items() if array is not None and array.dtype != object}
    held = tuple(call.with_constants(constants) for call in calls)
    if not nodes:
        return DataDependent(*unknown.values(), wanted=tuple(wanted), inputs=tuple(inputs), calls=held)
    carried = tuple(v for v in dict.fromkeys(_carried(builder, needed, made, outputs, scope)) if v not in wanted)
    computed = {v for node in nodes for v in writes(node)}
    results = tuple(dict.fromkeys((*(v for v in (*wanted, *read) if v in computed), *carried)))
    used = {v for node in nodes for v in (*reads(node), *writes(node))}
    stage = Graph(
        name,
        tuple(v for v in taken if v in used),
        results,
        {v: value for v, value in builder.values.items() if v in used},
        {v: array for v, array in builder.constants.items() if v in used},
        nodes,
        builder.symbols,
    )
    return DataDependent(*unknown.values(), wanted=tuple(wanted), inputs=tuple(inputs), stage=stage, carried=carried, calls=held)


def _above(nodes: Sequence[GraphNode], makers: Mapping[str, int], value: str) -> set[int]:
    """Return the numbers of the nodes that a value is computed by."""
    found: set[int] = set()
    pending = [value]
    while pending:
        k = makers.get(pending.pop())
        if k is not None and k not in found:
            found.add(k)
            pending += reads(nodes[k])
    return found


def _read(nodes: Sequence[GraphNode], above: set[int], value: str) -> Iterator[str]:
    yield value
    for k in sorted(above):
        yield from reads(nodes[k])


def _carried(builder: Builder, needed: set[int], made: Sequence[tuple[Node, range]], outputs: Sequence[str], scope: Scope) -> Iterator[str]:
    """Yield the values that the stage computes and that something else reads as well: those of the model, and what nodes keep."""
    computed = {v for k in needed for v in writes(builder.nodes[k])}
    yield from (name for name in builder.kept if name in computed)
    later = [v for node, numbers in made if not numbers or not needed.issuperset(numbers) for v in node.reads()]
    for name in (*later, *outputs):
        item = scope.items.get(name)
        if isinstance(item, Value) and item.name in computed:
            yield item.name
