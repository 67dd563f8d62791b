"""Whether a term that loops computed is the one that an equation means, but for the regrouping that the equation allows.

    sum(a, b, c)    a + (b + c), (c + a*) + b …         each of the terms once, in any order and grouping
    sum(x*y, c)     fma(x, y, c), dot(…, c)             a product that is added may be rounded with the sum
    prod(a, b, c)   a * (c * b) …
    min, max, or, and                                   each of the terms at least once
    other reducers                                      of the same elements the same number but for rounding
    x*y + c         fma(x, y, c)                        in `fast` programs alone
    x/y, x/y/z …    x * (1/y), x / (y*z) …              there, too: the same number but for rounding
    integers        the same sums of products, which wrap alike

Constants in sums: 0.0, the identity, may be added any number of times, but not left out where the equation adds it: the sum of nothing but
-0.0 is -0.0 then. Nothing else is allowed: `sum` and `prod` stand where a reducer does, and in `strict` programs nowhere.

Which part of a sum is which term is found by their keys (`codegen.loops.terms`); that they are the same is then checked node by node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np

from codegen.dtypes import FORMATS
from codegen.loops.terms import COMMUTATIVE, IDEMPOTENT, Term, chain, concrete_value, exact, key, leaves_of, terms_below

Pair = tuple[Term, Term]

_RING = frozenset(("+", "*", "neg"))
_SUMS = frozenset(("+", "sum", "fma", "dot"))
_PRODUCTS = frozenset(("*", "prod"))


@dataclass(slots=True)
class Matcher:
    """Compares terms of one program. `fast`: products may be rounded with any sum they stand in. `decides`: concrete values decide
    conditions, so beside one of `and` that is false, or of `or` that is true, the others say nothing. `choices`: the keys of terms among
    which reducers choose in any order; of those with one concrete value it is any. `regrouped`: leaves of terms that a reducer computes
    with in any order, where that is no sum or product: what is made of these alone, and is one number but for rounding, is the same."""

    fast: bool = False
    decides: bool = False
    choices: Sequence[Container[int]] = ()
    regrouped: Sequence[AbstractSet[int]] = ()
    _same: set[tuple[int, int]] = field(default_factory=set)

    def difference(self, found: Term, expected: Term) -> Pair | None:
        """Return the parts of `found` and `expected` at which they differ, or None when the one is the other."""
        apart = self._difference(found, expected)
        return None if apart is not None and self.fast and self._is_one_number(found, expected) else apart

    def _difference(self, found: Term, expected: Term) -> Pair | None:
        seen: set[tuple[int, int]] = set()
        pending = [(found, expected)]
        while pending:
            f, w = pending.pop()
            at = f.serial, w.serial
            if f is w or at in seen or at in self._same:
                continue
            seen.add(at)
            if self.regrouped and self._is_regrouped(f, w):
                continue
            inner = self._parts(f, w)
            if inner is None and not self._are_equal_choices(f, w):
                return f, w
            pending += inner or []
        self._same |= seen
        return None

    def _is_one_number(self, f: Term, w: Term) -> bool:
        """Tell whether two terms are made of the same and are one number but for rounding: of quotients, which may be regrouped."""
        below = terms_below(w)
        if f.dtype != w.dtype or not f.dtype.is_float or not any(t.op == "/" for t in below):
            return False
        if not leaves_of(f) <= leaves_of(w) or (not self.decides and any(t.op == "select" for t in below)):
            return False
        within = 2.0 ** (6 - FORMATS[f.dtype.name].mantissa_bits)
        try:
            return bool(np.isclose(exact(f), exact(w), rtol=within, atol=within, equal_nan=True))
        except LookupError:
            return False

    def _are_equal_choices(self, f: Term, w: Term) -> bool:
        """Tell whether a reducer may come to either of two terms, which are the same number in all bits."""
        if not self.decides or f.dtype != w.dtype or not any(key(f) in among and key(w) in among for among in self.choices):
            return False
        return np.asarray(concrete_value(f)).tobytes() == np.asarray(concrete_value(w)).tobytes()

    def _is_regrouped(self, f: Term, w: Term) -> bool:
        """Tell whether two terms are one number but for rounding, and both are made of what one reducer computes with."""
        if not self.decides or f.dtype != w.dtype:
            return False
        leaves = leaves_of(f) | leaves_of(w)
        if not leaves or not any(leaves <= among for among in self.regrouped):
            return False
        found, wanted = concrete_value(f), concrete_value(w)
        if not f.dtype.is_float:
            return bool(found == wanted)
        within = max(1e-5, 4 * 2.0 ** -FORMATS[f.dtype.name].mantissa_bits)
        return bool(np.isclose(float(found), float(wanted), rtol=within, atol=within, equal_nan=True))

    def _parts(self, f: Term, w: Term) -> list[Pair] | None:
        """Return the pairs that have to be the same for `f` to be `w`, or None when it is not."""
        if w.op == "hole":
            return []
        if f.dtype != w.dtype:
            return None
        if w.op in ("sum", "prod"):
            return _summed(f, w) if w.op == "sum" else _multiplied(f, w)
        if w.op == f.op == "const":
            return [] if f.payload == w.payload else None
        if f.op == "const":
            return None if f.origin is None else [(f.origin, w)]
        if w.dtype.is_integer and (f.op in _RING or w.op in _RING):
            return _ring(f, w)
        if self.fast and f.op == "fma" and w.op == "+":
            return _paired(f, w)
        if w.op == "/" != f.op and _counts_one(w.args[1]):
            return [(f, w.args[0])]
        if f.op != w.op or f.payload != w.payload or len(f.args) != len(w.args):
            return None
        if w.op in IDEMPOTENT:
            return _each_once(f, w) or (_decisive(f, w) if self.decides and w.op in ("and", "or") else None)
        return _paired(f, w) if w.op in COMMUTATIVE or w.op == "fma" else list(zip(f.args, w.args, strict=True))


def _counts_one(t: Term) -> bool:
    """Tell whether a reducer has counted to 1, by which loops do not divide."""
    parts = list(_folded(t)) if t.op == "sum" else []
    return bool(parts) and all(part.op == "const" for part in parts) and sum(float(part.concrete) for part in parts) == 1


def _paired(f: Term, w: Term) -> list[Pair]:
    """Return the operands of two sums or products, each with that of the same key."""
    (a, b), (c, d) = f.args, w.args
    crossed = a is d or b is c or (a is not c and b is not d and key(a) == key(d))
    return [(a, d), (b, c)] if crossed and not (a is c or b is d) else [(a, c), (b, d)]


def _each_once(f: Term, w: Term) -> list[Pair] | None:
    """Return the operands of two minima, maxima, `and` or `or`, each with that of the same key. What a minimum or maximum has left alone
    on either side may be the same but for how constants in it were rounded."""
    found, expected = ({key(t): t for t in chain(side)} for side in (f, w))
    pairs = [(found[k], expected[k]) for k in expected if k in found]
    others = [[t for k, t in side.items() if k not in other] for side, other in ((found, expected), (expected, found))]
    alone = [len(side) for side in others]
    return [*pairs, *zip(*others, strict=True)] if alone == [0, 0] or (alone == [1, 1] and w.op in ("min", "max")) else None


def _decisive(f: Term, w: Term) -> list[Pair] | None:
    """Return a condition that stands in both `and` or both `or` and decides them by its concrete value; None where there is none."""
    found = {key(t): t for t in chain(f)}
    return next(([(found[key(t)], t)] for t in chain(w) if key(t) in found and bool(concrete_value(t)) == (w.op == "or")), None)


def _ring(f: Term, w: Term) -> list[Pair] | None:
    """Integers are the same when they are the same sums of products of the same things."""
    if key(f) != key(w):
        return None
    found, expected = ({key(t): t for t in _atoms(side)} for side in (f, w))
    return [(found[k], expected[k]) for k in expected if k in found]


def _atoms(t: Term) -> Iterator[Term]:
    stack, seen = [t], set()
    while stack:
        at = stack.pop()
        if at.serial in seen:
            continue
        seen.add(at.serial)
        if at.op in _RING:
            stack += at.args
        else:
            yield at


def _is(t: Term, value: float, sign: int = 1) -> bool:
    return t.op == "const" and bool(t.concrete == value) and math.copysign(1.0, t.concrete) == sign


# ---------------------------------------------------------------- sums and products of reducers


@dataclass(slots=True)
class _Left:
    """What of a sum or product has not been found yet, by key; `ops` are those that combine its parts."""

    ops: frozenset[str]
    by_key: dict[int, list[Term]] = field(default_factory=dict)
    count: int = 0

    def add(self, t: Term) -> None:
        self.by_key.setdefault(key(t), []).append(t)
        self.count += 1

    def take(self, t: Term) -> Term | None:
        """Return what `t` can be, no longer left: itself, or else what has its key; None where there is neither."""
        return self._taken(t, lambda part: part is t) or self._taken(t, lambda part: self._may_be(t, part))

    def _taken(self, t: Term, fits: Callable[[Term], bool]) -> Term | None:
        candidates = self.by_key.get(key(t), [])
        for k, candidate in enumerate(candidates):
            if fits(candidate):
                self.count -= 1
                return candidates.pop(k)
        return None

    def _may_be(self, t: Term, part: Term) -> bool:
        """Tell whether a term can be a part, whose key it has, rather than several parts or one and 0.0."""
        if self.parts(t):
            return part.op != "const" or bool(self.parts(part))
        return t.op not in _SUMS or part.op == "sum" or (part.op in _SUMS and _adds_zero(t) == _adds_zero(part))

    def parts(self, t: Term) -> Sequence[Term]:
        """Return what a constant was combined from, nothing where it is no constant or was given as it is."""
        return t.origin.args if t.op == "const" and t.origin is not None and t.origin.op in self.ops else ()


def _adds_zero(t: Term) -> bool:
    return any(_is(a, 0.0) for a in t.args)


def _folded(w: Term) -> Iterator[Term]:
    """Yield what a reducer has combined, and what it began with."""
    op = w.op
    while w.op == op:
        w, right = w.args
        yield right
    yield w


def _is_never_minus_zero(w: Term) -> bool:
    return w.op == "sum" and any(_is(t, 0.0) for t in _folded(w))


def _summed(f: Term, w: Term) -> list[Pair] | None:
    parts = list(_folded(w))
    if f.op == "const" and all(t.op == "const" for t in parts):
        return [] if math.isclose(f.concrete, sum(float(t.concrete) for t in parts), rel_tol=1e-6) else None
    found = _added(f, parts)
    return _added(f, parts, zero_first=True) if found is None else found


def _added(f: Term, parts: Sequence[Term], zero_first: bool = False) -> list[Pair] | None:
    """Return the parts of a sum, each with what it is of `f`. `zero_first`: of `0.0 + x`, where that or `x` may be a part, it is `x`."""
    left, zero_wanted, zero_found = _Left(_SUMS), False, False
    for t in parts:
        if _is(t, 0.0):
            zero_wanted = True
        elif not _is(t, 0.0, -1):
            left.add(t)
    pairs: list[Pair] = []
    stack = [f]
    while stack:
        t = stack.pop()
        if _is(t, 0.0):
            zero_found = True
            stack += left.parts(t)
            continue
        if zero_first and zero_wanted and not zero_found and t.op == "+" and _adds_zero(t):
            zero_found = True
            stack.append(t.args[_is(t.args[0], 0.0)])
            continue
        taken = left.take(t)
        if taken is not None:
            zero_found |= _is_never_minus_zero(taken)
            pairs.append((t, taken))
        elif inner := left.parts(t) or (t.args if t.op in _SUMS else ()):
            stack += inner
        elif not _is(t, 0.0, -1):
            return None
    return None if left.count or (zero_wanted and not zero_found) else pairs


def _multiplied(f: Term, w: Term) -> list[Pair] | None:
    left, odd = _Left(_PRODUCTS), False
    for t in _folded(w):
        odd ^= t.op == "neg"
        t = t.args[0] if t.op == "neg" else t
        if not _is(t, 1.0):
            left.add(t)
    pairs: list[Pair] = []
    stack = [f]
    while stack:
        t = stack.pop()
        if t.op == "neg":
            odd ^= True
            t = t.args[0]
        taken = left.take(t)
        if taken is not None:
            pairs.append((t, taken))
        elif inner := left.parts(t) or (t.args if t.op in _PRODUCTS else ()):
            stack += inner
        elif not _is(t, 1.0):
            return None
    return None if left.count or odd else pairs
