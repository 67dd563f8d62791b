"""The vocabulary of kernel text: what is the same for every target, and all of it for the emulator (`emulator.h`, for g++).

Each maker's folder has its own (`codegen/cuda/prelude`, `codegen/hip/prelude.py`). All are whole texts to put before kernels; files of this
folder that they include are written in where they are included, so that nobody needs a search path. `codegen/cuda/prelude/cuda.h` says
what each name means.
"""

from __future__ import annotations

import functools
import re
from importlib import resources

from codegen.gpu.prelude import wgmma

_INCLUDE = re.compile(r'^#include "([a-z_/]+\.h)"$', re.MULTILINE)

_ORDERING = re.compile(r"\b(tl_(mbarrier|named_barrier|cluster_barrier|async_fence|tma|wgmma)|TL_(TMA|WGMMA))_?")


def emulator(*, terms: bool = False, warp: int = 32) -> str:
    """Return the text to put before kernels whose warps have so many threads, for g++. It includes headers of the standard library.
    `terms`: floats are terms. After it come the `instructions` that the kernels name."""
    return f"#define TL_WARP {warp}\n" + ("#define TL_TERMS\n" if terms else "") + _emulator()


def instructions(kernels: str) -> str:
    """Return what the emulator has to be told of the instructions of warpgroups that `kernels` name."""
    return "".join(map(wgmma.for_emulator, wgmma.named(kernels)))


def orders_in_parts(kernel: str) -> bool:
    """Tell whether something else than barriers of the whole block and of warps orders the threads of this kernel."""
    return _ORDERING.search(kernel) is not None


@functools.cache
def _emulator() -> str:
    return _expanded("emulator.h")


def _expanded(name: str) -> str:
    return expanded(resources.files(__name__).joinpath(name).read_text("utf-8"))


def expanded(text: str) -> str:
    """Return `text` with the files of this folder that it includes in their places."""
    return _INCLUDE.sub(lambda match: _expanded(match[1]), text)
