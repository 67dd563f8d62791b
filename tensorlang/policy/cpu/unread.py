"""Pieces of which nobody reads anything are not computed.

    l[i, j] = …              for j in 0..i + 1
    l[i, j] = 0 otherwise                                    →    trim l.i
    y[i]    = (b[i] - (sum(k in 0..i) l[i, k] * y[k])) / l[i, i]

A tensor has an element everywhere, and who reads a triangle of it, or a step that grows shorter, leaves what was written beside it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyhedral.needed import live
from tensorlang.diagnostics import CompileError
from tensorlang.policy.deriver import Deriver, is_local
from tensorlang.schedule.apply import apply
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Definition


def without_unread(d: Deriver, schedule: Schedule) -> Schedule:
    """Return a schedule of all parts of a program in which what nobody reads is left out."""
    whole = replace(d, schedule=schedule)
    trim_unread(whole, d.program.definitions)
    return whole.schedule


def trim_unread(d: Deriver, definitions: Sequence[Definition]) -> None:
    """Add the directives that leave out pieces of some definitions of which nobody reads anything: of tensors that nobody outside sees."""
    if not any(len(x.pieces) > 1 and is_local(d, x) for x in definitions):
        return
    try:
        plan = apply(d.program, d.since, d.layouts)
    except CompileError:
        return  # Who proves the schedule says what is wrong with it.
    made = {s.name: s.definition for s in plan.stages.statements.values()}
    read = live(plan.placed.scop, [s for s, x in made.items() if any(t.name in d.program.results for t in x.tensors)])
    inside = {x.operands[0] for x in d.since.directives if x.name == "at"}
    asked = {t.name for x in definitions for t in x.tensors}
    unread = {s for s, x in made.items() if s not in read and x.tensors[0].name in asked and syntax.Id(x.tensors[0].name) not in inside}
    nests = plan.placed.nests.values()
    for loop in dict.fromkeys(n.loops[0] for n in nests if n.statement in unread and n.loops):
        with_it = d.schedule.trim(loop)
        if with_it.directives[-1] not in d.schedule.directives and all(n.loops[0] == loop for n in nests if loop in n.loops):
            d.add(with_it)
