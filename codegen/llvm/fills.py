"""Loops that fill a row of memory with one number, copy a row, or check every element of one, in whole vectors: an emitter's way to do the
same.

before   for i in 0 .. N { y[k, i] = 0 }
after    for io in 0 .. N // 16 { for iv in 0 .. 16 vector 16 { y[k, 16*io + iv] = 0 } }    and one vector of N % 16
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from codegen.dtypes import holds, i64, limits
from codegen.loops.nodes import (
    Add,
    Buffer,
    Cast,
    Const,
    Expr,
    FloorDiv,
    For,
    Index,
    IndexValue,
    Int,
    Load,
    Max,
    Mod,
    Mul,
    Require,
    Stmt,
    Store,
    Var,
)
from codegen.loops.walk import free_vars, loads, range_of_condition, substitute

NARROW_ROW = 4
"""Elements of a row at most, of which vectors take one of several rows."""


def filled(loop: For) -> str | None:
    """Return the buffer that all a serial loop does is to fill a row of, with one number or a row of another buffer, None for any other
    loop."""
    match loop:
        case For(var, Int(0), _, (Store(buffer, (*outer, last), Load(source, (*before, place)), stream=False),), "serial"):
            there = source != buffer and _walks(place, var) and var not in free_vars(*before)
            return buffer if there and _walks(last, var) and var not in free_vars(*outer) else None
        case For(var, Int(0), _, (Store(buffer, (*outer, last), Const(), stream=False),), "serial"):
            return buffer if _walks(last, var) and var not in free_vars(*outer) else None
        case _:
            return None


def checked(loop: For) -> str | None:
    """Return the buffer whose elements are all that a serial loop looks at, and checks: those of a row, or of as many rows of at most
    `NARROW_ROW` elements. None for any other loop."""
    match loop:
        case For(var, Int(0), _, (Require(cond),), "serial"):
            return _checked(cond, var, ())
        case For(var, Int(0), _, (For(place, Int(0), Int(count), (Require(cond),), "serial"),), "serial") if 1 < count <= NARROW_ROW:
            return _checked(cond, var, (place,))
        case _:
            return None


def _checked(cond: Expr, var: str, inside: tuple[str, ...]) -> str | None:
    """Return the only buffer that a condition reads, at `var` and behind it `inside`."""
    index = (Var(var), *map(Var, inside))
    found = {load.buffer: load for load in loads(cond)}
    for buffer, load in found.items() if len(found) == 1 else ():
        around = load.index[: len(load.index) - len(index)]
        same = all(other.index == load.index for other in loads(cond))
        if same and load.index[len(around) :] == index and not free_vars(*around) & {var, *inside}:
            return buffer
    return None


def range_checked(s: Stmt, params: Mapping[str, Buffer], known: Container[str]) -> tuple[str, Index, Index] | None:
    """Return the parameter of which a statement checks all elements, with the range [low, high) in which they lie behind it: an end that
    it does not ask for is that of their type. None where it does anything else, or asks for one end where a range is `known`."""
    path: list[For] = []
    while isinstance(s, For) and s.lo == Int(0) and len(s.body) == 1:
        path.append(s)
        (s,) = s.body
    asked = range_of_condition(s.cond) if isinstance(s, Require) else None
    match asked:
        case (Cast(to, Load(name, index)), low, high) if to == i64 and name in params and holds(i64, params[name].dtype):
            param = params[name]
        case _:
            return None
    least, most = limits(param.dtype)
    first = Int(least) if low is None else _as_index(low)
    end = Int(most + 1) if high is None else _as_index(high)
    one_end = low is None or high is None
    if first is None or end is None or (one_end and (param.dtype == i64 or name in known)):
        return None
    covers = index == tuple(Var(loop.var) for loop in path) and param.shape == tuple(loop.hi for loop in path)
    return (name, first, end) if covers else None


def _as_index(e: Expr) -> Index | None:
    match e:
        case IndexValue(index):
            return index
        case Const(number, dtype) if dtype == i64:
            return Int(int(number))
        case _:
            return None


def in_vectors(loop: For, lanes: int) -> tuple[For, For]:
    """Return the loops that do what one that is `filled` or `checked` does, `lanes` elements at once."""
    loop = replace(loop, body=tuple(replace(s, kind="unroll", extent=NARROW_ROW) if isinstance(s, For) else s for s in loop.body))
    count = loop.hi if isinstance(loop.hi, Int) else Max(loop.hi, Int(0))
    whole, rest = (Int(count.value // lanes), Int(count.value % lanes)) if isinstance(count, Int) else _divided(count, lanes)
    step, lane = f"{loop.var} step", f"{loop.var} lane"
    return (
        For(step, Int(0), whole, (_vector(loop, lane, Mul(Int(lanes), Var(step)), Int(lanes), lanes),)),
        _vector(loop, lane, Mul(Int(lanes), whole), rest, lanes),
    )


def _divided(count: Index, lanes: int) -> tuple[Index, Index]:
    return FloorDiv(count, Int(lanes)), Mod(count, Int(lanes))


def _vector(loop: For, lane: str, start: Index, count: Index, lanes: int) -> For:
    return For(lane, Int(0), count, tuple(substitute(s, {loop.var: Add(start, Var(lane))}) for s in loop.body), "vector", lanes)


def _walks(index: Index, var: str) -> bool:
    match index:
        case Var(name):
            return name == var
        case Add(lhs, rhs):
            return (_walks(lhs, var) and var not in free_vars(rhs)) or (_walks(rhs, var) and var not in free_vars(lhs))
        case _:
            return False
