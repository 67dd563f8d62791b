"""What moves elements: reshapes, slices, pads, repeats, blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from fuzzing.network import TYPES, Array, NetDrawing, Rule, type_of
from fuzzing.operators import draw


def with_axes(d: NetDrawing, kind: str, x: str, axes: Sequence[int] | None, since: int, **attrs: Any) -> None:
    """Add a node whose axes are an attribute before a version and an input from there on."""
    if axes is None:
        d.add(kind, [x], **attrs)
    elif d.opset < since:
        d.add(kind, [x], axes=list(axes), **attrs)
    else:
        d.add(kind, [x, d.ints(*axes)], **attrs)


def _squeezes(d: NetDrawing) -> None:
    x = d.some(*TYPES)
    if x is None:
        return
    a = d.values[x]
    if d.random.random() < 0.5:
        ones = [k for k, n in enumerate(a.shape) if n == 1]
        axes = [k - d.random.choice((0, a.ndim)) for k in d.random.sample(ones, d.random.randint(0, len(ones)))]
        with_axes(d, "Squeeze", x, axes or None, 13)
    else:
        count = d.random.choice((1, 2, 3))
        axes = [k - d.random.choice((0, a.ndim + count)) for k in d.random.sample(range(a.ndim + count), count)]
        with_axes(d, "Unsqueeze", x, axes, 13)


def _reshapes(d: NetDrawing) -> None:
    x = d.some(*TYPES)
    if x is None:
        return
    a = d.values[x]
    match d.random.randrange(4):
        case 0:
            target = [0 if d.random.random() < 0.4 else n for n in a.shape]
            d.add("Reshape", [x, d.ints(*target)])
        case 1:
            cut = d.random.randint(0, a.ndim)
            d.add("Reshape", [x, d.ints(*a.shape[:cut], -1)])
        case 2:
            target = [-1, *reversed(a.shape[1:])]
            # ONNX says that 0 and -1 are not for one shape with `allowzero`; onnxruntime takes them where the shape is no constant.
            plain = {} if 0 in target or d.opset < 14 else draw.maybe(d, 0.5, allowzero=1)
            d.add("Reshape", [x, d.ints(*target)], **plain)
        case _:
            d.add("Flatten", [x], **draw.maybe(d, 0.8, axis=d.random.randint(-a.ndim if d.opset >= 11 else 0, a.ndim)))


def _shape_arithmetic(d: NetDrawing) -> None:
    """Reshape to a shape that is computed from that of another value."""
    x = d.some(*TYPES, least=1, most=4)
    if x is None:
        return
    a = d.values[x]
    k = d.random.randrange(a.ndim)
    before = len(d.nodes)
    d.add("Shape", [x], **(draw.maybe(d, 0.4, start=d.random.choice((0, -a.ndim)), end=a.ndim) if d.opset >= 15 else {}))
    if len(d.nodes) == before:
        return
    whole = d.nodes[-1].output[0]
    d.add("Gather", [whole, d.constant(np.array([k - d.random.choice((0, a.ndim))], np.int64))], axis=0)
    if len(d.nodes) < before + 2:
        return
    kept = d.nodes[-1].output[0]
    d.add("Concat", [kept, d.ints(-1)] if d.random.random() < 0.5 else [d.ints(-1), kept], axis=0)
    if len(d.nodes) == before + 3:
        d.add("Reshape", [x, d.nodes[-1].output[0]])


def _slices(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is None:
        return
    a = d.values[x]
    axes = draw.axes(d, a.ndim, 1)
    bounds = (0, 1, 2, -1, -2, -3, 3, 5, 100, -100, 2**31 - 1, -(2**31), 2**62, -(2**62))
    starts, ends = ([d.random.choice(bounds) for _ in axes] for _ in range(2))
    if type_of(a) in ("bf16", "f8", "f8e5"):
        starts = [max(s, -a.shape[k]) for s, k in zip(starts, axes, strict=True)]  # the reference lets slices begin before the first
    if d.opset < 10:
        d.add(
            "Slice", [x], starts=starts, ends=ends, **(draw.maybe(d, 0.8, axes=axes) if axes == list(range(len(axes))) else {"axes": axes})
        )
        return
    small = d.random.random() < 0.3
    given = [d.constant(np.clip(v, -(2**31), 2**31 - 1).astype(np.int32)) if small else d.ints(*v) for v in (starts, ends, axes)]
    if d.random.random() < 0.5:
        steps = [d.random.choice((1, 2, -1, -2, 3, -7, 2**40 if not small else 9)) for _ in axes]
        given.append(d.constant(np.array(steps, np.int32)) if small else d.ints(*steps))
    d.add("Slice", [x, *given])


def _splits(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is None:
        return
    a = d.values[x]
    axis = draw.axis(d, a.ndim)
    extent = a.shape[axis]
    count = d.random.choice((1, 2, 3, 4))
    if d.random.random() < 0.5:
        d.add("Split", [x], count, axis=axis, **({"num_outputs": count} if d.opset >= 18 else {}))
        return
    cuts = sorted(d.random.randint(0, extent) for _ in range(count - 1))
    parts = [q - p for p, q in zip([0, *cuts], [*cuts, extent], strict=True)]
    if d.opset < 13:
        d.add("Split", [x], count, axis=axis, split=parts)
    else:
        d.add("Split", [x, d.ints(*parts)], count, axis=axis)


def _pads(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is None:
        return
    a = d.values[x]
    modes = ("constant", "constant", "edge", "reflect", "wrap") if d.opset >= 19 else ("constant", "constant", "edge", "reflect")
    mode = {"mode": m} if (m := d.random.choice(modes)) != "constant" or d.random.random() < 0.5 else {}
    if d.opset < 11:
        pads = draw.dims(d, 2 * a.ndim, 0, 2) if d.random.random() < 0.6 else draw.dims(d, 2 * a.ndim, -1, 2)
        d.add("Pad", [x], pads=pads, **mode, **draw.maybe(d, 0.4, value=2.0))
        return
    axes = draw.axes(d, a.ndim, 1) if d.opset >= 18 and d.random.random() < 0.4 else None
    count = 2 * (a.ndim if axes is None else len(axes))
    pads = draw.dims(d, count, 0, 2) if d.random.random() < 0.6 else draw.dims(d, count, -1, 2)
    fill = draw.put(d, d.array(type_of(a), ()), 0.7) if d.random.random() < 0.5 else ""
    d.add("Pad", [x, d.ints(*pads), fill, "" if axes is None else d.ints(*axes)], **mode)


def _repeats(d: NetDrawing) -> None:
    x = d.some(*TYPES)
    if x is None:
        return
    a = d.values[x]
    match d.random.randrange(3):
        case 0:
            target = tuple(d.random.choice((1, 2)) if n == 1 else d.random.choice((1, n)) for n in a.shape)
            cut = d.random.randint(0, a.ndim)
            d.add("Expand", [x, d.ints(*d.random.choice((target, (2, *target), target[cut:], (3, 1, *target))))])
        case 1:
            d.add("Tile", [x, d.ints(*(d.random.choice((0, 1, 1, 2, 3)) for _ in a.shape))])
        case _:
            d.add("Identity", [x])


def _blocks(d: NetDrawing) -> None:
    size = d.random.choice((1, 2, 3))
    dtype = d.random.choice(("f32", "f32", "f16", "i64", "u8"))
    batch, depth, high, wide = draw.shape(d, 4, (1, 2, 3))
    if d.random.random() < 0.5:
        x = draw.value(d, dtype, (batch, depth * size * size, high, wide))
        d.add("DepthToSpace", [x], blocksize=size, **(draw.maybe(d, 0.6, mode=d.random.choice(("DCR", "CRD"))) if d.opset >= 11 else {}))
    else:
        d.add("SpaceToDepth", [draw.value(d, dtype, (batch, depth, high * size, wide * size))], blocksize=size)


def _crop(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is not None:
        rank = d.values[x].ndim
        if d.random.random() < 0.5:
            d.add("CenterCropPad", [x, d.ints(*draw.shape(d, rank))])
        else:
            axes = draw.axes(d, rank, 1)
            d.add("CenterCropPad", [x, d.ints(*draw.shape(d, len(axes)))], axes=axes)


def _triangle(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=2)
    if x is not None:
        diagonal = d.constant(np.array(d.random.choice((-100, -2, -1, 0, 1, 3, 100)), np.int64)) if d.random.random() < 0.7 else ""
        d.add("Trilu", [x, diagonal], **draw.maybe(d, 0.6, upper=d.random.choice((0, 1))))


def _known(d: NetDrawing) -> None:
    """Values that no input changes."""
    match d.random.randrange(5):
        case 0:
            dtype = d.random.choice(("f32", "i64", "f64", "i32", "i16"))
            start, limit, delta = d.random.choice(((0, 5, 1), (3, -3, -2), (0, 0, 1), (1, 9, 3), (5, 0, 1)))
            d.add("Range", [d.constant(np.array(v, TYPES[dtype][1])) for v in (start, limit, delta)])
        case 1:
            dtype = d.random.choice(("f32", "i64", "bool", "f16", "u8", "bf16"))
            from_array = _tensor(d.array(dtype, (1,)))
            d.add(
                "ConstantOfShape",
                [d.ints(*draw.shape(d, d.random.choice((0, 1, 2, 3)), (0, 1, 2, 3)))],
                **draw.maybe(d, 0.8, value=from_array),
            )
        case 2:
            x = d.some(*TYPES, least=2, most=2)
            dtype = d.random.choice(("f32", "i64", "bool", "f16"))
            d.add("EyeLike", [x], k=d.random.choice((0, 1, -1, 9)), **draw.maybe(d, 0.5, dtype=TYPES[dtype][0]))
        case 3:
            x = d.some(*TYPES)
            if x is not None:
                d.add("Size", [x])
        case _:
            kind = d.random.choice(("HannWindow", "HammingWindow", "BlackmanWindow"))
            size = d.constant(np.array(d.random.choice((1, 2, 5, 8)), np.int64))
            d.add(kind, [size], rough=True, **draw.maybe(d, 0.5, periodic=d.random.choice((0, 1))))


def _tensor(a: Array) -> Any:
    return helper.make_tensor("value", TYPES[type_of(a)][0], a.shape, a.tobytes(), raw=True)


RULES: tuple[Rule, ...] = (
    _squeezes,
    _squeezes,
    _reshapes,
    _reshapes,
    _shape_arithmetic,
    _slices,
    _slices,
    _splits,
    _pads,
    _pads,
    _repeats,
    _repeats,
    _blocks,
    _crop,
    _triangle,
    _known,
)
