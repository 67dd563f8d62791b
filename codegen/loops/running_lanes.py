"""Run in lanes what goes on with what has been collected so far, where the grouping changes nothing: prefix sums of whole numbers, running
minima and maxima, parities (Hillis and Steele 1986).

    before   for i in 1 .. 100 serial {
                 let n = s[0] + select(x[i] > 0, 1, 0)
                 y[i] = n
                 s[0] = n
             }
    after    for o in 0 .. 12 serial {
                 for l in 0 .. 8 vector {
                     let n = s[0] + select(x[8*o + l + 1] > 0, 1, 0)
                     y[8*o + l + 1] = n
                     s[0] = n
                 }
             }
             for i in 97 .. 100 serial { … }

The terms read neighbours, or one element for all, and may be made of other running results of the same iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from codegen.dtypes import DType
from codegen.loops.indices import Algebra, coefficients
from codegen.loops.nodes import (
    Add,
    Binary,
    Compare,
    Const,
    Expr,
    FloorDiv,
    For,
    Function,
    If,
    Int,
    Let,
    Load,
    Max,
    Mul,
    Name,
    Select,
    Stmt,
    Store,
    Var,
)
from codegen.loops.partial_results import is_near
from codegen.loops.running_results import combined_with, running_results
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import Fresh, free_vars, fresh_for, loads, map_expr, substitute

LEAST_LANES = 4
"""Fewer take as long to combine with each other as one after the other."""
LEAST_VECTORS = 2
"""Whole vectors that a loop has, where it is known how long it is."""


def with_running_lanes(function: Function, lanes: Callable[[DType], int]) -> Function:
    """Return `function` with such loops in lanes, as many as a register has of the widest type among what they read and store."""
    return replace(function, body=_block(function.body, Env.of(function), lanes, fresh_for(function)))


def _block(block: Iterable[Stmt], env: Env, lanes: Callable[[DType], int], fresh: Fresh) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in block:
        match s:
            case For(kind="serial" | "parallel" | "unroll"):
                body = _with_names(s, env, fresh)
                in_lanes = () if body is None else _in_lanes(replace(s, body=body), env, lanes, fresh)
                out += in_lanes or [replace(s, body=_block(s.body, env.with_loop(s), lanes, fresh))]
            case If():
                out.append(replace(s, then=_block(s.then, env, lanes, fresh), orelse=_block(s.orelse, env, lanes, fresh)))
            case _:
                out.append(s)
        env = env.after(s)
    return tuple(out)


def _with_names(loop: For, env: Env, fresh: Fresh) -> tuple[Stmt, ...] | None:
    """Return what a loop does, each running result having a name by which it is read in the rest of the iteration; None where iterations
    wait for each other in any other way, or for nothing."""
    env, out, known = env.with_loop(loop), list[Stmt](), dict[Load, Name]()
    if loop.kind != "serial" or loop.notes:
        return None
    for s in loop.body:
        match s:
            case Let(name, value):
                s = Let(name, _named(value, known))
            case Store(buffer, index, value, stream=False, across=False, later=False):
                if env.buffers[buffer].space == "registers" and loop.var not in free_vars(*index):
                    own, value = Load(buffer, index), _named(value, known)
                    if any(x.buffer == buffer for x in known):
                        return None
                    if not isinstance(value, Name):
                        bound = Let(fresh(f"{buffer}_new"), value)
                        out.append(bound)
                        env, value = env.after(bound), Name(bound.name)
                    known[own] = value
                    s = Store(buffer, index, value)
                elif not _goes_along(s, loop.var):
                    return None
                else:
                    s = replace(s, value=_named(value, known))
            case _:
                return None
        out.append(s)
        env = env.after(s)
    return _collected(tuple(out), known, env) if known else None


def _named(e: Expr, known: dict[Load, Name]) -> Expr:
    """Return an expression that reads running results by their names."""
    if isinstance(e, Load) and e in known:
        return known[e]
    return map_expr(e, lambda index: index, lambda child: _named(child, known))


def _goes_along(store: Store, var: str) -> bool:
    """Tell whether iterations store neighbours one after the other."""
    if not store.index or var in free_vars(*store.index[:-1]):
        return False
    found = coefficients(store.index[-1])
    return found is not None and found[0].get(Var(var)) in (1, -1) and not any(var in free_vars(e) and e != Var(var) for e in found[0])


def _collected(body: tuple[Stmt, ...], known: dict[Load, Name], env: Env) -> tuple[Stmt, ...] | None:
    """Return the body of a loop in which running results are said as such, if all are and their grouping changes nothing."""
    owners, out = {n.name: own for own, n in known.items()}, list[Stmt]()
    for s in body:
        if isinstance(s, Let) and s.name in owners:
            own, dtype = owners[s.name], dtype_of(s.value, env)
            parts = _parts(s.value, own, dtype)
            if parts is None or (dtype.is_float and parts[0] not in ("min", "max")) or any(x == own for x in loads(parts[1])):
                return None
            op, term = parts
            s = Let(s.name, Compare("!=", own, term) if op == "bitxor" and dtype.kind == "bool" else Binary(op, own, term))  # type: ignore[arg-type]
        out.append(s)
    return tuple(out) if {*running_results(out)} == {*owners} else None


def _parts(value: Expr, own: Load, dtype: DType) -> tuple[str, Expr] | None:
    """Return the operation by which a value goes on with an element, and what it adds to that."""
    found = combined_with(value, own)
    match value:
        case _ if found is not None:
            return found
        case Binary("+" | "-" as op, lhs, rhs) if not dtype.is_float:
            side, other = (lhs, rhs) if any(x == own for x in loads(lhs)) else (rhs, lhs)
            inner = _parts(side, own, dtype)
            if inner is None or inner[0] != "+" or (op == "-" and side is rhs):
                return None
            return "+", Binary(op, inner[1], other)
        case Select(cond, then, orelse) if not dtype.is_float:
            sides = [("", None) if side == own else _parts(side, own, dtype) for side in (then, orelse)]
            ops = {side[0] for side in sides if side is not None and side[0]}
            if None in sides or ops != {"+"}:
                return None
            terms = [Const(dtype.zero, dtype) if side is None or side[1] is None else side[1] for side in sides]
            return "+", Select(cond, terms[0], terms[1])
        case _:
            return None


def _in_lanes(loop: For, env: Env, lanes: Callable[[DType], int], fresh: Fresh) -> list[Stmt]:
    """Return a loop that runs in lanes, and one for what whole vectors leave; nothing where it cannot, or is too short."""
    width = _width(loop, env, lanes)
    found = running_results(loop.body)
    written = {s.buffer: s.index for s in loop.body if isinstance(s, Store)}
    own = {x.own.buffer for x in found.values()}
    if width < LEAST_LANES:
        return []
    for s in loop.body:
        value = found[s.name].term if isinstance(s, Let) and s.name in found else s.value  # type: ignore[union-attr]
        if not (isinstance(value, Name | Const) or is_near(value, loop.var)):
            return []
        if any(x.buffer in own or written.get(x.buffer, x.index) != x.index for x in loads(value)):
            return []
    if len(written) != sum(isinstance(s, Store) for s in loop.body):
        return []
    algebra, lane, outer = Algebra.of({}), fresh(f"{loop.var}_v"), fresh(f"{loop.var}_o")
    if isinstance(loop.lo, Int) and isinstance(loop.hi, Int) and loop.hi.value - loop.lo.value < LEAST_VECTORS * width:
        return []
    count = algebra.simplify(Max(Int(0), FloorDiv(Add(loop.hi, Mul(Int(-1), loop.lo)), Int(width))))
    at = algebra.simplify(Add(Add(loop.lo, Mul(Int(width), Var(outer))), Var(lane)))
    vector = For(lane, Int(0), Int(width), tuple(substitute(s, {loop.var: at}) for s in loop.body), "vector", width)
    rest = replace(loop, lo=algebra.simplify(Add(loop.lo, Mul(Int(width), count))), extent=width)
    return [For(outer, Int(0), count, (vector,)), *([rest] if rest.lo != rest.hi else [])]


def _width(loop: For, env: Env, lanes: Callable[[DType], int]) -> int:
    names = {x.buffer for x in loads(*loop.body)} | {s.buffer for s in loop.body if isinstance(s, Store)}
    return min(lanes(env.buffers[name].dtype) for name in names)
