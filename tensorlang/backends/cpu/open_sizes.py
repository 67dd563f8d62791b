"""A model whose sizes stay open: compiled once, and told its sizes and where values lie for each combination of them.

kernels     programs with sizes, as those of operators (`sized.py`): an argument each, which the entry point hands on
numbers     what the entry point is told besides addresses: sizes, and the offsets of values and scratch memory
at(sizes)   what it is told is evaluated, once for each combination, and nothing is planned or compiled (`told_numbers.py`)

What was compiled before is run without what compiles: that is imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from codegen.llvm.calls import Call, KernelCall, Number, Repetition, Slot
from codegen.llvm.jit import Library
from codegen.llvm.program import Program as Entry
from codegen.llvm.program import code_bits
from codegen.loops.evaluate import evaluate as evaluated
from codegen.loops.nodes import Index, Int
from polyhedral import affine
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu import extern
from tensorlang.backends.cpu.executable import Executable, Parts, linked, workspace_threads
from tensorlang.backends.cpu.loop_slots import LoopSlots, calls_of, loop_bases
from tensorlang.backends.cpu.model import Specialised
from tensorlang.backends.cpu.told_numbers import ToldNumbers
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.diagnostics import CompileError, InternalError
from tensorlang.graph.edit import row_bytes, size_bytes
from tensorlang.graph.known_sizes import graph_at
from tensorlang.graph.nodes import Buffer, Extern, Graph, Kernel, Loop, Value, loops_of, steps_of
from tensorlang.graph.plan import Arena, BytesOf, Constant, Input, LoopMemory, Output, Plan, loop_memory, planned_with_bodies
from tensorlang.graph.sizes import Symbols
from tensorlang.room import check_room
from tensorlang.runtime.bundle import BundleKey, Draft
from tensorlang.runtime.constants import Places, Weights, in_memory, places_of, weights_of, without_constants
from tensorlang.runtime.protocol import Progress

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """What a number is: a `size` by its name; of a `value` the offset in the arena or in what it is a part of, the `bytes` that it takes,
    those of a `row`, how many `rows` it has; of a kernel or loop the offset of its `scratch` memory, and in that of a loop, of the number
    of the `iteration`, of the `next_condition`, of the second block of what is `carried`. `path`: the loops around it."""

    kind: Literal["size", "value", "bytes", "row", "rows", "scratch", "iteration", "next_condition", "carried"]
    name: str
    path: tuple[str, ...] = ()
    index: int = 0


@dataclass(frozen=True, slots=True)
class Workspace:
    """The scratch memory of a kernel: bytes that all threads share, bytes of each, for how many threads. `sizes`: what the names in these
    are among the symbols of the graph."""

    shared: Index
    private: Index
    threads: int
    sizes: tuple[tuple[str, str], ...]

    def at(self, sizes: Mapping[str, int]) -> int:
        known = {name: sizes[symbol] for name, symbol in self.sizes}
        return evaluated(self.shared, known) + self.threads * evaluated(self.private, known)


@dataclass(frozen=True, slots=True, eq=False)
class OpenParts:
    """All that such a model needs but its loaded code: plain data. The plan of `parts` is that for the samples."""

    parts: Parts
    told: tuple[Told, ...]
    workspaces: tuple[Workspace | None, ...]
    """The scratch memory of each kernel, None where it needs none."""
    buffers: tuple[Buffer, ...] = ()
    """The inputs that share memory with outputs."""

    @property
    def symbols(self) -> Symbols:
        found = self.parts.graph.symbols
        assert found is not None, "a graph of open sizes has symbols"
        return found

    def values(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the values of all symbols, those of products among them."""
        return self.symbols.with_products({name: sizes[name] for name in self.symbols.samples})

    def planned_for(self, graph: Graph, values: Mapping[str, int]) -> Plan:
        """Return where the values of a graph of known sizes lie."""
        return planned_with_bodies(graph, (0 if space is None else space.at(values) for space in self.workspaces))

    def numbers(self, graph: Graph, plan: Plan, values: Mapping[str, int], bytes_of: BytesOf = size_bytes) -> tuple[int, ...]:
        """Return what the entry point is told where a graph, whose symbols have these values, is planned so. `bytes_of` is as in
        `tensorlang.graph.plan.planned`."""
        around = _frame(graph, plan, bytes_of)
        return tuple(_number(told, values, (around,)) for told in self.told)


