"""Keep in bf16, or in f16, what contractions multiply: half the memory, and products by an instruction that adds several at once.

    before   t: f32 = relu(conv(x, w) + b)          u: f32 = conv(t, k)         v: f32 = t + u
    after    t: bf16 = bf16(relu(conv(x, w') + b))  u: f32 = conv(t, k')        v: f32 = f32(t) + u        w', k' bf16 constants

A value is kept in bf16 when a contraction multiplies it with something that can be kept in bf16, too, and when all that read it are
kernels. Sums, and everything else that is computed, stay f32; so do inputs and outputs of the graph, and views of them. A contraction of
those reads a copy in bf16. Attention that goes through the keys once multiplies its weights in bf16 as well. Pools and depthwise
convolutions between such values keep bf16 in memory, too. Constants with a number that the narrow type has not (of more than 65504 in f16)
stay f32, and so do their products.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from codegen.dtypes import DType, bf16, f32, largest
from tensorlang.graph.edit import Additions, producers
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Node, Part, Value, View
from tensorlang.graph.passes.precision.products import is_of_floats, products
from tensorlang.graph.programs import axes_of, here, single, tensor_of
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import Contraction, contraction
from tensorlang.tensor.idioms import Online, online_of
from tensorlang.tensor.nodes import Call, Cast, Const, Definition, Expr, Program, Read, Select, Tensor

Array = np.ndarray[Any, Any]


def narrow_storage(graph: Graph, dtype: DType = bf16) -> Graph:
    """Return the graph with operands of contractions in `dtype`: bf16 or f16."""
    state = _State(graph, dtype, _classes(graph), producers(graph))
    _choose(state)
    return _rewritten(state)


# ---------------------------------------------------------------- which values


@dataclass(slots=True)
class _State:
    """`classes`: the values that share memory with each value, through views and joins; `narrow`: those to keep in bf16."""

    graph: Graph
    dtype: DType
    classes: dict[str, frozenset[str]]
    producers: dict[str, Node]
    narrow: set[str] = field(default_factory=set)
    operands: dict[str, set[str]] = field(default_factory=dict)
    """Kernel → the tensors of its program that it multiplies in `dtype`."""


def _classes(graph: Graph) -> dict[str, frozenset[str]]:
    found = {name: frozenset((name,)) for name in graph.values}
    for node in graph.nodes:
        match node:
            case View(input=source, output=result) | Part(input=source, output=result):
                _unite(found, source, result)
            case Join(inputs=sources, output=result):
                for source in sources:
                    _unite(found, source, result)
            case Kernel() | Extern() | Loop():
                pass
    return found


def _unite(found: dict[str, frozenset[str]], a: str, b: str) -> None:
    both = found[a] | found[b]
    for name in both:
        found[name] = both


def _choose(state: _State) -> None:
    kernels = [node for node in state.graph.nodes if isinstance(node, Kernel)]
    for kernel in kernels:
        attention = online_of(kernel.program)
        if attention is not None and kernel.program.mode != "strict":
            _choose_attention(state, kernel, attention)
            continue
        for found in products(kernel.program):
            if not found.refusal and all(_can(state, kernel, tensor) for tensor in found.tensors):
                state.operands.setdefault(kernel.name, set()).update(found.tensors)
    for kernel in kernels:
        for tensor in state.operands.get(kernel.name, ()):
            value = _bound(kernel, tensor)
            if value is not None and _is_made(state, value):
                state.narrow |= state.classes[value]
    _between(state, kernels)


def _choose_attention(state: _State, kernel: Kernel, attention: Online) -> None:
    """Note what attention in one pass multiplies, its weights among it, which are a tensor of its own: all of it or nothing."""
    types = {t.name: t.dtype for t in walk.tensors(kernel.program)}
    weights = attention.weights.tensors[0].name
    summed = [contraction(r) for d in (attention.product, attention.sums) for p in d.pieces for r in walk.reduces(p.value)]
    pairs = [c.tensors for c in summed if isinstance(c, Contraction) and c.reduce.filter is None and is_of_floats(c, types)]
    found = {tensor for pair in pairs for tensor in pair}
    given = found - {weights}
    whole = len(pairs) == len(summed) and weights in found and len(found) == 4
    if whole and all(types[t] == f32 and _can(state, kernel, t) for t in given):
        state.operands[kernel.name] = found


def _between(state: _State, kernels: list[Kernel]) -> None:
    """Keep in bf16, too, what lies between such values: made where one is multiplied, read where one is made."""
    for kernel in reversed(kernels):
        [*made] = kernel.outputs
        if kernel.name in state.operands or not all(v in state.narrow for v in made):
            continue
        for value in kernel.inputs:
            source = state.producers.get(value)
            readers = [k for k in kernels if value in k.inputs]
            inside = isinstance(source, Kernel) and source.name in state.operands and state.classes[value] == {value}
            if inside and _is_made(state, value) and all(k.name not in state.operands and set(k.outputs) <= state.narrow for k in readers):
                state.narrow.add(value)


def _bound(kernel: Kernel, tensor: str) -> str | None:
    """Return the value that a parameter or a result of the kernel's program is, or None for a tensor of its own."""
    names = (*(p.name for p in kernel.program.params), *kernel.program.results)
    return dict(zip(names, (*kernel.inputs, *kernel.outputs), strict=True)).get(tensor)


