"""Widen once what contractions of narrow floats multiply, where a processor computes in f32 and would widen each element in every tile.

    before   y: f16 = f16(sum(k) x[i, k] * w[k, j])           x, w: f16, a conversion for each of their uses
    after    t: f32 = x                                       y: f16 = f16(sum(k) t[i, k] * w'[k, j])       w' the constant in f32

Every number of f16 or bf16 is one of f32, and what is computed from it is computed in f32 either way, so every bit of the results stays.
A value that kernels alone read, and one kernel makes, is rounded to its type as before and kept as f32, and so is what a kernel makes for
itself, as attention its weights; of any other there is a copy. Which
operands gain by it is said by `is_widening_profitable(program, tensor)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from codegen.dtypes import DType, bf16, f16, f32
from tensorlang.graph.edit import Additions, consumers, producers
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.programs import at_samples, axes_of, here, single, tensor_of
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import contractions
from tensorlang.tensor.nodes import Cast, Definition, Program, Read

ProfitableWidening: TypeAlias = Callable[[Program, str], bool]
"""Of a program at samples of its open sizes, and a parameter that it multiplies."""


def widen_operands(graph: Graph, is_widening_profitable: ProfitableWidening) -> Graph:
    """Return the graph with those operands of contractions in f32 for which that is profitable."""
    nodes = tuple(_with_wide_locals(graph, n, is_widening_profitable) for n in graph.nodes)
    graph = graph if nodes == graph.nodes else replace(graph, nodes=nodes)
    wanted: dict[str, set[str]] = {}
    for node in graph.nodes:
        if isinstance(node, Kernel):
            bound = node.bound
            wanted[node.name] = {bound[t] for t in _wanted(graph, node, is_widening_profitable) if t in bound}
    if not any(wanted.values()):
        return graph
    kept = _kept_wide(graph, {name for found in wanted.values() for name in found})
    state = _State(graph, Additions(graph, {name: replace(graph.values[name], dtype=f32) for name in kept}), kept)
    for node in graph.nodes:
        state.nodes.append(_rewritten(state, node, wanted[node.name]) if isinstance(node, Kernel) else node)
    return state.new.rebuilt(state.nodes)


@dataclass(slots=True)
class _State:
    """`kept`: the types that values had which are f32 themselves from now on; `copies`: of other values, the one in f32."""

    graph: Graph
    new: Additions
    kept: Mapping[str, DType]
    copies: dict[str, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)


def _wanted(graph: Graph, node: Kernel, is_widening_profitable: ProfitableWidening) -> list[str]:
    """Return the narrow tensors that the kernel's program had better multiply in f32, in order."""
    narrow = _multiplied(node.program)
    program = at_samples(graph, node.program) if narrow else node.program
    return [tensor for tensor in narrow if is_widening_profitable(program, tensor)]


def _with_wide_locals(graph: Graph, node: Node, is_widening_profitable: ProfitableWidening) -> Node:
    """Return a kernel with those of its local tensors in f32 for which that is profitable, rounded as before."""
    if not isinstance(node, Kernel):
        return node
    program = node.program
    inside = [t for t in _wanted(graph, node, is_widening_profitable) if t not in node.bound and t not in program.results]
    types = {t.name: t.dtype for t in walk.tensors(program)}
    made = {t: types[t] for t in inside if _is_alone(program, t)}
    return replace(node, program=_with_wide(program, set(), made)) if made else node


def _is_alone(program: Program, tensor: str) -> bool:
    """Tell whether a tensor is made by itself and without itself."""
    definition = walk.definers(program)[tensor]
    return len(definition.tensors) == 1 and tensor not in walk.definition_reads(definition)


def _multiplied(program: Program) -> dict[str, None]:
    """Return the narrow tensors that a program multiplies as they are, in order."""
    types = {t.name: t.dtype for t in walk.tensors(program)}
    found = [c for _, c in contractions(program) if c.dtype == f32 and not any(f.rounding or f.is_indexed_by_data for f in c.factors)]
    return dict.fromkeys(tensor for c in found for tensor in c.tensors if types[tensor] in (f16, bf16))


def _kept_wide(graph: Graph, wanted: set[str]) -> Mapping[str, DType]:
    """Return the types of those wanted values that one kernel makes and only kernels read."""
    made, read_by = producers(graph), consumers(graph)
    inside = [name for name in sorted(wanted - {*graph.inputs, *graph.outputs, *graph.constants}) if _is_made_alone(made.get(name), name)]
    return {name: graph.values[name].dtype for name in inside if all(isinstance(reader, Kernel) for reader in read_by[name])}


def _is_made_alone(maker: Node | None, value: str) -> bool:
    return isinstance(maker, Kernel) and _is_alone(maker.program, maker.program.results[maker.outputs.index(value)])


def _rewritten(state: _State, node: Kernel, wanted: set[str]) -> Kernel:
    """Return the kernel reading, and making, in f32 what it shall; copies that it needs are added before it."""
    inputs = tuple(_copy(state, name) if name in wanted - state.kept.keys() else name for name in node.inputs)
    wide = {p.name for p, name in zip(node.program.params, node.inputs, strict=True) if name in wanted or name in state.kept}
    made = {r: state.kept[name] for r, name in zip(node.program.results, node.outputs, strict=True) if name in state.kept}
    if not wide and not made:
        return node
    return replace(node, program=_with_wide(node.program, wide, made), inputs=inputs)


def _copy(state: _State, name: str) -> str:
    if name not in state.copies:
        value, array = state.graph.values[name], state.graph.constants.get(name)
        wide = replace(value, name=f"{name} in {f32}", dtype=f32)
        state.copies[name] = copy = state.new.add(wide, None if array is None else array.astype(f32.numpy))
        if array is None:
            axes = axes_of(len(value.shape))
            program = single("widen", (tensor_of("x", value),), tensor_of("y", wide), axes, Read("x", here(axes)))
            state.nodes.append(Kernel(state.new.label(f"widen {name}"), program, (name,), (copy,)))
    return state.copies[name]


def _with_wide(program: Program, params: set[str], made: Mapping[str, DType]) -> Program:
    """Return the program with parameters in f32, and with what it makes in f32 that is rounded to the types it had."""

    def definition(d: Definition) -> Definition:
        [tensor, *others] = d.tensors
        if others or tensor.name not in made:
            return d
        pieces = tuple(replace(p, value=Cast(made[tensor.name], p.value)) for p in d.pieces)
        return replace(d, tensors=(replace(tensor, dtype=f32),), pieces=pieces)

    wide = tuple(replace(p, dtype=f32) if p.name in params else p for p in program.params)
    return replace(program, params=wide, definitions=tuple(map(definition, program.definitions)))