@dataclass(frozen=True, slots=True, eq=False)
class OpenExecutable:
    """A model compiled for open sizes (`tensorlang.runtime.protocol.OpenRuns`)."""

    made: OpenParts
    library: Library
    toolchain: Toolchain
    numbers: ToldNumbers | None
    _last: dict[tuple[int, ...], Specialised] = field(default_factory=dict)
    """What was made last, by the sizes that anything of it depends on."""

    @property
    def inputs(self) -> tuple[Value, ...]:
        graph = self.made.parts.graph
        return tuple(graph.values[name] for name in graph.inputs)

    @property
    def kernels(self) -> int:
        return len(self.made.parts.kernels)

    @property
    def symbols(self) -> Symbols:
        return self.made.symbols

    def at(self, sizes: Mapping[str, int]) -> Specialised:
        values = self.made.values(sizes)
        key = tuple(values.values()) if self.numbers is None else self.numbers.key(values)
        found = self._last.get(key)
        if found is None:
            arena, numbers = self._told(values) if self.numbers is None else self.numbers.at(values)
            bound = replace(self.made.parts, arena=arena, numbers=numbers, sizes=values)
            found = Specialised(Executable(bound, self.library, self.toolchain))
            self._last.clear()
            self._last[key] = found
        return found

    def _told(self, values: Mapping[str, int]) -> tuple[int, tuple[int, ...]]:
        """Return the bytes of an arena that is planned anew, and what the entry point is told."""
        graph = graph_at(self.made.parts.graph, values)
        for value in graph.values.values():
            check_room(graph.name, size_bytes(value))
        plan = self.made.planned_for(graph, values)
        return plan.arena_bytes, self.made.numbers(graph, plan, values)

    @property
    def outputs(self) -> tuple[Value, ...]:
        parts = self.made.parts
        return tuple(replace(parts.graph.values[v], name=name) for v, name in zip(parts.graph.outputs, parts.names, strict=True))

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return self.made.buffers

    def bound(self, most: Mapping[str, int], inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[Mapping[str, int]], None]:
        from tensorlang.backends.cpu.bounded import bound

        return bound(self, most, inputs, outputs)


def open_executable(made: OpenParts, toolchain: Toolchain) -> OpenExecutable:
    """Return parts made now or by another process, loaded."""
    return OpenExecutable(made, linked(made.parts, toolchain), toolchain, ToldNumbers.of(made))


def built_open(loaded: Graph, toolchain: Toolchain, progress: Progress, key: BundleKey | None, shared: Mapping[str, str]) -> OpenExecutable:
    """Return an imported graph of open sizes compiled, and keep it under `key` where that is given. `shared[output]` is the input in whose
    memory an output is to lie, behind it."""
    from tensorlang.graph.passes.memory.append_in_place import append_in_place
    from tensorlang.graph.verify import verify
    from tensorlang.runtime.jobs import optimised

    outputs, graph = loaded.outputs, optimised(loaded, toolchain)
    if shared:
        of_graph = {graph.outputs[outputs.index(name)]: name for name in shared}
        graph, buffers = append_in_place(graph, {name: shared[of_graph[name]] for name in of_graph})
        made = built_parts(verify(graph, "append_in_place"), toolchain, progress, outputs, in_memory)
        return open_executable(replace(made, buffers=tuple(replace(b, output=of_graph[b.output]) for b in buffers)), toolchain)
    if key is None:
        return open_executable(built_parts(graph, toolchain, progress, outputs, in_memory), toolchain)
    with Draft(key, toolchain.store) as draft:
        made = built_parts(graph, toolchain, progress, outputs, draft.place)
        draft.finish(replace(made, parts=replace(made.parts, constants=np.empty(0, np.uint8))))
    return open_executable(made, toolchain)


def built_parts(
    graph: Graph, toolchain: Toolchain, progress: Progress, names: Sequence[str], place: Callable[[Weights, Places], Array]
) -> OpenParts:
    """Return a graph of open sizes that went through the pipeline, compiled. `names`: what the model calls its outputs; `place` puts the
    constants into one block."""
    places = places_of(graph)
    made = _parts(without_constants(graph), toolchain, progress, places)
    block = place(weights_of(graph), places)
    return replace(made, parts=replace(made.parts, constants=block, names=tuple(names)))


