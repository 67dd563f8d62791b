"""Giving a checked value a type: numbers take the type that is needed, and nothing is promoted."""

from __future__ import annotations

import math
from typing import assert_never

from codegen.dtypes import FORMATS, DType, bool_, compute_dtype, f32, i64, nearest
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check.problems import error
from tensorlang.check.types import holding, limits
from tensorlang.check.values import Choice, Cnd, Fn, Idx, Limit, Num, Packed, Str, Tensor, Tup, Val, Value
from tensorlang.diagnostics import Span
from tensorlang.tensor import nodes as ir

LARGEST_INDEX = 2**62


def coerce(value: Value, dtype: DType | None, span: Span) -> ir.Expr:
    """Return `value` as an expression of language type `dtype` (None: whatever it is). Numbers take the type; nothing is promoted."""
    match value:
        case Num(number):
            return _const(number, dtype, span)
        case Limit(highest):
            target = dtype or f32
            return ir.Const(limits(target)[1 if highest else 0], compute_dtype(target), span=span)
        case Choice(cond, then, orelse):
            return ir.Select(cond, coerce(then, dtype, span), coerce(orelse, dtype, span), span=span)
        case Val(expr, own):
            if own is None or dtype is None or own == dtype:
                return expr
            raise mixed(own, dtype, span)
        case Idx(expr):
            return _index_value(expr, dtype, span)
        case Cnd(cond):
            if dtype is not None and dtype != bool_:
                raise error(
                    "T0113",
                    f"a condition stands where a number of type `{dtype}` is needed",
                    span,
                    "this is true or false",
                    help=f"choose numbers with it: `if … then 1 else 0`, or cast: `{dtype}(…)`",
                )
            return ir.Holds(cond, span=span)
        case _:
            raise not_scalar(value, span)


def _const(number: int | float | bool, dtype: DType | None, span: Span) -> ir.Const:
    target = dtype or f32
    if target == bool_:
        if number not in (0, 1):
            raise error("T0111", f"{number} is no truth value", span, "of type `bool`", help="write `true`, `false` or a comparison")
        return ir.Const(bool(number), bool_, span=span)
    if target.is_float:
        return float_const(number, target, span)
    low, high = limits(target)
    if isinstance(number, float) and not number.is_integer():
        raise error(
            "T0111",
            f"{number} is not a value of type `{target}`",
            span,
            f"a number takes the type of what it meets: `{target}`",
            help="cast the other side to a float type: `f32(…)`, or round the number",
        )
    if not low <= number <= high:
        raise error(
            "T0111",
            f"{int(number)} is outside type `{target}`",
            span,
            f"`{target}` holds {low} to {high}",
            help="cast to a wider type first: `i32(…)`",
        )
    return ir.Const(int(number), target, span=span)


def float_const(number: int | float | bool, dtype: DType, span: Span) -> ir.Const:
    """Return a number in the type in which `dtype` is computed, rounded to nearest even. Raises T0111 when it is too large."""
    target = compute_dtype(dtype)
    try:
        exact = float(number)
    except OverflowError:
        exact = math.inf
    largest = FORMATS[target.name].largest
    if (math.isinf(exact) and not (isinstance(number, float) and math.isinf(number))) or largest < abs(exact) < math.inf:
        raise error(
            "T0111",
            f"this number is too large for `{target}`",
            span,
            f"`{target}` goes up to {largest}",
            help="write `inf` if infinity is meant, or compute in `f64`",
        )
    return ir.Const(nearest(exact, target), target, span=span)


def _index_value(expr: px.Expr, dtype: DType | None, span: Span) -> ir.Expr:
    if dtype is None or dtype == i64:
        return ir.IndexValue(expr, span=span)
    if (number := affine.constant(expr)) is not None:
        return _const(number, dtype, span)
    raise error(
        "T0112",
        f"an index is an `i64`, but `{dtype}` is needed here",
        span,
        "index or size used as a value",
        help=f"cast it: `{dtype}(…)`",
    )


