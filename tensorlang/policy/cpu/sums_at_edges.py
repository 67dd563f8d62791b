"""Sums that are one element of a row, beside maps that are the rest of it: in loops of their own, their terms in lanes.

    l[i, j]     = l[i, j - 1] + d[j]   for i < j - 1                 distribute l.k, l.1 at l.i -> i_1
    l[j - 1, j] = min(k in 0..j - 1) (l[k, j - 1] + c[k, j])         split l.k by 32 -> k_o, k_v;  vectorize l.k_v

Lanes along the row are for its maps. In the loops of these a sum would be in one lane of one vector, and take its terms one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorlang.policy.cpu.along import pins
from tensorlang.policy.cpu.inner_cost import InnerLoops
from tensorlang.policy.cpu.inner_loops import add_inner_loops, best_inner_loops
from tensorlang.policy.deriver import Deriver, in_order
from tensorlang.policy.legality import in_legal_order, is_proven
from tensorlang.schedule.plan import Plan, full
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import reduces


@dataclass(frozen=True, slots=True)
class EdgeSum:
    """The piece of a definition at `number`, as a definition, and its inner loops."""

    number: int
    alone: Definition
    inner: InnerLoops


def edge_sums(d: Deriver, definition: Definition, along: Sequence[str]) -> list[EdgeSum]:
    """Return the pieces that have one element along the lanes of the others, a sum whose terms had better be lanes."""
    found: list[EdgeSum] = []
    for number, piece in enumerate(definition.pieces):
        is_sum = any(True for _ in reduces(piece.value))
        if is_sum and any(pins(piece.guard, a) for a in along if a in definition.axes):
            alone = replace(definition, pieces=(piece,))
            inner = best_inner_loops(d, alone, ())
            found += [EdgeSum(number, alone, inner)] if inner.vector else []
    return found


def derive_edge_sums(d: Deriver, plan: Plan, definition: Definition, order: Sequence[str], shared: int, along: Sequence[str]) -> Definition:
    """Add the directives for the sums at edges of a definition, in loops of their own inside of the first `shared` ones, where that is
    legal, and other pieces are left; return the definition without these. `order`: of its axes; `along`: what runs in lanes of it."""
    found, before, name = edge_sums(d, definition, along), d.schedule, definition.tensors[0].name
    if len(found) in (0, len(definition.pieces)):
        return definition
    d.add(in_order(d.schedule, name, [*order]) if [*order] != [a for a in definition.axes if a in order] else d.schedule)
    d.add(d.schedule.distribute(name, at=full(name, order[shared])))
    for x in found:
        statements = [s.name for s in plan.stages.of(definition) if s.piece == x.number]
        own = [f"{axis}_{x.number}" for axis in order[shared:]]
        d.add(d.schedule.distribute(*statements, at=[full(name, axis) for axis in order[shared:]], into=own))
        add_inner_loops(d, x.alone, own, x.inner)
    if not is_proven(in_legal_order(d)):
        d.schedule = before
        return definition
    rest = [p for number, p in enumerate(definition.pieces) if number not in {x.number for x in found}]
    return replace(definition, pieces=tuple(rest))
