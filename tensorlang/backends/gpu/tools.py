"""What compiles for graphics processors, whoever makes them: operators and models become launches, and run where their maker's devices are.

    model = tl.compile("net.onnx", target="cuda")
    model.run({"x": image})            NumPy gives NumPy; an array on the device gives arrays on the device, and nothing is copied

Compiling and explaining need neither a driver nor a device. Both are looked for when something first runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.errors import InternalError as InternalErrorOfCode
from codegen.forks import Lock, import_whole
from codegen.gpu.limits import Usage, exceeded_at
from codegen.store import Cache
from tensorlang.backends.gpu.explain import explained, launched
from tensorlang.backends.gpu.limits import limits_of
from tensorlang.backends.gpu.model import DeviceKernel, DeviceModel
from tensorlang.backends.gpu.vendor import Vendor, refuse
from tensorlang.diagnostics import CompileError, Diagnostic, RunError, error
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.externs import trusted
from tensorlang.graph.nodes import Extern, Graph, Kernel, Value
from tensorlang.graph.precisions import F32, Precision, chosen_on
from tensorlang.graph.relayout import restored
from tensorlang.policy.machine import GpuMachine as Machine
from tensorlang.runtime.any_sizes import checked_numbers, serves
from tensorlang.runtime.bundle import BundleKey, Draft, kept
from tensorlang.runtime.constants import cells_of, places_of, weights_of, without_constants
from tensorlang.runtime.feeds import Place, as_array, check_names, checked, row_major
from tensorlang.runtime.kernel_log import log_kernel
from tensorlang.runtime.limits import Explained, limit_lines, proven_lines, tried_lines
from tensorlang.runtime.out_of_range import of_node, with_element_of_node
from tensorlang.runtime.profile import Profile, profile_of
from tensorlang.runtime.protocol import MemoryUse, ModelSummary, OpenRuns, Progress, Roles, Timer, installed_roles, quiet
from tensorlang.runtime.report import us
from tensorlang.runtime.threads import default_threads
from tensorlang.runtime.work import Roofline, Work, work_of
from tensorlang.tensor.nodes import Program
from tensorlang.validation.budget import validation_budget

if TYPE_CHECKING:
    from tensorlang.backends.gpu.open_sizes import OpenOnDevice
    from tensorlang.graph.options import Options
    from tensorlang.graph.pass_manager import Pipeline
    from tensorlang.planning import Dump, Rules, ScheduleRequest
    from tensorlang.runtime.saving import SaveOptions
    from tensorlang.schedule.plan import Plan

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class DeviceTools:
    """What models and operators are compiled with (`tensorlang.runtime.protocol.Tools`). `threads`: of this machine, to compile on."""

    vendor: Vendor
    arch: Any
    store: Cache | None
    threads: int
    machine: Machine
    """What schedules are chosen for."""
    roles: Roles = installed_roles
    precision: Precision = F32
    """What contractions of models multiply in."""
    online: bool = True
    """Whether attention may go through the keys once."""
    made: Callable[[], DeviceTools] | None = field(default=None, compare=False, repr=False)
    """Makes the same tools in another process, with the cache there is there."""

    _device: list[Any] = field(default_factory=list, repr=False, compare=False)
    """The device, once it was looked for."""
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def options(self) -> tuple[object, ...]:
        """Return all that code of these tools depends on besides what it is made from, and whether it has to be validated."""
        return self.arch.target, self.precision.used, self.precision.least, self.online, repr(self.machine), bool(validation_budget())

    def opened(self) -> Any:
        """Return the device on which all that was compiled with these tools runs. Raises RunError R0321 or R0323."""
        with self._lock:
            if not self._device:
                self._device.append(self.vendor.opened())
        self._device[0].use()
        return self._device[0]

    def __reduce__(self) -> tuple[Callable[[], DeviceTools], tuple[()]]:
        assert self.made is not None
        return self.made, ()

    @property
    def name(self) -> str:
        return f"{self.vendor.name}:{self.arch.target}"

    @property
    def schedules_for(self) -> str:
        return self.vendor.name

    def has(self, feature: str) -> bool:
        return False

    @property
    def on_device(self) -> bool:
        return True

    @property
    def combinations(self) -> int:
        return 8

    @property
    def passes(self) -> Pipeline:
        from tensorlang.graph.pipeline import DEVICE

        return DEVICE

    @property
    def model_stages(self) -> tuple[str, ...]:
        return ("launches", self.vendor.name, *self.vendor.code_stages)

    def graph_options(self) -> Options:
        from tensorlang.backends.gpu.build import device_options

        return device_options(self.machine, self.precision, self.online)

    def described(self, value: Any) -> Any:
        if not self.vendor.is_on_device(value):
            return value
        with self.vendor.answered():
            view = self.vendor.view(value, self.opened())
        return np.broadcast_to(np.zeros((), view.dtype.numpy), view.shape)

    def shape_of(self, value: Any, name: str) -> tuple[int, ...]:
        if not self.vendor.is_on_device(value):
            return tuple(as_array(value, name).shape)
        interface = getattr(value, "__cuda_array_interface__", None)
        return tuple(getattr(value, "shape", ()) if interface is None else interface["shape"])

    def save_operator(self, program: Program, request: ScheduleRequest, folder: Path, options: SaveOptions) -> Path:
        raise _no_library(self.vendor.name)

    def save_model(self, load: Callable[[], Graph], progress: Progress, folder: Path, options: SaveOptions) -> Path:
        raise _no_library(self.vendor.name)

    def kept_open_sizes(self, key: str) -> OpenRuns | None:
        return None

    def built_open_sizes(
        self, loaded: Graph, progress: Progress, key: BundleKey | None, shared: Mapping[str, str] | None = None
    ) -> OpenOnDevice:
        from tensorlang.backends.gpu.build import open_kernels
        from tensorlang.backends.gpu.open_sizes import OpenOnDevice, no_room_for_more

        if shared is not None:
            raise no_room_for_more(self)

        rules, graph = _rules(self), _optimised(loaded, self)
        made, calls = open_kernels(graph, self.store, progress, rules, self.threads, machine=self.machine)
        programs = [kernel.launched for kernel in made.values()]
        done = partial(progress, "compiling kernels")
        code = self.vendor.machine_code(programs, self.arch, self.store, self.threads, lambda count: done(count, len(programs)))
        return OpenOnDevice(graph, made, calls, loaded.outputs, tuple(code), self, self.vendor.weights())

    def load_compiler(self) -> None:
        import_whole("ml_dtypes", "tensorlang.backends.gpu.build")

    def compiled(self, program: Program, name: str, request: ScheduleRequest) -> OperatorOnDevice:
        from tensorlang.backends.gpu.build import composite, single

        if not program.externs:
            return OperatorOnDevice(OnDevice(coded(single(program, self._kernel(program, name, request)), self), self))
        from tensorlang.planning import by_parts

        wanted = enumerate(by_parts(program, request))
        made = {part.name: self._kernel(part, f"{name}_{k}", own) for k, (part, own) in wanted}
        return OperatorOnDevice(OnDevice(coded(composite(program, name, made), self), self))

    def with_any_sizes(self, program: Program, name: str, request: ScheduleRequest, sizes: Mapping[str, int]) -> AnySizesOnDevice:
        if program.externs:
            title = f"not supported yet: symbolic sizes of operators that call kernels of others, for `{self.vendor.name}`"
            raise error("C0105", title, help="leave `sizes` at `static`")
        made = self._kernel(program, name, request)
        (code,) = self.vendor.machine_code([made.launched], self.arch, self.store, self.threads, lambda count: None)
        fixed = {size: value for size, value in sizes.items() if size not in program.sizes}
        return AnySizesOnDevice(program, made, code, fixed, self)

    def shown(self, program: Program, name: str, request: ScheduleRequest, dump: Dump, stages: Sequence[str]) -> Built | DeviceKernel:
        from tensorlang.backends.gpu.build import single

        made = self._kernel(program, name, request, dump)
        (code,) = self.vendor.machine_code([made.launched], self.arch, self.store, self.threads, lambda count: None)
        dump("launches", "\n".join(launched(made.launched, code.usage, self.arch)))
        for stage in self.vendor.code_stages:
            if stage in stages:
                dump(stage, self.vendor.text([code], stage))
        return made if program.sizes else Built(single(program, made), (code,))

    def _kernel(self, program: Program, name: str, request: ScheduleRequest, dump: Dump | None = None) -> DeviceKernel:
        from tensorlang.backends.gpu.build import device_kernel

        start = perf_counter()
        made = device_kernel(program, name, request.schedule, dump, request.rules, machine=self.machine, knobs=request.knobs)
        log_kernel(program, "scheduled", made.origin, perf_counter() - start, self)
        return made

    def planned(self, program: Program, request: ScheduleRequest) -> Plan:
        from tensorlang.backends.gpu.driver import plan_for_device

        return plan_for_device(program, request.schedule, request.rules, request.knobs, machine=self.machine).plan

    def roofline(self, programs: Sequence[Program]) -> Roofline:
        """Return what the programs have to do one after the other; the time is 0, which bounds nothing, where no board is known."""
        works, board = [work_of(p) for p in programs], self.vendor.board(self.arch)
        return Roofline(sum(works, Work(0, 0, 0)), sum(board.seconds(w) for w in works) if board is not None else 0.0)

    def workers(self, threads: int) -> None:
        """A device has threads of its own."""

    def kept(self, key: str, shared: dict[str, Any] | None) -> OnDevice | None:
        found = kept(key, self.store)
        if found is None:
            return None
        (model, code, places), block = found
        return self._runs(Built(model, code, cells_of(model.graph.values, places, block)), shared)

    def built(self, loaded: Graph, progress: Progress, key: BundleKey | None, shared: dict[str, Any] | None) -> OnDevice:
        return self._runs(_built(loaded, self, progress, key), shared)

    def _runs(self, built: Built, shared: dict[str, Any] | None) -> OnDevice:
        """Return a model; its weights are those of other shapes, too, where there are `shared` ones."""
        return OnDevice(built, self, None if shared is None else shared.setdefault("weights", self.vendor.weights()))


def device_tools(
    vendor: Vendor,
    target: str,
    cache: bool = True,
    roles: Roles = installed_roles,
    precision: str = "f32",
    force_precision: bool = False,
    online: bool = True,
) -> DeviceTools:
    """Return what compiles for a vendor's target; `precision`, `force_precision` and `online` as for `tensorlang.compile`.
    Raises CompileError C0101 and C0103."""
    arch, store = vendor.arch(target), Cache() if cache else None
    multiplied = chosen_on(precision, vendor.bf16_rate(arch), force_precision)
    made = partial(device_tools, vendor, target, cache, roles, precision, force_precision, online)
    return DeviceTools(vendor, arch, store, default_threads(), vendor.machine(arch), roles, multiplied, online, made)


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """Launches with the machine code of `model.kernels`, in order. `constants` are the model's in the order of their layouts, where they
    are laid out already; those of the graph are placeholders then."""

    model: DeviceModel
    code: tuple[Any, ...]
    constants: Mapping[str, Array] | None = None

    @property
    def usage(self) -> Mapping[str, Usage]:
        """Return what each kernel of the text uses, by name."""
        return {name: usage for code in self.code for name, usage in code.usage.items()}

    def launches(self, tools: DeviceTools) -> Iterator[str]:
        """Yield a line for each launch."""
        told = {call.kernel: call.sizes for call in self.model.calls}
        for name, made in self.model.kernels.items():
            yield from launched(made.launched, self.usage, tools.arch, told.get(name))


def coded(model: DeviceModel, tools: DeviceTools, progress: Progress = quiet) -> Built:
    """Return a model with its machine code. Raises CompileError C0111 and C0112."""
    programs = [made.launched for made in model.kernels.values()]

    def done(count: int) -> None:
        progress("compiling kernels", count, len(programs))

    _check_externs(model, tools)
    return Built(model, tuple(tools.vendor.machine_code(programs, tools.arch, tools.store, tools.threads, done)))


def _check_externs(model: DeviceModel, tools: DeviceTools) -> None:
    """Raise CompileError C0116 for kernels that are not in the language and that the compiler of the device refuses."""
    for call in model.calls:
        if isinstance(call.node, Extern):
            from tensorlang.backends.gpu.extern import refused_text

            launched = model.kernels[call.kernel].launched
            try:
                tools.vendor.machine_code([launched], tools.arch, tools.store, 1, lambda count: None)
            except InternalErrorOfCode as problem:
                raise refused_text(call.node.call, problem) from None


def written(loaded: Graph, tools: DeviceTools, progress: Progress) -> DeviceModel:
    """Return an imported graph as launches. Raises CompileError."""
    from tensorlang.backends.gpu.build import device_model

    graph = _optimised(loaded, tools)
    return device_model(graph, tools.store, progress, _rules(tools), tools.threads, loaded.outputs, machine=tools.machine)


def _optimised(loaded: Graph, tools: DeviceTools) -> Graph:
    from tensorlang.runtime.jobs import optimised

    return optimised(loaded, tools)


def _rules(tools: DeviceTools) -> Rules:
    from tensorlang.runtime.library import rules_of

    return replace(rules_of(tuple(tools.roles())), target=tools.schedules_for)


def _built(loaded: Graph, tools: DeviceTools, progress: Progress, key: BundleKey | None) -> Built:
    """Return an imported graph compiled, and keep it under `key` where that is given. Raises CompileError."""
    model = written(loaded, tools, progress)
    built = coded(model, tools, progress)
    if key is None:
        return built
    graph = model.graph
    places, without = places_of(graph), replace(model, graph=without_constants(graph))
    with Draft(key, tools.store) as draft:
        block = draft.place(weights_of(graph), places)
        draft.finish((without, built.code, places))
    return Built(without, built.code, cells_of(graph.values, places, block))


class OnDevice:
    """Launches that run on the first device of this machine, which is looked for at the first run."""

    def __init__(self, built: Built, tools: DeviceTools, weights: Any = None) -> None:
        """`weights` (`tensorlang.backends.cuda.executable.SharedWeights`) are those that other shapes of the same model have, too."""
        self.built, self.tools, self._weights = built, tools, weights
        self.inputs, self.outputs = built.model.inputs, built.model.outputs
        self._lock = Lock()
        self._loaded: Any = None

    @property
    def quick(self) -> Callable[[Mapping[str, object]], Any]:
        return lambda feeds: NotImplemented

    def on(self, workers: object) -> OnDevice:
        return self

    def run(self, feeds: Mapping[str, object], stream: object = None) -> dict[str, Any]:
        """Return the outputs by name: in NumPy's arrays, or on the device when any input lies there."""
        return dict(zip((value.name for value in self.outputs), self.results(self._arrays(feeds), stream), strict=True))

    def with_element(self, refused: RunError, feeds: Mapping[str, object]) -> RunError:
        """Return R0306 with the element at fault where the kernel that stopped reads inputs of the host and constants alone: what else
        kernels read is on the device, and others may have written there since."""
        model, values = self.built.model, self.built.model.graph.values
        given = zip(self.inputs, self._arrays(feeds), strict=True)
        arrays = {v.name: np.asarray(a) for v, a in given if not self.tools.vendor.is_on_device(a)}
        for call in model.calls:
            if not isinstance(call.node, Kernel):
                continue
            told = (of_node(call.node, r.text).diagnostics for r in model.kernels[call.kernel].requirements)
            if refused.diagnostics in told and all(v in arrays or v in model.graph.constants for v in call.node.inputs):
                known = {v: arrays[v] if v in arrays else self._constant(values[v]) for v in call.node.inputs}
                return with_element_of_node(refused, call.node, known)
        return refused

    def _constant(self, value: Value) -> Array:
        """Return the elements of a constant."""
        cells, layout = self.built.constants, value.layout
        if cells is None:
            return self.built.model.graph.constants[value.name]
        held = cells[value.name]
        return held.reshape(value.shape) if layout is None else restored(held.reshape(layout.shape), layout, value.shape)

    def results(self, arrays: list[object], stream: object = None) -> tuple[Any, ...]:
        """Return the outputs for inputs in order, computed on `stream`; without one on that on which the library of the first input on the
        device works now."""
        vendor = self.tools.vendor
        with self._lock, vendor.answered():
            on_device = [value for value in arrays if vendor.is_on_device(value)]
            chosen = stream if stream is not None else vendor.stream_of(on_device[0]) if on_device else None
            found = self.loaded(arrays, chosen)
            return tuple(found) if on_device else tuple(array.numpy() for array in found)

    @property
    def summary(self) -> ModelSummary:
        graph = self.built.model.graph
        weights = sum(size_bytes(graph.values[name]) for name in graph.constants)
        return ModelSummary(graph.name, len(self.built.model.calls), MemoryUse(weights, self.built.model.plan.arena_bytes))

    def timer(self, feeds: Mapping[str, object]) -> Timer:
        """Return what measures a run on the device: the seconds of one, the mean of so many as it is called with. Copies from and to the
        host are left out; inputs are copied there once."""
        return self.timer_of(self._arrays(feeds))

    def timer_of(self, arrays: list[object]) -> Timer:
        """Return the same for inputs in order."""
        with self._lock, self.tools.vendor.answered():
            made: Timer = self.loaded.timer(arrays)

        def seconds(repeats: int) -> float:
            self.tools.opened()
            with self._lock, self.tools.vendor.answered():
                return made(repeats)

        return seconds

    def prepared(self, feeds: Mapping[str, object], results: Mapping[str, object] | None) -> Callable[[], dict[str, Any]]:
        if results is not None:
            raise _no_results_given("results")
        self._arrays(feeds)
        return lambda: self.run(feeds)

    def explain(self, feeds: Mapping[str, object] | None) -> str:
        profile = None if feeds is None else self.profile(feeds)
        board = self.tools.vendor.board(self.tools.arch)
        return explained(self.built.model, self.built.usage, self.tools.arch, board, profile, self.tools.precision)

    def profile(self, feeds: Mapping[str, object]) -> Profile:
        model = self.built.model
        placed = [(model.graph, call.node) for call in model.calls]
        return profile_of(model.graph.name, self.tools.name, placed, self.times(self._arrays(feeds)))

    def roofline(self) -> Roofline:
        return self.tools.roofline([call.node.program for call in self.built.model.calls if isinstance(call.node, Kernel)])

    def text(self, stage: str) -> str:
        if stage == "launches":
            return self.explain(None)
        if stage == self.tools.vendor.name:
            return "\n".join(made.launched.text for made in self.built.model.kernels.values())
        return self.tools.vendor.text(self.built.code, stage)

    @property
    def loaded(self) -> Any:
        """Return the executable (`Vendor.executable`). Raises RunError R0321 when there is no device."""
        device = self.tools.opened()
        if self._loaded is None:
            built = self.built
            self._loaded = self.tools.vendor.executable(built.model, built.code, device, built.constants, self._weights)
        return self._loaded

    def times(self, arrays: list[object]) -> list[float]:
        """Return the seconds that each kernel takes on the device."""
        with self._lock, self.tools.vendor.answered():
            times: list[float] = self.loaded.times(arrays)
        return times

    def _arrays(self, feeds: Mapping[str, object]) -> list[object]:
        """Return the inputs in order, those of the host checked and row-major. Raises RunError for what does not fit."""
        check_names(feeds, self.inputs)
        on_device = {name for name, value in feeds.items() if self.tools.vendor.is_on_device(value)}
        here = [value for value in self.inputs if value.name not in on_device]
        arrays = zip((v.name for v in here), checked({v.name: feeds[v.name] for v in here}, here), strict=True)
        given: dict[str, object] = {**feeds, **dict(arrays)}
        return [given[value.name] for value in self.inputs]


