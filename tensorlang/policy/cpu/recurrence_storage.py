"""What is kept of recurrences: as few steps as others need, by diagonals where they run so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from tensorlang.policy.cpu.unread import trim_unread
from tensorlang.policy.cpu.wavefronts import (
    Wavefront,
    add_diagonal_layout,
    kept_diagonals,
)
from tensorlang.policy.deriver import Deriver
from tensorlang.policy.folds import folded
from tensorlang.schedule.apply import apply
from tensorlang.tensor.nodes import Definition


def add_storage(d: Deriver, local: Sequence[tuple[Definition, Wavefront | None]], rows: frozenset[str] = frozenset()) -> None:
    """Keep as few steps of tensors that nobody outside sees as do, along all axes but `rows`; by diagonals those that run so in lanes."""
    if local and not d.alone and not d.at_once:
        # What is left out is written over nothing.
        trim_unread(d, [member for member, _ in local])
    placed = apply(d.program, d.since, d.layouts) if local else None
    for member, front in local:
        assert placed is not None
        if front is not None and not front.rows:
            kept = {axis: count for _, axis, count in islice(folded(placed, member, front.outer), 1)}
            add_diagonal_layout(d, member, front, kept, kept_diagonals(placed, member, front, kept))
            continue
        for name, axis, count in folded(placed, member, [a for a in member.axes if a not in rows]):
            d.add(d.schedule.fold(name, axis, count))
