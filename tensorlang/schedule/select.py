"""Which schedule an operator runs under, when nobody says.

    the user's schedule of the operator        schedule linear for cpu(M >= 64, N >= 64) { … }
    the user's schedules of roles              schedule role contraction(y, a, b; batch.., i.., j.., k..) for cpu { … }
    the library's schedule of the operator
    the library's schedules of roles
    nothing: the driver derives one

Of several the first is taken whose guards all hold. A schedule of an operator that is refused is an error, its author's to mend; one of
a role is a guess about shapes its author never saw, so it is proven here, and when it is refused the next one is tried.
"""

from __future__ import annotations

import operator as functions
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.check.binder import Given, TensorArg
from tensorlang.check.bindings import Arg
from tensorlang.check.module import Module
from tensorlang.check.problems import did_you_mean
from tensorlang.check.signature import bind
from tensorlang.check.values import Idx, Num, Packed, Str, Value
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import CompileError, Diagnostic, error
from tensorlang.schedule.chains import feeding, narrowed
from tensorlang.schedule.check import proven
from tensorlang.schedule.clusters import Cluster, clusters
from tensorlang.schedule.derive import derive_cluster
from tensorlang.schedule.deriver import Deriver, deriver
from tensorlang.schedule.expand import Pick, Scope, choices, expand
from tensorlang.schedule.instructions import named
from tensorlang.schedule.machine import Machine
from tensorlang.schedule.plan import Plan, Storage
from tensorlang.schedule.pointwise import stored_axis
from tensorlang.schedule.roles import ROLES, Match, asked, match_role, spread_over
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import contraction
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show
from tensorlang.tensor import affine
from tensorlang.tensor.nodes import Program, Tensor
from tensorlang.tensor.walk import program_names

Fact: TypeAlias = int | float | bool | str | tuple[int, ...] | None
"""What a name in a guard is worth; None: only known at run time."""


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
) -> Found:
    """Return the schedule that `module` states for `operator` instantiated as `program`, where it states one that applies, and all that was
    tried. `operator` None: a program that is no operator's, so only roles apply. `layouts` and `constants` as for `derive`. `at`: values
    for the guards of the operator's schedules to see in place of the program's sizes.

    Raises CompileError S05xx for a schedule that cannot be read and for knobs that it does not have."""
    request = _Request(module, program, target, machine, knobs or {}, layouts or {}, constants)
    own, library = module.schedules[: module.own_schedules], module.schedules[module.own_schedules :]
    known = known_of(module, operator, program, attrs, sizes or {}, at or {})
    found = (
        _of_operator(request, operator, own, known)
        or _of_roles(request, own, own)
        or _of_operator(request, operator, library, known)
        or _of_roles(request, library, module.schedules)
    )
    if found is None and request.knobs:
        raise _no_knob(next(iter(request.knobs)), (), None)
    return Found(found, tuple(request.tried))


def applicable(module: Module, operator: str, target: str, known: Mapping[str, Fact]) -> str | None:
    """Return the name (`where`) of the operator's first schedule whose guards all hold for `known`, or None."""
    for schedule in module.schedules:
        if schedule.role is None and (schedule.operator, schedule.target) == (operator, target) and _unmet(schedule, known) is None:
            return where(schedule)
    return None


def facts(values: Mapping[str, Value], at: Mapping[str, int]) -> dict[str, Fact]:
    """Return what guards may ask of sizes and attributes, where sizes have the values `at`."""
    return {name: _fact(value, at) for name, value in values.items()}


def read(module: Module, written: sx.Schedule, program: Program, knobs: Mapping[str, int] | None = None) -> Chosen:
    """Return a schedule of an operator as directives alone, whatever its guards say."""
    request = _Request(module, program, written.target, Machine(), knobs or {}, {}, frozenset())
    return _expanded(request, written.operator if written.operator in module.operators else None, written)


# ---------------------------------------------------------------- schedules of operators


def _of_operator(request: _Request, operator: str | None, written: Sequence[sx.Schedule], known: Mapping[str, Fact]) -> Chosen | None:
    for schedule in written:
        if operator is None or schedule.role is not None or schedule.operator != operator:
            continue
        if schedule.target != request.target:
            request.tried.append(Attempt(where(schedule), f"it is for `{schedule.target}`"))
            continue
        why = _unmet(schedule, known)
        if why is not None:
            request.tried.append(Attempt(where(schedule), why))
            continue
        return _expanded(request, operator, schedule)
    return None


