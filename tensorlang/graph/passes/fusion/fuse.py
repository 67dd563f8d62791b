"""Fusion: one kernel for an anchor, what is done to its result element by element, and what is cheap to do to its inputs.

    before   t = conv(x, w, b)    u = t + skip    y = relu(u)    z = transpose(q)    s = matmul(p, z)
    after    y = kernel(x, w, b, skip)                           s = kernel(p, q)

A group is at most one anchor (a program that reduces: contraction, convolution, pooling, softmax, normalisation) with an *epilogue* and a
*prologue* of pointwise programs. Its program is composed from those of its members, so code generation sees one operator and nothing else.

    epilogue   pointwise kernels that read the anchor's result in place, together with each other: the longest run that leaves one value
               that others read. All inner values vanish. Later anchors choose first: in a residual block the other branch is ready by then.
               What only widens at the end of a run (a cast, dequantising) is left to the readers: the narrow value is stored.
               A transpose after it that leaves the last axis where it is joins a contraction, too, and one that undoes the transpose
               before it joins any other reduction.
    prologue   pointwise kernels all of whose readers are in one group, when reading them again costs less than storing them:
                 before pointwise readers      anything read in place; movements; cheap programs
                 before a contraction          transposes; arithmetic where each element is multiplied once, as a matrix by a vector:
                                               it would be repeated for every use of the element. Before a transpose that joined
                                               a contraction transposes alone
                 before any other reduction    movements and cheap programs

A value that is read outside its group, or returned by the graph, is materialised. Views stay nodes of their own: they cost nothing.
Programs that recur, return several results, or choose elements by data are not fused with what reads them out of place. What a kernel
checks when it is entered is made before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from polyhedral import affine
from polyhedral.expr import Int, Name
from tensorlang.graph.compose import composed
from tensorlang.graph.edit import consumers, members, rebuilt
from tensorlang.graph.nodes import Graph, Kernel, Node
from tensorlang.graph.programs import (
    elements,
    expressions,
    is_contraction,
    is_pointwise,
    is_single,
    permutation,
    reads_in_place,
    recurs,
    reduces,
    single_value,
)
from tensorlang.graph.sizes import sample_of
from tensorlang.tensor import walk
from tensorlang.tensor.nodes import Binary, Call, Dynamic, Program, Read, Select, Unary

LARGEST_GROUP = 24
CHEAP_OPERATIONS = 6


def fuse(graph: Graph) -> Graph:
    """Return the graph with each group of kernels as one kernel."""
    merged: list[Node] = []
    grouping = groups(graph)
    of = {node.name: group for group in grouping for node in group}
    made: dict[_Shape, tuple[Program, tuple[int, ...]]] = {}
    for node in graph.nodes:
        group = of.get(node.name)
        if group is None or len(group) == 1:
            merged.append(node)
        elif node is group[-1]:
            merged.append(_one_kernel(graph, group, made))
    return rebuilt(graph, merged)


def groups(graph: Graph) -> list[tuple[Kernel, ...]]:
    """Return the groups of kernels that become one, each in topological order; the last member defines the group's only result."""
    facts = _Facts.of(graph)
    assigned: dict[str, list[Kernel]] = {}
    for node in reversed(facts.kernels):
        if facts.kind[node.name].anchor and node.name not in assigned:
            run = _epilogue(facts, node, assigned)
            _claim([node, *run, *_moved(facts, [node, *run][-1], node, assigned)], assigned)
    moved: set[str] = set()
    for node in reversed(facts.kernels):
        if node.name in assigned:
            continue
        target = _prologue_of(facts, node, assigned, moved)
        if target is None:
            _claim([node], assigned)
            continue
        _join(node, target, assigned)
        readers = facts.readers[node.outputs[0]]
        if facts.kind[node.name].transpose and any(r.name in moved or facts.kind[r.name].contraction for r in readers):
            moved.add(node.name)
    order = facts.order
    distinct = {id(group): sorted(group, key=lambda n: order[n.name]) for group in assigned.values()}
    return sorted((tuple(group) for group in distinct.values()), key=lambda group: order[group[-1].name])


