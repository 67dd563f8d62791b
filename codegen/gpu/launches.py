"""A function as a sequence of launches: what stands at its top level, one after the other, each with the blocks that run it.

alloc h: f32[N] heap                   scratch h[N]
for io in 0 .. N // 256 block.x {      launch (N // 256) blocks of 256 threads
    for ii in 0 .. 256 thread.x { … }      { … }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from codegen.errors import Unfit
from codegen.gpu.geometry import WARP, Geometry, geometry
from codegen.loops.indices import range_of, simplify_index
from codegen.loops.nodes import BLOCKS, Add, Alloc, Buffer, For, Function, Index, Int, LoopKind, Mul, Prefetch, Stmt
from codegen.loops.notes import Clustered, Note, note_of
from codegen.loops.walk import free_vars, fresh_for, loads, stores, walk


@dataclass(frozen=True, slots=True)
class BlockLoop:
    """`var` is `lo` more than the block's number along `place`; `count` is how many there are at most, over the function's sizes."""

    var: str
    place: LoopKind
    lo: Index
    hi: Index
    count: Index
    notes: tuple[Note, ...] = ()

    @property
    def cluster(self) -> int:
        """So many neighbours are one cluster."""
        clustered = note_of(self.notes, Clustered)
        return 1 if clustered is None else clustered.blocks

    @property
    def exact(self) -> bool:
        """Whether every block of the grid has work."""
        return self.count == simplify_index(Add(self.hi, Mul(Int(-1), self.lo)), {})


@dataclass(frozen=True, slots=True)
class BlockCode:
    """What each block of one launch runs. `body` holds loops over threads and what stands around and between them."""

    name: str
    blocks: tuple[BlockLoop, ...]
    body: tuple[Stmt, ...]
    warp: int = WARP
    """Threads of a warp."""

    @property
    def cluster_loop(self) -> BlockLoop | None:
        """Return the loop along which blocks are clusters, if any."""
        return next((loop for loop in self.blocks if loop.cluster > 1), None)

    @property
    def geometry(self) -> Geometry:
        return geometry(self.body, self.warp)


@dataclass(frozen=True, slots=True)
class Launches:
    """A function cut into launches. `scratch` are the buffers it allocates outside of them."""

    function: Function
    scratch: tuple[Buffer, ...]
    blocks: tuple[BlockCode, ...]

    @property
    def buffers(self) -> dict[str, Buffer]:
        """Return what lies in the memory of the device, by name."""
        return {b.name: b for b in (*self.function.params, *self.scratch)}


def launches(function: Function, warp: int = WARP) -> Launches:
    """Return the launches of `function`, called after it; a warp has so many threads."""
    scratch = tuple(_scratch(s.buffer) for s in function.body if isinstance(s, Alloc))
    found: list[BlockCode] = []
    for nest in _nests(function.body):
        blocks, body = _peeled(nest, frozenset(function.sizes))
        found.append(BlockCode(f"{function.name}_{len(found)}", blocks, body, warp))
    return Launches(function, scratch, tuple(found))


def gather_launches(function: Function) -> Function:
    """Return `function` with what stands between its launches as launches of one block each, `for one in 0 .. 1 block.x`, together with
    the buffers that nothing else touches."""
    fresh = fresh_for(function)
    groups: list[list[Stmt]] = []
    for s in function.body:
        if isinstance(s, Alloc):
            continue
        alone = any(isinstance(n, For) and n.kind in BLOCKS for n in walk(s))
        if alone or not groups or _has_blocks(groups[-1]):
            groups.append([])
        groups[-1].append(s)
    touched = [_buffers(group) for group in groups]
    body: list[Stmt] = []
    for k, group in enumerate(groups):
        elsewhere = frozenset[str]().union(*(t for n, t in enumerate(touched) if n != k))
        if _has_blocks(group):
            body += group
            continue
        own = [s for s in function.body if isinstance(s, Alloc) and s.buffer.name in touched[k] - elsewhere and _is_small(s.buffer)]
        body.append(For(fresh("one"), Int(0), Int(1), (*own, *group), "block.x", 1))
    moved = {s.buffer.name for b in body if isinstance(b, For) for s in b.body if isinstance(s, Alloc)}
    kept = [Alloc(_scratch(s.buffer)) for s in function.body if isinstance(s, Alloc) and s.buffer.name not in moved]
    return replace(function, body=(*kept, *body))


def _scratch(buffer: Buffer) -> Buffer:
    return replace(buffer, space="heap", align=256)


def _has_blocks(group: list[Stmt]) -> bool:
    return any(isinstance(n, For) and n.kind in BLOCKS for n in walk(*group))


def _buffers(group: list[Stmt]) -> frozenset[str]:
    return frozenset({s.buffer for s in stores(*group)} | {load.buffer for load in loads(*group)})


SMALL = 16 * 1024
"""Bytes that a block of a launch keeps to itself, of what is stored between launches."""


def _is_small(buffer: Buffer) -> bool:
    extents = [e.value if isinstance(e, Int) else SMALL for e in buffer.shape]
    return prod(extents) * buffer.dtype.size_bytes <= SMALL


def _nests(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield what is launched."""
    return (s for s in body if not isinstance(s, Alloc | Prefetch))


