"""Indices of reductions that conditions keep within a band, as places in it: the rewriting behind `narrow`.

    before   y[i] = sum(j in 0..N, abs(i - j) <= 8) a[i, j] * x[j]                      all values of j, most of them left out
    after    y[i] = sum(j in 0..17, 0 <= i + j - 8 < N) a[i, i + j - 8] * x[i + j - 8]

The ends of a band are bounds that conditions and the range of an index set, divided by the factor of the index: 2*h <= p + 1 < 2*h + 4
leaves two values of h. Of an index that a congruence speaks of, every so many values are left: (p - k) % 2 == 0 leaves those k of one
parity, `p % 2 + 2*k`. Ends may depend on axes and on indices that the reduction goes through further outside, not on those inside. So the
terms that are left keep their order, and no bit of a result changes. Conditions that do not follow from the new ranges are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from math import gcd

from polyhedral import affine, sets
from polyhedral.expr import Compare, Cond, Floor, Int, Max, Min, Mod
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.facts import box
from tensorlang.tensor.idioms import redefined
from tensorlang.tensor.nodes import Binder, Definition, Expr, Piece, Program, Reduce
from tensorlang.tensor.walk import definers, map_children, reduces, substitute

WORTH_NARROWING = 2
"""How many times as many values as a band has of it an index takes at least where it is replaced by its place in the band."""
LARGE = 2**31
"""Factors from here on are left alone: places in bands of them might leave 64 bits where the conditions do not."""


@dataclass(frozen=True, slots=True)
class Band:
    """What conditions leave of an index, and perhaps more: `first + step * place` for each `place` in `0..count`."""

    first: Affine
    step: int
    count: Affine

    def at(self, place: str) -> Affine:
        """Return the value at a place of the band."""
        return affine.add(self.first, affine.scale(self.step, place))

    def is_narrow(self, binder: Binder, times: int) -> bool:
        """Tell whether the range of an index has so many times as many values as its band, of which neither may be a number."""
        count = affine.constant(self.count)
        if count is None:
            return self.step >= times
        return binder.extent is None or binder.extent >= times * count


def band_of(binder: Binder, where: Cond, others: Collection[str] = ()) -> Band | None:
    """Return the band in which conditions keep an index; None where they leave out no more than its range does. Neither its ends nor its
    steps depend on `others`."""
    width, first = affine.sub(binder.hi, binder.lo), binder.lo
    found = _closest(binder, where, others)
    if found is not None and (binder.extent is None or found[1] < binder.extent):
        first, width = found[0], Int(found[1])
    step, residue = next(_congruences(binder.name, where, others), (1, affine.ZERO))
    if step == 1 and found is None:
        return None
    if step > 1:
        first = affine.add(first, affine.mod(affine.sub(residue, first), step))
    band = Band(first, step, affine.ceil_div(width, step))
    return None if band == Band(binder.lo, 1, affine.sub(binder.hi, binder.lo)) else band


def _closest(binder: Binder, where: Cond, others: Collection[str]) -> tuple[Affine, int] | None:
    """Return the least value of an index by one of its bounds, and how many there are at most from there to another."""
    least, most = [(1, binder.lo)], [(1, affine.sub(binder.hi, 1))]
    for rest in (e for cond in affine.conjuncts(where) for e in _not_negative(cond)):
        factor = affine.terms(rest)[0].get(AffineName(binder.name), 0)
        bound = affine.sub(rest, affine.scale(factor, binder.name))
        if factor and _is_small(rest) and affine.name_set(bound).isdisjoint({*others, binder.name}):
            (least if factor > 0 else most).append((abs(factor), affine.neg(bound) if factor > 0 else bound))
    best: tuple[Affine, int] | None = None
    for below, lo in least:
        for above, hi in most:
            greatest = _greatest(affine.sub(affine.scale(below, hi), affine.scale(above, lo)))
            if greatest is None:
                continue
            count = max(greatest // (below * above) + 1, 0)
            if best is None or count < best[1]:
                best = affine.ceil_div(lo, below), count
    return best


def _is_small(e: Affine) -> bool:
    coefficients, const = affine.terms(e)
    return all(abs(n) < LARGE for n in (*coefficients.values(), const))


def _not_negative(cond: Cond) -> Iterator[Affine]:
    """Yield expressions that are not negative where a condition holds: of a maximum that is bounded above, one for each of its sides."""
    waiting = list(affine.inequalities(cond))
    while waiting:
        e = waiting.pop(0)
        coefficients, _ = affine.terms(e)
        extreme = next((a for a, k in coefficients.items() if isinstance(a, Max if k < 0 else Min)), None)
        if extreme is None:
            yield e
        else:
            rest, k = affine.sub(e, affine.scale(coefficients[extreme], extreme)), coefficients[extreme]
            waiting += [affine.add(rest, affine.scale(k, side)) for side in affine.operands(extreme, Max if k < 0 else Min)]


def _greatest(e: Affine) -> int | None:
    """Return a number that `e` does not exceed, with quotients between what they are rounded from; None where there is none."""
    divided = 1
    while quotient := next((a for a, _ in affine.linear(e).terms if isinstance(a, Floor)), None):
        factor = dict(affine.linear(e).terms)[quotient]
        rest = affine.sub(e, affine.scale(factor, quotient))
        value = quotient.value if factor > 0 else affine.sub(quotient.value, quotient.divisor - 1)
        e, divided = affine.add(affine.scale(quotient.divisor, rest), affine.scale(factor, value)), divided * quotient.divisor
    known = affine.constant(e)
    return None if known is None else known // divided


def _congruences(name: str, where: Cond, others: Collection[str]) -> Iterator[tuple[int, Affine]]:
    """Yield how many values of an index lie from one that a condition leaves to the next, and one of them."""
    for cond in affine.conjuncts(where):
        if not isinstance(cond, Compare) or cond.op != "==":
            continue
        match affine.terms(affine.sub(cond.lhs, cond.rhs)):
            case ({**terms}, const) if len(terms) == 1 and isinstance(of := next(iter(terms)), Mod) and const % terms[of] == 0:
                factor = affine.terms(of.value)[0].get(AffineName(name), 0)
                rest = affine.sub(-const // terms[of], affine.sub(of.value, affine.scale(factor, name)))
                common = gcd(factor, of.divisor)
                step = of.divisor // common
                if 1 < step < LARGE and _is_small(of.value) and affine.name_set(rest).isdisjoint({*others, name}):
                    yield step, affine.scale(pow(factor // common, -1, step), affine.floor(rest, common))
            case _:
                pass


# ---------------------------------------------------------------- reductions


def narrowed(program: Program, tensor: str, binder: str) -> Program | str:
    """Return the program with an index of the reductions in the equations of a tensor as its place in a band, or the reason why it is in
    none. An index that a band has one value for is that value, where another index is left."""
    definition = definers(program).get(tensor)
    found = [r for p in definition.pieces for r in reduces(p.value) if binder in {b.name for b in r.binders}] if definition else []
    if definition is None or not found:
        return f"no reduction of `{tensor}` is over `{binder}`"
    pieces = tuple(replace(p, value=_in_bands(p.value, binder, program, definition, p)) for p in definition.pieces)
    if pieces == definition.pieces:
        return f"no condition keeps `{binder}` within a band whose width is known"
    after = replace(definition, pieces=pieces)
    return redefined(program, tuple(after if d is definition else d for d in program.definitions))


def bands(definition: Definition) -> Iterator[tuple[Binder, Band]]:
    """Yield the indices of a definition's reductions that lie in bands, inner ones first, as the ends of their bands may tell those of
    others."""
    for reduce in (r for p in definition.pieces for r in reduces(p.value)):
        for binder in reversed(reduce.binders):
            found = _band_in(reduce, binder)
            if found is not None:
                yield binder, found


def _band_in(reduce: Reduce, binder: Binder) -> Band | None:
    if any(binder.name in affine.name_set(b.lo) | affine.name_set(b.hi) for b in reduce.binders):
        return None
    at = reduce.binders.index(binder)
    return band_of(binder, reduce.where, {b.name for b in reduce.binders[at + 1 :]})


def _in_bands(e: Expr, name: str, program: Program, definition: Definition, piece: Piece) -> Expr:
    e = map_children(lambda part: _in_bands(part, name, program, definition, piece), e)
    binder = next((b for b in e.binders if b.name == name), None) if isinstance(e, Reduce) else None
    band = _band_in(e, binder) if isinstance(e, Reduce) and binder is not None else None
    if not isinstance(e, Reduce) or binder is None or band is None:
        return e
    gone = affine.constant(band.count) == 1 and len(e.binders) > 1
    to = {name: band.first if gone else band.at(name)}
    own = replace(binder, lo=affine.ZERO, hi=band.count)
    left = tuple(own if b is binder else b for b in e.binders if not (gone and b is binder))
    inside = affine.within(name, binder.lo, binder.hi)
    asked = affine.conj(*(affine.substitute_cond(c, to) for c in affine.conjuncts(affine.conj(inside, e.where))))
    positive = (affine.compare(">=", s, 0) for s in program.sizes)
    known = affine.conj(program.context, *positive, box(definition), piece.guard, *(affine.within(b.name, b.lo, b.hi) for b in left))
    scope = tuple(sorted((affine.name_set(asked) | affine.name_set(known)) - {*program.sizes}))
    return replace(
        e,
        binders=left,
        body=tuple(substitute(b, to) for b in e.body),
        where=affine.conj(*sets.needed(program.sizes, scope, known, affine.conjuncts(asked))),
        filter=None if e.filter is None else substitute(e.filter, to),
    )
