"""Bit counts: how many bits of a whole number are 1, in place of sums of neighbouring bits, then of pairs, then of fours.

    before   let a = u - (u >> 1 & 0x55555555)
             let b = (a & 0x33333333) + (a >> 2 & 0x33333333)
             y[i] = (b + (b >> 4) & 0x0f0f0f0f) * 0x01010101 >> 24
    after    y[i] = popcount(u)

Processors have an instruction for it, or look the count of four bits up in a register. `popcount` of `std.bits` is written so, as is that
of most programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from codegen.dtypes import DType, limits, u32, u64
from codegen.loops.nodes import Binary, Call, Const, Expr, For, Function, If, Index, Let, Name, Stmt
from codegen.loops.walk import loads, map_expr, map_index, map_stmt, stores, walk

Lets = Mapping[str, Expr]


def with_bit_counts(function: Function) -> Function:
    """Return `function` with `popcount` where it counts bits."""
    if not any(isinstance(n, Binary) and _summed(n) is not None for n in walk(*function.body)):
        return function
    written = function.written | {s.buffer for s in stores(*function.body)}
    return replace(function, body=_block(function.body, {}, written))


def _block(block: Iterable[Stmt], lets: Lets, written: frozenset[str]) -> tuple[Stmt, ...]:
    def index(e: Index) -> Index:
        return map_index(e, index, expr)

    def expr(e: Expr) -> Expr:
        of = _counted(e, lets)
        # What is read may be another value by now.
        if of is None or any(load.buffer in written for load in loads(of)):
            return map_expr(e, index, expr)
        return Call("popcount", (expr(of),))

    out: list[Stmt] = []
    for s in block:
        match s:
            case For(body=body):
                out.append(replace(s, body=_block(body, lets, written)))
            case If(cond, then, orelse):
                out.append(If(expr(cond), _block(then, lets, written), _block(orelse, lets, written)))
            case _:
                out.append(map_stmt(s, index, expr, lambda inner: inner))
        if isinstance(s, Let):
            lets = {**lets, s.name: s.value}
    return tuple(out)


def _counted(e: Expr, lets: Lets) -> Expr | None:
    """Return the number whose bits a value counts."""
    found = _summed(e)
    if found is None:
        return None
    fours, dtype = found
    match _resolved(fours, lets):
        case Binary("+", lhs, rhs):
            pairs, moved = sorted((_masked(side, dtype, 5) for side in (lhs, rhs)), key=lambda side: _is_moved(side, 2))
        case _:
            return None
    if pairs is None or moved != _moved(pairs, 2, dtype):
        return None
    match _resolved(pairs, lets):
        case Binary("-", of, halves) if _masked(halves, dtype, 3) == _moved(of, 1, dtype):
            return of
        case _:
            return None


def _summed(e: Expr) -> tuple[Expr, DType] | None:
    """Return the sums of four bits each that a value adds up, and its type."""
    match e:
        case Binary("shr", Binary("*", low, Const(factor, dtype)), Const(shift)) if dtype in (u32, u64):
            whole = factor == _every(dtype, 255) and shift == dtype.bits - 8
            match _masked(low, dtype, 17) if whole else None:
                case Binary("+", fours, moved) if moved == _moved(fours, 4, dtype):
                    return fours, dtype
    return None


def _resolved(e: Expr, lets: Lets) -> Expr:
    return lets.get(e.name, e) if isinstance(e, Name) else e


def _every(dtype: DType, divisor: int) -> int:
    """Return a mask of one bit, or of some, in every so many: all bits, divided."""
    return int(limits(dtype)[1]) // divisor


def _masked(e: Expr, dtype: DType, divisor: int) -> Expr | None:
    """Return that of which `e` is the bits under a mask."""
    mask = Const(_every(dtype, divisor), dtype)
    match e:
        case Binary("bitand", lhs, rhs) if mask in (lhs, rhs):
            return lhs if rhs == mask else rhs
        case _:
            return None


def _moved(e: Expr, bits: int, dtype: DType) -> Expr:
    return Binary("shr", e, Const(bits, dtype))


def _is_moved(e: Expr | None, bits: int) -> bool:
    match e:
        case Binary("shr", _, Const(by)):
            return by == bits
        case _:
            return False
