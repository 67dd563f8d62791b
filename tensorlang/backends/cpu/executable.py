"""A graph made native: its kernels linked behind one entry point, its constants in place, one arena.

    bases    outputs, inputs, constants, arena: the addresses that the entry point is called with

Values in between live in the arena, which the executables of a model share and one call has at a time: several threads may run them at
once, each with an arena of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from codegen.llvm import pool, pool_trace, signals
from codegen.llvm.call import Callable as Native
from codegen.llvm.call import Port
from codegen.llvm.calls import Slot
from codegen.llvm.jit import Library, kept_object
from codegen.llvm.program import Program as Entry
from codegen.llvm.program import emit_program, failed_call
from codegen.llvm.scratch import Scratch
from codegen.llvm.target import runs_here
from polyhedral.expr import Int
from polyhedral.once import once
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.extern import imports_of, status_error, symbol_of
from tensorlang.backends.cpu.extern import object_of as extern_object
from tensorlang.backends.cpu.loading import failure_on, loaded
from tensorlang.diagnostics import RunError, counted
from tensorlang.graph.blocks import aligned_block
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.known_sizes import graph_at, sized
from tensorlang.graph.nodes import Extern, Graph, Kernel, Loop, Value, steps_of
from tensorlang.graph.plan import ALIGNMENT, Plan
from tensorlang.graph.relayout import restored
from tensorlang.runtime.feeds import row_major
from tensorlang.runtime.out_of_range import of_node, with_element_of_node
from tensorlang.runtime.profile import Profile, profile_of
from tensorlang.runtime.run_trace import RunTrace, ThreadPiece
from tensorlang.tensor.walk import call_at, substitute_sizes

if TYPE_CHECKING:
    from tensorlang.backends.cpu.toolchain import Toolchain

Array = np.ndarray[Any, Any]


def workspace_threads(artifact: Artifact, most: int | None = None) -> int:
    """Return for how many threads a kernel needs scratch memory: all that its pool may use when anything in it runs in parallel. `most`:
    how many these are, None for the pool of this process."""
    return (most or pool.available_threads()) if " parallel" in artifact.loops else 1


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
    numbers: tuple[int, ...] = ()
    """What the entry point is told besides addresses, where sizes are open."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """What the sizes are that the graph and the programs of its kernels leave open."""
    arena: int | None = None
    """The bytes of the arena for these sizes, None for those of the plan."""

    @property
    def arena_bytes(self) -> int:
        return self.plan.arena_bytes if self.arena is None else self.arena


@dataclass(frozen=True, slots=True, eq=False)
class Workers:
    """What a model has of its own to run on (`tensorlang.runtime.protocol.Workers`). `pool`: its threads, None for those that all models
    share; `scratch`: the memory for values in between, at any sizes."""

    pool: pool.Pool | None
    scratch: Scratch

    def entered(self) -> AbstractContextManager[None]:
        return nullcontext() if self.pool is None else self.pool.entered()


@dataclass(frozen=True, eq=False)
class Executable:
    """Parts whose code is loaded. `workers` run its parallel loops, None: those that all models share."""

    parts: Parts
    library: Library
    toolchain: Toolchain
    workers: Workers | None = None

    def on(self, workers: Workers | None) -> Executable:
        """Return the same with other workers: what was returned for them before, as long as anybody has it."""
        found = self._others.get(id(workers))
        if found is None:
            found = self._others[id(workers)] = replace(self, workers=workers)
        return found

    @once
    def _others(self) -> WeakValueDictionary[int, Executable]:
        """Return the same with other workers, by these, which they keep."""
        return WeakValueDictionary()

    @once
    def inputs(self) -> tuple[Value, ...]:
        """Return the inputs at these sizes."""
        graph, sizes = self.parts.graph, self.parts.sizes
        return tuple([sized(graph.values[name], sizes) for name in graph.inputs])

    @once
    def outputs(self) -> tuple[Value, ...]:
        """Return the outputs at these sizes, under the names that the model has for them."""
        graph, sizes = self.parts.graph, self.parts.sizes
        values = [sized(graph.values[value], sizes) for value in graph.outputs]
        return tuple([v if v.name == name else replace(v, name=name) for v, name in zip(values, self.parts.names, strict=True)])

    @once
    def call(self) -> Native:
        """Return the native function of the inputs, which returns the outputs: an array or a tuple of arrays."""
        parts, graph, workers = self.parts, self.parts.graph, self.workers
        return Native(
            self.library.address(parts.entry.name),
            [Port(v.name, v.dtype, v.shape) for v in self.inputs],
            [Port(v.name, v.dtype, v.shape) for v in self.outputs],
            constants=(parts.constants,),
            numbers=parts.numbers,
            scratch_bytes=max(parts.arena_bytes, 1 if parts.numbers else 0),  # which stands behind the numbers
            failure=failure_on(self.toolchain.target, lambda code: refusal(nodes_of(graph), parts.artifacts, code)),
            pool=None if workers is None else workers.pool,
            scratch=None if workers is None else workers.scratch,
        )

    @property
    def graph(self) -> Graph:
        """The graph, its values and kernels of known sizes."""
        return self._sized(graph_at(self.parts.graph, self.parts.sizes)) if self.parts.sizes else self.parts.graph

    def _sized(self, graph: Graph) -> Graph:
        return replace(graph, nodes=tuple(self._known(node) for node in graph.nodes))

    def _known(self, node: Any) -> Any:
        if isinstance(node, Loop):
            return replace(node, body=self._sized(node.body))
        if isinstance(node, Extern):
            here = {name: Int(value) for name, value in self.parts.sizes.items()}
            return replace(node, call=call_at(node.call, here))
        if not isinstance(node, Kernel) or not node.program.sizes:
            return node
        sizes = {name: Int(self.parts.sizes[name]) for name in node.program.sizes}
        return node.of_sizes(substitute_sizes(node.program, sizes))

    @property
    def arena_bytes(self) -> int:
        return self.parts.arena_bytes

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(map(self._known, self.parts.kernels))

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return self.parts.artifacts

    @property
    def steps(self) -> tuple[Kernel | Extern, ...]:
        """What the entry point calls, in order, those of the bodies of loops among them."""
        return tuple(node for _, node in self.placed_steps)

    @property
    def placed_steps(self) -> tuple[tuple[Graph, Kernel | Extern], ...]:
        """The steps, each with the graph that it is a node of."""
        return tuple(steps_of(self.graph))

    @property
    def constants(self) -> Array:
        return self.parts.constants

    @property
    def weights_bytes(self) -> int:
        """How large the block of constants is; where there are none, it is one byte."""
        return self.constants.nbytes // ALIGNMENT * ALIGNMENT

    @property
    def entry(self) -> Entry:
        return self.parts.entry

    def __call__(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Return the outputs for inputs of the right dtypes and shapes. Raises RunError (R0306) when a kernel refuses its data."""
        found = self.call(*inputs)
        return found if isinstance(found, tuple) else (found,)


