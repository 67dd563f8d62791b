"""Kernels as text, and the launches that run an operator: what the C renderer makes and what runtimes take.

A program is a straight line of launches. Sizes are 64-bit integers known when it runs; grids and the sizes of scratch buffers are
expressions over them. What is launched again and again is told the number of its step like a size. A kernel's arguments are pointers to its
buffers in the order of `Kernel.buffers`, then the tensor maps in the order of `Kernel.maps`, then the sizes in the order of `Kernel.sizes`
as 64-bit integers, then, when it `checks`, the pointer to the status word.

The status word is an i32, 0 before the first launch. A kernel that finds a requirement unmet writes its code there (the first one stays);
those that are launched after it find it there and do nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from codegen.dtypes import DType
from codegen.loops.nodes import Index, Int


@dataclass(frozen=True, slots=True)
class TensorMap:
    """What a bulk copy has to know of a tensor: it lies in `buffer` (a param or scratch of the program), from element `offset` on.

    Axes are in the order of indices, the innermost, whose elements follow each other, last. `strides` count elements, for all axes but
    that one. `box` are the elements of one copy, `swizzle` the bytes within which sixteens are exchanged in shared memory (0: none)."""

    name: str
    buffer: str
    dtype: DType
    extents: tuple[Index, ...]
    strides: tuple[Index, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    offset: Index = field(default_factory=lambda: Int(0))

    @property
    def box_bytes(self) -> int:
        return math.prod(self.box) * self.dtype.size_bytes


@dataclass(frozen=True, slots=True)
class Kernel:
    """One `__global__` function.

    `block` is the number of threads per axis (x, y, z), `shared_bytes` what one block has of shared memory; above
    `STATIC_SHARED` bytes it is asked for at the launch. `min_blocks` blocks should fit on a multiprocessor at a time (0: any number).
    `cluster` blocks per axis run at the same time; the text says so as well."""

    name: str
    text: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    min_blocks: int = 0
    checks: bool = False
    maps: tuple[TensorMap, ...] = ()
    cluster: tuple[int, int, int] = (1, 1, 1)
    matrices: tuple[str, ...] = ()
    """The instructions for matrices in it (`codegen.gpu.matrix`), which not all devices have."""
    allocated_registers: int = 0
    """The registers of a block after its roles have set how many a thread has; 0: they do not."""
    warp: int = 32
    """The threads of a warp that the text is written for."""

    @property
    def threads(self) -> int:
        x, y, z = self.block
        return x * y * z

    @property
    def dynamic_bytes(self) -> int:
        """Return what has to be asked for at the launch."""
        return self.shared_bytes if self.shared_bytes > STATIC_SHARED else 0


STATIC_SHARED = 48 * 1024
"""What a kernel may declare of shared memory; more is only had by asking at the launch."""


@dataclass(frozen=True, slots=True)
class Launch:
    """`kernel` over `grid` blocks (x, y, z), expressions over the program's sizes and `steps`, the numbers of the iterations that it is;
    nothing runs where one of them is 0."""

    kernel: str
    grid: tuple[Index, Index, Index]
    steps: tuple[tuple[str, int], ...] = ()

    def told(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the numbers that it is told: the program's sizes, and of its steps."""
        return {**sizes, **dict(self.steps)}


@dataclass(frozen=True, slots=True)
class Scratch:
    """Device memory that the program needs for itself, `elements` (over the sizes) of `dtype`, at 256 bytes."""

    name: str
    dtype: DType
    elements: Index


@dataclass(frozen=True, slots=True)
class Program:
    """`params`: the caller's buffers in order. A launch's buffers are params or scratch, by name."""

    name: str
    params: tuple[str, ...]
    sizes: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...] = ()

    def kernel(self, name: str) -> Kernel:
        return next(k for k in self.kernels if k.name == name)

    @property
    def text(self) -> str:
        """Return the kernels one after the other, without prelude."""
        return "\n".join(k.text for k in self.kernels)
