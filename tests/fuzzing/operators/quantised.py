"""Quantised arithmetic: scales and zero points, of tensors, axes and blocks; products of integers."""

from __future__ import annotations

import numpy as np

from fuzzing.network import TYPES, Array, NetDrawing, Rule
from fuzzing.operators import draw
from fuzzing.operators.windows import window


def _power_of_two(d: NetDrawing, shape: tuple[int, ...], dtype: str = "f32") -> Array:
    return np.array(2.0 ** np.array(d.random.choices((-2, -1, 0, 1), k=int(np.prod(shape)))), TYPES[dtype][1]).reshape(shape)


def _quantise(d: NetDrawing) -> None:
    dtype = d.random.choice(("f32", "f32", "f32", "f16"))
    to = d.random.choice(("i8", "u8", "i8", "u8", "i16", "u16"))
    x = draw.put(d, draw.parts(d, dtype, d.shape(), 0.5, 300), 0.1)
    a = d.values[x]
    per_axis = a.ndim > 0 and d.random.random() < 0.4
    axis = draw.axis(d, a.ndim) if per_axis else 0
    shape = (a.shape[axis],) if per_axis else d.random.choice(((), (), (1,)))
    scale = draw.put(d, _power_of_two(d, shape, dtype), 0.8)
    zero = draw.put(d, d.array(to, shape), 0.8) if d.random.random() < 0.8 else ""
    d.add("QuantizeLinear", [x, scale, zero], **({"axis": axis} if per_axis else {}))


def _dequantise(d: NetDrawing) -> None:
    dtype = d.random.choice(("i8", "u8", "i8", "u8", "i32", "i16", "u16"))
    x = d.some(dtype) or draw.value(d, dtype, d.shape())
    a = d.values[x]
    per_axis = a.ndim > 0 and d.random.random() < 0.4
    axis = draw.axis(d, a.ndim) if per_axis else 0
    shape = (a.shape[axis],) if per_axis else ()
    scale = draw.put(d, _power_of_two(d, shape, d.random.choice(("f32", "f32", "f16"))), 0.8)
    zero = draw.put(d, d.array(dtype, shape), 0.8) if dtype != "i32" and d.random.random() < 0.8 else ""
    d.add("DequantizeLinear", [x, scale, zero], rough=True, **({"axis": axis} if per_axis else {}))


