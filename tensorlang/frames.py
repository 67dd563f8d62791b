"""Memory for the frames of Python's functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

ROOM_BYTES = 1 << 19
"""How much room there is for frames below a function at least: half a KiB for each call that Python allows by default."""
_POINTER_BYTES = 8


def contiguous_frames(function: F) -> F:
    """Let all frames below those of a function lie in one piece of memory.

    Python has chunks of 16 KiB for frames. It maps one when a call does not fit into the last and unmaps it when that call returns, so that
    a loop whose calls are the first beyond the end of a chunk pays two system calls and a page fault for each: up to a fifth of the time of
    compiling. A frame that says it needs more has a chunk of its own, of twice that, for itself and those below it; what nobody touches of
    it is no memory."""

    def below(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    below.__code__ = below.__code__.replace(co_stacksize=ROOM_BYTES // _POINTER_BYTES)
    return cast(F, wraps(function)(below))
