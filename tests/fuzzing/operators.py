"""Rules for drawing the nodes of many ONNX operators, with the attributes and in the versions that models have them: windows that dilate
and do not fit, axes from the end, optional inputs left out, quantised arithmetic, recurrent layers, resizing.

What a rule draws need not be valid in every version of the operators: `NetDrawing.add` drops what the checker does not take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from fuzzing.network import FLOATS, TYPES, WHOLE, Array, NetDrawing, Rule, type_of

# ---------------------------------------------------------------- what rules draw from


def _shape(d: NetDrawing, rank: int, extents: Sequence[int] = (1, 2, 3, 4, 5, 7)) -> tuple[int, ...]:
    return tuple(d.random.choice(extents) for _ in range(rank))


def _put(d: NetDrawing, a: Array, constant: float = 0.5) -> str:
    """Return the name of an array: an input, or with that probability a constant."""
    return d.constant(a) if d.random.random() < constant else d.feed(a)


def _value(d: NetDrawing, dtype: str, shape: tuple[int, ...]) -> str:
    """Return an exact value of a type and a shape: one that is there, or a new one."""
    there = [n for n, a in d.values.items() if a.shape == shape and type_of(a) == dtype and n not in d.rough]
    return d.random.choice(there) if there and d.random.random() < 0.5 else _put(d, d.array(dtype, shape), 0.3)


def _parts(d: NetDrawing, dtype: str, shape: tuple[int, ...], unit: float = 0.25, reach: int = 9) -> Array:
    """Return multiples of `unit`."""
    rng = np.random.default_rng(d.random.getrandbits(32))
    return (rng.integers(-reach, reach + 1, shape) * unit).astype(TYPES[dtype][1])


def _axis(d: NetDrawing, rank: int) -> int:
    return d.random.randrange(-rank, rank)


def _axes(d: NetDrawing, rank: int, least: int = 0) -> list[int]:
    axes = d.random.sample(range(rank), d.random.randint(min(least, rank), rank))
    return [a - rank if d.random.random() < 0.3 else a for a in axes]


def _dims(d: NetDrawing, rank: int, low: int, high: int) -> list[int]:
    return [d.random.randint(low, high) for _ in range(rank)]


def _maybe(d: NetDrawing, chance: float, **attrs: Any) -> dict[str, Any]:
    return attrs if d.random.random() < chance else {}


def _like(d: NetDrawing, x: str, number: float) -> str:
    return d.constant(np.array(number, d.values[x].dtype))


def _broadcast(d: NetDrawing, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts against another: with axes of extent one, fewer axes, or one more."""
    kept = tuple(n if d.random.random() < 0.6 else 1 for n in shape)
    return d.random.choice((kept, kept, kept[d.random.randint(0, len(kept)) :], (d.random.choice((1, 2)), *kept)))


# ---------------------------------------------------------------- elementwise


def _function(d: NetDrawing) -> None:
    kind, low, high = d.random.choice(_FUNCTIONS)
    dtype = d.random.choice(("f32", "f32", "f32", "f16", "f64"))
    x = d.some(dtype, exact=True)
    if x is None or d.random.random() < 0.4 or (d.values[x].size and (d.values[x].min() < low or d.values[x].max() > high)):
        a = np.clip(_parts(d, dtype, d.shape()).astype(np.float64), low, high)
        x = _put(d, a.astype(TYPES[dtype][1]), 0.1)
    attrs = {name: d.random.choice((0.5, 1.0, 0.25, 2.0, -0.5)) for name in _ALPHA.get(kind, ()) if d.random.random() < 0.7}
    if kind == "Gelu":
        attrs = _maybe(d, 0.5, approximate="tanh")
    d.add(kind, [x], rough=True, **attrs)


_BIG = 1e9
_FUNCTIONS = (
    *((kind, -4.0, 4.0) for kind in ("Exp", "Sin", "Cos", "Atan", "Sinh", "Cosh", "Asinh", "Erf", "Tanh", "Sigmoid")),
    *((kind, -_BIG, _BIG) for kind in ("Softplus", "Softsign", "HardSwish", "HardSigmoid", "Elu", "Celu", "Selu", "LeakyRelu")),
    *((kind, -_BIG, _BIG) for kind in ("ThresholdedRelu", "Shrink", "Gelu", "Mish", "Swish")),
    *(("Log", 0.25, _BIG), ("Sqrt", 0.0, _BIG), ("Reciprocal", 0.25, _BIG), ("Asin", -1.0, 1.0), ("Acos", -1.0, 1.0)),
    *(("Atanh", -0.75, 0.75), ("Acosh", 1.0, _BIG), ("Tan", -1.25, 1.25)),
)
_ALPHA = {
    "Elu": ("alpha",),
    "Celu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "LeakyRelu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Shrink": ("lambd", "bias"),
    "Swish": ("alpha",),
}


def _rounding(d: NetDrawing) -> None:
    x = _put(d, _parts(d, d.random.choice(("f32", "f32", "f16", "f64")), d.shape(), 0.5), 0.2)
    d.add(d.random.choice(("Floor", "Ceil", "Round", "Sign")), [x])


def _special(d: NetDrawing) -> None:
    """What is asked of infinities and of what is no number."""
    a = _parts(d, d.random.choice(("f32", "f32", "f16", "f64")), d.shape(), 1.0).reshape(-1)
    for k in range(a.size):
        if d.random.random() < 0.4:
            a[k] = d.random.choice((np.inf, -np.inf, np.nan, -0.0, 0.0))
    x = _put(d, a, 0.1)
    match d.random.randrange(5):
        case 0:
            d.add("IsNaN", [x])
        case 1:
            d.add("IsInf", [x], **_maybe(d, 0.5, detect_negative=d.random.choice((0, 1))), **_maybe(d, 0.5, detect_positive=0))
        case 2:
            d.add(d.random.choice(("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")), [x, _put(d, a[::-1].copy())])
        case 3:
            d.add("Cast", [x], to=TYPES["bool"][0])
        case _:
            d.add("Sign", [x])


def _several(d: NetDrawing) -> None:
    """Operators of any number of operands."""
    x = d.some(*FLOATS, *WHOLE)
    if x is not None:
        a = d.values[x]
        others = [d.operand(type_of(a), _broadcast(d, a.shape)) for _ in range(d.random.choice((0, 1, 2, 3)))]
        operands = [x, *others]
        d.random.shuffle(operands)
        kind = d.random.choice(("Sum", "Max", "Min", "Mean"))
        d.add(kind, operands, rough=kind == "Mean")


