"""Read what is repeated where it lies: heads of keys that several heads of queries share.

    before   t[n, g, r, j, c] = k[n, g, 0, j, c]    v = view(t)    s[n, h, i, j] = sum(c) q[n, h, i, c] * v[n, h, j, c]     h = 4*g + r
    after                                                          s[n, g, r, i, j] = sum(c) q[n, g, r, i, c] * k[n, g, 0, j, c]

A product that reads a repetition at one of its own axes has that axis in two, of which the repeated tensor has one: the same memory, seen
with one dimension more. So nothing is copied for each repetition, and the other axis is one of rows: a register tile takes several. In a
program of several equations, attention, all that goes along with that axis is seen so: scores, probabilities and what these are made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from polyhedral import affine
from polyhedral.expr import TRUE, Name
from polyhedral.expr import Expr as Affine
from tensorlang.graph.edit import producers, rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node, View
from tensorlang.graph.programs import param_named, places_of, single_value
from tensorlang.graph.sizes import is_one, same, same_shape
from tensorlang.tensor import walk
from tensorlang.tensor.contraction import sums_products
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Definition, Program, Read, Slot, Tensor


def read_repeated(graph: Graph) -> Graph:
    """Return the graph with products that read repetitions reading what is repeated."""
    made = producers(graph)
    return rebuilt(graph, [_reading_sources(graph, made, n) if isinstance(n, Kernel) else n for n in graph.nodes])


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
    repeated = {name: found for name, value in kernel.bound.items() if (found := _repetition(graph, made, value)) is not None}
    while repeated:
        name, first = next(iter(repeated.items()))
        places = _places(kernel.program, name, first.dimension)
        alike = {n: r for n, r in repeated.items() if places.get(n) == r.dimension and r.extents == first.extents}
        if alike:
            inputs = tuple(alike[n].maker.inputs[0] if n in alike else value for n, value in kernel.bound.items())
            kernel = replace(kernel, program=_split(kernel.program, places, first, alike), inputs=inputs, operator="", attrs=())
        repeated = {n: r for n, r in repeated.items() if n != name and n not in alike}
    return kernel


def _places(program: Program, name: str, dimension: int) -> dict[str, int]:
    """Return which axis of each tensor goes along with `dimension` of the parameter `name`, which products read: that of all that is read
    at the same axis of a definition, and of what this makes. None does where one of them is read in another way."""
    readers = [d for d in program.definitions if name in walk.definition_reads(d)]
    if param_named(program, name).grouping or not all(map(_multiplies, readers)):
        return {}
    found, known = {name: dimension}, 0
    while known < len(found):
        known = len(found)
        for definition in program.definitions:
            made = {t.name for t in definition.tensors}
            if found.keys().isdisjoint(made | walk.definition_reads(definition)):
                continue
            axis = _axis(definition, found)
            places = places_of(definition.pieces[0].value, axis) if axis is not None else None
            if axis is None or places is None or axis in _named_beside_reads(definition):
                return {}
            places |= dict.fromkeys(made, definition.axes.index(axis))
            if any(found.setdefault(tensor, k) != k for tensor, k in places.items()):
                return {}
    return found


def _multiplies(definition: Definition) -> bool:
    return any(sums_products(reduce) for piece in definition.pieces for reduce in walk.reduces(piece.value))


def _axis(definition: Definition, places: Mapping[str, int]) -> str | None:
    """Return the one axis of a definition at which tensors are made and read at their places."""
    read = {r.index[places[r.tensor]] for p in definition.pieces for r in walk.reads(p.value) if r.tensor in places}
    slots = read | {Name(definition.axes[places[t.name]]) for t in definition.tensors if t.name in places}
    [slot] = slots if len(slots) == 1 and [p.guard for p in definition.pieces] == [TRUE] else (None,)
    return slot.name if isinstance(slot, Name) and slot.name in definition.axes else None


def _named_beside_reads(definition: Definition) -> frozenset[str]:
    return walk.index_names(walk.substitute_reads(definition.pieces[0].value, lambda r: replace(r, index=())))


def _split(program: Program, places: Mapping[str, int], first: _Repetition, repeated: Mapping[str, _Repetition]) -> Program:
    """Return a program with the axes of tensors that lie at `places` in two, as in the `first` repetition, which reads what is repeated."""
    fresh = walk.fresh_for(program)

    def shaped(tensor: Tensor) -> Tensor:
        k = places.get(tensor.name)
        if k is None or tensor.name in repeated:
            return tensor if k is None else repeated[tensor.name].source(tensor.name)
        grouping = [len(group) + (k in group) for group in tensor.groups]
        return replace(tensor, shape=(*tensor.shape[:k], *first.extents, *tensor.shape[k + 1 :]), grouping=tuple(grouping))

    def split(definition: Definition) -> Definition:
        if definition.tensors[0].name not in places:
            return definition
        at = places[definition.tensors[0].name]
        axis = definition.axes[at]
        outer, inner = fresh(f"{axis}_o"), fresh(f"{axis}_i")

        def read(r: Read) -> Read:
            if r.tensor in repeated:
                return repeated[r.tensor].read(r.tensor, r.index, outer, inner)
            k = places.get(r.tensor)
            return r if k is None else replace(r, index=(*r.index[:k], Name(outer), Name(inner), *r.index[k + 1 :]))

        piece = replace(definition.pieces[0], value=walk.substitute_reads(definition.pieces[0].value, read))
        axes = (*definition.axes[:at], outer, inner, *definition.axes[at + 1 :])
        return replace(definition, tensors=tuple(map(shaped, definition.tensors)), axes=axes, pieces=(piece,))

    sizes = tuple(dict.fromkeys((*program.sizes, *(n for r in repeated.values() for n in r.program.sizes))))
    context = affine.conj(program.context, *(r.program.context for r in repeated.values()))
    params = tuple(map(shaped, program.params))
    return redefined(replace(program, sizes=sizes, params=params, context=context), map(split, program.definitions))
