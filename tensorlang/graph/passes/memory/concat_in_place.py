"""Write what is concatenated where it will lie at once.

    before   a = conv(x, w)    b = conv(x, u)    y = concat(a, b)      a, b and y in blocks of channels, [n, c // 16, h, w, c % 16]
    after    a = conv(x, w)    b = conv(x, u)    join a, b -> y        nothing runs: the plan puts a and b into the memory of y

A kernel that only copies becomes a `Join` when the memory of its result is that of its parameters, one after another. This is proven, not
read off the operator: wherever the program copies element i of a parameter to element j of the result, the cell of j is the cell of i plus
the same number; nothing has cells without elements, and each parameter is copied once. So it holds for channels in blocks and one image,
for rows, for whatever else lies in one piece, and not for columns of a matrix. Where sizes are open, cells are polynomials in them and in
the indices, and the number is the same where their difference has no indices in it.

A value has one place. Inputs, constants, what the graph returns and what is already part of another value are copied into place, which pays
while more bytes are written in place than copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import Any

from polyhedral import affine
from polyhedral.expr import Cond, Name
from polyhedral.expr import Expr as Affine
from polyhedral.sets import bounds
from tensorlang.graph.edit import Additions, members, size_bytes
from tensorlang.graph.nodes import Graph, Join, Kernel, Node, Part, View
from tensorlang.graph.passes.memory.layout import layouts_of
from tensorlang.graph.plan import ALIGNMENT
from tensorlang.graph.programs import copy_program
from tensorlang.graph.sizes import Extent, Symbols, same, same_shape, sample_of
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.storage import axis_names, to_storage
from tensorlang.tensor.nodes import Definition, Dynamic, Piece, Program, Read
from tensorlang.tensor.walk import reads, tensor_table, tensors


def concat_in_place(graph: Graph) -> Graph:
    """Return the graph with every kernel that puts values side by side replaced by a join, where that saves copying."""
    state = _State(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        joined = state.joined(node) if isinstance(node, Kernel) else None
        nodes += [node] if joined is None else joined
    return state.new.rebuilt(nodes)


@dataclass(frozen=True, slots=True)
class Segment:
    """Parameter `param` fills the cells of the result from number `start` on."""

    param: str
    start: Extent


def parts_of(program: Program, layouts: Mapping[str, Layout], symbols: Symbols | None = None) -> tuple[Segment, ...] | None:
    """Return the parameters in the order in which their memory makes up that of the result, or None when it does not. `symbols`: what the
    sizes of the program are, where it has some."""
    if len(program.definitions) != 1 or len(program.results) != 1:
        return None
    if not all(is_dense(program, name, layouts, symbols) for name in _names(program)):
        return None
    [definition] = program.definitions
    found = [segment(program, definition, piece, layouts, symbols) for piece in definition.pieces]
    parts = sorted((part for part in found if part is not None), key=lambda part: sample_of(part.start))
    ends: list[Extent] = list(accumulate((_count(program, part.param, symbols) for part in parts), initial=0))
    in_a_row = same_shape([*(part.start for part in parts), _count(program, program.results[0], symbols)], ends)
    once = len({part.param for part in parts}) == len(found) == len(program.params)
    return tuple(parts) if in_a_row and once else None


# ---------------------------------------------------------------- cells


def _names(program: Program) -> tuple[str, ...]:
    return (*(p.name for p in program.params), *program.results)


def _extent(n: Affine, symbols: Symbols | None) -> Any:
    """Return an extent of a program, 0 where it is not known."""
    return affine.constant(n) or 0 if symbols is None else symbols.size(n)


def _count(program: Program, name: str, symbols: Symbols | None) -> Extent:
    count: Extent = prod(_extent(n, symbols) for n in tensor_table(program)[name].shape)
    return count


def is_dense(program: Program, name: str, layouts: Mapping[str, Layout], symbols: Symbols | None = None) -> bool:
    """Tell whether a tensor of the result's element type has no cells without elements, whatever the sizes are, and where none is open any
    elements at all."""
    if program.sizes and (symbols is None or _chooses(program)):
        return False
    table, open_sizes = tensor_table(program), symbols if program.sizes else None
    count = _count(program, name, open_sizes)
    cells: Extent = prod(_extent(affine.to_expr(n), open_sizes) for n in layouts[name].shape) if name in layouts else count
    return same(count, cells) and not same(count, 0) and table[name].dtype == table[program.results[0]].dtype


def _chooses(program: Program) -> bool:
    """Tell whether an extent or an index of a program is the larger or smaller of two, which is no polynomial."""
    shapes = (n for tensor in tensors(program) for n in tensor.shape)
    slots = (slot for d in program.definitions for p in d.pieces for r in reads(p.value) for slot in r.index)
    return any(not isinstance(e, Dynamic) and affine.has_choice(e) for e in (*shapes, *slots))


def segment(
    program: Program, definition: Definition, piece: Piece, layouts: Mapping[str, Layout], symbols: Symbols | None = None
) -> Segment | None:
    """Return how many cells what a piece writes lies behind what it reads, when that is the same for all and both have one type."""
    value = piece.value
    if program.sizes and (symbols is None or _chooses(program)):  # it is not known yet which cells those are
        return None
    if not isinstance(value, Read) or any(isinstance(slot, Dynamic) for slot in value.index):
        return None
    result = definition.tensors[0]
    if tensor_table(program)[value.tensor].dtype != result.dtype:
        return None  # a narrow float is widened where it is read
    here = [slot for slot in value.index if not isinstance(slot, Dynamic)]
    if program.sizes:
        assert symbols is not None
        only: dict[str, Affine] = {a: affine.ZERO for a, n in zip(definition.axes, result.shape, strict=True) if affine.constant(n) == 1}
        there = [only.get(a, Name(a)) for a in definition.axes]
        read = [affine.substitute(slot, only) for slot in here]
        behind = _open_cell(program, result.name, layouts, symbols, there) - _open_cell(program, value.tensor, layouts, symbols, read)
        fixed = isinstance(behind, int) or not behind.names & {*definition.axes}
        return Segment(value.tensor, behind) if fixed else None
    source = affine.substitute(_cell(program, value.tensor, layouts), dict(zip(axis_names(program, value.tensor), here, strict=True)))
    target = _cell(program, result.name, layouts)
    box = affine.conj(*(affine.within(axis, 0, n) for axis, n in zip(definition.axes, result.shape, strict=True)), piece.guard)
    start = affine.difference(target, source)
    if start is None and not _differs(definition, box, affine.sub(target, source)):
        low, high = bounds((), definition.axes, box, affine.sub(target, source))
        start = affine.constant(low) if low is not None and low == high else None
    return None if start is None else Segment(value.tensor, start)


def _differs(definition: Definition, box: Cond, distance: Affine) -> bool:
    """Tell whether a distance is seen to be another at two elements: a corner, one of its neighbours, or the corner across. isl proves that
    it is the same everywhere, and takes long where boundaries of many axes meet."""
    last = [(affine.constant(n) or 1) - 1 for n in definition.tensors[0].shape]
    points = [[0] * len(last), last, [n // 2 for n in last]]
    points += [[*p[:k], abs(p[k] - 1), *p[k + 1 :]] for p in points for k, n in enumerate(last) if n]
    seen = (dict(zip(definition.axes, p, strict=True)) for p in points)
    return len({affine.evaluate(distance, at) for at in seen if affine.holds(box, at)}) > 1


def _open_cell(program: Program, name: str, layouts: Mapping[str, Layout], symbols: Symbols, index: Sequence[Affine]) -> Any:
    """Return the number of the cell in which the element of a tensor at an index lies, over the names in that and sizes."""
    axes, shape = axis_names(program, name), tensor_table(program)[name].shape
    dims: tuple[Affine, ...] = tuple(map(Name, axes))
    if name in layouts:
        storage = to_storage(program, name, layouts[name])
        dims, shape = storage.dims, storage.shape
    to = dict(zip(axes, index, strict=True))
    total: Any = 0
    for dim, extent in zip(dims, shape, strict=True):
        total = total * symbols.size(extent) + symbols.size(affine.substitute(dim, to))
    return total


def _cell(program: Program, name: str, layouts: Mapping[str, Layout]) -> Affine:
    """Return the number of the cell in which the element of a tensor lies, over the names of its axes."""
    axes, shape = axis_names(program, name), tensor_table(program)[name].shape
    dims: tuple[Affine, ...] = tuple(map(Name, axes))
    if name in layouts:
        storage = to_storage(program, name, layouts[name])
        dims, shape = storage.dims, storage.shape
    total: Affine = affine.ZERO
    for index, extent in zip(dims, shape, strict=True):
        total = affine.add(affine.scale(affine.constant(extent) or 0, total), index)
    return total


# ---------------------------------------------------------------- which values may be placed so


class _State:
    """What has its place already, while the nodes are gone through in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.new = Additions(graph)
        self.base: dict[str, str] = {}
        self.known: dict[tuple[int, tuple[tuple[str, Layout], ...]], tuple[Segment, ...] | None] = {}
        self.taken = {*graph.inputs, *graph.constants}
        for node in graph.nodes:
            if isinstance(node, View):
                self.base[node.output] = self._root(node.input)
            self.taken |= {node.output} if isinstance(node, Part) else set(node.inputs) if isinstance(node, Join) else set()
        self.taken |= {self._root(name) for name in graph.outputs}

    def _root(self, name: str) -> str:
        """Return the value that `name` is a view of. What is part of another has its place in that, and is taken."""
        return self.base.get(name, name)

    def joined(self, node: Kernel) -> list[Node] | None:
        """Return the nodes that stand for a kernel whose result is its inputs side by side, or None when it stays."""
        layouts = layouts_of(self.graph, node)
        key = (id(node.program), tuple(layouts.items()))
        if key not in self.known:
            self.known[key] = parts_of(node.program, layouts, self.graph.symbols)
        parts = self.known[key]
        if parts is None or len(parts) < 2:
            return None
        bound = node.bound
        inputs = [bound[part.param] for part in parts]
        sizes = [size_bytes(self.graph.values[name]) for name in inputs]
        roots = [self._root(name) for name in inputs]
        first = {root: k for k, root in reversed(list(enumerate(roots)))}
        free = [root not in self.taken and first[root] == k for k, root in enumerate(roots)]
        copied = sum(sample_of(size) for size, ok in zip(sizes, free, strict=True) if not ok)
        if not all(same(size % ALIGNMENT, 0) for size in sizes) or 2 * copied >= sum(map(sample_of, sizes)):
            return None
        self.taken |= {root for root, ok in zip(roots, free, strict=True) if ok}
        copies = [None if ok else self._copied(name) for name, ok in zip(inputs, free, strict=True)]
        placed = tuple(name if copy is None else copy.outputs[0] for name, copy in zip(inputs, copies, strict=True))
        return [*(copy for copy in copies if copy is not None), Join(node.name, placed, node.outputs[0], members(node))]

    def _copied(self, name: str) -> Kernel:
        """Return a copy of a value, in the same layout, that can be placed."""
        value = self.graph.values[name]
        copy = self.new.add(replace(value, name=f"{name} in place"))
        return Kernel(self.new.label(f"put {copy}"), copy_program(value.dtype, value.shape), (name,), (copy,))
