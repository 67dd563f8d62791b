"""`affine TENSOR (EXPRESSION, …) -> LOOP, …`: loops in the place of those that the expressions are over.

    for t: for i: S(t, i)       →       for a: for b: if (a + b) % 2 == 0: S((a + b) // 2, (a - b) // 2)

by `affine s (t + i, t - i) -> a, b`. Any quasi-affine map that keeps iterations apart will do: what the loops are in terms of the new
ones is found by inverting it, and values that no iteration has become bounds and conditions. `skew`, `shift`, `reverse`, `split` and
`fuse` are such maps; loops that are constants or sums of others add one iteration each.
"""

from __future__ import annotations

from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from polyhedral.nest import Nest
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind
from tensorlang.schedule.directives.loops import owners, unmarked
from tensorlang.schedule.plan import Change, common_extent
from tensorlang.schedule.state import State, fresh_loop, put, stage_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS


def map_loops(state: State, directive: syntax.Directive) -> None:
    """Replace the loops that the expressions name."""
    match directive.operands:
        case (syntax.Apply(tensor, args),) if not directive.phrases:
            pass
        case _:
            operands.bad(directive, "it needs one tensor with expressions in parentheses")
    written = [a for a in args if not isinstance(a, syntax.Keyword)]
    if not written or len(written) != len(args) or len(directive.results) != len(written):
        operands.bad(directive, "it gives a name to each expression")
    if len(set(directive.results)) < len(written):
        operands.bad(directive, "the loops need different names")
    stage = stage_of(state, directive, tensor)
    env: dict[str, Affine] = {size: Name(size) for size in state.program.sizes}
    for loop in stage.loops:
        env |= {stage.local(loop): Name(loop), loop: Name(loop)}
    exprs = [operands.position(directive, e, env, state.knobs) for e in written]
    named = {name for e in exprs for name in affine.names(e)}
    gone = tuple(loop for loop in stage.loops if loop in named)
    if not gone:
        operands.bad(directive, "its expressions name no loop")
    for loop in gone[1:]:
        if (stage.members[loop], stage.parts(loop)) != (stage.members[gone[0]], stage.parts(gone[0])):
            raise error("S0206", f"`{gone[0]}` and `{loop}` do not enclose the same statements", directive.span)
        if (loop in stage.reductions) != (gone[0] in stage.reductions):
            raise error("S0206", f"of `{gone[0]}` and `{loop}`, one is a loop of a sum", directive.span)
    names = tuple(fresh_loop(state, directive, stage, name, gone) for name in directive.results)
    stage = unmarked(directive, stage, *gone)
    by = dict(zip(names, exprs, strict=True))

    def apply(nest: Nest) -> Nest:
        return nest.mapped(gone, by)

    for nest in owners(state, stage, gone[0]):
        apply(nest)
    meaning = {name: affine.substitute(e, dict(stage.forward)) for name, e in by.items()}
    made = stage.then(Change(gone, apply), meaning, dict.fromkeys(names)).instead(gone, names)
    put(state, replace(made, extents={**made.extents, **{n: common_extent(owners(state, made, n), n) for n in names}}))


AFFINE = Kind("affine", FORMS["affine"], map_loops)
