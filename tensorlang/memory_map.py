"""Files as memory: what is read of them is read when it is touched, shared with other processes, and given back by `forget`.

data = contents(path)                       the bytes of the file, none of them read yet
weights = np.frombuffer(data, "<f4")        an array of them, still in the file
forget(weights)                             the array stays as it is; its bytes leave this process until they are read again
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

PAGE = mmap.PAGESIZE


class MappedFile(mmap.mmap):
    """A file that is mapped for reading: forgetting its pages loses nothing, as it would with other memory."""


def contents(path: str | os.PathLike[str], *, soon: bool = False, opener: Callable[[str, int], int] | None = None) -> memoryview:
    """Return the bytes of a file, mapped where the system can; `soon` maps all pages at once, `opener` is that of `open`. Raises OSError
    and ValueError as `open`."""
    flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if soon else 0)
    with open(path, "rb", opener=opener) as file:
        try:
            return memoryview(MappedFile(file.fileno(), 0, flags, mmap.PROT_READ))
        except (OSError, ValueError):  # an empty file, a pipe
            return memoryview(file.read())


def forget(array: Array) -> None:
    """Let the pages that only `array` touches leave this process, when it is a view of a mapped file; else do nothing."""
    file = _file_of(array)
    if file is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = np.frombuffer(file, np.uint8).ctypes.data
    low, high = _bounds(array)
    first, last = -(-(low - start) // PAGE) * PAGE, (high - start) // PAGE * PAGE
    if last > first:
        file.madvise(mmap.MADV_DONTNEED, first, last - first)


def _file_of(array: Array) -> MappedFile | None:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    found = base.obj if isinstance(base, memoryview) else base
    return found if isinstance(found, MappedFile) else None


def _bounds(array: Array) -> tuple[int, int]:
    """Return the addresses of the first byte of `array` and of the one after its last."""
    if array.size == 0:
        return array.ctypes.data, array.ctypes.data
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    low = array.ctypes.data + sum(min(0, step) for step in steps)
    return low, low + sum(abs(step) for step in steps) + array.itemsize