def assembled(parts: Parts, toolchain: Toolchain) -> Executable:
    """Return the executable of parts made now or by another process: objects linked, the entry point ready to call."""
    return Executable(parts, linked(parts, toolchain), toolchain)


def nodes_of(graph: Graph) -> tuple[Kernel | Extern, ...]:
    """Return what the entry point of a graph calls, in order, those of the bodies of loops among them."""
    return tuple(node for _, node in steps_of(graph))


def externs_of(graph: Graph) -> tuple[Extern, ...]:
    """Return the calls of kernels that are not in the language."""
    return tuple(node for node in nodes_of(graph) if isinstance(node, Extern))


def timed(executable: Executable, inputs: Sequence[Array]) -> tuple[list[float], RunTrace]:
    """Return the seconds that each call takes, those of kernels that are not in the language among them: the least of a few runs; and
    when each was called, and what threads did, in one more."""
    library, run = _traced(executable, inputs)
    best = least_times(run)
    rows, head = pool_trace.traced(library, PIECES)
    return best, _run_trace(run(), pool_trace.pieces(rows, head))


def calls_timer(executable: Executable, inputs: Sequence[Array]) -> Callable[[], Array]:
    """Return what runs a graph once on these inputs and returns the seconds that each call took, in order."""
    library, run = _traced(executable, inputs)

    def seconds(kept: Library = library) -> Array:
        return np.diff(run())[:, 0] * 1e-9

    return seconds


def _traced(executable: Executable, inputs: Sequence[Array]) -> tuple[Library, Callable[[], Array]]:
    library = _loaded(executable.entry, executable.parts.graph, executable.artifacts, executable.toolchain, traced=True)
    return library, executable.call.timed(library.address(f"{executable.entry.name}_timed"), len(executable.steps), inputs)


def least_times(run: Callable[[], Array]) -> list[float]:
    """Return the fewest seconds that each call takes in a few runs, each of which returns when its calls began and ended
    (`codegen.llvm.call.Callable.timed`)."""
    return [float(t) * 1e-9 for t in np.min([np.diff(run())[:, 0] for _ in range(5)], axis=0)]


PIECES = 1 << 16
"""How many pieces of parallel loops a trace holds at most."""


def _run_trace(times: Array, pieces: Sequence[pool_trace.Piece]) -> RunTrace:
    """Return times of the clock as those of a run that begins with its first call."""
    start = int(times[0, 0]) if len(times) else 0
    kernels = tuple(((int(begin) - start) * 1e-9, int(end - begin) * 1e-9) for begin, end in times)
    shares = (ThreadPiece(p.thread, (p.begin - start) * 1e-9, (p.end - p.begin) * 1e-9, p.first, p.last) for p in pieces)
    return RunTrace(kernels, tuple(sorted(shares, key=lambda s: (s.thread, s.start))))


