"""Run a sweep in lanes where it reads back what it stored that many iterations before, as far as only the run tells.

    before   for n in k .. N { p[n] = p[n] + p[n - k] }

    after    if k >= 8 {
                 for n in 0 .. (N - k) // 8 { for l in 0 .. 8 vector 8 { p[8*n + l + k] = p[8*n + l + k] + p[8*n + l] } }
                 for n in k + 8*((N - k) // 8) .. N { p[n] = p[n] + p[n - k] }
             } else {
                 for n in k .. N { p[n] = p[n] + p[n - k] }
             }

A serial loop of one statement, which stores neighbours and reads neighbours, or one element for all. What lies ahead is read before it is
stored, in lanes too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from codegen.dtypes import DType, i64
from codegen.loops.indices import Algebra, coefficients
from codegen.loops.nodes import (
    Add,
    Binary,
    Call,
    Compare,
    Const,
    Expr,
    FloorDiv,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Max,
    Mul,
    Select,
    Stmt,
    Store,
    ValueIndex,
    Var,
)
from codegen.loops.replace_loops import replace_loops
from codegen.loops.verify import Env
from codegen.loops.walk import Fresh, free_vars, fresh_for, loads, substitute, walk


def lanes_by_distance(function: Function, lanes: Callable[[DType], int]) -> Function:
    """Return `function` with such loops in lanes, as many as a register has of a type."""
    fresh = fresh_for(function)

    def replaced(loop: For, env: Env) -> Sequence[Stmt]:
        width = lanes(env.buffers[loop.body[0].buffer].dtype) if isinstance(loop.body[0], Store) else 1
        apart = _distances(loop) if width > 1 else ()
        return (_in_lanes(loop, apart, width, fresh),) if apart else ()

    return replace_loops(function, replaced)


def _distances(loop: For) -> tuple[Index, ...]:
    """Return how many iterations before a loop stored what it reads back, where that is not known, and lanes may run it where these are so
    many; nothing where they may not."""
    match loop:
        case For(var=var, kind="serial", notes=(), body=(Store(index=(*outer, last)) as store,)) if _goes_along(last, var, {1}):
            pass
        case _:
            return ()
    if var in free_vars(*outer) or store.stream or store.across or store.later:
        return ()
    if any(isinstance(n, Call | ValueIndex | Select) for n in walk(store.value)):
        return ()
    algebra, found = Algebra.of({}), list[Index]()
    for load in loads(store.value):
        if load.index and not (var not in free_vars(*load.index[:-1]) and _goes_along(load.index[-1], var, {0, 1})):
            return ()
        if load.buffer != store.buffer:
            continue
        if [algebra.poly(i) for i in load.index[:-1]] != [algebra.poly(i) for i in outer]:
            return ()
        apart = algebra.simplify(Add(last, Mul(Int(-1), load.index[-1])))
        if var in free_vars(apart) or (isinstance(apart, Int) and apart.value > 0):
            return ()
        found += [] if isinstance(apart, Int) else [apart]
    return tuple(dict.fromkeys(found))


def _goes_along(index: Index, var: str, steps: set[int]) -> bool:
    """Tell whether an index goes so far in each iteration."""
    found = coefficients(index)
    if found is None or any(var in free_vars(atom) and atom != Var(var) for atom in found[0]):
        return False
    return found[0].get(Var(var), 0) in steps


def _in_lanes(loop: For, apart: tuple[Index, ...], width: int, fresh: Fresh) -> Stmt:
    """Return a loop that runs in lanes where it reads back what it stored as many iterations before, or more."""
    lane, (store,) = fresh(f"{loop.var}_v"), loop.body
    algebra = Algebra.of({})
    count = algebra.simplify(Max(Int(0), FloorDiv(Add(loop.hi, Mul(Int(-1), loop.lo)), Int(width))))
    at = algebra.simplify(Add(Add(loop.lo, Mul(Int(width), Var(loop.var))), Var(lane)))
    vector = For(lane, Int(0), Int(width), (substitute(store, {loop.var: at}),), "vector", width)
    rest = replace(loop, lo=algebra.simplify(Add(loop.lo, Mul(Int(width), count))), extent=width)
    there = [Compare(">=", IndexValue(e), Const(width, i64)) for e in apart]
    asked: Expr = there[0]
    for other in there[1:]:
        asked = Binary("and", asked, other)
    return If(asked, (replace(loop, lo=Int(0), hi=count, extent=None, body=(vector,)), rest), (loop,))
