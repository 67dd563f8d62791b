"""Devices: memory, launches, and graphs of launches, in order on one stream. Thin over cuda-core.

    device = Device()
    code = device.load(program, compiled)
    x = device.allocate(4096)
    device.upload(x.address, array)
    device.run([code.work(sizes, {"x": x.address, ...})])        or device.captured([...]).launch(), again and again
    device.download(x.address, array)

Everything is asked for in order and happens in order on `device.stream`; `download` and `wait` return when all of it is done.
`device.on(stream)` is the same device with another stream, such as that of the caller. What is missing (packages, driver, device) is
`Unavailable`; what the driver refuses is `DeviceError`. A host thread that did not make the device calls `use` first.

Written against cuda-core 1.2 and tested with a stand-in for it that records calls, with cuda-core over a driver that computes nothing, and
on an H200. Kernels are launched through the driver's own function: what cuda-core has for tensor maps does not lie where the
driver takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.cuda.arch import Arch, ArchError, named, of_capability
from codegen.cuda.arguments import Arguments
from codegen.cuda.bindings import core, driver
from codegen.cuda.compile import Compiled
from codegen.cuda.errors import DeviceError, Unavailable
from codegen.forks import Lock
from codegen.gpu.dispatch import Dispatch, Layout, dispatches, scratch_layout
from codegen.gpu.program import Program

_INSTALL = "install NVIDIA's driver, on a machine with one of its GPUs"


@dataclass(frozen=True, slots=True)
class Found:
    """A device of this machine; `arch` is what is best compiled for it, or None when no known architecture runs on it."""

    number: int
    name: str
    capability: tuple[int, int]
    arch: Arch | None
    multiprocessors: int


def driver_version() -> tuple[int, int]:
    """Return the version of CUDA that the driver supports. Raises Unavailable when there is no driver."""
    try:
        status, version = driver.cuDriverGetVersion()
    except RuntimeError:  # how the loader of NVIDIA's packages says that it found no library
        raise Unavailable("there is no CUDA driver", _INSTALL) from None
    if status != driver.CUresult.CUDA_SUCCESS:
        raise Unavailable(f"the CUDA driver does not answer ({status.name})", _INSTALL)
    return version // 1000, version % 1000 // 10


def devices() -> tuple[Found, ...]:
    """Return the devices of this machine. Raises Unavailable when there is no driver or no device."""
    driver_version()
    try:
        found = core.Device.get_all_devices()
    except Exception as problem:  # without a device, or with one that is lost, the driver does not start
        raise Unavailable(f"the CUDA driver does not start ({_first_line(problem)})", _INSTALL) from None
    if not found:
        raise Unavailable("the CUDA driver sees no device", _INSTALL)
    return tuple(_found(device) for device in found)


def _found(device: Any) -> Found:
    capability = (int(device.compute_capability.major), int(device.compute_capability.minor))
    try:
        arch = of_capability(capability)
    except ArchError:
        arch = None
    return Found(int(device.device_id), str(device.name), capability, arch, int(device.properties.multiprocessor_count))


class Memory:
    """Bytes on a device, given back to its pool when nobody holds this object any more. Addresses are multiples of 256."""

    __slots__ = ("__weakref__", "_buffer", "address", "size_bytes")

    def __init__(self, buffer: Any, size_bytes: int) -> None:
        self._buffer = buffer
        self.address = int(buffer.handle)
        self.size_bytes = size_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Launches ready to go: what to call each in an error, its numbers, what to launch, with which arguments. `holds` keeps what
    they need alive: code, memory."""

    launches: tuple[tuple[str, Dispatch, Any, Arguments], ...]
    holds: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """A program whose machine code is on the device."""

    program: Program
    kernels: Mapping[str, Any]

    def scratch(self, sizes: Mapping[str, int]) -> Layout:
        """Return where scratch buffers lie, and how many bytes have to be given for them, when it runs with these sizes."""
        return scratch_layout(self.program, sizes)

    def work(
        self,
        sizes: Mapping[str, int],
        addresses: Mapping[str, int],
        scratch: int = 0,
        status: int = 0,
        holds: tuple[object, ...] = (),
    ) -> Work:
        """Return the launches of one run: params at `addresses`, scratch memory and the status word at theirs."""
        found = dispatches(self.program, sizes, addresses, scratch, status)
        return Work(tuple((_told(d), d, _function(self.kernels[d.kernel]), _arguments(d)) for d in found), (self, *holds))


