"""Testing the laws of a reducer made concrete for types.

The combine expression is evaluated by NumPy on random values, infinities, NaN and extremes; where there is a `lift`, on what it lifts and
what combining that gives, since nothing else ever reaches the reducer. Results are compared up to rounding: a law is refused only where
rounding cannot explain the difference, and then with the values that break it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias, assert_never

import numpy as np
from numpy.typing import NDArray

from codegen.dtypes import DType, bool_, called_dtype, compute_dtype, f64, i64
from polyhedral import expr as px
from tensorlang.check import typed
from tensorlang.check.problems import error
from tensorlang.check.reducers import make_reducer
from tensorlang.check.scope import Context, Scope
from tensorlang.check.values import Tup, Val
from tensorlang.diagnostics import CompileError, Diagnostic, InternalError
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import arith
from tensorlang.tensor import nodes as ir

Array: TypeAlias = NDArray[Any]
Columns: TypeAlias = tuple[Array, ...]
Typed: TypeAlias = tuple[Array, DType]

_TRIPLES = 600
_WHERE_NAN_STANDS = "say whether a number or NaN wins, as the library does: `before_max(a, i, b, j)`, `max(a, b)`"
_SPECIAL = (0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e100, -1e100, 1e-100)


def is_start_kept(ctx: Context, reducer: sx.Reducer, made: ir.Reducer) -> bool:
    """Tell whether what a fold begins with is what it comes to, whatever terms follow."""
    lift = _lift(ctx, reducer, made)
    with np.errstate(all="ignore"):
        random = np.random.default_rng(20)
        plain = tuple(_random(random, dtype, _TRIPLES) for dtype in made.dtypes)
        start = plain if lift is None else _lifted(lift, made, random, _TRIPLES)
        combined = combine(made, start, _rows(start, random.permutation(_TRIPLES)))
        return all(bool(np.all(_equal(a, b, np.zeros(_TRIPLES)))) for a, b in zip(combined, start, strict=True))


@lru_cache(maxsize=256)
def is_commutative(reducer: ir.Reducer) -> bool:
    """Tell whether a reducer is associative and commutative on values of all kinds, to the bit: one that forgets NaN is not."""
    with np.errstate(all="ignore"):
        laws = _laws(replace(reducer, commutative=True, identity=None), _samples(reducer, None))
        return all(bool(np.all(_equal(x, y, np.zeros(_TRIPLES)))) for law in laws for x, y in zip(law.left, law.right, strict=True))


# ---------------------------------------------------------------- samples


@dataclass(frozen=True, slots=True)
class _Lift:
    """What a reducer makes of a term: expressions over its value and its position."""

    value: str
    index: str | None
    components: tuple[ir.Expr, ...]


def _lift(ctx: Context, reducer: sx.Reducer, made: ir.Reducer) -> _Lift | None:
    if reducer.lift is None:
        return None
    value_name, index_name, expr = reducer.lift
    names = {value_name: Val(ir.Name(value_name), made.dtypes[0])}
    names |= {} if index_name is None else {index_name: Val(ir.Name(index_name), i64)}
    found = ctx.value(Scope(dict(names)), expr)
    items = found.items if isinstance(found, Tup) else (found,)
    components = tuple(typed.coerce(item, dtype, expr.span) for item, dtype in zip(items, made.dtypes, strict=False))
    return _Lift(value_name, index_name, components)


def _samples(made: ir.Reducer, lift: _Lift | None) -> Columns:
    """Return values that can reach the reducer, one column a component."""
    random = np.random.default_rng(20)
    count = 3 * _TRIPLES
    if lift is None:
        return tuple(_random(random, dtype, count) for dtype in made.dtypes)
    lifted = _lifted(lift, made, random, count)
    combined = combine(made, lifted, _rows(lifted, random.permutation(count)))
    chosen = random.random(count) < 0.5
    return tuple(np.where(chosen, a, b) for a, b in zip(lifted, combined, strict=True))


def _rows(columns: Columns, order: Array) -> Columns:
    return tuple(column[order] for column in columns)


def _lifted(lift: _Lift, made: ir.Reducer, random: np.random.Generator, count: int) -> Columns:
    env: dict[str, Typed] = {lift.value: (_random(random, made.dtypes[0], count), made.dtypes[0])}
    if lift.index is not None:
        env[lift.index] = (random.permutation(count).astype(np.int64), i64)
    return tuple(_column(evaluate(e, env, count)[0], count) for e in lift.components)


def _column(found: Array, count: int) -> Array:
    return np.broadcast_to(found, (count,)).copy()


def _random(random: np.random.Generator, dtype: DType, count: int) -> Array:
    if dtype == bool_:
        return random.random(count) < 0.5
    if dtype.is_integer:
        low, high = arith.integer_range(dtype)
        small = random.integers(-9, 10, count)
        return np.where(random.random(count) < 0.1, random.choice(np.array([low, high]), count), small).astype(dtype.numpy)
    ordinary = np.where(random.random(count) < 0.5, random.integers(-4, 5, count), np.round(random.normal(0, 3, count), 3))
    return np.where(random.random(count) < 0.25, random.choice(np.array(_SPECIAL), count), ordinary).astype(dtype.numpy)


# ---------------------------------------------------------------- laws


@dataclass(frozen=True, slots=True)
class Law:
    """An equation, `left` and `right` for each row of the samples that are `shown`; `what` a reducer is that keeps it, "" of an identity;
    `code` and `cure` of the error where it does not hold."""

    code: str
    what: str
    left: Columns
    right: Columns
    shown: tuple[tuple[str, Columns], ...]
    equation: tuple[str, str]
    cure: str


def broken_laws(ctx: Context, reducer: sx.Reducer, made: ir.Reducer) -> list[Diagnostic]:
    """Return what says the first promise that a reducer breaks for the types that it is made for, nothing where it keeps all of them."""
    with np.errstate(all="ignore"):
        laws = _laws(made, _samples(made, _lift(ctx, reducer, made)))
        return next(([_said(reducer, law)] for law in laws if not _holds(law).all()), [])


def keeps_laws(ctx: Context, reducer: sx.Reducer, dtypes: tuple[DType, ...], has_start: bool) -> bool:
    """Tell whether a reducer's terms may be combined in any grouping and order: it keeps what it promises for components of these types,
    as real numbers. `has_start`: the fold begins with a value of its own, which is no identity."""
    try:
        made = make_reducer(ctx, reducer, tuple(f64 if dtype.is_float else dtype for dtype in dtypes))
    except CompileError:  # it is of one type of floats alone
        made = make_reducer(ctx, reducer, dtypes)
    return made.commutative and _keeps_laws(made, _lift(ctx, reducer, made), has_start)


@lru_cache(maxsize=256)
def _keeps_laws(made: ir.Reducer, lift: _Lift | None, has_start: bool) -> bool:
    with np.errstate(all="ignore"):
        laws = _laws(made, _samples(made, lift))
        broken = {law.code for law in laws if not _holds(law).all()}
        if made.identity is None or broken != {"T0172"}:
            return not broken
        unit = _unit(made, 1)
        again = combine(made, unit, unit)
        return not has_start and all(bool(_equal(x, y, np.ones(1)).all()) for x, y in zip(again, unit, strict=True))


def _unit(made: ir.Reducer, count: int) -> Columns:
    assert made.identity is not None
    return tuple(_column(evaluate(e, {}, count)[0], count) for e in made.identity)


def _laws(made: ir.Reducer, samples: Columns) -> list[Law]:
    a, b, c = (tuple(column[k::3] for column in samples) for k in range(3))
    ab, bc = combine(made, a, b), combine(made, b, c)
    laws = [
        Law(
            "T0170", "associative", combine(made, ab, c), combine(made, a, bc), (("a", a), ("b", b), ("c", c)),
            ("(a ∘ b) ∘ c", "a ∘ (b ∘ c)"), "say this computation as a recurrence instead: `s[i + 1] = … s[i] …`",
        )
    ]  # fmt: skip
    if made.commutative:
        laws.append(
            Law(
                "T0171",
                "commutative",
                ab,
                combine(made, b, a),
                (("a", a), ("b", b)),
                ("a ∘ b", "b ∘ a"),
                f"declare it `ordered reducer {made.name}`",
            )
        )
    if made.identity is not None:
        terms = tuple(np.concatenate((x, u)) for x, u in zip(a, _unit(made, 1), strict=True))
        unit = _unit(made, len(terms[0]))
        cure = "give its identity after `from`, or `from none`"
        for equation, found in (("identity ∘ a", combine(made, unit, terms)), ("a ∘ identity", combine(made, terms, unit))):
            laws.append(Law("T0172", "", found, terms, (("a", terms),), (equation, "a"), cure))
    return laws


def _holds(law: Law) -> NDArray[np.bool_]:
    """Return in which rows both sides of a law are one, up to rounding."""
    scale = np.ones(len(law.left[0]))
    for column in (*(c for _, columns in law.shown for c in columns), *law.left, *law.right):
        if column.dtype.kind == "f":
            scale = np.maximum(scale, np.where(np.isfinite(column), np.abs(column), 0))
    same = np.ones(len(scale), bool)
    lost = _has_nan(law.left) & _has_nan(law.right)
    for x, y in zip(law.left, law.right, strict=True):
        same &= _equal(x, y, scale) | (lost & (x.dtype.kind == "f"))
    return same


def _said(reducer: sx.Reducer, law: Law) -> Diagnostic:
    row = _simplest(np.flatnonzero(~_holds(law)), law)
    values = ", ".join(f"{name} = {_show(columns, row)}" for name, columns in law.shown)
    title = f"reducer `{reducer.name}` is not {law.what}" if law.what else f"the identity of reducer `{reducer.name}` is not neutral"
    return error(
        law.code,
        title,
        reducer.span,
        "declared here",
        notes=(f"with {values}", f"{law.equation[0]} is {_show(law.left, row)}, but {law.equation[1]} is {_show(law.right, row)}"),
        help=_WHERE_NAN_STANDS if any(_has_nan(columns)[row] for _, columns in law.shown) else law.cure,
    ).diagnostics[0]


def _has_nan(columns: Columns) -> Array:
    """Return where some component is NaN: then the other floats of the tuple mean nothing any more."""
    out = np.zeros(len(columns[0]), bool)
    for column in columns:
        if column.dtype.kind == "f":
            out |= np.isnan(column)
    return out


def _equal(x: Array, y: Array, scale: Array) -> Array:
    if x.dtype.kind != "f":
        return np.asarray(x == y)
    both_nan = np.isnan(x) & np.isnan(y)
    return np.asarray((x == y) | both_nan | (np.abs(x - y) <= 1e-9 * scale))


def _simplest(rows: Array, law: Law) -> int:
    """Return the row that breaks the law with the plainest values."""

    def weight(row: int) -> tuple[int, float]:
        values = [float(c[row]) for _, columns in law.shown for c in columns]
        finite = [v for v in values if np.isfinite(v)]
        return len(values) - len(finite), sum(min(abs(v), 1e9) + (10 if v != int(v) else 0) for v in finite)

    return int(min((int(r) for r in rows), key=weight))


def _show(columns: Columns, row: int) -> str:
    items = [f"{c[row]:g}" if c.dtype.kind == "f" else str(c[row]).lower() for c in columns]
    return items[0] if len(items) == 1 else f"({', '.join(items)})"


# ---------------------------------------------------------------- evaluation


def combine(reducer: ir.Reducer, left: Columns, right: Columns) -> Columns:
    """Return the combination of two columns of values, row by row."""
    env: dict[str, Typed] = {}
    for names, columns in ((reducer.left, left), (reducer.right, right)):
        env |= {n: (c, d) for n, c, d in zip(names, columns, reducer.dtypes, strict=True)}
    count = len(left[0])
    return tuple(_column(evaluate(e, env, count)[0], count) for e in reducer.combine)


def evaluate(e: ir.Expr, env: Mapping[str, Typed], count: int) -> Typed:
    """Return the values of a closed expression over named columns. Both sides of a `Select` are evaluated; nothing here can fail."""
    match e:
        case ir.Const(number, dtype):
            return arith.constant(number, dtype, count), compute_dtype(dtype)
        case ir.Name(name):
            return env[name]
        case ir.IndexValue(px.Int(number)):
            return arith.constant(number, i64, count), i64
        case ir.Unary(op, inner):
            x, dtype = evaluate(inner, env, count)
            return arith.unary(op, x, dtype), dtype
        case ir.Binary(op, lhs, rhs):
            (x, dtype), (y, _) = evaluate(lhs, env, count), evaluate(rhs, env, count)
            return arith.binary(op, x, y, dtype), dtype
        case ir.Compare(op, lhs, rhs):
            return arith.compare(op, evaluate(lhs, env, count)[0], evaluate(rhs, env, count)[0]), bool_
        case ir.Select(cond, then, orelse):
            (x, dtype), (y, _) = evaluate(then, env, count), evaluate(orelse, env, count)
            return np.where(evaluate(cond, env, count)[0], x, y), dtype
        case ir.Cast(dtype, inner, saturate):
            x, source = evaluate(inner, env, count)
            return arith.cast(x, source, dtype, saturate), compute_dtype(dtype)
        case ir.Call(fn, args):
            parts = [evaluate(a, env, count) for a in args]
            return arith.call(fn, [x for x, _ in parts], parts[0][1]), called_dtype(fn, parts[0][1])
        case ir.Let(name, bound, body):
            return evaluate(body, {**env, name: evaluate(bound, env, count)}, count)
        case ir.IndexValue() | ir.Holds() | ir.Read() | ir.TupleOf() | ir.Project() | ir.Reduce():
            raise InternalError("check laws", f"a reducer cannot contain {type(e).__name__}")
        case _:
            assert_never(e)
