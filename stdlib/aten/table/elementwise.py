"""Elementwise operators: arithmetic, comparisons, logic, activations, casts. What torch promotes is promoted here."""

from __future__ import annotations

from itertools import zip_longest
from math import factorial, inf, pi
from typing import Any

from codegen.dtypes import DTYPES, DType, compute_dtype
from stdlib.aten.call import Call, Number, Operand, Rule, promoted
from tensorlang.graph.nodes import Value

BOOL = DTYPES["bool"]


def mapped(f: str) -> Rule:
    """A function of one number; integers become floats where torch says so."""
    return lambda n, x: n.op("map", n.cast(x, n.dtype), f=f)


def kept(f: str) -> Rule:
    """A function of one number that leaves integers and truths as they are."""
    return lambda n, x: n.op("map", x, f=f) if x.dtype.is_float else x


def mapped_with(f: str, default: float) -> Rule:
    return lambda n, x, a=default: n.op("map_with", x, f=f, a=float(a))


def binary(operator: str) -> Rule:
    """Two operands in the type of the result."""
    return lambda n, a, b: n.op(operator, *n.operands(a, b, dtype=n.dtype))


def compared(operator: str) -> Rule:
    def rule(n: Call, a: Operand, b: Operand) -> Value:
        dtype = promoted((a, b))
        if dtype == BOOL and operator != "equal":
            dtype = DTYPES["u8"]
        return n.op(operator, *n.operands(a, b, dtype=dtype))

    return rule


def differ(n: Call, a: Operand, b: Operand) -> Value:
    return n.op("logical_not", n.op("equal", *n.operands(a, b)))


def logical(operator: str) -> Rule:
    return lambda n, a, b: n.op(operator, n.value(a, BOOL), n.value(b, BOOL))


def bitwise(integers: str, truths: str) -> Rule:
    """Of truths the same is asked of each."""

    def rule(n: Call, a: Operand, b: Operand) -> Value:
        return n.op(truths if n.dtype == BOOL else integers, *n.operands(a, b, dtype=n.dtype))

    return rule


def bitwise_not(n: Call, x: Value) -> Value:
    return n.op("logical_not" if x.dtype == BOOL else "bitwise_not", x)


def shift(operator: str) -> Rule:
    return lambda n, a, b: n.op(operator, *n.operands(a, b, dtype=n.dtype), bits=n.dtype.bits)


# ---------------------------------------------------------------- arithmetic


def add(n: Call, a: Operand, b: Operand, *, alpha: Number = 1) -> Value:
    if n.dtype == BOOL:
        a, b = n.operands(a, b, dtype=BOOL)
        return n.op("logical_or", a, b if alpha else n.op("logical_and", b, n.filled((), BOOL, 0)))
    return _combined(n, "add", a, b, alpha)


def subtract(n: Call, a: Operand, b: Operand, *, alpha: Number = 1) -> Value:
    return _combined(n, "sub", a, b, alpha)


