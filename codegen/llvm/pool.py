"""The threads that run parallel loops: one pool per process, shared by all kernels.

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

The pool is itself emitted as LLVM IR (`pool_ir`): it needs no C compiler where it runs. After a fork the child starts its own workers;
when the interpreter exits the workers are joined before their code goes away.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from functools import cache

from codegen.forks import lock_at_fork
from codegen.llvm.jit import Library, kept_object, load
from codegen.llvm.pool_ir import MAX_THREADS, PLACES, pool_ir
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


class _Functions:
    """The pool's entry points, loaded."""

    def __init__(self, library: Library) -> None:
        count = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
        self.library = library
        self.set_threads = count(library.address("tl_set_threads"))
        self.get_threads = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("tl_get_threads"))
        self.forked = ctypes.PYFUNCTYPE(None)(library.address("tl_forked"))
        self.stop = ctypes.CFUNCTYPE(None)(library.address("tl_stop"))
        self.imports = {name: library.address(name) for name in (ENTRY, "tl_begin")}


_LOCK = threading.Lock()
lock_at_fork(_LOCK)


def _functions() -> _Functions:
    with _LOCK:
        return _loaded()


@cache
def _loaded() -> _Functions:
    target = host()
    functions = _Functions(load([kept_object("pool", pool_ir(target), target, Cache())]))
    places = (ctypes.c_int32 * MAX_THREADS).from_address(functions.library.address("tl_pool") + PLACES["PROCESSORS"])
    ctypes.c_int64.from_address(functions.library.address("tl_pool") + PLACES["STARTED"]).value = 1
    for i in range(MAX_THREADS):
        places[i] = -1
    for i, processor in enumerate(available_cpus()[:MAX_THREADS]):
        places[i] = processor
    functions.set_threads(available_threads())
    log_of("threads").debug("parallel loops may run on %d processors", available_threads())
    os.register_at_fork(after_in_child=functions.forked)
    atexit.register(functions.stop)
    return functions
