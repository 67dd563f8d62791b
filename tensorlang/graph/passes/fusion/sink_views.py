"""Move views behind pointwise kernels, so that these can be part of the contraction before the view.

    before   t = gemm(x, w)    v = view(t)         y = v + r + b             t of shape [128, 768], v, r and y of [1, 128, 768]
    after    t = gemm(x, w)    s = view(r)         u = t + s + b    y = view(u)

A kernel moves when one of the tensors that it reads in place is a view of what a reduction, or a kernel that moved, has computed, and the
others are read in place or along axes that both shapes have. Its program is the same expression over the other box; views cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.graph.edit import Additions, members, producers
from tensorlang.graph.nodes import Graph, Kernel, Node, View
from tensorlang.graph.programs import axes_of, expressions, here, is_grouped, is_pointwise, is_single, reads_in_place, reduces, with_sizes
from tensorlang.graph.sizes import is_one, same, same_shape, to_expr
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Definition, Dynamic, Expr, Holds, IndexValue, Piece, Program, Read, Slot


def sink_views(graph: Graph) -> Graph:
    """Return the graph with views moved behind the pointwise kernels that follow them."""
    made: dict[str, Node] = producers(graph)
    moved: set[str] = set()
    new = Additions(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        source = _base(node, made, moved) if isinstance(node, Kernel) and _is_uniform(node.program) else None
        places = None if source is None or not isinstance(node, Kernel) else _places(new, node, new[source].shape)
        if source is None or places is None or not isinstance(node, Kernel):
            nodes.append(node)
            continue
        shape = new[source].shape
        inputs = []
        for name, place in zip(node.inputs, places, strict=True):
            before = made.get(name)
            if same_shape(new[name].shape, place.shape):
                inputs.append(name)
                continue
            if isinstance(before, View) and same_shape(new[before.input].shape, place.shape):
                inputs.append(before.input)
                continue
            seen = new.add(replace(new[name], name=f"{name} seen by {node.name}", shape=place.shape))
            nodes.append(View(new.label(f"see {seen}"), name, seen))
            inputs.append(seen)
        result = new.add(replace(graph.values[node.outputs[0]], name=f"{node.outputs[0]} before its view", shape=shape))
        kernel = replace(node, program=_over(node.program, shape, places), inputs=tuple(inputs), outputs=(result,), members=members(node))
        view = View(new.label(f"view {node.outputs[0]}"), result, node.outputs[0])
        made |= {result: kernel, node.outputs[0]: view}
        moved.add(result)
        nodes += [kernel, view]
    return new.rebuilt(nodes)


def _base(node: Kernel, made: dict[str, Node], moved: set[str]) -> str | None:
    """Return the first value behind a view, among the inputs that are read in place, that a reduction or a moved kernel has computed."""
    for name, param in zip(node.inputs, node.program.params, strict=True):
        view = made.get(name)
        if not isinstance(view, View) or not reads_in_place(node.program, param.name):
            continue
        maker = made.get(view.input)
        if view.input in moved or (isinstance(maker, Kernel) and reduces(maker.program)):
            return view.input
    return None


def _is_uniform(program: Program) -> bool:
    """Tell whether every element of the result is the same expression of elements that are read, wherever it stands."""
    return is_single(program) and is_pointwise(program) and not any(isinstance(e, (IndexValue, Holds)) for e in expressions(program))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the kernel that moved reads a tensor, and the shape that it reads it in."""

    shape: tuple[int, ...]
    index: tuple[Affine, ...]


def _places(values: Additions, node: Kernel, shape: Sequence[int]) -> list[_Place] | None:
    """Return where each parameter is read over the box `shape`; None where one is read at places that say nothing of it, as those along
    a few axes of a dimension do."""
    definition = node.program.definitions[0]
    kept = {} if is_grouped(definition.tensors[0]) else _kept_axes(values[node.outputs[0]].shape, definition.axes, shape)
    found = []
    for name, param in zip(node.inputs, node.program.params, strict=True):
        if reads_in_place(node.program, param.name):
            found.append(_Place(tuple(shape), here(axes_of(len(shape)))))
            continue
        indices = {r.index for r in expressions(node.program) if isinstance(r, Read) and r.tensor == param.name}
        is_plain = len(indices) == 1 and not is_grouped(param)
        place = _along(next(iter(indices)), values[name].shape, kept, shape) if is_plain else None
        if place is None:
            return None
        found.append(place)
    return found


def _kept_axes(old: Sequence[int], axes: Sequence[str], new: Sequence[int]) -> dict[str, int | None]:
    """Return, of the axes of a box that another shape has too, which they are there, None of those of one element: what both begin with and
    what both end with."""
    kept: dict[str, int | None] = {axis: None for axis, extent in zip(axes, old, strict=True) if is_one(extent)}
    before = [(axis, extent) for axis, extent in zip(axes, old, strict=True) if not is_one(extent)]
    after = [(k, extent) for k, extent in enumerate(new) if not is_one(extent)]
    for end in (0, -1):
        while before and after and same(before[end][1], after[end][1]):
            kept[before.pop(end)[0]] = after.pop(end)[0]
    return kept


def _along(index: Sequence[Slot], of: Sequence[int], kept: dict[str, int | None], shape: Sequence[int]) -> _Place | None:
    """Return where a tensor of the shape `of` is read that is read along whole axes that are kept; axes of one element go."""
    names = axes_of(len(shape))
    extents: list[int] = []
    found: list[Affine] = []
    for slot, extent in zip(index, of, strict=True):
        if isinstance(slot, Dynamic):
            return None
        if is_one(extent):
            continue
        axis = kept.get(slot.name) if isinstance(slot, Name) else None
        if axis is None:
            return None
        extents.append(extent)
        found.append(Name(names[axis]))
    return _Place(tuple(extents), tuple(found))


def _over(program: Program, shape: Sequence[int], places: Sequence[_Place]) -> Program:
    """Return the same expression for every element of another box."""
    [definition] = program.definitions
    of = {param.name: place for param, place in zip(program.params, places, strict=True)}

    def read(r: Read) -> Expr:
        return replace(r, index=of[r.tensor].index)

    value = walk.substitute_reads(definition.pieces[0].value, read)
    result = replace(definition.tensors[0], shape=tuple(map(to_expr, shape)), grouping=())
    params = tuple(replace(p, shape=tuple(map(to_expr, of[p.name].shape)), grouping=()) for p in program.params)
    defined = Definition((result,), axes_of(len(shape)), (Piece(value),))
    return with_sizes(replace(program, params=params, definitions=(defined,)))
