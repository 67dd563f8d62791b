"""A stand-in for NVIDIA's packages whose device computes: what is launched, the emulator runs, on what the driver is told and no more.

    EmulatedCuda().install(pytest.MonkeyPatch())         in a program
    pytest -p emulated_cuda -m gpu …                     in tests, with this folder on the import path

A launch is the kernel's text over the blocks and the arguments of the call: addresses, tensor maps as they were made, sizes, the status
word. A buffer is all that was allocated from its address on. Machine code is made by NVRTC, as for a device, and not looked at.
`runs=False`: launches are recorded and nothing is computed.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

sys.path.append(str(Path(__file__).parent))

import numpy as np
import pytest
from fake_cuda import FakeCuda

from codegen.cuda.arch import of_capability
from codegen.cuda.compile import Compiled
from codegen.cuda.device import Code, Device
from codegen.dtypes import DTYPES
from codegen.gpu import emulator
from codegen.gpu.program import Kernel, Launch, Program, TensorMap
from codegen.loops.nodes import Int

Array = np.ndarray[Any, Any]
_POINTER = re.compile(r"TL_(IN|OUT)\(tl_(\w+)\) ")


class EmulatedCuda(FakeCuda):
    """One device that computes, or (`runs=False`) takes what it is asked for and does nothing; a large one, for which the same machine
    code is made as for its architecture by name."""

    def __init__(self, capability: tuple[int, int] = (9, 0), runs: bool = True) -> None:
        super().__init__(capability=capability, multiprocessors=of_capability(capability).multiprocessors)
        self.runs = runs
        self.programs: dict[str, Program] = {}
        self.memory: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.core.DeviceMemoryResource = lambda device: SimpleNamespace(allocate=self._allocated)
        self.views = SimpleNamespace(
            StridedMemoryView=SimpleNamespace(
                from_buffer=lambda buffer, shape, dtype: _Shared(buffer, shape, dtype),
                from_dlpack=lambda value, stream_ptr: value.__dlpack__(stream=stream_ptr),
            )
        )

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().install(monkeypatch)
        monkeypatch.setattr("codegen.cuda.arrays.utils", self.views)
        load = Device.load

        def loaded(device: Device, program: Program, compiled: Compiled) -> Code:
            self.programs[program.name] = program
            return load(device, program, compiled)

        monkeypatch.setattr(Device, "load", loaded)

    def within(self, address: int) -> Array:
        """Return the bytes that were allocated from an address on. Raises RuntimeError for one that nothing was allocated at."""
        for start, block in list(self.memory.items()):
            if start <= address < start + max(1, block.size):
                size = start + block.size - address
                return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)
        raise RuntimeError(f"CUDA_ERROR_ILLEGAL_ADDRESS: nothing is at {address:#x}")

    def _allocated(self, size: int, *, stream: object) -> Any:
        self.note(f"allocate {size}")
        block = _Block(size)
        self.memory[block.handle] = block
        return block

    def _cubin(self, module: bytes, *, name: str) -> Any:
        self.note(f"load {name}")
        assert module[:4] == b"\x7fELF"
        loaded = _Loaded(self, self.programs[name])
        return SimpleNamespace(get_kernel=lambda kernel: self.kernel(kernel, loaded.kernel(kernel)))

    def _take(self, stream: Any, run: Callable[[], None]) -> None:
        if self.runs:
            stream.take(run)


class _Block:
    """Memory of the device, at a multiple of 256 bytes."""

    def __init__(self, size: int) -> None:
        self._bytes = np.empty(size + 256, np.uint8)
        self.handle = -(-self._bytes.ctypes.data // 256) * 256
        self.size = size


class _Shared:
    """What a DLPack capsule tells of an array, and what is made of one."""

    def __init__(self, buffer: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self.ptr, self.shape, self.dtype, self.strides = buffer.address, shape, np.dtype(dtype), None
        self._owner = buffer

    def __dlpack__(self, **asked: object) -> _Shared:
        return self


class _Loaded:
    """A program as the device has it."""

    def __init__(self, fake: EmulatedCuda, program: Program) -> None:
        self._fake, self._program = fake, program

    @cached_property
    def _library(self) -> emulator.Library:
        return emulator.build(self._program.kernels)

    def kernel(self, name: str) -> Callable[[Any, tuple[Any, ...]], None]:
        return lambda config, arguments: self._run(self._program.kernel(name), config, arguments)

    def _run(self, kernel: Kernel, config: Any, arguments: tuple[Any, ...]) -> None:
        """Run one launch with the arguments that the driver was given."""
        assert config.block == kernel.block and config.shmem_size == kernel.dynamic_bytes
        own = kernel.text[kernel.text.index("TL_KERNEL(") :]  # behind functions of other origin
        head = own[: own.index("{")]  # by place: the text may call a buffer something else
        pointers = [(way, DTYPES[dtype].numpy) for way, dtype in _POINTER.findall(head)[: len(kernel.buffers)]]
        given = list(arguments)
        addresses = dict(zip(kernel.buffers, given, strict=False))
        made = given[len(kernel.buffers) :][: len(kernel.maps)]
        sizes = dict(zip(kernel.sizes, given[len(kernel.buffers) + len(kernel.maps) :], strict=False))
        status = ctypes.c_int32.from_address(given[-1]) if kernel.checks else ctypes.c_int32(0)
        if status.value:
            return
        order = [dtype for _, dtype in pointers]
        written = [way == "OUT" for way, _ in pointers]
        memory = {name: _elements(self._fake.within(at), dtype) for (name, at), dtype in zip(addresses.items(), order, strict=True)}
        maps = tuple(_as_told(f"{m.name}_memory", m, told) for m, told in zip(kernel.maps, made, strict=True))
        behind = {m.buffer: _elements(self._fake.within(told.tensor["data"][0]), m.dtype.numpy) for m, told in zip(maps, made, strict=True)}
        launch = Launch(kernel.name, tuple(map(Int, config.grid)))  # type: ignore[arg-type]
        alone = Program(kernel.name, (*kernel.buffers, *behind), kernel.sizes, (replace(kernel, maps=maps),), (launch,))
        copies = {name: array.copy() for name, array in (memory | behind).items()}
        status.value = emulator.run(alone, sizes, copies, library=self._library)
        for name, out in zip(kernel.buffers, written, strict=True):
            if out:  # what was not written stays: other buffers may lie behind this one
                before, after = memory[name].view(np.uint8), copies[name].view(np.uint8)
                np.copyto(before, after, where=before != after)


def _elements(found: Array, dtype: np.dtype[Any]) -> Array:
    return found[: found.size // dtype.itemsize * dtype.itemsize].view(dtype)


def _as_told(buffer: str, described: TensorMap, told: Any) -> TensorMap:
    """Return a map as the driver was told of it, over memory that begins where it does."""
    shape, strides = told.tensor["shape"], told.tensor["strides"][:-1]
    assert told.box == described.box and told.swizzle in ("NONE", f"SWIZZLE_{described.swizzle}B")
    size = described.dtype.size_bytes
    return replace(
        described,
        buffer=buffer,
        extents=tuple(map(Int, shape)),
        strides=tuple(Int(n // size) for n in strides),
        offset=Int(0),
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let tests marked `gpu` run on the stand-in."""
    EmulatedCuda().install(pytest.MonkeyPatch())
