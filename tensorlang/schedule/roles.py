"""What definitions look like to the schedule of a role: which loops are its `i`, which tensor its `b`.

    contraction(y, a, b; batch.., i.., j.., k..)       y[batch, i, j] = f(sum(k) a[batch, i, k] * b[batch, j, k])
    pointwise(y, p..; i.., j.., k..)                   any other tensor that is computed in vectors along an axis, j; k reduced for each;
                                                       p.. are read with padding around them
    reduction(y; i.., r.., k..)                        a tensor whose reductions r are spread over lanes; k are its other binders
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
contiguous along j), `b.pack` (whether to copy it first into the order of the tile), `b.stored` (whether the caller stores it as it is
read), `b.across` (whether sums along k in vectors take a copy of b), `b.ahead` (1 where it is worth asking for the next columns while
tiles go through these, else 0), `a.padded`, `a.block`, `a.group`: how many neighbours along c the machine multiplies and adds in one
instruction, or 1, where it multiplies whole tiles `a.rows` (rows of one, else 0), `a.depth` (groups along c) and `b.vectors` (tiles of
columns side by side), and `a.tiles`: where rows of a are computed from products of the same operator, how many register tiles of them to
compute at a time, else 0. `p.block` of rows: how many rows of the products p to compute before they are finished, 0 where there are
none. Where sums are to run along k in vectors, `k.block` is how many elements of a sum to take at once, else it is 0, and `i.block` and
`j.block` are the sides of the register tile.
Between transformations `h.tile` and `w.tile` are the sides of a tile of y and `h.block`, `w.block` those of a block of tiles that is
transformed at once, `f.block` how many channels of y a thread computes from it; `i.block`, `j.block` and `m.vectors` are the sides of
the register tile. `p.padded`: whether there are any p; `y.gathered`: whether what a vector is computed from lies where data say.

On a device (`for cuda`) the roles are

    contraction(y, a, b; batch.., i.., j.., k.., c..)   j ends in the axis along which y is contiguous, whatever the operands are; c is the
                                                        longest reduction (among k where no c is named)
    convolution(y, a, b; batch.., i.., n.., h.., j, k.., c)
                                                        the same where b is read in windows: j is the axis along which y is contiguous, h
                                                        another with windows, n those without, c the longest reduction outside of windows
    warp_product(y, a, b; batch.., i.., j.., k.., c)    the same of types that warps multiply in matrices
    warp_convolution(y, a, b; batch.., n.., h.., i, j.., k.., c)
                                                windows of a around points i of lines h, whose channels c lie next to each other
    pointwise(y, p..; i.., j.., k.., x..)       any tensor, several elements along j for each thread; p are read along x (transpositions)
    reduction(y; i.., r.., k..)                 a team of threads for each element of y, along r; k are its other binders
    row_reduction(y, t.., p..; i.., j.., r..)   several tensors computed together, a team of threads for each row i; j and r run along
                                                it; p are read by more than one of them

and guards may ask for `lanes` (elements that one thread loads and stores at once), `threads` (of a block), `team` (threads of a row),
`rows` (teams of a block) and `tile` (the side of a transposed square). Of a contraction they may ask for `i.warps`, `i.lanes`, `i.times`
and `i.each` (along the last of i: a block's tile is their product, a thread's `times` groups of `each` neighbours), the same of j, of a
convolution also of h, `c.block` (how much of the sum to copy at a time), `buffers` (2 where that is not all of it, else 1), and `a.unit`,
`b.unit`: whether the operand is contiguous along the last of i, or j. Of a product of warps: `i.warps`, `i.times` and `i.each` (a block
has so many warps along the last of i, each of them so many matrices of so many rows), the same of j, `c.each` (of the sum of one matrix),
`c.block`, `buffers` (stretches of the sum that are copied or on their way) and `span` (bytes of a row of a copy).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeAlias

from codegen.dtypes import compute_dtype
from tensorlang.schedule import device
from tensorlang.schedule.chains import tiles_of_rows
from tensorlang.schedule.clusters import Cluster, clusters, recurs
from tensorlang.schedule.deriver import PARALLEL_WORK, Deriver, bytes_of, is_worth, shared_loops
from tensorlang.schedule.expand import Scope
from tensorlang.schedule.finishing import block_of_rows, finished
from tensorlang.schedule.machine import Device, Machine
from tensorlang.schedule.pack import is_padding, pack
from tensorlang.schedule.pointwise import crossing_axis, partial_results, points_together, spreadable, stored_axis, vector_axis
from tensorlang.schedule.product_shapes import Product, Windows, product, windows
from tensorlang.schedule.shape import Contraction, block_of, contraction, extents, unit_stride
from tensorlang.schedule.sums import sums_along
from tensorlang.schedule.tiles import WIDTHS, blocked_binder, grouped, row_counts, tile_sizes, tiled, worth_asking_ahead, worth_packing
from tensorlang.schedule.tiles_device import Side
from tensorlang.schedule.transformed import blocks_of
from tensorlang.schedule.warp_products import warp_product
from tensorlang.schedule.warp_windows import warp_windows
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import affine
from tensorlang.tensor.nodes import Definition, Dynamic, Program
from tensorlang.tensor.walk import index_names, reads, reduces, tensor_table

Loops: TypeAlias = tuple[str, ...]
Tiles: TypeAlias = Callable[[str, tuple[int, ...]], int | None]


@dataclass(frozen=True, slots=True)
class Form:
    """The parameters of a role: `tensors` in number (0: one, and perhaps any others; or for each whether it is a pack), and from `least` to
    `most` groups of loops."""

    text: str
    tensors: int | tuple[bool, ...]
    least: int
    most: int
    match: Callable[[Deriver, Cluster], Shape | None]
    others: int = 1
    """How many packs of tensors there may be after the first, where `tensors` is 0."""

    def fits(self, role: sx.Role) -> bool:
        if len(role.groups) != 2 or not self.least <= len(role.groups[1]) <= self.most:
            return False
        tensors = role.groups[0]
        if isinstance(self.tensors, tuple):
            return tuple(t.endswith("..") for t in tensors) == self.tensors
        if self.tensors == 0:
            return not tensors[0].endswith("..") and all(t.endswith("..") for t in tensors[1:]) and len(tensors) <= 1 + self.others
        return len(tensors) == self.tensors and not any(t.endswith("..") for t in tensors)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the parameters of a role stand for, by position. `facts[k]` are those of tensor k. Loops are named in full."""

    tensors: tuple[Loops, ...]
    loops: tuple[Loops, ...]
    lanes: int
    facts: tuple[Mapping[str, int | bool], ...] = ({}, {}, {})
    tile: tuple[int | None, int | None] | None = None
    """Extents of the two axes of a register tile."""
    heights: range | None = None
    """How many rows it may have."""
    of_loops: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Facts of groups of loops, by position."""
    together: int = 1
    partial: int = 1
    """Over how many partial results reductions are spread."""
    own: Mapping[str, int] = field(default_factory=dict)
    """Other facts, by name."""


@dataclass(frozen=True, slots=True)
class Match:
    """What the names of a role's schedule stand for. `stages`, `extents` and `axes` are of loops named in full."""

    names: Mapping[str, Loops]
    facts: Mapping[str, int | bool | tuple[int, ...] | None]
    stages: Mapping[str, str]
    extents: Mapping[str, int | None]
    axes: Mapping[str, str]
    indexed: Mapping[str, frozenset[str]]
    """Tensor → the axes and binders it is read by."""
    tiles: Tiles


