"""The algebra of index expressions: canonical form, ranges, and what follows from them.

    before   ((32*io + ii) // 32 + jo*4 - jo) % 8        where 0 <= ii < 32
    after    (io + 3*jo) % 8

An index is a polynomial: a sum of products of *atoms* with integer coefficients. Atoms are variables and those `//`, `%`, `min`, `max`
and data-dependent indices that cannot be resolved further. Terms are printed largest coefficient first, differences last. Arithmetic
is that of the integers: no index computation overflows, as nodes.py demands.

`//` and `%` are resolved by splitting off multiples of the divisor and bounding what remains; `min` and `max` by bounding the
difference. Bounds come from intervals of the variables and, where those do not decide, from the symbolic bounds of the loops around
(`i <= N - 1`), which are put in for the variables from the innermost loop outwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import takewhile
from typing import TypeAlias, assert_never

from codegen import polynomials
from codegen.dtypes import limits
from codegen.loops.nodes import (
    Add,
    Binary,
    Cast,
    Const,
    Expr,
    FloorDiv,
    Function,
    Index,
    IndexValue,
    Int,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Select,
    ValueIndex,
    Var,
)
from codegen.loops.printer import show_index
from codegen.loops.walk import free_vars
from codegen.polynomials import ONE, atom_poly, number

Range: TypeAlias = tuple[int | None, int | None]
"""Inclusive; None is unbounded."""

Ranges: TypeAlias = Mapping[str, Range]

Monomial: TypeAlias = tuple[Index, ...]
Poly: TypeAlias = polynomials.Poly[Index]

_Interval: TypeAlias = tuple[float, float]
"""Integers, or infinities."""

_EVERYTHING: _Interval = (-math.inf, math.inf)
_DEPTH = 8


def simplify_index(e: Index, ranges: Ranges) -> Index:
    """Return the canonical form of `e`, which is equal to `e` wherever every variable lies within `ranges`."""
    return Algebra.of(_of_its_variables(e, ranges)).simplify(e)


def coefficients(e: Index) -> tuple[dict[Index, int], int] | None:
    """Return the coefficient of each atom of `e`, and the constant; None when `e` multiplies atoms with each other."""
    poly = Algebra.of({}).poly(e)
    if any(len(monomial) > 1 for monomial in poly.terms):
        return None
    return {monomial[0]: scale for monomial, scale in poly.terms.items() if monomial}, poly.offset


def range_of(e: Index, ranges: Ranges) -> Range:
    """Return inclusive bounds of `e` wherever every variable lies within `ranges`; None where there is none."""
    return Algebra.of(_of_its_variables(e, ranges)).range_of(e)


def _of_its_variables(e: Index, ranges: Ranges) -> Ranges:
    """Return the ranges of what `e` mentions: a long function has many more variables than each of its indices."""
    return {name: ranges[name] for name in free_vars(e) if name in ranges}


@dataclass(slots=True)
class Algebra:
    """Index arithmetic within one scope of variables.

    `intervals`  what each variable lies in
    `bounds`     symbolic lower and upper bounds (inclusive) of loop variables, outermost loop first
    `facts`      polynomials that are known not to be negative
    `value`      what is done to the values inside data-dependent indices
    `elements`   what the elements of each parameter lie in that are integers: the numbers of their type
    """

    intervals: Mapping[str, _Interval]
    bounds: Mapping[str, tuple[Poly, Poly]] = field(default_factory=dict)
    facts: tuple[Poly, ...] = ()
    value: Callable[[Expr], Expr] = lambda e: e
    elements: Mapping[str, _Interval] = field(default_factory=dict)
    _polys: dict[Index, Poly] = field(default_factory=dict)
    _texts: dict[Index, str] = field(default_factory=dict)
    _intervals: dict[Monomial, _Interval] = field(default_factory=dict)
    _decided: dict[tuple[Poly, int], bool] = field(default_factory=dict)
    """Whether a sum is certainly not negative when that is looked for so deep: bounds put in in another order lead to the same sum."""

    @staticmethod
    def of(ranges: Ranges) -> Algebra:
        return Algebra({name: (_low(lo), _high(hi)) for name, (lo, hi) in ranges.items()})

    @staticmethod
    def outside(function: Function, ranges: Ranges | None = None) -> Algebra:
        """Return the algebra outside of all loops of a function: a size that is the extent of a parameter is not negative, and variables of
        `ranges` lie in these."""
        sizes: Ranges = {e.name: (0, None) for p in function.params for e in p.shape if isinstance(e, Var)}
        elements = {p.name: limits(p.dtype) for p in function.params if p.dtype.is_integer}
        return replace(Algebra.of({**sizes, **(ranges or {})}), elements=elements)

    # ------------------------------------------------------------ scopes

    def with_loop(self, var: str, lo: Index, hi: Index, extent: int | None = None) -> Algebra:
        """Return the algebra inside a loop over `var` in [lo, hi) that runs at most `extent` times."""
        low, high = self.poly(lo), self.poly(hi) - ONE
        first, last = self.interval(low), self.interval(high)
        most = last[1] if extent is None else min(last[1], first[1] + extent - 1)
        intervals = {**self.intervals, var: (first[0], most)}
        bounds = {**self.bounds, var: (low, high)}
        return Algebra(intervals, bounds, (*self.facts, high - low), self.value, self.elements, {}, self._texts)

    def with_fact(self, fact: Poly) -> Algebra:
        """Return the algebra where `fact >= 0` is known."""
        intervals = dict(self.intervals)
        match [(m, c) for m, c in fact.terms.items() if m]:
            case [((Var(name),), 1)]:
                lo, hi = intervals.get(name, _EVERYTHING)
                intervals[name] = (max(lo, -fact.offset), hi)
            case [((Var(name),), -1)]:
                lo, hi = intervals.get(name, _EVERYTHING)
                intervals[name] = (lo, min(hi, fact.offset))
            case _:
                pass
        return Algebra(intervals, self.bounds, (*self.facts, fact), self.value, self.elements, {}, self._texts)

    # ------------------------------------------------------------ canonical form

    def simplify(self, e: Index) -> Index:
        """Return the canonical form of `e`; `e` itself when it has that form already."""
        if isinstance(e, Int | Var):
            return e
        simple = self.index(self.poly(e))
        return e if simple == e else simple

    def poly(self, e: Index) -> Poly:
        """Return `e` as a polynomial of irreducible atoms."""
        known = self._polys.get(e)
        if known is None:
            known = self._polys[e] = self._poly(e)
        return known

    def _poly(self, e: Index) -> Poly:
        match e:
            case Int(value):
                return number(value)
            case Var():
                return atom_poly(e)
            case Add(lhs, rhs):
                return self._recombined(self.poly(lhs) + self.poly(rhs))
            case Mul(lhs, rhs):
                return self.poly(lhs).times(self.poly(rhs), self._text)
            case FloorDiv(lhs, rhs):
                return self.divided(self.poly(lhs), self.poly(rhs))
            case Mod(lhs, rhs):
                return self.remainder(self.poly(lhs), self.poly(rhs))
            case Min(lhs, rhs) | Max(lhs, rhs):
                return self._extreme(type(e), [self.poly(lhs), self.poly(rhs)])
            case ValueIndex(value_expr):
                return atom_poly(ValueIndex(self.value(value_expr)))
            case _:
                assert_never(e)

    def index(self, poly: Poly) -> Index:
        """Return `poly` as an index expression, in canonical order."""
        if len(poly.terms) == 1:
            [(monomial, scale)] = poly.terms.items()
            return _term(monomial, scale)
        terms = sorted(((m, c) for m, c in poly.terms.items() if m), key=self._order)
        constant = poly.offset
        if terms and terms[0][1] < 0 and constant > 0:
            parts = [Int(constant), *(_term(m, c) for m, c in terms)]
        else:
            parts = [*(_term(m, c) for m, c in terms), *([Int(constant)] if constant else [])]
        return reduce(Add, parts) if parts else Int(0)

    def _order(self, term: tuple[Monomial, int]) -> tuple[bool, int, int, list[str]]:
        monomial, scale = term
        return (scale < 0, -len(monomial), -abs(scale), [self._text(atom) for atom in monomial])

    def _text(self, e: Index) -> str:
        if isinstance(e, Var):
            return e.name
        text = self._texts.get(e)
        if text is None:
            text = self._texts[e] = show_index(e)
        return text

    # ------------------------------------------------------------ arithmetic

    def _recombined(self, poly: Poly) -> Poly:
        """Return `poly` with q*(p // q) + p % q replaced by p, and ((q - 1)*p + q - 1) // q, a quotient rounded up, by p - p // q where one
        of these stands beside it."""
        for monomial, scale in poly.terms.items():
            match monomial:
                case (FloorDiv(value, Int(divisor)),) if (p := self._rounded_up(value, divisor)) is not None and any(
                    (node(p, Int(divisor)),) in poly.terms for node in (Mod, FloorDiv)
                ):
                    whole = self.poly(p) - self.divided(self.poly(p), number(divisor))
                    return self._recombined(poly.without(monomial).plus(whole, scale))
                case (Mod(value, Int(divisor)),) if (quotient := self._quotient_of(poly, value, divisor, scale * divisor)) is not None:
                    return self._recombined(poly.without(monomial, (quotient,)).plus(self.poly(quotient.lhs), scale))
                case _:
                    pass
        return poly

    def _quotient_of(self, poly: Poly, value: Index, q: int, scale: int) -> FloorDiv | None:
        """Return p // q, `scale` times in `poly`, whose remainder is that of `value`: p may be more by multiples of q."""
        for monomial, found in poly.terms.items():
            match monomial:
                case (FloorDiv(p, Int(divisor)) as quotient,) if found == scale and divisor == q:
                    if (self.poly(p) - self.poly(value)).multiple_of() % q == 0:
                        return quotient
                case _:
                    pass
        return None

    def _rounded_up(self, value: Index, q: int) -> Index | None:
        """Return p where `value` is (q - 1)*p + q - 1."""
        poly = self.poly(value)
        found = [(m, c) for m, c in poly.terms.items() if m]
        if q < 2 or len(found) != 1 or found[0][1] != q - 1 or poly.offset != q - 1:
            return None
        return _term(found[0][0], 1)

    def divided(self, value: Poly, divisor: Poly) -> Poly:
        """Return `value // divisor`."""
        exact, rest = value.divided(divisor)
        if not rest.terms or self._within(rest, divisor):
            return exact
        q = divisor.constant
        if q is None or q <= 0:
            return exact + atom_poly(FloorDiv(self.index(rest), self.index(divisor)))
        block = self._block(rest, q)
        if block is not None:
            return exact + number(block)
        digits = self._digits(rest, q)
        if digits is not None:  # (c*s + r) // (c*n) = s // n where 0 <= r < c
            c, above, _ = digits
            return exact + self.divided(above, number(q // c))
        rest, q = _reduced(rest, q)
        match list(rest.without(()).terms.items()):
            case [((FloorDiv(inner, Int(p)),), 1)] if p > 0:
                return exact + self.divided(self.poly(inner) + number(rest.offset * p), number(p * q))
            case _:
                return exact + atom_poly(FloorDiv(self.index(rest), Int(q)))

    def remainder(self, value: Poly, divisor: Poly) -> Poly:
        """Return `value % divisor`."""
        q = divisor.constant
        if q is not None and q > 0:
            value = self._without_inner_mods(value, q)
        _, rest = value.divided(divisor)
        if not rest.terms or self._within(rest, divisor):
            return rest
        if q is None or q <= 0:
            return atom_poly(Mod(self.index(rest), self.index(divisor)))
        block = self._block(rest, q)
        if block is not None:
            return rest - number(block * q)
        reduced, n = _reduced(rest, q)
        g = q // n
        if g > 1:  # (g*s + c) mod (g*n) = g*((s + floor(c / g)) mod n) + c mod g
            return number(rest.offset % g).plus(self.remainder(reduced, number(n)), g)
        digits = self._digits(rest, q)
        if digits is not None:  # (c*s + r) mod (c*n) = c*(s mod n) + r where 0 <= r < c
            c, above, below = digits
            return below.plus(self.remainder(above, number(q // c)), c)
        return atom_poly(Mod(self.index(polynomials.Poly({m: _residue(c, q) if m else c for m, c in rest.terms.items()})), Int(q)))

    def _digits(self, value: Poly, q: int) -> tuple[int, Poly, Poly] | None:
        """Return (c, s, r) with value = c*s + r and 0 <= r < c, for the largest c that divides q, or None where there is no such."""
        scales = {scale for monomial, scale in value.terms.items() if monomial and scale > 1 and q % scale == 0}
        for c in sorted(scales, reverse=True):
            above = polynomials.Poly({m: scale // c for m, scale in value.terms.items() if m and scale % c == 0})
            below = polynomials.Poly({m: scale for m, scale in value.terms.items() if not m or scale % c})
            if below.atoms() and self._within(below, number(c)):
                return c, above, below
        return None

    def _without_inner_mods(self, value: Poly, q: int) -> Poly:
        """Return a polynomial with the same remainder by `q`: c*(x % m) counts as c*x when q divides c*m."""
        for monomial, scale in value.terms.items():
            match monomial:
                case (Mod(inner, Int(m)),) if m > 0 and scale * m % q == 0:
                    return self._without_inner_mods(value.without(monomial).plus(self.poly(inner), scale), q)
                case _:
                    pass
        return value

    def _within(self, rest: Poly, divisor: Poly) -> bool:
        """Tell whether 0 <= rest < divisor is certain."""
        return self.nonnegative(rest) and self.nonnegative(divisor - rest - ONE)

    def _block(self, rest: Poly, q: int) -> int | None:
        """Return k if k*q <= rest < (k + 1)*q is certain."""
        lo, hi = self.interval(rest)
        if math.isinf(lo) or math.isinf(hi) or lo // q != hi // q:
            return None
        return int(lo // q)

    def _extreme(self, node: type[Min] | type[Max], operands: list[Poly]) -> Poly:
        """Return the least or greatest of `operands`, without those that never decide."""
        flat = [part for operand in operands for part in self._operands(node, operand)]
        kept: list[Poly] = []
        for candidate in flat:
            if any(self._decides(node, other, candidate) for other in kept):
                continue
            kept = [*(other for other in kept if not self._decides(node, candidate, other)), candidate]
        if len(kept) == 1:
            return kept[0]
        parts = sorted((self.index(poly) for poly in kept), key=lambda e: (not isinstance(e, Int), self._text(e)))
        return atom_poly(reduce(node, parts))

    def _operands(self, node: type[Min] | type[Max], poly: Poly) -> list[Poly]:
        match list(poly.terms.items()):
            case [((Min(lhs, rhs) | Max(lhs, rhs) as atom,), 1)] if isinstance(atom, node):
                return [*self._operands(node, self.poly(lhs)), *self._operands(node, self.poly(rhs))]
            case _:
                return [poly]

    def _decides(self, node: type[Min] | type[Max], winner: Poly, loser: Poly) -> bool:
        return self.nonnegative(loser - winner if node is Min else winner - loser)

    # ------------------------------------------------------------ bounds

    def range_of(self, e: Index) -> Range:
        """Return inclusive bounds of `e`."""
        lo, hi = self.interval(self.poly(e))
        return (None if math.isinf(lo) else int(lo)), (None if math.isinf(hi) else int(hi))

    def nonnegative(self, poly: Poly, depth: int = _DEPTH) -> bool:
        """Tell whether `poly >= 0` is certain."""
        if self.interval(poly)[0] >= 0:
            return True
        products = poly.products
        boundless = frozenset(m for m, scale in poly.terms.items() if math.isinf(self._product_interval(m)[scale < 0]))
        for fact in self.facts:
            decides = boundless <= fact.products and not products.isdisjoint(fact.products)
            if decides and self.interval(poly - fact)[0] >= 0:
                return True
        if (poly, depth) not in self._decided:
            self._decided[poly, depth] = depth > 0 and self._nonnegative_when_bounded(poly, depth - 1)
        return self._decided[poly, depth]

    def _nonnegative_when_bounded(self, poly: Poly, depth: int) -> bool:
        """Replace one atom of `poly` by a bound that makes the sum no larger, and ask again."""
        for monomial, scale in poly.terms.items():
            match monomial:
                case (Min(lhs, rhs),) | (Max(lhs, rhs),):
                    rest = poly.without(monomial)
                    # scale*min is at least scale*side for either side if scale < 0, and equals one of them otherwise.
                    some = any if isinstance(monomial[0], Min) == (scale < 0) else all
                    return some(self.nonnegative(rest.plus(self.poly(side), scale), depth) for side in (lhs, rhs))
                case _:
                    pass
        alone = {m[0].name: m for m in poly.terms if len(m) == 1 and isinstance(m[0], Var)}
        for (quotient, *_), bounded in self._without_quotients(poly):
            # A bound of a variable would part it from the quotient that it stands beside: j - 32*(j // 32).
            if not alone.keys().isdisjoint(free_vars(quotient)) and self.nonnegative(bounded, depth):
                return True
        for name in reversed(tuple(self.bounds)):
            if name in alone:
                scale, rest = poly.terms[alone[name]], poly.without(alone[name])
                return any(self.nonnegative(rest.plus(bound, scale), depth) for bound in self._bounds_of(name, below=scale > 0))
        for monomial, scale in poly.terms.items():
            match monomial:
                case (FloorDiv(value, Int(q)),) if q > 0 and scale > 0:
                    for other, least in self._differences(poly, value, q, scale):
                        return self.nonnegative(poly.without(monomial, other) + number(scale * least), depth)
                case _:
                    pass
        for _, bounded in self._without_quotients(poly):
            return self.nonnegative(bounded, depth)
        return False

    def _bounds_of(self, name: str, *, below: bool) -> Iterator[Poly]:
        """Yield what a loop variable is no less than, or (not `below`) no more than: what is known of it, in terms of the loops around
        that, and where its loop begins or ends."""
        variable, sign = (Var(name),), 1 if below else -1
        for fact in (f for f in self.facts if f.terms.get(variable) == sign):
            bound = fact.without(variable).scaled(-sign)
            inside = {name, *takewhile(lambda other: other != name, reversed(tuple(self.bounds)))}
            if all(inside.isdisjoint(free_vars(atom)) for atom in bound.atoms()):
                yield bound
        yield self.bounds[name][0 if below else 1]

    def _without_quotients(self, poly: Poly) -> Iterator[tuple[Monomial, Poly]]:
        """Yield the quotients of `poly`, each with a polynomial that has a bound in its place and is no larger."""
        for monomial, scale in poly.terms.items():
            match monomial:
                case (FloorDiv(value, Int(q)),) if q > 0 and scale % q == 0:
                    # value - q + 1 <= q*(value // q) <= value
                    bound = self.poly(value) if scale < 0 else self.poly(value) - number(q - 1)
                    yield monomial, poly.without(monomial).plus(bound, scale // q)
                case _:
                    pass

    def _differences(self, poly: Poly, value: Index, q: int, scale: int) -> Iterator[tuple[Monomial, int]]:
        """Yield the quotients p // q that `poly` has `-scale` times, and what value // q - p // q is at least, where that is known."""
        for monomial, found in poly.terms.items():
            match monomial:
                case (FloorDiv(p, Int(divisor)),) if found == -scale and divisor == q:
                    apart = self.interval(self.poly(value) - self.poly(p))[0]
                    if not math.isinf(apart):
                        yield monomial, int(apart) // q
                case _:
                    pass

    def interval(self, poly: Poly) -> _Interval:
        """Return bounds of `poly` from the intervals of its atoms alone."""
        lo: float = 0
        hi: float = 0
        for monomial, scale in poly.terms.items():
            first, last = self._product_interval(monomial)
            lo, hi = (lo + scale * first, hi + scale * last) if scale > 0 else (lo + scale * last, hi + scale * first)
        return lo, hi

    def most_copies(self, lo: Index, hi: Index, extent: int | None) -> int | None:
        """Return how many values there are at most from `lo` to below `hi`, `extent` or fewer. What is known here may decide a minimum, and
        take away the number in it: the copies of an unrolled loop have to be told before that."""
        if isinstance(hi, Min):
            for side in (hi.lhs, hi.rhs):
                extent = self.most_copies(lo, side, extent)
            return extent
        most = self.interval(self.poly(hi) - self.poly(lo))[1]
        return extent if extent is None else max(0, int(min(most, extent)))

    def _product_interval(self, monomial: Monomial) -> _Interval:
        match monomial:
            case ():
                return 1, 1
            case (Var(name),):
                return self.intervals.get(name, _EVERYTHING)
        known = self._intervals.get(monomial)
        if known is None:
            known = self._intervals[monomial] = reduce(_times, map(self._atom_interval, monomial))
        return known

    def _atom_interval(self, e: Index) -> _Interval:
        """Return bounds of `e` by its structure. Atoms are canonical inside, so nothing is gained by simplifying again, and a fact
        about an atom may be consulted while that very atom is being simplified."""
        match e:
            case Int(value):
                return value, value
            case Var(name):
                return self.intervals.get(name, _EVERYTHING)
            case Add(lhs, rhs):
                a, b = self._atom_interval(lhs), self._atom_interval(rhs)
                return a[0] + b[0], a[1] + b[1]
            case Mul(lhs, rhs):
                return _times(self._atom_interval(lhs), self._atom_interval(rhs))
            case FloorDiv(lhs, rhs):
                return _divided(self._atom_interval(lhs), self._atom_interval(rhs))
            case Mod(lhs, rhs):
                lo, hi = self._atom_interval(lhs)
                below = self._atom_interval(rhs)[1] - 1
                return (0, min(hi, below) if lo >= 0 else below)
            case Min(lhs, rhs):
                a, b = self._atom_interval(lhs), self._atom_interval(rhs)
                return min(a[0], b[0]), min(a[1], b[1])
            case Max(lhs, rhs):
                a, b = self._atom_interval(lhs), self._atom_interval(rhs)
                return max(a[0], b[0]), max(a[1], b[1])
            case ValueIndex(value):
                return self.value_interval(value)
            case _:
                assert_never(e)

    def value_interval(self, e: Expr) -> _Interval:
        """Return bounds of an integer by its structure."""
        match e:
            case Const(value, dtype) if dtype.is_integer:
                return int(value), int(value)
            case IndexValue(index):
                return self.interval(self.poly(index))
            case Load(buffer):
                return self.elements.get(buffer, _EVERYTHING)
            case Cast(dtype, value) if dtype.is_integer:
                low, high = limits(dtype)
                first, last = self.value_interval(value)
                return (first, last) if low <= first and last <= high else (low, high)
            case Binary("+" | "-" as op, Cast(dtype) as lhs, rhs) if dtype.is_integer:
                (lhs_low, lhs_high), (rhs_low, rhs_high) = self.value_interval(lhs), self.value_interval(rhs)
                ends = (lhs_low + rhs_low, lhs_high + rhs_high) if op == "+" else (lhs_low - rhs_high, lhs_high - rhs_low)
                low, high = limits(dtype)
                return ends if low <= ends[0] and ends[1] <= high else (low, high)
            case Binary("bitand", _, Const(mask)) | Binary("bitand", Const(mask), _) if mask >= 0:
                return 0, mask
            case Binary("%", _, Const(divisor, dtype)) if dtype.is_integer and divisor > 0:
                return 0, divisor - 1
            case Binary("//", lhs, Const(divisor, dtype)) if dtype.is_integer and divisor > 0:
                return _divided(self.value_interval(lhs), (divisor, divisor))
            case Binary("shr", lhs, Const(count, dtype)) if 0 <= count < dtype.bits:
                return _divided(self.value_interval(lhs), (1 << int(count), 1 << int(count)))
            case Binary("min" | "max" as op, lhs, rhs):
                a, b = self.value_interval(lhs), self.value_interval(rhs)
                return (min(a[0], b[0]), min(a[1], b[1])) if op == "min" else (max(a[0], b[0]), max(a[1], b[1]))
            case Select(_, then, orelse):
                a, b = self.value_interval(then), self.value_interval(orelse)
                return min(a[0], b[0]), max(a[1], b[1])
            case _:
                return _EVERYTHING


# ---------------------------------------------------------------- terms


def _reduced(poly: Poly, q: int) -> tuple[Poly, int]:
    """Return (p, n) with floor(poly / q) = floor(p / n), without what all factors of `poly` have in common with `q`."""
    g = math.gcd(q, *(c for m, c in poly.terms.items() if m))
    return (poly, q) if g == 1 else (polynomials.Poly({m: c // g for m, c in poly.terms.items()}), q // g)


def _residue(scale: int, q: int) -> int:
    """Return what `scale` is modulo `q`, as close to zero as possible."""
    residue = scale % q
    return residue - q if 2 * residue > q else residue


def _term(monomial: Monomial, scale: int) -> Index:
    if not monomial:
        return Int(scale)
    factors: Iterable[Index] = monomial if scale == 1 else (Int(scale), *monomial)
    if scale not in (1, -1) or len(monomial) == 1:
        return reduce(Mul, factors)
    return Mul(Int(-1), reduce(Mul, monomial)) if scale == -1 else reduce(Mul, monomial)


# ---------------------------------------------------------------- intervals


def _low(bound: int | None) -> float:
    return -math.inf if bound is None else bound


def _high(bound: int | None) -> float:
    return math.inf if bound is None else bound


def _times(a: _Interval, b: _Interval) -> _Interval:
    corners = [0 if x == 0 or y == 0 else x * y for x in a for y in b]
    return min(corners), max(corners)


def _divided(value: _Interval, divisor: _Interval) -> _Interval:
    """Return bounds of `value // divisor`, where the divisor is at least one."""
    least, most = max(divisor[0], 1), max(divisor[1], 1)
    lo = _floor(value[0], least if value[0] < 0 else most)
    hi = _floor(value[1], most if value[1] < 0 else least)
    return lo, hi


def _floor(value: float, divisor: float) -> float:
    if math.isinf(value):
        return value
    if math.isinf(divisor):
        return 0 if value >= 0 else -1
    return value // divisor
