"""`cache TENSOR in shared at LOOP as [DIM, …]`: a copy like that of `pack`, with its place in the memories of a graphics processor.

cache a in shared at ko as [k, i] with pad (4)        alloc a_pack: f32[16, 68] shared       for what a block copies in ko
                               … with swizzle (64)   alloc a_pack: f32[16, 64] shared swizzle 64
cache c in registers                                 c's sums are in registers, or the schedule is refused
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from codegen.loops.notes import Kept
from codegen.loops.swizzle import SPANS
from polyhedral.model import BLOCKS, THREADS, Loop
from polyhedral.schedule import Schedule as Placed
from tensorlang.diagnostics import error
from tensorlang.schedule.copies import pack_directive, pack_rewrite
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind, Placement
from tensorlang.schedule.state import State, stage_of
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS
from tensorlang.targets import target_of


def cache(state: State, directive: syntax.Directive) -> None:
    """Note where a tensor is kept; where a loop is named, it is a copy that the loop's iterations make."""
    name = operands.only_name(directive)
    kept = Kept(_place(directive))
    if operands.phrase(directive, "at") is None:
        if operands.phrase(directive, "as") is not None or operands.phrase(directive, "with") is not None:
            operands.bad(directive, "only a copy that is made at a loop has a layout of its own")
        if name in {p.name for p in state.program.params}:
            help = f"name the loop whose iterations copy it: `cache {name} in {kept.place} at LOOP as [DIM, …]`"
            if not target_of(state.target).on_device and kept.place == "shared":
                help = f"shared memory is a GPU's; a processor copies with `pack {name} at LOOP as [DIM, …]`"
            raise error("S0105", f"`{name}` is an input: it has no loops, and is copied by those of a reader", directive.span, help=help)
        stage_of(state, directive, name)
        state.about_tensors.put(name, kept, directive)
        return
    pack_directive(state, directive)
    copy = state.packed[directive]
    state.about_tensors.put(copy, kept, directive)
    _arrange_rows(state, directive, copy, kept)


def _place(directive: syntax.Directive) -> Literal["shared", "registers"]:
    match operands.name(directive, operands.the(directive, "in")):
        case "shared":
            return "shared"
        case "registers":
            return "registers"
        case other:
            operands.bad(directive, f"`{other}` is no place")


def _arrange_rows(state: State, directive: syntax.Directive, copy: str, kept: Kept) -> None:
    """Leave room after each row of the copy, or exchange its columns, so that neighbours in a column lie in different banks."""
    if operands.phrase(directive, "with") is None:
        return
    storage = state.layouts.get(copy)
    match operands.the(directive, "with"):
        case syntax.Apply("pad", (count,)) if storage is not None:
            more = operands.positive(directive, count, state.knobs)
            state.layouts[copy] = replace(storage, pad=more)
        case syntax.Apply("swizzle", (count,)) if storage is not None:
            span = operands.positive(directive, count, state.knobs)
            if span not in SPANS or kept.place != "shared":
                operands.bad(directive, f"columns of shared memory are exchanged within {_one_of(SPANS)} bytes")
            state.layouts[copy] = replace(storage, swizzle=span)
        case _:
            operands.bad(directive, "after `with` it takes `pad (COUNT)` or `swizzle (BYTES)`, and a layout after `as` before it")


def _one_of(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} or {numbers[-1]}"


def _check(state: State, placement: Placement) -> None:
    """Say of accumulators what is said of their tensors. Raises CompileError S0219 for what no block, or each thread, has of its own."""
    depth = placement.depth
    for said in state.about_tensors.take(Kept):
        name, cached, span = said.about, said.what, said.directive.span
        definition = next(d for d in state.program.definitions if any(t.name == name for t in d.tensors))
        sums = [
            a.name for (primary, _), accs in placement.stages.accumulators.items() if primary == definition.tensors[0].name for a in accs
        ]
        own = name not in state.program.results and (depth.get(name, 0) > 0 or not sums)
        kept = [n for n in (name, *sums) if n in depth and (n != name or own)]
        if name in state.program.results and not sums:
            raise error("S0219", f"`{name}` is a result: the caller keeps it", span)
        for array in kept:
            marks = [loop.mark for loop in _around(placement.placed, array)[: depth[array]]]
            if not any(mark in BLOCKS for mark in marks):
                help_ = "bind loops around every use of it to blocks"
                raise error("S0219", f"`{array}` cannot be kept in {cached.memory}: no block has one of its own", span, help=help_)
            if cached.place == "shared" and any(mark in THREADS for mark in marks):
                help_ = "make the copy at a loop that the threads of a block run together"
                raise error("S0219", f"`{array}` cannot be shared: each thread has one of its own", span, help=help_)
            state.about_tensors.put(array, cached, said.directive)


def _around(placed: Placed, array: str) -> tuple[Loop, ...]:
    """Return the loops around the first access of `array`."""
    for name, place in placed.places.items():
        statement = placed.statements[placed.nests[name].statement]
        if any(a.tensor == array for a in (statement.write, *statement.reads)):
            return place.loops
    return ()


def _rewrite(state: State, directive: syntax.Directive) -> None:
    """Copy a tensor; rows that `unfold` wrote out are a copy already."""
    if operands.phrase(directive, "at") is None:
        return
    name = operands.only_name(directive)
    if name in state.unfolded:
        state.copies[name] = state.packed[directive] = name
    else:
        pack_rewrite(state, directive)


CACHE = Kind(
    "cache",
    FORMS["cache"],
    cache,
    rewrite=_rewrite,
    check=_check,
    about_reads=True,
)
