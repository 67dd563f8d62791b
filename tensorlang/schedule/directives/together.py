"""`together A, B, … -> LOOP, …`: the outermost loops of several tensors become one, as many as are named.

for h: for t: m[h, t]               for h:
for h: for t: o[h, t]        →          for t: m[h, t]; o[h, t]             together m, o -> h, t
for h: y[h]                             y[h]                                together m, y -> h

In an iteration the tensors are computed in the order in which they are named. What is computed inside such a loop runs before the first of
them that needs it. Recurrences that advance together, and whoever reads their last elements, can so share the loops of a block of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyhedral.expr import Expr as Affine
from polyhedral.model import Mark
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind
from tensorlang.schedule.directives.loops import DONE
from tensorlang.schedule.plan import Change, Stage, full
from tensorlang.schedule.state import State, put, stage_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS


def together(state: State, directive: syntax.Directive) -> None:
    """Make one stage of those of several tensors."""
    names = operands.names(directive, directive.operands, 2)
    parts = list({stage.name: stage for stage in (stage_of(state, directive, name) for name in names)}.values())
    if len(parts) < 2:
        operands.bad(directive, f"{' and '.join(f'`{n}`' for n in names)} share their loops already")
    count = len(directive.results)
    if not count or len(set(directive.results)) < count:
        operands.bad(directive, "it gives a name to each loop that they share")
    for part in parts:
        _check(directive, part, count)
    _check_marks(directive, parts, count)
    shared = {part.name: dict(zip(part.loops, (full(parts[0].name, n) for n in directive.results), strict=False)) for part in parts}
    joint = _joined(parts, shared)
    stages = list(state.stages.values())
    last = max(k for k, stage in enumerate(stages) if stage.name in shared)
    ordered = [joint if k == last else stage for k, stage in enumerate(stages) if k == last or stage.name not in shared]
    state.stages.clear()
    for stage in ordered:
        owner, loop = stage.inside or ("", "")
        put(state, replace(stage, inside=(joint.name, shared[owner].get(loop, loop))) if owner in shared else stage)


def _check(directive: syntax.Directive, part: Stage, count: int) -> None:
    if part.inside is not None:
        title = f"`{part.name}` is computed inside `{part.inside[1]}`, so it shares no loops with others"
        raise error("S0208", title, directive.span, help=f"`root {part.name}` first")
    if len(part.loops) < count:
        title = f"`{part.name}` has {len(part.loops)} loop{'s' * (len(part.loops) != 1)}, and {count} are to be shared"
        raise error("S0205", title, directive.span, help=f"its loops are {', '.join(part.loops) or 'none'}")
    if part.cuts or part.distributed:
        raise error("S0205", f"`{part.name}` has several copies of its loops, which cannot be shared", directive.span)
    partial = next((loop for loop in part.loops[:count] if len(part.members[loop]) < len(part.statements)), None)
    if partial is not None:
        help_ = "`order` its loops so that the first of them enclose everything"
        raise error("S0205", f"`{partial}` does not enclose all that makes `{part.name}`", directive.span, help=help_)


def _check_marks(directive: syntax.Directive, parts: list[Stage], count: int) -> None:
    """Refuse loops to be shared that are said to run differently."""
    for loops in zip(*(part.loops[:count] for part in parts), strict=True):
        marked = [(loop, part.marks[loop]) for loop, part in zip(loops, parts, strict=True) if loop in part.marks]
        if len({mark for _, mark in marked}) > 1:
            title = " and ".join(f"`{loop}` is {DONE.get(mark, mark)}" for loop, mark in marked)
            raise error("S0213", f"{title}, so they cannot be one loop", directive.span, help="say how a loop runs after `together`")


def _joined(parts: list[Stage], shared: Mapping[str, Mapping[str, str]]) -> Stage:
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
        tuple(s for part in parts for s in part.statements),
        tuple(loops),
        members,
        extents,
        frozenset(loop for part in parts for loop in part.reductions),
        forward,
        base,
        marks=marks,
        together=True,
    )


def _rename(old: str, new: str) -> Change:
    return Change((old,), lambda nest: nest.rename(old, new))


TOGETHER = Kind(
    "together",
    FORMS["together"],
    together,
)
