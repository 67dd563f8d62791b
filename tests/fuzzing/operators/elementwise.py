"""Functions of elements: arithmetic, rounding, casts, choices."""

from __future__ import annotations

import numpy as np

from fuzzing.network import FLOATS, TYPES, WHOLE, NetDrawing, Rule, type_of
from fuzzing.operators import draw


def _function(d: NetDrawing) -> None:
    kind, low, high = d.random.choice(_FUNCTIONS)
    dtype = d.random.choice(("f32", "f32", "f32", "f16", "f64"))
    x = d.some(dtype, exact=True)
    if x is None or d.random.random() < 0.4 or (d.values[x].size and (d.values[x].min() < low or d.values[x].max() > high)):
        a = np.clip(draw.parts(d, dtype, d.shape()).astype(np.float64), low, high)
        x = draw.put(d, a.astype(TYPES[dtype][1]), 0.1)
    attrs = {name: d.random.choice((0.5, 1.0, 0.25, 2.0, -0.5)) for name in _ALPHA.get(kind, ()) if d.random.random() < 0.7}
    if kind == "Gelu":
        attrs = draw.maybe(d, 0.5, approximate="tanh")
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
    x = draw.put(d, draw.parts(d, d.random.choice(("f32", "f32", "f16", "f64")), d.shape(), 0.5), 0.2)
    d.add(d.random.choice(("Floor", "Ceil", "Round", "Sign")), [x])


def _special(d: NetDrawing) -> None:
    """What is asked of infinities and of what is no number."""
    a = draw.parts(d, d.random.choice(("f32", "f32", "f16", "f64")), d.shape(), 1.0).reshape(-1)
    for k in range(a.size):
        if d.random.random() < 0.4:
            a[k] = d.random.choice((np.inf, -np.inf, np.nan, -0.0, 0.0))
    x = draw.put(d, a, 0.1)
    match d.random.randrange(5):
        case 0:
            d.add("IsNaN", [x])
        case 1:
            d.add("IsInf", [x], **draw.maybe(d, 0.5, detect_negative=d.random.choice((0, 1))), **draw.maybe(d, 0.5, detect_positive=0))
        case 2:
            d.add(d.random.choice(("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")), [x, draw.put(d, a[::-1].copy())])
        case 3:
            d.add("Cast", [x], to=TYPES["bool"][0])
        case _:
            d.add("Sign", [x])


def _several(d: NetDrawing) -> None:
    """Operators of any number of operands."""
    x = d.some(*FLOATS, *WHOLE)
    if x is not None:
        a = d.values[x]
        others = [d.operand(type_of(a), draw.broadcast(d, a.shape)) for _ in range(d.random.choice((0, 1, 2, 3)))]
        operands = [x, *others]
        d.random.shuffle(operands)
        kind = d.random.choice(("Sum", "Max", "Min", "Mean"))
        d.add(kind, operands, rough=kind == "Mean")


def _integers(d: NetDrawing) -> None:
    dtype = d.random.choice(WHOLE)
    x = d.some(dtype) or draw.value(d, dtype, d.shape())
    shape = draw.broadcast(d, d.values[x].shape)
    kind = d.random.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift", "Mod", "Mod", "Div", "Pow", "Neg", "Abs"))
    y = d.array(dtype, shape)
    match kind:
        case "BitwiseNot" | "Neg" | "Abs":
            d.add(kind, [x])
        case "BitShift":
            d.add(kind, [x, draw.put(d, y)], direction=d.random.choice(("LEFT", "RIGHT")))
        case "Mod":
            d.add(kind, [x, draw.put(d, np.where(y == 0, 2, y).astype(y.dtype))], **draw.maybe(d, 0.4, fmod=1))
        case "Div":
            d.add(kind, [x, draw.put(d, np.where(y == 0, 3, y).astype(y.dtype))])
        case "Pow":
            d.add(kind, [x, draw.put(d, np.abs(y.astype(np.int64)).astype(TYPES[d.random.choice((dtype, "i64", "i32", "f32"))][1]))])
        case _:
            d.add(kind, [x, draw.put(d, y)])


def _power(d: NetDrawing) -> None:
    x = d.some("f32", "f64", "f16", exact=True)
    if x is not None:
        exponent = d.random.choice((np.float32(2), np.float32(3), np.int64(2), np.int32(0), np.float64(1), np.int64(1)))
        d.add("Pow", [x, draw.put(d, np.asarray(exponent))])


def _floats_mod(d: NetDrawing) -> None:
    x = d.some("f32", "f64", exact=True)
    if x is not None:
        y = d.array(type_of(d.values[x]), draw.broadcast(d, d.values[x].shape))
        d.add("Mod", [x, draw.put(d, np.where(y == 0, 2, y).astype(y.dtype))], fmod=1)


def _clip(d: NetDrawing) -> None:
    x = d.some(*FLOATS, *WHOLE)
    if x is None:
        return
    low, high = d.random.choice(((0, 2), (1, 3), (2, 1), (0, 0)))
    if d.opset < 11:
        d.add("Clip", [x], **draw.maybe(d, 0.7, min=float(low)), **draw.maybe(d, 0.7, max=float(high)))
        return
    lo = draw.put(d, np.array(low, d.values[x].dtype)) if d.random.random() < 0.7 else ""
    hi = draw.put(d, np.array(high, d.values[x].dtype)) if d.random.random() < 0.7 else ""
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
        d.add("Where", [d.operand("bool", draw.broadcast(d, shape)), x, d.operand(type_of(d.values[x]), draw.broadcast(d, shape))])


def _casts(d: NetDrawing) -> None:
    x = d.some(*TYPES, exact=True)
    if x is None:
        return
    if d.random.random() < 0.5:
        to = d.random.choice(("f32", "f16", "f64", "bf16", "bool"))
        d.add("CastLike", [x, d.operand(to, (1,))])
    else:
        d.add("Cast", [x], to=TYPES[d.random.choice(("f8", "f8e5", "f16", "bf16"))][0], **draw.maybe(d, 0.4, saturate=0))


def _logic(d: NetDrawing) -> None:
    x = d.some("bool") or draw.value(d, "bool", d.shape())
    d.add(d.random.choice(("And", "Or", "Xor", "Equal")), [x, d.operand("bool", draw.broadcast(d, d.values[x].shape))])


def _inference(d: NetDrawing) -> None:
    x = d.some("f32", "f16", "f64")
    if x is None:
        return
    if d.opset < 12:
        d.add("Dropout", [x], d.random.choice((1, 2)), **draw.maybe(d, 0.5, ratio=0.3))
    else:
        ratio = d.constant(np.float32(0.3)) if d.random.random() < 0.5 else ""
        training = d.constant(np.array(False)) if d.random.random() < 0.5 else ""
        d.add("Dropout", [x, ratio, training], d.random.choice((1, 2)))


RULES: tuple[Rule, ...] = (
    _function,
    _function,
    _function,
    _function,
    _rounding,
    _special,
    _several,
    _integers,
    _integers,
    _power,
    _floats_mod,
    _clip,
    _prelu,
    _where_all,
    _casts,
    _casts,
    _logic,
    _inference,
)