def _integers(d: NetDrawing) -> None:
    dtype = d.random.choice(WHOLE)
    x = d.some(dtype) or _value(d, dtype, d.shape())
    shape = _broadcast(d, d.values[x].shape)
    kind = d.random.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift", "Mod", "Mod", "Div", "Pow", "Neg", "Abs"))
    y = d.array(dtype, shape)
    match kind:
        case "BitwiseNot" | "Neg" | "Abs":
            d.add(kind, [x])
        case "BitShift":
            d.add(kind, [x, _put(d, y)], direction=d.random.choice(("LEFT", "RIGHT")))
        case "Mod":
            d.add(kind, [x, _put(d, np.where(y == 0, 2, y).astype(y.dtype))], **_maybe(d, 0.4, fmod=1))
        case "Div":
            d.add(kind, [x, _put(d, np.where(y == 0, 3, y).astype(y.dtype))])
        case "Pow":
            d.add(kind, [x, _put(d, np.abs(y.astype(np.int64)).astype(TYPES[d.random.choice((dtype, "i64", "i32", "f32"))][1]))])
        case _:
            d.add(kind, [x, _put(d, y)])


def _power(d: NetDrawing) -> None:
    x = d.some("f32", "f64", "f16", exact=True)
    if x is not None:
        exponent = d.random.choice((np.float32(2), np.float32(3), np.int64(2), np.int32(0), np.float64(1), np.int64(1)))
        d.add("Pow", [x, _put(d, np.asarray(exponent))])


def _floats_mod(d: NetDrawing) -> None:
    x = d.some("f32", "f64", exact=True)
    if x is not None:
        y = d.array(type_of(d.values[x]), _broadcast(d, d.values[x].shape))
        d.add("Mod", [x, _put(d, np.where(y == 0, 2, y).astype(y.dtype))], fmod=1)


def _clip(d: NetDrawing) -> None:
    x = d.some(*FLOATS, *WHOLE)
    if x is None:
        return
    low, high = d.random.choice(((0, 2), (1, 3), (2, 1), (0, 0)))
    if d.opset < 11:
        d.add("Clip", [x], **_maybe(d, 0.7, min=float(low)), **_maybe(d, 0.7, max=float(high)))
        return
    lo = _put(d, np.array(low, d.values[x].dtype)) if d.random.random() < 0.7 else ""
    hi = _put(d, np.array(high, d.values[x].dtype)) if d.random.random() < 0.7 else ""
    d.add("Clip", [x, lo, hi])


def _prelu(d: NetDrawing) -> None:
    x = d.some("f32", "f16", "f64", "i32", "i64", "u32")
    if x is not None:
        shape = d.values[x].shape
        slope = d.random.choice((shape, (1,) * len(shape), shape[-1:], (shape[1], *[1] * (len(shape) - 2)) if len(shape) > 1 else shape))
        d.add("PRelu", [x, d.operand(type_of(d.values[x]), slope)])


def _where_all(d: NetDrawing) -> None:
    x = d.some(*TYPES)
    if x is not None:
        shape = d.values[x].shape
        d.add("Where", [d.operand("bool", _broadcast(d, shape)), x, d.operand(type_of(d.values[x]), _broadcast(d, shape))])


def _casts(d: NetDrawing) -> None:
    x = d.some(*TYPES, exact=True)
    if x is None:
        return
    if d.random.random() < 0.5:
        to = d.random.choice(("f32", "f16", "f64", "bf16", "bool"))
        d.add("CastLike", [x, d.operand(to, (1,))])
    else:
        d.add("Cast", [x], to=TYPES[d.random.choice(("f8", "f8e5", "f16", "bf16"))][0], **_maybe(d, 0.4, saturate=0))


def _logic(d: NetDrawing) -> None:
    x = d.some("bool") or _value(d, "bool", d.shape())
    d.add(d.random.choice(("And", "Or", "Xor", "Equal")), [x, d.operand("bool", _broadcast(d, d.values[x].shape))])


def _inference(d: NetDrawing) -> None:
    x = d.some("f32", "f16", "f64")
    if x is None:
        return
    if d.opset < 12:
        d.add("Dropout", [x], d.random.choice((1, 2)), **_maybe(d, 0.5, ratio=0.3))
    else:
        ratio = d.constant(np.float32(0.3)) if d.random.random() < 0.5 else ""
        training = d.constant(np.array(False)) if d.random.random() < 0.5 else ""
        d.add("Dropout", [x, ratio, training], d.random.choice((1, 2)))


# ---------------------------------------------------------------- moving


def _with_axes(d: NetDrawing, kind: str, x: str, axes: Sequence[int] | None, since: int, **attrs: Any) -> None:
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
        _with_axes(d, "Squeeze", x, axes or None, 13)
    else:
        count = d.random.choice((1, 2, 3))
        axes = [k - d.random.choice((0, a.ndim + count)) for k in d.random.sample(range(a.ndim + count), count)]
        _with_axes(d, "Unsqueeze", x, axes, 13)


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
            plain = {} if 0 in target or d.opset < 14 else _maybe(d, 0.5, allowzero=1)
            d.add("Reshape", [x, d.ints(*target)], **plain)
        case _:
            d.add("Flatten", [x], **_maybe(d, 0.8, axis=d.random.randint(-a.ndim if d.opset >= 11 else 0, a.ndim)))


