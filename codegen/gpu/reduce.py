"""Reductions over threads, as trees: every thread ends with the result, and the order of the sums is always the same.

    for l in 0 .. 32 lane { acc[] = acc[] + part[] }        five exchanges between lanes

What a thread has to combine by itself it combines first:

    for l lane { for k { acc[] = acc[] + x } }         →     alloc own: f32[32]
                                                            for l lane { own[l] = 0 }
                                                            for l lane { for k { own[l] = own[l] + x } }
                                                            for l lane { acc[] = acc[] + own[l] }

Over more threads than a warp has it takes two trees and shared memory between them:

    for t in 0 .. 256 thread { acc[] = acc[] + x }    →     alloc within: f32[8];  alloc across: f32[8]
                                                            for w warp, l lane: within[w] = within[w] + x
                                                            for w in 0 .. 8 warp { across[w] = within[w] }
                                                            for l in 0 .. 8 lane { acc[] = acc[] + across[l] }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from codegen.dtypes import DType, extreme
from codegen.errors import InternalError, Unfit
from codegen.gpu.geometry import Geometry
from codegen.loops.nodes import (
    THREADS,
    Add,
    Alloc,
    Binary,
    BinaryOp,
    Buffer,
    Compare,
    Const,
    Expr,
    Fma,
    For,
    If,
    Index,
    IndexValue,
    Int,
    Load,
    LoopKind,
    Mul,
    Select,
    Stmt,
    Store,
    Var,
)
from codegen.loops.printer import show_stmt
from codegen.loops.verify import is_reduction
from codegen.loops.walk import Fresh, free_vars, loads, map_expr, map_stmt, stores, substitute, walk


@dataclass(frozen=True, slots=True)
class Tree:
    """`store` combines `value` of each thread by `op`; `identity` stands for threads without one. `width`: how many threads."""

    store: Store
    op: BinaryOp
    value: Expr
    identity: Const
    width: int


def tree(loop: For, block: Geometry, outside: Mapping[str, Buffer]) -> Tree | None:
    """Return the reduction that `loop`, one of `trees`, is, or None when its threads do not meet in one cell."""
    match loop.body:
        case (Store(across=True) as store,):
            cond = None
        case (If(cond, (Store(across=True) as store,), ()),):
            pass
        case _:
            return None
    if loop.extent is None or not fits(loop, block):
        raise InternalError("gpu", f"a reduction over {loop.extent} threads along {loop.kind} is not supported yet")
    op, value = _parts(store)
    identity = Const(identity_of(op, outside[store.buffer].dtype), outside[store.buffer].dtype)
    return Tree(store, op, value if cond is None else Select(cond, value, identity), identity, _width(loop, block))


def fits(loop: For, block: Geometry) -> bool:
    """Tell whether the threads of `loop` and those that need what they combine are neighbours within warps."""
    return _width(loop, block) > 0


def _width(loop: For, block: Geometry) -> int:
    """Return among how many neighbours, a power of two, everything is exchanged; 0 where that is not within warps."""
    digit, warp = block.digit(loop.kind), block.warp
    span = digit.extent if digit.extent is not None else block.threads
    if digit.stride != 1:
        return 0
    if digit.extent is not None and span % warp == 0:
        return warp if (loop.extent or span) <= warp and span == warp else 0
    if digit.extent is None:
        return warp if span <= warp else 0
    return span if span < warp and span & (span - 1) == 0 else 0


def _meets(loop: For, outside: Mapping[str, Buffer]) -> Store | None:
    """Return a store in which the threads of `loop` meet."""
    return next((s for s in stores(*loop.body) if s.buffer in outside and loop.var not in free_vars(*s.index) and is_reduction(s)), None)


def _meeting(loop: For) -> tuple[Store, Expr | None] | None:
    """Return the store that is all that `loop` does, and the condition under which it does."""
    match loop.body:
        case (Store() as store,):
            return store, None
        case (If(cond, (Store() as store,), ()),):
            return store, cond
        case _:
            return None


def _parts_first(loop: For, meets: Store, outside: Mapping[str, Buffer], fresh: Fresh) -> tuple[Stmt, ...]:
    """Return `loop` with everything that one thread has to combine combined by itself first."""
    inner = frozenset(s.var for s in walk(*loop.body) if isinstance(s, For))
    if list(stores(*loop.body)) != [meets] or inner & free_vars(*meets.index) or loop.lo != Int(0) or loop.extent is None:
        raise Unfit(f"not supported yet: `{show_stmt(meets)}` beside other statements of a loop over threads", loop.var, meets.buffer)
    dtype = outside[meets.buffer].dtype
    op, _ = _parts(meets)
    own, first, last = Buffer(fresh("own"), dtype, (Int(loop.extent),), "heap", 16), fresh(loop.var), fresh(loop.var)
    identity = Const(identity_of(op, dtype), dtype)
    here = Store(own.name, (Var(loop.var),), _with_operand(meets, Load(own.name, (Var(loop.var),))))
    return (
        Alloc(own),
        replace(loop, var=first, body=(Store(own.name, (Var(first),), identity),)),
        replace(loop, body=tuple(_replaced(s, meets, here) for s in loop.body)),
        replace(loop, var=last, body=(replace(meets, value=_apply(op, Load(meets.buffer, meets.index), Load(own.name, (Var(last),)))),)),
    )


def _with_operand(store: Store, other: Load) -> Expr:
    """Return what `store` stores with `other` in place of the element that it changes."""
    here = Load(store.buffer, store.index)

    def swap(e: Expr) -> Expr:
        return other if e == here else map_expr(e, lambda index: index, swap)

    return swap(store.value)


def _replaced(s: Stmt, old: Store, new: Store) -> Stmt:
    return new if s == old else map_stmt(s, lambda index: index, lambda e: e, lambda inner: _replaced(inner, old, new))


def pad_to_powers_of_two(body: tuple[Stmt, ...], warp: int) -> tuple[Stmt, ...]:
    """Return `body` with reductions over thread.x on a power of two of threads, so that they can be trees within warps of so many."""
    return tuple(_whole(s, warp) for s in body)


def _whole(s: Stmt, warp: int) -> Stmt:
    match s:
        case For(kind="thread.x", extent=int(extent)) if extent < warp and any(is_reduction(x) for x in stores(*s.body)):
            return replace(s, extent=1 << (extent - 1).bit_length(), body=pad_to_powers_of_two(s.body, warp))
        case _:
            return map_stmt(s, lambda index: index, lambda e: e, lambda inner: _whole(inner, warp))


def trees(
    body: tuple[Stmt, ...], block: Geometry, outside: Mapping[str, Buffer], fresh: Fresh, divergent: frozenset[str] = frozenset()
) -> tuple[Stmt, ...]:
    """Return `body` with every reduction over threads marked as one, over more threads than a warp has as two. `divergent`: what may differ
    between the threads of a warp. Raises Unfit where not all of a warp come to an exchange."""
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For() if stmt.kind in THREADS and (meets := _meets(stmt, outside)) is not None:
                if _PARTIAL_WARP in divergent:
                    raise Unfit(
                        f"not supported yet: a reduction over the threads of `{stmt.var}`, which not all of a warp come to", stmt.var
                    )
                found = _meeting(stmt)
                if found is None:
                    out += trees(_parts_first(stmt, meets, outside, fresh), block, outside, fresh, divergent)
                elif fits(stmt, block):
                    out.append(_marked(stmt, *found))
                else:
                    out += _in_two(stmt, *found, block, outside, fresh)
            case For():
                out.append(replace(stmt, body=trees(stmt.body, block, outside, fresh, divergent | _diverging(stmt, block, divergent))))
            case If(cond, then, orelse):
                inside = divergent | ({_PARTIAL_WARP} if divergent & (free_vars(cond) | {load.buffer for load in loads(cond)}) else set())
                parts = (trees(part, block, outside, fresh, inside) for part in (then, orelse))
                out.append(If(cond, *parts))
            case Alloc(buffer):
                outside = {**outside, buffer.name: buffer}
                divergent = divergent | {buffer.name} if divergent else divergent
                out.append(stmt)
            case _:
                out.append(stmt)
    return tuple(out)


_PARTIAL_WARP = "not all of a warp"


def _diverging(loop: For, block: Geometry, divergent: frozenset[str]) -> frozenset[str]:
    """Return what differs between the threads of a warp inside of `loop` and not around it."""
    if loop.kind not in THREADS:
        bounds = (loop.lo, loop.hi)
        differs = bool(divergent & (free_vars(*bounds) | {load.buffer for load in loads(*bounds)}))
        return frozenset({_PARTIAL_WARP, loop.var}) if differs else frozenset()
    if block.digit(loop.kind).stride % block.warp == 0:
        return frozenset()
    fills = loop.lo == Int(0) and isinstance(loop.hi, Int) and loop.hi.value >= block.span(loop.kind)
    return frozenset({loop.var} if fills else {loop.var, _PARTIAL_WARP})


def _marked(loop: For, store: Store, cond: Expr | None) -> For:
    across = replace(store, across=True)
    return replace(loop, body=(across,) if cond is None else (If(cond, (across,)),))


def _in_two(loop: For, store: Store, cond: Expr | None, block: Geometry, outside: Mapping[str, Buffer], fresh: Fresh) -> list[Stmt]:
    if (block.digit(loop.kind).stride, block.span(loop.kind)) != (1, block.threads) or loop.extent is None or loop.extent > block.warp**2:
        raise Unfit(f"not supported yet: a reduction over {loop.extent} threads along {loop.kind} beside other places", loop.var)
    op, value = _parts(store)
    dtype = outside[store.buffer].dtype
    identity = Const(identity_of(op, dtype), dtype)
    warps = -(-loop.extent // block.warp)
    within = Buffer(fresh("within"), dtype, (Int(warps),), "heap", 16)
    # Where one warp has all terms, the others know the result by shared memory alone.
    across = Buffer(fresh("across"), dtype, (Int(warps),), "heap" if warps > 1 else "shared", 16)
    w, u, v, lane, last = fresh("w"), fresh("w"), fresh("w"), fresh("l"), fresh("l")
    number: Index = Add(loop.lo, Add(Mul(Int(block.warp), Var(w)), Var(lane)))
    mine = substitute(value if cond is None else Select(cond, value, identity), {loop.var: number})
    if warps * block.warp != loop.extent or not isinstance(loop.hi, Int):
        mine = Select(Compare("<", IndexValue(number), IndexValue(loop.hi)), mine, identity)
    there = Load(across.name, (Var(last),))
    here, kept = Load(within.name, (Var(w),)), Load(within.name, (Var(v),))
    return [
        Alloc(within),
        Alloc(across),
        _loop(u, warps, "warp", Store(within.name, (Var(u),), identity)),
        _loop(w, warps, "warp", _loop(lane, block.warp, "lane", Store(within.name, (Var(w),), _apply(op, here, mine), across=True))),
        _loop(v, warps, "warp", Store(across.name, (Var(v),), kept)),
        _loop(last, warps, "lane", Store(store.buffer, store.index, _apply(op, Load(store.buffer, store.index), there), across=True)),
    ]


def _loop(var: str, extent: int, kind: LoopKind, body: Stmt) -> For:
    return For(var, Int(0), Int(extent), (body,), kind, extent)


def _apply(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    return Binary(op, a, b)


def identity_of(op: BinaryOp, dtype: DType) -> float | int | bool:
    """Return what changes nothing when combined with it by `op`."""
    low, high = extreme(dtype, highest=False), extreme(dtype, highest=True)
    match op:
        case "+" | "bitor" | "bitxor":
            return 0.0 if dtype.is_float else 0
        case "*":
            return 1.0 if dtype.is_float else 1
        case "min":
            return high
        case "max":
            return low
        case "or":
            return False
        case "and":
            return True
        case "bitand":
            return -1 if dtype.kind == "int" else high
        case _:
            raise InternalError("gpu", f"`{op}` has no identity")


def _parts(store: Store) -> tuple[BinaryOp, Expr]:
    here = Load(store.buffer, store.index)
    match store.value:
        case Binary(op, lhs, rest) if lhs == here and op != "-":
            return op, rest
        case Binary(op, rest, rhs) if rhs == here:
            return op, rest
        case Fma(a, b, c) if c == here:
            return "+", Binary("*", a, b)
        case _:
            raise Unfit(f"not supported yet: `{show_stmt(store)}` over threads", store.buffer)
