"""From a schedule as written to directives alone: tactics put in their place, knobs made numbers, packs spelled out.

    schedule role contraction(y, a, b; batch.., i.., j.., k..) for cpu {          for  c[m, n] = sum(k) p[m, k] * q[k, n]
        knobs mr in {6, 8}
        rows(i, mr)                        tactic rows(i, mr) {                   split c.m by 6 -> io, ii
        order batch.., io, k.., ii             split i by mr -> io, ii            order c.io, c.k, c.ii
    }                                      }

A directive, or a call of a tactic, whose condition (`unroll k.. if prod(k..) <= 9`) does not hold is left out. One with a pattern
(`rows(i, 4) for contraction(y, a, b; batch.., i.., j.., k..)`) is given once for each equation of that role, as the schedule of the role
would have it.

A name may stand for several loops or tensors, or for none: `k..` is all of them in order, `k` the last. In the schedule of a role a
directive about loops that are not there is left out; a directive that takes one loop is repeated for each of several; `order` is
given for each stage apart; `fuse` makes one loop of as many as there are; `bind` takes all loops of a pack to one place; what
`pack T at L -> c` names are the inner loops of the copies; and `spread` becomes `parallel` of the outer loops that together have work
for every thread, and of copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeAlias, assert_never

from tensorlang.check.module import Module
from tensorlang.check.walk import descendants
from tensorlang.diagnostics import error
from tensorlang.schedule.cases import Choose, assumed_in, decided, has_cases, none_holds, undecided_of
from tensorlang.schedule.directives.operands import bad
from tensorlang.schedule.guards import Fact, left_out, passed
from tensorlang.schedule.schedule import MOST_DIRECTIVES, too_many
from tensorlang.schedule.tactic_calls import LoopNames, no_tactic
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import show

Operand: TypeAlias = sx.Expr | sx.Layout
Pick: TypeAlias = Callable[[sx.Knob, tuple[int, ...]], int]
"""Chooses among the values of a knob."""
WITH_POSITIONS = ("cut", "affine")
"""Directives with expressions over loops and sizes: those sizes that are known when compiling are numbers there."""
Spread: TypeAlias = Callable[[Sequence[str]], tuple[str, ...]]
"""Chooses which of several loops, and of tensors that were copied, to give to several threads."""


@dataclass(slots=True)
class Scope:
    """What names stand for. `role`: names that stand for nothing are left out instead of being an error.

    `stages` gives the stage of every loop named in full, `taken` the names that new loops must not have."""

    module: Module
    pick: Pick
    names: dict[str, tuple[Operand, ...]] = field(default_factory=dict)
    packs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Packs of the operator's own indices: `d` → d.0, d.1."""
    role: bool = False
    stages: dict[str, str] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()
    spread: Spread | None = lambda loops: ()
    """None: on a device, whose threads are given by `bind`."""
    stored: frozenset[str] = frozenset()
    """Tensors that the caller stores as the schedule would pack them."""
    extents: dict[str, int | None] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    """The axis or binder that a loop is a part of."""
    indexed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    knobs: dict[str, int] = field(default_factory=dict)
    results: set[str] = field(default_factory=set)
    """Names that directives have given to loops, whatever else is called so."""
    given: LoopNames = field(default_factory=LoopNames)
    made: set[str] = field(default_factory=set)
    """Names of loops that tactics make, which are there until the outermost of them ends: each time it is called they are others."""
    declared: dict[str, sx.Knob] = field(default_factory=dict)
    """Where knobs are declared: in a tactic, each time it is called."""
    env: Mapping[str, Fact] = field(default_factory=dict)
    """What conditions may ask for, besides knobs."""
    choose: Choose = none_holds
    """Chooses between the cases of `specialize`."""
    assumed: list[sx.Compare] = field(default_factory=list)
    """What holds in the case that is chosen."""
    left_out: list[str] = field(default_factory=list)
    """A sentence for each directive whose condition does not hold."""
    calls: tuple[str, ...] = ()
    copied: set[str] = field(default_factory=set)
    """Tensors that have been copied before everything else."""
    gone: set[str] = field(default_factory=set)
    """Loops that have been split."""
    written: int = 0
    """How many lines have been expanded, those of tactics each time they are called."""
    copy_of: Callable[[str], tuple[str, Mapping[str, int | None]]] = lambda tensor: (tensor, {})
    """The stage that copies a tensor, and the extents of its loops, outermost first."""
    find: Callable[[sx.Role], Sequence[Scope]] = lambda pattern: ()
    """Finds the equations of a role: what its names stand for in each."""


