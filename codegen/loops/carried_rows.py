"""Keep in registers a short row that the next iteration reads back, whichever of its elements it asks for.

    before   for t in 1 .. T {
                 for k in 0 .. 8 unroll 8 { for j in 0 .. 8 vector 8 { s[j] = fma(y[t - 1, k], w[k, j], s[j]) } }
                 for j in 0 .. 8 vector 8 { y[t, j] = s[j] }
             }

    after    alloc row: f32[8] registers
             for j in 0 .. 8 vector 8 { row[j] = y[0, j] }
             for t in 1 .. T {
                 alloc next: f32[8] registers
                 for k in 0 .. 8 unroll 8 { for j in 0 .. 8 vector 8 { s[j] = fma(row[k], w[k, j], s[j]) } }
                 for j in 0 .. 8 vector 8 {
                     let new = s[j]
                     y[t, j] = new
                     next[j] = new
                 }
                 for j in 0 .. 8 vector 8 { row[j] = next[j] }
             }

What a step stores as a vector the next one loads element by element, or elsewhere, and would wait for memory to have it. Of a serial loop
that stores each element of a row at most once, whatever conditions are, at addresses that unrolling makes constant within the row, and
reads of the buffer only the row before, and of that only what is stored. What is read at its own place alone is `carried`. Expects the
indices of `simplify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from codegen.dtypes import bool_
from codegen.loops.carried import is_plain
from codegen.loops.demote import has_one_distance
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

WIDE = 32
"""Bits of the narrowest type of which a row is kept."""
MOST_ELEMENTS = 256
"""Of a row that a loop goes over."""


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
                row = _row(loop, memory[name]) if name in memory else None
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
    """What a loop stores to a buffer in an iteration, each store with the loops around it. `sides`: the dimensions that a row goes along,
    of these extents. `places`: where in the row before each element lies that is read."""

    buffer: Buffer
    stores: tuple[tuple[Store, tuple[For, ...]], ...]
    sides: tuple[int, ...]
    extents: tuple[int, ...]
    places: Mapping[Load, tuple[Index, ...]]

    @property
    def size_bytes(self) -> int:
        return prod(self.extents) * self.buffer.dtype.size_bytes

    def place(self, index: Sequence[Index]) -> tuple[Index, ...]:
        """Return where an element lies in its row."""
        return tuple(index[k] for k in self.sides)

    def registers(self, name: str) -> Alloc:
        return Alloc(Buffer(name, self.buffer.dtype, tuple(map(Int, self.extents)), "registers"))


def _row(loop: For, buffer: Buffer) -> _Row | None:
    """Return the rows that a loop stores to a buffer and reads back one iteration later, if registers may hold them."""
    found = tuple((s, path) for s, path in _stores(loop.body, ()) if s.buffer == buffer.name)
    if len(found) < sum(s.buffer == buffer.name for s in stores(*loop.body)) or buffer.dtype == bool_ or buffer.dtype.bits < WIDE:
        return None
    extents = {k: n.value for k, n in enumerate(buffer.shape) if isinstance(n, Int)}
    sides = tuple(k for k in extents if all(free_vars(s.index[k]) <= {f.var for f in path} for s, path in found))
    others = [k for k in range(len(buffer.shape)) if k not in sides]
    algebra, row = Algebra.of({}), _Row(buffer, found, sides, tuple(extents[k] for k in sides), {})
    now = {tuple(algebra.poly(s.index[k]) for k in others) for s, _ in found}
    before = tuple(algebra.poly(substitute(found[0][0].index[k], {loop.var: Add(Var(loop.var), Int(-1))})) for k in others)
    stored = [e for s, path in found for e in _elements(row.place(s.index), path)]
    if any(f.var not in free_vars(*row.place(s.index)) for s, path in found for f in path):
        return None
    if not sides or len(now) > 1 or before in now or None in stored or len({*stored}) < len(stored):
        return None
    places = dict[Load, tuple[Index, ...]]()
    for load, path in _loads(loop.body, buffer.name, ()):
        place = row.place(load.index)
        if tuple(algebra.poly(load.index[k]) for k in others) != before or not {*stored}.issuperset(_elements(place, path)):
            return None
        places[load] = place
    elsewhere = any(place != row.place(s.index) for place in places.values() for s, _ in found)
    return replace(row, places=places) if elsewhere and not places.keys().isdisjoint(certain_loads(*loop.body)) else None


def _stores(block: Iterable[Stmt], path: tuple[For, ...]) -> Iterator[tuple[Store, tuple[For, ...]]]:
    """Yield the stores of a block that no condition is asked for, each with the loops around it."""
    for s in block:
        match s:
            case For():
                yield from _stores(s.body, (*path, s))
            case Store():
                yield s, path
            case _:
                pass


def _loads(block: Iterable[Stmt], name: str, path: tuple[For, ...]) -> Iterator[tuple[Load, tuple[For, ...]]]:
    """Yield the reads of a buffer, each with the loops around it."""
    for s in block:
        match s:
            case For(lo=lo, hi=hi):
                yield from ((load, path) for load in loads(lo, hi) if load.buffer == name)
                yield from _loads(s.body, name, (*path, s))
            case If(cond, then, orelse):
                yield from ((load, path) for load in loads(cond) if load.buffer == name)
                yield from _loads((*then, *orelse), name, path)
            case _:
                yield from ((load, path) for load in loads(s) if load.buffer == name)


def _elements(place: Sequence[Index], path: Sequence[For]) -> list[tuple[int, ...] | None]:
    """Return the elements that loops go over which are written out or are lanes, in steps of one length; None among them where there may be
    others."""
    loops = [f for f in path if f.var in free_vars(*place)]
    ranges = [f.values for f in loops if f.values is not None]
    constant = len(ranges) == len(loops) and all(f.kind in ("unroll", "vector") and not f.notes for f in loops)
    lanes = {f.var for f in path if f.kind == "vector"}
    if not constant or prod(map(len, ranges)) > MOST_ELEMENTS or not has_one_distance(place, {f.var for f in loops}, lanes):
        return [None]
    algebra, out = Algebra.of({}), list[tuple[int, ...] | None]()
    for values in product(*ranges):
        at = [algebra.simplify(substitute(e, {f.var: Int(v) for f, v in zip(loops, values, strict=True)})) for e in place]
        known = tuple(e.value for e in at if isinstance(e, Int))
        out.append(known if len(known) == len(at) else None)
    return out


def _in_registers(loop: For, row: _Row, fresh: Fresh) -> tuple[tuple[Stmt, ...], For]:
    """Return what fills a row before a loop, and the loop that reads it and makes the next."""
    kept, following = fresh(f"{loop.var}_row"), fresh(f"{loop.var}_next")
    new = {store: fresh(f"{loop.var}_new") for store, _ in row.stores}
    first = {loop.var: Add(loop.lo, Int(-1))}

    def each(value: Mapping[Store, Expr]) -> Iterator[Stmt]:
        """Yield what takes a value to the row for each of its elements."""
        for store, path in row.stores:
            called = {f.var: Var(fresh(f.var)) for f in path}
            made: Stmt = substitute(Store(kept, row.place(store.index), value[store]), called)
            for f in reversed(path):
                made = replace(f, var=called[f.var].name, body=(made,))
            yield made

    def index(e: Index) -> Index:
        return map_index(e, index, value)

    def value(e: Expr) -> Expr:
        return Load(kept, row.places[e]) if isinstance(e, Load) and e in row.places else map_expr(e, index, value)

    def block(body: Iterable[Stmt]) -> Iterator[Stmt]:
        for s in body:
            if isinstance(s, Store) and s in new:
                yield from (Let(new[s], value(s.value)), replace(s, value=Name(new[s])), Store(following, row.place(s.index), Name(new[s])))
            elif isinstance(s, For):
                yield replace(s, lo=index(s.lo), hi=index(s.hi), body=tuple(block(s.body)))
            else:
                yield map_stmt(s, index, value, lambda inner: next(block((inner,))))

    algebra = Algebra.of({})
    there = {s: Load(s.buffer, tuple(algebra.simplify(substitute(i, first)) for i in s.index)) for s, _ in row.stores}
    renewed = {s: Load(following, row.place(s.index)) for s, _ in row.stores}
    body = (row.registers(following), *block(loop.body), *each(renewed))
    return (row.registers(kept), *each(there)), replace(loop, body=body)