def _parts(graph: Graph, toolchain: Toolchain, progress: Progress, places: Places) -> OpenParts:
    assert graph.symbols is not None, "a graph of open sizes has symbols"
    steps = tuple(steps_of(graph))
    kernels = tuple((owner, node) for owner, node in steps if isinstance(node, Kernel))
    try:
        compiled = _compiled(kernels, toolchain, progress, bounded=False)
    except CompileError:  # what is read may be there only as far as limits of sizes say
        compiled = _compiled(kernels, toolchain, progress, bounded=True)
    artifacts = tuple(one.artifact for one in compiled)
    sizes = graph.symbols.with_products(graph.symbols.samples)
    spaces = tuple(_workspace(one, toolchain.pool_threads) for one in compiled)
    plan = planned_with_bodies(graph_at(graph, sizes), (0 if space is None else max(1, space.at(sizes)) for space in spaces))
    outputs, inputs = len(graph.outputs), len(graph.inputs)
    numbers = _Numbers(outputs + inputs + 1, lambda node: extern.symbol_of(node.call, len(steps), toolchain.target))
    table = _Table(
        graph,
        plan,
        places,
        tuple(map(Slot, range(outputs))),
        tuple(map(Slot, range(outputs, outputs + inputs))),
        Slot(outputs + inputs),
        numbers,
    )
    if any(len(artifact.requirements) >> code_bits(len(steps)) for artifact in artifacts):
        raise InternalError("link", f"a kernel of {len(steps)} checks more than what its result has bits for")
    entry = Entry(numbers.finished(table.calls(iter(zip(compiled, spaces, strict=True)))), threads=toolchain.threads)
    parts = Parts(graph, plan, tuple(node for _, node in kernels), artifacts, np.empty(0, np.uint8), entry, graph.outputs)
    return OpenParts(parts, tuple(numbers.told), spaces)


@dataclass(frozen=True, slots=True)
class _Made:
    """A compiled kernel; `sizes`: the symbols that it is told the values of, in the order of the artifact's own."""

    artifact: Artifact
    sizes: tuple[str, ...]


def _compiled(kernels: Sequence[tuple[Graph, Kernel]], toolchain: Toolchain, progress: Progress, bounded: bool) -> Sequence[_Made]:
    """Return the kernels, compiled, equal ones once."""
    from tensorlang.runtime.jobs import distinct, job_of

    every = [job_of(owner, node, bounded) for owner, node in kernels]
    jobs, positions = distinct(every)
    made = toolchain.compile(jobs, progress)
    shared = [(job.program.sizes, jobs[position].program.sizes, made[position]) for job, position in zip(every, positions, strict=True)]
    return [_Made(artifact.told_as(dict(zip(names, sizes, strict=True))), sizes) for sizes, names, artifact in shared]


def _told_sizes(node: Extern, symbols: Symbols) -> tuple[int | str, ...]:
    """Return what a kernel that is not in the language is told with each call: numbers, and symbols of sizes."""
    known = ((size, affine.constant(size)) for size in extern.open_sizes(node.call))
    return tuple(symbols.name_of(size) if number is None else number for size, number in known)


def _workspace(made: _Made, most: int | None) -> Workspace | None:
    """Return the scratch memory that a kernel needs where a pool has `most` threads, None for none."""
    if made.artifact.scratch == (Int(0), Int(0)):
        return None
    shared, private = made.artifact.scratch
    return Workspace(shared, private, workspace_threads(made.artifact, most), tuple(zip(made.artifact.sizes, made.sizes, strict=True)))


@dataclass(frozen=True, slots=True)
class _Frame:
    """A graph with its plan. Of each loop, `memory` tells where things are in its scratch memory, `bodies` what it runs."""

    graph: Graph
    plan: Plan
    loops: Mapping[str, Loop]
    memory: Mapping[str, LoopMemory]
    bodies: Mapping[str, _Frame]


Frames: TypeAlias = tuple[_Frame, ...]
"""A graph, and the bodies of loops, one in the other."""


