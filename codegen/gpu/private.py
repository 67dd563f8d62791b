"""Where the buffers of a block live: in the registers of its threads, or in the memory they share.

A buffer goes into registers where every access finds its element in the thread that it runs on: the subscripts are sums of what
belongs to the thread and what does not, like digits of a number.

    alloc acc: f32[64]            acc[4*ty + ii] for ty thread.y 16, ii unroll 4    ->  alloc acc: f32[4] registers, acc[ii]
    alloc part: f32[1024]         part[t + 256*u] for t thread 256, u unroll 4      ->  alloc part: f32[4] registers, part[u]

Everything else, where its extents are constant, is shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from codegen.errors import Unfit
from codegen.gpu.geometry import Geometry
from codegen.gpu.matrix import SUMS
from codegen.loops.indices import coefficients
from codegen.loops.nodes import THREADS, Add, Alloc, Buffer, Expr, For, If, Index, Int, Load, LoopKind, Mma, Mul, Stmt, Store, Var
from codegen.loops.walk import children, map_expr, map_index, map_stmt, walk

REGISTERS = 256
"""How many elements of one buffer a thread keeps to itself at most."""

_Loops: TypeAlias = Mapping[str, For]


@dataclass(frozen=True, slots=True)
class _Access:
    index: tuple[Index, ...]
    loops: _Loops
    """The loops between the allocation and the access."""
    stores: bool = False
    """By every iteration on its own: not a reduction over threads."""


@dataclass(frozen=True, slots=True)
class _Digits:
    """How one subscript is cut: the thread's terms, largest first, and what remains between them as extents (above, …, below)."""

    terms: tuple[tuple[LoopKind, int, int], ...]
    """(place, coefficient, extent)"""
    extents: tuple[int, ...]


def place_buffers(body: tuple[Stmt, ...], block: Geometry) -> tuple[Stmt, ...]:
    """Return `body` with every buffer it allocates in `registers` (cut to what one thread has of it) or `shared`."""
    return _block(body, block, inside=False)


def _block(body: tuple[Stmt, ...], block: Geometry, *, inside: bool) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    rest = body
    while rest:
        stmt, rest = rest[0], rest[1:]
        match stmt:
            case Alloc(buffer):
                new, rest = _home(buffer, rest, block, inside=inside)
                out.append(Alloc(new))
            case For():
                within = inside or stmt.kind in THREADS
                out.append(replace(stmt, body=_block(stmt.body, block, inside=within)))
            case If():
                then, orelse = (_block(part, block, inside=inside) for part in (stmt.then, stmt.orelse))
                out.append(replace(stmt, then=then, orelse=orelse))
            case _:
                out.append(stmt)
    return tuple(out)


def _home(buffer: Buffer, rest: tuple[Stmt, ...], block: Geometry, *, inside: bool) -> tuple[Buffer, tuple[Stmt, ...]]:
    shape = [e.value for e in buffer.shape if isinstance(e, Int)]
    if len(shape) < len(buffer.shape):
        raise Unfit(f"the extents of `{buffer.name}` inside a block are not constant", buffer.name)
    if buffer.space == "shared":
        return buffer, rest
    rest = _at_zero(rest, buffer.name, frozenset(k for k, extent in enumerate(shape) if extent == 1))
    if buffer.space == "tiles":
        return replace(buffer, space="registers"), rest
    accesses = list(_accesses(rest, buffer.name, {}))
    cuts = [_cut(axis, extent, accesses, block) for axis, extent in enumerate(shape)]
    kept = [c for c in cuts if c is not None]
    count = 1
    for cut in kept:
        for extent in cut.extents:
            count *= extent
    if len(kept) == len(cuts) and count <= REGISTERS:
        extents = [e for cut in kept for e in cut.extents]
        wanted = [k for k, e in enumerate(extents) if e > 1]
        if (loop := _met(kept, accesses, block)) is not None:
            raise Unfit(
                f"not supported yet: threads of `{loop.var}` that meet in `{buffer.name}` other than in a plain reduction", loop.var
            )
        new = replace(buffer, space="registers", shape=tuple(Int(extents[k]) for k in wanted))
        rest = _redirected(rest, buffer.name, kept, wanted, block)
        return (new, rest) if not _is_multiplied(buffer.name, rest) else _in_row(new, rest)
    if inside:
        if any(loop.kind in THREADS for a in accesses for loop in a.loops.values()):
            raise Unfit(f"`{buffer.name}`, which each thread has of its own, is spread over threads", buffer.name)
        return replace(buffer, space="stack"), rest
    return replace(buffer, space="shared"), rest


