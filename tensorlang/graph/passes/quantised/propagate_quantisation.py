"""Move bytes rather than floats.

    dequantise, then move            →  move, then dequantise          transposes and views
    move or pool, then quantise      →  quantise, then move or pool    the maximum of quantised values is the quantised maximum

Dequantising and quantising with one scale are done element by element, so they can change places with what only moves elements; both are
monotonous, so they can with a maximum. No bit changes, except that a NaN is no longer the maximum of its window.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.dtypes import DType
from tensorlang.graph.edit import Additions, consumers, members, producers, rebuilt, writes
from tensorlang.graph.nodes import Graph, Kernel, Node, Value, View
from tensorlang.graph.programs import permutation, single_value, transpose_program
from tensorlang.graph.quantised import Quantising, dequantise_program, dequantising, is_byte, quantise_program, quantising
from tensorlang.tensor.nodes import Binary, Const, Program, Read, Reduce
from tensorlang.tensor.nodes import Name as Bound

ROUNDS = 8


def propagate_quantisation(graph: Graph) -> Graph:
    """Return the graph with quantised values moved as bytes."""
    for _ in range(ROUNDS):
        hoisted = _hoisted(graph)
        if hoisted is graph:
            break
        graph = hoisted
    return _sunk(graph)


# ---------------------------------------------------------------- dequantise later


def _sunk(graph: Graph) -> Graph:
    new = Additions(graph)
    made = producers(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        source = _moves(node)
        maker = made.get(source) if source is not None else None
        found = dequantising(graph, maker) if isinstance(maker, Kernel) else None
        [output, *_] = writes(node)
        shape = graph.values[output].shape
        dtype = None if found is None else new[found.source].dtype
        program = dequantise_program(dtype, shape, found) if found is not None and dtype is not None else None
        if found is None or dtype is None or program is None:
            nodes.append(node)
            continue
        moved = new.add(Value(f"{output} in bytes", dtype, shape))
        again = Kernel(new.label(f"dequantise {output}"), program, (moved,), (output,), "dequantise", members=members(node))
        nodes += [_over(node, found.source, moved, dtype, new), again]
        # A movement of the result finds the bytes again.
        graph = replace(graph, values=graph.values | new.values)
        made |= {moved: nodes[-2], output: again}
    return rebuilt(graph, nodes, values=new.values.values())


def _moves(node: Node) -> str | None:
    """Return the value whose elements the node moves and nothing else."""
    match node:
        case View(input=source):
            return source
        case Kernel(program=program, inputs=(source,)) if permutation(program) is not None:
            return source
        case _:
            return None


def _over(node: Node, source: str, output: str, dtype: DType, new: Additions) -> Node:
    """Return the movement of `source`, of `dtype`, into `output`."""
    label = new.label(f"{node.name} in bytes")
    if isinstance(node, View):
        return View(label, source, output, members(node))
    perm = permutation(node.program) if isinstance(node, Kernel) else None
    assert perm is not None, "nothing else moves elements"
    shape = new[source].shape
    return Kernel(label, transpose_program(dtype, shape, perm), (source,), (output,), "transpose", members=members(node))


# ---------------------------------------------------------------- quantise earlier


def _hoisted(graph: Graph) -> Graph:
    """Return the graph with every kernel that quantises one step earlier where there is one to go, itself when there is none."""
    made, readers = producers(graph), consumers(graph)
    changed: dict[str, list[Node]] = {}
    new = Additions(graph)
    for node in graph.nodes:
        found = quantising(graph, node) if isinstance(node, Kernel) else None
        before = made.get(found.source) if found is not None else None
        if found is None or before is None or before.name in changed or not isinstance(node, Kernel):
            continue
        if found.source in graph.outputs or len(readers[found.source]) != 1:
            continue
        source, moved = _before(graph, before, found)
        if source is None:
            continue
        shape = graph.values[source].shape
        early = new.add(Value(f"{source} quantised", found.dtype, shape))
        program = quantise_program(shape, found.scale, found.zero, found.dtype)
        first = replace(node, program=program, inputs=(source,), outputs=(early,))
        last: Node
        if isinstance(before, Kernel) and moved is not None:
            last = replace(before, program=moved, inputs=(early,), outputs=node.outputs)
        else:
            assert isinstance(before, View)
            last = replace(before, input=early, output=node.outputs[0])
        changed |= {before.name: [first, last], node.name: []}
    if not changed:
        return graph
    return rebuilt(graph, [n for node in graph.nodes for n in changed.get(node.name, [node])], values=new.values.values())


def _before(graph: Graph, node: Node, found: Quantising) -> tuple[str | None, Program | None]:
    """Return what the node moves or takes maxima of, and the program that does so with bytes."""
    source = _moves(node)
    if isinstance(node, View) or not isinstance(node, Kernel):
        return source, None
    perm = permutation(node.program)
    if perm is not None and source is not None:
        return source, transpose_program(found.dtype, graph.values[source].shape, perm)
    program = _maximum(node.program, found.dtype)
    return (None, None) if program is None else (node.inputs[0], program)


def _maximum(program: Program, dtype: DType) -> Program | None:
    """Return a program that takes maxima of one float tensor as one that takes them of bytes."""
    assert is_byte(dtype)
    match single_value(program):
        case Reduce(reducer=reducer, body=(Read(),), init=None, filter=None) as total if reducer.kind == "max" and len(program.params) == 1:
            pass
        case _:
            return None
    least = 0 if dtype.kind == "uint" else -128
    combine = (Binary("max", Bound(reducer.left[0]), Bound(reducer.right[0])),)
    identity = None if reducer.identity is None else (Const(least, dtype),)
    narrow_max = replace(reducer, dtypes=(dtype,), combine=combine, identity=identity)
    [definition] = program.definitions
    piece = replace(definition.pieces[0], value=replace(total, reducer=narrow_max))
    result = replace(definition.tensors[0], dtype=dtype)
    return replace(
        program,
        params=(replace(program.params[0], dtype=dtype),),
        definitions=(replace(definition, tensors=(result,), pieces=(piece,)),),
    )
