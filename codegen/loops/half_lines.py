"""Half-lines of a loop: the iterations from one on, or before one, in which a question is decided.

    for jo in 0 .. 64 { for jv in 0 .. 16 { ... 16*jo + jv - 1 >= 0 ... } }        holds for jv at its worst, 0, from jo = 1 on

A *question* is the sign of a polynomial of indices. Along a loop it is decided with the variables of the loops inside at their worst.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen import polynomials
from codegen.loops.indices import Algebra, Poly
from codegen.loops.nodes import Compare, Expr, FloorDiv, For, Index, IndexValue, Int, Max, Min, Mod, Var
from codegen.loops.walk import free_vars, walk
from codegen.polynomials import ONE, number


@dataclass(frozen=True, slots=True)
class HalfLine:
    """Iterations from `bound` on, or (not `lower`) before it: where `fact` is not negative."""

    lower: bool
    bound: Poly
    fact: Poly

    def holds(self, var: str, algebra: Algebra) -> Expr:
        """Return the condition that iteration `var` is one of them, without divisions."""
        if any(isinstance(n, FloorDiv | Mod) for atom in self.bound.atoms() for n in walk(atom)):
            more, less = (polynomials.Poly({m: sign * c for m, c in self.fact.terms.items() if sign * c > 0}) for sign in (1, -1))
            return Compare(">=", IndexValue(algebra.index(more)), IndexValue(algebra.index(less)))
        return Compare(">=" if self.lower else "<", IndexValue(Var(var)), IndexValue(algebra.index(self.bound)))


@dataclass(frozen=True, slots=True)
class Inside:
    """A loop between the one at hand and a question: the least and the greatest value of its variable."""

    var: str
    low: Poly
    high: Poly


def half_line(var: str, algebra: Algebra, poly: Poly, truth: bool) -> HalfLine | None:
    """Return the iterations of the loop over `var` in which `poly >= 0` is certain, or (not `truth`) its contrary is."""
    parts = poly.split(Var(var))
    factor = None if parts is None else parts[0].constant
    if parts is None or not factor:
        return None
    rest = parts[1]
    if any(var in free_vars(atom) for atom in rest.atoms()):
        return None
    fact = poly if truth else poly.scaled(-1) - ONE
    if factor > 0:  # factor*v >= -rest
        return HalfLine(truth, algebra.divided(rest.scaled(-1) + number(factor - 1), number(factor)), fact)
    return HalfLine(not truth, algebra.divided(rest, number(-factor)) + ONE, fact)


def range_of(loop: For, algebra: Algebra) -> Inside:
    """Return the least and the greatest value of a loop's variable, where `algebra` is what is known around it."""
    low, high = algebra.poly(loop.lo), algebra.poly(loop.hi) - ONE
    if loop.extent is not None and (high - low).constant is None:
        high = low + number(loop.extent - 1)
    return Inside(loop.var, low, high)


def extreme(poly: Poly, inside: tuple[Inside, ...], *, least: bool) -> Poly | None:
    """Return a bound of `poly` over the loops inside: what is no more, or no less, than any of its values."""
    for loop in reversed(inside):
        parts = poly.split(Var(loop.var))
        factor = None if parts is None else parts[0].constant
        if parts is None or factor is None:
            return None
        if factor:
            low = (factor > 0) == least
            bound = _one_side(loop.low, Max) if low else _one_side(loop.high, Min)
            if bound is None:
                return None
            poly = parts[1].plus(bound, factor)
        if any(loop.var in free_vars(atom) for atom in poly.atoms()):
            return None
    return poly


def _one_side(bound: Poly, node: type[Min] | type[Max]) -> Poly | None:
    """Return a bound that is as safe as `bound` without its extremes: one operand of each, a number where there is one."""
    for monomial, scale in bound.terms.items():
        if any(isinstance(n, Min | Max) for atom in monomial for n in walk(atom)):
            match monomial:
                case (Min() | Max() as atom,) if isinstance(atom, node) and scale > 0:
                    side = next((s for s in (atom.lhs, atom.rhs) if isinstance(s, Int)), atom.rhs)
                    return _one_side(bound.without(monomial).plus(Algebra.of({}).poly(side), scale), node)
                case _:
                    return None
    return bound


def over(loop: For, lo: Index, hi: Index, algebra: Algebra) -> For:
    """Return the loop from `lo` to `hi`, which lie within its bounds."""
    low, high = algebra.simplify(lo), algebra.simplify(hi)
    trips = (algebra.poly(high) - algebra.poly(low)).constant
    extent = None if loop.extent is None else loop.extent if trips is None else max(0, min(trips, loop.extent))
    if loop.kind == "unroll":
        extent = algebra.most_copies(lo, hi, extent)
    return replace(loop, lo=low, hi=high, extent=extent)


__all__ = ["HalfLine", "Inside", "extreme", "half_line", "over", "range_of"]
