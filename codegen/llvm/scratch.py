"""Scratch memory of native functions, such as those of one model for several combinations of sizes: there is one block, which grows to
the largest that any of them needs.

    scratch = Scratch()
    scratch.make_room(4096)                   the built-in functions (`stub`) find so much at `scratch.place`
    with scratch.own(4096) as address: ...    this thread's own

One call at a time has the block. A thread that finds it taken has one of its own, which grows likewise.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from codegen.forks import Lock
from codegen.llvm.stub import taken

Array = np.ndarray[Any, Any]
ALIGN = 64


class Scratch:
    """A block of memory that functions share, and one of each thread that wants it meanwhile.

    place    two words: where the block lies, 0 while there is none or a call has it, and how many bytes it has"""

    def __init__(self) -> None:
        self.place = np.zeros(2, np.int64)
        self._block: Array | None = None
        self._lock = Lock()
        self._local = threading.local()

    def make_room(self, size_bytes: int) -> None:
        """Have so many bytes at least at `place`, unless a call has what is there. Raises MemoryError."""
        with self._lock:
            if self.place[1] >= size_bytes or (self._block is not None and not taken(self.place)):
                return
            size_bytes = max(size_bytes, int(self.place[1]) * 3 // 2)  # sizes that go up one by one take new pages now and then
            self._block, self.place[1] = None, 0
            self._block = block(size_bytes)
            self.place[1] = size_bytes
            self.place[0] = aligned(self._block)

    @contextmanager
    def own(self, size_bytes: int) -> Iterator[int]:
        """Lend so many bytes of this thread's own; while they are lent, as where native code calls a function that calls this one again,
        others."""
        found: Array | None = self._local.__dict__.pop("block", None)
        if found is None or found.nbytes < size_bytes + ALIGN:
            found = None  # before there are two
            found = block(size_bytes)
        try:
            yield aligned(found)
        finally:
            self._local.block = found


def block(size_bytes: int) -> Array:
    """Return memory with room for so many bytes from its first aligned address on."""
    return np.empty(size_bytes + ALIGN, np.uint8)


def aligned(memory: Array) -> int:
    """Return the first address in a block that vectors may lie at."""
    return -(-int(memory.ctypes.data) // ALIGN) * ALIGN
