"""Memory that may not be touched on either side of an array, and processes that may die of touching it.

    x = walled(np.arange(10.0))              the byte after its last is in a page that nobody may read or write
    x = walled(np.arange(10.0), "low")       the byte before its first is
    in_child(lambda: operator(x))            what the call returns or raises, or `Killed` where the process died of a signal
    agrees("op f(…) { … }", x)               the operator of a text gives what it means, natively, next to either wall

A read or write one element outside an array ends in a signal, which a comparison of results would not show. There are pages without
access on both sides in either case, but an array fills its own pages up to one side only.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import pickle
import resource
import signal
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import numpy as np

import tensorlang as tl
from tensorlang.tensor.interp import interpret

Array = np.ndarray[Any, Any]
Side = Literal["low", "high"]
SIDES: tuple[Side, ...] = ("high", "low")
T = TypeVar("T")

_C = ctypes.CDLL(None, use_errno=True)
_NO_ACCESS = 0


class Killed(Exception):
    """A child process died of a signal, or of its time."""


def walled(array: Array, side: Side = "high", *, align: int = 1) -> Array:
    """Return a row-major copy of `array` between two pages without access, next to the one on `side`. `align`, a power of two: what its
    address is a multiple of, in bytes, for which it may keep a distance from the high wall."""
    page = mmap.PAGESIZE
    room = max(-(-array.nbytes // page), 1) * page
    block = mmap.mmap(-1, room + 2 * page)
    whole = np.frombuffer(block, np.uint8)
    for wall in (0, page + room):
        if _C.mprotect(ctypes.c_void_p(whole.ctypes.data + wall), ctypes.c_size_t(page), _NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = page if side == "low" else (page + room - array.nbytes) // align * align
    inside: Array = np.ndarray(array.shape, array.dtype, block, start)  # of an empty slice NumPy says that it lies elsewhere
    inside[...] = array
    return inside


class Walled:
    """An array next to a page without access, alternately on either side."""

    count = 0

    def __init__(self, values: Array, align: int) -> None:
        Walled.count += 1
        self.inside = walled(values, SIDES[Walled.count % 2], align=align)

    def intact(self) -> bool:
        return True


def in_child(task: Callable[[], T], seconds: int = 60) -> T:
    """Return what `task` returns, or raise what it raises, run in a process of its own. Raises `Killed` when the process dies of a signal
    or runs for longer than `seconds`."""
    back, forth = os.pipe()
    child = os.fork()
    if not child:
        os.close(back)
        _answer(task, forth, seconds)
    os.close(forth)
    with os.fdopen(back, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise Killed(signal.Signals(os.WTERMSIG(status)).name)
    fine, value = pickle.loads(answer)
    if not fine:
        raise value
    result: T = value
    return result


def _answer(task: Callable[[], object], stream: int, seconds: int) -> None:
    """Run `task` in the child, write its outcome to `stream`, and end the process."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    try:
        answer = pickle.dumps((True, task()))
    except BaseException as problem:
        answer = pickle.dumps((False, problem))
    with os.fdopen(stream, "wb") as out:
        out.write(answer)
    os._exit(0)


def only(operators: tl.Operators) -> tl.Operator:
    (name,) = operators
    return operators[name]


def agrees(text: str, *arrays: Array, schedule: str | None = None, symbolic: bool = False, **sizes: int) -> None:
    """Assert that the one operator of `text` gives bit for bit what its program means, next to either wall."""
    operator = only(tl.parse(text, sizes="symbolic" if symbolic else "static", threads=1))
    operator = operator if schedule is None else operator.schedule(schedule)
    program = only(tl.parse(text)).program(*arrays, **sizes)
    want = interpret(program, {}, dict(zip((p.name for p in program.params), arrays, strict=True)))

    given = [[walled(a, side) for a in arrays] for side in SIDES]
    for row in given:
        operator.prepared(*row, **sizes)  # here: what compiling has found out serves the next one, which a child would take along

    def run() -> list[Mapping[str, Array]]:
        out = []
        for row in given:
            made = operator(*row, **sizes)
            out.append(dict(zip(program.results, made if isinstance(made, tuple) else (made,), strict=True)))
        return out

    for got in in_child(run):
        for name in program.results:
            assert np.asarray(got[name]).tobytes() == want[name].tobytes(), f"{name}: {got[name]} is not {want[name]}"
