"""What a condition says of integer values on the side where it holds, and on the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from codegen.dtypes import i64
from polyhedral import affine
from polyhedral import expr as px
from tensorlang.check import arith, bounds
from tensorlang.check.scope import Context, Scope
from tensorlang.check.types import BITS
from tensorlang.check.values import Idx, Num, Val, Value
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import nodes as ir


def under(ctx: Context, scope: Scope, cond: sx.Node, holds: bool) -> Scope:
    """Return the scope where `cond` holds (or does not), knowing what it says of integer values. Of floats, which lie between integers and
    may be NaN, nothing is known: 0.5 is greater than 0 and becomes 0."""
    facts = dict(scope.refined)
    for op, a, b in _facts(ctx, scope, cond, holds):
        for op_, x, y in ((op, a, b), (ir.MIRRORED[op], b, a)):
            if isinstance(x, Val) and isinstance(y, Num | Idx) and (x.dtype is None or x.dtype.is_integer):
                for same in _spellings(x):
                    facts[same] = _narrowed(op_, *facts.get(same, (None, None)), arith.interval(y)[0], scope.ranges)
    return replace(scope, refined=facts)


def _spellings(value: Val) -> tuple[ir.Expr, ...]:
    """Return the expressions for an integer outside of brackets and inside, where it is widened. What is beyond `i64` is another there."""
    return (value.expr, ir.Cast(i64, value.expr)) if arith.is_narrow(value.dtype) else (value.expr,)


_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "!=": "=="}


def _facts(ctx: Context, scope: Scope, cond: sx.Node, holds: bool) -> list[tuple[str, Value, Value]]:
    match cond:
        case sx.Binary("and", lhs, rhs) if holds:
            return _facts(ctx, scope, lhs, True) + _facts(ctx, scope, rhs, True)
        case sx.Binary("or", lhs, rhs) if not holds:
            return _facts(ctx, scope, lhs, False) + _facts(ctx, scope, rhs, False)
        case sx.Chain(first, rest) if rest[0].op == ("and" if holds else "or"):
            return [fact for part in (first, *(link.rhs for link in rest)) for fact in _facts(ctx, scope, part, holds)]
        case sx.Unary("not", inner):
            return _facts(ctx, scope, inner, not holds)
        case sx.Member(inner, sx.Range(lo, hi)):
            return _facts(ctx, scope, sx.Compare((lo, inner, hi), ("<=", "<"), span=cond.span), holds)
        case sx.Compare(items, ops) if holds or len(ops) == 1:
            if any(isinstance(item, sx.Reduction) or (isinstance(item, sx.Apply) and item.name not in BITS) for item in items):
                return []
            values = [ctx.value(scope, item) for item in items]
            said = [op if holds else _NEGATED.get(op, "!=") for op in ops]
            found = [(op, a, b) for op, a, b in zip(said, values, values[1:], strict=False)]
            bits = [fact for of in found for fact in _without_bit(scope, *of)]
            return [(op, a, b) for op, a, b in found if op != "!="] + bits
        case _:
            return []


def _without_bit(scope: Scope, op: str, a: Value, b: Value) -> Iterator[tuple[str, Value, Value]]:
    """Yield what a comparison says of an index without a bit that is set in it, `bitand(s, shl(1, j)) != 0` and `bitand(shr(s, j), 1) == 1`
    of `s - shl(1, j)` and `bitxor(s, shl(1, j))`: they are less than the index, and no less than 0."""
    if not isinstance(a, Val) or not isinstance(b, Num) or a.dtype != i64 or (op, b.value) not in (("!=", 0), ("==", 1)):
        return
    one = ir.IndexValue(px.Int(1))
    match a.expr:
        case ir.Binary("bitand", ir.IndexValue(index) as number, ir.Binary("shl", ir.IndexValue(px.Int(1)), _) as bit) if op == "!=":
            pass
        case ir.Binary("bitand", ir.Binary("shl", ir.IndexValue(px.Int(1)), _) as bit, ir.IndexValue(index) as number) if op == "!=":
            pass
        case ir.Binary("bitand", ir.Binary("shr", ir.IndexValue(index) as number, place), ir.IndexValue(px.Int(1)) | ir.Const(1)):
            bit = ir.Binary("shl", one, place)
        case _:
            return
    if arith.is_nonnegative(index, scope.ranges):
        for less in (ir.Binary("-", number, bit), ir.Binary("bitxor", number, bit), ir.Binary("bitxor", bit, number)):
            yield "<", Val(less, i64), Idx(index)
            yield ">=", Val(less, i64), Num(0)


def _narrowed(
    op: str, lo: px.Expr | None, hi: px.Expr | None, y: px.Expr | None, ranges: bounds.Ranges
) -> tuple[px.Expr | None, px.Expr | None]:
    """Return the interval [lo, hi) cut by `value op y`; `ranges` are those of indices."""
    if y is None:
        return lo, hi
    after = affine.add(y, affine.ONE)
    match op:
        case "<":
            return lo, _lesser(hi, y, ranges)
        case "<=":
            return lo, _lesser(hi, after, ranges)
        case ">":
            return _greater(lo, after, ranges), hi
        case ">=":
            return _greater(lo, y, ranges), hi
        case _:
            return _greater(lo, y, ranges), _lesser(hi, after, ranges)


def _greater(known: px.Expr | None, said: px.Expr, ranges: bounds.Ranges) -> px.Expr:
    return said if known is None else bounds.larger(known, said, ranges)


def _lesser(known: px.Expr | None, said: px.Expr, ranges: bounds.Ranges) -> px.Expr:
    return said if known is None else bounds.smaller(known, said, ranges)
