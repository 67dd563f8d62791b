"""Collect a sum in several parts where iterations wait for it, and it is one chain of operations that wait for each other.

    before   for t in 1 .. T {
                 alloc s: f32[8] registers (any_order)
                 for j in 0 .. 8 vector 8 { s[j] = 0 }
                 for k in 0 .. 8 unroll 8 { for j in 0 .. 8 vector 8 { s[j] = fma(row[k], w[k, j], s[j]) } }
                 for j in 0 .. 8 vector 8 { row[j] = s[j] }
             }

    after    …
                 alloc s_part: f32[1, 8] registers
                 for p in 0 .. 1 unroll 1 { for j in 0 .. 8 vector 8 { s_part[p, j] = 0 } }
                 for k in 0 .. 4 unroll 4 {
                     for j in 0 .. 8 vector 8 { s[j] = fma(row[2*k], w[2*k, j], s[j]) }
                     for p in 0 .. 1 unroll 1 {
                         for j in 0 .. 8 vector 8 { s_part[p, j] = fma(row[2*k + p + 1], w[2*k + p + 1, j], s_part[p, j]) }
                     }
                 }
                 for j in 0 .. 8 vector 8 { s[j] = s[j] + s_part[0, j] }
                 …

Only what is allocated as `any_order`, for floats are rounded as they are added up: `lower` knows which reductions allow that. Only sums
whose terms read what earlier iterations of a serial loop around have made: others a processor begins before the last one ends. And only as
many parts as take less time than they save, by the latency of an addition and what the units compute in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2, prod
from typing import NamedTuple

from codegen.dtypes import DType, extreme
from codegen.loops.carried import in_turns
from codegen.loops.indices import Algebra, coefficients
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
    Buffer,
    Const,
    Expr,
    Fma,
    For,
    Function,
    If,
    Index,
    Int,
    Let,
    Load,
    Mul,
    Name,
    Stmt,
    Store,
    Var,
)
from codegen.loops.notes import AnyOrder
from codegen.loops.verify import Env
from codegen.loops.walk import (
    Fresh,
    free_vars,
    fresh_for,
    loads,
    map_expr,
    map_stmt,
    statements,
    stores,
    substitute,
    walk,
    without,
)

PARTS = (2, 4, 8)
"""How many parts a sum may have."""
LATENCY = 4
"""Cycles until the sum of a multiply-add, or of an addition, is there."""
UNITS = 2
"""Operations that begin in a cycle."""
IN_FLIGHT = 256
"""Operations of sums that a processor has begun and not ended, about: of so many sums that follow each other, none waits for another."""
ROOM = 2
"""One of so many registers is for sums, the others for what they are made of."""
WORTH = 0.9
"""Share of the cycles at most that parts have to leave."""


def with_partial_sums(function: Function, lanes: Callable[[DType], int], registers: int) -> Function:
    """Return `function` with sums in as many parts as pay, whose vectors have so many lanes of a type, in no more than half of some
    registers. No buffer is `any_order` any more."""
    sums = _Sums(lanes, registers // ROOM, fresh_for(function))
    return without(replace(function, body=sums.block(function.body, Env.of(function), ())), AnyOrder)


def parts(terms: float, chains: int, room: int, beside: float = 1.0) -> int:
    """Return in how many parts sums take the fewest cycles, each of so many terms and in so many registers, `chains`; 1 where they stay
    whole. All parts lie in `room` registers; `beside`: how many such sums go on at the same time."""

    def cycles(count: int) -> float:
        return max(parts_latency(terms, count) / beside, chains * (terms + count - 1) / UNITS)

    best = min((1, *(n for n in PARTS if n <= terms and n * chains <= room)), key=cycles)
    return best if cycles(best) <= WORTH * cycles(1) else 1


def parts_latency(terms: float, count: int) -> float:
    """Return the cycles from the first of so many terms until they are one sum, where it is collected in `count` parts."""
    return LATENCY * (ceil(terms / count) + log2(count))


@dataclass(frozen=True, slots=True)
class _Around:
    """A serial loop: the buffers whose elements it has from earlier iterations, or makes of such, and how often it runs."""

    late: frozenset[str]
    trips: float


@dataclass(frozen=True, slots=True)
class _Sum:
    """A loop over terms, and those `inside` of it, each of which is for elements of their own: the statements of a term."""

    loop: For
    inside: tuple[For, ...]
    steps: tuple[Stmt, ...]

    @property
    def stores(self) -> list[Store]:
        return [s for s in self.steps if isinstance(s, Store)]

    def around(self, steps: Iterable[Stmt]) -> Stmt:
        """Return statements in the loops inside."""
        made = tuple(steps)
        for f in reversed(self.inside):
            made = (replace(f, body=made),)
        return made[0]


@dataclass(frozen=True, slots=True)
class _Sums:
    """How sums are collected: in vectors of so many lanes, in `room` registers."""

    lanes: Callable[[DType], int]
    room: int
    fresh: Fresh

    def block(self, body: Sequence[Stmt], env: Env, around: tuple[_Around, ...]) -> tuple[Stmt, ...]:
        """Return statements inside of some loops, the outermost first."""
        out: list[Stmt] = []
        for s in body:
            match s:
                case For():
                    found = _sum(s, env) if s.kind in ("serial", "unroll") else None
                    count = self._count(found, env, around) if found is not None else 1
                    if found is not None and count > 1:
                        out += self._in_parts(found, count, env)
                    else:
                        inner = (*around, _Around(_late(s), _trips(s))) if s.kind == "serial" else around
                        out.append(replace(s, body=self.block(s.body, env.with_loop(s), inner)))
                case If(cond, then, orelse):
                    out.append(If(cond, self.block(then, env, around), self.block(orelse, env, around)))
                case _:
                    out.append(s)
            env = env.after(s)
        return tuple(out)

    def _count(self, found: _Sum, env: Env, around: tuple[_Around, ...]) -> int:
        """Return in how many parts a sum takes the fewest cycles; 1 where it stays whole."""
        own = {s.buffer for s in found.stores}
        read = {load.buffer for load in loads(*found.steps)} - own
        carrying = next((k for k in reversed(range(len(around))) if not read.isdisjoint(around[k].late)), None)
        if carrying is None:
            return 1
        terms = _trips(found.loop)
        chains = sum(self._registers(s, found.inside, env) for s in found.stores)
        beside = min(prod(a.trips for a in around[carrying + 1 :]), max(1.0, IN_FLIGHT / (terms * chains)))
        return parts(terms, chains, self.room, beside)

    def _registers(self, store: Store, inside: Sequence[For], env: Env) -> int:
        """Return how many registers a store fills for one term."""
        lanes = prod(_trips(f) for f in inside if f.kind == "vector")
        copies = prod(_trips(f) for f in inside if f.kind == "unroll")
        return int(copies * ceil(lanes / self.lanes(env.buffers[store.buffer].dtype)))

    def _in_parts(self, found: _Sum, count: int, env: Env) -> list[Stmt]:
        """Return what collects a sum in so many parts: the first where it was collected, the others in registers of their own."""
        part, loop, first = self.fresh(f"{found.loop.var}_part"), found.loop, _first(found.loop)
        buffers = {s.buffer: env.buffers[s.buffer] for s in found.stores}
        others = {
            name: Buffer(self.fresh(f"{name}_part"), b.dtype, (Int(count - 1), *b.shape), "registers", b.align)
            for name, b in buffers.items()
        }
        whole, rest = divmod(int(_trips(loop)), count)

        def of(e: Expr, at: Index) -> Expr:
            if isinstance(e, Load) and e.buffer in others:
                return Load(others[e.buffer].name, (at, *e.index))
            return map_expr(e, lambda index: index, lambda inner: of(inner, at))

        def moved(s: Stmt, at: Index) -> Stmt:
            made = map_stmt(s, lambda index: index, lambda e: of(e, at), lambda inner: inner)
            return replace(made, buffer=others[made.buffer].name, index=(at, *made.index)) if isinstance(made, Store) else made

        def term(k: Index, at: Index | None = None) -> Stmt:
            steps = found.steps if at is None else tuple(moved(s, at) for s in found.steps)
            return found.around(substitute(s, {loop.var: Algebra.of({}).simplify(k)}) for s in steps)

        def terms(begin: Index, parts: int) -> list[Stmt]:
            return [term(begin), *self._each(part, parts - 1, lambda p: term(Add(begin, Add(p, Int(1))), p))]

        def start(s: Store) -> Stmt:
            return Store(others[s.buffer].name, (Var(part), *s.index), _neutral(s, buffers[s.buffer].dtype))

        def total(s: Store) -> Stmt:
            every: list[Expr] = [Load(s.buffer, s.index), *(Load(others[s.buffer].name, (Int(p), *s.index)) for p in range(count - 1))]
            while len(every) > 1:
                every = [_both(s, a, b) for a, b in zip(every[::2], every[1::2], strict=True)]
            return replace(s, value=every[0])

        here = Add(Int(first), Mul(Int(count), Var(loop.var)))
        return [
            *map(Alloc, others.values()),
            *self._each(part, count - 1, lambda _: found.around(map(start, found.stores))),
            replace(loop, lo=Int(0), hi=Int(whole), extent=loop.extent and whole, body=tuple(terms(here, count))),
            *(terms(Int(first + whole * count), rest) if rest else ()),
            found.around(map(total, found.stores)),
        ]

    def _each(self, var: str, count: int, body: Callable[[Index], Stmt]) -> list[Stmt]:
        return [For(var, Int(0), Int(count), (body(Var(var)),), "unroll", count)] if count else []


def _sum(loop: For, env: Env) -> _Sum | None:
    """Return the sums that a loop collects in registers in any order, if it does nothing else, and all of their elements are others."""
    if loop.notes or loop.values is None or len(loop.values) < PARTS[0]:
        return None
    inside: list[For] = []
    body = loop.body
    while len(body) == 1 and isinstance(s := body[0], For):
        if s.kind not in ("unroll", "vector") or s.notes or s.values is None:
            return None
        inside.append(s)
        body = s.body
    if not all(isinstance(s, Let | Store) for s in body):
        return None
    found = _Sum(loop, tuple(inside), body)
    collected, own = found.stores, {s.buffer for s in found.stores}
    axes = {f.var for f in inside}
    if not collected or len(own) < len(collected) or not all(_is_collected(s, env) for s in collected):
        return None
    if any(free_vars(*s.index) != axes for s in collected):
        return None
    others = [e for e in loads(*body) if e.buffer in own]
    return found if len(others) == len(collected) else None


def _is_collected(s: Store, env: Env) -> bool:
    """Tell whether a store adds a term to what is collected in any order."""
    buffer = env.buffers[s.buffer]
    if buffer.space != "registers" or buffer.note(AnyOrder) is None:
        return False
    old = Load(s.buffer, s.index)
    match s.value:
        case Fma(_, _, c):
            return c == old
        case Binary("+" | "min" | "max", a, b):
            return (a == old) != (b == old)
        case _:
            return False


def _neutral(s: Store, dtype: DType) -> Expr:
    """Return what a part of a sum begins with."""
    match s.value:
        case Binary("min" | "max" as op):
            return Const(extreme(dtype, highest=op == "min"), dtype)
        case _:
            return Const(dtype.zero, dtype)


def _both(s: Store, a: Expr, b: Expr) -> Expr:
    return Binary(s.value.op if isinstance(s.value, Binary) else "+", a, b)


def _first(loop: For) -> int:
    assert isinstance(loop.lo, Int)
    return loop.lo.value


def _trips(loop: For) -> float:
    """Return how often a loop runs, as far as that is known: many times."""
    return float(IN_FLIGHT if loop.values is None else len(loop.values))


def _late(loop: For) -> frozenset[str]:
    """Return the buffers whose elements a loop has from its earlier iterations, and those that get what is made of these."""
    loops = [loop, *(s for s in statements(*loop.body) if isinstance(s, For))]
    private = {s.buffer.name for s in statements(*loop.body) if isinstance(s, Alloc)}
    written, read = list(stores(*loop.body)), set(loads(*loop.body))
    known: Mapping[str, list[Store]] = {
        name: [s for s in written if s.buffer == name] for name in {s.buffer for s in written if s.buffer not in private}
    }
    late = {name for name, found in known.items() if any(_may_be(r, s, loops) for r in read if r.buffer == name for s in found)}
    assigned = (s for s in statements(*loop.body) if isinstance(s, Store | Let))
    flows = [({*_sources(s)}, s.buffer if isinstance(s, Store) else s.name) for s in assigned]
    before = -1
    while len(late) > before:
        before = len(late)
        late |= {target for sources, target in flows if not late.isdisjoint(sources)}
    return frozenset(late)


def _sources(s: Store | Let) -> Iterator[str]:
    """Yield the buffers and names that a statement reads."""
    for n in walk(s):
        match n:
            case Load(name) | Name(name):
                yield name
            case _:
                pass


def _may_be(load: Load, store: Store, loops: Sequence[For]) -> bool:
    """Tell whether an iteration of the first of some loops, which holds the others, may read what an earlier one stored: not where along a
    side both lie at different places, whatever the iterations, or all that an iteration reads lies behind what earlier ones stored."""
    inside, algebra = {f.var for f in loops}, Algebra.of({})
    for a, b in zip(load.index, store.index, strict=True):
        if inside.isdisjoint(free_vars(a, b)):
            apart = algebra.poly(a) - algebra.poly(b)
            if (not apart.terms.keys() - {()} and apart.offset) or in_turns((a,), (b,)):
                return False
        read, written = _reach(a, loops), _reach(b, loops)
        if read is not None and written is not None and (read.step, read.rest) == (written.step, written.rest):
            ahead = read.first - written.last if read.step > 0 else written.first - read.last
            if read.step and abs(read.step) + ahead > 0:
                return False
    return True


class _Reach(NamedTuple):
    """Where an index lies: `step` for each iteration, what is the same in all (`rest`), and from `first` to `last` beside."""

    step: int
    rest: frozenset[tuple[Index, int]]
    first: int
    last: int


def _reach(index: Index, loops: Sequence[For]) -> _Reach | None:
    """Return where an index lies in an iteration of the first of some loops, which holds the others; None where nobody knows."""
    found = coefficients(index)
    if found is None:
        return None
    around, *others = loops
    step, rest, first, last = 0, set[tuple[Index, int]](), found[1], found[1]
    for atom, scale in found[0].items():
        ranges = [_range(f) for f in others if atom == Var(f.var)]
        ends = [scale * end for known in ranges if known is not None for end in known]
        if atom == Var(around.var):
            step = scale
        elif {f.var for f in loops}.isdisjoint(free_vars(atom)):
            rest.add((atom, scale))
        elif ranges and len(ends) == 2 * len(ranges):
            first, last = first + min(ends), last + max(ends)
        else:
            return None
    return _Reach(step, frozenset(rest), first, last)


def _range(loop: For) -> tuple[int, int] | None:
    """Return the first value of a loop and the last that it may have; None where these are no numbers."""
    if not isinstance(loop.lo, Int):
        return None
    count = loop.hi.value - loop.lo.value if isinstance(loop.hi, Int) else loop.extent
    return None if count is None else (loop.lo.value, loop.lo.value + count - 1)
