"""Operators of onnxruntime's own set, com.microsoft, apart from attention: activations and products that it fuses, normalisations, weights
and values of few bits, experts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fuzzing.network import TYPES, Array, NetDrawing, Rule
from fuzzing.operators import draw

DOMAIN = "com.microsoft"


def floats(d: NetDrawing, *shape: int, constant: float = 0.4, dtype: str = "f32") -> str:
    """Return multiples of an eighth between -1 and 1."""
    return draw.put(d, draw.parts(d, dtype, shape, 0.125, 8), constant)


def number(d: NetDrawing, *values: float) -> str:
    return d.constant(np.array(d.random.choice(values), np.float32))


def bytes_of(d: NetDrawing, *shape: int, dtype: str = "u8") -> Array:
    """Return any values of a type of eight bits."""
    rng = np.random.default_rng(d.random.getrandbits(32))
    info = np.iinfo(TYPES[dtype][1])
    return np.asarray(rng.integers(info.min, info.max, shape, endpoint=True), info.dtype)


def whole(d: NetDrawing, low: int, high: int, *shape: int, dtype: str = "i32") -> Array:
    rng = np.random.default_rng(d.random.getrandbits(32))
    return np.asarray(rng.integers(low, high, shape), TYPES[dtype][1])


def _matrix(d: NetDrawing) -> str:
    """Return a value of floats of two or more dimensions: one that is there, or a new one."""
    found = d.some("f32", least=2) if d.random.random() < 0.4 else None
    return found or floats(d, *draw.shape(d, d.random.choice((2, 2, 3, 4)), (1, 2, 3, 4, 7, 8)), constant=0.1)


def _activation(d: NetDrawing) -> None:
    x = d.some("f32") or floats(d, *d.shape())
    kind = d.random.choice(("FastGelu", "FastGelu", "Gelu", "QuickGelu", "BiasGelu", "Inverse", "UnfoldTensor"))
    last = d.values[x].shape[-1:]
    match kind:
        case "BiasGelu":
            d.add(kind, [x, floats(d, *last)], rough=True, domain=DOMAIN)
        case "FastGelu":
            d.add(kind, [x, floats(d, *last) if last and d.random.random() < 0.5 else ""], rough=True, domain=DOMAIN)
        case "QuickGelu":
            d.add(kind, [x], rough=True, domain=DOMAIN, **draw.maybe(d, 0.5, alpha=d.random.choice((1.0, 0.5, -2.0, 0.0))))
        case "Inverse":
            n = d.random.choice((1, 2, 3, 4))
            a = draw.parts(d, "f32", (*draw.shape(d, d.random.choice((0, 1)), (1, 2)), n, n), 0.125, 4)
            d.add(kind, [draw.put(d, (a + 4 * np.eye(n)).astype(np.float32))], rough=True, domain=DOMAIN)
        case "UnfoldTensor":
            if last and last[0]:
                size = d.random.randint(1, last[0])
                d.add(kind, [x], domain=DOMAIN, dim=-1, size=size, step=d.random.choice((1, 2, 3)))
        case _:
            d.add(kind, [x], rough=True, domain=DOMAIN)


def _fused_product(d: NetDrawing) -> None:
    a = _matrix(d)
    shape = d.values[a].shape
    ta, tb, n = d.random.random() < 0.3, d.random.random() < 0.4, d.random.choice((1, 2, 5, 8))
    k = shape[-2] if ta else shape[-1]
    attrs: dict[str, Any] = draw.maybe(d, 0.5, alpha=d.random.choice((0.5, -1.0, 2.0)))
    leading = shape[:-2] if d.random.random() < 0.4 else ()
    if d.random.random() < 0.25 and len(shape) == 2:
        c = floats(d, *d.random.choice(((n,), (1, n), (shape[1] if ta else shape[0], 1), (1,), ())))
        kind = d.random.choice(("Relu", "LeakyRelu", "Tanh", "Sigmoid", "Elu", "Softplus", "HardSigmoid", "Softsign"))
        given = {"LeakyRelu": {"activation_alpha": 0.2}, "Elu": {"activation_alpha": 0.7}}.get(kind, {})
        if kind == "HardSigmoid":
            given = {"activation_alpha": 0.3, "activation_beta": 0.4}
        b = floats(d, *((n, k) if tb else (k, n)))
        d.add("FusedGemm", [a, b, c], rough=True, domain=DOMAIN, transA=int(ta), transB=int(tb), activation=kind, **attrs, **given)
        return
    b = floats(d, *leading, *((n, k) if tb else (k, n)))
    if d.random.random() < 0.15:
        attrs |= {"transBatchA": 1} if len(shape) == 3 and not ta else {}
    kind = d.random.choice(("FusedMatMul", "FusedMatMul", "TransposeMatMul"))
    d.add(kind, [a, b], rough=True, domain=DOMAIN, transA=int(ta), transB=int(tb), **attrs)


def _fused_convolution(d: NetDrawing) -> None:
    c, f, groups = d.random.choice(((2, 4, 1), (4, 4, 4), (3, 2, 1), (4, 6, 2)))
    x = floats(d, d.random.choice((1, 2)), c, *draw.shape(d, 2, (3, 4, 5)), constant=0.0)
    w, b = floats(d, f, c // groups, 3, d.random.choice((1, 3))), floats(d, f)
    kind = d.random.choice(("Relu", "LeakyRelu", "Tanh", "Sigmoid", "Clip", "HardSigmoid", ""))
    params = {"LeakyRelu": [0.1], "Clip": [0.0, 1.5], "HardSigmoid": [0.25, 0.5]}.get(kind)
    attrs: dict[str, Any] = {"activation": kind} if kind else {}
    attrs |= {"activation_params": params} if params else {}
    given = [x, w, b if d.random.random() < 0.7 else ""]
    pads, strides = draw.dims(d, 4, 0, 1), draw.dims(d, 2, 1, 2)
    d.add("FusedConv", given, rough=True, domain=DOMAIN, group=groups, pads=pads, strides=strides, **attrs)


def _skip(d: NetDrawing) -> None:
    width = d.random.choice((1, 4, 5, 8, 16))
    shape = (*draw.shape(d, d.random.choice((1, 2)), (1, 2, 3)), width)
    x = draw.value(d, "f32", shape) if d.random.random() < 0.3 else floats(d, *shape, constant=0.1)
    skip = floats(d, *d.random.choice((shape, shape, shape[-2:], (1, *shape[1:]))))
    gamma, bias = floats(d, width), floats(d, width) if d.random.random() < 0.5 else ""
    eps = draw.maybe(d, 0.5, epsilon=d.random.choice((1e-3, 1e-1)))
    outputs, left = d.random.choice(((1, 0), (1, 0), (4, 2)))
    if d.random.random() < 0.5:
        beta = floats(d, width) if d.random.random() < 0.6 else ""
        d.add("SkipLayerNormalization", [x, skip, gamma, beta, bias], outputs, left=left, rough=True, domain=DOMAIN, **eps)
    else:
        d.add("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], outputs, left=left, rough=True, domain=DOMAIN, **eps)


def _normalised(d: NetDrawing) -> None:
    x = d.some("f32", least=1) or floats(d, *draw.shape(d, 3, (2, 3, 4)))
    shape = d.values[x].shape
    axis = d.random.randrange(len(shape))
    scale = floats(d, *shape[axis:])
    d.add("SimplifiedLayerNormalization", [x, scale], rough=True, axis=axis - d.random.choice((0, len(shape))), epsilon=1e-3)


def _embedding(d: NetDrawing) -> None:
    batch, length, width = d.random.choice((1, 2)), d.random.choice((1, 3, 5)), d.random.choice((4, 8))
    ids = draw.put(d, whole(d, 0, 7, batch, length), 0.1)
    segments = draw.put(d, whole(d, 0, 2, batch, length), 0.2) if d.random.random() < 0.6 else ""
    table = floats(d, 2, width) if segments else ""
    mask = draw.put(d, whole(d, 0, 2, batch, length), 0.2) if d.random.random() < 0.5 else ""
    positions = draw.put(d, whole(d, 0, 6, d.random.choice((1, batch)), length), 0.2) if d.random.random() < 0.4 else ""
    given = [ids, segments, floats(d, 7, width), floats(d, 6, width), table, floats(d, width), floats(d, width), mask, positions]
    outputs, left = d.random.choice(((2, 0), (2, 0), (3, 0)))
    attrs = draw.maybe(d, 0.4, epsilon=1e-2) | draw.maybe(d, 0.3, mask_index_type=0)
    d.add("EmbedLayerNormalization", given, outputs, left=left, rough=True, decided=True, domain=DOMAIN, **attrs)


def _few_bits(d: NetDrawing) -> None:
    """Products with weights of two, four or eight bits, in blocks."""
    bits, size = d.random.choice((2, 4, 4, 8)), d.random.choice((16, 16, 32, 64))
    k, n = d.random.choice((size, 2 * size, size + 8, 40, 24, size - 5)), d.random.choice((1, 3, 8))
    blocks = -(-k // size)
    a = floats(d, *draw.shape(d, d.random.choice((1, 1, 2)), (1, 2, 3)), k, constant=0.0)
    w = draw.put(d, bytes_of(d, n, blocks, size * bits // 8), 0.8)
    shape: tuple[int, ...] = d.random.choice(((n * blocks,), (n, blocks)))
    scales = floats(d, *shape, constant=0.8)
    zeros: str = ""
    row = -(-blocks * bits // 8)
    match d.random.randrange(4):
        case 0 | 1:
            zeros = draw.put(d, bytes_of(d, *((n * row,) if len(shape) == 1 else (n, row))), 0.8)
        case 2:
            zeros = floats(d, *shape, constant=0.8)
    order = ""
    if (
        d.random.random() < 0.2 and k % size == 0 and bits == 4 and not (zeros and d.values[zeros].dtype == np.uint8)
    ):  # which onnxruntime forgets then
        order = d.constant(whole(d, 0, blocks, k) if d.random.random() < 0.5 else (np.arange(k) // size).astype(np.int32))
    bias = floats(d, n) if d.random.random() < 0.3 else ""
    attrs = {"K": k, "N": n, "bits": bits, "block_size": size, **draw.maybe(d, 0.5, accuracy_level=d.random.choice((0, 1)))}
    d.add("MatMulNBits", [a, w, scales, zeros, order, bias], rough=True, domain=DOMAIN, **attrs)


def _rows_of_few_bits(d: NetDrawing) -> None:
    bits, size = d.random.choice((4, 4, 8, 2)), d.random.choice((16, 32))
    width = d.random.choice((size, 2 * size, 48))
    rows, blocks = d.random.choice((3, 5)), -(-width // size)
    table = draw.put(d, bytes_of(d, rows, width * bits // 8), 0.8)
    ids = draw.put(
        d, whole(d, -rows, rows, *draw.shape(d, d.random.choice((0, 1, 2)), (1, 2, 3)), dtype=d.random.choice(("i32", "i64"))), 0.2
    )
    zeros = draw.put(d, bytes_of(d, rows, -(-blocks * bits // 8)), 0.8) if d.random.random() < 0.5 else ""
    attrs = {"bits": bits, "block_size": size, "gather_axis": d.random.choice((0, 0, -2)), "quantize_axis": d.random.choice((1, -1))}
    d.add("GatherBlockQuantized", [table, ids, floats(d, rows, blocks, constant=0.8), zeros], rough=True, domain=DOMAIN, **attrs)


def _point(d: NetDrawing, dtype: str) -> str:
    return "" if d.random.random() < 0.2 else d.constant(bytes_of(d, dtype=dtype))


def _bytes(d: NetDrawing) -> None:
    """Operators on quantised values, each with a scale and a zero point."""
    dtype = d.random.choice(("u8", "i8"))
    kinds = ("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat", "QLinearSoftmax", "QLinearWhere")
    kind = d.random.choice((*kinds, "QLinearGlobalAveragePool", "QLinearAveragePool"))
    add = partial(d.add, kind, late=True, domain=DOMAIN)
    scale = partial(number, d, 0.5, 0.05, 1.0, 0.0123)
    shape = draw.shape(d, 4, (3, 4, 5)) if "Pool" in kind else d.shape()
    x = draw.put(d, bytes_of(d, *shape, dtype=dtype), 0.1)
    to = [scale(), d.constant(bytes_of(d, dtype=dtype))]  # onnxruntime asks for the last input of some without looking for it
    match kind:
        case "QLinearAdd" | "QLinearMul":
            other = draw.put(d, bytes_of(d, *draw.broadcast(d, shape), dtype=dtype))
            add([x, scale(), _point(d, dtype), other, scale(), _point(d, dtype), *to])
        case "QLinearSigmoid":
            add([x, scale(), _point(d, dtype), number(d, 1 / 256, 0.01), d.constant(bytes_of(d, dtype=dtype))])
        case "QLinearLeakyRelu":
            add([x, scale(), _point(d, dtype), *to], **draw.maybe(d, 0.7, alpha=d.random.choice((0.2, 1.5, -0.3))))
        case "QLinearConcat" if shape:
            axis = d.random.randrange(len(shape))
            parts = []
            for _ in range(d.random.choice((1, 2, 3))):
                part = (*shape[:axis], d.random.choice((1, 2, 3)), *shape[axis + 1 :])
                parts += [draw.put(d, bytes_of(d, *part, dtype=dtype)), scale(), d.constant(bytes_of(d, dtype=dtype))]
            add([scale(), d.constant(bytes_of(d, dtype=dtype)), *parts], axis=axis - d.random.choice((0, len(shape))))
        case "QLinearSoftmax" if shape:
            axis = d.random.randrange(-len(shape), len(shape))
            zero = d.constant(np.array(0 if dtype == "u8" else -128, TYPES[dtype][1]))
            add(
                [x, number(d, 0.05, 0.1), _point(d, dtype), d.constant(np.array(1 / 256, np.float32)), zero],
                axis=axis,
                opset=d.random.choice((12, 13)),
            )
        case "QLinearWhere":
            other = draw.put(d, bytes_of(d, *draw.broadcast(d, shape), dtype=dtype))
            points = [d.constant(bytes_of(d, dtype=dtype)) for _ in range(3)]
            add([d.operand("bool", draw.broadcast(d, shape)), x, scale(), points[0], other, scale(), points[1], scale(), points[2]])
        case "QLinearGlobalAveragePool":
            add(
                [x, scale(), d.constant(bytes_of(d, dtype=dtype)), scale(), d.constant(bytes_of(d, dtype=dtype))],
                channels_last=d.random.choice((0, 1)),
            )
        case "QLinearAveragePool":
            attrs: dict[str, Any] = {"kernel_shape": draw.dims(d, 2, 1, 3), **draw.maybe(d, 0.5, strides=draw.dims(d, 2, 1, 2))}
            attrs |= d.random.choice(({}, {"count_include_pad": 1}, {"ceil_mode": 1})) | draw.maybe(d, 0.3, channels_last=1)
            attrs |= draw.maybe(d, 0.3, pads=draw.dims(d, 4, 0, min(attrs["kernel_shape"]) - 1))
            add([x, scale(), _point(d, dtype), *to], **attrs)


def _byte_products(d: NetDrawing) -> None:
    m, k, n = draw.shape(d, 3, (1, 2, 5, 8, 16))
    a_type, b_type = d.random.choice(("u8", "u8", "i8")), d.random.choice(("u8", "i8"))
    each = d.random.random() < 0.4
    b = draw.put(d, bytes_of(d, k, n, dtype=b_type), 0.8)
    b_scale = d.constant(np.asarray(np.abs(draw.parts(d, "f32", (n,) if each else (), 0.01, 9)) + 0.01, np.float32))
    b_zero = d.constant(bytes_of(d, *((n,) if each else ()), dtype=b_type)) if d.random.random() < 0.7 else ""
    bias = floats(d, n) if d.random.random() < 0.5 else ""
    a_scale, a_zero = number(d, 0.5, 0.02), d.constant(bytes_of(d, dtype=a_type)) if d.random.random() < 0.7 else ""
    match d.random.randrange(4):
        case 0:
            a = floats(d, *draw.shape(d, d.random.choice((0, 1)), (1, 2)), m, k, constant=0.0)
            d.add("DynamicQuantizeMatMul", [a, b, b_scale, b_zero, bias], rough=True, domain=DOMAIN)
        case 1:
            a = draw.put(d, bytes_of(d, *draw.shape(d, d.random.choice((0, 1)), (1, 2)), m, k, dtype=a_type), 0.0)
            d.add("MatMulIntegerToFloat", [a, b, a_scale, b_scale, a_zero, b_zero, bias], rough=True, domain=DOMAIN)
        case 2:
            a = draw.put(d, bytes_of(d, m, k, dtype="u8"), 0.0)
            c = d.constant(whole(d, -500, 500, n)) if d.random.random() < 0.5 else ""
            zeros = [d.constant(bytes_of(d, dtype="u8")), d.constant(bytes_of(d, *((n,) if each else ()), dtype=b_type))]
            given = [a, a_scale, zeros[0], b, b_scale, zeros[1], c]
            out = [number(d, 0.5, 3.0), d.constant(bytes_of(d, dtype="u8"))] if d.random.random() < 0.6 else []
            d.add("QGemm", [*given, *out], rough=True, late=bool(out), domain=DOMAIN, **draw.maybe(d, 0.3, alpha=0.5))
        case _:
            a = d.operand("i16", (m, k))
            d.add("MatMulInteger16", [a, d.operand("i16", (k, n))], domain=DOMAIN)


def _experts(d: NetDrawing) -> None:
    rows, width, inner, count = d.random.choice((1, 3)), 8, d.random.choice((8, 12)), d.random.choice((1, 2, 4))
    kind = d.random.choice(("relu", "gelu", "silu", "identity", "swiglu"))
    fused = 2 if kind == "swiglu" else 1
    x = floats(d, *d.random.choice(((rows, width), (2, rows, width))), constant=0.0)
    tokens = int(np.prod(d.values[x].shape[:-1]))
    router = d.feed(
        np.random.default_rng(d.random.getrandbits(32)).permutation(tokens * count).reshape(tokens, count).astype(np.float32) / 4
    )
    bias = [floats(d, count, fused * inner), floats(d, count, width)] if d.random.random() < 0.6 else ["", ""]
    attrs: dict[str, Any] = {"activation_type": kind, "k": d.random.randint(1, count), **draw.maybe(d, 0.5, normalize_routing_weights=1)}
    if fused > 1:
        attrs |= {
            "swiglu_fusion": 1,
            **draw.maybe(d, 0.4, swiglu_limit=1.0),
            **draw.maybe(d, 0.4, activation_alpha=1.2, activation_beta=1.0),
        }
    if d.random.random() < 0.5:
        first, second = floats(d, count, fused * inner, width, constant=0.9), floats(d, count, width, inner, constant=0.9)
        d.add("MoE", [x, router, first, bias[0], second, bias[1]], rough=True, domain=DOMAIN, **attrs)
        return
    bits = d.random.choice((4, 8))
    first, second = (d.constant(bytes_of(d, count, rows, n * bits // 8)) for rows, n in ((fused * inner, width), (width, inner)))
    scales = [d.constant(np.abs(draw.parts(d, "f32", (count, n), 0.01, 9))) for n in (fused * inner, width)]
    given = [x, router, first, scales[0], bias[0], second, scales[1], bias[1]]
    d.add("QMoE", given, rough=True, domain=DOMAIN, expert_weight_bits=bits, **attrs)


def _others(d: NetDrawing) -> None:
    match d.random.randrange(7):
        case 0:
            m, n, k = draw.shape(d, 3, (1, 2, 3, 5))
            dtype = d.random.choice(("f32", "f64"))
            a, b = (draw.put(d, draw.parts(d, dtype, (rows, k))) for rows in (m, n))
            d.add("CDist", [a, b], rough=True, domain=DOMAIN, metric=d.random.choice(("sqeuclidean", "euclidean")))
        case 1:
            x = d.some("f32", "i32", "i64") or floats(d, 2, 3)
            d.add(
                "ExpandDims",
                [x, d.constant(np.array(d.random.choice((0, -1)), np.int32))],
                domain=DOMAIN,
                rough=d.values[x].dtype.kind == "f",
            )
        case 2:
            x = d.some("i32", "u32", "i64", "f32", "f64", exact=True) or d.operand("i32", (3,))
            attrs = draw.maybe(d, 0.5, seed=d.random.choice((1, 77))) | draw.maybe(d, 0.5, positive=d.random.choice((0, 1)))
            d.add("MurmurHash3", [x], domain=DOMAIN, **attrs)
        case 3:
            x = d.some("f32", least=1) or floats(d, 2, 3)
            shape = d.values[x].shape
            d.add("GatedAdd", [x, floats(d, *shape), floats(d, *shape[:-1], 1)], domain=DOMAIN, rough=True)
        case 4:
            x = floats(d, 1, d.random.choice((1, 2)), *draw.shape(d, 2, (3, 4, 5)), constant=0.0)
            boxes = d.constant(np.array([[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1.25]], np.float32))
            given = [x, boxes, d.constant(np.zeros(2, np.int32)), d.constant(np.array([2, 3], np.int32))]
            attrs = {"mode": d.random.choice(("bilinear", "nearest")), **draw.maybe(d, 0.5, extrapolation_value=0.5)}
            d.add("CropAndResize", given, domain=DOMAIN, rough=True, **attrs)
        case 5:
            x = d.some("f32", least=2) or floats(d, 3, 4)
            k = d.random.choice((-1, 0, 1, 2))
            d.add("Trilu", [x, d.constant(np.array(k))], domain=DOMAIN, upper=d.random.choice((0, 1)))
        case _:
            x = d.some("f32", "f64", "i32", least=2) or floats(d, 3, 4)
            a = d.values[x]
            depth = d.random.randint(1, a.ndim)
            if 0 not in a.shape:
                ids = np.stack([whole(d, 0, n, 3, dtype="i64") for n in a.shape[:depth]], -1)
                d.add("GatherND", [x, draw.put(d, ids)], domain=DOMAIN, rough=x in d.rough)


RULES: tuple[Rule, ...] = (
    *(_activation, _activation, _fused_product, _fused_product, _fused_convolution, _skip, _skip, _normalised, _embedding),
    *(_few_bits, _few_bits, _rows_of_few_bits, _bytes, _bytes, _bytes, _byte_products, _byte_products, _experts, _experts, _others),
)
