"""Which schedule an operator runs under, when nobody says.

    the user's schedule of the operator        schedule linear for cpu(M >= 64, N >= 64) { … }
    the user's schedules of roles              schedule role contraction(y, a, b; batch.., i.., j.., k..) for cpu { … }
    the library's schedule of the operator
    the library's schedules of roles
    nothing: the driver derives one

Of several the first is taken whose guards all hold; of roles for products on a graphics processor, which cost what a model of it says, the
cheapest. A schedule of an operator that is refused is an error, its author's to mend; one of
a role is a guess about shapes its author never saw, so it is proven here, and when it is refused the next one is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from polyhedral.expr import Name as AffineName
from tensorlang.check.module import Module
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import CompileError
from tensorlang.policy.cpu.derive import derive_strip
from tensorlang.policy.cpu.inlined_terms import with_inlined_terms
from tensorlang.policy.cpu.nested_rows import shared_strips
from tensorlang.policy.cpu.recurrences import is_joined
from tensorlang.policy.cpu.row_chains import restrict_rows, row_chain
from tensorlang.policy.cpu.row_epilogues import block_of_rows, finished
from tensorlang.policy.cpu.scatter_fusion import with_fused_scatters
from tensorlang.policy.cpu.step_rows import with_rows_apart
from tensorlang.policy.cpu.strips import Strip
from tensorlang.policy.cpu.unread import without_unread
from tensorlang.policy.deriver import Deriver, deriver, samples_of
from tensorlang.policy.gpu.derive import derive_device_group, device_deriver
from tensorlang.policy.groups import FusionGroup, fusion_groups, recurs
from tensorlang.policy.machine import GpuMachine, Machine
from tensorlang.policy.pointwise import stored_axis
from tensorlang.policy.roles.match import Match, copies_of, form_of, guard_facts, match_role, matcher, spread_over
from tensorlang.schedule.cases import Choose, by_sizes, none_holds
from tensorlang.schedule.check import proven
from tensorlang.schedule.expand import WITH_POSITIONS, Scope, expand
from tensorlang.schedule.guards import Fact, guard_env, plain, unmet
from tensorlang.schedule.instructions import named
from tensorlang.schedule.knobs import no_knob, picker
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import contraction
from tensorlang.syntax import nodes as sx
from tensorlang.targets import serves
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.walk import program_names


@dataclass(frozen=True, slots=True)
class Attempt:
    """A schedule that was looked at and not taken."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """`schedule` holds directives alone, with the values of `knobs` in their place; `origin` says where it was written."""

    schedule: Schedule
    knobs: Mapping[str, int]
    origin: str
    tried: tuple[Attempt, ...] = ()
    plan: Plan | None = field(default=None, compare=False, repr=False)
    """The proven plan, where choosing took a proof."""
    left_out: tuple[str, ...] = field(default=(), compare=False)
    """A sentence for each directive whose condition does not hold."""
    assumed: tuple[sx.Compare, ...] = field(default=(), compare=False)
    """What holds in the case that was chosen, where it has cases."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for a program: perhaps a schedule, and what was looked at and not taken."""

    chosen: Chosen | None
    tried: tuple[Attempt, ...]


@dataclass(slots=True)
class _Request:
    module: Module
    program: Program
    target: str
    machine: Machine
    knobs: Mapping[str, int]
    layouts: Mapping[str, Storage]
    constants: frozenset[str]
    at: Mapping[str, int] = field(default_factory=dict)
    sampled: bool = False
    tried: list[Attempt] = field(default_factory=list)


