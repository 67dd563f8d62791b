"""Sums and products of scalar expressions, without the zeros and ones that derivatives are full of."""

from __future__ import annotations

from codegen.dtypes import DType
from tensorlang.tensor.nodes import Binary, Call, Compare, Const, Expr, Let, Name, Project, Reducer, Select, TupleOf, Unary
from tensorlang.tensor.walk import map_children, substitute_names


def number(value: float, dtype: DType) -> Const:
    """Return a literal of a float type."""
    return Const(float(value), dtype)


def is_number(e: Expr, value: float) -> bool:
    """Tell whether `e` is this literal."""
    return isinstance(e, Const) and e.dtype.is_float and e.value == value


def product(a: Expr, b: Expr) -> Expr:
    """Return a * b. A factor of zero makes it zero: what a derivative does not reach adds nothing."""
    if is_number(a, 0) or is_number(b, 1):
        return a
    if is_number(b, 0) or is_number(a, 1):
        return b
    if is_number(a, -1):
        return negative(b)
    if is_number(b, -1):
        return negative(a)
    match a, b:
        case Unary("neg", x), _:
            return negative(product(x, b))
        case _, Unary("neg", y):
            return negative(product(a, y))
        case _, Select(cond, then, orelse) if is_number(orelse, 0) and _is_light(a):
            return Select(cond, product(a, then), orelse)
    return Binary("*", a, b)


def _is_light(e: Expr) -> bool:
    return isinstance(e, Const)


def quotient(a: Expr, b: Expr) -> Expr:
    """Return a / b."""
    if is_number(a, 0) or is_number(b, 1):
        return a
    return negative(quotient(a.value, b)) if isinstance(a, Unary) and a.op == "neg" else Binary("/", a, b)


def total(a: Expr, b: Expr) -> Expr:
    """Return a + b."""
    if is_number(a, 0):
        return b
    if is_number(b, 0):
        return a
    if isinstance(b, Unary) and b.op == "neg":
        return Binary("-", a, b.value)
    if isinstance(a, Unary) and a.op == "neg":
        return Binary("-", b, a.value)
    return Binary("+", a, b)


def negative(e: Expr) -> Expr:
    """Return -e."""
    match e:
        case Const(value, dtype):
            return Const(-value, dtype)
        case Unary("neg", value):
            return value
        case _:
            return Unary("neg", e)


def square(e: Expr) -> Expr:
    return Binary("*", e, e)


def function(name: str, *args: Expr) -> Expr:
    return Call(name, args)


def chosen(cond: Expr, then: Expr, orelse: Expr) -> Expr:
    """Return `if cond then … else …`."""
    return Select(cond, then, orelse)


def equal(a: Expr, b: Expr) -> Expr:
    return Compare("==", a, b)


def conjunction(conds: tuple[Expr, ...]) -> Expr | None:
    """Return the conjunction of conditions, each evaluated only where those before it hold; None of none."""
    out: Expr | None = None
    for cond in conds:
        out = cond if out is None else Binary("and", out, cond)
    return out


def sum_reducer(dtype: DType) -> Reducer:
    """Return the prelude's `sum` for an accumulator of a type."""
    zero = Const(dtype.zero, dtype)
    return Reducer("sum", ("a",), ("b",), (dtype,), (Binary("+", Name("a"), Name("b")),), (zero,), True, "sum")


def exponent_of(e: Expr) -> Expr | None:
    """Return u where `e` is exp(u), or `if a == b then 1 else exp(a - b)`, which is exp(a - b) but for two equal infinities; None of any
    other."""
    match e:
        case Call("exp", (value,)):
            return value
        case Select(Compare("==", a, b), one, Call("exp", (Binary("-", c, d) as value,))) if is_number(one, 1) and {a, b} == {c, d}:
            return value
        case _:
            return None


def without_lets(e: Expr) -> Expr:
    """Return `e` with values in place of the names that stand for them."""
    match e:
        case Let(name, value, body):
            return without_lets(substitute_names(body, {name: without_lets(value)}))
        case Project(TupleOf(items), position):
            return without_lets(items[position])
        case _:
            return map_children(without_lets, e)
