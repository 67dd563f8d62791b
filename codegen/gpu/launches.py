"""A function as a sequence of launches: what stands at its top level, one after the other, each with the blocks that run it.

alloc h: f32[N] heap                   scratch h[N]
for io in 0 .. N // 256 block.x {      launch (N // 256) blocks of 256 threads
    for ii in 0 .. 256 thread.x { … }      { … }

Serial loops around loops over blocks are steps: each of their iterations is launches of its own, which are told its number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeGuard

from codegen.errors import Unfit
from codegen.gpu.geometry import WARP, Geometry, geometry
from codegen.loops.indices import Range, range_of, simplify_index
from codegen.loops.nodes import BLOCKS, Add, Alloc, Buffer, Expr, For, Function, If, Index, Int, LoopKind, Mul, Prefetch, Stmt
from codegen.loops.notes import Clustered, Note, note_of
from codegen.loops.walk import Fresh, free_vars, fresh_for, loads, stores, walk


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
    steps: tuple[For, ...] = ()
    """The loops around, the outermost first, of which each iteration is a launch."""

    @property
    def told(self) -> tuple[str, ...]:
        """Return the steps whose number a launch is told."""
        used = free_vars(*self.body, *(e for loop in self.blocks for e in (loop.lo, loop.hi)))
        return tuple(loop.var for loop in self.steps if loop.var in used)

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
    for steps, nest in nests(function.body):
        blocks, body = _peeled(nest, steps, function.sizes)
        found.append(BlockCode(f"{function.name}_{len(found)}", blocks, body, warp, steps))
    return Launches(function, scratch, tuple(found))


def is_steps(stmt: Stmt) -> TypeGuard[For]:
    """Tell whether each iteration of a statement outside of blocks is launches of its own."""
    return isinstance(stmt, For) and stmt.kind == "serial" and _has_blocks([stmt])


def blocks_outside(function: Function) -> Function:
    """Return `function` with conditions around loops over blocks, `if c { for b block { … } }`, inside of these."""

    def visit(s: Stmt) -> tuple[Stmt, ...]:
        if is_steps(s):
            return (replace(s, body=tuple(inner for t in s.body for inner in visit(t))),)
        if isinstance(s, If) and not s.orelse and _has_blocks([s]) and not any(loads(s.cond)):
            return tuple(_guarded(s.cond, inner) for t in s.then for inner in visit(t))
        return (s,)

    return replace(function, body=tuple(inner for s in function.body for inner in visit(s)))


def _guarded(cond: Expr, s: Stmt) -> Stmt:
    """Return a statement under a condition that stands inside of its loops over blocks."""
    if isinstance(s, Alloc):
        return s
    if isinstance(s, For) and (s.kind in BLOCKS or is_steps(s)):
        if len(s.body) == 1 and _has_blocks([*s.body]):
            return replace(s, body=tuple(_guarded(cond, inner) for inner in s.body))
        if s.kind in BLOCKS:
            return replace(s, body=(If(cond, s.body),))
    return If(cond, (s,))


def gather_launches(function: Function) -> Function:
    """Return `function` with what stands between its launches as launches of one block each, `for one in 0 .. 1 block.x`, together with
    the buffers that nothing else touches."""
    return replace(function, body=_gathered(function.body, fresh_for(function)))


def _gathered(whole: tuple[Stmt, ...], fresh: Fresh) -> tuple[Stmt, ...]:
    groups: list[list[Stmt]] = []
    for s in whole:
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
            body += (replace(s, body=_gathered(s.body, fresh)) if is_steps(s) else s for s in group)
            continue
        own = [s for s in whole if isinstance(s, Alloc) and s.buffer.name in touched[k] - elsewhere and is_small(s.buffer)]
        body.append(For(fresh("one"), Int(0), Int(1), (*own, *group), "block.x", 1))
    moved = {s.buffer.name for b in body if isinstance(b, For) for s in b.body if isinstance(s, Alloc)}
    kept = [Alloc(_scratch(s.buffer)) for s in whole if isinstance(s, Alloc) and s.buffer.name not in moved]
    return (*kept, *body)


def _scratch(buffer: Buffer) -> Buffer:
    return replace(buffer, space="heap", align=256)


def _has_blocks(group: list[Stmt]) -> bool:
    return any(isinstance(n, For) and n.kind in BLOCKS for n in walk(*group))


def _buffers(group: list[Stmt]) -> frozenset[str]:
    return frozenset({s.buffer for s in stores(*group)} | {load.buffer for load in loads(*group)})


SMALL = 16 * 1024
"""Bytes that a block of a launch keeps to itself, of what is stored between launches."""


def is_small(buffer: Buffer) -> bool:
    extents = [e.value if isinstance(e, Int) else SMALL for e in buffer.shape]
    return prod(extents) * buffer.dtype.size_bytes <= SMALL


def nests(body: tuple[Stmt, ...], steps: tuple[For, ...] = ()) -> Iterator[tuple[tuple[For, ...], Stmt]]:
    """Yield what is launched of the statements of a function, with the steps around each."""
    for s in body:
        if is_steps(s):
            yield from nests(s.body, (*steps, s))
        elif not isinstance(s, Alloc | Prefetch):
            yield steps, s


def _peeled(stmt: Stmt, steps: Sequence[For], sizes: Iterable[str]) -> tuple[tuple[BlockLoop, ...], tuple[Stmt, ...]]:
    """Return the loops over blocks at the outside of `stmt`, inside of `steps`, and what stands inside."""
    out: list[BlockLoop] = []
    told, ranges = frozenset((*sizes, *(loop.var for loop in steps))), dict[str, Range]()
    for loop in steps:
        _enter(loop, ranges)
    body: tuple[Stmt, ...] = (stmt,)
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind in BLOCKS:
        loop = body[0]
        if any(b.place == loop.kind for b in out):
            raise Unfit(f"`{loop.var}` and a loop around it are both bound to {loop.kind}", loop.var)
        out.append(BlockLoop(loop.var, loop.kind, loop.lo, loop.hi, _count(loop, told, ranges), loop.notes))
        _enter(loop, ranges)
        body = loop.body
    inner = next((n for n in walk(*body) if isinstance(n, For) and n.kind in BLOCKS), None)
    if inner is not None:
        raise Unfit(f"the loop `{inner.var}` over blocks does not stand at the outside of its launch", inner.var)
    return tuple(out), body


def _enter(loop: For, ranges: dict[str, Range]) -> None:
    """Note what the variable of a loop lies in, given what those around it do."""
    (low, _), (_, high) = range_of(loop.lo, ranges), range_of(loop.hi, ranges)
    ranges[loop.var] = low, None if high is None else high - 1


def _count(loop: For, sizes: frozenset[str], ranges: Mapping[str, Range]) -> Index:
    """Return how many blocks `loop` needs, in terms of sizes alone; `ranges`: what the variables around it lie in."""
    width = simplify_index(Add(loop.hi, Mul(Int(-1), loop.lo)), {})
    if free_vars(width) <= sizes:
        return width
    most = loop.extent if loop.extent is not None else range_of(width, ranges)[1]
    if most is None:
        raise Unfit(f"how many blocks `{loop.var}` needs is not known before the launch", loop.var)
    return Int(most)


def map_launches(function: Function, rewritten: Callable[[tuple[BlockLoop, ...], tuple[Stmt, ...]], tuple[Stmt, ...] | None]) -> Function:
    """Return `function` with what `rewritten` makes of the loops over blocks of a launch and of what they run; None: it stays."""

    def launch(nest: Stmt, steps: tuple[For, ...]) -> tuple[Stmt, ...]:
        new = rewritten(*_peeled(nest, steps, function.sizes))
        return (nest,) if new is None else new

    return _mapped(function, launch)


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

    return _mapped(function, lambda s, _: stmt(s))


def _mapped(function: Function, launch: Callable[[Stmt, tuple[For, ...]], tuple[Stmt, ...]]) -> Function:
    """Return `function` with what `launch` makes of each launch, which it is told the steps of."""

    def visit(body: tuple[Stmt, ...], steps: tuple[For, ...]) -> Iterator[Stmt]:
        for s in body:
            if isinstance(s, Alloc):
                yield s
            elif is_steps(s):
                yield replace(s, body=tuple(visit(s.body, (*steps, s))))
            elif not isinstance(s, Prefetch):
                yield from launch(s, steps)

    return replace(function, body=tuple(visit(function.body, ())))
