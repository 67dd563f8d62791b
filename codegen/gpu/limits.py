"""What a graphics processor allows a kernel to ask for, and what a program asks for beyond that.

Answers are values, found before anything is compiled (`exceeded`), when sizes are known (`exceeded_at`) or from what the compiler used
(`exceeded_by`); whoever has a schedule to point at turns them into messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codegen.gpu.program import Kernel, Program

AXES = ("x", "y", "z")
MAP_BYTES = 128
"""What a tensor map takes of a kernel's arguments."""

_SHARED_UNIT = 128
_REGISTER_UNIT = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes, threads, 32-bit registers and blocks; `block` and `grid` per axis (x, y, z).

    `shared_per_block` is what a launch may ask for, `shared_reserved` what each block costs a multiprocessor besides."""

    shared_per_block: int
    shared_per_multiprocessor: int
    shared_reserved: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    warp: int = 32
    threads_per_block: int = 1024
    block: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    registers_per_thread: int = 255
    registers_per_block: int = 65536
    registers_per_multiprocessor: int = 65536
    argument_bytes: int = 4096


@dataclass(frozen=True, slots=True)
class Rates:
    """What one multiprocessor does in a cycle. `warp_products` and `warpgroup_products`: products of 16-bit elements that its warps add by
    instructions for matrices, each by itself and four together. `shared_bytes`: from 32 banks of four bytes. `l2_bytes`: from the
    second-level cache, in whole lines of `line_bytes`; all multiprocessors together get `all_l2_bytes`."""

    schedulers: int = 4
    warp_products: int = 1024
    warpgroup_products: int = 2048
    shared_bytes: int = 128
    l2_bytes: int = 64
    line_bytes: int = 128
    all_l2_bytes: int = 2048


USUAL_LIMITS = Limits(163 * 1024, 164 * 1024, 1024, 2048, 32)
"""Those of the oldest devices that copy asynchronously: what is taken where nothing is said."""
USUAL_RATES = Rates()
"""Those of multiprocessors with matrix units."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the compiler gave to one kernel: registers of each thread, and bytes. Spills and stack lie in slow memory."""

    registers: int
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0

    @property
    def spilled_bytes(self) -> int:
        return self.spill_store_bytes + self.spill_load_bytes

    @property
    def spills(self) -> bool:
        return self.spilled_bytes > 0


@dataclass(frozen=True, slots=True)
class Excess:
    """`kernel` needs `needed` of `what`, and may have `limit`."""

    kernel: str
    what: str
    needed: int
    limit: int

    def __str__(self) -> str:
        return f"`{self.kernel}` needs {self.needed} {self.what}; the limit is {self.limit}"


def exceeded(program: Program, limits: Limits) -> tuple[Excess, ...]:
    """Return what kernels ask for beyond `limits`, whatever the sizes are."""
    return tuple(found for kernel in program.kernels for found in _of_kernel(kernel, limits))


def exceeded_at(program: Program, limits: Limits, sizes: Mapping[str, int]) -> tuple[Excess, ...]:
    """Return where grids are larger than `limits` when the program runs with these sizes."""
    from codegen.loops.evaluate import evaluate

    return tuple(
        Excess(launch.kernel, f"blocks along {axis}", needed, limit)
        for launch in program.launches
        for axis, extent, limit in zip(AXES, launch.grid, limits.grid, strict=True)
        if (needed := evaluate(extent, launch.told(sizes))) > limit
    )


def exceeded_by(kernel: Kernel, usage: Usage, limits: Limits) -> tuple[Excess, ...]:
    """Return why no block of the compiled kernel can start."""
    needed = _warps(kernel.threads, limits) * _registers_of_warp(usage.registers, limits)
    return tuple(
        _beyond(
            kernel.name,
            ("registers per thread", usage.registers, limits.registers_per_thread),
            ("registers per block", needed, limits.registers_per_block),
            # Threads that ask for more registers wait until the block has them.
            ("registers of a block, set by its roles", kernel.allocated_registers, needed),
            ("bytes of shared memory", usage.shared_bytes + kernel.dynamic_bytes, limits.shared_per_block),
        )
    )


def resident_blocks(kernel: Kernel, usage: Usage, limits: Limits) -> int:
    """Return how many blocks of the compiled kernel one multiprocessor runs at a time."""
    return min(resident_by(kernel, usage, limits).values())


def resident_by(kernel: Kernel, usage: Usage, limits: Limits) -> dict[str, int]:
    """Return for how many blocks of the compiled kernel each of a multiprocessor's resources is enough."""
    warps = _warps(kernel.threads, limits)
    shared = _rounded(usage.shared_bytes + kernel.dynamic_bytes + limits.shared_reserved, _SHARED_UNIT)
    registers = _registers_of_warp(usage.registers, limits)
    most = limits.blocks_per_multiprocessor
    return {
        "threads": limits.threads_per_multiprocessor // (warps * limits.warp),
        "registers": limits.registers_per_multiprocessor // registers // warps if registers else most,
        "shared memory": limits.shared_per_multiprocessor // shared if shared else most,
        "blocks": most,
    }


def _of_kernel(kernel: Kernel, limits: Limits) -> Iterator[Excess]:
    blocks = max(1, kernel.min_blocks)
    arguments = 8 * (len(kernel.buffers) + len(kernel.sizes) + kernel.checks) + MAP_BYTES * len(kernel.maps)
    yield from _beyond(
        kernel.name,
        *((f"threads along {axis}", n, most) for axis, n, most in zip(AXES, kernel.block, limits.block, strict=True)),
        ("threads per block", kernel.threads, limits.threads_per_block),
        ("bytes of shared memory", kernel.shared_bytes, limits.shared_per_block),
        ("bytes of arguments", arguments, limits.argument_bytes),
        ("blocks on a multiprocessor", blocks, limits.blocks_per_multiprocessor),
    )
    if kernel.min_blocks > 1:
        shared = blocks * (kernel.shared_bytes + limits.shared_reserved)
        yield from _beyond(
            kernel.name,
            ("threads on a multiprocessor", blocks * kernel.threads, limits.threads_per_multiprocessor),
            ("bytes of shared memory on a multiprocessor", shared, limits.shared_per_multiprocessor),
        )


def _beyond(kernel: str, *needs: tuple[str, int, int]) -> Iterator[Excess]:
    return (Excess(kernel, what, needed, limit) for what, needed, limit in needs if needed > limit)


def _warps(threads: int, limits: Limits) -> int:
    return -(-threads // limits.warp)


def _registers_of_warp(registers: int, limits: Limits) -> int:
    return _rounded(registers * limits.warp, _REGISTER_UNIT)


def _rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit
