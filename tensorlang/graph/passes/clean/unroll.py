"""Loops written out: each turn is nodes of its own. For what cannot run a loop, when how often it runs is known.

    before   loop of 3 turns over x, of the body  x' = f(x)
    after    a = f(x)   b = f(a)   y = f(b)

What is scanned or made in rows is taken apart and put together by kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import numpy as np

from polyhedral import affine
from polyhedral.expr import Int
from tensorlang.diagnostics import CompileError, Diagnostic, plain_text
from tensorlang.graph.edit import Additions, members, with_reads, writes
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Node, Part, Value, View, loops_of
from tensorlang.graph.programs import axes_of, single
from tensorlang.tensor.nodes import Definition, Piece, Program, Read, Tensor

MOST_NODES = 100_000
"""How many nodes a loop may come to."""


def unroll(graph: Graph) -> Graph:
    """Return the graph without loops. Raises CompileError O010 for loops of which it is not known how often they run, or that would come to
    too many nodes."""
    while loops_of(graph):
        graph = _once(graph)
    return graph


def _once(graph: Graph) -> Graph:
    """Return the graph with its loops written out; those of their bodies are left."""
    new = Additions(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, Loop):
            nodes += _turns(graph, node, new)
        else:
            nodes.append(node)
    return new.rebuilt(nodes)


def _turns(graph: Graph, loop: Loop, new: Additions) -> Iterator[Node]:
    """Yield the nodes of the turns of a loop, and those that put its results together."""
    body, count = loop.body, _count(graph, loop)
    constants = {name: new.add(body.values[name], array) for name, array in body.constants.items()}
    carried, rows = list(loop.initial), list[list[str]]()
    for turn in range(count):
        number = new.add(body.values[body.inputs[0]], np.asarray(turn, np.int64))
        scanned = [
            _row(new, loop, v, new[v].shape[0] - 1 - turn if back else turn) for v, back in zip(loop.sources, loop.scanned, strict=True)
        ]
        yield from scanned
        given = (number, *carried, *(node.outputs[0] for node in scanned), *loop.captured)
        names = {**constants, **dict(zip(body.inputs, given, strict=True))}
        for node in body.nodes:
            names |= {v: new.add(body.values[v]) for v in writes(node)}
            yield _copied(node, new.label(node.name), names)
        returned = [names[v] for v in body.outputs]
        carried = returned[: loop.carried]
        rows.append(returned[loop.carried :])
    yield View(new.label(loop.name), new.add(replace(graph.values[loop.outputs[0]]), np.asarray(count, np.int64)), loop.outputs[0])
    for source, result in zip(carried, loop.outputs[1:], strict=False):
        yield View(new.label(loop.name), source, result, loop.members)
    for k, (result, back) in enumerate(zip(loop.rows, loop.made, strict=True)):
        yield from _joined(new, loop, [found[k] for found in rows], graph.values[result], back)


def _count(graph: Graph, loop: Loop) -> int:
    """Return how many turns a loop has. Raises CompileError O010 where data say so, or where they come to too many nodes."""
    counts = [graph.values[v].shape[0] for v in (*loop.sources, *loop.rows)][:1]
    if loop.limit is not None and loop.limit in graph.constants:
        counts.append(max(int(graph.constants[loop.limit]), 0))
    ends = loop.asks or loop.condition is not None or (loop.limit is not None and loop.limit not in graph.constants)
    if ends or not counts or min(counts) * len(loop.body.nodes) > MOST_NODES:
        name = " + ".join(map(plain_text, members(loop)))
        why = f"loop `{name}` ends when data say so" if ends else f"loop `{name}` comes to more than {MOST_NODES} nodes"
        title = "this model needs what is not supported yet on devices: loops that run there"
        raise CompileError(Diagnostic("O010", title, (), (why,), "compile the model for a processor"))
    return min(counts)


def _copied(node: Node, label: str, names: Mapping[str, str]) -> Node:
    """Return a node of a body for the values of a turn."""
    read = with_reads(replace(node, name=label), names)
    match read:
        case Kernel() | Extern() | Loop():
            return replace(read, outputs=tuple(names[v] for v in read.outputs))
        case View():
            return replace(read, output=names[read.output])
        case Join() | Part():
            raise AssertionError("no memory is planned yet")
        case _:
            assert_never(read)


def _row(new: Additions, loop: Loop, source: str, number: int) -> Kernel:
    """Return the kernel that reads a row of a value."""
    value = new[source]
    result = new.add(Value(f"{source}[{number}]", value.dtype, value.shape[1:]))
    axes = axes_of(len(value.shape) - 1)
    param, made = _tensor("x", value), _tensor("y", new[result])
    program = single("row", (param,), made, axes, Read("x", (Int(number), *map(affine.to_expr, axes))))
    return Kernel(new.label(loop.name), program, (source,), (result,), members=loop.members)


MOST_JOINED = 64
"""Rows that one kernel puts together."""


def _joined(new: Additions, loop: Loop, rows: Sequence[str], result: Value, backwards: bool) -> Iterator[Node]:
    """Yield the nodes that put the rows of turns one after the other, or, `backwards`, one before the other; others are zeros."""
    blocks = [new.add(Value(f"{v} as rows", result.dtype, (1, *result.shape[1:]))) for v in rows]
    yield from (View(new.label(loop.name), v, block, loop.members) for v, block in zip(rows, blocks, strict=True))
    if len(rows) < result.shape[0] or not rows:
        zeros = np.zeros((result.shape[0] - len(rows), *result.shape[1:]), result.dtype.numpy)
        blocks.append(new.add(Value(f"{result.name} of no turn", result.dtype, zeros.shape), zeros))
    if backwards:
        blocks.reverse()
    while len(blocks) > MOST_JOINED:
        groups = [blocks[k : k + MOST_JOINED] for k in range(0, len(blocks), MOST_JOINED)]
        blocks = []
        for group in groups:
            count = sum(new[v].shape[0] for v in group)
            blocks.append(new.add(Value(result.name, result.dtype, (count, *result.shape[1:]))))
            yield _one_after_another(new, loop, group, new[blocks[-1]])
    yield _one_after_another(new, loop, blocks, result)


def _one_after_another(new: Additions, loop: Loop, blocks: Sequence[str], result: Value) -> Kernel:
    """Return the kernel that writes blocks of rows one after the other."""
    axes = axes_of(len(result.shape))
    first, pieces, params = 0, list[Piece](), list[Tensor]()
    for k, block in enumerate(blocks):
        params.append(_tensor(f"x{k}", new[block]))
        end = first + new[block].shape[0]
        index = (affine.sub(axes[0], first), *map(affine.to_expr, axes[1:]))
        inside = affine.conj(affine.compare(">=", axes[0], first), affine.compare("<", axes[0], end))
        pieces.append(Piece(Read(f"x{k}", index), inside))
        first = end
    made = _tensor("y", result)
    program = Program("rows", (), tuple(params), ("y",), (Definition((made,), axes, tuple(pieces)),))
    return Kernel(new.label(loop.name), program, tuple(blocks), (result.name,), members=loop.members)


def _tensor(name: str, value: Value) -> Tensor:
    return Tensor(name, value.dtype, tuple(map(Int, value.shape)))
