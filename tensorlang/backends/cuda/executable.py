"""A model on a device: its weights, its arena and its launches are there once, and every run is one graph of launches.

    given on the host       copied to where the model keeps its inputs
    given on the device     read where it lies; launches with the same addresses become a graph the second time they are asked for
    returned                memory of the caller's own, on the device, that few launches write and results of many are copied to; `numpy()`
                            copies it to the host

Runs of one model follow one another, whatever streams they are asked for on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, assert_never
from weakref import WeakValueDictionary

import numpy as np

from codegen.cuda.arrays import ArrayError, DeviceArray, View, is_on_device, view_of
from codegen.cuda.compile import Compiled
from codegen.cuda.device import Device, Graph, Memory, Work
from tensorlang.backends.gpu.model import Call, DeviceModel
from tensorlang.bounded_cache import BoundedCache
from tensorlang.graph.edit import size_bytes
from tensorlang.graph.nodes import Graph as Computation
from tensorlang.graph.nodes import Kernel, Value
from tensorlang.graph.plan import Arena, Constant, Input, Output
from tensorlang.graph.relayout import to_layout
from tensorlang.runtime.out_of_range import of_node

Array = np.ndarray[Any, Any]
KEPT = 8
"""Graphs that are kept, for as many sets of addresses."""
FEW = 4
"""So many launches write their results where they are returned, which may be elsewhere for every run. Results of more are copied there: one
graph then serves all runs."""


class Addresses(NamedTuple):
    """Where the inputs and the outputs of a run lie."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class SharedWeights:
    """Constants on a device, each once for all executables that have it, for as long as any has."""

    def __init__(self, sharing: bool = True) -> None:
        self._sharing = sharing
        self._there: WeakValueDictionary[tuple[object, ...], Memory] = WeakValueDictionary()

    def memory(self, device: Device, cells: Array) -> Memory:
        """Return where a constant lies, whose elements are `cells` in the order of its layout."""
        digest = blake2b(cells.reshape(-1).view(np.uint8).data).digest() if self._sharing and cells.nbytes else None
        key = (device.number, cells.nbytes, digest)
        found = self._there.get(key) if self._sharing else None
        if found is None:
            found = device.allocate(cells.nbytes)
            device.upload(found.address, cells)
            if self._sharing:
                self._there[key] = found
        return found


def laid_out(graph: Computation) -> dict[str, Array]:
    """Return the elements of each constant in the order of its layout."""
    return {name: _cells(graph.values[name], array) for name, array in graph.constants.items()}


def _cells(value: Value, array: Array) -> Array:
    plain = array if value.layout is None else to_layout(array, value.layout)
    return np.asarray(plain, value.dtype.numpy, order="C")


