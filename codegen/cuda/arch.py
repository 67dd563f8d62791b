"""The architectures by name, with what they allow a kernel.

    cuda            the oldest that copies asynchronously; its machine code runs on all of its generation
    cuda:sm_90a     the one that is named; `a` adds instructions that no other architecture has

Numbers are those of NVIDIA's CUDA programming guide, "Technical specifications per compute capability", which NVIDIA's CCCL repeats as
`cuda::arch_traits`; multiprocessors are those of TITAN RTX, A100, A40, Orin, L40S, H100 SXM, B200, B300, Thor, RTX PRO 6000 and GB10. From
compute capability 8.0 on the driver keeps 1 KiB of shared memory per block for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.gpu.limits import USUAL_RATES, Limits, Rates

TARGET = "cuda"
DEFAULT = "sm_80"
RATES = USUAL_RATES
"""Of multiprocessors with matrix units, from NVIDIA's white papers: 312 TFLOPS of 16 bits (A100) are 1024 products a cycle of each of 108
at 1410 MHz, 989 TFLOPS (H100, four warps together) 2048 of each of 132 at 1830 MHz; lines and banks are those of the CUDA programming
guide. What reaches all from the second-level cache is about what arrives of partial lines."""


class ArchError(ValueError):
    """There is no architecture of that name."""


@dataclass(frozen=True, slots=True)
class Arch:
    """What machine code is made for. `capability` is NVIDIA's compute capability, major and minor."""

    name: str
    capability: tuple[int, int]
    limits: Limits
    multiprocessors: int
    """Of a large device of this kind. Others have fewer or more (`codegen.cuda.device.devices` tells those of this machine)."""
    rates: Rates = RATES

    @property
    def target(self) -> str:
        """Return the name under which users ask for it."""
        return f"{TARGET}:{self.name}"

    @property
    def number(self) -> int:
        """Return what the name has after `sm_`, without letters."""
        major, minor = self.capability
        return 10 * major + minor

    @property
    def is_specific(self) -> bool:
        """Tell whether its machine code runs on its own compute capability alone."""
        return self.name.endswith("a")

    @property
    def has_async_copy(self) -> bool:
        """Tell whether threads can have global memory copied to shared memory while they go on (cp.async)."""
        return self.capability >= (8, 0)

    @property
    def has_bf16(self) -> bool:
        """Tell whether conversions from f32 to bf16 are instructions."""
        return self.capability >= (8, 0)

    @property
    def has_bulk_copy(self) -> bool:
        """Tell whether tiles can be copied by one thread for the block (TMA), and for a cluster of blocks."""
        return self.capability >= (9, 0)

    @property
    def has_warpgroups(self) -> bool:
        """Tell whether four warps multiply matrices together, from shared memory (wgmma)."""
        return self.name == "sm_90a"

    @property
    def reallocates_registers(self) -> bool:
        """Tell whether groups of four warps can give registers to others (setmaxnreg)."""
        return self.capability >= (9, 0) and self.is_specific

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Tell whether a device of this compute capability runs its machine code."""
        if self.is_specific:
            return capability == self.capability
        return capability[0] == self.capability[0] and capability[1] >= self.capability[1]


def _arch(name: str, multiprocessors: int, shared_kib: int, threads: int, blocks: int) -> Arch:
    number = int(name.removeprefix("sm_").removesuffix("a"))
    reserved = 1024 if number >= 80 else 0
    shared = shared_kib * 1024
    return Arch(name, (number // 10, number % 10), Limits(shared - reserved, shared, reserved, threads, blocks), multiprocessors)


ARCHITECTURES: dict[str, Arch] = {
    arch.name: arch
    for arch in (
        #             multiprocessors; KiB shared, threads, blocks of each
        _arch("sm_75", 72, 64, 1024, 16),
        _arch("sm_80", 108, 164, 2048, 32),
        _arch("sm_86", 84, 100, 1536, 16),
        _arch("sm_87", 16, 164, 1536, 16),
        _arch("sm_88", 84, 100, 1536, 16),
        _arch("sm_89", 142, 100, 1536, 24),
        _arch("sm_90", 132, 228, 2048, 32),
        _arch("sm_90a", 132, 228, 2048, 32),
        _arch("sm_100", 148, 228, 2048, 32),
        _arch("sm_100a", 148, 228, 2048, 32),
        _arch("sm_103", 160, 228, 2048, 32),
        _arch("sm_103a", 160, 228, 2048, 32),
        _arch("sm_110", 20, 228, 1536, 24),
        _arch("sm_110a", 20, 228, 1536, 24),
        _arch("sm_120", 188, 100, 1536, 24),
        _arch("sm_120a", 188, 100, 1536, 24),
        _arch("sm_121", 48, 100, 1536, 24),
        _arch("sm_121a", 48, 100, 1536, 24),
    )
}


def names() -> tuple[str, ...]:
    """Return the targets that `named` knows."""
    return (TARGET, *(arch.target for arch in ARCHITECTURES.values()))


def is_cuda(target: str) -> bool:
    """Tell whether `target` asks for CUDA, rightly or wrongly spelled after that."""
    return target.partition(":")[0] == TARGET


def named(target: str, default: str = DEFAULT) -> Arch:
    """Return the architecture of a target's name; `default` is what `cuda` alone means. Raises ArchError when there is none."""
    name = default if target == TARGET else target.removeprefix(f"{TARGET}:")
    if not is_cuda(target) or name not in ARCHITECTURES:
        raise ArchError(f"unknown target `{target}`; known are {', '.join(names())}")
    return ARCHITECTURES[name]


def of_capability(capability: tuple[int, int]) -> Arch:
    """Return the architecture with the most instructions whose machine code runs on a device. Raises ArchError when there is none."""
    fitting = [arch for arch in ARCHITECTURES.values() if arch.runs_on(capability)]
    if not fitting:
        raise ArchError(f"no known architecture runs on compute capability {capability[0]}.{capability[1]}")
    return max(fitting, key=lambda arch: (arch.capability, arch.is_specific))
