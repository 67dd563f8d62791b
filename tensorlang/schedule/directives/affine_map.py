"""`affine TENSOR (EXPRESSION, …) -> LOOP, …`: loops in the place of those that the expressions are over.

    for t: for i: S(t, i)       →       for a: for b: if (a + b) % 2 == 0: S((a + b) // 2, (a - b) // 2)

by `affine s (t + i, t - i) -> a, b`. Any quasi-affine map that keeps iterations apart will do: what the loops are in terms of the new
ones is found by inverting it, and values that no iteration has become bounds and conditions. `skew`, `shift`, `reverse`, `split` and
`fuse` are such maps; loops that are constants or sums of others add one iteration each. Where some of the loops enclose a part of the
statements alone, as that of a sum does, expressions that share no loop are maps of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from polyhedral.nest import Nest
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind
from tensorlang.schedule.directives.loops import owners, unmarked
from tensorlang.schedule.plan import Change, Stage, common_extent
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
    is_one = all(_kind(stage, loop) == _kind(stage, gone[0]) for loop in gone)
    groups = [[*range(len(exprs))]] if is_one else _groups([{*affine.names(e)} & {*gone} for e in exprs])
    made: dict[int, str] = {}
    for group in groups:
        mapped = _mapped(state, directive, stage.name, {directive.results[k]: exprs[k] for k in group})
        made.update(zip(group, mapped, strict=True))
    if len(groups) > 1:
        put(state, _side_by_side(state.stages[stage.name], [made[k] for k in range(len(exprs))]))


def _side_by_side(stage: Stage, loops: Sequence[str]) -> Stage:
    """Return the stage with loops in this order at the place of the outermost of them."""
    others = [loop for loop in stage.loops if loop not in loops]
    place = next(k for k, loop in enumerate(stage.loops) if loop in loops)
    return replace(stage, loops=(*others[:place], *loops, *others[place:]))


def _kind(stage: Stage, loop: str) -> tuple[object, object, bool]:
    """Return what loops of one map have in common: the statements and the parts that they enclose, and whether they are those of a sum."""
    return stage.members[loop], stage.parts(loop), loop in stage.reductions


def _groups(named: Sequence[set[str]]) -> list[list[int]]:
    """Return numbers of expressions, given the loops that each names: those that share loops together, and constants with the first."""
    groups: list[list[int]] = []
    for number in sorted(range(len(named)), key=lambda k: not named[k]):
        joined = [g for g in groups if any(named[k] & named[number] for k in g)] if named[number] else groups[:1]
        groups = [[number, *(k for g in joined for k in g)], *(g for g in groups if g not in joined)]
    return [sorted(group) for group in groups]


def _mapped(state: State, directive: syntax.Directive, name: str, by_local: Mapping[str, Affine]) -> tuple[str, ...]:
    """Replace the loops that some of the expressions name, and return the full names of the new ones."""
    stage = state.stages[name]
    named = {n for e in by_local.values() for n in affine.names(e)}
    gone = tuple(loop for loop in stage.loops if loop in named)
    for loop in gone[1:]:
        if _kind(stage, loop)[:2] != _kind(stage, gone[0])[:2]:
            raise error("S0206", f"`{gone[0]}` and `{loop}` do not enclose the same statements", directive.span)
        if (loop in stage.reductions) != (gone[0] in stage.reductions):
            raise error("S0206", f"of `{gone[0]}` and `{loop}`, one is a loop of a sum", directive.span)
    names = tuple(fresh_loop(state, directive, stage, local, gone) for local in by_local)
    stage = unmarked(directive, stage, *gone)
    by = dict(zip(names, by_local.values(), strict=True))

    def apply(nest: Nest) -> Nest:
        return nest.mapped(gone, by)

    for nest in owners(state, stage, gone[0]):
        apply(nest)
    meaning = {loop: affine.substitute(e, dict(stage.forward)) for loop, e in by.items()}
    made = stage.then(Change(gone, apply), meaning, dict.fromkeys(names)).instead(gone, names)
    put(state, replace(made, extents={**made.extents, **{n: common_extent(owners(state, made, n), n) for n in names}}))
    return names


AFFINE = Kind("affine", FORMS["affine"], map_loops)
