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
from functools import partial, reduce
from math import prod

from codegen.gpu.geometry import Geometry
from codegen.gpu.vectors import BYTES, contiguous, offset
from codegen.loops.indices import Algebra, coefficients, range_of, simplify_index
from codegen.loops.nodes import (
    THREADS,
    Add,
    Alloc,
    Binary,
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
from codegen.loops.notes import Staged
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
    return _Pass(block, device, fresh, private).block(body)


@dataclass(frozen=True, slots=True)
class _Pass:
    """`private`: what each thread has of its own."""

    threads: Geometry
    device: Mapping[str, Buffer]
    fresh: Fresh
    private: frozenset[str]

    def block(self, body: tuple[Stmt, ...], staged: bool = False) -> tuple[Stmt, ...]:
        """`staged`: it is that of a loop with copies ahead of it, which has its own ways of keeping loads on the way."""
        return tuple(self._stmt(s, staged) for s in body)

    def _stmt(self, s: Stmt, staged: bool) -> Stmt:
        match s:
            case For(kind=kind) if kind in THREADS:
                return s
            case For():
                nest = _nest(s, self.private)
                if nest is None:
                    return replace(s, body=self.block(s.body, staged or s.note(Staged) is not None))
                return self._shared_out(nest, staged=True) if staged else self._apart(nest)
            case If(_, then, orelse):
                return If(s.cond, *(self.block(part, staged) for part in (then, orelse)))
            case _:
                return s

    def _shared_out(self, nest: _Nest, staged: bool = False) -> Stmt:
        return _shared_out(nest, self.threads, self.device, self.fresh, staged)

    def _apart(self, nest: _Nest) -> Stmt:
        """Return the nest shared out, once without conditions for when none of its loops ends early: only then are loads, which no branch
        parts, all on the way together. Which of the two a block runs is the same for all its threads."""
        early = [(loop, e) for loop, e in zip(nest.loops, nest.extents, strict=True) if loop.hi != Int(e)]
        if not early or any(free_vars(loop.hi) & {other.var for other in nest.loops} for loop, _ in early):
            return self._shared_out(nest)
        ends = [_below(Int(e - 1), loop.hi) for loop, e in early]
        loops = tuple(replace(loop, hi=Int(e), extent=e) for loop, e in zip(nest.loops, nest.extents, strict=True))
        whole = self._shared_out(replace(nest, loops=loops))
        return If(reduce(partial(Binary, "and"), ends), (whole,), (self._shared_out(nest),))


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
        form = coefficients(e)
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


@dataclass(frozen=True, slots=True)
class _Sharing:
    """How a nest is cut: `inner` loops are digits of the thread's number; of the loop around them a round takes `group` iterations at a
    time, one for each run of threads that covers the inner ones; the loops around that are rounds."""

    inner: int
    group: int
    rounds: int
    used: int
    """Threads that have something to do."""


def _shared_out(nest: _Nest, block: Geometry, device: Mapping[str, Buffer], fresh: Fresh, staged: bool) -> Stmt:
    """Return the nest with its innermost loops given to threads. What a thread copies in a round lies as far from what it copied in the
    last as in every other round, so its places in memory are found once."""
    order = _order(nest, device)
    loops = [nest.loops[k] for k in order]
    extents = [nest.extents[k] for k in order]
    lanes = _lanes(nest, loops[-1], extents[-1], block, device, staged)
    counts = [*extents[:-1], extents[-1] // lanes]
    sharing = _sharing(counts, block.threads)
    t, v = fresh("t"), fresh("v")
    where: dict[str, Index] = {}
    around: list[tuple[str, int]] = []
    left: Index = Var(t)
    for at in reversed(range(len(loops))):
        name = loops[at].var
        if at >= sharing.inner:
            where[name] = Mod(left, Int(counts[at])) if at > sharing.inner or sharing.group > 1 else left
            left = FloorDiv(left, Int(counts[at]))
        elif at == sharing.inner - 1 and sharing.group > 1:
            where[name] = left
            if sharing.rounds > 1:
                u = fresh("u")
                around.insert(0, (u, sharing.rounds))
                where[name] = Add(Mul(Int(sharing.group), Var(u)), left)
        else:
            u = fresh("u")
            around.insert(0, (u, counts[at]))
            where[name] = Var(u)
    last = loops[-1].var
    if lanes > 1:
        where[last] = Add(Mul(Int(lanes), where[last]), Var(v))
    body = tuple(substitute(s, where) for s in nest.body)
    guards = [
        (loop, _below(where[loop.var], substitute(loop.hi, where))) for loop, e in zip(loops, extents, strict=True) if loop.hi != Int(e)
    ]
    whole = [substitute(cond, {v: Int(0)}) for loop, cond in guards if loop is not loops[-1] or is_multiple(loop.hi, lanes)]
    for cond in (cond for loop, cond in guards if loop is loops[-1] and not is_multiple(loop.hi, lanes)):
        body = (If(cond, body),)
    stmt: tuple[Stmt, ...] = (For(v, Int(0), Int(lanes), body, "vector", lanes),) if lanes > 1 else body
    for cond in whole:
        stmt = (If(cond, stmt),)
    grouped = sharing.inner - 1
    if sharing.group > 1 and counts[grouped] % sharing.group and loops[grouped].hi == Int(extents[grouped]):
        number = where[loops[grouped].var] if grouped < len(loops) - 1 or lanes == 1 else FloorDiv(where[last], Int(lanes))
        stmt = (If(_below(number, Int(counts[grouped])), stmt),)
    if sharing.used < block.threads:
        stmt = (If(_below(Var(t), Int(sharing.used)), stmt),)
    shared: Stmt = For(t, Int(0), Int(block.threads), stmt, "thread", block.threads)
    unrolled = 1
    for u, count in reversed(around):
        unrolled *= count
        shared = For(u, Int(0), Int(count), (shared,), "unroll" if unrolled <= UNROLLED else "serial", count)
    return shared


def _sharing(counts: list[int], threads: int) -> _Sharing:
    """Return how many of the innermost loops, with `counts` iterations, are digits of a number of `threads`."""
    inner, covered = len(counts), 1
    while inner and covered * counts[inner - 1] <= threads:
        inner -= 1
        covered *= counts[inner]
    count = counts[inner - 1] if inner else 1
    rounds = -(-count // max(1, threads // covered))
    group = -(-count // rounds)
    return _Sharing(inner, group, rounds, covered * group)


def _order(nest: _Nest, device: Mapping[str, Buffer]) -> list[int]:
    """Return the loops' numbers by how far apart in the device's memory their iterations lie, the nearest last."""
    walked = _walking(nest, device)
    steps = _steps(nest, device)
    others = [k for k in range(len(nest.loops)) if k != walked]
    return [*sorted(others, key=lambda k: -steps.get(nest.loops[k].var, 0)), walked] if steps else [*others, walked]


def _steps(nest: _Nest, device: Mapping[str, Buffer]) -> dict[str, int]:
    """Return how far apart in the device's memory the iterations of each loop lie, where that is known of all."""
    for n in walk(*nest.body):
        if isinstance(n, Load | Store) and n.buffer in device and n.index:
            form = coefficients(simplify_index(offset(device[n.buffer], n.index), {}))
            if form is not None:
                found = {atom.name: abs(scale) for atom, scale in form[0].items() if isinstance(atom, Var)}
                return found if all(loop.var in found for loop in nest.loops) else {}
    return {}


def is_multiple(bound: Index, of: int) -> bool:
    """Tell whether vectors of so many are all inside of a bound or all outside."""
    match bound:
        case Min(a, b):
            return is_multiple(a, of) and is_multiple(b, of)
        case _:
            form = coefficients(bound)
            return form is not None and all(n % of == 0 for n in (form[1], *form[0].values()))


def _below(index: Index, bound: Index) -> Expr:
    return Compare("<", IndexValue(index), IndexValue(bound))


def _walking(nest: _Nest, device: Mapping[str, Buffer]) -> int:
    """Return the number of the loop along which the device's memory is read, or written, element by element."""
    accesses: list[tuple[Index, ...]] = [
        n.index for n in walk(*nest.body) if isinstance(n, Load | Store) and n.buffer in device and n.index
    ]
    for index in accesses:
        form = coefficients(index[-1])
        for k, loop in enumerate(nest.loops):
            if form is not None and form[0].get(Var(loop.var)) == 1 and nest.extents[k] > 1:
                return k
    return len(nest.loops) - 1


def _lanes(nest: _Nest, last: For, extent: int, block: Geometry, device: Mapping[str, Buffer], staged: bool) -> int:
    """Return how many neighbours one thread copies at once: 16 bytes at most, so that every thread has some, and whole where they end.
    Where they cannot be one access each thread copies one, and its neighbour the next: a warp then asks for lines as a whole. Bytes that
    are copied ahead of a loop stay together all the same: in many rounds it would be too much to prove that threads wait for them."""
    count = prod(nest.extents)
    accesses = [n for n in walk(*nest.body) if isinstance(n, Load | Store) and n.buffer in device and n.index]
    size_bytes = max((device[n.buffer].dtype.size_bytes for n in accesses), default=4)
    fitting = [n for n in (16, 8, 4, 2) if n * size_bytes <= BYTES and extent % n == 0 and count // n >= block.threads]
    ends = [n for n in fitting if last.hi == Int(extent) or is_multiple(last.hi, n)]
    if staged and size_bytes == 1:
        return (*ends, *fitting[-1:], 1)[0]
    algebra = Algebra.of({})
    return next((n for n in ends if any(contiguous(device[a.buffer], a.index, last.var, n, algebra) for a in accesses)), 1)
