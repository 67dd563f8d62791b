"""From a graph to an executable: kernels compiled, values and constants placed, one entry point that calls the kernels in order.

slots    every buffer of every kernel is one of the bases of the entry point plus an offset, known when it is compiled
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from codegen.llvm.calls import Call, KernelCall, Repetition, Slot
from codegen.llvm.program import Program as Entry
from codegen.llvm.program import code_bits
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.driver import machine_of
from tensorlang.backends.cpu.executable import Executable, Parts, assembled, workspace_threads
from tensorlang.backends.cpu.extern import symbol_of
from tensorlang.backends.cpu.loop_slots import LoopSlots, calls_of, loop_bases
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.backends.cpu.validated import check_model
from tensorlang.diagnostics import InternalError
from tensorlang.graph.edit import row_bytes, size_bytes
from tensorlang.graph.nodes import Extern, Graph, Kernel, Loop, steps_of
from tensorlang.graph.options import Options
from tensorlang.graph.plan import Arena, Constant, Input, Output, Place, Plan, loop_memory, planned_with_bodies
from tensorlang.policy.cpu.horizontal_fusion import is_profitable
from tensorlang.policy.cpu.register_tiles import rows_of_blocks
from tensorlang.policy.cpu.row_epilogues import is_row_epilogue_profitable
from tensorlang.policy.cpu.widening import is_widening_profitable
from tensorlang.runtime.bundle import BundleKey, Draft
from tensorlang.runtime.constants import Places, Weights, in_memory, places_of, stripped, weights_of, without_constants
from tensorlang.runtime.jobs import distinct, job_of, optimised
from tensorlang.runtime.protocol import Progress, quiet

Array = np.ndarray[Any, Any]


def built(loaded: Graph, toolchain: Toolchain, progress: Progress, key: BundleKey | None) -> Executable:
    """Return an imported graph compiled, and keep it under `key` where that is given."""
    outputs, graph = loaded.outputs, optimised(loaded, toolchain)
    if key is None:
        executable = build(graph, toolchain, progress, outputs)
        check_model(loaded, graph, executable)
        return executable
    with Draft(key, toolchain.store) as draft:
        executable = build(graph, toolchain, progress, outputs, draft.place)
        check_model(loaded, graph, executable)
        draft.finish(replace(executable.parts, constants=np.empty(0, np.uint8)))
    return executable


def options_of(toolchain: Toolchain) -> Options:
    """Return what a toolchain decides of the passes over graphs."""
    machine = machine_of(toolchain.target, toolchain.threads)
    return Options(
        toolchain.preferred_layouts,
        toolchain.tiles,
        is_fusion_profitable=partial(is_profitable, machine=machine),
        is_epilogue_profitable=partial(is_row_epilogue_profitable, machine=machine),
        is_widening_profitable=partial(is_widening_profitable, machine=machine),
        blocks=partial(rows_of_blocks, machine=machine),
        precision=toolchain.precision,
        near_bytes=machine.l2_bytes,
    )


def build(
    graph: Graph,
    toolchain: Toolchain,
    progress: Progress = quiet,
    names: Sequence[str] | None = None,
    place: Callable[[Weights, Places], Array] = in_memory,
) -> Executable:
    """Return a graph that went through the pipeline as an executable. Kernels with equal programs are compiled once. `names`: what the
    model calls the outputs, when that differs; `place` puts the constants into one block, while the kernels are compiled."""
    places = places_of(graph)
    weights = weights_of(graph)
    with ThreadPoolExecutor(1) as beside:
        block = beside.submit(place, weights, places)
        parts = parts_of(without_constants(graph), toolchain, progress, places)
        return assembled(replace(parts, constants=block.result(), names=tuple(names or graph.outputs)), toolchain)


def parts_of(graph: Graph, toolchain: Toolchain, progress: Progress, places: Places) -> Parts:
    """Return the compiled kernels and the plan of a graph, without its constants."""
    steps = tuple(steps_of(graph))
    kernels = tuple((owner, node) for owner, node in steps if isinstance(node, Kernel))
    jobs, numbers = distinct([job_of(owner, node) for owner, node in kernels])
    made = toolchain.compile(jobs, progress)
    artifacts = tuple(made[number] for number in numbers)
    plan = planned_with_bodies(graph, (made.workspace_bytes(workspace_threads(made, toolchain.pool_threads)) for made in artifacts))
    outputs, inputs = len(graph.outputs), len(graph.inputs)
    slots = _Slots(
        graph,
        plan,
        places,
        tuple(map(Slot, range(outputs))),
        tuple(map(Slot, range(outputs, outputs + inputs))),
        Slot(outputs + inputs),
        Slot(outputs + inputs + 1),
        outputs + inputs + 2,
        lambda node: symbol_of(node.call, len(steps), toolchain.target),
    )
    if any(len(made.requirements) >> code_bits(len(steps)) for made in artifacts):
        raise InternalError("link", f"a kernel of {len(steps)} checks more than what its result has bits for")
    entry = Entry(slots.calls(iter(artifacts)), threads=toolchain.threads)
    return Parts(stripped(graph), plan, tuple(node for _, node in kernels), artifacts, np.empty(0, np.uint8), entry, graph.outputs)


# ---------------------------------------------------------------- slots


@dataclass(frozen=True, slots=True)
class _Slots:
    """Places as bases and offsets, in a graph or in the body of a loop: where its outputs and inputs are, the block of constants, and the
    arena. There are so many `bases`."""

    graph: Graph
    plan: Plan
    constants: Places
    outputs: tuple[Slot, ...]
    inputs: tuple[Slot, ...]
    block: Slot
    arena: Slot
    bases: int
    symbol: Callable[[Extern], str]

    def calls(self, artifacts: Iterator[Artifact]) -> tuple[Call, ...]:
        """Return the calls of the graph; `artifacts` yields those of its kernels."""
        return calls_of(
            self.graph,
            lambda node: self.call(node, next(artifacts)),
            lambda node: self.extern(node, self.symbol(node)),
            lambda node: self.repetition(node, artifacts),
        )

    def repetition(self, node: Loop, artifacts: Iterator[Artifact]) -> Repetition:
        """Return the calls of a loop, which run again and again."""
        memory, values = loop_memory(self.graph, node), self.graph.values
        scratch = _moved(self.arena, self.plan.workspaces[node.name])
        loop = LoopSlots(
            self.value,
            _moved(scratch, memory.iteration),
            _moved(scratch, memory.next_condition) if node.asks else None,
            tuple(_moved(scratch, start) for start in memory.carried),
            lambda name: size_bytes(values[name]),
            lambda name: row_bytes(values[name]),
            lambda name: values[name].shape[0],
        )
        bases = tuple(map(Slot, range(self.bases, self.bases + loop_bases(node))))
        outputs, inputs = loop.of_body(node, bases)
        body = replace(
            self,
            graph=node.body,
            plan=self.plan.bodies[node.name],
            constants=self.constants.bodies[node.name],
            outputs=outputs,
            inputs=inputs,
            arena=_moved(scratch, memory.arena),
            bases=self.bases + len(bases),
        )
        return loop.repetition(node, body.calls(artifacts), self.bases)

    def value(self, name: str) -> Slot:
        return self.slot(self.plan.places[name])

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
        return KernelCall(artifact.symbol, tuple(self.value(bound[name]) for name in artifact.params), (), workspace)

    def extern(self, node: Extern, symbol: str) -> KernelCall:
        """Return the call of a kernel that is not in the language: results first."""
        return KernelCall(symbol, tuple(map(self.value, (*node.outputs, *node.inputs))))

    def slot(self, place: Place) -> Slot:
        match place:
            case Output(position, offset):
                return _moved(self.outputs[position], offset)
            case Input(position, offset):
                return _moved(self.inputs[position], offset)
            case Constant(name, offset):
                return _moved(self.block, self.constants.offsets[name] + offset)
            case Arena(offset):
                return _moved(self.arena, offset)


def _moved(slot: Slot, offset: int) -> Slot:
    return replace(slot, offset=slot.offset + offset)
