"""Elementwise operators: arithmetic, comparisons, logic, activations, casts."""

from __future__ import annotations

from functools import reduce
from math import prod
from zlib import crc32

import numpy as np

from codegen.dtypes import DTYPES, FORMATS, DType, largest
from stdlib.onnx.items import Item
from stdlib.onnx.site import Rule, Site
from stdlib.onnx.table.entry import Entry, undefined
from stdlib.onnx.table.strings import to_numbers, to_strings
from stdlib.onnx.tensors import STRING, TYPE_NUMBERS, element_type
from tensorlang.graph.nodes import Value


def unary(f: str) -> Rule:
    return lambda n: n.op("map", n.arg(0), f=f)


def plain(operator: str) -> Rule:
    return lambda n: n.op(operator, *n.args())


def binary(operator: str) -> Rule:
    """Two operands that broadcast as in NumPy or, before version 7, where the attributes `broadcast` and `axis` say."""

    return lambda n: n.op(operator, n.arg(0), _second(n))


def _second(n: Site) -> Value:
    """Return the second operand with the axes that broadcast, which before version 7 `axis` says."""
    a, b = n.arg(0), n.arg(1)
    if n.node.since >= 7 or not n.flag("broadcast"):
        return b
    axis = n.axis("axis", -1, len(a.shape)) if n.has("axis") else len(a.shape) - len(b.shape)
    if axis < 0 or axis + len(b.shape) > len(a.shape):
        raise n.wrong(f"an operand of the shape {list(b.shape)} does not fit {list(a.shape)} at axis {axis}")
    return n.view(b, b.shape + (1,) * (len(a.shape) - axis - len(b.shape)))


def by_kind(floats: str, integers: str) -> Rule:
    rules = binary(floats), binary(integers)
    return lambda n: rules[0 if n.arg(0).dtype.is_float else 1](n)


def chain(operator: str) -> Rule:
    return lambda n: reduce(lambda a, b: n.op(operator, a, b), n.args())


def mean(n: Site) -> Value:
    total = reduce(lambda a, b: n.op("add", a, b), n.args())
    return n.op("div", total, n.filled((), total.dtype, len(n.inputs)))


def power(n: Site) -> Value:
    """Integers are raised in f64; the result has the type of the base."""
    a, b = n.arg(0), _second(n)
    if a.dtype.is_float:
        return n.op("power", a, cast(n, b, a.dtype))
    wide = DTYPES["f64"]
    return cast(n, n.op("power", cast(n, a, wide), cast(n, b, wide)), a.dtype)


def mod(n: Site) -> Value:
    if n.arg(0).dtype.is_float:
        if not n.flag("fmod") and n.node.since < 28:
            raise n.wrong("floats need fmod = 1")
        return n.op("remainder" if n.flag("fmod") else "mod", n.arg(0), n.arg(1))
    return n.op("remainder_int" if n.flag("fmod") else "mod_int", n.arg(0), n.arg(1))


def shift(n: Site) -> Value:
    left = n.text("direction", "", ("LEFT", "RIGHT")) == "LEFT"
    return n.op("shift_left" if left else "shift_right", n.arg(0), n.arg(1), bits=n.arg(0).dtype.bits)


