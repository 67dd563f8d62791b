"""Whether there is memory for what a kernel makes."""

from __future__ import annotations

from math import prod

from codegen.loops.nodes import Alloc, Function, Int
from codegen.loops.walk import statements
from tensorlang.diagnostics import Diagnostic, RunError

MOST_BYTES = 2**47
"""What a process of today's machines can address."""


def no_room(name: str, size_bytes: int | None = None) -> RunError:
    """Return what is raised (R0315) when operator `name` needs more memory than there is; `size_bytes`: of one tensor, where known."""
    title = f"there is not enough memory for what `{name}` makes"
    needed = () if size_bytes is None else (f"one tensor alone takes {size_bytes / 2**40:,.0f} TiB",)
    return RunError(Diagnostic("R0315", title, notes=needed, help="call it with smaller arrays, or sizes"))


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