class Graph:
    """Work that was captured: one call launches all of it, with the addresses and sizes that it was captured with."""

    def __init__(self, device: Device, graph: Any, holds: tuple[object, ...]) -> None:
        self._device, self._graph, self._holds = device, graph, holds

    def launch(self, device: Device | None = None) -> None:
        """Have all of it run after what was asked for before on the stream of `device`, or of the one that captured it."""
        with _asking("launching a graph"):
            self._graph.launch((device or self._device).stream)


class _Recorder:
    """The stream that graphs are captured from, by one thread at a time. Nothing else is ever asked for on it: while a stream is captured,
    whatever a thread asks for on it would become part of the graph, or end the capture. (And the default streams of other libraries
    cannot be captured.)"""

    def __init__(self, stream: Any) -> None:
        self._stream, self._lock = stream, Lock()

    def recorded(self, work: Sequence[Work]) -> Any:
        """Return the graph of all of `work`, in order."""
        with self._lock:
            builder = self._stream.create_graph_builder()
            builder.begin_building()
            _launch(builder.stream, work)
            return builder.end_building().complete()


class Device:
    """One GPU, by its number, and the stream on which everything here happens, as several threads ask for it."""

    def __init__(self, number: int = 0, stream: object = None) -> None:
        """`stream`: the one to use instead of a new one: an object with `__cuda_stream__` (torch's and CuPy's have it), or a handle.

        Raises Unavailable when there is no such device."""
        found = devices()
        if not 0 <= number < len(found):
            raise Unavailable(f"there is no device {number}", f"the devices are 0 to {len(found) - 1}")
        self.number, self.name, self.capability = number, found[number].name, found[number].capability
        arch = found[number].arch
        if arch is None:
            raise Unavailable(f"{self.name} has compute capability {_dotted(self.capability)}", "no code can be made for it")
        self.arch = arch
        with _asking(f"starting device {number}"):
            self._device = core.Device(number)
            self._device.set_current()
            self.stream = self._own = _stream(self._device, stream)
            self._recorder = _Recorder(self._device.create_stream())
            self._pool = core.DeviceMemoryResource(self._device)

    def on(self, stream: object) -> Device:
        """Return this device with everything happening on `stream`: a handle, or an object with `__cuda_stream__`. Nothing waits for what
        happens on other streams; `follow` does that."""
        with _asking("taking a stream"):
            other = copy(self)
            other.stream = self._own if stream is self._own else _stream(self._device, stream)
        return other

    def follow(self, event: Any) -> None:
        """Let what is asked for from now on happen after `event` (of `mark`), or after all that was asked for on a stream so far."""
        with _asking("waiting on the device"):
            self.stream.wait(event)

    @property
    def is_primary_stream(self) -> bool:
        """Tell whether the stream is the one that the device was made with."""
        return self.stream is self._own

    def use(self) -> None:
        """Make this the device of the calling host thread."""
        self._device.set_current()

    def load(self, program: Program, compiled: Compiled) -> Code:
        """Return `program` on the device. Raises Unavailable when its machine code is for other devices."""
        if not named(f"cuda:{compiled.arch}").runs_on(self.capability):
            raise Unavailable(
                f"machine code for {compiled.arch} does not run on {self.name} ({_dotted(self.capability)})",
                f"compile for `{self.arch.target}`",
            )
        with _asking(f"loading `{program.name}`"):
            cubin = core.ObjectCode.from_cubin(compiled.cubin, name=program.name)
            kernels = {kernel.name: cubin.get_kernel(kernel.name) for kernel in program.kernels}
            for kernel in program.kernels:
                if kernel.dynamic_bytes:
                    with _asking(f"allowing `{kernel.name}` {kernel.dynamic_bytes} bytes of shared memory"):
                        self._allow_shared(kernels[kernel.name], kernel.dynamic_bytes)
        return Code(program, kernels)

    def allocate(self, size_bytes: int) -> Memory:
        """Return uninitialised memory from the device's pool."""
        with _asking(f"allocating {size_bytes} bytes"):
            return Memory(self._pool.allocate(max(1, size_bytes), stream=self.stream), size_bytes)

    def upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Copy a row-major array to the device. It may be changed as soon as this returns."""
        if array.nbytes:
            assert array.flags.c_contiguous
            with _asking(f"copying {array.nbytes} bytes to the device"):
                _succeeded(driver.cuMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, self.stream.handle))
                if _is_known_to_driver(array.ctypes.data):
                    self.stream.record().sync()

    def download(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Fill a row-major array from the device, when all that was asked for before is done."""
        if array.nbytes:
            assert array.flags.c_contiguous and array.flags.writeable
            with _asking(f"copying {array.nbytes} bytes from the device"):
                _succeeded(driver.cuMemcpyDtoHAsync(array.ctypes.data, address, array.nbytes, self.stream.handle))
        self.wait()

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        """Copy bytes from one place on the device to another."""
        if size_bytes:
            with _asking(f"copying {size_bytes} bytes on the device"):
                _succeeded(driver.cuMemcpyDtoDAsync(target, source, size_bytes, self.stream.handle))

    def clear(self, address: int, size_bytes: int) -> None:
        """Fill memory with zeros."""
        if size_bytes:
            with _asking(f"clearing {size_bytes} bytes"):
                _succeeded(driver.cuMemsetD8Async(address, 0, size_bytes, self.stream.handle))

    def run(self, work: Sequence[Work]) -> None:
        """Launch all of `work`, in order."""
        _launch(self.stream, work)

    def captured(self, work: Sequence[Work]) -> Graph:
        """Return a graph that runs all of `work`, in order. Nothing runs yet."""
        with _asking("capturing a graph"):
            graph = self._recorder.recorded(work)
            graph.upload(self.stream)
        return Graph(self, graph, (*work, *(held for part in work for held in part.holds)))

    def seconds(self, graph: Graph, times: int = 1) -> float:
        """Return the time on the device of one launch of `graph`, the mean of `times` in a row."""
        options = core.EventOptions(timing_enabled=True)
        with _asking("timing a graph"):
            begin = self.stream.record(options=options)
            for _ in range(times):
                graph.launch(self)
            end = self.stream.record(options=options)
            end.sync()
            return float(end - begin) * 1e-3 / times

    def mark(self) -> Any:
        """Return an event: its `is_done` says whether all that was asked for so far is done."""
        with _asking("recording an event"):
            return self.stream.record()

    def wait(self) -> None:
        """Return when all that was asked for is done. Raises DeviceError when any of it failed."""
        with _asking("waiting for the device"):
            self.stream.sync()

    def _allow_shared(self, kernel: Any, size_bytes: int) -> None:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _succeeded(driver.cuKernelSetAttribute(attribute, size_bytes, kernel.handle, self.number))


