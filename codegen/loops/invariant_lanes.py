"""Compute once, before a loop, what every iteration would compute anew for each lane and each point that it has side by side.

    before   for k in 0 .. 16 { for v in 0 .. 16 vector 16 { y[v] = min(y[v], abs(x[v] / s[] - c[k])) } }
    after    alloc h: f32[16] registers
             for v in 0 .. 16 vector 16 { h[v] = x[v] / s[] }
             for k in 0 .. 16 { for v in 0 .. 16 vector 16 { y[v] = min(y[v], abs(h[v] - c[k])) } }

`hoist` does so for what does not depend on the loops inside. Here it does, on loops whose bounds are constants: there are as many values
as one iteration has, in registers where the loops are vectors and unrolled, and else in memory. Only what takes longer than to store and
to load moves, out of serial loops that may run more than once: divisions and elementary functions where each iteration computes them, and
integers made of floats wherever they stand, where what they read is there in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod
from typing import NamedTuple

from codegen.dtypes import DType
from codegen.loops.demote import STACK_BYTES, buffer_bytes
from codegen.loops.hoist import is_of_float, is_safe
from codegen.loops.indices import Algebra
from codegen.loops.nodes import (
    Add,
    Alloc,
    Binary,
    Buffer,
    Call,
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
    Require,
    Select,
    Stmt,
    Store,
    ValueIndex,
    Var,
)
from codegen.loops.simplify import assuming
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import (
    Fresh,
    Node,
    binders,
    children,
    free_vars,
    fresh_for,
    map_expr,
    map_index,
    map_stmt,
    runs_at_least_once,
    statements,
    stores,
    walk,
)

MOST_KEPT = 512
"""Elements that are kept of one value in registers: of 32 bits each, as many as these hold."""
MOST_STORED = 1 << 18
"""And bytes in memory: a part of a second-level cache."""
_QUICK = ("isnan", "isinf", "bits", "from_bits", "pack", "bits_tf32")


def invariant_lanes(function: Function) -> Function:
    """Return `function` with such values computed before the serial loop that they do not depend on."""
    known = _Known({}, {p.name: p for p in function.params}, fresh_for(function))
    return replace(function, body=_block(function.body, known, Algebra.outside(function)))


@dataclass(frozen=True, slots=True)
class _Known:
    """The types of the names and the buffers that were bound so far, in text order."""

    values: dict[str, DType]
    buffers: dict[str, Buffer]
    fresh: Fresh

    def types(self) -> Env:
        return Env(values=self.values, buffers=self.buffers)

    def dtype(self, e: Expr) -> DType:
        return dtype_of(e, self.types())


def _block(body: Iterable[Stmt], known: _Known, algebra: Algebra) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        match s:
            case For():
                inside = algebra.with_loop(s.var, s.lo, s.hi, s.extent)
                out += _before(replace(s, body=_block(s.body, known, inside)), known, algebra)
            case If(cond, then, orelse):
                sides = (_block(side, known, assuming(algebra, cond, truth)) for side, truth in ((then, True), (orelse, False)))
                out.append(replace(s, then=next(sides), orelse=next(sides)))
            case _:
                if isinstance(s, Let):
                    known.values[s.name] = known.dtype(s.value)
                elif isinstance(s, Alloc):
                    known.buffers[s.buffer.name] = s.buffer
                out.append(s)
    return tuple(out)


def _before(loop: For, known: _Known, algebra: Algebra) -> tuple[Stmt, ...]:
    """Return a loop behind what is computed before it."""
    few = loop.values is not None and len(loop.values) < 2
    if loop.kind != "serial" or few or any(isinstance(s, Require) for s in statements(*loop.body)):
        return (loop,)
    kept = _Kept(loop, known, algebra, frozenset(binders(*loop.body)), frozenset(s.buffer for s in stores(*loop.body)))
    for s in loop.body:
        kept.collect(s)
    if not kept.before:
        return (loop,)
    made = (*kept.before, replace(loop, body=tuple(kept.replaced(s, ()) for s in loop.body)))
    return made if runs_at_least_once(loop) else (If(Compare("<", IndexValue(loop.lo), IndexValue(loop.hi)), made, ()),)


class _Value(NamedTuple):
    """What is computed inside some loops, in each of their iterations or (not `always`) in some."""

    e: Expr
    around: tuple[For, ...]
    always: bool


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is computed before a loop, in the body of which so many names are `bound` and buffers `written`. `found`: the values that are
    kept, each for the loops that it depends on; they are read wherever they stand, so that what a condition says of a value and an index
    made of it remain about one value."""

    loop: For
    known: _Known
    algebra: Algebra
    bound: frozenset[str]
    written: frozenset[str]
    before: list[Stmt] = field(default_factory=list)
    found: dict[Expr, dict[tuple[str, ...], Load]] = field(default_factory=dict)

    def collect(self, s: Stmt) -> None:
        """Keep what `s` computes in each iteration, or may compute in any case."""
        for value in self._in_statement(s, ()):
            self._keep(value.e, _depends_on(value.e, value.around))

    def _in_statement(self, s: Stmt, around: tuple[For, ...]) -> Iterator[_Value]:
        match s:
            case For() if s.values and s.kind in ("unroll", "vector", "serial", "parallel"):
                for inner in s.body:
                    yield from self._in_statement(inner, (*around, s))
            case If(_, then, orelse) if around:
                yield from self._on_sides(*([v for inner in side for v in self._in_statement(inner, around)] for side in (then, orelse)))
            case Store() | Let() if around and any(map(self._takes_long, walk(s.value))):
                yield from self._parts(s.value, around, True)

    def _parts(self, e: Expr, around: tuple[For, ...], always: bool, also: Set[Expr] = frozenset()) -> Iterator[_Value]:
        """Yield the values that an expression is made of, all of it where it is one itself. It is computed `always`, or those parts of it
        `also` are."""
        loops, is_computed = _depends_on(e, around), always or e in also
        if loops and self._is_movable(e, loops, is_computed):
            yield _Value(e, around, is_computed)
            return
        match e:
            case Select(cond, then, orelse):
                yield from self._parts(cond, around, always, also)
                yield from self._on_sides(*(list(self._parts(side, around, always, also)) for side in (then, orelse)))
            case Binary("and" | "or", lhs, rhs):
                yield from self._parts(lhs, around, always, also)
                yield from self._parts(rhs, around, False, also)
            case _:
                for child in children(e):
                    if isinstance(child, Expr):
                        yield from self._parts(child, around, always, also)

    def _on_sides(self, *sides: list[_Value]) -> Iterator[_Value]:
        """Yield the values of the sides of a condition: what both compute is computed in any case, and of others what may be."""
        computed = [{(part, _key(_depends_on(part, v.around))) for v in side if v.always for part in _computed(v.e)} for side in sides]
        both = computed[0].intersection(*computed[1:])
        for value in chain(*sides):
            also = {part for part in _computed(value.e) if both and (part, _key(_depends_on(part, value.around))) in both}
            yield from self._parts(value.e, value.around, False, also) if value.always else (value,)

    def _is_movable(self, e: Expr, loops: tuple[For, ...], always: bool) -> bool:
        """Tell whether a value takes long, and is the same in all iterations: it is computed in each of them, or may be. What is made of it
        for an index stays, since the proof that this is inside of a buffer asks how it is made, but for integers made of floats: of these
        it knows no more than what conditions say."""
        parts = list(walk(e))
        if not any(map(self._takes_long, parts)) or any(isinstance(p, ValueIndex) for p in parts):
            return False
        others = {self.loop.var, *self.bound} - {loop.var for loop in loops}
        read = {p.buffer for p in parts if isinstance(p, Load)} | {p.name for p in parts if isinstance(p, Name)}
        if not others.isdisjoint(free_vars(e) | read) or not self.written.isdisjoint(read) or not self._has_room(e, loops):
            return False
        if always and self.known.dtype(e).is_float:
            return True
        return is_of_float(e, self.known.types()) and (always or self._is_safe(parts, loops))

    def _has_room(self, e: Expr, loops: tuple[For, ...]) -> bool:
        count = prod(len(_values(loop)) for loop in loops)
        return count <= MOST_KEPT if _in_registers(loops) else count * self.known.dtype(e).size_bytes <= MOST_STORED

    def _takes_long(self, e: Node) -> bool:
        return (isinstance(e, Binary) and e.op == "/") or (isinstance(e, Call) and e.fn not in _QUICK) or is_of_float(e, self.known.types())

    def _is_safe(self, parts: Sequence[Node], loops: tuple[For, ...]) -> bool:
        algebra = self.algebra
        for loop in loops:
            algebra = algebra.with_loop(loop.var, loop.lo, loop.hi, loop.extent)
        return is_safe(parts, algebra, self.known.buffers)

    def _keep(self, e: Expr, loops: tuple[For, ...]) -> None:
        known = self.found.setdefault(e, {})
        if (key := _key(loops)) in known:
            return
        dtype, place = self.known.dtype(e), tuple(map(_place, loops))
        shape, name = tuple(Int(len(_values(loop))) for loop in loops), self.known.fresh("kept")
        buffer = Buffer(name, dtype, shape, "registers", dtype.size_bytes)
        if not _in_registers(loops):
            is_near = buffer_bytes(buffer) <= STACK_BYTES and all(loop.kind != "parallel" for loop in loops)
            buffer = replace(buffer, space="stack" if is_near else "heap", align=64)
        inside: Stmt = Store(buffer.name, place, e)
        for loop in reversed(loops):
            inside = replace(loop, body=(inside,), notes=())
        self.known.buffers[buffer.name] = buffer
        self.before.extend((Alloc(buffer), inside))
        known[key] = Load(buffer.name, place)

    def replaced(self, s: Stmt, around: tuple[For, ...]) -> Stmt:
        """Return `s` with the values read that are kept."""

        def expr(e: Expr) -> Expr:
            if (known := self.found.get(e)) is not None:
                loops = _depends_on(e, around)
                if all(loop.values is not None for loop in loops) and (load := known.get(_key(loops))) is not None:
                    return load
            return map_expr(e, index, expr)

        def index(e: Index) -> Index:
            return map_index(e, index, expr)

        inner = (*around, s) if isinstance(s, For) else around
        return map_stmt(s, index, expr, lambda child: self.replaced(child, inner))


def _depends_on(e: Expr, around: tuple[For, ...]) -> tuple[For, ...]:
    variables = free_vars(e)
    return tuple(loop for loop in around if loop.var in variables)


def _computed(e: Expr) -> Iterator[Expr]:
    """Yield the parts of an expression that are computed whatever conditions inside it say."""
    yield e
    match e:
        case Select(found) | Binary("and" | "or", found):
            yield from _computed(found)
        case _:
            for child in children(e):
                if isinstance(child, Expr):
                    yield from _computed(child)


def _key(loops: Iterable[For]) -> tuple[str, ...]:
    return tuple(f"{loop.var} {_values(loop)}" for loop in loops)


def _in_registers(loops: Iterable[For]) -> bool:
    return all(loop.kind in ("unroll", "vector") for loop in loops)


def _place(loop: For) -> Index:
    """Return which of its iterations a loop is at."""
    start = _values(loop).start
    return Add(Var(loop.var), Int(-start)) if start else Var(loop.var)


def _values(loop: For) -> range:
    assert loop.values is not None
    return loop.values