# ---------------------------------------------------------------- what is known of each kernel


@dataclass(frozen=True, slots=True)
class Kind:
    """What fusion needs to know of a program."""

    anchor: bool
    pointwise: bool
    contraction: bool
    movement: bool
    transpose: bool
    arithmetic: bool
    """Whether it is arithmetic on elements, chooses none, and takes few operations."""
    operations: int
    in_place: frozenset[str] = field(default_factory=frozenset)

    @property
    def cheap(self) -> bool:
        return self.movement or (self.pointwise and self.operations <= CHEAP_OPERATIONS)


def kind_of(program: Program) -> Kind:
    """Return the kind of a program."""
    value = single_value(program)
    fusible = len(program.results) == 1 and not recurs(program)
    pointwise = fusible and is_pointwise(program) and is_single(program)
    indices = [slot for e in expressions(program) if isinstance(e, Read) for slot in e.index]
    movement = pointwise and isinstance(value, Read) and not any(isinstance(slot, Dynamic) for slot in indices)
    operations = sum(_cost(e) for e in expressions(program))
    chooses = any(isinstance(e, Select) for e in expressions(program))
    return Kind(
        anchor=fusible and reduces(program),
        pointwise=pointwise,
        contraction=fusible and is_contraction(program),
        movement=movement,
        transpose=permutation(program) is not None,
        arithmetic=pointwise and not movement and not chooses and operations <= CHEAP_OPERATIONS,
        operations=operations,
        in_place=frozenset(p.name for p in program.params if p.declared_range is None and reads_in_place(program, p.name))
        if pointwise
        else frozenset(),
    )


def _cost(e: object) -> int:
    match e:
        case Call():
            return 4 * CHEAP_OPERATIONS
        case Binary(op="/" | "//" | "%"):
            return 3
        case Binary() | Unary() | Select():
            return 1
        case Read(index=index) if any(isinstance(slot, Dynamic) for slot in index):
            return 4 * CHEAP_OPERATIONS
        case _:
            return 0


@dataclass(frozen=True, slots=True)
class _Facts:
    graph: Graph
    kernels: tuple[Kernel, ...]
    kind: dict[str, Kind]
    readers: dict[str, list[Node]]
    returned: frozenset[str]
    order: dict[str, int]
    """Which kernel it is, by its name."""
    made: dict[str, Kernel]
    """Which kernel makes a value."""

    @staticmethod
    def of(graph: Graph) -> _Facts:
        kernels = tuple(node for node in graph.nodes if isinstance(node, Kernel))
        known: dict[int, Kind] = {}
        kinds = {}
        for node in kernels:
            kinds[node.name] = known[id(node.program)] = known.get(id(node.program)) or kind_of(node.program)
        order = {node.name: k for k, node in enumerate(kernels)}
        made = {value: node for node in kernels for value in node.outputs}
        return _Facts(graph, kernels, kinds, consumers(graph), frozenset(graph.outputs), order, made)

    def escapes(self, value: str, inside: Iterable[str]) -> bool:
        """Tell whether `value` is returned, or read by a node that is not `inside`."""
        names = set(inside)
        return value in self.returned or any(node.name not in names for node in self.readers[value])

    def reads_in_place(self, node: Kernel, values: set[str]) -> bool:
        """Tell whether the pointwise kernel reads those of its inputs that are in `values` in place, and reads one at all."""
        bound = [(p.name, v) for p, v in zip(node.program.params, node.inputs, strict=True) if v in values]
        return bool(bound) and all(param in self.kind[node.name].in_place for param, _ in bound)


# ---------------------------------------------------------------- epilogue


