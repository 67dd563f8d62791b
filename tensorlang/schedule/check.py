"""Prove a plan, or say in the user's words why it is refused.

The final schedule is checked once (`polyhedral.legality`). A refusal names the directive that made the schedule illegal for good: the last
one whose removal, with all that follow, leaves a legal schedule. Folds and layouts are proven apart, once the order is legal: no element
may be put into the cell of another that is still needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyhedral.legality import Instance, Violation
from polyhedral.storage import Clobber
from polyhedral.verdict import Proven, Unknown
from tensorlang.diagnostics import NOWHERE, CompileError, Diagnostic, Label, Span
from tensorlang.schedule.apply import apply, rewrites
from tensorlang.schedule.cures.cure import cured, first_proven, sentence_of
from tensorlang.schedule.cures.refusal import Refusal, parsed
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.verdict import stored_cells, verdict_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.scop import StatementInfo

__all__ = ["judged", "kept_legal", "proven", "stored_cells", "verdict_of"]

MOST_ROUNDS = 4
"""Refusals of one schedule that are cured one after the other."""


def proven(
    program: Program,
    schedule: Schedule,
    layouts: Mapping[str, Storage] | None = None,
    knobs: Mapping[str, int] | None = None,
    *,
    advised: bool = True,
    blamed: bool = True,
) -> Plan:
    """Return the plan of `schedule` once it is proven to compute what `program` says. `advised`: what cures a refusal is looked for;
    `blamed`: so is the directive that it is for, which else is the last one.

    Raises CompileError: S03xx with the two instances when it is refuted, S0400 when the proof does not end within its limit, unless the
    schedule says why to trust it."""
    found = judged(program, schedule, layouts, knobs, advised=advised, blamed=blamed)
    if isinstance(found, Plan):
        return found
    raise CompileError(cured(found) if advised else found.diagnostic)


def judged(
    program: Program,
    schedule: Schedule,
    layouts: Mapping[str, Storage] | None,
    knobs: Mapping[str, int] | None,
    *,
    advised: bool,
    blamed: bool = True,
) -> Plan | Refusal:
    """Return the proven plan, or why it is refused. Raises CompileError S0400 when the proof does not end, and, unless `advised`, what a
    schedule that cannot be applied is refused for."""
    try:
        plan = apply(program, schedule, layouts, knobs)
    except CompileError as refused:
        refusal = Refusal.of_words(program, schedule, layouts, knobs, refused.diagnostics[0]) if advised else None
        if refusal is None:
            raise
        return refusal
    verdict = verdict_of(plan)
    match verdict:
        case Proven():
            told = () if plan.trust is None else (f"`trust {show(syntax.Text(plan.trust.reason))}` changes nothing: all is proven",)
            return replace(plan, idle=(*plan.idle, *told))
        case Unknown(reason) if plan.trust is not None:
            return replace(plan, trust=replace(plan.trust, unproven=reason))
        case Unknown(reason):
            raise CompileError(
                Diagnostic(
                    "S0400",
                    f"cannot decide whether this schedule of `{program.name}` is legal: {reason}",
                    (),
                    (),
                    'use fewer nested tiles, or static sizes; who knows that it is right says why: `trust "REASON"`',
                )
            )
        case Violation() | Clobber():
            last = len(schedule.directives), verdict
            count, final = _blame(program, schedule, layouts, knobs, verdict) if blamed else last
            return Refusal(program, schedule, layouts, knobs, count - 1, _refusal(program, schedule, plan, count, final), final)


def kept_legal(
    program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None, knobs: Mapping[str, int] | None
) -> tuple[Schedule, list[str]]:
    """Return a schedule that is legal and has all directives of `schedule`, in their order, with a sentence for each that had to be added.

    Raises CompileError where `schedule` is refused, and no directives beside it cure that."""
    said: list[str] = []
    for _ in range(MOST_ROUNDS):
        refusal = judged(program, schedule, layouts, knobs, advised=True)
        if isinstance(refusal, Plan):
            return schedule, said
        found = first_proven(refusal, keeping=True)
        if found is None:
            break
        at = max(found.at, 0)
        lines = found.lines if refusal.at >= 0 else (*found.lines, *(show(d) for d in schedule.directives[:1]))
        added = tuple(map(parsed, lines))
        schedule = replace(schedule, directives=(*schedule.directives[:at], *added, *schedule.directives[at + 1 :]))
        said.append(f"{sentence_of(refusal, found)}: {refusal.diagnostic.title}")
    proven(program, schedule, layouts, knobs)
    return schedule, said


def _refusal(program: Program, schedule: Schedule, plan: Plan, count: int, final: Violation | Clobber) -> Diagnostic:
    blamed = schedule.directives[count - 1] if count else None
    labels = [Label(blamed.span)] if blamed is not None else []
    if isinstance(final, Clobber):
        lost, by = (f"`{name}[{', '.join(map(str, cell))}]`" for name, cell in (final.overwritten, final.by))
        sizes = ", ".join(f"{k} = {v}" for k, v in final.params.items())
        note = f"{lost} and {by} would share one cell while both are needed" + (f", with {sizes}" if sizes else "")
        return Diagnostic(
            "S0308",
            "an element is overwritten while it is still needed",
            tuple(labels),
            (note,),
            "fold by more, or give each element a cell of its own",
        )
    source = plan.stages.statements.get(final.source.statement)
    target = plan.stages.statements.get(final.target.statement)
    if target is not None:
        labels.append(Label(_written(target), f"{_at(final.target)} is computed here"))
    code, title = _TITLES[final.kind]
    notes = _notes(final)
    if target is not None and target is source and target.accumulator is not None and not target.accumulator.reduce.reducer.commutative:
        name = target.accumulator.reduce.reducer.name
        promise = "is declared `ordered`, or breaks for these types what a reducer promises, as `tensorlang check` shows"
        notes.append(f"terms of `{name}` are combined in order: it {promise}")
    if source is not None and source is not target:
        labels.append(Label(_written(source), f"{_at(final.source)} is computed here"))
    where = f" of `{program.name}`" if blamed is None else ""
    return Diagnostic(
        code,
        title + where,
        tuple(labels),
        tuple(notes),
        _help(final),
    )


def _blame(
    program: Program,
    schedule: Schedule,
    layouts: Mapping[str, Storage] | None,
    knobs: Mapping[str, int] | None,
    violation: Violation | Clobber,
) -> tuple[int, Violation | Clobber]:
    """Return how many directives it takes to be illegal for good, and the violation they make; none when the program is not legal in
    its own order, which directives have not changed for the better.

    What rewrites equations does so before all others, wherever it stands: where those before it name what it makes, it stays while they
    are left out."""
    last, made = violation, list[int]()
    for count in range(len(schedule.directives), 0, -1):
        kept = tuple(schedule.directives[k] for k in reversed(made))
        shorter = replace(schedule, directives=(*schedule.directives[: count - 1], *kept))
        try:
            verdict = verdict_of(apply(program, shorter, layouts, knobs))
        except CompileError:
            if not rewrites(schedule.directives[count - 1]):
                return count, last
            made.append(count - 1)
            continue
        if not isinstance(verdict, Violation | Clobber):
            return count, last
        last = verdict
    return (made[0] + 1, last) if made else (0, violation)


_TITLES = {
    "order": ("S0301", "this order runs a read before the write it depends on"),
    "race": ("S0302", "two iterations that run at the same time touch one element"),
    "lane": ("S0303", "two lanes of one vector touch one element"),
    "missing": ("S0304", "an element is read that nothing computes here"),
    "repeated": ("S0305", "an element is computed twice"),
    "outside": ("S0306", "an iteration runs that the operator does not have"),
    "beyond": ("S0309", "an element is read that the tensor does not have"),
    "uninitialised": ("S0307", "an element is read before it is computed"),
}


def _written(statement: StatementInfo) -> Span:
    """Return the clause that a statement is of."""
    span = statement.definition.pieces[statement.piece].span
    return statement.definition.span if span is NOWHERE else span


def _at(instance: Instance) -> str:
    point = ", ".join(f"{k}={v}" for k, v in instance.iters.items())
    return f"`{instance.statement}` at ({point})" if point else f"`{instance.statement}`"


def _notes(violation: Violation) -> list[str]:
    name, cell = violation.cell
    element = f"{name}[{', '.join('?' if c is None else str(c) for c in cell)}]"
    sizes = ", ".join(f"{k} = {v}" for k, v in violation.params.items())
    first = f"{_at(violation.source)} and {_at(violation.target)} share the element {element}" + (f", with {sizes}" if sizes else "")
    notes = [first]
    if violation.kind == "order":
        notes.append(f"the first has to run before the second, but runs {_when(violation.source)}, the second {_when(violation.target)}")
    elif violation.kind in ("race", "lane") and violation.loop:
        notes.append(f"loop `{violation.loop}` gives them to different {'threads' if violation.kind == 'race' else 'lanes'}")
    return notes


def _when(instance: Instance) -> str:
    return "at " + ", ".join(f"{k}={v}" for k, v in instance.loops.items()) if instance.loops else "outside all loops"


def _help(violation: Violation) -> str | None:
    dep = violation.dep
    if violation.kind in ("race", "lane") and dep is not None and dep.kind == "RED":
        combines = f"loop `{violation.loop}` combines into one element"
        return f"it is a reduction: parallelise or vectorize another loop, or `rfactor` the reduction; {combines}"
    if violation.kind in ("race", "lane"):
        return f"leave loop `{violation.loop}` serial, or mark a loop that carries no dependence"
    return None