def _is_multiplied(name: str, rest: tuple[Stmt, ...]) -> bool:
    return any(isinstance(n, Mma) and n.sums.buffer == name for n in walk(*rest))


def _in_row(buffer: Buffer, rest: tuple[Stmt, ...]) -> tuple[Buffer, tuple[Stmt, ...]]:
    """Return sums of a warp, and what follows them, with the last two axes, a lane's part of a tile, as one."""
    *outer, high, low = (e.value for e in buffer.shape if isinstance(e, Int))
    groups = 1
    if high * low != SUMS:  # of four warps: the rows of a lane, then groups of columns, and the columns of a lane in each
        groups, high = high, outer.pop()
    assert high * low == SUMS, "a lane has as many sums of a tile as an instruction says"

    def place(index: tuple[Index, ...]) -> tuple[Index, ...]:
        if groups == 1:
            return (*index[:-2], Add(Mul(Int(low), index[-2]), index[-1]))
        *rest, row, group, column = index
        return (*rest, Add(Add(Mul(Int(SUMS), group), Mul(Int(low), row)), column))

    def expr(e: Expr) -> Expr:
        match map_expr(e, lambda i: map_index(i, lambda x: x, expr), expr):
            case Load(name, where) if name == buffer.name:
                return Load(name, place(where))
            case other:
                return other

    def stmt(s: Stmt) -> Stmt:
        match map_stmt(s, lambda i: i, expr, stmt):
            case Store(name, where) as store if name == buffer.name:
                return replace(store, index=place(where))
            case other:
                return other

    return replace(buffer, shape=tuple(map(Int, (*outer, groups * SUMS)))), tuple(stmt(s) for s in rest)


def _at_zero(rest: tuple[Stmt, ...], name: str, axes: frozenset[int]) -> tuple[Stmt, ...]:
    """Return `rest` with 0 for the subscripts of `axes`, which have one element, however they are written."""
    if not axes:
        return rest

    def there(place: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(Int(0) if k in axes else e for k, e in enumerate(place))

    def index(e: Index) -> Index:
        return map_index(e, index, expr)

    def expr(e: Expr) -> Expr:
        match map_expr(e, index, expr):
            case Load(buffer, place) if buffer == name:
                return Load(name, there(place))
            case other:
                return other

    def stmt(s: Stmt) -> Stmt:
        new = map_stmt(s, index, expr, stmt)
        return replace(new, index=there(new.index)) if isinstance(new, Store) and new.buffer == name else new

    return tuple(stmt(s) for s in rest)


def _met(cuts: list[_Digits], accesses: list[_Access], block: Geometry) -> For | None:
    """Return a loop whose threads store to one cell, or None: each of them would keep a value of its own."""
    own = {block.digit(place).stride for cut in cuts for place, _, _ in cut.terms}
    threads = (loop for a in accesses if a.stores for loop in a.loops.values() if loop.kind in THREADS and loop.extent != 1)
    return next((loop for loop in threads if block.digit(loop.kind).stride not in own), None)


def _accesses(body: tuple[Stmt, ...], name: str, loops: _Loops) -> Iterator[_Access]:
    """Yield every access to buffer `name` in `body`."""
    for stmt in body:
        if isinstance(stmt, For):
            yield from _reads((stmt.lo, stmt.hi), name, loops)
            yield from _accesses(stmt.body, name, {**loops, stmt.var: stmt})
            continue
        if isinstance(stmt, Store) and stmt.buffer == name:
            yield _Access(stmt.index, loops, not stmt.across)
        if isinstance(stmt, Mma) and stmt.sums.buffer == name:
            yield _Access(stmt.sums.index, loops, True)
        parts = children(stmt)
        yield from _reads(tuple(p for p in parts if not isinstance(p, Stmt)), name, loops)
        yield from _accesses(tuple(p for p in parts if isinstance(p, Stmt)), name, loops)


def _reads(nodes: tuple[object, ...], name: str, loops: _Loops) -> Iterator[_Access]:
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, Load) and node.buffer == name:
            yield _Access(node.index, loops)
        pending.extend(children(node))  # type: ignore[arg-type]


