"""A schedule for a program that nobody scheduled, chosen without search from the shape of its equations.

    contraction     y = f(sum(k) x * w): a register tile of rows by vectors of columns, w packed in the order the tile reads it
    rows            several tensors that agree on their leading axes (softmax, layer norm): computed row by row, rows in parallel
    recurrence      in an order that the dependences allow, serial
    anything else   vectors along the axis that walks memory in unit steps, the outermost axis in parallel

What comes out is an ordinary schedule: it prints in the language, can be pasted and edited, and is proven like any other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from codegen.dtypes import compute_dtype
from polyhedral.expr import Floor
from polyhedral.expr import Name as AffineName
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.machine import Machine
from tensorlang.schedule.pack import is_padding, pack
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import Contraction, block_of, contraction, extents, innermost_axis, readers, unit_stride, work
from tensorlang.schedule.storage import in_blocks, row_major, to_layout, to_storage
from tensorlang.tensor import affine
from tensorlang.tensor.flatten import flatten
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Definition, Dynamic, Program, Read
from tensorlang.tensor.walk import components, definition_reads, index_names, reads, reduces, tensor_table, tensors

ROWS_IN_A_SET = 8
"""Lines that a set of the first-level cache holds on every machine of today, and leaves some for the other operand."""

PARALLEL_WORK = 40_000
"""Scalar operations below which waking other threads costs more than it saves."""


@dataclass(slots=True)
class Deriver:
    program: Program
    machine: Machine
    layouts: Mapping[str, Storage]
    constants: frozenset[str]
    schedule: Schedule
    axes: dict[str, tuple[str, ...]]
    parallel: bool = False

    def add(self, schedule: Schedule) -> None:
        self.schedule = schedule


def derive(
    program: Program, machine: Machine, layouts: Mapping[str, Storage] | None = None, constants: frozenset[str] = frozenset()
) -> Schedule:
    """Return a schedule for `program` on `machine`. Inputs in `constants` are stored as `wanted_layouts` says, if anywhere."""
    d = deriver(program, machine, layouts or {}, constants)
    for cluster in clusters(d):
        _derive_cluster(d, cluster)
    return d.schedule


def deriver(program: Program, machine: Machine, layouts: Mapping[str, Storage], constants: frozenset[str]) -> Deriver:
    """Return the state of deriving before any cluster is scheduled: the program as directives will see it, and the directives for that."""
    lifted = lift(program)
    flat = flatten(lifted, frozenset(layouts))
    schedule = Schedule(program.name)
    d = _deriver(flat, machine, layouts, constants, schedule if flat == lifted else schedule.flatten())
    d.parallel = machine.threads > 1 and work(flat) >= PARALLEL_WORK
    return d


def derive_cluster(d: Deriver, cluster: Cluster) -> Schedule:
    """Return the derived directives for one cluster alone."""
    alone = replace(d, schedule=Schedule(d.program.name))
    _derive_cluster(alone, cluster)
    return alone.schedule


def _derive_cluster(d: Deriver, cluster: Cluster) -> None:
    if len(cluster.members) > 1:
        _rows(d, cluster)
    elif not recurs(d.program, cluster.head):
        _one(d, cluster.head)


def _deriver(
    program: Program, machine: Machine, layouts: Mapping[str, Storage], constants: frozenset[str], schedule: Schedule
) -> Deriver:
    axes = {t.name: x.axes for x in program.definitions for t in x.tensors}
    axes |= {p.name: tuple(f"a{k}" for k in range(len(p.shape))) for p in program.params}
    return Deriver(program, machine, layouts, constants, schedule, axes)


def _reads_itself(definition: Definition) -> bool:
    own = {t.name for t in definition.tensors}
    return any(r.tensor in own for p in definition.pieces for r in reads(p.value))


def _one(d: Deriver, definition: Definition) -> None:
    """Schedule one definition at the root."""
    if not definition.axes:
        _reduction_lanes(d, definition)
        return
    if len(definition.pieces) > 1:
        d.add(d.schedule.distribute(definition.tensors[0].name))
        _pointwise(d, definition)
        return
    axis = stored_axis(d, definition)
    found = contraction(definition, axis) if axis is not None else None
    if found is not None and axis is not None:
        _contraction(d, definition, found, axis)
    else:
        _pointwise(d, definition)


# ---------------------------------------------------------------- one tensor


def _candidates(definition: Definition) -> Iterator[str]:
    yield from reversed(definition.axes)
    for piece in definition.pieces:
        for reduce in reduces(piece.value):
            yield from (b.name for b in reversed(reduce.binders))


def stored_axis(d: Deriver, definition: Definition) -> str | None:
    """Return the axis along which the result is contiguous."""
    storage = d.layouts.get(definition.tensors[0].name)
    point = tuple(AffineName(a) for a in definition.axes)
    return next((a for a in reversed(definition.axes) if unit_stride(point, storage, definition.axes, a)), None)


def vector_axis(d: Deriver, definition: Definition) -> str:
    """Return the axis or binder along which most accesses are contiguous; writing counts most."""
    name = definition.tensors[0].name
    sizes = extents(definition)
    best, best_score = definition.axes[-1] if definition.axes else "", -1.0
    for candidate in _candidates(definition):
        score = 0.0
        if candidate in definition.axes and unit_stride(tuple(AffineName(a) for a in definition.axes), d.layouts.get(name), definition.axes, candidate):
            score += 2.0
        for piece in definition.pieces:
            for read in reads(piece.value):
                if unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], candidate):
                    # What a reduction reads, it reads for every point of its binders.
                    score += 4.0 if any(read in set(reads(b)) for r in reduces(piece.value) for b in r.body) else 1.5
        extent = sizes.get(candidate)
        if extent is not None and extent < 4:
            score *= 0.25
        if candidate not in definition.axes and not spreadable(d, definition):
            continue
        if score > best_score:
            best, best_score = candidate, score
    return best


def spreadable(d: Deriver, definition: Definition) -> bool:
    found = [r for p in definition.pieces for r in reduces(p.value)]
    simple = all(r.reducer.kind is not None and r.reducer.kind in ("sum", "prod", "min", "max") and len(r.body) == 1 for r in found)
    return bool(found) and simple and d.program.mode != "strict" and len(definition.pieces) == 1


def _pointwise(d: Deriver, definition: Definition) -> None:
    name = definition.tensors[0].name
    axis = vector_axis(d, definition)
    sizes = extents(definition)
    has_dynamic = any(isinstance(s, Dynamic) for p in definition.pieces for r in reads(p.value) for s in r.index)
    if axis in definition.axes:
        lanes = block_of(d.layouts.get(name), axis) or d.machine.lanes(compute_dtype(definition.tensors[0].dtype))
        others = [a for a in definition.axes if a != axis]
        binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]
        if not has_dynamic and (sizes[axis] is None or (sizes[axis] or 0) >= 2):
            outer, inner = f"{axis}_o", f"{axis}_v"
            d.add(d.schedule.split(f"{name}.{axis}", lanes, (outer, inner)))
            # A blocked layout keeps other axes between a block and its lanes.
            blocked = block_of(d.layouts.get(name), axis) is not None
            order = _with_outer(definition.axes, axis, outer) if blocked else [*others, outer]
            crossing = crossing_axis(d, definition, axis)
            if crossing is not None and not blocked:
                d.add(d.schedule.split(f"{name}.{crossing}", lanes, (f"{crossing}_o", f"{crossing}_i")))
                order = [*(f"{a}_o" if a == crossing else a for a in order), f"{crossing}_i"]
                sizes = {**sizes, f"{crossing}_o": -(-(sizes[crossing] or 64) // lanes)}
            if binders and len(definition.pieces) == 1:
                order = _several_at_once(d, definition, axis, order, binders, inner)
            elif not binders:
                d.add(_order(d.schedule, name, [*order, inner]))
            d.add(d.schedule.vectorize(f"{name}.{inner}"))
            _parallel(d, name, order, {**sizes, outer: -(-(sizes[axis] or 64) // lanes)})
        else:
            _parallel(d, name, list(definition.axes), sizes)
    else:
        _reduction_lanes(d, definition)
        _parallel(d, name, list(definition.axes), sizes)


def _several_at_once(d: Deriver, definition: Definition, axis: str, order: list[str], binders: list[str], inner: str) -> list[str]:
    """Reduce for several points of the innermost other axis together, so that their accumulators do not wait for each other, from inputs
    that are copied with their padding. Return the outer loops."""
    name = definition.tensors[0].name
    sizes = extents(definition)
    unblocked = [a for a in definition.axes if a != axis and (sizes[a] or 0) >= 4]
    count = points_together(sizes[unblocked[-1]]) if unblocked else 1
    if count > 1:
        row = unblocked[-1]
        d.add(d.schedule.split(f"{name}.{row}", count, (f"{row}_o", f"{row}_t")))
        outer = [f"{row}_o" if a == row else a for a in order]
        d.add(_order(d.schedule, name, [*outer, *binders, f"{row}_t", inner]).unroll(f"{name}.{row}_t"))
        order = outer
    else:
        d.add(_order(d.schedule, name, [*order, *binders, inner]))
    for tensor in dict.fromkeys(r.tensor for p in definition.pieces for e in reduces(p.value) for r in reads(e)):
        packed = pack(d.program, tensor)
        if tensor in d.axes and not isinstance(packed, str) and is_padding(packed):
            storage = d.layouts.get(tensor)
            blocked = storage is not None and block_of(storage, innermost_axis(storage) or "") is not None
            read = next(r for p in definition.pieces for e in reduces(p.value) for r in reads(e) if r.tensor == tensor)
            d.add(_root_copy(d, d.schedule, tensor, _blocked_dims(d, tensor, read, storage) if blocked and storage is not None else ()))
    return order


def points_together(extent: int | None) -> int:
    """Return how many points to reduce at once: a divisor of the extent from 8 down to 4, or 8 with a rest."""
    if extent is None:
        return 4
    return next((n for n in range(8, 3, -1) if extent % n == 0), min(8, extent))


def crossing_axis(d: Deriver, definition: Definition, axis: str) -> str | None:
    """Return the axis along which some read is contiguous while the store is contiguous along `axis`: a transposition, done in squares
    so that the lines it touches are used whole."""
    if any(True for p in definition.pieces for _ in reduces(p.value)) or len(definition.pieces) > 1:
        return None
    sizes = extents(definition)
    for read in reads(definition.pieces[0].value):
        for other in definition.axes:
            if other != axis and unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], other) and (sizes[other] or 64) >= 8:
                return other
    return None


def _with_outer(axes: tuple[str, ...], axis: str, outer: str) -> list[str]:
    return [outer if a == axis else a for a in axes]


def _order(schedule: Schedule, stage: str, loops: list[str]) -> Schedule:
    return schedule.order(*(f"{stage}.{loop}" for loop in loops)) if len(loops) > 1 else schedule


def _parallel(d: Deriver, stage: str, loops: list[str], sizes: Mapping[str, int | None]) -> None:
    """Mark the outermost loop that has work for every thread; fuse down to it where the loops outside are short."""
    if not d.parallel or not loops:
        return
    chosen = next((k for k, loop in enumerate(loops) if (sizes.get(loop) or 64) >= 2 * d.machine.threads), None)
    if chosen is None:
        chosen = max(range(len(loops)), key=lambda k: sizes.get(loops[k]) or 64)
    d.add(d.schedule.parallel(f"{stage}.{loops[chosen]}"))


def _reduction_lanes(d: Deriver, definition: Definition) -> None:
    """Spread the innermost binder of each reduction over vector lanes where its operands are contiguous along it."""
    name = definition.tensors[0].name
    if not spreadable(d, definition):
        return
    for piece in definition.pieces:
        for reduce in reduces(piece.value):
            if not reduce.binders:
                continue
            binder = reduce.binders[-1]
            lanes = d.machine.lanes(compute_dtype(reduce.reducer.dtypes[0]))
            extent = affine.difference(binder.hi, binder.lo)
            if extent is not None and extent < lanes:
                continue
            along = [r for b in reduce.body for r in reads(b) if binder.name in index_names(r)]
            contiguous = [unit_stride(r.index, d.layouts.get(r.tensor), d.axes[r.tensor], binder.name) for r in along]
            if contiguous and all(contiguous):
                outer, inner = f"{binder.name}_o", f"{binder.name}_v"
                d.add(d.schedule.split(f"{name}.{binder.name}", lanes, (outer, inner)).vectorize(f"{name}.{inner}"))


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True)
class Cluster:
    """Definitions computed together: `head`, and `members` (it among them) that agree with it on `depth` leading axes."""

    head: Definition
    members: tuple[Definition, ...]
    depth: int


def clusters(d: Deriver) -> list[Cluster]:
    """Return the definitions, each in one cluster. A tensor joins the cluster that holds all its readers when they read it at their own
    point along at least one leading axis; contractions, recurrences and tensors in pieces stay by themselves."""
    program = d.program
    alone = {x.tensors[0].name for x in program.definitions if len(x.pieces) != 1 or recurs(program, x) or _is_product(x)}
    readers_of = readers(program)
    taken: set[str] = set()
    out: list[Cluster] = []
    for head in reversed(program.definitions):
        name = head.tensors[0].name
        if name in taken:
            continue
        members, depth = [head], len(head.axes)
        for candidate in reversed(program.definitions) if name not in alone else ():
            made = candidate.tensors[0].name
            inside = {m.tensors[0].name for m in members}
            if made in taken or made in alone or made in inside or made in program.results or len(candidate.tensors) > 1:
                continue
            if not readers_of.get(made) or not set(readers_of[made]) <= inside:
                continue
            shared = min(depth, len(candidate.axes), *(_agreement(m, candidate) for m in members if made in definition_reads(m)))
            if shared == len(head.axes) and _walks_axes(d, candidate):
                shared -= 1
            if shared > 0 and candidate.tensors[0].shape[:shared] == head.tensors[0].shape[:shared]:
                members.append(candidate)
                depth = shared
        taken |= {m.tensors[0].name for m in members}
        out.append(Cluster(head, tuple(reversed(members)), depth))
    return list(reversed(out))


def recurs(program: Program, definition: Definition) -> bool:
    group = next(g for g in components(program) if definition in g)
    return len(group) > 1 or _reads_itself(definition)


def _is_product(definition: Definition) -> bool:
    """Tell whether a reduction in the definition multiplies two tensors that vary along different axes: work for a register tile."""
    return any(contraction(definition, axis) is not None for axis in definition.axes)


def _walks_axes(d: Deriver, definition: Definition) -> bool:
    """Tell whether vectors run along an axis of the definition rather than along what it reduces over."""
    return vector_axis(d, definition) in definition.axes


def _agreement(reader: Definition, read: Definition) -> int:
    """Return along how many leading axes `reader` reads `read` at its own point."""
    depth = len(read.axes)
    for piece in reader.pieces:
        for r in reads(piece.value):
            if r.tensor == read.tensors[0].name:
                same = 0
                for axis, slot in zip(reader.axes, r.index, strict=False):
                    if not (isinstance(slot, AffineName) and slot.name == axis):
                        break
                    same += 1
                depth = min(depth, same)
    return depth


def _rows(d: Deriver, cluster: Cluster) -> None:
    head, depth = cluster.head, cluster.depth
    name = head.tensors[0].name
    loop = head.axes[depth - 1]
    for definition in cluster.members:
        if definition is not head:
            d.add(d.schedule.at(definition.tensors[0].name, f"{name}.{loop}"))
        _row_vectors(d, definition, depth)
    _parallel(d, name, list(head.axes[:depth]), extents(head))


def _row_vectors(d: Deriver, definition: Definition, depth: int) -> None:
    name = definition.tensors[0].name
    inner_axes = definition.axes[depth:]
    _reduction_lanes(d, definition) if not inner_axes else None
    if inner_axes:
        axis = inner_axes[-1]
        found = [r for r in reduces(definition.pieces[0].value)]
        lanes = d.machine.lanes(compute_dtype(definition.tensors[0].dtype))
        extent = extents(definition)[axis]
        if extent is not None and extent < 4:
            return
        outer, inner = f"{axis}_o", f"{axis}_v"
        d.add(d.schedule.split(f"{name}.{axis}", lanes, (outer, inner)))
        binders = [b.name for r in found for b in r.binders]
        if binders:
            d.add(_order(d.schedule, name, [*inner_axes[:-1], outer, *binders, inner]))
        d.add(d.schedule.vectorize(f"{name}.{inner}"))


# ---------------------------------------------------------------- contractions


def tile_sizes(
    rows: int | None,
    columns: int | None,
    lanes: int,
    registers: int,
    heights: Collection[int] | None = None,
    widths: Collection[int] = range(1, 5),
) -> tuple[int, int]:
    """Return (rows, vectors of columns) of the register tile with the least estimated time over the whole iteration space.

    A tile of m x v needs m*v accumulators, v operand vectors and one broadcast. Its time per step is the larger of its multiply-adds (two a
    cycle) and its loads (two a cycle), at least the latency of a multiply-add (four cycles). `heights` and `widths`: the choices, if not
    every size is one; the smallest of them when none fits."""
    best, best_cost = (min(heights or (1,)), min(widths)), float("inf")
    for v in sorted(widths):
        if columns is not None and v > 1 and (v - 1) * lanes >= columns:
            continue
        for m in sorted(heights or range(1, registers)):
            if m * v + v + 1 > registers - 1 or (rows is not None and m > rows):
                break
            cost = _covered(rows or 840, m, v) * -(-(columns or 1 << 20) // (v * lanes))
            if cost < best_cost * 0.995:
                best, best_cost = (m, v), cost
    return best


def row_counts(d: Deriver, c: Contraction) -> range | None:
    """Return how many rows a register tile may have: any number (None), or few where rows of x lie a multiple of 4096 bytes apart, so that
    their elements meet in one set of the first-level cache."""
    x = tensor_table(d.program)[c.x]
    if not c.rows or c.x in d.layouts or c.padded:
        return None
    pitch = x.dtype.size_bytes
    for slot, extent in reversed(list(zip(c.x_read.index, x.shape, strict=True))):
        if isinstance(slot, AffineName) and slot.name == c.rows[-1]:
            break
        pitch *= affine.constant(extent) or 1
    return range(1, ROWS_IN_A_SET + 1) if pitch % 4096 == 0 else None


def _covered(rows: int, m: int, v: int) -> float:
    """Return the cycles of one k-step over all rows in tiles of m, the last one smaller."""
    full, rest = divmod(rows, m)
    return full * _step(m, v) + (_step(rest, v) if rest else 0.0)


def _step(m: int, v: int) -> float:
    return max(4.0, m * v / 2, (m + v) / 2) + 0.15 * v


def _contraction(d: Deriver, definition: Definition, c: Contraction, axis: str) -> None:
    name = definition.tensors[0].name
    sizes = extents(definition)
    lanes = block_of(d.layouts.get(name), axis) or d.machine.lanes(compute_dtype(c.reduce.reducer.dtypes[0]))
    row = c.rows[-1] if c.rows else None
    m, v = tile_sizes(sizes[row] if row else 1, sizes[axis], lanes, d.machine.vector_registers, row_counts(d, c))
    s = d.schedule
    s = s.split(f"{name}.{axis}", lanes * v, (f"{axis}_o", f"{axis}_t")).split(f"{name}.{axis}_t", lanes, (f"{axis}_u", f"{axis}_v"))
    tile = [f"{axis}_u", f"{axis}_v"]
    if row is not None:
        s = s.split(f"{name}.{row}", m, (f"{row}_o", f"{row}_t"))
        tile = [f"{row}_t", *tile]
    inner: list[str] = []
    ordered_inner = list(c.inner)
    channel = blocked_binder(d, c)
    if channel is not None:
        binder, block = channel
        s = s.split(f"{name}.{binder}", block, (f"{binder}_o", f"{binder}_i"))
        ordered_inner = [f"{binder}_o", *(b for b in c.inner if b != binder), f"{binder}_i"]
    inner += ordered_inner
    columns = [*(j for j in c.columns if j != axis), f"{axis}_o"]
    rows_outer = [*(i for i in c.rows if i != row), *([f"{row}_o"] if row else [])]
    outer = [*c.batch, *columns, *rows_outer]
    s = s.order(*(f"{name}.{loop}" for loop in (*outer, *inner, *tile)))
    unrolled = [loop for loop in tile[:-1] if not (loop == f"{axis}_u" and v == 1) and not (row and loop == f"{row}_t" and m == 1)]
    if unrolled:
        s = s.unroll(*(f"{name}.{loop}" for loop in unrolled))
    s = s.vectorize(f"{name}.{tile[-1]}")
    s = _packs(d, s, definition, c, axis, lanes * v, inner)
    d.add(s)
    trips = {**sizes, f"{axis}_o": -(-(sizes[axis] or 64) // (lanes * v))}
    if row is not None:
        trips[f"{row}_o"] = -(-(sizes[row] or 64) // m)
    _parallel(d, name, outer, trips)


def blocked_binder(d: Deriver, c: Contraction) -> tuple[str, int] | None:
    """Return the binder along which x is stored in blocks, with the block."""
    storage = d.layouts.get(c.x)
    axis = innermost_axis(storage) if storage is not None else None
    if storage is None or axis is None:
        return None
    slot = c.x_read.index[d.axes[c.x].index(axis)]
    block = block_of(storage, axis)
    if block is None or not isinstance(slot, AffineName) or slot.name not in c.inner:
        return None
    return slot.name, block


def packed_dims(c: Contraction, axis: str, width: int, inner: list[str], axes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the layout of w that the register tile reads in order, over `axes` of w: `[j // 32, k, j % 32]`."""
    to = {s.name: a for s, a in zip(c.w_read.index, axes, strict=True) if isinstance(s, AffineName)}
    dims = [to[n] for n in (*c.batch, *(j for j in c.columns if j != axis)) if n in to]
    dims.append(f"{to[axis]} // {width}")
    for loop in inner:
        base = loop.removesuffix("_o") if loop.endswith("_o") else loop.removesuffix("_i")
        if loop in to:
            dims.append(to[loop])
        elif base in to:
            dims.append(f"{to[base]} // {_BLOCK}" if loop.endswith("_o") else f"{to[base]} % {_BLOCK}")
    dims.append(f"{to[axis]} % {width}")
    return tuple(dims)


