"""`trim LOOP, …`: iterations in which nobody needs anything are left out.

    s[t, i] = … s[t - 1, i] …           for t in 0..N: s[t, i]                 for t in 0..i//4 + 1: s[t, i]
    y[i] = s[i // 4, i]                 y[i]                          →        y[i]

A recurrence is defined for all steps, and a row of it may be asked for after some of them only. What is needed follows from dependences
(`polyhedral.needed`). An iteration stays whole as soon as something in it is needed, so a block of rows goes on until its last row is
done; that nothing was left out which somebody reads is proven with the rest of the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polyhedral.model import Scop
from polyhedral.needed import needed
from polyhedral.nest import Nest
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind
from tensorlang.schedule.plan import Stage
from tensorlang.schedule.state import State, loop_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS


@dataclass(frozen=True, slots=True)
class _Trimmed:
    """A loop leaves out iterations in which nobody needs anything."""


def trim(state: State, directive: syntax.Directive) -> None:
    """`trim LOOP, …`: note which loops leave out iterations."""
    for name in operands.names(directive, directive.operands):
        stage, loop = loop_of(state, directive, name)
        if stage.inside is not None:
            title = f"`{stage.name}` is computed inside `{stage.inside[1]}`, over what is needed there as it is"
            raise error("S0205", title, directive.span, help="trim a loop of who needs it")
        state.about_loops.put(loop, _Trimmed(), directive)


def trimmed(state: State, stage: Stage, scop: Scop, nests: Mapping[str, Nest]) -> Mapping[str, Nest]:
    """Return the nests of `stage` that have a loop to trim without the iterations that nobody needs."""
    asked = {said.about: said.directive for said in state.about_loops.of(_Trimmed) if said.about in stage.loops}
    loops = list(asked)
    if not loops:
        return {}
    roots = {s.name for other in state.stages.values() if other.inside is None for s in other.statements}
    mine = {s.name for s in stage.statements if any(s.name in stage.members[loop] for loop in loops)}
    results = {s.name for s in stage.statements if {t.name for t in s.definition.tensors} & set(state.program.results)}
    points = needed(scop, (roots - mine) | results)
    out: dict[str, Nest] = {}
    for loop in loops:
        around = {p: n for p in nests if (n := out.get(p, nests[p])).statement in mine and loop in n.loops}
        prefixes = {n.loops[: n.loops.index(loop) + 1] for n in around.values()}
        if len(prefixes) != 1:
            title = f"what runs in `{loop}` does not share the loops around it"
            raise error("S0205", title, asked[loop].span, help="`order` its loops, or `together` what shares them")
        out |= {p: n.within(n.outermost(points[n.statement], len(next(iter(prefixes)))).coalesce()) for p, n in around.items()}
    return out


TRIM = Kind(
    "trim",
    FORMS["trim"],
    trim,
)
