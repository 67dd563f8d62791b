"""Keep in registers a short row that the next iteration reads back, whichever of its elements it asks for.

    before   for t in 1 .. T {
                 for k in 0 .. 8 unroll 8 { for j in 0 .. 8 vector 8 { s[j] = fma(y[t - 1, k], w[k, j], s[j]) } }
                 for j in 0 .. 8 vector 8 { y[t, j] = s[j] }
             }

    after    alloc row: f32[8] registers
             for j in 0 .. 8 vector 8 { row[j] = y[0, j] }
             for t in 1 .. T {
                 for k in 0 .. 8 unroll 8 { for j in 0 .. 8 vector 8 { s[j] = fma(row[k], w[k, j], s[j]) } }
                 for j in 0 .. 8 vector 8 {
                     let new = s[j]
                     y[t, j] = new
                     row[j] = new
                 }
             }

What a step stores as a vector the next one loads element by element, or elsewhere, and would wait for memory to have it. A serial loop that
stores to the buffer in one place, the last that it reads it in, at addresses that unrolling makes constant within a row. What is only read
at its own place is `carried`. Expects the indices of `simplify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from codegen.dtypes import bool_
from codegen.loops.carried import WIDE, is_plain
from codegen.loops.indices import Algebra
from codegen.loops.nodes import (
    Add,
    Alloc,
    Buffer,
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
    Name,
    Stmt,
    Store,
    Var,
)
from codegen.loops.verify import Env
from codegen.loops.walk import (
    Fresh,
    certain_loads,
    free_vars,
    fresh_for,
    loads,
    map_expr,
    map_index,
    map_stmt,
    runs_at_least_once,
    statements,
    stores,
    substitute,
)
from codegen.polynomials import ONE


def carried_rows(function: Function, room: int) -> Function:
    """Return `function` with rows of at most `room` bytes that go from one iteration to the next in registers."""
    allocated = (n.buffer for n in statements(*function.body) if isinstance(n, Alloc))
    memory = {b.name: b for b in (*function.params, *allocated) if b.space in ("param", "heap", "stack")}
    return replace(function, body=_block(function.body, memory, room, fresh_for(function)))


def _block(body: tuple[Stmt, ...], memory: Mapping[str, Buffer], room: int, fresh: Fresh) -> tuple[Stmt, ...]:
    return tuple(made for s in body for made in _stmt(s, memory, room, fresh))


def _stmt(s: Stmt, memory: Mapping[str, Buffer], room: int, fresh: Fresh) -> tuple[Stmt, ...]:
    match s:
        case For(kind="serial", notes=()) if all(map(is_plain, statements(*s.body))):
            loop, around = replace(s, body=_block(s.body, memory, room, fresh)), tuple[Stmt, ...]()
            for name in dict.fromkeys(store.buffer for store in stores(*loop.body)):
                row = _row(loop, memory[name], fresh) if name in memory else None
                if row is not None and row.size_bytes <= room:
                    room -= row.size_bytes
                    before, loop = _in_registers(loop, row, fresh)
                    around += before
            runs = Compare("<", IndexValue(loop.lo), IndexValue(loop.hi))
            made = (*around, loop)
            return made if not around or runs_at_least_once(loop) else (If(runs, made, ()),)
        case For():
            return (replace(s, body=_block(s.body, memory, room, fresh)),)
        case If(cond, then, orelse):
            return (If(cond, _block(then, memory, room, fresh), _block(orelse, memory, room, fresh)),)
        case _:
            return (s,)


@dataclass(frozen=True, slots=True)
class _Row:
    """What a loop stores in an iteration, in the statement at `position` of its body, whose loops are `inner`; `sides` are the dimensions
    of the buffer that these go along. `buffer` holds it, and `places` are where it lies there for each element that is read."""

    position: int
    store: Store
    inner: tuple[For, ...]
    sides: tuple[int, ...]
    buffer: Buffer
    places: Mapping[Load, tuple[Index, ...]]

    @property
    def size_bytes(self) -> int:
        return prod(n.value for n in self.buffer.shape if isinstance(n, Int)) * self.buffer.dtype.size_bytes

    @property
    def own(self) -> tuple[Index, ...]:
        """The place of what is stored."""
        return tuple(self.store.index[k] for k in self.sides)


def _row(loop: For, buffer: Buffer, fresh: Fresh) -> _Row | None:
    """Return what a loop stores to a buffer and reads back one iteration later, if registers may hold that."""
    found = [store for store in stores(*loop.body) if store.buffer == buffer.name]
    if len(found) != 1 or buffer.dtype == bool_ or buffer.dtype.bits < WIDE:
        return None
    (store,) = found
    position, inner = next(((k, path) for k, s in enumerate(loop.body) if (path := _path(s, store)) is not None), (0, ()))
    sides = tuple(k for k, side in enumerate(store.index) if not {f.var for f in inner}.isdisjoint(free_vars(side)))
    axes = {f.var: f for f in inner}
    if not inner or sorted(axes) != sorted(str(side.name) for k in sides if isinstance(side := store.index[k], Var)):
        return None
    algebra = Algebra.of({})
    before = [algebra.poly(substitute(side, {loop.var: Add(Var(loop.var), Int(-1))})) for side in store.index]
    if before == [algebra.poly(side) for side in store.index]:
        return None
    extents = tuple(axes[side.name].hi for k in sides if isinstance(side := store.index[k], Var))
    row = _Row(position, store, inner, sides, Buffer(fresh(f"{loop.var}_row"), buffer.dtype, extents, "registers"), {})
    places = dict[Load, tuple[Index, ...]]()
    for k, s in enumerate(loop.body):
        for load, inside in _loads((s,), buffer.name, algebra, Env()):
            place = tuple(load.index[side] for side in sides)
            others = (side for side in range(len(store.index)) if side not in sides)
            if k > position or (k == position and place != row.own) or any(algebra.poly(load.index[n]) != before[n] for n in others):
                return None
            if not inside.env.is_constant(*place) or not inside.lie_in(place, extents):
                return None
            places[load] = place
    elsewhere = any(place != row.own for place in places.values())
    return replace(row, places=places) if elsewhere and not places.keys().isdisjoint(certain_loads(*loop.body)) else None


def _path(s: Stmt, store: Store) -> tuple[For, ...] | None:
    """Return the loops around a store, which are written out or are lanes and begin at zero; None where there are others."""
    inner: list[For] = []
    while isinstance(s, For) and s.kind in ("unroll", "vector") and s.lo == Int(0) and isinstance(s.hi, Int) and not s.notes:
        inner.append(s)
        if any(part is store for part in s.body):
            return tuple(inner)
        if len(s.body) > 1:
            return None
        (s,) = s.body
    return None


@dataclass(frozen=True, slots=True)
class _Inside:
    """What is known of the loops inside of one."""

    algebra: Algebra
    env: Env

    def lie_in(self, place: Sequence[Index], extents: Sequence[Index]) -> bool:
        """Tell whether a place certainly lies in a row."""
        ends = ((self.algebra.poly(at), self.algebra.poly(extent)) for at, extent in zip(place, extents, strict=True))
        return all(self.algebra.nonnegative(at) and self.algebra.nonnegative(end - at - ONE) for at, end in ends)


def _loads(block: Iterable[Stmt], name: str, algebra: Algebra, env: Env) -> Iterator[tuple[Load, _Inside]]:
    """Yield the reads of a buffer."""
    for s in block:
        match s:
            case For(var, lo, hi, body):
                yield from _loads(body, name, algebra.with_loop(var, lo, hi, s.extent), env.with_loop(s))
            case If(cond, then, orelse):
                yield from ((load, _Inside(algebra, env)) for load in loads(cond) if load.buffer == name)
                yield from _loads((*then, *orelse), name, algebra, env)
            case _:
                yield from ((load, _Inside(algebra, env)) for load in loads(s) if load.buffer == name)


def _in_registers(loop: For, row: _Row, fresh: Fresh) -> tuple[tuple[Stmt, ...], For]:
    """Return what fills a row before a loop, and the loop that reads and renews it."""
    new, called = fresh(f"{loop.var}_new"), {f.var: Var(fresh(f.var)) for f in row.inner}
    first = tuple(Algebra.of({}).simplify(substitute(side, {loop.var: Add(loop.lo, Int(-1))})) for side in row.store.index)
    fill: Stmt = substitute(Store(row.buffer.name, row.own, Load(row.store.buffer, first)), called)
    for f in reversed(row.inner):
        fill = replace(f, var=called[f.var].name, body=(fill,))

    def index(e: Index) -> Index:
        return map_index(e, index, value)

    def value(e: Expr) -> Expr:
        return Load(row.buffer.name, row.places[e]) if isinstance(e, Load) and e in row.places else map_expr(e, index, value)

    def stmt(s: Stmt) -> Stmt:
        inside = map_stmt(s, index, value, stmt)
        return replace(inside, body=tuple(_renewing(inside.body, row, new))) if isinstance(inside, For) else inside

    return (Alloc(row.buffer), fill), replace(loop, body=tuple(map(stmt, loop.body)))


def _renewing(body: Sequence[Stmt], row: _Row, new: str) -> Iterator[Stmt]:
    """Yield the statements of a block; what is stored of the row has a name, by which the row gets it too."""
    for s in body:
        if isinstance(s, Store) and s.buffer == row.store.buffer:
            yield from (Let(new, s.value), replace(s, value=Name(new)), Store(row.buffer.name, row.own, Name(new)))
        else:
            yield s