def _peeled(stmt: Stmt, sizes: frozenset[str]) -> tuple[tuple[BlockLoop, ...], tuple[Stmt, ...]]:
    """Return the loops over blocks at the outside of `stmt`, and what stands inside."""
    out: list[BlockLoop] = []
    body: tuple[Stmt, ...] = (stmt,)
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind in BLOCKS:
        loop = body[0]
        if any(b.place == loop.kind for b in out):
            raise Unfit(f"`{loop.var}` and a loop around it are both bound to {loop.kind}", loop.var)
        out.append(BlockLoop(loop.var, loop.kind, loop.lo, loop.hi, _count(loop, sizes), loop.notes))
        body = loop.body
    inner = next((n for n in walk(*body) if isinstance(n, For) and n.kind in BLOCKS), None)
    if inner is not None:
        raise Unfit(f"the loop `{inner.var}` over blocks does not stand at the outside of its launch", inner.var)
    return tuple(out), body


def _count(loop: For, sizes: frozenset[str]) -> Index:
    """Return how many blocks `loop` needs, in terms of sizes alone."""
    width = simplify_index(Add(loop.hi, Mul(Int(-1), loop.lo)), {})
    if free_vars(width) <= sizes:
        return width
    most = loop.extent if loop.extent is not None else range_of(width, {})[1]
    if most is None:
        raise Unfit(f"how many blocks `{loop.var}` needs is not known before the launch", loop.var)
    return Int(most)


def map_launches(function: Function, rewritten: Callable[[tuple[BlockLoop, ...], tuple[Stmt, ...]], tuple[Stmt, ...] | None]) -> Function:
    """Return `function` with what `rewritten` makes of the loops over blocks of a launch and of what they run; None: it stays."""
    sizes = frozenset(function.sizes)
    body: list[Stmt] = [s for s in function.body if isinstance(s, Alloc)]
    for nest in _nests(function.body):
        new = rewritten(*_peeled(nest, sizes))
        body += (nest,) if new is None else new
    return replace(function, body=tuple(body))


def map_blocks(function: Function, rewritten: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Function:
    """Return `function` with `rewritten` applied to what each block of each launch runs."""

    def stmt(s: Stmt) -> tuple[Stmt, ...]:
        match s:
            case For(kind=kind) if kind in BLOCKS:
                return (replace(s, body=body(s.body)),)
            case _:
                return body((s,))

    def body(inner: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        if len(inner) == 1 and isinstance(inner[0], For) and inner[0].kind in BLOCKS:
            return stmt(inner[0])
        return rewritten(inner)

    kept = tuple(s for s in function.body if isinstance(s, Alloc))
    return replace(function, body=(*kept, *(new for s in _nests(function.body) for new in stmt(s))))
