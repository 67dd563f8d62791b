"""In which loops recurrences run, so that no value is needed before its turn.

Tensors that are defined through each other share loops, each at an offset of its own:

    hs[t + 1, j] = f(cs[t + 1, j])     cs[t + 1, j] = g(z[t, j])     z[t, j] = h(hs[t, ..])

share one over `t`: cs, hs at t and z at t + 1, in the order z, cs, hs. Where they need each other within a turn too, they share another
loop inside. Shared loops run in whatever direction is legal. The loops of one tensor alone run as they are written, unless directives say
otherwise; `legal_order` gives those that make them legal. What shares which loop is found from exact dependences
(`polyhedral.mutual_recurrence`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.mutual_recurrence import LoopNest, Separate, Shared, loop_nests, takes
from polyhedral.nest import Nest
from polyhedral.recurrence import Form
from tensorlang.diagnostics import error
from tensorlang.schedule.plan import Change, Plan, Stage, full, make_stage, owned
from tensorlang.schedule.schedule import Schedule
from tensorlang.tensor.facts import box
from tensorlang.tensor.nodes import Definition, Program
from tensorlang.tensor.prove import Prover
from tensorlang.tensor.scop import Stages
from tensorlang.tensor.walk import component_of, definition_reads


def shared_stage(program: Program, stages: Stages, group: tuple[Definition, ...]) -> Stage:
    """Return one stage for definitions that need each other, with the loops that they share.

    Raises CompileError S0210 when no loops order them."""
    found = _turns(program, group)
    if found is None:
        names = ", ".join(f"`{d.tensors[0].name}`" for d in group)
        raise error("S0210", f"{names} need each other, and no loops that they could share order them", group[0].span)
    parts = {d.tensors[0].name: _Part.of(make_stage(stages, d)) for d in group}
    ordered = [parts[alone.tensor] for turn in found for alone in _alone(turn)]
    joint = _Joint(ordered[0].stage.name)
    for turn in found:
        _add(joint, parts, turn)
    return Stage(
        joint.name,
        tuple(d for part in ordered for d in part.stage.definitions),
        tuple(s for part in ordered for s in part.stage.statements),
        tuple(joint.loops),
        joint.members,
        joint.extents,
        frozenset(loop for part in ordered for loop in part.stage.reductions),
        joint.forward,
        {statement: changes for part in ordered for statement, changes in part.base.items()},
    )


@dataclass(slots=True)
class _Part:
    """The stage of one tensor, with the loops that are not shared yet, and how its statements get the names of those that are."""

    stage: Stage
    loops: list[str]
    base: dict[str, tuple[Change, ...]]

    @staticmethod
    def of(stage: Stage) -> _Part:
        return _Part(stage, list(stage.loops), dict(stage.base))


@dataclass(slots=True)
class _Joint:
    """The loops of the joint stage as far as they are known."""

    name: str
    loops: list[str] = field(default_factory=list)
    members: dict[str, frozenset[str]] = field(default_factory=dict)
    extents: dict[str, int | None] = field(default_factory=dict)
    forward: dict[str, Affine] = field(default_factory=dict)


def legal_order(schedule: Schedule, program: Program, definition: Definition) -> Schedule:
    """Return `schedule` with the directives that let the loops of one recurrence run in an order that its dependences allow: none where
    they do so as they are written, or where no such loops are known."""
    name = definition.tensors[0].name
    group = component_of(program, definition)
    if len(group) == 1 and not {t.name for t in definition.tensors} & set(definition_reads(definition)):
        return schedule
    forms = next((turn.forms for top in _turns(program, group) or () for turn in _alone(top) if turn.tensor == name), ())
    taken: list[int] = []
    for axis, form in _axes_taken(forms):
        taken.append(axis)
        loop = full(name, definition.axes[axis])
        schedule = schedule.reverse(loop) if form[axis] < 0 else schedule
        for k, factor in enumerate(form):
            schedule = schedule.skew(loop, full(name, definition.axes[k]), factor) if factor and k != axis else schedule
    return schedule.order(*(full(name, definition.axes[k]) for k in taken)) if taken != sorted(taken) else schedule


def directions(program: Program, group: tuple[Definition, ...]) -> tuple[int, ...] | None:
    """Return whether tensors that need each other run forwards (1) or backwards (-1) along each of their axes, in loops that they share or
    may share; None where a loop goes along several axes at once, or not all tensors go alike."""
    found: dict[str, dict[int, int]] = {}
    for top in _turns(program, group) or ():
        for tensor, form, offset in _steps(top):
            along = [(k, sign) for k, sign in enumerate(form) if sign]
            if len(along) != 1 or offset:
                return None
            found.setdefault(tensor, {}).update(along)
    signs = {tuple(sign for _, sign in sorted(along.items())) for along in found.values()}
    (first, *others) = signs or {()}
    return first if not others and first and all(len(x.axes) == len(first) for x in group) else None


def _steps(turn: LoopNest) -> Iterator[tuple[str, Form, int]]:
    """Yield the loops of each tensor: what each is over, and how many iterations after the first of those that share it."""
    match turn:
        case Separate(tensor, forms):
            yield from ((tensor, form, 0) for form in forms)
        case Shared(forms, offsets, inside):
            first = min(offsets.values())
            yield from ((tensor, form, offsets[tensor] - first) for tensor, form in forms.items())
            for inner in inside:
                yield from _steps(inner)
        case _:
            assert_never(turn)


def innermost_apart(plan: Plan, group: Sequence[Definition]) -> dict[str, str]:
    """Return tensors with the axis of their innermost loop, one for each such loop, where the tensors of a group share all others, so that
    this may be one loop, too (`together`): first the one after which loops are called. Nothing where they do not, or share all."""
    loops = {m.tensors[0].name: plan.placed.nests[plan.stages.of(m)[0].name].loops for m in group}
    every, last = list(loops.values()), {name: owned(found[-1], loops)[1] for name, found in loops.items()}
    if len({x[:-1] for x in every}) > 1 or len({*last.values()}) > 1 or len(set(every)) == 1:
        return {}
    first = owned(every[0][0], loops)[0]
    names = {found[-1]: name for name, found in reversed(loops.items())}.values()
    return {x: last[x] for x in sorted(names, key=lambda name: name != first)}


def _axes_taken(forms: Sequence[Form]) -> Iterator[tuple[int, Form]]:
    """Return the position of the axis that each form takes, with the form."""
    free = frozenset(range(len(forms[0]) if forms else 0))
    for form in forms:
        axis = takes(form, free)
        assert axis is not None
        yield axis, form
        free -= {axis}


def _turns(program: Program, group: tuple[Definition, ...]) -> tuple[LoopNest, ...] | None:
    prover = Prover(program)
    primary = {t.name: d.tensors[0].name for d in group for t in d.tensors}
    edges = tuple(e._replace(indices=tuple(e.indices)) for d in group for e in prover.edges(d, primary))
    nodes = tuple((d.tensors[0].name, d.axes, box(d)) for d in group)
    begun = frozenset(d.tensors[0].name for d in group if len(d.pieces) > 1)
    return loop_nests(program.sizes, prover.context, nodes, edges, begun)


def _alone(turn: LoopNest) -> Iterator[Separate]:
    """Return the tensors in the order in which they are computed, each with the loops that are its own."""
    match turn:
        case Separate():
            yield turn
        case Shared(inside=inside):
            for inner in inside:
                yield from _alone(inner)
        case _:
            assert_never(turn)


def _add(joint: _Joint, parts: Mapping[str, _Part], turn: LoopNest) -> None:
    """Put the loops of `turn` into the joint stage."""
    match turn:
        case Separate(tensor):
            part = parts[tensor]
            joint.loops += part.loops
            for loop in part.loops:
                alone = part.stage
                joint.extents[loop], joint.members[loop], joint.forward[loop] = (
                    alone.extents[loop],
                    alone.members[loop],
                    alone.forward[loop],
                )
        case Shared(forms, offsets, inside):
            members = [parts[alone.tensor] for alone in _alone(turn)]
            first = next(part for part in members if any(forms[part.stage.name]))
            shared, value, about = _shared_loop(joint, first, members, forms)
            joint.loops.append(shared)
            joint.extents[shared], joint.forward[shared] = None, value
            joint.members[shared] = frozenset(s.name for part in members for s in part.stage.statements)
            for part in members:
                later = offsets[part.stage.name] - offsets[first.stage.name]
                _share(part, shared, forms[part.stage.name], affine.add(about, later))
            for inner in inside:
                _add(joint, parts, inner)
        case _:
            assert_never(turn)


def _shared_loop(joint: _Joint, first: _Part, members: Sequence[_Part], forms: Mapping[str, Form]) -> tuple[str, Affine, Affine]:
    """Return the name of a loop that `members` share, what it is in terms of `first`, which has an axis for it, and what it counts from:
    where all of them go backwards, from the end."""
    form = forms[first.stage.name]
    axis = _taken(first, form)
    assert axis is not None
    definition = first.stage.definitions[0]
    loop = full(first.stage.name, definition.axes[axis])
    own = [(p.stage, k) for p in members if (k := _taken(p, forms[p.stage.name])) is not None]
    backwards = all(forms[stage.name][k] < 0 for stage, k in own)
    about = affine.sub(definition.tensors[0].shape[axis], 1) if backwards else affine.ZERO
    value = affine.add(about, *(affine.scale(f, a) for f, a in zip(form, definition.axes, strict=True)))
    taken = {full(stage.name, stage.definitions[0].axes[k]) for stage, k in own}
    name = full(joint.name, definition.axes[axis])
    is_free = name not in joint.loops and all(name not in p.loops or name in taken for p in members)
    return (name if is_free else loop), value, about


def _share(part: _Part, shared: str, form: Form, start: Affine) -> None:
    """Have a tensor run where the loop `shared` is `form` + `start`, in place of the loop over the axis that the form takes."""
    name, axes, axis = part.stage.name, part.stage.definitions[0].axes, _taken(part, form)
    if axis is None:
        change = Change((), lambda nest: nest.insert(0, shared, start))
    else:
        own = full(name, axes[axis])
        along = [(full(name, axes[k]), factor) for k, factor in enumerate(form) if factor and k != axis]
        part.loops.remove(own)
        change = Change((own,), lambda nest: _moved(nest, own, form[axis], along, start).rename(own, shared))
    for statement, changes in part.base.items():
        part.base[statement] = (*changes, change)


def _moved(nest: Nest, loop: str, sign: int, along: Sequence[tuple[str, int]], start: Affine) -> Nest:
    """Return `nest` with `loop` replaced by `start` + `sign` * `loop` + the sum of the loops `along`."""
    nest = nest.mirror(loop, start) if sign < 0 else nest.mirror(loop, affine.ZERO).mirror(loop, start)
    for other, factor in along:
        nest = nest.skew(loop, other, factor)
    return nest


def _taken(part: _Part, form: Form) -> int | None:
    """Return the position of the axis whose loop is replaced by one over `form`."""
    axes = part.stage.definitions[0].axes
    return takes(form, frozenset(k for k, axis in enumerate(axes) if full(part.stage.name, axis) in part.loops))
