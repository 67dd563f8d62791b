"""Directives that run parts of a loop apart from each other: `peel`, `cut`.

    for i in 0..N: S        →       for a in 0..N // 2: S           cut i at N // 2 -> a, b
                                    for b in N // 2..N: S

Parts that are named are loops of their own: each has an order, tiles and a way to run. Parts without names share their directives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Cond, Name
from polyhedral.expr import Expr as Affine
from polyhedral.nest import Nest
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind, idle_message
from tensorlang.schedule.directives.loops import lowest, owners, unmarked
from tensorlang.schedule.plan import Change, Cut, Stage, common_extent
from tensorlang.schedule.state import State, fresh_loop, loop_of, put
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS


def peel(state: State, directive: syntax.Directive) -> None:
    """`peel LOOP by N`: the first N iterations run in a copy of the loops of their own."""
    name = operands.only_name(directive)
    count = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    stage, loop = loop_of(state, directive, name)
    if stage.inside is not None:
        raise error(
            "S0211",
            f"`{stage.name}` is computed inside `{stage.inside[1]}`, so its loops cannot be peeled",
            directive.span,
            help=f"`root {stage.name}` first",
        )
    low = lowest(state, stage, loop)
    if low is None:
        raise error(
            "S0211",
            f"`{loop}` has no first iteration that is the same everywhere, so it cannot be peeled",
            directive.span,
            help=f"`cut {name} at` where the parts meet, or peel before `skew`",
        )
    _in_parts(state, directive, stage, loop, affine.add(low, count), (loop, loop))


def cut(state: State, directive: syntax.Directive) -> None:
    """`cut LOOP at POINT, … -> PART, …`: the iterations before each point, and from the last on, run in loops of their own."""
    name = operands.only_name(directive)
    points = operands.phrase(directive, "at") or ()
    results = directive.results
    if not points:
        operands.bad(directive, "it needs a point after `at`")
    if results and len(results) != len(points) + 1:
        operands.bad(directive, f"{len(points)} point{'s make' if len(points) > 1 else ' makes'} {len(points) + 1} parts")
    if len(set(results)) < len(results):
        operands.bad(directive, "the parts need different names")
    stage, loop = loop_of(state, directive, name)
    bounds = [_point(state, directive, stage, loop, point) for point in points]
    rest = loop
    if results:
        stage = put(state, unmarked(directive, stage, loop))
        *parts, rest = (fresh_loop(state, directive, stage, part, (loop,)) for part in results)
    for k, bound in enumerate(bounds):
        stage = state.stages[stage.name]
        _in_parts(state, directive, stage, loop if k == 0 else rest, bound, (parts[k] if results else loop, rest))


def _point(state: State, directive: syntax.Directive, stage: Stage, loop: str, point: syntax.Expr | syntax.Layout) -> Affine:
    """Return where a loop is cut, over sizes and other loops of its stage."""
    if isinstance(point, syntax.Layout):
        operands.bad(directive, "a point is a number, or an expression over sizes and other loops")
    others = [other for other in stage.loops if other != loop and _is_around_all(stage, other, loop)]
    env: dict[str, Affine] = {size: Name(size) for size in state.program.sizes}
    for other in others:
        env |= {stage.local(other): Name(other), other: Name(other)}
    return operands.position(directive, point, env, state.knobs)


def _is_around_all(stage: Stage, other: str, loop: str) -> bool:
    """Return whether whatever runs in `loop` runs in `other`, too, in whatever order they stand."""
    return stage.members[loop] <= stage.members[other] and stage.parts(other).items() <= stage.parts(loop).items()


def _in_parts(state: State, directive: syntax.Directive, stage: Stage, loop: str, bound: Affine, parts: tuple[str, str]) -> None:
    """Run the iterations of `loop` before `bound` as the first of `parts`, the others as the second; they may have its own name."""
    around = owners(state, stage, loop)
    before, after = affine.compare("<", loop, bound), affine.compare(">=", loop, bound)
    if all(_is_empty(nest, before) for nest in around) or all(_is_empty(nest, after) for nest in around):
        state.idle.append(idle_message(directive, f"no iteration of `{loop}` is in one of the parts"))
    number, under = len(stage.cuts), tuple(stage.parts(loop).items())
    names, alone = affine.name_set(bound) & {*stage.loops}, affine.constant(bound) is not None and parts != (loop, loop)
    change = Change((loop, *names), _part(loop, before, parts[0], alone), _part(loop, after, parts[1], alone), number)
    made = replace(stage, changes=(*stage.changes, change))
    if parts == (loop, loop):
        put(state, replace(made, cuts=(*stage.cuts, Cut(frozenset(parts), frozenset(parts), under))))
    else:
        whole = stage.forward[loop]
        made = replace(made, forward={**made.forward, **dict.fromkeys(parts, whole)}, extents={**made.extents, **dict.fromkeys(parts)})
        kept = stage.distributed & {loop}
        made = made.instead((loop,), parts)
        made = replace(
            made,
            cuts=(*made.cuts, Cut(frozenset(parts[:1]), frozenset(parts[1:]), under)),
            distributed=made.distributed | (frozenset(parts) if kept else frozenset()),
        )
        put(state, replace(made, extents={**made.extents, **{part: common_extent(owners(state, made, part), part) for part in parts}}))
    state.peels.append((stage.name, directive))


def _part(loop: str, cond: Cond, part: str, alone: bool) -> Callable[[Nest], Nest]:
    """Return what keeps the iterations of `loop` where `cond` holds, as loop `part`. `alone`: it is about no other loop or size."""
    return lambda nest: nest.restrict(cond, tiles=alone).rename(loop, part)


def _is_empty(nest: Nest, cond: Cond) -> bool:
    return nest.restrict(cond).extent(nest.loops[0]) == 0


PEEL = Kind("peel", FORMS["peel"], peel)
CUT = Kind("cut", FORMS["cut"], cut)
