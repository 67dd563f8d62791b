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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from codegen.dtypes import DType, bool_
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
    Index,
    Int,
    Let,
    Load,
    Max,
    Mul,
    Name,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
)
from codegen.loops.partial_results import is_near
from codegen.loops.replace_loops import replace_loops
from codegen.loops.running_results import OPERATIONS, neutral_of, running_results
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import Fresh, free_vars, fresh_for, loads, map_expr, substitute

LEAST_LANES = 4
"""Fewer take as long to combine with each other as one after the other."""
LEAST_BEGINNING = 8
"""The same where some begin again."""
LEAST_VECTORS = 2
"""Whole vectors that a loop has, where it is known how long it is."""


def with_running_lanes(function: Function, lanes: Callable[[DType], int]) -> Function:
    """Return `function` with such loops in lanes, as many as a register has of the widest type among what they read and store."""
    fresh = fresh_for(function)

    def replaced(loop: For, env: Env) -> Sequence[Stmt]:
        body = _with_names(loop, env, fresh)
        return _in_lanes(replace(loop, body=body), env, lanes, fresh) if body is not None else ()

    return replace_loops(function, replaced)


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
    return _collected(replace(loop, body=tuple(out)), known, env) if known else None


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


def _collected(loop: For, known: dict[Load, Name], env: Env) -> tuple[Stmt, ...] | None:
    """Return the body of a loop with running results said as such, if all are and their grouping changes nothing."""
    owners, out = {n.name: own for own, n in known.items()}, list[Stmt]()
    for s in loop.body:
        if isinstance(s, Let) and s.name in owners:
            own = owners[s.name]
            step = _step(s.value, own, dtype_of(s.value, env))
            if step is None or step.term is None or not step.op or any(x == own for x in loads(step.term)):
                return None
            s = Let(s.name, step.value(own))
        out.append(s)
    return tuple(out) if {*running_results(replace(loop, body=tuple(out)))} == {*owners} else None


@dataclass(frozen=True, slots=True)
class _Step:
    """What an iteration does with what there is: `own op term`, or `term` alone where it `begins`. Without an operation `own` stays as it
    is, without a term it is combined with what changes nothing."""

    op: str = ""
    term: Expr | None = None
    begins: Expr | None = None

    def value(self, own: Load) -> Expr:
        assert self.term is not None
        combined = Binary(self.op, own, self.term) if self.op != "bitxor of truths" else Compare("!=", own, self.term)  # type: ignore[arg-type]
        return combined if self.begins is None else Select(self.begins, self.term, combined)


_YES, _NO = Const(True, bool_), Const(False, bool_)


def _step(value: Expr, own: Load, dtype: DType) -> _Step | None:
    """Return what a value does with an element; None where it goes on with it in another way, or where the grouping counts: sums of
    floats."""
    if value == own:
        return _Step()
    if own not in loads(value):
        return _Step("", value, _YES)
    match value:
        case Binary("+" | "-" as op, lhs, rhs) if not dtype.is_float:
            side, other = (lhs, rhs) if own in loads(lhs) else (rhs, lhs)
            inner = _step(side, own, dtype)
            if inner is None or inner.op not in ("", "+") or (op == "-" and side is rhs) or own in loads(other):
                return None
            before = Const(dtype.zero, dtype) if op == "-" and inner.term is None else inner.term
            return _Step("+", other if before is None else Binary(op, before, other), inner.begins)
        case Binary(op, lhs, rhs) if op in OPERATIONS and (not dtype.is_float or op in ("min", "max")):
            side, other = (lhs, rhs) if own in loads(lhs) else (rhs, lhs)
            inner = _step(side, own, dtype)
            if inner is None or inner.op not in ("", op) or own in loads(other):
                return None
            return _Step(op, other if inner.term is None else Binary(op, inner.term, other), inner.begins)
        case Compare("!=", lhs, rhs) if dtype == bool_ and own in (lhs, rhs):
            return _Step("bitxor of truths", rhs if lhs == own else lhs)
        case Select(cond, then, orelse) if own not in loads(cond):
            sides = (_step(then, own, dtype), _step(orelse, own, dtype))
            return None if sides[0] is None or sides[1] is None else _chosen(cond, sides[0], sides[1], dtype)
        case _:
            return None


def _chosen(cond: Expr, then: _Step, orelse: _Step, dtype: DType) -> _Step | None:
    """Return one step that is one of two. What is only kept or begun again takes one instruction an element, one after the other: of truths
    alone are many in a register."""
    ops = {side.op for side in (then, orelse) if side.op} or ({"or"} if dtype == bool_ else set())
    if len(ops) != 1 or "bitxor of truths" in ops:
        return None
    (op,) = ops
    neutral = Const(neutral_of(op, dtype), dtype)
    term = Select(cond, then.term or neutral, orelse.term or neutral)
    begins: Expr | None = Select(cond, then.begins or _NO, orelse.begins or _NO)
    match then.begins, orelse.begins:
        case None, None:
            begins = None
        case other, None if other == _YES:
            begins = cond
        case None, other if other == _YES:
            begins = Unary("not", cond)
        case _:
            pass
    return _Step(op, term, begins)


def _in_lanes(loop: For, env: Env, lanes: Callable[[DType], int], fresh: Fresh) -> list[Stmt]:
    """Return a loop that runs in lanes, and one for what whole vectors leave; nothing where it cannot, or is too short."""
    width = _width(loop, env, lanes)
    found = running_results(loop)
    written = {s.buffer: s.index for s in loop.body if isinstance(s, Store)}
    own = {x.own.buffer for x in found.values()}
    if width < (LEAST_BEGINNING if any(x.begins is not None for x in found.values()) else LEAST_LANES):
        return []
    for s in loop.body:
        value = s.value  # type: ignore[union-attr]
        if not is_near(value, loop.var):
            return []
        if any(x.buffer not in own and not _is_apart(x.index, written.get(x.buffer)) for x in loads(value)):
            return []
    if len(written) != sum(isinstance(s, Store) for s in loop.body):
        return []
    algebra, lane, outer = Algebra.of({}), fresh(f"{loop.var}_v"), fresh(f"{loop.var}_o")
    if loop.values is not None and len(loop.values) < LEAST_VECTORS * width:
        return []
    count = algebra.simplify(Max(Int(0), FloorDiv(Add(loop.hi, Mul(Int(-1), loop.lo)), Int(width))))
    at = algebra.simplify(Add(Add(loop.lo, Mul(Int(width), Var(outer))), Var(lane)))
    vector = For(lane, Int(0), Int(width), tuple(substitute(s, {loop.var: at}) for s in loop.body), "vector", width)
    rest = replace(loop, lo=algebra.simplify(Add(loop.lo, Mul(Int(width), count))), extent=width)
    return [For(outer, Int(0), count, (vector,)), *([rest] if rest.lo != rest.hi else [])]


def _is_apart(index: tuple[Index, ...], stored: tuple[Index, ...] | None) -> bool:
    """Tell whether no other iteration stores what one reads: it lies in another row, or is what that iteration stores itself."""
    if stored is None or index == stored:
        return True
    algebra = Algebra.of({})
    rows = (algebra.simplify(Add(a, Mul(Int(-1), b))) for a, b in zip(index[:-1], stored[:-1], strict=True))
    return any(isinstance(apart, Int) and apart.value != 0 for apart in rows)


def _width(loop: For, env: Env, lanes: Callable[[DType], int]) -> int:
    names = {x.buffer for x in loads(*loop.body)} | {s.buffer for s in loop.body if isinstance(s, Store)}
    return min(lanes(env.buffers[name].dtype) for name in names)
