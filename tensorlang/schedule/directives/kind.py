"""What a directive is to those who apply schedules: all that is asked about one is asked here, and `table` has one of these for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from codegen.loops.notes import Note
from polyhedral.model import BLOCKS
from polyhedral.schedule import Schedule as Placed
from tensorlang.diagnostics import error
from tensorlang.schedule.plan import Plan
from tensorlang.schedule.state import State
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.printer import show
from tensorlang.tensor.scop import Stages


@dataclass(frozen=True, slots=True)
class Placement:
    """The nests and the tree that a state gives, before anything of it is proven. `depth[t]`: how many loops privatise tensor t."""

    placed: Placed
    depth: Mapping[str, int]
    stages: Stages


def no_op(state: State, directive: syntax.Directive) -> None:
    """The directive has rewritten the program already."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One directive. `shape` tells how it is written, `apply` shapes loops or says something of them (`tensorlang.schedule.annotations`).

    Raises of all functions: CompileError, S01xx for what cannot be read and S02xx for what makes no sense."""

    name: str
    shape: str
    apply: Callable[[State, syntax.Directive], None] = no_op
    rewrite: Callable[[State, syntax.Directive], None] | None = None
    """What it does to the program, before there are loops."""
    target: Literal["cpu", "cuda"] | None = None
    """The only kind of target that has it."""
    instead: str | None = None
    """What other targets have."""
    check: Callable[[State, Placement], None] | None = None
    """What is checked once all loops are in place; it may say more exactly what has been said."""
    finish: Callable[[Plan, State], Plan] | None = None
    """What it does to the plan."""
    idle: Callable[[State], Iterator[str]] | None = None
    """A sentence for each that was applied and changes nothing, for `explain`. With knobs and schedules of roles one directive serves many
    sizes, so that is no mistake, but nobody should have to find out from the loops."""
    about_reads: bool = False
    """Whether the tensors that it names may be ones that are only read."""
    refused: str = "S0220"
    """The code of refusals by passes that cannot carry out its notes."""


def idle_message(directive: syntax.Directive, why: str) -> str:
    """Return the sentence for a directive that changes nothing."""
    return f"`{show(directive)}` changes nothing: {why}"


def runs_once(state: State, loop: str) -> bool:
    return any(stage.extents.get(loop) == 1 for stage in state.stages.values())


def marks_of(state: State) -> dict[str, str]:
    """Return how loops run that are not serial."""
    return {loop: mark for stage in state.stages.values() for loop, mark in stage.marks.items()}


def check_on_blocks(state: State, note: type[Note], code: str, why: str) -> None:
    """Raise CompileError `code` for a loop that has such a note and is not bound to blocks; `why` says what cannot be then."""
    marks = marks_of(state)
    for annotation in state.about_loops.of(note):
        if marks.get(annotation.about) not in BLOCKS:
            loop, help_ = annotation.about, f"`bind {annotation.about} to block.x` as well"
            raise error(code, f"`{loop}` is not bound to blocks, so none {why}", annotation.directive.span, help=help_)
