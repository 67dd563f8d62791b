"""DFT and STFT, as products with matrices of cosines and sines, in f64 whatever the numbers are: rounding adds up over a whole axis.

A transform of P*Q elements is one of P elements for every Q-th of them, and one of Q elements of what those give (Cooley and Tukey 1965):

    z[q, u]      = sum(p < P) x[Q*p + q] * w^(Q*p*u)                 w = exp(-2*pi*i / (P*Q)), of an inverse its conjugate
    y[u + P*v]   = sum(q < Q) z[q, u] * w^(q*(u + P*v))

Complex numbers are real and imaginary parts, so each sum is a product of real matrices.
"""

from __future__ import annotations

from math import isqrt, prod

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.model import Array
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
    rank, kept = len(x.shape), smaller(rows, x.shape[axis])
    wide = cast(n, slice_axis(n, x, axis, 0, kept), DTYPES["f64"])
    order = (*(k for k in range(rank) if k not in (axis, rank - 1)), rank - 1, axis)
    moved = transposed(n, wide, order)
    known = isinstance(length, int) and isinstance(kept, int)
    y = (_of_factors if known else _whole)(n, moved, length, columns, inverse, real)
    back = (*range(axis), rank - 2, *range(axis, rank - 2), rank - 1)
    return cast(n, transposed(n, y, back), x.dtype)


def _whole(n: Site, x: Value, length: int, columns: int, inverse: bool, real: bool) -> Value:
    """Return the transform of rows of real and imaginary parts as one product with tables, which are computed for the length that comes."""
    parts, kept = x.shape[-2:]
    cosines, sines = n.table("dft_matrix", rows=kept, columns=columns, length=length, inverse=int(inverse), half=int(real))

    def product(part: int, table: Value) -> Value:
        flat = n.view(slice_axis(n, x, len(x.shape) - 2, part, 1), (prod(x.shape[:-2]), kept))
        return n.op("matmul", flat, table)

    re = product(0, cosines)
    im = None if real else product(0, sines)
    if parts == 2:
        re = n.op("sub", re, product(1, sines))
        im = None if im is None else n.op("add", im, product(1, cosines))
    found = [n.view(part, (*x.shape[:-2], columns, 1)) for part in (re, im) if part is not None]
    return joined(n, tuple(found), len(x.shape) - 1) if len(found) > 1 else found[0]


FACTORED = 4
"""How many times the elements of two shorter transforms a transform has to be long to be computed as these."""


def _of_factors(n: Site, x: Value, length: int, columns: int, inverse: bool, real: bool) -> Value:
    """Return the transform of rows of real and imaginary parts as two shorter ones, where its length has factors."""
    *outside, parts, kept = x.shape
    if real:  # of every pair of conjugates one is there
        weight = np.array([2.0 if 0 < 2 * k < length else 1.0 for k in range(kept)])
        x = n.op("mul", x, n.constant(weight))
    sign, (p, q) = 1 if inverse else -1, _factors(length)
    batch, results = prod(outside), 1 if real else 2

    def roots(powers: Array) -> Array:
        return np.exp(sign * 2j * np.pi / length * (powers % length))

    if p == 1:
        q, z = kept, n.view(x, (1, batch, parts * kept))
    else:
        count = -(-kept // q)
        filled = n.filled((*outside, parts, count * q - kept), x.dtype)
        x = joined(n, (x, filled), len(outside) + 1) if count * q > kept else x
        x = transposed(n, n.view(x, (batch, parts, count, q)), (0, 3, 1, 2))
        z = _product(n, n.view(x, (batch * q, parts * count)), roots(q * np.outer(np.arange(count), np.arange(p))), parts, 2)
        z, parts = n.view(transposed(n, n.view(z, (batch, q, 2, p)), (3, 0, 2, 1)), (p, batch, 2 * q)), 2
    v = -(-columns // p)
    at = np.arange(p)[:, None, None] + p * np.arange(v)
    y = _product(n, z, roots(np.arange(q)[:, None] * at) / (length if inverse else 1), parts, results)
    y = transposed(n, n.view(y, (p, batch, results, v)), (1, 3, 0, 2))
    return n.view(slice_axis(n, n.view(y, (batch, v * p, results)), 1, 0, columns), (*outside, columns, results))


def _factors(length: int) -> tuple[int, int]:
    """Return the lengths of two transforms that one of `length` elements is made of, as near to each other as there are; the first is 1
    where one product takes no longer."""
    p = next(p for p in range(isqrt(length), 0, -1) if length % p == 0)
    return (p, length // p) if FACTORED * (p + length // p) <= length else (1, length)


def _product(n: Site, x: Value, table: Array, parts: int, results: int) -> Value:
    """Return the product of complex numbers, whose real and imaginary `parts` lie side by side in the rows of `x`, with matrices of complex
    numbers: real and imaginary parts side by side as well, or, where one of the `results` is asked for, the real ones alone."""
    n.small(parts * results * table.size, "the table of cosines and sines")
    rows = np.concatenate([table, 1j * table][:parts], -2)
    return n.op("matmul", x, n.constant(np.concatenate([rows.real, rows.imag][:results], -1)))


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
