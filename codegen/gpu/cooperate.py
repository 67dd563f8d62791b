"""Copies inside a block that nobody gave to threads are shared out among all of them.

    for k in 0 .. 16 {                          for u in 0 .. 2 unroll 2 {
        for i in 0 .. 64 {                          for t in 0 .. 256 thread 256 {
            a_s[k, i] = a[64*io + i, k]    →            for v in 0 .. 2 vector 2 {
                                                            a_s[…] = a[…]

Only a nest that stores each cell once, from what it does not write itself, is shared out, so the order of its iterations is free. The
innermost of its loops becomes the one that walks the memory of the device element by element, in vectors where there is room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from codegen.gpu.geometry import Geometry
from codegen.loops.indices import affine, range_of
from codegen.loops.nodes import (
    THREADS,
    Add,
    Alloc,
    Buffer,
    Compare,
    Expr,
    FloorDiv,
    For,
    If,
    Index,
    IndexValue,
    Int,
    Load,
    Min,
    Mod,
    Mul,
    Stmt,
    Store,
    Var,
)
from codegen.loops.verify import is_reduction
from codegen.loops.walk import Fresh, free_vars, loads, substitute, walk

UNROLLED = 16
"""Rounds of a copy that are written out; more of them stay a loop."""


@dataclass(frozen=True, slots=True)
class _Nest:
    """`loops` around statements without loops, each from 0 to at most `extents`."""

    loops: tuple[For, ...]
    extents: tuple[int, ...]
    body: tuple[Stmt, ...]


def cooperate(body: tuple[Stmt, ...], block: Geometry, device: Mapping[str, Buffer], fresh: Fresh) -> tuple[Stmt, ...]:
    """Return `body` with such nests shared out among the threads of `block`. `device` holds the buffers in the device's memory."""
    private = frozenset(s.buffer.name for s in walk(*body) if isinstance(s, Alloc) and s.buffer.space != "shared")
    return _block(body, block, device, fresh, private)


def _block(
    body: tuple[Stmt, ...], block: Geometry, device: Mapping[str, Buffer], fresh: Fresh, private: frozenset[str]
) -> tuple[Stmt, ...]:
    return tuple(_stmt(s, block, device, fresh, private) for s in body)


def _stmt(s: Stmt, block: Geometry, device: Mapping[str, Buffer], fresh: Fresh, private: frozenset[str]) -> Stmt:
    match s:
        case For(kind=kind) if kind in THREADS:
            return s
        case For():
            nest = _nest(s, private)
            if nest is not None:
                return _shared_out(nest, block, device, fresh)
            return replace(s, body=_block(s.body, block, device, fresh, private))
        case If(_, then, orelse):
            parts = (_block(part, block, device, fresh, private) for part in (then, orelse))
            return If(s.cond, *parts)
        case _:
            return s


def _nest(loop: For, private: frozenset[str]) -> _Nest | None:
    """Return `loop` as a nest whose iterations may run in any order and on any thread, or None.

    `private`: what each thread has of its own."""
    loops: list[For] = []
    body: tuple[Stmt, ...] = (loop,)
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind not in THREADS:
        loops.append(body[0])
        body = body[0].body
    inner = list(walk(*body))
    stored = [n for n in inner if isinstance(n, Store)]
    if any(isinstance(n, For) for n in inner) or len(stored) != 1 or is_reduction(stored[0]):
        return None
    read = list(loads(*body))
    if stored[0].buffer in private or any(load.buffer == stored[0].buffer for load in read) or not _once(stored[0], loops):
        return None
    if any(load.buffer in private and free_vars(*load.index) & {loop.var for loop in loops} for load in read):
        return None
    extents = [_extent(loop) for loop in loops]
    if any(e is None or loop.lo != Int(0) for e, loop in zip(extents, loops, strict=True)):
        return None
    return _Nest(tuple(loops), tuple(e for e in extents if e is not None), body)


def _extent(loop: For) -> int | None:
    return loop.extent if loop.extent is not None else range_of(loop.hi, {})[1]


