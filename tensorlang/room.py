"""Whether there is memory for what a kernel makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

from codegen.loops.nodes import Alloc, Function, Int
from codegen.loops.walk import statements
from tensorlang.diagnostics import Diagnostic, RunError

MOST_BYTES = 2**47
"""What a process of today's machines can address."""


def no_room(name: str, size_bytes: int | None = None, problem: MemoryError | None = None) -> RunError:
    """Return what is raised (R0315) when an operator or a model, which may have no name, needs more memory than there is. `size_bytes`: of
    one tensor, where known; `problem`: what found it out, and may say which array or limit it was."""
    title = f"there is not enough memory for what {f'`{name}`' if name else 'the model'} makes"
    needed = () if size_bytes is None else (f"one tensor alone takes {size_bytes / 2**40:,.0f} TiB",)
    said = (str(problem),) if str(problem or "") else ()
    return RunError(Diagnostic("R0315", title, notes=(*needed, *said), help="call it with smaller arrays, or sizes"))


@contextmanager
def within_room(name: str) -> Iterator[None]:
    """Raise RunError R0315 where there is not enough memory for what `name` makes here."""
    try:
        yield
    except MemoryError as problem:
        raise no_room(name, problem=problem) from None


def check_room(name: str, size_bytes: int) -> None:
    """Raise RunError R0315 for a tensor that no machine can hold."""
    if size_bytes > MOST_BYTES:
        raise no_room(name, size_bytes)


def check_buffers(name: str, function: Function) -> None:
    """Raise RunError R0315 when a buffer of constant extents is beyond every machine."""
    for buffer in (*function.params, *(node.buffer for node in statements(*function.body) if isinstance(node, Alloc))):
        extents = [e.value for e in buffer.shape if isinstance(e, Int)]
        if len(extents) == len(buffer.shape):
            check_room(name, prod(extents) * buffer.dtype.size_bytes)
