"""Requests to the operating system for registers that a process may not use unasked: tiles, whose state is large."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

_ARCH_PRCTL = 158
_REQUEST = 0x1023  # ARCH_REQ_XCOMP_PERM
_TILE_DATA = 18  # XFEATURE_XTILEDATA


@cache
def tiles_permitted() -> bool:
    """Ask Linux on x86-64, once, to let all threads of this process use tiles. Return whether it does."""
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    return int(library.syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA)) == 0


def permitted(features: str, request: Callable[[], bool] = tiles_permitted) -> str:
    """Return features (`+avx2,-sse4a`) without those that need tiles, where the operating system refuses them."""
    has = [f for f in features.split(",") if f]
    if "+amx-tile" not in has or request():
        return features
    return ",".join("-" + f[1:] if f.startswith("+amx-") else f for f in has)
