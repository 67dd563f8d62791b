"""Quantised operators as onnxruntime writes them into models. Domain com.microsoft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from codegen.dtypes import DTYPES, DType
from stdlib.onnx.site import Result, Rule, Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import microsoft
from stdlib.onnx.table.microsoft import embedded
from stdlib.onnx.table.microsoft_attention import attended_heads
from stdlib.onnx.table.moving import joined, repeated, slice_axis, transposed
from stdlib.onnx.table.pooling import averaged, max_pool
from stdlib.onnx.table.quantised import dequantise, integer_product, qlinear_conv, quantise
from stdlib.onnx.table.recurrent import Activation, gate_limit, layer, lstm_states, of_direction
from stdlib.onnx.table.reducing import keeps_axes, reduced
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
    """Along one axis or, where the attribute `opset` is less than 13, over all axes from `axis` on."""
    x = n.arg(0)
    axis, real = n.axis("axis", -1, len(x.shape)), _real(n, 0)
    if n.integer("opset", 13) < 13:
        real = n.view(real, (prod(x.shape[:axis]), prod(x.shape[axis:])))
        return _stored(n, n.view(n.op("softmax", real, axis=1), x.shape), 3, x)
    return _stored(n, n.op("softmax", real, axis=axis), 3, x)


def average_pool(n: Site) -> Value:
    return _with_channels_second(n, lambda inner: _stored(inner, averaged(inner, _real(inner, 0)), 3, inner.arg(0)))


def convolution(n: Site) -> Value:
    return _with_channels_second(n, qlinear_conv)


def _with_channels_second(n: Site, rule: Callable[[Site], Value], last: bool | None = None) -> Value:
    """Return what a rule for channels in the second place makes of a node that has them in the last where `channels_last` says so."""
    if not (n.flag("channels_last") if last is None else last):
        return rule(n.like(*n.inputs))
    x = n.arg(0)
    rank = len(x.shape)
    y = rule(n.like(transposed(n, x, (0, rank - 1, *range(1, rank - 1))), *n.inputs[1:]))
    return transposed(n, y, (0, *range(2, rank), 1))


def reduced_mean(n: Site) -> Value:
    x = n.arg(0)
    axes = n.axes_of(n.integers("axes", range(len(x.shape))), len(x.shape))
    return _stored(n, reduced(n, "reduce_mean", _real(n, 0), axes, keep=keeps_axes(n)), 3, x)


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
    n.without_effect("accuracy_level")
    n.integer("weight_prepacked", 0, 0, 0)
    rows, columns = n.integer("K", 0, low=1), n.integer("N", 0, low=1)
    bits, size = n.integer("bits", 4), n.integer("block_size", 0, low=1)
    blocks = -(-rows // size)
    if a.shape[-1:] != (rows,) or int(np.prod(w.shape)) != columns * blocks * size * bits // 8:
        raise n.wrong(f"values of the shapes {list(a.shape)} and {list(w.shape)} for {rows} rows and {columns} columns of {bits} bits")
    elements = n.view(_numbers(n, w, bits, columns * blocks * size), (columns, blocks * size))
    if zeros is None:
        zeros = n.constant(np.asarray(1 << (bits - 1), elements.dtype.numpy))
    elif not zeros.dtype.is_float:
        width = int(np.prod(zeros.shape)) * 8 // bits // columns
        found = n.view(_numbers(n, zeros, bits, columns * width), (columns, width))
        zeros = cast(n, slice_axis(n, found, 1, 0, blocks), elements.dtype)
    each = [value if value.shape == () else n.view(value, (columns, blocks)) for value in (scales, zeros)]
    order = n.maybe(4)
    bias, count = n.maybe(5) and n.view(n.arg(5), (1, columns)), prod(a.shape[:-1])
    if order is not None:  # rows lie in blocks that it names
        each = [n.op("gather", value, slice_axis(n, order, 0, 0, rows), axis=1) if value.shape else value for value in each]
        elements = slice_axis(n, elements, 1, 0, rows)
        y = n.op("gemm_nt", n.view(a, (count, rows)), _weights(n, a.dtype, elements, *each), bias)
    else:
        each = [n.view(value, (columns, blocks, 1)) if value.shape else value for value in each]
        matrix = _weights(n, a.dtype, n.view(elements, (columns, blocks, size)), *each)
        if blocks * size == rows:
            y = n.op("gemm_nt_blocks", n.view(a, (count, blocks, size)), matrix, bias)
        else:
            whole = slice_axis(n, n.view(matrix, (columns, blocks * size)), 1, 0, rows)
            y = n.op("gemm_nt", n.view(a, (count, rows)), whole, bias)
    return n.view(y, (*a.shape[:-1], columns))


def _weights(n: Site, dtype: DType, elements: Value, scale: Value, zero: Value) -> Value:
    """Return the floats that quantised elements stand for; a zero point may be a float."""
    scale = cast(n, scale, dtype)
    if not zero.dtype.is_float:
        return n.op("dequantise", elements, scale, zero)
    return n.op("mul", n.op("sub", cast(n, elements, dtype), cast(n, zero, dtype)), scale)


def _numbers(n: Site, packed: Value, bits: int, count: int) -> Value:
    """Return the numbers of a few bits that bytes hold, the low ones first."""
    if bits == 8:
        return packed
    if bits not in (2, 4):
        raise n.unsupported(f"{bits} bits")
    array = n.array(packed)
    if array is not None:
        return n.constant(unpacked(np.ascontiguousarray(array).reshape(-1), DTYPES[f"u{bits}"], count))
    return n.op("unpack_bits", n.view(packed, (count * bits // 8,)), bits=bits)


def gather_blocks(n: Site) -> Value:
    """Rows of a table of numbers of a few bits, with a scale and a zero point for each block along an axis."""
    x, ids, scales, zeros = n.arg(0), n.arg(1), n.arg(2), n.maybe(3)
    rank = len(x.shape)
    bits, size = n.integer("bits", 4), n.integer("block_size", 128, low=1)
    axis, along = n.axis("gather_axis", 0, rank), n.axis("quantize_axis", 1, rank)
    if along == axis:
        raise n.unsupported("blocks along the axis that is gathered")
    if not x.dtype.is_integer:
        raise n.unsupported(f"elements of {x.dtype}")
    middle = 0
    if x.dtype == DTYPES["u8"]:
        x, middle = rows_of_numbers(n, x, bits), 1 << (bits - 1)
        if zeros is not None:
            zeros = slice_axis(n, rows_of_numbers(n, zeros, bits), rank - 1, 0, scales.shape[-1])
    blocks = tuple(-(-extent // size) if k == along else extent for k, extent in enumerate(x.shape))
    if scales.shape != blocks or (zeros is not None and zeros.shape != blocks):
        raise n.wrong(f"scales of the shape {list(scales.shape)} for the shape {list(x.shape)} in blocks of {size} along axis {along}")
    zeros = n.filled(scales.shape, x.dtype, middle) if zeros is None else cast(n, zeros, x.dtype)
    taken = [n.op("gather", value, ids, axis=axis) for value in (x, scales, zeros)]
    place = along if along < axis else along + len(ids.shape) - 1
    scale, zero = (_spread(n, value, place, size, taken[0].shape[place]) for value in taken[1:])
    return n.op("dequantise", taken[0], scale, zero)


def rows_of_numbers(n: Site, x: Value, bits: int) -> Value:
    """Return the numbers of a few bits in rows of bytes."""
    shape = (*x.shape[:-1], x.shape[-1] * 8 // bits)
    return n.view(_numbers(n, x, bits, prod(shape)), shape)


def _spread(n: Site, value: Value, axis: int, size: int, extent: int) -> Value:
    split = n.view(value, (*value.shape[: axis + 1], 1, *value.shape[axis + 1 :]))
    each = repeated(n, split, tuple(size if k == axis + 1 else 1 for k in range(len(split.shape))))
    whole = n.view(each, (*value.shape[:axis], value.shape[axis] * size, *value.shape[axis + 1 :]))
    return slice_axis(n, whole, axis, 0, extent)


def max_pool_of_channels_last(n: Site) -> Value:
    def pooled(inner: Site) -> Value:
        y = max_pool(inner)[0]
        assert y is not None
        return y

    return _with_channels_second(n, pooled, last=True)


_FP4 = (0, 0.0052083333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495,
    0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
"""What sixteen numbers of four bits stand for, as bitsandbytes has them; of the first the negative ones follow."""


def matmul_of_sixteen(n: Site) -> Value:
    """a · wᵀ, where each weight is one of sixteen numbers times the scale of its block. Of two in a byte the first is the high half."""
    a, w, scales = n.arg(0), n.arg(1), n.arg(2)
    n.without_effect("training_mode")
    rows, columns, size = (n.integer(name, 0, low=1) for name in ("K", "N", "block_size"))
    count = rows * columns
    blocks = -(-count // size)
    if prod(w.shape) != (count + 1) // 2 or prod(scales.shape) != blocks or a.shape[-1:] != (rows,):
        raise n.wrong(
            f"values of the shapes {list(a.shape)}, {list(w.shape)} and {list(scales.shape)} for {rows} rows and {columns} columns"
        )
    if not n.flag("transB", True):
        raise n.unsupported("transB = 0")
    table = n.constant(np.array((*_FP4, *(-v for v in _FP4)) if n.integer("quant_type", 0, 0, 1) == 0 else _NF4, a.dtype.numpy))
    low_first = n.view(_numbers(n, w, 4, 2 * prod(w.shape)), (prod(w.shape), 2))
    pairs = joined(n, tuple(slice_axis(n, low_first, 1, k, 1) for k in (1, 0)), 1)
    codes = slice_axis(n, n.view(pairs, (2 * prod(w.shape),)), 0, 0, count)
    each = slice_axis(n, n.view(repeated(n, n.view(scales, (blocks, 1)), (1, size)), (blocks * size,)), 0, 0, count)
    elements = n.op("mul", n.op("gather", table, cast(n, codes, DTYPES["i64"]), axis=0), cast(n, each, a.dtype))
    y = n.op("gemm_nt", n.view(a, (prod(a.shape[:-1]), rows)), n.view(elements, (columns, rows)), None)
    return n.view(y, (*a.shape[:-1], columns))


def attention(n: Site) -> Result:
    """Attention whose projection is a product of quantised numbers."""
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = (n.maybe(k) for k in range(9))
    if x is None or w is None or bias is None or x_scale is None or w_scale is None:
        raise n.wrong("it needs an input and weights with their scales, and a bias")
    zeros = [n.constant(np.zeros((), v.dtype.numpy)) if z is None else z for v, z in ((x, x_zero), (w, w_zero))]
    found = _scaled(n, integer_product(n, x, w, *zeros), n.op("mul", n.view(x_scale, ()), w_scale), bias)
    return attended_heads(n, found, mask, past, None)


def embed_layer_norm(n: Site) -> Result:
    """Embeddings whose tables, scale and bias are quantised."""
    tables = [
        None if n.maybe(k) is None else _dequantised(n, n.arg(k), n.arg(scale), n.maybe(zero))
        for k, scale, zero in ((2, 8, 13), (3, 9, 14), (4, 10, 15), (5, 11, 16), (6, 12, 17))
    ]
    return embedded(n.like(n.item(0), n.item(1), *tables, n.item(7)))


def _quantised_lstm(
    n: Site, x: Value, d: int, size: int, lengths: Value, chosen: Sequence[Activation], batch_first: bool
) -> tuple[Value, ...]:
    """The input is quantised by its own range, as a whole, and states by theirs at each step."""
    (bias, h0, c0, peep), attrs = lstm_states(n, d, size, x.shape[1], chosen, batch_first)
    w, w_scale, w_zero, r, r_scale, r_zero = (of_direction(n, k, d) for k in (1, 8, 9, 2, 10, 11))
    rows = n.view(x, (prod(x.shape[:2]), x.shape[2]))
    a_scale, a_zero = n.ops("dynamic_scale", n.view(x, (prod(x.shape),)))
    found = integer_product(n, n.op("quantise", rows, a_scale, a_zero), w, a_zero, w_zero)
    projected = n.view(_scaled(n, found, n.op("mul", w_scale, a_scale), bias), (*x.shape[:2], 4 * size))
    r_scale, r_zero = (n.view(v, v.shape or (1,)) for v in (r_scale, r_zero))
    less = n.op("column_sums", r, r_zero)
    return n.ops("quantised_lstm", projected, r, r_scale, r_zero, less, h0, c0, lengths, peep, limit=gate_limit(n), **attrs)


def product_of_each(n: Site) -> Value:
    """Products of bytes less their zero points, as integers of 32 bits."""
    a, b = (_less_zero(n, n.arg(k), n.maybe(k + 1)) for k in (0, 2))
    return n.op("mul", a, b)


def _less_zero(n: Site, x: Value, zero: Value | None) -> Value:
    wide = cast(n, x, DTYPES["i32"])
    return wide if zero is None else n.op("sub", wide, n.view(cast(n, zero, DTYPES["i32"]), ()))


def sum_of_bytes(n: Site) -> Value:
    x = n.arg(0)
    axes = n.axes_of(n.integers("axes"), len(x.shape))
    return reduced(n, "reduce_sum", cast(n, x, DTYPES["u32" if x.dtype.kind == "uint" else "i32"]), axes, keeps_axes(n))


RULES = (
    microsoft("MulInteger", product_of_each),
    microsoft("ReduceSumInteger", sum_of_bytes),
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
    microsoft("QLinearConv", convolution),
    microsoft("QLinearReduceMean", reduced_mean),
    microsoft("MatMulBnb4", matmul_of_sixteen),
    microsoft("DynamicQuantizeLSTM", layer(4, 2, 3, _quantised_lstm, turned=True)),
    microsoft("QAttention", attention),
    microsoft("QEmbedLayerNormalization", embed_layer_norm),
)
