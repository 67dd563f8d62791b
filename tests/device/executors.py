"""What runs kernels in tests. A test that takes `executor` is run once for each:

    emulator    on every machine, in several orders of threads
    device      on the first GPU; these are marked `gpu`, and there only where a GPU is (tests/conftest.py)

Both take the same launches, so a test says nothing of where it runs. `executor(model, feeds)` runs a model, `executor.library(programs)`
makes programs ready to be run one by one (`batch.library` and `device_programs.assert_computed` are what tests call).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from codegen.cuda.compile import all_compiled, source
from codegen.cuda.device import Code, Device, Memory
from codegen.gpu import emulator
from codegen.gpu.program import Program as Kernels
from tensorlang.backends.cuda.executable import DeviceExecutable
from tensorlang.backends.cuda.machine import machine_code
from tensorlang.backends.gpu.build import device_kernel as made_kernel
from tensorlang.backends.gpu.build import single
from tensorlang.backends.gpu.model import DeviceModel
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.plan import Arena, Constant, Input, Output
from tensorlang.graph.relayout import to_layout
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.nodes import Program

Array = np.ndarray[Any, Any]
GUARD = 256
"""Bytes before and after each array on the device that nobody may write."""


class Library(Protocol):
    """Programs that are ready to run."""

    def orders(self, seeds: Iterable[int]) -> Iterable[int]:
        """Return which of these orders of threads are worth running."""
        ...

    def run(self, kernels: Kernels, sizes: Mapping[str, int], memory: Mapping[str, Array], *, seed: int, outputs: Collection[str]) -> int:
        """Run a program on arrays by the names of its params, those of `outputs` filled with NaN before, and return the status word."""
        ...


class Executor(Protocol):
    """Runs launches. `seeds`: numbers of the orders in which it is worth running something."""

    @property
    def seeds(self) -> tuple[int, ...]: ...

    def __call__(self, model: DeviceModel, feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
        """Return the outputs of a model by name."""
        ...

    def library(self, programs: Iterable[Kernels]) -> Library:
        """Return programs, whose names and whose kernels' names differ, ready to run."""
        ...


@dataclass(frozen=True)
class Emulated:
    """Programs as a library of the emulator."""

    code: emulator.Library

    def orders(self, seeds: Iterable[int]) -> Iterable[int]:
        return seeds

    def run(self, kernels: Kernels, sizes: Mapping[str, int], memory: Mapping[str, Array], *, seed: int, outputs: Collection[str]) -> int:
        return emulator.run(kernels, sizes, memory, seed=seed, outputs=outputs, library=self.code)


