"""Quantised operators."""

from __future__ import annotations

from math import prod

import numpy as np

from codegen.dtypes import DTYPES, DType
from stdlib.onnx.site import Site
from stdlib.onnx.table.elementwise import cast, saturating_cast
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.moving import repeated, slice_axis
from stdlib.onnx.table.windows import pads, spatial
from stdlib.onnx.tensors import element_type
from tensorlang.graph.nodes import Value


def _parameter(n: Site, x: Value, value: Value) -> Value:
    """Return a scale or zero point in a shape that broadcasts against `x`: one number, one an index of `axis`, or one a block along it."""
    size = n.integer("block_size", 0, low=0)
    if value.shape in ((), (1,)) and not (size and len(x.shape) == 1):
        return n.view(value, ())
    axis = n.axis("axis", 1, len(x.shape))
    if size:
        return _of_blocks(n, x, value, axis, size)
    if value.shape != (x.shape[axis],):
        raise n.wrong(f"a scale or zero point of the shape {list(value.shape)} for the shape {list(x.shape)} along axis {axis}")
    return n.view(value, value.shape + (1,) * (len(x.shape) - axis - 1))


def _of_blocks(n: Site, x: Value, value: Value, axis: int, size: int) -> Value:
    """Return what is given for each block of `size` elements along `axis`, the last of which may be shorter, for each element of `x`."""
    blocks = -(-x.shape[axis] // size)
    if value.shape != (*x.shape[:axis], blocks, *x.shape[axis + 1 :]):
        raise n.wrong(
            f"a scale or zero point of the shape {list(value.shape)} for the shape {list(x.shape)} in blocks of {size} along axis {axis}"
        )
    split = n.view(value, (*value.shape[: axis + 1], 1, *value.shape[axis + 1 :]))
    each = repeated(n, split, tuple(size if k == axis + 1 else 1 for k in range(len(split.shape))))
    return slice_axis(n, n.view(each, (*x.shape[:axis], blocks * size, *x.shape[axis + 1 :])), axis, 0, x.shape[axis])


def _stored(n: Site, dtype: DType) -> DType:
    """Return a type that values are quantised to: integers, or floats of eight bits or fewer, whose zero point is zero."""
    if not dtype.is_integer and dtype.bits > 8:
        raise n.unsupported(f"the type {dtype}")
    return dtype


def quantise(n: Site) -> Value:
    """Values are divided in the type of `precision`, else in that of the scale."""
    x, zero = n.arg(0), n.maybe(2)
    x, scale = _divisible(n, x, n.arg(1))
    asked = _asked(n, "output_dtype") or DTYPES["u8"]
    dtype = _stored(n, asked if zero is None else zero.dtype)
    if dtype.is_float:
        return saturating_cast(n, n.op("div", x, _parameter(n, x, scale)), dtype)
    zero = n.constant(np.zeros((), dtype.numpy)) if zero is None else _parameter(n, x, zero)
    return n.op("quantise", x, _parameter(n, x, scale), zero)


def _divisible(n: Site, x: Value, scale: Value) -> tuple[Value, Value]:
    """Return values and their scale in the type that they are divided in: of integers in f64, which has all of 32 bits."""
    precision = _asked(n, "precision") or scale.dtype
    if not precision.is_float:
        precision = DTYPES["f64"]
    return cast(n, x, precision), cast(n, scale, precision)


def _asked(n: Site, attribute: str) -> DType | None:
    """Return the type that an attribute asks for, if it does."""
    number = n.integer(attribute, 0)
    return element_type(number, f"attribute `{attribute}`") if number else None


def dequantise(n: Site) -> Value:
    """The type of the result is what `output_dtype` says, else that of the scale: in which no more is multiplied than it holds."""
    x, scale = n.arg(0), n.arg(1)
    dtype = _asked(n, "output_dtype") or scale.dtype
    if dtype == scale.dtype and x.dtype.bits <= 8:
        return _dequantised(n, x, scale)
    wide = DTYPES["f64" if "f64" in (dtype.name, scale.dtype.name) else "f32"]
    return cast(n, _dequantised(n, x, cast(n, scale, wide)), dtype)


def _dequantised(n: Site, x: Value, scale: Value) -> Value:
    zero = n.maybe(2)
    if _stored(n, x.dtype).is_float:
        return n.op("mul", cast(n, x, scale.dtype), _parameter(n, x, scale))
    zero = n.constant(np.zeros((), x.dtype.numpy)) if zero is None else _parameter(n, x, zero)
    # Weights stay integers until the graph has seen whether they are multiplied as such.
    weights = n.array(x) is not None and len(x.shape) > 1 and x.dtype.bits == 8
    make = n.stated if weights else n.op
    return make("dequantise", x, _parameter(n, x, scale), zero)


def dynamic_quantise(n: Site) -> tuple[Value, Value, Value]:
    x = n.arg(0)
    scale, zero = n.ops("dynamic_scale", n.view(x, (prod(x.shape),)))
    return n.op("quantise", x, scale, zero), scale, zero


def _zero(n: Site, k: int, x: Value) -> Value:
    value = n.maybe(k)
    return n.constant(np.zeros((), x.dtype.numpy)) if value is None else value


def matmul_integer(n: Site) -> Value:
    return integer_product(n, n.arg(0), n.arg(1), _zero(n, 2, n.arg(0)), _zero(n, 3, n.arg(1)))


def integer_product(n: Site, a: Value, b: Value, a_zero: Value, b_zero: Value) -> Value:
    if not a.shape or not b.shape:
        raise n.wrong("a scalar cannot be multiplied as a matrix")
    row, column = len(a.shape) == 1, len(b.shape) == 1
    left = n.view(a, (1, *a.shape)) if row else a
    right = n.view(b, (*b.shape, 1)) if column else b
    a_zero, b_zero = (n.view(z, (1,)) if z.shape == () else z for z in (a_zero, b_zero))
    if len(a_zero.shape) > 1 or len(b_zero.shape) > 1:
        raise n.unsupported("zero points of more than one dimension")
    y = n.op("matmul_integer", left, right, a_zero, b_zero)
    return n.view(y, y.shape[:-2] + (() if row else y.shape[-2:-1]) + (() if column else y.shape[-1:]))


def qlinear_matmul(n: Site) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = n.args()
    a_scale, b_scale, y_scale = (cast(n, value, DTYPES["f32"]) for value in (a_scale, b_scale, y_scale))
    if any(len(s.shape) > 1 for s in (a_scale, b_scale, y_scale)):
        raise n.unsupported("scales of more than one dimension")
    rows = n.view(a_scale, (*a_scale.shape, 1)) if a_scale.shape not in ((), (1,)) else n.view(a_scale, ())
    scale = n.op("div", n.op("mul", rows, b_scale), y_scale)
    y_zero = n.view(y_zero, ()) if y_zero.shape == (1,) else y_zero
    if a.dtype.is_integer and b.dtype.is_integer and y_zero.dtype.is_integer:
        return n.op("requantise", integer_product(n, a, b, a_zero, b_zero), scale, y_zero)
    s = n.op("mul", n.op("matmul", _floats(n, a, a_zero, rows=True), _floats(n, b, b_zero)), scale)
    if _stored(n, y_zero.dtype).is_float:
        return saturating_cast(n, s, y_zero.dtype)
    return n.op("quantise", s, n.filled((), s.dtype, 1), y_zero)


def _floats(n: Site, x: Value, zero: Value, rows: bool = False) -> Value:
    """Return what quantised values stand for, but for their scale, in f32. The zero of floats of eight bits is zero."""
    wide = cast(n, x, DTYPES["f32"])
    if x.dtype.is_float:
        return wide
    zero = n.view(zero, (*zero.shape, 1)) if rows and zero.shape not in ((), (1,)) else zero
    return n.op("sub", wide, cast(n, zero, wide.dtype))


def conv_integer(n: Site) -> Value:
    return _integer_conv(n, n.arg(0), n.arg(1), _zero(n, 2, n.arg(0)), _zero(n, 3, n.arg(1)))


def _integer_conv(n: Site, x: Value, w: Value, xz: Value, wz: Value) -> Value:
    rank = spatial(n, x)
    group = n.integer("group", 1, low=1)
    if len(w.shape) != len(x.shape) or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise n.wrong(f"{x.shape[1]} channels in {group} groups do not fit a kernel of the shape {list(w.shape)}")
    kernel = n.integers("kernel_shape", w.shape[2:], low=1, count=rank)
    stride = n.integers("strides", (1,) * rank, low=1, count=rank)
    dilation = n.integers("dilations", (1,) * rank, low=1, count=rank)
    lo, hi = pads(n, x.shape[2:], kernel, stride, dilation)
    if wz.shape in ((), (1,)):
        wz = repeated(n, n.view(wz, (1,)), (w.shape[0],))
    return n.op("conv_integer", x, w, n.view(xz, ()), wz, group=group, stride=stride, dilation=dilation, lo=lo, hi=hi)


def qlinear_conv(n: Site) -> Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (n.arg(k) for k in range(8))
    s = _integer_conv(n, x, w, x_zero, w_zero)
    bias = n.maybe(8)
    if bias is not None:
        s = n.op("add", s, n.view(bias, bias.shape + (1,) * (len(s.shape) - 2)))
    scale = n.op("div", n.op("mul", w_scale, x_scale), y_scale)
    scale = n.view(scale, scale.shape + (1,) * (len(s.shape) - 2)) if scale.shape not in ((), (1,)) else n.view(scale, ())
    return n.op("requantise", s, scale, n.view(y_zero, ()))


RULES = (
    Entry("QuantizeLinear", 10, 28, quantise),
    Entry("DequantizeLinear", 10, 28, dequantise),
    Entry("DynamicQuantizeLinear", 11, 11, dynamic_quantise),
    Entry("MatMulInteger", 10, 10, matmul_integer),
    Entry("ConvInteger", 10, 10, conv_integer),
    Entry("QLinearMatMul", 10, 21, qlinear_matmul),
    Entry("QLinearConv", 10, 10, qlinear_conv),
)
