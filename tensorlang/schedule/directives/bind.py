"""`bind`: iterations of loops become blocks and threads of a graphics processor."""

from __future__ import annotations

from typing import cast, get_args

from polyhedral.model import BLOCKS, THREADS, Mark
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind
from tensorlang.schedule.directives.loops import AtMost, split_first
from tensorlang.schedule.state import State, loop_of, put
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS
from tensorlang.targets import target_of

MOST = {"thread.x": 1024, "thread.y": 1024, "thread.z": 64, "thread": 1024, "warpgroup": 8} | {
    f"warp{digit}": 32 for digit in ("", ".x", ".y", ".z")
}
"""How many iterations a loop over threads may have (CUDA C++ Programming Guide, technical specifications per compute capability); over
lanes as many as a warp of the target has threads."""


_CUDA = {"threadIdx": "thread", "blockIdx": "block", "vthread": "thread", "tid": "thread", "bid": "block", "program_id": "block"}


def _called_here(place: str) -> str:
    """Say what a place of CUDA's C, TVM or Triton is called here."""
    name, _, axis = place.partition(".")
    called = _CUDA.get(name)
    return "" if called is None else f": it is called `{called}.{axis or 'x'}` here"


def bind(state: State, directive: syntax.Directive) -> None:
    """`bind LOOP, … to PLACE, …`: mark each loop with the place its iterations run at."""
    loops = operands.names(directive, directive.operands)
    wanted = operands.phrase(directive, "to")
    if wanted is None:
        operands.bad(directive, "it needs the places after `to`")
    places = operands.names(directive, wanted)
    if len(places) != len(loops):
        operands.bad(directive, f"{len(loops)} loops need {len(loops)} places, not {len(places)}")
    for name, place in zip(loops, places, strict=True):
        if place not in BLOCKS | THREADS or place not in get_args(Mark):
            operands.bad(directive, f"`{place}` is no place{_called_here(place)}")
        stage, loop = loop_of(state, directive, name)
        extent = stage.extents[loop]
        most = target_of(state.target).lanes if place.startswith("lane") else MOST.get(place)
        if most is not None and extent is None:
            help_ = split_first(name, min(most, 256))
            raise error("S0207", f"`{name}` has no constant extent, so its iterations cannot be threads", directive.span, help=help_)
        if stage.inside is not None and most is not None:
            state.about_loops.put(loop, AtMost(most, "threads"), directive)
        elif most is not None and extent is not None and extent > most:
            help_ = split_first(name, min(most, 256))
            raise error("S0207", f"`{name}` has {extent} iterations; `{place}` has at most {most}", directive.span, help=help_)
        put(state, stage.marked(loop, cast(Mark, place)))


BIND = Kind(
    "bind",
    FORMS["bind"],
    bind,
    target="cuda",
    instead="`parallel` gives iterations to threads of a processor",
)
