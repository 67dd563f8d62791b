"""Compute in 32 bits what is known to fit.

    before   at[0] = min(max(i64(x[i]), 0_i64), 255_i64)            alloc at: i64[1] registers
    after    at[0] = min(max(i32(x[i]), 0_i32), 255_i32)            alloc at: i32[1] registers, read as i64(at[0])

A register has twice as many lanes of 32 bits, and few processors convert lanes of floats to 64. What is narrowed is an integer, the value,
limited to the range of i32: that of the conversion of a float is what the conversion to i32 gives, the limits of a minimum, a maximum or a
choice are those of their sides, and whatever lies between numbers of i32 is its own. So every value stays what it was, bit for bit.

Names and buffers that a function has for itself become i32 where all that is bound or stored fits. What is loaded as i64 stays as wide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from codegen.dtypes import DType, holds, i32, i64, limits
from codegen.loops.nodes import (
    Alloc,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    Function,
    Index,
    IndexValue,
    Let,
    Load,
    Name,
    Select,
    Stmt,
    Store,
    Unary,
    ValueIndex,
)
from codegen.loops.value_ranges import ValueRanges, value_ranges
from codegen.loops.verify import Env, dtype_of
from codegen.loops.walk import Node, map_expr, map_index, map_stmt, statements

LOW, HIGH = limits(i32)


def narrowed(function: Function) -> Function:
    """Return `function` with the integers of 64 bits that are known to fit in 32 computed in those; parameters stay as they are."""
    every = [*statements(*function.body)]
    env = _types(function, every)
    if env is None:
        return function
    own = {s.buffer.name for s in every if isinstance(s, Alloc) and _is_own(s.buffer)}
    names = frozenset(n for n, dtype in env.values.items() if dtype == i64)
    found = _Narrow(value_ranges(function), env, names, frozenset(own))
    while (fewer := found.kept(every)) != found:
        found = fewer
    return replace(function, body=tuple(map(found.stmt, function.body)))


def _is_own(buffer: Buffer) -> bool:
    return buffer.dtype == i64 and buffer.space in ("registers", "stack", "heap") and not buffer.notes


def _types(function: Function, every: Iterable[Node]) -> Env | None:
    """Return the types of all buffers and names, None where two of one name differ."""
    env = Env.of(function)
    buffers, values = dict(env.buffers), dict[str, DType]()
    for s in every:
        match s:
            case Alloc(buffer):
                if buffers.setdefault(buffer.name, buffer).dtype != buffer.dtype:
                    return None
            case Let(name, value):
                dtype = dtype_of(value, Env(values=values, buffers=buffers))
                if values.setdefault(name, dtype) != dtype:
                    return None
            case _:
                pass
    return Env(values=values, buffers=buffers)


@dataclass(frozen=True, slots=True)
class _Narrow:
    """What is known of a function, and the names and buffers that become i32."""

    ranges: ValueRanges
    env: Env
    names: frozenset[str]
    buffers: frozenset[str]

    def kept(self, every: Iterable[Node]) -> _Narrow:
        """Return it without the names and buffers that something is bound or stored to which does not become i32 without them."""
        names, buffers = set(self.names), set(self.buffers)
        for s in every:
            match s:
                case Let(name, value) if name in names and not self._becomes(value):
                    names.discard(name)
                case Store(buffer=buffer, value=value) if buffer in buffers and not self._becomes(value):
                    buffers.discard(buffer)
                case _:
                    pass
        return replace(self, names=frozenset(names), buffers=frozenset(buffers))

    def _becomes(self, e: Expr) -> bool:
        return self._fits(e) and self.limited(e) is not None

    def _fits(self, e: Expr) -> bool:
        """Tell whether a value is an i64 that i32 has."""
        found = self.ranges.of(e)
        return found is not None and found.dtype == i64 and found.low >= LOW and found.high <= HIGH

    def limited(self, e: Expr) -> Expr | None:
        """Return an i64 limited to the range of i32, as one; None where that is not known, or needs the i64."""
        match e:
            case Const(number, dtype) if dtype == i64:
                return Const(min(max(int(number), LOW), HIGH), i32)
            case Load(buffer) if buffer in self.buffers:
                return map_expr(e, self.index, self.expr)
            case Name(name) if name in self.names:
                return e
            case IndexValue() if self._fits(e):
                return Cast(i32, map_expr(e, self.index, self.expr))
            case Cast(dtype, x) if dtype == i64:
                source = dtype_of(x, self.env)
                if source == i64:
                    return self.limited(x)
                if source.is_float or holds(i32, source):
                    return self.expr(x) if source == i32 else Cast(i32, self.expr(x))
                return None
            case Select(cond, x, y):
                then, orelse = self.limited(x), self.limited(y)
                return None if then is None or orelse is None else Select(self.expr(cond), then, orelse)
            case Binary("min" | "max" as op, x, y):
                return self._both(op, x, y)
            case Binary("bitand" | "bitor" | "bitxor" as op, x, y) if self._fits(x) and self._fits(y):
                return self._both(op, x, y)
            case Binary("+" | "-" | "*" | "//" | "%" as op, x, y) if self._fits(e) and self._fits(x) and self._fits(y):
                return self._both(op, x, y)
            case Unary("neg", x) if self._fits(e) and self._fits(x):
                inner = self.limited(x)
                return None if inner is None else Unary("neg", inner)
            case _:
                return None

    def _both(self, op: BinaryOp, x: Expr, y: Expr) -> Expr | None:
        lhs, rhs = self.limited(x), self.limited(y)
        return None if lhs is None or rhs is None else Binary(op, lhs, rhs)

    def expr(self, e: Expr) -> Expr:
        """Return `e`, of its type, with the parts of it in 32 bits that fit."""
        match e:
            case Load(buffer) if buffer in self.buffers:
                return Cast(i64, map_expr(e, self.index, self.expr))
            case Name(name) if name in self.names:
                return Cast(i64, e)
            case Compare(op, x, y) if self._is_work(x) or self._is_work(y):
                both = (self.limited(x), self.limited(y)) if self._fits(x) and self._fits(y) else (None, None)
                if both[0] is not None and both[1] is not None:
                    return Compare(op, both[0], both[1])
            case Cast(dtype, x, saturate) if self._is_work(x) and self._fits(x) and (inner := self.limited(x)) is not None:
                return inner if dtype == i32 else Cast(dtype, inner, saturate)
            case Cast(dtype, IndexValue() as x) if dtype.is_float and self._fits(x):
                return Cast(dtype, Cast(i32, map_expr(x, self.index, self.expr)))
            case _ if self._is_work(e) and self._fits(e) and (inner := self.limited(e)) is not None:
                return Cast(i64, inner)
        return map_expr(e, self.index, self.expr)

    def _is_work(self, e: Expr) -> bool:
        """Tell whether an i64 is computed. Indices that are only moved become addresses, and are compared as indices."""
        match e:
            case Binary("+" | "-", x, y):
                return not isinstance(x, IndexValue) and not isinstance(y, IndexValue)
            case Binary() | Unary() | Select():
                return True
            case Load(buffer):
                return buffer in self.buffers
            case Name(name):
                return name in self.names
            case Cast(dtype, x):
                return dtype == i64 and (self._is_work(x) or dtype_of(x, self.env).is_float)
            case _:
                return False

    def index(self, e: Index) -> Index:
        match e:
            case ValueIndex(value):
                return ValueIndex(self.expr(value))
            case _:
                return map_index(e, self.index, self.expr)

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Alloc(buffer) if buffer.name in self.buffers:
                return Alloc(replace(buffer, dtype=i32))
            case Let(name, value) if name in self.names:
                return Let(name, self._made(value))
            case Store(buffer=buffer, value=value) if buffer in self.buffers:
                return replace(s, index=tuple(map(self.index, s.index)), value=self._made(value))
            case _:
                return map_stmt(s, self.index, self.expr, self.stmt)

    def _made(self, e: Expr) -> Expr:
        made = self.limited(e)
        assert made is not None, "what is kept fits"
        return made