def _shape_arithmetic(d: NetDrawing) -> None:
    """Reshape to a shape that is computed from that of another value."""
    x = d.some(*TYPES, least=1, most=4)
    if x is None:
        return
    a = d.values[x]
    k = d.random.randrange(a.ndim)
    before = len(d.nodes)
    d.add("Shape", [x], **(_maybe(d, 0.4, start=d.random.choice((0, -a.ndim)), end=a.ndim) if d.opset >= 15 else {}))
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
    axes = _axes(d, a.ndim, 1)
    bounds = (0, 1, 2, -1, -2, -3, 3, 5, 100, -100, 2**31 - 1, -(2**31), 2**62, -(2**62))
    starts, ends = ([d.random.choice(bounds) for _ in axes] for _ in range(2))
    if type_of(a) in ("bf16", "f8", "f8e5"):
        starts = [max(s, -a.shape[k]) for s, k in zip(starts, axes, strict=True)]  # the reference lets slices begin before the first
    if d.opset < 10:
        d.add("Slice", [x], starts=starts, ends=ends, **(_maybe(d, 0.8, axes=axes) if axes == list(range(len(axes))) else {"axes": axes}))
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
    axis = _axis(d, a.ndim)
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
        pads = _dims(d, 2 * a.ndim, 0, 2) if d.random.random() < 0.6 else _dims(d, 2 * a.ndim, -1, 2)
        d.add("Pad", [x], pads=pads, **mode, **_maybe(d, 0.4, value=2.0))
        return
    axes = _axes(d, a.ndim, 1) if d.opset >= 18 and d.random.random() < 0.4 else None
    count = 2 * (a.ndim if axes is None else len(axes))
    pads = _dims(d, count, 0, 2) if d.random.random() < 0.6 else _dims(d, count, -1, 2)
    fill = _put(d, d.array(type_of(a), ()), 0.7) if d.random.random() < 0.5 else ""
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
    batch, depth, high, wide = _shape(d, 4, (1, 2, 3))
    if d.random.random() < 0.5:
        x = _value(d, dtype, (batch, depth * size * size, high, wide))
        d.add("DepthToSpace", [x], blocksize=size, **(_maybe(d, 0.6, mode=d.random.choice(("DCR", "CRD"))) if d.opset >= 11 else {}))
    else:
        d.add("SpaceToDepth", [_value(d, dtype, (batch, depth, high * size, wide * size))], blocksize=size)


