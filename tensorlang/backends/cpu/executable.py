"""A graph made native: its kernels linked behind one entry point, its constants in place, one arena.

    bases    outputs, inputs, constants, arena: the addresses that the entry point is called with

Values in between live in the arena, which belongs to the calling thread: several threads may run one executable at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.llvm import pool
from codegen.llvm.call import Callable as Native
from codegen.llvm.call import Port
from codegen.llvm.jit import Library, kept_object, load
from codegen.llvm.program import Program as Entry
from codegen.llvm.program import emit_program, failed_call
from codegen.llvm.target import Target
from codegen.store import Cache
from tensorlang.artifact import Artifact
from tensorlang.diagnostics import Diagnostic, RunError
from tensorlang.graph.blocks import aligned_block
from tensorlang.graph.edit import members
from tensorlang.graph.nodes import Graph, Kernel, Value
from tensorlang.graph.plan import Plan
from tensorlang.graph.precisions import F32, Precision
from tensorlang.runtime.bundle import kept
from tensorlang.runtime.feeds import as_array
from tensorlang.runtime.protocol import Progress
from tensorlang.runtime.work import Roofline
from tensorlang.schedule.layout import Layout
from tensorlang.tensor.nodes import Program
from tensorlang.validation.budget import validation_budget

if TYPE_CHECKING:
    from tensorlang.backends.cpu.model import Specialised
    from tensorlang.backends.cpu.ready import Compiled
    from tensorlang.backends.cpu.sized import Variant
    from tensorlang.graph.options import Options
    from tensorlang.graph.pass_manager import Pipeline
    from tensorlang.planning import Dump, Wanted
    from tensorlang.schedule.plan import Plan as Scheduled

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """How kernels become native code: `compile` takes jobs (of `runtime.build`), `wishes` tells the layout pass what kernels would like,
    `tiles` which convolutions (of `tensor.winograd`) to compute by minimal filtering; none without `winograd`."""

    target: Target
    threads: int
    store: Cache | None
    compile: Callable[[Sequence[Any], Progress], Sequence[Artifact]]
    wishes: Callable[[Graph], Callable[[Kernel], Mapping[str, Layout]]]
    tiles: Callable[[Any], tuple[int, ...] | None]
    winograd: bool = True
    precision: Precision = F32
    """What contractions of models multiply in."""
    made: Callable[[], Toolchain] | None = field(default=None, compare=False, repr=False)
    """Makes the same toolchain in another process."""

    @property
    def options(self) -> tuple[object, ...]:
        """Return all that code of this toolchain depends on besides what it is made from, and whether it has to be validated."""
        return self.target, self.threads, self.winograd, self.precision.used, self.precision.least, bool(validation_budget())

    def __reduce__(self) -> tuple[Callable[[], Toolchain], tuple[()]]:
        if self.made is None:
            raise PicklingError("a toolchain put together from functions cannot be pickled: make one with `toolchain(…)`")
        return self.made, ()

    # What operators and models ask (`tensorlang.runtime.protocol.Tools`). The compiler is imported where something is compiled.

    @property
    def schedules_for(self) -> str:
        return TARGET

    @property
    def on_device(self) -> bool:
        return False

    @property
    def combinations(self) -> int:
        return 64

    @property
    def passes(self) -> Pipeline:
        from tensorlang.graph.pipeline import PROCESSOR

        return PROCESSOR

    @property
    def model_stages(self) -> tuple[str, ...]:
        return ()

    def graph_options(self) -> Options:
        from tensorlang.backends.cpu.build import options_of

        return options_of(self)

    def described(self, value: Any) -> Any:
        return value

    def shape_of(self, value: object, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = as_array(value, name).shape
        return shape

    def check_any_sizes(self) -> None:
        """Sizes may be open."""

    def compiled(self, program: Program, name: str, wanted: Wanted) -> Compiled:
        from tensorlang.backends.cpu.ready import Compiled, native_of

        made = self._kernel(program, wanted, self.store)
        return Compiled(program, made, native_of(program, made, self), self.threads)

    def with_any_sizes(self, program: Program, name: str, wanted: Wanted, sizes: Mapping[str, int]) -> Variant:
        from tensorlang.backends.cpu.sized import variant

        return variant(program, self._kernel(program, wanted, self.store), sizes, self)

    def shown(self, program: Program, name: str, wanted: Wanted, dump: Dump, stages: Sequence[str]) -> Artifact:
        return self._kernel(program, wanted, None, dump)

    def _kernel(self, program: Program, wanted: Wanted, store: Cache | None, dump: Dump | None = None) -> Artifact:
        from tensorlang.backends.cpu.driver import compile_kernel

        return compile_kernel(
            program,
            self.target,
            schedule=wanted.schedule,
            rules=wanted.rules,
            knobs=wanted.knobs,
            threads=self.threads,
            store=store,
            dump=dump,
        )

    def planned(self, program: Program, wanted: Wanted) -> Scheduled:
        from tensorlang.backends.cpu.driver import machine_of, plan_kernel

        machine = machine_of(self.target, self.threads)
        return plan_kernel(program, machine, wanted.schedule, wanted.knobs, rules=wanted.rules).plan

    def roofline(self, programs: Sequence[Program]) -> Roofline:
        from tensorlang.backends.cpu.roofline import roofline_of

        return roofline_of(programs, self.threads)

    def kept(self, key: str, shared: dict[str, Any] | None) -> Specialised | None:
        from tensorlang.backends.cpu.model import specialised

        found = kept(key, self.store)
        if found is None:
            return None
        parts, block = found
        return specialised(assembled(replace(parts, constants=block), self))

    def built(self, loaded: Graph, progress: Progress, key: str | None, shared: dict[str, Any] | None) -> Specialised:
        from tensorlang.backends.cpu.build import built
        from tensorlang.backends.cpu.model import specialised

        return specialised(built(loaded, self, progress, key))


TARGET = "cpu"
"""What schedules for processors are `for`."""


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
    number, code = failed_call(result, len(kernels))
    node, requirements = kernels[number], artifacts[number].requirements
    what = requirements[code - 1].text if 0 < code <= len(requirements) else f"check {code} of its program failed"
    notes = (what, f"it computes {', '.join(f'`{name}`' for name in members(node))}")
    return RunError(Diagnostic("R0306", "a value in the data is out of range", notes=notes))


def _port(value: Value, name: str) -> Port:
    return Port(name, value.dtype, value.shape)


def _linked(entry: Entry, artifacts: Sequence[Artifact], toolchain: Toolchain) -> Library:
    return load([object_of(emit_program(entry, toolchain.target), toolchain), *_objects(artifacts)], pool.pool_imports())


def _objects(artifacts: Sequence[Artifact]) -> list[bytes]:
    return list({made.symbol: made.object for made in artifacts}.values())


def object_of(text: str, toolchain: Toolchain) -> bytes:
    """Return the object of an entry point, from the cache when it is there."""
    return kept_object("entry", text, toolchain.target, toolchain.store)
