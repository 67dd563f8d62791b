"""Where rows begin and end: the terms of a sum as data say, the points of an axis as those of others do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from polyhedral import affine
from polyhedral.expr import Cond
from polyhedral.expr import Name as AffineName
from tensorlang.tensor.facts import conjuncts
from tensorlang.tensor.nodes import Compare as TensorCompare
from tensorlang.tensor.nodes import Definition, Expr, IndexValue, Reduce
from tensorlang.tensor.walk import index_names, reduces, tensor_names


def ranges_of_data(definition: Definition) -> dict[str, frozenset[str]]:
    """Return the binders of sums whose first and last terms data say, `start[i] <= k < start[i + 1]`, with the axes that these data are
    indexed by: points along such an axis have little in common."""
    found: dict[str, frozenset[str]] = {}
    for reduce in (r for p in definition.pieces for r in reduces(p.value) if r.filter is not None):
        limits: dict[str, dict[bool, frozenset[str]]] = {}
        for limit in map(partial(limit_of, reduce), conjuncts(reduce.filter)):
            if limit is not None:
                limits.setdefault(limit.binder, {})[limit.lower] = index_names(limit.data) & {*definition.axes}
        found |= {k: sides[False] | sides[True] for k, sides in limits.items() if len(sides) == 2}
    return found


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition of a sum by which data say where its terms begin, or else end."""

    binder: str
    lower: bool
    data: Expr


def limit_of(reduce: Reduce, condition: Expr) -> Limit | None:
    match condition:
        case TensorCompare("<" | "<=" | ">" | ">=" as op, IndexValue(AffineName(k)), data):
            found = Limit(k, op in (">", ">="), data)
        case TensorCompare("<" | "<=" | ">" | ">=" as op, data, IndexValue(AffineName(k))):
            found = Limit(k, op in ("<", "<="), data)
        case _:
            return None
    binders = {b.name for b in reduce.binders}
    return found if found.binder in binders and tensor_names(found.data) and index_names(found.data).isdisjoint(binders) else None


@dataclass(frozen=True, slots=True)
class RaggedRow:
    """A row of an axis: how many points it has on the average, and how many of its ends lie anywhere in a block of them."""

    length: float
    ends: int

    def covered(self, count: int) -> float:
        """Return how many points blocks of so many take, for each that there is."""
        return (self.length + self.ends * (count - 1) / 2) / self.length


def ragged_rows(definition: Definition, sizes: Mapping[str, float]) -> dict[str, RaggedRow]:
    """Return the axes along which all sums are for rows whose ends depend on other axes, as those of a triangle do."""
    guards = [p.guard for p in definition.pieces if any(True for _ in reduces(p.value))]
    found = {a: min((_loose_ends(g, a, definition.axes) for g in guards), default=0) for a in definition.axes}
    return {a: RaggedRow(max(1.0, sizes[a] / (1 + ends)), ends) for a, ends in found.items() if ends}


def _loose_ends(guard: Cond, axis: str, axes: tuple[str, ...]) -> int:
    """Return how many ends of an axis a guard ties to other axes."""
    forms = [affine.affine_form(e) for c in affine.conjuncts(guard) for e in affine.inequalities(c)]
    tied = [form[0] for form in forms if form is not None and axis in form[0] and len(form[0].keys() & {*axes}) > 1]
    return len({of[axis] > 0 for of in tied})
