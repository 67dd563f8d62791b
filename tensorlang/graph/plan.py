"""The memory plan: where every value of a graph lives while it runs.

    storage   a value's own memory, or that of the value it is a view or a part of, or its part of that of the value it is joined to
    place     Input k + offset | Output k + offset | Constant name + offset | Arena offset
    lifetime  [first, last]: from the node that defines a storage to the last node that reads it, views included, by position

All that is neither given nor returned lives in one arena, whose size is known before the first run. Storages whose lifetimes meet never
share a byte: a kernel may read its inputs as long as it writes, so an output may not take the place of an input of the same kernel.
Offsets are assigned one storage after the other, each to the tightest gap that is free during its lifetime, all multiples of `ALIGNMENT`:
largest first, or those first that take most over their lifetime, whichever needs less. Scratch memory of kernels takes part with a
lifetime of one node.

An output never takes the place of an input that is read for the last time. In nine models that saved 1.2 MiB at most (ConvNeXt, of 8.0,
next to 109 MiB of weights) and nothing in five, and every such kernel would have to be proven to read an element before it writes there.

`planned` expects every output of the graph to be the storage of a kernel's output (pass `copy_outputs` sees to it), and values in another
layout than row-major to lie in memory that begins at a multiple of `ALIGNMENT`, which that of the caller need not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from tensorlang.diagnostics import InternalError
from tensorlang.graph.edit import is_stored_in_order, reads, size_bytes, writes
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Part, Value, View

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Input:
    position: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    position: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Constant:
    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Arena:
    offset: int


Place: TypeAlias = Input | Output | Constant | Arena
BytesOf: TypeAlias = Callable[[Value], int]


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes needed during [first, last]."""

    name: str
    size_bytes: int
    first: int
    last: int

    def overlaps(self, other: Storage) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Plan:
    """`places` holds every value of the graph, `workspaces` the arena offset of the scratch memory of each kernel and loop, `bodies` the
    plan of each loop's body, whose arena lies there (`LoopMemory`)."""

    arena_bytes: int
    places: dict[str, Place]
    workspaces: dict[str, int]
    bodies: dict[str, Plan] = field(default_factory=dict)


def planned(graph: Graph, workspaces: Mapping[str, int] | None = None, bytes_of: BytesOf = size_bytes) -> Plan:
    """Return where each value lives; `workspaces[node]` is the scratch memory a kernel asks for, in bytes. `bytes_of`: how much room a
    value is to have, at least what it takes; of open sizes, offsets of parts are formulas."""
    placements = placements_of(graph)
    roots = {name: placement.root for name, placement in placements.items()}
    fixed: dict[str, Place] = {name: Constant(name) for name in graph.constants}
    fixed |= {name: Input(k) for k, name in enumerate(graph.inputs)}
    for k, name in enumerate(graph.outputs):
        if roots[name] in fixed or size_bytes(graph.values[roots[name]]) != size_bytes(graph.values[name]):
            raise InternalError("plan", f"output `{name}` is not the result of a kernel of its own")
        fixed[roots[name]] = Output(k)
    scratch = {name: size for name, size in (workspaces or {}).items() if size > 0}
    moving = [*lifetimes(graph, roots, fixed, bytes_of), *scratch_storages(graph, scratch)]
    offsets = assign(moving)
    places = {name: _within(fixed[h.root] if h.root in fixed else Arena(offsets[h.root]), h) for name, h in placements.items()}
    for name, place in places.items():
        if not is_stored_in_order(graph.values[name]) and isinstance(place, Input | Output):
            raise InternalError("plan", f"`{name}` is not row-major and lies in memory of the caller, which may begin anywhere")
    return Plan(aligned(arena_bytes(moving, offsets)), places, {name: offsets[f"scratch of {name}"] for name in scratch})


def planned_with_bodies(graph: Graph, scratch: Iterator[int], bytes_of: BytesOf = size_bytes) -> Plan:
    """Return where each value lives, in the bodies of loops too; `scratch` yields the scratch memory that each kernel asks for, in bytes,
    in the order of `steps_of`. `bytes_of` is as in `planned`."""
    needed: dict[str, int] = {}
    bodies: dict[str, Plan] = {}
    for node in graph.nodes:
        if isinstance(node, Kernel):
            needed[node.name] = next(scratch)
        elif isinstance(node, Loop):
            bodies[node.name] = planned_with_bodies(node.body, scratch, bytes_of)
            needed[node.name] = loop_memory(graph, node, bytes_of).arena + bodies[node.name].arena_bytes
    return replace(planned(graph, needed, bytes_of), bodies=bodies)


@dataclass(frozen=True, slots=True)
class LoopMemory:
    """Where things are in the scratch memory of a loop: the number of the turn, whether another one follows, memory for each of the values
    that are carried, beside that of the result, and the arena of the body."""

    iteration: int
    next_condition: int
    carried: tuple[int, ...]
    arena: int