def _cut(axis: int, extent: int, accesses: list[_Access], block: Geometry) -> _Digits | None:
    """Return how subscript `axis` is cut, the same for all accesses, or None where it cannot be."""
    found: set[tuple[tuple[LoopKind, int, int], ...]] = set()
    for access in accesses:
        form = coefficients(access.index[axis])
        if form is None:
            return None
        terms: list[tuple[LoopKind, int, int]] = []
        for atom, scale in form[0].items():
            loop = access.loops.get(atom.name) if isinstance(atom, Var) else None
            if loop is None or loop.lo != Int(0) or (loop.extent is None and loop.kind in THREADS):
                return None
            if loop.kind in THREADS:
                terms.append((loop.kind, scale, block.span(loop.kind) if loop.extent is None else loop.extent))
        found.add(_alike(tuple(sorted(terms, key=lambda t: -t[1])), block))
    if len({tuple((place, scale) for place, scale, _ in terms) for terms in found}) > 1:
        return None
    cut = _digits(max(found, key=_spans, default=()), extent)
    if cut is None or any(_local(access, axis, cut) is None for access in accesses):
        return None
    return cut


def _alike(terms: tuple[tuple[LoopKind, int, int], ...], block: Geometry) -> tuple[tuple[LoopKind, int, int], ...]:
    """Return terms that are the number of the thread as such, however they are written."""
    match terms:
        case (("warp", high, warps), ("lane", low, lanes)) if high == block.warp * low and lanes == block.warp:
            return (("thread", low, warps * lanes),)
        case (("thread.x", scale, extent),) if block.span("thread.x") == block.threads:
            return (("thread", scale, extent),)
        case _:
            return terms


def _spans(terms: tuple[tuple[LoopKind, int, int], ...]) -> list[int]:
    return [extent for _, _, extent in terms]


def _digits(terms: tuple[tuple[LoopKind, int, int], ...], extent: int) -> _Digits | None:
    extents: list[int] = []
    above = extent
    for _, scale, count in terms:
        whole = scale * count
        if scale < 1 or (above > whole and above % whole and extents):
            return None
        extents.append(max(1, -(-above // whole)))
        above = scale
    return _Digits(terms, (*extents, above))


def _local(access: _Access, axis: int, cut: _Digits) -> tuple[Index, ...] | None:
    """Return what of the subscript is not the thread's, digit by digit, or None where the digits run into each other."""
    form = coefficients(access.index[axis])
    assert form is not None
    left = {atom.name: scale for atom, scale in form[0].items() if isinstance(atom, Var) and access.loops[atom.name].kind not in THREADS}
    constant = form[1]
    out: list[Index] = []
    units = [scale * count for _, scale, count in cut.terms] + [1]
    for unit, most in zip(units, cut.extents, strict=True):
        mine = {name: scale // unit for name, scale in left.items() if scale % unit == 0 and scale > 0}
        here, constant = divmod(constant, unit)
        left = {name: scale for name, scale in left.items() if name not in mine}
        greatest = here
        for name, scale in mine.items():
            loop = access.loops[name]
            if loop.kind not in ("unroll", "vector", "tensor") or loop.extent is None:
                return None
            greatest += scale * (loop.extent - 1)
        if here < 0 or greatest >= most:
            return None
        digit: Index = Int(here)
        for name, scale in mine.items():
            term: Index = Var(name) if scale == 1 else Mul(Int(scale), Var(name))
            digit = term if digit == Int(0) else Add(digit, term)
        out.append(digit)
    return None if left else tuple(out)


def _redirected(rest: tuple[Stmt, ...], name: str, cuts: list[_Digits], wanted: list[int], block: Geometry) -> tuple[Stmt, ...]:
    """Return `rest` with the accesses to `name` at the digits `wanted` of what each thread has of it."""

    def place(index: tuple[Index, ...], loops: _Loops) -> tuple[Index, ...]:
        digits: list[Index] = []
        for axis, cut in enumerate(cuts):
            found = _local(_Access(index, loops), axis, cut)
            assert found is not None
            digits += found
        return tuple(digits[k] for k in wanted)

    def rewritten(loops: _Loops, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        def index(e: Index) -> Index:
            return map_index(e, index, expr)

        def expr(e: Expr) -> Expr:
            match map_expr(e, index, expr):
                case Load(buffer, where) if buffer == name:
                    return Load(name, place(where, loops))
                case other:
                    return other

        def stmt(s: Stmt) -> Stmt:
            if isinstance(s, For):
                return replace(s, lo=index(s.lo), hi=index(s.hi), body=rewritten({**loops, s.var: s}, s.body))
            new = map_stmt(s, index, expr, stmt)
            return replace(new, index=place(new.index, loops)) if isinstance(new, Store) and new.buffer == name else new

        return tuple(stmt(s) for s in body)

    return rewritten({}, rest)