def _stream(device: Any, given: object) -> Any:
    match given:
        case None:
            return device.create_stream()
        case 0 | 1:
            return core.LEGACY_DEFAULT_STREAM
        case 2:
            return core.PER_THREAD_DEFAULT_STREAM
        case int():
            return core.Stream.from_handle(given)
        case _:
            return device.create_stream(given)


def _told(dispatch: Dispatch) -> str:
    blocks, threads = (" x ".join(map(str, axes)) for axes in (dispatch.grid, dispatch.block))
    return f"launching `{dispatch.kernel}`, {blocks} blocks of {threads} threads, {dispatch.dynamic_bytes} bytes of shared memory asked for"


def _function(kernel: Any) -> Any:
    """Return a kernel as the driver launches it."""
    return driver.CUfunction(int(kernel.handle))


def _arguments(dispatch: Dispatch) -> Arguments:
    with _asking(f"making the arguments of `{dispatch.kernel}`"):
        return Arguments(dispatch.arguments)


def _launch(stream: Any, work: Sequence[Work]) -> None:
    for part in work:
        for told, dispatch, function, arguments in part.launches:
            with _asking(told):
                over = (*dispatch.grid, *dispatch.block, dispatch.dynamic_bytes)
                _succeeded(driver.cuLaunchKernel(function, *over, stream.handle, arguments.pointers, 0))


def _is_known_to_driver(address: int) -> bool:
    """Tell whether memory of the host is page-locked or managed: then it is read while the copy goes on, and not before it begins. Asked
    for a list of attributes, the driver takes memory that it does not know for no error."""
    status, (kind,) = driver.cuPointerGetAttributes(1, [driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE], address)
    return bool(status == driver.CUresult.CUDA_SUCCESS and int(kind) != 0)


def _succeeded(answer: tuple[Any, ...]) -> None:
    """Raise DeviceError for what the driver calls an error."""
    if answer[0] != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(answer[0].name)


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Turn whatever the driver has against `what` into a DeviceError that says both."""
    try:
        yield
    except (Unavailable, AssertionError):
        raise
    except DeviceError as problem:
        raise DeviceError(f"{what}: {problem}") from None
    except Exception as problem:
        raise DeviceError(f"{what}: {_first_line(problem)}") from problem


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
