"""What can be said against schedules and tactics before an operator is called: without sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorlang.check.module import Module
from tensorlang.check.problems import did_you_mean
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import CompileError, Diagnostic, error
from tensorlang.policy.roles.cpu import ROLES
from tensorlang.policy.roles.gpu import DEVICE_ROLES
from tensorlang.policy.roles.match import asked
from tensorlang.schedule.expand import Scope, choices, expand
from tensorlang.schedule.guards import Fact, evaluate
from tensorlang.schedule.knobs import no_knob
from tensorlang.syntax import nodes as sx

TARGETS = ("cpu", "cuda")
"""What schedules may be for."""


def check_schedules(module: Module) -> list[Diagnostic]:
    """Return what is wrong with the module's own schedules and tactics, as far as it can be told without sizes: one diagnostic each."""
    out: list[Diagnostic] = []
    for schedule in module.schedules[: module.own_schedules]:
        try:
            _check(module, schedule)
        except CompileError as refused:
            out += refused.diagnostics
    return out


def check_written(module: Module, schedule: sx.Schedule, knobs: Mapping[str, int]) -> None:
    """Check a schedule of an operator and the names of `knobs`. Raises CompileError S05xx."""
    declared: set[str] = set()
    _check_guards(module, schedule)
    _check_body(module, schedule.body, (), declared)
    for name in knobs:
        if name not in declared:
            raise no_knob(name, sorted(declared), schedule)


def _check(module: Module, schedule: sx.Schedule) -> None:
    if schedule.target not in TARGETS:
        title = f"there is no target `{schedule.target}`"
        raise error("S0513", title, schedule.span, help=did_you_mean(schedule.target, TARGETS, "schedules are for `cpu` or for `cuda`"))
    if schedule.role is None and schedule.operator not in module.operators:
        raise error(
            "S0501", f"there is no operator `{schedule.operator}`", schedule.span, help=did_you_mean(schedule.operator, module.operators)
        )
    if schedule.role is not None:
        _check_role(schedule, schedule.role)
    else:
        _check_guards(module, schedule)
    _check_body(module, schedule.body, (), set())


def _check_role(schedule: sx.Schedule, role: sx.Role) -> None:
    form = (ROLES if schedule.target == "cpu" else DEVICE_ROLES).get(role.name)
    if form is None:
        raise error(
            "S0511", f"there is no role `{role.name}`", role.span, help=did_you_mean(role.name, ROLES, f"the roles are {', '.join(ROLES)}")
        )
    if not form.fits(role):
        raise error("S0512", f"role `{role.name}` has other parameters", role.span, help=f"write `role {form.text}`")
    for guard in schedule.guards:
        evaluate(guard, asked(role))


def _check_guards(module: Module, schedule: sx.Schedule) -> None:
    declaration = module.operators[schedule.operator]
    known: dict[str, Fact] = {p.name: () if p.pack else None for p in declaration.params if p.kind != "tensor"}
    for param in declaration.params:
        if isinstance(param.type, sx.TensorType):
            for dim in param.type.dims or ():
                for node in (dim, *descendants(dim)):
                    if isinstance(node, sx.Id):
                        known.setdefault(node.name, () if isinstance(dim, sx.Pack | sx.Broadcast) else None)
    for guard in schedule.guards:
        evaluate(guard, known)


def _check_body(module: Module, body: Sequence[sx.Directive | sx.Knobs], calls: tuple[str, ...], knobs: set[str]) -> None:
    for part in body:
        if isinstance(part, sx.Knobs):
            for knob in part.knobs:
                choices(knob)
                if knob.name in knobs:
                    raise error("S0510", f"knob `{knob.name}` is declared twice", knob.span, help="rename one of them, or delete it")
                knobs.add(knob.name)
        elif part.call:
            _check_call(module, part, calls, knobs)


def _check_call(module: Module, call: sx.Directive, calls: tuple[str, ...], knobs: set[str]) -> None:
    tactic = module.tactics.get(call.name)
    scope = Scope(module, lambda knob, values: values[0], calls=calls)
    if tactic is None or call.name in calls or len(tactic.params) != len(call.operands):
        expand(scope, [call])
    else:
        _check_body(module, tactic.body, (*calls, call.name), knobs)
