"""Arithmetic on checked values: what meets what, and which type comes out (rules T1 to T6)."""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TypeAlias

from codegen.dtypes import DType, bool_, compute_dtype, extreme, i64, u64
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import bounds
from tensorlang.check.problems import error
from tensorlang.check.typed import LARGEST_INDEX, beyond, coerce, dtype_of, float_const, mixed, not_scalar, truth, truth_expr, whole
from tensorlang.check.types import limits
from tensorlang.check.values import Choice, Cnd, Fn, Idx, Limit, Num, Packed, Str, Tensor, Tup, Val, Value
from tensorlang.diagnostics import NOWHERE, Span
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.widths import LARGEST

_BITS = frozenset(("bitand", "bitor", "bitxor", "shl", "shr"))


# ---------------------------------------------------------------- binary operations


def binary(op: str, a: Value, b: Value, span: Span, ranges: bounds.Ranges = MappingProxyType({})) -> Value:
    """Return `a op b` for arithmetic, `min`, `max` and bit operations; `ranges` are those of indices."""
    for side in (a, b):
        if isinstance(side, Tup | Packed | Str | Fn | Tensor):
            raise not_scalar(side, span)
    match a, b:
        case Num(x), Num(y):
            return Num(_fold(op, x, y, span))
        case (Idx() | Num(), Idx() | Num()):
            return _indices(op, a, b, span)
        case (Choice(cond, then, orelse), Num() | Limit()):
            return Choice(cond, binary(op, then, b, span, ranges), binary(op, orelse, b, span, ranges))
        case (Num() | Limit(), Choice(cond, then, orelse)):
            return Choice(cond, binary(op, a, then, span, ranges), binary(op, a, orelse, span, ranges))
        case (Num() | Limit() | Choice(), Num() | Limit() | Choice()):
            raise error("T0117", "this has no type: only numbers meet here", span, "which type?", help="cast one side: `f32(…)`")
        case _:
            return _values(op, a, b, span, ranges)


def _fold(op: str, x: int | float | bool, y: int | float | bool, span: Span) -> int | float:
    if op in ("/", "//", "%") and y == 0:
        raise error("T0118", "a number is divided by zero", span, f"`{x} {op} {y}`", help="change the divisor")
    try:
        match op:
            case "+":
                return x + y
            case "-":
                return x - y
            case "*":
                return x * y
            case "/":
                return x // y if isinstance(x, int) and isinstance(y, int) and x % y == 0 else x / y
            case "//":
                return x // y
            case "%":
                return x % y
            case "min":
                return min(x, y)
            case "max":
                return max(x, y)
            case "bitand" | "bitor" | "bitxor" if isinstance(x, int) and isinstance(y, int):
                return {"bitand": x & y, "bitor": x | y, "bitxor": x ^ y}[op]
            case "shl" | "shr" if isinstance(x, int) and isinstance(y, int) and 0 <= y < 64:
                return x << y if op == "shl" else x >> y
            case _:
                raise undefined(op, "these numbers", span)
    except OverflowError:
        raise error("T0111", "this number is too large", span, "overflows a float", help="write a smaller number") from None


def _exact_or_floor(span: Span) -> str:
    """Return the two quotients that `/` of integers may mean, of the operands that stand there."""
    text = span.source.text[span.start : span.end]
    found = re.fullmatch(r"([\w.\[\], ]{1,30}?)\s*/\s*([\w.\[\], ]{1,30})", text)
    a, b = (found[1], found[2]) if found is not None else ("a", "b")
    return f"`{a} // {b}` divides integers (floor); cast for an exact quotient: `f32({a}) / f32({b})`"


def undefined(op: str, what: str, span: Span) -> Exception:
    help_text = _exact_or_floor(span) if op == "/" else "cast it first: `i32(…)` or `f32(…)`"
    return error("T0114", f"`{op}` is not defined for {what}", span, "here", help=help_text)


def _affine(value: Value, span: Span) -> px.Expr | None:
    match value:
        case Idx(expr):
            return expr
        case Num(number) if isinstance(number, int) or number.is_integer():
            return whole(number, span)
        case _:
            return None


