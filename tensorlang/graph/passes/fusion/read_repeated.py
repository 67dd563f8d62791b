"""Read what is repeated where it lies: heads of keys that several heads of queries share.

    before   t[n, g, r, j, c] = k[n, g, 0, j, c]    v = view(t)    s[n, h, i, j] = sum(c) q[n, h, i, c] * v[n, h, j, c]     h = 4*g + r
    after                                                          s[n, g, r, i, j] = sum(c) q[n, g, r, i, c] * k[n, g, 0, j, c]

A product that reads a repetition at one of its own axes has that axis in two, of which the repeated tensor has one: the same memory, seen
with one dimension more. So nothing is copied for each repetition, and the other axis is one of rows: a register tile takes several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.graph.edit import producers, rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node, View
from tensorlang.graph.programs import is_product, places_of, single_value
from tensorlang.graph.sizes import is_one, same, same_shape
from tensorlang.tensor import walk
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Program, Read, Slot, Tensor


def read_repeated(graph: Graph) -> Graph:
    """Return the graph with products that read repetitions reading what is repeated."""
    made = producers(graph)
    return rebuilt(graph, [_reading_sources(graph, made, n) if isinstance(n, Kernel) and is_product(n.program) else n for n in graph.nodes])


@dataclass(frozen=True, slots=True)
class _Repetition:
    """A value whose dimension `dimension` is two axes in one, of which `maker` reads its source at the one alone."""

    maker: Kernel
    dimension: int

    @property
    def program(self) -> Program:
        return self.maker.program

    def source(self, name: str) -> Tensor:
        return replace(self.program.params[0], name=name)

    @property
    def extents(self) -> tuple[Affine, Affine]:
        outer, inner = self.program.definitions[0].tensors[0].shape[self.dimension : self.dimension + 2]
        return outer, inner

    def read(self, name: str, index: tuple[Slot, ...], outer: str, inner: str) -> Read:
        """Return what lies at an index of the value, of which the dimension is at two names."""
        k = self.dimension
        at = (*index[:k], Name(outer), Name(inner), *index[k + 1 :])
        read = single_value(self.program)
        assert isinstance(read, Read)
        return Read(name, tuple(affine.ZERO if slot == affine.ZERO else there for slot, there in zip(read.index, at, strict=True)))


def _repetition(graph: Graph, made: Mapping[str, Node], value: str) -> _Repetition | None:
    """Return how a value repeats another along a part of one of its dimensions; None where it does not."""
    view = made.get(value)
    maker = made.get(view.input) if isinstance(view, View) else None
    if not isinstance(view, View) or not isinstance(maker, Kernel) or len(maker.program.params) != 1:
        return None
    [param], read = maker.program.params, single_value(maker.program)
    if not isinstance(read, Read) or param.dtype != graph.values[value].dtype or param.declared_range is not None:
        return None
    [definition], whole, seen = maker.program.definitions, graph.values[view.input].shape, graph.values[value].shape
    plain = len(read.index) == len(definition.axes) == len(whole) and all(
        slot in (affine.ZERO, Name(axis)) for slot, axis in zip(read.index, definition.axes, strict=True)
    )
    repeated = [k for k, slot in enumerate(read.index) if slot == affine.ZERO and not is_one(whole[k])]
    if not plain or len(repeated) != 1 or len(seen) != len(whole) - 1:
        return None
    for k in (repeated[0] - 1, repeated[0]):
        around = k in range(len(seen)) and same_shape(seen[:k], whole[:k]) and same_shape(seen[k + 1 :], whole[k + 2 :])
        if around and same(seen[k], whole[k] * whole[k + 1]):
            return _Repetition(maker, k)
    return None


def _reading_sources(graph: Graph, made: Mapping[str, Node], kernel: Kernel) -> Kernel:
    for position, value in enumerate(kernel.inputs):
        found = _repetition(graph, made, value)
        program = None if found is None else _split(kernel.program, position, found)
        if found is not None and program is not None:
            inputs = (*kernel.inputs[:position], found.maker.inputs[0], *kernel.inputs[position + 1 :])
            kernel = replace(kernel, program=program, inputs=inputs, operator="", attrs=())
    return kernel


def _split(program: Program, position: int, found: _Repetition) -> Program | None:
    """Return a product with the axis at which it reads a repetition in two, reading what is repeated; None where it reads it otherwise."""
    [definition], param = program.definitions, program.params[position]
    value = definition.pieces[0].value
    slots = {r.index[found.dimension] for r in walk.reads(value) if r.tensor == param.name}
    [slot] = slots if len(slots) == 1 else (None,)
    if not isinstance(slot, Name) or slot.name not in definition.axes or param.grouping:
        return None
    axis, places = slot.name, places_of(value, slot.name)
    elsewhere = walk.index_names(walk.substitute_reads(value, lambda r: replace(r, index=())))
    if places is None or axis in elsewhere:
        return None
    fresh = walk.fresh_for(program)
    outer, inner = fresh(f"{axis}_o"), fresh(f"{axis}_i")

    def shaped(tensor: Tensor, k: int) -> Tensor:
        grouping = [len(group) + (k in group) for group in tensor.groups]
        return replace(tensor, shape=(*tensor.shape[:k], *found.extents, *tensor.shape[k + 1 :]), grouping=tuple(grouping))

    def read(r: Read) -> Read:
        if r.tensor == param.name:
            return found.read(param.name, r.index, outer, inner)
        k = places.get(r.tensor)
        return r if k is None else replace(r, index=(*r.index[:k], Name(outer), Name(inner), *r.index[k + 1 :]))

    at = definition.axes.index(axis)
    piece = replace(definition.pieces[0], value=walk.substitute_reads(value, read))
    axes = (*definition.axes[:at], outer, inner, *definition.axes[at + 1 :])
    made = replace(definition, tensors=tuple(shaped(t, at) for t in definition.tensors), axes=axes, pieces=(piece,))
    params = [p if p.name not in places else shaped(p, places[p.name]) for p in program.params]
    params[position] = found.source(param.name)
    sizes = tuple(dict.fromkeys((*program.sizes, *found.program.sizes)))
    context = affine.conj(program.context, found.program.context)
    return redefined(replace(program, sizes=sizes, params=tuple(params), context=context), [made])
