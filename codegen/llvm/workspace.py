"""Where heap buffers lie in the workspace that the caller provides.

    workspace   [ buffers outside parallel loops | thread 0 | thread 1 | ... ]      each buffer and each part a multiple of 64 bytes

Every allocation has its own place, but for those on the two sides of a condition on sizes, of which one runs: they begin at one offset.
Of a buffer whose first row lies in a parameter (`Begins`), the other has one.
Offsets are index expressions over the sizes, and `$thread` is the number of the running thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.loops.evaluate import evaluate
from codegen.loops.nodes import Add, Alloc, Buffer, FloorDiv, For, Function, If, Index, Int, Load, Max, Mul, Stmt, Var
from codegen.loops.notes import Begins
from codegen.loops.walk import free_vars, walk

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
    places: list[tuple[Alloc, Index, bool]] = []
    shared, private = _placed(function.body, (Int(0), Int(0)), False, frozenset(function.sizes), places)
    offsets: dict[int, Index] = {}
    for alloc, offset, in_parallel in places:
        offsets[id(alloc)] = _add(_add(shared, offset), Mul(Var(THREAD), private)) if in_parallel else offset
    return Plan(offsets, shared, private)


def workspace_bytes(function: Function, threads: int, sizes: Mapping[str, int] | None = None) -> int:
    """Return how large the workspace must be when `function` runs on `threads` threads with the given sizes."""
    layout = plan(function)
    known = sizes or {}
    return evaluate(layout.shared_bytes, known) + threads * evaluate(layout.thread_bytes, known)


def _placed(
    block: tuple[Stmt, ...], start: tuple[Index, Index], in_parallel: bool, sizes: frozenset[str], places: list[tuple[Alloc, Index, bool]]
) -> tuple[Index, Index]:
    """Return how far the heap buffers of a block reach that begin at `start`, those of all threads and those of each; `places` is told
    where they lie."""
    shared, private = start
    for stmt in block:
        match stmt:
            case Alloc(buffer) if buffer.space == "heap":
                places.append((stmt, private if in_parallel else shared, in_parallel))
                size = _size(buffer)
                shared, private = (shared, _add(private, size)) if in_parallel else (_add(shared, size), private)
            case For(_, _, _, body, kind):
                shared, private = _placed(body, (shared, private), in_parallel or kind == "parallel", sizes, places)
            case If(cond, then, orelse):
                one = _placed(then, (shared, private), in_parallel, sizes, places)
                alike = free_vars(cond) <= sizes and not any(isinstance(n, Load) for n in walk(cond))
                other = _placed(orelse, (shared, private) if alike else one, in_parallel, sizes, places)
                shared, private = (_most(a, b) for a, b in zip(one, other, strict=True)) if alike else other
            case _:
                pass
    return shared, private


def _most(x: Index, y: Index) -> Index:
    return x if x == y else Int(max(x.value, y.value)) if isinstance(x, Int) and isinstance(y, Int) else Max(x, y)


def _size(buffer: Buffer) -> Index:
    size: Index = Int(buffer.dtype.size_bytes)
    for extent in buffer.shape if buffer.note(Begins) is None else buffer.shape[1:]:
        size = Int(size.value * extent.value) if isinstance(size, Int) and isinstance(extent, Int) else Mul(size, extent)
    align = max(_ALIGN, buffer.align & -buffer.align)
    if isinstance(size, Int):
        return Int(-(-size.value // align) * align)
    return Mul(FloorDiv(Add(size, Int(align - 1)), Int(align)), Int(align))


def _add(x: Index, y: Index) -> Index:
    if isinstance(x, Int) and isinstance(y, Int):
        return Int(x.value + y.value)
    return y if x == Int(0) else x if y == Int(0) else Add(x, y)
