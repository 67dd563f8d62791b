"""What the back ends for graphics processors differ in: names, limits and boards of one maker, its machine code, its devices.

Everything else, from schedules to the text of kernels, their launches and the plan of a model's memory, they share (`gpu/tools.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from codegen.gpu.limits import Excess, Limits, exceeded, exceeded_at
from codegen.gpu.program import Program as Launched
from codegen.store import Cache
from tensorlang.backends.gpu.model import DeviceModel
from tensorlang.diagnostics import CompileError, Diagnostic
from tensorlang.policy.machine import GpuMachine as Machine
from tensorlang.runtime.report import us
from tensorlang.runtime.work import Work


@dataclass(frozen=True, slots=True)
class Board:
    """What its maker documents of one board. `flops`: f32 operations per second, a fused multiply-add as two; `bf16_flops`: those of dense
    matrices of bf16, summed in f32; `bandwidth`: bytes per second."""

    name: str
    flops: float
    bf16_flops: float
    bandwidth: float

    def seconds(self, work: Work) -> float:
        """Return the shortest time for `work`: nothing is kept in caches, units for matrices take what they can, the rest is f32."""
        return max(self._computing(work), work.moved_bytes / self.bandwidth)

    def bound_by(self, work: Work) -> str:
        return "compute" if self._computing(work) >= work.moved_bytes / self.bandwidth else "memory"

    def _computing(self, work: Work) -> float:
        """Return the shortest time for the arithmetic: both kinds go on at the same time."""
        return max(work.other_flops / self.flops, work.matrix_flops / self.bf16_flops)

    def bound(self, work: Work) -> str:
        """Return what bounds `work`, and the shortest time for it, in words."""
        return f"bound by {self.bound_by(work)}: at best {us(self.seconds(work))} on {self.name}"


class Arch(Protocol):
    """An architecture: its `target` is the name under which users ask for it."""

    @property
    def target(self) -> str: ...

    @property
    def limits(self) -> Limits: ...


class Vendor(Protocol):
    """One maker's graphics processors."""

    @property
    def name(self) -> str:
        """The target: what schedules are `for`, and the stage of its text."""
        ...

    @property
    def code_stages(self) -> tuple[str, ...]:
        """The stages after the text."""
        ...

    @property
    def checks(self) -> Mapping[str, Callable[[], str]]:
        """For each thing that is taken from elsewhere, what says which version of it is installed, or that none is."""
        ...

    def arch(self, target: str) -> Any:
        """Return the `Arch` of a target's name. Raises CompileError C0101."""
        ...

    def machine(self, arch: Any) -> Machine:
        """Return what schedules have to know of devices of an architecture."""
        ...

    def board(self, arch: Any) -> Board | None:
        """Return the board of this architecture that bounds are given for."""
        ...

    def bf16_rate(self, arch: Any) -> float | None:
        """Return how many products of bf16 are added up in the time of one of f32, 0 where kernels have no instruction for them, None
        where nobody says how many."""
        ...

    def machine_code(
        self, programs: Sequence[Launched], arch: Any, store: Cache | None, threads: int, done: Callable[[int], None]
    ) -> list[Any]:
        """Return what becomes of each program, in order, with the `usage` of each kernel by name (`codegen.gpu.limits.Usage`) where that
        is known; `done` is told how many there are so far. Raises CompileError C0111 when a kernel wants what devices do not have, C0112
        when what compiles it is not installed."""
        ...

    def text(self, code: Sequence[Any], stage: str) -> str:
        """Return machine code in the form of one of `code_stages`. Raises CompileError C0112."""
        ...

    def opened(self) -> Any:
        """Return a device of this machine. Raises RunError R0321 when there is none, R0323 where running is not supported yet."""
        ...

    def executable(self, model: DeviceModel, code: Sequence[Any], device: Any, constants: Mapping[str, Any] | None, weights: Any) -> Any:
        """Return a model loaded: called with inputs in order and a stream it returns the outputs; it has `timer` and `times`. Raises
        RunError R0321."""
        ...

    def weights(self) -> Any:
        """Return a place for constants that several executables share."""
        ...

    def is_on_device(self, value: object) -> bool:
        """Tell whether `value` is an array of the kind that lies on a device."""
        ...

    def view(self, value: object, device: Any) -> Any:
        """Return the `dtype` and `shape` of an array that lies on the device, as attributes."""
        ...

    def stream_of(self, value: object) -> Any:
        """Return the stream on which the library of an array that lies on a device works now."""
        ...

    def answered(self) -> AbstractContextManager[None]:
        """Turn what the driver refuses, and arrays on a device that cannot be taken, into RunErrors."""
        ...


def check_limits(programs: Sequence[Launched], arch: Arch) -> None:
    """Raise CompileError C0111 where kernels ask for more than devices of an architecture have. What grids need that follow from open
    sizes is known with those of a call."""
    found = [excess for p in programs for excess in exceeded(p, arch.limits)]
    refuse([*found, *(excess for p in programs if not p.sizes for excess in exceeded_at(p, arch.limits, {}))], arch)


def refuse(found: Sequence[Excess], arch: Arch) -> None:
    """Raise CompileError C0111 for what is beyond the limits of an architecture, if anything is."""
    if found:
        raise CompileError(*(Diagnostic("C0111", f"{excess} on `{arch.target}`", help="give blocks less to do") for excess in found))