def _epilogue(facts: _Facts, anchor: Kernel, assigned: dict[str, list[Kernel]]) -> list[Kernel]:
    """Return the longest run of pointwise kernels after `anchor` that leaves one value which others read."""
    inner = {anchor.outputs[0]}
    shape = facts.graph.values[anchor.outputs[0]].shape
    run: list[Kernel] = []
    best = 0
    names = {anchor.name}
    for node in _after(facts, anchor):
        if node.name in assigned or not facts.kind[node.name].pointwise or not facts.reads_in_place(node, inner):
            continue
        if facts.graph.values[node.outputs[0]].shape != shape or len(run) + 1 >= LARGEST_GROUP or node.program.mode != anchor.program.mode:
            continue
        run.append(node)
        names.add(node.name)
        inner.add(node.outputs[0])
        if sum(facts.escapes(value, names) for value in inner) == 1 and facts.escapes(node.outputs[0], names):
            best = len(run)
    while best and _widens(facts, run[best - 1], inner):
        best -= 1
    return run[:best]


def _widens(facts: _Facts, node: Kernel, inner: set[str]) -> bool:
    """Tell whether `node` does little but make its elements wider, and its readers could do that themselves."""
    values = facts.graph.values
    [result, *_] = node.outputs
    if len(node.inputs) != 1 or node.inputs[0] not in inner or result in facts.returned or not facts.kind[node.name].cheap:
        return False
    wider = values[node.inputs[0]].dtype.size_bytes < values[result].dtype.size_bytes
    return wider and all(isinstance(r, Kernel) and _suits(facts, node, r) for r in facts.readers[result])


def _moved(facts: _Facts, last: Kernel, anchor: Kernel, assigned: dict[str, list[Kernel]]) -> list[Kernel]:
    """Return the transpose that alone reads what the anchor leaves, if it only says where the elements go: of a contraction, if vectors
    still run along the same axis; of any other reduction, if it undoes the transpose of what that reads."""
    value = last.outputs[0]
    readers = facts.readers[value]
    if value in facts.returned or len(readers) != 1:
        return []
    [node] = readers
    perm = permutation(node.program) if isinstance(node, Kernel) and node.name not in assigned else None
    if perm is None or not isinstance(node, Kernel) or node.program.mode != anchor.program.mode:
        return []
    joins = perm[-1:] == (len(perm) - 1,) if facts.kind[anchor.name].contraction else _undoes(facts, perm, anchor)
    return [node] if joins else []


def _undoes(facts: _Facts, perm: tuple[int, ...], anchor: Kernel) -> bool:
    """Tell whether a transpose after `anchor` puts the axes back that one before it exchanged, of a value that `anchor` alone reads."""
    for name in anchor.inputs:
        maker = facts.made.get(name)
        before = permutation(maker.program) if maker is not None and facts.readers[name] == [anchor] else None
        if before is not None and name not in facts.returned and tuple(before[k] for k in perm) == tuple(range(len(before))):
            return True
    return False


def _after(facts: _Facts, anchor: Kernel) -> list[Kernel]:
    """Return the kernels reached from `anchor` through pointwise kernels, in topological order."""
    found: dict[str, Kernel] = {}
    pending = list(facts.readers[anchor.outputs[0]])
    while pending and len(found) < 4 * LARGEST_GROUP:
        node = pending.pop()
        if isinstance(node, Kernel) and node.name not in found and facts.kind[node.name].pointwise:
            found[node.name] = node
            pending += facts.readers[node.outputs[0]]
    return sorted(found.values(), key=lambda node: facts.order[node.name])


# ---------------------------------------------------------------- prologue


def _prologue_of(facts: _Facts, node: Kernel, assigned: dict[str, list[Kernel]], moved: set[str]) -> list[Kernel] | None:
    """Return the group that `node` may join because all its readers are in it and it suits them all. `moved` are transposes whose elements
    a contraction reads: what they would compute, it would compute for every use."""
    if not facts.kind[node.name].pointwise or node.outputs[0] in facts.returned:
        return None
    readers = facts.readers[node.outputs[0]]
    targets = {id(assigned[r.name]): assigned[r.name] for r in readers if r.name in assigned}
    if len(targets) != 1 or not all(isinstance(r, Kernel) and r.name in assigned for r in readers):
        return None
    group = next(iter(targets.values()))
    if not facts.kind[node.name].transpose and any(r.name in moved for r in readers):
        return None
    if len(group) >= LARGEST_GROUP or not all(_suits(facts, node, r) for r in readers if isinstance(r, Kernel)):
        return None
    return group


