"""What a function does once its sizes are known: operations and memory traffic, to compare with what the machine can do.

    for i in 0 .. 64 { for k in 0 .. 64 { for j in 0 .. 64 { c[i, j] = fma(a[i, k], b[k, j], c[i, j]) } } }

    flops 524288      loaded a 16384, b 16384, c 16384      stored c 16384

Operations count every time they run; the side of an `if` that does more counts. Traffic counts the bytes of the distinct elements that
are touched, which is what a cache that never forgets would move; it is bounded from above by boxes around the accesses, by how often
they run, and by the size of the buffer. Registers are no memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from codegen.dtypes import DType
from codegen.loops.indices import Algebra
from codegen.loops.interp import evaluate_index
from codegen.loops.nodes import (
    Add,
    Alloc,
    Barrier,
    Binary,
    Boxes,
    Buffer,
    Call,
    Cast,
    Commit,
    Compare,
    Const,
    Dot,
    Expr,
    Fma,
    For,
    Function,
    If,
    Index,
    IndexValue,
    Int,
    Let,
    Load,
    LoadMatrix,
    Mma,
    Name,
    Prefetch,
    Producer,
    Reclaim,
    Release,
    Require,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
    Var,
    Wait,
    WaitBoxes,
)
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import free_vars, substitute, walk

_ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "min", "max"))
_MOST_STEPS = 200_000
"""How many loop iterations are looked at one by one before the count is given up."""


@dataclass(frozen=True, slots=True)
class Counts:
    """`flops` counts an Fma as two, a Dot as two for each product and an elementary function as one;
    `integer_ops` is the same for integer values, indices apart.
    `loaded` and `stored` are bytes per buffer."""

    flops: int
    integer_ops: int
    loaded: Mapping[str, int]
    stored: Mapping[str, int]

    @property
    def intensity(self) -> float:
        """Operations per byte moved; infinite when nothing is moved."""
        moved = sum(self.loaded.values()) + sum(self.stored.values())
        return (self.flops + self.integer_ops) / moved if moved else math.inf


def count(function: Function, sizes: Mapping[str, int] | None = None) -> Counts | None:
    """Return what `function` does when its sizes have the given values.

    None if the bounds of a loop are read from memory or depend on a size that is not given, or are too irregular to add up."""
    known = {name: Int(value) for name, value in (sizes or {}).items()}
    body = tuple(substitute(s, known) for s in function.body)
    if any(not _is_static(s) for s in walk(*body)) or any(free_vars(*body)):
        return None
    params = [Buffer(p.name, p.dtype, tuple(substitute(e, known) for e in p.shape), p.space) for p in function.params]
    try:
        flops, integer_ops = _Adder().total(_work(body, Env.of(function)), {})
    except _TooIrregular:
        return None
    traffic = _Traffic({p.name: p for p in params})
    traffic.block(body, Algebra.of({}), {})
    return Counts(flops, integer_ops, traffic.bytes_of(Load), traffic.bytes_of(Store))


def _is_static(s: object) -> bool:
    match s:
        case For(lo=lo, hi=hi):
            return not any(isinstance(node, ValueIndex) for node in walk(lo, hi))
        case Alloc(buffer):
            return not any(isinstance(node, ValueIndex) for node in walk(*buffer.shape))
        case _:
            return True


# ---------------------------------------------------------------- operations

_Ops: TypeAlias = tuple[int, int]
"""Operations on floats and on integers."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What one run of a block costs: its own operations, and those of its loops and branches."""

    own: _Ops
    loops: tuple[tuple[For, _Work], ...]
    branches: tuple[tuple[_Work, _Work], ...]

    @property
    def vars(self) -> frozenset[str]:
        """What the number of operations depends on."""
        bounds = [free_vars(loop.lo, loop.hi) | work.vars for loop, work in self.loops]
        sides = [then.vars | orelse.vars for then, orelse in self.branches]
        return frozenset().union(*bounds, *sides)


class _TooIrregular(Exception):
    pass


