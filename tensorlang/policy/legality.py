"""Whether directives make sense, and in which order recurrences may run about which none says anything yet."""

from __future__ import annotations

from dataclasses import replace

from polyhedral.verdict import Proven
from tensorlang.diagnostics import CompileError
from tensorlang.policy.deriver import Deriver
from tensorlang.schedule.apply import apply
from tensorlang.schedule.check import verdict_of
from tensorlang.schedule.plan import owned
from tensorlang.schedule.recurrence import legal_order
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.walk import components, tensor_table


def in_legal_order(d: Deriver) -> Deriver:
    """Return the state with recurrences in an order that is legal about which no directive says anything yet."""
    tensors = tensor_table(d.program)
    said = {owned(o.name, tensors)[0] for x in d.since.directives for o in x.operands if isinstance(o, syntax.Id)}
    found = replace(d)
    for member in (x for group in components(d.program) for x in group if x.tensors[0].name not in said):
        found.add(legal_order(found.schedule, d.program, member))
    return found


def is_proven(d: Deriver) -> bool:
    """Tell whether the directives so far make sense, and compute what the program says."""
    try:
        return isinstance(verdict_of(apply(d.program, d.since, d.layouts)), Proven)
    except CompileError:
        return False