def _no_results_given(name: str) -> RunError:
    """Return what is raised for results that are to be written into arrays that a call brings."""
    title = "not supported yet: results of a device in arrays that are given"
    return RunError(Diagnostic("R0307", title, help=f"leave `{name}` out: each run then makes new ones"))


@dataclass(frozen=True, slots=True, eq=False)
class OperatorOnDevice:
    """A program on a device, called with its params (`tensorlang.runtime.protocol.Ready`)."""

    on_device: OnDevice

    @property
    def built(self) -> Built:
        return self.on_device.built

    @property
    def outputs(self) -> Sequence[Place]:
        return self.on_device.outputs

    @property
    def loops(self) -> str:
        return "\n".join(made.launched.text for made in self.built.model.kernels.values())

    @property
    def direct(self) -> None:
        return None

    @property
    def is_plain(self) -> bool:
        return False

    def into(self, arrays: Sequence[Any], results: Mapping[str, object]) -> Any:
        raise _no_results_given("out")

    def prepared(self, arrays: Sequence[Any], results: Mapping[str, object] | None) -> Callable[[], Any]:
        if results is not None:
            raise _no_results_given("out")
        return lambda: self(arrays)

    def __call__(self, arrays: Sequence[Any]) -> Any:
        found = self.on_device.results(self._given(arrays))
        return found[0] if len(found) == 1 else found

    def timer(self, arrays: Sequence[Any]) -> Timer:
        return self.on_device.timer_of(self._given(arrays))

    def explain(self, program: Program, arrays: Sequence[Any], roles: bool = False) -> Explained:
        """Return the schedule, the launches and what they use, what there is to do; and the time, where there is a device."""
        if program.externs:
            return Explained(self._parts_explained(arrays))
        (made,), work = self.built.model.kernels.values(), work_of(program)
        tools = self.on_device.tools
        limits = limits_of(made.launched, work, self.built.usage, tools.arch.limits, tools.vendor.board(tools.arch))
        text = "\n".join(
            [
                *limit_lines(limits),
                "",
                made.schedule,
                "",
                f"schedule   {made.origin}",
                *tried_lines(made.tried, roles),
                *(f"launch     {line}" for line in self.built.launches(tools)),
                *proven_lines("the order and the barriers keep all dependences", made.trusted),
                f"time       {self._time(arrays)}",
            ]
        )
        return Explained(text, limits)

    def _parts_explained(self, arrays: Sequence[Any]) -> str:
        """Return the report of a program that calls kernels which are not in the language, part by part."""
        model = self.built.model
        lines = self.on_device.explain(None).splitlines()
        for call in model.calls:
            if isinstance(call.node, Kernel):
                lines += ["", f"part {call.node.name}", "", model.kernels[call.kernel].schedule]
        return "\n".join((*lines, "", f"time       {self._time(arrays)}", *trusted(model.graph)))

    def _time(self, arrays: Sequence[Any]) -> str:
        try:
            return us(sum(self.on_device.times(self._given(arrays))))
        except RunError as problem:
            return f"not measured: {problem.diagnostics[0].title}"

    def _given(self, arrays: Sequence[Any]) -> list[object]:
        return [a if self.on_device.tools.vendor.is_on_device(a) else row_major(a) for a in arrays]