class _Adder:
    """Adds up work, running through those loops whose variable occurs in the bounds of loops inside."""

    def __init__(self) -> None:
        self._steps = 0

    def total(self, work: _Work, env: Mapping[str, int]) -> _Ops:
        total = work.own
        for loop, inside in work.loops:
            total = _add(total, self._loop(loop, inside, env))
        for then, orelse in work.branches:
            a, b = self.total(then, env), self.total(orelse, env)
            total = _add(total, max(a, b, key=sum))
        return total

    def _loop(self, loop: For, inside: _Work, env: Mapping[str, int]) -> _Ops:
        lo, hi = evaluate_index(loop.lo, env), evaluate_index(loop.hi, env)
        if loop.var not in inside.vars:
            # Bounds inside do not mention the variable, so every iteration costs the same.
            flops, integer_ops = self.total(inside, env) if hi > lo else (0, 0)
            return flops * max(hi - lo, 0), integer_ops * max(hi - lo, 0)
        self._steps += max(hi - lo, 0)
        if self._steps > _MOST_STEPS:
            raise _TooIrregular
        total = (0, 0)
        for i in range(lo, hi):
            total = _add(total, self.total(inside, {**env, loop.var: i}))
        return total


def _work(block: tuple[Stmt, ...], env: Env) -> _Work:
    own = (0, 0)
    loops: list[tuple[For, _Work]] = []
    branches: list[tuple[_Work, _Work]] = []
    for s in block:
        match s:
            case For(body=body):
                loops.append((s, _work(body, env.with_loop(s))))
            case If(cond, then, orelse):
                own = _add(own, _ops(cond, env))
                branches.append((_work(then, env), _work(orelse, env)))
            case Store(value=value) | Require(cond=value):
                own = _add(own, _ops(value, env))
            case Let(name, value):
                own = _add(own, _ops(value, env))
                env = env.with_value(name, dtype_of(value, env))
            case Alloc(buffer):
                env = env.with_buffer(buffer)
            case (
                Prefetch()
                | Barrier()
                | Commit()
                | Wait()
                | LoadMatrix()
                | Mma()
                | Boxes()
                | WaitBoxes()
                | Release()
                | Reclaim()
                | Producer()
            ):
                pass
            case _:
                assert_never(s)
    return _Work(own, tuple(loops), tuple(branches))


def _ops(e: Expr, env: Env) -> _Ops:
    """Return the operations of one evaluation of `e`, those inside its subscripts apart."""
    match e:
        case Const() | Load() | IndexValue() | Name():
            return 0, 0
        case Binary(op, lhs, rhs):
            own = _of_type(1, dtype_of(lhs, env)) if op in _ARITHMETIC else (0, 0)
            return _add(own, _all_ops((lhs, rhs), env))
        case Compare(_, lhs, rhs):
            return _all_ops((lhs, rhs), env)
        case Unary(_, value) | Cast(_, value):
            return _ops(value, env)
        case Select(cond, then, orelse):
            return _add(_ops(cond, env), max(_ops(then, env), _ops(orelse, env), key=sum))
        case Call(fn, args):
            return _add((0 if fn in ("isnan", "isinf") else 1, 0), _all_ops(args, env))
        case Fma(a, b, c):
            return _add((2, 0), _all_ops((a, b, c), env))
        case Dot(count, _, _, c):
            return _add(_of_type(2 * count, dtype_of(c, env)), _ops(c, env))
        case _:
            assert_never(e)


def _all_ops(values: tuple[Expr, ...], env: Env) -> _Ops:
    total = (0, 0)
    for value in values:
        total = _add(total, _ops(value, env))
    return total


def _of_type(operations: int, dtype: DType) -> _Ops:
    return (operations, 0) if dtype.is_float else (0, operations)


def _add(a: _Ops, b: _Ops) -> _Ops:
    return a[0] + b[0], a[1] + b[1]


# ---------------------------------------------------------------- traffic

_Box: TypeAlias = tuple[tuple[int, int], ...]
"""Inclusive range of each subscript."""


