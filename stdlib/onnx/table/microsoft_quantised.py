"""Quantised operators as onnxruntime writes them into models. Domain com.microsoft."""

from __future__ import annotations

from math import prod

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Rule, Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import microsoft
from stdlib.onnx.table.moving import joined, repeated, slice_axis, transposed
from stdlib.onnx.table.pooling import averaged, max_pool
from stdlib.onnx.table.quantised import dequantise, integer_product, quantise
from stdlib.onnx.table.reducing import reduced
from stdlib.onnx.tensors import unpacked
from tensorlang.graph.nodes import Value


def _real(n: Site, k: int) -> Value:
    """Return arguments `k` to `k` + 2, elements, their scale and their zero point, as the numbers that they stand for."""
    return _dequantised(n, n.arg(k), n.arg(k + 1), n.maybe(k + 2))


def _dequantised(n: Site, x: Value, scale: Value, zero: Value | None) -> Value:
    scale = n.view(scale, ()) if scale.shape == (1,) else scale
    zero = n.constant(np.zeros((), x.dtype.numpy)) if zero is None else zero
    return n.op("dequantise", x, scale, n.view(zero, ()) if zero.shape == (1,) else zero)


def _stored(n: Site, y: Value, k: int, like: Value) -> Value:
    """Return numbers as elements, by the scale and the zero point that arguments `k` and `k` + 1 are."""
    zero = n.maybe(k + 1)
    zero = n.constant(np.zeros((), like.dtype.numpy)) if zero is None else n.view(zero, ())
    return n.op("quantise", y, n.view(n.arg(k), ()), zero)


def binary(operator: str) -> Rule:
    return lambda n: _stored(n, n.op(operator, _real(n, 0), _real(n, 3)), 6, n.arg(0))


def sigmoid(n: Site) -> Value:
    return _stored(n, n.op("map", _real(n, 0), f="sigmoid"), 3, n.arg(0))


def leaky_relu(n: Site) -> Value:
    return _stored(n, n.op("map_with", _real(n, 0), f="leaky_relu", a=n.real("alpha", 0.01)), 3, n.arg(0))


def softmax(n: Site) -> Value:
    x = n.arg(0)
    axis = n.axis("axis", -1, len(x.shape))
    return _stored(n, n.op("softmax", _real(n, 0), axis=axis), 3, x)


def average_pool(n: Site) -> Value:
    if n.flag("channels_last"):
        raise n.unsupported("channels_last = 1")
    return _stored(n, averaged(n, _real(n, 0)), 3, n.arg(0))


def where(n: Site) -> Value:
    return _stored(n, n.op("select", n.arg(0), _real(n, 1), _real(n, 4)), 7, n.arg(1))


def global_average(n: Site) -> Value:
    x = n.arg(0)
    first = 1 if n.flag("channels_last") else 2
    axes = range(first, first + len(x.shape) - 2)
    return _stored(n, reduced(n, "reduce_mean", _real(n, 0), tuple(axes), keep=True), 3, x)


def concat(n: Site) -> Value:
    parts = tuple(_real(n, k) for k in range(2, len(n.inputs), 3))
    found = joined(n, parts, n.axis("axis", 0, len(parts[0].shape)))
    return _stored(n, found, 0, n.arg(2))


def gemm(n: Site) -> Value:
    """alpha · a' · b' + c, where c counts in the scales of both; a result without a scale of its own stays a number."""
    a, b = n.arg(0), n.arg(3)
    a = transposed(n, a, (1, 0)) if n.flag("transA") else a
    b = transposed(n, b, (1, 0)) if n.flag("transB") else b
    s = integer_product(n, a, b, n.arg(2), n.arg(5))
    s = s if n.maybe(6) is None else n.op("add", s, n.arg(6))
    scale = n.op("mul", n.op("mul", n.arg(1), n.arg(4)), n.filled((), DTYPES["f32"], n.real("alpha", 1.0)))
    y = n.op("mul", cast(n, s, DTYPES["f32"]), n.view(scale, ()) if scale.shape == (1,) else scale)
    return y if n.maybe(7) is None else _stored(n, y, 7, n.arg(0))


def matmul_to_float(n: Site) -> Value:
    a, b, a_scale, b_scale = (n.arg(k) for k in range(4))
    zeros = [n.constant(np.zeros((), v.dtype.numpy)) if n.maybe(k) is None else n.arg(k) for k, v in ((4, a), (5, b))]
    return _scaled(n, integer_product(n, a, b, *zeros), n.op("mul", a_scale, b_scale), n.maybe(6))


def _scaled(n: Site, s: Value, scale: Value, bias: Value | None) -> Value:
    y = n.op("mul", cast(n, s, DTYPES["f32"]), n.view(scale, ()) if scale.shape == (1,) else scale)
    return y if bias is None else n.op("add", y, bias)


def dynamic_matmul(n: Site) -> Value:
    """The left side is quantised by its own range when the model runs."""
    a, b, scale, zero = n.arg(0), n.arg(1), n.arg(2), n.maybe(3)
    a_scale, a_zero = n.ops("dynamic_scale", n.view(a, (prod(a.shape),)))
    zero = n.constant(np.zeros((), b.dtype.numpy)) if zero is None else zero
    s = integer_product(n, n.op("quantise", a, a_scale, a_zero), b, a_zero, zero)
    return _scaled(n, s, n.op("mul", scale, a_scale), n.maybe(4))


