"""A graph made native: its kernels compiled and linked behind one entry point, its constants in place, one arena.

    bases    outputs, inputs, constants, arena: the addresses that the entry point is called with
    slots    every buffer of every kernel is one of the bases plus an offset, known when the entry point is compiled

Values in between live in the arena, which belongs to the calling thread: several threads may run one executable at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from codegen.llvm import pool
from codegen.llvm.cache import Cache, cache_key
from codegen.llvm.call import Callable as Native
from codegen.llvm.call import Port
from codegen.llvm.jit import Library, compile_object, load
from codegen.llvm.program import KernelCall, Slot, emit_program, failed_call
from codegen.llvm.program import Program as Entry
from codegen.llvm.target import Target
from tensorlang.diagnostics import Diagnostic, InternalError, RunError
from tensorlang.driver import Artifact, Rules
from tensorlang.graph.edit import members
from tensorlang.graph.nodes import Graph, Kernel, Value
from tensorlang.graph.passes.layout import Wishes, layouts_of
from tensorlang.graph.passes.winograd import Tiles
from tensorlang.graph.plan import Arena, Constant, Input, Output, Place, Plan, planned
from tensorlang.graph.programs import program_key
from tensorlang.runtime.constants import Places, aligned_block, in_memory, places_of
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import Program

Array = np.ndarray[Any, Any]
Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


def quiet(what: str, done: int, total: int) -> None:
    """Do nothing with progress."""


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel to compile: its program, the layouts of its buffers, which parameters are constants, and the schedules to choose from."""

    program: Program
    layouts: Mapping[str, Layout]
    constants: frozenset[str]
    rules: Rules | None = None


@dataclass(frozen=True, slots=True)
class Toolchain:
    """How kernels become native code. `wishes` tells the layout pass what kernels would like, `tiles` which convolutions to compute by
    minimal filtering; none without `winograd`."""

    target: Target
    threads: int
    store: Cache | None
    compile: Callable[[Sequence[Job], Progress], Sequence[Artifact]]
    wishes: Wishes
    tiles: Tiles
    winograd: bool = True


def workspace_threads(artifact: Artifact) -> int:
    """Return for how many threads a kernel needs scratch memory: all that the pool may use when anything in it runs in parallel."""
    return pool.available_threads() if " parallel" in artifact.loops else 1


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Everything a model needs to run but its loaded code: plain data. The graph has no constants any more, they are in the block."""

    graph: Graph
    plan: Plan
    kernels: tuple[Kernel, ...]
    artifacts: tuple[Artifact, ...]
    """For each kernel in the order of execution; equal kernels share one."""
    constants: Array
    entry: Entry
    names: tuple[str, ...]
    """What the model calls its outputs; the graph may return a copy under another name."""


@dataclass(frozen=True, slots=True, eq=False)
class Executable:
    """Ready to run: `call(*inputs)` returns the outputs, an array or a tuple of arrays."""

    parts: Parts
    call: Native
    library: Library
    toolchain: Toolchain

    @property
    def graph(self) -> Graph:
        return self.parts.graph

    @property
    def plan(self) -> Plan:
        return self.parts.plan

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.parts.kernels

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return self.parts.artifacts

    @property
    def constants(self) -> Array:
        return self.parts.constants

    @property
    def entry(self) -> Entry:
        return self.parts.entry

    def __call__(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Return the outputs for inputs of the right dtypes and shapes. Raises RunError (R0306) when a kernel refuses its data."""
        found = self.call(*inputs)
        return found if isinstance(found, tuple) else (found,)


def build(
    graph: Graph,
    toolchain: Toolchain,
    progress: Progress = quiet,
    names: Sequence[str] | None = None,
    place: Callable[[Graph, Places], Array] = in_memory,
) -> Executable:
    """Return a graph that went through the pipeline as an executable. Kernels with equal programs are compiled once. `names`: what the
    model calls the outputs, when that differs; `place` puts the constants into one block, while the kernels are compiled."""
    places = places_of(graph)
    with ThreadPoolExecutor(1) as beside:
        block = beside.submit(place, graph, places)
        parts = _parts(graph, toolchain, progress, places)
        return assembled(replace(parts, constants=block.result(), names=tuple(names or graph.outputs)), toolchain)


def _parts(graph: Graph, toolchain: Toolchain, progress: Progress, places: Places) -> Parts:
    """Return the compiled kernels and the plan of a graph, without its constants."""
    kernels = tuple(node for node in graph.nodes if isinstance(node, Kernel))
    artifacts = _compiled(graph, kernels, toolchain, progress)
    scratch = {node.name: made.workspace_bytes(workspace_threads(made)) for node, made in zip(kernels, artifacts, strict=True)}
    plan = planned(graph, scratch)
    slots = _Slots(graph, plan, places.offsets)
    calls = tuple(slots.call(node, made) for node, made in zip(kernels, artifacts, strict=True))
    entry = Entry(calls, threads=toolchain.threads)
    return Parts(replace(graph, constants={}), plan, kernels, artifacts, np.empty(0, np.uint8), entry, graph.outputs)


