"""Operators whose places are data, or of which few models have one: grids, regions, columns, spectra, losses, states, sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.network import TYPES, NetDrawing, Rule
from fuzzing.operators import draw
from fuzzing.operators.microsoft import bytes_of, floats, number, whole


def _grid(d: NetDrawing) -> None:
    rank = d.random.choice((2, 2, 3))
    x = floats(d, d.random.choice((1, 2)), d.random.choice((1, 2)), *draw.shape(d, rank, (1, 2, 3, 5)), constant=0.0)
    grid = draw.put(d, draw.parts(d, "f32", (d.values[x].shape[0], *draw.shape(d, rank, (1, 2, 3)), rank), 0.17, 8), 0.2)
    mode = d.random.choice(("linear", "nearest", "cubic") if rank == 2 else ("linear", "nearest"))
    if d.opset < 20:
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    attrs = draw.maybe(d, 0.5, align_corners=1) | draw.maybe(d, 0.7, padding_mode=d.random.choice(("zeros", "border", "reflection")))
    d.add("GridSample", [x, grid], rough=True, mode=mode, **attrs)


def _affine(d: NetDrawing) -> None:
    rank = d.random.choice((2, 3))
    batch = d.random.choice((1, 2))
    theta, corners = floats(d, batch, rank, rank + 1), d.random.choice((0, 1))
    shape = draw.shape(d, rank, (1, 2, 3) if not corners else (2, 3))  # where the corner of one place lies everyone says otherwise
    d.add("AffineGrid", [theta, d.ints(batch, 3, *shape)], rough=True, align_corners=corners)


def _regions(d: NetDrawing) -> None:
    c, h, w = draw.shape(d, 3, (2, 4, 7))
    count, batch = d.random.choice((0, 1, 3)), d.random.choice((1, 2))
    x = floats(d, batch, c, h, w, constant=0.0)
    corners = np.sort(np.abs(draw.parts(d, "f32", (count, 2, 2), 0.5, 2 * max(h, w))), 1).reshape(count, 4)
    if d.random.random() < 0.6:
        ids = draw.put(d, whole(d, 0, batch, count, dtype="i64"), 0.2)
        attrs: dict[str, Any] = draw.maybe(d, 0.5, mode="max") | draw.maybe(d, 0.5, sampling_ratio=d.random.choice((0, 1, 2)))
        attrs |= draw.maybe(d, 0.7, output_height=d.random.choice((1, 3)), output_width=2) | draw.maybe(d, 0.5, spatial_scale=0.5)
        if d.opset >= 16:
            attrs |= draw.maybe(d, 0.5, coordinate_transformation_mode=d.random.choice(("half_pixel", "output_half_pixel")))
        d.add("RoiAlign", [x, draw.put(d, corners, 0.2), ids], rough=True, **attrs)
        return
    rois = np.concatenate([whole(d, 0, batch, count, 1).astype(np.float32), np.round(corners)], 1)
    attrs = draw.maybe(d, 0.5, spatial_scale=0.5)
    d.add("MaxRoiPool", [x, draw.put(d, rois.astype(np.float32))], rough=True, pooled_shape=draw.dims(d, 2, 1, 3), **attrs)


def _boxes(d: NetDrawing) -> None:
    batch, classes, count = d.random.choice((1, 2)), d.random.choice((1, 2)), d.random.choice((1, 4, 9))
    corners = np.abs(draw.parts(d, "f32", (batch, count, 4), 0.1, 10))
    scores = np.random.default_rng(d.random.getrandbits(32)).permutation(batch * classes * count).reshape(batch, classes, count)
    given = [draw.put(d, corners, 0.1), draw.put(d, (scores / scores.size).astype(np.float32), 0.1)]
    limits = [np.array([d.random.choice((0, 1, 3, 50))]), np.array([d.random.choice((0.0, 0.3, 1.0))], np.float32)]
    limits.append(np.array([d.random.choice((0.0, 0.4))], np.float32))
    given += [d.constant(a) for a in limits[: d.random.choice((1, 2, 3, 3))]]
    d.add("NonMaxSuppression", given, **draw.maybe(d, 0.5, center_point_box=1))


def _columns(d: NetDrawing) -> None:
    size, block = draw.dims(d, 2, 3, 5), draw.dims(d, 2, 1, 3)
    dilations, pads, strides = draw.dims(d, 2, 1, 2), draw.dims(d, 4, 0, 1), draw.dims(d, 2, 1, 2)
    counts = [
        (n + pads[k] + pads[k + 2] - dilations[k] * (b - 1) - 1) // strides[k] + 1 for k, (n, b) in enumerate(zip(size, block, strict=True))
    ]
    if min(counts) > 0:
        x = floats(d, d.random.choice((1, 2)), 2 * block[0] * block[1], counts[0] * counts[1], constant=0.0)
        attrs = {"dilations": dilations, "pads": pads, "strides": strides}
        d.add("Col2Im", [x, d.ints(*size), d.ints(*block)], rough=True, **attrs)


def _deformed(d: NetDrawing) -> None:
    groups, offsets = d.random.choice((1, 2)), d.random.choice((1, 2))
    c, f, n = 2, 2 * d.random.choice((1, 2)), d.random.choice((3, 4))
    kernel, pads, strides = draw.dims(d, 2, 1, 3), draw.dims(d, 4, 0, 1), draw.dims(d, 2, 1, 2)
    out = [(n + pads[k] + pads[k + 2] - kernel[k]) // strides[k] + 1 for k in range(2)]
    x, w = floats(d, 1, c, n, n, constant=0.0), floats(d, f, c // groups, *kernel)
    moved = draw.put(d, draw.parts(d, "f32", (1, 2 * offsets * kernel[0] * kernel[1], *out), 0.3, 5), 0.2)
    bias = floats(d, f) if d.random.random() < 0.5 else ""
    mask = floats(d, 1, offsets * kernel[0] * kernel[1], *out) if d.random.random() < 0.5 else ""
    attrs = {"kernel_shape": kernel, "pads": pads, "strides": strides, "group": groups, "offset_group": offsets}
    d.add("DeformConv", [x, w, moved, bias, mask], rough=True, **attrs)


def _unpooled(d: NetDrawing) -> None:
    n = d.random.choice((2, 3))
    ids = np.random.default_rng(d.random.getrandbits(32)).permutation(4 * n * n)[: n * n].reshape(1, 1, n, n)
    d.add("MaxUnpool", [floats(d, 1, 1, n, n), draw.put(d, ids.astype(np.int64))], rough=True, kernel_shape=[2, 2], strides=[2, 2])


def _spectrum(d: NetDrawing) -> None:
    n, dtype = d.random.choice((1, 2, 3, 5, 8, 12)), d.random.choice(("f32", "f32", "f64"))
    inverse, onesided, parts = d.random.random() < 0.3, d.random.random() < 0.4, d.random.choice((1, 2))
    x = floats(d, *draw.shape(d, d.random.choice((1, 2)), (1, 2, 3)), n, parts, constant=0.1, dtype=dtype)
    rank = d.values[x].ndim
    axis = d.random.choice((rank - 2, -2, 1))
    length = d.constant(np.array(d.random.choice((n, 4, 7)))) if d.random.random() < 0.4 else ""
    attrs = {"inverse": int(inverse), "onesided": int(onesided and not inverse and parts == 1)}
    if d.opset >= 20:
        d.add("DFT", [x, length, d.constant(np.array(axis))], rough=True, **attrs)
    elif d.opset >= 17:
        d.add("DFT", [x, length], rough=True, axis=axis % rank, **attrs)


def _windows_of_signals(d: NetDrawing) -> None:
    kind = d.random.choice(("HannWindow", "HammingWindow", "BlackmanWindow", "STFT", "STFT", "MelWeightMatrix"))
    if kind == "STFT":
        size, step = d.random.choice((4, 6, 8)), d.random.choice((1, 2, 5))
        x = floats(d, d.random.choice((1, 2)), d.random.choice((8, 17)), 1, constant=0.1)
        window = floats(d, size) if d.random.random() < 0.6 else ""
        length = d.constant(np.array(size)) if not window or d.random.random() < 0.4 else ""
        d.add(kind, [x, d.constant(np.array(step)), window, length], rough=True, onesided=d.random.choice((0, 1)))
    elif kind == "MelWeightMatrix":
        given = [d.constant(np.array(v)) for v in (d.random.choice((4, 8)), 16, 8000)]
        d.add(kind, [*given, number(d, 0.0, 100.0), number(d, 4000.0, 3000.0)], rough=True)
    else:
        d.add(kind, [d.constant(np.array(d.random.choice((1, 4, 7))))], rough=True, periodic=d.random.choice((0, 1)))


def _sets(d: NetDrawing) -> None:
    x = d.some("f32", "i64", "i32", "f64", "i8", "u8", "bool", exact=True) or d.operand("i32", (2, 3))
    a = d.values[x]
    match d.random.randrange(3):
        case 0:
            d.add("NonZero", [x])
        case 1:
            axis = draw.maybe(d, 0.5, axis=d.random.randrange(-a.ndim, a.ndim)) if a.ndim else {}
            n = a.shape[axis["axis"]] if axis else a.size
            count = d.random.choice((n, max(n - 1, 0)))
            d.add("Compress", [x, draw.put(d, bytes_of(d, count) % 2 == 1, 0.3)], **axis)
        case _:
            outputs, left = d.random.choice(((1, 0), (4, 0), (4, 2), (2, 0)))
            axis = draw.maybe(d, 0.4, axis=d.random.randrange(-a.ndim, a.ndim)) if a.ndim else {}
            unsorted = a.dtype.name in ("float32", "float64", "int64", "int8")  # of others the reference forgets the order
            d.add("Unique", [x], outputs, left=left, sorted=d.random.choice((0, 1)) if unsorted else 1, **axis)


def _losses(d: NetDrawing) -> None:
    n, c = d.random.choice((1, 3)), d.random.choice((2, 5))
    rest = draw.shape(d, d.random.choice((0, 0, 1, 2)), (1, 2, 3))
    ids = whole(d, 0, c, n, *rest, dtype=d.random.choice(("i32", "i64")))
    weights = floats(d, c) if d.random.random() < 0.4 else ""
    attrs = draw.maybe(d, 0.7, reduction=d.random.choice(("none", "sum", "mean"))) | draw.maybe(
        d, 0.3, ignore_index=d.random.choice((0, 1, -7))
    )
    if attrs.get("ignore_index") == -7:
        ids[:1] = -7
    x, target = floats(d, n, c, *rest, constant=0.1), draw.put(d, ids, 0.2)
    if d.random.random() < 0.5:
        d.add("NegativeLogLikelihoodLoss", [x, target, weights], rough=True, **attrs)
    else:
        d.add("SoftmaxCrossEntropyLoss", [x, target, weights], d.random.choice((1, 2)), rough=True, **attrs)


def _states(d: NetDrawing) -> None:
    b, heads, length, size = d.random.choice((1, 2)), d.random.choice((1, 2)), d.random.choice((1, 3)), d.random.choice((2, 4))
    q, k, v = (floats(d, b, length, heads * size, constant=0.0) for _ in range(3))
    rule = d.random.choice(("linear", "gated", "delta", "gated_delta"))
    decay = floats(d, b, length, d.random.choice((heads, heads * size))) if "gated" in rule else ""
    beta = floats(d, b, length, heads) if "delta" in rule else ""
    state = floats(d, b, heads, size, size, constant=0.0) if d.random.random() < 0.5 else ""
    attrs = {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": rule}
    d.add("LinearAttention", [q, k, v, state, decay, beta], 2, rough=True, **attrs)


def _moved(d: NetDrawing) -> None:
    match d.random.randrange(6):
        case 0:
            x = d.some("f32", "i32", "u32", "i16", "f16", "i64", "f64", "bf16", exact=True) or d.operand("i32", (3,))
            same = {4: ("f32", "i32", "u32"), 2: ("i16", "u16"), 8: ("i64", "u64"), 1: ("i8", "u8")}[d.values[x].dtype.itemsize]
            d.add("BitCast", [x], to=TYPES[d.random.choice(same)][0])
        case 1:
            x = d.some("f32", "i32", "i64", "f64", least=1, exact=True) or d.operand("i32", (2, 3))
            axis = d.constant(np.array(d.random.randrange(-d.values[x].ndim, d.values[x].ndim)))
            attrs = draw.maybe(d, 0.4, exclusive=1) | draw.maybe(d, 0.4, reverse=1)
            d.add("CumProd", [x, axis], **attrs)
        case 2:
            n = d.random.choice((1, 2, 3, 4))
            dtype = d.random.choice(("f32", "f64"))
            d.add("Det", [draw.put(d, draw.parts(d, dtype, (*draw.shape(d, d.random.choice((0, 1, 2)), (1, 2)), n, n)))], rough=True)
        case 3:
            x = floats(d, *draw.shape(d, 2, (1, 2)), 6, 4, constant=0.1)
            shape = d.values[x].shape
            new = d.random.choice((1, 2))
            start = draw.put(d, whole(d, 0, 6 - new, shape[0], dtype="i64"), 0.2) if d.random.random() < 0.8 else ""
            attrs = draw.maybe(d, 0.5, mode=d.random.choice(("linear", "circular")))
            d.add("TensorScatter", [x, floats(d, *shape[:2], new, 4), start], **attrs, rough=True)
        case 4:
            x = d.some("i32", "i64", exact=True)
            if x is not None and 0 < d.values[x].ndim < 3:
                grams = {"mode": d.random.choice(("TF", "IDF", "TFIDF")), "min_gram_length": 1, "max_gram_length": d.random.choice((1, 2))}
                pool = {"ngram_counts": [0, 3], "ngram_indexes": [1, 0, 2, 4, 3], "pool_int64s": [0, 1, 2, 0, 1, -1, 2]}
                d.add(
                    "TfIdfVectorizer",
                    [x],
                    rough=True,
                    max_skip_count=d.random.choice((0, 1)),
                    weights=[0.5, 1.0, 2.0, 1.5, 3.0],
                    **grams,
                    **pool,
                )
        case _:
            x, w = floats(d, 2, 3, d.random.choice((1, 4))), floats(d, 3, 1, d.random.choice((2, 3)))
            state = floats(d, 2, 3, d.values[w].shape[2] - 1) if d.random.random() < 0.5 else ""
            attrs = draw.maybe(d, 0.5, activation=d.random.choice(("silu", "swish", "none")))
            d.add("CausalConvWithState", [x, w, floats(d, 3) if d.random.random() < 0.5 else "", state], 2, rough=True, **attrs)


def _swish(d: NetDrawing) -> None:
    x = d.some("f32", "f16", "f64") or floats(d, 2, 3)
    d.add(d.random.choice(("Swish", "Gelu", "Mish")), [x], rough=True, **draw.maybe(d, 0.0))


RULES: tuple[Rule, ...] = (
    *(_grid, _grid, _affine, _regions, _regions, _boxes, _boxes, _columns, _deformed, _unpooled, _spectrum, _spectrum),
    *(_windows_of_signals, _windows_of_signals, _sets, _sets, _sets, _losses, _losses, _states, _moved, _moved, _moved, _swish),
)
