"""A model whose sizes stay open: compiled once, and told its sizes and where values lie for each combination of them.

kernels     programs with sizes, as those of operators (`sized.py`): an argument each, which the entry point hands on
numbers     what the entry point is told besides addresses: sizes, and the offsets of values and scratch memory
at(sizes)   shapes and the memory plan are evaluated, once for each combination, and nothing is compiled

What was compiled before is run without what compiles: that is imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from codegen.llvm.jit import Library
from codegen.llvm.program import KernelCall, Number, Slot, code_bits
from codegen.llvm.program import Program as Entry
from codegen.llvm.workspace import plan as workspace_plan
from codegen.loops.evaluate import evaluate as evaluated
from codegen.loops.nodes import Index, Int
from polyhedral import affine
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu import extern
from tensorlang.backends.cpu.executable import Parts, bound_to, linked, nodes_of, workspace_threads
from tensorlang.backends.cpu.model import Specialised, specialised
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.diagnostics import CompileError, InternalError
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.nodes import Buffer, Extern, Graph, Join, Kernel, Node, Part, Value
from tensorlang.graph.plan import Arena, Constant, Input, Output, Place, Plan, planned
from tensorlang.graph.sizes import Symbols, evaluate, value_at
from tensorlang.room import check_room
from tensorlang.runtime.bundle import BundleKey, Draft
from tensorlang.runtime.constants import Places, Weights, in_memory, places_of, weights_of, without_constants
from tensorlang.runtime.protocol import Progress

Array = np.ndarray[Any, Any]
Told: TypeAlias = tuple[Literal["size", "value", "scratch"], str]
"""What a number is: a size by its name, the offset of a value in the arena or in what it is a part of, that of scratch memory."""


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
    workspaces: dict[str, Workspace]
    """The scratch memory of kernels that need some."""
    buffers: tuple[Buffer, ...] = ()
    """The inputs that share memory with outputs."""

    @property
    def symbols(self) -> Symbols:
        found = self.parts.graph.symbols
        assert found is not None, "a graph of open sizes has symbols"
        return found

    def values(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the values of all symbols, those of products among them."""
        return all_sizes(self.symbols, {name: sizes[name] for name in self.symbols.samples})

    def planned(self, sizes: Mapping[str, int]) -> Plan:
        """Return where values lie for these sizes."""
        values = self.values(sizes)
        return planned(graph_at(self.parts.graph, values), {name: space.at(values) for name, space in self.workspaces.items()})


@dataclass(frozen=True, slots=True, eq=False)
class OpenExecutable:
    """A model compiled for open sizes (`tensorlang.runtime.protocol.OpenRuns`)."""

    made: OpenParts
    library: Library
    toolchain: Toolchain

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
        parts, values = self.made.parts, self.made.values(sizes)
        graph = graph_at(parts.graph, values)
        for value in graph.values.values():
            check_room(graph.name, size_bytes(value))
        plan = planned(graph, {name: space.at(values) for name, space in self.made.workspaces.items()})
        numbers = tuple(_number(told, values, plan) for told in self.made.told)
        bound = replace(parts, graph=graph, plan=plan, numbers=numbers, sizes=values)
        return specialised(bound_to(bound, self.library, self.toolchain))

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
    return OpenExecutable(made, linked(made.parts, toolchain), toolchain)


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
    kernels, steps = tuple(node for node in graph.nodes if isinstance(node, Kernel)), nodes_of(graph)
    try:
        compiled = _compiled(graph, kernels, toolchain, progress, bounded=False)
    except CompileError:  # what is read may be there only as far as limits of sizes say
        compiled = _compiled(graph, kernels, toolchain, progress, bounded=True)
    artifacts = tuple(one.artifact for one in compiled)
    told_of = {node.name: _told_sizes(node, graph.symbols) for node in steps if isinstance(node, Extern)}
    sizes = all_sizes(graph.symbols, graph.symbols.samples)
    spaces = {node.name: _workspace(one, toolchain.pool_threads) for node, one in zip(kernels, compiled, strict=True)}
    needed = {name: space for name, space in spaces.items() if space is not None}
    plan = planned(graph_at(graph, sizes), dict.fromkeys(needed, 1))
    table = _Table(graph, plan, places.offsets)
    of = {node.name: one for node, one in zip(kernels, compiled, strict=True)}
    calls = tuple(
        table.call(node, of[node.name], needed)
        if isinstance(node, Kernel)
        else table.extern(node, extern.symbol_of(node.call, len(steps), toolchain.target), told_of[node.name])
        for node in steps
    )
    if any(len(artifact.requirements) >> code_bits(len(calls)) for artifact in artifacts):
        raise InternalError("link", f"a kernel of {len(calls)} checks more than what its result has bits for")
    entry = Entry(table.finished(calls), threads=toolchain.threads)
    parts = Parts(graph, plan, kernels, artifacts, np.empty(0, np.uint8), entry, graph.outputs)
    return OpenParts(parts, tuple(table.told), needed)


@dataclass(frozen=True, slots=True)
class _Made:
    """A compiled kernel; `sizes`: the symbols that it is told the values of, in the order of the artifact's own."""

    artifact: Artifact
    sizes: tuple[str, ...]