def match_role(d: Deriver, cluster: Cluster, role: sx.Role) -> Match | None:
    """Return what the parameters of `role` stand for in `cluster`, or None when it has another shape."""
    form = forms_of(d.machine).get(role.name)
    if form is None or not form.fits(role) or recurs(d.program, cluster.head):
        return None
    found = form.match(d, cluster)
    if found is None:
        return None
    classes = [*found.loops[: len(role.groups[1])]]
    if role.name == "contraction" and len(role.groups[1]) < form.most:
        classes[1] = (*found.loops[5], *found.loops[1])
    if role.name == "contraction" and len(role.groups[1]) == form.least:
        own = cluster.head.tensors[0].name
        binders = [f"{own}.{b.name}" for p in cluster.head.pieces for r in reduces(p.value) for b in r.binders]
        classes[3] = tuple(b for b in binders if b in found.loops[3] or b in found.loops[4])
    if any(found.loops[len(classes) :]) and role.name != "contraction":
        return None
    names: dict[str, Loops] = {}
    for written, loops in zip((*role.groups[0], *role.groups[1]), (*found.tensors[: len(role.groups[0])], *classes), strict=True):
        if not written.endswith("..") and len(loops) != 1:
            return None
        names[written.removesuffix("..")] = loops
    sizes = {f"{m.tensors[0].name}.{n}": e for m in cluster.members for n, e in extents(m).items()}
    stages = {f"{m.tensors[0].name}.{n}": m.tensors[0].name for m in cluster.members for n in extents(m)}
    facts: dict[str, int | bool | tuple[int, ...] | None] = {
        "lanes": found.lanes,
        "registers": d.machine.vector_registers,
        "threads": d.machine.threads,
    }
    facts["cache"] = d.machine.cache_bytes
    facts |= {f"{n.removesuffix('..')}.bytes": bytes_of(d, names[n.removesuffix("..")]) for n in role.groups[0]}
    facts["together"], facts["partial"] = found.together, found.partial
    facts |= found.own
    for written, about in zip(role.groups[0], found.facts, strict=False):
        facts |= {f"{written.removesuffix('..')}.{fact}": value for fact, value in about.items()}
    for position, written in enumerate(role.groups[1]):
        name = written.removesuffix("..")
        facts |= {f"{name}.{fact}": value for fact, value in found.of_loops.get(position, {}).items()}
        known = [sizes[loop] for loop in names[name]]
        facts[f"{name}.extent"] = known[-1] if known else 1
        facts[name] = tuple(e for e in known if e is not None) if None not in known else None
    axes = {loop: loop.removeprefix(stage + ".") for loop, stage in stages.items()}
    indexed = {r.tensor: index_names(r) for m in cluster.members for p in m.pieces for r in reads(p.value)}
    return Match(names, facts, stages, sizes, axes, indexed, _tiles(found, d.machine.vector_registers))


