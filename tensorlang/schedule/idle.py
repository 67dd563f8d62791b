"""Directives without which a schedule makes the same plan: nothing somebody wrote is lost without a word.

Kinds of directives say of themselves where they change nothing (`Kind.idle`). Whatever else a directive comes to nothing by, an order that
there was or that a later one changes again, a place that a later one moves, is found by leaving it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from polyhedral.same_order import in_same_order
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

    def kept(plan: Plan) -> tuple[object, ...]:
        memory = (plan.program, plan.layouts, plan.folds, plan.depth, plan.prefetches)
        return (*memory, plan.about_loops, plan.about_tensors, plan.named, plan.requirements, plan.trust is None)

    return kept(one) == kept(other) and in_same_order(one.placed, other.placed)