def search(
    module: Module,
    operator: str | None,
    program: Program,
    attrs: Mapping[str, object],
    target: str,
    machine: Machine,
    *,
    sizes: Mapping[str, object] | None = None,
    knobs: Mapping[str, int] | None = None,
    layouts: Mapping[str, Storage] | None = None,
    constants: frozenset[str] = frozenset(),
    at: Mapping[str, int] | None = None,
    sampled: bool = False,
) -> Found:
    """Return the schedule that `module` states for `operator` instantiated as `program`, where it states one that applies, and all that was
    tried. `operator` None: a program that is no operator's, so only roles apply. `layouts` and `constants` as for `derive`. `at`: values
    for the guards of the operator's schedules to see in place of the program's sizes, and samples of these for schedules of roles. With
    `sampled` nothing that suits any sizes stands in for those of roles that suit the samples and are refused.

    Raises CompileError S05xx for a schedule that cannot be read and for knobs that it does not have."""
    request = _Request(module, program, target, machine, knobs or {}, layouts or {}, constants, at or {}, sampled)
    own, library = module.schedules[: module.declared_schedules], module.schedules[module.declared_schedules :]
    env = guard_env(module, operator, program, attrs, sizes or {}, at or {})
    decided = guard_env(module, operator, program, attrs, sizes or {}, {}) if at else env
    found = (
        _of_operator(request, operator, own, env, decided)
        or _of_roles(request, own, own)
        or _of_operator(request, operator, library, env, decided)
        or _of_roles(request, library, module.schedules)
    )
    if found is None and request.knobs:
        raise no_knob(next(iter(request.knobs)), (), None)
    return Found(found, tuple(request.tried))


def stated_for(
    module: Module,
    operator: str | None,
    program: Program,
    attrs: Mapping[str, object],
    target: str,
    sizes: Mapping[str, object],
    knobs: Mapping[str, int],
    at: Mapping[str, int] | None,
) -> Chosen | None:
    """Return the schedule that `module` states for an operator and that applies, whatever roles there are; the rest is as for `search`.

    Raises CompileError S05xx for a schedule that cannot be read and for knobs that it does not have."""
    request = _Request(module, program, target, Machine(target=target), knobs, {}, frozenset())
    env = guard_env(module, operator, program, attrs, sizes, at or {})
    found = _of_operator(request, operator, module.schedules, env, guard_env(module, operator, program, attrs, sizes, {}) if at else env)
    if found is None and knobs:
        raise no_knob(next(iter(knobs)), (), None)
    return found


def applicable(module: Module, operator: str, target: str, env: Mapping[str, Fact]) -> str | None:
    """Return the name (`where`) of the operator's first schedule whose guards all hold in `env`, or None."""
    for schedule in module.schedules:
        fits = schedule.role is None and schedule.operator == operator and serves(schedule.target, target)
        if fits and unmet(schedule, env) is None:
            return where(schedule)
    return None


def read(
    module: Module,
    written: sx.Schedule,
    program: Program,
    knobs: Mapping[str, int] | None = None,
    *,
    attrs: Mapping[str, object] | None = None,
    sizes: Mapping[str, object] | None = None,
    choose: Choose = none_holds,
) -> Chosen:
    """Return a schedule of an operator as directives alone, whatever its guards say. It sees the program's attributes and sizes, and
    `choose` chooses between its cases.

    Raises CompileError S05xx for a schedule that cannot be read."""
    request = _Request(module, program, written.target, Machine(target=written.target), knobs or {}, {}, frozenset())
    env = guard_env(module, written.operator, program, attrs or {}, sizes or {}, {})
    return _expanded(request, written.operator if written.operator in module.operators else None, written, env, choose)


def at_sizes(module: Module, schedule: Schedule, program: Program, attrs: Mapping[str, object], sizes: Mapping[str, object]) -> Schedule:
    """Return a schedule that was not read with numbers in expressions over loops and sizes, for the sizes that are known when compiling."""
    if not any(d.name in WITH_POSITIONS for d in schedule.directives):
        return schedule
    scope = Scope(module, picker({}, [], None), env=guard_env(module, schedule.operator, program, attrs, sizes, {}))
    return replace(schedule, directives=tuple(expand(scope, schedule.directives)))


def conditional(module: Module, written: sx.Schedule) -> bool:
    """Tell whether directives of a schedule, or of the tactics that it may call, have conditions or are about such."""
    bodies, seen = [written.body], set[str]()
    while bodies:
        directives = [part for part in bodies.pop() if isinstance(part, sx.Directive)]
        if any(d.condition is not None or any(isinstance(o, sx.Compare) for o in d.operands) for d in directives):
            return True
        called = {d.name for d in directives if d.call and d.name in module.tactics} - seen
        seen |= called
        bodies += [module.tactics[name].body for name in called]
    return False


