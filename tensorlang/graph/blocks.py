"""Blocks of memory that start where the plan of a model, and vectors, expect them to."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np

from codegen.dtypes import DType
from tensorlang.graph.plan import ALIGNMENT

Array = np.ndarray[Any, Any]

HUGE_PAGES_FROM = 4 << 20
"""Bytes from which a block is worth huge pages."""


def aligned_block(size: int) -> Array:
    """Return `size` bytes that start at a multiple of the alignment; large ones on huge pages where the system has them, so that streaming
    through weights does not wait for address translation."""
    if size >= HUGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        memory = mmap.mmap(-1, size)
        memory.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(memory, np.uint8)
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + max(size, 1)]


def aligned_array(shape: tuple[int, ...], dtype: DType) -> Array:
    """Return an array in a block of its own; what it holds is arbitrary."""
    size = math.prod(shape) * dtype.size_bytes
    return aligned_block(size)[:size].view(dtype.numpy).reshape(shape)
