"""Blocks that run as one: `cluster`, `multicast`.

cluster jo by 2             two neighbours along jo run at the same time, on multiprocessors that are close to each other
multicast a at jo           what they copy of `a` is copied once for both: each asks for one half, and both halves arrive at both
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.loops.notes import Clustered, Kept, Multicast, Staged
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind, Placement, check_on_blocks, idle_message
from tensorlang.schedule.state import State, loop_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS

MOST = 8
"""Blocks of a cluster on every device that has clusters (CUDA C++ Programming Guide, thread block clusters)."""


@dataclass(frozen=True, slots=True)
class _Along:
    """The loop over blocks that share a copy."""

    loop: str


def cluster(state: State, directive: syntax.Directive) -> None:
    """`cluster LOOP by N`: note that N neighbours along a loop over blocks are one cluster."""
    name = operands.only_name(directive)
    _, loop = loop_of(state, directive, name)
    count = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    if count > MOST:
        operands.bad(directive, f"a cluster of {count} blocks is too large", f"{MOST} at most; two are usual")
    state.about_loops.put(loop, Clustered(count), directive)


def multicast(state: State, directive: syntax.Directive) -> None:
    """`multicast TENSOR, … at LOOP`: note that blocks of a cluster along LOOP share the copies of tensors."""
    _, loop = loop_of(state, directive, operands.name(directive, operands.the(directive, "at")))
    for name in operands.names(directive, directive.operands):
        copy = state.copies.get(name, name)
        kept = state.about_tensors.about(copy, Kept)
        if kept is None or kept.what.place != "shared":
            help_ = f"`cache {name} in shared at LOOP as […]` first"
            raise error("S0225", f"no block copies `{name}` into shared memory, so none can share its copy", directive.span, help=help_)
        state.about_tensors.put(copy, Multicast(), directive)
        state.about_tensors.put(copy, _Along(loop), directive)


def _check_clusters(state: State, placement: Placement) -> None:
    """Raise CompileError S0225 for clusters of what are no blocks."""
    check_on_blocks(state, Clustered, "S0225", "of them can be a cluster")


def _check_multicast(state: State, placement: Placement) -> None:
    """Raise CompileError S0225 for copies that are shared by blocks of no cluster, or are no boxes."""
    for along in state.about_tensors.of(_Along):
        copy, loop, directive = along.about, along.what.loop, along.directive
        clustered = state.about_loops.about(loop, Clustered)
        if clustered is None or clustered.what.vacuous:
            help_ = f"`cluster {loop} by 2` as well"
            raise error("S0225", f"blocks along `{loop}` are no cluster, so they cannot share copies", directive.span, help=help_)
        inside = next((s.inside[1] for s in state.stages.values() if s.name == copy and s.inside is not None), None)
        staged = None if inside is None else state.about_loops.about(inside, Staged)
        if staged is None or not staged.what.boxes:
            help_ = f"`stages {inside or 'LOOP'} by 4 with tma` as well"
            title = f"the copy `{copy}` is no box that the device makes, so blocks cannot share it"
            raise error("S0225", title, directive.span, help=help_)


def _idle(state: State) -> Iterator[str]:
    for said in state.about_loops.of(Clustered):
        if said.what.vacuous:
            yield idle_message(said.directive, "a block by itself is no cluster")


CLUSTER = Kind(
    "cluster",
    FORMS["cluster"],
    cluster,
    target="cuda",
    check=_check_clusters,
    idle=_idle,
    refused="S0225",
)
MULTICAST = Kind(
    "multicast",
    FORMS["multicast"],
    multicast,
    target="cuda",
    check=_check_multicast,
    refused="S0225",
    about_reads=True,
)