def _in_blocks(d: NetDrawing) -> None:
    """Weights with a scale for each block of their elements, multiplied as they are wherever that is what comes of them."""
    dtype = d.random.choice(("i8", "u8", "i16", "i32"))
    shape = draw.shape(d, d.random.choice((1, 2, 2, 3)), (2, 3, 4, 5, 8))
    axis = draw.axis(d, len(shape))
    size = d.random.randint(1, shape[axis])
    blocks = tuple(-(-n // size) if k == axis % len(shape) else n for k, n in enumerate(shape))
    if d.random.random() < 0.7:
        x = draw.put(d, d.array(dtype, shape), 0.7)
        zero = draw.put(d, d.array(dtype, blocks), 0.8) if dtype != "i32" and d.random.random() < 0.6 else ""
        d.add("DequantizeLinear", [x, draw.put(d, _power_of_two(d, blocks), 0.8), zero], axis=axis, block_size=size, rough=True)
        return
    x = draw.put(d, draw.parts(d, "f32", shape, 0.5, 100), 0.1)
    zero = draw.put(d, d.array(d.random.choice(("i8", "u8")), blocks), 0.8)
    d.add("QuantizeLinear", [x, draw.put(d, _power_of_two(d, blocks), 0.8), zero], axis=axis, block_size=size)


def _bytes_of_floats(d: NetDrawing) -> None:
    kind = d.random.choice(("f8", "f8e5"))
    if d.random.random() < 0.5:
        zero = d.constant(np.zeros((), TYPES[kind][1]))
        d.add("QuantizeLinear", [draw.put(d, draw.parts(d, "f32", d.shape(), 1.0, 3), 0.1), d.constant(np.float32(0.5)), zero])
    else:
        d.add("DequantizeLinear", [draw.put(d, draw.parts(d, kind, d.shape(), 0.5, 3), 0.3), d.constant(np.float32(0.5))], rough=True)


def _dynamic(d: NetDrawing) -> None:
    a = draw.parts(d, "f32", d.random.choice(((2, 3), (5,), (2, 3, 4))), 0.5, 100).reshape(-1)
    a[0], a[-1] = -63.5, 64.0
    d.add("DynamicQuantizeLinear", [draw.put(d, a, 0.1)], 3)


def _integer_products(d: NetDrawing) -> None:
    m, k, n = draw.shape(d, 3, (1, 2, 3, 4, 8, 9))
    first, second = d.random.choice(("u8", "u8", "i8")), d.random.choice(("u8", "i8", "i8"))
    lead = draw.shape(d, d.random.choice((0, 0, 1)), (1, 2))
    a, b = _wide(d, first, (*lead, m, k)), _wide(d, second, (*lead, k, n))
    if d.random.random() < 0.5:
        az = draw.put(d, d.array(first, d.random.choice(((), (), (1,)))), 0.8) if d.random.random() < 0.7 else ""
        bz = draw.put(d, d.array(second, d.random.choice(((), (), (1,), (n,)))), 0.8) if d.random.random() < 0.7 else ""
        d.add("MatMulInteger", [a, b, az, bz])
        return
    out = d.random.choice(
        ("u8", "i8")
    )  # its zero point is even: what lies between two integers then rounds to the same, added before or after
    by_column = d.random.random() < 0.3
    scale = [draw.put(d, _power_of_two(d, s), 0.8) for s in ((), (n,) if by_column else (), ())]
    az, bz, yz = (
        draw.put(d, d.array(first, ()), 0.8),
        draw.put(d, d.array(second, (n,) if by_column else ()), 0.8),
        draw.put(d, 2 * d.array(out, ()), 0.8),
    )
    d.add("QLinearMatMul", [a, scale[0], az, b, scale[1], bz, scale[2], yz])


def _wide(d: NetDrawing, dtype: str, shape: tuple[int, ...], constant: float = 0.4) -> str:
    """Return bytes of their whole range."""
    rng = np.random.default_rng(d.random.getrandbits(32))
    limits = np.iinfo(TYPES[dtype][1])
    return draw.put(d, rng.integers(limits.min, limits.max + 1, shape).astype(TYPES[dtype][1]), constant)


def _integer_convs(d: NetDrawing) -> None:
    rank = d.random.choice((1, 2, 2))
    first, second = d.random.choice(("u8", "u8", "i8")), d.random.choice(("u8", "i8", "i8"))
    channels = d.random.choice((1, 2, 4, 8))
    x = _wide(d, first, (d.random.choice((1, 2)), channels, *draw.shape(d, rank, (3, 4, 5))), 0.1)
    attrs = {**window(d, d.values[x].shape[2:], False), **draw.maybe(d, 0.3, dilations=draw.dims(d, rank, 1, 2))}
    group = d.random.choice([g for g in range(1, channels + 1) if channels % g == 0])
    out = group * d.random.choice((1, 2, 3))
    weights = d.array(
        second, (out, channels // group, *attrs["kernel_shape"])
    )  # small: onnxruntime saturates sums of pairs on some machines
    w = draw.put(d, weights, 0.8)
    attrs |= {"group": group} if group > 1 else {}
    if d.random.random() < 0.4:
        xz = draw.put(d, d.array(first, ()), 0.8) if d.random.random() < 0.7 else ""
        wz = draw.put(d, d.array(second, d.random.choice(((), (out,)))), 0.8) if d.random.random() < 0.7 else ""
        d.add("ConvInteger", [x, w, xz, wz], **attrs)
        return
    result, per_channel = d.random.choice(("u8", "i8")), d.random.random() < 0.5
    shape = (out,) if per_channel else ()
    bias = [draw.put(d, d.array("i32", (out,)) * np.int32(100), 0.8)] if d.random.random() < 0.5 else []
    xs, ws, ys = (draw.put(d, _power_of_two(d, s), 0.8) for s in ((), shape, ()))
    xz, wz, yz = draw.put(d, d.array(first, ()), 0.8), draw.put(d, d.array(second, shape), 0.8), draw.put(d, 2 * d.array(result, ()), 0.8)
    d.add("QLinearConv", [x, xs, xz, w, ws, wz, ys, yz, *bias], **attrs)


RULES: tuple[Rule, ...] = (
    _quantise,
    _dequantise,
    _in_blocks,
    _bytes_of_floats,
    _dynamic,
    _integer_products,
    _integer_products,
    _integer_convs,
    _integer_convs,
)