def matmul_bits(n: Site) -> Value:
    """a · wᵀ, where w is [columns, blocks, bytes] of numbers of a few bits, with a scale and a zero point for each block."""
    a, w, scales, zeros = n.arg(0), n.arg(1), n.arg(2), n.maybe(3)
    if n.maybe(4) is not None:
        raise n.unsupported("g_idx")
    rows, columns = n.integer("K", 0, low=1), n.integer("N", 0, low=1)
    bits, size = n.integer("bits", 4), n.integer("block_size", 0, low=1)
    blocks = -(-rows // size)
    if bits not in (4, 8):
        raise n.unsupported(f"{bits} bits")
    if a.shape[-1:] != (rows,) or int(np.prod(w.shape)) != columns * blocks * size * bits // 8:
        raise n.wrong(f"values of the shapes {list(a.shape)} and {list(w.shape)} for {rows} rows and {columns} columns of {bits} bits")
    elements = n.view(_numbers(n, w, bits, columns * blocks * size), (columns, blocks, size))
    scale = cast(n, n.view(scales, (columns, blocks, 1)), a.dtype)
    if zeros is not None and zeros.dtype.is_float:
        real = n.op("sub", cast(n, elements, a.dtype), cast(n, n.view(zeros, (columns, blocks, 1)), a.dtype))
        matrix = n.op("mul", real, scale)
    else:
        if zeros is None:
            zero = n.constant(np.asarray(1 << (bits - 1), elements.dtype.numpy))
        else:
            width = int(np.prod(zeros.shape)) * 8 // bits // columns
            found = n.view(_numbers(n, zeros, bits, columns * width), (columns, width))
            zero = n.view(slice_axis(n, found, 1, 0, blocks), (columns, blocks, 1))
        matrix = n.op("dequantise", elements, scale, zero)
    matrix = slice_axis(n, n.view(matrix, (columns, blocks * size)), 1, 0, rows)
    y = n.op("gemm_nt", n.view(a, (prod(a.shape[:-1]), rows)), matrix, n.maybe(5) and n.view(n.arg(5), (1, columns)))
    return n.view(y, (*a.shape[:-1], columns))


def _numbers(n: Site, packed: Value, bits: int, count: int) -> Value:
    """Return the numbers of a few bits that bytes hold, the low ones first."""
    if bits == 8:
        return packed
    array = n.array(packed)
    if array is not None:
        return n.constant(unpacked(np.ascontiguousarray(array).reshape(-1), DTYPES["u4"], count))
    return n.op("unpack_nibbles", n.view(packed, (count // 2,)))


def gather_blocks(n: Site) -> Value:
    """Rows of a table of numbers of a few bits, with a scale and a zero point for each block along an axis."""
    x, ids, scales, zeros = n.arg(0), n.arg(1), n.arg(2), n.maybe(3)
    rank = len(x.shape)
    bits, size = n.integer("bits", 4), n.integer("block_size", 128, low=1)
    axis, along = n.axis("gather_axis", 0, rank), n.axis("quantize_axis", 1, rank)
    if x.dtype.bits == 8 and bits == 4:
        if along != rank - 1:
            raise n.unsupported("bytes of two numbers along another axis than the last")
        shape = (*x.shape[:-1], 2 * x.shape[-1])
        x = n.view(_numbers(n, x, 4, int(np.prod(shape))), shape)
        if zeros is None:
            zeros = n.filled(scales.shape, x.dtype, 8)
        else:
            each = n.view(_numbers(n, zeros, 4, 2 * int(np.prod(zeros.shape))), (*zeros.shape[:-1], 2 * zeros.shape[-1]))
            zeros = slice_axis(n, each, rank - 1, 0, scales.shape[-1])
    zeros = n.filled(scales.shape, x.dtype, 0) if zeros is None else zeros
    taken = [n.op("gather", value, ids, axis=axis) for value in (x, scales, zeros)]
    place = along if along < axis else along + len(ids.shape) - 1
    if along == axis:
        raise n.unsupported("blocks along the axis that is gathered")
    scale, zero = (_spread(n, value, place, size, taken[0].shape[place]) for value in taken[1:])
    return n.op("dequantise", taken[0], scale, zero)


def _spread(n: Site, value: Value, axis: int, size: int, extent: int) -> Value:
    split = n.view(value, (*value.shape[: axis + 1], 1, *value.shape[axis + 1 :]))
    each = repeated(n, split, tuple(size if k == axis + 1 else 1 for k in range(len(split.shape))))
    whole = n.view(each, (*value.shape[:axis], value.shape[axis] * size, *value.shape[axis + 1 :]))
    return slice_axis(n, whole, axis, 0, extent)


def max_pool_of_channels_last(n: Site) -> Value:
    x = n.arg(0)
    rank = len(x.shape)
    inner = Site(n.builder, n.node, (transposed(n, x, (0, rank - 1, *range(1, rank - 1))),), n.run_block, n.path)
    y = max_pool(inner)[0]
    assert y is not None
    return transposed(n, y, (0, *range(2, rank), 1))


RULES = (
    microsoft("QuantizeLinear", quantise),
    microsoft("DequantizeLinear", dequantise),
    microsoft("QLinearAdd", binary("add")),
    microsoft("QLinearMul", binary("mul")),
    microsoft("QLinearSigmoid", sigmoid),
    microsoft("QLinearLeakyRelu", leaky_relu),
    microsoft("QLinearSoftmax", softmax),
    microsoft("QLinearAveragePool", average_pool),
    microsoft("QLinearWhere", where),
    microsoft("QLinearGlobalAveragePool", global_average),
    microsoft("QLinearConcat", concat),
    microsoft("QGemm", gemm),
    microsoft("MatMulIntegerToFloat", matmul_to_float),
    microsoft("DynamicQuantizeMatMul", dynamic_matmul),
    microsoft("MatMulNBits", matmul_bits),
    microsoft("GatherBlockQuantized", gather_blocks),
    microsoft("NhwcMaxPool", max_pool_of_channels_last),
)
