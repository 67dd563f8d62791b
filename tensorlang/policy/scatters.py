"""Sums whose terms go where data say: along which axes these name the element that a term is for.

y[g] = sum(j, ids[j] == g) x[j]      `g` is data, indexed by `j`: one step for each term, rather than one for each term and element
"""

from __future__ import annotations

from math import prod

from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.tensor.facts import named_by_data
from tensorlang.tensor.nodes import Definition, Expr
from tensorlang.tensor.walk import index_names, reduces

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
