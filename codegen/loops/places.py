"""Places: the first or the last index for which something holds, kept once, and not for each lane.

    before   for l in 0 .. 64 vector { s[l] = 9223372036854775807_i64 }
             for o in 0 .. 78 serial {
                 for v in 0 .. 64 vector { if x[64*o + v] > t[] { s[v] = min(s[v], index(64*o + v)) } }
             }
             for l in 0 .. 64 vector { y[] = min(y[], s[l]) }
    after    s[] = 9223372036854775807_i64
             for o in 0 .. 78 serial {
                 for v in 0 .. 64 vector { if x[64*o + v] > t[] { s[] = min(s[], index(64*o + v)) } }
             }
             y[] = min(y[], s[])

Among lanes whose indices rise, the one of the least is the first, whose number is counted in the bits of a mask. An index for each lane
takes a register for every eight of them, and in the end a tree of minima.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from codegen.dtypes import i32, i64
from codegen.loops.indices import coefficients
from codegen.loops.nodes import Alloc, Binary, Buffer, Cast, Const, Expr, For, Function, If, Index, IndexValue, Int, Load, Stmt, Store, Var
from codegen.loops.walk import free_vars, loads, statements, stores

_REFUSED = "refused"


def with_places(function: Function) -> Function:
    """Return `function` with the least or greatest indices that lanes collect, and that end in one result, collected in one element."""
    found = {s.buffer.name: s.buffer for s in statements(*function.body) if isinstance(s, Alloc) and _may_collect(s.buffer)}
    for buffer in found.values():
        uses = [*_uses(function.body, buffer, None)]
        if {"collected", "ended"} <= {use for use, _ in uses} and len({op for _, op in uses if op}) == 1:
            function = replace(function, body=tuple(_in_one(s, buffer) for s in function.body))
    return function


def index_of(term: Expr) -> Index | None:
    """Return the index that a term is, as a whole number of some type."""
    match term:
        case IndexValue(index) | Cast(_, IndexValue(index)):
            return index
        case _:
            return None


def _may_collect(buffer: Buffer) -> bool:
    return buffer.space == "registers" and buffer.dtype in (i32, i64) and bool(buffer.shape) and buffer.shape[-1] != Int(1)


def _uses(block: Iterable[Stmt], buffer: Buffer, lane: str | None) -> Iterator[tuple[str, str]]:
    """Yield what statements do with a buffer, and the operation by which they do."""
    for s in block:
        if not any(x.buffer == buffer.name for x in loads(s)) and not any(x.buffer == buffer.name for x in stores(s)):
            continue
        match s:
            case For(var=var, body=(Store() as only,)) if _goes_along(s, buffer) and (use := _use_of_all(only, var, buffer)):
                yield use
            case For(var=var, body=body):
                yield from _uses(body, buffer, var if s.kind == "vector" else lane)
            case If(cond, then, orelse) if all(x.buffer != buffer.name for x in loads(cond)):
                yield from _uses((*then, *orelse), buffer, lane)
            case Store() if lane is not None and (op := _collects(s, buffer, lane)):
                yield "collected", op
            case _:
                yield _REFUSED, _REFUSED


def _goes_along(loop: For, buffer: Buffer) -> bool:
    """Tell whether the lanes of a loop are those of a buffer."""
    return loop.kind == "vector" and loop.lo == Int(0) and loop.hi == buffer.shape[-1]


def _use_of_all(s: Store, lane: str, buffer: Buffer) -> tuple[str, str] | None:
    """Return what a statement does with all lanes of a buffer, if it begins them or brings them together."""
    match s:
        case Store(buffer.name, (*place, Var(last)), Const()) if last == lane and lane not in free_vars(*place):
            return "begun", ""
        case Store(result, at, Binary("min" | "max" as op, Load(of, to), Load(buffer.name, (*place, Var(last))))):
            together = (of, to) == (result, at) and result != buffer.name and last == lane and lane not in free_vars(*place, *at)
            return ("ended", op) if together else None
        case _:
            return None


def _collects(s: Store, buffer: Buffer, lane: str) -> str | None:
    """Return how a lane takes an index to those that it has: neighbours have indices one or more apart, in their order."""
    match s:
        case Store(buffer.name, (*place, Var(last)) as at, Binary("min" | "max" as op, Load(of, own), term)) if last == lane:
            index, alone = index_of(term), all(x.buffer != buffer.name for x in loads(term))
            found = coefficients(index) if index is not None else None
            if found is None or found[0].get(Var(lane), 0) <= 0 or any(lane in free_vars(e) for e in found[0] if e != Var(lane)):
                return None
            return op if (of, own) == (s.buffer, at) and alone and lane not in free_vars(*place) else None
        case _:
            return None


def _in_one(s: Stmt, buffer: Buffer) -> Stmt:
    """Return a statement that keeps one element of a buffer where it kept one for each lane."""
    match s:
        case Alloc(found) if found.name == buffer.name:
            return Alloc(replace(found, shape=found.shape[:-1]))
        case For(var=var, body=(Store() as only,)) if _goes_along(s, buffer) and _use_of_all(only, var, buffer):
            return _in_one(only, buffer)
        case For(body=body):
            return replace(s, body=tuple(_in_one(inner, buffer) for inner in body))
        case If(cond, then, orelse):
            return If(cond, tuple(_in_one(inner, buffer) for inner in then), tuple(_in_one(inner, buffer) for inner in orelse))
        case Store(name, at, Binary(op, own, Load(buffer.name, place))) if name != buffer.name:
            return Store(name, at, Binary(op, own, Load(buffer.name, place[:-1])))
        case Store(buffer.name, (*place, _), Const() as begin):
            return Store(buffer.name, tuple(place), begin)
        case Store(buffer.name, (*place, _), Binary(op, _, term)):
            return Store(buffer.name, tuple(place), Binary(op, Load(buffer.name, tuple(place)), term))
        case _:
            return s
