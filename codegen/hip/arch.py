"""The architectures by name, with what they allow a kernel.

    hip              the oldest of them
    hip:gfx942       the one that is named

Numbers are those of AMD's documents: "Accelerator and GPU hardware specifications" of the ROCm documentation (wavefronts, compute units,
LDS, vector registers) and the instruction set references of CDNA 2, CDNA 3 and RDNA 3. A warp is AMD's wavefront, shared memory its LDS, a
multiprocessor its compute unit, of RDNA the work group processor, which is two of them. Compute units are those of Instinct MI210, Instinct
MI300X and Radeon RX 7900 XTX.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.gpu.limits import Limits

TARGET = "hip"
DEFAULT = "gfx90a"


class ArchError(ValueError):
    """There is no architecture of that name."""


@dataclass(frozen=True, slots=True)
class Arch:
    """What text is written for. `limits.warp` says how many threads a warp has."""

    name: str
    limits: Limits
    multiprocessors: int
    """Of a large device of this kind."""

    @property
    def target(self) -> str:
        """Return the name under which users ask for it."""
        return f"{TARGET}:{self.name}"


def _arch(name: str, multiprocessors: int, warp: int, shared_kib: int, threads: int, blocks: int, registers: int) -> Arch:
    limits = Limits(
        shared_per_block=64 * 1024,
        shared_per_multiprocessor=shared_kib * 1024,
        shared_reserved=0,
        threads_per_multiprocessor=threads,
        blocks_per_multiprocessor=blocks,
        warp=warp,
        block=(1024, 1024, 1024),
        registers_per_thread=256,
        registers_per_block=registers,
        registers_per_multiprocessor=registers,
    )
    return Arch(name, limits, multiprocessors)


ARCHITECTURES: dict[str, Arch] = {
    arch.name: arch
    for arch in (
        #               multiprocessors; threads of a warp; KiB shared, threads, blocks, registers of 32 bits of each
        _arch("gfx90a", 104, 64, 64, 2048, 16, 128 * 1024),
        _arch("gfx942", 304, 64, 64, 2048, 16, 128 * 1024),
        _arch("gfx1100", 48, 32, 128, 2048, 32, 192 * 1024),
    )
}


def names() -> tuple[str, ...]:
    """Return the targets that `named` knows."""
    return (TARGET, *(arch.target for arch in ARCHITECTURES.values()))


def named(target: str) -> Arch:
    """Return the architecture of a target's name. Raises ArchError when there is none."""
    name = DEFAULT if target == TARGET else target.removeprefix(f"{TARGET}:")
    if target.partition(":")[0] != TARGET or name not in ARCHITECTURES:
        raise ArchError(f"unknown target `{target}`; known are {', '.join(names())}")
    return ARCHITECTURES[name]
