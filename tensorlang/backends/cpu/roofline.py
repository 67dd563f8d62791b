"""How fast a program could be on this machine, with the instructions of a target: what it has to do against what these can, measured.

    compute    operations over the rate of fused multiply-adds, or of dot products where elements are narrow enough for these
    memory     bytes in and out, each once, over the bandwidth of the smallest cache that holds them
    best       the longer of the two; which one that is says what the program is bound by

Bytes that are both read and written back move at the speed of a copy, further ones at the speed of a sum. What a program reads may well
lie in a larger cache than it needs, and sums of exponentials are more than multiply-adds: the best time is a bound, not a promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from codegen.dtypes import DType, f32, f64
from codegen.llvm.probe import copy_bandwidth, dot_ops, fma_flops, read_bandwidth
from codegen.llvm.target import Target, host, runs_here
from tensorlang.backends.cpu.loading import refusal_of_target
from tensorlang.runtime.work import Roofline, Work, narrow_products, work_of
from tensorlang.tensor.nodes import Program


@dataclass(frozen=True, slots=True)
class Level:
    """A cache, or memory: how much it holds, and the bytes per second of all threads together."""

    name: str
    size_bytes: int
    read: float
    copy: float


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What `threads` threads of this machine can do: operations per second, and bytes per second at each level from the smallest up."""

    threads: int
    flops: float
    levels: tuple[Level, ...]

    def level(self, moved_bytes: int) -> Level:
        """Return the smallest level that holds so many bytes."""
        return next((level for level in self.levels if moved_bytes <= level.size_bytes), self.levels[-1])


@dataclass(frozen=True, slots=True)
class Bound:
    """The shortest times a program could take for its arithmetic and for its bytes."""

    compute_seconds: float
    memory_seconds: float
    level: str

    @property
    def seconds(self) -> float:
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def by(self) -> str:
        """What the program is bound by: `compute`, or `memory` with the level its bytes come from."""
        return "compute" if self.compute_seconds >= self.memory_seconds else f"memory ({self.level})"


def roofline_of(programs: Sequence[Program], threads: int, target: Target) -> Roofline:
    """Return the roofline of programs that run one after the other. Raises CompileError C0102 where this machine does not run them."""
    works = [work_of(p) for p in programs]
    bounds = [bound_of(w, ceilings_for(p, threads, target)) for w, p in zip(works, programs, strict=True)]
    return Roofline(sum(works, Work(0, 0, 0)), sum(b.seconds for b in bounds))


def bound_of(work: Work, ceilings: Ceilings) -> Bound:
    """Return how fast `work` could be done."""
    level = ceilings.level(work.moved_bytes)
    both = min(work.read_bytes, work.written_bytes)
    memory = 2 * both / level.copy + (work.read_bytes - both) / level.read + (work.written_bytes - both) / level.copy
    return Bound(work.flops / ceilings.flops, memory, level.name)


def ceilings_for(program: Program, threads: int, target: Target) -> Ceilings:
    """Return the ceilings for the element type that the program computes in, and those that it multiplies. Raises CompileError C0102 where
    this machine does not run code for `target`."""
    if not runs_here(target):
        raise refusal_of_target(target)
    dtype = f64 if any(t.dtype is f64 for d in program.definitions for t in d.tensors) else f32
    return ceilings(target, threads, dtype, narrow_products(program))


@cache
def ceilings(target: Target, threads: int = 1, dtype: DType = f32, products: tuple[DType, DType] | None = None) -> Ceilings:
    """Return what this machine can do with the instructions of `target`, measured once in a process; that takes about a second.
    `products`: the types that are multiplied where several of their products may be added up at once."""
    flops = _fma(target, threads, dtype)
    most = flops if products is None else max(flops, threads * dot_ops(*products, target=target))
    return Ceilings(threads, most, _levels(target, threads))


@cache
def _fma(target: Target, threads: int, dtype: DType) -> float:
    return max(fma_flops(dtype, threads=threads, target=target) for _ in range(2))


@cache
def _levels(target: Target, threads: int) -> tuple[Level, ...]:
    sizes = host().caches.levels
    last = sizes[-1][1]
    shares = [(name, size * threads, size // 4) for name, size in sizes[:-1]]
    shares += [(sizes[-1][0], last, last // 4 // threads), ("DRAM", 1 << 62, 4 * last // threads)]
    return tuple(_measured(target, name, holds, probed, threads) for name, holds, probed in shares)


def _measured(target: Target, name: str, holds: int, probed: int, threads: int) -> Level:
    copies = (copy_bandwidth(probed, threads=threads, stream=stream, seconds=_SECONDS, target=target) for stream in (False, True))
    return Level(name, holds, read_bandwidth(probed, threads=threads, seconds=_SECONDS, target=target), max(copies))


_SECONDS = 0.03
