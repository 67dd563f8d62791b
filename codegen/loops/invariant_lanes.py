"""Compute once, before a loop, what every iteration would compute anew for each lane and each point that it has side by side.

    before   for k in 0 .. 16 { for v in 0 .. 16 vector 16 { y[v] = min(y[v], abs(x[v] / s[] - c[k])) } }
    after    alloc h: f32[16] registers
             for v in 0 .. 16 vector 16 { h[v] = x[v] / s[] }
             for k in 0 .. 16 { for v in 0 .. 16 vector 16 { y[v] = min(y[v], abs(h[v] - c[k])) } }

`hoist` does so for what does not depend on the loops inside. Here it does, on loops whose extents are constants: there are as many values
as one iteration has, in registers where the loops are vectors and unrolled, and else on the stack. Only what takes longer than to store and
to load moves, out of serial loops that run more than once: divisions and elementary functions where each iteration computes them, and
integers made of floats wherever they stand, where what they read is there in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from codegen.dtypes import DType
from codegen.loops.hoist import is_of_float, is_safe
from codegen.loops.indices import Algebra
from codegen.loops.nodes import (
    Alloc,
    Binary,
    Buffer,
    Call,
    Expr,
    For,
    Function,
    If,
    Index,
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
    statements,
    stores,
    walk,
)

MOST_KEPT = 512
"""Elements that are kept of one value in registers: of 32 bits each, as many as these hold."""
MOST_STORED = 4096
"""And on the stack: half of a first-level cache."""
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
    if loop.kind != "serial" or len(loop.values or ()) < 2 or any(isinstance(s, Require) for s in statements(*loop.body)):
        return (loop,)
    kept = _Kept(loop, known, algebra, frozenset(binders(*loop.body)), frozenset(s.buffer for s in stores(*loop.body)))
    for s in loop.body:
        kept.collect(s, ())
    return (*kept.before, replace(loop, body=tuple(kept.replaced(s, ()) for s in loop.body))) if kept.before else (loop,)


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

    def collect(self, s: Stmt, around: tuple[For, ...], always: bool = True) -> None:
        """Keep what `s` computes in each iteration, or, unless it does so `always`, what may be computed in any case."""
        match s:
            case For() if _is_counted(s) and s.kind in ("unroll", "vector", "serial"):
                for inner in s.body:
                    self.collect(inner, (*around, s), always)
            case If(_, then, orelse) if around:
                for inner in (*then, *orelse):
                    self.collect(inner, around, False)
            case Store() | Let() if around and any(map(self._takes_long, walk(s.value))):
                self._collect(s.value, around, always)

    def _collect(self, e: Expr, around: tuple[For, ...], always: bool) -> None:
        loops = _depends_on(e, around)
        if loops and self._is_movable(e, loops, always):
            self._keep(e, loops)
            return
        match e:
            case Select(cond, then, orelse):
                self._collect(cond, around, always)
                self._collect(then, around, False)
                self._collect(orelse, around, False)
            case Binary("and" | "or", lhs, rhs):
                self._collect(lhs, around, always)
                self._collect(rhs, around, False)
            case _:
                for child in children(e):
                    if isinstance(child, Expr):
                        self._collect(child, around, always)

    def _is_movable(self, e: Expr, loops: tuple[For, ...], always: bool) -> bool:
        """Tell whether a value takes long, and is the same in all iterations: it is computed in each of them, or may be. What is made of it
        for an index stays, since the proof that this is inside of a buffer asks how it is made, but for integers made of floats: of these
        it knows no more than what conditions say."""
        parts = list(walk(e))
        if not any(map(self._takes_long, parts)) or any(isinstance(p, ValueIndex) for p in parts):
            return False
        others = {self.loop.var, *self.bound} - {loop.var for loop in loops}
        read = {p.buffer for p in parts if isinstance(p, Load)} | {p.name for p in parts if isinstance(p, Name)}
        if not others.isdisjoint(free_vars(e) | read) or not self.written.isdisjoint(read) or _count(loops) > _most(loops):
            return False
        if always and self.known.dtype(e).is_float:
            return True
        return is_of_float(e, self.known.types()) and (always or self._is_safe(parts, loops))

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
        dtype, place = self.known.dtype(e), tuple(Var(loop.var) for loop in loops)
        shape, name = tuple(Int(_extent(loop)) for loop in loops), self.known.fresh("kept")
        buffer = (
            Buffer(name, dtype, shape, "registers", dtype.size_bytes) if _in_registers(loops) else Buffer(name, dtype, shape, "stack", 64)
        )
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
                if all(map(_is_counted, loops)) and (load := known.get(_key(loops))) is not None:
                    return load
            return map_expr(e, index, expr)

        def index(e: Index) -> Index:
            return map_index(e, index, expr)

        inner = (*around, s) if isinstance(s, For) else around
        return map_stmt(s, index, expr, lambda child: self.replaced(child, inner))


def _depends_on(e: Expr, around: tuple[For, ...]) -> tuple[For, ...]:
    variables = free_vars(e)
    return tuple(loop for loop in around if loop.var in variables)


def _key(loops: Iterable[For]) -> tuple[str, ...]:
    return tuple(f"{loop.var} {_extent(loop)}" for loop in loops)


def _is_counted(loop: For) -> bool:
    return isinstance(loop.lo, Int) and loop.lo.value == 0 and isinstance(loop.hi, Int)


def _in_registers(loops: Iterable[For]) -> bool:
    return all(loop.kind != "serial" for loop in loops)


def _most(loops: Iterable[For]) -> int:
    return MOST_KEPT if _in_registers(loops) else MOST_STORED


def _extent(loop: For) -> int:
    assert loop.values is not None and loop.values.start == 0
    return len(loop.values)


def _count(loops: Iterable[For]) -> int:
    return prod(map(_extent, loops))
