"""Copies that run ahead of the loop that needs them: what `stages n` on a loop asks for, on a processor.

    for k in 0 .. K (stages 2) {                      alloc s: f32[2, 16]
        alloc s: f32[16]                              if 0 < K { for i in 0 .. 16 { s[0, i] = a[0, i] } }
        for i in 0 .. 16 { s[i] = a[k, i] }       →   for k in 0 .. K {
        for r in 0 .. 8 { … s[…] … }                      for r in 0 .. 8 {
    }                                                         for i in 2*r .. 2*r + 2 { s[(k + 1) % 2, i] = a[k + 1, i] }
                                                              … s[k % 2, …] …
                                                          }
                                                      }

The copy of a later iteration comes in pieces, one with each turn of the first loop of the work, so that its loads are under way while the
work multiplies; where either has no constant number of turns, it comes before the work.

Iteration k works in buffer k % n and fills the one of iteration k + n - 1, which that of k - 1 worked in: so nothing waits, and no order
that was proven changes. What runs ahead fills a buffer of an iteration, from what no iteration writes. Devices do the same with copies of
their own (`codegen.gpu.pipeline`).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace

from codegen.errors import Unfit
from codegen.loops.nodes import (
    BLOCKS,
    THREADS,
    Add,
    Alloc,
    Compare,
    Expr,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    Mod,
    Mul,
    Prefetch,
    Stmt,
    Store,
    Var,
)
from codegen.loops.notes import Staged
from codegen.loops.walk import (
    Fresh,
    fresh_for,
    loads,
    map_expr,
    map_index,
    map_stmt,
    names,
    noted_loops,
    rename,
    statements,
    stores,
    substitute,
)

PLACES = frozenset({"heap", "stack"})


def staged(function: Function) -> Function:
    """Return `function` with the copies of its staged loops ahead of them. A staged loop may stand in several places, of which some copy
    nothing; those stay as they are, and so do loops of a device.

    Raises Unfit where there are staged loops, and none of them copies anything that could run ahead."""
    found = [n for n in statements(*function.body) if isinstance(n, For)]
    asked = [loop for loop, _ in noted_loops(Staged, *function.body)]
    if not asked or any(loop.kind in BLOCKS | THREADS for loop in found):
        return function
    if not any(pipelined_copies(loop, PLACES) for loop in asked):
        names_ = [loop.var for loop in asked]
        raise Unfit(f"`{names_[0]}` copies nothing that could run ahead of it: only what no iteration of it writes can", *names_)
    return replace(function, body=_block(function.body, _Homes(fresh_for(function))))


def pipelined_copies(loop: For, spaces: Set[str]) -> tuple[Stmt, ...]:
    """Return what stands in `loop` and fills memory of an iteration, in one of `spaces`, from what no iteration writes."""
    own = {s.buffer.name for s in loop.body if isinstance(s, Alloc) and s.buffer.space in spaces}
    inside = {s.buffer.name for s in loop.body if isinstance(s, Alloc)}
    written = {s.buffer for s in stores(*loop.body)}
    bound = {s.name for s in loop.body if isinstance(s, Let)}
    found: list[Stmt] = []
    for s in loop.body:
        targets = {store.buffer for store in stores(s)}
        read = {load.buffer for load in loads(s)}
        if not isinstance(s, For | If | Store) or not targets or not targets <= own or read & (written | inside) or names(s) & bound:
            continue
        found.append(s)
    elsewhere = {store.buffer for s in loop.body if s not in found for store in stores(s)}
    return tuple(s for s in found if not {store.buffer for store in stores(s)} & elsewhere)


def at_stage(s: Stmt, loop: For, at: Index, stage: Index, staged: Set[str]) -> Stmt:
    """Return `s` as iteration `at` runs it, with the buffers in `staged` at `stage`."""
    moved = s if at == Var(loop.var) else substitute(s, {loop.var: at})

    def index(e: Index) -> Index:
        return map_index(e, index, expr)

    def expr(e: Expr) -> Expr:
        match map_expr(e, index, expr):
            case Load(buffer, place) if buffer in staged:
                return Load(buffer, (stage, *place))
            case other:
                return other

    def stmt(inner: Stmt) -> Stmt:
        match map_stmt(inner, index, expr, stmt):
            case Store(buffer, place) as store if buffer in staged:
                return replace(store, index=(stage, *place))
            case Prefetch(buffer, place) as prefetch if buffer in staged:
                return replace(prefetch, index=(stage, *place))
            case other:
                return other

    return stmt(moved)


@dataclass(slots=True)
class _Homes:
    """The names of buffers that stand before the loops they were in. Parts of one loop have buffers of one name, which now meet."""

    fresh: Fresh
    taken: set[str] = field(default_factory=set)

    def apart(self, loop: For, staged: Set[str]) -> For:
        """Return `loop` with the buffers in `staged` called as no others are."""
        new = {name: self.fresh(name) for name in sorted(staged & self.taken)}
        self.taken |= staged
        return replace(loop, body=rename(loop.body, new))


def _block(body: tuple[Stmt, ...], homes: _Homes) -> tuple[Stmt, ...]:
    return tuple(new for s in body for new in _stmt(s, homes))


def _stmt(s: Stmt, homes: _Homes) -> tuple[Stmt, ...]:
    match s:
        case For():
            inner = replace(s, body=_block(s.body, homes))
            return (inner,) if (note := s.note(Staged)) is None else _staged(inner, note.stages, homes)
        case If(_, then, orelse):
            return (replace(s, then=_block(then, homes), orelse=_block(orelse, homes)),)
        case _:
            return (s,)


def _staged(loop: For, stages: int, homes: _Homes) -> tuple[Stmt, ...]:
    loop = loop.without(Staged)
    found = pipelined_copies(loop, PLACES)
    if not found:
        return (loop,)
    loop = homes.apart(loop, {s.buffer for s in stores(*found)})
    copies = pipelined_copies(loop, PLACES)
    staged = {s.buffer for s in stores(*copies)}
    held = [s.buffer for s in loop.body if isinstance(s, Alloc) and s.buffer.name in staged]
    rest = tuple(s for s in loop.body if s not in copies and not (isinstance(s, Alloc) and s.buffer.name in staged))
    number, count = Add(Var(loop.var), Mul(Int(-1), loop.lo)), Int(stages)
    later, ahead = Add(Var(loop.var), Int(stages - 1)), Mod(Add(number, Int(stages - 1)), count)
    out: list[Stmt] = [Alloc(replace(b, shape=(count, *b.shape))) for b in held]
    for k in range(stages - 1):
        at = Add(loop.lo, Int(k))
        out.append(If(_below(at, loop.hi), tuple(at_stage(c, loop, at, Int(k), staged) for c in copies)))
    work = tuple(at_stage(s, loop, Var(loop.var), Mod(number, count), staged) for s in rest)
    before: list[Stmt] = []
    for copy in copies:
        pieces, turn = _pieces(copy, work)
        begun = If(_below(later, loop.hi), tuple(at_stage(piece, loop, later, ahead, staged) for piece in pieces))
        if turn is None:
            before.append(begun)
        else:
            work = tuple(replace(s, body=(begun, *s.body)) if s is turn and isinstance(s, For) else s for s in work)
    return (*out, replace(loop, body=(*before, *work)))


def _pieces(copy: Stmt, work: tuple[Stmt, ...]) -> tuple[tuple[Stmt, ...], For | None]:
    """Return what of `copy` each turn of a loop of the work does, and that loop; all of it and None where it cannot be cut."""
    turn = next((s for s in work if isinstance(s, For) and s.kind == "serial" and s.lo == Int(0) and (s.extent or 0) > 1), None)
    match copy:
        case For(lo=Int(0), extent=int(extent), kind="serial") if turn is not None and turn.extent is not None and extent > 1:
            each = -(-extent // turn.extent)
            index = Add(Mul(Int(each), Var(turn.var)), Var(copy.var))
            some = tuple(substitute(s, {copy.var: index}) for s in copy.body)
            return (For(copy.var, Int(0), Int(each), (If(_below(index, copy.hi), some),), "serial", each),), turn
        case _:
            return (copy,), None


def _below(at: Index, end: Index) -> Expr:
    return Compare("<", IndexValue(at), IndexValue(end))
