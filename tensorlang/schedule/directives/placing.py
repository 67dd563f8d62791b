"""Directives that say where a stage runs, and how its tensors are kept: `distribute`, `at`, `root`, `store_at`, `fold`, `stream`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from codegen.loops.notes import Streamed, note_of
from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.diagnostics import error
from tensorlang.schedule.annotations import origin_of
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind, idle_message
from tensorlang.schedule.directives.loops import unmarked
from tensorlang.schedule.plan import Plan, Stage, full, owned
from tensorlang.schedule.state import State, fresh_loop, loop_of, put, stage_of, statement_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS
from tensorlang.tensor.walk import definition_reads, reads, tensor_table


@dataclass(frozen=True, slots=True)
class StoredAt:
    """The loop that privatises a tensor; "" for none."""

    loop: str


@dataclass(frozen=True, slots=True)
class ComputedAt:
    """The loop inside which a stage is computed, which is called by its first tensor."""

    loop: str


def _distribute(state: State, directive: syntax.Directive) -> None:
    if directive.results:
        _own_loops(state, directive)
        return
    name = operands.only_name(directive)
    stage = stage_of(state, directive, name)
    loop = ""
    if operands.phrase(directive, "at") is not None:
        owner, loop = loop_of(state, directive, operands.name(directive, operands.the(directive, "at")))
        if owner is not stage:
            raise error("S0205", f"`{loop}` is no loop of `{name}`", directive.span)
    put(state, replace(stage, distributed=stage.distributed | {loop}))


def _own_loops(state: State, directive: syntax.Directive) -> None:
    """`distribute STATEMENT, … at LOOP, … -> OWN, …`: give statements loops of their own in the place of those that they share. A sum,
    which is called by its range, is complete before anything else runs there."""
    found = [_meant(state, directive, name) for name in operands.names(directive, directive.operands)]
    stage, statements = found[0].stage, frozenset(name for one in found for name in one.statements)
    loops = [loop_of(state, directive, name) for name in operands.names(directive, operands.phrase(directive, "at") or (), at_least=0)]
    if not loops or len(loops) != len(directive.results) or len({*directive.results}) < len(loops):
        operands.bad(directive, "it gives a name of its own to each loop after `at`")
    for owner, name in (*((one.stage, one.name) for one in found), *loops):
        if owner is not stage:
            raise error("S0205", f"`{name}` belongs to `{owner.name}`, `{found[0].name}` to `{stage.name}`", directive.span)
    for _, loop in loops:
        without = sorted(statements - stage.members[loop])
        if without:
            runs = ", ".join(f"`{name}`" for name in sorted(stage.members[loop]))
            raise error("S0206", f"`{without[0]}` does not run in `{loop}`", directive.span, help=f"in it run {runs}")
    stage = unmarked(directive, stage, *(loop for _, loop in loops))
    own = {loop: fresh_loop(state, directive, stage, name, (loop,)) for (_, loop), name in zip(loops, directive.results, strict=True)}
    for loop, name in own.items():
        if name == loop and stage.members[loop] != statements:
            raise error("S0106", f"`{loop}` is what the others run in", directive.span, help="choose another name")
    sums = frozenset(name for one in found if one.is_sum for name in one.statements)
    there = frozenset(name for loop in own for name in stage.members[loop])
    first, others = (tuple(s for s in stage.statements if (s.name in sums) == is_sum) for is_sum in (True, False))
    before = tuple(takewhile(lambda s: s.name not in there, others))
    ordered = replace(stage, statements=(*before, *first, *others[len(before) :]))
    if all(stage.members[loop] == statements for loop in own) and ordered.statements == stage.statements:
        state.idle.append(idle_message(directive, "nothing else runs in these loops"))
    put(state, ordered.with_loops(statements, {loop: name for loop, name in own.items() if name != loop}))


@dataclass(frozen=True, slots=True)
class _Meant:
    """What a name in `distribute` stands for."""

    stage: Stage
    name: str
    statements: frozenset[str]
    is_sum: bool


def _meant(state: State, directive: syntax.Directive, name: str) -> _Meant:
    """Return the statement, or the start and the steps of the sum over the range, that is called `name`."""
    found = statement_of(state, name)
    if found is not None:
        stage, statement = found
        return _Meant(stage, statement, frozenset((statement,)), is_sum=False)
    if not any(name in (loop, stage.local(loop)) for stage in state.stages.values() for loop in stage.loops):
        known = ", ".join(s.name for stage in state.stages.values() for s in stage.statements)
        raise error("S0105", f"`{name}` is no statement of this operator", directive.span, help=f"its statements are {known}")
    stage, binder = loop_of(state, directive, name)
    if binder not in stage.reductions:
        help = f"its sums are over {', '.join(sorted(stage.reductions)) or 'nothing'}"
        raise error("S0205", f"`{binder}` is no range of a sum", directive.span, help=help)
    named = [s for s in stage.statements if s.name in stage.members[binder]]
    accumulators = {s.accumulator.name for s in named if s.accumulator is not None}
    own = frozenset(s.name for s in stage.statements if s.accumulator is not None and s.accumulator.name in accumulators)
    return _Meant(stage, binder, own, is_sum=True)


def _idle(state: State) -> Iterator[str]:
    for stage in state.stages.values():
        for loop in sorted(stage.distributed) if len({(s.definition.tensors[0].name, s.piece) for s in stage.statements}) == 1 else ():
            at = f" at {loop}" if loop else ""
            yield f"`distribute {stage.name}{at}` changes nothing: `{stage.name}` has one piece"


def _at(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    stage = stage_of(state, directive, name)
    wanted = operands.name(directive, operands.the(directive, "at"))
    reader = operands.phrase(directive, "in")
    if reader is not None and len(reader) == 1:
        wanted = _loop_in(state, directive, operands.name(directive, reader[0]), wanted)
    consumer, loop = loop_of(state, directive, wanted, outside=stage)
    if consumer is stage:
        raise error("S0208", f"`{name}` cannot be computed inside its own loop `{loop}`", directive.span)
    made = [t.name for d in stage.definitions for t in d.tensors]
    result = next((t for t in made if t in state.program.results), None)
    if result is not None:
        with_it = "" if result == name else f", and `{name}` is computed with it"
        read = any(result in definition_reads(d) for d in consumer.definitions)
        help = f"share loops of as many iterations: `together {name}, {consumer.name} -> LOOP`" if read else None
        raise error("S0208", f"`{result}` is a result: it is computed at the root{with_it}", directive.span, help=help)
    if len(stage.definitions) > 1 and not _is_point_by_point(stage):
        names = ", ".join(f"`{d.tensors[0].name}`" for d in stage.definitions)
        title = f"{names} share their loops, and are not of one shape or need each other at other points than their own"
        raise error("S0208", title, directive.span, help="compute them at the root")
    put(state, replace(stage, inside=(consumer.name, loop)))
    state.about_tensors.put(stage.name, ComputedAt(loop), directive)


def _loop_in(state: State, directive: syntax.Directive, reader: str, loop: str) -> str:
    """Return the full name of a loop of a reader, which may be written so. Raises S0102 for that of another tensor, S0105 for no reader."""
    if loop in stage_of(state, directive, reader).loops:
        return loop
    owner, local = owned(loop, tensor_table(state.program))
    if owner not in ("", reader):
        operands.bad(directive, f"`{loop}` is no loop of `{reader}`", f"write one of the two: `in {reader} at {local}`, or `at {loop}`")
    return full(reader, local)


def _is_point_by_point(stage: Stage) -> bool:
    """Tell whether tensors that share loops have one shape, and read one another at their own points alone: what others need of any of
    them is then computed of all."""
    made = {t.name for d in stage.definitions for t in d.tensors}
    shape = stage.definitions[0].tensors[0].shape
    alike = (len(d.axes) == len(shape) and all(map(affine.same, d.tensors[0].shape, shape)) for d in stage.definitions)
    own = ((tuple(map(Name, d.axes)), r) for d in stage.definitions for p in d.pieces for r in reads(p.value) if r.tensor in made)
    return stage.together and all(alike) and all(r.index == point for point, r in own)


def _root(state: State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        put(state, replace(stage_of(state, directive, name), inside=None))


def _store_at(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    stage = stage_of(state, directive, name)
    made = next(d.tensors for d in stage.definitions if any(t.name == name for t in d.tensors))
    result = next((t.name for t in made if t.name in state.program.results), None)
    if result is not None:
        raise error("S0214", f"`{result}` is a result: it is stored where the caller says", directive.span)
    wanted = operands.name(directive, operands.the(directive, "at"))
    loop = "" if wanted == "root" else loop_of(state, directive, wanted)[1]
    state.about_tensors.put(made[0].name, StoredAt(loop), directive)


def _fold(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    stage = stage_of(state, directive, name)
    definition = next(d for d in stage.definitions if any(t.name == name for t in d.tensors))
    axis = operands.name(directive, operands.the(directive, "at"))
    if axis not in definition.axes:
        raise error("S0209", f"`{name}` has no axis `{axis}`", directive.span, help=f"its axes are {', '.join(definition.axes)}")
    if name in state.program.results:
        help = "fold a tensor in between, that no caller sees; to leave one of its axes out of a result, change the operator"
        raise error("S0209", f"`{name}` is a result: all of it has to be stored", directive.span, help=help)
    modulus = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    if name in state.layouts:
        raise error(
            "S0209", f"`{name}` has a layout already", directive.span, help=f"write the modulus in the layout: `{axis} % {modulus}`"
        )
    folded = state.folds.setdefault(name, [])
    if any(definition.axes[k] == axis for k, _ in folded):
        raise error("S0209", f"`{name}` is folded along `{axis}` already", directive.span, help="say it once")
    folded.append((definition.axes.index(axis), modulus))


def _stream(state: State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        stage_of(state, directive, name)
        state.about_tensors.put(name, Streamed(), directive)


def idle_streams(plan: Plan, kept: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each `stream` of one of the tensors `kept`, of which no store goes past the caches."""
    for tensor, notes in plan.about_tensors.items():
        note = note_of(notes, Streamed)
        if note is not None and tensor in kept:
            why = f"nothing stores `{tensor}` in one go: it is added up where it lies, or has no elements"
            yield idle_message(origin_of(note).directive, why)


DISTRIBUTE = Kind(
    "distribute",
    FORMS["distribute"],
    _distribute,
    idle=_idle,
)
AT = Kind(
    "at",
    FORMS["at"],
    _at,
)
ROOT = Kind(
    "root",
    FORMS["root"],
    _root,
)
STORE_AT = Kind(
    "store_at",
    FORMS["store_at"],
    _store_at,
)
FOLD = Kind(
    "fold",
    FORMS["fold"],
    _fold,
)
STREAM = Kind(
    "stream",
    FORMS["stream"],
    _stream,
    target="cpu",
)
