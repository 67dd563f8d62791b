"""Short rows of several tensors: softmax over a few classes, the greatest of a few scores. Lanes are rows, a block of which is transposed.
So are rows of any length of which one place is looked for, `argmin(j) x[a, j]`: no lanes along a row are combined to that.

    best[a] = max(j) x[a, j]      y[a] = min(j, x[a, j] == best[a]) j        j in 0..8
                                                                             split y.a by 16 -> a_o, a_v;  vectorize y.a_v
                                                                             split best.a by 16 -> a_o, a_v;  at best at y.a_o
                                                                             pack x at y.a_o as [j, a]

Vectors along such a row would be empty for the most part, and what is reduced over it would be combined from few lanes. Where more elements
lie between neighbours of a vector than shuffles take it from, a block of rows is copied first, in squares that are turned in registers.
Of rows that others are compared with, `max(j) abs(z[b, j] - x[a, j])`, blocks are outside of loops over those: `order y.a_o, y.b, y.a_v`.
"""

from __future__ import annotations

from collections.abc import Set
from math import prod

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import MOST_STRIDE
from tensorlang.policy.cpu.narrow_rows import MOST_ELEMENTS
from tensorlang.policy.deriver import Deriver, in_order, mark_parallel
from tensorlang.policy.groups import FusionGroup, reads_own_rows, recurs
from tensorlang.schedule.pack import Along, axes_of_copy
from tensorlang.schedule.plan import full
from tensorlang.schedule.shape import OPEN_EXTENT, extents, readers
from tensorlang.tensor.nodes import Definition, Read
from tensorlang.tensor.walk import definition_reads, index_names, reads, reduces, tensor_table

MOST_UNROLLED = 32
"""Elements of a row that are written out."""
MOST_VECTORS = 3
"""So many vectors of a row, of which only reductions come, are combined to one element no sooner than rows are transposed."""


def has_row_lanes(d: Deriver, group: FusionGroup) -> bool:
    """Tell whether several tensors are made of many rows together, none of which fills a vector, or one by reducers of several parts, and
    all that lanes of rows read is read at their own row."""
    if group.depth < 1 or group.fused or group.transformed is not None or group.online is not None:
        return False
    if len(group.members) < 2 and (recurs(d.program, group.head) or not _is_worth_turning(d, group)):
        return False
    lanes, rows = _lanes(d, group), extents(group.head)[group.head.axes[group.depth - 1]]
    if (rows or OPEN_EXTENT) < 2 * lanes:
        return False
    alone = all(_is_read_alone(d, group, read.tensor) for read in _crossed(d, group))
    return all(_is_narrow(d, m, group.depth, lanes) for m in group.members) and (alone or len(group.members) == 1)


def _is_worth_turning(d: Deriver, group: FusionGroup) -> bool:
    """Tell whether lanes of one definition alone had better be rows, a block of which is transposed: where no lanes along a row can be
    combined, or rows are short and of open length, and lanes share what else is read."""
    apart, head = _crossed(d, group, MOST_STRIDE), group.head
    if not apart or _has_parts(head):
        return bool(apart)
    others = (r for p in head.pieces for r in reads(p.value) if r.tensor not in {read.tensor for read in apart})
    sizes, binders = extents(head), _binders(head)
    is_short = bool(binders) and all((sizes[n] or OPEN_EXTENT) < _lanes(d, group) for n in binders)
    are_open = all(r.tensor in d.open_rows and _is_read_alone(d, group, r.tensor) for r in apart)
    return is_short and are_open and not any(index_names(r) & set(head.axes) for r in others)


def _is_read_alone(d: Deriver, group: FusionGroup, tensor: str) -> bool:
    """Tell whether nothing outside of a group reads a tensor: then it may be copied for all that reads it."""
    return {m.tensors[0].name for m in group.members}.issuperset(readers(d.program)[tensor])


def _lanes(d: Deriver, group: FusionGroup) -> int:
    """Return how many of the narrowest elements that are made or looked for a vector holds."""
    made = [m.tensors[0].dtype for m in group.members]
    looked_for = [r.reducer.dtypes[0] for m in group.members if _has_parts(m) for p in m.pieces for r in reduces(p.value)]
    return max(d.machine.lanes(compute_dtype(dtype)) for dtype in (*made, *looked_for))


def _is_narrow(d: Deriver, definition: Definition, depth: int, lanes: int) -> bool:
    if len(definition.pieces) != 1 or d.layouts.keys() & {definition.tensors[0].name, *definition_reads(definition)}:
        return False
    sizes, inner, row = extents(definition), definition.axes[depth:], definition.axes[depth - 1]
    near = d.machine.l2_bytes // (2 * lanes * compute_dtype(definition.tensors[0].dtype).size_bytes)
    longest = near if _has_parts(definition) else MOST_VECTORS * lanes + 1
    limits = {**dict.fromkeys(_binders(definition), longest), **dict.fromkeys(inner, lanes)}
    if any((sizes[n] or OPEN_EXTENT) >= limit for n, limit in limits.items()) or prod(sizes[a] or 1 for a in inner) > MOST_UNROLLED:
        return False
    return reads_own_rows(definition, row)


