"""A loop of its own for each number of rows that a tile at an edge has.

    before   for k in 0 .. K { for ii in 0 .. M - 4*io unroll 4 { c[4*io + ii] = fma(a[4*io + ii, k], b[k], c[4*io + ii]) } }
    after    if M - 4*io < 3 {
                 if M - 4*io < 2 { for k in 0 .. K { c[4*io] = fma(a[4*io, k], b[k], c[4*io]) } }
                 else            { for k in 0 .. K { for ii in 0 .. 2 unroll 2 { … } } }
             } else …

Where a sum runs over copies whose number is only known at run time, every step of the sum would ask for each copy whether it is there. The
number does not change while the loop runs, so it is asked once, before. Each sum takes the same steps in the same order as before, and
its steps may be unrolled, as those of a small window are.

Where that would be too many versions, fewer have to do if copies that are not there have no lanes: for all copies, half as many, a quarter,
down to one.

    before   for k in 0 .. K { for u in 0 .. (N + 15) // 16 unroll 3 { for v in 0 .. min(16, N - 16*u) vector 16 { … } } }
    after    if (N + 15) // 16 < 2 { for k in 0 .. K { for v in 0 .. min(16, N) vector 16 { … } } }
             else                  { for k in 0 .. K { for u in 0 .. 3 unroll 3 { for v in 0 .. min(16, N - 16*u) vector 16 { … } } } }
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen.dtypes import i64
from codegen.loops.indices import Algebra, Poly
from codegen.loops.nodes import Add, Alloc, Compare, Const, For, Function, If, Index, IndexValue, Int, Min, Stmt, ValueIndex, Var
from codegen.loops.simplify import assuming
from codegen.loops.walk import binders, free_vars, map_stmt, statements, stores, substitute_index, walk

MOST_COPIES = 13
"""Of a loop, for all numbers of rows and of vectors."""
MOST_NODES = 150_000
"""Of a function, every copy of an unrolled loop counted."""


def unswitch(function: Function) -> Function:
    """Return a function that does the same as `function`, in simplified form, in whose sums the number of copies is known."""
    if not any(_open_loops(function.body)):
        return function
    made = replace(function, body=_block(function.body, Algebra.outside(function)))
    return made if _expanded(made.body) <= MOST_NODES else function


def _expanded(body: tuple[Stmt, ...]) -> int:
    """Return how many nodes there are in `body` once loops are unrolled."""
    return sum(map(_expanded_nodes, body))


def _expanded_nodes(s: Stmt) -> int:
    match s:
        case For(_, lo, hi, kind=kind, extent=extent):
            return sum(1 for _ in walk(lo, hi)) + _expanded(s.body) * (extent or 1 if kind == "unroll" else 1)
        case If(cond, then, orelse):
            return sum(1 for _ in walk(cond)) + _expanded(then) + _expanded(orelse)
        case _:
            return sum(1 for _ in walk(s))


def _is_open(loop: For) -> bool:
    return loop.kind == "unroll" and loop.lo == Int(0) and not isinstance(loop.hi, Int) and loop.extent is not None


def _open_loops(body: tuple[Stmt, ...]) -> Iterator[For]:
    return (n for n in statements(*body) if isinstance(n, For) and _is_open(n))


def _block(body: tuple[Stmt, ...], algebra: Algebra, room: int = MOST_COPIES) -> tuple[Stmt, ...]:
    copies = tuple(_copies(body, algebra))
    found = next((c for c in copies if c.most - c.least < room), None)
    if found is not None:
        return _versions(body, found, found.least, found.most, algebra, room // (found.most - found.least + 1))
    for c in copies:
        every, *fewer = (tuple(_with_copies(s, c.number, count, algebra) for s in body) for count in _halved(c.most))
        if every != body:
            made = tuple(_inside(s, algebra) for s in every)
            for count, some in zip(_halved(c.most)[1:], fewer, strict=True):
                own = tuple(_inside(s, algebra) for s in some)
                made = (If(Compare("<", IndexValue(c.number), Const(count + 1, i64)), own, made),)
            return made
    return tuple(_inside(s, algebra) for s in body)


def _halved(most: int) -> tuple[int, ...]:
    """Return a number of copies, half as many, and so on down to one."""
    return (most, *_halved(most // 2)) if most > 1 else (1,)


def _with_copies(s: Stmt, number: Index, count: int, algebra: Algebra) -> Stmt:
    """Return a statement with `count` copies where there are `number`, no more than that, if those that are not there have no lanes."""
    if isinstance(s, For) and _is_open(s) and s.hi == number and all(_is_empty_from(s, inner, algebra) for inner in s.body):
        s = replace(s, hi=Int(count), extent=count)
    return map_stmt(s, lambda e: e, lambda e: e, lambda inner: _with_copies(inner, number, count, algebra))


def _is_empty_from(copies: For, s: Stmt, algebra: Algebra) -> bool:
    """Tell whether a statement is lanes of which there are none in copies that are not there: none in the first of these, and in no copy
    more than in the one before."""
    if not isinstance(s, For) or s.kind != "vector":
        return False

    def empty(end: Index, at: Index) -> Poly:
        env = {copies.var: at}
        return algebra.poly(substitute_index(s.lo, env)) - algebra.poly(substitute_index(end, env))

    here, first = Var(copies.var), [number for number in _sides(copies.hi) if number != Int(copies.extent or 0)]
    return any(
        all(algebra.nonnegative(empty(end, number)) for number in first)
        and algebra.nonnegative(empty(end, Add(here, Int(1))) - empty(end, here))
        for end in _sides(s.hi)
    )


def _sides(e: Index) -> tuple[Index, ...]:
    return (e.lhs, e.rhs) if isinstance(e, Min) else (e,)


def _inside(s: Stmt, algebra: Algebra) -> Stmt:
    match s:
        case For():
            return replace(s, body=_block(s.body, algebra.with_loop(s.var, s.lo, s.hi, s.extent)))
        case If(cond, then, orelse):
            return replace(s, then=_block(then, assuming(algebra, cond, True)), orelse=_block(orelse, assuming(algebra, cond, False)))
        case _:
            return s


@dataclass(frozen=True, slots=True)
class _Copies:
    """A number of copies that a sum has inside: between which numbers it lies, both included."""

    number: Index
    least: int
    most: int


def _copies(body: tuple[Stmt, ...], algebra: Algebra) -> Iterator[_Copies]:
    """Yield numbers of copies, known before `body` runs, of which a sum in it asks in every step."""
    found = [(s, loops) for s in body if isinstance(s, For) and _has_steps(s) and (loops := tuple(_open_loops(s.body)))]
    bound = frozenset(binders(*body)) if found else frozenset[str]()
    seen: set[Index] = set()
    for inner in (n for s, loops in found if _sums(s) for n in loops):
        if inner.hi in seen or free_vars(inner.hi) & bound:
            continue
        seen.add(inner.hi)
        if any(isinstance(n, ValueIndex) for n in walk(inner.hi)):
            continue
        low, high = algebra.interval(algebra.poly(inner.hi))
        least, most = max(0, low), min(inner.extent or 0, high)
        if least <= most:
            yield _Copies(inner.hi, int(least), int(most))


def _sums(loop: For) -> bool:
    """Tell whether iterations of a loop write the same elements of what is there before."""
    own = {n.buffer.name for n in statements(*loop.body) if isinstance(n, Alloc)}
    return any(loop.var not in free_vars(*s.index) for s in stores(*loop.body) if s.buffer not in own)


def _has_steps(loop: For) -> bool:
    """Tell whether a loop runs again and again, however that is written."""
    return loop.kind == "serial" or (loop.kind == "unroll" and not _is_open(loop) and loop.hi != Int(1))


def _versions(body: tuple[Stmt, ...], copies: _Copies, low: int, high: int, algebra: Algebra, room: int) -> tuple[Stmt, ...]:
    """Return the block for each number of copies from `low` to `high`, which it is looked for among."""
    if low == high:
        return _block(tuple(_known(s, copies.number, low) for s in body), algebra, room)
    middle = (low + high + 1) // 2
    below, above = _versions(body, copies, low, middle - 1, algebra, room), _versions(body, copies, middle, high, algebra, room)
    return (If(Compare("<", IndexValue(copies.number), Const(middle, i64)), below, above),)


def _known(s: Stmt, number: Index, count: int) -> Stmt:
    if isinstance(s, For) and _is_open(s) and s.hi == number:
        s = replace(s, hi=Int(count), extent=count)
    return map_stmt(s, lambda e: e, lambda e: e, lambda inner: _known(inner, number, count))
