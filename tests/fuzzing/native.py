"""Compiled operators called on arrays between pages without access."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from guarded import Side, walled

from codegen.llvm.call import Callable as Native

Array = np.ndarray[Any, Any]
STALE = 0x5C
"""What bytes of results and scratch memory hold before."""
_ALIGN = 64


class Overwritten(Exception):
    """An input changed."""


def between_walls(native: Native, inputs: Sequence[Array], side: Side) -> tuple[Array, ...]:
    """Return the results of a compiled operator. Every array, results and scratch memory too, lies next to a page without access on `side`,
    the scratch memory at a multiple of 64 bytes. Raises what the operator raises for its data, and Overwritten."""
    given = [walled(a, side) for a in inputs]
    results = [
        walled(np.full(np.dtype(d).itemsize * int(np.prod(s)), STALE, np.uint8).view(d).reshape(s), side) for s, d in native._outputs
    ]
    scratch = walled(np.full(native._scratch_bytes, STALE, np.uint8), side, align=_ALIGN)
    words = (*(a.ctypes.data for a in (*results, *given)), *native._rest, scratch.ctypes.data)
    bases = (ctypes.c_size_t * len(words))(*words)
    code = native._entry(ctypes.addressof(bases))
    changed = [k for k, (a, b) in enumerate(zip(given, inputs, strict=True)) if a.tobytes() != b.tobytes()]
    if changed:
        raise Overwritten(f"input {changed[0]}")
    if code:
        raise native.failed(code)
    return tuple(results)