# ---------------------------------------------------------------- schedules of operators


def _of_operator(
    request: _Request, operator: str | None, written: Sequence[sx.Schedule], env: Mapping[str, Fact], decided: Mapping[str, Fact]
) -> Chosen | None:
    """Return the first schedule of the operator whose guards hold in `env`. Its conditions see what is `decided`: what is the
    same for all calls that the kernel serves."""
    for schedule in written:
        if operator is None or schedule.role is not None or schedule.operator != operator:
            continue
        if not serves(schedule.target, request.target):
            request.tried.append(Attempt(where(schedule), f"it is for `{schedule.target}`"))
            continue
        why = unmet(schedule, env)
        if why is not None:
            request.tried.append(Attempt(where(schedule), why))
            continue
        return _expanded(request, operator, schedule, decided, by_sizes(env))
    return None


def _expanded(request: _Request, operator: str | None, written: sx.Schedule, env: Mapping[str, Fact], choose: Choose) -> Chosen:
    declared: list[str] = []
    pick = picker(request.knobs, declared, None)
    scope = Scope(request.module, pick, packs=_packs(request, operator), env=env, choose=choose)
    scope.find = _finder(request, declared)
    directives = expand(scope, written.body)
    for name in request.knobs:
        if name not in declared:
            raise no_knob(name, declared, written)
    schedule = Schedule(written.operator, request.target, tuple(directives), named(request.module, directives))
    left_out, assumed = tuple(scope.left_out), tuple(scope.assumed)
    return Chosen(schedule, scope.knobs, where(written), tuple(request.tried), left_out=left_out, assumed=assumed)


def _packs(request: _Request, operator: str | None) -> dict[str, tuple[str, ...]]:
    """Return the packs of indices that the operator writes, with the names they have in the program."""
    names = program_names(request.program)
    declaration = request.module.operators.get(operator or "")
    written = (
        {n.name for p in descendants(declaration) if isinstance(p, sx.Pack) for n in descendants(p) if isinstance(n, sx.Id)}
        if declaration
        else set()
    )
    out = {
        n: tuple(sorted((x for x in names if x.startswith(f"{n}.") and x[len(n) + 1 :].isdigit()), key=lambda x: int(x[len(n) + 1 :])))
        for n in written
    }
    return out


def where(schedule: sx.Schedule) -> str:
    """Return how people call a schedule: `schedule linear for cpu (my.tl:4)`."""
    role = "role " if schedule.role is not None else ""
    source = schedule.span.source
    place = f" ({source.name}:{source.location(schedule.span.start)[0]})" if source.text else ""
    guards = f"({', '.join(plain(g) for g in schedule.guards)})" if schedule.guards else ""
    return f"schedule {role}{schedule.operator} for {schedule.target}{guards}{place}"


# ---------------------------------------------------------------- schedules of roles


@dataclass(slots=True)
class _Part:
    """A group of definitions and the schedules of roles that fit it, the next one to try first."""

    group: FusionGroup
    candidates: list[tuple[sx.Schedule, Match]]
    strip: Strip
    directives: tuple[sx.Directive, ...] = ()
    origin: str | None = None
    knobs: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    inside: _Inside | None = None


@dataclass(frozen=True, slots=True)
class _Inside:
    """Where a part is computed: in `loop` of the part `reader`, `rows` rows at a time along its axis `axis`.

    `copies`: loops of the part and the loops of the reader that stand around them; what is copied there serves all blocks."""

    reader: _Part
    loop: str
    axis: int
    rows: int
    copies: Mapping[str, str]


