"""The short way from Python to native code, for arrays of fixed element types and shapes.

    add = Callable(library.address("run"), inputs=(Port("x", f32, (4,)), Port("y", f32, (4,))), outputs=(Port("z", f32, (4,)),))
    z = add(x, y)                    {"z": z} = add.by_name({"x": x, "y": y})
    add.into((z,), (x, y))           writes into z

The native function takes one array of addresses: the outputs' and inputs' data, then the constants bound once (weights, arena), sizes,
and scratch memory. Arguments that are just what is expected never meet an interpreter: a built-in function (`stub`) compares them, makes
the outputs and calls. All others come here: they are copied where they are not dense or not aligned, or refused.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable as Function
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from codegen.dtypes import DType
from codegen.errors import ArgumentError
from codegen.llvm.pool import Pool
from codegen.llvm.scratch import Scratch, aligned, block
from codegen.llvm.signals import STOPPED, kept_exception
from codegen.llvm.stub import Description, description, into, named, positional
from codegen.llvm.stub_numbers import taken as numbers_taken

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of fixed shape."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


class Callable:
    """A native function `i32 (ptr bases)` as a Python function of arrays.

    bases    outputs, inputs, `constants`, `numbers` (sizes, as they are), scratch. Arrays not aligned or not dense are copied first.
    pool     the threads that parallel loops run on, None for those that all calls share
    scratch  the memory that it shares with other functions, of which it needs `scratch_bytes`; None for some of its own
    failure  turns a result other than 0 into the exception to raise
    quick    the same as a built-in function, which returns `NotImplemented` where it is not sure, and the number of a failure
    by_name  `quick` for a dictionary of arrays; both are None for an interpreter that has no room for them
    writes   `quick` for arrays to write into and those to read

    Several Python threads may call at once: one of them has the scratch memory of the built-in functions, the others some of their own."""

    def __init__(
        self,
        address: int,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        *,
        constants: Sequence[Array] = (),
        numbers: Sequence[int] = (),
        scratch_bytes: int = 0,
        scratch: Scratch | None = None,
        failure: Function[[int], BaseException] | None = None,
        pool: Pool | None = None,
    ) -> None:
        alone: Function[[int], int] = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)
        self._entry = alone if pool is None else partial(pool.call, address)
        self._pool = pool
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._inputs = tuple((port.dtype.numpy, port.shape, port.name) for port in inputs)
        self._outputs = tuple((port.shape, port.dtype.numpy) for port in outputs)
        self._rest = (*(constant.ctypes.data for constant in constants), *numbers)
        self._scratch_bytes = scratch_bytes
        self._failure = failure
        self.scratch = Scratch() if scratch is None else scratch
        self._described = partial(_described, address, inputs, outputs, self._rest, (self.scratch, scratch_bytes), pool)
        words = self._described()
        words.kept += [constants, pool]
        self.quick = positional(words)
        self.by_name = named(words)
        self.writes = into(words)

    def quick_for_numbers(self, named: Sequence[bool]) -> Function[..., Any] | None:
        """Return `quick` for callers that have numbers, too, for inputs without axes. `named`: which of them have the element types of
        their declarations, so that they take those that Python has; others take NumPy's scalars of their own types."""
        if all(port.shape for port in self.inputs):
            return self.quick
        words = self._described([0 if p.shape else numbers_taken(p.dtype, named=n) for p, n in zip(self.inputs, named, strict=True)])
        words.kept.append(self)
        return positional(words)

    def __call__(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """Return the outputs, freshly allocated: an array, or a tuple when there are several."""
        found = self.quick(*arrays) if self.quick is not None else NotImplemented
        if found is NotImplemented:
            found = self._with_care(arrays)
        if type(found) is int:
            raise self.failed(found)
        return found  # type: ignore[no-any-return]

    def into(self, results: Sequence[Array], arrays: Sequence[Array]) -> Array | tuple[Array, ...]:
        """Return `results` as a call returns its outputs, with these in them. All arrays are of the expected types and shapes, dense and
        aligned; results can be written to and share no memory with other arrays."""
        found: Any = self.writes(*results, *arrays) if self.writes is not None else NotImplemented
        if found is NotImplemented:
            self.scratch.make_room(self._scratch_bytes)
            found = self._interpreted(arrays, results)
        if type(found) is int:
            raise self.failed(found)
        return found  # type: ignore[no-any-return]

    def bound(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Function[[], None]:
        """Return the function on these arrays, dense, aligned and of the expected types and shapes, with scratch memory of its own: a call
        compares nothing and makes nothing. Raises ArgumentError for arrays that it would have to copy."""
        ports = (
            *zip(outputs, self._outputs, strict=True),
            *((a, (shape, dtype)) for a, (dtype, shape, _) in zip(inputs, self._inputs, strict=True)),
        )
        for array, (shape, dtype) in ports:
            if array.dtype != dtype or array.shape != shape or not (array.flags.c_contiguous and array.flags.aligned):
                raise ArgumentError(f"an array of {dtype} and shape {shape} is expected, dense and aligned")
        bases, kept = self._bases(inputs, outputs)
        entry = self._entry

        def run(kept: object = kept) -> None:
            code = entry(bases)
            if code:
                raise self.failed(code)

        return run

    def timed(self, address: int, calls: int, arrays: Sequence[Any]) -> Function[[], Array]:
        """Return a function that runs the timed form of the native function (`codegen.llvm.program`), which lies at `address` and makes so
        many calls, on these arrays, with outputs and scratch memory of its own.

        It returns when each call began and ended, in nanoseconds, of shape (calls, 2); each run writes into the same array. Raises
        ArgumentError for arrays that do not fit."""
        bases, kept = self._bases(self._all_fitted(arrays), self._new_outputs())
        entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(address)
        times, pool = np.zeros((calls, 2), np.int64), self._pool

        def run(kept: object = kept) -> Array:
            with pool.entered() if pool is not None else nullcontext():
                code = entry(bases, times.ctypes.data)
            if code:
                raise self.failed(code)
            return times

        return run

    def _bases(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> tuple[int, object]:
        """Return the address of the words that the native function takes for these arrays and scratch memory of its own, and what must be
        kept as long as they are used."""
        scratch = block(self._scratch_bytes)
        words = (*(array.ctypes.data for array in (*outputs, *inputs)), *self._rest, aligned(scratch))
        bases = (ctypes.c_size_t * len(words))(*words)
        return ctypes.addressof(bases), (inputs, outputs, scratch, bases)

    def failed(self, code: int) -> BaseException:
        """Return the exception for a native function that returned `code`."""
        if code & ((1 << 32) - 1) == STOPPED:
            return kept_exception()
        return self._failure(code) if self._failure else RuntimeError(f"the native code returned {code}")

    def _with_care(self, arrays: Sequence[Any]) -> Any:
        """Return what `quick` does, for any arrays. Raises ArgumentError when they do not fit."""
        fitted = self._all_fitted(arrays)
        self.scratch.make_room(self._scratch_bytes)
        found = self.quick(*fitted) if self.quick is not None else NotImplemented
        return found if found is not NotImplemented else self._interpreted(fitted)

    def _interpreted(self, arrays: Sequence[Array], given: Sequence[Array] | None = None) -> Any:
        """Return what `quick` does, with this thread's own scratch memory; in the arrays that are `given`, or in new ones."""
        results = given if given is not None else self._new_outputs()
        with self.scratch.own(self._scratch_bytes) as scratch:
            words = (*(array.ctypes.data for array in (*results, *arrays)), *self._rest, scratch)
            bases = (ctypes.c_size_t * len(words))(*words)
            code = self._entry(ctypes.addressof(bases))
        return code or (results[0] if len(results) == 1 else tuple(results))

    def _new_outputs(self) -> list[Array]:
        return [np.empty(shape, dtype) for shape, dtype in self._outputs]

    def _all_fitted(self, arrays: Sequence[Any]) -> list[Array]:
        """Return the inputs as dense arrays of the expected types and shapes. Raises ArgumentError when they do not fit."""
        if len(arrays) != len(self._inputs):
            raise ArgumentError(f"{len(self._inputs)} arrays are expected, {len(arrays)} given")
        return [self._fitted(array, k) for k, array in enumerate(arrays)]

    def _fitted(self, array: Any, index: int) -> Array:
        """Return `array` as a dense array of the expected type and shape. Raises ArgumentError when it has another one."""
        dtype, shape, name = self._inputs[index]
        if not isinstance(array, np.ndarray):
            raise ArgumentError(f"`{name}` must be a NumPy array, not {type(array).__name__}")
        if array.dtype != dtype:
            raise ArgumentError(f"`{name}` must have element type {dtype}, not {array.dtype}")
        if array.shape != shape:
            raise ArgumentError(f"`{name}` must have shape {shape}, not {array.shape}")
        dense = np.require(array, requirements=["C", "A", "E"])
        return dense if type(dense) is np.ndarray and dense.dtype is dtype else dense.view(np.ndarray).view(dtype)


def _described(
    entry: int,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    rest: Sequence[int],
    scratch: tuple[Scratch, int],
    pool: Pool | None,
    numbers: Sequence[int] = (),
) -> Description:
    """Return the words that the stubs read. `numbers`: which each of the inputs takes (`stub_numbers`)."""
    ports = (*outputs, *inputs)
    extents = np.array([n for port in ports for n in port.shape], np.int64)
    place = extents.ctypes.data
    words = [entry, len(outputs), len(inputs), len(rest), scratch[0].place.ctypes.data, scratch[1]]
    words += [0, 0] if pool is None else [pool.address, pool.call_address]
    taken = (*(0 for _ in outputs), *(numbers or (0 for _ in inputs)))
    for port, some in zip(ports, taken, strict=True):
        rank = len(port.shape)
        words += [id(port.dtype.numpy), rank, place, id(port.name), prod(port.shape) * port.dtype.size_bytes, some]
        place += rank * extents.itemsize
    return description([*words, *rest], [ports, extents, scratch])
