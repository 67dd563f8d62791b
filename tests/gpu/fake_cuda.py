"""A stand-in for NVIDIA's packages: device memory is memory of the host, calls are recorded, kernels are functions of Python.

    fake = FakeCuda(kernels={"scale": lambda blocks, x, y, n: ...})
    fake.install(monkeypatch)
    ...
    assert fake.calls == ["device 0", "allocate 64", ...]

`names_of_the_real_packages` in test_cuda_device.py holds what is used here against what they have.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from codegen.cuda import tensor_maps
from codegen.cuda.bindings import driver


class FakeCuda:
    """Some devices of one compute capability. `fails` names a call that the driver refuses."""

    def __init__(
        self,
        kernels: Mapping[str, Callable[..., None]] | None = None,
        capability: tuple[int, int] = (9, 0),
        devices: int = 1,
        fails: str | None = None,
        multiprocessors: int = 114,
    ) -> None:
        self.kernels, self.capability, self.count, self.fails = dict(kernels or {}), capability, devices, fails
        self.multiprocessors = multiprocessors
        self.calls: list[str] = []
        self.streams = 0
        self.captured: dict[int | str, _Builder] = {}
        """What captures streams, by their handles: nobody may ask for anything else on them."""
        self.handles: list[_Handle] = []
        self.maps: list[Any] = []
        """The tensor maps that were made."""
        self.meanwhile: Callable[[], None] = lambda: None
        """What others do while a graph is captured."""
        self.locked: set[int] = set()
        """Where page-locked memory of the host begins: copies from it go on after they are asked for, until somebody waits."""
        self.pending: list[Callable[[], object]] = []
        self.blocks: dict[int, np.ndarray[Any, Any]] = {}
        self.core = SimpleNamespace(
            Buffer=SimpleNamespace(from_handle=lambda address, size, owner: SimpleNamespace(address=address, size=size, owner=owner)),
            Device=_devices(self),
            DeviceMemoryResource=lambda device: _Pool(self),
            EventOptions=lambda timing_enabled: SimpleNamespace(timing_enabled=timing_enabled),
            LEGACY_DEFAULT_STREAM=_Stream(self, "legacy"),
            PER_THREAD_DEFAULT_STREAM=_Stream(self, "per thread"),
            ObjectCode=SimpleNamespace(from_cubin=self._cubin),
            Stream=SimpleNamespace(from_handle=lambda handle: _Stream(self, handle)),
        )
        success = driver.CUresult.CUDA_SUCCESS
        self._encoded = tensor_maps._ENCODE(self._encode)
        encode = ctypes.cast(self._encoded, ctypes.c_void_p).value
        self.driver = SimpleNamespace(
            CUresult=driver.CUresult,
            CUfunction=lambda handle: self.handles[handle - 1],
            CUtensorMapDataType=driver.CUtensorMapDataType,
            CUtensorMapFloatOOBfill=driver.CUtensorMapFloatOOBfill,
            CUtensorMapInterleave=driver.CUtensorMapInterleave,
            CUtensorMapL2promotion=driver.CUtensorMapL2promotion,
            CUtensorMapSwizzle=driver.CUtensorMapSwizzle,
            cuGetProcAddress=lambda name, version, flags: (success, {b"cuTensorMapEncodeTiled": encode}[name], 0),
            cuLaunchKernel=self._launched,
            CUpointer_attribute=SimpleNamespace(CU_POINTER_ATTRIBUTE_MEMORY_TYPE="type"),
            cuPointerGetAttributes=lambda count, what, address: (success, [int(address in self.locked)] * count),
            CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared"),
            cuDriverGetVersion=lambda: (success, 13000),
            cuKernelSetAttribute=lambda attribute, value, kernel, device: self._answer(f"{kernel} may ask for {value} {attribute}"),
            cuMemcpyHtoDAsync=lambda target, source, size, stream: self._copy("upload", target, source, size, stream),
            cuMemcpyDtoHAsync=lambda target, source, size, stream: self._copy("download", target, source, size, stream),
            cuMemcpyDtoDAsync=lambda target, source, size, stream: self._copy("copy", target, source, size, stream),
            cuMemsetD8Async=self._clear,
        )

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in ("codegen.cuda.device", "codegen.cuda.arrays"):
            monkeypatch.setattr(f"{module}.core", self.core)
        for module in ("codegen.cuda.device", "codegen.cuda.tensor_maps"):
            monkeypatch.setattr(f"{module}.driver", self.driver)

    def note(self, call: str) -> None:
        self.calls.append(call)
        if self.fails is not None and call.startswith(self.fails):
            raise RuntimeError(f"CUDA_ERROR_OF_THE_TEST: {call}\nmore about it")

    def _answer(self, call: str) -> tuple[Any]:
        self.calls.append(call)
        refused = self.fails is not None and call.startswith(self.fails)
        return (SimpleNamespace(name="CUDA_ERROR_OF_THE_TEST") if refused else self.driver.CUresult.CUDA_SUCCESS,)

    def _copy(self, what: str, target: int, source: int, size: int, stream: int | str) -> tuple[Any]:
        if stream in self.captured:
            return (SimpleNamespace(name="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),)
        answer = self._answer(f"{what} {size}")
        if source in self.locked:
            self.pending.append(lambda: ctypes.memmove(target, source, size))
        else:
            ctypes.memmove(target, source, size)
        return answer

    def wait(self) -> None:
        """Return when all copies are done."""
        while self.pending:
            self.pending.pop(0)()

    def _clear(self, address: int, value: int, size: int, stream: object) -> tuple[Any]:
        ctypes.memset(address, value, size)
        return self._answer(f"clear {size}")

    def _cubin(self, module: bytes, *, name: str) -> Any:
        self.note(f"load {name}")
        return SimpleNamespace(get_kernel=self.kernel)

    def kernel(self, name: str, run: Callable[..., None] | None = None) -> Any:
        """Return a kernel as a module has it; `run(config, arguments)` does what it does, if that is not one of `kernels`."""
        handle = _Handle(len(self.handles) + 1)
        handle.name = name
        handle.run = run or (lambda config, arguments: self.kernels[name](config.grid, *arguments))
        self.handles.append(handle)
        return _Kernel(handle=handle)

    def _launched(self, kernel: Any, *numbers: Any) -> tuple[Any]:
        """Launch a kernel as the driver does: blocks, threads, shared memory, the stream, where its arguments lie."""
        *axes, shared, stream, pointers, extra = numbers
        assert extra == 0 and all(type(n) is int for n in axes) and max(axes[1:]) <= 65535
        config = SimpleNamespace(grid=tuple(axes[:3]), block=tuple(axes[3:]), shmem_size=shared)
        words = [ctypes.c_int64.from_address(pointer).value for pointer in pointers]
        arguments = tuple(self.maps[word - _MAP] if 0 <= word - _MAP < len(self.maps) else word for word in words)
        self.note(f"launch {kernel} {config.grid} {config.block} {config.shmem_size}")
        self._take(self.captured.get(stream) or _Stream(self, stream), lambda: kernel.run(config, arguments))
        return (self.driver.CUresult.CUDA_SUCCESS,)

    def _take(self, stream: Any, run: Callable[[], None]) -> None:
        stream.take(run)

    def _encode(self, place: int, kind: int, rank: int, address: int, *rest: Any) -> int:
        """Make a tensor map of what the driver is told, if it is as the driver's documentation wants it."""
        lengths = (rank, rank - 1, rank, rank)
        kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
        read = [tuple((k * n).from_address(a))[::-1] if n else () for k, n, a in zip(kinds, lengths, rest[:4], strict=True)]
        (shape, strides, box, steps), (interleave, swizzle, near, fill) = read, rest[4:]
        element = int(driver.CUtensorMapDataType(kind).name.rpartition("UINT")[2]) // 8
        swizzled = driver.CUtensorMapSwizzle(swizzle).name.removeprefix("CU_TENSOR_MAP_")
        inner, widest = box[-1] * element, {"NONE": 4096}.get(swizzled.removeprefix("SWIZZLE_")) or int(swizzled.split("_")[1][:-1])
        wanted = (
            place % 128 == 0 and address % 16 == 0 and 1 <= rank <= 5,
            all(1 <= n <= 2**32 for n in shape) and all(n % 16 == 0 and n < 2**40 for n in strides),
            all(1 <= n <= 256 for n in box) and inner % 16 == 0 and inner <= widest,
            steps == (1,) * rank and interleave == fill == 0,
        )
        if not all(wanted):
            return int(driver.CUresult.CUDA_ERROR_INVALID_VALUE)
        tensor = {"shape": shape, "strides": (*strides, element), "typestr": f"<u{element}", "data": (address, False)}
        told = driver.CUtensorMapL2promotion(near).name.removeprefix("CU_TENSOR_MAP_L2_PROMOTION_")
        self.maps.append(SimpleNamespace(tensor=tensor, box=box, swizzle=swizzled.removeprefix("SWIZZLE_NONE") or "NONE", near=told))
        ctypes.c_int64.from_address(place).value = _MAP + len(self.maps) - 1
        return 0


