"""AMD's graphics processors: schedules, launches and text of kernels. What compiles the text and runs it is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from codegen.gpu.limits import Usage
from codegen.gpu.program import Kernel
from codegen.gpu.program import Program as Launched
from codegen.hip.arch import TARGET, Arch, ArchError, named
from codegen.hip.prelude import source
from codegen.store import Cache
from tensorlang.backends.gpu.model import DeviceModel
from tensorlang.backends.gpu.vendor import Board, check_limits
from tensorlang.backends.hip.boards import board_of
from tensorlang.diagnostics import Diagnostic, RunError, error
from tensorlang.policy.machine import GpuMachine as Machine


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a program with all that clang needs; nothing is known of what its machine code uses."""

    text: str
    usage: Mapping[str, Usage]


@dataclass(frozen=True, slots=True)
class Amd:
    """`tensorlang.backends.gpu.vendor.Vendor` without devices."""

    name: str = TARGET
    code_stages: tuple[str, ...] = ("source",)

    @property
    def checks(self) -> Mapping[str, Callable[[], str]]:
        return {}

    def arch(self, target: str) -> Arch:
        try:
            return named(target)
        except ArchError as problem:
            raise error("C0101", str(problem), help=f"`{TARGET}` alone is the oldest of them") from None

    def machine(self, arch: Arch) -> Machine:
        return Machine(target=TARGET, blocks=arch.multiprocessors, matrices=False, limits=arch.limits)

    def board(self, arch: Arch) -> Board | None:
        return board_of(arch)

    def bf16_rate(self, arch: Arch) -> float | None:
        return 0

    def machine_code(
        self, programs: Sequence[Launched], arch: Arch, store: Cache | None, threads: int, done: Callable[[int], None]
    ) -> list[Any]:
        """Return the `Text` of each program."""
        for kernel in (k for p in programs for k in p.kernels):
            for what in _not_there(kernel):
                raise error("C0111", f"not supported yet for `{arch.target}`: {what}, which kernel `{kernel.name}` asks for")
        check_limits(programs, arch)
        made = [Text(source(p), {}) for p in programs]
        done(len(made))
        return made

    def text(self, code: Sequence[Any], stage: str) -> str:
        return "\n".join(each.text for each in code)

    def opened(self) -> Any:
        _cannot_run()

    def executable(self, model: DeviceModel, code: Sequence[Any], device: Any, constants: Mapping[str, Any] | None, weights: Any) -> Any:
        _cannot_run()

    def weights(self) -> Any:
        return None

    def is_on_device(self, value: object) -> bool:
        return False

    def view(self, value: object, device: Any) -> Any:
        _cannot_run()

    def stream_of(self, value: object) -> Any:
        _cannot_run()

    @contextmanager
    def answered(self) -> Iterator[None]:
        yield


AMD = Amd()


def _not_there(kernel: Kernel) -> Iterator[str]:
    """Yield what a kernel asks for that the text has no words for."""
    if kernel.matrices:
        yield f"products of matrices (`{kernel.matrices[0]}`)"
    if kernel.maps:
        yield "copies of boxes of tensors"
    if kernel.cluster != (1, 1, 1):
        yield "clusters of blocks"
    if kernel.allocated_registers:
        yield "registers that are dealt out anew"


def _cannot_run() -> NoReturn:
    title = f"not supported yet: running what is compiled for `{TARGET}`"
    there = "there are its schedules, launches and text: `explain`, and the stages `hip` and `source` of `tensorlang show`"
    raise RunError(Diagnostic("R0323", title, notes=(there,), help="compile for this machine's processor: `target='cpu'`"))
