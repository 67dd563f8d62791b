"""The libraries that our times are put next to. One table says of each: its name, its precision, how to make it run a task.

A task is a model (an ONNX file or its bytes) with inputs, or an operator with arrays: then `calls` says what a library without ONNX calls
to compute it. Nothing is imported before it is asked for; what is not installed is left out, or refused when it was named.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tensorlang.diagnostics import error

Array = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[], list[Array]]
"""Computes everything anew and returns the results; they may be overwritten by the next run. Libraries of arrays run on as many threads as
the run that was made last: what sets their number is no part of a run."""
Call: TypeAlias = Callable[..., object]
"""Called with a library's arrays: the inputs in order, then arrays for the results. What it returns, if anything, is the result."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What all contenders are to compute."""

    inputs: Mapping[str, Array]
    model: str | bytes | None = None
    calls: Mapping[str, Call] = field(default_factory=dict)
    """By names of peers."""
    weights: tuple[Array, ...] = ()
    """Inputs of `calls` that the model has inside; they come after `inputs`."""
    results: tuple[Array, ...] = ()
    """Arrays like the results, which contenders then write into arrays of their own that exist; without them each run makes new ones."""


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """A run on a GPU, on inputs that lie there. `seconds(n)`: the mean of n runs in a row, by the device's own clock."""

    seconds: Callable[[int], float]
    results: Callable[[], list[Array]]


@dataclass(frozen=True, slots=True)
class Peer:
    """A library to compare with. `precision` is what it computes in: `f32`, or `default` where it decides itself."""

    name: str
    package: str
    precision: str
    make: Callable[[Task, int], Run | None]
    on_device: Callable[[Task], DeviceRun | None] | None = None
    """Returns a run on the GPU, for what can do that."""

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None

    @property
    def version(self) -> str:
        return version(self.package)

    def run(self, task: Task, threads: int) -> Run | None:
        """Return a run of `task` on `threads` threads, or None when the task is nothing for this peer."""
        return self.make(task, threads)


def peers(names: Iterable[str] | None = None) -> tuple[Peer, ...]:
    """Return the peers called `names`, or all that are installed. Raises CompileError C0221 for one that is not known or not installed."""
    if names is None:
        return tuple(p for p in PEERS if p.installed)
    found = []
    for name in names:
        peer = next((p for p in PEERS if p.name.lower() == name.lower()), None)
        if peer is None:
            raise error("C0221", f"there is no peer `{name}`", help=f"known are {', '.join(f'`{p.name}`' for p in PEERS)}")
        if not peer.installed:
            raise error("C0221", f"{peer.package} is not installed", help=f"pip install {peer.package}")
        found.append(peer)
    return tuple(found)


def runs(task: Task, threads: int, chosen: Iterable[Peer]) -> dict[str, Run]:
    """Return the runs of those among `chosen` that can do the task, by name."""
    made = ((peer.name, peer.run(task, threads)) for peer in chosen)
    return {name: run for name, run in made if run is not None}


def device_runs(task: Task, chosen: Iterable[Peer]) -> dict[str, DeviceRun]:
    """Return the runs on the GPU of those among `chosen` that can do the task there, by name."""
    made = ((peer.name, peer.on_device(task)) for peer in chosen if peer.on_device is not None)
    return {name: run for name, run in made if run is not None}


# ---------------------------------------------------------------- onnxruntime


def _onnxruntime(task: Task, threads: int) -> Run | None:
    if task.model is None:
        return None
    peer = importlib.import_module("onnxruntime")
    options = peer.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = peer.InferenceSession(task.model, options, providers=["CPUExecutionProvider"])
    inputs = dict(task.inputs)
    if not task.results or inputs.keys() != {port.name for port in session.get_inputs()}:  # of which alone places are bound
        return lambda: list(session.run(None, inputs))
    results = _places(task)
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for port, array in zip(session.get_outputs(), results, strict=True):
        binding.bind_output(port.name, "cpu", 0, array.dtype, list(array.shape), array.ctypes.data)

    def run() -> list[Array]:
        session.run_with_iobinding(binding)
        return results

    return run


# ---------------------------------------------------------------- OpenVINO