def _of_roles(request: _Request, wanted: Sequence[sx.Schedule], written: Sequence[sx.Schedule]) -> Chosen | None:
    """Return a schedule made of schedules of roles, at least one of them among `wanted`, and derived ones where no role fits; of those for
    samples of open sizes, where all of them are refused and others may stand in, what suits whatever the sizes are."""
    roles = [s for s in written if s.role is not None and serves(s.target, request.target)]
    if not any(s in wanted for s in roles):
        return None
    on_device = isinstance(request.machine, GpuMachine)
    if on_device:
        d = device_deriver(request.program, request.machine, request.layouts)
    else:
        d = deriver(request.program, request.machine, request.layouts, request.constants, request.at)
    own = any(s.role is not None for s in request.module.schedules[: request.module.declared_schedules])
    d = d if on_device or own else with_rows_apart(with_inlined_terms(d))
    found = fusion_groups(d, vectors=not on_device)
    cut = [Strip(c) for c in found] if on_device or own else shared_strips(d, found)
    parts = [_Part(c.group, _candidates(request, roles, d, c), c) for c in cut]
    if not any(s in wanted for part in parts for s, _ in part.candidates):
        return None
    _settle_all(request, d, parts)
    while any(part.origin is not None for part in parts):
        around_first = sorted(parts, key=lambda part: part.inside is not None)
        directives = (*d.schedule.directives, *(x for part in around_first for x in part.directives))
        schedule = Schedule(request.program.name, request.target, directives, named(request.module, directives))
        schedule = schedule if on_device else without_unread(d, with_fused_scatters(d, schedule))
        several = sum(part.origin is not None for part in parts) > 1
        try:
            plan = proven(request.program, schedule, request.layouts, advised=False, blamed=several)
        except CompileError as refused:
            part = _blamed(parts, refused)
            request.tried.append(Attempt(part.origin or "", f"refused: {refused.diagnostics[0].title}"))
            part = part.inside.reader if part.inside is not None else part
            part.candidates = part.candidates[1:]
            _settle_all(request, d, parts)
            continue
        return _assembled(request, schedule, parts, plan)
    if request.sampled or not samples_of(request.program, request.at):
        return None
    return _of_roles(replace(request, at={}), wanted, written)


def _has_own_loops(d: Deriver, group: FusionGroup) -> bool:
    """Tell whether nothing of a group runs in loops of a recurrence, which takes deriving these."""
    alone = replace(d, alone=True)
    return isinstance(d.machine, GpuMachine) or not any(not recurs(d.program, m) and is_joined(alone, m) for m in group.members)


def _assembled(request: _Request, schedule: Schedule, parts: Sequence[_Part], plan: Plan) -> Chosen:
    knobs = {name: value for part in parts for name, value in part.knobs.items()}
    for name in request.knobs:
        if name not in knobs:
            raise no_knob(name, tuple(knobs), None)
    origins = dict.fromkeys(part.origin for part in parts if part.origin is not None)
    left_out = tuple(dict.fromkeys(sentence for part in parts for sentence in part.left_out))
    return Chosen(schedule, knobs, "; ".join(o for o in origins if o), tuple(request.tried), plan, left_out)


def _candidates(request: _Request, roles: Sequence[sx.Schedule], d: Deriver, strip: Strip) -> list[tuple[sx.Schedule, Match]]:
    """Return the schedules of roles for the group of a strip, unless it shares loops with others, whose guards hold: the least cost first,
    and of the same cost in the order in which they are written; the user's before those of the library."""
    own = request.module.schedules[: request.module.declared_schedules]
    found: list[tuple[sx.Schedule, Match]] = []
    matching = matcher(d, strip.group)
    shared = bool(strip.inside) or strip.group.fused or strip.group.joint
    matches = [(s, match) for s in roles if not shared and s.role is not None and (match := matching(s.role)) is not None]
    for schedule, match in matches if matches and _has_own_loops(d, strip.group) else ():
        assert schedule.role is not None
        why = unmet(schedule, {**guard_facts(schedule.role), **match.facts})
        if why is None:
            found.append((schedule, match))
        else:
            request.tried.append(Attempt(where(schedule), f"for `{strip.group.head.tensors[0].name}`, {why}"))
    return sorted(found, key=lambda candidate: (candidate[0] not in own, candidate[1].cycles))