def asked(role: sx.Role) -> dict[str, tuple[int, ...] | None]:
    """Return what guards of a role's schedule may ask for, with no values."""
    whether = ("unit", "pack", "stored", "padded", "gathered", "ahead", "across")
    counts = ("bytes", "reuse", "block", "group", "rows", "depth", "vectors", "tiles")
    of_tensors = [f"{t.removesuffix('..')}.{fact}" for t in role.groups[0] for fact in (*whether, *counts)]
    of_loops = [
        f"{g.removesuffix('..')}.{fact}" for g in role.groups[1] for fact in ("extent", "tile", "block", "warps", "lanes", "times", "each")
    ]
    plain = ("lanes", "registers", "threads", "cache", "together", "partial", *FACTS)
    return {**dict.fromkeys((*plain, *of_tensors, *of_loops)), **{g.removesuffix(".."): () for g in role.groups[1]}}


def _tiles(shape: Shape, registers: int) -> Tiles:
    """Return the choice of the knobs `mr` and `nv`, rows and vectors of the register tile: the best listed ones for the extents."""
    chosen: dict[str, int] = {}

    def pick(knob: str, values: tuple[int, ...]) -> int | None:
        if shape.tile is None or knob not in ("mr", "nv"):
            return None
        heights = _heights(shape, values if knob == "mr" else None) if "mr" not in chosen else (chosen["mr"],)
        widths = (chosen["nv"],) if "nv" in chosen else values if knob == "nv" else WIDTHS
        m, v = tile_sizes(*shape.tile, shape.lanes, registers, heights, widths)
        chosen[knob] = m if knob == "mr" else v
        return chosen[knob]

    return pick


