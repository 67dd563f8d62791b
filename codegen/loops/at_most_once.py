"""A condition in place of a loop that runs once or not at all, as the loop over what whole vectors leave of a row does.

    before   for jo in N // 16 .. (N + 15) // 16 { for jv in 0 .. N - 16*jo vector 16 { y[16*jo + jv] = x[16*jo + jv] } }
    after    if N // 16 < (N + 15) // 16 { for jv in 0 .. N % 16 vector 16 { y[16*(N // 16) + jv] = x[16*(N // 16) + jv] } }

Then the numbers of lanes, their masks and addresses depend on no loop but those around, and are computed before these begin. A loop that
begins at the greatest of three numbers or more stays: its variable stands for that in every index, and in what is proven of these.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.loops.indices import Algebra
from codegen.loops.nodes import Compare, For, Function, If, IndexValue, Max, Min, Stmt, ValueIndex
from codegen.loops.simplify import assuming
from codegen.loops.walk import substitution, walk
from codegen.polynomials import ONE


def at_most_once(function: Function) -> Function:
    """Return a function that does the same as `function`, in simplified form, in which serial loops that run once at most, as far as sizes
    and loops around tell, are conditions."""
    return replace(function, body=_block(function.body, Algebra.outside(function)))


def _block(body: tuple[Stmt, ...], algebra: Algebra) -> tuple[Stmt, ...]:
    return tuple(_stmt(s, algebra) for s in body)


def _stmt(s: Stmt, algebra: Algebra) -> Stmt:
    match s:
        case For():
            once = _runs_at_most_once(s, algebra)
            made = replace(s, body=_block(s.body, algebra.with_loop(s.var, s.lo, s.hi, s.extent)))
            if not once:
                return made
            body = tuple(map(substitution({s.var: s.lo}), made.body))
            return If(Compare("<", IndexValue(s.lo), IndexValue(s.hi)), body)
        case If(cond, then, orelse):
            return replace(s, then=_block(then, assuming(algebra, cond, True)), orelse=_block(orelse, assuming(algebra, cond, False)))
        case _:
            return s


def _runs_at_most_once(loop: For, algebra: Algebra) -> bool:
    if loop.kind != "serial" or loop.notes or any(isinstance(n, ValueIndex) for end in (loop.lo, loop.hi) for n in walk(end)):
        return False
    if sum(isinstance(n, Min | Max) for n in walk(loop.lo)) > 1:
        return False
    return algebra.nonnegative(algebra.poly(loop.lo) + algebra.poly(loop.hi).scaled(-1) + ONE)
