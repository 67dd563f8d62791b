"""Index-set splitting: what the edges of arrays ask of indices is asked at the edges alone.

    before   for jo in 0 .. 64 {
                 for jv in 0 .. 16 vector { y[16*jo + jv] = x[max(0, 16*jo + jv - 1)] }
             }
    after    y[0] = x[0]
             for jv in 1 .. 16 vector { y[jv] = x[jv - 1] }
             for jo in 1 .. 64 {
                 for jv in 0 .. 16 vector { y[16*jo + jv] = x[16*jo + jv - 1] }
             }

A *question* is a condition on indices, or which side a minimum or maximum, a quotient or remainder takes: the sign of a polynomial. Along a
loop it is decided on half-lines, with the variables of the loops inside at their worst. The *interior* of a loop is the longest range in
which every question is decided. Iterations keep their order, so nothing else changes, sums included:

    serial     the loop falls into the iterations before the interior, the interior, and those after it
    parallel   the body is there twice, under `if` the iteration is in the interior: the shares of threads stay what they were. So it is
               for serial loops around others, where that is the shorter code and no register holds what iterations hand on
    vector     like a serial one, where elements would have to be read lane by lane, and nothing is kept in registers or summed over lanes

Questions that are asked once for many elements stay where they are: an index that the innermost loop does not change. Where the order of
bounds depends on sizes, the interior is chosen for sizes that are large; bounds are minima and maxima then, and right for all sizes.
`partition` leaves the questions in their places, for `simplify` to answer.

Serial loops begin and end where conditions leave something to do (`codegen.loops.idle_ends`).

A loop with the note `partition` is split whatever that costs, as soon as an iteration is left in which everything is decided that the loop
may decide, asked once for many elements or not. Where there is none, the loop keeps its note.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any

from codegen.loops.evaluate import evaluated
from codegen.loops.half_lines import HalfLine, Inside, extreme, half_line, over, range_of
from codegen.loops.idle_ends import without_idle_ends
from codegen.loops.indices import Algebra, Poly
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
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
    Let,
    Load,
    Max,
    Min,
    Mod,
    Select,
    Stmt,
    Store,
    ValueIndex,
    Var,
)
from codegen.loops.notes import Partitioned
from codegen.loops.pinned import runs_at_most_once
from codegen.loops.simplify import assuming, left_of, nonnegative_when
from codegen.loops.walk import children, free_vars, loads, noted_loops, statements, stores, substitution, walk
from codegen.loops.written_out import MOST_TERMS
from codegen.polynomials import ONE, number

LARGE = 5003
"""What a size counts as where the order of bounds is not known: a prime, which leaves something over in every tile."""
MOST_GROWTH = 12
"""How many times as long a function may become as it was, where it is longer than `LONG_NODES` then."""
LONG_NODES = 24_000
"""Of code: LLVM compiles as many in a few tenths of a second, so that it does not matter how many there were before."""
MOST_NODES = 80_000
"""Of code, where unrolled loops count as often as they run: two hundred copies of a term, between edges and at each of them. LLVM takes
some tenths of a second for as many, some seconds where vectors are many registers wide."""
MOST_LONGER = 2.5
"""How many times as long a function may become that is long already, and no longer than `LONGEST_NODES`: LLVM takes its time for that in
any case, as where tiles at open edges have loops of their own, and what asks about all edges in every step runs at half the speed."""
LONGEST_NODES = 150_000
MOST_BLOCKS = 4
"""How many multiples of a divisor a dividend may reach within a loop to be worth a range for each."""
LEAST_SHARE = 0.25
"""Of the iterations, in the interior."""
LEAST_SHARE_AROUND = 0.5
"""The same for a loop around others, whose code is long."""
LEAST_ITERATIONS = 4
"""Of a loop around others, to be split, and of a part at an edge, to be split again."""
MOST_COPIES = 8
"""Of the body of a sum at an edge."""
LEAST_TERMS = 16
"""Of a sum, to be split: shorter ones are asked about the edges term by term, in what is at the edges of their elements."""
MOST_ROUNDS = 3
"""In how many steps an interior is found."""
MOST_PARTS = 2
"""How often that is done."""
_STEPS = (Min, Max, Mod, FloorDiv)
_LEVELS = (6, 4, 3, 2, 1)
"""Around how many loops inside a loop it may be split: fewer where the code would grow too much, none but where a note asks for it."""


def partition(function: Function) -> Function:
    """Return a function that does the same as `function`, in simplified form, in whose interiors no index is asked about the edges."""
    if not _asks(function):
        return function
    before = _code(function.body)
    longest = max(MOST_NODES, min(int(MOST_LONGER * before), LONGEST_NODES))
    sample = dict.fromkeys(function.sizes, LARGE)
    spaces = {p.name: p.space for p in function.params}
    asked = any(isinstance(n, For) and _is_asked(n) for n in statements(*function.body))
    spaces |= {n.buffer.name: n.buffer.space for n in statements(*function.body) if isinstance(n, Alloc)}
    deepest = max((_depth(n.body) for n in statements(*function.body) if isinstance(n, For)), default=0)
    levels = dict.fromkeys(min(level, deepest + 1) for level in _LEVELS)  # those that are around all loops are the same
    for level in (*levels, 0) if asked else levels:
        most = min(max(MOST_GROWTH * before, LONG_NODES), longest) if level else longest
        try:
            body = _Partition(level, spaces, most).block(function.body, _Scope(Algebra.outside(function), sample))
        except _TooLong:
            continue
        return replace(function, body=body)
    return function


def _code(body: Iterable[Stmt]) -> int:
    """Return how many nodes of code statements are: those of unrolled loops as often as they run."""
    total = 0
    for s in body:
        match s:
            case For():
                total += 1 + _code(s.body) * _copies(s)
            case If(cond, then, orelse):
                total += sum(1 for _ in walk(cond)) + _code((*then, *orelse))
            case _:
                total += sum(1 for _ in walk(s))
    return total


def _copies(loop: For) -> int:
    """Return how often the body of a loop is there once it is unrolled."""
    return loop.extent or 1 if loop.kind == "unroll" else 1


def _asks(function: Function) -> bool:
    """Tell whether there is anything to decide, in no time."""
    return any(isinstance(n, (*_STEPS, Compare)) for n in walk(*function.body))


# ---------------------------------------------------------------- questions


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known where we are. `sample`: a value for every variable and size, for comparing bounds that have no known order; `copies`:
    how often what stands here is there once the loops around it are unrolled."""

    algebra: Algebra
    sample: Mapping[str, int]
    copies: int = 1

    def inside(self, loop: For) -> _Scope:
        lo, hi = (evaluated(e, self.sample) for e in (loop.lo, loop.hi))
        middle = 0 if lo is None or hi is None else (lo + max(lo, hi - 1)) // 2
        copies = self.copies * _copies(loop)
        return _Scope(self.algebra.with_loop(loop.var, loop.lo, loop.hi, loop.extent), {**self.sample, loop.var: middle}, copies)

    def assuming(self, cond: Expr, truth: bool) -> _Scope:
        return replace(self, algebra=assuming(self.algebra, cond, truth))