def _expanded(request: _Request, operator: str | None, written: sx.Schedule) -> Chosen:
    declared: list[str] = []
    scope = Scope(request.module, _picker(request.knobs, declared, None), packs=_packs(request, operator))
    directives = expand(scope, written.body)
    for name in request.knobs:
        if name not in declared:
            raise _no_knob(name, declared, written)
    schedule = Schedule(written.operator, written.target, tuple(directives), named(request.module, directives))
    return Chosen(schedule, scope.knobs, where(written), tuple(request.tried))


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


def _picker(given: Mapping[str, int], declared: list[str], default: Callable[[str, tuple[int, ...]], int | None] | None) -> Pick:
    """Return the choice among a knob's values: the caller's, or the default's, or the first."""

    def pick(knob: sx.Knob, values: tuple[int, ...]) -> int:
        declared.append(knob.name)
        if knob.name in given:
            if given[knob.name] not in values:
                raise error(
                    "S0507",
                    f"{given[knob.name]} is not among the values of knob `{knob.name}`",
                    knob.span,
                    help=f"they are {', '.join(map(str, values))}",
                )
            return given[knob.name]
        chosen = default(knob.name, values) if default else None
        return values[0] if chosen is None else chosen

    return pick


def _no_knob(name: str, declared: Sequence[str], written: sx.Schedule | None) -> CompileError:
    known = ", ".join(f"`{k}`" for k in declared) or "none"
    if written is None:
        return error("S0508", f"there is no knob `{name}`", help="no schedule with knobs applies here")
    return error(
        "S0508",
        f"the schedule of `{written.operator}` has no knob `{name}`",
        written.span,
        help=did_you_mean(name, declared, f"its knobs are {known}"),
    )


def where(schedule: sx.Schedule) -> str:
    """Return how people call a schedule: `schedule linear for cpu (my.tl:4)`."""
    role = "role " if schedule.role is not None else ""
    source = schedule.span.source
    place = f" ({source.name}:{source.location(schedule.span.start)[0]})" if source.text else ""
    guards = f"({', '.join(_plain(g) for g in schedule.guards)})" if schedule.guards else ""
    return f"schedule {role}{schedule.operator} for {schedule.target}{guards}{place}"


def _plain(guard: sx.Expr) -> str:
    """Return a guard as a schedule's header shows it, where dotted names need no quotes."""
    return show(guard).replace("`", "")


# ---------------------------------------------------------------- guards


def known_of(
    module: Module,
    operator: str | None,
    program: Program,
    attrs: Mapping[str, object],
    sizes: Mapping[str, object],
    at: Mapping[str, int],
) -> dict[str, Fact]:
    """Return sizes and attributes of the operator by name, found by matching its parameters' dimensions with the program's."""
    declaration = module.operators.get(operator or "")
    if declaration is None:
        return {}
    table = {p.name: p for p in program.params}
    tensors: dict[str, TensorArg] = {}
    for param in declaration.params:
        if param.kind != "tensor":
            continue
        if param.each:
            several = [t for n, t in table.items() if n.startswith(f"{param.name}.")]
            tensors[param.name] = tuple(_argument(t) for t in several)
        else:
            tensors[param.name] = _argument(table[param.name]) if param.name in table else None
    given = Given(tensors, attrs, {n: _size(s) for n, s in sizes.items()}, checks_ranges=False)
    return facts(bind(module, declaration, given).values, at)


def _size(given: Any) -> Affine | tuple[Affine, ...]:
    return tuple(affine.to_expr(s) for s in given) if isinstance(given, tuple | list) else affine.to_expr(given)


def _argument(tensor: Tensor) -> Arg:
    """Return a parameter of the program as the argument it was made for."""
    axes = iter(tensor.shape)
    dims = [tuple(next(axes) for _ in range(n)) for n in tensor.grouping or (1,) * len(tensor.shape)]
    return Arg(tensor.dtype, tuple((_product(d),) for d in dims))


def _product(extents: Sequence[Affine]) -> Affine:
    total: Affine | None = affine.ONE
    for e in extents:
        total = affine.mul(total, e) if total is not None else None
    return total if total is not None else extents[-1]


def _fact(value: Value, at: Mapping[str, int]) -> Fact:
    match value:
        case Num(number):
            return number
        case Idx(e):
            return affine.constant(e) if not set(affine.names(e)) <= at.keys() else int(affine.evaluate(e, at))
        case Str(text):
            return text
        case Packed(items):
            found = tuple(_fact(i, at) for i in items)
            return tuple(f for f in found if isinstance(f, int)) if all(isinstance(f, int) for f in found) else None
        case _:
            return None


