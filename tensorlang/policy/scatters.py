"""Sums whose terms go where data say: along which axes these name the element that a term is for, or between which terms they say that
those of an element lie.

y[g] = sum(j, ids[j] == g) x[j]                          `g` is data, indexed by `j`: one step for each term, rather than one for each
                                                         term and element
y[i] = sum(k, start[i] <= k, k < start[i + 1]) x[k]      `k` goes through a range of data, indexed by `i`
y[i] = sum(k, start[k] <= i, i < start[k + 1]) x[k]      each term is for a range of data, indexed by `k`
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from polyhedral.expr import Name as AffineName
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.tensor.facts import conjuncts, named_by_data
from tensorlang.tensor.nodes import Compare, Definition, Expr, IndexValue
from tensorlang.tensor.walk import index_names, reduces, tensor_names

SCATTERED_FROM = 8
"""Elements along axes that data name, from which on asking each of them whether a term is for it takes longer."""


def scattered_axes(definition: Definition) -> tuple[tuple[str, ...], frozenset[str]] | None:
    """Return the axes that data name for each term of a sum, and what these data are indexed by; None where there are none."""
    found = {named_axes(definition, r.filter) if r.filter is not None else None for p in definition.pieces for r in reduces(p.value)}
    return found.pop() if len(found) == 1 else None


def named_axes(definition: Definition, condition: Expr) -> tuple[tuple[str, ...], frozenset[str]] | None:
    """Return the axes that a condition says to be data, and what these data are indexed by; None where there are none. Together they have
    at least as many elements as are worth it."""
    sizes, found, indexed = extents(definition), list[str](), set[str]()
    for axis, data in named_by_data(condition):
        names = index_names(data) & {*definition.axes}
        if axis in definition.axes and axis not in (*found, *indexed) and names.isdisjoint(found):
            found.append(axis)
            indexed |= names
    if prod(sizes[a] or OPEN_EXTENT for a in found) < SCATTERED_FROM or not found:
        return None
    return tuple(a for a in definition.axes if a in found), frozenset(indexed)


def ranges_of_data(definition: Definition) -> dict[str, frozenset[str]]:
    """Return the binders of sums whose first and last terms data say, `start[i] <= k < start[i + 1]`, with the axes that these data are
    indexed by: points along such an axis have little in common."""
    found: dict[str, frozenset[str]] = {}
    for reduce in (r for p in definition.pieces for r in reduces(p.value) if r.filter is not None):
        limits: dict[str, dict[bool, frozenset[str]]] = {}
        binders = {b.name for b in reduce.binders}
        for limit in (limit_of(c) for c in conjuncts(reduce.filter)):
            if limit is not None and limit.index in binders and index_names(limit.data).isdisjoint(binders):
                limits.setdefault(limit.index, {})[limit.lower] = index_names(limit.data) & {*definition.axes}
        found |= {k: sides[False] | sides[True] for k, sides in limits.items() if len(sides) == 2}
    return found


def range_of_terms(definition: Definition) -> tuple[str, frozenset[str]] | None:
    """Return the axis along which data say the first and the last element that a term of a sum is for, `start[k] <= i < start[k + 1]`, with
    the axes that these data are indexed by; None where there is none."""
    found = [r for p in definition.pieces for r in reduces(p.value)]
    if len(definition.pieces) > 1 or len(definition.tensors) > 1 or len(found) != 1 or found[0].filter is None:
        return None
    (reduce,), binders = found, {b.name for b in found[0].binders}
    limits = [x for c in conjuncts(reduce.filter) if (x := limit_of(c)) is not None and x.index in definition.axes]
    for axis in definition.axes:
        own = [x for x in limits if x.index == axis and axis not in index_names(x.data) and binders & index_names(x.data)]
        if len({x.lower for x in own}) == 2:
            return axis, frozenset(a for x in own for a in index_names(x.data)) & {*definition.axes}
    return None


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition of a sum by which data say where an index begins, or else ends."""

    index: str
    lower: bool
    data: Expr


def limit_of(condition: Expr) -> Limit | None:
    """Return what a condition of a sum says of where an index begins or ends; None where it says nothing of that, or not by data."""
    match condition:
        case Compare("<" | "<=" | ">" | ">=" as op, IndexValue(AffineName(k)), data):
            found = Limit(k, op in (">", ">="), data)
        case Compare("<" | "<=" | ">" | ">=" as op, data, IndexValue(AffineName(k))):
            found = Limit(k, op in ("<", "<="), data)
        case _:
            return None
    return found if tensor_names(found.data) else None
