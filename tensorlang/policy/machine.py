"""What a schedule has to know of the machine: lanes, registers, threads, and of which elements it has dot products."""

from __future__ import annotations

from dataclasses import dataclass, field

from codegen.dtypes import DType
from codegen.gpu.limits import USUAL_LIMITS, USUAL_RATES, Limits, Rates


@dataclass(frozen=True, slots=True)
class Machine:
    vector_bytes: int = 64
    vector_registers: int = 32
    threads: int = 1
    l1_bytes: int = 32 * 1024
    """Of the first-level cache for data."""
    l2_bytes: int = 1024 * 1024
    dots: frozenset[tuple[DType, DType]] = frozenset()
    """Pairs of narrow types of whose neighbouring elements it adds up products in one instruction, or in a few."""
    tiles: frozenset[tuple[DType, DType]] = frozenset()
    """Pairs of types of which it multiplies whole tiles."""
    tables: frozenset[tuple[int, int]] = frozenset()
    """Sizes of elements that lanes pick by their places from a row in registers, each with the bytes that such a row has at most."""
    cache_bytes: int = 32 * 1024 * 1024
    """Of the last cache before memory."""
    target: str = field(kw_only=True)
    """What schedules for it are `for`."""

    def lanes(self, dtype: DType) -> int:
        """Return how many elements of `dtype`, at least 32 bits wide when computed with, a vector register holds."""
        return max(1, self.vector_bytes // max(4, dtype.size_bytes))


@dataclass(frozen=True, slots=True)
class GpuMachine(Machine):
    """A graphics processor. `vector_bytes` is what one thread loads or stores at once, `threads` how many a block has as a rule."""

    vector_bytes: int = 16
    vector_registers: int = 128
    threads: int = 256
    blocks: int = 128
    """How many blocks keep a large device busy."""
    matrices: bool = True
    """Whether its warps multiply matrices."""
    warpgroups: bool = False
    """Whether four of them multiply together, from shared memory."""
    boxes: bool = False
    """Whether it copies boxes of tensors by itself."""
    shared_bytes: int = 48 * 1024
    """What a block keeps in memory that its threads share, as a rule."""
    limits: Limits = USUAL_LIMITS
    """What it may ask for at most."""
    rates: Rates = USUAL_RATES
    """What a multiprocessor does in a cycle."""

    @property
    def warp(self) -> int:
        """Return how many threads run together."""
        return self.limits.warp

    @property
    def most_threads(self) -> int:
        """Return how many threads a block has at most."""
        return self.limits.threads_per_block

    def lanes(self, dtype: DType) -> int:
        """Return how many elements of `dtype` a thread loads at once."""
        return self.vector_bytes // dtype.size_bytes
