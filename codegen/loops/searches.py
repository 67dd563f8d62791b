"""Searches: leave a loop when what it looks for is found, where nothing that it has yet to do changes a result.

    before   for o in 0 .. 78 serial {
                 for l in 0 .. 64 vector { if x[64*o + l] > t[] { s[l] = min(s[l], index(64*o + l)) } }
             }
             for l in 0 .. 64 vector { y[] = min(y[], s[l]) }
    after    searching[] = true
             for o in 0 .. 78 serial {
                 if searching[] {
                     found[] = false
                     for l in 0 .. 64 vector { if x[64*o + l] > t[] { found[] = found[] or true } }
                     if found[] {
                         for l in 0 .. 64 vector { if x[64*o + l] > t[] { s[l] = min(s[l], index(64*o + l)) } }
                         searching[] = false
                     }
                 }
             }
             for l in 0 .. 64 vector { y[] = min(y[], s[l]) }

What is collected is a disjunction that a true term decides, a conjunction that a false one does, or the least of indices that only grow,
and all of it ends in one result. The condition around the body changes inside of it alone, so that the emitter ends the loop with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from codegen.dtypes import bool_, limits
from codegen.loops.indices import Algebra
from codegen.loops.nodes import (
    Alloc,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    FloorDiv,
    For,
    Function,
    If,
    IndexValue,
    Int,
    Let,
    Load,
    Mod,
    Stmt,
    Store,
    Unary,
    Var,
)
from codegen.loops.walk import Fresh, binders, free_vars, fresh_for, loads, rename, statements, stores, walk
from codegen.polynomials import Poly

LEAST = 4
"""Iterations that a loop has at least: of fewer, as many are saved as it takes to ask."""
TRUE, FALSE = Const(True, bool_), Const(False, bool_)


def with_searches(function: Function) -> Function:
    """Return `function` with loops that end where what they look for is found."""
    return replace(function, body=_block(function.body, Algebra.outside(function), fresh_for(function)))


def loop_condition(loop: For) -> If | None:
    """Return the condition that a serial loop is made of, if no iteration after one in which it fails does anything: it does not depend on
    the iteration, and changes inside of its own body alone. It is asked before the loop is known to run: of scalars,
    and without dividing."""
    match loop:
        case For(kind="serial", body=(If(cond, _, ()) as found,)) if loop.var not in free_vars(cond):
            parts = list(walk(cond))
            divides = any(isinstance(p, FloorDiv | Mod) or (isinstance(p, Binary) and p.op in ("//", "%")) for p in parts)
            return found if not divides and all(not p.index for p in parts if isinstance(p, Load)) else None
        case _:
            return None


def _block(block: tuple[Stmt, ...], algebra: Algebra, fresh: Fresh) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for i, s in enumerate(block):
        match s:
            case For(kind="serial" | "parallel" | "unroll"):
                inside = algebra.with_loop(s.var, s.lo, s.hi, s.extent)
                search = _search(s, block[:i], block[i + 1 :], inside) if s.kind == "serial" else None
                out += search.written(s, fresh) if search is not None else [replace(s, body=_block(s.body, inside, fresh))]
            case If():
                out.append(replace(s, then=_block(s.then, algebra, fresh), orelse=_block(s.orelse, algebra, fresh)))
            case _:
                out.append(s)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Search:
    """A buffer in registers in which a loop collects what it looks for, and how."""

    buffer: Buffer
    op: str

    def written(self, loop: For, fresh: Fresh) -> tuple[Stmt, ...]:
        """Return the loop that ends where it finds something."""
        searching, found = (Buffer(fresh(stem), bool_, (), "registers") for stem in ("searching", "found"))
        again = {name: fresh(name) for name in dict.fromkeys(binders(*loop.body))}
        asked = (Alloc(found), Store(found.name, (), FALSE), *(self._asked(s, found.name) for s in loop.body))
        kept = If(Load(found.name, ()), (*rename(loop.body, again), Store(searching.name, (), FALSE)))
        body = If(Load(searching.name, ()), (*asked, kept))
        return Alloc(searching), Store(searching.name, (), TRUE), replace(loop, body=(body,))

    def _asked(self, s: Stmt, found: str) -> Stmt:
        """Return a statement that tells whether it finds something, in place of what it is."""
        match s:
            case For(body=body):
                return replace(s, body=tuple(self._asked(inner, found) for inner in body))
            case If(_, then, orelse):
                return replace(s, then=tuple(self._asked(x, found) for x in then), orelse=tuple(self._asked(x, found) for x in orelse))
            case Store(self.buffer.name):
                term = _term(s, self.op)
                assert term is not None
                decides = TRUE if self.op == "min" else Unary("not", term) if self.op == "and" else term
                return Store(found, (), Binary("or", Load(found, ()), decides))
            case _:
                return s


def _search(loop: For, before: Sequence[Stmt], after: Sequence[Stmt], algebra: Algebra) -> _Search | None:
    """Return what a loop looks for, if it may end where that is found."""
    if loop.values is not None and len(loop.values) < LEAST:
        return None
    own = {s.buffer.name for s in statements(*loop.body) if isinstance(s, Alloc)}
    outer = [s for s in stores(*loop.body) if s.buffer not in own]
    allocated = {s.buffer.name: s.buffer for s in before if isinstance(s, Alloc) and s.buffer.space == "registers"}
    buffer = allocated.get(outer[0].buffer) if outer else None
    if buffer is None or any(s.buffer != buffer.name for s in outer) or not _only_stores(loop.body):
        return None
    op = next((op for op in ("or", "and", "min") if all(_term(s, op) is not None for s in outer)), None)
    if op is None or len(list(_reads(buffer.name, loop))) > len(outer):
        return None
    if op == "min" and (len(outer) > 1 or not _only_grow(loop, loop.body, algebra)):
        return None
    shared = not free_vars(*outer[0].index) & {loop.var, *binders(*loop.body)} and len({s.index for s in outer}) == 1
    return _Search(buffer, op) if shared or _are_combined(buffer, op, after) else None


def _term(s: Store, op: str) -> Expr | None:
    """Return what a store adds to what is there, if it does so by `op`."""
    own = Load(s.buffer, s.index)
    match s.value:
        case Binary(how, lhs, rhs) if how == op and own in (lhs, rhs):
            return rhs if lhs == own else lhs
        case _:
            return None


def _only_stores(block: Iterable[Stmt]) -> bool:
    """Tell whether statements compute and store, and do nothing else."""
    return all(isinstance(s, For | If | Store | Let | Alloc) for s in statements(*block))


def _reads(buffer: str, *roots: Stmt) -> Iterable[Load]:
    return (load for load in loads(*roots) if load.buffer == buffer)


def _are_combined(buffer: Buffer, op: str, after: Iterable[Stmt]) -> bool:
    """Tell whether all elements of a buffer end in one result, by `op`, and nothing else is made of them."""
    results: list[Stmt] = []
    for s in after:
        if not list(_reads(buffer.name, s)):
            continue
        if all(t.buffer == buffer.name and _term(t, op) is not None for t in stores(s) if list(_reads(buffer.name, t))):
            continue  # what is left of the row
        results.append(s)
    match results:
        case [For(lane, Int(0), Int(end), (Store() as result,), kind="vector")] if lane not in free_vars(*result.index):
            first = buffer.shape[:-1]
            whole = bool(buffer.shape) and buffer.shape[-1] == Int(end) and all(n == Int(1) for n in first)
            return whole and _term(result, op) == Load(buffer.name, (*(Int(0) for _ in first), Var(lane)))
        case _:
            return False


def _only_grow(loop: For, block: Iterable[Stmt], algebra: Algebra, inside: frozenset[str] = frozenset()) -> bool:
    """Tell whether what the statements of `loop` collect is never less than what its earlier iterations have collected."""
    for s in block:
        match s:
            case For(var, lo, hi, body):
                grows = _only_grow(loop, body, algebra.with_loop(var, lo, hi, s.extent), inside | {var})
            case If(_, then, orelse):
                grows = _only_grow(loop, (*then, *orelse), algebra, inside)
            case Store() if (term := _term(s, "min")) is not None:
                grows = _grows(term, loop.var, algebra, inside)
            case _:
                grows = True
        if not grows:
            return False
    return True


def _grows(term: Expr, var: str, algebra: Algebra, inside: frozenset[str]) -> bool:
    """Tell whether a term is an index that is no less in a later iteration of `var`, wherever the loops `inside` of it stand in both."""
    match term:
        case IndexValue(index):
            pass
        case Cast(dtype, IndexValue(index)):
            (low, high), (least, most) = algebra.range_of(index), limits(dtype)
            if low is None or high is None or low < least or high > most:
                return False
        case _:
            return False
    poly = algebra.poly(index)
    moving = Poly({m: c for m, c in poly.terms.items() if free_vars(*m) & inside})
    if any(var in free_vars(*m) for m in poly.terms if m != (Var(var),)):
        return False
    first, last = algebra.interval(moving)
    return last - first <= poly.terms.get((Var(var),), 0)
