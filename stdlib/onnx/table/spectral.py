"""DFT and STFT, as products with matrices of cosines and sines, in f64 whatever the numbers are: rounding adds up over a whole axis."""

from __future__ import annotations

from math import prod

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.moving import joined, slice_axis, transposed
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import smaller


def dft(n: Site) -> Value:
    """The last axis holds real and imaginary parts, or real ones alone."""
    x = n.arg(0)
    rank = len(x.shape)
    if n.node.since >= 20:
        axes = n.constant_ints(2)
        axis = n.axis_of(-2 if axes is None else axes[0], rank)
    else:
        axis = n.axis("axis", 1, rank)
    if rank < 2 or axis == rank - 1 or x.shape[-1] not in (1, 2):
        raise n.wrong(f"no axis {axis} of complex numbers in the shape {list(x.shape)}")
    given, inverse, onesided = n.constant_ints(1), n.flag("inverse"), n.flag("onesided")
    length = (2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]) if given is None else given[0]
    return transform(n, x, axis, length, inverse, onesided)


def transform(n: Site, x: Value, axis: int, length: int, inverse: bool, onesided: bool) -> Value:
    """Return the discrete Fourier transform of `x` along an axis, cut to `length` elements or filled with zeros."""
    if length < 1:
        raise n.wrong(f"a transform of {length} elements")
    real = inverse and onesided
    if real and x.shape[-1] != 2:
        raise n.wrong("the inverse of half a transform takes complex numbers")
    rows, columns = length // 2 + 1 if real else length, length // 2 + 1 if onesided and not inverse else length
    rank = len(x.shape)
    kept = smaller(rows, x.shape[axis])
    wide = cast(n, slice_axis(n, x, axis, 0, kept), DTYPES["f64"])
    order = (*(k for k in range(rank) if k not in (axis, rank - 1)), rank - 1, axis)
    moved = transposed(n, wide, order)
    cosines, sines = n.table("dft_matrix", rows=kept, columns=columns, length=length, inverse=int(inverse), half=int(real))
    parts = [n.view(slice_axis(n, moved, rank - 2, k, 1), (*moved.shape[:-2], kept)) for k in range(x.shape[-1])]
    re = _product(n, parts[0], cosines)
    im = None if real else _product(n, parts[0], sines)
    if len(parts) > 1:
        re = n.op("sub", re, _product(n, parts[1], sines))
        im = None if im is None else n.op("add", im, _product(n, parts[1], cosines))
    found = [n.view(part, (*part.shape, 1)) for part in (re, im) if part is not None]
    y = joined(n, tuple(found), rank - 1) if len(found) > 1 else found[0]
    back = (*range(axis), rank - 2, *range(axis, rank - 2), rank - 1)
    return cast(n, transposed(n, y, back), x.dtype)


def _product(n: Site, x: Value, table: Value) -> Value:
    flat = n.view(x, (prod(x.shape[:-1]), x.shape[-1]))
    return n.view(n.op("matmul", flat, table), (*x.shape[:-1], table.shape[1]))


def stft(n: Site) -> Value:
    """The signal is cut into pieces that begin `frame_step` apart, each times the window, and each transformed."""
    x, window = n.arg(0), n.maybe(2)
    step, length = n.constant_ints(1) or (0,), n.constant_ints(3)
    size = length[0] if length is not None else window.shape[0] if window is not None else 0
    if len(x.shape) not in (2, 3) or step[0] < 1 or not 0 < size <= x.shape[1]:
        raise n.wrong(f"pieces of {size} elements, {step[0]} apart, of a signal of the shape {list(x.shape)}")
    signal = x if len(x.shape) == 3 else n.view(x, (*x.shape, 1))
    count = (x.shape[1] - size) // step[0] + 1
    pieces = n.op("pieces", signal, count=count, length=size, step=step[0])
    if window is not None:
        if window.shape != (size,):
            raise n.wrong(f"a window of the shape {list(window.shape)} for pieces of {size} elements")
        pieces = n.op("mul", pieces, cast(n, n.view(window, (size, 1)), pieces.dtype))
    return transform(n, pieces, 2, size, False, n.flag("onesided", True))


RULES = (
    Entry("DFT", 17, 20, dft),
    Entry("STFT", 17, 17, stft),
)
