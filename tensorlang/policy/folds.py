"""Of how many steps of a tensor storage is kept: those that are still needed, one after the other in the same place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from polyhedral.expr import Name as AffineName
from polyhedral.storage import Cells, fold_factor, validate
from polyhedral.verdict import Proven
from tensorlang.policy.deriver import Deriver, is_local
from tensorlang.policy.scatters import scattered_axes
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import distance, index_names, reads


def folded(plan: Plan, definition: Definition, folded: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the tensor with each of the axes `folded` along which it is kept for a few steps only, and for how many."""
    name, axes = definition.tensors[0].name, definition.axes
    moduli: list[int | None] = [None] * len(axes)
    shifted = _shifted(definition) if scattered_axes(definition) is not None else ()
    for axis in folded:
        position = axes.index(axis)
        extent = extents(definition)[axis]
        count = fold_factor(plan.placed, name, position, plan.depth, most=None if extent is None else extent // 2)
        count = 2 if count == 1 and axis in shifted else count
        if count is None or (extent is not None and 2 * count > extent):
            continue
        moduli[position] = count
        if sum(m is not None for m in moduli) == 1 or _keeps(plan, definition, moduli):
            yield from ((t.name, axis, count) for t in definition.tensors)
        else:
            moduli[position] = None


def least_folded(plan: Plan, definition: Definition, orders: Sequence[Sequence[str]]) -> list[tuple[str, str, int]]:
    """Return what `folded` yields for the one of several orders of axes for which the fewest elements are kept, the first of equal ones."""
    sizes = extents(definition)

    def kept(found: Sequence[tuple[str, str, int]]) -> int:
        return prod({**sizes, **{axis: count for _, axis, count in found}}[a] or OPEN_EXTENT for a in definition.axes)

    return min(([*folded(plan, definition, order)] for order in orders), key=kept)


def kept_by_steps(d: Deriver, group: Sequence[Definition]) -> list[str]:
    """Return the tensors of a recurrence of which few steps will be kept, where those are counted along their last axis alone: all of it
    reads them some steps back, they themselves at least one, and others read a single step, if any."""
    members = {t.name: m for m in group for t in m.tensors if len(m.axes) >= 2 and is_local(d, m)}
    back, seen = {name: list[list[int | None]]() for name in members}, {name: set[int | None]() for name in members}
    for x in d.program.definitions if members else ():
        for r in (r for p in x.pieces for r in reads(p.value) if r.tensor in members):
            if any(x is m for m in group):
                alike = len(x.axes) == len(r.index)
                found: list[int | None] = [distance(slot, axis) for slot, axis in zip(r.index, x.axes, strict=True)] if alike else [None]
                back[r.tensor].append(found if found[-1] or x is not members[r.tensor] else [None])
            else:
                seen[r.tensor].add(distance(r.index[-1], 0))
    return [n for n in members if _count_steps_last(back[n]) and len(seen[n]) < 2 and None not in seen[n]]


def _count_steps_last(back: Sequence[Sequence[int | None]]) -> bool:
    """Tell whether reads lie steps away along the last axis, all on one side or none, and along no other axis all of them do."""
    if not back or len({len(found) for found in back}) > 1:
        return False
    *others, last = zip(*back, strict=True)
    one_side = None not in last and (max(last) <= 0 or min(last) >= 0) and any(last)
    return one_side and not any(all(found) for found in others)


def _shifted(definition: Definition) -> frozenset[str]:
    """Return the axes along which a definition reads other elements of itself: while some are added up, those have to stay."""
    own = {t.name for t in definition.tensors}
    found = [r for p in definition.pieces for r in reads(p.value) if r.tensor in own]
    return frozenset(
        axis
        for r in found
        for axis, slot in zip(definition.axes, r.index, strict=True)
        if not isinstance(slot, AffineName) and axis in index_names(r)
    )


def _keeps(plan: Plan, definition: Definition, moduli: Sequence[int | None]) -> bool:
    """Tell whether no value is lost that is still needed where the axes of a tensor are folded so."""
    name, axes = definition.tensors[0].name, definition.axes
    cells = Cells(tuple(AffineName(a) for a in axes), tuple(moduli))
    return isinstance(validate(plan.placed, {name: cells}, axes={name: axes}, storage=plan.depth), Proven)
