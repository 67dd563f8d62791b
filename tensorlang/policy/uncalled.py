"""What can be said against schedules and tactics before an operator is called: without sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tensorlang.check.module import Module
from tensorlang.check.problems import did_you_mean
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import CompileError, Diagnostic, Edit, Span, error
from tensorlang.policy.roles.match import form_of, guard_facts
from tensorlang.schedule.expand import Scope, choices, expand
from tensorlang.schedule.guards import Fact, evaluate, passed
from tensorlang.schedule.knobs import no_knob
from tensorlang.syntax import nodes as sx
from tensorlang.targets import WRITTEN


def check_schedules(module: Module) -> list[Diagnostic]:
    """Return what is wrong with the module's own schedules and tactics, as far as it can be told without sizes: one diagnostic each."""
    out: list[Diagnostic] = []
    for schedule in module.schedules[: module.declared_schedules]:
        try:
            _check(module, schedule)
        except CompileError as refused:
            out += refused.diagnostics
    return out


def check_heads(module: Module) -> None:
    """Raise CompileError where one of the module's own schedules would never be looked at: S0501, there is no such operator, S0513, there
    is no such target."""
    problems: list[Diagnostic] = []
    for schedule in module.schedules[: module.declared_schedules]:
        try:
            _check_head(module, schedule)
        except CompileError as refused:
            problems += refused.diagnostics
    if problems:
        raise CompileError(*problems)


def check_written(module: Module, schedule: sx.Schedule, knobs: Mapping[str, int]) -> None:
    """Check a schedule of an operator and the names of `knobs`. Raises CompileError S05xx."""
    env = _check_guards(module, schedule)
    declared: set[str] = set()
    _check_body(_Body(module, env, declared, schedule.target), schedule.body)
    for name in knobs:
        if name not in declared:
            raise no_knob(name, sorted(declared), schedule)


def _check(module: Module, schedule: sx.Schedule) -> None:
    _check_head(module, schedule)
    env = _check_role(schedule, schedule.role) if schedule.role is not None else _check_guards(module, schedule)
    _check_body(_Body(module, env, set(), schedule.target, role=schedule.role is not None), schedule.body)


def _check_head(module: Module, schedule: sx.Schedule) -> None:
    if schedule.target not in WRITTEN:
        title = f"there is no target `{schedule.target}`"
        span = _word(schedule, "for", schedule.target)
        called = _CALLED.get(schedule.target.lower())
        kinds = "schedules are for " + " or for ".join(f"`{name}`" for name in WRITTEN)
        help = f"it is called `{called}` here" if called else did_you_mean(schedule.target, WRITTEN, kinds)
        raise error("S0513", title, span, help=help, edits=(Edit(span, called),) if called else ())
    if schedule.role is None and schedule.operator not in module.operators:
        own = [name for name in module.operators if name in module.declared]
        there = f"the operators here are {', '.join(f'`{name}`' for name in own)}" if own else "declare it, or rename the schedule"
        help = did_you_mean(schedule.operator, module.operators, there)
        raise error("S0501", f"there is no operator `{schedule.operator}`", _word(schedule, "schedule", schedule.operator), help=help)


_CALLED = {
    **dict.fromkeys(("nvidia", "nvptx", "ptx"), "cuda"),
    **dict.fromkeys(("amd", "amdgpu", "rocm"), "hip"),
    "device": "gpu",
    **dict.fromkeys(("x86", "x86_64", "llvm", "host", "avx2", "avx512", "arm", "aarch64", "neon", "c"), "cpu"),
}
"""What other tools call the targets."""


def _word(schedule: sx.Schedule, before: str, word: str) -> Span:
    """Return where a word of the head of a schedule stands: the one that follows `before`."""
    span = schedule.span
    found = re.search(rf"\b{before}\s+`?({re.escape(word)})\b", span.source.text[span.start : span.end])
    return span if found is None else Span(span.source, span.start + found.start(1), span.start + found.end(1))


def _check_role(schedule: sx.Schedule, role: sx.Role) -> dict[str, Fact]:
    """Return what guards and conditions may ask for, once the guards are seen to."""
    form_of(schedule.target, role)
    env = guard_facts(role)
    for guard in schedule.guards:
        evaluate(guard, env)
    return env


def _check_guards(module: Module, schedule: sx.Schedule) -> dict[str, Fact]:
    """Return what guards and conditions may ask for, once the guards are seen to."""
    declaration = module.operators[schedule.operator]
    env: dict[str, Fact] = {p.name: () if p.pack else None for p in declaration.params if p.kind != "tensor"}
    for param in declaration.params:
        if isinstance(param.type, sx.TensorType):
            for dim in param.type.dims or ():
                for node in (dim, *descendants(dim)):
                    if isinstance(node, sx.Id):
                        env.setdefault(node.name, () if isinstance(dim, sx.Pack | sx.Broadcast) else None)
    for guard in schedule.guards:
        evaluate(guard, env)
    return env


@dataclass(frozen=True, slots=True)
class _Body:
    """Where directives stand: what their conditions may ask for, the knobs declared so far, and the tactics whose calls lead there."""

    module: Module
    env: dict[str, Fact]
    knobs: set[str]
    target: str
    calls: tuple[str, ...] = ()
    role: bool = False


def _check_body(where: _Body, body: Sequence[sx.Directive | sx.Knobs]) -> None:
    """Check directives whether or not their conditions hold."""
    for part in body:
        if isinstance(part, sx.Knobs):
            for knob in part.knobs:
                choices(knob)
                if knob.name in where.knobs:
                    raise error("S0510", f"knob `{knob.name}` is declared twice", knob.span, help="rename one of them, or delete it")
                where.knobs.add(knob.name)
                where.env[knob.name] = None
            continue
        at = where
        if part.pattern is not None:
            form_of(where.target, part.pattern)
            at = replace(where, env={**where.env, **guard_facts(part.pattern)}, role=True)
        if part.condition is not None:
            evaluate(part.condition, at.env, "a condition")
        if part.call:
            _check_call(at, part)


def _check_call(where: _Body, call: sx.Directive) -> None:
    tactic = where.module.tactics.get(call.name)
    if tactic is None or call.name in where.calls or len(tactic.params) != len(call.operands):
        scope = Scope(where.module, lambda knob, values: values[0], calls=where.calls)
        expand(scope, [replace(call, condition=None)])
        return
    before = set(where.knobs)
    env = _counted(where, tactic, call) | passed(where.env, tactic.params, call.operands)
    inside = _Body(where.module, env, where.knobs, where.target, (*where.calls, call.name), where.role)
    _check_body(inside, tactic.body)
    where.env.update(dict.fromkeys(where.knobs - before))


def _counted(where: _Body, tactic: sx.Tactic, call: sx.Directive) -> dict[str, Fact]:
    """Return what conditions may ask of arguments that are numbers, or in the schedule of a role loops."""
    out: dict[str, Fact] = {}
    for param, argument in zip(tactic.params, call.operands, strict=True):
        if not isinstance(argument, sx.Id | sx.Pack):
            out[param] = None
        elif where.role:
            out[param] = ()
    return out