def expand(scope: Scope, body: Sequence[sx.Directive | sx.Knobs]) -> list[sx.Directive]:
    """Return the directives of `body`.

    Raises CompileError S0107 (too many), S0502 (no such tactic), S0503 (wrong number of arguments), S0504 (a tactic that calls
    itself), S0505, S0506 and S0515 (conditions that cannot be decided), S0509 and S0510 (knobs that cannot be read), S0514 (a pack of an
    unknown name)."""
    out: list[sx.Directive] = []
    for part in body:
        scope.written += 1
        if scope.written > MOST_DIRECTIVES:
            raise too_many(part.span)
        match part:
            case sx.Knobs(knobs):
                for knob in knobs:
                    _declare(scope, knob)
            case sx.Directive(pattern=sx.Role() as pattern):
                out += _for_each(scope, pattern, replace(part, pattern=None))
            case sx.Directive():
                why = left_out(part, scope.env, role=scope.role, decide=lambda condition: decided(condition, scope.assumed, scope.env))
                if why is None and has_cases(part):
                    out += _in_case(scope, part)
                elif why is None:
                    out += _expanded(scope, replace(part, condition=None))
                else:
                    _leave_out(scope, part, why)
            case _:
                assert_never(part)
    return out


def _in_case(scope: Scope, d: sx.Directive) -> Iterator[sx.Directive]:
    """Yield what a case assumes. Raises CompileError S0102 for cases of what is not the schedule of an operator."""
    if scope.role or scope.calls:
        bad(d, "cases are for schedules of operators, and are named there", "write it in the schedule that calls the tactic")
    undecided = undecided_of(d, scope.env)
    assumed = assumed_in(undecided, scope.choose(undecided))
    scope.assumed += assumed
    yield from (sx.Directive("assume", (condition,), span=d.span) for condition in assumed)


def _for_each(scope: Scope, pattern: sx.Role, d: sx.Directive) -> list[sx.Directive]:
    """Return the directives for each equation that the pattern finds. Raises CompileError S0102 in the schedule of a role."""
    if scope.role:
        bad(d, "in the schedule of a role, what it is about has been found", "leave out the pattern")
    found = scope.find(pattern)
    if not found:
        scope.left_out.append(f"`{show(replace(d, pattern=pattern))}` is left out: no equation here is a `{pattern.name}`")
    out: list[sx.Directive] = []
    for inside in found:
        inside.names, inside.env = {**scope.names, **inside.names}, {**scope.env, **inside.env}
        inside.calls, inside.written, inside.given = scope.calls, scope.written, scope.given
        out += expand(inside, [d])
        scope.knobs, scope.written = {**inside.knobs, **scope.knobs}, inside.written
        scope.left_out += inside.left_out
    return out


def _expanded(scope: Scope, d: sx.Directive) -> list[sx.Directive]:
    return _call(scope, d) if d.call else _directive(scope, d)


def _leave_out(scope: Scope, d: sx.Directive, why: str) -> None:
    """Note that a directive is left out. In the schedule of a role, the loops that it would make are not there, unless others are."""
    scope.left_out.append(f"`{show(replace(d, condition=None))}` is left out: {why}")
    if scope.role:
        for name in _made(scope.module, d, scope.calls):
            scope.names.setdefault(name, ())


