"""Directives without which a schedule makes the same plan: nothing somebody wrote is lost without a word.

Kinds of directives say of themselves where they change nothing (`Kind.idle`). Whatever else a directive comes to nothing by, an order that
there was or that a later one changes again, a place that a later one moves, is found by leaving it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from polyhedral.nest import Nest
from tensorlang.diagnostics import CompileError
from tensorlang.schedule.apply import apply
from tensorlang.schedule.directives.kind import idle_message
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program

MOST = 32
"""Directives of a schedule that are left out one by one."""


def idle_directives(
    program: Program, schedule: Schedule, plan: Plan, layouts: Mapping[str, Storage] | None = None, knobs: Mapping[str, int] | None = None
) -> Iterator[str]:
    """Yield a sentence for each directive of `schedule`, whose plan is `plan`, without which the plan is the same."""
    for k, directive in enumerate(schedule.directives if len(schedule.directives) <= MOST else ()):
        if any(told.startswith(f"`{show(directive)}`") for told in plan.idle):
            continue
        rest = replace(schedule, directives=(*schedule.directives[:k], *schedule.directives[k + 1 :]))
        try:
            without = apply(program, rest, layouts, knobs)
        except CompileError:
            continue
        if same_plan(plan, without):
            yield idle_message(directive, "the other directives make the same plan")


def same_plan(one: Plan, other: Plan) -> bool:
    """Return whether two plans run the same iterations in the same order, from and to the same memory."""

    def outline(plan: Plan) -> tuple[object, ...]:
        loops = {p: (n.statement, n.loops) for p, n in plan.placed.nests.items()}
        kept = (plan.layouts, plan.folds, plan.depth, plan.prefetches, plan.about_loops, plan.about_tensors)
        return (plan.program, plan.placed.tree, loops, *kept, plan.named, plan.requirements, plan.trust is None)

    if outline(one) != outline(other):
        return False
    offsets: dict[str, int] = {}
    for placement, nest in one.placed.nests.items():
        found = _offsets(nest, other.placed.nests[placement])
        if found is None or any(offsets.setdefault(loop, offset) != offset for loop, offset in found.items()):
            return False
    return True


def _offsets(one: Nest, other: Nest) -> dict[str, int] | None:
    """Return by how much loops count further in the other nest; None where it runs other iterations, in another order or other steps. All
    that share a loop have to agree on it: then it runs as it did."""
    if one.points.is_equal(other.points) and one.iter_exprs() == other.iter_exprs():
        return dict.fromkeys(one.loops, 0) if one.box.is_equal(other.box) else None
    if any(one.extent(loop) != other.extent(loop) for loop in one.loops):
        return None
    return one.offsets_to(other)