def _indices(op: str, a: Value, b: Value, span: Span) -> Value:
    out = _index_arithmetic(op, a, b, span)
    if isinstance(out, Idx):
        factors, const = affine.terms(out.expr)
        if any(abs(n) > LARGEST_INDEX for n in (const, *factors.values())):
            raise beyond(span)
    return out


def _index_arithmetic(op: str, a: Value, b: Value, span: Span) -> Value:
    x, y = _affine(a, span), _affine(b, span)
    if x is None or y is None:
        raise error("T0112", "an index meets a number that is not whole", span, "an index is an `i64`", help="cast it: `f32(i)`")
    size = all(isinstance(v, Num) or (isinstance(v, Idx) and v.size) for v in (a, b))
    match op:
        case "+":
            return Idx(affine.add(x, y), size)
        case "-":
            return Idx(affine.sub(x, y), size)
        case "*":
            product = affine.mul(x, y)
            return Idx(product, size) if product is not None else _general(op, x, y, span)
        case "//" | "%":
            return _index_division(op, x, y, size, span)
        case "min":
            return Idx(affine.minimum(x, y), size)
        case "max":
            return Idx(affine.maximum(x, y), size)
        case "/":
            raise undefined(op, "indices", span)
        case _:
            return _general(op, x, y, span)


def _index_division(op: str, x: px.Expr, y: px.Expr, size: bool, span: Span) -> Value:
    divisor = affine.constant(y)
    if divisor is None:
        return _general(op, x, y, span)
    if divisor == 0:
        raise error("T0118", "an index is divided by zero", span, f"`{op} 0`", help="change the divisor")
    if op == "//":
        return Idx(affine.floor(x if divisor > 0 else affine.scale(-1, x), abs(divisor)), size)
    if divisor > 0:
        return Idx(affine.mod(x, divisor), size)
    return Idx(affine.scale(-1, affine.mod(affine.scale(-1, x), -divisor)), size)


def _general(op: str, x: px.Expr, y: px.Expr, span: Span) -> Val:
    """Return an operation that is no index expression as an i64 value; `factors` are the names that stand in its way."""
    return Val(
        ir.Binary(op, ir.IndexValue(x, span=span), ir.IndexValue(y, span=span), span=span),  # type: ignore[arg-type]
        i64,
        factors=affine.name_set(x) | affine.name_set(y),
    )


def _values(op: str, a: Value, b: Value, span: Span, ranges: bounds.Ranges) -> Value:
    a, b = met(a, b)
    dtype = common_type(a, b, span)
    if dtype is not None:
        _require_defined(op, dtype, span)
    lhs, rhs = _operand(a, dtype, span), _operand(b, dtype, span)
    if dtype is not None and dtype.is_integer and (known := _known_bits(op, lhs, rhs, dtype)) is not None:
        return Val(ir.Const(known, dtype, span=span), dtype)
    lo, hi = _interval(op, a, b, ranges) if dtype == i64 or op == "bitand" else (None, None)
    factors = (a.factors if isinstance(a, Val) else frozenset()) | (b.factors if isinstance(b, Val) else frozenset())
    narrow = op in ("min", "max") and all(_has_few_bits(x) for x in (a, b)) and dtype == i64
    within = _within(op, a, b) if dtype == i64 and op in ("+", "-") else (None, None)
    return Val(ir.Binary(op, lhs, rhs, span=span), dtype, lo, hi, factors, narrow, within=within)  # type: ignore[arg-type]


def _known_bits(op: str, lhs: ir.Expr, rhs: ir.Expr, dtype: DType) -> int | None:
    """Return what an operation on whole numbers comes to whatever its operands are: every bit that is set in one of them, and quotients of
    what is known. Masks of a type are written so, `bitor(x, highest) // 3`."""
    every = -1 if dtype.kind == "int" else limits(dtype)[1]
    match op, lhs, rhs:
        case ("bitor", ir.Const(value), _) | ("bitor", _, ir.Const(value)) if value == every:
            return int(every)
        case "//", ir.Const(int(x)), ir.Const(int(y)) if x >= 0 and y > 0:
            return x // y
        case _:
            return None


def _operand(value: Value, dtype: DType | None, span: Span) -> ir.Expr:
    if isinstance(value, Idx) and dtype is not None and dtype.is_integer and dtype != i64:
        return ir.Cast(dtype, ir.IndexValue(value.expr, span=span), span=span)
    return coerce(value, dtype, span)


