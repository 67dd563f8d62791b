"""What keeps kernels on a graphics processor from being faster, as far as their code tells: spills, and few resident threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from codegen.gpu.limits import Limits, Usage, resident_by
from codegen.gpu.program import Kernel, Program
from tensorlang.backends.gpu.vendor import Board
from tensorlang.runtime.limits import Limit
from tensorlang.runtime.work import Work

_HELP = {
    "registers": "smaller tiles in registers, or more threads for a tile",
    "shared memory": "smaller tiles in shared memory, or fewer stages",
    "blocks": "more threads in a block",
    "threads": "",
}


def limits_of(program: Program, work: Work, usage: Mapping[str, Usage], limits: Limits, board: Board | None) -> tuple[Limit, ...]:
    """Return what limits a program, the roofline of `board` first. `usage`: what the compiler gave to each kernel, by its name."""
    found = (limit for kernel in program.kernels for limit in _of_kernel(kernel, usage.get(kernel.name), limits))
    return (_roofline(work, board), *found)


def _roofline(work: Work, board: Board | None) -> Limit:
    amount = f"{work.flops:.3g} operations, {work.moved_bytes:.3g} bytes"
    if board is None:
        return Limit("roofline", f"{amount}; no board is known to bound them by")
    return Limit("roofline", f"{board.bound(work)} ({amount})")


def _of_kernel(kernel: Kernel, used: Usage | None, limits: Limits) -> Iterator[Limit]:
    if used is None:
        return
    if used.spills:
        reason = (
            f"`{kernel.name}`: {used.registers} registers are not enough: each thread moves {used.spilled_bytes} bytes to memory and back"
        )
        yield Limit("spills", reason, help=_HELP["registers"])
    room = resident_by(kernel, used, limits)
    scarce = min(room, key=room.__getitem__)
    threads = room[scarce] * kernel.threads
    if 2 * threads < limits.threads_per_multiprocessor:
        reason = f"`{kernel.name}`: {threads} of {limits.threads_per_multiprocessor} threads of a multiprocessor are resident"
        yield Limit("occupancy", f"{reason}, for want of {scarce}", help=_HELP[scarce])
