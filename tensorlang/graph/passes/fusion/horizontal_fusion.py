"""Products of one input side by side: one contraction rather than several that read the same.

    before   q = x @ wq + bq      k = x @ wk + bk      v = x @ wv + bv                                  x is read three times
    after    m[g] = x @ w[g] + b[g]                    q = m[0]     k = m[1]     v = m[2]               w, b = wq, wk, wv; bq, bk, bv

    before   a = relu(conv(x, u))                      c = relu(conv(x, w))                             96 and 16 channels, one image
    after    m = relu(conv(x, uw))                     a = m[:, 0:96]        c = m[:, 96:112]

Taken together are kernels that are one contraction each, equal but for the extent of the axis that x does not have, and all of whose other
parameters are constants: those are put one after another now. The results lie one after another, too, either because nothing of more than
one element comes before that axis, or along an axis of their own when they are of one shape; so what reads them reads a part of the memory
(pass `concat_in_place`). What is concatenated next has its place already, and stays apart.

Whether a wider contraction pays is decided by `is_fusion_profitable(separate, fused)`, for samples of sizes that are open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Int, Name
from tensorlang.graph.edit import Additions, consumers, fresh, members, size_bytes, uses
from tensorlang.graph.nodes import Graph, Kernel, Node, Value
from tensorlang.graph.plan import ALIGNMENT
from tensorlang.graph.programs import at_samples, axes_of, is_product, places_of, program_key, single, tensor_of
from tensorlang.graph.sizes import same, shape_in
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Definition, Program, Read, Tensor

Array = np.ndarray[Any, Any]
ProfitableFusion: TypeAlias = Callable[[Sequence[Program], Program], bool]

SHARED = 1 << 14
"""Bytes of a constant that is repeated although others read it, too."""


def horizontal_fusion(graph: Graph, is_fusion_profitable: ProfitableFusion) -> Graph:
    """Return the graph with contractions of the same input as one, where that pays."""
    groups: dict[object, list[_Product]] = {}
    for found in _products(graph):
        groups.setdefault(found.key, []).append(found)
    state = _State(graph)
    for group in groups.values():
        made = _together(group)
        if made is not None and is_fusion_profitable([at_samples(graph, p.kernel.program) for p in group], at_samples(graph, made.program)):
            state.put(group, made)
    return state.new.rebuilt(state.all_nodes())


# ---------------------------------------------------------------- which kernels


@dataclass(frozen=True, slots=True)
class _Product:
    """A kernel that is a contraction of `source` and constants. `axis`: of its result, along which source does not vary; `places`: which
    axis of each constant parameter that is."""

    kernel: Kernel
    source: str
    axis: int
    places: Mapping[str, int]
    key: object

    @property
    def definition(self) -> Definition:
        return self.kernel.program.definitions[0]

    @property
    def extent(self) -> int:
        return affine.constant(self.definition.tensors[0].shape[self.axis]) or 0


def _products(graph: Graph) -> list[_Product]:
    """Return the kernels that may stand beside others."""
    counts, readers = uses(graph), consumers(graph)
    found: list[_Product] = []
    for node in graph.nodes:
        if not isinstance(node, Kernel) or node.forms or not is_product(node.program):
            continue
        varying = [v for v in node.inputs if v not in graph.constants]
        own = all(counts[v] == 1 or size_bytes(graph.values[v]) <= SHARED for v in node.inputs if v in graph.constants)
        placed = any(_concatenates(r) for v in node.outputs for r in readers[v]) or node.outputs[0] in graph.outputs
        if len(varying) == 1 and own and not placed and _aligned(graph.values[node.outputs[0]]):
            product = _product(node, node.inputs.index(varying[0]))
            found += [product] if product is not None else []
    return found


def _aligned(value: Value) -> bool:
    """Tell whether another value may begin where this one ends, whatever the sizes are."""
    return same(size_bytes(value) % ALIGNMENT, 0)


def _concatenates(node: Node) -> bool:
    return isinstance(node, Kernel) and any(len(d.pieces) > 1 for d in node.program.definitions)


def _product(node: Kernel, position: int) -> _Product | None:
    """Return the kernel as a product, where there is an axis that only constants and the result have."""
    program = node.program
    [definition] = program.definitions
    value, source = definition.pieces[0].value, program.params[position].name
    for k in reversed(range(len(definition.axes))):
        axis = definition.axes[k]
        elsewhere = walk.index_names(walk.substitute_reads(value, lambda r: replace(r, index=())))
        places = places_of(value, axis)
        if axis in elsewhere or places is None or source in places or not places or definition.tensors[0].shape[k] == Int(1):
            continue
        marked = _resized(program, k, places, Int(0))
        return _Product(node, node.inputs[position], k, places, (node.inputs[position], position, k, program_key(marked)))
    return None


def _resized(program: Program, axis: int, places: Mapping[str, int], extent: Affine) -> Program:
    """Return the program with another extent of an axis of its result, and of what is read along it."""

    def sized(tensor: Tensor, k: int | None) -> Tensor:
        return tensor if k is None else replace(tensor, shape=(*tensor.shape[:k], extent, *tensor.shape[k + 1 :]))

    [definition] = program.definitions
    changed = replace(definition, tensors=tuple(sized(t, axis) for t in definition.tensors))
    return replace(program, params=tuple(sized(p, places.get(p.name)) for p in program.params), definitions=(changed,))


# ---------------------------------------------------------------- one program for all


@dataclass(frozen=True, slots=True)
class _Together:
    """One program for several products: along their axis, or (`stacked`) along one of its own in front."""

    program: Program
    stacked: bool


def _together(group: Sequence[_Product]) -> _Together | None:
    first = group[0]
    if len(group) < 2:
        return None
    constants = {p.name for p, v in zip(first.kernel.program.params, first.kernel.inputs, strict=True) if v != first.source}
    if first.places.keys() == constants and all(n == Int(1) for n in first.definition.tensors[0].shape[: first.axis]):
        total = Int(sum(p.extent for p in group))
        return _Together(_resized(first.kernel.program, first.axis, first.places, total), stacked=False)
    alike = len({p.extent for p in group}) == 1
    return _Together(_stacked(first, len(group)), stacked=True) if alike else None


def _stacked(first: _Product, count: int) -> Program:
    """Return the program of `count` products of one shape, which an axis in front tells apart."""
    program, definition = first.kernel.program, first.definition
    axis = fresh(walk.program_names(program), "g")

    def stack(tensor: Tensor) -> Tensor:
        grouping = (1, *tensor.grouping) if tensor.grouping else ()
        return replace(tensor, shape=(Int(count), *tensor.shape), grouping=grouping)

    constants = {p.name for p, v in zip(program.params, first.kernel.inputs, strict=True) if v != first.source}
    value = walk.substitute_reads(
        definition.pieces[0].value, lambda r: replace(r, index=(Name(axis), *r.index)) if r.tensor in constants else r
    )
    made = replace(
        definition,
        tensors=tuple(map(stack, definition.tensors)),
        axes=(axis, *definition.axes),
        pieces=(replace(definition.pieces[0], value=value),),
    )
    return replace(program, params=tuple(stack(p) if p.name in constants else p for p in program.params), definitions=(made,))


# ---------------------------------------------------------------- in the graph


class _State:
    """What has been put together so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.new = Additions(graph)
        self.replaced: dict[str, list[Node]] = {}

    def all_nodes(self) -> list[Node]:
        return [new for node in self.graph.nodes for new in self.replaced.get(node.name, [node])]

    def put(self, group: Sequence[_Product], made: _Together) -> None:
        """Note the one kernel in the place of the first, and where the others' results are in its own."""
        first = group[0].kernel
        inputs = tuple(self._input(group, made, k) for k in range(len(first.inputs)))
        [tensor] = made.program.definitions[0].tensors
        both = " and ".join(p.kernel.outputs[0] for p in group)
        whole = self.new[self.new.add(replace(self.graph.values[first.outputs[0]], name=both, shape=shape_in(tensor, self.graph.symbols)))]
        names = tuple(name for p in group for name in members(p.kernel))
        kernel = Kernel(first.name, made.program, inputs, (whole.name,), members=names)
        nodes: list[Node] = [kernel]
        start = 0
        for number, product in enumerate(group):
            result = self.graph.values[product.kernel.outputs[0]]
            dim = product.definition.tensors[0].dimension_of(product.axis)
            program = _taken(whole, result, number) if made.stacked else _cut(whole, result, dim, start)
            nodes.append(Kernel(self.new.label(f"{product.kernel.name} of {first.name}"), program, (whole.name,), (result.name,)))
            start += result.shape[dim]
        self.replaced |= {p.kernel.name: [] for p in group}
        self.replaced[first.name] = nodes

    def _input(self, group: Sequence[_Product], made: _Together, position: int) -> str:
        """Return the value of a parameter: the source, or a constant put together."""
        first = group[0]
        name, param = first.kernel.inputs[position], first.kernel.program.params[position]
        if name == first.source:
            return name
        arrays = [self.graph.constants[p.kernel.inputs[position]] for p in group]
        place = first.places.get(param.name)
        if made.stacked:
            array = np.stack(arrays)
        else:
            assert place is not None, "only what is read along the axis is put one after another"
            array = np.concatenate(arrays, param.dimension_of(place))
        return self.new.add(replace(self.graph.values[name], name=f"{name} and more", shape=array.shape), array)


def _taken(whole: Value, result: Value, number: int) -> Program:
    """Return `y[…] = x[number, …]`."""
    axes = axes_of(len(result.shape))
    read = Read("x", (Int(number), *map(Name, axes)))
    return single("part", (tensor_of("x", whole),), tensor_of("y", result), axes, read)


def _cut(whole: Value, result: Value, dimension: int, start: int) -> Program:
    """Return `y[…, i, …] = x[…, i + start, …]`."""
    axes = axes_of(len(result.shape))
    index: list[Affine] = [Name(a) for a in axes]
    index[dimension] = affine.add(axes[dimension], start)
    return single("part", (tensor_of("x", whole),), tensor_of("y", result), axes, Read("x", tuple(index)))
