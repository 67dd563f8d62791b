"""The short way from Python to native code, for arrays of fixed element types and shapes.

    add = Callable(library.address("run"), inputs=(Port("x", f32, (4,)), Port("y", f32, (4,))), outputs=(Port("z", f32, (4,)),))
    z = add(x, y)

The native function takes one array of addresses: the outputs' and inputs' data, then the constants bound once (weights, arena). Arguments
are compared with what is expected by one dtype and one shape comparison each; the address of an array is read from the array object
itself, which costs a tenth of asking NumPy for it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable as Function
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.dtypes import DType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of fixed shape."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


class ArgumentError(TypeError):
    """The arrays given do not fit; the message says which one and why."""


def _data_offset() -> int:
    """Return where in an array object the address of its data is.

    CPython's layout has it after the object header; this is checked once on an array whose address NumPy tells."""
    probe = np.empty(3, np.float32)
    header = object.__basicsize__
    found = ctypes.c_void_p.from_address(id(probe) + header).value
    return header if sys.implementation.name == "cpython" and found == probe.ctypes.data else -1


_OFFSET = _data_offset()


def address_of(array: Array) -> int:
    """Return the address of the first element."""
    if _OFFSET > 0:
        return int(ctypes.c_size_t.from_address(id(array) + _OFFSET).value)
    return int(array.ctypes.data)


class Callable:
    """A native function `i32 (ptr bases)` as a Python function of arrays.

    bases    outputs, inputs, `constants`, `numbers` (sizes, as they are). Arrays that are not aligned or not dense are copied first.
    failure  turns a result other than 0 into the exception to raise

    Several Python threads may call at once: each has its own block of addresses. `scratch` arrays are per thread as well."""

    def __init__(
        self,
        address: int,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        *,
        constants: Sequence[Array] = (),
        numbers: Sequence[int] = (),
        scratch_bytes: int = 0,
        failure: Function[[int], Exception] | None = None,
    ) -> None:
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)
        self._inputs = tuple((port.dtype.numpy, port.shape, port.name) for port in inputs)
        self._outputs = tuple((port.shape, port.dtype.numpy) for port in outputs)
        self._constants = tuple(constants)
        self._numbers = tuple(numbers)
        self._scratch_bytes = scratch_bytes
        self._failure = failure
        self._local = threading.local()

    def __call__(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """Return the outputs, freshly allocated: an array, or a tuple when there are several."""
        try:
            block, base = self._local.block
        except AttributeError:
            block, base = self._new_block()
        inputs = self._inputs
        if len(arrays) != len(inputs):
            raise ArgumentError(f"{len(inputs)} arrays are expected, {len(arrays)} given")
        results = [_empty(shape, dtype) for shape, dtype in self._outputs]
        slot = 0
        for result in results:
            block[slot] = _address(id(result) + _OFFSET).value if _OFFSET > 0 else result.ctypes.data
            slot += 1
        kept: list[Array] = []  # copies live until the native code is done
        for array, (dtype, shape, _) in zip(arrays, inputs, strict=True):
            try:
                fits = array.dtype is dtype and array.shape == shape and array.flags.c_contiguous
            except AttributeError:
                fits = False
            if not fits or _OFFSET < 0:
                array = self._fitted(array, slot - len(results))
                kept.append(array)
            block[slot] = _address(id(array) + _OFFSET).value if _OFFSET > 0 else array.ctypes.data
            slot += 1
        code = self._entry(base)
        if code:
            raise self._failure(code) if self._failure else RuntimeError(f"the native code returned {code}")
        return results[0] if len(results) == 1 else tuple(results)

    def _fitted(self, array: Any, index: int) -> Array:
        """Return `array` as a dense array of the expected type and shape. Raises ArgumentError when it has another one."""
        dtype, shape, name = self._inputs[index]
        if not isinstance(array, np.ndarray):
            raise ArgumentError(f"`{name}` must be a NumPy array, not {type(array).__name__}")
        if array.dtype != dtype:
            raise ArgumentError(f"`{name}` must have element type {dtype}, not {array.dtype}")
        if array.shape != shape:
            raise ArgumentError(f"`{name}` must have shape {shape}, not {array.shape}")
        return np.require(array, requirements=["C", "A", "E"])

    def _new_block(self) -> tuple[Any, int]:
        """Return this thread's block of addresses, with the constants filled in."""
        scratch = np.empty(self._scratch_bytes + 64, np.uint8)
        count = len(self._outputs) + len(self._inputs)
        block = (ctypes.c_size_t * (count + len(self._constants) + len(self._numbers) + 1))()
        for i, constant in enumerate(self._constants, start=count):
            block[i] = constant.ctypes.data
        for i, size in enumerate(self._numbers, start=count + len(self._constants)):
            block[i] = size
        block[len(block) - 1] = -(-scratch.ctypes.data // 64) * 64
        self._local.scratch = scratch
        self._local.block = (block, ctypes.addressof(block))
        return block, ctypes.addressof(block)


_address = ctypes.c_size_t.from_address
_empty = np.empty