def met(a: Value, b: Value) -> tuple[Value, Value]:
    """Return two values that meet, an element that was widened in brackets in the type that it was read in where the other is of that type:
    `table[bitxor(x[i], u32(7))]` computes in `u32`, in brackets as outside."""
    x, y = dtype_of(a), dtype_of(b)
    if isinstance(a, Val) and a.as_read is not None and y == a.as_read.dtype:
        return a.as_read, b
    if isinstance(b, Val) and b.as_read is not None and x == b.as_read.dtype:
        return a, b.as_read
    return a, b


def common_type(a: Value, b: Value, span: Span) -> DType | None:
    """Return the one type of two values that meet; numbers take the other's, sizes that of an integer. Raises T0110 or T0112."""
    x, y = dtype_of(a), dtype_of(b)
    if isinstance(a, Idx) and isinstance(b, Val):
        return _index_meets(a, b, span)
    if isinstance(b, Idx) and isinstance(a, Val):
        return _index_meets(b, a, span)
    if x is not None and y is not None and x != y:
        raise mixed(x, y, span)
    return x if x is not None else y


def _index_meets(index: Idx, value: Val, span: Span) -> DType | None:
    dtype = value.dtype
    if dtype is None or dtype == i64:
        return i64
    if dtype.is_integer and index.size:
        return dtype
    if affine.constant(index.expr) is not None:
        return dtype
    raise error(
        "T0112",
        f"an index is an `i64` and meets a `{dtype}`",
        span,
        "nothing is promoted",
        help=f"cast the index: `{dtype}(…)`" if dtype.is_float else f"cast the index: `{dtype}(…)`, or the value: `i64(…)`",
    )


def _require_defined(op: str, dtype: DType, span: Span) -> None:
    if op in _BITS:
        if not (dtype.is_integer or (dtype == bool_ and op.startswith("bit"))):
            raise undefined(op, f"`{dtype}`", span)
    elif dtype == bool_:
        raise error("T0114", f"`{op}` is not defined for `bool`", span, "here", help="use `and`, `or`, `not`, or cast: `i32(…)`")
    elif op == "/" and not dtype.is_float:
        raise undefined(op, f"`{dtype}`", span)


Interval: TypeAlias = tuple[px.Expr | None, px.Expr | None]


def _interval(op: str, a: Value, b: Value, ranges: bounds.Ranges) -> Interval:
    """Return [lo, hi) of an i64 operation, where it is simple. Bounds may be indices, which may be negative: nothing is known of names."""
    (alo, ahi), (blo, bhi) = interval(a), interval(b)
    match op:
        case "+":
            return _sum(a, b, (blo, bhi), ranges)
        case "-":
            return _sum(
                a, b, (None if bhi is None else affine.sub(affine.ONE, bhi), None if blo is None else affine.sub(affine.ONE, blo)), ranges
            )
        case "max":
            lo = alo if blo is None else blo if alo is None else affine.maximum(alo, blo)
            return lo, None if ahi is None or bhi is None else affine.maximum(ahi, bhi)
        case "min":
            hi = ahi if bhi is None else bhi if ahi is None else affine.minimum(ahi, bhi)
            return (None if alo is None or blo is None else affine.minimum(alo, blo)), hi
        case "bitand" if _is_positive(alo, ahi) or _is_positive(blo, bhi):
            return affine.ZERO, ahi if _is_positive(alo, ahi) else bhi
        case "%" if (divisor := _positive_size(b)) is not None:
            return affine.ZERO, divisor
        case _:
            return None, None


def _sum(a: Value, b: Value, added: Interval, ranges: bounds.Ranges) -> Interval:
    """Return [lo, hi) of `a` and what is `added`, `b` or its opposite. The sum wraps at the ends of `i64`, so that it is known to be no
    less than the sum of two least values only where it cannot be too large: both have bounds above, or one of them is at most 0."""
    (alo, ahi), (blo, bhi) = interval(a), added
    above, below = _bounded(a, ahi) and _bounded(b, bhi), _bounded(a, alo) and _bounded(b, blo)
    lo = _plus(alo, blo) if above or any(e is not None and is_nonnegative(affine.sub(affine.ONE, e), ranges) for e in (ahi, bhi)) else None
    hi = _plus(ahi, bhi) if below or any(e is not None and is_nonnegative(e, ranges) for e in (alo, blo)) else None
    return lo, None if hi is None else affine.sub(hi, affine.ONE)


