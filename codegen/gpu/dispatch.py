"""Launches with every number filled in, as a device takes them.

    launch      scale over (ceildiv(N, 256), 1, 1) blocks       of a program
    dispatch    scale, (40, 1, 1), (256, 1, 1), [x, y, N]       for N = 10000 and buffers at these addresses

Arguments are eight bytes each, addresses and sizes alike, in the order of `Kernel`: buffers, sizes, the status word. Between buffers and
sizes stand tensor maps, which a device makes of what they say with every number filled in (`BoundMap`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.errors import InternalError
from codegen.gpu.program import Kernel, Launch, Program, TensorMap
from codegen.loops.evaluate import evaluate

SCRATCH_ALIGN = 256
"""Where scratch buffers begin, in bytes; so do allocations of devices."""


@dataclass(frozen=True, slots=True)
class BoundMap:
    """A tensor map at an address: where its tensor begins, and what `TensorMap` says, in numbers."""

    address: int
    offset_bytes: int
    element_bytes: int
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @property
    def problem(self) -> str | None:
        """Return why no device takes it, or None."""
        inner = self.box[-1] * self.element_bytes
        if not 1 <= len(self.box) <= 5 or not len(self.extents) == len(self.box) == len(self.strides_bytes) + 1:
            return "it has no axes, or more than five"
        if any(not 1 <= n <= 2**32 for n in self.extents):
            return f"extents of {self.extents}"
        if any(not 1 <= n <= 256 for n in self.box) or inner % 16:
            return f"boxes of {self.box} elements of {self.element_bytes} bytes; axes are up to 256, rows multiples of 16 bytes"
        if any(n % 16 or not 0 <= n < 2**40 for n in self.strides_bytes) or (self.address + self.offset_bytes) % 16:
            return "addresses that are no multiple of 16 bytes"
        if self.swizzle not in (0, 32, 64, 128) or (self.swizzle and inner > self.swizzle):
            return f"rows of {inner} bytes with a swizzle of {self.swizzle}"
        return None


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One launch of `kernel`: blocks and threads per axis (x, y, z), shared memory to ask for, arguments."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_bytes: int
    arguments: tuple[int | BoundMap, ...]


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
    sizes = launch.told(sizes)
    used = (*kernel.buffers, *(m.buffer for m in kernel.maps))
    missing = [name for name in used if name not in addresses] + [name for name in kernel.sizes if name not in sizes]
    if missing:
        raise InternalError("dispatch", f"`{kernel.name}` takes `{missing[0]}`, which is neither given nor scratch")
    if kernel.checks and not status:
        raise InternalError("dispatch", f"`{kernel.name}` checks its data, and there is no status word")
    x, y, z = (max(0, evaluate(extent, sizes)) for extent in launch.grid)
    arguments: list[int | BoundMap] = [addresses[name] for name in kernel.buffers]
    arguments += [bound_map(m, sizes, addresses[m.buffer]) for m in kernel.maps]
    arguments += [sizes[name] for name in kernel.sizes] + [status] * kernel.checks
    return Dispatch(kernel.name, (x, y, z), kernel.block, kernel.dynamic_bytes, tuple(arguments))


def bound_map(described: TensorMap, sizes: Mapping[str, int], address: int = 0) -> BoundMap:
    """Return a tensor map of a buffer at `address`, with these sizes."""
    element = described.dtype.size_bytes
    return BoundMap(
        address,
        evaluate(described.offset, sizes) * element,
        element,
        tuple(evaluate(n, sizes) for n in described.extents),
        tuple(evaluate(n, sizes) * element for n in described.strides),
        described.box,
        described.swizzle,
    )
