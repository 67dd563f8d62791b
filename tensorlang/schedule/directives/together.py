"""`together A, B, … -> LOOP, …`: the outermost loops of several tensors become one, as many as are named.

for h: for t: m[h, t]               for h:
for h: for t: o[h, t]        →          for t: m[h, t]; o[h, t]             together m, o -> h, t
for h: y[h]                             y[h]                                together m, y -> h

for k: for i: a[i] += …             for p:
for j: for i: l[i, j]        →          for i: l[i, p]                          together j, k -> p, after `order l.0, l.0.acc`
                                        for i: a[i] += …

In an iteration the tensors are computed in the order in which they are named. What is computed inside such a loop runs before the first of
them that needs it. Recurrences that advance together, and whoever reads their last elements, can so share the loops of a block of rows.
Loops of statements of one tensor become one where they are named, around the statements in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from polyhedral.expr import Expr as Affine
from polyhedral.model import Mark
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind
from tensorlang.schedule.directives.loops import DONE, LIMITS, unmarked
from tensorlang.schedule.plan import Change, Stage, full, renaming
from tensorlang.schedule.state import State, fresh_loop, loop_of, put, stage_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS
from tensorlang.tensor.scop import StatementInfo
from tensorlang.tensor.walk import definition_reads

V = TypeVar("V")


def together(state: State, directive: syntax.Directive) -> None:
    """Make one stage of those of several tensors."""
    names = operands.names(directive, directive.operands, 2)
    if not any(name in {t.name for d in stage.definitions for t in d.tensors} for stage in state.stages.values() for name in names):
        put(state, _joined_loops(state, directive, names))
        return
    parts = list({stage.name: stage for stage in (stage_of(state, directive, name) for name in names)}.values())
    count = len(directive.results)
    if not count or len(set(directive.results)) < count:
        operands.bad(directive, "it gives a name to each loop that they share")
    if len(parts) < 2:
        put(state, _joined_inside(state, directive, parts[0], names))
        return
    for part in parts:
        _check(directive, part, count)
    for name in directive.results:
        fresh_loop(state, directive, parts[0], name, parts[0].loops[:count])
    pairs = list(zip(*(part.loops[:count] for part in parts), strict=True))
    extents = {loop: extent for part in parts for loop, extent in part.extents.items()}
    _check_marks(directive, {loop: mark for part in parts for loop, mark in part.marks.items()}, pairs, extents)
    shared = {part.name: dict(zip(part.loops, (full(parts[0].name, n) for n in directive.results), strict=False)) for part in parts}
    joint = _joined(parts, shared, count)
    stages = list(state.stages.values())
    last = max(k for k, stage in enumerate(stages) if stage.name in shared)
    between = [stage for stage in stages[:last] if stage.name not in shared]
    after = _needing(between, {t.name for d in joint.definitions for t in d.tensors})
    ordered = [*(stage for stage in between if stage not in after), joint, *after, *stages[last + 1 :]]
    state.stages.clear()
    for stage in ordered:
        owner, loop = stage.inside or ("", "")
        put(state, replace(stage, inside=(joint.name, shared[owner].get(loop, loop))) if owner in shared else stage)


def _needing(stages: Sequence[Stage], tensors: set[str]) -> list[Stage]:
    """Return those of `stages` that need some tensors, or each other because of them: they run after them."""
    made, found = set(tensors), list[Stage]()
    for stage in stages:
        if any(made & definition_reads(d) for d in stage.definitions):
            found.append(stage)
            made |= {t.name for d in stage.definitions for t in d.tensors}
    return found


def _joined_loops(state: State, directive: syntax.Directive, names: Sequence[str]) -> Stage:
    """Return a stage in which loops that enclose different statements are one, at the place of the outermost of them."""
    found = [loop_of(state, directive, name) for name in names]
    stage, loops = found[0][0], tuple(loop for _, loop in found)
    for owner, loop in found:
        if owner is not stage:
            title = f"`{loop}` belongs to `{owner.name}`, `{loops[0]}` to `{stage.name}`"
            raise error("S0205", title, directive.span, help="name the tensors: `together A, B -> LOOP`")
    if len(directive.results) != 1 or len({*loops}) < len(loops):
        operands.bad(directive, "of loops it makes one, with a name")
    if stage.distributed & {*loops} or any(cut.loops & {*loops} for cut in stage.cuts):
        raise _several_copies(directive, stage)
    both = next((s for s in stage.statements if sum(s.name in stage.members[loop] for loop in loops) > 1), None)
    if both is not None:
        help = f"`distribute {both.name} at LOOP -> OWN` gives it loops of its own"
        raise error("S0206", f"`{both.name}` runs in more than one of these loops", directive.span, help=help)
    name = fresh_loop(state, directive, stage, directive.results[0], loops)
    stage = unmarked(directive, stage, *loops)
    renamed = tuple(Change((old,), renaming(old, name), only=stage.members[old]) for old in loops if old != name)
    members, extents = frozenset().union(*(stage.members[loop] for loop in loops)), {stage.extents[loop] for loop in loops}
    return replace(
        stage,
        loops=tuple(dict.fromkeys(name if loop in loops else loop for loop in stage.loops)),
        members={**{loop: found for loop, found in stage.members.items() if loop not in loops}, name: members},
        extents={**{x: e for x, e in stage.extents.items() if x not in loops}, name: extents.pop() if len(extents) == 1 else None},
        forward={**{x: value for x, value in stage.forward.items() if x not in loops}, name: stage.forward[loops[0]]},
        reductions=stage.reductions - {*loops} | ({name} if {*loops} <= stage.reductions else set()),
        changes=(*stage.changes, *renamed),
    )


def _joined_inside(state: State, directive: syntax.Directive, stage: Stage, names: Sequence[str]) -> Stage:
    """Return a stage in which tensors share loops with the loops that these have inside those."""
    own = [{s.name for s in stage.statements if name in {t.name for t in s.definition.tensors}} for name in names]
    inside = [[loop for loop in stage.loops if stage.members[loop] & mine and not set().union(*own) <= stage.members[loop]] for mine in own]
    count = len(directive.results)
    inside = [inside[0], *([loop for loop in loops if loop not in inside[0][:count]] for loops in inside[1:])]
    if any(len(loops) < count for loops in inside):
        operands.bad(directive, f"{' and '.join(f'`{n}`' for n in names)} share their loops already")
    common = {stage.local(loop): loop for loop in stage.loops if set().union(*own) <= stage.members[loop]}
    again = [common[name] for name in directive.results if name in common]
    if again:
        listed = " and ".join(f"`{n}`" for n in names)
        operands.bad(directive, f"{listed} share `{again[0]}` already, and the names are of loops inside it")
    kept, others = inside[0][:count], [loop for loops in inside[1:] for loop in loops[:count]]
    shared = [fresh_loop(state, directive, stage, name, (*kept, *others)) for name in directive.results]
    if stage.distributed & {*kept, *others} or any(cut.loops & {*kept, *others} for cut in stage.cuts):
        raise _several_copies(directive, stage)
    _check_marks(directive, stage.marks, zip(*(loops[:count] for loops in inside), strict=True), stage.extents)
    members = {loop: found for loop, found in stage.members.items() if loop not in others}
    for loops in inside[1:]:
        for loop, into in zip(loops[:count], kept, strict=True):
            members[into] |= stage.members[loop]
    within = members[kept[-1]]
    last = max(k for k, s in enumerate(stage.statements) if s.name in within)
    first = min(k for k, s in enumerate(stage.statements) if s.name in within)
    apart = [(k, s) for k, s in enumerate(stage.statements) if s.name not in within]
    between = next((s for k, s in apart if first < k < last and not any(s.name in mine for mine in own)), None)
    if between is not None:
        what = between.definition.tensors[0].name
        raise error("S0205", f"`{what}` is computed between {' and '.join(f'`{n}`' for n in names)}, so they share no loop", directive.span)
    finishing = {s.name for k, s in apart if k > last or any(_follows(stage, k, mine & within) for mine in own if s.name in mine)}
    ahead = max((stage.loops.index(loop) for loop in common.values() if stage.loops.index(loop) < stage.loops.index(kept[0])), default=-1)
    at = max(ahead + 1, min(map(stage.loops.index, (*kept, *others))))
    joint = replace(
        stage,
        statements=(
            *(s for _, s in apart if s.name not in finishing),
            *(s for s in stage.statements if s.name in within),
            *(s for _, s in apart if s.name in finishing),
        ),
        loops=(
            *(loop for loop in stage.loops[:at] if loop not in (*kept, *others)),
            *kept,
            *(loop for loop in stage.loops[at:] if loop not in (*kept, *others)),
        ),
        members=members,
        extents={loop: extent for loop, extent in stage.extents.items() if loop not in others},
        forward={loop: value for loop, value in stage.forward.items() if loop not in others},
        marks={loop: mark for loop, mark in stage.marks.items() if loop not in others},
        reductions=stage.reductions - {*others},
        changes=(*stage.changes, *(_rename(loop, into) for loops in inside[1:] for loop, into in zip(loops[:count], kept, strict=True))),
        together=True,
    )
    return _called(joint, dict(zip(kept, shared, strict=True)))


def _called(stage: Stage, names: Mapping[str, str]) -> Stage:
    """Return a stage whose loops have other names, by those that they have: all at once, so that names may change places."""
    names = {old: new for old, new in names.items() if old != new}

    def named(by_loop: Mapping[str, V]) -> dict[str, V]:
        return {names.get(loop, loop): value for loop, value in by_loop.items()}

    apart = {old: f"{new}?" for old, new in names.items()}
    return replace(
        stage,
        loops=tuple(names.get(loop, loop) for loop in stage.loops),
        members=named(stage.members),
        extents=named(stage.extents),
        forward=named(stage.forward),
        marks=named(stage.marks),
        reductions=frozenset(names.get(loop, loop) for loop in stage.reductions),
        changes=(*stage.changes, *(_rename(old, apart[old]) for old in names), *(_rename(apart[old], new) for old, new in names.items())),
    )


def _follows(stage: Stage, position: int, names: frozenset[str] | set[str]) -> bool:
    """Tell whether a statement of `names` stands before a position."""
    return any(s.name in names for s in stage.statements[:position])


def _check(directive: syntax.Directive, part: Stage, count: int) -> None:
    if part.inside is not None:
        title = f"`{part.name}` is computed inside `{part.inside[1]}`, so it shares no loops with others"
        raise error("S0208", title, directive.span, help=f"`root {part.name}` first")
    if len(part.loops) < count:
        title = f"`{part.name}` has {len(part.loops)} loop{'s' * (len(part.loops) != 1)}, and {count} are to be shared"
        raise error("S0205", title, directive.span, help=f"its loops are {', '.join(part.loops) or 'none'}")
    if part.cuts or part.distributed & {"", *part.loops[:count]}:
        raise _several_copies(directive, part)
    if not _within(part, count):
        title = f"no statement of `{part.name}` is in all of {', '.join(f'`{loop}`' for loop in part.loops[:count])}"
        raise error("S0205", title, directive.span, help="share fewer loops, or order them first")


def _several_copies(directive: syntax.Directive, stage: Stage) -> Exception:
    return error("S0205", f"`{stage.name}` has several copies of its loops, which cannot be shared", directive.span)


def _within(part: Stage, count: int) -> frozenset[str]:
    """Return the statements that are in all of the first loops of a stage."""
    return frozenset.intersection(*(part.members[loop] for loop in part.loops[:count]))


def _check_marks(
    directive: syntax.Directive, marks: Mapping[str, Mark], shared: Iterable[Sequence[str]], extents: Mapping[str, int | None]
) -> None:
    """Refuse loops to be shared that are said to run differently, or as one of them cannot for want of a constant extent."""
    for loops in shared:
        marked = [(loop, marks[loop]) for loop in loops if loop in marks]
        if len({mark for _, mark in marked}) > 1:
            title = " and ".join(f"`{loop}` is {DONE.get(mark, mark)}" for loop, mark in marked)
            raise error("S0213", f"{title}, so they cannot be one loop", directive.span, help="say how a loop runs after `together`")
        static = next((loop for loop, mark in marked if mark in LIMITS), None)
        if static is not None:
            _check_extents(
                directive, static, marks[static], [(loop, extents[loop]) for loop in loops if loop not in marks], extents[static]
            )


def _check_extents(
    directive: syntax.Directive, loop: str, mark: Mark, others: Iterable[tuple[str, int | None]], extent: int | None
) -> None:
    """Refuse `others` to be one with a loop that is written out, where they are too long for that."""
    for other, found in others:
        if found is None or found > LIMITS[mark]:
            title = f"`{loop}` is {DONE.get(mark, mark)}, and `{other}` has {found or 'no constant number of'} iterations"
            help = f"split it first: `split {other} by {extent or 8} -> …`"
            raise error("S0207", f"{title}, so they cannot be one loop", directive.span, help=help)


def _joined(parts: list[Stage], shared: Mapping[str, Mapping[str, str]], count: int) -> Stage:
    first = parts[0]
    loops = list(shared[first.name].values())
    members: dict[str, frozenset[str]] = {loop: frozenset() for loop in loops}
    extents: dict[str, int | None] = {}
    forward: dict[str, Affine] = {}
    marks: dict[str, Mark] = {}
    base: dict[str, tuple[Change, ...]] = {}
    for part in parts:
        own = shared[part.name]
        loops += [loop for loop in part.loops if loop not in own]
        for loop in part.loops:
            name = own.get(loop, loop)
            members[name] = members.get(name, frozenset()) | part.members[loop]
            extents[name] = part.extents[loop] if extents.get(name, part.extents[loop]) == part.extents[loop] else None
            forward.setdefault(name, part.forward[loop])
            if loop in part.marks:
                marks[name] = part.marks[loop]
        renamed = tuple(_rename(old, new) for old, new in own.items() if old != new)
        base |= {statement: (*changes, *part.changes, *renamed) for statement, changes in part.base.items()}
    return Stage(
        first.name,
        tuple(d for part in parts for d in part.definitions),
        tuple(_in_order(parts, count)),
        tuple(loops),
        members,
        extents,
        frozenset(loop for part in parts for loop in part.reductions),
        forward,
        base,
        marks=marks,
        distributed=frozenset().union(*(part.distributed for part in parts)),
        together=True,
    )


def _in_order(parts: Sequence[Stage], count: int) -> Iterator[StatementInfo]:
    """Yield the statements of all parts: those before the loops that they are to share, those in these loops, and those after them."""
    within = [_within(part, count) for part in parts]
    for phase in range(3):
        for part, inside in zip(parts, within, strict=True):
            first = next(k for k, s in enumerate(part.statements) if s.name in inside)
            last = max(k for k, s in enumerate(part.statements) if s.name in inside)
            yield from (part.statements[:first], part.statements[first : last + 1], part.statements[last + 1 :])[phase]


def _rename(old: str, new: str) -> Change:
    return Change((old,), renaming(old, new))


TOGETHER = Kind(
    "together",
    FORMS["together"],
    together,
)