def _chosen_by_data(reader: Kernel, value: str) -> bool:
    """Tell whether the data decide which elements of `value` are read."""
    params = {p.name for p, v in zip(reader.program.params, reader.inputs, strict=True) if v == value}
    reads = (e for e in expressions(reader.program) if isinstance(e, Read) and e.tensor in params)
    return any(isinstance(slot, Dynamic) for e in reads for slot in e.index)


def _is_checked(reader: Kernel, value: str) -> bool:
    """Tell whether a kernel checks what `value` holds when it is entered: what it computes itself it could not."""
    return any(p.declared_range is not None for p, v in zip(reader.program.params, reader.inputs, strict=True) if v == value)


def _is_multiplied_once(reader: Kernel, value: str) -> bool:
    """Tell whether each element of `value` is read for one term of one element of a contraction."""
    if not is_single(reader.program):
        return False
    [definition] = reader.program.definitions
    [piece] = definition.pieces
    params = {p.name for p, v in zip(reader.program.params, reader.inputs, strict=True) if v == value}
    found = [e for e in expressions(reader.program) if isinstance(e, Read) and e.tensor in params]
    extents = dict(zip(definition.axes, map(affine.constant, definition.tensors[0].shape), strict=True))
    extents |= {b.name: b.extent for reduce in walk.reduces(piece.value) for b in reduce.binders}
    if len(found) != 1 or not all(isinstance(slot, Name | Int) for slot in found[0].index):
        return False
    names = walk.index_names(found[0])
    return all(extent == 1 for name, extent in extents.items() if name not in names)


def _suits(facts: _Facts, node: Kernel, reader: Kernel) -> bool:
    """Tell whether `reader` may compute the elements of `node` where it reads them."""
    kind, wanted = facts.kind[node.name], facts.kind[reader.name]
    value = node.outputs[0]
    if node.program.mode != reader.program.mode or _chosen_by_data(reader, value) or _is_checked(reader, value):
        return False
    if wanted.contraction:
        return kind.transpose or (kind.arithmetic and _is_multiplied_once(reader, value))
    if wanted.anchor:
        return kind.cheap
    if not wanted.pointwise:
        return False
    if facts.reads_in_place(reader, {value}):
        return True
    grows = sample_of(elements(facts.graph.values[reader.outputs[0]])) > sample_of(elements(facts.graph.values[node.outputs[0]]))
    return kind.movement or kind.cheap or not grows


# ---------------------------------------------------------------- groups


def _claim(nodes: list[Kernel], assigned: dict[str, list[Kernel]]) -> None:
    group = list(nodes)
    assigned |= {node.name: group for node in nodes}


def _join(node: Kernel, group: list[Kernel], assigned: dict[str, list[Kernel]]) -> None:
    group.append(node)
    assigned[node.name] = group


_Shape: TypeAlias = tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
"""What a group is but for the names of values: of each member its program, by identity, and numbers for what it reads and defines."""


def _one_kernel(graph: Graph, group: tuple[Kernel, ...], made: dict[_Shape, tuple[Program, tuple[int, ...]]]) -> Kernel:
    """Return the kernel of a group; groups of one shape, of which `made` knows programs and inputs, share a program."""
    number: dict[str, int] = {}

    def numbers(values: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(number.setdefault(v, len(number)) for v in values)

    shape = tuple((id(node.program), numbers(node.inputs), numbers(node.outputs)) for node in group)
    if shape not in made:
        program, names = composed(graph, group)
        made[shape] = program, numbers(names)
    program, taken = made[shape]
    values = tuple(number)
    inputs = tuple(values[k] for k in taken)
    last = group[-1]
    return replace(
        last,
        program=program,
        inputs=inputs,
        operator="",
        attrs=(),
        members=tuple(name for node in group for name in members(node)),
    )
