"""Schedules for a tensor by itself: vectors along the axis that walks memory in unit steps, several points of a reduction at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import log2

from codegen.dtypes import compute_dtype
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name as AffineName
from tensorlang.policy.cpu.cost import FAR_LOADS, MOST_STRIDE, STRIDED_LOADS
from tensorlang.policy.cpu.padded import blocked_dims, root_copy
from tensorlang.policy.deriver import Deriver, in_order, mark_parallel
from tensorlang.policy.element_types import row_bytes
from tensorlang.schedule.pack import is_padding, pack
from tensorlang.schedule.shape import OPEN_EXTENT, block_of, extents, innermost_axis, step_in_memory, step_of_slot, unit_stride
from tensorlang.tensor.nodes import Definition, Dynamic, Read
from tensorlang.tensor.walk import index_names, reads, reduces, tensor_table

FEWEST_TURNED = 8
"""Elements along an axis, from which on squares of them are turned in registers."""


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
    """Return the axis or binder along which vectors run: where nothing is reduced the one that takes the fewest loads and stores, else the
    one along which most accesses are contiguous, of which writing counts most."""
    if definition.axes and not any(True for p in definition.pieces for _ in reduces(p.value)):
        return min(reversed(definition.axes), key=lambda axis: accesses_along(d, definition, axis))
    name = definition.tensors[0].name
    sizes = extents(definition)
    mentions = _weighted_reads(definition)
    best, best_score = definition.axes[-1] if definition.axes else "", -1.0
    for candidate in _candidates(definition):
        score = 0.0
        if candidate in definition.axes and unit_stride(
            tuple(AffineName(a) for a in definition.axes), d.layouts.get(name), definition.axes, candidate
        ):
            score += 2.0
        for read, weight in mentions.get(candidate, ()):
            if unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], candidate):
                score += weight
        extent = sizes.get(candidate)
        if extent is not None and extent < 4:
            score *= 0.25
        if candidate not in definition.axes and not spreadable(d, definition):
            continue
        if score > best_score:
            best, best_score = candidate, score
    return best


def accesses_along(d: Deriver, definition: Definition, axis: str) -> float:
    """Return how many loads and stores an element of the result takes with vectors along an axis, times its lanes. What all lanes read
    alike stays in a register, neighbours are one access, elements a few apart are taken out of whole vectors, others are some accesses
    for each lane; where results are stored as neighbours, squares of what lies along another axis are loaded by rows and turned in
    registers."""
    name, sizes = definition.tensors[0].name, extents(definition)
    lanes = d.machine.lanes(compute_dtype(definition.tensors[0].dtype))
    far = FAR_LOADS * lanes
    is_stored = unit_stride(tuple(AffineName(a) for a in definition.axes), d.layouts.get(name), definition.axes, axis)
    accesses: float = 1 if is_stored else (sizes[definition.axes[-1]] or far) if _is_interleaved(d, definition, axis) else far
    for read in dict.fromkeys(r for p in definition.pieces for r in reads(p.value) if axis in index_names(r)):
        near = {a for a in definition.axes if unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], a)}
        is_turned = is_stored and any((sizes[a] or OPEN_EXTENT) >= FEWEST_TURNED for a in near - {axis})
        step = (
            None
            if read.tensor in d.layouts or read.tensor in d.open_rows
            else step_in_memory(read.index, tensor_table(d.program)[read.tensor].shape, axis)
        )
        apart = STRIDED_LOADS * step if step is not None and 1 <= step <= MOST_STRIDE else far
        accesses += 1 if axis in near else min(apart, 1 + log2(lanes) if is_turned else far)
    extent = sizes[axis] or OPEN_EXTENT
    return accesses * -(-extent // lanes) * lanes / extent


def _is_interleaved(d: Deriver, definition: Definition, axis: str) -> bool:
    """Tell whether vectors along an axis are stored between those of all elements of its rows, which are few: of one that is read in unit
    steps, whole vectors are put together of them."""
    if axis not in definition.axes[-2:-1] or definition.tensors[0].name in d.layouts or len(definition.pieces) > 1:
        return False
    found = [r for r in reads(definition.pieces[0].value) if axis in index_names(r)]
    near = all(unit_stride(r.index, d.layouts.get(r.tensor), d.axes[r.tensor], axis) for r in found)
    return bool(found) and near and 1 < (d.settled(definition)[definition.axes[-1]] or 0) <= MOST_STRIDE


def shared_axis(d: Deriver, members: Sequence[Definition], positions: Sequence[int]) -> int | None:
    """Return the one of some positions of axes along which vectors of all members take the fewest loads and stores; None where there is
    none, or something would be turned."""
    best = min(reversed(positions), key=lambda k: sum(accesses_along(d, m, m.axes[k]) for m in members), default=None)
    parts = (replace(m, pieces=(p,)) for m in members for p in m.pieces)
    return best if best is not None and all(crossing_axis(d, part, part.axes[best]) is None for part in parts) else None


def _weighted_reads(definition: Definition) -> dict[str, list[tuple[Read, float]]]:
    """Return the reads whose index mentions an axis or binder, by its name, and what each counts."""
    found: dict[str, list[tuple[Read, float]]] = {}
    for piece in definition.pieces:
        # What a reduction reads, it reads for every point of its binders.
        often = {read for r in reduces(piece.value) for b in r.body for read in reads(b)}
        for read in reads(piece.value):
            for name in index_names(read):
                found.setdefault(name, []).append((read, 4.0 if read in often else 1.5))
    return found


def spreadable(d: Deriver, definition: Definition) -> bool:
    found = [r for p in definition.pieces for r in reduces(p.value)]
    simple = all(r.reducer.kind is not None and r.reducer.kind in ("sum", "prod", "min", "max") and len(r.body) == 1 for r in found)
    return bool(found) and simple and d.program.mode != "strict" and len(definition.pieces) == 1


def derive_pointwise(d: Deriver, definition: Definition) -> None:
    name = definition.tensors[0].name
    axis = vector_axis(d, definition)
    sizes = extents(definition)
    if axis in definition.axes:
        lanes = block_of(d.layouts.get(name), axis) or lanes_along(d, definition, axis)
        others = [a for a in definition.axes if a != axis]
        binders = [b.name for p in definition.pieces for r in reduces(p.value) for b in r.binders]
        if not moves_one_by_one(d, definition, axis) and (sizes[axis] is None or (sizes[axis] or 0) >= 2):
            outer, inner = f"{axis}_o", f"{axis}_v"
            d.add(d.schedule.split(f"{name}.{axis}", lanes, (outer, inner)))
            # A blocked layout keeps other axes between a block and its lanes.
            blocked = block_of(d.layouts.get(name), axis) is not None
            order = _with_outer(definition.axes, axis, outer) if blocked else [*others, outer]
            crossing = crossing_axis(d, definition, axis)
            if crossing is not None and not blocked:
                d.add(d.schedule.split(f"{name}.{crossing}", lanes, (f"{crossing}_o", f"{crossing}_i")))
                order = [*(f"{a}_o" if a == crossing else a for a in order), f"{crossing}_i"]
                sizes = {**sizes, f"{crossing}_o": -(-(sizes[crossing] or OPEN_EXTENT) // lanes)}
            if binders and len(definition.pieces) == 1:
                order = _several_at_once(d, definition, axis, order, binders, inner)
            elif not binders:
                d.add(in_order(d.schedule, name, [*order, inner]))
            d.add(d.schedule.vectorize(f"{name}.{inner}"))
            mark_parallel(d, (definition,), order, {**sizes, outer: -(-(sizes[axis] or OPEN_EXTENT) // lanes)})
        else:
            mark_parallel(d, (definition,), list(definition.axes), sizes)
    else:
        reduction_lanes(d, definition)
        mark_parallel(d, (definition,), list(definition.axes), sizes)


def lanes_along(d: Deriver, definition: Definition, axis: str) -> int:
    """Return how many elements along an axis a vector of a tensor by itself holds. Squares that are turned are of 32 bits, and of a short
    axis no more lanes run than it fills."""
    least, lanes = d.machine.lanes(compute_dtype(definition.tensors[0].dtype)), d.lanes_of(definition)
    if crossing_axis(d, definition, axis) is not None:
        return least
    extent = extents(definition)[axis] or OPEN_EXTENT
    return next(n for n in (least << k for k in range(8)) if n >= min(extent, lanes))


def moves_one_by_one(d: Deriver, definition: Definition, axis: str) -> bool:
    """Tell whether nothing is done but to fetch elements from where data say, another place for each point of `axis`: vectors, whose lanes
    are loaded one by one, have nothing to compute. Lanes of what lies in registers are no loads."""
    values = [p.value for p in definition.pieces]
    if not all(isinstance(v, Read) and any(is_elsewhere(s, axis) for s in v.index) for v in values):
        return False
    return not all(isinstance(v, Read) and picked_in_registers(d, v, axis) for v in values)


def is_elsewhere(slot: Affine | Dynamic, axis: str) -> bool:
    """Tell whether data say anew for each point of an axis where a slot lies, and not only where the first of them does."""
    return isinstance(slot, Dynamic) and step_of_slot(slot, axis) is None


def picked_in_registers(d: Deriver, read: Read, axis: str) -> bool:
    """Tell whether lanes along an axis pick what they read from one row that all of them share, which registers hold."""
    tensor, *others = tensor_table(d.program)[read.tensor], *read.index[:-1]
    if read.tensor in d.layouts or not read.index or not isinstance(read.index[-1], Dynamic):
        return False
    if any(axis in (index_names(s.value) if isinstance(s, Dynamic) else affine.name_set(s)) for s in others):
        return False
    row = row_bytes(tensor)
    return row is not None and any(size == tensor.dtype.size_bytes and row <= most for size, most in d.machine.tables)


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
        d.add(in_order(d.schedule, name, [*outer, *binders, f"{row}_t", inner]).unroll(f"{name}.{row}_t"))
        order = outer
    else:
        d.add(in_order(d.schedule, name, [*order, *binders, inner]))
    for tensor in dict.fromkeys(r.tensor for p in definition.pieces for e in reduces(p.value) for r in reads(e)):
        packed = pack(d.program, tensor)
        if tensor in d.axes and not isinstance(packed, str) and is_padding(packed):
            storage = d.layouts.get(tensor)
            blocked = storage is not None and block_of(storage, innermost_axis(storage) or "") is not None
            read = next(r for p in definition.pieces for e in reduces(p.value) for r in reads(e) if r.tensor == tensor)
            d.add(root_copy(d, d.schedule, tensor, blocked_dims(d, tensor, read, storage) if blocked and storage is not None else ()))
    return order


def points_together(extent: int | None) -> int:
    """Return how many points to reduce at once: a divisor of the extent from 8 down to 4, or 8 with a rest."""
    if extent is None:
        return 4
    return next((n for n in range(8, 3, -1) if extent % n == 0), min(8, extent))


def crossing_axis(d: Deriver, definition: Definition, axis: str) -> str | None:
    """Return the axis along which some read is contiguous while the store is contiguous along `axis`: a transposition, done in squares
    so that the lines it touches are used whole; or the axis of the few elements that vectors are stored between. What all lanes read alike
    is no transposition."""
    if any(True for p in definition.pieces for _ in reduces(p.value)) or len(definition.pieces) > 1:
        return None
    if _is_interleaved(d, definition, axis):
        return definition.axes[-1]
    sizes = extents(definition)
    for read in reads(definition.pieces[0].value):
        for other in definition.axes:
            if (
                axis in index_names(read)
                and other != axis
                and unit_stride(read.index, d.layouts.get(read.tensor), d.axes[read.tensor], other)
                and (sizes[other] or OPEN_EXTENT) >= FEWEST_TURNED
            ):
                return other
    return None


def _with_outer(axes: tuple[str, ...], axis: str, outer: str) -> list[str]:
    return [outer if a == axis else a for a in axes]


def partial_results(extents_of: Iterable[int | None], lanes: int) -> int:
    """Return over how many partial results to spread reductions of these extents: four vectors' worth where they are long, because one
    vector would wait for its own last addition."""
    known = list(extents_of)
    long = all(e is not None and (e % (4 * lanes) == 0 or e >= 8 * lanes) for e in known)
    return 4 * lanes if known and long else lanes


def reduction_lanes(d: Deriver, definition: Definition) -> None:
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
                count = partial_results([extent], lanes)
                d.add(d.schedule.split(f"{name}.{binder.name}", count, (outer, inner)).vectorize(f"{name}.{inner}"))
