"""Steps that are computed in place: what several elements of a step read of the one before it, a row, a column, is copied first where
that is all that keeps the old step alive.

    m[k, i, j] = if i == k then … else m[k - 1, i, j] - m[k - 1, i, k] * r[k, j]     →     lift m, fold m at k by 1

What a step leaves as it was then stays where it is, and what it changes is written over what nobody needs any more: a step of rotations
that change two rows of a matrix touches two rows.
"""

from __future__ import annotations

from math import prod

from polyhedral.space import OperationLimit
from tensorlang.diagnostics import CompileError
from tensorlang.policy.deriver import Deriver, is_local, with_lifted
from tensorlang.policy.folds import folded
from tensorlang.schedule.apply import apply
from tensorlang.schedule.recurrence import legal_order
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.rows_apart import rows_apart
from tensorlang.tensor.terms_apart import terms_apart
from tensorlang.tensor.walk import component_of, definers, definition_reads


def with_rows_apart(d: Deriver) -> Deriver:
    """Return the state in which recurrences copy the rows that all elements of a step read, where fewer steps are kept then, and registers
    hold none. Open sizes stay as they are: what exists for all of them is not known of samples."""
    if d.open_extents:
        return d
    for definition in d.program.definitions:
        name = definition.tensors[0].name
        if name in definition_reads(definition) and is_local(d, definition) and len(definition.axes) > 1 and _steps_in_place(d, definition):
            d = with_lifted(d, name, rows_apart) or d
    return d


def _steps_in_place(d: Deriver, definition: Definition) -> bool:
    """Tell whether a recurrence of which registers hold no step keeps fewer elements where it copies rows first."""
    name = definition.tensors[0].name
    apart = rows_apart(d.program, name)
    if isinstance(apart, str) or not isinstance(terms_apart(d.program, name), str):
        return False
    kept = _kept(d, definition)
    if kept * definition.tensors[0].dtype.size_bytes <= d.machine.vector_registers * d.machine.vector_bytes:
        return False
    lifted = with_lifted(d, name, rows_apart)
    return lifted is not None and _kept(lifted, definers(lifted.program)[name]) < kept


def _kept(d: Deriver, definition: Definition) -> int:
    """Return how many elements of a recurrence are kept where its loops run in an order that is legal, as many as there are where that
    cannot be told in time, or no loops order it with what it needs."""
    schedule, sizes = d.since, extents(definition)
    try:
        for member in component_of(d.program, definition):
            schedule = legal_order(schedule, d.program, member)
        found = {axis: count for _, axis, count in folded(apply(d.program, schedule, d.layouts), definition, definition.axes)}
    except (OperationLimit, CompileError):
        found = {}
    return prod(found.get(a, sizes[a] or OPEN_EXTENT) for a in definition.axes)
