"""From a graph to kernels for a graphics processor: what is to be launched, on which buffers, and where these lie.

Nothing of a model runs elsewhere than on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from codegen.gpu.limits import exceeded, exceeded_at
from codegen.store import Cache, key_of
from tensorlang.backends.gpu.driver import device_loops, device_text, plan_for_device
from tensorlang.backends.gpu.model import Call, DeviceKernel, DeviceModel
from tensorlang.diagnostics import CompileError
from tensorlang.digest import compiler_digest
from tensorlang.graph.nodes import Graph, Kernel, Value
from tensorlang.graph.options import Options
from tensorlang.graph.passes.memory.layout import RowMajor, layouts_of
from tensorlang.graph.pipeline import DEVICE, optimise
from tensorlang.graph.plan import planned
from tensorlang.graph.precisions import F32, Precision
from tensorlang.graph.programs import program_key, result_tensors
from tensorlang.lower.kernel import Lowered
from tensorlang.planning import Dump, Rules, Scheduled
from tensorlang.policy.gpu.layouts import derive_device_layouts
from tensorlang.policy.machine import USUAL, GpuMachine
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.schedule import Schedule
from tensorlang.serialization import FlatError, from_flat, to_flat
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import caller_shape
from tensorlang.validation.budget import validation_budget
from tensorlang.validation.kernel import validated
from tensorlang.worker import all_made

Progress: TypeAlias = Callable[[str, int, int], None]
Layouts: TypeAlias = Mapping[str, Layout]
"""By the names of a program's params and results; those that are row-major are left out."""


def device_kernel(
    program: Program,
    name: str,
    schedule: Schedule | None = None,
    dump: Dump | None = None,
    rules: Rules | None = None,
    layouts: Layouts | None = None,
    machine: GpuMachine = USUAL,
    knobs: Mapping[str, int] | None = None,
) -> DeviceKernel:
    """Return `program` under `schedule`, or one that `rules` choose, or a derived one; `layouts` are those of inputs and results that are
    not row-major, `machine` is what the device is like. Where a schedule of a role is refused or asks for more than the device has, another
    is derived; where that asks for too much, too, one that copies nothing into shared memory, and then one that asks for threads alone.

    Raises CompileError when the schedule cannot be read or is refused."""
    scheduled = plan_for_device(program, schedule, rules, knobs, layouts, machine)
    if not scheduled.of_roles and scheduled.origin != "derived":
        return _written(program, scheduled, name, dump, layouts, machine)
    modest = replace(machine, copies=False)
    others = ((machine, False), (modest, False), (modest, True))
    for like, plain in others if scheduled.of_roles else others[1:]:
        found = _fitting(program, scheduled, name, dump, layouts, machine)
        if isinstance(found, DeviceKernel):
            return found
        derived = plan_for_device(program, layouts=layouts, machine=like, plain=plain)
        scheduled = replace(derived, tried=(*scheduled.tried, f"{scheduled.origin}: {found}"))
    return _written(program, scheduled, name, dump, layouts, machine)


def _fitting(
    program: Program, scheduled: Scheduled, name: str, dump: Dump | None, layouts: Layouts | None, machine: GpuMachine
) -> DeviceKernel | str:
    """Return the kernels of a plan, or why no device like `machine` runs them."""
    try:
        made = _written(program, scheduled, name, dump, layouts, machine)
    except CompileError as refused:
        return f"refused: {refused.diagnostics[0].title}"
    return _beyond(made, machine) or made


def _beyond(made: DeviceKernel, machine: GpuMachine) -> str:
    """Return what kernels ask for that no device like `machine` has, "" where they fit."""
    grids = exceeded_at(made.launched, machine.limits, {}) if not made.launched.sizes else ()
    found = (*exceeded(made.launched, machine.limits), *grids)
    return ", ".join(map(str, found))


def _written(
    program: Program, scheduled: Scheduled, name: str, dump: Dump | None, layouts: Layouts | None, machine: GpuMachine
) -> DeviceKernel:
    """Return the kernels of a plan, their loops validated where somebody asked. Raises CompileError where its loops cannot run where they
    are bound."""
    if dump is not None:
        dump("schedule", str(scheduled.schedule))
    in_order: list[Lowered] = []
    lowered = device_loops(scheduled.plan, name, dump, scheduled.schedule, in_order.append, machine)
    launched = device_text(lowered, dump, scheduled.schedule, machine)
    outcome = validated(scheduled.plan.served(program), in_order[0].function, in_order[0].params, layouts)
    if dump is not None and outcome:
        dump("validate", outcome)
    schedule = str(scheduled)
    return DeviceKernel(
        launched, lowered.requirements, schedule, scheduled.origin, scheduled.tried, outcome, validation_budget() if outcome else 0
    )


