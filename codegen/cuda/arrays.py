"""Arrays on devices, taken from and given to other libraries without a copy: torch, CuPy, JAX and whoever else speaks their protocols.

view_of(tensor, device)      where its elements lie, by DLPack or `__cuda_array_interface__`; our stream waits for theirs
DeviceArray                  offers the same two protocols: theirs waits for ours
current_stream(tensor)       the stream on which the library of an array works now
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.arrays import negates_memory
from codegen.cuda.bindings import core, utils
from codegen.cuda.device import Device, Memory
from codegen.cuda.errors import ArrayError
from codegen.dtypes import DType, from_numpy

_DLPACK_CUDA = 2
_DLPACK_MANAGED = 13
_STREAM_NONE = -1
_LEGACY = 1


__all__ = ["ArrayError", "DeviceArray", "View", "current_stream", "is_on_device", "view_of"]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Row-major elements on a device, for as long as `owner` lives."""

    address: int
    shape: tuple[int, ...]
    dtype: DType
    owner: object


def is_on_device(value: object) -> bool:
    """Tell whether `value` says that its elements lie on a GPU."""
    if hasattr(value, "__cuda_array_interface__"):
        return True
    place = getattr(value, "__dlpack_device__", None)
    return place is not None and int(place()[0]) in (_DLPACK_CUDA, _DLPACK_MANAGED)


def current_stream(value: Any) -> object:
    """Return the stream on which whoever made an array works now, as `Device.on` takes it, or None where nobody can tell."""
    if isinstance(value, DeviceArray):
        return value.device.stream
    libraries = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    if "torch" in libraries:
        return int(sys.modules["torch"].cuda.current_stream(value.device).cuda_stream)
    if "cupy" in libraries:
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return None


def view_of(value: Any, device: Device) -> View:
    """Return where the elements of an array on `device` lie. What is asked for on `device` from now on sees what was asked for before on
    the stream of whoever made it. Raises ArrayError for another device, for types that the language has not, for strides, for views that
    negate."""
    if negates_memory(value):
        raise ArrayError("it is a view whose elements are those in memory with the other sign: pass `tensor.resolve_neg()`")
    if hasattr(value, "__dlpack__"):
        return _by_dlpack(value, device)
    return _by_interface(value, device)


def _by_dlpack(value: Any, device: Device) -> View:
    number = int(value.__dlpack_device__()[1])
    if number != device.number:
        raise ArrayError(f"it is on device {number}, and the code on device {device.number}")
    try:
        found = utils.StridedMemoryView.from_dlpack(value, stream_ptr=int(device.stream.handle))
        dtype, shape, strides = found.dtype, tuple(found.shape), found.strides
    except (BufferError, TypeError, NotImplementedError) as problem:
        raise ArrayError(str(problem)) from None
    if strides is not None:
        strides = tuple(n * dtype.itemsize for n in strides)
    return View(int(found.ptr), shape, _checked(dtype, shape, strides), found)


def _by_interface(value: Any, device: Device) -> View:
    found = value.__cuda_array_interface__
    if found.get("mask") is not None:
        raise ArrayError("it is masked")
    dtype, shape = np.dtype(found["typestr"]), tuple(found["shape"])
    _wait_for(found.get("stream"), device)
    return View(int(found["data"][0]), shape, _checked(dtype, shape, found.get("strides")), value)


def _wait_for(handle: int | None, device: Device) -> None:
    if handle is not None and handle != int(device.stream.handle):
        device.stream.wait(_foreign(handle))


def _foreign(handle: int) -> Any:
    """Return the stream that other libraries call `handle`; two numbers stand for the default streams."""
    match handle:
        case 1:
            return core.LEGACY_DEFAULT_STREAM
        case 2:
            return core.PER_THREAD_DEFAULT_STREAM
        case _:
            return core.Stream.from_handle(handle)


def _checked(dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None) -> DType:
    """Return the element type of a row-major array; `strides` are in bytes."""
    found = from_numpy(dtype)
    if found is None:
        raise ArrayError(f"its elements are {dtype}")
    if strides is not None and math.prod(shape) > 1 and not _row_major(shape, strides, dtype.itemsize):
        raise ArrayError("its elements are not row-major in memory; make a contiguous copy first")
    return found


def _row_major(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    expected = item
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """A row-major array on a device. It keeps its memory; `numpy()` copies it to the host."""

    device: Device
    memory: Memory
    shape: tuple[int, ...]
    dtype: DType
    offset_bytes: int = 0

    @property
    def address(self) -> int:
        return self.memory.address + self.offset_bytes

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.size_bytes

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy on the host."""
        result = np.empty(self.shape, self.dtype.numpy)
        self.device.download(self.address, result)
        return result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array on a device is copied to become one of NumPy's")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Version 3; types that NumPy has no letter for (bf16, f8) go by DLPack alone."""
        if self.dtype.numpy.kind not in "biuf":
            raise AttributeError(f"`__cuda_array_interface__` has no {self.dtype}")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.address, False),
            "strides": None,
            "stream": int(self.device.stream.handle),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CUDA, self.device.number

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> object:
        """Return a capsule; work on the caller's `stream` (None: the default one, -1: do not wait) comes after ours."""
        if stream != _STREAM_NONE:
            handle = _LEGACY if stream is None else stream
            if handle != int(self.device.stream.handle):
                _foreign(handle).wait(self.device.stream)
        buffer = core.Buffer.from_handle(self.address, self.size_bytes, owner=self.memory)
        view = utils.StridedMemoryView.from_buffer(buffer, self.shape, dtype=self.dtype.numpy)
        return view.__dlpack__(stream=_STREAM_NONE, **asked)