def _settle_all(request: _Request, d: Deriver, parts: Sequence[_Part]) -> None:
    """Give every part directives, readers first: they say where what they read is computed."""
    for part in parts:
        part.inside = None
    for part in reversed(parts):
        _settle(request, d, part, parts)


def _settle(request: _Request, d: Deriver, part: _Part, parts: Sequence[_Part]) -> None:
    """Give a part the directives of its first candidate, or derived ones."""
    inside = part.inside
    if not part.candidates:
        alone = d if inside is None else replace(d, machine=replace(d.machine, threads=1))
        derived = derive_device_group(alone, part.group) if isinstance(d.machine, GpuMachine) else derive_strip(alone, part.strip)
        part.directives, part.origin, part.knobs, part.left_out = derived.directives, None, {}, ()
    else:
        schedule, match = part.candidates[0]
        assert schedule.role is not None
        block = match_role(d, restrict_rows(part.group, inside.axis, inside.rows), schedule.role) if inside is not None else None
        if block is not None:
            match = replace(match, tiles=block.tiles, extents=block.extents, facts={**match.facts, "together": block.facts["together"]})
        if inside is not None:  # all blocks of rows read what is copied once
            match = replace(match, facts={n: 0 if n.endswith(".apart") else fact for n, fact in match.facts.items()})
        scope = _scope_of(request, d, match, schedule.role)
        if not isinstance(d.machine, GpuMachine) and inside is None:
            scope.spread = spread_over(d, part.group, scope)
        part.directives, part.origin = (*_distributed(part.group), *expand(scope, schedule.body)), where(schedule)
        part.knobs, part.left_out = scope.knobs, tuple(scope.left_out)
        _feed(d, part, scope, parts)
    if inside is not None:
        part.directives = (*(_copied(x, inside) for x in part.directives), *_computed_at(part, inside))


def _scope_of(request: _Request, d: Deriver, match: Match, role: sx.Role, declared: list[str] | None = None) -> Scope:
    """Return what the names of a role stand for in an equation that has it; `declared` is told which knobs there are."""
    scope = Scope(
        request.module,
        picker(request.knobs, [] if declared is None else declared, match.tiles),
        names={n: tuple(sx.Id(x) for x in values) for n, values in match.names.items()},
        role=True,
        stages=dict(match.stages),
        taken=frozenset(program_names(d.program)),
        stored=frozenset(d.layouts),
        extents=dict(match.extents),
        axes=dict(match.axes),
        indexed=match.indexed,
        env={**guard_facts(role), **match.facts},
    )
    scope.names |= {n: (sx.Number(str(int(v))),) for n, v in match.facts.items() if isinstance(v, int)}
    scope.copy_of = copies_of(d)
    if isinstance(d.machine, GpuMachine):
        scope.spread = None
    return scope


def _finder(request: _Request, declared: list[str]) -> Callable[[sx.Role], Sequence[Scope]]:
    """Return what finds the equations of a role in the program, as the operator has it, and what its names stand for in each."""

    def find(role: sx.Role) -> list[Scope]:
        form_of(request.target, role)
        on_device = isinstance(request.machine, GpuMachine)
        if isinstance(request.machine, GpuMachine):
            d = device_deriver(request.program, request.machine, request.layouts)
        else:
            d = deriver(request.program, request.machine, request.layouts, request.constants, request.at)
        out: list[Scope] = []
        for group, match in _having(d, role, fusion_groups(d, vectors=not on_device)):
            out.append(_scope_of(request, d, match, role, declared))
            if not on_device:
                out[-1].spread = spread_over(d, group, out[-1])
        return out

    return find


def _having(d: Deriver, role: sx.Role, groups: Sequence[FusionGroup]) -> Iterator[tuple[FusionGroup, Match]]:
    """Yield the groups that have a role and what its names stand for there; of a group that has not, the members that have it alone."""
    for group in groups:
        match = match_role(d, group, role)
        if match is not None:
            yield group, match
            continue
        for member in group.members if len(group.members) > 1 else ():
            alone = FusionGroup(member, (member,), len(member.axes))
            match = match_role(d, alone, role)
            if match is not None:
                yield alone, match


