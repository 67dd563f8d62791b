"""A model compiled for a graphics processor: like one for this machine, from the outside.

    model = tl.compile("net.onnx", target="cuda")
    model.run({"x": image})            NumPy gives NumPy; an array on the device gives arrays on the device, and nothing is copied

Compiling and explaining need neither a driver nor a device. Both are looked for when the model first runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from codegen.cuda.arch import TARGET, Arch
from codegen.cuda.errors import ArrayError, DeviceError, Unavailable
from codegen.forks import Lock
from codegen.gpu.limits import Usage
from codegen.llvm import pool
from codegen.store import Cache
from tensorlang.device.machine import arch_of, machine_code, machine_of, opened
from tensorlang.device.model import DeviceModel
from tensorlang.diagnostics import CompileError, Diagnostic, RunError
from tensorlang.graph.edit import members
from tensorlang.graph.nodes import Graph
from tensorlang.graph.precisions import F32, Precision, chosen_on
from tensorlang.policy.machine import USUAL
from tensorlang.policy.machine import Device as Machine
from tensorlang.runtime.bundle import Draft, kept
from tensorlang.runtime.constants import Weights, cells_of, places_of
from tensorlang.runtime.device_roofline import products_of_bf16, roofline_on
from tensorlang.runtime.device_text import explained
from tensorlang.runtime.executable import Progress, quiet
from tensorlang.runtime.feeds import check_names, checked
from tensorlang.runtime.kernel_time import KernelTime
from tensorlang.runtime.model import CompiledModel, Runs, Shapes
from tensorlang.runtime.toolchain import Roles, installed_roles
from tensorlang.runtime.work import Roofline, work_of
from tensorlang.validation.budget import validation_budget

Array = np.ndarray[Any, Any]

_PLACED = np.empty(0, np.uint8)
"""Stands for a constant that lies in the block of them."""


@dataclass(frozen=True, slots=True)
class DeviceTools:
    """What models and operators are compiled with. `threads`: of this machine, to compile on."""

    arch: Arch
    store: Cache | None
    threads: int
    roles: Roles = installed_roles
    target: str = TARGET
    """The name that the architecture was asked for by."""
    precision: Precision = F32
    """What contractions of models multiply in."""
    insist: bool = False
    online: bool = True
    """Whether attention may go through the keys once."""
    machine: Machine = USUAL
    """What schedules are chosen for."""

    @property
    def options(self) -> tuple[object, ...]:
        """Return all that code of these tools depends on besides what it is made from, and whether it has to be validated."""
        return self.arch.target, self.precision.used, self.precision.least, self.online, repr(self.machine), bool(validation_budget())

    _device: list[Any] = field(default_factory=list, repr=False, compare=False)
    """The device, once it was looked for."""
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def opened(self) -> Any:
        """Return the device (`codegen.cuda.device.Device`) on which all that was compiled with these tools runs. Raises RunError R0321."""
        with self._lock:
            if not self._device:
                try:
                    self._device.append(opened())
                except CompileError as problem:
                    raise _nothing_to_run_on(problem) from None
        self._device[0].use()
        return self._device[0]

    def __reduce__(self) -> tuple[Callable[..., DeviceTools], tuple[object, ...]]:
        """In another process the same name is asked for, in the cache there is there."""
        return device_tools, (self.target, self.store is not None, self.roles, self.precision.asked, self.insist, self.online)


def device_tools(
    target: str, cache: bool = True, roles: Roles = installed_roles, precision: str = "f32", insist: bool = False, online: bool = True
) -> DeviceTools:
    """Return what compiles for `cuda` or `cuda:sm_XX`; `precision`, `insist` and `online` as for `tensorlang.compile`. Raises CompileError
    C0101 and C0103."""
    arch = arch_of(target)
    assert arch is not None
    multiplied = chosen_on(precision, products_of_bf16(arch), insist)
    return DeviceTools(
        arch, Cache() if cache else None, pool.available_threads(), roles, target, multiplied, insist, online, machine_of(arch)
    )


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


def coded(model: DeviceModel, tools: DeviceTools, progress: Progress = quiet) -> Built:
    """Return a model with its machine code. Raises CompileError C0111 and C0112."""
    launched = [made.launched for made in model.kernels.values()]

    def done(count: int) -> None:
        progress("compiling kernels", count, len(launched))

    return Built(model, tuple(machine_code(launched, tools.arch, tools.store, tools.threads, done)))


def written(loaded: Graph, tools: DeviceTools, progress: Progress) -> DeviceModel:
    """Return an imported graph as launches. Raises CompileError."""
    from tensorlang.device.build import device_model
    from tensorlang.runtime.library import rules_of

    chosen = replace(rules_of(tuple(tools.roles())), target=TARGET)
    model: DeviceModel = device_model(loaded, tools.store, progress, chosen, tools.precision, tools.threads, tools.machine, tools.online)
    return model


def _built(loaded: Graph, tools: DeviceTools, progress: Progress, key: str | None) -> Built:
    """Return an imported graph compiled, and keep it under `key` where that is given. Raises CompileError."""
    model = written(loaded, tools, progress)
    built = coded(model, tools, progress)
    if key is None:
        return built
    draft = Draft(key, tools.store)
    try:
        places, graph = places_of(model.graph), model.graph
        block = draft.place(Weights(graph.values, dict(graph.constants)), places)
        without = replace(model, graph=replace(graph, constants=dict.fromkeys(graph.constants, _PLACED)))
        draft.finish((without, built.code, places))
    finally:
        draft.drop()
    return Built(without, built.code, cells_of(graph.values, places, block))


def _kept(key: str, tools: DeviceTools) -> Built | None:
    """Return the model that is kept under `key`, or None."""
    found = kept(key, tools.store)
    if found is None:
        return None
    (model, code, places), block = found
    return Built(model, code, cells_of(model.graph.values, places, block))


class OnDevice:
    """Launches that run on the first device of this machine, which is looked for at the first run."""

    def __init__(self, built: Built, tools: DeviceTools, weights: Any = None) -> None:
        """`weights` (`tensorlang.device.executable.SharedWeights`) are those that other shapes of the same model have, too."""
        self.built, self.tools, self._weights = built, tools, weights
        self.inputs, self.outputs = built.model.inputs, built.model.outputs
        self._lock = Lock()
        self._loaded: Any = None

    @property
    def quick(self) -> Callable[[Mapping[str, object]], Any]:
        return lambda feeds: NotImplemented

    def run(self, feeds: Mapping[str, object], stream: object = None) -> dict[str, Any]:
        """Return the outputs by name: in NumPy's arrays, or on the device when any input lies there."""
        return dict(zip((value.name for value in self.outputs), self.results(self._arrays(feeds), stream), strict=True))

    def results(self, arrays: list[object], stream: object = None) -> tuple[Any, ...]:
        """Return the outputs for inputs in order, computed on `stream`; without one on that on which the library of the first input on the
        device works now."""
        with self._lock, answered():
            there = [value for value in arrays if on_device(value)]
            chosen = stream if stream is not None else _stream_of(there[0]) if there else None
            found = self.loaded(arrays, chosen)
            return tuple(found) if there else tuple(array.numpy() for array in found)

    def timer(self, feeds: Mapping[str, object]) -> Callable[[int], float]:
        """Return what measures a run on the device: the seconds of one, the mean of so many as it is called with. Copies from and to the
        host are left out; inputs are copied there once."""
        return self.timer_of(self._arrays(feeds))

    def timer_of(self, arrays: list[object]) -> Callable[[int], float]:
        """Return the same for inputs in order."""
        with self._lock, answered():
            made: Callable[[int], float] = self.loaded.timer(arrays)

        def seconds(repeats: int) -> float:
            self.tools.opened()
            with self._lock, answered():
                return made(repeats)

        return seconds

    def prepared(self, feeds: Mapping[str, object], results: Mapping[str, object] | None) -> Callable[[], dict[str, Any]]:
        if results is not None:
            title = "not supported yet: results of a device in arrays that are given"
            raise RunError(Diagnostic("R0307", title, help="leave `results` out: each run then makes new ones"))
        self._arrays(feeds)
        return lambda: self.run(feeds)

    def explain(self, feeds: Mapping[str, object] | None) -> str:
        times = None if feeds is None else self.times(self._arrays(feeds))
        return explained(self.built.model, self.built.usage, self.tools.arch, times, self.tools.precision)

    def profile(self, feeds: Mapping[str, object]) -> tuple[KernelTime, ...]:
        model = self.built.model
        nodes = [call.node for call in model.calls]
        return tuple(
            KernelTime(k.program.name, members(k), model.graph.values[k.outputs[0]], seconds, work_of(k.program))
            for k, seconds in zip(nodes, self.times(self._arrays(feeds)), strict=True)
        )

    def roofline(self) -> Roofline:
        return roofline_on([call.node.program for call in self.built.model.calls], self.tools.arch)

    @property
    def loaded(self) -> Any:
        """Return the executable (`tensorlang.device.executable.DeviceExecutable`). Raises RunError R0321 when there is no device."""
        device = self.tools.opened()
        if self._loaded is None:
            try:
                from tensorlang.device.executable import DeviceExecutable

                self._loaded = DeviceExecutable(self.built.model, self.built.code, device, self.built.constants, self._weights)
            except Unavailable as problem:
                raise RunError(Diagnostic("R0321", problem.what, help=problem.remedy)) from None
        return self._loaded

    def times(self, arrays: list[object]) -> list[float]:
        """Return the seconds that each kernel takes on the device."""
        with self._lock, answered():
            times: list[float] = self.loaded.times(arrays)
        return times

    def _arrays(self, feeds: Mapping[str, object]) -> list[object]:
        """Return the inputs in order, those of the host checked and row-major. Raises RunError for what does not fit."""
        check_names(feeds, self.inputs)
        there = {name for name, value in feeds.items() if on_device(value)}
        here = [value for value in self.inputs if value.name not in there]
        arrays = zip((v.name for v in here), checked({v.name: feeds[v.name] for v in here}, here), strict=True)
        given: dict[str, object] = {**feeds, **dict(arrays)}
        return [given[value.name] for value in self.inputs]


