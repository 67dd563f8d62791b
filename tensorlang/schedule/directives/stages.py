"""`stages LOOP by N`: what is copied in each iteration of a loop, on a device by the threads of a block, runs N - 1 iterations ahead.

for k:                              copy stage 0
    copy stage k            →       for k:
    work on stage k                     copy stage k + 1
                                        work on stage k

`specialize LOOP`: a thread beside those of the block asks for what is copied in the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen.loops.notes import Specialized, Staged
from polyhedral.model import BLOCKS, THREADS
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind, Placement, idle_message, marks_of, runs_once
from tensorlang.schedule.state import State, loop_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS

DEALT = range(24, 241, 8)
"""Registers of a thread that a device can deal out anew."""
MOST = 8
"""How many stages there may be: what a processor can have under way is far less."""


def stages(state: State, directive: syntax.Directive) -> None:
    """`stages LOOP by N`, `… with tma`: note how many stages a loop has, and whether its copies are to be boxes of tensors."""
    name = operands.only_name(directive)
    _, loop = loop_of(state, directive, name)
    count = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    how = operands.phrase(directive, "with")
    if how is not None and [operands.name(directive, o) for o in how] != ["tma"]:
        operands.bad(directive, "copies are made `with tma`, or as the device makes them best")
    if how is not None and count == 1:
        operands.bad(directive, "one stage is no stage ahead", "two at least; three or four are usual")
    if count > MOST:
        operands.bad(directive, f"{count} stages are too many", f"{MOST} at most; two or three are usual")
    state.about_loops.put(loop, Staged(count, boxes=how is not None), directive)


def specialize(state: State, directive: syntax.Directive) -> None:
    """`specialize LOOP`, `… with registers (FEW, MANY)`: note that a thread beside the others asks for the boxes of a loop, and how many
    registers the threads on both sides have."""
    name = operands.only_name(directive)
    _, loop = loop_of(state, directive, name)
    how = operands.phrase(directive, "with")
    registers: tuple[int, ...] = ()
    match how:
        case None:
            pass
        case (syntax.Apply("registers", (few, many)),):
            registers = tuple(operands.positive(directive, e, state.knobs) for e in (few, many))
        case _:
            operands.bad(directive, "registers are dealt out `with registers (FEW, MANY)`")
    if any(count not in DEALT for count in registers):
        title = f"a thread has {DEALT.start} to {DEALT.stop - 1} registers, a multiple of {DEALT.step}, where they are dealt out"
        operands.bad(directive, title, "`registers (40, 232)` suits two groups of four warps")
    state.about_loops.put(loop, Specialized(registers), directive)


def _check_stages(state: State, placement: Placement) -> None:
    """Raise CompileError S0218 where stages are asked for that cannot be: outside of a device's blocks, of loops that are not serial, or
    of ones that nothing is computed in."""
    marks = marks_of(state)
    for said in state.about_loops.of(Staged):
        loop, directive = said.about, said.directive
        if said.what.vacuous:
            continue
        if state.target != "cpu" and not any(mark in BLOCKS | THREADS for mark in marks.values()):
            help_ = "`bind` loops to blocks and threads"
            raise error("S0218", "stages are for loops that the threads of a block run together", directive.span, help=help_)
        if state.target == "cpu" and said.what.boxes:
            raise error("S0218", "only a graphics processor copies boxes by itself", directive.span)
        mark = marks.get(loop, "serial")
        if mark != "serial":
            raise error("S0218", f"`{loop}` is marked {mark}: only a serial loop has stages", directive.span)
        if not any(stage.inside is not None and stage.inside[1] == loop for stage in state.stages.values()):
            help_ = f"`pack TENSOR at {loop} as […]` first"
            raise error("S0218", f"nothing is copied at `{loop}`, so there is nothing to run ahead", directive.span, help=help_)


def _check_specialize(state: State, placement: Placement) -> None:
    """Raise CompileError S0224 for loops that copy no boxes."""
    for asked in state.about_loops.of(Specialized):
        staged = state.about_loops.about(asked.about, Staged)
        if staged is None or not staged.what.boxes:
            title = f"`{asked.about}` copies no boxes that a thread beside the others could ask for"
            raise error("S0224", title, asked.directive.span, help=f"`stages {asked.about} by 4 with tma` as well")


def _idle_stages(state: State) -> Iterator[str]:
    for said in state.about_loops.of(Staged):
        if said.what.vacuous:
            yield idle_message(said.directive, "one stage is none ahead")
        elif runs_once(state, said.about):
            yield idle_message(said.directive, f"`{said.about}` runs once, so nothing runs ahead")


def _idle_specialize(state: State) -> Iterator[str]:
    for said in state.about_loops.of(Specialized):
        if runs_once(state, said.about):
            yield idle_message(said.directive, f"`{said.about}` runs once, so nobody asks ahead")


STAGES = Kind(
    "stages",
    FORMS["stages"],
    stages,
    check=_check_stages,
    idle=_idle_stages,
)
SPECIALIZE = Kind(
    "specialize",
    FORMS["specialize"],
    specialize,
    target="cuda",
    instead="`specialize N % 8 == 0` makes cases of sizes, in a schedule that is read from a text",
    check=_check_specialize,
    idle=_idle_specialize,
)
