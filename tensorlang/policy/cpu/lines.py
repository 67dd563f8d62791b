"""Recurrences that are lines of a step each: two vectors of lines run together, so that one waits while the other computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod

from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.nests import derive_member, has_no_sums, is_step_profitable, loops_of
from tensorlang.policy.cpu.recurrence_storage import add_storage
from tensorlang.policy.deriver import Deriver, in_order, is_local
from tensorlang.policy.legality import in_legal_order, is_proven
from tensorlang.schedule.plan import Plan, full
from tensorlang.schedule.shape import OPEN_EXTENT, extents
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.nodes import Definition
from tensorlang.tensor.walk import definition_reads, reads

LINES = 2
"""Vectors of lines that are recurrences, as many of which run together: then one waits while the other computes."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """Two tensors of a group, the second of which reads the first along its own line alone: their loops, the one over lines first."""

    first: Definition
    second: Definition
    first_loops: tuple[str, ...]
    second_loops: tuple[str, ...]


def derive_lines(d: Deriver, plan: Plan, group: Sequence[Definition]) -> bool:
    """Add the directives for a group of which some tensors are recurrences along lines that one other reads line by line, as the way there
    and back of a solver: in lanes over lines, which are kept for these alone. Tell whether there are any."""
    before, found, taken = d.schedule, list[_Lines](), set[str]()
    for first, second in permutations(group, 2):
        if not taken & {first.tensors[0].name, second.tensors[0].name}:
            lines = _lines_of(d, plan, group, first, second)
            if lines is not None:
                found.append(lines)
                taken |= {first.tensors[0].name, second.tensors[0].name}
    for lines in found:
        _add_lines(d, lines)
    for member in (x for x in group if found and x.tensors[0].name not in taken):
        derive_member(d, plan, member, group)
    if found:
        add_storage(d, [(member, None) for member in group if is_local(d, member)])
        if is_proven(in_legal_order(d)):
            return True
    d.schedule = before
    return False


def _lines_of(d: Deriver, plan: Plan, group: Sequence[Definition], first: Definition, second: Definition) -> _Lines | None:
    """Return how two tensors share lines that are recurrences; None where they do not, or a near cache holds all lines of a step."""
    name, sizes = first.tensors[0].name, extents(first)
    readers = [x for x in d.program.definitions if x is not first and name in definition_reads(x)]
    if [id(x) for x in readers] != [id(second)] or not is_local(d, first) or not has_no_sums(first) or not has_no_sums(second):
        return None
    own, other = loops_of(plan, first, group), loops_of(plan, second, group)
    if own is None or other is None or own.outside != other.outside or not own.outside:
        return None
    if prod(sizes[a] or OPEN_EXTENT for a in own.axes) * first.tensors[0].dtype.size_bytes <= d.machine.l2_bytes:
        return None
    turned = {o for x in d.since.directives if x.name in ("reverse", "skew", "order") for o in x.operands}
    there = [r for p in second.pieces for r in reads(p.value) if r.tensor == name]
    for line in own.axes:
        slots = {r.index[first.axes.index(line)] for r in there}
        along = next((a for a in other.axes if slots == {AffineName(a)} and extents(second)[a] == sizes[line]), None)
        if along is None or {syntax.Id(full(name, line)), syntax.Id(full(other.name, along))} & turned:
            continue
        orders = (line, *(a for a in own.axes if a != line)), (along, *(a for a in other.axes if a != along))
        legal = own.distances.is_legal(own.of(orders[0])) and other.distances.is_legal(other.of(orders[1]))
        carrying = [x.free(order, None) == [order[0]] for x, order in zip((own, other), orders, strict=True)] if legal else []
        if len(orders[0]) > 1 and carrying == [True, True]:
            return _Lines(first, second, *orders)
    return None


def _add_lines(d: Deriver, found: _Lines) -> None:
    """Add the directives for two tensors whose lines are lanes of the same loop."""
    both = (found.first, found.first_loops), (found.second, found.second_loops)
    name, line = found.first.tensors[0].name, found.first_loops[0]
    for x, order in both:
        own = x.tensors[0].name
        d.add(in_order(d.schedule, own, list(order)) if list(order) != [a for a in x.axes if a in order] else d.schedule)
    d.add(d.schedule.together(*(x.tensors[0].name for x, _ in both), into=(line,)))
    inner = [full(x.tensors[0].name, a) for x, order in both for a in order[1:]]
    for x, order in both:
        own = x.tensors[0].name
        d.add(d.schedule.distribute(own, at=full(own, order[1])) if len(x.pieces) > 1 else d.schedule)
    lanes = LINES * min(d.lanes_of(x) for x, _ in both)
    d.add(d.schedule.split(full(name, line), lanes, (f"{line}_o", f"{line}_v")))
    d.add(d.schedule.order(full(name, f"{line}_o"), *inner, full(name, f"{line}_v")))
    d.add(d.schedule.vectorize(full(name, f"{line}_v")))
    if is_step_profitable(d, found.second, found.second_loops):
        d.add(d.schedule.parallel(full(name, f"{line}_o")))
