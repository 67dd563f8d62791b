"""From a program to the proven plan of the schedule that it runs under: one that is given, one that rules choose, or a derived one.

    program ─given, chosen or derived→ schedule ─apply, prove→ plan

Back ends differ in what they derive and in what becomes of a plan, not in this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from codegen.forks import Lock
from tensorlang.bounded_cache import BoundedCache
from tensorlang.check.module import Module, reached
from tensorlang.diagnostics import CompileError, InternalError, warn_of_fault
from tensorlang.policy.complete import completed, is_partial
from tensorlang.policy.deriver import samples_of
from tensorlang.policy.machine import Machine
from tensorlang.policy.select import applicable, search, stated_for, where
from tensorlang.schedule.cases import case_of
from tensorlang.schedule.check import proven
from tensorlang.schedule.guards import guard_env
from tensorlang.schedule.idle import idle_directives
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.parts import directives_of_parts
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.storage import stored_as
from tensorlang.syntax import nodes as sx
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.segments import parts_of

UNDECIDED = "S0400"
"""What a schedule is refused for whose proof does not end. It may be right; one that is derived for known sizes should never be wrong."""
Dump = Callable[[str, str], None]
"""Called with the name of a stage and its text."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Schedules to choose from, as `tensorlang.policy.select.search` does: those of a module, for an operator or (None) for any program
    that has the shape of a role."""

    module: Module = field(repr=False)
    operator: str | None = None
    attrs: Mapping[str, object] = field(default_factory=dict)
    sizes: Mapping[str, object] = field(default_factory=dict)
    knobs: Mapping[str, int] = field(default_factory=dict)
    at: Mapping[str, int] | None = None
    """Sizes at which guards are decided and schedules of roles chosen, where the program leaves sizes open."""
    target: str = "cpu"
    text: str | None = field(default=None, repr=False)
    """What `stated` returns, where many kernels share the rules."""
    sampled: bool = False
    """Whether the choice is for the sizes `at` alone: where what suits them is refused, nothing that suits any sizes stands in for it."""
    cases: bool = True
    """Whether ranges of sizes may have loops of their own, where the program leaves sizes open."""

    def key(self, program: Program) -> tuple[str, ...]:
        """Return whatever the choice depends on besides the program, its storage and the machine."""
        knobs, attrs = repr(sorted(self.knobs.items())), repr(sorted(self.attrs.items()))
        samples = repr(sorted(samples_of(program, self.at or {}).items()))
        alone = () if self.cases else ("for any sizes",)
        return (*self.written(program), self.text or stated(self.module, self.operator), knobs, attrs, samples, *alone)

    @property
    def of_roles(self) -> Rules:
        """Those for any program that has the shape of a role."""
        return replace(self, operator=None, attrs={}, sizes={}, knobs={}, text=None)

    def is_written(self, program: Program) -> bool:
        """Tell whether the module states a schedule for the operator that applies to the program."""
        return self.written(program)[0] != "None"

    def written(self, program: Program) -> tuple[str, ...]:
        """Return the schedule that the module states for the operator and that applies to the program, by its name, and its case."""
        if self.operator is None:
            return ("None",)
        env = guard_env(self.module, self.operator, program, self.attrs, self.sizes, self.at or {})
        name = applicable(self.module, self.operator, self.target, env)
        found = next((s for s in self.module.schedules if where(s) == name), None)
        return (str(name), *(case_of(found.body, env)[0] if found is not None else ()))


def stated(module: Module, operator: str | None) -> str:
    """Return a digest of the schedules that `module` states for `operator` and for roles, with the tactics they may use."""
    schedules = [s for s in module.schedules if s.role is not None or s.operator == operator]
    instructions = [(name, _digest(i)) for name, i in module.instructions.items()]
    called = [[_digest(d) for d in reached(module, name)] for name in module.instructions if name in module.operators]
    tactics = [(name, _digest(tactic)) for name, tactic in module.tactics.items()]
    text = repr(([(_digest(s), where(s)) for s in schedules], tactics, instructions, called))
    return hashlib.sha256(text.encode()).hexdigest()


_DIGESTS: BoundedCache[int, tuple[sx.Node, str]] = BoundedCache(1024)
"""By the identity of nodes, which are kept so that no other gets it."""
_LOCK = Lock()


def _digest(node: sx.Node) -> str:
    """Return a digest of a node of the syntax, worked out once: modules share them."""
    with _LOCK:
        return _DIGESTS.used(id(node), lambda: (node, hashlib.sha256(repr(node).encode()).hexdigest()))[1]


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """The schedule that somebody wants a program to run under: `schedule`, with values of its `knobs`, or one that `rules` choose; a
    derived one where there is neither."""

    schedule: Schedule | None = None
    rules: Rules | None = None
    knobs: Mapping[str, int] = field(default_factory=dict)
    origin: str = "given"
    """Where `schedule` is from, as reports say it."""


def by_parts(program: Program, request: ScheduleRequest) -> list[tuple[Program, ScheduleRequest]]:
    """Return what is compiled of a program, and the schedule of each part: those between calls of kernels that are not in the language, or
    the program itself. Of a schedule that somebody wrote each directive goes to the part that it is about; a part that none is about is
    scheduled as if it were alone.

    Raises CompileError S0605 for a directive that reaches across a call, and what a schedule is refused for."""
    if not program.externs:
        return [(program, request)]
    parts = parts_of(program)
    written, origin, knobs = request.schedule, request.origin, request.knobs
    rules = request.rules
    if rules is not None and written is None:
        chosen = stated_for(rules.module, rules.operator, program, rules.attrs, rules.target, rules.sizes, rules.knobs, rules.at)
        written, origin, knobs = (None, "", {}) if chosen is None else (chosen.schedule, chosen.origin, {})
        rules = rules.of_roles
    own = directives_of_parts(program, parts, written, knobs) if written is not None else {}
    alone = ScheduleRequest(rules=rules)
    return [(part, ScheduleRequest(own[part.name], knobs=knobs, origin=origin) if part.name in own else alone) for part in parts]


@dataclass(frozen=True, slots=True)
class Scheduled:
    schedule: Schedule
    plan: Plan
    origin: str
    tried: tuple[str, ...] = ()
    of_roles: bool = False
    """Whether it was made of schedules of roles: nobody wrote it for this program."""
    left_out: tuple[str, ...] = ()
    """A sentence for each directive whose condition does not hold."""

    def __str__(self) -> str:
        """Return the schedule as text; a comment says what is trusted, and names each directive that changes nothing, or was left out."""
        trusted = (self.plan.trusted,) if self.plan.trusted else ()
        return "\n".join([str(self.schedule), *(f"# {sentence}" for sentence in (*trusted, *self.plan.idle, *self.left_out))])

    def with_idle(self, idle: tuple[str, ...]) -> Scheduled:
        """Return it with a sentence for each further directive that changes nothing."""
        return replace(self, plan=replace(self.plan, idle=(*self.plan.idle, *idle)))


def planned(
    program: Program,
    machine: Machine,
    request: ScheduleRequest,
    derived: Callable[[dict[str, Storage]], Iterator[tuple[str, Schedule]]],
    layouts: Mapping[str, Layout] | None = None,
    constants: frozenset[str] = frozenset(),
) -> Scheduled:
    """Return the proven plan of a schedule for a machine. `derived`, told how the caller stores inputs and results, yields what is derived
    where nobody wrote a schedule and how reports call that, a plainer one after each whose proof does not end; `layouts` are those that
    are not row-major, `constants` inputs that never change.

    Raises CompileError when a schedule cannot be read or is refused."""
    stored = stored_as(program, layouts or {})
    if request.schedule is not None:

        def rest() -> Schedule:
            return planned(program, machine, replace(request, schedule=None, knobs={}), derived, layouts, constants).schedule

        schedule, sentences = _whole(program, request.schedule, machine, stored, request.knobs, rest)
        given = Scheduled(schedule, proven(program, schedule, stored, request.knobs), request.origin, left_out=sentences)
        return _written(program, given, stored, request)
    tried: tuple[str, ...] = ()
    rules = request.rules
    if rules is not None:
        found = search(
            rules.module,
            rules.operator,
            program,
            rules.attrs,
            machine.target,
            machine,
            sizes=rules.sizes,
            knobs=rules.knobs,
            layouts=stored,
            constants=constants,
            at=rules.at,
            sampled=rules.sampled,
        )
        tried, chosen = tuple(map(str, found.tried)), found.chosen
        if chosen is not None:

            def others() -> Schedule:
                return planned(program, machine, ScheduleRequest(rules=rules.of_roles), derived, layouts, constants).schedule

            schedule, sentences = _whole(program, chosen.schedule, machine, stored, {}, others)
            plan = chosen.plan if chosen.plan is not None else proven(program, schedule, stored)
            of_roles = chosen.plan is not None
            made = Scheduled(schedule, plan, chosen.origin, tried, of_roles, (*chosen.left_out, *sentences))
            return made if of_roles else _written(program, made, stored, request)
    refusal: CompileError | None = None
    refuted = ""
    for name, schedule in derived(stored):
        try:
            plan = proven(program, schedule, stored, advised=False, blamed=False)
        except CompileError as refused:
            problem = refused.diagnostics[0]
            tried, refusal = (*tried, f"{name}: refused: {problem.title}"), refused
            refuted = refuted if problem.code == UNDECIDED else problem.title
        else:
            if refuted and not program.sizes:
                warn_of_fault(f"what is derived for `{program.name}` is refused, and a plainer schedule stands in for it: {refuted}")
            return Scheduled(schedule, plan, "derived", tried)
    raise refusal or InternalError("schedule", f"nothing is derived for `{program.name}`")


def _whole(
    program: Program,
    schedule: Schedule,
    machine: Machine,
    stored: dict[str, Storage],
    knobs: Mapping[str, int],
    rest: Callable[[], Schedule],
) -> tuple[Schedule, tuple[str, ...]]:
    """Return a schedule with what it leaves to derive, and a sentence for each decision in that."""
    if not is_partial(schedule):
        return schedule, ()
    found = completed(program, schedule, machine, stored, knobs, rest)
    return found.schedule, found.sentences


def _written(program: Program, scheduled: Scheduled, stored: dict[str, Storage], request: ScheduleRequest) -> Scheduled:
    """Return a schedule that somebody wrote, with a sentence for each of its directives that makes no difference."""
    knobs = request.knobs if request.schedule is not None else None
    return scheduled.with_idle(tuple(idle_directives(program, scheduled.schedule, scheduled.plan, stored, knobs)))
