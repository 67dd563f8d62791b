"""Lanes that a condition leaves out, in place of lanes that begin anywhere, where registers have an element for each of them.

    before   for k in max(0, j - 31) .. 32 vector 32 { acc[k] = acc[k] + a[j, k] }
    after    for k in 0 .. 32 vector 32 { if k >= max(0, j - 31) { acc[k] = acc[k] + a[j, k] } }

Then the first lane has the first element whatever `j` is, so that `demote` leaves `acc` in registers, as the first vector of a row of a
triangle needs. Loops stay that may begin before 0, or end after as many elements as there are lanes.
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
        case For(kind="vector") if _begins_anywhere(s, registers) and _fits(s, algebra):
            return replace(s, lo=Int(0), body=(If(Compare(">=", IndexValue(Var(s.var)), IndexValue(s.lo)), s.body, ()),))
        case For():
            return replace(s, body=_block(s.body, algebra.with_loop(s.var, s.lo, s.hi, s.extent), registers))
        case If(cond, then, orelse):
            yes, no = (_block(side, assuming(algebra, cond, truth), registers) for side, truth in ((then, True), (orelse, False)))
            return replace(s, then=yes, orelse=no)
        case _:
            return s


def _begins_anywhere(loop: For, registers: frozenset[str]) -> bool:
    """Tell whether a loop whose first lane is no constant goes along elements of registers."""
    if isinstance(loop.lo, Int) or any(isinstance(n, ValueIndex) for n in walk(loop.lo)):
        return False
    return any(isinstance(n, Load | Store) and n.buffer in registers and loop.var in free_vars(*n.index) for n in walk(*loop.body))


def _fits(loop: For, algebra: Algebra) -> bool:
    """Tell whether the lanes of a loop are certainly some of the first that it may have."""
    low, high = algebra.poly(loop.lo), algebra.poly(loop.hi)
    return loop.extent is not None and algebra.nonnegative(low) and algebra.nonnegative(number(loop.extent) - high)
