"""How kernels of graphics processors would like their inputs and results to be stored, if whoever stores them can choose.

    x [n, c, h, w]  ->  [n, h, w, c]        what a convolution multiplies, and its result: channels next to each other
    w [o, c, r, s]  ->  [o, r, s, c]        so that 16 bytes of x meet 16 bytes of w
    w [k, n]        ->  [n, k]              weights of a product of matrices: along its sum

So a convolution is a product of rows of neighbouring channels: each thread copies 16 bytes at once, whatever the window, and matrix
units get their operands as they want them; bytes they take in no other way. That is wished for elements of two bytes or one, and for f32
that is rounded to tf32, whose channels fill whole 16 bytes; other f32 is multiplied along pixels, which lie together already.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyhedral import affine
from polyhedral.expr import Name
from tensorlang.policy.machine import GpuMachine
from tensorlang.schedule.forms import is_rounded
from tensorlang.schedule.layout import Layout
from tensorlang.schedule.shape import Contraction, contraction, extents
from tensorlang.tensor.idioms import online_of
from tensorlang.tensor.lift import lift
from tensorlang.tensor.nodes import Definition, Dynamic, Program, Read, Reduce, Tensor
from tensorlang.tensor.walk import reads, reduces, tensor_table

NARROW_BYTES = 2


def derive_device_layouts(
    program: Program, machine: GpuMachine, constants: frozenset[str], fixed: frozenset[str] = frozenset()
) -> dict[str, Layout]:
    """Return the layouts that are wished for inputs and results of `program`. Nothing is wished for what is in `fixed`, which would have
    to be copied, nor for weights that are not in `constants`, nor for attention in one pass: its rows lie along what is summed up."""
    program = lift(program)
    if online_of(program) is not None:
        return {}
    table = tensor_table(program)
    free = {*(p.name for p in program.params if p.name not in fixed), *(r for r in program.results if r not in fixed)}
    wished: dict[str, Layout] = {}
    for definition in program.definitions:
        for tensor, axis in (*_channels(program, machine, definition, constants), *_weights(program, machine, definition, constants)):
            layout = channels_last(table[tensor], axis) if tensor in free else None
            if layout is not None:
                wished[tensor] = layout
    return wished


def channels_last(tensor: Tensor, axis: int) -> Layout | None:
    """Return the layout that has the dimension of an axis last, or None where it is, or where extents are not known."""
    dims = tensor.groups
    sizes = [affine.constant(n) for n in tensor.shape]
    if any(n is None for n in sizes):
        return None
    shape = [_product(sizes[k] or 0 for k in members) for members in dims]
    moved = next(k for k, members in enumerate(dims) if axis in members)
    if all(n == 1 for n in shape[moved + 1 :]):
        return None
    order = [*(k for k in range(len(dims)) if k != moved), moved]
    names = tuple(f"a{k}" for k in range(len(dims)))
    return Layout(names, tuple(Name(names[k]) for k in order), tuple(shape[k] for k in order))


def _product(factors: Iterator[int]) -> int:
    total = 1
    for n in factors:
        total *= n
    return total


def _channels(program: Program, machine: GpuMachine, definition: Definition, constants: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield each tensor of a convolution, and of what is pooled with weights, with the position of its channels among its axes."""
    found = [r for p in definition.pieces for r in reduces(p.value)]
    if len(found) != 1 or len(definition.pieces) != 1 or len(definition.axes) < 3:
        return
    sizes, result = extents(definition), definition.tensors[0].name
    for axis in definition.axes[1:]:
        c = contraction(definition, axis)
        if c is None or c.w not in constants or len(c.rows) < 2:
            continue
        channel = next((k for k in c.inner if _position(c.x_read, k) is not None and _position(c.w_read, k) is not None), None)
        if channel is None or c.x_read.index[-1] == Name(channel) or not _fills(program, machine, c, sizes[channel]):
            continue
        for read in (c.x_read, c.w_read):
            yield read.tensor, _position(read, channel) or 0
        if _fills(program, machine, c, sizes[axis]):
            yield result, definition.axes.index(axis)
        return
    yield from _depthwise(program, machine, definition, found[0], sizes, constants)


def _weights(program: Program, machine: GpuMachine, definition: Definition, constants: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield the weights of a product of matrices with the position of the axis that it sums up."""
    found = [r for p in definition.pieces for r in reduces(p.value)]
    c = contraction(definition, definition.axes[-1]) if len(found) == 1 and len(definition.pieces) == 1 and definition.axes else None
    if c is None or len(c.inner) != 1 or not c.rows or not c.columns:
        return
    if not all(isinstance(slot, Name) or _is_constant(slot) for read in (c.x_read, c.w_read) for slot in read.index):
        return
    for read in (c.x_read, c.w_read):
        at = _position(read, c.inner[0])
        if read.tensor in constants and at is not None and _fills(program, machine, c, extents(definition)[c.inner[0]]):
            yield read.tensor, at


def _is_constant(slot: object) -> bool:
    return not isinstance(slot, Dynamic) and affine.constant(slot) is not None  # type: ignore[arg-type]


def _depthwise(
    program: Program,
    machine: GpuMachine,
    definition: Definition,
    reduce: Reduce,
    sizes: dict[str, int | None],
    constants: frozenset[str],
) -> Iterator[tuple[str, int]]:
    """Yield the tensors of a sum over windows in which every channel has weights of its own, which are constants."""
    operands = list({r.tensor: r for b in reduce.body for r in reads(b)}.values())
    windowed = [r for r in operands if r.tensor not in constants]
    if len(operands) != 2 or len(windowed) != 1 or not _slides(windowed[0], reduce, sizes):
        return
    x = windowed[0]
    for axis in definition.axes[1:]:
        places = [_position(r, axis) for r in operands]
        narrow = tensor_table(program)[x.tensor].dtype.size_bytes <= NARROW_BYTES
        if None not in places and narrow and _is_whole(program, machine, x.tensor, sizes[axis]):
            yield from ((r.tensor, k or 0) for r, k in zip(operands, places, strict=True))
            yield definition.tensors[0].name, definition.axes.index(axis)
            return


def _slides(read: Read, reduce: Reduce, sizes: dict[str, int | None]) -> bool:
    """Tell whether all that a reduction goes through are places of a window around the point at which a tensor is read."""
    windows = [slot for slot in read.index if not isinstance(slot, Name | Dynamic) and affine.constant(slot) is None]
    inside = {name for slot in windows for name in affine.names(slot)}
    return bool(windows) and all(b.name in inside or sizes[b.name] == 1 for b in reduce.binders)


def _position(read: Read, name: str) -> int | None:
    """Return which index of a read is `name` alone."""
    return next((k for k, slot in enumerate(read.index) if slot == Name(name)), None)


def _fills(program: Program, machine: GpuMachine, c: Contraction, extent: int | None) -> bool:
    """Tell whether so many elements of what a contraction reads are what warps multiply as matrices, and fill whole vectors."""
    narrow = tensor_table(program)[c.x].dtype.size_bytes <= NARROW_BYTES
    return (narrow or is_rounded(c.reduce)) and _is_whole(program, machine, c.x, extent)


def _is_whole(program: Program, machine: GpuMachine, tensor: str, extent: int | None) -> bool:
    return extent is not None and extent > 0 and extent % machine.lanes(tensor_table(program)[tensor].dtype) == 0
