"""Compute once, before a loop, what every iteration would compute anew for each lane and each point that it has side by side.

    before   for k in 0 .. 16 { for v in 0 .. 16 vector 16 { y[v] = min(y[v], abs(x[v] / s[] - c[k])) } }
    after    alloc h: f32[16] registers
             for v in 0 .. 16 vector 16 { h[v] = x[v] / s[] }
             for k in 0 .. 16 { for v in 0 .. 16 vector 16 { y[v] = min(y[v], abs(h[v] - c[k])) } }

`hoist` does so for what does not depend on the loops inside. Here it does, on loops whose extents are constants: there are as many values
as one iteration has, in registers where the loops are vectors and unrolled, and else on the stack. Only divisions and elementary functions
move, which take longer than to store and to load, out of serial loops that run more than once, where each iteration computes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import prod

from codegen.dtypes import DType
from codegen.loops.nodes import (
    Alloc,
    Binary,
    Buffer,
    Call,
    Expr,
    For,
    Function,
    If,
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
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import Fresh, binders, free_vars, fresh_for, map_expr, statements, stores, walk

MOST_KEPT = 512
"""Elements that are kept of one value in registers: of 32 bits each, as many as these hold."""
MOST_STORED = 4096
"""And on the stack: half of a first-level cache."""
_QUICK = ("isnan", "isinf", "bits", "from_bits", "pack", "bits_tf32")


def invariant_lanes(function: Function) -> Function:
    """Return `function` with such values computed before the serial loop that they do not depend on."""
    known = _Known({}, {p.name: p for p in function.params}, fresh_for(function))
    return replace(function, body=_block(function.body, known))


@dataclass(frozen=True, slots=True)
class _Known:
    """The types of the names and the buffers that were bound so far, in text order."""

    values: dict[str, DType]
    buffers: dict[str, Buffer]
    fresh: Fresh

    def dtype(self, e: Expr) -> DType:
        return dtype_of(e, Env(values=self.values, buffers=self.buffers))


def _block(body: Iterable[Stmt], known: _Known) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        match s:
            case For():
                out += _before(replace(s, body=_block(s.body, known)), known)
            case If(_, then, orelse):
                out.append(replace(s, then=_block(then, known), orelse=_block(orelse, known)))
            case _:
                if isinstance(s, Let):
                    known.values[s.name] = known.dtype(s.value)
                elif isinstance(s, Alloc):
                    known.buffers[s.buffer.name] = s.buffer
                out.append(s)
    return tuple(out)


def _before(loop: For, known: _Known) -> tuple[Stmt, ...]:
    """Return a loop behind what is computed before it."""
    if loop.kind != "serial" or len(loop.values or ()) < 2 or any(isinstance(s, Require) for s in statements(*loop.body)):
        return (loop,)
    kept = _Kept(loop, known, frozenset(binders(*loop.body)), frozenset(s.buffer for s in stores(*loop.body)))
    inside = tuple(kept.statement(s, ()) for s in loop.body)
    return (*kept.before, replace(loop, body=inside))


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is computed before a loop, in the body of which so many names are `bound` and buffers `written`. `found`: the values that are
    kept, each with the loops that they depend on."""

    loop: For
    known: _Known
    bound: frozenset[str]
    written: frozenset[str]
    before: list[Stmt] = field(default_factory=list)
    found: dict[tuple[Expr, tuple[str, ...]], Load] = field(default_factory=dict)

    def statement(self, s: Stmt, around: tuple[For, ...]) -> Stmt:
        match s:
            case For(_, Int(0), Int(), body, "unroll" | "vector" | "serial"):
                return replace(s, body=tuple(self.statement(inner, (*around, s)) for inner in body))
            case Store() | Let() if around and any(map(_takes_long, walk(s.value))):
                return replace(s, value=self._expr(s.value, around))
            case _:
                return s

    def _expr(self, e: Expr, around: tuple[For, ...]) -> Expr:
        loops = tuple(loop for loop in around if loop.var in free_vars(e))
        if loops and self._is_movable(e, loops):
            return self._value(e, loops)
        match e:
            case Select(cond):
                return replace(e, cond=self._expr(cond, around))
            case Binary("and" | "or", lhs):
                return replace(e, lhs=self._expr(lhs, around))
            case _:
                return map_expr(e, lambda index: index, lambda child: self._expr(child, around))

    def _is_movable(self, e: Expr, loops: tuple[For, ...]) -> bool:
        """Tell whether a value takes long, and is the same in all iterations: it is computed in each of them."""
        parts = list(walk(e))
        if not any(map(_takes_long, parts)) or any(isinstance(p, ValueIndex) for p in parts):
            return False
        others = {self.loop.var, *self.bound} - {loop.var for loop in loops}
        read = {p.buffer for p in parts if isinstance(p, Load)} | {p.name for p in parts if isinstance(p, Name)}
        return others.isdisjoint(free_vars(e) | read) and self.written.isdisjoint(read) and _count(loops) <= _most(loops)

    def _value(self, e: Expr, loops: tuple[For, ...]) -> Load:
        key = e, tuple(f"{loop.var} {_extent(loop)}" for loop in loops)
        if key not in self.found:
            dtype, place = self.known.dtype(e), tuple(Var(loop.var) for loop in loops)
            shape, name = tuple(Int(_extent(loop)) for loop in loops), self.known.fresh("kept")
            buffer = (
                Buffer(name, dtype, shape, "registers", dtype.size_bytes)
                if _in_registers(loops)
                else Buffer(name, dtype, shape, "stack", 64)
            )
            inside: Stmt = Store(buffer.name, place, e)
            for loop in reversed(loops):
                inside = replace(loop, body=(inside,), notes=())
            self.known.buffers[buffer.name] = buffer
            self.before.extend((Alloc(buffer), inside))
            self.found[key] = Load(buffer.name, place)
        return self.found[key]


def _takes_long(e: object) -> bool:
    return (isinstance(e, Binary) and e.op == "/") or (isinstance(e, Call) and e.fn not in _QUICK)


def _in_registers(loops: Iterable[For]) -> bool:
    return all(loop.kind != "serial" for loop in loops)


def _most(loops: Iterable[For]) -> int:
    return MOST_KEPT if _in_registers(loops) else MOST_STORED


def _extent(loop: For) -> int:
    assert loop.values is not None and loop.values.start == 0
    return len(loop.values)


def _count(loops: Iterable[For]) -> int:
    return prod(map(_extent, loops))
