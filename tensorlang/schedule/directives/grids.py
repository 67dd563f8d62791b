"""Directives about the blocks of a grid, and the tiles at its edges: `raster`, `persistent`, `split_k`, `predicate`.

    raster io, jo by 8 -> ig, ir        blocks go through columns in stripes of 8 rows: what they read stays in the second-level cache
    persistent jo by 132                132 blocks take turns with the tiles
    split_k k by 4                      4 blocks share each sum, and a second launch adds up what they have
    predicate ki with guard             the tiles at the edges of ki end early, rather than to go on over zeros

`raster` and `split_k` are made of `split`, `order`, `rfactor` and `bind`, and are proven as they are. Blocks that may run at the same time
may also take turns (`codegen.gpu.persistent`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Literal

from codegen.loops.notes import Edge, Persistent
from polyhedral import affine
from polyhedral.model import BLOCKS
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind, Placement, check_on_blocks, idle_message
from tensorlang.schedule.directives.loops import permute, split_loop
from tensorlang.schedule.plan import Stage
from tensorlang.schedule.rfactor import rfactor
from tensorlang.schedule.state import State, loop_of, put
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS
from tensorlang.tensor.walk import reduces


def raster(state: State, directive: syntax.Directive) -> None:
    """`raster ROWS, COLUMNS by N -> GROUP, ROW`: N rows of tiles at a time, column after column."""
    names = operands.names(directive, directive.operands, 2)
    if len(names) != 2 or len(directive.results) != 2:
        operands.bad(directive, "it takes two loops and gives two")
    count = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    (stage, rows), (other, columns) = (loop_of(state, directive, name) for name in names)
    if other is not stage:
        raise error("S0205", f"`{rows}` and `{columns}` belong to different stages", directive.span)
    if rows == columns:
        operands.bad(directive, "a loop is named twice")
    stage, group, row = split_loop(state, directive, stage, rows, count, *directive.results)
    order = _running(stage)
    if _running(permute(state, stage, [group, columns, row])) == order:
        state.idle.append(idle_message(directive, "it goes through the tiles as they were"))


def _running(stage: Stage) -> list[str]:
    """Return the loops of a stage that may run more than once, outermost first."""
    return [loop for loop in stage.loops if stage.extents[loop] != 1]


def persistent(state: State, directive: syntax.Directive) -> None:
    """`persistent LOOP by N`: note that N blocks take turns with the places of a grid."""
    name = operands.only_name(directive)
    _, loop = loop_of(state, directive, name)
    blocks = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    state.about_loops.put(loop, Persistent(blocks), directive)


def _check_persistent(state: State, placement: Placement) -> None:
    """Raise CompileError S0223 where blocks are to take turns with a loop that is not bound to blocks."""
    check_on_blocks(state, Persistent, "S0223", "can take turns with it")


def _stretch(state: State, directive: syntax.Directive) -> int:
    """Return how long the stretches of a sum are that `split_k BINDER by N` makes. Raises CompileError S0204 for sums of unknown length."""
    name = operands.only_name(directive)
    count = operands.positive(directive, operands.the(directive, "by"), state.knobs)
    sums = (r for d in state.program.definitions for p in d.pieces for r in reduces(p.value))
    binder = next((b for r in sums for b in r.binders if b.name == name), None)
    extent = None if binder is None else affine.difference(binder.hi, binder.lo)
    if binder is not None and extent is None:
        title = f"`{name}` cannot be split: how long the sum is is only known at run time"
        raise error("S0204", title, directive.span, help=f"`rfactor {name} to LENGTH` makes stretches of a given length")
    return max(1, -(-(extent or 1) // count))


def split_k(state: State, directive: syntax.Directive) -> None:
    """Give the stretches of a sum to blocks; the program has been rewritten already."""
    name = operands.only_name(directive)
    stage, loop = loop_of(state, directive, f"{name}.out")
    loops = (loop, *(other for other in stage.loops if other != loop))
    put(state, replace(stage, loops=loops).marked(loop, "block.z"))


def predicate(state: State, directive: syntax.Directive) -> None:
    """`predicate LOOP, … with guard | zfill`: note what happens at the edges of loops."""
    how = operands.name(directive, operands.the(directive, "with"))
    for name in operands.names(directive, directive.operands):
        _, loop = loop_of(state, directive, name)
        state.about_loops.put(loop, Edge(_how(directive, how)), directive)


def _how(directive: syntax.Directive, word: str) -> Literal["guard", "zfill"]:
    match word:
        case "guard":
            return "guard"
        case "zfill":
            return "zfill"
        case other:
            operands.bad(directive, f"`{other}` is neither `guard` nor `zfill`")


def _idle_persistent(state: State) -> Iterator[str]:
    for said in state.about_loops.of(Persistent):
        stage = next(stage for stage in state.stages.values() if said.about in stage.marks)
        places = [stage.extents[other] for other, mark in stage.marks.items() if mark in BLOCKS]
        known = [extent for extent in places if extent is not None]
        if len(known) == len(places) and prod(known) <= said.what.blocks:
            yield idle_message(said.directive, f"there are {prod(known)} places in the grid, so no block takes a second turn")


def _split_k_rewrite(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    made = rfactor(state.program, name, _stretch(state, directive), chunked=True)
    if isinstance(made, str):
        raise error("S0204", f"`{name}` cannot be split: {made}", directive.span)
    state.program = made


RASTER = Kind(
    "raster",
    FORMS["raster"],
    raster,
)
PERSISTENT = Kind(
    "persistent",
    FORMS["persistent"],
    persistent,
    target="cuda",
    check=_check_persistent,
    idle=_idle_persistent,
)
SPLIT_K = Kind(
    "split_k",
    FORMS["split_k"],
    split_k,
    rewrite=_split_k_rewrite,
    target="cuda",
)
PREDICATE = Kind(
    "predicate",
    FORMS["predicate"],
    predicate,
    target="cuda",
)
