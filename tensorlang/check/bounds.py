"""What surely holds of index expressions: quick, incomplete answers, where a proof would be too much."""

from __future__ import annotations

from collections.abc import Mapping

from polyhedral import affine
from polyhedral.expr import TRUE, Compare, Cond, Expr, Floor, Int, Max, Min, Mod, Name

Ranges = Mapping[str, tuple[Expr, Expr]]
"""Half-open ranges of indices. Names that are missing are sizes: integers >= 0."""


def proven_nonnegative(e: Expr, ranges: Ranges) -> bool:
    """Return whether `e >= 0` follows from the ranges of indices and from sizes being >= 0. A quick, incomplete test: it only decides
    whether a condition need be written down; what is written down is proven elsewhere.

    Atoms are replaced by their bounds one after the other: quotients first, or indices, whose bounds may hold the same quotients:
    `(n + 3)//4 - 1 - i` for `i` in `0..(n + 3)//4`."""
    return _proven(e, ranges, indices_first=False) or _proven(e, ranges, indices_first=True)


def _proven(e: Expr, ranges: Ranges, indices_first: bool) -> bool:
    for _ in range(8):
        factors, const = affine.terms(e)
        if all(f > 0 and isinstance(a, Name) and a.name not in ranges for a, f in factors.items()):
            return const >= 0
        bounded = [(a, f) for a, f in reversed(factors.items()) if not isinstance(a, Name) or a.name in ranges]
        if not bounded:
            return False
        atom, factor = next((b for b in bounded if indices_first and isinstance(b[0], Name)), bounded[0])
        bound = _bound(atom, factor > 0, ranges)
        if bound is None:
            return False
        e = affine.add(e, affine.scale(-factor, atom), affine.scale(factor, bound))
    return False


def _bound(atom: Expr, lower: bool, ranges: Ranges) -> Expr | None:
    """Return a lower (or inclusive upper) bound of an atom."""
    match atom:
        case Name(name):
            lo, hi = ranges[name]
            return lo if lower else affine.sub(hi, affine.ONE)
        case Mod(_, divisor):
            return affine.ZERO if lower else Int(divisor - 1)
        case Min(lhs, rhs) if not lower:
            return rhs if isinstance(lhs, Name) and lhs.name in ranges else lhs
        case Max(lhs, rhs) if lower:
            return rhs if isinstance(lhs, Name) and lhs.name in ranges else lhs
        case Floor(value, divisor) if lower and proven_nonnegative(value, ranges):
            return affine.ZERO
        case _:
            return None


def wraps(e: Expr, size: Expr, ranges: Ranges, most: int) -> int | None:
    """Return how many times, at most `most`, `size` has to be added to `e` for the sum to be surely >= 0; None where that is not known.
    That an index is there says that its range has an element, as often as there are periods: `i - 2 + 2*N >= 0` for `i` in `0..N`."""
    within = (ranges[name] for name in sorted(affine.name_set(e)) if name in ranges)
    slack = [affine.sub(affine.sub(hi, affine.ONE), lo) for lo, hi in within]
    for count in range(most + 1):
        sum_ = affine.add(e, affine.scale(count, size))
        if any(proven_nonnegative(affine.sub(sum_, affine.scale(count, least)), ranges) for least in (affine.ZERO, *slack)):
            return count
    return None


def in_box(e: Expr, extent: Expr, ranges: Ranges) -> Cond:
    """Return `0 <= e < extent`, without the halves that surely hold."""
    below = TRUE if proven_nonnegative(e, ranges) else affine.compare(">=", e, affine.ZERO)
    above = TRUE if proven_nonnegative(affine.sub(affine.sub(extent, e), affine.ONE), ranges) else affine.compare("<", e, extent)
    return affine.conj(below, above)


_NO_INDICES: Ranges = {}
_NO_SIZES: Mapping[str, int] = {}


def larger(a: Expr, b: Expr, ranges: Ranges = _NO_INDICES, least: Mapping[str, int] = _NO_SIZES) -> Expr:
    """Return max(a, b) without `Max` where sizes being >= 0, or as large as `least` says, and the ranges of indices decide it."""
    beyond = {n: affine.add(Name(n), Int(k)) for n, k in least.items()}  # what is left of a size is >= 0, too
    ranges = {n: (affine.substitute(lo, beyond), affine.substitute(hi, beyond)) for n, (lo, hi) in ranges.items()}
    difference = affine.substitute(affine.sub(a, b), beyond)
    if proven_nonnegative(difference, ranges):
        return a
    return b if proven_nonnegative(affine.scale(-1, difference), ranges) else affine.maximum(a, b)


def smaller(a: Expr, b: Expr, ranges: Ranges = _NO_INDICES) -> Expr:
    """Return min(a, b) without `Min` where sizes being >= 0 and the ranges of indices decide it."""
    if proven_nonnegative(affine.sub(b, a), ranges):
        return a
    return b if proven_nonnegative(affine.sub(a, b), ranges) else affine.minimum(a, b)


def least_sizes(context: Cond) -> dict[str, int]:
    """Return how large sizes are at least, by the conditions that ask that of one of them alone."""
    found: dict[str, int] = {}
    for c in affine.conjuncts(context):
        if not isinstance(c, Compare):
            continue
        form = affine.affine_form(affine.sub(c.lhs, c.rhs))
        if form is None or len(form[0]) != 1:
            continue
        ((name, factor),), constant = form[0].items(), form[1]
        if (factor, c.op) in ((1, ">="), (1, ">"), (-1, "<="), (-1, "<")):
            found[name] = max(found.get(name, 0), -factor * constant + (c.op in ("<", ">")))
    return found