def _stream_of(value: object) -> Any:
    """Return the stream on which the library of an array that lies on a device works now."""
    from codegen.cuda.arrays import current_stream

    return current_stream(value)


def on_device(value: object) -> bool:
    """Tell whether `value` is an array of the kind that lies on a device."""
    if isinstance(value, np.ndarray) or not (hasattr(value, "__dlpack_device__") or hasattr(value, "__cuda_array_interface__")):
        return False
    try:
        from codegen.cuda.arrays import is_on_device

        return bool(is_on_device(value))
    except Unavailable:  # without NVIDIA's packages nothing here can be on a device
        return False


def _nothing_to_run_on(problem: CompileError) -> RunError:
    (found,) = problem.diagnostics
    notes = (found.help,) if found.help else ()
    return RunError(Diagnostic("R0321", found.title, notes=notes, help="compile for this machine's processor: `target='cpu'`"))


@contextmanager
def answered() -> Iterator[None]:
    """Turn what the driver refuses, and arrays on a device that cannot be taken, into RunErrors."""
    try:
        yield
    except DeviceError as problem:
        raise RunError(Diagnostic("R0322", "the device does not do what it is asked for", notes=(str(problem),))) from None
    except ArrayError as problem:
        raise RunError(Diagnostic("R0305", str(problem))) from None


