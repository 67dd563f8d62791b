"""The derivatives of elementary functions, and of minima and maxima."""

from __future__ import annotations

import math
from collections.abc import Callable

from codegen.dtypes import DType
from tensorlang.tensor.gradient.algebra import chosen, equal, function, negative, number, product, quotient, square, total
from tensorlang.tensor.nodes import Binary, Compare, Const, Expr

Rule = Callable[[Expr, Expr, DType], Expr]
"""From the argument, the value of the function and the type to the derivative."""

FLAT = frozenset(("floor", "ceil", "trunc", "round"))
"""Functions that are constant between their jumps."""

_ROUNDINGS = frozenset(("round_bf16", "round_tf32"))
"""Functions that round to what some hardware takes: differentiated as if they did not, as casts are."""


def _one(dtype: DType) -> Const:
    return number(1, dtype)


def _root(e: Expr) -> Expr:
    return function("sqrt", e)


_RULES: dict[str, Rule] = {
    "exp": lambda x, y, t: y,
    "exp2": lambda x, y, t: product(number(_rounded(math.log(2), t), t), y),
    "expm1": lambda x, y, t: total(y, _one(t)),
    "log": lambda x, y, t: quotient(_one(t), x),
    "log2": lambda x, y, t: quotient(number(_rounded(1 / math.log(2), t), t), x),
    "log1p": lambda x, y, t: quotient(_one(t), total(x, _one(t))),
    "sqrt": lambda x, y, t: quotient(number(0.5, t), y),
    "rsqrt": lambda x, y, t: quotient(product(number(-0.5, t), y), x),
    "sin": lambda x, y, t: function("cos", x),
    "cos": lambda x, y, t: negative(function("sin", x)),
    "tan": lambda x, y, t: total(_one(t), square(y)),
    "asin": lambda x, y, t: quotient(_one(t), _root(Binary("-", _one(t), square(x)))),
    "acos": lambda x, y, t: quotient(number(-1, t), _root(Binary("-", _one(t), square(x)))),
    "atan": lambda x, y, t: quotient(_one(t), total(_one(t), square(x))),
    "sinh": lambda x, y, t: function("cosh", x),
    "cosh": lambda x, y, t: function("sinh", x),
    "tanh": lambda x, y, t: Binary("-", _one(t), square(y)),
    "asinh": lambda x, y, t: quotient(_one(t), _root(total(square(x), _one(t)))),
    "acosh": lambda x, y, t: quotient(_one(t), _root(Binary("-", square(x), _one(t)))),
    "atanh": lambda x, y, t: quotient(_one(t), Binary("-", _one(t), square(x))),
    "sigmoid": lambda x, y, t: product(y, Binary("-", _one(t), y)),
    "erf": lambda x, y, t: product(number(_rounded(2 / math.sqrt(math.pi), t), t), function("exp", negative(square(x)))),
}


def _rounded(value: float, dtype: DType) -> float:
    return float(dtype.numpy.type(value))


def partials(fn: str, args: tuple[Expr, ...], value: Expr, dtype: DType) -> tuple[Expr, ...] | None:
    """Return the derivatives of an elementary function by each of its arguments, which have this type; `value` is what it comes to. None
    where it is no function of floats."""
    if fn in FLAT:
        return (number(0, dtype),)
    if fn in _ROUNDINGS:
        return (_one(dtype),)
    if fn in _RULES:
        return (_RULES[fn](args[0], value, dtype),)
    match fn, args:
        case "pow", (x, y):
            return _power(x, y, value, dtype)
        case "atan2", (y, x):
            length = total(square(x), square(y))
            return quotient(x, length), negative(quotient(y, length))
        case "fmod", (x, y):
            return _one(dtype), negative(function("trunc", quotient(x, y)))
    return None


def _power(x: Expr, y: Expr, value: Expr, dtype: DType) -> tuple[Expr, Expr]:
    """Return the derivatives of x**y: that by x is 0 where y is, that by y where x is and y is not negative."""
    zero = number(0, dtype)
    if isinstance(y, Const):
        exponent = float(y.value)
        lower = x if exponent == 2 else function("pow", x, number(_rounded(exponent - 1, dtype), dtype))
        by_x = zero if exponent == 0 else product(y, lower)
    else:
        by_x = chosen(equal(y, zero), zero, product(y, function("pow", x, Binary("-", y, _one(dtype)))))
    flat = Binary("and", equal(x, zero), Compare(">=", y, zero))
    return by_x, chosen(flat, zero, product(value, function("log", x)))


def extremum(op: str, x: Expr, y: Expr, dtype: DType, other_active: bool) -> Expr:
    """Return the derivative of `max(x, y)` or `min` by `x`: 1 where it is the one, and where both are equal a half, or 0 if the
    y is a constant."""
    one, zero = number(1, dtype), number(0, dtype)
    tie = chosen(equal(x, y), number(0.5, dtype), zero) if other_active else zero
    return chosen(Compare(">" if op == "max" else "<", x, y), one, tie)


def absolute(x: Expr, dtype: DType) -> Expr:
    """Return the derivative of abs(x), 0 at 0."""
    zero = number(0, dtype)
    below = chosen(Compare("<", x, zero), number(-1, dtype), zero)
    return chosen(Compare(">", x, zero), number(1, dtype), below)
