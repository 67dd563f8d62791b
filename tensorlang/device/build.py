"""From a graph to kernels for a graphics processor: what is to be launched, on which buffers, and where these lie.

    kernels    distinct programs, each with its launches
    calls      for each kernel of the graph, in order: which program, and the values that its buffers are
    plan       where every value lives: given, returned, a weight, or in the arena

Nothing of a model runs elsewhere than on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.gpu.program import Program as Launched
from tensorlang.artifact import Requirement
from tensorlang.device.driver import device_loops, device_text
from tensorlang.driver import Dump
from tensorlang.graph.nodes import Graph, Kernel
from tensorlang.graph.pipeline import optimise
from tensorlang.graph.plan import Plan, planned
from tensorlang.graph.programs import program_key
from tensorlang.schedule.check import proven
from tensorlang.schedule.derive_device import derive_device
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.nodes import Program


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """One program as launches. Code k of the status word means `requirements[k - 1]` failed."""

    launched: Launched
    requirements: tuple[Requirement, ...]
    schedule: str
    origin: str
    """Where the schedule is from: `derived`, `given`, or the place where it is written."""


@dataclass(frozen=True, slots=True)
class Call:
    """`kernel` (its name) with a value of the graph for each of its params."""

    node: Kernel
    kernel: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """A graph ready for a device."""

    graph: Graph
    plan: Plan
    kernels: Mapping[str, DeviceKernel]
    calls: tuple[Call, ...]
    names: tuple[str, ...]
    """What the model calls its outputs."""


def device_kernel(program: Program, name: str, schedule: Schedule | None = None, dump: Dump | None = None) -> DeviceKernel:
    """Return `program` under `schedule`, or a derived one. Raises CompileError when the schedule cannot be read or is refused."""
    chosen = schedule if schedule is not None else derive_device(program)
    lowered = device_loops(proven(program, chosen), name, dump)
    launched = device_text(lowered, dump)
    return DeviceKernel(launched, lowered.requirements, str(chosen), "given" if schedule is not None else "derived")


def device_graph(loaded: Graph) -> Graph:
    """Return an imported graph with the kernels that a device runs."""
    return optimise(loaded, chains=False)


def device_model(loaded: Graph) -> DeviceModel:
    """Return an imported graph as launches. Kernels with equal programs are made once."""
    graph = device_graph(loaded)
    named: dict[str, str] = {}
    kernels: dict[str, DeviceKernel] = {}
    calls: list[Call] = []
    for node in graph.nodes:
        if not isinstance(node, Kernel):
            continue
        key = repr(program_key(node.program))
        if key not in named:
            named[key] = f"tl_{len(named)}"
            kernels[named[key]] = device_kernel(node.program, named[key])
        made = kernels[named[key]]
        names = (*(p.name for p in node.program.params), *node.program.results)
        bound = dict(zip(names, (*node.inputs, *node.outputs), strict=True))
        calls.append(Call(node, named[key], {p: bound[_tensor(made, p, names)] for p in made.launched.params}))
    return DeviceModel(graph, planned(graph), kernels, tuple(calls), loaded.outputs)


def _tensor(made: DeviceKernel, param: str, names: tuple[str, ...]) -> str:
    """Return the tensor of the program that a param of its launches is: they are in one order."""
    return names[made.launched.params.index(param)]