def _made(module: Module, d: sx.Directive, calls: tuple[str, ...]) -> Iterator[str]:
    """Yield the names that a directive, or those of a tactic, give to what they make."""
    yield from d.results
    tactic = module.tactics.get(d.name) if d.call and d.name not in calls else None
    for part in tactic.body if tactic is not None else ():
        if isinstance(part, sx.Directive):
            yield from _made(module, part, (*calls, d.name))


def choices(knob: sx.Knob) -> tuple[int, ...]:
    """Return the values of a knob."""
    values: list[int] = []
    for e in knob.choices:
        match e:
            case sx.Number(text) if not e.is_float:
                values.append(int(text))
            case _:
                raise error(
                    "S0509",
                    f"`{show(e)}` is no value of knob `{knob.name}`",
                    e.span,
                    help=f"list whole numbers: `knobs {knob.name} in {{4, 8}}`",
                )
    return tuple(values)


def _declare(scope: Scope, knob: sx.Knob) -> None:
    if knob.name in scope.knobs and scope.declared.get(knob.name) is not knob:
        raise error("S0510", f"knob `{knob.name}` is declared twice", knob.span, help="rename one of them, or delete it")
    if knob.name not in scope.knobs:
        scope.knobs[knob.name] = scope.pick(knob, choices(knob))
    scope.declared[knob.name] = knob
    scope.names[knob.name] = (sx.Number(str(scope.knobs[knob.name])),)
    scope.env = {**scope.env, knob.name: scope.knobs[knob.name]}


# ---------------------------------------------------------------- tactics


def _call(scope: Scope, call: sx.Directive) -> list[sx.Directive]:
    tactic = scope.module.tactics.get(call.name)
    if tactic is None:
        raise no_tactic(scope.module.tactics, call)
    if call.name in scope.calls:
        path = " calls ".join(f"`{n}`" for n in (*scope.calls[scope.calls.index(call.name) :], call.name))
        raise error(
            "S0504", f"tactic `{call.name}` calls itself: {path}", call.span, help="a tactic is a list of directives and cannot recur"
        )
    if len(call.operands) != len(tactic.params):
        count, given = len(tactic.params), len(call.operands)
        raise error(
            "S0503",
            f"tactic `{call.name}` takes {count} argument{'s' * (count != 1)}, not {given}",
            call.span,
            help=f"its parameters are {', '.join(tactic.params)}" if tactic.params else "it has no parameters",
        )
    arguments = {p: tuple(_values(scope, a)) for p, a in zip(tactic.params, call.operands, strict=True)}
    outside = {n: scope.names[n] for n in tactic.params if n in scope.names}
    before, outer = set(scope.knobs), scope.env
    scope.names |= arguments
    scope.env = passed(outer, tactic.params, call.operands) | _counted(scope, arguments)
    scope.calls = (*scope.calls, call.name)
    out = expand(scope, tactic.body)
    scope.calls = scope.calls[:-1]
    scope.env = {**outer, **{name: value for name, value in scope.knobs.items() if name not in before}}
    for name in (*tactic.params, *(scope.made if not scope.calls else ())):
        scope.names.pop(name, None)
    scope.made = scope.made if scope.calls else set()
    for name, values in outside.items():
        scope.names[name] = tuple(v for v in values if _text(v) not in scope.gone)
    return out


def _counted(scope: Scope, arguments: Mapping[str, tuple[Operand, ...]]) -> dict[str, Fact]:
    """Return what conditions may ask of arguments that are a number, or loops: their extents."""
    out: dict[str, Fact] = {}
    for param, values in arguments.items():
        match values:
            case (sx.Number(text) as number,) if not number.is_float:
                out[param] = int(text)
            case _ if scope.role and all(isinstance(v, sx.Id) and v.name in scope.stages for v in values):
                out[param] = tuple(scope.extents.get(_text(v)) for v in values)
            case _:
                pass
    return out


# ---------------------------------------------------------------- one directive