def subtract_from(n: Call, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    return subtract(n, b, a, alpha=alpha)


def _combined(n: Call, operator: str, a: Operand, b: Operand, alpha: Number) -> Value:
    """Narrow floats are multiplied and added before they are rounded."""
    if alpha == 1:
        return n.op(operator, *n.operands(a, b, dtype=n.dtype))
    wide = compute_dtype(n.dtype)
    scaled = n.op("mul", *n.operands(b, alpha, dtype=wide))
    return n.cast(n.op(operator, n.value(a, wide), scaled), n.dtype)


def multiply(n: Call, a: Operand, b: Operand) -> Value:
    return n.op("logical_and" if n.dtype == BOOL else "mul", *n.operands(a, b, dtype=n.dtype))


def divide(n: Call, a: Operand, b: Operand, *, rounding_mode: str | None = None) -> Value:
    dtype, (x, y) = n.dtype, n.operands(a, b, dtype=n.dtype)
    if dtype.is_float:
        if rounding_mode == "floor":
            return n.op("floor_divide", x, y)
        quotient = n.op("div", x, y)
        return quotient if rounding_mode is None else n.op("map", quotient, f="trunc")
    if rounding_mode == "trunc":
        return n.op("div_int", x, y)
    return n.op("div_int", n.op("sub", x, n.op("mod_int", x, y)), y)


def floor_divide(n: Call, a: Operand, b: Operand) -> Value:
    return divide(n, a, b, rounding_mode="floor")


def modulo(floats: str, integers: str) -> Rule:
    return lambda n, a, b: n.op(floats if n.dtype.is_float else integers, *n.operands(a, b, dtype=n.dtype))


def greatest_divisor(n: Call, a: Operand, b: Operand) -> Value:
    return n.op("gcd", *n.operands(a, b, dtype=n.dtype), steps=2 * n.dtype.bits)


def divide_within(n: Call, a: Operand, b: Operand) -> Value:
    """Integers make integers."""
    return divide(n, a, b, rounding_mode=None if n.dtype.is_float else "trunc")


def power(n: Call, a: Operand, b: Operand) -> Value:
    exponent = b if isinstance(b, int | float) and not isinstance(b, bool) else None
    if isinstance(a, Value) and a.dtype == n.dtype and exponent in (0.5, 1, 2, 3, -1):
        return _simple_power(n, a, float(exponent))
    if n.dtype.is_float:
        return n.op("power", *n.operands(a, b, dtype=n.dtype))
    bits = exponent.bit_length() if isinstance(exponent, int) else n.dtype.bits
    return n.op("power_int", *n.operands(a, b, dtype=n.dtype), bits=bits)


def _simple_power(n: Call, x: Value, exponent: float) -> Value:
    match exponent:
        case 0.5:
            return n.op("map", x, f="sqrt")
        case -1:
            return n.op("map", x, f="reciprocal")
        case 1:
            return x
        case _:
            square = n.op("mul", x, x)
            return square if exponent == 2 else n.op("mul", square, x)


def square(n: Call, x: Value) -> Value:
    return n.op("mul", x, x)


def rounded(n: Call, x: Value, *, decimals: int) -> Value:
    """Of a number that many digits are left behind the point, or before it zeros."""
    if not x.dtype.is_float or decimals == 0:
        return n.op("map", x, f="round") if x.dtype.is_float else x
    wide = compute_dtype(x.dtype)
    power = n.filled((), wide, 10.0 ** abs(decimals))
    before, after = ("mul", "div") if decimals > 0 else ("div", "mul")
    return n.cast(n.op(after, n.op("map", n.op(before, n.cast(x, wide), power), f="round"), power), x.dtype)


def derivative(n: Call, order: int, x: Value) -> Value:
    """Of digamma; beyond the first a multiple of Hurwitz's zeta function, left of 0 by reflection."""
    if order < 2:
        return mapped("trigamma" if order else "digamma")(n, x)  # type: ignore[no-any-return]
    wide = DTYPES["f64"]
    x = n.cast(x, wide)
    zero, one, half_turn = (n.filled((), wide, k) for k in (0, 1, pi))

    def right(q: Value) -> Value:
        scale = n.filled((), wide, (-1.0) ** (order + 1) * factorial(order))
        return n.op("mul", n.op("map_with", q, f="hurwitz", a=float(order + 1)), scale)

    def cotangent() -> Value:
        turned = n.op("mul", n.op("sub", x, n.op("map", x, f="round")), half_turn)
        return n.op("map", n.op("map", turned, f="tangent"), f="reciprocal")

    powers, of = _derivative_of_cotangent(order), cotangent()
    bent = n.filled((), wide, powers[-1])
    for power in reversed(powers[:-1]):
        bent = n.op("add", n.op("mul", bent, of), n.filled((), wide, power))
    mirrored = n.op("mul", right(n.op("maximum", n.op("sub", one, x), one)), n.filled((), wide, (-1.0) ** order))
    left = n.op("sub", mirrored, n.op("mul", bent, n.filled((), wide, pi ** (order + 1))))
    at_pole = n.op("equal", x, n.op("map", x, f="floor"))
    left = n.op("select", at_pole, n.filled((), wide, inf if order % 2 else -inf), left)
    return n.cast(n.op("select", n.op("less", zero, x), right(n.op("select", n.op("less", zero, x), x, one)), left), n.dtype)


def _derivative_of_cotangent(order: int) -> list[float]:
    """Return the factors of the powers of cot(x) whose sum is its derivative of an order."""
    powers = [0.0, 1.0]
    for _ in range(order):
        slope = [k * p for k, p in enumerate(powers)][1:]
        powers = [-(a + b) for a, b in zip_longest(slope, [0.0, 0.0, *slope], fillvalue=0.0)]
    return powers


def linear_between(n: Call, start: Value, end: Value, weight: Operand) -> Value:
    a, b, w = n.operands(start, end, weight, dtype=compute_dtype(n.dtype))
    return n.cast(n.op("add", a, n.op("mul", n.op("sub", b, a), w)), n.dtype)


def add_product(operator: str) -> Rule:
    def rule(n: Call, x: Value, a: Value, b: Value, *, value: Number = 1) -> Value:
        wide = compute_dtype(n.dtype)
        x, a, b = n.operands(x, a, b, dtype=wide)
        y = n.op(operator, a, b)
        return n.cast(n.op("add", x, y if value == 1 else n.op("mul", y, n.filled((), wide, value))), n.dtype)

    return rule


def product_added(n: Call, a: Operand, b: Operand, x: Operand) -> Value:
    return add_product("mul")(n, x, a, b)  # type: ignore[no-any-return]


# ---------------------------------------------------------------- bounds, choice


def clamp(n: Call, x: Value, min: Operand | None = None, max: Operand | None = None) -> Value:
    x, dtype = n.cast(x, n.dtype), n.dtype
    if dtype.is_float and not isinstance(min, Value) and not isinstance(max, Value):
        return n.op("clip", x, lo=-inf if min is None else float(min), hi=inf if max is None else float(max))
    for operator, bound in (("maximum", min), ("minimum", max)):
        x = x if bound is None else n.op(operator, x, n.value(bound, dtype))
    return x


def clamp_max(n: Call, x: Value, max: Operand) -> Value:
    return clamp(n, x, None, max)


def bounded(low: float, high: float) -> Rule:
    return lambda n, x, min_val=low, max_val=high: clamp(n, x, min_val, max_val)


def where(n: Call, condition: Value, a: Operand, b: Operand) -> Value:
    return n.op("select", n.cast(condition, BOOL), *n.operands(a, b, dtype=n.dtype))


def masked_fill(n: Call, x: Value, mask: Value, value: Operand) -> Value:
    return n.op("select", mask, n.value(value, x.dtype), x)


def number(floats: str, integers: str) -> Rule:
    """The greater or the lesser of two, of a number and NaN the number."""
    return lambda n, a, b: n.op(floats if n.dtype.is_float else integers, *n.operands(a, b, dtype=n.dtype))


def is_signed(n: Call, x: Value) -> Value:
    if x.dtype.is_float:
        return n.op("is_signed", x)
    return n.filled(x.shape, BOOL, 0) if x.dtype == BOOL else n.op("less", x, n.filled((), x.dtype, 0))


def maximum(operator: str, truths: str) -> Rule:
    return bitwise(operator, truths)


# ---------------------------------------------------------------- activations


def gelu(n: Call, x: Value, *, approximate: str = "none") -> Value:
    return n.op("map", x, f="gelu" if approximate == "none" else "gelu_tanh")


def softplus(n: Call, x: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    """Beyond the threshold torch returns x, which the function rounds to as well where the threshold is large."""
    if beta == 1:
        scaled = x
        soft = n.op("map", x, f="softplus")
    else:
        scale = n.filled((), x.dtype, float(beta))
        scaled = n.op("mul", x, scale)
        soft = n.op("div", n.op("map", scaled, f="softplus"), scale)
    if float(threshold) >= (40 if x.dtype.bits == 64 else 20):
        return soft
    return n.op("select", n.op("less", n.filled((), x.dtype, float(threshold)), scaled), x, soft)


def elu(n: Call, x: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    if input_scale != 1:
        raise n.unsupported("an input_scale other than 1")
    if scale == 1:
        return n.op("map_with", x, f="elu", a=float(alpha))
    return n.op("map_with_two", x, f="selu", a=float(alpha), b=float(scale))


def celu(n: Call, x: Value, alpha: Number = 1) -> Value:
    return n.op("map_with", x, f="celu", a=float(alpha))


def selu(n: Call, x: Value) -> Value:
    return n.op("map_with_two", x, f="selu", a=1.6732632423543772, b=1.0507009873554805)


def hard_sigmoid(n: Call, x: Value) -> Value:
    return n.op("map_with_two", x, f="hard_sigmoid", a=1 / 6, b=0.5)


def prelu(n: Call, x: Value, weight: Value) -> Value:
    """One slope, or one a channel."""
    if len(weight.shape) == 1 and len(x.shape) > 1:
        weight = n.view(weight, (*weight.shape, *(1 for _ in x.shape[2:])))
    return n.op("prelu", x, weight)


def glu(n: Call, x: Value, dim: int = -1) -> Value:
    from stdlib.onnx.table.moving import slice_axis

    axis = n.axis(dim, len(x.shape))
    half = x.shape[axis] // 2
    gate = n.op("map", slice_axis(n, x, axis, half, half), f="sigmoid")
    return n.op("mul", slice_axis(n, x, axis, 0, half), gate)


# ---------------------------------------------------------------- casts, and what changes nothing


def converted(n: Call, x: Operand, *_: Any, **__: Any) -> Operand:
    """A copy, in the type of the result."""
    return n.value(x, n.dtype) if n.dtypes else x


def is_nan(n: Call, x: Value) -> Value:
    return n.op("is_nan", x) if x.dtype.is_float else n.filled(x.shape, BOOL, 0)


def is_inf(n: Call, x: Value) -> Value:
    return n.op("is_inf", x) if x.dtype.is_float else n.filled(x.shape, BOOL, 0)


def is_finite(n: Call, x: Value) -> Value:
    if not x.dtype.is_float:
        return n.filled(x.shape, BOOL, 1)
    return n.op("logical_not", n.op("logical_or", n.op("is_nan", x), n.op("is_inf", x)))


def sign(n: Call, x: Value) -> Value:
    """The sign of NaN is 0 in torch."""
    return x if x.dtype == BOOL else n.op("map", x, f="sign_or_zero")


def nan_to_num(n: Call, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Value:
    if not x.dtype.is_float:
        return x
    largest = _largest(x.dtype)
    bounds = (("nan", 0.0 if nan is None else nan), ("positive", largest if posinf is None else posinf),
              ("negative", -largest if neginf is None else neginf))  # fmt: skip
    for what, number in bounds:
        where_ = n.op("is_nan", x) if what == "nan" else n.op("is_inf", x, positive=what == "positive", negative=what == "negative")
        x = n.op("select", where_, n.filled((), x.dtype, number), x)
    return x


def _largest(dtype: DType) -> float:
    from codegen.dtypes import FORMATS

    return FORMATS[dtype.name].largest


MAPPED = {
    "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "log10": "log10", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "reciprocal": "reciprocal", "erf": "erf", "sin": "sin", "cos": "cos", "tan": "tangent",
    "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "sigmoid": "sigmoid", "log1p": "log1p", "expm1": "expm1", "abs": "magnitude", "neg": "negate", "_neg_view": "negate",
    "relu": "relu", "silu": "silu", "mish": "mish", "hardswish": "hard_swish",
    "erfc": "erfc", "erfinv": "erfinv", "lgamma": "lgamma", "digamma": "digamma", "i0": "i0",
    **{f"special_{f}": f for f in ("erfcx", "i0e", "i1", "i1e", "ndtr", "ndtri", "log_ndtr")},
    **{f"special_bessel_{f}": f for f in ("j0", "j1", "y0", "y1")},
    **{f"special_modified_bessel_{f}": f for f in ("i0", "i1", "k0", "k1")},
    **{f"special_scaled_modified_bessel_{f}": f"{f}e" for f in ("k0", "k1")},
}  # fmt: skip

RULES: dict[str, Rule] = {
    **{op: mapped(f) for op, f in MAPPED.items()},
    **{op: kept(f) for op, f in {"floor": "floor", "ceil": "ceil", "round": "round", "trunc": "trunc"}.items()},
    **{op: compared(f) for op, f in {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal"}.items()},
    "round.decimals": rounded,
    "ne": differ,
    "add": add,
    "sub": subtract,
    "rsub": subtract_from,
    "mul": multiply,
    "div": divide,
    "true_divide": divide,
    "floor_divide": floor_divide,
    "fmod": modulo("remainder", "remainder_int"),
    "remainder": modulo("mod", "mod_int"),
    "pow": power,
    "gcd": greatest_divisor,
    "polygamma": derivative,
    "prims::div": divide_within,
    "prims::fma": product_added,
    "square": square,
    "atan2": binary("arctan2"),
    "lerp": linear_between,
    "addcmul": add_product("mul"),
    "addcdiv": add_product("div"),
    "maximum": maximum("maximum", "logical_or"),
    "minimum": maximum("minimum", "logical_and"),
    "fmax": number("greater_number", "maximum"),
    "fmin": number("lesser_number", "minimum"),
    "hypot": binary("hypotenuse"),
    "copysign": binary("copy_sign"),
    "signbit": is_signed,
    "clamp": clamp,
    "clamp_min": clamp,
    "clamp_max": clamp_max,
    "hardtanh": bounded(-1.0, 1.0),
    "relu6": bounded(0.0, 6.0),
    "where.self": where,
    "where.ScalarSelf": where,
    "where.ScalarOther": where,
    "where.Scalar": where,
    "masked_fill": masked_fill,
    "logical_and": logical("logical_and"),
    "logical_or": logical("logical_or"),
    "logical_xor": logical("logical_xor"),
    "logical_not": lambda n, x: n.op("logical_not", n.cast(x, BOOL)),
    "bitwise_and": bitwise("bitwise_and", "logical_and"),
    "bitwise_or": bitwise("bitwise_or", "logical_or"),
    "bitwise_xor": bitwise("bitwise_xor", "logical_xor"),
    "bitwise_not": bitwise_not,
    **{op: shift("shift_left") for op in ("bitwise_left_shift", "__lshift__")},
    **{op: shift("shift_right") for op in ("bitwise_right_shift", "__rshift__")},
    "isnan": is_nan,
    "isinf": is_inf,
    "isfinite": is_finite,
    "sign": sign,
    "sgn": sign,
    "nan_to_num": nan_to_num,
    "gelu": gelu,
    "softplus": softplus,
    "elu": elu,
    "celu": celu,
    "selu": selu,
    "leaky_relu": mapped_with("leaky_relu", 0.01),
    "hardsigmoid": hard_sigmoid,
    "prelu": prelu,
    "_prelu_kernel": lambda n, x, weight: n.op("prelu", x, weight),
    "glu": glu,
    "_to_copy": converted,
    "to": converted,
    "prims::convert_element_type": converted,
    "clone": converted,
    "contiguous": converted,
    "alias": converted,
    "detach": converted,
    "detach_": converted,
    "lift_fresh_copy": converted,
}  # fmt: skip
