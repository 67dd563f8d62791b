"""Move views behind pointwise kernels, so that these can be part of the contraction before the view.

    before   t = gemm(x, w)    v = view(t)         y = v + r                 t of shape [128, 768], v, r and y of [1, 128, 768]
    after    t = gemm(x, w)    s = view(r)         u = t + s    y = view(u)

A kernel moves when it reads all its tensors in place, and one of them is a view of what a reduction, or a kernel that moved, has computed.
Its program is the same expression over the other box; views cost nothing.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.graph.edit import Additions, members, producers
from tensorlang.graph.nodes import Graph, Kernel, Node, View
from tensorlang.graph.programs import axes_of, here, is_pointwise, is_single, reads_in_place, reduces, with_sizes
from tensorlang.graph.sizes import same_shape, to_expr
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Definition, Expr, Holds, IndexValue, Piece, Program, Read


def sink_views(graph: Graph) -> Graph:
    """Return the graph with views moved behind the pointwise kernels that follow them."""
    made: dict[str, Node] = producers(graph)
    moved: set[str] = set()
    new = Additions(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        source = _base(node, made, moved) if isinstance(node, Kernel) else None
        if source is None or not isinstance(node, Kernel) or not _movable(node):
            nodes.append(node)
            continue
        shape = new[source].shape
        inputs = []
        for name in node.inputs:
            before = made.get(name)
            if isinstance(before, View) and same_shape(new[before.input].shape, shape):
                inputs.append(before.input)
                continue
            seen = new.add(replace(new[name], name=f"{name} seen by {node.name}", shape=shape))
            nodes.append(View(new.label(f"see {seen}"), name, seen))
            inputs.append(seen)
        result = new.add(replace(graph.values[node.outputs[0]], name=f"{node.outputs[0]} before its view", shape=shape))
        kernel = replace(node, program=_over(node.program, shape), inputs=tuple(inputs), outputs=(result,), members=members(node))
        view = View(new.label(f"view {node.outputs[0]}"), result, node.outputs[0])
        made |= {result: kernel, node.outputs[0]: view}
        moved.add(result)
        nodes += [kernel, view]
    return new.rebuilt(nodes)


def _base(node: Kernel, made: dict[str, Node], moved: set[str]) -> str | None:
    """Return the first value behind a view among the inputs that a reduction or a moved kernel has computed."""
    for name in node.inputs:
        view = made.get(name)
        if not isinstance(view, View):
            continue
        maker = made.get(view.input)
        if view.input in moved or (isinstance(maker, Kernel) and reduces(maker.program)):
            return view.input
    return None


def _movable(node: Kernel) -> bool:
    program = node.program
    if not is_single(program) or not is_pointwise(program) or not all(reads_in_place(program, p.name) for p in program.params):
        return False
    inside = list(walk.nodes(program.definitions[0].pieces[0].value))
    return not any(isinstance(e, (IndexValue, Holds)) for e in inside)


def _over(program: Program, shape: tuple[int, ...]) -> Program:
    """Return the same expression for every element of another box."""
    axes = axes_of(len(shape))
    [definition] = program.definitions

    def read(r: Read) -> Expr:
        return replace(r, index=here(axes))

    extents = tuple(map(to_expr, shape))
    value = walk.substitute_reads(definition.pieces[0].value, read)
    result = replace(definition.tensors[0], shape=extents, grouping=())
    params = tuple(replace(p, shape=extents, grouping=()) for p in program.params)
    return with_sizes(replace(program, params=params, definitions=(Definition((result,), axes, (Piece(value),)),)))
