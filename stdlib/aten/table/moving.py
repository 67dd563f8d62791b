"""Elements that move, or only change the shape of what they are in."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call, Rule
from stdlib.aten.table.making import open_range
from stdlib.onnx.table.moving import clamped, joined, repeated, slice_axis, transposed
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import is_one, is_open, larger, same, smaller

LARGEST = 2**63 - 1
"""What torch writes for the end of an axis."""


def view(n: Call, x: Value, size: Sequence[int], **_: Any) -> Value:
    return n.reshaped(x, tuple(size))


def flatten(n: Call, x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    rank = len(x.shape)
    if not rank:
        return n.view(x, (1,))
    first, last = n.axis(start_dim, rank), n.axis(end_dim, rank)
    return n.view(x, (*x.shape[:first], prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def permute(n: Call, x: Value, dims: Sequence[int]) -> Value:
    return transposed(n, x, n.axes(tuple(dims), len(x.shape))) if x.shape else x


def transpose(n: Call, x: Value, dim0: int = 0, dim1: int = 1) -> Value:
    """Two axes in each other's place; less than two stay as they are."""
    rank = len(x.shape)
    if rank < 2:
        return x
    order = list(range(rank))
    a, b = n.axis(dim0, rank), n.axis(dim1, rank)
    order[a], order[b] = b, a
    return transposed(n, x, tuple(order))


def expand(n: Call, x: Value, size: Sequence[int], *, implicit: bool = False) -> Value:
    source = (1,) * (len(size) - len(x.shape)) + x.shape
    wanted = tuple(a if same(b, -1) else b for a, b in zip(source, size, strict=True))
    times = tuple(b if is_one(a) else 1 for a, b in zip(source, wanted, strict=True))
    return repeated(n, n.view(x, source), times)


def repeat(n: Call, x: Value, repeats: Sequence[int]) -> Value:
    return repeated(n, n.view(x, (1,) * (len(repeats) - len(x.shape)) + x.shape), tuple(repeats))


def squeeze(n: Call, x: Value, dim: int | Sequence[int] | None = None) -> Value:
    axes = n.axes(dim, len(x.shape)) if dim is not None and dim != () else tuple(range(len(x.shape)) if dim is None else ())
    return n.view(x, tuple(extent for k, extent in enumerate(x.shape) if k not in axes or not is_one(extent)))


def unsqueeze(n: Call, x: Value, dim: int) -> Value:
    at = dim + len(x.shape) + 1 if dim < 0 else dim
    return n.view(x, (*x.shape[:at], 1, *x.shape[at:]))


