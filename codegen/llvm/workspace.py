"""Where heap buffers lie in the workspace that the caller provides.

    workspace   [ buffers outside parallel loops | thread 0 | thread 1 | ... ]      each buffer and each part a multiple of 64 bytes

Every allocation has its own place: offsets are index expressions over the sizes, and `$thread` is the number of the running thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from codegen.loops.evaluate import evaluate
from codegen.loops.nodes import Add, Alloc, Buffer, FloorDiv, For, Function, If, Index, Int, Mul, Stmt, Var

THREAD = "$thread"
_ALIGN = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """`offsets` are keyed by the identity of the allocation; sizes are in bytes."""

    offsets: dict[int, Index]
    shared_bytes: Index
    thread_bytes: Index


def plan(function: Function) -> Plan:
    """Return where each heap allocation of `function` lies."""
    allocations = list(_heap(function.body, False))
    shared: Index = Int(0)
    private: Index = Int(0)
    places: list[tuple[Alloc, Index, bool]] = []
    for alloc, in_parallel in allocations:
        size = _size(alloc.buffer)
        if in_parallel:
            places.append((alloc, private, True))
            private = _add(private, size)
        else:
            places.append((alloc, shared, False))
            shared = _add(shared, size)
    offsets: dict[int, Index] = {}
    for alloc, offset, in_parallel in places:
        offsets[id(alloc)] = _add(_add(shared, offset), Mul(Var(THREAD), private)) if in_parallel else offset
    return Plan(offsets, shared, private)


def workspace_bytes(function: Function, threads: int, sizes: Mapping[str, int] | None = None) -> int:
    """Return how large the workspace must be when `function` runs on `threads` threads with the given sizes."""
    layout = plan(function)
    known = sizes or {}
    return evaluate(layout.shared_bytes, known) + threads * evaluate(layout.thread_bytes, known)


def _heap(block: tuple[Stmt, ...], in_parallel: bool) -> Iterator[tuple[Alloc, bool]]:
    for stmt in block:
        match stmt:
            case Alloc(buffer) if buffer.space == "heap":
                yield stmt, in_parallel
            case For(_, _, _, body, kind):
                yield from _heap(body, in_parallel or kind == "parallel")
            case If(_, then, orelse):
                yield from _heap(then, in_parallel)
                yield from _heap(orelse, in_parallel)
            case _:
                pass


def _size(buffer: Buffer) -> Index:
    size: Index = Int(buffer.dtype.size_bytes)
    for extent in buffer.shape:
        size = Int(size.value * extent.value) if isinstance(size, Int) and isinstance(extent, Int) else Mul(size, extent)
    align = max(_ALIGN, buffer.align & -buffer.align)
    if isinstance(size, Int):
        return Int(-(-size.value // align) * align)
    return Mul(FloorDiv(Add(size, Int(align - 1)), Int(align)), Int(align))


def _add(x: Index, y: Index) -> Index:
    if isinstance(x, Int) and isinstance(y, Int):
        return Int(x.value + y.value)
    return y if x == Int(0) else x if y == Int(0) else Add(x, y)