def _frame(graph: Graph, plan: Plan, bytes_of: BytesOf) -> _Frame:
    loops = {loop.name: loop for loop in loops_of(graph)}
    memory = {name: loop_memory(graph, loop, bytes_of) for name, loop in loops.items()}
    return _Frame(graph, plan, loops, memory, {name: _frame(loop.body, plan.bodies[name], bytes_of) for name, loop in loops.items()})


def _number(told: Told, sizes: Mapping[str, int], frames: Frames) -> int:
    """Return a number for these sizes."""
    for name in told.path:
        frames = (*frames, frames[-1].bodies[name])
    graph, plan = frames[-1].graph, frames[-1].plan
    match told.kind:
        case "size":
            return sizes[told.name]
        case "value":
            return _offset(told.name, told.path, frames)
        case "bytes":
            return size_bytes(graph.values[told.name])
        case "row":
            return row_bytes(graph.values[told.name])
        case "rows":
            return graph.values[told.name].shape[0]
        case "scratch":
            return _start(told.path, frames) + plan.workspaces.get(told.name, 0)
    memory = frames[-1].memory[told.name]
    within = {"iteration": memory.iteration, "next_condition": memory.next_condition}.get(told.kind)
    return _start(told.path, frames) + plan.workspaces[told.name] + (memory.carried[told.index] if within is None else within)


def _start(path: tuple[str, ...], frames: Frames) -> int:
    """Return where the arena of the innermost graph begins in that of the outermost."""
    return sum(frame.plan.workspaces[name] + frame.memory[name].arena for name, frame in zip(path, frames, strict=False))


def _offset(value: str, path: tuple[str, ...], frames: Frames) -> int:
    """Return where a value lies in the arena, or in what it is a part of."""
    place = frames[-1].plan.places[value]
    match place:
        case Arena(offset):
            return _start(path, frames) + offset
        case Input() | Output() if path:
            return place.offset + _outside(place, path, frames[:-1])
        case _:
            return place.offset


def _outside(place: Input | Output, path: tuple[str, ...], around: Frames) -> int:
    """Return where what is an input or output of a loop's body lies outside of it, in the arena or in what it is a part of there."""
    loop, memory = around[-1].loops[path[-1]], around[-1].memory[path[-1]]
    start = _start(path[:-1], around) + around[-1].plan.workspaces[loop.name]
    own = len(loop.body.inputs) - len(loop.captured)
    match place:
        case Input(0):
            return start + memory.iteration
        case Input(position) if position >= own:
            return _offset(loop.captured[position - own], path[:-1], around)
        case Output(0) if loop.asks:
            return start + memory.next_condition
        case _:
            return 0  # its base is told in each turn


class _Numbers:
    """The numbers of an entry point as they are asked for, behind `first` bases. The arena stands behind them all, and behind that what
    turns of loops are told: their slots have negative bases until all numbers are known."""

    def __init__(self, first: int, symbol: Callable[[Extern], str]) -> None:
        self.told: dict[Told, int] = {}
        """By each number its position among them."""
        self.symbol = symbol
        self._first = first

    def number(self, told: Told) -> Number:
        return Number(self._first + self.told.setdefault(told, len(self.told)))

    def finished(self, calls: Sequence[Call]) -> tuple[Call, ...]:
        """Return the calls with the bases that are behind all numbers."""
        return tuple(map(self._finished, calls))

    def _finished(self, call: Call) -> Call:
        if isinstance(call, KernelCall):
            return replace(call, buffers=tuple(map(self._placed, call.buffers)), workspace=self._placed_or_none(call.workspace))
        return replace(
            call,
            calls=self.finished(call.calls),
            first_base=self._base(call.first_base),
            iteration=self._placed(call.iteration),
            trip_count=self._placed(call.trip_count),
            limit=self._placed_or_none(call.limit),
            condition=self._placed_or_none(call.condition),
            next_condition=self._placed_or_none(call.next_condition),
            carried=tuple(
                replace(c, initial=self._placed(c.initial), result=self._placed(c.result), scratch=self._placed(c.scratch))
                for c in call.carried
            ),
            rows=tuple(replace(rows, whole=self._placed(rows.whole)) for rows in call.rows),
        )

    def _placed(self, slot: Slot) -> Slot:
        return replace(slot, base=self._base(slot.base))

    def _placed_or_none(self, slot: Slot | None) -> Slot | None:
        return None if slot is None else self._placed(slot)

    def _base(self, base: int) -> int:
        return self._first + len(self.told) - 1 - base if base < 0 else base