@dataclass(slots=True)
class _Touched:
    """The elements of one buffer that its loads or its stores touch: their number at most, and a box around them."""

    buffer: Buffer
    elements: int
    box: _Box

    @property
    def bytes(self) -> int:
        return min(self.elements, _volume(self.box)) * self.buffer.dtype.size_bytes


@dataclass(slots=True)
class _Traffic:
    """Collects what is touched, under the algebra of the loops around; `trips` is how often each of them runs at most."""

    buffers: dict[str, Buffer]
    touched: dict[tuple[type[Load] | type[Store], Buffer], _Touched] = field(default_factory=dict)

    def bytes_of(self, kind: type[Load] | type[Store]) -> dict[str, int]:
        total: dict[str, int] = {}
        for (of, buffer), touched in self.touched.items():
            if of is kind:
                total[buffer.name] = total.get(buffer.name, 0) + touched.bytes
        return total

    def block(self, body: tuple[Stmt, ...], algebra: Algebra, trips: Mapping[str, int]) -> None:
        for s in body:
            match s:
                case For(var, lo, hi, inner, _, extent):
                    self._reads(s, algebra, trips)
                    inside = algebra.with_loop(var, lo, hi, extent)
                    first, last = inside.range_of(Var(var))
                    assert first is not None and last is not None, "bounds are static"
                    if first <= last:
                        self.block(inner, inside, {**trips, var: last - first + 1})
                case If(cond, then, orelse):
                    self._reads(cond, algebra, trips)
                    self.block(then, algebra, trips)
                    self.block(orelse, algebra, trips)
                case Store(name, index, _):
                    self._reads(s, algebra, trips)
                    self._touch(Store, name, index, algebra, trips)
                case Alloc(buffer):
                    self.buffers[buffer.name] = buffer
                case Let() | Require():
                    self._reads(s, algebra, trips)
                case Prefetch() | Barrier() | Commit() | Wait() | LoadMatrix() | Mma():
                    pass
                case Boxes() | WaitBoxes() | Release() | Reclaim() | Producer():
                    pass
                case _:
                    assert_never(s)

    def _reads(self, parent: Stmt | Expr, algebra: Algebra, trips: Mapping[str, int]) -> None:
        roots = (parent.lo, parent.hi) if isinstance(parent, For) else (parent,)
        for node in walk(*roots):
            match node:
                case Dot(count, a, b, _):
                    for r in range(1, count):
                        for o in (a, b):
                            self._touch(Load, o.buffer, (*o.index[:-1], Add(o.index[-1], Int(r))), algebra, trips)
                case Load(name, index):
                    self._touch(Load, name, index, algebra, trips)
                case _:
                    pass

    def _touch(
        self, kind: type[Load] | type[Store], name: str, index: tuple[Index, ...], algebra: Algebra, trips: Mapping[str, int]
    ) -> None:
        buffer = self.buffers[name]
        if buffer.space in ("registers", "tiles"):
            return
        box = tuple(_range(e, extent, algebra) for e, extent in zip(index, buffer.shape, strict=True))
        varying = [_volume(box)] if _reads_memory(index) else [trips[var] for var in sorted(free_vars(*index)) if var in trips]
        elements = min(math.prod(varying), _volume(box))
        known = self.touched.get((kind, buffer))
        if known is None:
            self.touched[kind, buffer] = _Touched(buffer, elements, box)
        elif known.box != box or known.elements != elements:
            known.elements += elements
            known.box = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(known.box, box, strict=True))


def _range(e: Index, extent: Index, algebra: Algebra) -> tuple[int, int]:
    """Return the inclusive range of subscript `e`, within the buffer."""
    lo, hi = algebra.range_of(e)
    last = algebra.range_of(extent)[1]
    assert last is not None, "extents are static"
    return max(lo or 0, 0), last - 1 if hi is None else min(hi, last - 1)


def _volume(box: _Box) -> int:
    return math.prod(max(hi - lo + 1, 0) for lo, hi in box)


def _reads_memory(index: tuple[Index, ...]) -> bool:
    return any(isinstance(node, ValueIndex) for node in walk(*index))
