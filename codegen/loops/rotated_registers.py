"""Keep rings of few steps in registers, which are rotated, so that each step finds those before it in the same places.

    before   alloc s: f64[2, 3] stack
             …
             for t in 1 .. T { for i in 0 .. 3 unroll 3 { s[t % 2, i] = s[(t + 1) % 2, 2 - i] + x[t] } }

    after    for k in 0 .. 2 unroll 2 { for i in 0 .. 3 unroll 3 { s[k, i] = 0.0 } }
             …
             alloc ring: f64[2, 3] registers
             for k in 0 .. 2 unroll 2 { for i in 0 .. 3 unroll 3 { ring[k, i] = s[(k + 1) % 2, i] } }
             for t in 1 .. T {
                 for i in 0 .. 3 unroll 3 { ring[0, i] = ring[1, 2 - i] + x[t] }
                 for i in 0 .. 3 unroll 3 {
                     let first = ring[0, i]
                     ring[0, i] = ring[1, i]
                     ring[1, i] = first
                 }
             }
             for k in 0 .. 2 unroll 2 { for i in 0 .. 3 unroll 3 { s[(T + k) % 2, i] = ring[k, i] } }

Of a serial loop that takes every element of a buffer of the stack at the remainder of its number, or of one so many before or after it, and
at places that unrolling makes constant, whatever conditions are; lanes all go along the same side. Where an element is moved that nobody
reads any more, nothing is left of that in machine code. What goes to the next iteration in the same place alone is `carried` already.
Expects the indices of `simplify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import prod

from codegen.loops.carried import is_computed_as_stored, is_plain
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
    LoopKind,
    Mod,
    Mul,
    Name,
    Stmt,
    Store,
    Var,
    zero,
)
from codegen.loops.promote import Access, accesses_below
from codegen.loops.verify import Env
from codegen.loops.walk import Fresh, free_vars, fresh_for, map_expr, map_index, map_stmt, runs_at_least_once, statements


def rotated_registers(function: Function, most: int) -> Function:
    """Return `function` with rings in registers, of at most so many elements, or vectors of them, in a loop."""
    if not any(isinstance(n, Alloc) and n.buffer.space == "stack" for n in statements(*function.body)):
        return function
    return replace(function, body=_Turning(fresh_for(function), most).block(function.body, {}, Env.of(function)))


@dataclass(frozen=True, slots=True)
class _Ring:
    """A buffer whose elements a loop takes along one side at remainders of its number, times `sign`. `lanes`: the side along which it takes
    them in lanes; `turns`: by the place along the first side how far it is from the number."""

    buffer: Buffer
    side: int
    sign: int
    lanes: int | None
    turns: Mapping[Index, int]

    @property
    def count(self) -> int:
        return self.extents[self.side]

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(n.value for n in self.buffer.shape if isinstance(n, Int))

    def registers(self) -> int:
        """Return how many elements or vectors of them it has."""
        return prod(n for k, n in enumerate(self.extents) if k != self.lanes)

    def at(self, place: Index, others: Sequence[Index]) -> tuple[Index, ...]:
        """Return a place along the side of the ring with places along the others."""
        return (*others[: self.side], place, *others[self.side :])

    def others(self, fresh: Fresh) -> list[For]:
        """Return a loop along each of the other sides."""
        kinds: list[LoopKind] = ["vector" if k == self.lanes else "unroll" for k in range(len(self.extents))]
        sides = [k for k in range(len(self.extents)) if k != self.side]
        return [For(fresh(f"{self.buffer.name}_at"), Int(0), Int(self.extents[k]), (), kinds[k], self.extents[k]) for k in sides]


@dataclass(frozen=True, slots=True)
class _Turning:
    """Visits loops from the outside in. `zeros`: what fills each buffer that is a ring, so that all elements are there which are moved."""

    fresh: Fresh
    most: int
    zeros: dict[str, tuple[Stmt, ...]] = field(default_factory=dict)

    def block(self, body: Sequence[Stmt], stack: Mapping[str, Buffer], env: Env) -> tuple[Stmt, ...]:
        """Return a block with the rings of its loops in registers; `stack`: the buffers that are this thread's."""
        made = self.statements(body, stack, env)
        return tuple(x for s in made for x in (s, *(self.zeros.pop(s.buffer.name, ()) if isinstance(s, Alloc) else ())))

    def statements(self, body: Sequence[Stmt], stack: Mapping[str, Buffer], env: Env) -> list[Stmt]:
        out: list[Stmt] = []
        for s in body:
            match s:
                case For():
                    out += self.loop(s, {} if s.kind == "parallel" else stack, env)
                case If(cond, then, orelse):
                    out.append(If(cond, self.block(then, stack, env), self.block(orelse, stack, env)))
                case Alloc(buffer) if buffer.space == "stack" and all(isinstance(n, Int) for n in buffer.shape):
                    stack = {**stack, buffer.name: buffer}
                    out.append(s)
                case _:
                    out.append(s)
        return out

    def loop(self, loop: For, stack: Mapping[str, Buffer], env: Env) -> tuple[Stmt, ...]:
        found, left = list[_Ring](), self.most
        alone = all(isinstance(s, Alloc) or is_plain(s) for s in statements(*loop.body))
        if loop.kind == "serial" and not loop.notes and stack and alone:
            inside = [a for a in accesses_below(loop.body) if a.node.buffer in stack]
            for name in dict.fromkeys(a.node.buffer for a in inside):
                ring = _ring(loop, stack[name], [a for a in inside if a.node.buffer == name], env.with_loop(loop))
                if ring is not None and ring.registers() <= left:
                    left -= ring.registers()
                    found.append(ring)
        rest = {name: b for name, b in stack.items() if all(name != ring.buffer.name for ring in found)}
        made = replace(loop, body=self.block(loop.body, rest, env.with_loop(loop)))
        return self.turned(made, found) if found else (made,)

    def turned(self, loop: For, rings: Sequence[_Ring]) -> tuple[Stmt, ...]:
        """Return a loop with rings in registers, and what fills these before it and stores them after it."""
        before, after, body = list[Stmt](), list[Stmt](), loop.body
        for ring in rings:
            name, step = self.fresh(f"{loop.var}_ring"), Var(self.fresh(f"{loop.var}_step"))
            first, behind = (Mod(Add(Mul(Int(ring.sign), start), step), Int(ring.count)) for start in (loop.lo, loop.hi))
            others = ring.others(self.fresh)
            at = [Var(f.var) for f in others]
            every = (For(step.name, Int(0), Int(ring.count), (), "unroll", ring.count), *others)
            self.zeros.setdefault(ring.buffer.name, _nest(every, Store(ring.buffer.name, ring.at(step, at), zero(ring.buffer.dtype))))
            before.append(Alloc(replace(ring.buffer, name=name, space="registers")))
            before += _nest(every, Store(name, ring.at(step, at), Load(ring.buffer.name, ring.at(first, at))))
            after += _nest(every, Store(ring.buffer.name, ring.at(behind, at), Load(name, ring.at(step, at))))
            body = (*_in_registers(body, ring, name), *_nest(others, *_turn(ring, name, at, self.fresh(f"{loop.var}_first"))))
        made = (*before, replace(loop, body=body), *after)
        runs = Compare("<", IndexValue(loop.lo), IndexValue(loop.hi))
        return made if runs_at_least_once(loop) else (If(runs, made, ()),)