def _devices(fake: FakeCuda) -> Any:
    class Device:
        def __init__(self, number: int) -> None:
            self.device_id = number
            self.name = f"fake {number}"
            self.properties = SimpleNamespace(multiprocessor_count=fake.multiprocessors)
            self.compute_capability = SimpleNamespace(major=fake.capability[0], minor=fake.capability[1])

        @staticmethod
        def get_all_devices() -> tuple[Any, ...]:
            return tuple(Device(number) for number in range(fake.count))

        def set_current(self) -> None:
            fake.note(f"device {self.device_id}")

        def create_stream(self, given: object = None) -> Any:
            fake.note("stream" if given is None else f"stream of {given}")
            fake.streams += 1
            return _Stream(fake, 6 + fake.streams)

    return Device


_MAP = 0x7E45_0000_0000_0000
"""What the first word of a tensor map is, and how many were made before it."""


class _Kernel(SimpleNamespace):
    """A kernel of a module that was loaded."""


class _Handle(int):
    """A kernel as the driver knows it."""

    name: str
    run: Callable[..., None]

    def __str__(self) -> str:
        return self.name

    __format__ = lambda self, how: self.name  # noqa: E731


class _Pool:
    """Memory that nobody holds any more is what is given next."""

    def __init__(self, fake: FakeCuda) -> None:
        self.fake = fake
        self.free: dict[int, list[np.ndarray[Any, Any]]] = {}

    def allocate(self, size: int, *, stream: Any) -> Any:
        self.fake.note(f"allocate {size}")
        free = self.free.setdefault(size, [])
        block = free.pop() if free else np.empty(size + 256, np.uint8)
        block[:] = 0xFF
        return _Buffer(block, -(-block.ctypes.data // 256) * 256, size, free)


class _Buffer:
    def __init__(self, block: np.ndarray[Any, Any], handle: int, size: int, free: list[np.ndarray[Any, Any]]) -> None:
        self.block, self.handle, self.size, self.free = block, handle, size, free

    def __del__(self) -> None:
        self.free.append(self.block)


class _Stream:
    def __init__(self, fake: FakeCuda, handle: int | str) -> None:
        self.fake, self.handle = fake, handle

    def take(self, run: Callable[[], None]) -> None:
        run()

    def sync(self) -> None:
        self.fake.note("wait")
        self.fake.wait()

    def wait(self, other: Any) -> None:
        self.fake.note(f"stream {self.handle} waits for {'an event' if isinstance(other, _Event) else other.handle}")

    def record(self, options: Any = None) -> Any:
        assert options is None or options.timing_enabled
        self.fake.note("event")
        return _Event(self.fake, len(self.fake.calls))

    def create_graph_builder(self) -> Any:
        return _Builder(self.fake, self.handle)


class _Event:
    is_done = True

    def __init__(self, fake: FakeCuda, at: int) -> None:
        self.fake, self.at = fake, at

    def __sub__(self, other: _Event) -> float:
        return float(self.at - other.at)

    def sync(self) -> None:
        self.fake.wait()


class _Builder:
    """Records launches, then is the graph."""

    def __init__(self, fake: FakeCuda, handle: int | str) -> None:
        self.fake, self.handle, self.stream = fake, handle, SimpleNamespace(handle=handle)
        self.runs: list[Callable[[], None]] = []

    def begin_building(self) -> None:
        if self.handle in self.fake.captured:
            raise RuntimeError("CUDA_ERROR_ILLEGAL_STATE: the stream is captured already")
        self.fake.captured[self.handle] = self
        self.fake.note("begin graph")
        self.fake.meanwhile()

    def take(self, run: Callable[[], None]) -> None:
        self.runs.append(run)

    def end_building(self) -> _Builder:
        self.fake.note("end graph")
        self.fake.captured.pop(self.handle, None)
        return self

    def complete(self) -> _Builder:
        return self

    def upload(self, stream: Any) -> None:
        self.fake.note("upload graph")

    def launch(self, stream: Any) -> None:
        self.fake.note("launch graph")
        for run in self.runs:
            run()