_ARENA = -1


@dataclass(frozen=True, slots=True)
class _Table:
    """The slots of a graph, or of the body of a loop, whose numbers are told."""

    graph: Graph
    plan: Plan
    constants: Places
    outputs: tuple[Slot, ...]
    inputs: tuple[Slot, ...]
    block: Slot
    numbers: _Numbers
    path: tuple[str, ...] = ()
    next_base: int = _ARENA - 1

    def calls(self, made: Iterator[tuple[_Made, Workspace | None]]) -> tuple[Call, ...]:
        """Return the calls of the graph; `made` yields its kernels, and the scratch memory of each."""
        return calls_of(self.graph, lambda node: self.call(node, *next(made)), self.extern, lambda node: self.repetition(node, made))

    def call(self, node: Kernel, made: _Made, space: Workspace | None) -> KernelCall:
        names = (*(p.name for p in node.program.params), *node.program.results)
        bound = dict(zip(names, (*node.inputs, *node.outputs), strict=True))
        workspace = None if space is None else self.told_slot("scratch", node.name)
        buffers = tuple(self.value(bound[name]) for name in made.artifact.params)
        return KernelCall(made.artifact.symbol, buffers, tuple(map(self.size, made.sizes)), workspace)

    def extern(self, node: Extern) -> KernelCall:
        """Return the call of a kernel that is not in the language: results first, then the sizes that it is told with each call."""
        assert self.graph.symbols is not None, "a graph of open sizes has symbols"
        sizes = _told_sizes(node, self.graph.symbols)
        buffers = tuple(map(self.value, (*node.outputs, *node.inputs)))
        return KernelCall(self.numbers.symbol(node), buffers, tuple(size if isinstance(size, int) else self.size(size) for size in sizes))

    def repetition(self, node: Loop, made: Iterator[tuple[_Made, Workspace | None]]) -> Repetition:
        """Return the calls of a loop, which run again and again."""
        loop = LoopSlots(
            self.value,
            self.told_slot("iteration", node.name),
            self.told_slot("next_condition", node.name) if node.asks else None,
            tuple(self.told_slot("carried", node.name, k) for k in range(node.carried)),
            lambda name: self.amount("bytes", name),
            lambda name: self.amount("row", name),
            lambda name: self.amount("rows", name),
        )
        bases = tuple(Slot(self.next_base - k) for k in range(loop_bases(node)))
        outputs, inputs = loop.of_body(node, bases)
        body = replace(
            self,
            graph=node.body,
            plan=self.plan.bodies[node.name],
            constants=self.constants.bodies[node.name],
            outputs=outputs,
            inputs=inputs,
            path=(*self.path, node.name),
            next_base=self.next_base - len(bases),
        )
        return loop.repetition(node, body.calls(made), self.next_base)

    def size(self, name: str) -> Number:
        return self.numbers.number(Told("size", name))

    def amount(self, kind: Literal["bytes", "row", "rows"], name: str) -> Number:
        return self.numbers.number(Told(kind, name, self.path))

    def told_slot(self, kind: Literal["value", "scratch", "iteration", "next_condition", "carried"], name: str, index: int = 0) -> Slot:
        return Slot(_ARENA, shift=self.numbers.number(Told(kind, name, self.path, index)))

    def value(self, name: str) -> Slot:
        place = self.plan.places[name]
        match place:
            case Constant(constant, offset):
                return replace(self.block, offset=self.constants.offsets[constant] + offset)
            case Arena():
                return self.told_slot("value", name)
            case Output(position, _):
                return self._within(self.outputs[position], name)
            case Input(position, _):
                return self._within(self.inputs[position], name)

    def _within(self, whole: Slot, name: str) -> Slot:
        """Return the slot of a value in the memory of an input or output: where a part begins is told."""
        if name in self.graph.inputs or name in self.graph.outputs:
            return whole
        return replace(whole, shift=self.numbers.number(Told("value", name, self.path)))