class DeviceExecutable:
    """Called with the inputs in order, it returns the outputs in order."""

    def __init__(
        self,
        model: DeviceModel,
        compiled: Sequence[Compiled],
        device: Device,
        constants: Mapping[str, Array] | None = None,
        weights: SharedWeights | None = None,
    ) -> None:
        """`compiled` is the machine code of `model.kernels`, in order; `constants` are the model's as `laid_out` returns them, where they
        are laid out already; `weights` are shared with other executables, if with any."""
        self.model, self.device = model, device
        values = model.graph.values
        self._code = {name: device.load(made.launched, code) for (name, made), code in zip(model.kernels.items(), compiled, strict=True)}
        self._inputs = [device.allocate(size_bytes(values[name])) for name in model.graph.inputs]
        self._copied = sum(len(model.kernels[call.kernel].launched.launches) for call in model.calls) > FEW
        self._outputs: list[Memory] = []
        """Where results lie that are copied to where they are returned."""
        self._arena = device.allocate(model.plan.arena_bytes)
        shared = weights if weights is not None else SharedWeights(sharing=False)
        placed = laid_out(model.graph) if constants is None else constants
        self._weights = {name: shared.memory(device, cells) for name, cells in placed.items()}
        self._scratch = device.allocate(max((self._code[call.kernel].scratch(call.sizes).size_bytes for call in model.calls), default=0))
        self._status = device.allocate(4 * len(model.calls))
        self._checks = any(kernel.checks for made in model.kernels.values() for kernel in made.launched.kernels)
        self._held: deque[tuple[list[View], Any]] = deque()
        self._last: tuple[Any, Any] = device.stream, None
        """The stream of the last run, and the event at its end where others may take the stream away."""
        self._works: BoundedCache[Addresses, tuple[Work, ...] | Graph] = BoundedCache(KEPT)

    def __call__(self, inputs: Sequence[object], stream: object = None) -> tuple[DeviceArray, ...]:
        """Return the outputs for inputs of the right types and shapes, each an array of NumPy or one on the device. Everything happens on
        `stream`, where that is given: a handle, or an object with `__cuda_stream__`.

        Raises RunError R0306 when a kernel refuses its data, ArrayError for an array that does not fit or, on a device, cannot be read
        where it lies."""
        device = self._after_the_last(stream)
        views, places = self._all_given(inputs, device)
        if self._checks:
            device.clear(self._status.address, self._status.size_bytes)
        returned = self._allocated(device)
        self._run(Addresses(places, self._own_outputs(device) if self._copied else _addresses(returned)), device)
        self._hold([view for view in views if view is not None], device)
        if self._copied:
            for memory, written in zip(returned, self._outputs, strict=True):
                device.copy(memory.address, written.address, memory.size_bytes)
        if self._checks:
            self._refuse(device)
        self._last = device.stream, None if device.is_primary_stream else device.mark()
        values = [self.model.graph.values[name] for name in self.model.graph.outputs]
        return tuple(DeviceArray(device, memory, v.shape, v.dtype) for memory, v in zip(returned, values, strict=True))

    def timer(self, inputs: Sequence[object]) -> Callable[[int], float]:
        """Return what measures a run with these inputs: called with `repeats` it returns the seconds of one on the device, the mean of so
        many in a row. Inputs of the host are copied once, here, and launches are captured once."""
        self(inputs)
        device = self._after_the_last(None)
        views, given = self._all_given(inputs, device)
        places = Addresses(given, self._own_outputs(device))
        graph = device.captured([self._work(k, call, places) for k, call in enumerate(self.model.calls)])

        def seconds(repeats: int) -> float:
            device = self._after_the_last(None)
            taken = device.seconds(graph, repeats)
            self._hold([view for view in views if view is not None], device)
            return taken

        return seconds

    def times(self, inputs: Sequence[object], repeats: int = 5) -> list[float]:
        """Return the seconds that each call takes on the device, its launches by themselves, the mean of `repeats` in a row."""
        self(inputs)
        device = self._after_the_last(None)
        views, given = self._all_given(inputs, device)
        places = Addresses(given, self._own_outputs(device))
        graphs = [device.captured([self._work(k, call, places)]) for k, call in enumerate(self.model.calls)]
        times = [device.seconds(graph, repeats) for graph in graphs]
        self._hold([view for view in views if view is not None], device)
        return times

    def _after_the_last(self, stream: object) -> Device:
        """Return the device with the stream of a run, which waits for the run before where that was on another: they share memory."""
        device = self.device if stream is None else self.device.on(stream)
        last, done = self._last
        if device.stream.handle != last.handle:
            device.follow(last if done is None else done)
        self._last = device.stream, None
        return device

    def _run(self, addresses: Addresses, device: Device) -> None:
        """Launch everything, for inputs and outputs at `addresses`."""
        match self._works.get(addresses):
            case None:
                work = tuple(self._work(number, call, addresses) for number, call in enumerate(self.model.calls))
                self._works.enter(addresses, work)
                device.run(work)
            case Graph() as graph:
                self._works.move_to_end(addresses)
                graph.launch(device)
            case work:
                graph = self._works[addresses] = device.captured(work)
                graph.launch(device)

    def _hold(self, views: list[View], device: Device) -> None:
        """Keep what is read where it lies until it has been read."""
        while self._held and self._held[0][1].is_done:
            self._held.popleft()
        if views:
            self._held.append((views, device.mark()))

    def _work(self, number: int, call: Call, addresses: Addresses) -> Work:
        places = {param: self._address(value, addresses) for param, value in call.values.items()}
        return self._code[call.kernel].work(call.sizes, places, self._scratch.address, self._status.address + 4 * number)

    def _address(self, value: str, addresses: Addresses) -> int:
        match self.model.plan.places[value]:
            case Input(position, offset):
                return addresses.inputs[position] + offset
            case Output(position, offset):
                return addresses.outputs[position] + offset
            case Constant(name, offset):
                return self._weights[name].address + offset
            case Arena(offset):
                return self._arena.address + offset
            case place:
                assert_never(place)

    def _allocated(self, device: Device) -> list[Memory]:
        """Return new memory for each output."""
        return [device.allocate(size_bytes(self.model.graph.values[name])) for name in self.model.graph.outputs]

    def _own_outputs(self, device: Device) -> tuple[int, ...]:
        """Return where results lie that are not returned themselves."""
        self._outputs = self._outputs or self._allocated(device)
        return _addresses(self._outputs)

    def _all_given(self, inputs: Sequence[object], device: Device) -> tuple[list[View | None], tuple[int, ...]]:
        """Return the inputs that lie on the device (None for the others, which are copied there), and where each is."""
        named = list(zip(inputs, self._inputs, self.model.graph.inputs, strict=True))
        views = [self._given(value, memory, name, device) for value, memory, name in named]
        return views, tuple(m.address if v is None else v.address for v, m in zip(views, self._inputs, strict=True))

    def _given(self, value: object, memory: Memory, name: str, device: Device) -> View | None:
        """Return where an input lies on the device, or None after copying it to `memory`."""
        wanted = self.model.graph.values[name]
        if not is_on_device(value):
            array = np.asarray(value, wanted.dtype.numpy, order="C")
            if array.shape != wanted.shape:
                raise ArrayError(f"it has the shape {list(array.shape)}, and `{name}` is {wanted.dtype}{list(wanted.shape)}")
            device.upload(memory.address, array)
            return None
        try:
            view = view_of(value, device)
        except ArrayError as problem:
            raise ArrayError(f"`{name}` cannot be read where it lies: {problem}") from None
        if (view.shape, view.dtype) != (wanted.shape, wanted.dtype):
            raise ArrayError(f"it is {view.dtype}{list(view.shape)}, and `{name}` is {wanted.dtype}{list(wanted.shape)}")
        if view.address % VECTOR_BYTES:
            raise ArrayError(f"it begins at an address that is no multiple of {VECTOR_BYTES}; make a copy first")
        return view

    def _refuse(self, device: Device) -> None:
        """Raise RunError R0306 for the first kernel that found a requirement unmet."""
        codes = np.empty(len(self.model.calls), np.int32)
        device.download(self._status.address, codes)
        for call, code in zip(self.model.calls, codes.tolist(), strict=True):
            if code and isinstance(call.node, Kernel):  # others check nothing
                what = self.model.kernels[call.kernel].requirements[code - 1].text
                raise of_node(call.node, what)


def _addresses(memories: Sequence[Memory]) -> tuple[int, ...]:
    return tuple(memory.address for memory in memories)


VECTOR_BYTES = 16
"""What kernels take the addresses of inputs to be multiples of."""
