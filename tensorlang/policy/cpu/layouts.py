"""How the derived schedule would like its inputs and results to be stored, if whoever stores them can choose."""

from __future__ import annotations

from collections.abc import Container, Mapping
from math import gcd

from codegen.dtypes import compute_dtype
from codegen.loops import dots
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.register_tiles import blocked_binder, extents_for_tile, grouped, row_counts, tile_sizes, tiled, with_rows_of_tile
from tensorlang.policy.cpu.row_major import left_row_major
from tensorlang.policy.cpu.winograd import Transformed, blocks_of, transformed
from tensorlang.policy.deriver import Deriver, deriver_of, reads_itself, sampled, with_factors_apart
from tensorlang.policy.groups import recurs
from tensorlang.policy.machine import Machine
from tensorlang.policy.pointwise import stored_axis
from tensorlang.policy.scatters import scattered_axes
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import Contraction, block_of, contraction, extents
from tensorlang.schedule.storage import in_blocks, row_major, to_layout, to_storage
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Definition, Dynamic, Program, Tensor
from tensorlang.tensor.walk import reads, reduces, tensor_table, tensors

SHORTEST_BLOCK = 4
"""Channels in a block that are worth one where dot products take them."""


def derive_layouts(
    program: Program,
    machine: Machine,
    layouts: Mapping[str, Storage],
    constants: frozenset[str],
    fixed: frozenset[str] = frozenset(),
    at: Mapping[str, int] | None = None,
) -> dict[str, Layout]:
    """Return how the derived schedule would like tensors to be stored that are not in `layouts` yet: results and inputs of
    convolutions and pooling in blocks of channels, constant operands of contractions in the order the register tile reads them. Nothing is
    wished for tensors whose sizes are not known when compiling, and none for what is in `fixed`, which whoever stores it would have to
    copy, where the copies take longer than they save. `at`: samples of open sizes."""
    program, _ = with_factors_apart(lift(program), Schedule(program.name))
    static = {t.name for t in tensors(program) if all(affine.constant(s) is not None for s in t.shape)}
    d = sampled(deriver_of(program, machine, layouts, constants, Schedule(program.name)), at)
    program, layouts = d.program, d.layouts
    params = {p.name: p for p in program.params if p.name in static}
    found = transformed(program)
    if found is not None:
        wished = _of_transformed(d, found)
        return {name: layout for name, layout in wished.items() if name in static and name not in layouts}
    out: dict[str, Layout] = {}
    for definition in program.definitions:
        if len(definition.pieces) == 1 and len(definition.axes) > 0:
            blocked = {name: layout for name, layout in _channels(d, definition, static).items() if name in static}
            out |= {name: layout for name, layout in blocked.items() if name not in left_row_major(d, definition, blocked, fixed)}
            if not blocked:
                out |= {name: row_major(params[name]) for name in _read_along_rows(d, definition) if name in params}
    d.layouts = {**layouts, **{name: to_storage(program, name, layout) for name, layout in out.items()}}
    for definition in program.definitions:
        if len(definition.pieces) != 1 or not definition.axes or reads_itself(definition):
            continue
        axis = stored_axis(d, definition)
        c = contraction(definition, axis) if axis is not None else None
        if c is None or axis is None:
            continue
        if block_of(d.layouts.get(definition.tensors[0].name), axis) is None:
            # A tile of rows by row-major columns reads both operands along rows.
            for operand in (c.x, c.w):
                if operand in params and operand not in constants and operand not in d.layouts:
                    out[operand] = row_major(params[operand])
        if c.w in constants and c.w not in layouts:
            packed = to_layout(program, c.w, _packed_storage(d, definition, c, axis))
            if packed is not None:
                out[c.w] = packed
    return out


def _of_transformed(d: Deriver, found: Transformed) -> dict[str, Layout]:
    """Return blocks of channels for what a contraction between transformations reads and makes, and its weights in the order of its loops:
    the points outside the channels, for one block of columns after the other."""
    table = tensor_table(d.program)
    sizes, result = blocks_of(found, d), found.result
    [column] = found.axes(result, "channel") or (None,)
    if sizes is None or column is None:
        return {}
    lanes = d.machine.lanes(table[found.weights].dtype)
    out = {result.tensors[0].name: in_blocks(table[result.tensors[0].name], result.axes.index(column), lanes)}
    first = found.before[0] if found.before else found.tiles
    read = next(r for p in first.pieces for r in reads(p.value))
    channels = [AffineName(a) for a in found.axes(first, "channel")]
    position = next((k for k, slot in enumerate(read.index) if slot in channels), None)
    if position is not None:
        out[found.x] = in_blocks(table[found.x], position, lanes)
    if found.weights in d.constants:
        out[found.weights] = to_layout(d.program, found.weights, _points_outside(d, found, lanes * sizes.vectors))
    return {name: layout for name, layout in out.items() if layout is not None}


