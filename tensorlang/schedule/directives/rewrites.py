"""Directives that rewrite the program before it has loops: `inline`, `store`, `rfactor`, `block`, `flatten`,
`hoist`, `scan`, `compose`, `tabulate`, `narrow`, `bisect`, `lift`, `factorize`, `unfold`."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang.diagnostics import error
from tensorlang.schedule.block import block
from tensorlang.schedule.blocked_scan import scanned_in_parts
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind
from tensorlang.schedule.flattened import flattened
from tensorlang.schedule.plan import owned
from tensorlang.schedule.rfactor import rfactor
from tensorlang.schedule.scan import scanned
from tensorlang.schedule.state import State
from tensorlang.schedule.tables import tabulated
from tensorlang.schedule.windows import composed
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS
from tensorlang.targets import target_of
from tensorlang.tensor.absorb import absorbed
from tensorlang.tensor.bands import narrowed
from tensorlang.tensor.dead_code import eliminate_dead
from tensorlang.tensor.factorize import factorized
from tensorlang.tensor.invariant_axes import without_axes
from tensorlang.tensor.lift import lift
from tensorlang.tensor.live_out import store_together
from tensorlang.tensor.nodes import Program
from tensorlang.tensor.searches import bisected
from tensorlang.tensor.simplify import can_inline, can_repeat, inline
from tensorlang.tensor.terms_apart import parts_apart
from tensorlang.tensor.unfold import unfold
from tensorlang.tensor.walk import definers, tensor_table


def _inline(state: State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        definition = definers(state.program).get(name)
        if definition is None or name in state.program.results:
            why = "a result has to be stored" if name in state.program.results else "it is no tensor defined here"
            raise error("S0202", f"`{name}` cannot be inlined: {why}", directive.span)
        if name in state.packed.values():
            raise error("S0202", f"`{name}` cannot be inlined: it is a copy that `pack` makes", directive.span, help="leave out the `pack`")
        is_part = can_inline(definition) or can_repeat(state.program, definition)
        made = inline(state.program, name) if is_part else absorbed(state.program, definition)
        if made is None:
            title = f"`{name}` cannot be inlined: it is a reduction, a recurrence or one of several results"
            help_ = "a reduction can be where one equation reads it, each element once, or where terms of reductions alone do"
            raise error("S0202", title, directive.span, help=help_)
        state.program = eliminate_dead(made)
    state.program = lift(state.program)  # what is inlined may have put one reduction into another


def _store(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    made = store_together(state.program, name, operands.name(directive, operands.the(directive, "with")))
    if isinstance(made, str):
        raise error("S0202", f"`{name}` cannot be stored beside another result: {made}", directive.span)
    state.program = made


def _axis_of(state: State, directive: syntax.Directive, name: str) -> tuple[str, str]:
    """Return the tensor and the axis that are written `y.i`, or `y.d.0` for an axis of a pack."""
    tensors = tensor_table(state.program)
    tensor, axis = owned(name, tensors)
    if not tensor:
        made = next((d for d in state.program.definitions if name in {*d.axes, *(t.name for t in d.tensors)} and d.axes), None)
        help = f"write the tensor and the axis: `{directive.name} {made.tensors[0].name}.{made.axes[0]}`" if made else None
        operands.bad(directive, f"`{name}` is no axis of a tensor", help)
    return tensor, axis


def _hoist(state: State, directive: syntax.Directive) -> None:
    names = operands.names(directive, directive.operands)
    made = without_axes(state.program, [_axis_of(state, directive, n) for n in names])
    if isinstance(made, str):
        raise error("S0204", f"{', '.join(f'`{n}`' for n in names)} cannot be hoisted: {made}", directive.span)
    state.program = made


def _scan(state: State, directive: syntax.Directive) -> None:
    lengths = [operands.positive(directive, e, state.knobs) for e in operands.phrase(directive, "to") or ()]

    def rewritten(name: str) -> Program | str:
        of = _axis_of(state, directive, name)
        return scanned_in_parts(state.program, *of, lengths) if lengths else scanned(state.program, *of)

    _rewrite_each(state, directive, rewritten, "scanned")


def _compose(state: State, directive: syntax.Directive) -> None:
    lengths = [operands.positive(directive, e, state.knobs) for e in operands.phrase(directive, "by") or ()]
    name = operands.only_name(directive)
    made = composed(state.program, *_axis_of(state, directive, name), lengths)
    if isinstance(made, str):
        raise error("S0204", f"`{name}` cannot be composed: {made}", directive.span)
    state.program = state.factorized = made


def _tabulate(state: State, directive: syntax.Directive) -> None:
    _rewrite_each(state, directive, lambda name: tabulated(state.program, name), "tabulated")
    state.factorized = state.program


def _narrow(state: State, directive: syntax.Directive) -> None:
    _rewrite_each(state, directive, lambda name: narrowed(state.program, *_axis_of(state, directive, name)), "narrowed")


def _bisect(state: State, directive: syntax.Directive) -> None:
    _rewrite_each(state, directive, lambda name: bisected(state.program, *_axis_of(state, directive, name)), "bisected")
    state.factorized = state.program


def _lift(state: State, directive: syntax.Directive) -> None:
    _rewrite_each(state, directive, lambda name: parts_apart(state.program, name), "lifted")


def _rewrite_each(state: State, directive: syntax.Directive, rewritten: Callable[[str], Program | str], what: str) -> None:
    """Rewrite the program for one operand after the other. `rewritten`: gives the program after that, or the reason why the operand cannot
    be `what` the directive says, which is an error."""
    for name in operands.names(directive, directive.operands):
        made = rewritten(name)
        if isinstance(made, str):
            raise error("S0204", f"`{name}` cannot be {what}: {made}", directive.span)
        state.program = made


def _factorize(state: State, directive: syntax.Directive) -> None:
    for name in operands.names(directive, directive.operands):
        made = factorized(state.program, name)
        if isinstance(made, str):
            raise error("S0204", f"`{name}` cannot be factorized: {made}", directive.span)
        state.program = state.factorized = made.program


def _unfold(state: State, directive: syntax.Directive) -> None:
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


def _rfactor(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    chunked = operands.phrase(directive, "to") is not None
    by = operands.positive(directive, operands.the(directive, "to" if chunked else "by"), state.knobs)
    made = rfactor(state.program, name, by, chunked=chunked)
    if isinstance(made, str):
        raise error("S0204", f"`{name}` cannot be factored out: {made}", directive.span)
    state.program = made


def _block(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    made = block(state.program, name, operands.positive(directive, operands.the(directive, "by"), state.knobs))
    if isinstance(made, str):
        raise error("S0204", f"`{name}` cannot be cut into blocks: {made}", directive.span)
    state.program = made


def _flatten(state: State, directive: syntax.Directive) -> None:
    state.program, state.stored = flattened(state.program, state.stored, products=target_of(state.target).on_device)


INLINE = Kind(
    "inline",
    FORMS["inline"],
    rewrite=_inline,
)
STORE = Kind(
    "store",
    FORMS["store"],
    rewrite=_store,
)
RFACTOR = Kind(
    "rfactor",
    FORMS["rfactor"],
    rewrite=_rfactor,
)
BLOCK = Kind(
    "block",
    FORMS["block"],
    rewrite=_block,
)
FLATTEN = Kind(
    "flatten",
    FORMS["flatten"],
    rewrite=_flatten,
)
HOIST = Kind(
    "hoist",
    FORMS["hoist"],
    rewrite=_hoist,
)
SCAN = Kind(
    "scan",
    FORMS["scan"],
    rewrite=_scan,
)
COMPOSE = Kind(
    "compose",
    FORMS["compose"],
    rewrite=_compose,
)
TABULATE = Kind(
    "tabulate",
    FORMS["tabulate"],
    rewrite=_tabulate,
)
NARROW = Kind(
    "narrow",
    FORMS["narrow"],
    rewrite=_narrow,
)
BISECT = Kind(
    "bisect",
    FORMS["bisect"],
    rewrite=_bisect,
)
LIFT = Kind(
    "lift",
    FORMS["lift"],
    rewrite=_lift,
)
FACTORIZE = Kind(
    "factorize",
    FORMS["factorize"],
    rewrite=_factorize,
)
UNFOLD = Kind(
    "unfold",
    FORMS["unfold"],
    rewrite=_unfold,
    about_reads=True,
)