WITH_ALPHA = {"LeakyRelu": ("leaky_relu", 0.01), "Elu": ("elu", 1.0), "Celu": ("celu", 1.0), "ThresholdedRelu": ("thresholded_relu", 1.0)}
"""Activations of one parameter, `alpha`, and what it is where a model gives none."""
WITH_TWO = {
    "HardSigmoid": ("hard_sigmoid", ("alpha", 0.2), ("beta", 0.5)),
    "Selu": ("selu", ("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
}
"""Activations of two parameters, and what these are where a model gives none."""


def with_alpha(f: str, alpha: float) -> Rule:
    return lambda n: n.op("map_with", n.arg(0), f=f, a=n.real("alpha", alpha))


def with_two(f: str, first: tuple[str, float], second: tuple[str, float]) -> Rule:
    return lambda n: n.op("map_with_two", n.arg(0), f=f, a=n.real(*first), b=n.real(*second))


def shrink(n: Site) -> Value:
    """Integers are compared with what need not be one, in f64; what of a result is none is cut off."""
    x = n.arg(0)
    wide = cast(n, x, DTYPES["f64"]) if x.dtype.is_integer else x
    return cast(n, n.op("map_with_two", wide, f="soft_shrink", a=n.real("bias", 0.0), b=n.real("lambd", 0.5)), x.dtype)


def gelu(n: Site) -> Value:
    exact = n.text("approximate", "none", ("none", "tanh")) == "none"
    return n.op("map", n.arg(0), f="gelu" if exact else "gelu_tanh")


def prelu(n: Site) -> Value:
    """Before version 7 the slope is one number, or one a channel."""
    x, slope = n.arg(0), n.arg(1)
    if n.node.since < 7 and len(slope.shape) == 1 and len(x.shape) > 1:
        slope = n.view(slope, slope.shape + (1,) * (len(x.shape) - 2))
    return n.op("prelu", x, slope)


def clip_attributes(n: Site) -> Value:
    """Before version 11 the bounds are floats of 32 bits, whatever is clipped."""
    x = n.arg(0)
    most = min(largest(x.dtype), largest(DTYPES["f32"]))
    return n.op("clip", x, lo=n.real("min", -most), hi=n.real("max", most))


def clip(n: Site) -> Value:
    """Where a bound is not given it is the least or greatest finite number, so no infinity passes."""
    x = n.arg(0)
    bounds = [n.maybe(1), n.maybe(2)]
    if any(b is not None and (b.shape not in ((), (1,)) or b.dtype != x.dtype) for b in bounds):
        raise n.wrong("the bounds must be scalars of the type of the input")
    if x.dtype.is_float:
        most = largest(x.dtype)
        if all(b is None or n.array(b) is not None for b in bounds):
            lo, hi = (default if b is None else _number(n, b) for b, default in zip(bounds, (-most, most), strict=True))
            return n.op("clip", x, lo=lo, hi=hi)
        bounds = [n.filled((), x.dtype, default) if b is None else b for b, default in zip(bounds, (-most, most), strict=True)]
    for operator, bound in zip(("maximum", "minimum"), bounds, strict=True):
        x = x if bound is None else n.op(operator, x, n.view(bound, ()))
    return x


def _number(n: Site, value: Value) -> float:
    array = n.array(value)
    assert array is not None
    return float(array.reshape(()))


def is_inf(n: Site) -> Value:
    return n.op("is_inf", n.arg(0), positive=n.flag("detect_positive", True), negative=n.flag("detect_negative", True))


def cast(n: Site, x: Value, dtype: DType) -> Value:
    """Return `x` in another type. Floats become the narrowest integers by way of i32: out of range, only the low bits count."""
    if x.dtype == dtype:
        return x
    if x.dtype.is_float and dtype.is_integer and dtype.bits < 8:
        x = n.op("cast_i32", x)
    return n.op(f"cast_{dtype.name}", x)


def saturating_cast(n: Site, x: Value, dtype: DType) -> Value:
    """Return `x` in another type, saturated where that is a float of eight bits or fewer and `saturate` does not say otherwise."""
    if dtype.bits <= 8 and dtype.is_float and x.dtype != dtype and n.flag("saturate", True):
        return n.op(f"saturate_{dtype.name}", x)
    return cast(n, x, dtype)


def cast_to(n: Site) -> Value:
    """Version 1 names the type, as TensorProto does."""
    number = n.integer("to", 0) if n.node.since >= 6 else TYPE_NUMBERS[n.text("to", "", tuple(TYPE_NUMBERS))]
    return _converted(n, None if number == STRING else element_type(number, "the result"))


def cast_like(n: Site) -> Value:
    return _converted(n, None if n.is_text(n.arg(1)) else n.arg(1).dtype)


def _converted(n: Site, dtype: DType | None) -> Value:
    """Return the first argument in another type, as strings where that is None."""
    x = n.arg(0)
    if n.is_text(x):
        return x if dtype is None else to_numbers(n, x, dtype)
    return to_strings(n, x) if dtype is None else saturating_cast(n, x, dtype)


def bit_cast(n: Site) -> Value:
    """The same bits under another type of as many. Integers wrap; of no NaN more is kept than that it is one."""
    x, dtype = n.arg(0), element_type(n.integer("to", 0), "the result")
    if x.dtype.bits != dtype.bits and {x.dtype.kind, dtype.kind} != {"bool", "uint"}:
        raise n.wrong(f"the bits of {x.dtype} are no {dtype}")
    if x.dtype == dtype:
        return x
    if dtype.kind == "bool":
        raise n.unsupported(f"bits of {x.dtype} as {dtype}")
    if x.dtype.is_float:
        x = _bits_of_narrow(n, x) if x.dtype.bits < 32 else n.op(f"bits_of_{x.dtype.name}", x)
    if not dtype.is_float:
        return cast(n, x, dtype)
    x = cast(n, x, DTYPES[f"u{dtype.bits}"])
    if dtype.bits >= 32:
        return n.op(f"{dtype.name}_of_bits", x)
    every = np.arange(1 << dtype.bits).astype(DTYPES[f"u{max(8, dtype.bits)}"].numpy)
    return n.op("gather", n.constant(every.view(dtype.numpy)), x, axis=0)


def _bits_of_narrow(n: Site, x: Value) -> Value:
    """The bits of floats of less than 32 as integers of that many."""
    form = FORMATS[x.dtype.name]
    infinity, nan = np.array([np.inf, np.nan]).astype(x.dtype.numpy).view(f"u{x.dtype.size_bytes}").tolist()
    fields = {"width": x.dtype.bits, "mantissa": form.mantissa_bits, "bias": 1 - form.lowest_exponent}
    return n.op("bits_of_narrow", cast(n, x, DTYPES["f32"]), **fields, infinity=infinity, nan=nan)


def identity(n: Site) -> Item:
    return n.item(0)


def dropout(n: Site) -> tuple[Value | None, ...]:
    """In inference the input itself, and a mask of ones. In training what is dropped depends on the seed, or else on the node's name."""
    if n.node.since >= 12 and n.maybe(2) is not None and bool(np.any(n.constant_of(2))) and not _keeps_all(n):
        return _dropped(n)
    if n.node.since < 7 and not n.flag("is_test") and n.has_output(1):
        raise n.unsupported("is_test = 0")
    x = n.arg(0)
    dtype = DTYPES["bool"] if n.node.since >= 10 else x.dtype
    return x, n.filled(x.shape, dtype, 1) if n.has_output(1) else None


def _dropped(n: Site) -> tuple[Value | None, ...]:
    x = n.arg(0)
    ratio = n.filled((), x.dtype, 0.5) if n.maybe(1) is None else cast(n, n.view(n.arg(1), ()), x.dtype)
    flat = n.view(x, (prod(x.shape),))
    if n.builder.iterations and not n.has("seed"):
        u = n.op("uniform", flat, iteration_of(n), seed=seed_of_name(n), low=0.0, high=1.0)
        y, mask = n.ops("dropout_by", flat, ratio, u)
    else:
        y, mask = n.ops("dropout", flat, ratio, seed=n.integer("seed", 0, low=0, high=2**32 - 1) if n.has("seed") else seed_of_name(n))
    return n.view(y, x.shape), n.view(mask, x.shape)


def seed_of_name(n: Site) -> int:
    """Return 32 bits for a node that has no seed: others than another node's, and the same in each run."""
    return crc32(f"{n.builder.within}{n.path}{n.node.label}".encode())


def iteration_of(n: Site) -> Value:
    """Return what tells the turn of a node that has no seed from others, a u32: 0 outside of loops."""
    turn = n.filled((), DTYPES["u32"])
    for number in () if n.has("seed") else n.builder.iterations:
        turn = n.op("add", n.op("mul", turn, n.filled((), DTYPES["u32"], 2654435769)), cast(n, number, DTYPES["u32"]))
    return turn


def _keeps_all(n: Site) -> bool:
    return n.is_constant(1) and not np.any(n.constant_of(1))


UNARY = {
    "Abs": "magnitude", "Neg": "negate", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Floor": "floor",
    "Ceil": "ceil", "Round": "round", "Sign": "sign", "Erf": "erf", "Sin": "sin", "Cos": "cos", "Tan": "tangent", "Asin": "asin",
    "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh",
    "Relu": "relu", "Sigmoid": "sigmoid", "Softplus": "softplus", "Softsign": "softsign", "HardSwish": "hard_swish", "Mish": "mish",
}  # fmt: skip
COMPARISONS = {"Equal": "equal", "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal"}

RULES = (
    *(Entry(op, 1, 24, unary(f)) for op, f in UNARY.items()),
    *(Entry(op, 1, 19, binary(operator)) for op, operator in COMPARISONS.items()),
    Entry("Add", 1, 14, binary("add")),
    Entry("Sub", 1, 14, binary("sub")),
    Entry("Mul", 1, 14, binary("mul")),
    Entry("Div", 1, 14, by_kind("div", "div_int")),
    Entry("Pow", 1, 15, power),
    Entry("Mod", 10, 28, mod),
    Entry("Sum", 1, 13, chain("add")),
    Entry("Mean", 1, 13, mean),
    Entry("Max", 1, 13, chain("maximum")),
    Entry("Min", 1, 13, chain("minimum")),
    Entry("PRelu", 1, 16, prelu),
    Entry("Gelu", 20, 20, gelu),
    Entry("LeakyRelu", 1, 16, with_alpha(*WITH_ALPHA["LeakyRelu"])),
    Entry("Elu", 1, 22, with_alpha(*WITH_ALPHA["Elu"])),
    Entry("Celu", 12, 28, with_alpha(*WITH_ALPHA["Celu"])),
    Entry("ThresholdedRelu", 10, 22, with_alpha(*WITH_ALPHA["ThresholdedRelu"])),
    Entry("Swish", 24, 24, with_alpha("swish", 1.0)),
    Entry("Selu", 1, 1, with_two("selu", ("alpha", 1.6732), ("gamma", 1.0507))),
    Entry("Selu", 6, 22, with_two(*WITH_TWO["Selu"])),
    Entry("HardSigmoid", 1, 22, with_two(*WITH_TWO["HardSigmoid"])),
    Entry("Shrink", 9, 9, shrink),
    Entry("Clip", 1, 6, clip_attributes),
    Entry("Clip", 11, 13, clip),
    Entry("Where", 9, 16, plain("select")),
    Entry("And", 1, 7, binary("logical_and")),
    Entry("Or", 1, 7, binary("logical_or")),
    Entry("Xor", 1, 7, binary("logical_xor")),
    Entry("Not", 1, 1, plain("logical_not")),
    Entry("BitwiseAnd", 18, 18, plain("bitwise_and")),
    Entry("BitwiseOr", 18, 18, plain("bitwise_or")),
    Entry("BitwiseXor", 18, 18, plain("bitwise_xor")),
    Entry("BitwiseNot", 18, 18, plain("bitwise_not")),
    Entry("BitShift", 11, 28, shift),
    Entry("IsNaN", 9, 20, plain("is_nan")),
    Entry("IsInf", 10, 20, is_inf),
    Entry("Cast", 1, 28, cast_to),
    Entry("CastLike", 15, 28, cast_like),
    Entry("BitCast", 26, 26, bit_cast),
    Entry("Identity", 1, 25, identity),
    undefined("MemcpyFromHost", identity),
    undefined("MemcpyToHost", identity),
    Entry("Dropout", 1, 22, dropout),
)
