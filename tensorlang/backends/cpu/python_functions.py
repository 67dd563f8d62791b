"""Functions of Python as kernels: a native function for each, which takes the interpreter, makes arrays of the memory that it is passed
and calls.

    i32 f(ptr…, i64 rank, ptr extents, … for every array, then the sizes of the operator)

It returns `RIGHT` where all is right. What went wrong stays with the thread until it is asked for by `failure_of`; a thread that could not
even begin, as where it has no room for another call, returns 0, so that nothing is taken for a result which is none.
"""

from __future__ import annotations

import ctypes
import gc
import threading
import traceback
import weakref
from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from codegen.llvm.foreign import Argument, Buffers, ForeignCall
from polyhedral.expr import Expr as Affine
from tensorlang.diagnostics import Diagnostic, RunError
from tensorlang.tensor.nodes import ExternCall, Tensor
from tensorlang.tensor.python_calls import call_function, declared, function_of

Array = np.ndarray[Any, Any]

RIGHT = 1
_FAILED = 2
_RAISED = threading.local()


def told_sizes(call: ExternCall) -> tuple[Affine | tuple[Affine, ...], ...]:
    """Return what the function is told with each call: extents of results and arguments, then the sizes of the operator."""
    return (*(t.shape for t in (*call.results, *call.given)), *call.sizes)


def address_of(call: ExternCall, foreign: ForeignCall) -> int:
    """Return the address of the native function of a call."""
    return int(ctypes.cast(_native_function(call, foreign), ctypes.c_void_p).value or 0)


@cache
def _native_function(call: ExternCall, foreign: ForeignCall) -> Any:
    """Return the native function of a call, which stays for the life of the process, as all code does that is loaded."""
    types = [ctypes.c_void_p if t == "ptr" else ctypes.c_int64 for t in foreign.types]

    def run(*words: int | None) -> int:
        try:
            _run(call, foreign, words)
        except BaseException as problem:  # KeyboardInterrupt goes on where the call returns
            _RAISED.problem = problem.with_traceback(None) if isinstance(problem, RunError) else problem
            return _FAILED
        return RIGHT

    return ctypes.CFUNCTYPE(ctypes.c_int32, *types)(run)


def failure_of(call: ExternCall) -> BaseException:
    """Return what the last call of a function by this thread ended with."""
    problem = getattr(_RAISED, "problem", None)
    _RAISED.problem = None
    if problem is not None:
        return problem  # type: ignore[no-any-return]
    notes = (f"its kernel is {function_of(call)}", "what Python said of it stands among its messages")
    return RunError(
        Diagnostic("R0318", f"extern `{call.operator}` could not be called", declared(call), notes, "call it from less deep a function")
    )


def _run(call: ExternCall, foreign: ForeignCall, words: Sequence[int | None]) -> None:
    """Call the function on the memory that a native call passes. Raises as `call_function` does, and RunError R0319 where it keeps an array
    of memory that is another's when it has returned."""
    tensors = (*call.results, *call.given)
    addresses, numbers = _read(foreign, words)
    arrays = [_array(t, numbers[k], addresses[k], k < len(call.results)) for k, t in enumerate(tensors)]
    watched = [weakref.ref(array) for array in arrays]
    problem: BaseException | None = None
    try:
        call_function(call, arrays[len(call.results) :], arrays[: len(call.results)], numbers[len(tensors) :])
    except BaseException as raised:
        problem = raised
        _release(raised)
    arrays.clear()
    if any(array() is not None for array in watched):
        gc.collect()
    kept = [t.name for t, array in zip(tensors, watched, strict=True) if array() is not None]
    if kept:
        raise _keeps(call, kept[0], problem)
    if problem is not None:
        raise problem


def _release(problem: BaseException) -> None:
    """Let go what the frames hold that an exception, and those which led to it, came through; where they were stays known."""
    seen: dict[int, BaseException] = {}
    found = [problem]
    while found:
        one = found.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        traceback.clear_frames(one.__traceback__)
        found += [e for e in (one.__cause__, one.__context__) if e is not None]
        found += one.exceptions if isinstance(one, BaseExceptionGroup) else ()


def _keeps(call: ExternCall, name: str, problem: BaseException | None) -> RunError:
    title = f"extern `{call.operator}` keeps `{name}`, whose memory is not its own, beyond its call"
    raised = problem.__cause__ or problem if problem is not None else None
    notes = (f"its kernel is {function_of(call)}", *([f"it raised {type(raised).__name__}"] if raised is not None else []))
    return RunError(Diagnostic("R0319", title, declared(call), notes, f"keep a copy: `{name}.copy()`"))


# ---------------------------------------------------------------- what it is passed


def _read(foreign: ForeignCall, words: Sequence[int | None]) -> tuple[list[int], list[Any]]:
    """Return the addresses of buffers, and the numbers behind them, several as a tuple."""
    rest = iter(words)
    addresses: list[int] = []
    for buffer in foreign.buffers:
        if isinstance(buffer, Buffers):
            addresses += _words(rest)
        else:
            address = next(rest) or 0
            addresses += [] if buffer is None else [address]
    numbers: list[Any] = []
    for number in foreign.numbers:
        several = isinstance(number, tuple) or (isinstance(number, Argument) and number.count is not None)
        numbers.append(_words(rest) if several else next(rest))
    return addresses, numbers


def _words(rest: Iterator[int | None]) -> tuple[int, ...]:
    """Return as many words as the next one says, which lie where the one behind it points."""
    count, address = next(rest) or 0, next(rest) or 0
    return tuple((ctypes.c_int64 * count).from_address(address)) if count else ()


def _array(tensor: Tensor, extents: Sequence[int], address: int, writable: bool) -> Array:
    """Return the elements of a tensor that lie at an address; only results can be written to."""
    shape = tuple(prod(extents[axis] for axis in group) for group in tensor.groups)
    size = prod(shape) * tensor.dtype.size_bytes
    memory: Any = (ctypes.c_ubyte * size).from_address(address) if size else bytearray()
    array: Array = np.ndarray(shape, tensor.dtype.numpy, memory)
    array.flags.writeable = writable
    return array
