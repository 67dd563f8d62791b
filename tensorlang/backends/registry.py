"""Which back end answers to the name of a target: the one place that lists them.

cpu, x86-64-v3, …        `backends/cpu`: this machine's processor, or a kind of processor, which it need not be
cuda, cuda:sm_90a, …     `backends/cuda`
hip, hip:gfx90a, …       `backends/hip`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from codegen.forks import import_whole
from tensorlang.diagnostics import InternalError, error
from tensorlang.runtime.protocol import Tools
from tensorlang.targets import TARGETS, target_of

if TYPE_CHECKING:
    from tensorlang.backends.gpu.vendor import Vendor


def _vendor(name: str) -> Vendor:
    """Return the maker of the graphics processors that a target is about."""
    match name:
        case "cuda":
            from tensorlang.backends.cuda.vendor import NVIDIA

            return NVIDIA
        case "hip":
            from tensorlang.backends.hip.vendor import AMD

            return AMD
        case _:
            raise InternalError("targets", f"no back end answers to `{name}`")


def is_device(target: str) -> bool:
    """Tell whether `target` asks for a graphics processor, rightly or wrongly spelled after its first word."""
    return target_of(target).on_device


def tools_for(
    target: str,
    threads: int | None = None,
    *,
    winograd: bool = True,
    online: bool = True,
    precision: str = "f32",
    force_precision: bool = False,
    schedules: object = None,
) -> Tools:
    """Return what compiles for a target; the options are those of `tensorlang.compile`. Raises CompileError C0101 to C0103, C0107, C0108
    and C0145."""
    import_whole("tensorlang.backends.cpu.toolchain")
    from tensorlang.backends.cpu.toolchain import check_options, toolchain

    if not is_device(target):
        return toolchain(target, threads, winograd=winograd, precision=precision, force_precision=force_precision, schedules=schedules)
    check_options(threads, winograd, force_precision)
    if schedules is not None:
        title = f"not supported yet: a file of schedules for kernels on `{target}`"
        raise error("C0145", title, help="leave `schedules` out; schedules of roles are for devices too")
    from tensorlang.backends.gpu.tools import device_tools

    return device_tools(_vendor(target_of(target).name), target, precision=precision, force_precision=force_precision, online=online)


def checks() -> Mapping[str, Callable[[], str]]:
    """Return, for each thing that back ends for devices take, what says which version of it is installed."""
    return {what: look for t in TARGETS.values() if t.on_device for what, look in _vendor(t.name).checks.items()}
