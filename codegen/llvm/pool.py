"""The threads that run parallel loops: one pool for all kernels of the process, and pools of their own for models (`Pool`).

    tl_parallel(body, context, begin, end)    run body(context, b, e, thread) on pieces [b, e) of [begin, end); returns when all are done
    tl_set_threads(n)                         use n threads from the next region on (the caller is thread 0)
    tl_begin(n)                               the same, and wake sleeping workers: regions follow shortly

A region is cut into at most 64 pieces per thread, and thread k is at home in the k-th part of them. A thread *claims* the first half of
what is left of its part, again and again; when nothing is left it takes half of what is left of another's part, from the end. So the same
thread meets the same part of a buffer in one kernel after another, and finds it in its own cache; nobody waits for a thread that has not
started; and a busy processor costs its share of the work rather than a barrier. Workers spin for a while after a region, then sleep in a
futex; the next region wakes them. Worker k is pinned to the k-th processor that the process may use; the caller is not pinned, and a
worker that it meets on its processor changes places with it: two spinning threads on one processor would halve both.

    state       generation << 26 | threads << 13 | pieces      replaced as a whole when a region starts
    homes[k]    generation << 26 | next << 13 | end            what is left of part k; of an older generation: all of it

A claim is a compare-and-swap of `homes[k]` from what it was to this region's generation. It cannot succeed for a region that is over: then
every part has been claimed to its end under that generation, or under a later one. A region that starts while another one runs (from
another thread of the program) runs on its caller alone.

A `Pool` has workers of its own, which may run on any processor but the caller's: several pools, and several processes, share a machine. A
call that is given one runs its regions there, whatever other pools do. Workers of a pool that no call is on go to sleep at once while there
are calls on others.

Pools are themselves emitted as LLVM IR (`process_pool_ir`): they need no C compiler where they run. After a fork the child starts its own
workers; when the interpreter exits the workers are joined before their code goes away.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from codegen.forks import lock_at_fork
from codegen.llvm.jit import Library, kept_object, load
from codegen.llvm.pool_ir import MASK_BYTES, MAX_THREADS, PLACES, POOL_BYTES
from codegen.llvm.process_pool_ir import process_pool_ir
from codegen.llvm.target import host
from codegen.llvm.thread_count import available_cpus
from codegen.log import log_of
from codegen.store import Cache

ENTRY = "tl_parallel"
"""What runs parallel loops."""


def set_threads(count: int) -> int:
    """Use `count` threads for parallel loops from now on and return how many that is: at least 1, at most the processors allowed."""
    return int(_functions().set_threads(max(1, min(count, available_threads()))))


def threads() -> int:
    """Return how many threads parallel loops use."""
    return int(_functions().get_threads())


def available_threads() -> int:
    """Return how many processors this process may use."""
    return min(len(available_cpus()), MAX_THREADS)


def pool_imports() -> dict[str, int]:
    """Return the addresses that objects with parallel loops link to."""
    return _functions().imports


class Pool:
    """Threads of their own for the parallel loops of some calls: `threads` of them, the caller among them. They begin with the first loop
    and end with this object."""

    def __init__(self, threads: int) -> None:
        """`threads`: at most the processors that the process may use."""
        self.threads = max(1, min(threads, available_threads()))
        memory = ctypes.create_string_buffer(POOL_BYTES + _ALIGN)
        self.address = -(-ctypes.addressof(memory) // _ALIGN) * _ALIGN
        self._functions = _functions()
        _set_up(self.address, ())
        ctypes.c_int64.from_address(self.address + PLACES["ACTIVE"]).value = self.threads
        _keep_apart(self.address, available_cpus())
        self._end = weakref.finalize(self, _stopped, self._functions, self.address, memory)
        _POOLS.add(self)

    @property
    def call_address(self) -> int:
        """Where the native function lies that calls an entry point on a pool, `tl_call`."""
        return self._functions.call_address

    def call(self, entry: int, bases: int) -> int:
        """Return what the native function `i32 (ptr)` at `entry` returns for the words at `bases`, its loops on these threads."""
        return int(self._functions.call(entry, bases, self.address))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have the loops of native functions that this thread calls meanwhile on these threads."""
        before = self._functions.enter(self.address)
        try:
            yield
        finally:
            self._functions.leave(before)


_ALIGN = 128
_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()


def _stopped(functions: _Functions, address: int, memory: object) -> None:
    functions.stop(address)


def _set_up(address: int, processors: Sequence[int]) -> None:
    """Make a block of zeros a pool of which only the caller has started; each further thread is kept on a processor of its own, or on none
    where there are no `processors`."""
    ctypes.c_int64.from_address(address + PLACES["STARTED"]).value = 1
    places = (ctypes.c_int32 * MAX_THREADS).from_address(address + PLACES["PROCESSORS"])
    for i in range(MAX_THREADS):
        places[i] = processors[i] if i < len(processors) else -1


def _keep_apart(address: int, processors: Sequence[int]) -> None:
    """Have the workers of a pool on all of the processors but that on which the caller of a region is."""
    if len(processors) > 1 and processors[-1] < 8 * MASK_BYTES:
        allowed = (ctypes.c_uint8 * MASK_BYTES).from_address(address + PLACES["ALLOWED"])
        for processor in processors:
            allowed[processor // 8] |= 1 << processor % 8
        ctypes.c_int32.from_address(address + PLACES["AVOIDS"]).value = 1


class _Functions:
    """The pools' entry points, loaded."""

    def __init__(self, library: Library) -> None:
        count = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
        self.library = library
        self.set_threads = count(library.address("tl_set_threads"))
        self.get_threads = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("tl_get_threads"))
        self.call_address = library.address("tl_call")
        word = ctypes.c_void_p
        self.call = ctypes.CFUNCTYPE(ctypes.c_int32, word, word, word)(self.call_address)
        self.enter: Any = ctypes.CFUNCTYPE(word, word)(library.address("tl_pool_enter"))
        self.leave: Any = ctypes.CFUNCTYPE(None, word)(library.address("tl_pool_leave"))
        self.shared = library.address("tl_pool")
        self._forked = ctypes.PYFUNCTYPE(None, word)(library.address("tl_forked"))
        self.stop = ctypes.CFUNCTYPE(None, word)(library.address("tl_stop"))
        self.imports = {name: library.address(name) for name in (ENTRY, "tl_begin")}

    def forked(self) -> None:
        """Begin anew in the child of a fork, where no worker exists."""
        for address in (self.shared, *(pool.address for pool in _POOLS)):
            self._forked(address)


_LOCK = threading.Lock()
lock_at_fork(_LOCK)


def _functions() -> _Functions:
    with _LOCK:
        return _loaded()


@cache
def _loaded() -> _Functions:
    target = host()
    functions = _Functions(load([kept_object("pool", process_pool_ir(target), target, Cache())]))
    if ctypes.CFUNCTYPE(ctypes.c_int32)(functions.library.address("tl_prepare"))():
        raise OSError("this process has no room for another key of threads (PTHREAD_KEYS_MAX)")
    _set_up(functions.shared, available_cpus()[:MAX_THREADS])
    functions.set_threads(available_threads())
    log_of("threads").debug("parallel loops may run on %d processors", available_threads())
    os.register_at_fork(after_in_child=functions.forked)
    atexit.register(functions.stop, functions.shared)
    return functions