def _compiled(graph: Graph, kernels: Sequence[Kernel], toolchain: Toolchain, progress: Progress, bounded: bool) -> Sequence[_Made]:
    """Return the kernels, compiled, equal ones once."""
    from tensorlang.runtime.jobs import distinct, job_of

    every = [job_of(graph, node, bounded) for node in kernels]
    jobs, positions = distinct(every)
    made = toolchain.compile(jobs, progress)
    return [_Made(made[position], job.program.sizes) for job, position in zip(every, positions, strict=True)]


def _told_sizes(node: Extern, symbols: Symbols) -> tuple[int | str, ...]:
    """Return what a kernel that is not in the language is told with each call: numbers, and symbols of sizes."""
    known = ((size, affine.constant(size)) for size in extern.open_sizes(node.call))
    return tuple(symbols.name_of(size) if number is None else number for size, number in known)


def _workspace(made: _Made, most: int | None) -> Workspace | None:
    """Return the scratch memory that a kernel needs where a pool has `most` threads, None for none."""
    artifact = made.artifact
    if artifact.scratch_bytes == (0, 0):
        return None
    from codegen.loops.parser import parse

    found = workspace_plan(parse(artifact.loops))
    sizes = tuple(zip(artifact.sizes, made.sizes, strict=True))
    if found.shared_bytes == found.thread_bytes == Int(0):
        return None
    return Workspace(found.shared_bytes, found.thread_bytes, workspace_threads(artifact, most), sizes)


def all_sizes(symbols: Symbols, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the values of all symbols: those of inputs, and what stands for products of them."""
    return {**sizes, **{name: evaluate(formula, sizes) for name, formula in symbols.products.items()}}


def graph_at(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return the graph with the shapes that its values have for these sizes; programs of kernels keep their symbols."""
    values = {
        name: replace(value, shape=tuple(value_at(n, sizes) for n in value.shape), layout=_layout(value, sizes))
        for name, value in graph.values.items()
    }
    return replace(graph, values=values, nodes=tuple(_node_at(node, sizes) for node in graph.nodes))


def _layout(value: Any, sizes: Mapping[str, int]) -> Any:
    return value.layout and replace(value.layout, shape=tuple(value_at(n, sizes) for n in value.layout.shape))


def _node_at(node: Node, sizes: Mapping[str, int]) -> Node:
    match node:
        case Part():
            return replace(node, start=value_at(node.start, sizes))
        case Join(starts=starts) if starts is not None:
            return replace(node, starts=tuple(value_at(start, sizes) for start in starts))
        case _:
            return node


def _number(told: Told, sizes: Mapping[str, int], plan: Plan) -> int:
    match told:
        case "size", name:
            return sizes[name]
        case "value", name:
            place = plan.places[name]
            return place.offset
        case _, name:
            return plan.workspaces.get(name, 0)


class _Table:
    """The numbers of an entry point as they are asked for, and its slots."""

    def __init__(self, graph: Graph, plan: Plan, constants: Mapping[str, int]) -> None:
        self.graph, self.plan, self.constants = graph, plan, constants
        self.told: list[Told] = []
        self._first = len(graph.outputs) + len(graph.inputs) + 1

    def number(self, told: Told) -> Number:
        if told not in self.told:
            self.told.append(told)
        return Number(self._first + self.told.index(told))

    def call(self, node: Kernel, made: _Made, scratch: Mapping[str, object]) -> KernelCall:
        names = (*(p.name for p in node.program.params), *node.program.results)
        bound = dict(zip(names, (*node.inputs, *node.outputs), strict=True))
        workspace = Slot(-1, shift=self.number(("scratch", node.name))) if node.name in scratch else None
        buffers = tuple(self.slot(bound[name], self.plan.places[bound[name]]) for name in made.artifact.params)
        return KernelCall(made.artifact.symbol, buffers, tuple(self.number(("size", size)) for size in made.sizes), workspace)

    def extern(self, node: Extern, symbol: str, sizes: Sequence[int | str]) -> KernelCall:
        """Return the call of a kernel that is not in the language: results first, then the sizes that it is told with each call."""
        buffers = tuple(self.slot(value, self.plan.places[value]) for value in (*node.outputs, *node.inputs))
        return KernelCall(symbol, buffers, tuple(size if isinstance(size, int) else self.number(("size", size)) for size in sizes))

    def slot(self, value: str, place: Place) -> Slot:
        outputs, inputs = len(self.graph.outputs), len(self.graph.inputs)
        match place:
            case Constant(name, offset):
                return Slot(outputs + inputs, self.constants[name] + offset)
            case Arena():
                return Slot(-1, shift=self.number(("value", value)))
            case Output(position, _):
                return self._within(position, value)
            case Input(position, _):
                return self._within(outputs + position, value)

    def _within(self, base: int, value: str) -> Slot:
        """Return the slot of a value in the memory of an input or output: where a part begins is told."""
        whole = value in (*self.graph.inputs, *self.graph.outputs)
        return Slot(base) if whole else Slot(base, shift=self.number(("value", value)))

    def finished(self, calls: Sequence[KernelCall]) -> tuple[KernelCall, ...]:
        """Return the calls with the base of the arena, which stands behind all numbers."""
        arena = self._first + len(self.told)

        def placed(slot: Slot) -> Slot:
            return replace(slot, base=arena) if slot.base < 0 else slot

        return tuple(
            replace(c, buffers=tuple(map(placed, c.buffers)), workspace=None if c.workspace is None else placed(c.workspace)) for c in calls
        )