def cat(n: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Vectors without elements do not count, whatever the others are."""
    parts = [t for t in tensors if not (len(t.shape) == 1 and same(t.shape[0], 0))] or list(tensors[:1])
    parts = [n.cast(t, n.dtype) for t in parts]
    return joined(n, tuple(parts), n.axis(dim, len(parts[0].shape)))


def stack(n: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    return cat(n, [unsqueeze(n, n.cast(t, n.dtype), dim) for t in tensors], dim)


def split(n: Call, x: Value, split_size: int, dim: int = 0) -> tuple[Value, ...]:
    axis = n.axis(dim, len(x.shape))
    extent = x.shape[axis]
    starts = range(0, extent, split_size) if extent and split_size else (0,)
    return tuple(slice_axis(n, x, axis, start, min(split_size, extent - start)) for start in starts)


def split_with_sizes(n: Call, x: Value, split_sizes: Sequence[int], dim: int = 0) -> tuple[Value, ...]:
    axis, start, parts = n.axis(dim, len(x.shape)), 0, []
    for size in split_sizes:
        parts.append(slice_axis(n, x, axis, start, size))
        start = start + size
    return tuple(parts)


def chunk(n: Call, x: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    extent = x.shape[n.axis(dim, len(x.shape))]
    return split(n, x, -(-extent // chunks), dim)


def slice_(n: Call, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    axis = n.axis(dim, len(x.shape))
    extent = x.shape[axis]
    last = extent if end is None or same(end, LARGEST) else end
    first, count = clamped(start or 0, last, step, extent)
    if same(count, extent) and step == 1:
        return x
    length = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    if same(count, 0):
        return n.filled(length, x.dtype)
    starts, steps = [0] * len(x.shape), [1] * len(x.shape)
    starts[axis], steps[axis] = first, step
    return n.op("slice", x, start=tuple(starts), step=tuple(steps), length=length)


def narrow(n: Call, x: Value, dim: int, start: int, length: int) -> Value:
    axis = n.axis(dim, len(x.shape))
    if not start + length <= x.shape[axis]:
        raise n.wrong(f"{length} elements from {start} on of {x.shape[axis]}")
    return slice_axis(n, x, axis, start, length)


def select(n: Call, x: Value, dim: int, index: int) -> Value:
    axis = n.axis(dim, len(x.shape))
    return n.view(slice_axis(n, x, axis, _place(n, x, axis, index), 1), (*x.shape[:axis], *x.shape[axis + 1 :]))


def _place(n: Call, x: Value, axis: int, index: int) -> int:
    """Return where an index, which may count from the end, lies on an axis that has it."""
    at = index + x.shape[axis] if index < 0 else index
    if at < 0 or at >= x.shape[axis]:
        raise n.wrong(f"the index {index} into {x.shape[axis]} elements")
    return at


def unbind(n: Call, x: Value, dim: int = 0) -> tuple[Value, ...]:
    return tuple(select(n, x, dim, k) for k in range(x.shape[n.axis(dim, len(x.shape))]))


def slice_scatter(n: Call, x: Value, src: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    """`x` with `src` in the place of a slice: what stands before it, `src`, and what stands behind."""
    axis = n.axis(dim, len(x.shape))
    extent = x.shape[axis]
    first, count = clamped(start or 0, extent if end is None or same(end, LARGEST) else end, step, extent)
    if step != 1:
        return n.op("replace_slice", x, n.cast(src, x.dtype), axis=axis, start=first, step=step) if not same(count, 0) else x
    return _replaced(n, x, n.cast(src, x.dtype), axis, first, count)


def select_scatter(n: Call, x: Value, src: Value, dim: int, index: int) -> Value:
    axis = n.axis(dim, len(x.shape))
    at = _place(n, x, axis, index)
    return _replaced(n, x, n.view(n.cast(src, x.dtype), (*x.shape[:axis], 1, *x.shape[axis + 1 :])), axis, at, 1)


def _replaced(n: Call, x: Value, part: Value, axis: int, first: int, count: int) -> Value:
    if same(count, x.shape[axis]):
        return part
    after = x.shape[axis] - first - count
    parts = [slice_axis(n, x, axis, 0, first)] if not same(first, 0) else []
    parts += [part] if not same(count, 0) else []
    parts += [slice_axis(n, x, axis, first + count, after)] if not same(after, 0) else []
    return joined(n, tuple(parts), axis)


def flip(n: Call, x: Value, dims: Sequence[int]) -> Value:
    axes = n.axes(tuple(dims), len(x.shape)) if dims else ()
    turned = [k for k in axes if not is_one(x.shape[k])]
    if not turned or not x.shape:
        return x
    start = tuple(x.shape[k] - 1 if k in turned else 0 for k in range(len(x.shape)))
    return n.op("slice", x, start=start, step=tuple(-1 if k in turned else 1 for k in range(len(x.shape))), length=x.shape)


def roll(n: Call, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    """Along no axis: over all elements."""
    if not dims:
        flat = n.view(x, (prod(x.shape),))
        return n.view(_rolled(n, flat, shifts[0], 0), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(n, x, shift, n.axis(dim, len(x.shape)))
    return x


def _rolled(n: Call, x: Value, shift: int, axis: int) -> Value:
    extent = x.shape[axis]
    if not extent:
        return x
    at = -shift % extent if extent <= abs(shift) else extent - shift if shift > 0 else -shift
    if same(at, 0):
        return x
    return joined(n, (slice_axis(n, x, axis, at, extent - at), slice_axis(n, x, axis, 0, at)), axis)


def padded(n: Call, x: Value, pad: Sequence[int], value: float = 0) -> Value:
    """Pairs of before and after, for the last axes, the last one first; negative ones cut off."""
    lo, hi = _sides(x, pad)
    if not any(not same(k, 0) for k in (*lo, *hi)):
        return x
    return n.op("pad", x, n.filled((), x.dtype, value), lo=lo, hi=hi)


def padded_by(mode: str) -> Rule:
    def rule(n: Call, x: Value, padding: Sequence[int]) -> Value:
        lo, hi = _sides(x, padding)
        return n.onnx("Pad", x, n.ints(*lo, *hi), mode=mode) if any((*lo, *hi)) else x

    return rule


def _sides(x: Value, pad: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    front = (0,) * (len(x.shape) - len(pad) // 2)
    return (*front, *reversed(pad[::2])), (*front, *reversed(pad[1::2]))


def triangle(operator: str) -> Rule:
    return lambda n, x, diagonal=0: n.op(operator, x, k=diagonal)


def diagonal(n: Call, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    rank = len(x.shape)
    a, b = n.axis(dim1, rank), n.axis(dim2, rank)
    rest = [k for k in range(rank) if k not in (a, b)]
    moved = transposed(n, x, (*rest, a, b))
    rows, columns = moved.shape[-2:]
    up, left = max(0, -offset), max(0, offset)
    count = larger(0, smaller(rows - up, columns - left))
    if same(count, 0):
        return n.filled((*moved.shape[:-2], 0), x.dtype)
    square = slice_axis(n, slice_axis(n, moved, rank - 2, up, count), rank - 1, left, count)
    return n.op("diagonal", square)


def unfold(n: Call, x: Value, dimension: int, size: int, step: int) -> Value:
    """Windows along an axis, their elements along a new last one; of a tensor without axes, its element so many times."""
    if not x.shape:
        return n.op("gather", n.view(x, (1,)), n.constant(np.zeros(size, np.int64)), axis=0)
    return n.op("unfold", x, axis=n.axis(dimension, len(x.shape)), length=size, step=step)


def strided(n: Call, x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Value:
    """Elements by where they lie in memory, which are those of `x` row by row."""
    start = storage_offset or 0
    flat = n.view(x, (prod(x.shape),))
    if is_open((*size, *stride, start, *x.shape)):
        at = n.value(start, DTYPES["i64"])
        for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
            along = n.op("mul", open_range(n, 0, extent, 1, DTYPES["i64"]), n.value(step, DTYPES["i64"]))
            at = n.op("add", at, n.view(along, (extent, *(1 for _ in size[axis + 1 :]))))
        return n.op("gather", flat, at, axis=0)
    places = np.full(tuple(size), start, np.int64)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(extent) * step).reshape((extent,) + (1,) * (len(size) - 1 - axis))
    n.small(places.size, "the view")
    if places.size and not 0 <= places.min() <= places.max() < prod(x.shape):
        raise n.wrong("elements outside of the tensor")
    return n.op("gather", flat, n.constant(places), axis=0)


def pixel_shuffle(n: Call, x: Value, upscale_factor: int) -> Value:
    return n.onnx("DepthToSpace", x, blocksize=upscale_factor, mode="CRD")  # type: ignore[no-any-return]


def pixel_unshuffle(n: Call, x: Value, downscale_factor: int) -> Value:
    f, (batch, channels, height, width) = downscale_factor, x.shape
    parts = n.view(x, (batch, channels, height // f, f, width // f, f))
    return n.view(transposed(n, parts, (0, 1, 3, 5, 2, 4)), (batch, channels * f * f, height // f, width // f))


def copied(n: Call, x: Value, src: Value, non_blocking: bool = False) -> Value:
    """`src` in the place of all elements of `x`."""
    return expand(n, n.cast(src, x.dtype), x.shape)


def view_as_type(n: Call, x: Value, dtype: Any) -> Value:
    if dtype == x.dtype:
        return x
    if dtype.bits != x.dtype.bits or DTYPES["bool"] in (dtype, x.dtype):
        raise n.unsupported(f"the bits of {x.dtype} as {dtype}")
    names = {"f32": "u32", "f64": "u64"}
    if x.dtype.name in names:
        return n.cast(n.op(f"bits_of_{x.dtype}", x), dtype)
    if dtype.name in names:
        return n.op(f"{dtype}_of_bits", n.cast(x, DTYPES[names[dtype.name]]))
    return n.cast(x, dtype)


RULES: dict[str, Rule] = {
    "view.dtype": view_as_type,
    "view": view,
    "_unsafe_view": view,
    "reshape": view,
    "_reshape_alias": view,
    "flatten": flatten,
    "permute": permute,
    "t": transpose,
    "transpose": transpose,
    "expand": expand,
    "repeat": repeat,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
    "cat": cat,
    "stack": stack,
    "split": split,
    "split_with_sizes": split_with_sizes,
    "chunk": chunk,
    "slice": slice_,
    "narrow": narrow,
    "select": select,
    "unbind": unbind,
    "slice_scatter": slice_scatter,
    "select_scatter": select_scatter,
    "flip": flip,
    "roll": roll,
    "constant_pad_nd": padded,
    **{f"reflection_pad{k}d": padded_by("reflect") for k in (1, 2, 3)},
    **{f"replication_pad{k}d": padded_by("edge") for k in (1, 2, 3)},
    "tril": triangle("triangle_lower"),
    "triu": triangle("triangle_upper"),
    "diagonal": diagonal,
    "unfold": unfold,
    "as_strided": strided,
    "pixel_shuffle": pixel_shuffle,
    "pixel_unshuffle": pixel_unshuffle,
    "copy": copied,
    "expand_as": lambda n, x, other: expand(n, x, other.shape),
    "view_as": lambda n, x, other: n.view(x, other.shape),
}
