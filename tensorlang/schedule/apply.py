"""Apply a schedule to a program: directives one after the other, then nests and a tree.

Directives that rewrite the program (`inline`, `pack`, `rfactor`) come first, in their order; then those that shape loops, each on its
stage; last, stages are placed, readers before what they read, because a stage computed `at` a loop of its reader runs over the region that
the reader needs. Nothing is proven here: `tensorlang.schedule.check` proves the result as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from polyhedral.errors import NestError
from tensorlang.diagnostics import CompileError, Diagnostic, Edit, InternalError, Label, Span, error
from tensorlang.schedule.directives.kind import marks_of
from tensorlang.schedule.directives.operands import Unreadable
from tensorlang.schedule.directives.table import LATER, TABLE
from tensorlang.schedule.place import place
from tensorlang.schedule.plan import Plan, Storage, make_stage
from tensorlang.schedule.recurrence import shared_stage
from tensorlang.schedule.schedule import MOST_DIRECTIVES, Schedule, too_many
from tensorlang.schedule.state import State, put
from tensorlang.schedule.whole_tiles import whole_tiles
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import SAID, SAME, directive_called, phrases_of
from tensorlang.targets import others, target_of
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.prove import problems_since
from tensorlang.tensor.scop import Stages, to_scop
from tensorlang.tensor.walk import components


def apply(
    program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None = None, knobs: Mapping[str, int] | None = None
) -> Plan:
    """Return the plan that `schedule` describes for `program`. `layouts`: how parameters and results are stored by the caller.

    Raises CompileError S01xx for directives that cannot be read or name what is not there, S02xx for ones that make no sense here."""
    state, stages = _directed(program, schedule, layouts, knobs)
    plan = place(state, stages)
    for kind in TABLE.values():
        if kind.finish is not None:
            plan = kind.finish(plan, state)
    return plan


def _check_target(target: str, directive: syntax.Directive) -> None:
    kind, found = TABLE[directive.name], target_of(target)
    if kind.target is not None and (kind.target != "cpu") != found.on_device:
        title = f"`{directive.name}` is for {others(found)}; this schedule is for `{target}`"
        raise error("S0221", title, directive.span, help=kind.instead)


def _done(action: Callable[[State, syntax.Directive], None], state: State, directive: syntax.Directive) -> None:
    """Do what a directive asks for. Raises CompileError."""
    try:
        action(state, directive)
    except NestError as refused:
        raise error("S0201", f"`{directive.name}` is not possible here: {refused.reason}", directive.span) from None
    except Unreadable as refused:
        (problem,) = refused.diagnostics
        raise CompileError(replace(problem, help=problem.help or TABLE[directive.name].shape)) from None


def rewrites(directive: syntax.Directive) -> bool:
    """Tell whether a directive changes equations, which happens before all others shape loops."""
    return TABLE[directive.name].rewrite is not None


@dataclass(frozen=True, slots=True)
class Outline:
    """What directives that follow may name: the program as rewritten so far and the loops of each stage, outermost first."""

    program: Program
    loops: Mapping[str, tuple[str, ...]]
    """First tensor of each stage → its loops by their full names."""
    extents: Mapping[str, int | None]
    """Loop → its number of iterations where that is a constant."""
    statements: Mapping[str, tuple[str, ...]]
    """First tensor of each stage → its statements."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Loop → how it runs, of those that are not serial."""
    reductions: frozenset[str] = frozenset()
    """Loops over the terms of sums."""


def outline(
    program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None = None, knobs: Mapping[str, int] | None = None
) -> Outline:
    """Return what `program` looks like after the directives of `schedule`, without placing stages. Raises CompileError like `apply`."""
    state, _ = _directed(program, schedule, layouts, knobs)
    extents = {loop: extent for stage in state.stages.values() for loop, extent in stage.extents.items()}
    loops = {name: tuple(stage.loops) for name, stage in state.stages.items()}
    statements = {name: tuple(s.name for s in stage.statements) for name, stage in state.stages.items()}
    reductions = frozenset(loop for stage in state.stages.values() for loop in stage.reductions)
    return Outline(state.program, loops, extents, statements, dict(marks_of(state)), reductions)


