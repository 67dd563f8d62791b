"""Keep in a register what later iterations read back, so that they do not wait for memory (scalar replacement).

    before   for c in 1 .. 257 { first[c] = first[c - 1] + count[c - 1] }

    after    alloc last: i32[1] registers
             last[0] = first[0]
             for c in 1 .. 257 {
                 let next = last[0] + count[c - 1]
                 first[c] = next
                 last[0] = next
             }

A serial loop that does nothing but store, each buffer at one place or at places that are never the same, and reads of some of them what
the iterations just before stored. Loops that are written out, or are lanes, may stand in between, one after the other. What only conditions
of data say to read has to be there before the loop, whatever they are. Elements are of types that are computed as they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from codegen.dtypes import bool_
from codegen.loops.indices import Algebra, coefficients
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
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
    Mod,
    Name,
    Select,
    Stmt,
    Store,
    Var,
)
from codegen.loops.walk import (
    Fresh,
    certain_loads,
    fresh_for,
    loads,
    map_expr,
    runs_at_least_once,
    statements,
    substitute,
    walk,
)

WIDE = 32
"""Bits of the narrowest type that is computed as it is stored."""
MOST_STEPS = 4
"""How many iterations back an element may be read."""
MOST_BYTES = 512
"""Of all that goes from iteration to iteration: sixteen registers of 32 bytes."""


def carried(function: Function) -> Function:
    """Return `function` with elements that go from one iteration to later ones in registers."""
    allocated = (n.buffer for n in statements(*function.body) if isinstance(n, Alloc))
    memory = {b.name: b for b in (*function.params, *allocated) if b.space in ("param", "heap", "stack")}
    return replace(function, body=_block(function.body, memory, fresh_for(function)))


def _block(body: tuple[Stmt, ...], memory: Mapping[str, Buffer], fresh: Fresh) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                groups = _groups(stmt)
                found = [*_recurrences(stmt, groups, memory)] if stmt.kind == "serial" and not stmt.notes else []
                out += _in_registers(stmt, groups, found, fresh) if found else (replace(stmt, body=_block(stmt.body, memory, fresh)),)
            case If():
                out.append(replace(stmt, then=_block(stmt.then, memory, fresh), orelse=_block(stmt.orelse, memory, fresh)))
            case _:
                out.append(stmt)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Group:
    """Statements of a loop that stand together: `inner` loops that are written out or are lanes, if any, and `steps` inside of these."""

    inner: tuple[For, ...]
    steps: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class _Recurrence:
    """A buffer of which iterations read what was stored so many iterations before: each of `reads` that many, from 1 on."""

    group: _Group
    buffer: Buffer
    store: Store
    reads: Mapping[Load, int]


def _groups(loop: For) -> list[_Group]:
    """Return the statements of a loop in groups: each loop inside is one, and so is what stands between two."""
    found: list[_Group] = []
    for s in loop.body:
        if isinstance(s, For):
            found.append(_inside(s))
        elif found and not found[-1].inner:
            found[-1] = _Group((), (*found[-1].steps, s))
        else:
            found.append(_Group((), (s,)))
    return found


def _inside(loop: For) -> _Group:
    inner: list[For] = []
    body: tuple[Stmt, ...] = (loop,)
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind in ("unroll", "vector") and not body[0].notes:
        inner.append(body[0])
        body = body[0].body
    return _Group(tuple(inner), body)


def _recurrences(loop: For, groups: Sequence[_Group], memory: Mapping[str, Buffer]) -> Iterator[_Recurrence]:
    """Yield the buffers that a loop reads back, as far as registers hold their elements."""
    steps = [s for g in groups for s in g.steps]
    if not all(isinstance(s, Let) or (isinstance(s, Store) and not (s.stream or s.across or s.later)) for s in steps):
        return
    if not all(f.lo == Int(0) and isinstance(f.hi, Int) for g in groups for f in g.inner):
        return
    stored, left = [(g, s) for g in groups for s in g.steps if isinstance(s, Store)], MOST_BYTES
    for group, store in stored:
        buffer = memory.get(store.buffer)
        if buffer is None or buffer.dtype == bool_ or buffer.dtype.bits < WIDE:
            continue
        others = [(g, s) for g, s in stored if s is not store and s.buffer == store.buffer]
        if not all(_are_elsewhere(group, store, g, s) for g, s in others):
            continue
        reads = _read_back(loop.var, store, group.steps)
        size = prod(f.hi.value for f in group.inner if isinstance(f.hi, Int)) * buffer.dtype.bits // 8 * max(reads.values(), default=0)
        if reads and size <= left and _is_apart(loop, group.inner, store) and _is_there_before(loop, buffer, group.steps, reads):
            left -= size
            yield _Recurrence(group, buffer, store, reads)


def _are_elsewhere(group: _Group, store: Store, other_group: _Group, other: Store) -> bool:
    """Tell whether two places are never the same, whatever the iterations of the loops around: along some side, one lies behind all
    elements of the other."""

    def ends(of: _Group, index: Index) -> tuple[int, int] | None:
        found, sizes = coefficients(index), {f.var: f.hi.value - 1 for f in of.inner if isinstance(f.hi, Int)}
        if found is None or not all(isinstance(n, Var) and n.name in sizes for n in found[0]):
            return None
        reach = [c * sizes[n.name] for n, c in found[0].items() if isinstance(n, Var)]
        return found[1] + sum(min(r, 0) for r in reach), found[1] + sum(max(r, 0) for r in reach)

    for a, b in zip(store.index, other.index, strict=True):
        one, two = ends(group, a), ends(other_group, b)
        if one is not None and two is not None and (one[1] < two[0] or two[1] < one[0]):
            return True
    return False


def _read_back(var: str, store: Store, steps: Sequence[Stmt]) -> dict[Load, int]:
    """Return the reads of what iterations before stored, each with how many before; nothing where some of these are left out."""
    algebra, found = Algebra.of({}), dict[Load, int]()
    before = [tuple(algebra.poly(substitute(i, {var: Add(Var(var), Int(-k))})) for i in store.index) for k in range(MOST_STEPS + 1)]
    if before[1] == before[0]:
        return {}
    own = any(_is_own(var, side) for side in store.index)
    for load in loads(*steps):
        if load.buffer == store.buffer:
            at = tuple(map(algebra.poly, load.index))
            # Of what is stored over others, only the last is known.
            back = next((k for k in range(1, MOST_STEPS + 1 if own else 2) if at == before[k]), 0)
            if back:
                found[load] = back
    later = set(loads(*steps[steps.index(store) + 1 :]))
    if not own and any(load in later and not _in_turns(load.index, store.index) for load in found):
        return {}
    return found if {*found.values()} == {*range(1, max(found.values(), default=0) + 1)} else {}


def _in_turns(first: Sequence[Index], second: Sequence[Index]) -> bool:
    """Tell whether two elements are never the same, as those of neighbouring steps where few are kept: `n % 2` and `(n + 1) % 2`."""
    algebra = Algebra.of({})
    for a, b in zip(first, second, strict=True):
        match a, b:
            case Mod(x, Int(q)), Mod(y, Int(r)) if q == r:
                apart = algebra.poly(x) - algebra.poly(y)
                if not apart.terms.keys() - {()} and apart.offset % q:
                    return True
            case _:
                pass
    return False


def _is_own(var: str, side: Index) -> bool:
    """Tell whether an index is another one in each iteration of a loop: a multiple of its variable, and what does not change."""
    found = coefficients(side)
    return found is not None and all((atom == Var(var)) == (Var(var) in {*walk(atom)}) for atom in found[0]) and Var(var) in found[0]


def _is_apart(loop: For, inner: Sequence[For], store: Store) -> bool:
    """Tell whether no two iterations of the inner loops, of one iteration of the outer or of neighbours, store to one element: along some
    side, each step of a loop is further than all of those of less stride together."""
    reach, known = {loop.var: inf, **{f.var: f.hi.value - 1 for f in inner if isinstance(f.hi, Int)}}, set[str]()
    for side in map(coefficients, store.index):
        found = side[0].items() if side is not None else ()
        strides = sorted((abs(c), reach[n.name], n.name) for n, c in found if isinstance(n, Var) and n.name in reach)
        before = 0.0
        for stride, steps, name in strides:
            if stride <= before:
                return False
            before += stride * steps
            known.add(name)
    return all(f.var in known for f in inner)


def _is_there_before(loop: For, buffer: Buffer, steps: Sequence[Stmt], reads: Mapping[Load, int]) -> bool:
    """Tell whether what the first iterations read back may be read before them: it is read whatever conditions say, or conditions of data
    alone decide that and it lies in the buffer."""
    certain = certain_loads(*steps)
    return all(
        load in certain or (_is_inside(loop, buffer, load) and not any(_is_asked_by_index(load, s) for s in steps)) for load in reads
    )


def _is_inside(loop: For, buffer: Buffer, load: Load) -> bool:
    """Tell whether what the first iteration reads is known to lie in a buffer."""
    algebra = Algebra.of({})
    first = [algebra.simplify(substitute(i, {loop.var: loop.lo})) for i in load.index]
    sides = zip(first, buffer.shape, strict=True)
    return all(isinstance(i, Int) and isinstance(n, Int) and 0 <= i.value < n.value for i, n in sides)


def _is_asked_by_index(load: Load, root: Stmt | Expr) -> bool:
    """Tell whether a condition that asks for indices decides somewhere whether an element is read."""
    for n in walk(root):
        match n:
            case Select(cond, then, orelse):
                chosen: tuple[Expr, ...] = (then, orelse)
            case Binary("and" | "or", cond, rhs):
                chosen = (rhs,)
            case _:
                continue
        if any(isinstance(c, IndexValue) for c in walk(cond)) and load in set(loads(*chosen)):
            return True
    return False


def _in_registers(loop: For, groups: Sequence[_Group], found: Sequence[_Recurrence], fresh: Fresh) -> tuple[Stmt, ...]:
    """Return a loop that keeps what it reads back in registers, behind what fills these with what the first iterations read."""
    before, body = list[Stmt](), list[Stmt]()
    for group in groups:
        first, then = _group_in_registers(loop, group, [r for r in found if r.group is group], fresh)
        before += first
        body += then
    made = (*before, replace(loop, body=tuple(body)))
    runs = Compare("<", IndexValue(loop.lo), IndexValue(loop.hi))
    return made if runs_at_least_once(loop) else (If(runs, made, ()),)


def _group_in_registers(loop: For, group: _Group, found: Sequence[_Recurrence], fresh: Fresh) -> tuple[list[Stmt], tuple[Stmt, ...]]:
    """Return what fills the registers of a group before the loop, and the group with these."""
    last, new = dict[Store, Buffer](), dict[Stmt, str]()
    for r in found:
        sides = tuple(f.hi for f in group.inner)
        last[r.store] = Buffer(fresh(f"{loop.var}_last"), r.buffer.dtype, (Int(max(r.reads.values())), *sides), "registers")
        new[r.store] = fresh(f"{loop.var}_new")
    at = tuple(Var(f.var) for f in group.inner)
    kept: dict[Load, Expr] = {load: Load(last[r.store].name, (Int(k - 1), *at)) for r in found for load, k in r.reads.items()}

    def value(e: Expr) -> Expr:
        return kept[e] if isinstance(e, Load) and e in kept else map_expr(e, lambda i: i, value)

    body: list[Stmt] = []
    for s in group.steps:
        match s:
            case Let(name, e):
                body.append(Let(name, value(e)))
            case Store(buffer) if s in new:
                body += (Let(new[s], value(s.value)), replace(s, value=Name(new[s])))
                kept[Load(buffer, s.index)] = Name(new[s])
            case Store():
                body.append(replace(s, value=value(s.value)))
    before: list[Stmt] = []
    for r in found:
        kept_in, count = last[r.store], max(r.reads.values())
        for k in reversed(range(1, count)):
            body.append(Store(kept_in.name, (Int(k), *at), Load(kept_in.name, (Int(k - 1), *at))))
        body.append(Store(kept_in.name, (Int(0), *at), Name(new[r.store])))
        before.append(Alloc(kept_in))
        firsts = []
        for k in range(1, count + 1):
            there = {loop.var: Add(loop.lo, Int(-k))}
            index = tuple(Algebra.of({}).simplify(substitute(i, there)) for i in r.store.index)
            firsts.append(Store(kept_in.name, (Int(k - 1), *at), Load(r.buffer.name, index)))
        renamed = {f.var: Var(fresh(f.var)) for f in group.inner}
        before += _around([replace(f, var=renamed[f.var].name) for f in group.inner], [substitute(s, renamed) for s in firsts])
    return before, _around(group.inner, body)


def _around(inner: Sequence[For], body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Return statements with loops around them."""
    made = tuple(body)
    for f in reversed(inner):
        made = (replace(f, body=made),)
    return made