def _points_outside(d: Deriver, found: Transformed, width: int) -> Storage:
    own = d.axes[found.weights]
    shape = dict(zip(own, tensor_table(d.program)[found.weights].shape, strict=True))
    to = {s.name: a for s, a in zip(found.contraction.w_read.index, own, strict=True) if isinstance(s, AffineName)}
    [column], [channel] = found.contraction.columns, found.contraction.inner
    before = [to[n] for n in found.axes(found.product, "batch") if n in to]
    points = [to[n] for n in found.axes(found.product, "point") if n in to]
    used = {*before, *points, to[column], to[channel]}
    left = [a for a in own if a not in used]
    rows: list[Affine] = [*map(AffineName, (*left, *before)), affine.floor(AffineName(to[column]), width)]
    rows += [*map(AffineName, (*points, to[channel])), affine.mod(AffineName(to[column]), width)]
    counts = [*(shape[a] for a in (*left, *before)), affine.ceil_div(shape[to[column]], width)]
    counts += [*(shape[a] for a in (*points, to[channel])), affine.to_expr(width)]
    return Storage(tuple(rows), tuple(counts))


def _packed_storage(d: Deriver, definition: Definition, c: Contraction, axis: str) -> Storage:
    lanes = block_of(d.layouts.get(definition.tensors[0].name), axis) or d.machine.lanes(compute_dtype(c.reduce.reducer.dtypes[0]))
    # Rows of a recurrence come one after the other, so that no tile has several of its steps, and no dot product takes its sums.
    is_recurrence = recurs(d.program, definition)
    rows_of_tile = [a for a in definition.axes if a in c.rows] if is_recurrence else with_rows_of_tile(d, definition, c, axis, lanes).rows
    row = rows_of_tile[-1] if rows_of_tile else None
    sides = extents_for_tile(d, definition, row, axis, lanes)
    tile = tiled(d, c, *sides, lanes)
    v = tile.vectors if tile is not None else tile_sizes(*sides, lanes, d.machine.vector_registers, row_counts(d, c))[1]
    width = lanes * v
    own = d.axes[c.w]
    to = {s.name: a for s, a in zip(c.w_read.index, own, strict=True) if isinstance(s, AffineName)}
    shape = dict(zip(own, tensor_table(d.program)[c.w].shape, strict=True))
    pairs = None if is_recurrence else grouped(d, c)
    channel = (pairs.binder, pairs.block) if pairs is not None else blocked_binder(d, c)
    loops = [b for b in c.inner if channel is None or b != channel[0]]
    dims: list[tuple[Affine, Affine]] = []

    def whole(*axes: str) -> None:
        dims.extend((AffineName(a), shape[a]) for a in axes)

    def quotient(e: Affine, extent: Affine, divisor: int) -> None:
        dims.append((affine.floor(e, divisor), affine.ceil_div(extent, divisor)))

    def rest(axis: str, divisor: int) -> None:
        dims.append((affine.mod(AffineName(axis), divisor), affine.to_expr(divisor)))

    # What this contraction reads at one place only, another may read at others: a matrix for each gate of a recurrent layer.
    whole(*(a for a in own if a not in to.values() and affine.constant(shape[a]) != 1))
    whole(*(to[n] for n in (*c.batch, *(j for j in c.columns if j != axis)) if n in to))
    quotient(AffineName(to[axis]), shape[to[axis]], width)
    if channel is not None and channel[0] in to:
        quotient(AffineName(to[channel[0]]), shape[to[channel[0]]], channel[1])
    whole(*(to[b] for b in loops if b in to))
    if channel is not None and channel[0] in to:
        group = pairs.group if pairs is not None else 1
        quotient(affine.mod(AffineName(to[channel[0]]), channel[1]), affine.to_expr(channel[1]), group)
    rest(to[axis], width)
    if pairs is not None and pairs.binder in to:
        rest(to[pairs.binder], pairs.group)
    return Storage(tuple(e for e, _ in dims), tuple(extent for _, extent in dims))