def _within(op: str, a: Value, b: Value) -> Interval:
    """Return [lo, hi) of `a + b` or `a - b` where that comes out as an index of a tensor. One side may be any `i64`, and the other is far
    from its ends, so that a sum that wraps is nowhere near an index."""
    if _has_few_bits(a) == _has_few_bits(b):
        return None, None
    (alo, ahi), (blo, bhi) = (_interval_within(x) for x in (a, b))
    if op == "-":
        blo, bhi = (None if e is None else affine.sub(affine.ONE, e) for e in (bhi, blo))
    hi = _plus(ahi, bhi)
    return _plus(alo, blo), None if hi is None else affine.sub(hi, affine.ONE)


def _interval_within(value: Value) -> Interval:
    """Return what is known of an operand of a sum that did not wrap."""
    lo, hi = interval(value)
    low, high = value.within if isinstance(value, Val) else (None, None)
    return low if lo is None else lo, high if hi is None else hi


def is_nonnegative(e: px.Expr, ranges: bounds.Ranges) -> bool:
    """Tell whether an expression over numbers and indices of known ranges is 0 or more."""
    return affine.name_set(e) <= ranges.keys() and bounds.proven_nonnegative(e, ranges)


def _bounded(value: Value, end: px.Expr | None) -> bool:
    """Tell whether a value, or its opposite, ends far from where `i64` does, on the side of `end`."""
    if end is None:
        return _has_few_bits(value)
    factors, const = affine.terms(end)
    return abs(const) < LARGEST_INDEX // 2 and sum(map(abs, factors.values())) * LARGEST < LARGEST_INDEX // 2


def _has_few_bits(value: Value) -> bool:
    """Tell whether a value was of a narrower type than `i64`, or is an index."""
    return value.narrow if isinstance(value, Val) else isinstance(value, Num | Idx)


def is_narrow(dtype: DType | None) -> bool:
    """Tell whether a type holds fewer integers than `i64`, and no others."""
    return dtype is not None and dtype.is_integer and dtype not in (i64, u64)


def _is_positive(lo: px.Expr | None, hi: px.Expr | None) -> bool:
    """Tell whether what lies in [lo, hi) is a number, between constants, that is not negative."""
    low = None if lo is None else affine.constant(lo)
    return low is not None and low >= 0 and hi is not None and affine.constant(hi) is not None


def _positive_size(value: Value) -> px.Expr | None:
    """Return a number or an expression over sizes that is surely 1 or more."""
    size = _affine(value, NOWHERE) if isinstance(value, Num) or (isinstance(value, Idx) and value.size) else None
    return size if size is not None and bounds.proven_nonnegative(affine.sub(size, affine.ONE), {}) else None


def _plus(a: px.Expr | None, b: px.Expr | None) -> px.Expr | None:
    return None if a is None or b is None else affine.add(a, b)


def interval(value: Value) -> Interval:
    """Return what is known of an integer value: it lies in [lo, hi)."""
    match value:
        case Val(_, _, lo, hi):
            return lo, hi
        case Num() | Idx():
            if isinstance(value, Num) and abs(value.value) > LARGEST_INDEX:
                return None, None
            point = _affine(value, NOWHERE)
            return (None, None) if point is None else (point, affine.add(point, affine.ONE))
        case _:
            return None, None


# ---------------------------------------------------------------- comparison and logic


