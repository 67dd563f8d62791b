"""Directives about what a schedule relies on.

assume    proofs take it for granted, and kernels check it before they do anything else
trust     a proof that does not end is taken for one that holds, and whatever says so is on record
"""

from __future__ import annotations

from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import FALSE, Cond
from polyhedral.sets import implies
from polyhedral.verdict import Proven
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind, idle_message
from tensorlang.schedule.plan import Plan, Requirement, Trust
from tensorlang.schedule.state import State
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS
from tensorlang.syntax.printer import show


def require(state: State, directive: syntax.Directive, cond: Cond) -> bool:
    """Let what follows rely on `cond`, which is about the sizes of the program. Return False where it holds without: nothing changes then.

    Raises CompileError S0229 where it holds for no sizes."""
    program = state.program
    known = affine.conj(program.context, *(affine.compare(">=", size, 0) for size in program.sizes))
    if isinstance(implies(program.sizes, (), known, cond), Proven):
        return False
    if isinstance(implies(program.sizes, (), affine.conj(known, cond), FALSE), Proven):
        title = f"`{show(directive)}` does not hold for the sizes of this operator"
        raise error("S0229", title, directive.span, help="write a schedule for each case, with the condition as its guard")
    state.program = replace(program, context=affine.conj(program.context, cond))
    state.requirements.append(Requirement(cond, show(directive)))
    return True


def _assume(state: State, directive: syntax.Directive) -> None:
    """`assume CONDITION, …`: rely on comparisons of sizes."""
    if not directive.operands or directive.phrases or directive.results:
        operands.bad(directive, "it is about conditions alone")
    conditions = [operands.condition(directive, operand, state.program.sizes, state.knobs) for operand in directive.operands]
    added = [require(state, directive, condition) for condition in conditions]
    if not any(added):
        state.idle.append(idle_message(directive, "it holds for all sizes that there are"))


ASSUME = Kind("assume", FORMS["assume"], rewrite=_assume)


def _trust(state: State, directive: syntax.Directive) -> None:
    """`trust "REASON"`: accept what the proof does not decide."""
    match directive:
        case syntax.Directive(operands=(syntax.Text(reason),), phrases=(), results=()) if reason.strip():
            pass
        case _:
            operands.bad(directive, "it needs a reason, as text")
    if state.trust is not None:
        operands.bad(directive, "a schedule trusts once", "write all reasons in one text")
    state.trust = reason


def _answered_for(plan: Plan, state: State) -> Plan:
    return plan if state.trust is None else replace(plan, trust=Trust(state.trust))


TRUST = Kind("trust", FORMS["trust"], _trust, finish=_answered_for)
