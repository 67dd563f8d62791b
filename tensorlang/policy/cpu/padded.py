"""Copies of inputs with their padding, made before everything else."""

from __future__ import annotations

from polyhedral.expr import Name as AffineName
from tensorlang.policy.deriver import Deriver, is_threading_profitable
from tensorlang.schedule.pack import Along, pack
from tensorlang.schedule.plan import Storage
from tensorlang.schedule.schedule import Schedule
from tensorlang.schedule.shape import block_of, innermost_axis
from tensorlang.tensor.nodes import Read


def root_copy(d: Deriver, s: Schedule, tensor: str, dims: tuple[str, ...], along: Along | None = None) -> Schedule:
    """Copy `tensor`, or what is read of it `along` an axis, before everything else, in parallel where there is enough of it."""
    s = s.pack(tensor, dims, in_=None if along is None else str(along))
    packed = pack(d.program, tensor, along)
    if isinstance(packed, str):
        return s
    program, name = packed
    copy = next(x for x in program.definitions if x.tensors[0].name == name)
    return s.parallel(name) if is_threading_profitable(d, (copy,)) else s


def blocked_dims(d: Deriver, tensor: str, read: Read, storage: Storage) -> tuple[str, ...]:
    """Return the blocked layout for a copy of `tensor`, whose axes are named as `read` indexes them."""
    axis = innermost_axis(storage)
    axes = tuple(s.name if isinstance(s, AffineName) else f"a{k}" for k, s in enumerate(read.index))
    own = d.axes[tensor]
    block = block_of(storage, axis or "") or 1
    dims = [f"{name} // {block}" if old == axis else name for name, old in zip(axes, own, strict=True)]
    return (*dims, f"{axes[own.index(axis or '')]} % {block}")