def _directive(scope: Scope, d: sx.Directive) -> list[sx.Directive]:
    if not scope.role:
        operands, phrases = tuple(v for o in d.operands for v in _values(scope, o)), _phrases(scope, d.phrases)
        results = _results(scope, d, _owner(d.name, operands, phrases))
        if d.name in WITH_POSITIONS:
            known = replace(scope, names={name: n for name, n in _sizes(scope).items() if name not in scope.results})
            operands = tuple(_substituted(known, o) for o in operands)
            phrases = tuple(replace(p, operands=tuple(_substituted(known, o) for o in p.operands)) for p in phrases)
        scope.results.update(results)
        return [replace(d, operands=operands, phrases=phrases, results=results)]
    match d.name:
        case "tile":
            return _tile(scope, d)
        case "order":
            return _order(scope, d)
        case "spread":
            if scope.spread is None:
                raise error("S0102", "`spread` is about the threads of a processor", d.span, help="write `bind LOOP to block.x`")
            chosen = scope.spread([_text(v) for o in d.operands for v in _values(scope, o)])
            return [sx.Directive("parallel", tuple(map(sx.Id, chosen)), span=d.span)] if chosen else []
        case "fuse":
            return _fuse(scope, d)
        case "raster":
            return _raster(scope, d)
        case "unfold":
            return _unfold(scope, d)
        case "bind":
            return _bind(scope, d)
        case "split" | "skew" | "shift" | "peel" | "at" | "pack" | "cache" | "layout" | "fold" | "rfactor" | "persistent" | "split_k":
            return [x for v in _each(scope, d) for x in _one(scope, d, v)]
        case "cut" | "affine" | "distribute" if d.results:
            return _with_names(scope, d)
        case _:
            operands = tuple(v for o in d.operands for v in _values(scope, o))
            empty = d.operands and not operands
            return [] if empty else [replace(d, operands=operands, phrases=_phrases(scope, d.phrases))]


def _results(scope: Scope, d: sx.Directive, owner: str | None) -> tuple[str, ...]:
    """Return the names of what a directive makes; loops that a tactic makes are called as no others of their tensor are."""
    results: list[str] = []
    for name in d.results:
        is_own = bool(scope.calls) and owner is not None and (name in scope.made or name not in scope.names)
        local = scope.given.fresh(owner or "", name) if is_own else name if name in scope.made else _renamed(scope, name)
        if is_own and (owner or local != name):
            scope.made.add(name)
            scope.names[name] = (sx.Id(f"{owner}.{local}" if owner else local),)
        results.append(local)
    if owner is not None:
        scope.given.note(owner, results)
    return tuple(results)


def _owner(name: str, operands: Sequence[Operand], phrases: Sequence[sx.Phrase]) -> str | None:
    """Return the tensor that the loops which a directive makes are named after, "" where how it is written does not tell, None where it
    makes no loops."""
    if name not in ("split", "tile", "fuse", "cut", "affine", "raster", "distribute"):
        return None
    places = [o for p in phrases if p.preposition == "at" for o in p.operands] if name == "distribute" else operands
    match places[:1]:
        case [sx.Apply(tensor, _)]:
            return tensor
        case [sx.Id(loop)]:
            return loop.rpartition(".")[0]
        case _:
            return ""


def _with_names(scope: Scope, d: sx.Directive) -> list[sx.Directive]:
    """Return the directive with new names for the loops it makes; nothing where the loops that it is about are not there."""
    operands, phrases = tuple(v for o in d.operands for v in _values(scope, o)), _phrases(scope, d.phrases)
    about = operands if d.name != "distribute" else tuple(o for p in phrases for o in p.operands)
    named = (node.name for operand in about for node in (operand, *descendants(operand)) if isinstance(node, sx.Id))
    loops = [name for name in named if name in scope.stages]
    if not loops:
        return []
    results: list[str] = []
    for result in d.results:
        local, full = _fresh(scope, scope.stages[loops[0]], result)
        results.append(local)
        scope.names[result], scope.axes[full], scope.extents[full] = (sx.Id(full),), scope.axes[loops[0]], None
    for loop in loops if d.name != "distribute" else ():
        _forget(scope, loop)
    return [replace(d, operands=operands, phrases=phrases, results=tuple(results))]


