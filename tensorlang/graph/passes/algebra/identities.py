"""Remove kernels that only rename what they read.

    kernel that copies in order                →  a view, or nothing when the shape stays
    view of a view                             →  a view of the first
    transpose of a transpose                   →  one transpose, or nothing when they cancel
    cast of a lossless cast                    →  one cast
    view to the shape it has                   →  nothing

Identity, Dropout at inference, `x * 1`, `x - 0`, Squeeze and transposes of axes of extent one are kernels that copy in order; they are
found by their programs. `x + 0` is not one of them: it turns -0 into 0.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import assert_never

from codegen.dtypes import DType
from tensorlang.graph.edit import members, producers, reads, rebuilt, writes
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Node, Part, View
from tensorlang.graph.programs import (
    axes_of,
    here,
    identity_source,
    permutation,
    reads_in_place,
    single,
    single_value,
    tensor_of,
    transpose_program,
)
from tensorlang.tensor.nodes import Cast, Program, Read


def identities(graph: Graph) -> Graph:
    """Return the graph without kernels and views that change nothing; those in between are merged pairwise."""
    made: dict[str, Node] = producers(graph)
    replaced: dict[str, str] = {}
    skipped: dict[str, Node] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        node = _as_view(node)
        match node:
            case View():
                node = _through_view(node, made, replaced, skipped)
                if graph.values[node.input] == replace(graph.values[node.output], name=node.input):
                    replaced[node.output] = node.input
                    continue
            case Kernel():
                node = _through_kernel(graph, node, made, replaced, skipped)
                node = _as_view(node)
            case Join() | Part() | Extern() | Loop():
                pass
            case _:
                assert_never(node)
        made |= dict.fromkeys(writes(node), node)
        kept.append(node)
    return rebuilt(graph, _naming(graph, kept, skipped), replaced=replaced)


def _naming(graph: Graph, nodes: list[Node], skipped: dict[str, Node]) -> list[Node]:
    """Return the nodes, those that stand for others as well naming these: `skipped` says which node each reads past. What is read by
    others, too, names its own members, so that each is named by the first that needs it, however long a chain is."""
    used = {*graph.outputs, *(name for node in nodes for name in reads(node))}
    found: list[Node] = []
    for node in nodes:
        names = [members(node)]
        before = skipped.get(node.name) if used.intersection(writes(node)) else None
        while before is not None and not used.intersection(writes(before)):
            names.append(members(before))
            before = skipped.get(before.name)
        found.append(node if len(names) == 1 else replace(node, members=tuple(chain.from_iterable(reversed(names)))))
    return found


def _as_view(node: Node) -> Node:
    if not isinstance(node, Kernel):
        return node
    source = identity_source(node.program)
    if source is None:
        return node
    bound = node.bound
    return View(node.name, bound[source], node.outputs[0], members(node))


def _through_view(node: View, made: dict[str, Node], replaced: dict[str, str], skipped: dict[str, Node]) -> View:
    source = replaced.get(node.input, node.input)
    before = made.get(source)
    if isinstance(before, View):
        skipped[node.name] = before
        return replace(node, input=replaced.get(before.input, before.input))
    return replace(node, input=source)


def _through_kernel(graph: Graph, node: Kernel, made: dict[str, Node], replaced: dict[str, str], skipped: dict[str, Node]) -> Kernel:
    """Return the kernel reading what the kernel before it read, if both are transposes, or casts of which the first loses nothing."""
    if len(node.inputs) != 1 or len(node.outputs) != 1:
        return node
    source = replaced.get(node.inputs[0], node.inputs[0])
    before = made.get(source)
    if not isinstance(before, Kernel) or len(before.inputs) != 1 or graph.values[source].layout is not None:
        return node
    program = _transposes(graph, before, node) or _casts(graph, before, node)
    if program is None:
        return node
    skipped[node.name] = before
    return replace(node, program=program, inputs=before.inputs, operator="", attrs=())


def _transposes(graph: Graph, first: Kernel, second: Kernel) -> Program | None:
    p, q = permutation(first.program), permutation(second.program)
    if p is None or q is None:
        return None
    value = graph.values[first.inputs[0]]
    return transpose_program(value.dtype, value.shape, tuple(p[k] for k in q))


def _casts(graph: Graph, first: Kernel, second: Kernel) -> Program | None:
    middle, last = _cast(first.program), _cast(second.program)
    value = graph.values[first.inputs[0]]
    if middle is None or last is None or not lossless(value.dtype, middle):
        return None
    if value.dtype.is_integer and middle.is_float and last.is_integer:
        return None  # to an integer, a float saturates and an integer wraps
    source = tensor_of("x", value)
    result = replace(source, name="y", dtype=last)
    axes = axes_of(len(value.shape))
    return single("cast", (source,), result, axes, Cast(last, Read("x", here(axes))))


def _cast(program: Program) -> DType | None:
    """Return the dtype that the program casts its one parameter to, element by element."""
    match single_value(program):
        case Cast(dtype=dtype, value=Read(tensor=name), saturate=False) if len(program.params) == 1:
            return dtype if reads_in_place(program, name) else None
        case _:
            return None


def lossless(source: DType, target: DType) -> bool:
    """Tell whether every value of `source` is one of `target`."""
    if source == target:
        return True
    if source.is_float:
        return target.name in _WIDER_FLOATS.get(source.name, ())
    if source.kind == "bool":
        return True
    if target.is_float:
        return source.bits - (source.kind == "int") <= {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}.get(target.name, 0)
    if target.kind == source.kind:
        return source.bits <= target.bits
    return source.kind == "uint" and target.kind == "int" and source.bits < target.bits


_WIDER_FLOATS = {
    "f32": ("f64",),
    "f16": ("f32", "f64"),
    "bf16": ("f32", "f64"),
    "f8e4m3": ("f16", "bf16", "f32", "f64"),
    "f8e5m2": ("f16", "bf16", "f32", "f64"),
    "f8e4m3fnuz": ("f16", "bf16", "f32", "f64"),
    "f8e5m2fnuz": ("f16", "bf16", "f32", "f64"),
    "f4e2m1": ("f16", "bf16", "f32", "f64"),
}
