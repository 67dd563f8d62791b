"""From a graph to kernels for a graphics processor: what is to be launched, on which buffers, and where these lie.

Nothing of a model runs elsewhere than on the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from codegen.gpu.limits import exceeded, exceeded_at
from codegen.store import Cache, key_of
from polyhedral.expr import Int
from tensorlang.backends.gpu.driver import device_loops, device_text, plan_for_device
from tensorlang.backends.gpu.extern import extern_call, extern_kernel
from tensorlang.backends.gpu.model import Call, DeviceKernel, DeviceModel, OpenCall
from tensorlang.diagnostics import CompileError, error
from tensorlang.digest import compiler_digest
from tensorlang.graph.externs import graph_of
from tensorlang.graph.nodes import Extern, Graph, Kernel, Loop, Value
from tensorlang.graph.options import Options
from tensorlang.graph.passes.memory.layout import layouts_of, prefer_derived
from tensorlang.graph.plan import planned
from tensorlang.graph.precisions import Precision
from tensorlang.graph.programs import result_tensors
from tensorlang.lower.kernel import Lowered
from tensorlang.planning import Dump, Rules, Scheduled
from tensorlang.policy.gpu.layouts import derive_device_layouts
from tensorlang.policy.machine import GpuMachine
from tensorlang.runtime.jobs import Job, distinct, job_of
from tensorlang.runtime.protocol import Progress, quiet
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.storage_order import in_storage_order
from tensorlang.serialization import FlatError, from_flat, to_flat
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import caller_shape, substitute_sizes
from tensorlang.validation.budget import validation_budget
from tensorlang.validation.kernel import validated
from tensorlang.worker import all_made

Layouts: TypeAlias = Mapping[str, Layout]
"""By the names of a program's params and results; those that are row-major are left out."""


def device_kernel(
    program: Program,
    name: str,
    schedule: Schedule | None = None,
    dump: Dump | None = None,
    rules: Rules | None = None,
    layouts: Layouts | None = None,
    knobs: Mapping[str, int] | None = None,
    *,
    machine: GpuMachine,
) -> DeviceKernel:
    """Return `program` under `schedule`, or one that `rules` choose, or a derived one; `layouts` are those of inputs and results that are
    not row-major, `machine` is what the device is like. Where a schedule of a role is refused or asks for more than the device has, another
    is derived; where that asks for too much, too, one that asks for threads alone.

    Raises CompileError when the schedule cannot be read or is refused."""
    if schedule is None and layouts:
        program, layouts = in_storage_order(program, layouts)
    scheduled = plan_for_device(program, schedule, rules, knobs, layouts, machine=machine)
    if not scheduled.of_roles and scheduled.origin != "derived":
        return _written(program, scheduled, name, dump, layouts, machine)
    for plain in (False, True) if scheduled.of_roles or program.sizes else (True,):
        found = _fitting(program, scheduled, name, dump, layouts, machine)
        if isinstance(found, DeviceKernel):
            return found
        derived = plan_for_device(program, layouts=layouts, machine=machine, plain=plain)
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
    lowered = device_loops(scheduled.plan, name, dump, scheduled.schedule, in_order.append, machine=machine)
    launched = device_text(lowered, dump, scheduled.schedule, machine=machine)
    outcome = validated(scheduled.plan.served(program), in_order[0].function, in_order[0].params, layouts, program)
    if dump is not None and outcome:
        dump("validate", outcome)
    schedule = str(scheduled)
    return DeviceKernel(
        launched,
        lowered.requirements,
        schedule,
        scheduled.origin,
        scheduled.tried,
        outcome,
        validation_budget() if outcome else 0,
        scheduled.plan.trusted,
    )


def device_options(machine: GpuMachine, precision: Precision, online: bool) -> Options:
    """Return what a device like `machine` decides of the passes over graphs; `online`: attention goes through the keys once."""

    def derive(program: Program, constants: frozenset[str], fixed: frozenset[str], layouts: Layouts, at: Mapping[str, int]) -> Layouts:
        return derive_device_layouts(program, machine, constants, fixed - constants)

    return Options(prefer_derived(derive), precision=precision, one_pass=online)


def device_model(
    graph: Graph,
    store: Cache | None = None,
    progress: Progress = quiet,
    rules: Rules | None = None,
    processes: int = 1,
    names: tuple[str, ...] | None = None,
    *,
    machine: GpuMachine,
) -> DeviceModel:
    """Return a graph that went through the pipeline as launches for a device like `machine`. Kernels with equal programs are made once, and
    kept in `store`; by up to so many processes. `names`: what the model calls the outputs, when that differs."""
    nodes = [node for node in graph.nodes if isinstance(node, Kernel)]
    jobs = [Job(node.program, layouts_of(graph, node), rules=rules) for node in nodes]
    made = _made(jobs, store, progress, processes, machine)
    by_node = {node.name: found for node, found in zip(nodes, made, strict=True)}
    return _with_externs(graph, by_node, names or graph.outputs)