def _openvino(hints: Mapping[str, str]) -> Callable[[Task, int], Run | None]:
    """Return how OpenVINO runs a task under `hints`."""

    def make(task: Task, threads: int) -> Run | None:
        if task.model is None:
            return None
        peer = importlib.import_module("openvino")
        core = peer.Core()
        model = core.read_model(task.model)
        if not all(any(name in port.names for port in model.inputs) for name in task.inputs):
            return None  # an initializer is no input
        options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, **hints}
        compiled = core.compile_model(model, "CPU", options)
        request = compiled.create_infer_request()
        places = [*task.inputs.items(), *zip(compiled.outputs, _places(task), strict=False)]
        for place, array in places:
            request.set_tensor(place, peer.Tensor(array, shared_memory=True))
        return _Request(request, tuple(compiled.outputs), tuple(array for _, array in places))

    return make


@dataclass(frozen=True, slots=True)
class _Request:
    """A run of OpenVINO. `arrays` are what it reads and writes; it does not keep them alive itself."""

    request: Any
    ports: tuple[Any, ...]
    arrays: tuple[Array, ...]

    def __call__(self) -> list[Array]:
        self.request.infer(share_outputs=True)
        return [self.request.get_tensor(port).data for port in self.ports]


# ---------------------------------------------------------------- libraries of arrays


def _torch(task: Task, threads: int) -> Run | None:
    call = task.calls.get("torch")
    if call is None:
        return None
    torch = importlib.import_module("torch")
    tensors = [torch.from_numpy(a) for a in (*task.inputs.values(), *task.weights, *_places(task))]
    results = [t.numpy() for t in tensors[len(task.inputs) + len(task.weights) :]]
    torch.set_num_threads(threads)

    def run() -> list[Array]:
        found: Any = call(*tensors)
        return results if found is None else [r.numpy() for r in (found if isinstance(found, (list, tuple)) else [found])]

    return run


def _torch_on_device(task: Task) -> DeviceRun | None:
    call = task.calls.get("torch")
    torch = importlib.import_module("torch")
    if call is None or not torch.cuda.is_available():
        return None
    return torch_on_device(torch, call, [*task.inputs.values(), *task.weights, *_places(task)], len(task.results))


def torch_on_device(torch: Any, call: Call, arrays: Sequence[Any], places: int = 0) -> DeviceRun:
    """Return `call` on copies of `arrays` on the device, as one CUDA graph: the fastest way that torch has of doing the same again. The
    last `places` arrays are where it writes. Products of f32 are f32, not tf32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    tensors = [torch.as_tensor(a).cuda() for a in arrays]

    def once() -> Any:
        with torch.inference_mode():
            found = call(*tensors)
        return tensors[len(tensors) - places :] if found is None else found if isinstance(found, (list, tuple)) else [found]

    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(_WARM):
            once()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = once()

    def seconds(repeats: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / repeats

    def results() -> list[Array]:
        graph.replay()
        return [r.float().cpu().numpy() if r.dtype is torch.bfloat16 else r.cpu().numpy() for r in found]

    return DeviceRun(seconds, results)


_WARM = 3
"""Runs before the one that is captured: libraries choose algorithms and allocate in them."""


def _numpy(task: Task, threads: int) -> Run | None:
    call = task.calls.get("numpy")
    if call is None:
        return None
    arrays = [*task.inputs.values(), *task.weights]
    results = _places(task)
    set_blas_threads(threads)

    def run() -> list[Array]:
        found = call(*arrays, *results)
        return results if found is None else [np.asarray(found)]

    return run


def set_blas_threads(threads: int) -> None:
    """Let numpy's matrix products use so many threads; without effect where its BLAS is not OpenBLAS."""
    for function in _blas_setters():
        function(threads)


@cache
def _blas_setters() -> tuple[Callable[[int], object], ...]:
    try:
        mapped = {line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}
    except OSError:
        return ()
    found = [getattr(ctypes.CDLL(path), name, None) for path in sorted(mapped) for name in _SETTERS]
    return tuple(f for f in found if f is not None)


_SETTERS = ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads64_")


def _places(task: Task) -> list[Array]:
    return [np.empty_like(a) for a in task.results]


# ---------------------------------------------------------------- the table

PEERS = (
    Peer("onnxruntime", "onnxruntime", "f32", _onnxruntime),
    Peer("openvino", "openvino", "f32", _openvino({"INFERENCE_PRECISION_HINT": "f32"})),
    Peer("openvino-default", "openvino", "default", _openvino({})),
    Peer("torch", "torch", "f32", _torch, _torch_on_device),
    Peer("numpy", "numpy", "f32", _numpy),
)
"""Everything that is measured when it is installed. OpenVINO appears twice: in f32, and in the precision it chooses for the processor
(bf16 where that is faster), which only our reduced precisions are compared with."""
