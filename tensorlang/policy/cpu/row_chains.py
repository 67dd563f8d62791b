"""Products of rows that the same program computes: attention, whose scores and probabilities are wanted for a block of rows at a time.

    s[h, i, j] = sum(c) q[h, i, c] * k[h, j, c]              a product: register tiles
    p[h, i, j] = softmax over j of s                         rows
    y[h, i, d] = sum(j) p[h, i, j] * v[h, j, d]              a product whose rows are those of p

What feeds y agrees with it on (h, i), so it can be computed inside a loop over blocks of i, and only a block of s and p is ever stored.
Where results lie along i, as in images whose channels come first, `y[h, d, i]`, the rows of p are the columns of the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from polyhedral.expr import Int
from polyhedral.expr import Name as AffineName
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.groups import FusionGroup, agreement
from tensorlang.schedule.shape import Contraction, extents, is_product, readers
from tensorlang.tensor.nodes import Definition, Read
from tensorlang.tensor.walk import definition_reads

LEAST_ROWS = 8
CACHE_SHARE = 0.5
"""Of the second-level cache, for a block of rows and what is made of them."""
TALLEST_TILE = 28
"""Rows of the tallest register tile, of one vector, where there are 32 registers."""


@dataclass(frozen=True, slots=True)
class RowChain:
    """The groups that make an operand of a product by rows, the last of them the operand itself. `axis`: the axis of the product, the
    longest of several, that blocks of rows are along, `row` its place among the leading axes of the groups, `read` how the product reads
    the operand."""

    groups: tuple[FusionGroup, ...]
    axis: str
    row: int
    read: Read


def row_chain(d: Deriver, found: Sequence[FusionGroup], head: Definition, c: Contraction, *, columns: bool = False) -> RowChain | None:
    """Return what makes operand x of the product `head` by rows, or with `columns` operand w, whose rows are columns of the product. None
    when the operand is given, or not made row by row for `head` alone; of several axes, when the longest is known to be short."""
    read, along = (c.w_read, c.columns) if columns else (c.x_read, c.rows)
    rows = next((k for k in found if k.head.tensors[0].name == read.tensor), None)
    if rows is None or len(rows.members) < 2 or not along or (columns and len(along) > 1) or c.padded or read.tensor in d.program.results:
        return None
    sizes = extents(head)
    row = max(reversed(along), key=lambda axis: sizes[axis] or 0)
    if len(along) > 1 and d.settled(head)[row] is not None and (sizes[row] or 0) < 2 * TALLEST_TILE:
        return None
    names = [slot.name if isinstance(slot, AffineName) else "" for slot in read.index[: rows.depth]]
    if row not in names or not set(names) <= {*along, *c.batch} or len(set(names)) != len(names) or (sizes[row] or 0) < LEAST_ROWS:
        return None
    read_by = readers(d.program)
    if read_by.get(read.tensor) != [head.tensors[0].name]:
        return None
    members = {m.tensors[0].name for m in rows.members}
    given = {name for m in rows.members for name in definition_reads(m)} - members
    makers = [k for k in found if k.head.tensors[0].name in given]
    for maker in makers:
        made = maker.head.tensors[0].name
        apart = len(maker.members) > 1 or made in d.program.results or not set(read_by[made]) <= members
        if apart or any(agreement(m, maker.head) < rows.depth for m in rows.members if made in definition_reads(m)):
            return None
    return RowChain((*makers, rows), row, names.index(row), read) if any(is_product(k.head) for k in makers) else None


def tiles_of_rows(d: Deriver, made: RowChain | None, rows: int = TALLEST_TILE) -> int:
    """Return how many register tiles to compute at a time of what is made by rows, `rows` in each at most; 0 where nothing is."""
    if made is None:
        return 0
    return 2 if is_near(d, made, 2 * rows) else 1


def is_near(d: Deriver, made: RowChain, rows: int) -> bool:
    """Tell whether so many rows stay in the second-level cache, with the products that they are made of."""
    depth = made.groups[-1].depth
    members = [m for group in made.groups for m in group.members]
    longest = max(prod(extents(m)[a] or inf for a in m.axes[depth:]) * m.tensors[0].dtype.size_bytes for m in members)
    return rows * longest * 2 <= CACHE_SHARE * d.machine.l2_bytes


def restrict_rows(group: FusionGroup, axis: int, rows: int) -> FusionGroup:
    """Return the group over a box of `rows` rows: what one block of them looks like to a schedule."""

    def over(definition: Definition) -> Definition:
        tensors = tuple(replace(t, shape=(*t.shape[:axis], Int(rows), *t.shape[axis + 1 :])) for t in definition.tensors)
        return replace(definition, tensors=tensors)

    members = tuple(over(m) for m in group.members)
    return FusionGroup(members[group.members.index(group.head)], members, group.depth)