def loop_memory(graph: Graph, loop: Loop, bytes_of: BytesOf = size_bytes) -> LoopMemory:
    """Return where things are in the scratch memory of a loop of a graph. `bytes_of` is as in `planned`."""
    carried, end = list[int](), ALIGNMENT
    for name in loop.initial:
        carried.append(end)
        end += aligned(bytes_of(graph.values[name]))
    return LoopMemory(0, ALIGNMENT // 2, tuple(carried), end)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where in the memory of another value (or its own) a value starts, in bytes."""

    root: str
    offset: int = 0


def storages(graph: Graph) -> dict[str, str]:
    """Return for each value the value whose memory it shares: itself, or what its views and joins lead to."""
    return {name: placement.root for name, placement in placements_of(graph).items()}


def placements_of(graph: Graph) -> dict[str, Placement]:
    """Return for each value whose memory it lies in, and where: a view begins where its input does, a part somewhere in it; what is joined
    to another value lies in that one."""
    owner: dict[str, Placement] = {}
    for node in graph.nodes:
        match node:
            case View():
                owner[node.output] = Placement(node.input)
            case Join():
                offset = 0
                for k, name in enumerate(node.inputs):
                    start, offset = _start(name, owner), offset if node.starts is None else node.starts[k]
                    if start.root == node.output or size_bytes(graph.values[start.root]) != size_bytes(graph.values[name]):
                        raise InternalError("plan", f"`{name}` has its place already and cannot be joined to `{node.output}`")
                    owner[start.root] = Placement(node.output, offset)
                    offset += size_bytes(graph.values[name])
            case Part():
                owner[node.output] = Placement(node.input, node.start)
            case Kernel() | Extern() | Loop():
                pass
            case _:
                assert_never(node)
    return {name: _start(name, owner) for name in graph.values}


def _start(name: str, owner: dict[str, Placement]) -> Placement:
    """Return where a value begins, and remember it for all that lead there: chains of views are walked once."""
    passed: list[str] = []
    while name in owner:
        passed.append(name)
        name = owner[name].root
    offset = 0
    for value in reversed(passed):
        offset += owner[value].offset
        owner[value] = Placement(name, offset)
    return Placement(name, offset)


def _within(place: Place, placement: Placement) -> Place:
    match place:
        case Arena(offset):
            return Arena(offset + placement.offset)
        case Output(position):
            return Output(position, placement.offset)
        case Input(position):
            return Input(position, placement.offset)
        case Constant(name):
            return Constant(name, placement.offset)
        case _:
            assert_never(place)


def lifetimes(graph: Graph, roots: Mapping[str, str], fixed: Mapping[str, Place], bytes_of: BytesOf = size_bytes) -> list[Storage]:
    """Return the storages that need room in the arena. `bytes_of` is as in `planned`."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        for name in writes(node):
            first.setdefault(roots[name], position)
        for name in (*reads(node), *writes(node)):
            last[roots[name]] = position
    return [
        Storage(root, bytes_of(graph.values[root]), first[root], last[root]) for root in dict.fromkeys(roots.values()) if root not in fixed
    ]


def assign(storages: list[Storage]) -> dict[str, int]:
    """Return an offset for each storage such that those that meet do not overlap."""
    by_size = sorted(storages, key=lambda s: (-s.size_bytes, s.first, s.name))
    by_area = sorted(storages, key=lambda s: (-s.size_bytes * (s.last - s.first + 1), s.first, s.name))
    return min((_in_turn(by_size), _in_turn(by_area)), key=lambda offsets: arena_bytes(storages, offsets))


def arena_bytes(storages: list[Storage], offsets: Mapping[str, int]) -> int:
    """Return where the last storage ends."""
    return max((offsets[s.name] + s.size_bytes for s in storages), default=0)


def _in_turn(storages: list[Storage]) -> dict[str, int]:
    """Return offsets for storages that choose in order, each the tightest gap that those before it leave."""
    offsets: dict[str, int] = {}
    placed = _Lifetimes(1 + max((s.last for s in storages), default=0))
    for storage in storages:
        taken = sorted((offsets[s.name], offsets[s.name] + s.size_bytes) for s in placed.meeting(storage))
        offsets[storage.name] = _tightest(taken, storage.size_bytes)
        placed.add(storage)
    return offsets


class _Lifetimes:
    """Storages by when they live: those that meet another are found without looking at the rest.

    A tree halves the positions. A storage stands at the few nodes that make up its lifetime (`_during`), and at every node that holds its
    first position (`_starting`). What meets [first, last] is what stands over `first`, and what starts later but within."""

    def __init__(self, positions: int) -> None:
        self._leaves = 1 << (positions - 1).bit_length()
        self._during: dict[int, list[Storage]] = {}
        self._starting: dict[int, list[Storage]] = {}

    def add(self, storage: Storage) -> None:
        for node in self._parts(storage.first, storage.last):
            self._during.setdefault(node, []).append(storage)
        for node in self._above(storage.first):
            self._starting.setdefault(node, []).append(storage)

    def meeting(self, storage: Storage) -> Iterator[Storage]:
        for node in self._above(storage.first):
            yield from self._during.get(node, ())
        for node in self._parts(storage.first + 1, storage.last):
            yield from self._starting.get(node, ())

    def _above(self, position: int) -> Iterator[int]:
        node = position + self._leaves
        while node:
            yield node
            node //= 2

    def _parts(self, first: int, last: int) -> Iterator[int]:
        """Yield the largest nodes that together hold exactly the positions from `first` to `last`."""
        low, high = first + self._leaves, last + self._leaves + 1
        while low < high:
            if low % 2:
                yield low
                low += 1
            if high % 2:
                high -= 1
                yield high
            low, high = low // 2, high // 2


def _tightest(taken: list[tuple[int, int]], size: int) -> int:
    """Return the start of the smallest gap between the taken ranges that holds `size` bytes, or the end of them all."""
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, aligned(stop))
    return end if best is None else best[1]


def scratch_storages(graph: Graph, sizes: Mapping[str, int]) -> list[Storage]:
    """Return the storages of the scratch memory of nodes, in the order of the graph."""
    return [Storage(f"scratch of {n.name}", sizes[n.name], k, k) for k, n in enumerate(graph.nodes) if n.name in sizes]


def aligned(size: int) -> int:
    """Return the least multiple of `ALIGNMENT` that holds `size` bytes."""
    return -(-size // ALIGNMENT) * ALIGNMENT