def mixed(a: DType, b: DType, span: Span) -> Exception:
    common = holding(a, b)
    if common in (a, b):
        help = f"cast the `{b if common == a else a}`: `{common}(…)`"
    elif common is not None:
        help = f"cast both sides: `{common}(…)`, which holds them exactly; or one side, which may round: `{b}(…)` or `{a}(…)`"
    else:
        help = f"cast one side, which may round: `{b}(…)` or `{a}(…)`"
    return error(
        "T0110",
        f"types `{a}` and `{b}` meet, and nothing is promoted",
        span,
        f"one side is `{a}`, the other `{b}`",
        help=help,
    )


def not_scalar(value: Value, span: Span) -> Exception:
    match value:
        case Tensor(name):
            return error(
                "T0116",
                f"`{name}` is a whole tensor, and arithmetic is on elements",
                span,
                "an element is needed here",
                help=f"index it: `{name}[…]`; a bare name is only an operator's argument",
            )
        case Tup(items):
            return error(
                "T0115",
                f"a tuple of {len(items)} stands where one value is needed",
                span,
                "a tuple",
                help="take one component with the reducer's `yield`, or give as many results as components: `a[i], b[i] = …`",
            )
        case Packed():
            return error(
                "T0130",
                "a pack stands where one value is needed",
                span,
                "a pack",
                help="expand it with `..` as in `x[d..]`, or fold it: `prod(d..)`",
            )
        case Str():
            return error(
                "T0113", "a text stands where a number is needed", span, "a text", help='texts can only be compared: `mode == "edge"`'
            )
        case Fn(name):
            return error("T0113", f"`{name}` is a function, not a value", span, "a function", help=f"call it: `{name}(…)`")
        case Num() | Idx() | Cnd() | Val() | Limit() | Choice():
            return error("T0113", "this has no value", span)
        case _:
            assert_never(value)


def dtype_of(value: Value) -> DType | None:
    """Return the language type of a value; None when it takes the type of what it meets."""
    match value:
        case Val(_, dtype):
            return dtype
        case Idx():
            return i64
        case Cnd():
            return bool_
        case _:
            return None


def truth(value: Value, span: Span) -> bool | px.Cond | ir.Expr:
    """Return a condition: decided, over indices, or computed."""
    match value:
        case Num(number) if number in (0, 1):
            return bool(number)
        case Cnd(cond):
            return True if cond == px.TRUE else False if cond == px.FALSE else cond
        case Val(expr, dtype) if dtype is None or dtype == bool_:
            return expr
        case Choice():
            return coerce(value, bool_, span)
        case Val(_, dtype):
            what = f"a value of type `{dtype}`"
        case Num(number):
            what = f"the number {number}"
        case Idx():
            what = "an index"
        case _:
            raise not_scalar(value, span)
    text = span.source.text[span.start : span.end]
    help = f"compare it: `{text if 0 < len(text) <= 40 and chr(10) not in text else '…'} != 0`"
    raise error("T0113", f"{what} stands where a condition is needed", span, "neither true nor false", help=help)


def truth_expr(value: Value, span: Span) -> ir.Expr:
    """Return a condition as a bool expression."""
    match truth(value, span):
        case bool(known):
            return ir.Const(known, bool_, span=span)
        case px.Compare() | px.And() | px.Or() | px.Not() as cond:
            return ir.Holds(cond, span=span)
        case computed:
            return computed


def whole(number: int | float | bool, span: Span) -> px.Int:
    """Return a number as an index expression. Raises T0111 when it is beyond every index."""
    if abs(number) > LARGEST_INDEX:
        raise beyond(span)
    return px.Int(int(number))


def beyond(span: Span) -> Exception:
    return error("T0111", "this number is too large for an index", span, "indices and sizes stay below 2**62", help="use a smaller number")