def _once(store: Store, loops: list[For]) -> bool:
    """Tell whether every iteration stores to a cell of its own: each loop is told by a subscript, like a digit by a number."""
    told: set[str] = set()
    extents = {loop.var: _extent(loop) for loop in loops}
    for e in store.index:
        form = affine(e)
        if form is not None:
            terms = [(scale, atom.name) for atom, scale in form[0].items() if isinstance(atom, Var)]
            reached = 0
            for scale, name in sorted(terms):
                extent = extents.get(name)
                if extent is None or scale <= reached or len(terms) < len(form[0]):
                    break
                reached += scale * (extent - 1)
            else:
                told |= {name for _, name in terms}
    return {loop.var for loop in loops} <= told


def _shared_out(nest: _Nest, block: Geometry, device: Mapping[str, Buffer], fresh: Fresh) -> Stmt:
    walked = _walking(nest, device)
    order = [k for k in range(len(nest.loops)) if k != walked] + [walked]
    loops = [nest.loops[k] for k in order]
    extents = [nest.extents[k] for k in order]
    lanes = _lanes(nest, extents[-1], block)
    count = prod(extents) // lanes
    rounds = -(-count // block.threads)
    u, t, v = fresh("u"), fresh("t"), fresh("v")
    number: Index = Add(Mul(Int(block.threads), Var(u)), Var(t)) if rounds > 1 else Var(t)
    where: dict[str, Index] = {}
    left: Index = number
    for loop, extent in reversed(list(zip(loops, [*extents[:-1], extents[-1] // lanes], strict=True))):
        digit = Mod(left, Int(extent)) if loop is not loops[0] else left
        where[loop.var] = digit
        left = FloorDiv(left, Int(extent))
    last = loops[-1].var
    if lanes > 1:
        where[last] = Add(Mul(Int(lanes), where[last]), Var(v))
    body = tuple(substitute(s, where) for s in nest.body)
    guards = [
        (loop, _below(where[loop.var], substitute(loop.hi, where))) for loop, e in zip(loops, extents, strict=True) if loop.hi != Int(e)
    ]
    whole = [substitute(cond, {v: Int(0)}) for loop, cond in guards if loop is not loops[-1] or _is_multiple(loop.hi, lanes)]
    for cond in (cond for loop, cond in guards if loop is loops[-1] and not _is_multiple(loop.hi, lanes)):
        body = (If(cond, body),)
    stmt: tuple[Stmt, ...] = (For(v, Int(0), Int(lanes), body, "vector", lanes),) if lanes > 1 else body
    for cond in whole:
        stmt = (If(cond, stmt),)
    if count % block.threads:
        stmt = (If(_below(number, Int(count)), stmt),)
    shared: Stmt = For(t, Int(0), Int(block.threads), stmt, "thread", block.threads)
    if rounds == 1:
        return shared
    return For(u, Int(0), Int(rounds), (shared,), "unroll" if rounds <= UNROLLED else "serial", rounds)


def _is_multiple(bound: Index, of: int) -> bool:
    """Tell whether vectors of so many are all inside of a bound or all outside."""
    match bound:
        case Min(a, b):
            return _is_multiple(a, of) and _is_multiple(b, of)
        case _:
            form = affine(bound)
            return form is not None and all(n % of == 0 for n in (form[1], *form[0].values()))


def _below(index: Index, bound: Index) -> Expr:
    return Compare("<", IndexValue(index), IndexValue(bound))


def _walking(nest: _Nest, device: Mapping[str, Buffer]) -> int:
    """Return the number of the loop along which the device's memory is read, or written, element by element."""
    accesses: list[tuple[Index, ...]] = [
        n.index for n in walk(*nest.body) if isinstance(n, Load | Store) and n.buffer in device and n.index
    ]
    for index in accesses:
        form = affine(index[-1])
        for k, loop in enumerate(nest.loops):
            if form is not None and form[0].get(Var(loop.var)) == 1 and nest.extents[k] > 1:
                return k
    return len(nest.loops) - 1


def _lanes(nest: _Nest, extent: int, block: Geometry) -> int:
    """Return how many neighbours one thread copies at once: 16 bytes of them at most, so that every thread has some."""
    count = prod(nest.extents)
    return next((n for n in (4, 2) if extent % n == 0 and count // n >= block.threads), 1)
