"""Directives that were applied and change nothing: what `explain` says of them.

With knobs and with schedules of roles the same directive serves many sizes, so `stages k by 1`, or stages of a loop that runs once, are no
mistake; but nobody should have to find out from the loops that they do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from codegen.loops.notes import Clustered, Persistent, Specialized, Staged
from polyhedral.model import BLOCKS
from tensorlang.schedule.state import State
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show


def idle(state: State) -> tuple[str, ...]:
    """Return a sentence for each directive of `state` that changes nothing, in a fixed order."""
    return (*_stages(state), *_clusters(state), *_rasters(state), *_turns(state), *_distributed(state))


def _stages(state: State) -> Iterator[str]:
    for said in state.about_loops.of(Staged):
        if said.what.vacuous:
            yield _changes_nothing(said.directive, "one stage is none ahead")
        elif _runs_once(state, said.about):
            yield _changes_nothing(said.directive, f"`{said.about}` runs once, so nothing runs ahead")
    for asked in state.about_loops.of(Specialized):
        if _runs_once(state, asked.about):
            yield _changes_nothing(asked.directive, f"`{asked.about}` runs once, so nobody asks ahead")


def _clusters(state: State) -> Iterator[str]:
    for said in state.about_loops.of(Clustered):
        if said.what.vacuous:
            yield _changes_nothing(said.directive, "a block by itself is no cluster")


def _rasters(state: State) -> Iterator[str]:
    for directive in state.rasters:
        yield _changes_nothing(directive, "it goes through the tiles as they were")


def _turns(state: State) -> Iterator[str]:
    for said in state.about_loops.of(Persistent):
        stage = next(stage for stage in state.stages.values() if said.about in stage.marks)
        places = [stage.extents[other] for other, mark in stage.marks.items() if mark in BLOCKS]
        known = [extent for extent in places if extent is not None]
        if len(known) == len(places) and prod(known) <= said.what.blocks:
            yield _changes_nothing(said.directive, f"there are {prod(known)} places in the grid, so no block takes a second turn")


def _distributed(state: State) -> Iterator[str]:
    for stage in state.stages.values():
        if stage.distributed is not None and len({s.piece for s in stage.statements}) == 1:
            at = f" at {stage.distributed}" if stage.distributed else ""
            yield f"`distribute {stage.name}{at}` changes nothing: `{stage.name}` has one piece"


def _runs_once(state: State, loop: str) -> bool:
    return any(stage.extents.get(loop) == 1 for stage in state.stages.values())


def _changes_nothing(directive: syntax.Directive, why: str) -> str:
    return f"`{show(directive)}` changes nothing: {why}"