def _heights(shape: Shape, listed: tuple[int, ...] | None) -> tuple[int, ...] | range | None:
    """Return the heights to choose from: the listed ones that suit the shape, all listed ones when none does."""
    if listed is None or shape.heights is None:
        return listed or shape.heights
    return tuple(h for h in listed if h in shape.heights) or listed


def spread_over(d: Deriver, cluster: Cluster, scope: Scope) -> Callable[[Sequence[str]], tuple[str, ...]]:
    """Return the meaning of `spread`: the outer loops that together have iterations for every thread, and the copies; none of what is
    too little to share."""

    def pick(names: Sequence[str]) -> tuple[str, ...]:
        loops = [name for name in names if name in scope.stages]
        copies = [f"{name}.pack" for name in names if name in scope.copied and _is_large(d, name)]
        if not is_worth(d, cluster.members):
            return ()
        return (*shared_loops(loops, [scope.extents.get(loop) or 64 for loop in loops], d.machine.threads), *copies)

    return pick


def copies_of(d: Deriver) -> Callable[[str], tuple[str, Mapping[str, int | None]]]:
    """Return what names the copy that `pack` makes of a tensor, and the extents of its loops; copies are asked for in order."""
    made: list[Program] = [d.program]

    def copy_of(tensor: str) -> tuple[str, Mapping[str, int | None]]:
        packed = pack(made[-1], tensor)
        if isinstance(packed, str):
            return tensor, {}
        program, name = packed
        made.append(program)
        return name, extents(next(x for x in program.definitions if x.tensors[0].name == name))

    return copy_of


def _is_large(d: Deriver, tensor: str) -> bool:
    shape = tensor_table(d.program)[tensor].shape
    return prod(affine.constant(s) or 64 for s in shape) >= PARALLEL_WORK


# ---------------------------------------------------------------- the roles


def _contraction(d: Deriver, cluster: Cluster) -> Shape | None:
    definition = cluster.head
    axis = _columns_axis(d, definition)
    c = contraction(definition, axis) if axis is not None else None
    if c is None or axis is None or len(cluster.members) > 1:
        return None
    sizes, own = extents(definition), definition.tensors[0].name
    lanes = block_of(d.layouts.get(own), axis) or d.machine.lanes(compute_dtype(c.reduce.reducer.dtypes[0]))
    pairs = grouped(d, c)
    channel = (pairs.binder, pairs.block) if pairs is not None else blocked_binder(d, c)
    reuse = 1
    for r in c.rows:
        reuse *= sizes[r] or 64
    unit = unit_stride(c.w_read.index, None, None, axis)
    in_b = index_names(c.w_read)
    batch = tuple(n for n in c.batch if n in in_b)
    rows = (*(n for n in c.batch if n not in in_b), *c.rows)
    columns = (*(j for j in c.columns if j != axis), axis)
    inner = tuple(k for k in c.inner if channel is None or k != channel[0])
    outside = _outside(d, c, batch, rows[:-1], sizes)
    given = any(p.name == c.x for p in d.program.params)
    tile, heights = (sizes[c.rows[-1]] if c.rows else 1, sizes[axis]), row_counts(d, c)
    sums = sums_along(d, definition, c, axis, lanes) if channel is None else None
    height, width = tile_sizes(*tile, lanes, d.machine.vector_registers, heights)
    tiles = tiled(d, c, *tile, lanes)
    facts: tuple[Mapping[str, int | bool], ...] = (
        {},
        {
            "padded": c.padded,
            "block": channel[1] if channel else 1,
            "group": pairs.group if pairs is not None else 1,
            "rows": tiles.rows if tiles is not None else 0,
            "depth": tiles.depth if tiles is not None else 0,
            "tiles": 0 if given else tiles_of_rows(d, clusters(d), definition, c),
        },
        {
            "reuse": reuse,
            "unit": unit,
            "pack": worth_packing(d, c, reuse, unit),
            "stored": c.w in d.layouts,
            "across": sums is not None and sums.copies,
            "ahead": int(worth_asking_ahead(d, c, definition, rows[outside:], (height, width * lanes))),
            "vectors": tiles.vectors if tiles is not None else 0,
        },
    )
    classes = (batch, rows[outside:], columns, inner, (channel[0],) if channel else (), rows[:outside])
    of_loops = {1: {"block": sums.rows}, 2: {"block": sums.columns}, 3: {"block": sums.block}} if sums else {3: {"block": 0}}
    return Shape(((own,), (c.x,), (c.w,)), tuple(_full(own, n) for n in classes), lanes, facts, tile, heights, of_loops)


