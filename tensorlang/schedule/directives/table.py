"""The table of directives, and those that say where a stage runs and how its tensors are kept."""

from __future__ import annotations

from collections.abc import Callable

from codegen.loops.notes import Streamed
from polyhedral import affine
from tensorlang.diagnostics import error
from tensorlang.schedule.copies import layout_directive, pack_directive
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.bind import bind
from tensorlang.schedule.directives.cache import cache
from tensorlang.schedule.directives.cluster import cluster, multicast
from tensorlang.schedule.directives.grids import persistent, predicate, raster, split_k
from tensorlang.schedule.directives.loops import fuse, lowest, mark_as, order, reverse, shift, skew, split, tile
from tensorlang.schedule.directives.prefetch import prefetch_directive
from tensorlang.schedule.directives.stages import specialize, stages
from tensorlang.schedule.directives.tensorize import tensorize
from tensorlang.schedule.directives.together import together
from tensorlang.schedule.directives.trim import trim
from tensorlang.schedule.plan import Change, full
from tensorlang.schedule.state import State, loop_of, stage_of
from tensorlang.syntax import nodes as syntax


def _distribute(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    stage = stage_of(state, directive, name)
    loop = ""
    if operands.phrase(directive, "at") is not None:
        owner, loop = loop_of(state, directive, operands.name(directive, operands.the(directive, "at")))
        if owner is not stage:
            raise error("S0205", f"`{loop}` is no loop of `{name}`", directive.span)
    stage.distributed = loop


def _at(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    stage = stage_of(state, directive, name)
    wanted = operands.name(directive, operands.the(directive, "at"))
    reader = operands.phrase(directive, "in")
    if reader is not None and len(reader) == 1:
        wanted = full(operands.name(directive, reader[0]), wanted.rsplit(".", 1)[-1])
    consumer, loop = loop_of(state, directive, wanted)
    if consumer is stage:
        raise error("S0208", f"`{name}` cannot be computed inside its own loop `{loop}`", directive.span)
    made = [t.name for d in stage.definitions for t in d.tensors]
    result = next((t for t in made if t in state.program.results), None)
    if result is not None:
        with_it = "" if result == name else f", and `{name}` is computed with it"
        raise error("S0208", f"`{result}` is a result: it is computed at the root{with_it}", directive.span)
    if len(stage.definitions) > 1:
        title = f"{', '.join(f'`{d.tensors[0].name}`' for d in stage.definitions)} share their loops: they are computed at the root"
        raise error("S0208", title, directive.span)
    stage.inside = (consumer.name, loop)


def _root(state: State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        stage_of(state, directive, name).inside = None


def _store_at(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    stage = stage_of(state, directive, name)
    made = next(d.tensors for d in stage.definitions if any(t.name == name for t in d.tensors))
    result = next((t.name for t in made if t.name in state.program.results), None)
    if result is not None:
        raise error("S0214", f"`{result}` is a result: it is stored where the caller says", directive.span)
    wanted = operands.name(directive, operands.the(directive, "at"))
    state.stored_at[made[0].name] = ("" if wanted == "root" else loop_of(state, directive, wanted)[1], directive)


def _fold(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    stage = stage_of(state, directive, name)
    definition = next(d for d in stage.definitions if any(t.name == name for t in d.tensors))
    axis = operands.name(directive, operands.the(directive, "at"))
    if axis not in definition.axes:
        raise error("S0209", f"`{name}` has no axis `{axis}`", directive.span, help=f"its axes are {', '.join(definition.axes)}")
    if name in state.program.results:
        raise error("S0209", f"`{name}` is a result: all of it has to be stored", directive.span)
    if name in state.layouts:
        raise error("S0209", f"`{name}` has a layout already", directive.span, help=f"write the modulus in the layout: `{axis} % 2`")
    modulus = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    folded = state.folds.setdefault(name, [])
    if any(definition.axes[k] == axis for k, _ in folded):
        raise error("S0209", f"`{name}` is folded along `{axis}` already", directive.span, help="say it once")
    folded.append((definition.axes.index(axis), modulus))


def _peel(state: State, directive: syntax.Directive) -> None:
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
            help="peel before `skew`",
        )
    bound = affine.add(low, count)
    first = lambda nest: nest.restrict(affine.compare("<", loop, bound))  # noqa: E731
    rest = lambda nest: nest.restrict(affine.compare(">=", loop, bound))  # noqa: E731
    stage.changes.append(Change((loop,), first, rest, len(stage.cuts)))
    stage.cuts.append({loop})
    state.peels.append((stage, directive))


def _stream(state: State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        stage_of(state, directive, name)
        state.about_tensors.say(name, Streamed(), directive)


def _done(state: State, directive: syntax.Directive) -> None:
    """The directive has rewritten the program already."""


TABLE: dict[str, Callable[[State, syntax.Directive], None]] = {
    "split": split,
    "tile": tile,
    "order": order,
    "fuse": fuse,
    "distribute": _distribute,
    "together": together,
    "skew": skew,
    "shift": shift,
    "reverse": reverse,
    "peel": _peel,
    "unroll": mark_as("unroll"),
    "vectorize": mark_as("vector"),
    "parallel": mark_as("parallel"),
    "bind": bind,
    "tensorize": tensorize,
    "at": _at,
    "root": _root,
    "store_at": _store_at,
    "pack": pack_directive,
    "cache": cache,
    "layout": layout_directive,
    "fold": _fold,
    "trim": trim,
    "prefetch": prefetch_directive,
    "stages": stages,
    "specialize": specialize,
    "stream": _stream,
    "flatten": _done,
    "inline": _done,
    "store": _done,
    "rfactor": _done,
    "unfold": _done,
    "raster": raster,
    "persistent": persistent,
    "cluster": cluster,
    "multicast": multicast,
    "split_k": split_k,
    "predicate": predicate,
}


DIRECTIVES = frozenset(TABLE)


LATER = {"tail", "assume"}
