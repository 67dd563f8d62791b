"""Where packed copies and laid-out tensors lie in memory, and the loops that fill a copy in the order it is stored: `pack`, `layout`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Floor, Max, Mod
from polyhedral.expr import Name as AffineName
from polyhedral.model import Statement
from tensorlang.diagnostics import error
from tensorlang.schedule.directives import operands
from tensorlang.schedule.directives.kind import Kind
from tensorlang.schedule.directives.loops import permute, split_loop
from tensorlang.schedule.directives.placing import ComputedAt
from tensorlang.schedule.pack import Along, pack
from tensorlang.schedule.plan import Stage, Storage, owned
from tensorlang.schedule.shape import extents, innermost_axis
from tensorlang.schedule.state import State, loop_of, put
from tensorlang.schedule.storage import axis_names
from tensorlang.syntax import nodes as syntax
from tensorlang.syntax.directive_forms import FORMS
from tensorlang.tensor import notation
from tensorlang.tensor.nodes import Definition, Piece, Read
from tensorlang.tensor.walk import definers, definition_reads, tensor_table

SQUARE = 16
"""The side of what is turned in registers."""


def pack_rewrite(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    if name not in tensor_table(state.program):
        raise error("S0105", f"`{name}` is no tensor of this operator", directive.span)
    made = pack(state.program, name, _along(state, directive))
    if isinstance(made, str):
        raise error("S0203", f"`{name}` cannot be packed: {made}", directive.span)
    state.program, state.copies[name] = made
    state.packed[directive] = state.copies[name]


def _along(state: State, directive: syntax.Directive) -> Along | None:
    """Return which reads a directive names by an axis or a binder of the equation that has them; None where it names none."""
    if directive.name != "pack" or operands.phrase(directive, "in") is None:
        return None
    name = operands.name(directive, operands.the(directive, "in"))
    tensor = operands.only_name(directive)
    copies = {*state.packed.values()}
    made = [d for d in state.program.definitions if d.tensors[0].name not in copies]
    parts = {d.tensors[0].name: owned(name, (t.name for t in d.tensors))[1] for d in made if tensor in definition_reads(d)}
    having = [d for d in made if parts.get(d.tensors[0].name) in extents(d)]
    if len(having) != 1:
        several = " and ".join(f"`{d.tensors[0].name}`" for d in having)
        why = f"`{name}` is in {several}" if having else f"no equation that reads `{tensor}` has `{name}`"
        operands.bad(directive, why, "after `in` it takes an axis of the equation that reads the tensor, or what that sums over: `y.j`")
    reader = having[0].tensors[0].name
    return Along(reader, parts[reader])


def pack_directive(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    copy = state.stages[state.packed[directive]]
    definition = copy.definitions[0]
    reader = next(s for s in state.stages.values() if s is not copy and any(copy.name in definition_reads(d) for d in s.definitions))
    if operands.phrase(directive, "at") is not None:
        where = operands.name(directive, operands.the(directive, "at"))
        if where != "root":
            consumer, loop = loop_of(state, directive, where)
            copy = put(state, replace(copy, inside=(consumer.name, loop)))
            state.about_tensors.put(copy.name, ComputedAt(loop), directive)
    if operands.phrase(directive, "as") is None:
        _store_alike(state, directive, copy, name)
        return
    env: dict[str, Affine] = {axis: AffineName(axis) for axis in definition.axes}
    env |= _reader_names(state, copy.name, definition.axes, reader)
    dims = operands.dimensions(directive, definition.axes, env, state.knobs)
    state.layouts[copy.name] = storage_of(directive, definition.axes, definition.tensors[0].shape, dims, copy.inside is not None)
    _shape_copy(state, directive, copy, dims)


def _store_alike(state: State, directive: syntax.Directive, copy: Stage, name: str) -> None:
    """Store a copy in the layout that the caller stores tensor `name` in, if any."""
    storage = state.layouts.get(name)
    definition = copy.definitions[0]
    if storage is None:
        if operands.phrase(directive, "with") is not None:
            dims: tuple[Affine, ...] = tuple(AffineName(axis) for axis in definition.axes)
            state.layouts[copy.name] = storage_of(directive, definition.axes, definition.tensors[0].shape, dims, copy.inside is not None)
        _copy_rows_as_vectors(state, directive, copy)
        return
    own = definers(state.program).get(name)
    axes = own.axes if own else tuple(f"a{k}" for k in range(len(definition.axes)))
    to: dict[str, Affine] = {old: AffineName(new) for old, new in zip(axes, definition.axes, strict=True)}
    dims = tuple(affine.substitute(d, to) for d in storage.dims if affine.constant(d) is None)
    dims = _with_every_axis(definition, dims)
    state.layouts[copy.name] = storage_of(directive, definition.axes, definition.tensors[0].shape, dims, copy.inside is not None)
    _shape_copy(state, directive, copy, dims)


def _with_every_axis(definition: Definition, dims: tuple[Affine, ...]) -> tuple[Affine, ...]:
    """Return `dims` with the axes of a copy that they leave out, where it has several elements there: the layout of a tensor leaves out
    axes of one element, of which a copy with its padding has more. They come after the axes before them."""
    out, at = list(dims), 0
    for axis, extent in zip(definition.axes, definition.tensors[0].shape, strict=True):
        found = next((k for k, dim in enumerate(out) if axis in affine.names(dim)), None)
        if found is None and affine.constant(extent) == 1:
            continue
        if found is None:
            found = at
            out.insert(found, AffineName(axis))
        at = found + 1
    return tuple(out)


def _copy_rows_as_vectors(state: State, directive: syntax.Directive, copy: Stage) -> None:
    if copy.loops and state.target == "cpu":
        last = copy.loops[-1]
        base = copy.local(last)
        made, _, lanes = split_loop(state, directive, copy, last, 16, f"{base}o", f"{base}i")
        put(state, made.marked(lanes, "vector"))


def _reader_names(state: State, tensor: str, axes: tuple[str, ...], reader: Stage) -> dict[str, Affine]:
    """Return what the loops of the reader mean along the axes of a tensor, for axes that one iterator of the reader indexes directly, or
    two of them, one in whole stretches of the other."""
    out: dict[str, Affine] = {}
    to: dict[str, Affine] = {}
    for statement in _statements_of(state, reader):
        for access in statement.reads:
            if access.tensor == tensor:
                for axis, slot in zip(axes, access.index, strict=True):
                    if isinstance(slot, AffineName):
                        to.setdefault(slot.name, AffineName(axis))
                    elif isinstance(slot, Affine):
                        to = _stretches(reader, slot, axis) | to
    for loop, meaning in reader.forward.items():
        if set(affine.names(meaning)) <= to.keys():
            out[reader.local(loop)] = out[loop] = affine.substitute(meaning, to)
    return out


def _stretches(reader: Stage, slot: Affine, axis: str) -> dict[str, Affine]:
    """Return what both names of a subscript `32*outer + inner`, inner below 32, are of the axis; nothing for another subscript."""
    form = affine.affine_form(slot)
    if form is None or form[1] or len(form[0]) != 2:
        return {}
    (inner, one), (outer, step) = sorted(form[0].items(), key=lambda term: term[1])
    below = {n: e for d in reader.definitions for n, e in extents(d).items()}
    if one != 1 or step < 1 or below.get(inner) != step:
        return {}
    return {outer: affine.floor(AffineName(axis), step), inner: affine.mod(AffineName(axis), step)}


def _statements_of(state: State, stage: Stage) -> list[Statement]:
    names = {s.name for s in stage.statements}
    return [s for s in state.scop.statements if s.name in names]


def storage_of(
    directive: syntax.Directive, axes: tuple[str, ...], extents: tuple[Affine, ...], dims: tuple[Affine, ...], local: bool
) -> Storage:
    """Return the storage with the shape that `dims` need over the box."""
    ranges = _widest(axes, extents)
    below = next((d for d in dims if not _from_zero(d)), None)
    if below is not None:
        operands.bad(directive, f"`{notation.show(below)}` may be negative")
    shape = tuple(upper_bound(d, ranges) for d in dims)
    if any(s is None for s in shape):
        worst = next(d for d, s in zip(dims, shape, strict=True) if s is None)
        operands.bad(directive, f"the extent of `{notation.show(worst)}` is not known")
    return Storage(dims, tuple(_not_negative(s) for s in shape if s is not None))


def _not_negative(extent: Affine) -> Affine:
    """Return an extent that is 0 where there is nothing to store: `F + H - 1` is -1 where both are 0."""
    terms, constant = affine.terms(extent)
    return extent if constant >= 0 and all(k >= 0 for k in terms.values()) else Max(affine.ZERO, extent)


def _widest(axes: tuple[str, ...], extents: tuple[Affine, ...]) -> dict[str, Affine]:
    """Return the extents of axes; where one depends on axes before it, the greatest that it takes, if that is known."""
    ranges: dict[str, Affine] = {}
    for axis, extent in zip(axes, extents, strict=True):
        mentioned = set(affine.names(extent))
        if mentioned & set(axes):
            sizes = {name: affine.add(AffineName(name), 1) for name in mentioned - set(axes)}
            bound = upper_bound(extent, sizes | ranges)
            if bound is None:
                continue
            extent = affine.sub(bound, 1)
        ranges[axis] = extent
    return ranges


def _from_zero(e: Affine) -> bool:
    """Tell whether a layout dimension cannot be negative, its names running from 0."""
    terms, const = affine.terms(e)
    return const >= 0 and all(k >= 0 and (not isinstance(atom, Floor) or _from_zero(atom.value)) for atom, k in terms.items())


def upper_bound(e: Affine, extents: Mapping[str, Affine]) -> Affine | None:
    """Return an exclusive upper bound of a layout dimension whose names run from 0 to their extents."""
    from_terms, const = affine.terms(e)
    total: Affine = affine.to_expr(const + 1)
    for atom, k in from_terms.items():
        bound = _atom_bound(atom, extents)
        if bound is None or k < 0:
            return None
        total = affine.add(total, affine.scale(k, affine.sub(bound, 1)))
    return total


def _atom_bound(atom: Affine, extents: Mapping[str, Affine]) -> Affine | None:
    match atom:
        case AffineName(name):
            return extents.get(name)
        case Floor(value, divisor):
            inner = upper_bound(value, extents)
            return None if inner is None else affine.ceil_div(inner, divisor)
        case Mod(value, divisor):
            inner = upper_bound(value, extents)
            size = None if inner is None else affine.constant(inner)
            return affine.to_expr(divisor if size is None else min(divisor, size))
        case _:
            return None


def _shape_copy(state: State, directive: syntax.Directive, copy: Stage, dims: tuple[Affine, ...]) -> None:
    """Give a packed copy loops that write its buffer in order, the innermost as vectors where its extent is constant."""
    order: list[str] = []
    for position, dim in enumerate(dims):
        loop = next((loop for loop, meaning in copy.forward.items() if affine.same(meaning, dim)), None)
        if loop is None:
            loop = _split_for(state, directive, copy, dim, position)
            copy = state.stages[copy.name]
        if loop is None:
            return
        order.append(loop)
    # What is copied inside a loop of its reader has but one iteration along the axes that the loop fixes.
    order = [*(loop for loop in copy.loops if loop not in order and (copy.extents[loop] == 1 or copy.inside is not None)), *order]
    if len(set(order)) == len(copy.loops) == len(order) and set(order) == set(copy.loops):
        order = _in_squares(state, directive, copy, order)
        copy = permute(state, state.stages[copy.name], order)
        extent = copy.extents[order[-1]]
        if extent is not None and 4 <= extent <= 64:
            put(state, copy.marked(order[-1], "vector"))


def _in_squares(state: State, directive: syntax.Directive, copy: Stage, order: list[str]) -> list[str]:
    """Return the order of loops of a copy whose vectors lie across what it reads with that in squares, which are turned in registers:
    several of the elements that lie next to each other in memory at a time."""
    last, source = order[-1], _source_axis(state, copy)
    along = next((loop for loop in order[:-1] if source is not None and _walks(copy.forward[loop], source)), None)
    extents = copy.extents[last], copy.extents[along] if along is not None else None
    if state.target != "cpu" or along is None or source is None or source in affine.names(copy.forward[last]):
        return order
    if extents[0] is None or extents[0] % SQUARE or (extents[1] is not None and extents[1] < SQUARE):
        return order
    outer, inner = _halves(state, directive, copy, along)
    at = order.index(along)
    order = [*order[:at], outer, *order[at + 1 : -1]]
    copy = put(state, state.stages[copy.name].marked(inner, "unroll"))
    if extents[0] == SQUARE:
        return [*order, inner, last]
    vectors, lanes = _halves(state, directive, copy, last)
    return [*order, vectors, inner, lanes]


def _halves(state: State, directive: syntax.Directive, copy: Stage, loop: str) -> tuple[str, str]:
    base = copy.local(loop)
    _, outer, inner = split_loop(state, directive, copy, loop, SQUARE, f"{base}s", f"{base}t")
    return outer, inner


def _source_axis(state: State, copy: Stage) -> str | None:
    """Return the axis of a copy along which what it reads lies in memory, or None where it reads with padding around."""
    match copy.definitions[0].pieces:
        case (Piece(value=Read(tensor, index)),) if index:
            pass
        case _:
            return None
    storage = state.layouts.get(tensor)
    names = axis_names(state.program, tensor)
    axis = names[-1] if storage is None else innermost_axis(storage)
    slot = index[names.index(axis)] if axis in names else None
    return slot.name if isinstance(slot, AffineName) else None


def _walks(meaning: Affine, axis: str) -> bool:
    """Tell whether a loop goes along `axis` in steps of one."""
    match meaning:
        case AffineName(name) | Mod(AffineName(name), _):
            return name == axis
        case _:
            return False


def _split_for(state: State, directive: syntax.Directive, copy: Stage, dim: Affine, position: int) -> str | None:
    """Split a loop of the copy so that one of the two parts is `dim`; return that part."""
    match dim:
        case Floor(value, divisor) | Mod(value, divisor):
            pass
        case _:
            return None
    loop = next((loop for loop, meaning in copy.forward.items() if affine.same(meaning, value)), None)
    if loop is None:
        inner = _split_for(state, directive, copy, value, position)
        if inner is None:
            return None
        loop, copy = inner, state.stages[copy.name]
    base = copy.local(loop)
    _, outer, inner = split_loop(state, directive, copy, loop, divisor, f"{base}o", f"{base}i")
    return outer if isinstance(dim, Floor) else inner


def layout_directive(state: State, directive: syntax.Directive) -> None:
    name = operands.only_name(directive)
    tensor = tensor_table(state.program).get(name)
    if tensor is None:
        raise error("S0105", f"`{name}` is no tensor of this operator", directive.span)
    definition = definers(state.program).get(name)
    if definition is None or name in state.program.results:
        raise error(
            "S0212",
            f"the caller stores `{name}`, so its layout is not the schedule's",
            directive.span,
            help=f"`pack {name} as […]` makes a copy",
        )
    if name in state.folds:
        raise error("S0212", f"`{name}` is folded already", directive.span, help="write the modulus in the layout: `t % 2`")
    axes = definition.axes
    env: dict[str, Affine] = {}
    for stage in reversed([s for s in state.stages.values() if definition not in s.definitions]):
        if any(name in definition_reads(d) for d in stage.definitions):
            env |= _reader_names(state, name, axes, stage)
    env |= {axis: AffineName(axis) for axis in axes}
    dims = operands.dimensions(directive, axes, env, state.knobs)
    state.layouts[name] = storage_of(directive, axes, tensor.shape, dims, False)


PACK = Kind(
    "pack",
    FORMS["pack"],
    pack_directive,
    rewrite=pack_rewrite,
    about_reads=True,
)
LAYOUT = Kind(
    "layout",
    FORMS["layout"],
    layout_directive,
)