def _each(scope: Scope, d: sx.Directive) -> list[Operand]:
    """Return what the directive is about, once each. A copy is not packed where the caller stores the tensor in a layout already."""
    found = [v for o in d.operands for v in _values(scope, o)]
    for result in d.results:
        scope.names[result] = ()
    arranged = d.name == "pack" and any(p.preposition == "as" for p in d.phrases)
    return [v for v in found if not (arranged and _text(v) in scope.stored)]


def _one(scope: Scope, d: sx.Directive, value: Operand) -> Iterator[sx.Directive]:
    """Yield the directive for one loop or tensor, with new names for the loops it makes."""
    results = []
    place = tuple(p for p in d.phrases if d.name == "cache" and p.preposition == "in")  # `registers` is a place here, not a fact
    along = tuple(_along(scope, p) for p in d.phrases if d.name == "pack" and p.preposition == "in")
    phrases = (*place, *along, *_phrases(scope, [p for p in d.phrases if p.preposition != "in" or d.name not in ("cache", "pack")]))
    if d.name == "pack" and d.results:
        _note_copy(scope, _text(value), d.results)
        d = replace(d, results=())
    for result in d.results:
        loop = _text(value)
        local, full = _fresh(scope, _stage(scope, d, loop), result)
        results.append(local)
        scope.names[result] = (*scope.names[result], sx.Id(full))
        scope.axes[full] = scope.axes[loop]
    if d.name == "split" and len(d.results) == 2:
        _split(scope, _text(value), phrases)
    if d.name in ("pack", "cache", "layout"):
        phrases = tuple(replace(p, operands=tuple(_arranged(scope, _text(value), o) for o in p.operands)) for p in phrases)
        if d.name == "pack" and not any(p.preposition == "at" for p in phrases):
            scope.copied.add(_text(value))
    yield replace(d, operands=(value,), phrases=phrases, results=tuple(results))


def _along(scope: Scope, phrase: sx.Phrase) -> sx.Phrase:
    """Return the phrase with the axis that a loop is a part of: tensors are copied before loops are split."""
    loops = [_text(v) for o in phrase.operands for v in _values(scope, o)]
    axes = (f"{scope.stages[loop]}.{scope.axes[loop]}" if loop in scope.stages and loop in scope.axes else loop for loop in loops)
    return replace(phrase, operands=tuple(map(sx.Id, axes)))


