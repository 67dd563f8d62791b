"""NVIDIA's graphics processors: text compiled by NVRTC for an architecture, and run by the driver where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from codegen.cuda.arch import TARGET, Arch
from codegen.cuda.errors import ArrayError, DeviceError, Unavailable
from codegen.gpu.program import Program as Launched
from codegen.store import Cache
from tensorlang.backends.cuda.boards import board_of, products_of_bf16
from tensorlang.backends.cuda.machine import arch_of, machine_code, machine_of, missing, opened
from tensorlang.backends.gpu.model import DeviceModel
from tensorlang.backends.gpu.vendor import Board
from tensorlang.diagnostics import CompileError, Diagnostic, RunError
from tensorlang.policy.machine import GpuMachine as Machine


@dataclass(frozen=True, slots=True)
class Nvidia:
    """`tensorlang.backends.gpu.vendor.Vendor`, by NVIDIA's packages, which are imported where they are first needed."""

    name: str = TARGET
    code_stages: tuple[str, ...] = ("sass",)

    @property
    def checks(self) -> Mapping[str, Callable[[], str]]:
        return {"cuda compiler": partial(_optional, _compiler), "cuda driver": partial(_optional, _driver)}

    def arch(self, target: str) -> Arch:
        found = arch_of(target)
        assert found is not None
        return found

    def machine(self, arch: Arch) -> Machine:
        return machine_of(arch)

    def board(self, arch: Arch) -> Board | None:
        return board_of(arch)

    def bf16_rate(self, arch: Arch) -> float | None:
        return products_of_bf16(arch)

    def machine_code(
        self, programs: Sequence[Launched], arch: Arch, store: Cache | None, threads: int, done: Callable[[int], None]
    ) -> list[Any]:
        return machine_code(programs, arch, store, threads, done)

    def text(self, code: Sequence[Any], stage: str) -> str:
        try:
            from codegen.cuda.sass import assembly

            texts = [text for each in code for text in assembly(each.cubin).items()]
        except Unavailable as problem:
            raise missing(problem) from None
        return "\n".join(f"{name}:\n{text}" for name, text in texts)

    def opened(self) -> Any:
        try:
            return opened()
        except CompileError as problem:
            (found,) = problem.diagnostics
            notes = (found.help,) if found.help else ()
            help_ = "compile for this machine's processor: `target='cpu'`"
            raise RunError(Diagnostic("R0321", found.title, notes=notes, help=help_)) from None

    def executable(self, model: DeviceModel, code: Sequence[Any], device: Any, constants: Mapping[str, Any] | None, weights: Any) -> Any:
        try:
            from tensorlang.backends.cuda.executable import DeviceExecutable

            return DeviceExecutable(model, code, device, constants, weights)
        except Unavailable as problem:
            raise RunError(Diagnostic("R0321", problem.what, help=problem.remedy)) from None

    def weights(self) -> Any:
        from tensorlang.backends.cuda.executable import SharedWeights

        return SharedWeights()

    def is_on_device(self, value: object) -> bool:
        if isinstance(value, np.ndarray) or not (hasattr(value, "__dlpack_device__") or hasattr(value, "__cuda_array_interface__")):
            return False
        try:
            from codegen.cuda.arrays import is_on_device

            return bool(is_on_device(value))
        except Unavailable:  # without NVIDIA's packages nothing here can be on a device
            return False

    def view(self, value: object, device: Any) -> Any:
        from codegen.cuda.arrays import view_of

        return view_of(value, device)

    def stream_of(self, value: object) -> Any:
        from codegen.cuda.arrays import current_stream

        return current_stream(value)

    @contextmanager
    def answered(self) -> Iterator[None]:
        try:
            yield
        except DeviceError as problem:
            raise RunError(Diagnostic("R0322", "the device does not do what it is asked for", notes=(str(problem),))) from None
        except ArrayError as problem:
            raise RunError(Diagnostic("R0305", str(problem))) from None


NVIDIA = Nvidia()


def _compiler() -> str:
    """Return the version of what compiles text, and the architectures that it compiles for."""
    from codegen.cuda.compile import compilable, nvrtc_version

    version, numbers = nvrtc_version(), compilable()
    return f"NVRTC {_dotted(version)}, for {', '.join(f'sm_{n}' for n in numbers)}"


def _driver() -> str:
    """Return the version of the driver, and its devices."""
    from codegen.cuda.device import devices, driver_version

    version, found = driver_version(), devices()
    names = ", ".join(f"{d.name} (`{d.arch.target}`)" if d.arch is not None else f"{d.name} (not supported)" for d in found)
    return f"CUDA {_dotted(version)}: {names}"


def _optional(look: Callable[[], str]) -> str:
    """Return what `look` finds, or why there is nothing: nobody needs it who does not ask for it."""
    try:
        return look()
    except Unavailable as problem:
        return f"none (optional): {problem}"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