def _channels(d: Deriver, definition: Definition, static: Container[str]) -> dict[str, Layout]:
    """Return blocked storage for the result and the windowed input of a convolution or a pooling. A result that is not `static` is in
    blocks only where the caller stores it so; what is read goes with it."""
    name = definition.tensors[0].name
    found = [r for p in definition.pieces for r in reduces(p.value)]
    if len(found) != 1 or len(definition.axes) < 4 or name not in d.program.results:
        return {}
    stored = d.layouts.get(name)
    if stored is None and name not in static:
        return {}
    if scattered_axes(definition) is not None:
        return {}  # its terms go where data say, row by row
    sizes = extents(definition)
    lanes = d.machine.lanes(compute_dtype(found[0].reducer.dtypes[0]))
    windowed = [
        r for b in found[0].body for r in reads(b) if any(not isinstance(s, AffineName | Dynamic) for s in r.index) or len(r.index) >= 4
    ]
    slides = any(not isinstance(s, AffineName | Dynamic) for r in windowed for s in r.index)
    if not windowed or (not slides and _multiplies_matrices(d, definition)):
        return {}
    if stored is None:
        column = _channel_axis(d, definition, sizes, lanes)
    else:
        column = next((a for a in definition.axes if block_of(stored, a) == lanes), None)
    group = 0 if column is None else _dot_group(d, contraction(definition, column))
    least = max(SHORTEST_BLOCK, lanes // group) if group else lanes  # as many products at once as without the dot product
    result = None if column is None else _channel_blocks(definition.tensors[0], definition.axes.index(column), lanes, least)
    if column is None or result is None:
        return {}
    out = {name: result} if stored is None else {}
    for read in windowed:
        if read.tensor in d.layouts or read.tensor not in {p.name for p in d.program.params}:
            continue
        # A constant that every channel has for itself goes with the channels; others are packed for the register tile.
        binders = set() if read.tensor in d.constants else {b.name for b in found[0].binders}
        if read.tensor in d.constants and not _plain_everywhere(definition, column):
            continue
        for k, slot in enumerate(read.index):
            extent = affine.constant(tensor_table(d.program)[read.tensor].shape[k])
            if isinstance(slot, AffineName) and (slot.name == column or slot.name in binders) and extent is not None:
                least = SHORTEST_BLOCK if group and slot.name in binders else lanes
                layout = _channel_blocks(tensor_table(d.program)[read.tensor], k, lanes, least)
                if layout is not None:
                    out[read.tensor] = layout
                break
    return out


def _channel_blocks(tensor: Tensor, axis: int, lanes: int, least: int) -> Layout | None:
    """Return blocks of `lanes` channels; where there are fewer, or those of a group cannot be cut so, the longest, `least` or more."""
    extent = affine.constant(tensor.shape[axis]) or 0
    whole = in_blocks(tensor, axis, lanes) if extent >= lanes else None
    shorter = gcd(extent, lanes)
    return in_blocks(tensor, axis, shorter) if whole is None and least <= shorter < lanes else whole


def _dot_group(d: Deriver, c: Contraction | None) -> int:
    """Return how many neighbours the machine's dot products multiply and add at once, where they may take the contraction, else 0."""
    table = tensor_table(d.program)
    types = None if c is None else (table[c.x].dtype, table[c.w].dtype)
    return dots.group(types[0]) if types is not None and types in d.machine.dots else 0


def _read_along_rows(d: Deriver, definition: Definition) -> list[str]:
    """Return what a sum over windows reads along its last axis, of channels too few for blocks: its lanes lie along rows."""
    found = [r for p in definition.pieces for r in reduces(p.value)]
    if len(found) != 1 or definition.tensors[0].name in d.layouts:
        return []
    last = definition.axes[-1]
    windows = [r for b in found[0].body for r in reads(b) if r.index and not isinstance(r.index[-1], AffineName | Dynamic)]
    moved = [r.tensor for r in windows if not isinstance(r.index[-1], Dynamic) and last in affine.name_set(r.index[-1])]
    return [name for name in dict.fromkeys(moved) if name not in d.layouts and name not in d.constants]


def _channel_axis(d: Deriver, definition: Definition, sizes: Mapping[str, int | None], lanes: int) -> str | None:
    """Return the axis to keep in blocks: one that constant weights alone are indexed by, else one that every operand is indexed by. One
    that is shorter than a vector will do where dot products of a part of one still take more terms at once than a whole vector does."""
    for axis in definition.axes[1:]:
        c, extent = contraction(definition, axis), sizes[axis] or 0
        if c is None or c.w not in d.constants or axis not in c.columns:
            continue
        if extent >= lanes or gcd(extent, lanes) * _dot_group(d, c) > lanes:
            return axis
    plain = [a for a in definition.axes[1:] if (sizes[a] or 0) >= lanes and _plain_everywhere(definition, a)]
    return plain[0] if plain else None


def _multiplies_matrices(d: Deriver, definition: Definition) -> bool:
    """Tell whether a definition is a product of two tensors that are made anew each time: its batch are heads of attention, say, which both
    lie along rows, and no channels."""
    products = (contraction(definition, axis) for axis in definition.axes)
    return any(c is not None and not {c.x, c.w} & d.constants for c in products)


def _plain_everywhere(definition: Definition, axis: str) -> bool:
    """Tell whether every read of a reduction's body uses `axis` as an index of its own."""
    bodies = [b for p in definition.pieces for r in reduces(p.value) for b in r.body]
    return all(any(isinstance(s, AffineName) and s.name == axis for s in read.index) for b in bodies for read in reads(b))
