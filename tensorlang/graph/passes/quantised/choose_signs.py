"""Values quantised to the bytes that processors multiply: the first operand of a contraction unsigned, the second signed.

    before   x: i8 = quantise(t, scale, zero)            y = sum(c) dequantise(x) * dequantise(w)
    after    x: u8 = quantise(t, scale, zero + 128)      y = sum(c) dequantise(x) * dequantise(w)      zero + 128 in both

The numbers meant stay the same. Left alone are results of the graph, and values whose readers differ in what they want or do more than
dequantise.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.dtypes import DType, i8, u8
from tensorlang.graph.bytes import State, byte_contraction
from tensorlang.graph.edit import rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node, Value
from tensorlang.graph.quantised import (
    dequantise_program,
    dequantising,
    quantise_program,
    quantising,
)


def choose_signs(graph: Graph) -> Graph:
    """Return the graph with values quantised to the bytes that their readers multiply, where these agree."""
    state = State.of(graph)
    wanted: dict[str, set[DType]] = {}
    for node in graph.nodes:
        found = byte_contraction(state, node) if isinstance(node, Kernel) else None
        if found is not None:
            wanted.setdefault(found.a.bytes.source, set()).add(u8)
            wanted.setdefault(found.b.bytes.source, set()).add(i8)
    changed: dict[str, Node] = {}
    values: list[Value] = []
    for name, dtypes in wanted.items():
        [dtype, *others] = dtypes
        if not others and graph.values[name].dtype != dtype and (turned := _turned(state, name, dtype)):
            changed |= turned
            values.append(replace(graph.values[name], dtype=dtype))
    return rebuilt(graph, [changed.get(node.name, node) for node in graph.nodes], values=values)


def _turned(state: State, name: str, dtype: DType) -> dict[str, Node] | None:
    """Return the kernels that make and read the value with its bytes in `dtype`, if all of them quantise and dequantise."""
    maker, readers, graph = state.made.get(name), state.readers[name], state.graph
    if not isinstance(maker, Kernel) or name in graph.outputs:
        return None
    found = quantising(graph, maker)
    if found is None:
        return None
    step = 128 if dtype == u8 else -128
    shape = graph.values[name].shape
    made = {maker.name: replace(maker, program=quantise_program(shape, found.scale, found.zero + step, dtype), inputs=(found.source,))}
    for reader in readers:
        back = dequantising(graph, reader) if isinstance(reader, Kernel) else None
        program = None if back is None else dequantise_program(dtype, shape, replace(back, zero=back.zero + step))
        if program is None or not isinstance(reader, Kernel):
            return None
        made[reader.name] = replace(reader, program=program, inputs=(name,))
    return dict(made)
