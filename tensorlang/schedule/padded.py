"""Copies of inputs with their padding, made before everything else."""

from __future__ import annotations

import math
from collections.abc import Iterator

from polyhedral.expr import Floor
from polyhedral.expr import Name as AffineName
from tensorlang.schedule.deriver import PARALLEL_WORK, Deriver
from tensorlang.schedule.pack import pack
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import block_of, extents, innermost_axis
from tensorlang.tensor.nodes import Definition, Read


def root_copy(d: Deriver, s: Schedule, tensor: str, dims: tuple[str, ...]) -> Schedule:
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
        for axis, op, width in ([*dim.split(), "", ""][:3] for dim in dims[:-1]):
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


def blocked_dims(d: Deriver, tensor: str, read: Read, storage: Storage) -> tuple[str, ...]:
    """Return the blocked layout for a copy of `tensor`, whose axes are named as `read` indexes them."""
    axis = innermost_axis(storage)
    axes = tuple(s.name if isinstance(s, AffineName) else f"a{k}" for k, s in enumerate(read.index))
    own = d.axes[tensor]
    block = block_of(storage, axis or "") or 1
    dims = [f"{name} // {block}" if old == axis else name for name, old in zip(axes, own, strict=True)]
    return (*dims, f"{axes[own.index(axis or '')]} % {block}")