def _outside(d: Deriver, c: Contraction, batch: Sequence[str], outer: Sequence[str], sizes: Mapping[str, int | None]) -> int:
    """Return around how many of the `outer` rows all columns should be computed, so that what is read again for every block of columns
    stays in the second-level cache: as many as it takes for operand x, or all of them where w stays there as well."""
    near, groups = d.machine.l2_bytes // 2, prod(sizes[n] or 1 for n in batch)
    x, w = (bytes_of(d, (name,)) // groups for name in (c.x, c.w))
    if x <= near or w <= near:
        return 0 if x <= near else len(outer)
    left = [x // prod(sizes[n] or 1 for n in outer[:k]) for k in range(len(outer))]
    return next((k for k, size in enumerate(left) if size <= near), len(outer))


def _full(own: str, names: Sequence[str]) -> Loops:
    return tuple(f"{own}.{n}" for n in names)


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


def _pointwise(d: Deriver, cluster: Cluster) -> Shape | None:
    definition = cluster.head
    if len(cluster.members) > 1 or not definition.axes or len(definition.pieces) > 1 or _is_contraction(d, definition):
        return None
    own, axis, sizes = definition.tensors[0].name, vector_axis(d, definition), extents(definition)
    if axis not in definition.axes:
        return None
    storage = d.layouts.get(own)
    block = block_of(storage, axis)
    lanes = block or d.machine.lanes(compute_dtype(definition.tensors[0].dtype))
    slots = [s for p in definition.pieces for r in reads(p.value) for s in r.index if isinstance(s, Dynamic)]
    gathers = any(axis in index_names(s.value) for s in slots)  # other lanes, other places: one by one
    extent = sizes[axis]
    others = tuple(a for a in definition.axes if a != axis)
    binders = _binders(definition)
    if gathers or (extent is not None and extent < 2):
        one_by_one = (_full(own, definition.axes), (), _full(own, binders), *((),) * 4)
        return Shape(((own,), ()), one_by_one, lanes, ({"gathered": False}, {"padded": False}, {}))
    at = definition.axes.index(axis)
    before, after = (others, ()) if block is None else (definition.axes[:at], definition.axes[at + 1 :])
    crossing = crossing_axis(d, definition, axis)
    row = next((a for a in reversed(others) if (sizes[a] or 0) >= 4), None) if binders else None
    together = points_together(sizes[row]) if row is not None else 1
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
    facts: tuple[Mapping[str, int | bool], ...] = ({"gathered": bool(slots)}, {"padded": bool(padded)}, {})
    return Shape(((own,), padded), tuple(_full(own, tuple(n for n in c if n)) for c in classes), lanes, facts, together=together)


def _padded(d: Deriver, definition: Definition) -> tuple[str, ...]:
    """Return the tensors that reductions read with padding, of which a copy can hold it."""
    out: list[str] = []
    for tensor in dict.fromkeys(r.tensor for p in definition.pieces for e in reduces(p.value) for r in reads(e)):
        packed = pack(d.program, tensor)
        if tensor in d.axes and not isinstance(packed, str) and is_padding(packed):
            out.append(tensor)
    return tuple(out)


def _reduction(d: Deriver, cluster: Cluster) -> Shape | None:
    definition = cluster.head
    if len(cluster.members) > 1 or len(definition.pieces) > 1 or not spreadable(d, definition) or _is_contraction(d, definition):
        return None
    if definition.axes and vector_axis(d, definition) in definition.axes:
        return None
    own = definition.tensors[0].name
    spread = _lanes(d, definition)
    others = tuple(b for b in _binders(definition) if b not in spread)
    first = next(r for p in definition.pieces for r in reduces(p.value))
    lanes = d.machine.lanes(compute_dtype(first.reducer.dtypes[0]))
    partial = partial_results([extents(definition)[n] for n in spread], lanes)
    return Shape(((own,),), (_full(own, definition.axes), _full(own, spread), _full(own, others)), lanes, partial=partial)


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


def _rows(d: Deriver, cluster: Cluster) -> Shape | None:
    if len(cluster.members) == 1 or cluster.transformed is not None:
        return None
    own = cluster.head.tensors[0].name
    vectors: list[str] = []
    binders: list[str] = []
    others: list[str] = []
    spread: list[str] = []
    for m in cluster.members:
        name, inner = m.tensors[0].name, m.axes[cluster.depth :]
        if not inner:
            spread += _full(name, _lanes(d, m))
            continue
        extent = extents(m)[inner[-1]]
        if extent is not None and extent < 4:
            continue
        vectors.append(f"{name}.{inner[-1]}")
        others += _full(name, inner[:-1])
        binders += _full(name, _binders(m))
    members = tuple(m.tensors[0].name for m in cluster.members if m is not cluster.head)
    rows = _full(own, cluster.head.axes[: cluster.depth])
    lanes = min(d.machine.lanes(compute_dtype(m.tensors[0].dtype)) for m in cluster.members)
    sizes = {f"{m.tensors[0].name}.{n}": e for m in cluster.members for n, e in extents(m).items()}
    partial = partial_results([sizes[n] for n in spread], lanes)
    together = _rows_together(d, cluster)
    classes = (rows, tuple(vectors), tuple(binders), tuple(others), tuple(spread))
    products = finished(d, clusters(d), cluster)
    facts: tuple[Mapping[str, int | bool], ...] = ({}, {}, {"block": block_of_rows(d, cluster, products)})
    made = tuple(p.head.tensors[0].name for p in products)
    return Shape(((own,), members, made), classes, lanes, facts, together=together, partial=partial)


ROWS_TOGETHER = 4
BYTES_TOGETHER = 8192
"""What rows that are computed together may take of the first-level cache."""


def _rows_together(d: Deriver, cluster: Cluster) -> int:
    """Return how many rows to compute together: four where they are short and there are enough of them for every thread."""
    counts = [extents(cluster.head)[a] for a in cluster.head.axes[: cluster.depth]]
    last = counts[-1]
    if last is None or last < 2 * ROWS_TOGETHER * (d.machine.threads if len(counts) == 1 else 1):
        return 1
    size = 0
    for m in cluster.members:
        row = 1
        for axis in m.axes[cluster.depth :]:
            row *= extents(m)[axis] or BYTES_TOGETHER
        size = max(size, row * m.tensors[0].dtype.size_bytes)
    return next((n for n in (ROWS_TOGETHER, ROWS_TOGETHER // 2) if n * size <= BYTES_TOGETHER), 1)


def _between(d: Deriver, cluster: Cluster) -> Shape | None:
    found = cluster.transformed
    sizes = blocks_of(found, d.program, d.machine) if found is not None else None
    if found is None or sizes is None:
        return None

    def loops(kind: str, *definitions: Definition) -> Loops:
        return tuple(loop for x in definitions for loop in _full(x.tensors[0].name, found.axes(x, kind)))

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
        _full(product.tensors[0].name, found.contraction.inner),
        loops("channel", product),
        loops("tile", *after, *before, tiles),
        loops("channel", *before, tiles),
        loops("point", *after, *before, tiles),
    )
    sides = tuple(found.spatial.values())
    facts: dict[int, Mapping[str, int]] = {
        k: {"tile": side, "block": side * number} for k, side, number in zip((2, 1), sides[::-1], sizes.tiles[::-1], strict=False)
    }
    facts |= {k: {"block": number} for k, number in zip((5, 4), sizes.rows[::-1], strict=False)}
    lanes = d.machine.lanes(compute_dtype(product.tensors[0].dtype))
    wide = lanes * sizes.vectors
    part = -(-(extents(result)[found.axes(result, "channel")[-1]] or wide) // (wide * sizes.parts)) * wide
    facts = {1: {"tile": 1, "block": 1}, 3: {"block": part}, 4: {"block": 1}, **facts}
    tensors = (*(tuple(x.tensors[0].name for x in group) for group in ((result,), after, (product,), (tiles,), before)), (found.x,))
    return Shape(tensors, classes, lanes, facts=({}, {}, {"vectors": sizes.vectors}), of_loops=facts)


ROLES: Mapping[str, Form] = {
    "contraction": Form("contraction(y, a, b; batch.., i.., j.., k..)", 3, 4, 6, _contraction),
    "pointwise": Form("pointwise(y, p..; i.., j.., k..)", 0, 3, 7, _pointwise),
    "reduction": Form("reduction(y; i.., r.., k..)", 1, 3, 3, _reduction),
    "transformed": Form(
        "transformed(y, r.., m, v, t.., x; n.., h.., w, f.., i.., j, a.., k, d, e.., c.., u..)",
        (False, True, False, False, True, False),
        12,
        12,
        _between,
    ),
    "row_reduction": Form("row_reduction(y, t..; i.., j.., k.., l.., r..)", 0, 5, 5, _rows, others=2),
}


FACTS = ("team", "rows", "tile", "buffers", "span")
"""What only schedules for a device ask for."""


def forms_of(machine: Machine) -> Mapping[str, Form]:
    """Return the roles that schedules for `machine` may have."""
    return DEVICE_ROLES if isinstance(machine, Device) else ROLES


# ---------------------------------------------------------------- the roles on a device


def _elements(d: Deriver, cluster: Cluster) -> Shape | None:
    found = device.elements(d, cluster)
    if found is None:
        return None
    own = cluster.head.tensors[0].name
    classes = (found.outer, found.along, found.binders, found.crossing)
    return Shape(((own,), found.crossed), tuple(_full(own, c) for c in classes), found.lanes, own={"tile": found.tile, "rows": found.rows})


def _sums(d: Deriver, cluster: Cluster) -> Shape | None:
    found = device.sums(d, cluster)
    if found is None:
        return None
    own = cluster.head.tensors[0].name
    classes = (cluster.head.axes, found.along, found.others)
    facts = {"team": found.team, "rows": found.rows}
    return Shape(((own,),), tuple(_full(own, c) for c in classes), found.lanes, own=facts)


def _teams(d: Deriver, cluster: Cluster) -> Shape | None:
    found = device.rows(d, cluster)
    if found is None:
        return None
    own = cluster.head.tensors[0].name
    members = tuple(m.tensors[0].name for m in cluster.members if m is not cluster.head)
    classes = (_full(own, cluster.head.axes[: cluster.depth]), found.along, found.reduced)
    facts = {"team": found.team, "rows": found.rows}
    return Shape(((own,), members, found.reread), classes, found.lanes, own=facts)


def _product(d: Deriver, cluster: Cluster) -> Shape | None:
    found = product(d, cluster.head) if len(cluster.members) == 1 else None
    if found is None:
        return None
    classes = (found.batch, found.a.axes, found.b.axes, found.others, (found.deep,), ())
    return _multiplied(cluster, found, classes, {1: found.tiles.rows, 2: found.tiles.columns})


def _windows(d: Deriver, cluster: Cluster) -> Shape | None:
    found = windows(d, cluster.head) if len(cluster.members) == 1 else None
    if found is None:
        return None
    classes = (found.batch, found.a.axes, found.outer, found.height, (found.width,), found.others, (found.deep,))
    return _multiplied(cluster, found, classes, {1: found.tiles.rows, 3: found.tiles.height, 4: found.tiles.width})


def _multiplied(cluster: Cluster, found: Product | Windows, classes: Sequence[Loops], sides: Mapping[int, Side]) -> Shape:
    own = cluster.head.tensors[0].name
    of_loops = {at: {"warps": s.warps, "lanes": s.lanes, "times": s.times, "each": s.each} for at, s in sides.items()}
    deep = next(at for at, c in enumerate(classes) if c == (found.deep,))
    facts: tuple[Mapping[str, int | bool], ...] = ({}, {"unit": found.a.unit}, {"unit": found.b.unit})
    tensors = ((own,), (found.a.read.tensor,), (found.b.read.tensor,))
    shape = Shape(tensors, tuple(_full(own, c) for c in classes), 4, facts, of_loops={**of_loops, deep: {"block": found.tiles.depth}})
    return replace(shape, own={"buffers": 2 if found.long else 1})


def _by_warps(d: Deriver, cluster: Cluster) -> Shape | None:
    found = warp_product(d, cluster)
    if found is None:
        return None
    own = cluster.head.tensors[0].name
    classes = (found.batch, found.a.axes, found.b.axes, found.others, (found.deep,))
    sides = {at: {"warps": s.warps, "times": s.times, "each": s.each} for at, s in ((1, found.rows), (2, found.columns))}
    of_loops: dict[int, Mapping[str, int]] = {**sides, 4: {"block": found.block, "each": found.instruction.shape[2]}}
    tensors = ((own,), (found.a.read.tensor,), (found.b.read.tensor,))
    facts: tuple[Mapping[str, int | bool], ...] = ({}, {"unit": found.a.unit}, {"unit": found.b.unit})
    shape = Shape(tensors, tuple(_full(own, c) for c in classes), 4, facts, of_loops=of_loops)
    return replace(shape, own={"buffers": found.buffers, "span": found.row_bytes})


def _windows_by_warps(d: Deriver, cluster: Cluster) -> Shape | None:
    found = warp_windows(d, cluster)
    if found is None:
        return None
    own = cluster.head.tensors[0].name
    classes = (found.batch, found.outer, found.height, (found.width,), found.b.axes, found.others, (found.deep,))
    sides = ((2, found.tile.lines), (3, found.tile.points), (4, found.tile.columns))
    of_loops: dict[int, Mapping[str, int]] = {at: {"warps": s.warps, "times": s.times, "each": s.each} for at, s in sides}
    of_loops[6] = {"block": found.block, "each": found.instruction.shape[2]}
    tensors = ((own,), (found.a.read.tensor,), (found.b.read.tensor,))
    shape = Shape(tensors, tuple(_full(own, c) for c in classes), 4, of_loops=of_loops)
    return replace(shape, own={"buffers": found.buffers, "span": found.row_bytes})


DEVICE_ROLES: Mapping[str, Form] = {
    "contraction": Form("contraction(y, a, b; batch.., i.., j.., k.., c..)", 3, 4, 5, _product),
    "convolution": Form("convolution(y, a, b; batch.., i.., n.., h.., j, k.., c)", 3, 7, 7, _windows),
    "warp_product": Form("warp_product(y, a, b; batch.., i.., j.., k.., c)", 3, 5, 5, _by_warps),
    "warp_convolution": Form("warp_convolution(y, a, b; batch.., n.., h.., i, j.., k.., c)", 3, 7, 7, _windows_by_warps),
    "pointwise": Form("pointwise(y, p..; i.., j.., k.., x..)", (False, True), 4, 4, _elements),
    "reduction": Form("reduction(y; i.., r.., k..)", 1, 3, 3, _sums),
    "row_reduction": Form("row_reduction(y, t.., p..; i.., j.., r..)", (False, True, True), 3, 3, _teams),
}
