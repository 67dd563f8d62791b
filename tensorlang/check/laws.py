"""Testing what a reducer promises (rule R5): associativity, commutativity, its identity.

    reducer difference a b from 0 = a - b        refused: (a - b) - c is not a - (b - c)

The combine expression is evaluated by NumPy on random values, infinities, NaN and extremes; where there is a `lift`, on what it lifts and
what combining that gives, since nothing else ever reaches the reducer. Results are compared up to rounding: a law is refused only where
rounding cannot explain the difference, and then with the values that break it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, TypeAlias, assert_never

import numpy as np
from numpy.typing import NDArray

from codegen.dtypes import DType, bool_, called_dtype, compute_dtype, f32, f64, i64
from polyhedral import expr as px
from tensorlang.check import typed
from tensorlang.check.module import Module
from tensorlang.check.problems import error
from tensorlang.check.reduction import make_reducer
from tensorlang.check.scalar import value
from tensorlang.check.scope import Context, Scope
from tensorlang.check.values import Tup, Val
from tensorlang.diagnostics import CompileError, Diagnostic, InternalError
from tensorlang.syntax import nodes as sx
from tensorlang.tensor import arith
from tensorlang.tensor import nodes as ir
from tensorlang.tensor.walk import Fresh

Array: TypeAlias = NDArray[Any]
Columns: TypeAlias = tuple[Array, ...]
Typed: TypeAlias = tuple[Array, DType]

_TRIPLES = 600
_SPECIAL = (0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e100, -1e100, 1e-100)
_NOWHERE = sx.Operator("reducer", (), (), (), (), ())


def check_laws(module: Module, name: str) -> list[Diagnostic]:
    """Return what first breaks the promises of a reducer: T0170 not associative, T0171 not commutative, T0172 its identity is none."""
    reducer = module.reducers[name]
    ctx = Context(module, _NOWHERE, {}, Fresh(), value)
    if len(reducer.left) != len(reducer.right):
        problem = error(
            "T0125",
            f"reducer `{name}` has {len(reducer.left)} components on its left and {len(reducer.right)} on its right",
            reducer.span,
            "declared here",
            help="give both sides the same number of components",
        )
        return list(problem.diagnostics)
    try:
        made = _typed(ctx, reducer)
    except CompileError as problem:
        return list(problem.diagnostics)
    with np.errstate(all="ignore"):
        return _laws(reducer, made, _samples(ctx, reducer, made))


@lru_cache(maxsize=256)
def is_commutative(reducer: ir.Reducer) -> bool:
    """Tell whether a reducer is associative and commutative on values of all kinds, to the bit: one that forgets NaN is not."""
    with np.errstate(all="ignore"):
        random = np.random.default_rng(20)
        a, b, c = (tuple(_random(random, dtype, _TRIPLES) for dtype in reducer.dtypes) for _ in range(3))
        ab = combine(reducer, a, b)
        alike = ((combine(reducer, ab, c), combine(reducer, a, combine(reducer, b, c))), (ab, combine(reducer, b, a)))
        return all(bool(np.all(_equal(x, y, np.zeros(_TRIPLES)))) for left, right in alike for x, y in zip(left, right, strict=True))


def keeps_start(module: Module, name: str) -> bool:
    """Tell whether what a reducer starts from is what it comes to, whatever terms follow, on values of all kinds: `first` does."""
    reducer = module.reducers[name]
    ctx = Context(module, _NOWHERE, {}, Fresh(), value)
    try:
        made = _typed(ctx, reducer)
    except CompileError:
        return False
    with np.errstate(all="ignore"):
        random = np.random.default_rng(20)
        plain = tuple(_random(random, dtype, _TRIPLES) for dtype in made.dtypes)
        start = plain if reducer.lift is None else _lifted(ctx, reducer, made, random, _TRIPLES)
        combined = combine(made, start, _rows(start, random.permutation(_TRIPLES)))
        return all(bool(np.all(_equal(a, b, np.zeros(_TRIPLES)))) for a, b in zip(combined, start, strict=True))


def _typed(ctx: Context, reducer: sx.Reducer) -> ir.Reducer:
    """Return the reducer for the first choice of component types for which it makes sense; floats before integers before truth values."""
    first: CompileError | None = None
    fixed = _told_types(reducer)
    for dtypes in product(*((t,) if t else (f64, i64, bool_, f32) for t in fixed)):
        try:
            return make_reducer(ctx, reducer, dtypes)
        except CompileError as problem:
            first = first or problem
    assert first is not None
    raise first


def _told_types(reducer: sx.Reducer) -> list[DType | None]:
    """Return the types that the identity or `lift` gives components: truth values and positions."""
    out: list[DType | None] = [None] * len(reducer.left)
    identity = reducer.identity.items if isinstance(reducer.identity, sx.TupleOf) else (reducer.identity,)
    for position, item in enumerate(identity[: len(out)]):
        if isinstance(item, sx.Id):
            out[position] = {"true": bool_, "false": bool_, "maxint": i64, "minint": i64}.get(item.name)
    if reducer.lift is not None:
        _, index, lifted = reducer.lift
        items = lifted.items if isinstance(lifted, sx.TupleOf) else (lifted,)
        for position, item in enumerate(items[: len(out)]):
            if isinstance(item, sx.Id) and index is not None and item.name == index:
                out[position] = i64
    return out


# ---------------------------------------------------------------- samples


def _samples(ctx: Context, reducer: sx.Reducer, made: ir.Reducer) -> Columns:
    """Return values that can reach the reducer, one column a component."""
    random = np.random.default_rng(20)
    count = 3 * _TRIPLES
    if reducer.lift is None:
        return tuple(_random(random, dtype, count) for dtype in made.dtypes)
    lifted = _lifted(ctx, reducer, made, random, count)
    combined = combine(made, lifted, _rows(lifted, random.permutation(count)))
    chosen = random.random(count) < 0.5
    return tuple(np.where(chosen, a, b) for a, b in zip(lifted, combined, strict=True))


def _rows(columns: Columns, order: Array) -> Columns:
    return tuple(column[order] for column in columns)


def _lifted(ctx: Context, reducer: sx.Reducer, made: ir.Reducer, random: np.random.Generator, count: int) -> Columns:
    assert reducer.lift is not None
    value_name, index_name, expr = reducer.lift
    names = {value_name: Val(ir.Name(value_name), made.dtypes[0])}
    env: dict[str, Typed] = {value_name: (_random(random, made.dtypes[0], count), made.dtypes[0])}
    if index_name is not None:
        names[index_name] = Val(ir.Name(index_name), i64)
        env[index_name] = (random.permutation(count).astype(np.int64), i64)
    found = ctx.value(Scope(dict(names)), expr)
    items = found.items if isinstance(found, Tup) else (found,)
    given = [typed.coerce(item, dtype, expr.span) for item, dtype in zip(items, made.dtypes, strict=False)]
    return tuple(_column(evaluate(e, env, count)[0], count) for e in given)


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
    code: str
    what: str
    left: Columns
    right: Columns
    shown: tuple[tuple[str, Columns], ...]
    equation: tuple[str, str]
    cure: str


def _laws(reducer: sx.Reducer, made: ir.Reducer, samples: Columns) -> list[Diagnostic]:
    a, b, c = (tuple(column[k::3] for column in samples) for k in range(3))
    ab, bc = combine(made, a, b), combine(made, b, c)
    laws = [
        Law(
            "T0170", "associative", combine(made, ab, c), combine(made, a, bc), (("a", a), ("b", b), ("c", c)),
            ("(a ∘ b) ∘ c", "a ∘ (b ∘ c)"), "say this computation as a recurrence instead: `s[i + 1] = … s[i] …`",
        )
    ]  # fmt: skip
    if not reducer.ordered:
        laws.append(
            Law(
                "T0171",
                "commutative",
                ab,
                combine(made, b, a),
                (("a", a), ("b", b)),
                ("a ∘ b", "b ∘ a"),
                f"declare it `ordered reducer {reducer.name}`",
            )
        )
    if made.identity is not None:
        count = len(a[0])
        unit = tuple(_column(evaluate(e, {}, count)[0], count) for e in made.identity)
        laws.append(
            Law(
                "T0172", "", combine(made, unit, a), a, (("a", a),), ("identity ∘ a", "a"), "give its identity after `from`, or `from none`"
            )
        )
        laws.append(
            Law(
                "T0172", "", combine(made, a, unit), a, (("a", a),), ("a ∘ identity", "a"), "give its identity after `from`, or `from none`"
            )
        )
    broken = (problem for law in laws if (problem := _broken(reducer, law)) is not None)
    return [problem for problem in (next(broken, None),) if problem is not None]


def _broken(reducer: sx.Reducer, law: Law) -> Diagnostic | None:
    scale = np.ones(len(law.left[0]))
    for column in (*(c for _, columns in law.shown for c in columns), *law.left, *law.right):
        if column.dtype.kind == "f":
            scale = np.maximum(scale, np.where(np.isfinite(column), np.abs(column), 0))
    same = np.ones(len(scale), bool)
    lost = _has_nan(law.left) & _has_nan(law.right)
    for x, y in zip(law.left, law.right, strict=True):
        same &= _equal(x, y, scale) | (lost & (x.dtype.kind == "f"))
    if same.all():
        return None
    row = _simplest(np.flatnonzero(~same), law)
    values = ", ".join(f"{name} = {_show(columns, row)}" for name, columns in law.shown)
    title = f"reducer `{reducer.name}` is not {law.what}" if law.what else f"the identity of reducer `{reducer.name}` is not neutral"
    return error(
        law.code,
        title,
        reducer.span,
        "declared here",
        notes=(f"with {values}", f"{law.equation[0]} is {_show(law.left, row)}, but {law.equation[1]} is {_show(law.right, row)}"),
        help=law.cure,
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
