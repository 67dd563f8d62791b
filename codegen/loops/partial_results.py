"""Collect in lanes what a loop collects one by one, where the order changes nothing: sums of whole numbers, minima and maxima.

    before   for i in 1 .. 60000 serial { s[0] = min(s[0], x[i]) }
    after    for u in 0 .. 8 unroll { for l in 0 .. 16 vector { s_partial[u, l] = s[0] } }
             for o in 0 .. 468 serial {
                 for u in 0 .. 8 unroll { for l in 0 .. 16 vector { s_partial[u, l] = min(s_partial[u, l], x[128*o + 16*u + l + 1]) } }
             }
             for o in 0 .. 5 serial { for l in 0 .. 16 vector { s_partial[0, l] = min(s_partial[0, l], x[16*o + l + 59905]) } }
             for i in 59985 .. 60000 serial { s[0] = min(s[0], x[i]) }
             for u in 1 .. 8 unroll { for l in 0 .. 16 vector { s_partial[0, l] = min(s_partial[0, l], s_partial[u, l]) } }
             for l in 0 .. 16 vector { s[0] = min(s[0], s_partial[0, l]) }

A recurrence of which only the last step is read is such a loop. Its length is known, and its terms read neighbours, or one element for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from codegen.dtypes import DType, f32, f64, i32, i64
from codegen.loops.indices import coefficients, simplify_index
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    For,
    Function,
    Index,
    Int,
    Load,
    Mul,
    Stmt,
    Store,
    ValueIndex,
    Var,
)
from codegen.loops.replace_loops import replace_loops
from codegen.loops.verify import Env
from codegen.loops.walk import Fresh, free_vars, fresh_for, loads, substitute, walk

VECTORS = 8
"""Registers that collect, so that one does not wait for another."""
LEAST = 2
"""Iterations over all of them that a loop has at least."""


def with_partial_results(function: Function, lanes: Callable[[DType], int]) -> Function:
    """Return `function` with loops that collect one result collecting several, in as many lanes as a register has of a type."""
    fresh = fresh_for(function)

    def replaced(loop: For, env: Env) -> Sequence[Stmt]:
        collected = _collected(loop, env)
        return _in_lanes(loop, *collected, lanes, fresh) if collected is not None else ()

    return replace_loops(function, replaced)


def _collected(loop: For, env: Env) -> tuple[Store, Expr, DType] | None:
    """Return what a loop does, if all that is to collect terms in one register, in any order; the terms, and their type."""
    match loop.body:
        case (Store(name, index, Binary("+" | "min" | "max" as op, a, b)) as store,) if Load(name, index) in (a, b):
            term, buffer = b if a == Load(name, index) else a, env.buffers[name]
        case _:
            return None
    plain = loop.kind == "serial" and buffer.space == "registers" and loop.var not in free_vars(*index)
    known = buffer.dtype in ((i32, i64) if op == "+" else (i32, i64, f32, f64))
    own = any(load.buffer == name for load in loads(term))
    near = is_near(term, loop.var) and any(loop.var in free_vars(load) for load in loads(term))
    return (store, term, buffer.dtype) if plain and known and not own and near else None


def is_near(term: Expr, var: str) -> bool:
    """Tell whether what an iteration computes reads neighbours, or one element for all lanes, and calls nothing."""
    if any(isinstance(n, Call | ValueIndex) for n in walk(term)):
        return False
    for load in loads(term):
        if var in free_vars(*load.index[:-1]):
            return False
        found = coefficients(load.index[-1]) if load.index else ({}, 0)
        if found is None or any(var in free_vars(e) and (e != Var(var) or abs(n) != 1) for e, n in found[0].items()):
            return False
    return True


def _in_lanes(loop: For, store: Store, term: Expr, dtype: DType, lanes: Callable[[DType], int], fresh: Fresh) -> Sequence[Stmt]:
    """Return what collects the terms of a loop in lanes; the loop itself where it is short, or nobody knows how long."""
    assert isinstance(store.value, Binary)
    op, width, here = store.value.op, lanes(dtype), Load(store.buffer, store.index)
    together = VECTORS * width
    if loop.values is None or len(loop.values) < LEAST * together or width < 2:
        return (loop,)
    partial, outer, vector, lane = (fresh(f"{loop.var}_{end}") for end in ("partial", "o", "u", "v"))

    def lanes_of(body: Callable[[Index], Stmt], at: Index) -> For:
        return For(lane, Int(0), Int(width), (body(at),), kind="vector", extent=width)

    def vectors(body: Callable[[Index], Stmt], first: int = 0) -> For:
        return For(vector, Int(first), Int(VECTORS), (lanes_of(body, Var(vector)),), kind="unroll", extent=VECTORS - first)

    def collect(at: Index, term: Expr) -> Store:
        own = Load(partial, (at, Var(lane)))
        return Store(partial, (at, Var(lane)), Binary(op, own, term))

    def term_at(first: int, at: Index) -> Expr:
        place = Add(Add(Mul(Int(width), at), Var(lane)), Int(first))
        return substitute(term, {loop.var: simplify_index(place, {})})

    low, turns = loop.values.start, len(loop.values) // together
    first = low + turns * together
    vectors_left = (loop.values.stop - first) // width
    rest = replace(loop, lo=Int(first + vectors_left * width))
    start = Const(0, dtype) if op == "+" else here
    all_at_once = vectors(lambda u: collect(u, term_at(low, Add(Mul(Int(VECTORS), Var(outer)), u))))
    one_by_one = lanes_of(lambda u: collect(u, term_at(first, Var(outer))), Int(0))
    return [
        Alloc(Buffer(partial, dtype, (Int(VECTORS), Int(width)), "registers")),
        vectors(lambda u: Store(partial, (u, Var(lane)), start)),
        For(outer, Int(0), Int(turns), (all_at_once,)),
        *([For(outer, Int(0), Int(vectors_left), (one_by_one,))] if vectors_left else []),
        *([rest] if rest.lo != rest.hi else []),
        vectors(lambda u: collect(Int(0), Load(partial, (u, Var(lane)))), 1),
        lanes_of(lambda u: replace(store, value=Binary(op, here, Load(partial, (u, Var(lane))))), Int(0)),
    ]
