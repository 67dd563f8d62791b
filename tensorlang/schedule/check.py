"""Prove a plan, or say in the user's words why it is refused.

The final schedule is checked once (`polyhedral.legality`). A refusal names the directive that made the schedule illegal for good: the last
one whose removal, with all that follow, leaves a legal schedule. Folds and layouts are proven apart, once the order is legal: no element
may be put into the cell of another that is still needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.legality import Instance, Violation, check, suggest_skew
from polyhedral.record import subject
from polyhedral.storage import Cells, Clobber, injective, validate
from polyhedral.verdict import Proven, Unknown
from tensorlang.diagnostics import NOWHERE, CompileError, Diagnostic, Label, Span
from tensorlang.schedule.apply import apply
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.recurrence import legal_order
from tensorlang.schedule.schedule import Schedule
from tensorlang.syntax.printer import show
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.scop import StatementInfo
from tensorlang.tensor.walk import definers, tensor_table

Verdict: TypeAlias = Proven | Violation | Clobber | Unknown

LIMIT = 2_000_000


def proven(
    program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None = None, knobs: Mapping[str, int] | None = None
) -> Plan:
    """Return the plan of `schedule` once it is proven to compute what `program` says.

    Raises CompileError: S03xx with the two instances when it is refuted, S0400 when the proof does not end within its limit."""
    plan = apply(program, schedule, layouts, knobs)
    verdict = verdict_of(plan)
    match verdict:
        case Proven():
            return plan
        case Unknown(reason):
            raise CompileError(
                Diagnostic(
                    "S0400",
                    f"cannot decide whether this schedule of `{program.name}` is legal: {reason}",
                    (),
                    (),
                    "use fewer nested tiles, or static sizes",
                )
            )
        case Violation() | Clobber():
            raise CompileError(_refusal(program, schedule, layouts, knobs, plan, verdict))


def verdict_of(plan: Plan) -> Verdict:
    """Return whether `plan` computes what its program says: its order first, then where its tensors are stored."""
    verdict = check(plan.placed, storage=plan.depth, limit=LIMIT)
    if isinstance(verdict, Violation) and verdict.kind == "missing" and verdict.dep is None:
        # Something is not computed: that is wrong only where it is a result or somebody reads it.
        results = {d.tensors[0].name for d in plan.program.definitions for t in d.tensors if t.name in plan.program.results}
        verdict = check(plan.placed, storage=plan.depth, outputs=results, limit=LIMIT)
    return _storage_verdict(plan) if isinstance(verdict, Proven) else verdict


def _storage_verdict(plan: Plan) -> Proven | Clobber | Unknown:
    """Return whether every fold, and every layout of a tensor that the plan itself stores, keeps what is still needed."""
    for name, cells, axes in stored_cells(plan):
        verdict = validate(plan.placed, {name: cells}, axes={name: axes}, storage=plan.depth)
        if not isinstance(verdict, Proven):
            return verdict
    return Proven()


def stored_cells(plan: Plan) -> Iterator[tuple[str, Cells, tuple[str, ...]]]:
    """Yield the tensors of which several elements may share a cell, with these cells and the axes they are over."""
    table, definitions = tensor_table(plan.program), definers(plan.program)
    caller = {*(p.name for p in plan.program.params), *plan.program.results}
    for name in dict.fromkeys((*plan.folds, *plan.layouts)):
        if name in caller or name not in definitions:
            continue
        definition = definitions[name]
        if name in plan.layouts:
            exprs: tuple[Affine, ...] = plan.layouts[name].dims
            inside = affine.conj(*(affine.within(a, 0, e) for a, e in zip(definition.axes, table[name].shape, strict=True)))
            if isinstance(injective(plan.program.sizes, definition.axes, inside, exprs), Proven):
                subject(name)
                continue
            moduli: tuple[int | None, ...] = (None,) * len(exprs)
        else:
            exprs = tuple(affine.to_expr(a) for a in definition.axes)
            folds = dict(plan.folds[name])
            moduli = tuple(folds.get(k) for k in range(len(exprs)))
        yield definition.tensors[0].name, Cells(exprs, moduli), definition.axes


def _refusal(
    program: Program,
    schedule: Schedule,
    layouts: Mapping[str, Storage] | None,
    knobs: Mapping[str, int] | None,
    plan: Plan,
    refuted: Violation | Clobber,
) -> Diagnostic:
    count, final = _blame(program, schedule, layouts, knobs, refuted)
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
    if source is not None and source is not target:
        labels.append(Label(_written(source), f"{_at(final.source)} is computed here"))
    where = f" of `{program.name}`" if blamed is None else ""
    help_ = _help(plan, final) or _skewed(program, schedule, layouts, knobs, count, final)
    help_ = help_ or (None if count else _in_turn(program, schedule, layouts, knobs, plan))
    return Diagnostic(
        code,
        title + where,
        tuple(labels),
        tuple(notes),
        help_,
    )


def _blame(
    program: Program,
    schedule: Schedule,
    layouts: Mapping[str, Storage] | None,
    knobs: Mapping[str, int] | None,
    violation: Violation | Clobber,
) -> tuple[int, Violation | Clobber]:
    """Return how many directives it takes to be illegal for good, and the violation they make; none when the program is not legal in
    its own order, which directives have not changed for the better."""
    last = violation
    for count in range(len(schedule.directives), 0, -1):
        shorter = replace(schedule, directives=schedule.directives[: count - 1])
        try:
            verdict = verdict_of(apply(program, shorter, layouts, knobs))
        except CompileError:
            return count, last
        if not isinstance(verdict, Violation | Clobber):
            return count, last
        last = verdict
    return 0, violation


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


def _help(plan: Plan, violation: Violation) -> str | None:
    dep = violation.dep
    if violation.kind in ("race", "lane") and dep is not None and dep.kind == "RED":
        combines = f"loop `{violation.loop}` combines into one element"
        return f"it is a reduction: parallelise or vectorize another loop, or `rfactor` the reduction; {combines}"
    if violation.kind in ("race", "lane"):
        return f"leave loop `{violation.loop}` serial, or mark a loop that carries no dependence"
    return None


def _skewed(
    program: Program,
    schedule: Schedule,
    layouts: Mapping[str, Storage] | None,
    knobs: Mapping[str, int] | None,
    count: int,
    violation: Violation,
) -> str | None:
    """Return the `skew` that makes the order legal, put before the directive that is blamed: tried, and proven, before it is told."""
    if violation.kind != "order" or not count:
        return None
    before, blamed = schedule.directives[: count - 1], schedule.directives[count - 1]
    refused = apply(program, replace(schedule, directives=schedule.directives[:count]), layouts, knobs)
    found = suggest_skew(refused.placed, violation, refused.depth)
    if found is None:
        return None
    stage = refused.stages.statements[violation.source.statement].definition.tensors[0].name
    loop, by, factor = found[0].removeprefix(stage + "."), found[1].removeprefix(stage + "."), found[2]
    skew = Schedule(program.name).skew(f"{stage}.{loop}", f"{stage}.{by}", factor).directives
    shown = show(Schedule(program.name).skew(loop, by, factor).directives[0])
    for directives, where in (((*before, *skew, blamed), "first"), ((*before, blamed, *skew), "after it")):
        try:
            if isinstance(verdict_of(apply(program, replace(schedule, directives=directives), layouts, knobs)), Proven):
                return f"`{shown}` {where} makes this order legal"
        except CompileError:
            continue
    return None


def _in_turn(
    program: Program, schedule: Schedule, layouts: Mapping[str, Storage] | None, knobs: Mapping[str, int] | None, plan: Plan
) -> str | None:
    """Return what to write first where recurrences cannot run in the order of their axes: tried, and proven, before it is told."""
    order = Schedule(program.name)
    for definition in plan.program.definitions:
        order = legal_order(order, plan.program, definition)
    try:
        if isinstance(
            verdict_of(apply(program, replace(schedule, directives=(*order.directives, *schedule.directives)), layouts, knobs)), Proven
        ):
            return f"{', '.join(f'`{show(d)}`' for d in order.directives)} first: this recurrence does not run in the order of its axes"
    except CompileError:
        pass
    return None