def _unmet(schedule: sx.Schedule, known: Mapping[str, Fact]) -> str | None:
    """Return why a guard of the schedule does not hold, or None when all do."""
    for guard in schedule.guards:
        names = sorted({n.name for n in descendants(guard) if isinstance(n, sx.Id) and n.name in known})
        held = evaluate(guard, known)
        if held is None:
            unknown = next(n for n in names if known[n] is None)
            return f"`{_plain(guard)}` is not known when compiling: `{unknown}` is a run-time size"
        if not held:
            values = ", ".join(f"{n} = {known[n]}" for n in names)
            return f"`{_plain(guard)}` does not hold" + (f" ({values})" if values else "")
    return None


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": functions.add,
    "-": functions.sub,
    "*": functions.mul,
    "/": functions.truediv,
    "//": functions.floordiv,
    "%": functions.mod,
}
_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": functions.lt,
    "<=": functions.le,
    ">": functions.gt,
    ">=": functions.ge,
    "==": functions.eq,
    "!=": functions.ne,
}


def evaluate(e: sx.Node, known: Mapping[str, Fact]) -> Any:
    """Return the value of a guard, or None when it takes a size that is only known at run time.

    Raises CompileError S0505 for a name that is neither a size nor an attribute, S0506 for what is no condition over them."""
    match e:
        case sx.Number(text):
            return float(text) if e.is_float else int(text)
        case sx.Text(text):
            return text
        case sx.Id("true" | "false" as name) if name not in known:
            return name == "true"
        case sx.Id(name) if name in known:
            return known[name]
        case sx.Id(name):
            names = ", ".join(sorted(known)) or "none"
            raise error("S0505", f"a guard cannot ask for `{name}`", e.span, help=did_you_mean(name, known, f"known are {names}"))
        case sx.Unary("not", value):
            held = evaluate(value, known)
            return None if held is None else not held
        case sx.Unary(op, value):
            number = evaluate(value, known)
            return None if number is None else -number if op == "-" else number
        case sx.Binary("and" | "or" as op, lhs, rhs):
            return _junction(op, evaluate(lhs, known), evaluate(rhs, known))
        case sx.Binary(op, lhs, rhs):
            return _combined(e, lambda a, b: _ARITHMETIC[op](a, b), evaluate(lhs, known), evaluate(rhs, known))
        case sx.Compare(items, ops):
            values = [evaluate(i, known) for i in items]
            return _all(_combined(e, _RELATIONS[op], a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case sx.Apply("rank", (sx.Id(name),)) if name in known:
            return len(_several(e, known[name]))
        case sx.Apply("prod", (sx.Pack(sx.Id(name)),)) if name in known:
            total = 1
            for extent in _several(e, known[name]):
                total *= extent
            return total
        case _:
            raise error(
                "S0506", f"`{show(e)}` is no condition over sizes and attributes", e.span, help="compare sizes with numbers: `M >= 64`"
            )


def _several(e: sx.Node, value: Fact) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return value
    raise error("S0506", f"`{show(e)}` takes a pack", e.span, help="write `rank(D)` or `prod(D..)` for a pack `D..`")


def _junction(op: str, a: Any, b: Any) -> Any:
    decided = op == "or"
    if any(x is not None and bool(x) == decided for x in (a, b)):
        return decided
    return None if a is None or b is None else not decided


def _all(values: Iterator[Any]) -> Any:
    found = list(values)
    return False if any(v is False for v in found) else None if any(v is None for v in found) else True


def _combined(e: sx.Node, f: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    try:
        return f(a, b)
    except (TypeError, ZeroDivisionError):
        raise error(
            "S0506", f"`{show(e)}` cannot be computed for {a!r} and {b!r}", e.span, help="compare sizes with numbers: `M >= 64`"
        ) from None


# ---------------------------------------------------------------- schedules of roles


@dataclass(slots=True)
class _Part:
    """A cluster of definitions and the schedules of roles that fit it, the next one to try first."""

    cluster: Cluster
    candidates: list[tuple[sx.Schedule, Match]]
    directives: tuple[sx.Directive, ...] = ()
    origin: str | None = None
    knobs: Mapping[str, int] = field(default_factory=dict)
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
    """Return a schedule made of schedules of roles, at least one of them among `wanted`, and derived ones where no role fits."""
    roles = [s for s in written if s.role is not None and s.target == request.target]
    if not any(s in wanted for s in roles):
        return None
    d = deriver(request.program, request.machine, request.layouts, request.constants)
    parts = [_Part(c, [*_candidates(request, roles, d, c)]) for c in clusters(d)]
    if not any(s in wanted for part in parts for s, _ in part.candidates):
        return None
    _settle_all(request, d, parts)
    while any(part.origin is not None for part in parts):
        around_first = sorted(parts, key=lambda part: part.inside is not None)
        directives = (*d.schedule.directives, *(x for part in around_first for x in part.directives))
        schedule = Schedule(request.program.name, request.target, directives, named(request.module, directives))
        try:
            plan = proven(request.program, schedule, request.layouts)
        except CompileError as refused:
            part = _blamed(parts, refused)
            request.tried.append(Attempt(part.origin or "", f"refused: {refused.diagnostics[0].title}"))
            part = part.inside.reader if part.inside is not None else part
            part.candidates = part.candidates[1:]
            _settle_all(request, d, parts)
            continue
        return _assembled(request, schedule, parts, plan)
    return None


def _assembled(request: _Request, schedule: Schedule, parts: Sequence[_Part], plan: Plan) -> Chosen:
    knobs = {name: value for part in parts for name, value in part.knobs.items()}
    for name in request.knobs:
        if name not in knobs:
            raise _no_knob(name, tuple(knobs), None)
    origins = dict.fromkeys(part.origin for part in parts if part.origin is not None)
    return Chosen(schedule, knobs, "; ".join(o for o in origins if o), tuple(request.tried), plan)


def _candidates(request: _Request, roles: Sequence[sx.Schedule], d: Deriver, cluster: Cluster) -> Iterator[tuple[sx.Schedule, Match]]:
    for schedule in roles:
        assert schedule.role is not None
        found = match_role(d, cluster, schedule.role)
        if found is None:
            continue
        why = _unmet(schedule, found.facts)
        if why is None:
            yield schedule, found
        else:
            request.tried.append(Attempt(where(schedule), f"for `{cluster.head.tensors[0].name}`, {why}"))


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
        part.directives, part.origin, part.knobs = derive_cluster(alone, part.cluster).directives, None, {}
    else:
        schedule, match = part.candidates[0]
        assert schedule.role is not None
        block = match_role(d, narrowed(part.cluster, inside.axis, inside.rows), schedule.role) if inside is not None else None
        if block is not None:
            match = replace(match, tiles=block.tiles, extents=block.extents, facts={**match.facts, "together": block.facts["together"]})
        scope = Scope(
            request.module,
            _picker(request.knobs, [], match.tiles),
            names={n: tuple(sx.Id(x) for x in values) for n, values in match.names.items()},
            role=True,
            stages=dict(match.stages),
            taken=frozenset(program_names(d.program)),
            stored=frozenset(d.layouts),
            extents=dict(match.extents),
            axes=dict(match.axes),
            indexed=match.indexed,
        )
        scope.names |= {n: (sx.Number(str(int(v))),) for n, v in match.facts.items() if isinstance(v, int)}
        if inside is None:
            scope.spread = spread_over(d, part.cluster, scope)
        part.directives, part.origin = tuple(expand(scope, schedule.body)), where(schedule)
        part.knobs = scope.knobs
        _feed(d, part, scope, parts)
    if inside is not None:
        part.directives = (*(_copied(x, inside) for x in part.directives), *_computed_at(part, inside))


def _feed(d: Deriver, part: _Part, scope: Scope, parts: Sequence[_Part]) -> None:
    """Note for the parts that make the rows of a product where its directives have them computed."""
    head = part.cluster.head
    axis = stored_axis(d, head) if head.axes and len(head.pieces) == 1 else None
    c = contraction(head, axis) if axis is not None else None
    placed = {_operand(x): x for x in part.directives if x.name == "at"}
    made = feeding(d, [p.cluster for p in parts], head, c) if c is not None and c.x in placed else None
    if made is None or c is None:
        return
    own, row = head.tensors[0].name, c.rows[0]
    loop = _place(placed[c.x])
    rows = 1
    for name, along in scope.axes.items():
        if along == row and name not in scope.gone and name != loop:
            rows *= scope.extents.get(name) or 1
    fixed = {slot.name: at for at, slot in enumerate(c.x_read.index) if isinstance(slot, AffineName) and slot.name in c.batch}
    for cluster in made.clusters:
        producer = next(p for p in parts if p.cluster is cluster)
        made_of = cluster.head
        copies = {f"{made_of.tensors[0].name}.{made_of.axes[at]}": f"{own}.{name}" for name, at in fixed.items()}
        producer.inside = _Inside(part, loop, made.row, rows, copies)


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
    made = part.cluster.head.tensors[0].name
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


# ---------------------------------------------------------------- checking what nobody calls yet


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
            raise _no_knob(name, sorted(declared), schedule)


def _check(module: Module, schedule: sx.Schedule) -> None:
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
    form = ROLES.get(role.name)
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


__all__ = [
    "Attempt",
    "Chosen",
    "Found",
    "applicable",
    "check_schedules",
    "check_written",
    "evaluate",
    "facts",
    "known_of",
    "read",
    "search",
    "where",
]
