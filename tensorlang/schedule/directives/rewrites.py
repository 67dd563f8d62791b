"""Directives that rewrite the program before it has loops: `inline`, `store`, `pack`, `rfactor`, `split_k`, `flatten`, `unfold`."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.grids import stretch
from tensorlang.schedule.flattened import flattened
from tensorlang.schedule.pack import pack
from tensorlang.schedule.rfactor import rfactor
from tensorlang.schedule.state import State
from tensorlang.syntax import nodes as syntax
from tensorlang.tensor.absorb import absorbed
from tensorlang.tensor.compose import can_inline, eliminate_dead, inline
from tensorlang.tensor.live_out import beside
from tensorlang.tensor.unfold import unfold
from tensorlang.tensor.walk import definers, tensor_table


def _inline(state: State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        definition = definers(state.program).get(name)
        if definition is None or name in state.program.results:
            why = "a result has to be stored" if name in state.program.results else "it is no tensor defined here"
            raise error("S0202", f"`{name}` cannot be inlined: {why}", directive.span)
        if name in state.copies.values():
            raise error("S0202", f"`{name}` cannot be inlined: it is a copy that `pack` makes", directive.span, help="leave out the `pack`")
        made = inline(state.program, name) if can_inline(definition) else absorbed(state.program, definition)
        if made is None:
            title = f"`{name}` cannot be inlined: it is a reduction, a recurrence or one of several results"
            help_ = "a reduction can be where one equation reads it, each element once and outside of other reductions"
            raise error("S0202", title, directive.span, help=help_)
        state.program = eliminate_dead(made)


def _store_rewrite(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    made = beside(state.program, name, operands.name(directive, operands.the(directive, "with")))
    if isinstance(made, str):
        raise error("S0202", f"`{name}` cannot be stored beside another result: {made}", directive.span)
    state.program = made


def _pack_rewrite(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    if name not in tensor_table(state.program):
        raise error("S0105", f"`{name}` is no tensor of this operator", directive.span)
    made = pack(state.program, name)
    if isinstance(made, str):
        raise error("S0203", f"`{name}` cannot be packed: {made}", directive.span)
    state.program, state.copies[name] = made


def _cache_rewrite(state: State, directive: syntax.Directive) -> None:
    """Copy a tensor; rows that `unfold` wrote out are a copy already."""
    if operands.phrase(directive, "at") is None:
        return
    name = operands.only_name(directive)
    if name in state.unfolded:
        state.copies[name] = name
    else:
        _pack_rewrite(state, directive)


def _unfold_rewrite(state: State, directive: syntax.Directive) -> None:
    names = operands.names(directive, directive.operands)
    binders = operands.names(directive, operands.phrase(directive, "in") or ())
    if len(directive.results) != 1:
        operands.bad(directive, "it makes one name of those of the sum")
    unknown = next((name for name in names if name not in tensor_table(state.program)), None)
    if unknown is not None:
        raise error("S0105", f"`{unknown}` is no tensor of this operator", directive.span)
    made = unfold(state.program, names, binders, directive.results[0])
    if isinstance(made, str):
        raise error("S0204", f"{', '.join(f'`{n}`' for n in names)} cannot be unfolded: {made}", directive.span)
    state.program, state.numbered[made.sums] = made.program, made.groups
    state.unfolded |= {*made.rows}


def _rfactor_rewrite(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    stretches = operands.phrase(directive, "to") is not None
    by = operands.positive(directive, operands.the(directive, "to" if stretches else "by"), state.knobs)
    made = rfactor(state.program, name, by, stretches=stretches)
    if isinstance(made, str):
        raise error("S0204", f"`{name}` cannot be factored out: {made}", directive.span)
    state.program = made


def _split_k_rewrite(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    made = rfactor(state.program, name, stretch(state, directive), stretches=True)
    if isinstance(made, str):
        raise error("S0204", f"`{name}` cannot be split: {made}", directive.span)
    state.program = made


def _flatten_rewrite(state: State, directive: syntax.Directive) -> None:
    state.program, state.stored = flattened(state.program, state.stored, products=state.target == "cuda")


REWRITES: dict[str, Callable[[State, syntax.Directive], None]] = {
    "cache": _cache_rewrite,
    "flatten": _flatten_rewrite,
    "inline": _inline,
    "pack": _pack_rewrite,
    "rfactor": _rfactor_rewrite,
    "split_k": _split_k_rewrite,
    "store": _store_rewrite,
    "unfold": _unfold_rewrite,
}