class Emulator:
    """Every thread of a block by itself, on the CPU."""

    seeds = (0, 4, 8)

    def __call__(self, model: DeviceModel, feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
        return run_model(model, dict(feeds), seed)

    def library(self, programs: Iterable[Kernels]) -> Library:
        return Emulated(emulator.build({k.name: k for each in programs for k in each.kernels}.values()))


@dataclass(frozen=True)
class Loaded:
    """Programs on a device, with the machine code of each."""

    device: Device
    code: Mapping[str, Code]

    def orders(self, seeds: Iterable[int]) -> Iterable[int]:
        return (0,)

    def run(self, kernels: Kernels, sizes: Mapping[str, int], memory: Mapping[str, Array], *, seed: int, outputs: Collection[str]) -> int:
        """Run a program twice, the second time as a graph, which has to give the same bits."""
        code = self.code[kernels.name]
        places = {name: Guarded(self.device, array.nbytes) for name, array in memory.items()}
        scratch = Guarded(self.device, code.scratch(sizes).size_bytes)
        status = self.device.allocate(4)
        addresses = {name: place.address for name, place in places.items()}
        work = code.work(sizes, addresses, scratch.address, status.address, (scratch, status, *places.values()))
        answers = []
        for launch in (lambda: self.device.run([work]), lambda: self.device.captured([work]).launch()):
            for name, place in places.items():
                place.fill(np.full(memory[name].nbytes, 0xFF, np.uint8) if name in outputs else memory[name])
            scratch.fill(np.full(scratch.size_bytes, 0xFF, np.uint8))
            self.device.clear(status.address, 4)
            launch()
            found = {name: places[name].read(name) for name in memory}
            answer = np.empty(1, np.int32)
            self.device.download(status.address, answer)
            answers.append((int(answer[0]), found))
        (first, once), (again, twice) = answers
        assert first == again, f"launches end in {first}, their graph in {again}"
        for name, array in memory.items():
            assert once[name].tobytes() == twice[name].tobytes(), f"a graph of the launches gives another `{name}` than they do"
            if name in outputs:
                array.reshape(-1).view(np.uint8)[...] = once[name]
            else:
                assert once[name].tobytes() == array.tobytes(), f"`{name}`, which is only read, was written"
        return first


class Guarded:
    """Memory on a device, in the middle of bytes that nobody may write."""

    def __init__(self, device: Device, size_bytes: int) -> None:
        self.size_bytes, self._device = size_bytes, device
        self._memory: Memory = device.allocate(size_bytes + 2 * GUARD)
        self.address = self._memory.address + GUARD

    def fill(self, array: Array) -> None:
        guard = np.full(GUARD, 0xFF, np.uint8)
        self._whole = np.concatenate([guard, np.ascontiguousarray(array).reshape(-1).view(np.uint8), guard])
        self._device.upload(self._memory.address, self._whole)

    def read(self, name: str) -> Array:
        """Return the bytes. Raises AssertionError when something was written beside them."""
        whole = np.empty(self.size_bytes + 2 * GUARD, np.uint8)
        self._device.download(self._memory.address, whole)
        for side, guard in (("before", whole[:GUARD]), ("after", whole[GUARD + self.size_bytes :])):
            assert (guard == 0xFF).all(), f"something was written {side} `{name}`"
        return whole[GUARD : GUARD + self.size_bytes]


@dataclass
class OnDevice:
    """The first GPU. A second run is a graph of launches, and has to give the same bits."""

    seeds: tuple[int, ...] = field(default=(0,), init=False)

    @cached_property
    def device(self) -> Device:
        return Device()

    def __call__(self, model: DeviceModel, feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
        code = machine_code([made.launched for made in model.kernels.values()], self.device.arch, None, os.cpu_count() or 1)
        runs = DeviceExecutable(model, code, self.device)
        inputs = [feeds[name] for name in model.graph.inputs]
        first, again = ([array.numpy() for array in runs(inputs)] for _ in range(2))
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)
        return dict(zip(model.names, again, strict=True))

    def library(self, programs: Iterable[Kernels]) -> Library:
        every = {each.name: each for each in programs}
        texts = [source(each) for each in every.values()]
        code = all_compiled(texts, self.device.arch, None, os.cpu_count() or 1)
        return Loaded(self.device, {name: self.device.load(each, made) for (name, each), made in zip(every.items(), code, strict=True)})


EMULATOR = Emulator()
EXECUTORS: Mapping[str, Callable[[], Executor]] = {"emulator": lambda: EMULATOR, "device": OnDevice}


def one_kernel(program: Program, schedule: Schedule | None = None) -> DeviceModel:
    """Return a program as a model of one kernel, scheduled as `schedule` says or as is derived."""
    return single(program, made_kernel(program, "kernel", schedule))


def run_model(model: DeviceModel, feeds: dict[str, Array], seed: int = 0) -> dict[str, Array]:
    """Return the outputs of a model whose every launch is run by the emulator, its values where the plan puts them."""
    arena = np.full(model.plan.arena_bytes, 0xFF, np.uint8)
    outputs = [np.full(size_bytes(model.graph.values[name]), 0xFF, np.uint8) for name in model.graph.outputs]

    def memory(name: str) -> Array:
        value = model.graph.values[name]
        match model.plan.places[name]:
            case Input(position):
                return feeds[model.graph.inputs[position]]
            case Constant(constant):
                array = model.graph.constants[constant]
                return np.ascontiguousarray(array if value.layout is None else to_layout(array, value.layout))
            case Output(position, offset):
                block = outputs[position]
            case Arena(offset):
                block = arena
        shape = value.shape if value.layout is None else value.layout.shape
        return block[offset : offset + size_bytes(value)].view(value.dtype.numpy).reshape(shape)

    kernels = [k for made in model.kernels.values() for k in made.launched.kernels]
    compiled = emulator.build(kernels)
    for call in model.calls:
        made = model.kernels[call.kernel]
        arrays = {param: memory(value) for param, value in call.values.items()}
        written = [p for p, value in call.values.items() if value in call.node.outputs]
        status = emulator.run(made.launched, call.sizes, arrays, seed=seed, outputs=written, library=compiled)
        assert status == 0, made.requirements[status - 1]
    return {name: memory(value) for name, value in zip(model.names, model.graph.outputs, strict=True)}