def _has_parts(definition: Definition) -> bool:
    """Tell whether a definition reduces to several values at once."""
    return any(len(r.body) > 1 for p in definition.pieces for r in reduces(p.value))


def _binders(definition: Definition) -> list[str]:
    return list(dict.fromkeys(b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders))


def derive_row_lanes(d: Deriver, group: FusionGroup) -> None:
    """Add the directives for tensors that have short rows."""
    head, lanes, at, turned = group.head, _lanes(d, group), group.depth - 1, _crossed(d, group)
    before = _said_by(group, {read.tensor for read in turned})
    block = full(head.tensors[0].name, f"{head.axes[at]}_o")
    innermost = block if before == at else full(head.tensors[0].name, head.axes[at - 1])

    def outer(m: Definition) -> list[str]:
        return [*m.axes[:before], f"{m.axes[at]}_o", *m.axes[before:at]]

    for member in (head, *(m for m in group.members if m is not head)):
        name, row, inner = member.tensors[0].name, member.axes[at], member.axes[group.depth :]
        d.add(d.schedule.split(full(name, row), lanes, (f"{row}_o", f"{row}_v")))
        if member is not head:
            d.add(d.schedule.at(name, innermost))
        d.add(in_order(d.schedule, name, [*outer(member), *inner, *_binders(member), f"{row}_v"]))
        if inner:
            d.add(d.schedule.unroll(*(full(name, a) for a in inner)))
        d.add(d.schedule.vectorize(full(name, f"{row}_v")))
    for read, row in turned.items():
        _add_transposed(d, read, row, lanes, block, None if _is_read_alone(d, group, read.tensor) else Along(head.tensors[0].name, row))
    blocks = -(-(extents(head)[head.axes[at]] or OPEN_EXTENT) // lanes)
    mark_parallel(d, (*(m for m in group.members if m is not head), head), outer(head), {**extents(head), f"{head.axes[at]}_o": blocks})


def _said_by(group: FusionGroup, tensors: Set[str]) -> int:
    """Return how many of the loops outside of rows say together which elements of some tensors are read: blocks of rows are copied inside
    of these, once for all the others."""
    named = (
        m.axes.index(n) + 1
        for m in group.members
        for r in reads(m.pieces[0].value)
        if r.tensor in tensors
        for n in index_names(r) & {*m.axes[: group.depth - 1]}
    )
    return max(named, default=0) if tensors else group.depth - 1


def _crossed(d: Deriver, group: FusionGroup, near: int = MOST_ELEMENTS) -> dict[Read, str]:
    """Return the first read of each tensor from outside whose rows lie more than `near` elements apart, too far for shuffles, with the name
    of their axis in it."""
    table, found = tensor_table(d.program), dict[str, tuple[Read, str]]()
    own = {m.tensors[0].name for m in group.members}
    for member in group.members:
        row = member.axes[group.depth - 1]
        for read in reads(member.pieces[0].value):
            if read.tensor in own or AffineName(row) not in read.index:
                continue
            place = read.index.index(AffineName(row))
            behind = [affine.constant(n) for n in table[read.tensor].shape[place + 1 :]]
            apart = prod(n or OPEN_EXTENT for n in behind)
            if read.index.count(AffineName(row)) == 1 and (apart > near or (behind and read.tensor in d.open_rows)):
                found.setdefault(read.tensor, (read, row))
    return dict(found.values())


def _add_transposed(d: Deriver, read: Read, row: str, lanes: int, block: str, along: Along | None) -> None:
    """Copy what a block of rows reads of a tensor, `along` an axis of one equation or wherever it is read, neighbouring rows next to each
    other."""
    place = read.index.index(AffineName(row))
    called = axes_of_copy(d.program, read.tensor, len(read.index), along)
    rows, last, name = called[place], called[-1], f"{read.tensor}.pack"
    others = [a for a in called if a != rows]
    d.add(d.schedule.pack(read.tensor, (*others, rows), at=block, in_=None if along is None else str(along)))
    if (affine.constant(tensor_table(d.program)[read.tensor].shape[-1]) or lanes) >= lanes:
        return  # copies go in squares where these are whole
    d.add(d.schedule.split(full(name, rows), lanes, (f"{rows}_o", f"{rows}_v")))
    d.add(d.schedule.split(full(name, last), lanes, (f"{last}_o", f"{last}_i")))
    d.add(in_order(d.schedule, name, [*others[:-1], f"{rows}_o", f"{last}_o", f"{last}_i", f"{rows}_v"]))
    d.add(d.schedule.unroll(full(name, f"{last}_i")))
    d.add(d.schedule.vectorize(full(name, f"{rows}_v")))