_BLOCK = 16


def _packs(d: Deriver, s: Schedule, definition: Definition, c: Contraction, axis: str, width: int, inner: list[str]) -> Schedule:
    """Pack w in tile order and x where it is padded. A constant w is stored that way by whoever compiles."""
    sizes = extents(definition)
    if c.padded:
        storage = d.layouts.get(c.x)
        blocked = storage is not None and block_of(storage, innermost_axis(storage) or "") is not None
        s = _root_copy(d, s, c.x, _blocked_dims(d, c.x, c.x_read, storage) if blocked and storage is not None else ())
    if c.w in d.layouts:
        return s
    rows = 1
    for r in c.rows:
        rows *= sizes[r] or 64
    contiguous = unit_stride(c.w_read.index, None, None, axis)
    if rows >= (64 if contiguous else 4) and c.w in tensor_table(d.program):
        names = tuple(slot.name if isinstance(slot, AffineName) else f"a{k}" for k, slot in enumerate(c.w_read.index))
        at = f"{definition.tensors[0].name}.{c.batch[-1]}" if c.batch and any(n in c.batch for n in names) else None
        dims = packed_dims(c, axis, width, inner, names)
        if at is not None:
            dims = tuple(dim for dim in dims if dim not in c.batch)
        s = s.pack(c.w, dims, at)
    return s


