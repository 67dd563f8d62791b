"""Kernels that are not in the language, on processors: found, checked and called.

The function of a kernel is called by the address that it has in this process; what calls it is compiled and kept like any kernel, and
knows nothing of the file that the function is from.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from codegen.dtypes import DType, from_numpy
from codegen.llvm.foreign import Argument, Buffers, ForeignCall, ForeignError, Numbers, library_function, status_of, text_function, thunk
from codegen.llvm.jit import kept_object
from codegen.llvm.program import code_bits
from codegen.llvm.target import Target
from codegen.store import Cache
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from tensorlang.backends.cpu import python_functions
from tensorlang.diagnostics import CompileError, Diagnostic, InternalError, Label, RunError, error
from tensorlang.externs import CSymbol, LLVMText, NativeKernel, PythonFunction
from tensorlang.tensor.nodes import ExternCall, constant_size
from tensorlang.tensor.walk import caller_shape

Array = np.ndarray[Any, Any]


def symbol_of(call: ExternCall, calls: int, target: Target) -> str:
    """Return the name of the kernel that makes a call, in a program of so many calls."""
    return thunk(_foreign(call, calls), target)[0]


def object_of(call: ExternCall, calls: int, target: Target, store: Cache | None) -> bytes:
    """Return the object of that kernel."""
    kept = None if isinstance(call.kernel, PythonFunction) else store  # of which another process has no address
    return kept_object("extern", thunk(_foreign(call, calls), target)[1], target, kept)


def open_sizes(call: ExternCall) -> tuple[Affine, ...]:
    """Return the sizes that the kernel of a call is told when it is called, in order: those of a program that leaves sizes open. A pack of
    which one is open is told as a whole."""
    return tuple(size for group in map(_group, _told_sizes(call)) if _is_open(group) for size in group)


def _told_sizes(call: ExternCall) -> tuple[Affine | tuple[Affine, ...], ...]:
    return python_functions.told_sizes(call) if isinstance(call.kernel, PythonFunction) else call.sizes


def _group(size: Affine | tuple[Affine, ...]) -> tuple[Affine, ...]:
    return size if isinstance(size, tuple) else (size,)


def _is_open(group: tuple[Affine, ...]) -> bool:
    return any(affine.constant(size) is None for size in group)


def imports_of(made: Sequence[ExternCall], target: Target, store: Cache | None) -> Mapping[str, int]:
    """Return the addresses that the kernels of calls link to. Raises CompileError C0114 to C0116 where a function is not to be had."""
    return {_imported(call): address_of(call, target, store) for call in made}


def address_of(call: ExternCall, target: Target, store: Cache | None) -> int:
    """Return the address of the function that a call names. Raises CompileError C0114 to C0116."""
    kernel = _native(call)
    try:
        match kernel:
            case CSymbol():
                _check_content(call, kernel)
                return library_function(kernel.path, call.symbol)
            case LLVMText():
                return text_function(kernel.text, call.symbol, _foreign(call, 1).types, target, store)
            case PythonFunction():
                return python_functions.address_of(call, _foreign(call, 1))
    except OSError as problem:
        raise _refused("C0114", call, f"{kernel} cannot be loaded: {problem}", "build it for this machine") from None
    except ForeignError as problem:
        code = "C0115" if isinstance(kernel, CSymbol) else "C0116"
        help = "`tensorlang show FILE OP --stage extern` prints how it is declared"
        raise _refused(code, call, f"{kernel}: {problem}", help) from None


def no_library(what: str, made: Sequence[ExternCall]) -> CompileError:
    """Return C0131 for something that calls kernels, and is to become a library."""
    functions = [call for call in made if isinstance(call.kernel, PythonFunction)]
    help = "link the kernel yourself, or compile it in the process that runs it"
    if functions:
        help = "a function of Python runs in its own process alone: say it in the language, or compile the program where it runs"
    notes = tuple(dict.fromkeys(f"extern `{call.operator}` is {call.kernel}" for call in functions))
    return error("C0131", f"not supported yet: a library of {what}, which calls extern operators", notes=notes, help=help)


def status_error(call: ExternCall, code: int, calls: int) -> BaseException:
    """Return the error for a kernel that returned something else than 0, in a program of so many calls; of a function of Python what it
    raised, KeyboardInterrupt and such as they are."""
    if isinstance(call.kernel, PythonFunction):
        return python_functions.failure_of(call)
    bits = code_bits(calls)
    status = status_of(code, bits)
    edge = status in (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return _failed(call, f"{status}{' or beyond' if edge else ''}")


def _failed(call: ExternCall, status: str) -> RunError:
    title = f"extern `{call.operator}` returned the status {status}"
    notes = (f"its kernel is {call.kernel}",)
    return RunError(Diagnostic("R0316", title, _labels(call), notes, "0 says that all is right; what others mean, its author knows"))


# ---------------------------------------------------------------- calls outside of code


@dataclass(frozen=True, slots=True)
class Ran:
    """What a kernel made; `changed`: where it changed bytes that are not its own, or ""."""

    results: tuple[Array, ...]
    changed: str


def call_watched(call: ExternCall, arrays: Sequence[Array], fill: int, target: Target, store: Cache | None) -> Ran:
    """Return what a kernel makes of these arrays, those of its arguments that are given, in memory that is watched: results, and what lies
    around every array, are bytes `fill` before. Raises CompileError C0114 to C0116, RunError R0316 for a status."""
    made = [_Watched.empty(caller_shape(t, {}), t.dtype, fill) for t in call.results]
    given = [_Watched.holding(array, fill) for array in arrays]
    there = [*made, *given]
    passed: list[Any] = []
    for buffer in _buffers(call):
        match buffer:
            case None:
                passed.append(None)
            case Buffers(first, count):
                addresses = (ctypes.c_void_p * max(1, count))(*(w.address for w in there[first : first + count]))
                passed += [ctypes.c_int64(count), addresses]
            case int():
                passed.append(ctypes.c_void_p(there[buffer].address))
    for number in _foreign(call, 1).numbers:
        match number:
            case tuple():
                passed += [ctypes.c_int64(len(number)), (ctypes.c_int64 * max(1, len(number)))(*number)]
            case float():
                passed.append(ctypes.c_double(number))
            case Argument():
                raise InternalError("extern", f"a size of `{call.operator}` is open")
            case _:
                passed.append(ctypes.c_int64(number))
    status = ctypes.CFUNCTYPE(ctypes.c_int32)(address_of(call, target, store))(*passed) - _foreign(call, 1).right
    if status and isinstance(call.kernel, PythonFunction):
        raise python_functions.failure_of(call)
    if status:
        raise _failed(call, str(status))
    names = [t.name for t in call.results] + [a for a in call.arguments if a is not None]
    changed = [f"around `{name}`" for name, w in zip(names, [*made, *given], strict=True) if not w.is_whole(fill)]
    changed += [
        f"of `{name}`" for name, w, array in zip(names[len(made) :], given, arrays, strict=True) if w.array.tobytes() != array.tobytes()
    ]
    return Ran(tuple(w.array for w in made), ", ".join(changed))


_AROUND = 256
"""Bytes that are watched on either side of an array."""


@dataclass(frozen=True, slots=True)
class _Watched:
    block: Array
    array: Array

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: DType, fill: int) -> _Watched:
        size = prod(shape) * dtype.size_bytes
        block = np.full(size + 2 * _AROUND, fill, np.uint8)
        return _Watched(block, np.ndarray(shape, dtype.numpy, block.data, _AROUND))

    @staticmethod
    def holding(array: Array, fill: int) -> _Watched:
        dtype = from_numpy(array.dtype)
        assert dtype is not None
        made = _Watched.empty(array.shape, dtype, fill)
        made.array[...] = array
        return made

    @property
    def address(self) -> int:
        return int(self.block.ctypes.data) + _AROUND

    def is_whole(self, fill: int) -> bool:
        """Tell whether what lies around the array is as it was."""
        return bool((self.block[:_AROUND] == fill).all() and (self.block[len(self.block) - _AROUND :] == fill).all())


# ---------------------------------------------------------------- one call


def _native(call: ExternCall) -> NativeKernel:
    if not isinstance(call.kernel, CSymbol | LLVMText | PythonFunction):
        raise InternalError("extern", f"`{call.operator}` has no kernel for processors")
    return call.kernel


def _foreign(call: ExternCall, calls: int) -> ForeignCall:
    """Return the call with its buffers numbered: results first, then what is given of the arguments, in order."""
    buffers = _buffers(call)
    at = len(call.results) + sum(argument is not None for argument in call.arguments)
    numbers: list[Numbers] = []
    for size in _told_sizes(call):
        group = _group(size)
        if _is_open(group):
            numbers.append(Argument(at, len(group) if isinstance(size, tuple) else None))
            at += len(group)
        else:
            numbers.append(tuple(map(constant_size, size)) if isinstance(size, tuple) else constant_size(size))
    of_python = isinstance(call.kernel, PythonFunction)
    attributes = () if of_python else call.attributes
    right = python_functions.RIGHT if of_python else 0
    return ForeignCall(_imported(call), buffers, (*numbers, *attributes), min(16, code_bits(calls)), right)


def _buffers(call: ExternCall) -> tuple[int | Buffers | None, ...]:
    places = iter(range(len(call.results) + len(call.arguments)))
    flat: list[int | None] = [*(next(places) for _ in call.results), *(None if a is None else next(places) for a in call.arguments)]
    if not call.counts:
        return tuple(flat)
    out: list[int | Buffers | None] = []
    begin = 0
    for count in call.counts:
        if count is None:
            out.append(flat[begin])
        else:
            before = sum(place is not None for place in flat[:begin])
            out.append(Buffers(before, count))
        begin += 1 if count is None else count
    return tuple(out)


def _imported(call: ExternCall) -> str:
    """Return under which name the function is imported: one that tells it from all others, and nothing a user wrote."""
    kernel = _native(call)
    told = repr((type(kernel).__name__, kernel.content, getattr(kernel, "path", ""), call.symbol))
    if isinstance(kernel, PythonFunction):  # whose native function is one call's
        told += repr((call.results, call.given, call.arguments, call.sizes, call.attributes, call.counts, call.signature))
    return f"tl_import_{hashlib.sha256(told.encode()).hexdigest()[:24]}"


@cache
def _content(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _check_content(call: ExternCall, kernel: CSymbol) -> None:
    """Raise CompileError C0114 for a file that is another than the one that was named."""
    if kernel.path and _content(kernel.path) != kernel.content:
        raise _refused("C0114", call, f"{kernel.path} is another file than this process has loaded", "start Python anew")


def _refused(code: str, call: ExternCall, why: str, help: str) -> CompileError:
    made = error(code, f"the kernel for extern `{call.operator}` cannot be called", notes=(why,), help=help)
    [found] = made.diagnostics
    return CompileError(Diagnostic(found.code, found.title, _labels(call), found.notes, found.help))


def _labels(call: ExternCall) -> tuple[Label, ...]:
    return (Label(call.span, "declared here"),) if call.span.end else ()