class _Questions:
    """Collects what the body of `loop` asks that the loop may decide: for each question, the half-lines on which it is decided."""

    def __init__(self, loop: For, scope: _Scope) -> None:
        self.var = loop.var
        self.found: dict[Poly, tuple[HalfLine, ...]] = {}
        self.asked = frozenset((loop.var,)) if _is_asked(loop) else frozenset[str]()
        self.for_lanes = loop.kind == "vector" and not self.asked
        self._block(loop.body, scope.inside(loop).algebra, (), _core(loop, frozenset()))

    def _block(self, body: tuple[Stmt, ...], algebra: Algebra, inside: tuple[Inside, ...], core: frozenset[str]) -> None:
        """`core`: an innermost loop that is not expanded, and those inside it, which are; empty where more is done in loops further in.
        A loop that a note is about counts as one."""
        core |= self.asked
        for s in body:
            match s:
                case For():
                    within = algebra.with_loop(s.var, s.lo, s.hi, s.extent)
                    self._block(s.body, within, (*inside, range_of(s, algebra)), _core(s, core))
                case If(cond, then, orelse):
                    if self.asked or _is_asked_often((*then, *orelse)):
                        self._expr(cond, algebra, inside, core)
                    self._block(then, assuming(algebra, cond, True), inside, core)
                    self._block(orelse, assuming(algebra, cond, False), inside, core)
                case Store(index=index, value=value):
                    for e in index:
                        self._index(e, algebra, inside, core)
                    self._expr(value, algebra, inside, core)
                case Let(_, value):
                    self._expr(value, algebra, inside, core)
                case _:
                    pass

    def _expr(self, e: Expr, algebra: Algebra, inside: tuple[Inside, ...], core: frozenset[str]) -> None:
        match e:
            case Load(index=index):
                for i in index:
                    self._index(i, algebra, inside, core)
            case IndexValue(index):
                self._index(index, algebra, inside, core)
            case Select(cond, then, orelse):
                self._expr(cond, algebra, inside, core)
                self._expr(then, assuming(algebra, cond, True), inside, core)
                self._expr(orelse, assuming(algebra, cond, False), inside, core)
            case Compare(op, IndexValue(), _) | Compare(op, _, IndexValue()) if core and not self.for_lanes:
                for poly in nonnegative_when(algebra, op, e.lhs, e.rhs):
                    self._ask(poly, algebra, inside)
            case _:
                for child in children(e):
                    if not isinstance(child, Index):
                        self._expr(child, algebra, inside, core)  # type: ignore[arg-type]  # values have values and indices below them

    def _index(self, e: Index, algebra: Algebra, inside: tuple[Inside, ...], core: frozenset[str]) -> None:
        for step, names in _steps(e):
            if core.isdisjoint(names):
                continue
            match step:
                case Min(lhs, rhs) | Max(lhs, rhs):
                    self._ask(algebra.poly(lhs) - algebra.poly(rhs), algebra, inside, tie=True)
                case Mod(lhs, Int(q)) | FloorDiv(lhs, Int(q)) if q > 0:
                    value = algebra.poly(lhs)
                    low, high = algebra.interval(value)
                    if not math.isinf(low) and not math.isinf(high) and 0 < high // q - low // q <= MOST_BLOCKS:
                        for k in range(int(low // q) + 1, int(high // q) + 1):
                            self._ask(value - number(k * q), algebra, inside)
                case Mod(lhs, rhs) | FloorDiv(lhs, rhs):
                    value, divisor = algebra.poly(lhs), algebra.poly(rhs)
                    self._ask(value, algebra, inside)
                    self._ask(divisor - value - ONE, algebra, inside)

    def _ask(self, poly: Poly, algebra: Algebra, inside: tuple[Inside, ...], *, tie: bool = False) -> None:
        """Ask whether `poly` is negative. `tie`: where it is zero, either answer is right."""
        if algebra.nonnegative(poly) or algebra.nonnegative(poly.scaled(-1) - ONE):
            return
        for plain in _without_extremes(poly, frozenset((self.var, *(i.var for i in inside)))):
            if plain not in self.found:
                least, most = extreme(plain, inside, least=True), extreme(plain, inside, least=False)
                holds = half_line(self.var, algebra, least, True) if least is not None else None
                fails = half_line(self.var, algebra, most - ONE if tie else most, False) if most is not None else None
                self.found[plain] = tuple(h for h in (holds, fails) if h is not None)


@lru_cache(1 << 12)
def _steps(e: Index) -> tuple[tuple[Min | Max | Mod | FloorDiv, frozenset[str]], ...]:
    """Return what of an index takes one side or the other, outer ones first, each with the names that it depends on."""
    if isinstance(e, ValueIndex):
        return ()
    own = ((e, free_vars(e)),) if isinstance(e, _STEPS) else ()
    return (*own, *(found for child in children(e) for found in _steps(child)))


def _is_asked_often(body: tuple[Stmt, ...]) -> bool:
    """Tell whether a condition that `body` stands under is asked for few elements: for those of a loop that is expanded, or without one.
    What writes nothing, as prefetches, is not worth another copy of what stands beside it."""
    if any(isinstance(n, For) and not runs_at_most_once(n) for n in statements(*body)):
        return not _depth(body) and any(stores(*body))
    return True


def _core(loop: For, around: frozenset[str]) -> frozenset[str]:
    if loop.kind not in ("serial", "parallel"):
        return around | {loop.var} if around or loop.kind == "vector" else around
    return frozenset() if _depth(loop.body, loop.var) else frozenset((loop.var,))


def _without_extremes(poly: Poly, changing: frozenset[str]) -> Iterator[Poly]:
    """Yield polynomials whose signs decide that of `poly`, without minima and maxima that change; none where others of its parts do."""
    for monomial in poly.terms:
        for atom in monomial:
            if isinstance(atom, Var) or changing.isdisjoint(free_vars(atom)):
                if any(isinstance(n, ValueIndex) for n in walk(atom)):
                    return
                continue
            match monomial:
                case (Min(lhs, rhs) | Max(lhs, rhs),):
                    for side in (lhs, rhs):
                        plain = Algebra.of({}).poly(side)
                        yield from _without_extremes(poly.without(monomial).plus(plain, poly.terms[monomial]), changing)
            return
    yield poly


# ---------------------------------------------------------------- interiors


@dataclass(frozen=True, slots=True)
class _Interior:
    """Iterations from every one of `first` on and before every one of `end`, which is where `conditions` hold."""

    first: tuple[Index, ...]
    end: tuple[Index, ...]
    conditions: tuple[Expr, ...]


def _interior(loop: For, scope: _Scope) -> _Interior | None:
    """Return the interior of a loop, or None where there is nothing to gain by one. What is asked inside it alone, as when a remainder is
    known, counts too."""
    found: _Interior | None = None
    for _ in range(MOST_ROUNDS):
        inner = _decided(loop, scope, _least(loop))
        if inner is None and found is None and _is_asked(loop):
            inner = _decided(loop, scope, 0)
        if inner is None:
            break
        found = (
            inner
            if found is None
            else _Interior((*found.first, *inner.first), (*found.end, *inner.end), (*found.conditions, *inner.conditions))
        )
        lo, hi = reduce(Max, inner.first, loop.lo), reduce(Min, inner.end, loop.hi)
        loop = over(loop, lo, hi, scope.algebra)
    return found


def _least(loop: For) -> float:
    """Return the share of the iterations in the interior that is worth the code."""
    return LEAST_SHARE_AROUND if _depth(loop.body) else LEAST_SHARE


def _decided(loop: For, scope: _Scope, least: float) -> _Interior | None:
    """Return the longest range in which all is decided that is decided in many iterations, if it has `least` of them."""
    lo, hi = (evaluated(e, scope.sample) for e in (loop.lo, loop.hi))
    if lo is None or hi is None or hi - lo < (LEAST_ITERATIONS if _depth(loop.body) and least else 2):
        return None
    index = scope.algebra.index
    asked: list[list[tuple[HalfLine, int]]] = []
    for halves in _Questions(loop, scope).found.values():
        placed = [(h, v) for h in halves if (v := evaluated(index(h.bound), scope.sample)) is not None]
        if sum(_length(h, v, lo, hi) for h, v in placed) >= (2 * LEAST_SHARE * (hi - lo) if least else 1):
            asked.append(placed)
    if not asked:
        return None
    bounds = sorted({lo, hi, *(v for placed in asked for _, v in placed if lo < v < hi)})
    best: tuple[int, list[HalfLine]] | None = None
    for first, end in pairwise(bounds):
        chosen = [next((h for h, v in placed if (first >= v if h.lower else end <= v)), None) for placed in asked]
        known = [h for h in chosen if h is not None]
        if len(known) == len(chosen) and (best is None or end - first > best[0]):
            best = end - first, known
    if best is None or best[0] < least * (hi - lo):
        return None
    kept = dict.fromkeys(best[1])
    begins = tuple(index(h.bound) for h in kept if h.lower)
    ends = tuple(index(h.bound) for h in kept if not h.lower)
    return _Interior(begins, ends, tuple(h.holds(loop.var, scope.algebra) for h in kept))


def _length(half: HalfLine, bound: int, lo: int, hi: int) -> int:
    """Return how many iterations from `lo` to `hi` lie on the half-line."""
    return max(0, hi - max(lo, bound)) if half.lower else max(0, min(hi, bound) - lo)


# ---------------------------------------------------------------- splitting


class _TooLong(Exception):
    """There is more code than there may be."""


class _Partition:
    """Splits loops around at most `level` others. Raises `_TooLong` as soon as it has made more than `most` nodes of code, of which those
    do not count that are gone where questions are answered."""

    def __init__(self, level: int, spaces: Mapping[str, str], most: int) -> None:
        self.level = level
        self.spaces = spaces
        self.left = most

    def block(self, body: tuple[Stmt, ...], scope: _Scope) -> tuple[Stmt, ...]:
        return tuple(new for s in body for new in self._stmt(s, scope))

    def _stmt(self, s: Stmt, scope: _Scope) -> tuple[Stmt, ...]:
        match s:
            case For():
                return self._loop(s, scope)
            case If(cond, then, orelse):
                self._count((cond,), scope)
                then, orelse = self.block(then, scope.assuming(cond, True)), self.block(orelse, scope.assuming(cond, False))
                return (replace(s, then=then, orelse=orelse),)
            case _:
                self._count(left_of(s, scope.algebra), scope)
                return (s,)

    def _count(self, nodes: Iterable[Stmt | Expr], scope: _Scope) -> None:
        self.left -= scope.copies * sum(1 for _ in walk(*nodes))
        if self.left < 0:
            raise _TooLong

    def _loop(self, loop: For, scope: _Scope, guards: tuple[Expr, ...] = (), parts: int = 0) -> tuple[Stmt, ...]:
        loop = without_idle_ends(loop, scope.algebra)
        interior = _interior(loop, scope) if self._may_split(loop, scope) else None
        ranges = _is_asked(loop)
        loop = loop if interior is None else loop.without(Partitioned)
        if loop.kind == "parallel" or guards:
            return (self._guarded(loop, interior, scope, guards),)
        if interior is None:
            loop = replace(loop, **_expanded(loop, scope))
            return (replace(loop, body=self.block(loop.body, scope.inside(loop))),)
        around = loop.kind == "serial" and _depth(loop.body) > 0 and _is_axis(loop) and not _hands_elements_on(loop)
        if not ranges and around and not _lone_edges(loop, interior, scope):
            return (self._guarded(loop, interior, scope, ()),)
        return self._ranges(loop, interior, scope, parts)

    def _may_split(self, loop: For, scope: _Scope) -> bool:
        asked = _is_asked(loop)
        if loop.without(Partitioned).notes or (not asked and not self._is_cheap(loop, scope)):
            return False
        if loop.kind != "vector":
            return loop.kind in ("serial", "parallel")
        if not asked and all(
            _in_one_vector(loop, i, scope) for i in _asking(loop.body, scope.inside(loop).algebra, frozenset((loop.var,)))
        ):
            return False
        return not any(isinstance(n, For | Alloc) for n in statements(*loop.body)) and all(
            loop.var in free_vars(*s.index) and self.spaces.get(s.buffer) in ("param", "heap") for s in stores(*loop.body)
        )

    def _is_cheap(self, loop: For, scope: _Scope) -> bool:
        if (
            loop.kind == "serial"
            and not _is_axis(loop)
            and not _is_long(loop, scope.sample, max(2, LEAST_TERMS // _lanes_along(loop, scope)))
        ):
            return False
        return _depth(loop.body) < self.level and not any(isinstance(n, Alloc) and n.buffer.space == "heap" for n in statements(*loop.body))

    def _guarded(self, loop: For, interior: _Interior | None, scope: _Scope, guards: tuple[Expr, ...]) -> For:
        """Return the loop with its body under conditions, those of parallel loops around it, which are nothing but it, among them."""
        here = IndexValue(Var(loop.var))
        inside = scope.inside(loop)
        if interior is not None:
            bounds = [Compare(">=", here, IndexValue(e)) for e in interior.first] + [
                Compare("<", here, IndexValue(e)) for e in interior.end
            ]
            guards = (*guards, *bounds)
        match loop.body:
            case (For(kind="parallel") as inner,) if loop.kind == "parallel":
                return replace(loop, body=self._loop(inner, inside, guards))
            case _ if not guards:
                return replace(loop, body=self.block(loop.body, inside))
        cond = reduce(lambda a, b: Binary("and", a, b), guards)
        rest = self.block(loop.body, inside)
        for at in _lone_edges(loop, interior, scope) if interior is not None else ():
            there = tuple(map(substitution({loop.var: at}), loop.body))
            rest = (If(Compare("==", here, IndexValue(at)), self.block(there, scope), rest),)
        return replace(loop, body=(If(cond, self.block(loop.body, inside.assuming(cond, True)), rest),))

    def _ranges(self, loop: For, interior: _Interior, scope: _Scope, parts: int) -> tuple[Stmt, ...]:
        """Return the iterations before the interior, the interior, and those after it."""
        first, end = ((reduce(node, found) if found else None) for node, found in ((Max, interior.first), (Min, interior.end)))
        ranges: list[For] = []
        start = loop.lo
        if first is not None:
            ranges.append(over(loop, loop.lo, Min(first, loop.hi), scope.algebra))
            start = Max(first, loop.lo)
        ranges.append(over(loop, start, loop.hi if end is None else Min(end, loop.hi), scope.algebra))
        if end is not None:
            ranges.append(over(loop, Max(end, start), loop.hi, scope.algebra))
        main = ranges[0 if first is None else 1]
        out: list[Stmt] = []
        for part in ranges:
            if part is main or parts >= MOST_PARTS or not _is_long(part, scope.sample, LEAST_ITERATIONS):
                out.append(replace(part, body=self.block(part.body, scope.inside(part))))
            else:
                out += self._loop(part, scope, parts=parts + 1)
        return tuple(out)


# ---------------------------------------------------------------- what would be read lane by lane


def _asking(body: Iterable[Stmt], algebra: Algebra, lanes: frozenset[str] = frozenset()) -> Iterator[Index]:
    """Yield indices at which lanes read, of which it is not known how far they lie apart."""
    for s in body:
        match s:
            case For():
                yield from _asking(s.body, algebra.with_loop(s.var, s.lo, s.hi, s.extent), lanes | {s.var} if s.kind == "vector" else lanes)
            case If(_, then, orelse):
                yield from _asking((*then, *orelse), algebra, lanes)
            case Store(value=value) | Let(_, value) if lanes:
                for i in dict.fromkeys(i for n in walk(value) if isinstance(n, Load) for i in n.index):
                    if not lanes.isdisjoint(free_vars(i)) and any(
                        isinstance(n, _STEPS) and not lanes.isdisjoint(free_vars(n)) for n in walk(algebra.simplify(i))
                    ):
                        yield i
            case _:
                pass


def _in_one_vector(loop: For, index: Index, scope: _Scope) -> bool:
    """Tell whether what the lanes of `loop` read at `index` is known to lie within as many elements as there are lanes."""
    known = {name: int(low) for name, (low, high) in scope.algebra.intervals.items() if low == high}
    lo, hi = evaluated(loop.lo, known), evaluated(loop.hi, known)
    if lo is None or hi is None or lo >= hi:
        return False
    places = [evaluated(index, {**known, loop.var: lane}) for lane in range(lo, hi)]
    found = [place for place in places if place is not None]
    return len(found) == len(places) and max(found) - min(found) < 1 << (hi - lo - 1).bit_length()


def _lone_edges(loop: For, interior: _Interior, scope: _Scope) -> tuple[Int, ...]:
    """Return the iterations at the edges of `loop`, where there is one on each side at most, and what lanes read there depends on which."""
    lo, hi = scope.algebra.simplify(loop.lo), scope.algebra.simplify(loop.hi)
    first, end = evaluated(reduce(Max, interior.first, lo), {}), evaluated(reduce(Min, interior.end, hi), {})
    if not isinstance(lo, Int) or not isinstance(hi, Int) or first is None or end is None or first >= end:
        return ()
    edges = (*range(lo.value, first), *range(end, hi.value))
    if (
        first - lo.value > 1
        or hi.value - end > 1
        or not any(loop.var in free_vars(i) for i in _asking(loop.body, scope.inside(loop).algebra))
    ):
        return ()
    return tuple(map(Int, edges))


def _hands_elements_on(loop: For) -> bool:
    """Tell whether iterations of a loop around short sums read what others store, which ranges of them keep in registers
    (`codegen.loops.carried`)."""
    inner = [n for n in statements(*loop.body) if isinstance(n, For) and n.kind != "vector"]
    short = all(n.values is not None and len(n.values) <= MOST_TERMS for n in inner)
    algebra = Algebra.of({})
    sides = {(s.buffer, k, algebra.poly(i)) for s in stores(*loop.body) for k, i in enumerate(s.index) if loop.var in free_vars(i)}
    stored = {(buffer, k) for buffer, k, _ in sides}
    read = {(n.buffer, k, algebra.poly(i)) for n in loads(*loop.body) for k, i in enumerate(n.index) if (n.buffer, k) in stored}
    return short and not read <= sides


def _expanded(loop: For, scope: _Scope) -> dict[str, Any]:
    """Return what makes copies of the iterations of a short sum at an edge, in each of which it is known what lanes read."""
    trips = (scope.algebra.poly(loop.hi) - scope.algebra.poly(loop.lo)).constant
    if loop.kind != "serial" or loop.notes or _is_axis(loop) or _depth(loop.body) or trips is None or not 0 < trips <= MOST_COPIES:
        return {}
    known = {name for name, (low, high) in scope.algebra.intervals.items() if low == high}
    lanes = {n.var for n in statements(*loop.body) if isinstance(n, For)}
    asking = list(_asking(loop.body, scope.inside(loop).algebra))
    if asking and all(loop.var in free_vars(i) and free_vars(i) <= known | lanes | {loop.var} for i in asking):
        return {"kind": "unroll", "extent": trips}
    return {}


def _lanes_along(loop: For, scope: _Scope) -> int:
    """Return how many terms of a sum an iteration goes through in lanes that follow each other, those of the next one behind them; 1 where
    it has none such."""
    inside = {n.var: n.extent for n in statements(*loop.body) if isinstance(n, For) and n.kind == "vector" and n.extent is not None}
    for index in (index for n in walk(*loop.body) if inside and isinstance(n, Load) for index in n.index if loop.var in free_vars(index)):
        terms = scope.algebra.poly(index).terms
        for lane, lanes in inside.items():
            if terms.get((Var(loop.var),)) == lanes * terms.get((Var(lane),), 0):
                return lanes
    return 1


def _is_long(loop: For, sample: Mapping[str, int], least: int) -> bool:
    lo, hi = (evaluated(e, sample) for e in (loop.lo, loop.hi))
    return lo is not None and hi is not None and hi - lo >= least


def _depth(body: Iterable[Stmt], around: str = "") -> int:
    """Return how many loops of several iterations that are not expanded lie inside each other in `body`; `around`: what runs in a single
    iteration of that loop does not count."""
    deepest = 0
    for s in body:
        match s:
            case For(kind=kind):
                deepest = max(deepest, _depth(s.body, around) + (kind in ("serial", "parallel") and not runs_at_most_once(s)))
            case If(Compare("==", IndexValue(Var(name) | Add(Var(name), Int())), Const()), _, orelse) if name == around:
                deepest = max(deepest, _depth(orelse, around))
            case If(_, then, orelse):
                deepest = max(deepest, _depth(then, around), _depth(orelse, around))
            case _:
                pass
    return deepest


def _is_asked(loop: For) -> bool:
    """Tell whether a note asks for the loop to be split, or no statement is there twice when it is."""
    return loop.note(Partitioned) is not None or _has_lone_step(loop)


def _has_lone_step(loop: For) -> bool:
    """Tell whether all that a loop does depends on its variable, and some of it is done in one iteration alone."""
    conditions = [s.cond if isinstance(s, If) and not s.orelse else None for s in loop.body if not isinstance(s, Alloc)]
    here = [c for c in conditions if isinstance(c, Compare) and isinstance(c.lhs, IndexValue) and free_vars(c.lhs) == {loop.var}]
    alone = any(c.op == "==" and isinstance(c.rhs, Const) for c in here)
    return loop.kind == "serial" and not loop.notes and alone and len(here) == len(conditions)


def _is_axis(loop: For) -> bool:
    """Tell whether every iteration writes elsewhere, but for what it allocates itself."""
    own = {n.buffer.name for n in statements(*loop.body) if isinstance(n, Alloc)}
    return all(loop.var in free_vars(*s.index) for s in stores(*loop.body) if s.buffer not in own)


def idle_notes(function: Function, split: Function) -> tuple[Partitioned, ...]:
    """Return the notes of `function`, of which `partition` has made `split`, that no loop was split for."""
    done = {n.var for n in statements(*split.body) if isinstance(n, For) and not _is_asked(n)}
    asked = {loop.var: note for loop, note in noted_loops(Partitioned, *function.body)}
    heeded = {id(note) for var, note in asked.items() if var in done}
    return tuple({id(note): note for note in asked.values() if id(note) not in heeded}.values())


__all__ = ["idle_notes", "partition"]