def assembled(parts: Parts, toolchain: Toolchain) -> Executable:
    """Return the executable of parts made now or by another process: objects linked, the entry point ready to call."""
    graph, kernels, artifacts = parts.graph, parts.kernels, parts.artifacts
    library = _linked(parts.entry, artifacts, toolchain)
    native = Native(
        library.address(parts.entry.name),
        [_port(graph.values[name], name) for name in graph.inputs],
        [_port(graph.values[value], name) for value, name in zip(graph.outputs, parts.names, strict=True)],
        constants=(parts.constants,),
        scratch_bytes=parts.plan.arena_bytes,
        failure=lambda code: refusal(kernels, artifacts, code),
    )
    return Executable(parts, native, library, toolchain)


def timed(executable: Executable, inputs: Sequence[Array]) -> list[float]:
    """Run once and return the seconds each kernel took."""
    graph, toolchain = executable.graph, executable.toolchain
    text = emit_program(executable.entry, toolchain.target, timed=True)
    library = load([object_of(text, toolchain), *_objects(executable.artifacts)], pool.pool_imports())
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address(f"{executable.entry.name}_timed"))
    outputs = [np.empty(graph.values[name].shape, graph.values[name].dtype.numpy) for name in graph.outputs]
    arena = aligned_block(executable.plan.arena_bytes)
    bases = np.array([a.ctypes.data for a in (*outputs, *inputs, executable.constants, arena)], np.uint64)
    times = np.zeros(max(1, len(executable.kernels)), np.int64)
    best = np.full(len(times), np.inf)
    for _ in range(5):
        code = run(bases.ctypes.data, times.ctypes.data)
        if code:
            raise refusal(executable.kernels, executable.artifacts, code)
        best = np.minimum(best, times)
    return [float(t) * 1e-9 for t in best[: len(executable.kernels)]]


def refusal(kernels: Sequence[Kernel], artifacts: Sequence[Artifact], result: int) -> RunError:
    """Return the error for a run that stopped with `result`."""
    number, code = failed_call(result)
    node, requirements = kernels[number], artifacts[number].requirements
    what = requirements[code - 1].text if 0 < code <= len(requirements) else f"check {code} of its program failed"
    notes = (what, f"it computes {', '.join(f'`{name}`' for name in members(node))}")
    return RunError(Diagnostic("R0306", "a value in the data is out of range", notes=notes))


def job_of(graph: Graph, node: Kernel) -> Job:
    """Return what is to be compiled for a kernel."""
    pairs = zip(node.program.params, node.inputs, strict=True)
    return Job(node.program, layouts_of(graph, node), frozenset(p.name for p, v in pairs if v in graph.constants))


# ---------------------------------------------------------------- kernels, slots, constants


def _compiled(graph: Graph, kernels: Sequence[Kernel], toolchain: Toolchain, progress: Progress) -> tuple[Artifact, ...]:
    jobs: dict[str, Job] = {}
    keys: list[str] = []
    for node in kernels:
        job = job_of(graph, node)
        keys.append(repr((program_key(job.program), sorted(job.layouts.items(), key=lambda item: item[0]), sorted(job.constants))))
        jobs.setdefault(keys[-1], job)
    made = dict(zip(jobs, toolchain.compile(list(jobs.values()), progress), strict=True))
    return tuple(made[key] for key in keys)


@dataclass(frozen=True, slots=True)
class _Slots:
    """Places as bases and offsets."""

    graph: Graph
    plan: Plan
    constants: Mapping[str, int]

    def call(self, node: Kernel, artifact: Artifact) -> KernelCall:
        names = (*(p.name for p in node.program.params), *node.program.results)
        bound = dict(zip(names, (*node.inputs, *node.outputs), strict=True))
        unknown = [name for name in artifact.params if name not in bound]
        if unknown or artifact.sizes:
            raise InternalError(
                "link", f"kernel `{node.name}` has the buffers {unknown} and sizes {artifact.sizes} that nothing is bound to"
            )
        scratch = self.plan.workspaces.get(node.name)
        workspace = None if scratch is None else self.slot(Arena(scratch))
        return KernelCall(artifact.symbol, tuple(self.slot(self.plan.places[bound[name]]) for name in artifact.params), (), workspace)

    def slot(self, place: Place) -> Slot:
        outputs, inputs = len(self.graph.outputs), len(self.graph.inputs)
        match place:
            case Output(position, offset):
                return Slot(position, offset)
            case Input(position):
                return Slot(outputs + position)
            case Constant(name):
                return Slot(outputs + inputs, self.constants[name])
            case Arena(offset):
                return Slot(outputs + inputs + 1, offset)


def _port(value: Value, name: str) -> Port:
    return Port(name, value.dtype, value.shape)


def _linked(entry: Entry, artifacts: Sequence[Artifact], toolchain: Toolchain) -> Library:
    return load([object_of(emit_program(entry, toolchain.target), toolchain), *_objects(artifacts)], pool.pool_imports())


def _objects(artifacts: Sequence[Artifact]) -> list[bytes]:
    return list({made.symbol: made.object for made in artifacts}.values())


def object_of(text: str, toolchain: Toolchain) -> bytes:
    """Return the object of an entry point, from the cache when it is there."""
    key = cache_key(("entry", text), toolchain.target)
    found = toolchain.store.get(key) if toolchain.store is not None else None
    if found is None:
        found = compile_object(text, toolchain.target)
        if toolchain.store is not None:
            toolchain.store.put(key, found)
    return found