def _root_copy(d: Deriver, s: Schedule, tensor: str, dims: tuple[str, ...]) -> Schedule:
    """Copy `tensor` before everything else, in parallel where there is enough of it."""
    s = s.pack(tensor, dims)
    packed = pack(d.program, tensor)
    if not d.parallel or isinstance(packed, str):
        return s
    program, name = packed
    copy = next(x for x in program.definitions if x.tensors[0].name == name)
    sizes = extents(copy)
    if math.prod(n or 1 for n in sizes.values()) < PARALLEL_WORK // 2:
        return s
    for loop, trips in _copy_loops(d, tensor, dims, copy):
        if trips >= 2 * d.machine.threads:
            return s.parallel(f"{name}.{loop}")
    return s


def _copy_loops(d: Deriver, tensor: str, dims: tuple[str, ...], copy: Definition) -> Iterator[tuple[str, int]]:
    """Yield the loops of a copy from the outside in, but for the innermost, with their trip counts: in the order it is stored."""
    sizes = extents(copy)
    storage = d.layouts.get(tensor)
    if dims:
        for axis, op, width in ((dim.split() + ["", ""])[:3] for dim in dims[:-1]):
            extent = sizes.get(axis) or 1
            yield (f"{axis}o", -(-extent // int(width))) if op == "//" else (axis, extent)
        return
    if storage is None:
        yield from ((axis, sizes[axis] or 1) for axis in copy.axes[:-1])
        return
    own = dict(zip(d.axes[tensor], copy.axes, strict=True))
    for dim in storage.dims[:-1]:
        match dim:
            case AffineName(axis):
                yield own[axis], sizes[own[axis]] or 1
            case Floor(AffineName(axis), block):
                yield f"{own[axis]}o", -(-(sizes[own[axis]] or 1) // block)
            case _:
                return


def _blocked_dims(d: Deriver, tensor: str, read: Read, storage: Storage) -> tuple[str, ...]:
    """Return the blocked layout for a copy of `tensor`, whose axes are named as `read` indexes them."""
    axis = innermost_axis(storage)
    axes = tuple(s.name if isinstance(s, AffineName) else f"a{k}" for k, s in enumerate(read.index))
    own = d.axes[tensor]
    block = block_of(storage, axis or "") or 1
    dims = [f"{name} // {block}" if old == axis else name for name, old in zip(axes, own, strict=True)]
    return (*dims, f"{axes[own.index(axis or '')]} % {block}")



# ---------------------------------------------------------------- what the caller could store differently


def wanted_layouts(
    program: Program, machine: Machine, layouts: Mapping[str, Storage], constants: frozenset[str]
) -> dict[str, Layout]:
    """Return how the derived schedule would like tensors to be stored that are not in `layouts` yet: results and inputs of
    convolutions and pooling in blocks of channels, constant operands of contractions in the order the register tile reads them. Nothing is
    wished for tensors whose sizes are not known when compiling."""
    program = lift(program)
    d = _deriver(program, machine, layouts, constants, Schedule(program.name))
    static = {t.name for t in tensors(program) if all(affine.constant(s) is not None for s in t.shape)}
    params = {p.name: p for p in program.params if p.name in static}
    out: dict[str, Layout] = {}
    for definition in program.definitions:
        if len(definition.pieces) == 1 and len(definition.axes) > 0:
            out |= {name: layout for name, layout in _channels(d, definition).items() if name in static}
    d.layouts = {**layouts, **{name: to_storage(program, name, layout) for name, layout in out.items()}}
    for definition in program.definitions:
        if len(definition.pieces) != 1 or not definition.axes or _reads_itself(definition):
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


def _packed_storage(d: Deriver, definition: Definition, c: Contraction, axis: str) -> Storage:
    sizes = extents(definition)
    row = c.rows[-1] if c.rows else None
    lanes = block_of(d.layouts.get(definition.tensors[0].name), axis) or d.machine.lanes(compute_dtype(c.reduce.reducer.dtypes[0]))
    _, v = tile_sizes(sizes[row] if row else 1, sizes[axis], lanes, d.machine.vector_registers, row_counts(d, c))
    width = lanes * v
    own = d.axes[c.w]
    to = {s.name: a for s, a in zip(c.w_read.index, own, strict=True) if isinstance(s, AffineName)}
    shape = dict(zip(own, tensor_table(d.program)[c.w].shape, strict=True))
    channel = blocked_binder(d, c)
    loops = list(c.inner)
    dims = [AffineName(to[n]) for n in (*c.batch, *(j for j in c.columns if j != axis)) if n in to]
    extents_of = [shape[x.name] for x in dims]
    out = [*dims, affine.floor(AffineName(to[axis]), width)]
    extents_of.append(affine.ceil_div(shape[to[axis]], width))
    if channel is not None and channel[0] in to:
        binder, block = channel
        out.append(affine.floor(AffineName(to[binder]), block))
        extents_of.append(affine.ceil_div(shape[to[binder]], block))
        loops = [b for b in loops if b != binder]
    for b in loops:
        if b in to:
            out.append(AffineName(to[b]))
            extents_of.append(shape[to[b]])
    if channel is not None and channel[0] in to:
        out.append(affine.mod(AffineName(to[channel[0]]), channel[1]))
        extents_of.append(affine.to_expr(channel[1]))
    out.append(affine.mod(AffineName(to[axis]), width))
    extents_of.append(affine.to_expr(width))
    return Storage(tuple(out), tuple(extents_of))


def _channels(d: Deriver, definition: Definition) -> dict[str, Layout]:
    """Return blocked storage for the result and the windowed input of a convolution or a pooling."""
    name = definition.tensors[0].name
    found = [r for p in definition.pieces for r in reduces(p.value)]
    if len(found) != 1 or len(definition.axes) < 4 or name not in d.program.results or name in d.layouts:
        return {}
    sizes = extents(definition)
    lanes = d.machine.lanes(compute_dtype(found[0].reducer.dtypes[0]))
    windowed = [r for b in found[0].body for r in reads(b) if any(not isinstance(s, AffineName | Dynamic) for s in r.index) or len(r.index) >= 4]
    if not windowed:
        return {}
    column = _channel_axis(definition, d.constants, sizes, lanes)
    result = None if column is None else in_blocks(definition.tensors[0], definition.axes.index(column), lanes)
    if column is None or result is None:
        return {}
    out = {name: result}
    for read in windowed:
        if read.tensor in d.layouts or read.tensor not in {p.name for p in d.program.params}:
            continue
        # A constant that every channel has for itself goes with the channels; others are packed for the register tile.
        binders = set() if read.tensor in d.constants else {b.name for b in found[0].binders}
        if read.tensor in d.constants and not _plain_everywhere(definition, column):
            continue
        for k, slot in enumerate(read.index):
            extent = affine.constant(tensor_table(d.program)[read.tensor].shape[k])
            if isinstance(slot, AffineName) and (slot.name == column or slot.name in binders) and extent is not None and extent >= lanes:
                layout = in_blocks(tensor_table(d.program)[read.tensor], k, lanes)
                if layout is not None:
                    out[read.tensor] = layout
                break
    return out


def _channel_axis(definition: Definition, constants: frozenset[str], sizes: Mapping[str, int | None], lanes: int) -> str | None:
    """Return the axis to keep in blocks: one that constant weights alone are indexed by, else one that every operand is indexed by."""
    for axis in definition.axes[1:]:
        c = contraction(definition, axis)
        if c is not None and c.w in constants and (sizes[axis] or 0) >= lanes and axis in c.columns:
            return axis
    plain = [a for a in definition.axes[1:] if (sizes[a] or 0) >= lanes and _plain_everywhere(definition, a)]
    return plain[0] if plain else None


def _plain_everywhere(definition: Definition, axis: str) -> bool:
    """Tell whether every read of a reduction's body uses `axis` as an index of its own."""
    bodies = [b for p in definition.pieces for r in reduces(p.value) for b in r.body]
    return all(any(isinstance(s, AffineName) and s.name == axis for s in read.index) for b in bodies for read in reads(b))
