"""Keep in a register what later iterations read back, so that they do not wait for memory (scalar replacement).

    before   for c in 1 .. 257 { first[c] = first[c - 1] + count[c - 1] }

    after    alloc last: i32[1] registers
             last[0] = first[0]
             for c in 1 .. 257 {
                 let next = last[0] + count[c - 1]
                 first[c] = next
                 last[0] = next
             }

A serial loop that stores to some buffers once in each iteration, or at places that are never the same, and reads of them what the
iterations just before stored. Loops that are written out, or are lanes, all of them or as many as sizes say, may stand in between, one
after the other; what else it does, registers of its own, loops and conditions, stays as it is, and terms of a short sum are read one by
one. What only conditions of data say to read has to be there before the loop, whatever they are. Elements are of types that are computed
as they are stored.

Of a buffer that nobody else sees, and of which no iteration then reads anything from memory, what is read behind the loop is stored there,
and nothing inside:

    before   for n in 1 .. 257 { kept[n % 2] = kept[(n + 1) % 2] + count[n] }
             y[0] = kept[0]

    after    for n in 1 .. 257 { last[0] = last[0] + count[n] }
             kept[0] = last[0]
             y[0] = kept[0]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from codegen.dtypes import DType, bool_
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
    Require,
    Select,
    Stmt,
    Store,
    ValueIndex,
    Var,
)
from codegen.loops.walk import (
    Fresh,
    Node,
    binders,
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
    walk,
)
from codegen.loops.written_out import MOST_TERMS

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
    own: set[str] = set()
    for k, stmt in enumerate(body):
        match stmt:
            case For():
                loop = replace(stmt, body=_block(stmt.body, memory, fresh))
                apart = _with_terms_apart(loop)
                groups = _groups(apart)
                found = [*_recurrences(apart, groups, memory)] if loop.kind == "serial" and not loop.notes else []
                loop = apart if found else loop
                behind = {r.store: _behind(loop, r, body[k + 1 :]) for r in found if r.buffer.name in own and r.is_alone(loop)}
                out += _in_registers(loop, groups, found, behind, fresh) if found else (loop,)
            case If():
                out.append(replace(stmt, then=_block(stmt.then, memory, fresh), orelse=_block(stmt.orelse, memory, fresh)))
            case Alloc(buffer):
                own.add(buffer.name)
                out.append(stmt)
            case _:
                out.append(stmt)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Group:
    """Statements of a loop that stand together: `steps` inside of `inner` loops that are written out or are lanes, or in none."""

    inner: tuple[For, ...]
    steps: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class _Recurrence:
    """A buffer of which iterations read what was stored so many iterations before: each of `reads` that many, from 1 on."""

    group: _Group
    buffer: Buffer
    store: Store
    reads: Mapping[Load, int]

    def is_alone(self, loop: For) -> bool:
        """Tell whether each iteration of a loop stores to the buffer in one place, one element or a row of them."""
        return sum(s.buffer == self.buffer.name for s in stores(*loop.body)) == 1


def _with_terms_apart(loop: For) -> For:
    """Return a loop with the terms of short sums one by one, where they read back what it stores, so many iterations before as their number
    says."""
    stored = {s.buffer for s in stores(*loop.body)}
    body: list[Stmt] = []
    for s in loop.body:
        match s:
            case For(var, Int(first), Int(end), terms, "serial" | "unroll" as kind, notes=()) if (
                (kind == "unroll" or end - first <= MOST_TERMS)
                and all(isinstance(term, Store) and var not in free_vars(*term.index) for term in terms)
                and any(load.buffer in stored and {var, loop.var} <= free_vars(*load.index) for load in loads(*terms))
            ):
                body += (substitute(term, {var: Int(k)}) for k in range(first, end) for term in terms)
            case _:
                body.append(s)
    return replace(loop, body=tuple(body))


def _groups(loop: For) -> list[_Group]:
    """Return the statements of a loop in groups: each loop inside that is written out or is lanes is one, and so is what stands between
    two of them."""
    found: list[_Group] = []
    for s in loop.body:
        inner: list[For] = []
        body: tuple[Stmt, ...] = (s,)
        while len(body) == 1 and isinstance(body[0], For) and body[0].kind in ("unroll", "vector") and not body[0].notes:
            inner.append(body[0])
            body = body[0].body
        if not inner and found and not found[-1].inner:
            found[-1] = _Group((), (*found[-1].steps, s))
        else:
            found.append(_Group(tuple(inner), body))
    return found


def _recurrences(loop: For, groups: Sequence[_Group], memory: Mapping[str, Buffer]) -> Iterator[_Recurrence]:
    """Yield the buffers that a loop reads back, as far as registers hold their elements."""
    if not all(is_plain(s) for s in statements(*loop.body)):
        return
    if not all(f.lo == Int(0) and _most(f) and _is_same_throughout(f.hi, loop) for g in groups for f in g.inner):
        return
    stored, left = [(g, s) for g in groups for s in g.steps if isinstance(s, Store)], MOST_BYTES
    counts = Counter(s.buffer for s in stores(*loop.body))
    for group, store in stored:
        buffer = memory.get(store.buffer)
        if buffer is None or not is_computed_as_stored(buffer.dtype):
            continue
        others = [(g, s) for g, s in stored if s is not store and s.buffer == store.buffer]
        if len(others) + 1 < counts[store.buffer] or not all(_are_elsewhere(group, store, g, s) for g, s in others):
            continue
        steps = group.steps if group.inner else loop.body
        reads = _read_back(loop.var, store, steps)
        size = prod(map(_most, group.inner)) * buffer.dtype.size_bytes * max(reads.values(), default=0)
        if reads and size <= left and _is_apart(loop, group.inner, store) and _is_there_before(loop, group, buffer, store, steps, reads):
            left -= size
            yield _Recurrence(group, buffer, store, reads)


def is_computed_as_stored(dtype: DType) -> bool:
    return dtype == bool_ or dtype.bits >= (32 if dtype.is_float else 8)


def _most(inner: For) -> int:
    """Return how many iterations a loop has at most, which is written out or is lanes; 0 where that is not known."""
    return inner.extent or 0 if inner.values is None else len(inner.values)


def _is_same_throughout(end: Index, loop: For) -> bool:
    """Tell whether an index depends on nothing that a loop changes."""
    return not {loop.var, *binders(*loop.body)} & free_vars(end) and not any(isinstance(p, ValueIndex) for p in walk(end))


def _are_elsewhere(group: _Group, store: Store, other_group: _Group, other: Store) -> bool:
    """Tell whether two places are never the same, whatever the iterations of the loops around: along some side, one lies behind all
    elements of the other."""

    def ends(of: _Group, index: Index) -> tuple[int, int] | None:
        found, sizes = coefficients(index), {f.var: _most(f) - 1 for f in of.inner}
        if found is None or not all(isinstance(n, Var) and n.name in sizes for n in found[0]):
            return None
        reach = [c * sizes[n.name] for n, c in found[0].items() if isinstance(n, Var)]
        return found[1] + sum(min(r, 0) for r in reach), found[1] + sum(max(r, 0) for r in reach)

    for a, b in zip(store.index, other.index, strict=True):
        one, two = ends(group, a), ends(other_group, b)
        if one is not None and two is not None and (one[1] < two[0] or two[1] < one[0]):
            return True
    return False


def is_plain(s: Node) -> bool:
    """Tell whether one thread runs a statement, and what it stores is there when it has."""
    match s:
        case Store():
            return not (s.stream or s.across or s.later)
        case For(kind=kind):
            return kind in ("serial", "unroll", "vector")
        case Alloc(buffer):
            return buffer.space == "registers"
        case _:
            return isinstance(s, Let | If | Require)


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
    if not own and any(load in later and not in_turns(load.index, store.index) for load in found):
        return {}
    return found if {*found.values()} == {*range(1, max(found.values(), default=0) + 1)} else {}


def in_turns(first: Sequence[Index], second: Sequence[Index]) -> bool:
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
    reach, known = {loop.var: inf, **{f.var: _most(f) - 1 for f in inner}}, set[str]()
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


def _is_there_before(loop: For, group: _Group, buffer: Buffer, store: Store, steps: Sequence[Stmt], reads: Mapping[Load, int]) -> bool:
    """Tell whether what the first iterations read back may be read before them: it is read whatever conditions say, or conditions of data
    alone decide that and it lies in the buffer."""
    certain = certain_loads(*steps)
    stored = () if group.inner else store.index
    return all(
        load in certain or (_is_inside(loop, buffer, load, stored) and not any(_is_asked_by_index(load, s) for s in steps))
        for load in reads
    )


def _is_inside(loop: For, buffer: Buffer, load: Load, stored: tuple[Index, ...]) -> bool:
    """Tell whether what the first iteration reads is known to lie in a buffer: along each side its place is a number, or that of what is
    `stored` in each iteration, whatever data say."""
    algebra = Algebra.of({})
    first = [algebra.simplify(substitute(i, {loop.var: loop.lo})) for i in load.index]
    same = [a == b and not any(isinstance(p, ValueIndex) for p in walk(a)) for a, b in zip(load.index, stored, strict=False)]
    sides = zip(first, buffer.shape, same or [False] * len(first), strict=True)
    return all(known or (isinstance(i, Int) and isinstance(n, Int) and 0 <= i.value < n.value) for i, n, known in sides)


def _is_asked_by_index(load: Load, root: Stmt | Expr) -> bool:
    """Tell whether a condition that asks for indices decides somewhere whether an element is read."""
    for n in walk(root):
        match n:
            case Select(cond, then, orelse):
                chosen: tuple[Node, ...] = (then, orelse)
            case Binary("and" | "or", cond, rhs):
                chosen = (rhs,)
            case If(cond, inside, otherwise):
                chosen = (*inside, *otherwise)
            case For(lo=lo, hi=hi) if not runs_at_least_once(n):
                cond, chosen = Compare("<", IndexValue(lo), IndexValue(hi)), n.body
            case _:
                continue
        if any(isinstance(c, IndexValue) for c in walk(cond)) and load in set(loads(*chosen)):
            return True
    return False


def _behind(loop: For, r: _Recurrence, rest: Sequence[Stmt]) -> frozenset[int] | None:
    """Return which of the last elements, or rows, that a loop stores to a buffer `rest` reads, each as how many came after it; None where
    it may read others, or registers do not hold them."""
    algebra, inner = Algebra.of({}), {f.var for f in r.group.inner}
    sides = [k for k, side in enumerate(r.store.index) if inner.isdisjoint(free_vars(side))]
    if any(loop.var in free_vars(side) for k, side in enumerate(r.store.index) if k not in sides):
        return None
    last = [
        tuple(algebra.poly(at[k]) for k in sides) for n in range(max(r.reads.values())) if (at := _index_at(r.store, loop, loop.hi, -1 - n))
    ]
    there = [tuple(algebra.poly(load.index[k]) for k in sides) for load in loads(*rest) if load.buffer == r.buffer.name]
    return frozenset(map(last.index, there)) if all(at in last for at in there) else None


def _index_at(store: Store, loop: For, start: Index, steps: int) -> tuple[Index, ...]:
    """Return where a loop stores so many iterations from one."""
    return tuple(Algebra.of({}).simplify(substitute(i, {loop.var: Add(start, Int(steps))})) for i in store.index)


def _in_registers(
    loop: For,
    groups: Sequence[_Group],
    found: Sequence[_Recurrence],
    behind: Mapping[Store, frozenset[int] | None],
    fresh: Fresh,
) -> tuple[Stmt, ...]:
    """Return a loop that keeps what it reads back in registers, behind what fills these with what the first iterations read. `behind`: of
    stores to buffers that nobody else sees which of the last elements are read after the loop (`_behind`)."""
    last, new = dict[Store, Buffer](), dict[Stmt, str]()
    for r in found:
        sides = (max(r.reads.values()), *map(_most, r.group.inner))
        last[r.store] = Buffer(fresh(f"{loop.var}_last"), r.buffer.dtype, tuple(map(Int, sides)), "registers")
        new[r.store] = fresh(f"{loop.var}_new")

    def at(r: _Recurrence) -> tuple[Index, ...]:
        return tuple(Var(f.var) for f in r.group.inner)

    def kept_of(some: Sequence[_Recurrence]) -> dict[Load, Expr]:
        return {load: Load(last[r.store].name, (Int(k - 1), *at(r))) for r in some for load, k in r.reads.items()}

    def apart(r: _Recurrence, steps: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """Return statements in loops of their own over the elements of a row."""
        renamed = {f.var: Var(fresh(f.var)) for f in r.group.inner}
        around = [replace(f, var=renamed[f.var].name) for f in r.group.inner]
        return _around(around, [substitute(s, renamed) for s in steps]) if steps else ()

    def renewed(some: Sequence[_Recurrence]) -> Iterator[Stmt]:
        """Yield what hands the elements on to the next iteration."""
        for r in some:
            for k in reversed(range(1, max(r.reads.values()))):
                yield Store(last[r.store].name, (Int(k), *at(r)), Load(last[r.store].name, (Int(k - 1), *at(r))))
            yield Store(last[r.store].name, (Int(0), *at(r)), Name(new[r.store]))

    plain = [r for r in found if not r.group.inner]
    kept, body = kept_of(plain), list[Stmt]()
    for group in groups:
        if not group.inner:
            body += _kept(group.steps, new, kept)
            continue
        own = [r for r in found if r.group is group]
        body += _around(group.inner, [*_kept(group.steps, new, {**kept, **kept_of(own)}), *renewed(own)])
    read = {load.buffer for load in loads(*body)}
    unread = {r.store for r in found if behind.get(r.store) is not None and r.buffer.name not in read}
    body = [*_without_stores(body, {s.buffer for s in unread}), *renewed(plain)]
    before, after = list[Stmt](), list[Stmt]()
    for r in found:
        kept_in, most = last[r.store], max(r.reads.values())
        element = {k: Load(kept_in.name, (Int(k), *at(r))) for k in range(most)}
        place = {k: _index_at(r.store, loop, loop.lo, -1 - k) for k in range(most)}
        before += (Alloc(kept_in), *apart(r, [Store(kept_in.name, element[k].index, Load(r.buffer.name, place[k])) for k in range(most)]))
        last_places = {k: _index_at(r.store, loop, loop.hi, -1 - k) for k in sorted(behind[r.store] or ())} if r.store in unread else {}
        after += apart(r, [Store(r.buffer.name, place, element[k]) for k, place in last_places.items()])
    made = (*before, replace(loop, body=tuple(body)), *after)
    runs = Compare("<", IndexValue(loop.lo), IndexValue(loop.hi))
    return made if runs_at_least_once(loop) else (If(runs, made, ()),)


def _kept(steps: Sequence[Stmt], new: Mapping[Stmt, str], kept: dict[Load, Expr]) -> Iterator[Stmt]:
    """Yield statements that read what is `kept` instead of memory; what they store to a buffer that is read back has a name, by which the
    statements after them read it."""

    def index(e: Index) -> Index:
        return map_index(e, index, value)

    def value(e: Expr) -> Expr:
        return kept[e] if isinstance(e, Load) and e in kept else map_expr(e, index, value)

    def stmt(s: Stmt) -> Stmt:
        return map_stmt(s, index, value, stmt)

    for s in steps:
        match s:
            case Store(buffer) if s in new:
                yield Let(new[s], value(s.value))
                yield replace(s, value=Name(new[s]))
                kept[Load(buffer, s.index)] = Name(new[s])
            case _:
                yield stmt(s)


def _without_stores(body: Sequence[Stmt], buffers: Collection[str]) -> Iterator[Stmt]:
    """Yield statements without those that store to some buffers, by themselves or in loops that are written out or are lanes."""
    for s in body:
        match s:
            case For(kind="unroll" | "vector", body=steps):
                yield replace(s, body=tuple(_without_stores(steps, buffers)))
            case Store(buffer) if buffer in buffers:
                pass
            case _:
                yield s


def _around(inner: Sequence[For], body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Return statements with loops around them."""
    made = tuple(body)
    for f in reversed(inner):
        made = (replace(f, body=made),)
    return made