def compare(op: str, a: Value, b: Value, span: Span) -> Value:
    """Return `a op b` for a comparison."""
    match a, b:
        case Str(x), Str(y) if op in ("==", "!="):
            return Num((x == y) == (op == "=="))
        case Num(x), Num(y):
            return Num({"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}[op])
        case (Idx() | Num(), Idx() | Num()) if (left := _affine(a, span)) is not None and (right := _affine(b, span)) is not None:
            return Cnd(affine.compare(op, left, right))  # type: ignore[arg-type]
        case (Choice(cond, then, orelse), Num() | Limit()):
            return Choice(cond, compare(op, then, b, span), compare(op, orelse, b, span))
        case (Num() | Limit(), Choice(cond, then, orelse)):
            return Choice(cond, compare(op, a, then, span), compare(op, a, orelse, span))
        case _:
            return _compare_values(op, a, b, span)


def _compare_values(op: str, a: Value, b: Value, span: Span) -> Value:
    for side in (a, b):
        if isinstance(side, Tup | Packed | Str | Fn | Tensor):
            raise not_scalar(side, span)
    x, y = dtype_of(a), dtype_of(b)
    if isinstance(a, Idx) and y is not None and y.is_integer:
        return Val(ir.Compare(op, ir.IndexValue(a.expr, span=span), widened(b, span), span=span), bool_)  # type: ignore[arg-type]
    if isinstance(b, Idx) and x is not None and x.is_integer:
        return Val(ir.Compare(op, widened(a, span), ir.IndexValue(b.expr, span=span), span=span), bool_)  # type: ignore[arg-type]
    if x is None and y is None and not isinstance(a, Val) and not isinstance(b, Val):
        raise error("T0117", "this has no type: only numbers meet here", span, "which type?", help="cast one side: `f32(…)`")
    a, b = met(a, b)
    dtype = common_type(a, b, span)
    left, right = coerce(a, dtype, span), coerce(b, dtype, span)
    if dtype == bool_ and op not in ("==", "!="):
        return Val(_order_of_truths(op, left, right, span), bool_)
    return Val(ir.Compare(op, left, right, span=span), bool_)  # type: ignore[arg-type]


def _order_of_truths(op: str, a: ir.Expr, b: ir.Expr, span: Span) -> ir.Expr:
    """Return how two truth values compare, of which `false` is the lesser: `a < b` is `not a and b`."""
    less, more = (a, b) if op in ("<", "<=") else (b, a)
    return ir.Binary("or" if op.endswith("=") else "and", ir.Unary("not", less, span=span), more, span=span)


def widened(value: Value, span: Span) -> ir.Expr:
    """Return an integer as the `i64` that compares with indices as it does: of `u64`, what is beyond counts as the greatest."""
    dtype = dtype_of(value)
    expr = coerce(value, dtype, span)
    if dtype == u64:
        expr = ir.Binary("min", expr, ir.Const(2**63 - 1, u64, span=span), span=span)
    return expr if dtype == i64 else ir.Cast(i64, expr, span=span)


def logic(op: str, a: Value, b: Value, span: Span) -> Value:
    """Return `a and b` or `a or b`, over indices where both sides are."""
    x, y = truth(a, span), truth(b, span)
    decides = op == "or"
    for known, other, side in ((x, y, b), (y, x, a)):
        if isinstance(known, bool):
            return Num(decides) if known == decides else Num(other) if isinstance(other, bool) else side
    if isinstance(x, px.Compare | px.And | px.Or | px.Not) and isinstance(y, px.Compare | px.And | px.Or | px.Not):
        return Cnd(affine.conj(x, y) if op == "and" else affine.disj(x, y))
    return Val(ir.Binary(op, truth_expr(a, span), truth_expr(b, span), span=span), bool_)  # type: ignore[arg-type]


def negation(value: Value, span: Span) -> Value:
    """Return `not value`."""
    match truth(value, span):
        case bool(known):
            return Num(not known)
        case px.Compare() | px.And() | px.Or() | px.Not() as cond:
            return Cnd(affine.negate(cond))
        case computed:
            return Val(ir.Unary("not", computed, span=span), bool_)


def minus(value: Value, span: Span) -> Value:
    """Return `-value`."""
    match value:
        case Num(number):
            return Num(-number)
        case Idx(expr, size):
            return Idx(affine.scale(-1, expr), size)
        case Limit(highest):
            return Limit(not highest)
        case Choice(cond, then, orelse):
            return Choice(cond, minus(then, span), minus(orelse, span))
        case Val(expr, dtype):
            if dtype == bool_:
                raise undefined("-", "`bool`", span)
            return Val(ir.Unary("neg", expr, span=span), dtype, factors=value.factors)
        case Cnd():
            raise undefined("-", "`bool`", span)
        case _:
            raise not_scalar(value, span)


def choose(cond: Value, then: Value, orelse: Value, span: Span) -> Value:
    """Return `if cond then then else orelse` of values that are both needed."""
    if isinstance(then, Tup) or isinstance(orelse, Tup):
        if not (isinstance(then, Tup) and isinstance(orelse, Tup) and len(then.items) == len(orelse.items)):
            raise error(
                "T0115",
                "the two sides of `if` have different numbers of components",
                span,
                "here",
                help="give both sides the same components",
            )
        return Tup(tuple(choose(cond, a, b, span) for a, b in zip(then.items, orelse.items, strict=True)))
    test = truth_expr(cond, span)
    if isinstance(then, Num | Limit | Choice) and isinstance(orelse, Num | Limit | Choice):
        return then if then == orelse else Choice(test, then, orelse)
    if isinstance(then, Cnd | Num) and isinstance(orelse, Cnd | Num):
        return Val(ir.Select(test, coerce(then, bool_, span), coerce(orelse, bool_, span), span=span), bool_)
    then, orelse = met(then, orelse)
    dtype = common_type(then, orelse, span)
    (tlo, thi), (elo, ehi) = interval(then), interval(orelse)
    lo = None if tlo is None or elo is None else affine.minimum(tlo, elo)
    hi = None if thi is None or ehi is None else affine.maximum(thi, ehi)
    return Val(ir.Select(test, _operand(then, dtype, span), _operand(orelse, dtype, span), span=span), dtype, lo, hi)


def cast(value: Value, dtype: DType, span: Span, saturate: bool = False) -> Value:
    """Return `dtype(value)`. Casting to a narrow float rounds even a value of that type, which was computed in f32."""
    match value:
        case Num(number) if dtype.is_float or dtype == bool_ or isinstance(number, int) or number.is_integer():
            if dtype == bool_:
                return Val(ir.Const(bool(number), bool_, span=span), bool_)
            return _cast_number(number, dtype, span, saturate)
        case Num(number):
            return _cast_number(math.trunc(number) if math.isfinite(number) else number, dtype, span, saturate)
        case Limit() | Choice():
            return Val(coerce(value, dtype, span), dtype)
        case Idx(expr) if dtype == i64:
            return Val(ir.IndexValue(expr, span=span), i64, expr, affine.add(expr, affine.ONE))
        case Idx(expr):
            return Val(ir.Cast(dtype, ir.IndexValue(expr, span=span), saturate, span=span), dtype)
        case Cnd(cond):
            held = ir.Holds(cond, span=span)
            return Val(held if dtype == bool_ else ir.Cast(dtype, held, span=span), dtype)
        case Val(expr, own):
            lo, hi = (value.lo, value.hi) if dtype == i64 or _fits(value, dtype) else (None, None)
            if own == dtype and compute_dtype(dtype) == dtype:
                return value
            if own is not None and compute_dtype(own) == dtype:
                return Val(expr, dtype)
            return Val(ir.Cast(dtype, expr, saturate, span=span), dtype, lo, hi, narrow=dtype == i64 and is_narrow(own))
        case _:
            raise not_scalar(value, span)


def _fits(value: Val, dtype: DType) -> bool:
    """Tell whether an integer is known to lie between numbers that are of type `dtype`."""
    if value.lo is None or value.hi is None or not dtype.is_integer:
        return False
    low, high = affine.constant(value.lo), affine.constant(value.hi)
    return low is not None and high is not None and extreme(dtype, highest=False) <= low and high - 1 <= extreme(dtype, highest=True)


def _cast_number(number: int | float | bool, dtype: DType, span: Span, saturate: bool) -> Val:
    if dtype.is_float:
        const: ir.Expr = float_const(number, dtype, span)
        return Val(const if compute_dtype(dtype) == dtype else ir.Cast(dtype, const, span=span), dtype)
    low, high = limits(dtype)
    if isinstance(number, float):
        number = 0 if math.isnan(number) else int(max(low, min(high, number)))
    whole = int(number)
    if saturate:
        whole = int(max(low, min(high, whole)))
    return Val(
        ir.Const(whole, dtype, span=span) if low <= whole <= high else ir.Cast(dtype, ir.Const(whole, i64, span=span), span=span), dtype
    )