def _crop(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is not None:
        rank = d.values[x].ndim
        if d.random.random() < 0.5:
            d.add("CenterCropPad", [x, d.ints(*_shape(d, rank))])
        else:
            axes = _axes(d, rank, 1)
            d.add("CenterCropPad", [x, d.ints(*_shape(d, len(axes)))], axes=axes)


def _triangle(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=2)
    if x is not None:
        diagonal = d.constant(np.array(d.random.choice((-100, -2, -1, 0, 1, 3, 100)), np.int64)) if d.random.random() < 0.7 else ""
        d.add("Trilu", [x, diagonal], **_maybe(d, 0.6, upper=d.random.choice((0, 1))))


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
            d.add("ConstantOfShape", [d.ints(*_shape(d, d.random.choice((0, 1, 2, 3)), (0, 1, 2, 3)))], **_maybe(d, 0.8, value=from_array))
        case 2:
            x = d.some(*TYPES, least=2, most=2)
            dtype = d.random.choice(("f32", "i64", "bool", "f16"))
            d.add("EyeLike", [x], k=d.random.choice((0, 1, -1, 9)), **_maybe(d, 0.5, dtype=TYPES[dtype][0]))
        case 3:
            x = d.some(*TYPES)
            if x is not None:
                d.add("Size", [x])
        case _:
            kind = d.random.choice(("HannWindow", "HammingWindow", "BlackmanWindow"))
            size = d.constant(np.array(d.random.choice((1, 2, 5, 8)), np.int64))
            d.add(kind, [size], rough=True, **_maybe(d, 0.5, periodic=d.random.choice((0, 1))))


def _tensor(a: Array) -> Any:
    return helper.make_tensor("value", TYPES[type_of(a)][0], a.shape, a.tobytes(), raw=True)


# ---------------------------------------------------------------- indices


def _ids(d: NetDrawing, shape: tuple[int, ...], extent: int, negative: bool = True) -> str:
    rng = np.random.default_rng(d.random.getrandbits(32))
    low = -extent if negative and d.random.random() < 0.5 else 0
    return _put(d, rng.integers(low, extent, shape).astype(d.random.choice((np.int64, np.int64, np.int32))))


def _gathers(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1)
    if x is None:
        return
    a = d.values[x]
    axis = _axis(d, a.ndim)
    if not a.size:
        return
    match d.random.randrange(3):
        case 0:
            shape = tuple(d.random.randint(1, n) for n in a.shape)
            shape = tuple(d.random.choice((n, 4)) if k == axis % a.ndim else n for k, n in enumerate(shape))
            d.add("GatherElements", [x, _ids(d, shape, a.shape[axis])], axis=axis)
        case 1:
            batch = d.random.randint(0, min(a.ndim - 1, 2)) if d.opset >= 12 else 0
            depth = d.random.randint(1, a.ndim - batch)
            rng = np.random.default_rng(d.random.getrandbits(32))
            outer = (*a.shape[:batch], *_shape(d, d.random.choice((0, 1, 2)), (1, 2, 3)))
            ids = [rng.integers(-n, n, outer) for n in a.shape[batch : batch + depth]]
            d.add("GatherND", [x, _put(d, np.stack(ids, -1).astype(np.int64))], **({"batch_dims": batch} if batch else {}))
        case _:
            d.add("Gather", [x, _ids(d, _shape(d, d.random.choice((0, 1, 2)), (0, 1, 2, 3)), a.shape[axis])], axis=axis)


def _scatters(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=1, exact=True)
    if x is None or not d.values[x].size:
        return
    a = d.values[x]
    dtype = type_of(a)
    hows = ("none", "add", "mul", "max", "min") if d.opset >= 18 else ("none", "add", "mul")
    how = d.random.choice(hows) if d.opset >= 16 and dtype != "bool" else "none"
    attrs = {"reduction": how} if how != "none" else {}
    rng = np.random.default_rng(d.random.getrandbits(32))
    if d.random.random() < 0.5:
        axis = d.random.randrange(a.ndim)
        shape = tuple(d.random.randint(1, n) for n in a.shape)
        column = (
            rng.permutation(a.shape[axis])[: shape[axis]] if how == "none" else rng.integers(-a.shape[axis], a.shape[axis], shape[axis])
        )
        ids = np.broadcast_to(column.reshape([-1 if k == axis else 1 for k in range(a.ndim)]), shape).astype(np.int64)
        kind = "ScatterElements" if d.opset >= 11 else "Scatter"
        d.add(kind, [x, _put(d, ids), _value(d, dtype, shape)], axis=axis - d.random.choice((0, a.ndim)), **attrs)
    else:
        depth = d.random.randint(1, a.ndim)
        count = d.random.choice((1, 2, 3))
        rows = int(np.prod(a.shape[:depth]))
        flat = rng.permutation(rows)[:count] if how == "none" else rng.integers(0, rows, count)
        ids = np.stack(np.unravel_index(flat, a.shape[:depth]), -1).astype(np.int64)
        d.add("ScatterND", [x, _put(d, ids), _value(d, dtype, (len(flat), *a.shape[depth:]))], **attrs)


def _hot(d: NetDrawing) -> None:
    ids = d.some("i64", "i32", exact=True, most=3) or _value(d, "i64", d.shape())
    dtype = d.random.choice(("f32", "i64", "bool", "i32"))
    depth = d.constant(np.array(d.random.choice((1, 3, 5)), d.random.choice((np.int64, np.int32, np.float32))))
    values = _put(d, np.array([0, 1], TYPES[dtype][1]))
    rank = d.values[ids].ndim
    d.add("OneHot", [ids, depth, values], **_maybe(d, 0.7, axis=d.random.randint(-rank - 1, rank)))


def _tops(d: NetDrawing) -> None:
    x = d.some("f32", "f16", "f64", "i64", "i32", "u8", "i8", least=1, exact=True)
    if x is None:
        return
    a = d.values[x]
    axis = _axis(d, a.ndim)
    count = d.random.randint(0, a.shape[axis])
    attrs = _maybe(d, 0.8, axis=axis) if axis in (-1, a.ndim - 1) else {"axis": axis}
    if d.opset < 10:
        d.add("TopK", [x], 2, k=count, **attrs)
        return
    more = {**_maybe(d, 0.5, largest=d.random.choice((0, 1))), **_maybe(d, 0.3, sorted=1)} if d.opset >= 11 else {}
    d.add("TopK", [x, d.ints(count)], 2, **attrs, **more)


def _best(d: NetDrawing) -> None:
    x = d.some("f32", "f16", "f64", "i64", "i32", "u8", "i8", least=1, exact=True)
    if x is not None and d.values[x].size:
        attrs = {**_maybe(d, 0.7, axis=_axis(d, d.values[x].ndim)), **_maybe(d, 0.5, keepdims=d.random.choice((0, 1)))}
        last = _maybe(d, 0.5, select_last_index=d.random.choice((0, 1))) if d.opset >= 12 else {}
        d.add(d.random.choice(("ArgMax", "ArgMin")), [x], **attrs, **last)


def _sequences(d: NetDrawing) -> None:
    x = d.some(*TYPES, least=2)
    if x is None:
        return
    a = d.values[x]
    time = d.random.choice((0, 1))
    rng = np.random.default_rng(d.random.getrandbits(32))
    # Of more steps than there are, onnx's reference reverses those that it finds and onnxruntime refuses: ONNX says nothing.
    lengths = rng.integers(0, a.shape[time] + 1, a.shape[1 - time]).astype(np.int64)
    d.add("ReverseSequence", [x, _put(d, lengths)], time_axis=time, batch_axis=1 - time)


# ---------------------------------------------------------------- reductions, sums along axes


def _reductions(d: NetDrawing) -> None:
    kind = d.random.choice((*("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1"), *_ROUGH_REDUCTIONS))
    rough = kind in _ROUGH_REDUCTIONS
    types = ("f32", "f32", "f16", "f64") if rough else ("f32", "f32", "f16", "bf16", "f64", "i32", "i64", "i8", "u8", "u32", "u64")
    bools = ("bool",) if kind in ("ReduceMax", "ReduceMin") else ()
    x = d.some(*types, *bools, exact=True)
    if x is None:
        return
    a = d.values[x]
    if kind == "ReduceLogSum" and (not a.size or a.min() <= 0):
        return
    axes = _axes(d, a.ndim) if d.random.random() < 0.8 else None
    since = 13 if kind == "ReduceSum" else 18
    attrs = _maybe(d, 0.7, keepdims=d.random.choice((0, 1)))
    if d.opset >= since:
        attrs.update(_maybe(d, 0.3, noop_with_empty_axes=d.random.choice((0, 1))))
    elif not axes:
        axes = None
    _with_axes(d, kind, x, axes, since, rough=rough, **attrs)


_ROUGH_REDUCTIONS = ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def _cumulative(d: NetDrawing) -> None:
    x = d.some("f32", "f64", "i32", "i64", "u32", least=1, exact=True)
    if x is not None:
        axis = d.constant(np.array(_axis(d, d.values[x].ndim), d.random.choice((np.int64, np.int32))))
        attrs = {**_maybe(d, 0.5, exclusive=d.random.choice((0, 1))), **_maybe(d, 0.5, reverse=d.random.choice((0, 1)))}
        d.add("CumSum", [x, axis], **attrs)


# ---------------------------------------------------------------- products and windows


def _gemm(d: NetDrawing) -> None:
    m, k, n = _shape(d, 3, (1, 2, 3, 5, 8, 9))
    dtype = d.random.choice(("f32", "f32", "f16", "f64", "i32", "i64", "bf16"))
    ta, tb = d.random.choice((0, 1)), d.random.choice((0, 1))
    a, b = _value(d, dtype, (k, m) if ta else (m, k)), _value(d, dtype, (n, k) if tb else (k, n))
    c = _value(d, dtype, d.random.choice(((n,), (1, n), (m, 1), (m, n), (), (1,)))) if d.random.random() < 0.7 or d.opset < 11 else ""
    attrs = {**_maybe(d, 0.3, alpha=d.random.choice((2.0, -1.0, 0.0))), **_maybe(d, 0.3, beta=d.random.choice((2.0, 0.0, -1.0)))}
    d.add("Gemm", [a, b, c], **({"transA": ta} if ta else {}), **({"transB": tb} if tb else {}), **attrs)


def _matmuls(d: NetDrawing) -> None:
    m, k, n = _shape(d, 3, (1, 2, 3, 5, 9))
    dtype = d.random.choice(("f32", "f32", "f16", "f64", "i32", "i64", "u32", "u64", "bf16"))
    batch = _shape(d, d.random.choice((0, 0, 1, 2)), (1, 2, 3))
    other = _broadcast(d, batch) if batch else ()
    a = _value(d, dtype, d.random.choice(((*batch, m, k), (*batch, m, k), (k,))))
    b = _value(d, dtype, d.random.choice(((*other, k, n), (*other, k, n), (k,))))
    d.add("MatMul", [a, b])


def _einsum(d: NetDrawing) -> None:
    sizes = {c: d.random.choice((1, 2, 3, 4)) for c in "abcde"}
    equation = d.random.choice(_EQUATIONS)
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    dtype = d.random.choice(("f32", "f32", "f64", "f16", "i32"))
    shapes = []
    for term in terms:
        lead = (2,) * term.count("...")
        shapes.append((*lead, *(sizes[c] for c in term.replace("...", ""))))
    d.add("Einsum", [_value(d, dtype, s) for s in shapes], equation=equation)


_EQUATIONS = (
    *(
        "ab,bc->ac",
        "ab,bc",
        "abc,acd->abd",
        "ab->ba",
        "ab->a",
        "ab->",
        "aab->ab",
        "aa->",
        "aa->a",
        "ab,ab->ab",
        "a,b->ab",
        "...ab,...bc->...ac",
    ),
    *(
        "...a->...",
        "ab , cb -> ac",
        "abcd,abed->abce",
        "abc,cd,de->abe",
        "...ab->...ba",
        "ab,ab,ab->a",
        "a...,a...->...",
        "abc->cb",
        "...,...->...",
    ),
)


def _window(d: NetDrawing, extents: Sequence[int], pool: bool) -> dict[str, Any]:
    """Return the attributes of windows over axes: not square, dilated, padded unevenly or as `auto_pad` says. Only windows that leave out
    no element between them are padded to the same extent: else the padding is less than nothing, which every runtime takes for something
    else."""
    rank = len(extents)
    kernel = _dims(d, rank, 1, 3)
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    attrs.update(_maybe(d, 0.7, strides=_dims(d, rank, 1, 3)))
    match d.random.randrange(5):
        case 0 if all(s <= k for s, k in zip(attrs.get("strides", kernel), kernel, strict=True)):
            attrs["auto_pad"] = d.random.choice(("SAME_UPPER", "SAME_LOWER"))
        case 1:
            attrs["auto_pad"] = "VALID"
        case 2:
            attrs["pads"] = [d.random.randint(0, k - 1 if pool else 2) for k in (*kernel, *kernel)]
        case 3:
            attrs["pads"] = [k // 2 for k in (*kernel, *kernel)]
        case _:
            pass
    return attrs


def _image(d: NetDrawing, types: Sequence[str], channels: Sequence[int] = (1, 2, 3, 4, 8)) -> str:
    there = d.some(*types, least=3, most=5, exact=True)
    if there is not None and d.random.random() < 0.5 and d.values[there].size:
        return there
    rank = d.random.choice((1, 2, 2, 2, 3))
    return _value(
        d, d.random.choice(types), (d.random.choice((1, 1, 2)), d.random.choice(channels), *_shape(d, rank, (1, 2, 3, 4, 5, 6, 7)))
    )


def _convs(d: NetDrawing) -> None:
    x = _image(d, ("f32", "f32", "f32", "f16", "f64"))
    a = d.values[x]
    attrs = {**_window(d, a.shape[2:], False), **_maybe(d, 0.4, dilations=_dims(d, a.ndim - 2, 1, 2))}
    group = d.random.choice([g for g in range(1, a.shape[1] + 1) if a.shape[1] % g == 0])
    out = group * d.random.choice((1, 1, 2, 3))
    w = _value(d, type_of(a), (out, a.shape[1] // group, *attrs["kernel_shape"]))
    bias = _value(d, type_of(a), (out,)) if d.random.random() < 0.5 else ""
    if d.random.random() < 0.4:
        del attrs["kernel_shape"]
    d.add("Conv", [x, w, bias], **attrs, **({"group": group} if group > 1 else {}))


def _transposed_convs(d: NetDrawing) -> None:
    x = _image(d, ("f32", "f32", "f16", "f64"), (1, 2, 3, 4))
    a = d.values[x]
    rank = a.ndim - 2
    attrs = {**_window(d, a.shape[2:], False), **_maybe(d, 0.4, dilations=_dims(d, rank, 1, 2))}
    group = d.random.choice([g for g in range(1, a.shape[1] + 1) if a.shape[1] % g == 0])
    w = _value(d, type_of(a), (a.shape[1], d.random.choice((1, 2, 3)), *attrs["kernel_shape"]))
    bias = _value(d, type_of(a), (d.values[w].shape[1] * group,)) if d.random.random() < 0.5 else ""
    stride = attrs.get("strides", [1] * rank)
    attrs.update(_maybe(d, 0.3, output_padding=[d.random.randint(0, s - 1) for s in stride]))
    if d.random.random() < 0.15:
        attrs.pop("pads", None)
        attrs["output_shape"] = [h * s + d.random.choice((0, 0, 1)) for h, s in zip(a.shape[2:], stride, strict=True)]
    d.add("ConvTranspose", [x, w, bias], **attrs, **({"group": group} if group > 1 else {}))


def _pools(d: NetDrawing) -> None:
    kind = d.random.choice(("MaxPool", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    x = _image(d, ("f32", "f32", "f16", "f64", "i8", "u8") if kind == "MaxPool" and d.opset >= 12 else ("f32", "f32", "f16", "f64"))
    a = d.values[x]
    if kind.startswith("Global"):
        d.add(kind, [x], rough=kind != "GlobalMaxPool")
        return
    attrs = _window(d, a.shape[2:], True)
    attrs.update(_maybe(d, 0.4, ceil_mode=1) if d.opset >= (10 if kind != "LpPool" else 18) else {})
    attrs.update(
        _maybe(d, 0.3, dilations=_dims(d, a.ndim - 2, 1, 2)) if d.opset >= {"MaxPool": 10, "AveragePool": 19}.get(kind, 18) else {}
    )
    match kind:
        case "MaxPool":
            attrs.update(_maybe(d, 0.3, storage_order=d.random.choice((0, 1))) if d.opset >= 8 else {})
            d.add(kind, [x], d.random.choice((1, 1, 2)), **attrs)
        case "AveragePool":
            d.add(kind, [x], rough=True, **attrs, **_maybe(d, 0.5, count_include_pad=d.random.choice((0, 1))))
        case _ if all(k <= n for k, n in zip(attrs["kernel_shape"], a.shape[2:], strict=True)):  # else onnxruntime makes one of none
            d.add(kind, [x], rough=True, **attrs, **_maybe(d, 0.5, p=d.random.choice((1, 2, 3))))
        case _:
            pass


# ---------------------------------------------------------------- normalisation


def _norms(d: NetDrawing) -> None:
    kinds = ("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "LRN", "LpNormalization")
    kind = d.random.choice((*kinds, "MeanVarianceNormalization", "RMSNormalization"))
    dtype = d.random.choice(("f32", "f32", "f32", "f16", "f64"))
    rank = (
        d.random.choice((2, 3, 4)) if kind not in ("InstanceNormalization", "MeanVarianceNormalization", "LRN") else d.random.choice((3, 4))
    )
    shape = (d.random.choice((1, 2, 3)), d.random.choice((2, 4, 6)), *_shape(d, rank - 2, (2, 3, 4)))
    x = _value(d, dtype, shape)
    channels, eps = shape[1], _maybe(d, 0.5, epsilon=d.random.choice((0.5, 1e-3, 1.0)))
    match kind:
        case "BatchNormalization":
            scale, bias, mean = (_value(d, dtype, (channels,)) for _ in range(3))
            var = _put(d, np.abs(d.array(dtype, (channels,))) + np.ones((), TYPES[dtype][1]))
            d.add(kind, [x, scale, bias, mean, var], rough=True, **eps)
        case "LayerNormalization" | "RMSNormalization":
            axis = _axis(d, rank)
            rest = shape[axis:] if axis < 0 else shape[axis - rank :]
            scale = _value(d, dtype, d.random.choice((rest, rest, rest[-1:])))
            bias = [_value(d, dtype, rest)] if kind.startswith("Layer") and d.random.random() < 0.6 else []
            outputs = d.random.choice((1, 1, 2, 3)) if kind.startswith("Layer") else 1
            d.add(kind, [x, scale, *bias], outputs, rough=True, axis=axis, **eps)
        case "InstanceNormalization":
            d.add(kind, [x, _value(d, dtype, (channels,)), _value(d, dtype, (channels,))], rough=True, **eps)
        case "GroupNormalization":
            groups = d.random.choice([g for g in (1, 2, 3, 4, 6) if channels % g == 0])
            count = channels if d.opset >= 21 else groups
            d.add(kind, [x, _value(d, dtype, (count,)), _value(d, dtype, (count,))], rough=True, num_groups=groups, **eps)
        case "LRN":
            attrs = {**_maybe(d, 0.5, alpha=0.5), **_maybe(d, 0.5, beta=0.5), **_maybe(d, 0.5, bias=2.0)}
            d.add(kind, [x], rough=True, size=d.random.choice((1, 2, 3, 4, 5)), **attrs)
        case "LpNormalization":
            d.add(kind, [x], rough=True, **_maybe(d, 0.8, axis=_axis(d, rank)), **_maybe(d, 0.6, p=d.random.choice((1, 2))))
        case _:
            d.add(kind, [x], rough=True, **({"axes": _axes(d, rank, 1)} if rank != 4 else _maybe(d, 0.6, axes=_axes(d, rank, 1))))


def _softmaxes(d: NetDrawing) -> None:
    x = d.some("f32", "f32", "f16", "f64", least=1, exact=True)
    if x is not None:
        kind = d.random.choice(("Softmax", "LogSoftmax", "Hardmax"))
        low = -d.values[x].ndim if d.opset >= 11 else 0
        axis = d.random.randrange(low, d.values[x].ndim)
        d.add(kind, [x], rough=kind != "Hardmax", **_maybe(d, 0.8, axis=axis))


# ---------------------------------------------------------------- quantised


def _power_of_two(d: NetDrawing, shape: tuple[int, ...], dtype: str = "f32") -> Array:
    return np.array(2.0 ** np.array(d.random.choices((-2, -1, 0, 1), k=int(np.prod(shape)))), TYPES[dtype][1]).reshape(shape)


def _quantise(d: NetDrawing) -> None:
    dtype = d.random.choice(("f32", "f32", "f32", "f16"))
    to = d.random.choice(("i8", "u8", "i8", "u8", "i16", "u16"))
    x = _put(d, _parts(d, dtype, d.shape(), 0.5, 300), 0.1)
    a = d.values[x]
    per_axis = a.ndim > 0 and d.random.random() < 0.4
    axis = _axis(d, a.ndim) if per_axis else 0
    shape = (a.shape[axis],) if per_axis else d.random.choice(((), (), (1,)))
    scale = _put(d, _power_of_two(d, shape, dtype), 0.8)
    zero = _put(d, d.array(to, shape), 0.8) if d.random.random() < 0.8 else ""
    d.add("QuantizeLinear", [x, scale, zero], **({"axis": axis} if per_axis else {}))


def _dequantise(d: NetDrawing) -> None:
    dtype = d.random.choice(("i8", "u8", "i8", "u8", "i32", "i16", "u16"))
    x = d.some(dtype) or _value(d, dtype, d.shape())
    a = d.values[x]
    per_axis = a.ndim > 0 and d.random.random() < 0.4
    axis = _axis(d, a.ndim) if per_axis else 0
    shape = (a.shape[axis],) if per_axis else ()
    scale = _put(d, _power_of_two(d, shape, d.random.choice(("f32", "f32", "f16"))), 0.8)
    zero = _put(d, d.array(dtype, shape), 0.8) if dtype != "i32" and d.random.random() < 0.8 else ""
    d.add("DequantizeLinear", [x, scale, zero], rough=True, **({"axis": axis} if per_axis else {}))


def _in_blocks(d: NetDrawing) -> None:
    """Weights with a scale for each block of their elements, multiplied as they are wherever that is what comes of them."""
    dtype = d.random.choice(("i8", "u8", "i16", "i32"))
    shape = _shape(d, d.random.choice((1, 2, 2, 3)), (2, 3, 4, 5, 8))
    axis = _axis(d, len(shape))
    size = d.random.randint(1, shape[axis])
    blocks = tuple(-(-n // size) if k == axis % len(shape) else n for k, n in enumerate(shape))
    if d.random.random() < 0.7:
        x = _put(d, d.array(dtype, shape), 0.7)
        zero = _put(d, d.array(dtype, blocks), 0.8) if dtype != "i32" and d.random.random() < 0.6 else ""
        d.add("DequantizeLinear", [x, _put(d, _power_of_two(d, blocks), 0.8), zero], axis=axis, block_size=size, rough=True)
        return
    x = _put(d, _parts(d, "f32", shape, 0.5, 100), 0.1)
    zero = _put(d, d.array(d.random.choice(("i8", "u8")), blocks), 0.8)
    d.add("QuantizeLinear", [x, _put(d, _power_of_two(d, blocks), 0.8), zero], axis=axis, block_size=size)


def _bytes_of_floats(d: NetDrawing) -> None:
    kind = d.random.choice(("f8", "f8e5"))
    if d.random.random() < 0.5:
        zero = d.constant(np.zeros((), TYPES[kind][1]))
        d.add("QuantizeLinear", [_put(d, _parts(d, "f32", d.shape(), 1.0, 3), 0.1), d.constant(np.float32(0.5)), zero])
    else:
        d.add("DequantizeLinear", [_put(d, _parts(d, kind, d.shape(), 0.5, 3), 0.3), d.constant(np.float32(0.5))], rough=True)


def _dynamic(d: NetDrawing) -> None:
    a = _parts(d, "f32", d.random.choice(((2, 3), (5,), (2, 3, 4))), 0.5, 100).reshape(-1)
    a[0], a[-1] = -63.5, 64.0
    d.add("DynamicQuantizeLinear", [_put(d, a, 0.1)], 3)


def _integer_products(d: NetDrawing) -> None:
    m, k, n = _shape(d, 3, (1, 2, 3, 4, 8, 9))
    first, second = d.random.choice(("u8", "u8", "i8")), d.random.choice(("u8", "i8", "i8"))
    lead = _shape(d, d.random.choice((0, 0, 1)), (1, 2))
    a, b = _wide(d, first, (*lead, m, k)), _wide(d, second, (*lead, k, n))
    if d.random.random() < 0.5:
        az = _put(d, d.array(first, d.random.choice(((), (), (1,)))), 0.8) if d.random.random() < 0.7 else ""
        bz = _put(d, d.array(second, d.random.choice(((), (), (1,), (n,)))), 0.8) if d.random.random() < 0.7 else ""
        d.add("MatMulInteger", [a, b, az, bz])
        return
    out = d.random.choice(
        ("u8", "i8")
    )  # its zero point is even: what lies between two integers then rounds to the same, added before or after
    by_column = d.random.random() < 0.3
    scale = [_put(d, _power_of_two(d, s), 0.8) for s in ((), (n,) if by_column else (), ())]
    az, bz, yz = (
        _put(d, d.array(first, ()), 0.8),
        _put(d, d.array(second, (n,) if by_column else ()), 0.8),
        _put(d, 2 * d.array(out, ()), 0.8),
    )
    d.add("QLinearMatMul", [a, scale[0], az, b, scale[1], bz, scale[2], yz])


def _wide(d: NetDrawing, dtype: str, shape: tuple[int, ...], constant: float = 0.4) -> str:
    """Return bytes of their whole range."""
    rng = np.random.default_rng(d.random.getrandbits(32))
    limits = np.iinfo(TYPES[dtype][1])
    return _put(d, rng.integers(limits.min, limits.max + 1, shape).astype(TYPES[dtype][1]), constant)


def _integer_convs(d: NetDrawing) -> None:
    rank = d.random.choice((1, 2, 2))
    first, second = d.random.choice(("u8", "u8", "i8")), d.random.choice(("u8", "i8", "i8"))
    channels = d.random.choice((1, 2, 4, 8))
    x = _wide(d, first, (d.random.choice((1, 2)), channels, *_shape(d, rank, (3, 4, 5))), 0.1)
    attrs = {**_window(d, d.values[x].shape[2:], False), **_maybe(d, 0.3, dilations=_dims(d, rank, 1, 2))}
    group = d.random.choice([g for g in range(1, channels + 1) if channels % g == 0])
    out = group * d.random.choice((1, 2, 3))
    weights = d.array(
        second, (out, channels // group, *attrs["kernel_shape"])
    )  # small: onnxruntime saturates sums of pairs on some machines
    w = _put(d, weights, 0.8)
    attrs |= {"group": group} if group > 1 else {}
    if d.random.random() < 0.4:
        xz = _put(d, d.array(first, ()), 0.8) if d.random.random() < 0.7 else ""
        wz = _put(d, d.array(second, d.random.choice(((), (out,)))), 0.8) if d.random.random() < 0.7 else ""
        d.add("ConvInteger", [x, w, xz, wz], **attrs)
        return
    result, per_channel = d.random.choice(("u8", "i8")), d.random.random() < 0.5
    shape = (out,) if per_channel else ()
    bias = [_put(d, d.array("i32", (out,)) * np.int32(100), 0.8)] if d.random.random() < 0.5 else []
    xs, ws, ys = (_put(d, _power_of_two(d, s), 0.8) for s in ((), shape, ()))
    xz, wz, yz = _put(d, d.array(first, ()), 0.8), _put(d, d.array(second, shape), 0.8), _put(d, 2 * d.array(result, ()), 0.8)
    d.add("QLinearConv", [x, xs, xz, w, ws, wz, ys, yz, *bias], **attrs)


# ---------------------------------------------------------------- recurrent


def _recurrent(d: NetDrawing) -> None:
    kind = d.random.choice(("LSTM", "GRU", "RNN"))
    gates, states = {"LSTM": (4, 2), "GRU": (3, 1), "RNN": (1, 1)}[kind]
    steps, batch, width, size = _shape(d, 4, (1, 2, 3, 4))
    direction = d.random.choice(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    layout = d.random.choice((0, 0, 0, 1)) if d.opset >= 14 and direction == "forward" else 0
    dtype = "f32"

    def given(*shape: int) -> str:
        return _put(d, _parts(d, dtype, shape, 0.25, 4), 0.7)

    def state(chance: float) -> str:
        return given(*((batch, count, size) if layout else (count, batch, size))) if d.random.random() < chance else ""

    x = _put(d, _parts(d, dtype, (batch, steps, width) if layout else (steps, batch, width)), 0.1)
    w, r = given(count, gates * size, width), given(count, gates * size, size)
    b = given(count, 2 * gates * size) if d.random.random() < 0.7 else ""
    rng = np.random.default_rng(d.random.getrandbits(32))
    lengths = _put(d, rng.integers(1, steps + 1, batch).astype(np.int32)) if d.random.random() < 0.3 and not layout else ""
    inputs = [x, w, r, b, lengths, state(0.5)]
    if kind == "LSTM":
        inputs += [state(0.5), given(count, 3 * size) if d.random.random() < 0.3 else ""]
    attrs: dict[str, Any] = _maybe(d, 0.3, linear_before_reset=1) if kind == "GRU" else {}
    attrs |= {"layout": 1} if layout else {}
    attrs |= {} if direction == "forward" and d.random.random() < 0.5 else {"direction": direction}
    if d.random.random() < 0.2:
        per = {"LSTM": 3, "GRU": 2, "RNN": 1}[kind] * count
        attrs["activations"] = [d.random.choice(("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")) for _ in range(per)]
    outputs = d.random.choice((1, 2, states + 1))
    d.add(kind, inputs, outputs, rough=True, left=d.random.choice((0, 0, outputs - 1)), hidden_size=size, **attrs)


# ---------------------------------------------------------------- resizing


def _resize(d: NetDrawing) -> None:
    dtype = d.random.choice(("f32", "f32", "f32", "f16", "f64", "u8", "i8", "i32"))
    rank = d.random.choice((1, 2, 3, 4, 4))
    shape = (*((1, 2)[: rank - 2] if rank > 2 else ()), *_shape(d, min(rank, 2), (1, 2, 3, 4, 5)))
    x = _value(d, dtype, shape)
    mode = d.random.choice(("nearest", "nearest", "linear", "linear", "cubic"))
    if mode != "nearest" and dtype not in ("f32", "f16", "f64"):
        mode = "nearest"
    whole = d.random.choice((None, None, 2))
    scales = [whole or d.random.choice((1.0, 2.0, 0.5, 1.5, 3.0, 0.75)) if k >= len(shape) - 2 else 1.0 for k in range(len(shape))]
    mode = "linear" if mode == "cubic" and d.opset < 11 else mode
    if d.opset < 10:
        d.add("Upsample", [x, d.constant(np.maximum(scales, 1).astype(np.float32))], rough=mode == "linear", mode=mode)
        return
    if d.opset == 10:
        d.add("Resize", [x, d.constant(np.array(scales, np.float32))], rough=mode == "linear", mode=mode)
        return
    places = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize", "half_pixel_symmetric")
    place = d.random.choice(places)
    attrs: dict[str, Any] = {
        "mode": mode,
        **({} if place == "half_pixel" and d.random.random() < 0.5 else {"coordinate_transformation_mode": place}),
    }
    if mode == "nearest":
        attrs |= _maybe(d, 0.6, nearest_mode=d.random.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")))
    if mode == "cubic":
        attrs |= {**_maybe(d, 0.4, cubic_coeff_a=-0.5), **_maybe(d, 0.4, exclude_outside=1)}
    if mode != "nearest" and d.opset >= 18:
        attrs |= _maybe(d, 0.25, antialias=1)
    roi = ""
    if place == "tf_crop_and_resize" and dtype != "f64":
        region = [0.0] * len(shape) + [1.0] * len(shape)  # all there is: onnxruntime crops no axis that keeps its extent
        roi = d.constant(np.array(region, np.float32))
        attrs |= _maybe(d, 0.5, extrapolation_value=2.0)
    axes = list(range(len(shape)))
    if d.opset >= 18 and not roi and d.random.random() < 0.3:
        axes = axes[-2:] if d.random.random() < 0.7 else list(reversed(axes[-2:]))
        attrs["axes"] = [k - len(shape) if d.random.random() < 0.3 else k for k in axes]
    counted = all(k >= 0 for k in attrs.get("axes", ()))
    rough = mode != "nearest"
    if d.random.random() < 0.5 and place != "align_corners":  # the references disagree on which extent the corners are of
        d.add("Resize", [x, roi, d.constant(np.array([scales[k] for k in axes], np.float32))], rough=rough, **attrs)
    else:
        sizes = [max(1, int(shape[k] * scales[k])) + d.random.choice((0, 0, 1)) if scales[k] != 1 else shape[k] for k in axes]
        if d.opset >= 18 and counted:  # of axes from the end, onnxruntime keeps no ratio and the reference knows none at all
            attrs |= _maybe(d, 0.25, keep_aspect_ratio_policy=d.random.choice(("not_larger", "not_smaller", "stretch")))
        d.add("Resize", [x, roi, "", d.ints(*sizes)], rough=rough, **attrs)


# ---------------------------------------------------------------- attention


def _attention(d: NetDrawing) -> None:
    batch, shared, size = d.random.choice((1, 2)), d.random.choice((1, 2)), d.random.choice((2, 4))
    heads, queries, keys = shared * d.random.choice((1, 2)), d.random.choice((1, 3, 4)), d.random.choice((2, 4, 5))
    flat = d.random.random() < 0.4

    def given(count: int, length: int) -> str:
        return _put(d, _parts(d, "f32", (batch, length, count * size) if flat else (batch, count, length, size), 0.25, 6), 0.1)

    mask = ""
    if d.random.random() < 0.4:
        shape = d.random.choice(((queries, keys), (1, 1, queries, keys), (batch, heads, queries, keys)))
        a = d.array("bool", shape)
        a[..., 0] = True
        mask = _put(d, a) if d.random.random() < 0.5 else _put(d, _parts(d, "f32", shape))
    attrs: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": shared} if flat else {}
    attrs |= {**_maybe(d, 0.3, is_causal=1), **_maybe(d, 0.3, scale=0.5), **_maybe(d, 0.2, softcap=2.0)}
    d.add("Attention", [given(heads, queries), given(shared, keys), given(shared, keys), mask], rough=True, **attrs)


def _rotary(d: NetDrawing) -> None:
    batch, heads, steps, size = d.random.choice((1, 2)), d.random.choice((1, 2)), d.random.choice((1, 3)), d.random.choice((4, 8))
    x = _put(d, _parts(d, "f32", (batch, heads, steps, size)), 0.1)
    width = d.random.choice((size, size, size // 2))
    tables = [_put(d, _parts(d, "f32", (batch, steps, width // 2))) for _ in range(2)]
    attrs = {**_maybe(d, 0.4, interleaved=1), **({"rotary_embedding_dim": width} if width != size else {})}
    d.add("RotaryEmbedding", [x, *tables], rough=True, **attrs)


OPERATORS: tuple[Rule, ...] = (
    *(_function, _function, _function, _function, _rounding, _special, _several, _integers, _integers, _power, _floats_mod, _clip, _prelu),
    *(_where_all, _casts, _casts, _logic, _inference, _squeezes, _squeezes, _reshapes, _reshapes, _shape_arithmetic, _slices, _slices),
    *(_splits, _pads, _pads, _repeats, _repeats, _blocks, _crop, _triangle, _known, _gathers, _gathers, _scatters, _scatters, _hot, _tops),
    *(_best, _sequences, _reductions, _reductions, _reductions, _cumulative, _gemm, _gemm, _matmuls, _matmuls, _einsum, _convs, _convs),
    *(
        _transposed_convs,
        _pools,
        _pools,
        _norms,
        _norms,
        _norms,
        _softmaxes,
        _quantise,
        _dequantise,
        _in_blocks,
        _bytes_of_floats,
        _dynamic,
        _integer_products,
    ),
    *(
        _integer_products,
        _integer_convs,
        _integer_convs,
        _recurrent,
        _recurrent,
        _recurrent,
        _resize,
        _resize,
        _resize,
        _attention,
        _rotary,
    ),
)
