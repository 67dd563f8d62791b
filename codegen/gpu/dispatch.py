"""Launches with every number filled in, as a device takes them.

    launch      scale over (ceildiv(N, 256), 1, 1) blocks       of a program
    dispatch    scale, (40, 1, 1), (256, 1, 1), [x, y, N]       for N = 10000 and buffers at these addresses

Arguments are eight bytes each, addresses and sizes alike, in the order of `Kernel`: buffers, sizes, the status word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.errors import InternalError
from codegen.gpu.program import Kernel, Launch, Program
from codegen.loops.evaluate import evaluate

SCRATCH_ALIGN = 256
"""Where scratch buffers begin, in bytes; so do allocations of devices."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One launch of `kernel`: blocks and threads per axis (x, y, z), shared memory to ask for, arguments."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_bytes: int
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where scratch buffers lie in one block of memory: bytes from its beginning, by name, and how many bytes it has."""

    offsets: Mapping[str, int]
    size_bytes: int


def scratch_layout(program: Program, sizes: Mapping[str, int]) -> Layout:
    """Return where the scratch buffers of `program` lie when it runs with these sizes, each at a multiple of `SCRATCH_ALIGN`."""
    offsets: dict[str, int] = {}
    end = 0
    for scratch in program.scratch:
        offsets[scratch.name] = end
        size = max(0, evaluate(scratch.elements, sizes)) * scratch.dtype.size_bytes
        end += -(-size // SCRATCH_ALIGN) * SCRATCH_ALIGN
    return Layout(offsets, end)


def dispatches(
    program: Program, sizes: Mapping[str, int], addresses: Mapping[str, int], scratch: int = 0, status: int = 0
) -> tuple[Dispatch, ...]:
    """Return the launches of `program` in order, for params at `addresses`, scratch memory at `scratch` (as `scratch_layout` lays it out)
    and the status word at `status`. Launches without blocks are left out."""
    layout = scratch_layout(program, sizes)
    known = {**addresses, **{name: scratch + offset for name, offset in layout.offsets.items()}}
    found = (_dispatch(program.kernel(launch.kernel), launch, sizes, known, status) for launch in program.launches)
    return tuple(dispatch for dispatch in found if all(dispatch.grid))


def _dispatch(kernel: Kernel, launch: Launch, sizes: Mapping[str, int], addresses: Mapping[str, int], status: int) -> Dispatch:
    missing = [name for name in kernel.buffers if name not in addresses] + [name for name in kernel.sizes if name not in sizes]
    if missing:
        raise InternalError("dispatch", f"`{kernel.name}` takes `{missing[0]}`, which is neither given nor scratch")
    if kernel.checks and not status:
        raise InternalError("dispatch", f"`{kernel.name}` checks its data, and there is no status word")
    x, y, z = (max(0, evaluate(extent, sizes)) for extent in launch.grid)
    arguments = [addresses[name] for name in kernel.buffers] + [sizes[name] for name in kernel.sizes] + [status] * kernel.checks
    return Dispatch(kernel.name, (x, y, z), kernel.block, kernel.dynamic_bytes, tuple(arguments))
