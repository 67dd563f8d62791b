"""Iterations at the ends of a serial loop in which conditions on indices leave nothing to do are left out.

    before   for io in 0 .. 24 { for it in 0 .. 4 unroll { if 4*io + it > t { x[4*io + it] = x[t] } } }
    after    for io in (t + 1) // 4 .. 24 { for it in 0 .. 4 unroll { if 4*io + it > t { x[4*io + it] = x[t] } } }

`partition` does so with each loop before it looks for its interior.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from codegen.loops.half_lines import HalfLine, Inside, extreme, half_line, over, range_of
from codegen.loops.indices import Algebra
from codegen.loops.nodes import Compare, Expr, For, If, Max, Min, Stmt, ValueIndex
from codegen.loops.notes import Partitioned
from codegen.loops.simplify import assuming, nonnegative_when
from codegen.loops.walk import conjuncts, walk


def without_idle_ends(loop: For, around: Algebra) -> For:
    """Return a serial loop that begins and ends where conditions on indices leave an iteration something to do. `around`: what is known
    where it stands."""
    if loop.kind != "serial" or loop.without(Partitioned).notes:
        return loop
    algebra = around.with_loop(loop.var, loop.lo, loop.hi, loop.extent)
    every = [_busy(s, loop.var, algebra, ()) for s in loop.body]
    halves = [h for h in every[0] if all(h in others for others in every[1:])] if every else []
    first, end = ([around.index(h.bound) for h in halves if h.lower == rising] for rising in (True, False))
    return over(loop, reduce(Max, first, loop.lo), reduce(Min, end, loop.hi), around) if halves else loop


def _busy(s: Stmt, var: str, algebra: Algebra, inside: tuple[Inside, ...]) -> tuple[HalfLine, ...]:
    """Return half-lines outside which a statement does nothing, in iterations of the loop over `var`."""
    match s:
        case For(body=(only,)):
            return _busy(only, var, algebra.with_loop(s.var, s.lo, s.hi, s.extent), (*inside, range_of(s, algebra)))
        case If(cond, (*then,), ()):
            within = _busy(then[0], var, assuming(algebra, cond, True), inside) if len(then) == 1 else ()
            return (*(h for c in conjuncts(cond) for h in _where(c, var, algebra, inside)), *within)
        case _:
            return ()


def _where(cond: Expr, var: str, algebra: Algebra, inside: tuple[Inside, ...]) -> Iterator[HalfLine]:
    """Yield half-lines outside which a condition on indices does not hold for any iteration of the loops inside."""
    match cond:
        case Compare("<" | "<=" | ">" | ">=" | "==" as op, lhs, rhs):
            for poly in nonnegative_when(algebra, op, lhs, rhs):
                of_data = any(isinstance(n, ValueIndex) for atom in poly.atoms() for n in walk(atom))
                most = None if of_data or algebra.nonnegative(poly) else extreme(poly, inside, least=False)
                half = None if most is None else half_line(var, algebra, most, True)
                if half is not None:
                    yield half
        case _:
            pass


__all__ = ["without_idle_ends"]