@dataclass(frozen=True, slots=True, eq=False)
class AnySizesOnDevice:
    """A program whose sizes are open, compiled for a device (`tensorlang.runtime.protocol.AnySizes`). `fixed` are the sizes that are
    numbers in it. Its grids and scratch memory follow from the sizes of a call, which kernels are told as numbers."""

    program: Program
    made: DeviceKernel
    code: Any
    fixed: Mapping[str, int]
    tools: DeviceTools

    @property
    def is_plain(self) -> bool:
        return False

    def fits(self, sizes: Mapping[str, int], arrays: Sequence[Any]) -> bool:
        return serves(self.program, self.fixed, sizes, arrays)

    def at(self, sizes: Mapping[str, int]) -> OperatorOnDevice:
        """Return it for arrays of these sizes. Raises RunError R0315, and CompileError C0111 where grids are larger than a device has."""
        from tensorlang.backends.gpu.build import single

        checked_numbers(self.program, sizes)
        told = self.made.told(self.program.sizes, sizes)
        refuse(exceeded_at(self.made.launched, self.tools.arch.limits, told), self.tools.arch)
        return OperatorOnDevice(OnDevice(Built(single(self.program, self.made, sizes), (self.code,)), self.tools))


def _no_library(target: str) -> CompileError:
    return error("C0131", f"not supported yet: a library for `{target}`", help="libraries are for processors: `--target host`")