class DeviceCompiledModel(CompiledModel):
    """A model compiled for a device. `run` may be called from several threads; runs of one model follow one another."""

    kept = 8

    def __init__(
        self,
        load: Callable[[Shapes | None], Graph],
        tools: DeviceTools,
        *,
        shapes: Shapes | None = None,
        progress: Progress = quiet,
        key: Callable[[Shapes | None], str] | None = None,
        made: Callable[[], CompiledModel] | None = None,
    ) -> None:
        """`load(shapes)` returns the model's graph for given input shapes, or for its own when they are all known; `key(shapes)` is what
        the compiled model is kept under on disk, if it may be; `made()` makes the same model in another process.

        Raises CompileError for what is not supported, C0111 and C0112."""
        self._load, self._tools, self._progress, self._key = load, tools, progress, key
        self._weights: Any = None
        self._start(shapes, made)

    @property
    def built(self) -> Built:
        """The launches and their machine code. Raises RunError while shapes are open."""
        found = self._known()
        assert isinstance(found, OnDevice)
        return found.built

    def run(self, feeds: Mapping[str, object], *, stream: object = None) -> dict[str, Any]:
        """Return the outputs by name. `feeds` has an array for every input: of NumPy, then the outputs are NumPy's; or on the device, then
        nothing is copied, and the outputs are on the device. What the run does happens on `stream`, the handle of one of CUDA's streams
        or an object with `__cuda_stream__`; without it, on the stream on which the library of the first input on the device works now
        (torch's and CuPy's current stream), or on one of the model's own.

        Raises RunError: R0301 to R0305 for arrays that do not fit, R0306 when an index or a size in the data is out of range, R0321 and
        R0322 for the device."""
        made = self._made_for(feeds)
        assert isinstance(made, OnDevice)
        return made.run(feeds, stream)

    def seconds(self, feeds: Mapping[str, object], repeats: int = 10) -> float:
        """Return the seconds of a run on the device, the mean of `repeats` launches of its graph between two events; copies from and to the
        host are left out. Raises RunError as `run` does."""
        return self.timer(feeds)(repeats)

    def timer(self, feeds: Mapping[str, object]) -> Callable[[int], float]:
        """Return `seconds` of these inputs as a function of `repeats`, for measuring in turns: inputs of the host are copied to the device
        once, and launches are captured once. Raises RunError as `run` does."""
        made = self._made_for(feeds)
        assert isinstance(made, OnDevice)
        return made.timer(feeds)

    def _shape(self, value: object, name: str) -> tuple[int, ...]:
        if not on_device(value):
            return super()._shape(value, name)
        interface = getattr(value, "__cuda_array_interface__", None)
        return tuple(getattr(value, "shape", ()) if interface is None else interface["shape"])

    def _specialise(self, shapes: Shapes | None) -> Runs:
        key = self._key(shapes) if self._key is not None else None
        built: Built | None = _kept(key, self._tools) if key is not None else None
        if built is None:
            built = _built(self._load(shapes), self._tools, self._progress, key)
        return OnDevice(built, self._tools, self._shared())

    def _shared(self) -> Any:
        """Return the weights that all shapes share once there is a device, or None where there is one shape."""
        if self._weights is None and self._is_open:
            from tensorlang.device.executable import SharedWeights

            self._weights = SharedWeights()
        return self._weights
