"""Lanes that a condition leaves out, in place of lanes that begin anywhere, where registers have an element for each of them.

    before   for k in max(0, j - 31) .. 32 vector 32 { acc[k] = acc[k] + a[j, k] }
    after    for k in 0 .. 32 vector 32 { if k >= max(0, j - 31) { acc[k] = acc[k] + a[j, k] } }

Then the first lane has the first element whatever `j` is, so that `demote` leaves `acc` in registers, as the first vector of a row of a
triangle needs. Loops stay that may begin before 0, or end after as many elements as there are lanes. Where it is known that lanes begin
within a register, those before it take no part either, so that nothing moves from lane to lane:

    before   for k in 1 .. 16 vector 15 { acc[k] = acc[k] + a[j, k] }
    after    for k in 0 .. 16 vector 16 { if k >= 1 { acc[k] = acc[k] + a[j, k] } }
"""

from __future__ import annotations

from dataclasses import replace

from codegen.loops.indices import Algebra
from codegen.loops.nodes import Alloc, Compare, For, Function, If, IndexValue, Int, Load, Stmt, Store, ValueIndex, Var
from codegen.loops.simplify import assuming
from codegen.loops.walk import free_vars, statements, walk
from codegen.polynomials import number


def masked_lanes(function: Function) -> Function:
    """Return a function that does the same as `function`, in simplified form, in which lanes that have elements of registers begin at 0."""
    registers = frozenset(s.buffer.name for s in statements(*function.body) if isinstance(s, Alloc) and s.buffer.space == "registers")
    return replace(function, body=_block(function.body, Algebra.outside(function), registers)) if registers else function


def _block(body: tuple[Stmt, ...], algebra: Algebra, registers: frozenset[str]) -> tuple[Stmt, ...]:
    return tuple(_stmt(s, algebra, registers) for s in body)


def _stmt(s: Stmt, algebra: Algebra, registers: frozenset[str]) -> Stmt:
    match s:
        case For(kind="vector", lo=Int(first), hi=Int(end)) if _along_registers(s, registers):
            lanes = 1 << (end - first - 1).bit_length()
            start = first - first % lanes
            return s if start == first or end > start + lanes else _from(s, start, end - start)
        case For(kind="vector", extent=int(lanes)) if _begins_anywhere(s) and _along_registers(s, registers) and _fits(s, lanes, algebra):
            return _from(s, 0, lanes)
        case For():
            return replace(s, body=_block(s.body, algebra.with_loop(s.var, s.lo, s.hi, s.extent), registers))
        case If(cond, then, orelse):
            yes, no = (_block(side, assuming(algebra, cond, truth), registers) for side, truth in ((then, True), (orelse, False)))
            return replace(s, then=yes, orelse=no)
        case _:
            return s


def _from(loop: For, start: int, lanes: int) -> For:
    """Return the loop with a first lane for `start`, those before its own under a condition."""
    own = Compare(">=", IndexValue(Var(loop.var)), IndexValue(loop.lo))
    return replace(loop, lo=Int(start), extent=lanes, body=(If(own, loop.body, ()),))


def _begins_anywhere(loop: For) -> bool:
    """Tell whether the first lane of a loop is no constant, and data do not say which it is."""
    return not isinstance(loop.lo, Int) and not any(isinstance(n, ValueIndex) for n in walk(loop.lo))


def _along_registers(loop: For, registers: frozenset[str]) -> bool:
    """Tell whether a loop goes along elements of registers."""
    return any(isinstance(n, Load | Store) and n.buffer in registers and loop.var in free_vars(*n.index) for n in walk(*loop.body))


def _fits(loop: For, lanes: int, algebra: Algebra) -> bool:
    """Tell whether the lanes of a loop are certainly some of the first that it may have."""
    low, high = algebra.poly(loop.lo), algebra.poly(loop.hi)
    return algebra.nonnegative(low) and algebra.nonnegative(number(lanes) - high)
