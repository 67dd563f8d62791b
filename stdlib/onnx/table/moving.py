"""Operators that move elements: most become views, the others one kernel."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import TypeAlias

import numpy as np

from polyhedral.expr import Expr, Int, Name
from stdlib.onnx.site import Site
from stdlib.onnx.table.entry import Entry
from tensorlang.graph.nodes import Value
from tensorlang.graph.programs import axes_of, single
from tensorlang.graph.sizes import OpenSize, Size, is_one, is_open, larger, minimum, same, same_shape, smaller, to_expr
from tensorlang.tensor.nodes import Read, Tensor

Ints: TypeAlias = tuple[int, ...]


def reshape(n: Site) -> Value:
    """0 keeps a dimension (unless `allowzero`), -1 takes what is left."""
    x = n.arg(0)
    wanted = n.integers("shape") if n.node.since < 5 else n.constant_ints(1)
    assert wanted is not None
    if not n.flag("allowzero"):
        if any(k >= len(x.shape) and extent == 0 for k, extent in enumerate(wanted)):
            raise n.wrong(f"the shape {list(wanted)} keeps a dimension that {list(x.shape)} does not have")
        wanted = tuple(_kept(x, k, extent) for k, extent in enumerate(wanted))
    if any(extent < -1 for extent in wanted) or wanted.count(-1) > 1:
        raise n.wrong(f"{list(wanted)} is not a shape")
    if -1 in wanted:
        rest = -prod(wanted)
        if rest == 0:
            raise n.wrong(f"nothing determines what -1 stands for in {list(wanted)}, which has no elements")
        if prod(x.shape) % rest:
            raise n.wrong(f"the elements of the shape {list(x.shape)} do not fill {list(wanted)}")
        wanted = tuple(prod(x.shape) // rest if extent == -1 else extent for extent in wanted)
    return n.view(x, wanted)


def _kept(x: Value, k: int, extent: int) -> int:
    """Return the extent that is asked for in place `k`, where 0 stands for that of `x`."""
    return extent if k < len(x.shape) and same(extent, x.shape[k]) else x.shape[k] if extent == 0 else extent


def flatten(n: Site) -> Value:
    x = n.arg(0)
    axis = n.axis("axis", 1, len(x.shape), end=True)
    return n.view(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def _axes(n: Site, since_input: int) -> tuple[int, ...] | None:
    if n.node.since >= since_input:
        return n.constant_ints(1)
    return n.integers("axes") if n.has("axes") else None


def squeeze(n: Site) -> Value:
    x = n.arg(0)
    axes = _axes(n, 13)
    gone = n.axes_of(axes, len(x.shape)) if axes is not None else tuple(k for k, extent in enumerate(x.shape) if extent == 1)
    if any(x.shape[k] != 1 for k in gone):
        raise n.wrong(f"the axes {list(gone)} of the shape {list(x.shape)} are not all of extent 1")
    return n.view(x, tuple(extent for k, extent in enumerate(x.shape) if k not in gone))


def unsqueeze(n: Site) -> Value:
    x = n.arg(0)
    axes = _axes(n, 13) or ()
    rank = len(x.shape) + len(axes)
    new, rest = n.axes_of(axes, rank), iter(x.shape)
    return n.view(x, tuple(1 if k in new else next(rest) for k in range(rank)))


def transpose(n: Site) -> Value:
    x = n.arg(0)
    rank = len(x.shape)
    perm = n.integers("perm", tuple(reversed(range(rank))), count=rank)
    if sorted(perm) != list(range(rank)):
        raise n.wrong(f"{list(perm)} is not an order of {rank} axes")
    return transposed(n, x, perm)


def transposed(n: Site, x: Value, perm: tuple[int, ...]) -> Value:
    """Return `x` with its axes in another order: a view when only axes of extent one move."""
    if len(perm) != len(x.shape):
        raise n.wrong(f"a value of {len(perm)} dimensions is needed, not of the shape {list(x.shape)}")
    moving = [k for k in perm if not is_one(x.shape[k])]
    if moving == sorted(moving):
        return n.view(x, tuple(x.shape[k] for k in perm))
    return n.op("transpose", x, perm=perm)


def axis_moved(n: Site, x: Value, axis: int, to: int) -> Value:
    """Return a value with an axis in another place."""
    order = [k for k in range(len(x.shape)) if k != axis]
    order.insert(n.axis_of(to, len(x.shape)), axis)
    return transposed(n, x, tuple(order))


MOST_JOINED = 64
"""Values that one kernel puts side by side: a program has a piece for each, and what is asked of pieces is asked of pairs of them."""


def concat(n: Site) -> Value:
    parts = n.args()
    rank = len(parts[0].shape)
    axis = n.axis("axis", 1, rank) if n.node.since < 4 else n.axis("axis", 0, rank)
    return joined(n, parts, axis)


def joined(n: Site, parts: tuple[Value, ...], axis: int) -> Value:
    """Return the parts one after the other along an axis; empty ones do not count."""
    first = parts[0]
    for part in parts:
        rest = [(a, b) for k, (a, b) in enumerate(zip(part.shape, first.shape, strict=False)) if k != axis]
        if len(part.shape) != len(first.shape) or axis >= len(first.shape) or any(a != b for a, b in rest):
            raise n.wrong(f"values of the shapes {list(first.shape)} and {list(part.shape)} cannot be joined along axis {axis}")
    if any(part.dtype != first.dtype for part in parts):
        raise n.wrong(f"the values have the types {', '.join(sorted({str(p.dtype) for p in parts}))}")
    full = tuple(part for part in parts if not same(part.shape[axis], 0)) or parts[:1]
    while len(full) > MOST_JOINED:
        full = tuple(_concat(n, full[k : k + MOST_JOINED], axis) for k in range(0, len(full), MOST_JOINED))
    return _concat(n, full, axis)


def _concat(n: Site, parts: tuple[Value, ...], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else n.op("concat", parts, axis=axis)


def split(n: Site) -> tuple[Value | None, ...]:
    """The sizes are an attribute (1, 2, 11) or an input (1, 13), or equal, as `num_outputs` says (18)."""
    x = n.arg(0)
    axis = n.axis("axis", 0, len(x.shape))
    total, count = x.shape[axis], len(n.node.outputs)
    from_attribute = n.integers("split") if n.has("split") else None
    sizes = n.constant_ints(1) if n.node.since >= 13 else from_attribute or _constant_numbers(n, 1)
    if sizes is None:
        if n.integer("num_outputs", count) != count:
            raise n.wrong(f"num_outputs is {n.integer('num_outputs', count)}, and it has {count} outputs")
        part = -(-total // count)
        sizes = tuple(max(0, min(part, total - k * part)) for k in range(count))
    if sum(sizes) != total or any(size < 0 for size in sizes):
        raise n.wrong(f"parts of {list(sizes)} do not add up to the {total} elements along axis {axis}")
    if len(sizes) != count:
        raise n.wrong(f"{len(sizes)} parts for {count} outputs")
    starts = accumulate(sizes, initial=0)
    return tuple(
        slice_axis(n, x, axis, start, size) if n.has_output(k) else None for k, (start, size) in enumerate(zip(starts, sizes, strict=False))
    )


def _constant_numbers(n: Site, k: int) -> tuple[int, ...] | None:
    """Return the elements of an argument of which version 1 of an operator has floats, None where it is not given."""
    given = n.constant_or_none(k)
    return None if given is None else tuple(int(number) for number in given.reshape(-1))


def slice_axis(n: Site, x: Value, axis: int, start: int, size: int) -> Value:
    """Return `size` neighbouring elements along one axis."""
    if same(size, x.shape[axis]):
        return x
    zeros, ones = [0] * len(x.shape), (1,) * len(x.shape)
    zeros[axis] = start
    return n.op("slice", x, start=tuple(zeros), step=ones, length=(*x.shape[:axis], size, *x.shape[axis + 1 :]))


def slice_(n: Site) -> Value:
    """Before version 10 bounds are attributes."""
    if n.node.since >= 10:
        return sliced(n, n.constant_ints(1) or (), n.constant_ints(2) or (), n.constant_ints(3), n.constant_ints(4))
    return sliced(n, n.integers("starts"), n.integers("ends"), n.integers("axes") if n.has("axes") else None)


def sliced(n: Site, starts: Ints, ends: Ints, axes: Ints | None, steps: Ints | None = None) -> Value:
    """Return the first argument between bounds along axes, all of them where none are given."""
    x = n.arg(0)
    rank = len(x.shape)
    axes = n.axes_of(axes if axes is not None else tuple(range(len(starts))), rank)
    steps = steps or (1,) * len(axes)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise n.wrong(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    start, step, length = [0] * rank, [1] * rank, list(x.shape)
    for axis, first, last, by in zip(axes, starts, ends, steps, strict=True):
        if by == 0:
            raise n.wrong("a step is 0")
        begin, count = clamped(first, last, by, x.shape[axis])
        start[axis], step[axis], length[axis] = (0 if same(count, 0) else begin), by, count
    if same_shape(length, x.shape) and all(
        by == 1 or (not is_open((extent,)) and extent < 2) for by, extent in zip(step, length, strict=True)
    ):
        return x
    if any(same(extent, 0) for extent in length):
        return n.filled(length, x.dtype)
    step = [by if by == 1 or is_open((extent,)) or extent > 1 else 1 for by, extent in zip(step, length, strict=True)]
    return n.op("slice", x, start=tuple(start), step=tuple(step), length=tuple(length))


def clamped(first: int, last: int, by: int, extent: int) -> tuple[int, int]:
    """Return where a slice begins, and how many elements it has. Bounds count from the end when negative and are clamped: those of a
    backward slice to the elements, where Python would let it begin before the first."""
    first, last = (bound + extent if bound < 0 else bound for bound in (first, last))
    if by > 0:
        first, last = smaller(larger(first, 0), extent), minimum(larger(last, 0), extent)
        return first, larger(-((first - last) // by), 0)
    first, last = min(max(first, 0), extent - 1), min(max(last, -1), extent - 1)
    return first, max(0, -((last - first) // -by))


def expand(n: Site) -> Value:
    x = n.arg(0)
    wanted = n.constant_ints(1) or ()
    rank = max(len(x.shape), len(wanted))
    source = (1,) * (rank - len(x.shape)) + x.shape
    target = (1,) * (rank - len(wanted)) + wanted
    if any(extent < 0 for extent in target):
        raise n.wrong(f"the shape {list(x.shape)} cannot be expanded to {list(wanted)}")
    times = tuple(_expanded(a, b) for a, b in zip(source, target, strict=True))
    if any(count is None for count in times):
        raise n.wrong(f"the shape {list(x.shape)} cannot be expanded to {list(wanted)}")
    return repeated(n, n.view(x, source), tuple(count for count in times if count is not None))


def _expanded(extent: int, wanted: int) -> int | None:
    """Return how often an axis is repeated for `wanted`, None where that cannot be. Of sizes that are open, as little as may be is
    assumed: that they are equal, where the samples are."""
    if same(extent, wanted) or is_one(wanted):
        return 1
    if is_one(extent):
        return wanted
    if extent == wanted or wanted == 1:
        return 1
    if extent == 1:
        return wanted
    return 1 if extent == wanted else None  # asked last, so that a refusal says of open sizes that these have to be equal


def tile(n: Site) -> Value:
    """Version 1 repeats one axis."""
    x = n.arg(0)
    if n.node.since < 6:
        (count,), (given,) = _constant_numbers(n, 1) or (1,), _constant_numbers(n, 2) or (0,)
        axis = n.axis_of(given, len(x.shape))
        times = tuple(count if k == axis else 1 for k in range(len(x.shape)))
    else:
        times = n.constant_ints(1) or ()
    if len(times) != len(x.shape) or any(t < 0 for t in times):
        raise n.wrong(f"{list(times)} does not say how often to repeat the axes of {list(x.shape)}")
    return repeated(n, x, times)


def repeated(n: Site, x: Value, times: tuple[int, ...]) -> Value:
    array = n.array(x)
    if all(map(is_one, times)):
        return x
    shape = tuple(a * b for a, b in zip(x.shape, times, strict=True))
    if not is_open(shape) and prod(shape) == 0:
        return n.filled(shape, x.dtype)
    if array is not None and array.size == 1 and not is_open(shape):
        return n.filled(shape, x.dtype, array.reshape(()).item())
    return _repeated_in_front(n, x, times, shape)


def _repeated_in_front(n: Site, x: Value, times: tuple[int, ...], shape: tuple[int, ...]) -> Value:
    """Return `x` with each axis `times` times: as a whole, by an axis in front of it, so that no element asks for a remainder."""
    apart = [k for k, extent in enumerate(x.shape) if not is_one(extent) and not is_one(times[k])]
    source = [part for k, extent in enumerate(x.shape) for part in ((1, extent) if k in apart else (extent,))]
    counts = [part for k, count in enumerate(times) for part in ((count, 1) if k in apart else (count,))]
    axes = axes_of(len(source))
    index: list[Expr] = [Name(axis) if is_one(count) else Int(0) for axis, count in zip(axes, counts, strict=True)]
    result = Tensor("y", x.dtype, tuple(to_expr(extent * count) for extent, count in zip(source, counts, strict=True)))
    param = Tensor("x", x.dtype, tuple(map(to_expr, source)))
    (made,) = n.apply(single("tile", (param,), result, axes, Read("x", tuple(index))), (n.view(x, source),))
    return n.view(made, shape)


def pad(n: Site) -> Value:
    x = n.arg(0)
    rank = len(x.shape)
    mode = n.text("mode", "constant", ("constant", "edge", "reflect", "wrap"))
    given = n.integers("pads" if n.node.since >= 2 else "paddings") if n.node.since < 11 else n.constant_ints(1) or ()
    axes = n.axes_of(n.constant_ints(3) or (), rank) if n.node.since >= 18 and n.maybe(3) is not None else tuple(range(rank))
    if len(given) != 2 * len(axes):
        raise n.wrong(f"{len(given)} numbers for the padding of {len(axes)} axes")
    lo, hi = [0] * rank, [0] * rank
    for k, axis in enumerate(axes):
        lo[axis], hi[axis] = given[k], given[k + len(axes)]
    if any(extent + a + b < 0 for extent, a, b in zip(x.shape, lo, hi, strict=True)):
        raise n.wrong(f"the padding {list(given)} leaves less than nothing of the shape {list(x.shape)}")
    if all(same(count, 0) for count in (*lo, *hi)):
        return x
    if mode != "constant":
        return _repeating(n, mode, x, lo, hi)
    if n.node.since < 11:
        value: Value | None = n.filled((), x.dtype, n.real("value", 0.0))
    else:
        value = n.maybe(2)
    if value is None:
        value = n.constant(np.zeros((), x.dtype.numpy))
    if prod(value.shape) != 1 or value.dtype != x.dtype:
        raise n.wrong(f"the fill must be one {x.dtype}, not {value.dtype}{list(value.shape)}")
    return n.op("pad", x, n.view(value, ()), lo=tuple(lo), hi=tuple(hi))


def _repeating(n: Site, mode: str, x: Value, lo: list[int], hi: list[int]) -> Value:
    """Return `x` cut where the padding is negative, and then what is left of it repeated where it is positive."""
    for axis, extent in enumerate(x.shape):
        before, after = max(0, -lo[axis]), max(0, -hi[axis])
        x = slice_axis(n, x, axis, before, max(0, extent - before - after))
    lo, hi = [max(0, k) for k in lo], [max(0, k) for k in hi]
    if any(extent == 0 and a + b for extent, a, b in zip(x.shape, lo, hi, strict=True)):
        raise n.wrong("there is nothing to repeat along an axis without elements")
    if 0 in x.shape:
        return n.filled(tuple(extent + a + b for extent, a, b in zip(x.shape, lo, hi, strict=True)), x.dtype)
    for extent, before, after in zip(x.shape, lo, hi, strict=True):
        if mode == "reflect" and isinstance(extent, Size) and not (extent > before and extent > after):
            raise OpenSize(extent)  # thrown back more than once
    return n.op(f"pad_{mode}", x, lo=tuple(lo), hi=tuple(hi)) if any((*lo, *hi)) else x


def center_crop_pad(n: Site) -> Value:
    """Each axis is slice_axis or filled with zeros to its new extent, evenly, the odd element at the end."""
    x = n.arg(0)
    rank = len(x.shape)
    wanted = n.constant_ints(1) or ()
    axes = n.axes_of(n.integers("axes"), rank) if n.has("axes") else tuple(range(rank))
    if len(axes) != len(wanted) or any(extent < 0 for extent in wanted):
        raise n.wrong(f"the extents {list(wanted)} for the axes {list(axes)}")
    lo, hi = [0] * rank, [0] * rank
    for axis, extent in zip(axes, wanted, strict=True):
        more = extent - x.shape[axis]
        lo[axis] = more // 2 if more > 0 else -(-more // 2)
        hi[axis] = more - lo[axis]
    if not any((*lo, *hi)):
        return x
    return n.op("pad", x, n.constant(np.zeros((), x.dtype.numpy)), lo=tuple(lo), hi=tuple(hi))


def trilu(n: Site) -> Value:
    x = n.arg(0)
    if len(x.shape) < 2:
        raise n.wrong("the input must be a matrix, or several")
    k = n.constant_ints(1) or (0,)
    if len(k) != 1:
        raise n.wrong("the diagonal must be one integer")
    return on_diagonals(n, x, k[0], None) if n.flag("upper", True) else on_diagonals(n, x, None, k[0])


def on_diagonals(n: Site, x: Value, first: int | None, last: int | None) -> Value:
    """Return matrices with 0 below their diagonal `first` and above `last`, None for all there are."""
    bound = sum(x.shape[-2:])
    for operator, k in (("triangle_upper", first), ("triangle_lower", last)):
        if k is not None:
            x = n.op(operator, x, k=k if is_open((*x.shape, k)) else max(-bound, min(bound, k)))
    return x


def depth_to_space(n: Site) -> Value:
    x = n.arg(0)
    size = n.integer("blocksize", 1, low=1)
    if len(x.shape) != 4 or x.shape[1] % (size * size):
        raise n.wrong(f"blocks of {size} do not fit the shape {list(x.shape)}")
    batch, channels, height, width = x.shape
    depth = channels // (size * size)
    if n.text("mode", "DCR", ("DCR", "CRD")) == "DCR":
        parts, perm = (batch, size, size, depth, height, width), (0, 3, 4, 1, 5, 2)
    else:
        parts, perm = (batch, depth, size, size, height, width), (0, 1, 4, 2, 5, 3)
    return n.view(transposed(n, n.view(x, parts), perm), (batch, depth, height * size, width * size))


def space_to_depth(n: Site) -> Value:
    x = n.arg(0)
    size = n.integer("blocksize", 1, low=1)
    if len(x.shape) != 4 or x.shape[2] % size or x.shape[3] % size:
        raise n.wrong(f"blocks of {size} do not fit the shape {list(x.shape)}")
    batch, channels, height, width = x.shape
    parts = n.view(x, (batch, channels, height // size, size, width // size, size))
    by_depth = n.text("mode", "DCR", ("DCR", "CRD")) == "DCR"
    return n.view(
        transposed(n, parts, (0, 3, 5, 1, 2, 4) if by_depth else (0, 1, 3, 5, 2, 4)),
        (batch, channels * size * size, height // size, width // size),
    )


RULES = (
    Entry("Reshape", 1, 25, reshape),
    Entry("Flatten", 1, 25, flatten),
    Entry("Squeeze", 1, 25, squeeze),
    Entry("Unsqueeze", 1, 25, unsqueeze),
    Entry("Transpose", 1, 25, transpose),
    Entry("Concat", 1, 13, concat),
    Entry("Split", 1, 18, split),
    Entry("Slice", 1, 13, slice_),
    Entry("Expand", 8, 13, expand),
    Entry("Tile", 1, 13, tile),
    Entry("Pad", 1, 25, pad),
    Entry("CenterCropPad", 18, 18, center_crop_pad),
    Entry("Trilu", 14, 14, trilu),
    Entry("DepthToSpace", 1, 28, depth_to_space),
    Entry("SpaceToDepth", 1, 28, space_to_depth),
)