def device_graph(loaded: Graph, precision: Precision = F32, in_one_pass: bool = True) -> Graph:
    """Return an imported graph with the kernels that a device runs; `in_one_pass`: attention goes through the keys once."""
    return optimise(loaded, device_options(precision, in_one_pass), DEVICE)


def device_options(precision: Precision = F32, in_one_pass: bool = True) -> Options:
    """Return what a device decides of the passes over graphs."""
    return Options(_preferred_layouts, precision=precision, one_pass=in_one_pass)


def _preferred_layouts(graph: Graph) -> Callable[[Kernel], Layouts]:
    fixed = RowMajor.of(graph)

    def of(kernel: Kernel) -> Layouts:
        constants = frozenset(p.name for p, v in zip(kernel.program.params, kernel.inputs, strict=True) if v in graph.constants)
        return derive_device_layouts(kernel.program, constants, fixed.names(kernel) - constants)

    return of


def device_model(
    loaded: Graph,
    store: Cache | None = None,
    progress: Progress = lambda what, done, total: None,
    rules: Rules | None = None,
    precision: Precision = F32,
    processes: int = 1,
    machine: GpuMachine = USUAL,
    in_one_pass: bool = True,
) -> DeviceModel:
    """Return an imported graph as launches for a device like `machine`. Kernels with equal programs are made once, and kept in `store`; by
    up to so many processes. `in_one_pass`: attention goes through the keys once."""
    graph = device_graph(loaded, precision, in_one_pass)
    nodes = [node for node in graph.nodes if isinstance(node, Kernel)]
    layouts = [layouts_of(graph, node) for node in nodes]
    keys = [repr((program_key(node.program), _told(stored))) for node, stored in zip(nodes, layouts, strict=True)]
    names = {key: f"tl_{k}" for k, key in enumerate(dict.fromkeys(keys))}
    jobs = dict(zip(reversed([names[key] for key in keys]), reversed(list(zip(nodes, layouts, strict=True))), strict=True))
    orders = [_Order(jobs[name][0].program, jobs[name][1], name, rules, machine) for name in names.values()]
    kernels = {order.name: kept for order in orders if store is not None and (kept := order.stored(store)) is not None}
    tasks, there = [order for order in orders if order.name not in kernels], len(kernels)
    made = all_made(tasks, store, processes, lambda count: progress("writing kernels", there + count, len(names)))
    kernels |= {order.name: kernel for order, kernel in zip(tasks, made, strict=True)}
    calls = tuple(_call(node, names[key], kernels[names[key]]) for node, key in zip(nodes, keys, strict=True))
    return DeviceModel(graph, planned(graph), {name: kernels[name] for name in names.values()}, calls, loaded.outputs)


def _told(layouts: Layouts) -> str:
    return repr(sorted(layouts.items(), key=lambda item: item[0]))


@dataclass(frozen=True, slots=True)
class _Order:
    """A kernel to be made, perhaps by another process."""

    program: Program
    layouts: Layouts
    name: str
    rules: Rules | None
    machine: GpuMachine = USUAL

    def __call__(self, store: Cache | None) -> DeviceKernel:
        """Return the kernel from `store`, or make it and keep it there."""
        kept = self.stored(store) if store is not None else None
        if kept is not None:
            return kept
        made = device_kernel(self.program, self.name, rules=self.rules, layouts=self.layouts, machine=self.machine)
        if store is not None:
            store.put(self._key(), to_flat(made))
        return made

    def stored(self, store: Cache) -> DeviceKernel | None:
        """Return the kernel that `store` has, unless it is still to be validated."""
        found = store.get(self._key())
        try:
            kept: DeviceKernel | None = None if found is None else from_flat(found)
        except FlatError:
            return None
        return kept if kept is not None and kept.is_validated(validation_budget()) else None

    def _key(self) -> str:
        chosen = "derived" if self.rules is None else repr(self.rules.key(self.program))
        return key_of(("device kernel", compiler_digest(), self.name, repr(self.program), chosen, _told(self.layouts), repr(self.machine)))


def _call(node: Kernel, name: str, made: DeviceKernel) -> Call:
    """Return a kernel of the graph with its values; the params of launches are those of the program, then its results."""
    return Call(node, name, dict(zip(made.launched.params, (*node.inputs, *node.outputs), strict=True)))


def single(program: Program, made: DeviceKernel) -> DeviceModel:
    """Return one program as a model: its params are the inputs, its results the outputs."""
    values = {t.name: Value(t.name, t.dtype, caller_shape(t, {})) for t in (*program.params, *result_tensors(program))}
    inputs = tuple(p.name for p in program.params)
    node = Kernel(program.name, program, inputs, program.results, program.name)
    graph = Graph(program.name, inputs, program.results, values, {}, (node,))
    name = made.launched.name
    return DeviceModel(graph, planned(graph), {name: made}, (_call(node, name, made),), program.results)