def _can(state: _State, kernel: Kernel, tensor: str) -> bool:
    value = _bound(kernel, tensor)
    if value is None or state.graph.values[value].dtype != f32:
        return False
    if value in state.graph.constants:
        return _fits(state.graph.constants[value], state.dtype)
    return _is_made(state, value) or (value in kernel.inputs and _is_given(state, value))


def _is_given(state: _State, value: str) -> bool:
    """Tell whether the value shares memory with an input or an output of the graph, which stay f32: it is multiplied as a copy."""
    return bool(state.classes[value] & {*state.graph.inputs, *state.graph.outputs})


def _fits(array: Array, dtype: DType) -> bool:
    """Tell whether every finite number of an array is one in `dtype`."""
    if dtype == bf16 or not array.size:  # which has the range of f32, up to half a rounding
        return True
    return max(abs(float(np.nanmin(array))), abs(float(np.nanmax(array)))) <= largest(dtype)


def _is_alone(program: Program, tensor: str) -> bool:
    definition = walk.definers(program)[tensor]
    return len(definition.tensors) == 1 and definition.tensors[0].dtype == f32 and tensor not in walk.definition_reads(definition)


def _is_made(state: _State, value: str) -> bool:
    """Tell whether the value, and all that share its memory, are made and read by kernels that may be changed."""
    together = state.classes[value]
    graph = state.graph
    if together & {*graph.inputs, *graph.outputs, *graph.constants} or any(graph.values[v].dtype != f32 for v in together):
        return False
    for node in graph.nodes:
        if isinstance(node, Extern | Loop) and together & {*node.inputs, *node.outputs}:
            return False
        if isinstance(node, Kernel) and together & {*node.inputs, *node.outputs}:
            if node.program.mode == "strict":
                return False
            results = [r for r, v in zip(node.program.results, node.outputs, strict=True) if v in together]
            if not all(_is_alone(node.program, r) for r in results):
                return False
    return True


# ---------------------------------------------------------------- rewriting


def _rewritten(state: _State) -> Graph:
    graph = state.graph
    dtype = state.dtype
    new = Additions(graph, {name: replace(graph.values[name], dtype=dtype) for name in state.narrow})
    made: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if not isinstance(node, Kernel):
            nodes.append(node)
            continue
        inputs: list[str] = []
        narrow = {r for r, v in zip(node.program.results, node.outputs, strict=True) if v in state.narrow}
        for param, name in zip(node.program.params, node.inputs, strict=True):
            source = name
            if name in state.narrow:
                narrow.add(param.name)
            elif param.name in state.operands.get(node.name, ()):
                narrow.add(param.name)
                if name not in made:
                    array = graph.constants.get(name)
                    copy = replace(graph.values[name], name=f"{name} in {dtype}", dtype=dtype)
                    made[name] = new.add(copy, None if array is None else array.astype(dtype.numpy))
                    if array is None:
                        nodes.append(Kernel(f"round {name}", _rounding(graph.values[name], dtype), (name,), (made[name],)))
                source = made[name]
            inputs.append(source)
        narrow |= {t for t in state.operands.get(node.name, ()) if _bound(node, t) is None}
        program = with_narrow(node.program, frozenset(narrow), dtype) if narrow else node.program
        nodes.append(replace(node, program=program, inputs=tuple(inputs)))
    return new.rebuilt(nodes)


def _rounding(value: Value, dtype: DType) -> Program:
    axes = axes_of(len(value.shape))
    source = tensor_of("x", value)
    return single("round", (source,), replace(source, name="y", dtype=dtype), axes, _rounded(Read("x", here(axes)), dtype))


def with_narrow(program: Program, names: frozenset[str], dtype: DType = bf16) -> Program:
    """Return the program with the tensors `names` in `dtype`: widened where they are read, rounded where they are defined."""

    def tensor(t: Tensor) -> Tensor:
        return replace(t, dtype=dtype) if t.name in names else t

    def widened(e: Expr) -> Expr:
        match walk.map_children(widened, e):
            case Read(name) as read if name in names:
                return Cast(f32, read)
            case Select(cond, Cast(_, Read(name) as read), Const(0.0)) if name in names:
                return Cast(f32, Select(cond, read, Const(0.0, dtype)))  # so that a copy can hold the padding
            case other:
                return other

    def definition(d: Definition) -> Definition:
        pieces = tuple(replace(p, value=widened(p.value)) for p in d.pieces)
        if d.tensors[0].name in names:
            pieces = tuple(replace(p, value=_rounded(p.value, dtype)) for p in pieces)
        return replace(d, tensors=tuple(tensor(t) for t in d.tensors), pieces=pieces)

    return replace(program, params=tuple(tensor(p) for p in program.params), definitions=tuple(definition(d) for d in program.definitions))


def _rounded(e: Expr, dtype: DType) -> Expr:
    """Return `e` as the nearest number of `dtype`; an element that was only widened is taken as it is."""
    match e:
        case Cast(wide, Read() as read) if wide == f32:
            return Cast(dtype, read)
        case _ if dtype == bf16:
            return Cast(bf16, Call("round_bf16", (e,)))
        case _:
            return Cast(dtype, e)
