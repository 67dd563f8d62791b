"""What definitions look like to the schedule of a role for a processor.

    contraction(y, a, b; batch.., i.., j.., k..)       y[batch, i, j] = f(sum(k) a[batch, i, k] * b[batch, j, k]), perhaps for a part of
                                                       y, whose other clauses sum nothing and have loops of their own
    pointwise(y, p..; i.., j.., k..)                   any other tensor that is computed in vectors along an axis, j; k reduced for each;
                                                       p.. are read with padding around them
    row_reduction(y, t..; i.., j.., k.., l.., r..)     several tensors computed together for each row i: y the last, t.. the others; perhaps
                                                       `p..` after t.., products whose rows are finished by them
    transformed(y, r.., m, v, t.., x; n.., h.., w, f.., i.., j, a.., k, d, e.., c.., u..)
                                                       products m of tiles v, the tiles transformed from x (through t), the products to y
                                                       (through r)

A name without `..` stands for exactly one loop. `j..` in a contraction ends in the axis along which y is contiguous. More names may follow
at the end of the loops: in a contraction `c..`, the reduction along which a is stored in blocks (otherwise it is among k), and `h..`, the
first of i, in which what is read of a fits the second-level cache where a does not (otherwise they are among i); in a pointwise
tensor `x..`, an axis along which something read is contiguous, `l..`, axes that the layout of y keeps between a block of j and its
lanes, and `m..` or `n..`, the last of i or of l, of which several points are worth reducing together. `r..` in rows are reductions of
tensors that have no axis of their own.

In a contraction between transformations n, h, w and f are loops of y (f also of r): its batch, rows and columns that tiles cut, its
channels; m has a loop for every point (a), tile (i, j) and channel (d), and sums over k. The others are loops of v, t and r: e of their
tiles, c of the channels that k sums, u of the points that they transform. The last of each is that of y, or else of v.

What guards and directives may ask for: `lanes`, `registers`, `threads`, `cache` (bytes of the last cache), the bytes of a tensor
(`y.bytes`, 0 where they are not known), the extent of a loop (`i.extent`), how many loops (`rank(batch)`)
and their iterations (`prod(i..)`), in a pointwise tensor `together` (how many points of m or n; in rows, how many of i), `partial` (over
how many partial results to spread r), and for a contraction `b.reuse` (how often an element of b is used), `b.unit` (whether it is
contiguous along j), `b.pack` (whether to copy it first into the order of the tile), `b.made` (1 where the operator
computes it along j and for y alone, and may store it in that order at once, else 0), `b.apart` (1 where each block of its columns is read
by one thread alone, which may then copy it when it comes to that block, else 0), `b.stored` (whether the caller stores it as it is
read), `b.across` (whether sums along k in vectors take a copy of b), `b.ahead` (1 where it is worth asking for the next columns while
tiles go through these, else 0), `y.along` (1 where a register tile goes along its rows of y before the next rows, else 0), `a.padded`,
`a.block`, `a.group`: how many neighbours along c the machine multiplies and adds in one instruction, or 1, where it multiplies whole
tiles `a.rows` (rows of one, else 0), `a.depth` (groups along c) and `b.vectors` (tiles of columns side by side), and `a.tiles` and
`b.tiles`: where rows of a, or columns of b, are computed row by row from products of the same operator, how many register tiles of them
to compute at a time, else 0. `p.block` of rows: how many rows of the products p to compute before they are finished, 0 where there are
none. Where sums are to run along k in vectors, `k.block` is how many elements of a sum to take at once, else it is 0, and `i.block` and
`j.block` are the sides of the register tile.
Between transformations `h.tile` and `w.tile` are the sides of a tile of y and `h.block`, `w.block` those of a block of tiles that is
transformed at once, `f.block` how many channels of y a thread computes from it; `i.block`, `j.block` and `m.vectors` are the sides of
the register tile. `p.padded`: whether there are any p; `y.gathered`: whether what a vector is computed from lies where data say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from codegen.dtypes import compute_dtype
from polyhedral import affine
from tensorlang.policy.cpu.inner_loops import is_in_phases, moves_in_phases
from tensorlang.policy.cpu.narrow_rows import has_narrow_rows
from tensorlang.policy.cpu.register_tiles import (
    blocked_binder,
    extents_for_tile,
    grouped,
    is_packing_profitable,
    is_prefetch_profitable,
    is_read_apart,
    is_row_order_profitable,
    row_counts,
    tile_sizes,
    tiled,
    with_last_row,
    with_rows_of_tile,
)
from tensorlang.policy.cpu.row_chains import is_near, row_chain, tiles_of_rows
from tensorlang.policy.cpu.row_epilogues import block_of_rows, finished
from tensorlang.policy.cpu.row_lanes import has_row_lanes
from tensorlang.policy.cpu.vector_sums import sums_along
from tensorlang.policy.cpu.winograd import blocks_of
from tensorlang.policy.deriver import Deriver, bytes_of
from tensorlang.policy.groups import FusionGroup, fusion_groups, recurs
from tensorlang.policy.pointwise import (
    crossing_axis,
    is_elsewhere,
    lanes_along,
    moves_one_by_one,
    partial_results,
    points_together,
    spreadable,
    stored_axis,
    vector_axis,
)
from tensorlang.policy.roles.parameters import Facts, Form, Loops, Shape, full
from tensorlang.schedule.pack import is_padding, pack
from tensorlang.schedule.shape import OPEN_EXTENT, Contraction, block_of, contraction, extents, readers, summing, unit_stride
from tensorlang.tensor.nodes import Definition, Dynamic
from tensorlang.tensor.walk import definers, index_names, reads, reduces


def _contraction(d: Deriver, group: FusionGroup) -> Shape | None:
    definition = summing(group.head)
    axis = _columns_axis(d, definition)
    c = contraction(definition, axis) if axis is not None else None
    if c is None or axis is None or len(group.members) > 1 or has_narrow_rows(d, definition):
        return None
    groups = fusion_groups(d) if {c.x, c.w} & definers(d.program).keys() else ()
    by_rows = row_chain(d, groups, definition, c)
    if by_rows is not None:
        c = with_last_row(c, by_rows.axis)
    sizes, own = extents(definition), definition.tensors[0].name
    lanes = block_of(d.layouts.get(own), axis) or d.machine.lanes(compute_dtype(c.reduce.reducer.dtypes[0]))
    c = c if by_rows is not None else with_rows_of_tile(d, definition, c, axis, lanes)
    pairs = grouped(d, c)
    channel = (pairs.binder, pairs.block) if pairs is not None else blocked_binder(d, c)
    reuse = 1
    for r in c.rows:
        reuse *= sizes[r] or OPEN_EXTENT
    unit = unit_stride(c.w_read.index, None, None, axis)
    in_b = index_names(c.w_read)
    batch = tuple(n for n in c.batch if n in in_b)
    rows = (*(n for n in c.batch if n not in in_b), *c.rows)
    columns = (*(j for j in c.columns if j != axis), axis)
    inner = tuple(k for k in c.inner if channel is None or k != channel[0])
    outside = _outside(d, c, batch, rows[:-1], sizes)
    given = any(p.name == c.x for p in d.program.params)
    tile, heights = extents_for_tile(d, definition, c.rows[-1] if c.rows else None, axis, lanes), row_counts(d, c)
    sums = sums_along(d, definition, c, axis, lanes) if channel is None else None
    height, width = tile_sizes(*tile, lanes, d.machine.vector_registers, heights)
    tiles = tiled(d, c, *tile, lanes)
    copied = is_packing_profitable(d, c, reuse, unit)
    again = c.x == c.w and not unit_stride(c.x_read.index, None, None, inner[-1] if inner else "")  # both reads are worth a copy
    around = prod(sizes[n] or OPEN_EXTENT for n in (*batch, *columns[:-1]))
    samples = prod(sizes[n] or OPEN_EXTENT for n in batch)
    along = columns == (axis,) and block_of(d.layouts.get(own), axis) is None and is_row_order_profitable(d, c, own, samples)
    apart = copied and c.w not in d.layouts and not outside and not again and not along
    apart = apart and is_read_apart(d, definition, around, sizes[axis] or OPEN_EXTENT, width * lanes)
    made = unit and _is_arrangeable(d, c.w) and readers(d.program)[c.w] == [own]
    ahead = not (apart and not made) and not along and is_prefetch_profitable(d, c, definition, rows[outside:], (height, width * lanes))
    is_whole = len(group.head.pieces) == 1 and c.x != c.w  # else what comes next is not the same for all tiles
    by_columns = row_chain(d, groups, definition, c, columns=True)
    if by_columns is not None and sums is not None and is_near(d, by_columns, sizes[axis] or OPEN_EXTENT):
        by_columns = None  # sums read rows as they lie, and find all of them near
    facts: dict[str, Facts] = {
        "y": {"along": int(along)},
        "a": {
            "padded": c.padded,
            "block": channel[1] if channel else 1,
            "group": pairs.group if pairs is not None else 1,
            "rows": tiles.rows if tiles is not None else 0,
            "depth": tiles.depth if tiles is not None else 0,
            "tiles": 0 if given else tiles_of_rows(d, by_rows),
        },
        "b": {
            "reuse": reuse,
            "unit": unit,
            "pack": copied,
            "made": int(made),
            "apart": int(apart),
            "stored": c.w in d.layouts,
            "across": sums is not None and sums.copies,
            "ahead": int(is_whole and ahead),
            "vectors": tiles.vectors if tiles is not None else 0,
            "tiles": tiles_of_rows(d, by_columns, width * lanes),
        },
        "k": {"block": sums.block if sums is not None else 0},
    }
    if sums is not None:
        facts |= {"i": {"block": sums.rows}, "j": {"block": sums.columns}}
    classes = (batch, rows[outside:], columns, inner, (channel[0],) if channel else (), rows[:outside])
    return Shape(((own,), (c.x,), (c.w,)), tuple(full(own, n) for n in classes), lanes, facts, tile, heights)


def _outside(d: Deriver, c: Contraction, batch: Sequence[str], outer: Sequence[str], sizes: Mapping[str, int | None]) -> int:
    """Return around how many of the `outer` rows all columns should be computed, so that what is read again for every block of columns
    stays in the second-level cache: as many as it takes for operand x, or all of them where w stays there as well."""
    near, groups = d.machine.l2_bytes // 2, prod(sizes[n] or 1 for n in batch)
    x, w = (bytes_of(d, (name,)) // groups for name in (c.x, c.w))
    if x <= near or w <= near:
        return 0 if x <= near else len(outer)
    left = [x // prod(sizes[n] or 1 for n in outer[:k]) for k in range(len(outer))]
    return next((k for k, size in enumerate(left) if size <= near), len(outer))


def _is_arrangeable(d: Deriver, tensor: str) -> bool:
    """Tell whether the operator makes a tensor for itself, not through itself, and nobody has said how it is stored."""
    definition = definers(d.program).get(tensor)
    return definition is not None and tensor not in (*d.program.results, *d.layouts) and not recurs(d.program, definition)


def _is_contraction(d: Deriver, definition: Definition) -> bool:
    axis = _columns_axis(d, definition)
    return axis is not None and contraction(definition, axis) is not None


def _columns_axis(d: Deriver, definition: Definition) -> str | None:
    """Return the axis along which a product's results lie next to each other: the last one that has more than one element, where an operand
    lies along it, too."""
    axis = stored_axis(d, definition) if definition.axes and len(definition.pieces) == 1 else None
    sizes = extents(definition)
    if axis is None or sizes[axis] != 1 or definition.tensors[0].name in d.layouts:
        return axis
    longer = next((a for a in reversed(definition.axes) if sizes[a] != 1), axis)
    c = contraction(definition, longer)
    lies = c is not None and c.w not in d.layouts and unit_stride(c.w_read.index, None, None, longer)
    return longer if lies and contraction(definition, axis) is not None else axis


def _binders(definition: Definition) -> tuple[str, ...]:
    return tuple(b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders)


def _pointwise(d: Deriver, group: FusionGroup) -> Shape | None:
    definition = group.head
    if len(group.members) > 1 or not definition.axes or len(definition.pieces) > 1 or _is_contraction(d, definition):
        return None
    in_phases = not _binders(definition) and (is_in_phases(d, definition) or moves_in_phases(d, definition))
    if has_narrow_rows(d, definition) or has_row_lanes(d, group) or in_phases:
        return None
    own, axis, sizes = definition.tensors[0].name, vector_axis(d, definition), extents(definition)
    if axis not in definition.axes:
        return None
    storage = d.layouts.get(own)
    block = block_of(storage, axis)
    lanes = block or lanes_along(d, definition, axis)
    slots = [s for p in definition.pieces for r in reads(p.value) for s in r.index if isinstance(s, Dynamic)]
    by_lanes = any(is_elsewhere(s, axis) for s in slots)
    extent = sizes[axis]
    others = tuple(a for a in definition.axes if a != axis)
    binders = _binders(definition)
    if moves_one_by_one(d, definition, axis) or (extent is not None and extent < 2):
        one_by_one = (full(own, definition.axes), (), full(own, binders), *((),) * 4)
        return Shape(((own,), ()), one_by_one, lanes, {"y": {"gathered": False}, "p": {"padded": False}})
    at = definition.axes.index(axis)
    before, after = (others, ()) if block is None else (definition.axes[:at], definition.axes[at + 1 :])
    crossing = crossing_axis(d, definition, axis)
    row = next((a for a in reversed(others) if (sizes[a] or 0) >= 4), None) if binders else None
    together = points_together(d.settled(definition)[row]) if row is not None else 1
    row = row if together > 1 else None
    classes = (
        tuple(a for a in before if a not in (crossing, row)),
        (axis,),
        binders,
        (crossing,) if crossing else (),
        tuple(a for a in after if a != row),
        (row,) if row in before else (),
        (row,) if row in after else (),
    )
    padded = _padded(d, definition) if binders else ()
    facts: dict[str, Facts] = {"y": {"gathered": bool(slots) and not by_lanes}, "p": {"padded": bool(padded)}}
    return Shape(((own,), padded), tuple(full(own, tuple(n for n in c if n)) for c in classes), lanes, facts, together=together)


def _padded(d: Deriver, definition: Definition) -> tuple[str, ...]:
    """Return the tensors that reductions read with padding, of which a copy can hold it."""
    out: list[str] = []
    for tensor in dict.fromkeys(r.tensor for p in definition.pieces for e in reduces(p.value) for r in reads(e)):
        packed = pack(d.program, tensor)
        if tensor in d.axes and not isinstance(packed, str) and is_padding(packed):
            out.append(tensor)
    return tuple(out)


def _lanes(d: Deriver, definition: Definition) -> tuple[str, ...]:
    """Return the innermost binder of each reduction whose operands are contiguous along it."""
    if not spreadable(d, definition):
        return ()
    out: list[str] = []
    for reduce in (r for p in definition.pieces for r in reduces(p.value) if r.binders):
        binder = reduce.binders[-1]
        extent = affine.difference(binder.hi, binder.lo)
        along = [r for b in reduce.body for r in reads(b) if binder.name in index_names(r)]
        contiguous = along and all(unit_stride(r.index, d.layouts.get(r.tensor), d.axes[r.tensor], binder.name) for r in along)
        if contiguous and (extent is None or extent >= d.machine.lanes(compute_dtype(reduce.reducer.dtypes[0]))):
            out.append(binder.name)
    return tuple(out)


def _rows(d: Deriver, group: FusionGroup) -> Shape | None:
    if len(group.members) == 1 or group.transformed is not None or has_row_lanes(d, group):
        return None
    own = group.head.tensors[0].name
    vectors: list[str] = []
    binders: list[str] = []
    others: list[str] = []
    spread: list[str] = []
    for m in group.members:
        name, inner = m.tensors[0].name, m.axes[group.depth :]
        if not inner:
            spread += full(name, _lanes(d, m))
            continue
        extent = extents(m)[inner[-1]]
        if extent is not None and extent < d.machine.lanes(compute_dtype(m.tensors[0].dtype)) and _binders(m):
            return None  # a vector along so few has empty lanes: cycles tell whether terms had better be lanes
        if len(inner) >= 2 and has_narrow_rows(d, m):
            return None  # lanes are rows inside of rows
        if extent is not None and extent < 4:
            continue
        vectors.append(f"{name}.{inner[-1]}")
        others += full(name, inner[:-1])
        binders += full(name, _binders(m))
    members = tuple(m.tensors[0].name for m in group.members if m is not group.head)
    rows = full(own, group.head.axes[: group.depth])
    lanes = min(lanes_along(d, m, m.axes[-1]) if m.axes[group.depth :] else d.lanes_of(m) for m in group.members)
    sizes = {f"{m.tensors[0].name}.{n}": e for m in group.members for n, e in extents(m).items()}
    partial = partial_results([sizes[n] for n in spread], lanes)
    together = _rows_together(d, group)
    classes = (rows, tuple(vectors), tuple(binders), tuple(others), tuple(spread))
    products = finished(d, fusion_groups(d), group)
    facts: dict[str, Facts] = {"p": {"block": block_of_rows(d, group, products)}}
    made = tuple(p.head.tensors[0].name for p in products)
    return Shape(((own,), members, made), classes, lanes, facts, together=together, partial=partial)


ROWS_TOGETHER = 4
BYTES_TOGETHER = 8192
"""What rows that are computed together may take of the first-level cache."""


def _rows_together(d: Deriver, group: FusionGroup) -> int:
    """Return how many rows to compute together: four where they are short and there are enough of them for every thread."""
    counts = [extents(group.head)[a] for a in group.head.axes[: group.depth]]
    last = counts[-1]
    if last is None or last < 2 * ROWS_TOGETHER * (d.machine.threads if len(counts) == 1 else 1):
        return 1
    size = 0
    for m in group.members:
        row = 1
        for axis in m.axes[group.depth :]:
            row *= extents(m)[axis] or BYTES_TOGETHER
        size = max(size, row * m.tensors[0].dtype.size_bytes)
    return next((n for n in (ROWS_TOGETHER, ROWS_TOGETHER // 2) if n * size <= BYTES_TOGETHER), 1)


def _between(d: Deriver, group: FusionGroup) -> Shape | None:
    found = group.transformed
    sizes = blocks_of(found, d) if found is not None else None
    if found is None or sizes is None:
        return None

    def loops(kind: str, *definitions: Definition) -> Loops:
        return tuple(loop for x in definitions for loop in full(x.tensors[0].name, found.axes(x, kind)))

    result, product, tiles, after, before = found.result, found.product, found.tiles, found.after, found.before
    spatial, cut = loops("tile", result), loops("tile", product)
    classes = (
        loops("batch", result),
        spatial[:-1],
        spatial[-1:],
        loops("channel", *after, result),
        cut[:-1],
        cut[-1:],
        loops("point", product),
        full(product.tensors[0].name, found.contraction.inner),
        loops("channel", product),
        loops("tile", *after, *before, tiles),
        loops("channel", *before, tiles),
        loops("point", *after, *before, tiles),
    )
    sides = tuple(found.spatial.values())
    facts: dict[str, Facts] = {
        k: {"tile": side, "block": side * number} for k, side, number in zip(("w", "h"), sides[::-1], sizes.tiles[::-1], strict=False)
    }
    facts |= {k: {"block": number} for k, number in zip(("j", "i"), sizes.rows[::-1], strict=False)}
    lanes = d.machine.lanes(compute_dtype(product.tensors[0].dtype))
    wide = lanes * sizes.vectors
    part = -(-(extents(result)[found.axes(result, "channel")[-1]] or wide) // (wide * sizes.parts)) * wide
    facts = {"h": {"tile": 1, "block": 1}, "f": {"block": part}, "i": {"block": 1}, "m": {"vectors": sizes.vectors}, **facts}
    tensors = (*(tuple(x.tensors[0].name for x in group) for group in ((result,), after, (product,), (tiles,), before)), (found.x,))
    return Shape(tensors, classes, lanes, facts)


ROLES: Mapping[str, Form] = {
    "contraction": Form("contraction(y, a, b; batch.., i.., j.., k..)", 3, 4, 6, _contraction),
    "pointwise": Form("pointwise(y, p..; i.., j.., k..)", 0, 3, 7, _pointwise),
    "transformed": Form(
        "transformed(y, r.., m, v, t.., x; n.., h.., w, f.., i.., j, a.., k, d, e.., c.., u..)",
        (False, True, False, False, True, False),
        12,
        12,
        _between,
    ),
    "row_reduction": Form("row_reduction(y, t..; i.., j.., k.., l.., r..)", 0, 5, 5, _rows, others=2, more=("p",)),
}