def _turn(ring: _Ring, name: str, at: Sequence[Index], first: str) -> Iterator[Stmt]:
    """Yield what moves each element of a ring to where the next iteration finds it."""
    places = [Int(k) for k in range(ring.count)][:: ring.sign]
    yield Let(first, Load(name, ring.at(places[0], at)))
    for place, following in pairwise(places):
        yield Store(name, ring.at(place, at), Load(name, ring.at(following, at)))
    yield Store(name, ring.at(places[-1], at), Name(first))


def _nest(loops: Sequence[For], *body: Stmt) -> tuple[Stmt, ...]:
    """Return statements in loops, the first outermost."""
    for f in reversed(loops):
        body = (replace(f, body=body),)
    return body


def _in_registers(body: Sequence[Stmt], ring: _Ring, name: str) -> tuple[Stmt, ...]:
    """Return the statements of a loop with the elements of a ring in registers."""

    def place(e: Sequence[Index]) -> tuple[Index, ...]:
        return ring.at(Int(ring.turns[e[ring.side]]), [index(x) for k, x in enumerate(e) if k != ring.side])

    def index(e: Index) -> Index:
        return map_index(e, index, value)

    def value(e: Expr) -> Expr:
        return Load(name, place(e.index)) if isinstance(e, Load) and e.buffer == ring.buffer.name else map_expr(e, index, value)

    def stmt(s: Stmt) -> Stmt:
        made = map_stmt(s, index, value, stmt)
        return replace(made, buffer=name, index=place(made.index)) if isinstance(made, Store) and made.buffer == ring.buffer.name else made

    return tuple(map(stmt, body))


def _ring(loop: For, buffer: Buffer, found: Sequence[Access], env: Env) -> _Ring | None:
    """Return how a loop goes through a buffer as a ring; None where it does not, or registers could not hold it."""
    if not is_computed_as_stored(buffer.dtype):
        return None
    for side, sign in product(range(len(buffer.shape)), (1, -1)):
        turns = {place: _turns(place, loop.var, sign, buffer.shape[side]) for place in {a.node.index[side] for a in found}}
        if None not in turns.values():
            break
    else:
        return None
    lanes = set[int | None]()
    for a in found:
        scope, others = env, [x for k, x in enumerate(a.node.index) if k != side]
        for f in a.path:
            scope = scope.with_loop(f)
        if not scope.is_constant(*others):
            return None
        vectors = {f.var: f for f in a.path if f.kind == "vector" and f.var in free_vars(*others)}
        along = [k for k, x in enumerate(a.node.index) if not vectors.keys().isdisjoint(free_vars(x))]
        if len(along) > 1 or any(not _is_whole(a.node.index[k], buffer.shape[k], vectors) for k in along):
            return None
        lanes.add(along[0] if along else None)
    return _Ring(buffer, side, sign, lanes.pop(), {e: n for e, n in turns.items() if n is not None}) if len(lanes) == 1 else None


def _turns(place: Index, var: str, sign: int, extent: Index) -> int | None:
    """Return how far an element is from a loop's number, times `sign`, that is taken at a remainder by the extent of its side."""
    match place, extent:
        case Mod(x, Int(count)), Int(n) if count == n:
            algebra = Algebra.of({})
            apart = algebra.poly(x) - algebra.poly(Mul(Int(sign), Var(var)))
            return None if apart.terms.keys() - {()} else apart.offset % count
        case _:
            return None


def _is_whole(place: Index, extent: Index, vectors: Mapping[str, For]) -> bool:
    """Tell whether lanes go along all of a side, each at its own number."""
    return isinstance(place, Var) and place.name in vectors and vectors[place.name].lo == Int(0) and vectors[place.name].hi == extent