def _check_phrases(directive: syntax.Directive) -> None:
    """Raise S0102 for a phrase, or names behind `->`, that a directive does not have: nothing that is written is ignored."""
    known = phrases_of(directive.name)
    told = (*(p.preposition for p in directive.phrases), *(["->"] if directive.results else []))
    odd = next((word for word in told if word not in known), None)
    if odd is None:
        return
    what = "it gives no loops names" if odd == "->" else f"it has no phrase that begins with `{odd}`"
    raise CompileError(
        Diagnostic("S0102", f"`{directive.name}` cannot be read: {what}", (Label(directive.span),), (), TABLE[directive.name].shape)
    )


def unknown_directive(directive: syntax.Directive) -> CompileError:
    """Return S0101 for a directive that is none, with what it is called here."""
    name = directive.name
    span = Span(directive.span.source, directive.span.start, directive.span.start + len(name)) if directive.span.end else directive.span
    called = None if name in LATER else directive_called(name, TABLE)
    if called is None:
        title = f"`{name}` is not supported yet" if name in LATER else f"there is no directive `{name}`"
        return error("S0101", title, span, help=f"the directives are {', '.join(sorted(TABLE))}")
    same = SAME.get(name.lower()) == called or name.lower() == called
    if name.lower() in SAID:
        return error("S0101", f"there is no directive `{name}`", span, help=SAID[name.lower()])
    help = f"it is called `{called}` here: {TABLE[called].shape}" if same else f"`{called}` comes nearest: {TABLE[called].shape}"
    return error("S0101", f"there is no directive `{name}`", span, help=help, edits=(Edit(span, called),) if same else ())


def _directed(
    program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None, knobs: Mapping[str, int] | None
) -> tuple[State, Stages]:
    """Return the state after every directive, and the statements it is about."""
    state = State(lift(program), knobs or {}, stored=dict(layouts or {}), instructions=schedule.instructions, target=schedule.target)
    if len(schedule.directives) > MOST_DIRECTIVES:
        raise too_many(schedule.directives[MOST_DIRECTIVES].span)
    lifted, rewritten = state.program, list[tuple[syntax.Directive, Program]]()
    for directive in schedule.directives:
        if directive.name not in TABLE:
            raise unknown_directive(directive)
        _check_target(schedule.target, directive)
        rewriting = TABLE[directive.name].rewrite
        if rewriting is not None:
            _done(rewriting, state, directive)
            rewritten.append((directive, state.program))
    state.layouts.update(state.stored)
    state.program = lift(state.program)
    if problems_since(lifted, state.program):
        raise _refused(lifted, rewritten)
    stages = to_scop(state.program, state.numbered)
    state.scop = stages.scop
    for group in components(state.program):
        stage = make_stage(stages, group[0]) if len(group) == 1 else shared_stage(state.program, stages, group)
        put(state, replace(stage, synthetic=stage.name in state.packed.values()))
    for directive in schedule.directives:
        _check_phrases(directive)
        _done(TABLE[directive.name].apply, state, directive)
    return state, whole_tiles(state, stages)


def _refused(program: Program, rewritten: list[tuple[syntax.Directive, Program]]) -> CompileError:
    """Return the refusal of the first directive that made of `program` what cannot be proven any more."""
    for directive, made in rewritten:
        problems = problems_since(program, made)
        if problems:
            title = f"what `{directive.name}` makes of `{program.name}` is not proven: {problems[0].title}"
            notes = tuple(label.text for label in problems[0].labels if label.text)
            return error("S0309", title, directive.span, notes=notes)
    raise InternalError("lift", f"`{program.name}` is proven before its reductions are lifted, and not after")
