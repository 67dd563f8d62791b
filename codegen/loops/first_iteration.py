"""Peel the iteration after which a register holds one constant for good.

    before   seen[] = false
             for k in 0 .. K {
                 most[] = select(seen[], max(most[], x[k]), x[k])
                 seen[] = true
             }

    after    if 0 < K {
                 most[] = select(seen[], max(most[], x[0]), x[0])
                 seen[] = true
             }
             for k in 1 .. K { most[] = max(most[], x[k]) }

So the flag of a reduction without identity, which says whether it holds a term yet, is asked for once. A serial loop whose every iteration
stores the constant, in lanes or copies or in none, at the places that it reads; sums of several loops lose it from the innermost one
outwards, as long as there are not too many copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen.loops.nodes import (
    Add,
    Alloc,
    Compare,
    Const,
    Expr,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    LoadMatrix,
    Mma,
    Name,
    Stmt,
    Store,
    ValueIndex,
)
from codegen.loops.walk import (
    Fresh,
    binders,
    free_vars,
    fresh_for,
    loads,
    map_expr,
    map_stmt,
    pruned,
    rename,
    runs_at_least_once,
    statements,
    stores,
    substitution,
    walk,
)

MOST_NODES = 400
"""Of an iteration that is written twice."""


def with_first_iterations(function: Function) -> Function:
    """Return a function that does the same as `function`, whose loops do not ask again for what their first iteration has settled."""
    registers = {n.buffer.name for n in statements(*function.body) if isinstance(n, Alloc) and n.buffer.space == "registers"}
    flags = registers - {s.buffer for s in stores(*function.body) if not isinstance(s.value, Const)}
    return replace(function, body=_block(function.body, frozenset(flags), fresh_for(function))) if flags else function


def _block(body: tuple[Stmt, ...], registers: frozenset[str], fresh: Fresh) -> tuple[Stmt, ...]:
    return tuple(new for s in body for new in _stmt(s, registers, fresh))


def _stmt(s: Stmt, registers: frozenset[str], fresh: Fresh) -> tuple[Stmt, ...]:
    match s:
        case For():
            loop = replace(s, body=_block(s.body, registers, fresh))
            settled = _settled(loop, registers)
            return _peeled(loop, settled, fresh) if settled and sum(1 for _ in walk(*loop.body)) <= MOST_NODES else (loop,)
        case If(cond, then, orelse):
            return (If(cond, _block(then, registers, fresh), _block(orelse, registers, fresh)),)
        case _:
            return (s,)


def _peeled(loop: For, settled: dict[str, Const], fresh: Fresh) -> tuple[Stmt, ...]:
    """Return the first iteration of a loop, and the others, for which registers hold what it has stored in them."""
    first = rename(tuple(map(substitution({loop.var: loop.lo}), loop.body)), {name: fresh(name) for name in binders(*loop.body)})
    if not runs_at_least_once(loop):
        first = (If(Compare("<", IndexValue(loop.lo), IndexValue(loop.hi)), first),)
    extent = None if loop.extent is None else max(loop.extent - 1, 0)
    return (*first, replace(loop, lo=Add(loop.lo, Int(1)), extent=extent, body=_without(loop.body, settled)))


def _without(body: tuple[Stmt, ...], settled: dict[str, Const]) -> tuple[Stmt, ...]:
    """Return statements that neither store what registers hold already nor load it."""
    known = dict[str, Const]()  # by the names that are bound to it

    def expr(e: Expr) -> Expr:
        match e:
            case Load(buffer) if buffer in settled:
                return settled[buffer]
            case Name(name) if name in known:
                return known[name]
            case _:
                return map_expr(e, index, expr)

    def index(e: Index) -> Index:
        return e  # no value stands in one: `_settled` has seen to it

    def stmt(s: Stmt) -> Stmt:
        new = map_stmt(s, index, expr, stmt)
        if isinstance(s, Let):
            known.pop(s.name, None)
            known.update({s.name: settled[s.value.buffer]} if isinstance(s.value, Load) and s.value.buffer in settled else {})
        return new

    return pruned(tuple(map(stmt, body)), lambda s: isinstance(s, Store) and s.buffer in settled)


@dataclass(frozen=True, slots=True)
class _Access:
    """A load of a register or a store to it: the lanes and copies around, and its index; what is stored, and whether in every iteration."""

    buffer: str
    loops: tuple[For, ...]
    index: tuple[Index, ...]
    stored: Expr | None = None
    always: bool = True

    @property
    def place(self) -> tuple[tuple[tuple[str, Index, Index], ...], tuple[Index, ...]]:
        return tuple((n.var, n.lo, n.hi) for n in self.loops), self.index


def _settled(loop: For, registers: frozenset[str]) -> dict[str, Const]:
    """Return which registers a loop asks for that hold one constant wherever it does from its second iteration on, with that."""
    if loop.kind != "serial" or loop.notes or not registers & {e.buffer for e in loads(*loop.body)}:
        return {}
    if any(isinstance(n, ValueIndex | LoadMatrix | Mma) for n in walk(*loop.body)):
        return {}
    own = {n.buffer.name for n in statements(*loop.body) if isinstance(n, Alloc)}
    accesses = [a for a in _accesses(loop.body, (), True) if a.buffer in registers and a.buffer not in own]
    found = {}
    for buffer in dict.fromkeys(a.buffer for a in accesses):
        stored = [a for a in accesses if a.buffer == buffer and a.stored is not None]
        loaded = [a for a in accesses if a.buffer == buffer and a.stored is None]
        values = {a.stored for a in stored}
        value = next(iter(values), None)
        always = {a.place for a in stored if a.always and not _moves(a, loop.var)}
        if loaded and len(values) == 1 and isinstance(value, Const) and all(a.place in always for a in loaded):
            found[buffer] = value
    return found


def _moves(access: _Access, var: str) -> bool:
    """Tell whether a place is another in another iteration."""
    return var in free_vars(*access.index, *(end for n in access.loops for end in (n.lo, n.hi)))


def _accesses(body: tuple[Stmt, ...], around: tuple[For, ...], always: bool) -> Iterator[_Access]:
    """Yield the accesses of statements, in their order. In a loop that may run less than once for each lane or copy none is made always."""
    for s in body:
        match s:
            case For():
                yield from _accesses(s.body, (*around, s), always and s.kind in ("vector", "unroll"))
            case If(cond, then, orelse):
                yield from _loaded(around, cond)
                yield from _accesses(then, around, False)
                yield from _accesses(orelse, around, False)
            case Store(buffer, index, value):
                yield from _loaded(around, value)
                yield _Access(buffer, around, index, value, always)
            case Let(_, value):
                yield from _loaded(around, value)
            case Alloc():
                pass
            case _:
                yield from _loaded(around, s)


def _loaded(around: tuple[For, ...], *roots: Expr | Stmt) -> Iterator[_Access]:
    return (_Access(e.buffer, around, e.index) for e in loads(*roots))
