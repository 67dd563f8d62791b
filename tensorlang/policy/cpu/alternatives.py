"""Other schedules for one equation that sums: inner loops of next fewest predicted cycles, for whoever measures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tensorlang.policy.cpu.inner_loops import add_inner_loops, candidates
from tensorlang.policy.deriver import deriver, mark_parallel
from tensorlang.policy.groups import recurs
from tensorlang.policy.machine import Machine
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import extents
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import reduces


def alternatives(program: Program, machine: Machine, count: int) -> Iterator[Schedule]:
    """Yield at most `count` schedules, of fewest predicted cycles first, for a program of one equation that sums and is no recurrence; none
    for others. They are not proven."""
    start = deriver(program, machine, {}, frozenset())
    if len(start.program.definitions) != 1:
        return
    (definition,) = start.program.definitions
    if len(definition.pieces) != 1 or recurs(start.program, definition) or not any(True for _ in reduces(definition.pieces[0].value)):
        return
    for inner in islice(sorted(candidates(start, definition, definition.axes), key=lambda c: c.cycles), count):
        d = deriver(program, machine, {}, frozenset())
        outer = add_inner_loops(d, definition, definition.axes, inner)
        mark_parallel(d, (definition,), outer, extents(definition))
        yield d.schedule
