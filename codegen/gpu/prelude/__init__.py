"""The vocabulary of kernel text, once per target: `cuda.h` for NVRTC and nvcc, `emulator.h` for g++.

Both are whole texts to put before kernels; files of this folder that they include are written in where they are included, so that
nobody needs a search path. `cuda.h` says what each name means.

What few kernels use stands in files of their own (`cuda/…`), and comes before those alone: NVRTC reads the prelude for every program.
"""

from __future__ import annotations

import functools
import re
from importlib import resources

from codegen.gpu.prelude import wgmma

_INCLUDE = re.compile(r'^#include "([a-z_/]+\.h)"$', re.MULTILINE)

_PARTS = (
    ("cuda/matrix.h", re.compile(r"\btl_(mma|ldmatrix|pack|round|low|high)_")),
    ("cuda/barriers.h", re.compile(r"\btl_(mbarrier|named_barrier|cluster|async_fence)|\bTL_(CLUSTER|MORE_REGISTERS|FEWER_REGISTERS)\b")),
    ("cuda/bulk.h", re.compile(r"\btl_tma_|\bTL_(TENSOR_MAP|TMA)")),
    ("cuda/wgmma.h", re.compile(r"\btl_(wgmma_|descriptor)")),
)
"""Files, and the names that they are for."""

_ORDERING = re.compile(r"\b(tl_(mbarrier|named_barrier|cluster_barrier|async_fence|tma|wgmma)|TL_(TMA|WGMMA))_?")


def cuda(kernels: str) -> str:
    """Return the text to put before `kernels` for CUDA. It includes nothing."""
    parts = tuple(name for name, names in _PARTS if names.search(kernels))
    return _cuda(parts) + "".join(map(wgmma.for_cuda, wgmma.named(kernels)))


def emulator(kernels: str, *, terms: bool = False, warp: int = 32) -> str:
    """Return the text to put before `kernels`, whose warps have so many threads, for g++. It includes headers of the standard library.
    `terms`: floats are terms."""
    settings = f"#define TL_WARP {warp}\n" + ("#define TL_TERMS\n" if terms else "")
    return settings + _emulator() + "".join(map(wgmma.for_emulator, wgmma.named(kernels)))


def orders_in_parts(kernel: str) -> bool:
    """Tell whether something else than barriers of the whole block and of warps orders the threads of this kernel."""
    return _ORDERING.search(kernel) is not None


@functools.cache
def _emulator() -> str:
    return _expanded("emulator.h")


@functools.cache
def _cuda(parts: tuple[str, ...]) -> str:
    return "".join(_expanded(name) for name in ("cuda.h", *parts))


def _expanded(name: str) -> str:
    return expanded(resources.files(__name__).joinpath(name).read_text("utf-8"))


def expanded(text: str) -> str:
    """Return `text` with the files of this folder that it includes in their places."""
    return _INCLUDE.sub(lambda match: _expanded(match[1]), text)
