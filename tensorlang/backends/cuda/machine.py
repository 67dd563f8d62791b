"""Which device code is made for, and machine code for it. What is missing on this machine, and what a device has not enough of, are
errors with codes here; below they are exceptions and values without words for users.

    cuda            the first GPU of this machine, or, where there is none, the oldest generation that copies asynchronously
    cuda:sm_90a     an architecture by name, with a GPU or without
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from codegen.cuda.arch import DEFAULT, TARGET, Arch, ArchError, is_cuda, named
from codegen.cuda.errors import Unavailable
from codegen.gpu import matrix
from codegen.gpu.limits import exceeded_by
from codegen.gpu.program import Program as Launched
from codegen.store import Cache
from tensorlang.backends.gpu.vendor import check_limits, refuse
from tensorlang.diagnostics import CompileError, error
from tensorlang.policy.machine import GpuMachine as Machine


def arch_of(target: str) -> Arch | None:
    """Return the architecture that a target's name asks for, or None where it is not about CUDA. Raises CompileError C0101."""
    if not is_cuda(target):
        return None
    try:
        return named(target, _here() if target == TARGET else DEFAULT)
    except ArchError as problem:
        raise error("C0101", str(problem), help="`cuda` is the GPU of this machine") from None


def _here() -> str:
    try:
        from codegen.cuda.device import devices

        arch = devices()[0].arch
    except Unavailable:
        return DEFAULT
    return DEFAULT if arch is None else str(arch.name)


def machine_code(
    programs: Sequence[Launched], arch: Arch, store: Cache | None, threads: int, done: Callable[[int], None] = lambda count: None
) -> list[Any]:
    """Return the machine code (`codegen.cuda.compile.Compiled`) of each program, in order; sizes are known. `done` is told how many of
    them there are so far.

    Raises CompileError: C0111 when a kernel wants more than devices of this architecture have, before and after compiling, C0112 when
    what compiles for CUDA is not installed."""
    _check_instructions(programs, arch)
    check_limits(programs, arch)
    try:
        from codegen.cuda.compile import all_compiled, source

        made = list(all_compiled([source(p) for p in programs], arch, store, threads, done))
    except Unavailable as problem:
        raise missing(problem) from None
    used = ((kernel, code.usage[kernel.name]) for p, code in zip(programs, made, strict=True) for kernel in p.kernels)
    refuse([e for kernel, usage in used for e in exceeded_by(kernel, usage, arch.limits)], arch)
    return made


def machine_of(arch: Arch) -> Machine:
    """Return what a schedule has to know of the first device of this machine, where that is of this architecture; else of a large one."""
    try:
        from codegen.cuda.device import devices

        here = devices()[0]
    except Unavailable:
        return like(arch)
    return like(arch, here.multiprocessors if here.capability == arch.capability else None)


def like(arch: Arch, multiprocessors: int | None = None) -> Machine:
    """Return what a schedule has to know of devices of an architecture that have so many multiprocessors; as many as large ones have,
    where that is not known."""
    return Machine(
        target=TARGET,
        blocks=multiprocessors or arch.multiprocessors,
        matrices=arch.has_async_copy,
        warpgroups=arch.has_warpgroups,
        boxes=arch.has_bulk_copy,
        limits=arch.limits,
        rates=arch.rates,
    )


def opened(number: int = 0, stream: object = None) -> Any:
    """Return a device of this machine (`codegen.cuda.device.Device`). Raises CompileError C0112 when there is none."""
    try:
        from codegen.cuda.device import Device

        return Device(number, stream)
    except Unavailable as problem:
        raise missing(problem) from None


def missing(problem: Unavailable) -> CompileError:
    """Return the error for something that is not here."""
    return error("C0112", problem.what, help=problem.remedy)


def _check_instructions(programs: Sequence[Launched], arch: Arch) -> None:
    """Raise CompileError C0111 where a kernel multiplies matrices by an instruction that devices of the architecture do not have, copies
    boxes of tensors where they do not, or deals out registers anew."""
    for name, kernel in [(name, k) for p in programs for k in p.kernels for name in k.matrices]:
        known = matrix.named(name)
        there = arch.name in known.architectures if known.warps > 1 else arch.capability >= known.since
        if not there:
            title = f"kernel `{kernel.name}` multiplies matrices by `{name}`, which `{arch.target}` does not have"
            raise error("C0111", title, help=f"it is an instruction of {', '.join(known.architectures)}")
    for kernel in (k for p in programs for k in p.kernels if k.cluster != (1, 1, 1) and not arch.has_bulk_copy):
        title = f"kernel `{kernel.name}` runs in clusters of blocks, which `{arch.target}` does not have"
        raise error("C0111", title, help="leave out `cluster`, or compile for sm_90 or later")
    for kernel in (k for p in programs for k in p.kernels if k.maps and not arch.has_bulk_copy):
        title = f"kernel `{kernel.name}` copies boxes of tensors, which `{arch.target}` does not"
        raise error("C0111", title, help="ask for `stages` without `with tma`, or for sm_90 or later")
    for kernel in (k for p in programs for k in p.kernels if k.allocated_registers and not arch.reallocates_registers):
        title = f"kernel `{kernel.name}` deals out registers anew, which `{arch.target}` does not"
        raise error("C0111", title, help="write `specialize LOOP` without `with registers`, or ask for sm_90a")
