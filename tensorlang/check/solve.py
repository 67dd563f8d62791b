"""From the left of an equation to box coordinates (see tensor/nodes.py).

s[t + 1, i]   a0 = t + 1, a1 = i      t := a0 - 1, i := a1
y[2*i]        a0 = 2*i                i := a0 // 2     where a0 % 2 == 0
l[i, i]       a0 = i, a1 = i          i := a0          where a1 == a0
y[4*c + r]    a0 = 4*c + r, r in 0..4 r := a0 % 4, c := a0 // 4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check.problems import error
from tensorlang.diagnostics import Span


@dataclass(frozen=True, slots=True)
class Slot:
    """One coordinate: the axis and the expression on the left that it equals."""

    axis: str
    at: px.Expr
    span: Span
    plain: bool = False
    """An index and nothing else, as it is written."""


@dataclass(slots=True)
class Solution:
    """What each index is over the axes, and where the equation applies."""

    indices: dict[str, px.Expr] = field(default_factory=dict)
    guard: px.Cond = px.TRUE

    def require(self, cond: px.Cond) -> None:
        self.guard = affine.conj(self.guard, cond)


def solve(slots: Sequence[Slot], unknown: frozenset[str], extents: Mapping[str, px.Expr]) -> Solution:
    """Return the indices as functions of the axes. `extents`: of the indices that start at 0, where known.

    Raises T0140 where the left side does not determine its indices by whole factors."""
    out = Solution()
    pending = sorted(slots, key=lambda s: not isinstance(s.at, px.Name))
    while pending:
        slot = next((s for s in pending if len(_open(s.at, unknown, out)) <= 1), None)
        if slot is None:
            slot = pending[0]
            _digits(slot, unknown, extents, out)
        else:
            _single(slot, unknown, out)
        pending = [s for s in pending if s is not slot]
    return out


def _open(at: px.Expr, unknown: frozenset[str], found: Solution) -> frozenset[str]:
    return (affine.name_set(at) & unknown) - found.indices.keys()


def _single(slot: Slot, unknown: frozenset[str], out: Solution) -> None:
    axis, at = px.Name(slot.axis), affine.substitute(slot.at, out.indices)
    names = _open(slot.at, unknown, out)
    if not names:
        out.require(affine.compare("==", axis, at))
        return
    (name,) = names
    factor, rest = _factor(at, name, slot)
    difference = affine.sub(axis, rest)
    if factor < 0:
        factor, difference = -factor, affine.scale(-1, difference)
    if factor > 1:
        out.require(affine.compare("==", affine.mod(difference, factor), affine.ZERO))
    out.indices[name] = affine.floor(difference, factor)


def _factor(at: px.Expr, name: str, slot: Slot) -> tuple[int, px.Expr]:
    factor = affine.terms(at)[0].get(px.Name(name), 0)
    rest = affine.sub(at, affine.scale(factor, px.Name(name)))
    if factor == 0 or name in affine.names(rest):
        raise not_solvable(slot, f"`{name.lstrip('?')}` stands under `//`, `%`, `min` or `max`")
    return factor, rest


def _digits(slot: Slot, unknown: frozenset[str], extents: Mapping[str, px.Expr], out: Solution) -> None:
    """Split `c1*i1 + c2*i2 + …` like a number into digits: each factor a multiple of the next, which its index does not exceed."""
    at = affine.substitute(slot.at, out.indices)
    names = _open(slot.at, unknown, out)
    terms = sorted(((f, n) for n in names for f in (_factor(at, n, slot)[0],)), reverse=True)
    rest = at
    for factor, name in terms:
        rest = affine.sub(rest, affine.scale(factor, px.Name(name)))
    left = affine.sub(px.Name(slot.axis), rest)
    for (factor, name), (_, smaller) in zip(terms, [*terms[1:], (0, "")], strict=True):
        if factor <= 0:
            raise not_solvable(slot, "several indices with negative factors")
        if smaller:
            _require_digit(slot, factor, terms, extents, smaller)
            out.indices[name] = affine.floor(left, factor)
            left = affine.mod(left, factor)
        else:
            if factor > 1:
                out.require(affine.compare("==", affine.mod(left, factor), affine.ZERO))
            out.indices[name] = affine.floor(left, factor)
    for _, name in terms[1:]:
        if name in extents:
            out.require(affine.compare("<", out.indices[name], extents[name]))


def _require_digit(slot: Slot, factor: int, terms: Sequence[tuple[int, str]], extents: Mapping[str, px.Expr], smaller: str) -> None:
    own = next(f for f, n in terms if n == smaller)
    extent = affine.constant(extents[smaller]) if smaller in extents else None
    if own <= 0 or factor % own or extent is None or extent * own > factor:
        name = smaller.lstrip("?")
        if own == factor:
            raise not_solvable(slot, f"several values of `{name}` and the other index give the same element")
        raise not_solvable(
            slot, f"several indices in one slot, and `{name}` is not known to stay below {factor // own if own > 0 else factor}"
        )


def not_solvable(slot: Slot, why: str) -> Exception:
    return error(
        "T0140",
        "the left side does not tell its indices",
        slot.span,
        why,
        help="use one index a slot with a whole factor and a shift (`i`, `i + 1`, `2*i`), or a composite index `(i, j)`",
    )