def _distributed(group: FusionGroup) -> tuple[sx.Directive, ...]:
    """Return what gives each clause of a tensor loops of its own, where it has several: the schedule of a role is about one."""
    return (sx.Directive("distribute", (sx.Id(group.head.tensors[0].name),)),) if len(group.head.pieces) > 1 else ()


def _feed(d: Deriver, part: _Part, scope: Scope, parts: Sequence[_Part]) -> None:
    """Note for the parts that make the rows of a product where its directives have them computed."""
    head = part.group.head
    if len(part.group.members) > 1:
        _feed_rows(d, part, parts)
        return
    axis = stored_axis(d, head) if head.axes and len(head.pieces) == 1 else None
    c = contraction(head, axis) if axis is not None else None
    placed = {_operand(x): x for x in part.directives if x.name == "at"}
    if c is None or not {c.x, c.w} & placed.keys():
        return
    made = row_chain(d, [p.group for p in parts], head, c, columns=c.x not in placed)
    if made is None:
        return
    own, loop = head.tensors[0].name, _place(placed[made.read.tensor])
    rows = 1
    for name, along in scope.axes.items():
        if along == made.axis and name not in scope.gone and name != loop:
            rows *= scope.extents.get(name) or 1
    fixed = {slot.name: at for at, slot in enumerate(made.read.index) if isinstance(slot, AffineName) and slot.name in c.batch}
    for group in made.groups:
        producer = next(p for p in parts if p.group is group)
        made_of = group.head
        copies = {f"{made_of.tensors[0].name}.{made_of.axes[at]}": f"{own}.{name}" for name, at in fixed.items()}
        producer.inside = _Inside(part, loop, made.row, rows, copies)


def _feed_rows(d: Deriver, part: _Part, parts: Sequence[_Part]) -> None:
    """Note for products whose rows a part finishes in which loop over blocks of rows its directives have them computed."""
    placed = {_operand(x): _place(x) for x in part.directives if x.name == "at"}
    products = finished(d, [p.group for p in parts], part.group)
    rows = block_of_rows(d, part.group, products)
    for group in products:
        loop = placed.get(group.head.tensors[0].name)
        if loop is not None:
            producer = next(p for p in parts if p.group is group)
            producer.inside = _Inside(part, loop, part.group.depth - 1, rows, {})


def _operand(d: sx.Directive) -> str:
    [operand] = d.operands
    return operand.name if isinstance(operand, sx.Id) else ""


def _place(d: sx.Directive) -> str:
    """Return the loop after `at` in a directive, or nothing."""
    found = [o.name for p in d.phrases if p.preposition == "at" for o in p.operands if isinstance(o, sx.Id)]
    return found[0] if found else ""


def _copied(d: sx.Directive, inside: _Inside) -> sx.Directive:
    """Return the directive with what it copies copied in the loop of the reader that fixes as much."""
    to = inside.copies.get(_place(d)) if d.name == "pack" else None
    if to is None:
        return d
    return replace(d, phrases=tuple(replace(p, operands=(sx.Id(to),)) if p.preposition == "at" else p for p in d.phrases))


def _computed_at(part: _Part, inside: _Inside) -> tuple[sx.Directive, ...]:
    made = part.group.head.tensors[0].name
    if any(x.name == "at" and _operand(x) == made for x in inside.reader.directives):
        return ()
    return (sx.Directive("at", (sx.Id(made),), (sx.Phrase("at", (sx.Id(inside.loop),)),)),)


def _blamed(parts: Sequence[_Part], refused: CompileError) -> _Part:
    """Return the part whose directive the refusal points at, or the last that was not derived."""
    spans = {label.span for diagnostic in refused.diagnostics for label in diagnostic.labels[:1]}
    for part in reversed(parts):
        if part.origin is not None and any(x.span in spans for x in part.directives):
            return part
    return next(part for part in reversed(parts) if part.origin is not None)
