"""From a graph to an executable: kernels compiled, values and constants placed, one entry point that calls the kernels in order.

slots    every buffer of every kernel is one of the bases of the entry point plus an offset, known when it is compiled
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from codegen.llvm.program import KernelCall, Slot, code_bits
from codegen.llvm.program import Program as Entry
from tensorlang.artifact import Artifact
from tensorlang.backends.cpu.driver import machine_of
from tensorlang.backends.cpu.executable import Executable, Parts, assembled, steps_of, workspace_threads
from tensorlang.backends.cpu.extern import symbol_of
from tensorlang.backends.cpu.toolchain import Toolchain
from tensorlang.backends.cpu.validated import check_model
from tensorlang.diagnostics import InternalError
from tensorlang.graph.nodes import Extern, Graph, Kernel
from tensorlang.graph.options import Options
from tensorlang.graph.plan import Arena, Constant, Input, Output, Place, Plan, planned
from tensorlang.policy.cpu.horizontal_fusion import is_profitable
from tensorlang.policy.cpu.row_epilogues import is_row_epilogue_profitable
from tensorlang.runtime.bundle import BundleKey, Draft
from tensorlang.runtime.constants import Places, Weights, in_memory, places_of, without_constants
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
    weights = Weights(graph.values, dict(graph.constants))
    with ThreadPoolExecutor(1) as beside:
        block = beside.submit(place, weights, places)
        parts = parts_of(without_constants(graph), toolchain, progress, places)
        return assembled(replace(parts, constants=block.result(), names=tuple(names or graph.outputs)), toolchain)


def parts_of(graph: Graph, toolchain: Toolchain, progress: Progress, places: Places) -> Parts:
    """Return the compiled kernels and the plan of a graph, without its constants."""
    kernels = tuple(node for node in graph.nodes if isinstance(node, Kernel))
    jobs, numbers = distinct([job_of(graph, node) for node in kernels])
    made = toolchain.compile(jobs, progress)
    artifacts = tuple(made[number] for number in numbers)
    scratch = {
        node.name: made.workspace_bytes(workspace_threads(made, toolchain.pool_threads))
        for node, made in zip(kernels, artifacts, strict=True)
    }
    plan = planned(graph, scratch)
    slots, made_of = _Slots(graph, plan, places.offsets), {n.name: made for n, made in zip(kernels, artifacts, strict=True)}
    steps = steps_of(graph)
    calls = tuple(
        slots.call(n, made_of[n.name]) if isinstance(n, Kernel) else slots.extern(n, symbol_of(n.call, len(steps), toolchain.target))
        for n in steps
    )
    if any(len(made.requirements) >> code_bits(len(calls)) for made in artifacts):
        raise InternalError("link", f"a kernel of {len(calls)} checks more than what its result has bits for")
    entry = Entry(calls, threads=toolchain.threads)
    return Parts(replace(graph, constants={}), plan, kernels, artifacts, np.empty(0, np.uint8), entry, graph.outputs)


# ---------------------------------------------------------------- slots


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

    def extern(self, node: Extern, symbol: str) -> KernelCall:
        """Return the call of a kernel that is not in the language: results first."""
        return KernelCall(symbol, tuple(self.slot(self.plan.places[v]) for v in (*node.outputs, *node.inputs)))

    def slot(self, place: Place) -> Slot:
        outputs, inputs = len(self.graph.outputs), len(self.graph.inputs)
        match place:
            case Output(position, offset):
                return Slot(position, offset)
            case Input(position, offset):
                return Slot(outputs + position, offset)
            case Constant(name, offset):
                return Slot(outputs + inputs, self.constants[name] + offset)
            case Arena(offset):
                return Slot(outputs + inputs + 1, offset)
