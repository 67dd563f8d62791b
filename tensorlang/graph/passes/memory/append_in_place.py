"""Append to a buffer what a model returns behind what it took from there: caches of keys and values.

    before   p = concat(past, new)               input past, output p
    after    rows = new    join past, rows -> p  past and p are one buffer with room behind what is used, and rows is written into it

A buffer has more rows than are used: a symbol of its own says how many. Its layout is row-major with these rows among the others, so that
`past` is the first part of `p` in the same cells. This is proven of the program that makes `p`, not read off an operator: along one axis,
up to the extent of `past`, it copies each element to its own place, and behind that it does not read `past`. So whoever reads `past` finds
it unchanged before and after, and what is run costs the new rows alone. Loops read a copy without room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from polyhedral import affine
from polyhedral.expr import Cond, Name
from polyhedral.sets import implies, is_empty
from polyhedral.verdict import Proven
from tensorlang.diagnostics import CompileError, error
from tensorlang.graph.edit import Additions, members, reads, with_reads
from tensorlang.graph.nodes import Buffer, Extern, Graph, Join, Kernel, Loop, Node, Value, View
from tensorlang.graph.programs import copy_program
from tensorlang.graph.sizes import Size, Symbols, same, to_expr
from tensorlang.schedule.layout import Layout
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Definition, Program, Read

ROOM = "size.room"
"""What symbols of unused rows begin with."""


def append_in_place(graph: Graph, shared: Mapping[str, str]) -> tuple[Graph, tuple[Buffer, ...]]:
    """Return the graph with outputs written behind inputs, and the buffers: `shared[output]` is the input that lies in the same memory.
    Raises CompileError C0122 where an output is not such an input with something behind it."""
    symbols = graph.symbols or Symbols({})
    state = _State(graph, symbols)
    buffers = [state.appended(output, taken) for output, taken in shared.items()]
    nodes = [n for node in graph.nodes for n in state.replaced.get(node.name, [node])]
    graph = replace(state.new.rebuilt(_with_copies(nodes, state.new)), symbols=symbols)
    return _with_rooms(graph), tuple(buffers)


@dataclass(frozen=True, slots=True)
class _Append:
    """Along axis number `axis`, the result of a kernel begins with a parameter."""

    param: str
    axis: int


class _State:
    def __init__(self, graph: Graph, symbols: Symbols) -> None:
        self.graph, self.symbols, self.new = graph, symbols, Additions(graph)
        self.makers = {v: node for node in graph.nodes if isinstance(node, Kernel) for v in node.outputs}
        self.replaced: dict[str, list[Node]] = {}
        self.rooms: dict[str, str] = {}
        """The symbol of unused rows where so many are used."""

    def appended(self, output: str, taken: str) -> Buffer:
        node = self.makers.get(output)
        found = None if node is None or node.name in self.replaced else _append(node, taken)
        if node is None or found is None:
            raise refused(output, taken, "it is not that input with something behind it along one axis")
        whole, past = self.graph.values[output], self.graph.values[taken]
        room = self.rooms.setdefault(str(whole.shape[found.axis]), f"{ROOM}_{len(self.rooms)}")
        self.symbols.samples[room] = 16
        block = tuple(n + self.symbols.symbol(room) if k == found.axis else n for k, n in enumerate(whole.shape))
        layout = Layout(tuple(f"d{k}" for k in range(len(block))), tuple(Name(f"d{k}") for k in range(len(block))), block)
        rows = tuple(n - past.shape[k] if k == found.axis else n for k, n in enumerate(whole.shape))
        name = self.new.add(Value(f"{output} behind {taken}", whole.dtype, rows, layout))
        program = _rows(node.program, found, to_expr(past.shape[found.axis]), to_expr(rows[found.axis]))
        inputs = tuple(node.bound[p.name] for p in program.params)
        start: Any = prod(block[found.axis + 1 :]) * past.shape[found.axis] * whole.dtype.size_bytes
        kernel = Kernel(node.name, program, inputs, (name,), "", (), members(node))
        join = Join(self.new.label(f"append {output}"), (taken, name), output, members(node), (0, start))
        self.replaced[node.name] = [kernel, join]
        for value in (past, whole):
            self._lay_out(value, layout, (output, taken))
        return Buffer(taken, output, found.axis, room)

    def _lay_out(self, value: Value, layout: Layout, names: tuple[str, str]) -> None:
        """Give a value, and what only shows it with further dimensions of one, the layout."""
        self.new.values[value.name] = replace(value, layout=layout)
        for node in self.graph.nodes:
            if isinstance(node, View) and node.input == value.name:
                shown = self.graph.values[node.output]
                of = _with_ones(value.shape, shown.shape)
                if of is None or node.output in self.graph.outputs:
                    raise refused(*names, "its rows are read as those of another shape")
                axes = tuple(f"d{k}" for k in range(len(of)))
                block = tuple(1 if k is None else layout.shape[k] for k in of)
                self._lay_out(shown, Layout(axes, tuple(map(Name, axes)), block), names)


def refused(output: str, taken: str, why: str) -> CompileError:
    """Return C0122."""
    title = f"output `{output}` cannot be written behind input `{taken}`"
    return error("C0122", title, notes=(why,), help="give it an array of its own")


def _with_ones(shape: tuple[Any, ...], shown: tuple[Any, ...]) -> tuple[int | None, ...] | None:
    """Return which dimension of a shape each of another is, None for one that was put in or left out; None where they are more apart."""
    found: list[int | None] = []
    rest = [k for k, n in enumerate(shape) if not same(n, 1)]
    for n in shown:
        if rest and same(n, shape[rest[0]]):
            found.append(rest.pop(0))
        elif same(n, 1):
            found.append(None)
        else:
            return None
    return None if rest else tuple(found)


def _append(node: Kernel, taken: str) -> _Append | None:
    """Return how a kernel appends to one of its inputs, None where it is not proven to."""
    program = node.program
    if len(program.definitions) != 1 or len(program.results) != 1 or node.inputs.count(taken) != 1:
        return None
    param = program.params[node.inputs.index(taken)]
    [definition] = program.definitions
    result = definition.tensors[0]
    if param.dtype != result.dtype or param.grouping != result.grouping or len(param.shape) != len(result.shape):
        return None
    longer = [k for k, (n, m) in enumerate(zip(param.shape, result.shape, strict=True)) if n != m]
    if len(longer) != 1 or param.grouping:
        return None
    axis = longer[0]
    old = affine.compare("<", Name(definition.axes[axis]), param.shape[axis])
    box = affine.conj(
        program.context,
        *(affine.compare(">=", size, 0) for size in program.sizes),
        *(affine.within(a, 0, n) for a, n in zip(definition.axes, result.shape, strict=True)),
    )
    here = Read(param.name, tuple(map(Name, definition.axes)))
    for piece in definition.pieces:
        is_copy = piece.value == here
        within = affine.conj(box, old if not is_copy else affine.negate(old), piece.guard)
        reads_old = any(read.tensor == param.name for read in walk.reads(piece.value))
        if reads_old and not is_copy:
            return None
        if not isinstance(is_empty(program.sizes, definition.axes, within), Proven):
            return None  # it would write something else where the old rows are, or nothing where the new ones are
    return _Append(param.name, axis)


def _rows(program: Program, found: _Append, start: Any, count: Any) -> Program:
    """Return the program of the rows of its result from number `start` on, of which there are `count`."""
    [definition] = program.definitions
    axis = definition.axes[found.axis]
    to = {axis: affine.add(Name(axis), start)}
    [result] = definition.tensors
    box: Cond = affine.conj(*(affine.compare(">=", size, 0) for size in program.sizes), affine.within(axis, 0, count))
    pieces = []
    for piece in definition.pieces:
        if not any(read.tensor == found.param for read in walk.reads(piece.value)):
            guard = affine.substitute_cond(piece.guard, to)
            always = isinstance(implies(program.sizes, definition.axes, box, guard), Proven)
            pieces.append(replace(piece, value=walk.substitute(piece.value, to), guard=affine.conj() if always else guard, otherwise=False))
    tensor = replace(result, shape=tuple(count if k == found.axis else n for k, n in enumerate(result.shape)))
    params = tuple(p for p in program.params if p.name != found.param)
    made = Program(f"{program.name}_rows", program.sizes, params, program.results, (Definition((tensor,), definition.axes, tuple(pieces)),))
    return replace(made, mode=program.mode, context=program.context)


def _with_copies(nodes: Sequence[Node], new: Additions) -> Iterator[Node]:
    """Yield nodes, and in front of loops and kernels that are not in the language, which take values row by row, copies of buffers."""
    copies: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, Loop | Extern):
            for name in dict.fromkeys(reads(node)):
                value = new[name]
                if value.layout is not None and name not in copies:
                    copies[name] = new.add(replace(value, name=f"{name} without room", layout=None))
                    yield Kernel(new.label(f"copy {name}"), copy_program(value.dtype, value.shape), (name,), (copies[name],))
            node = with_reads(node, copies)
        yield node


def _with_rooms(graph: Graph) -> Graph:
    """Return the graph with the sizes of layouts among those of the kernels that read or write such values."""
    nodes = []
    for node in graph.nodes:
        if isinstance(node, Kernel):
            layouts = [graph.values[v].layout for v in (*node.inputs, *node.outputs)]
            extents: list[object] = [n for found in layouts if found is not None for n in found.shape]
            used = [n.names for n in extents if isinstance(n, Size)]
            names = [name for each in used for name in sorted(each)]
            sizes = tuple(dict.fromkeys((*node.program.sizes, *names)))
            node = node if sizes == node.program.sizes else node.of_sizes(replace(node.program, sizes=sizes))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))