def _split(scope: Scope, loop: str, phrases: Sequence[sx.Phrase]) -> None:
    """Take a loop that is no more out of every pack that holds it, and note the extents of its parts."""
    outer, inner = list(scope.stages)[-2:]
    match phrases:
        case (sx.Phrase("by", (sx.Number(text),)),):
            extent = scope.extents.get(loop)
            scope.extents[outer] = None if extent is None else -(-extent // int(text))
            scope.extents[inner] = int(text)
        case _:
            pass
    _forget(scope, loop)


def _forget(scope: Scope, loop: str) -> None:
    """Take a loop that is no more out of every pack that holds it."""
    scope.gone.add(loop)
    for name, values in scope.names.items():
        scope.names[name] = tuple(v for v in values if not (isinstance(v, sx.Id) and v.name == loop))


def _note_copy(scope: Scope, tensor: str, results: Sequence[str]) -> None:
    """Let the last of `results` name the innermost loop of the copy of `tensor`, the one before it the next, and so on."""
    stage, sizes = scope.copy_of(tensor)
    for result, axis in zip(reversed(results), reversed(list(sizes)), strict=False):
        loop = f"{stage}.{axis}"
        scope.stages[loop], scope.extents[loop], scope.axes[loop] = stage, sizes[axis], axis
        scope.names[result] = (*scope.names[result], sx.Id(loop))


def _fuse(scope: Scope, d: sx.Directive) -> list[sx.Directive]:
    """Return what makes one loop of several neighbours, two at a time: nothing where there is one."""
    loops = [_text(v) for o in d.operands for v in _values(scope, o)]
    if len(d.results) != 1:
        raise error("S0102", "`fuse` cannot be read", d.span, help="write `fuse OUTER, INNER -> LOOP`")
    result = d.results[0]
    scope.names[result] = tuple(map(sx.Id, loops[:1]))
    out: list[sx.Directive] = []
    outer = loops[0] if loops else ""
    for inner in loops[1:]:
        local, full = _fresh(scope, _stage(scope, d, outer), result)
        sizes = [scope.extents.get(loop) for loop in (outer, inner)]
        scope.extents[full] = None if None in sizes else prod(e for e in sizes if e is not None)
        scope.axes[full] = full
        out.append(replace(d, operands=(sx.Id(outer), sx.Id(inner)), results=(local,)))
        for loop in (outer, inner):
            _forget(scope, loop)
        outer = full
        scope.names[result] = (sx.Id(full),)
    return out


def _unfold(scope: Scope, d: sx.Directive) -> list[sx.Directive]:
    """Return the directive, after which the names of its tensors stand for their rows, and the sum is over the one loop that it makes."""
    tensors = [_text(v) for o in d.operands for v in _values(scope, o)]
    phrases = _phrases(scope, d.phrases)
    loops = [_text(v) for p in phrases for v in p.operands]
    if len(d.results) != 1 or not tensors or not loops:
        raise error("S0102", "`unfold` cannot be read", d.span, help="write `unfold TENSOR, … in BINDER, … -> NAME`")
    (result,) = d.results
    local, full = _fresh(scope, _stage(scope, d, loops[0]), result)
    sizes = [scope.extents.get(loop) for loop in loops]
    scope.extents[full] = None if None in sizes else prod(e for e in sizes if e is not None)
    scope.axes[full] = local
    scope.names[result] = (sx.Id(full),)
    for loop in loops:
        _forget(scope, loop)
    rows = {tensor: f"{tensor}.rows" for tensor in tensors}
    scope.indexed = {**scope.indexed, **{rows[t]: scope.indexed.get(t, frozenset()) | {"row", local} for t in tensors}}
    for name, values in scope.names.items():
        scope.names[name] = tuple(sx.Id(rows[v.name]) if isinstance(v, sx.Id) and v.name in rows else v for v in values)
    operands = tuple(sx.Id(tensor) for tensor in tensors)
    plain = tuple(replace(p, operands=tuple(sx.Id(scope.axes.get(_text(v), _text(v))) for v in p.operands)) for p in phrases)
    return [replace(d, operands=operands, phrases=plain, results=(local,))]


def _raster(scope: Scope, d: sx.Directive) -> list[sx.Directive]:
    """Return the directive for the last loop of each side; where one side has none, its rows stay as they are."""
    sides = [[_text(v) for v in _values(scope, o)] for o in d.operands]
    if len(sides) != 2 or len(d.results) != 2:
        raise error("S0102", "`raster` cannot be read", d.span, help="write `raster ROWS, COLUMNS by COUNT -> GROUP, ROW`")
    group, row = d.results
    scope.names[group], scope.names[row] = (), tuple(map(sx.Id, sides[0][-1:]))
    if not all(sides):
        return []
    rows, columns = (side[-1] for side in sides)
    results = []
    for result in d.results:
        local, full = _fresh(scope, _stage(scope, d, rows), result)
        scope.names[result] = (sx.Id(full),)
        scope.axes[full] = scope.axes[rows]
        results.append(local)
    phrases = _phrases(scope, d.phrases)
    _split(scope, rows, phrases)
    return [replace(d, operands=(sx.Id(rows), sx.Id(columns)), phrases=phrases, results=tuple(results))]


def _bind(scope: Scope, d: sx.Directive) -> list[sx.Directive]:
    """Return the directive with a place for each loop: a pack of loops, of different stages, goes to one place."""
    places = [o for p in d.phrases if p.preposition == "to" for o in p.operands]
    if len(places) != len(d.operands):
        raise error("S0102", f"`bind` names {len(d.operands)} loops and {len(places)} places", d.span, help="write a place for each")
    pairs = [(v, place) for o, place in zip(d.operands, places, strict=True) for v in _values(scope, o)]
    to = sx.Phrase("to", tuple(place for _, place in pairs))
    return [replace(d, operands=tuple(v for v, _ in pairs), phrases=(to,))] if pairs else []


def _arranged(scope: Scope, tensor: str, e: Operand) -> Operand:
    """Return a layout without the loops that the tensor is not read by."""
    match e:
        case sx.Layout(dims):
            known = scope.indexed.get(tensor, frozenset())
            return replace(e, dims=tuple(d for d in dims if not isinstance(d, sx.Id) or scope.axes.get(d.name, d.name) in known))
        case _:
            return e


def _fresh(scope: Scope, stage: str, wanted: str) -> tuple[str, str]:
    name, count = wanted, 0
    while name in scope.taken or f"{stage}.{name}" in scope.stages:
        count += 1
        name = f"{wanted}{count}"
    scope.stages[f"{stage}.{name}"] = stage
    return name, f"{stage}.{name}"


def _stage(scope: Scope, d: sx.Directive, loop: str) -> str:
    """Return the stage that a loop is of. Raises CompileError S0103 for what is no loop of the equation at hand."""
    if loop not in scope.stages:
        known = ", ".join(name for name, found in scope.names.items() if found and all(_text(v) in scope.stages for v in found))
        raise error("S0103", f"there is no loop `{loop}` here", d.span, help=f"the names of loops here are {known or 'none'}")
    return scope.stages[loop]


def _order(scope: Scope, d: sx.Directive) -> list[sx.Directive]:
    stages: dict[str, list[Operand]] = {}
    for o in d.operands:
        for v in _values(scope, o):
            stages.setdefault(_stage(scope, d, _text(v)), []).append(v)
    return [replace(d, operands=tuple(loops)) for loops in stages.values() if len(loops) > 1]


def _tile(scope: Scope, d: sx.Directive) -> list[sx.Directive]:
    """Return splits and an order: `tile y (i, j) by (m, n) -> io, jo, ii, ji` of the loops that are there."""
    match d.operands, d.phrases:
        case (sx.Apply(_, args),), (sx.Phrase("by", (sx.TupleOf(sizes),)),) if len(d.results) == 2 * len(args) == 2 * len(sizes):
            pass
        case _:
            raise error("S0102", "`tile` cannot be read", d.span, help="write `tile TENSOR (I, J) by (P, Q) -> IO, JO, II, JI`")
    n = len(args)
    out: list[sx.Directive] = []
    for k, (arg, size) in enumerate(zip(args, sizes, strict=True)):
        split = sx.Directive("split", (arg,), (sx.Phrase("by", (size,)),), (d.results[k], d.results[n + k]), span=d.span)
        out += _directive(scope, split)
    order = sx.Directive("order", tuple(sx.Id(r) for r in d.results), span=d.span)
    return [*out, *_order(scope, order)]


def _phrases(scope: Scope, phrases: Sequence[sx.Phrase]) -> tuple[sx.Phrase, ...]:
    out = []
    for p in phrases:
        operands = tuple(v for o in p.operands for v in _values(scope, o))
        if operands or not scope.role:
            out.append(replace(p, operands=operands))
    return tuple(out)


# ---------------------------------------------------------------- operands


def _values(scope: Scope, e: Operand) -> Iterator[Operand]:
    """Yield what an operand stands for."""
    match e:
        case sx.Pack(sx.Id(name)) if name in scope.names:
            yield from scope.names[name]
        case sx.Pack(sx.Id(name)):
            yield from (sx.Id(n, span=e.span) for n in _pack(scope, name, e))
        case sx.Id(name) if name in scope.names:
            yield from scope.names[name][-1:]
        case sx.Layout(dims):
            yield replace(e, dims=tuple(v for d in dims for v in _values(scope, d)))  # type: ignore[misc]
        case sx.Pack():
            raise error("S0514", f"`{show(e)}` cannot be repeated here", e.span, help="write the name of a pack: `d..`")
        case _:
            yield _substituted(scope, e)


def _pack(scope: Scope, name: str, e: sx.Pack) -> tuple[str, ...]:
    stage, dot, last = name.rpartition(".")
    if last in scope.packs:
        return tuple(f"{stage}{dot}{n}" for n in scope.packs[last])
    known = ", ".join(f"`{n}..`" for n in sorted({*scope.packs, *(scope.names if scope.role else ())})) or "none"
    raise error("S0514", f"there is no pack `{name}..` here", e.span, help=f"the packs are {known}")


def _substituted(scope: Scope, e: Operand) -> Operand:
    match e:
        case sx.Id(name):
            return replace(e, name=_renamed(scope, name)) if name not in scope.names else scope.names[name][-1]
        case sx.Apply(name, args):
            found = tuple(v for a in args for v in _values(scope, a))
            word = any(not isinstance(v, sx.Id) for v in scope.names.get(name, ()))  # `registers (40, 232)`: no fact of that name
            return replace(e, name=name if word else _renamed(scope, name), args=found)  # type: ignore[arg-type]
        case sx.Index(name, slots):
            return replace(e, name=_renamed(scope, name), slots=tuple(_substituted(scope, s) for s in slots))  # type: ignore[misc]
        case sx.TupleOf(items):
            return replace(e, items=tuple(v for i in items for v in _values(scope, i)))  # type: ignore[misc]
        case sx.Unary(_, value):
            return replace(e, value=_substituted(scope, value))  # type: ignore[arg-type]
        case sx.Binary(op, lhs, rhs):
            return _folded(replace(e, lhs=_substituted(scope, lhs), rhs=_substituted(scope, rhs)), op)  # type: ignore[arg-type]
        case sx.Chain():
            return _chained(scope, e)
        case sx.Compare(items):
            inside = replace(scope, names={**_sizes(scope), **scope.names})
            return replace(e, items=tuple(_substituted(inside, i) for i in items))  # type: ignore[misc]
        case _:
            return e


def _sizes(scope: Scope) -> dict[str, tuple[Operand, ...]]:
    """Return the sizes and attributes that are known when compiling, as numbers."""
    numbers = {n: f for n, f in scope.env.items() if isinstance(f, int) and not isinstance(f, bool)}
    return {name: (sx.Number(str(n)) if n >= 0 else sx.Unary("-", sx.Number(str(-n))),) for name, n in numbers.items()}


def _chained(scope: Scope, e: sx.Chain) -> Operand:
    """Return a chain with names replaced, as one number where it is one."""
    out = _substituted(scope, e.first)
    rest = tuple(replace(link, rhs=_substituted(scope, link.rhs)) for link in e.rest)  # type: ignore[arg-type]
    for link in rest:
        out = _folded(sx.Binary(link.op, out, link.rhs, span=link.span), link.op)  # type: ignore[arg-type]
        if not isinstance(out, sx.Number):
            return replace(e, first=_substituted(scope, e.first), rest=rest)  # type: ignore[arg-type]
    return out


def _folded(e: sx.Binary, op: str) -> sx.Expr:
    match e.lhs, e.rhs:
        case sx.Number(a), sx.Number(b) if (not e.lhs.is_float and not e.rhs.is_float and op in ("+", "*")) or (
            op in ("//", "%") and e.rhs == sx.Number("1")
        ):
            x, y = int(a), int(b)
            return sx.Number(str({"+": x + y, "*": x * y, "//": x // max(y, 1), "%": x % max(y, 1)}[op]), span=e.span)
        case _:
            return e


def _renamed(scope: Scope, name: str) -> str:
    """Return the name with what stands before its first dot replaced."""
    if name in scope.names and len(scope.names[name]) == 1:
        return _text(scope.names[name][0])
    head, dot, rest = name.partition(".")
    found = scope.names.get(head, ())
    return f"{_text(found[-1])}.{rest}" if dot and found and isinstance(found[-1], sx.Id) else name


def _text(value: Operand) -> str:
    return value.name if isinstance(value, sx.Id) else show(value)
