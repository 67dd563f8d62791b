"""Which keys a query sees, as far as the equation of its scores says so: all others have the weight 0.

    s[h, i, j] = f(…) + (if j <= i then 0 else -inf)                                  sees    j <= i
    s[h, i, j] = if j <= i and i - j < 128 then f(…) else -3.4e38                     sees    i - 127 <= j <= i

A score that is -inf, or so low a number that no sum with a score brings it back, is that of a key that its query does not see: the weight,
exp(score - largest), is 0 as soon as the query sees one key whose score is a number. With -inf that is so whatever the scores are, or the
row has no keys at all; with a low number every query has to see a key (which is asked for here), and no score may be near that number
itself. What a query does not see cannot make its row NaN, either: a key that is inf or NaN counts only where it is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhedral import affine
from polyhedral.expr import FALSE, TRUE, Compare, Cond
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.facts import facts, negative_facts
from tensorlang.tensor.nodes import Binary, Call, Cast, Const, Expr, Holds, IndexValue, Let, Reduce, Select, Unary

LOWEST = -1e30
"""Scores from here down are those of keys that are not seen: no sum with a score brings them back, whatever its sign."""


@dataclass(frozen=True, slots=True)
class Line:
    """A bound on the key that a row sees: `slope * row + offset`."""

    slope: int
    offset: int

    def __call__(self, row: int) -> int:
        return self.slope * row + self.offset

    def of(self, row: Affine) -> Affine:
        return affine.add(affine.scale(self.slope, row), self.offset)


@dataclass(frozen=True, slots=True)
class AttendedKeys:
    """A row sees keys from the largest of `low` to the smallest of `high`, both included, of those there are; perhaps not all of them."""

    low: tuple[Line, ...] = ()
    high: tuple[Line, ...] = ()

    def first(self, row: int) -> int:
        return max((line(row) for line in self.low), default=0)

    def last(self, row: int, keys: int) -> int:
        return min(keys - 1, *(line(row) for line in self.high), keys - 1)


def attended_keys(scores: Expr, row: str, key: str, rows: int, keys: int) -> AttendedKeys:
    """Return which of `keys` keys each of `rows` rows sees, where `scores` is the score of one at `row` and `key`."""
    hidden, low = _hidden(scores)
    if hidden == FALSE or (low and not _every_row_sees_one(scores, row, key, rows, keys)):
        return AttendedKeys()
    return _lines(affine.negate(hidden), row, key)[0]


def hidden(scores: Expr) -> Cond:
    """Return where `scores` is surely that of a key that is not seen."""
    return _hidden(scores)[0]


def _every_row_sees_one(scores: Expr, row: str, key: str, rows: int, keys: int) -> bool:
    """Tell whether each row surely has a score that is not low. How many keys a row sees is concave in the row, so the ends tell."""
    found, complete = _lines(_shown(scores), row, key)
    return complete and all(max(0, found.first(i)) <= found.last(i, keys) for i in (0, rows - 1))


def _hidden(e: Expr) -> tuple[Cond, bool]:
    """Return where `e` is surely -inf or very low, and whether it is ever the latter."""
    match e:
        case Const(value=float(value)) if value <= LOWEST:
            return TRUE, value > float("-inf")
        case Binary("+", lhs, rhs):
            (first, low), (second, also) = _hidden(lhs), _hidden(rhs)
            return affine.disj(first, second), low or also
        case Binary("-", lhs, _):
            return _hidden(lhs)
        case Select(cond, then, orelse):
            (first, low), (second, also) = _hidden(then), _hidden(orelse)
            chosen, other = affine.negate(negative_facts(cond)), affine.negate(facts(cond))
            return affine.disj(affine.conj(chosen, first), affine.conj(other, second)), low or also
        case Cast(dtype, value) if dtype.is_float:
            return _hidden(value)
        case Let(_, _, body):
            return _hidden(body)
        case _:
            return FALSE, False


def _shown(e: Expr) -> Cond:
    """Return where `e` is surely not low: made of products of queries and keys, and of numbers."""
    match e:
        case Reduce() | IndexValue():
            return TRUE
        case Const(value=value):
            return TRUE if float(value) > LOWEST else FALSE
        case Binary("+" | "-" | "*" | "/", lhs, rhs):
            return affine.conj(_shown(lhs), _shown(rhs))
        case Select(Holds(cond), then, orelse):
            return affine.disj(affine.conj(cond, _shown(then)), affine.conj(affine.negate(cond), _shown(orelse)))
        case Select(_, then, orelse):
            return affine.conj(_shown(then), _shown(orelse))
        case Cast(_, value) | Unary("neg", value):
            return _shown(value)
        case Call(_, args):
            return affine.conj(*map(_shown, args))
        case _:
            return FALSE


def _lines(visible: Cond, row: str, key: str) -> tuple[AttendedKeys, bool]:
    """Return the lines between which `visible` holds, and whether it holds everywhere between them."""
    low: list[Line] = []
    high: list[Line] = []
    complete = True
    for cond in affine.conjuncts(visible):
        found = _line(cond, row, key) if isinstance(cond, Compare) else None
        complete = complete and found is not None
        if found is not None:
            line, upper = found
            (high if upper else low).append(line)
    return AttendedKeys(tuple(low), tuple(high)), complete


def _line(cond: Compare, row: str, key: str) -> tuple[Line, bool] | None:
    """Return the line that bounds the key, and whether from above, where the condition says just that."""
    found = list(affine.inequalities(cond))
    if len(found) != 1:
        return None
    terms, offset = affine.terms(found[0])
    at, slope = terms.pop(AffineName(key), 0), terms.pop(AffineName(row), 0)
    # at*key + slope*row + offset >= 0
    if terms or at not in (1, -1):
        return None
    return (Line(slope, offset), True) if at == -1 else (Line(-slope, -offset), False)
