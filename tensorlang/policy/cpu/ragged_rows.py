"""Rows whose ends lie at other points of an axis for each row, as those of a triangle do: how much of a block of points they fill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polyhedral import affine
from polyhedral.expr import Compare, Cond
from tensorlang.tensor.nodes import Const, Definition, Read
from tensorlang.tensor.walk import reduces


@dataclass(frozen=True, slots=True)
class RaggedRow:
    """A row of an axis: how many points it has on the average, and how many of its ends lie anywhere in a block of them."""

    length: float
    ends: int

    def covered(self, count: int) -> float:
        """Return how many points blocks of so many take, for each that there is."""
        return (self.length + self.ends * (count - 1) / 2) / self.length


def ragged_rows(definition: Definition, sizes: Mapping[str, float]) -> dict[str, RaggedRow]:
    """Return the axes along which all sums, or of a definition without any all that is computed in more than one row, are for rows whose
    ends depend on other axes, as those of a triangle do."""
    sums = [p.guard for p in definition.pieces if any(True for _ in reduces(p.value))]
    guards = sums or [p.guard for p in definition.pieces if not isinstance(p.value, Const | Read) and not _is_one_row(p.guard)]
    found = {a: min((_loose_ends(g, a, definition.axes) for g in guards), default=0) for a in definition.axes}
    return {a: RaggedRow(max(1.0, sizes[a] / (1 + ends)), ends) for a, ends in found.items() if ends}


def _is_one_row(guard: Cond) -> bool:
    return any(isinstance(c, Compare) and c.op == "==" for c in affine.conjuncts(guard))


def _loose_ends(guard: Cond, axis: str, axes: tuple[str, ...]) -> int:
    """Return how many ends of an axis a guard ties to other axes."""
    forms = [affine.affine_form(e) for c in affine.conjuncts(guard) for e in affine.inequalities(c)]
    tied = [form[0] for form in forms if form is not None and axis in form[0] and len(form[0].keys() & {*axes}) > 1]
    return len({of[axis] > 0 for of in tied})