def open_kernels(
    graph: Graph, store: Cache | None, progress: Progress, rules: Rules, processes: int, *, machine: GpuMachine
) -> tuple[dict[str, DeviceKernel], tuple[OpenCall, ...]]:
    """Return the kernels of a graph of open sizes, by their names, and its calls; the other arguments are as for `device_model`.

    Raises CompileError C0105 for what is not supported yet with open sizes."""
    other = next((node for node in graph.nodes if isinstance(node, Loop | Extern)), None)
    if other is not None:
        what = "loops" if isinstance(other, Loop) else "kernels of others"
        title = f"not supported yet: symbolic sizes of models with {what} for `{machine.target}`"
        raise error("C0105", title, help="leave `sizes` at `static`: a model is compiled for each combination of shapes")
    nodes = [node for node in graph.nodes if isinstance(node, Kernel)]

    def jobs_of(*, bounded: bool) -> list[Job]:
        return [replace(job, rules=replace(rules, at=job.at)) for job in (job_of(graph, node, bounded) for node in nodes)]

    jobs = jobs_of(bounded=False)
    try:
        made = _made(jobs, store, progress, processes, machine)
    except CompileError:  # what is read may be there only as far as limits of sizes say
        jobs = jobs_of(bounded=True)
        made = _made(jobs, store, progress, processes, machine)
    calls = (OpenCall(_call(node, *found), job.program.sizes) for node, job, found in zip(nodes, jobs, made, strict=True))
    return dict(made), tuple(calls)


def _made(
    every: Sequence[Job], store: Cache | None, progress: Progress, processes: int, machine: GpuMachine
) -> list[tuple[str, DeviceKernel]]:
    """Return the kernel of each job with its name; equal ones are made once."""
    jobs, numbers = distinct(every)
    orders = [_Order(job, f"tl_{k}", machine) for k, job in enumerate(jobs)]
    made = all_made(orders, store, processes, lambda count: progress("writing kernels", count, len(orders)))
    return [(orders[k].name, made[k]) for k in numbers]


def _with_externs(graph: Graph, made: Mapping[str, tuple[str, DeviceKernel]], names: tuple[str, ...]) -> DeviceModel:
    """Return a graph as launches: `made` are the kernels of nodes by the names of these, each with its own; those that are not in the
    language are launched as they are."""
    kernels, calls = dict(made.values()), list[Call]()
    for number, node in enumerate(graph.nodes):
        if isinstance(node, Kernel):
            name, kernel = made[node.name]
            calls.append(_call(node, name, kernel))
        elif isinstance(node, Extern):
            name = f"tl_extern_{number}"
            kernels[name] = extern_kernel(graph, node, name)
            calls.append(extern_call(node, name, kernels[name]))
    return DeviceModel(graph, planned(graph), kernels, tuple(calls), names)


def composite(program: Program, name: str, made: Mapping[str, DeviceKernel]) -> DeviceModel:
    """Return a program that calls kernels which are not in the language as a model; `made` are its parts by their names."""
    graph = graph_of(program)
    return _with_externs(graph, {part: (kernel.launched.name, kernel) for part, kernel in made.items()}, program.results)


@dataclass(frozen=True, slots=True)
class _Order:
    """A kernel to be made, perhaps by another process (`tensorlang.worker.Task`)."""

    job: Job
    name: str
    machine: GpuMachine

    def __call__(self, store: Cache | None) -> DeviceKernel:
        """Return the kernel from `store`, or make it and keep it there."""
        kept = self.stored(store) if store is not None else None
        if kept is not None:
            return kept
        job = self.job
        made = device_kernel(job.program, self.name, rules=job.rules, layouts=job.layouts, machine=self.machine)
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
        job = self.job
        chosen = "derived" if job.rules is None else repr(job.rules.key(job.program))
        parts = self.name, repr(job.program), chosen, job.layouts_text, repr(self.machine)
        return key_of(("device kernel", compiler_digest(), *parts))


def _call(node: Kernel, name: str, made: DeviceKernel) -> Call:
    """Return a kernel of the graph with its values; the params of launches are those of the program, then its results."""
    return Call(node, name, dict(zip(made.launched.params, (*node.inputs, *node.outputs), strict=True)))


def single(program: Program, made: DeviceKernel, sizes: Mapping[str, int] | None = None) -> DeviceModel:
    """Return one program as a model: its params are the inputs, its results the outputs. `sizes`: those that the program leaves open."""
    told = made.told(program.sizes, sizes or {})
    program = substitute_sizes(program, {name: Int((sizes or {})[name]) for name in program.sizes}) if told else program
    values = {t.name: Value(t.name, t.dtype, caller_shape(t, {})) for t in (*program.params, *result_tensors(program))}
    inputs = tuple(p.name for p in program.params)
    node = Kernel(program.name, program, inputs, program.results, program.name)
    graph = Graph(program.name, inputs, program.results, values, {}, (node,))
    name = made.launched.name
    return DeviceModel(graph, planned(graph), {name: made}, (replace(_call(node, name, made), sizes=told),), program.results)