def profiled(executable: Executable, inputs: Sequence[Array]) -> Profile:
    """Run a few times and return the shortest time that each kernel took, and one run as it went."""
    tools = executable.toolchain
    target = f"{tools.name}, {counted(tools.threads, 'thread')}"
    seconds, run = timed(executable, inputs)
    return profile_of(executable.graph.name, target, executable.placed_steps, seconds, run)


def refusal(steps: Sequence[Kernel | Extern], artifacts: Sequence[Artifact], result: int) -> BaseException:
    """Return the error for a run that stopped with `result`; `artifacts` are those of the kernels among the steps."""
    number, code = failed_call(result, len(steps))
    node = steps[number]
    if isinstance(node, Extern):
        return status_error(node.call, code, len(steps))
    return check_failed(steps, artifacts, number, code)


def check_failed(steps: Sequence[Kernel | Extern], artifacts: Sequence[Artifact], number: int, code: int) -> RunError:
    """Return the error for a check of the kernel that is step `number`, which returned `code`."""
    requirements = artifacts[sum(isinstance(step, Kernel) for step in steps[:number])].requirements
    what = requirements[code - 1].text if 0 < code <= len(requirements) else f"check {code} of its program failed"
    node = steps[number]
    assert isinstance(node, Kernel)
    return of_node(node, what)


def with_element(executable: Executable, refused: RunError, inputs: Sequence[Array]) -> RunError:
    """Return R0306 with the element of the data that is at fault, where a run with these inputs meets one: it is run once more on memory
    of its own, which then holds what the kernel read that stopped. `refused` as it is where that is not known."""
    graph, steps = executable.graph, executable.placed_steps
    sizes = [size_bytes(graph.values[name]) for name in graph.outputs]
    numbers = executable.parts.numbers
    memory = [*map(aligned_block, sizes), *(row_major(a) for a in inputs), executable.constants, aligned_block(executable.arena_bytes)]
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(executable.library.address(executable.entry.name))
    words = [a.ctypes.data for a in memory]
    bases = np.array([*words[:-1], *numbers, words[-1]], np.uint64)
    result = run(bases.ctypes.data)
    if not result:
        return refused
    number, _ = failed_call(result, len(steps))
    owner, node = steps[number]
    if isinstance(node, Extern) or owner is not graph:  # what a turn of a loop read is gone
        return refused
    made = executable.artifacts[sum(isinstance(step, Kernel) for _, step in steps[:number])]
    slots = dict(zip(made.params, executable.entry.kernel_calls[number].buffers, strict=False))
    first = len(memory) - 1

    def elements(value: str, slot: Slot) -> Array:
        offset = slot.offset if slot.shift is None else numbers[slot.shift.base - first]
        return _elements(graph.values[value], memory[min(slot.base, first)], offset)

    values = {v: elements(v, slots[p]) for p, v in node.bound.items() if p in slots}
    return with_element_of_node(refused, node, values) if values.keys() >= set(node.inputs) else refused


def _elements(value: Value, memory: Array, offset: int) -> Array:
    """Return the elements of a value that lies in `memory` from a byte on."""
    held = np.frombuffer(memory, np.uint8, size_bytes(value), offset).view(value.dtype.numpy)
    return held.reshape(value.shape) if value.layout is None else restored(held.reshape(value.layout.shape), value.layout, value.shape)


def linked(parts: Parts, toolchain: Toolchain) -> Library:
    """Return the code of parts, loaded."""
    return _loaded(parts.entry, parts.graph, parts.artifacts, toolchain)


def _loaded(entry: Entry, graph: Graph, artifacts: Sequence[Artifact], toolchain: Toolchain, traced: bool = False) -> Library:
    """Return an entry point with all that it calls; `traced`: with its timed form, and what notes the pieces of parallel loops. Raises
    CompileError C0114 to C0116 for kernels that are not to be had."""
    externs, calls = externs_of(graph), len(nodes_of(graph))
    objects = {made.symbol: made.object for made in artifacts}
    for node in externs:
        symbol = symbol_of(node.call, calls, toolchain.target)
        objects.setdefault(symbol, extern_object(node.call, calls, toolchain.target, toolchain.store))
    imports = {**pool.pool_imports(), **imports_of([node.call for node in externs], toolchain.target, toolchain.store)}
    between = []
    if traced:
        imports[pool_trace.UNTRACED] = imports.pop(pool.ENTRY)
        between = [kept_object("pool trace", pool_trace.trace_ir(toolchain.target), toolchain.target, toolchain.store)]
    asks = signals.is_possible() and runs_here(toolchain.target)
    imports |= signals.imports() if asks else {}
    text = emit_program(entry, toolchain.target, timed=traced, asks_signals=asks)
    return loaded([object_of(text, toolchain), *objects.values(), *between], imports, entry.name, toolchain.target)


def object_of(text: str, toolchain: Toolchain) -> bytes:
    """Return the object of an entry point, from the cache when it is there."""
    return kept_object("entry", text, toolchain.target, toolchain.store)
