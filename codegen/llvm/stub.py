"""Native code as a built-in function of Python: nothing is interpreted between the call and the first kernel.

    f = positional(description)      f(x, y) returns an array, or a tuple of several
    f = named(description)           f({"x": x, "y": y}) returns a dictionary
    f = into(description)            f(z, x, y) writes into z, its outputs first, and returns what `positional` does: z, or a tuple

A description is one block of words that tells the stub what to compare arrays with and what to call:

    entry, outputs, inputs, rest, scratch, its bytes, pool, its call, then six words a port, outputs first, then the rest: constants
    and numbers
    scratch the address of two words: that of a block, 0 while a call has it, and the bytes of that; how many of them a call needs follows
    pool    0, or where the threads are that run it (`pool.Pool`), and the function that calls an entry on them
    port    dtype object, rank, address of the extents, name object, bytes, which numbers it takes (`stub_numbers`)

The stub reads array objects as NumPy's C interface lays them out, makes the outputs or takes those that are given, lets other Python
threads run, and calls `entry` with the addresses of outputs, inputs, rest and scratch. It returns `NotImplemented` for arguments that are
not just what is expected (another shape, not dense, a list, an output that is read-only or shares memory with another array), while another
call has the scratch memory, and where there is not enough of it; a number when the native code failed with it. Whoever calls it has a
slower way for the first, and an exception for the second.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from codegen.llvm import signals, stub_numbers
from codegen.llvm.jit import kept_object, load
from codegen.llvm.signals import STOPPED
from codegen.llvm.target import host
from codegen.store import Cache


class Description(np.ndarray[Any, np.dtype[np.int64]]):
    """The words of a description; `kept` keeps what they point at."""

    kept: list[object]


def description(words: list[int], kept: list[object]) -> Description:
    """Return `words` as the stub reads them."""
    made = np.array(words, np.int64).view(Description)
    made.kept = kept
    return made


def positional(words: Description) -> Callable[..., Any] | None:
    """Return the function of arrays in order, or None where Python or NumPy is not laid out as the stub expects."""
    stubs = _stubs()
    return None if stubs is None else stubs.function("tl_positional", _FASTCALL, words)


def named(words: Description) -> Callable[[object], Any] | None:
    """Return the function of a dictionary of arrays, or None as for `positional`."""
    stubs = _stubs()
    return None if stubs is None else stubs.function("tl_named", _ONE, words)


def into(words: Description) -> Callable[..., Any] | None:
    """Return the function of arrays to write into and arrays to read, or None as for `positional`."""
    stubs = _stubs()
    return None if stubs is None else stubs.function("tl_into", _FASTCALL, words)


def taken(place: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    """Return the address at a place of scratch memory, which is the caller's now; 0 where a call has it."""
    stubs = _stubs()
    return 0 if stubs is None else int(stubs.take(place.ctypes.data))


_FASTCALL, _ONE = 0x80, 0x8


class _Method(ctypes.Structure):
    """A PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class _Stubs:
    """The stubs, loaded."""

    def __init__(self, new_array: int) -> None:
        imports = {name: signals.address_of(name) for name in _PYTHON}
        imports |= {
            "tl_raised": signals.kept_at(),
            "tl_new_array": new_array,
            "tl_array_type": id(np.ndarray),
            "tl_dict_type": id(dict),
            "tl_refused": id(NotImplemented),
        } | stub_numbers.imports()
        target = host()
        text = "\n".join(resources.files("codegen.llvm").joinpath(name).read_text("utf-8") for name in ("stub.ll", "stub_numbers.ll"))
        text = text.replace("<TRIPLE>", target.triple).replace("<STOPPED>", str(STOPPED - (1 << 32)))
        self._library = load([kept_object("stubs", text, target, Cache())], imports)
        self.take = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self._library.address("tl_take"))
        self._methods: dict[str, _Method] = {}
        self._new = ctypes.pythonapi.PyCFunction_NewEx
        self._new.argtypes, self._new.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p), ctypes.py_object

    def function(self, symbol: str, flags: int, words: Description) -> Any:
        method = self._methods.get(symbol)
        if method is None:
            method = self._methods[symbol] = _Method(symbol.encode(), self._library.address(symbol), flags, None)
        return self._new(ctypes.addressof(method), words, None)


@cache
def _stubs() -> _Stubs | None:
    """Return the stubs, or None for another interpreter, one without a global lock, or arrays laid out otherwise."""
    if sys.implementation.name != "cpython" or object.__basicsize__ != 16:  # 32 bytes where there is no global lock
        return None
    probe = np.arange(6, dtype=np.float32).reshape(2, 3)
    words = (ctypes.c_int64 * 9).from_address(id(probe))
    extents = ctypes.c_int64 * 2
    as_expected = (
        words[2] == probe.ctypes.data
        and words[3] & 0xFFFFFFFF == 2
        and tuple(extents.from_address(words[4])) == probe.shape
        and words[7] == id(probe.dtype)
        and words[8] & 0xFFFFFFFF == probe.flags.num
        and stub_numbers.as_expected()
    )
    table = getattr(np._core._multiarray_umath, "_ARRAY_API", None) if as_expected else None  # type: ignore[attr-defined]
    if table is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    functions = ctypes.cast(pointer(table, None), ctypes.POINTER(ctypes.c_void_p))
    return _Stubs(int(functions[_NEW_FROM_DESCR] or 0))


_NEW_FROM_DESCR = 94
"""Where `PyArray_NewFromDescr` is in NumPy's table of functions; it never moves."""
_PYTHON = (
    "Py_IncRef",
    "Py_DecRef",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyLong_AsLongLongAndOverflow",
    "PyLong_FromLong",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyDict_New",
    "PyDict_Size",
    "PyDict_GetItemWithError",
    "PyDict_SetItem",
    "PyErr_Occurred",
    "PyErr_Restore",
)
