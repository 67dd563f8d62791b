"""Reductions, running sums, sorting."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call, Operand, Rule, promoted
from stdlib.onnx.table.indexing import top_k_options
from stdlib.onnx.table.reducing import reduced
from tensorlang.graph.nodes import Value

BOOL = DTYPES["bool"]
Axes = int | Sequence[int] | None


def reduction(operator: str, truths: str = "") -> Rule:
    """In the type of the result: sums of integers are wide, and `truths` is what a sum of truths is that is to be one itself."""

    def rule(n: Call, x: Value, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
        y = n.cast(x, n.dtype)
        return reduced(n, truths if y.dtype == BOOL else operator, y, n.axes(dim, len(x.shape)) if x.shape else (), keepdim)

    return rule


def extreme(operator: str, truths: str) -> Rule:
    """The greatest or the least along axes."""

    def rule(n: Call, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        axes = n.axes(dim, len(x.shape)) if x.shape else ()
        return reduced(n, truths if x.dtype == BOOL else operator, x, axes, keepdim)

    return rule


def extreme_at(values: str, places: str) -> Rule:
    """The greatest or the least along an axis, and where they stand."""

    def rule(n: Call, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        if not x.shape:
            return x, n.filled((), DTYPES["i64"], 0)
        axis = n.axis(dim, len(x.shape))
        return reduced(n, values, x, (axis,), keepdim), _kept(n, n.op(places, x, axis=axis), x, axis, keepdim)

    return in_order(rule)


def in_order(rule: Rule) -> Rule:
    """A rule that compares numbers, for truths as well: what does not hold is less."""

    def whole(n: Call, x: Value, *args: Any, **named: Any) -> Any:
        if x.dtype != BOOL:
            return rule(n, x, *args, **named)
        found = rule(n, n.cast(x, DTYPES["u8"]), *args, **named)
        results = found if isinstance(found, tuple) else (found,)
        cast = tuple(n.cast(y, dtype) for y, dtype in zip(results, n.dtypes, strict=True))
        return cast if isinstance(found, tuple) else cast[0]

    return whole


def place_of(operator: str) -> Rule:
    def rule(n: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if dim is None or not x.shape:
            found = n.op(operator, n.view(x, (prod(x.shape),)), axis=0)
            return n.view(found, tuple(1 for _ in x.shape) if keepdim else ())
        axis = n.axis(dim, len(x.shape))
        return _kept(n, n.op(operator, x, axis=axis), x, axis, keepdim)

    return rule


def _kept(n: Call, y: Value, x: Value, axis: int, keep: bool) -> Value:
    return n.view(y, (*x.shape[:axis], 1, *x.shape[axis + 1 :])) if keep else y


def truth(operator: str) -> Rule:
    def rule(n: Call, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        axes = n.axes(dim, len(x.shape)) if x.shape else ()
        return n.cast(reduced(n, operator, n.cast(x, BOOL), axes, keepdim), n.dtype)

    return rule


def variance(
    n: Call, x: Value, dim: Axes = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> Value:
    return _moments(n, x, dim, 1 if correction is None and unbiased is not False else correction or 0, keepdim)[0]


def deviation(
    n: Call, x: Value, dim: Axes = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> Value:
    return n.op("map", variance(n, x, dim, unbiased, keepdim, correction=correction), f="sqrt")


def variance_and_mean(
    n: Call, x: Value, dim: Axes = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Value, Value]:
    return _moments(n, x, dim, 1 if correction is None and unbiased is not False else correction or 0, keepdim)


def _moments(n: Call, x: Value, dim: Axes, correction: float, keep: bool) -> tuple[Value, Value]:
    """Return the variance along axes and the mean. `correction`: by how much less the squares are divided by than there are."""
    axes = n.axes(dim, len(x.shape))
    mean = reduced(n, "reduce_mean", x, axes, True)
    total = reduced(n, "reduce_sum_square", n.op("sub", x, mean), axes, keep)
    count = n.value(prod(x.shape[k] for k in axes), x.dtype)
    divisor = n.op("map", n.op("sub", count, n.filled((), x.dtype, correction)), f="relu") if correction else count
    return n.op("div", total, divisor), mean if keep else n.view(mean, total.shape)


def log_sum_exp(n: Call, x: Value, dim: Axes, keepdim: bool = False) -> Value:
    return reduced(n, "reduce_log_sum_exp", n.cast(x, n.dtype), n.axes(dim, len(x.shape)) if x.shape else (), keepdim)


def vector_norm(n: Call, x: Value, ord: float = 2, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return _norm(n, n.cast(x, n.dtype), ord, dim, keepdim)


def norm(n: Call, x: Value, p: float | None = 2, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return _norm(n, n.cast(x, n.dtype), 2 if p is None else p, dim, keepdim)


def _norm(n: Call, x: Value, order: float, dim: Axes, keep: bool) -> Value:
    axes = n.axes(dim, len(x.shape)) if x.shape else ()
    match order:
        case 1 | 2:
            return reduced(n, f"reduce_l{int(order)}", x, axes, keep)
        case 0:
            there = n.op("logical_not", n.op("equal", x, n.filled((), x.dtype, 0)))
            return reduced(n, "reduce_sum", n.cast(there, x.dtype), axes, keep)
    size = n.op("map", x, f="magnitude")
    if abs(order) == inf:
        return reduced(n, "reduce_max" if order > 0 else "reduce_min", size, axes, keep)
    total = reduced(n, "reduce_sum", n.op("power", size, n.filled((), x.dtype, order)), axes, keep)
    return n.op("power", total, n.filled((), x.dtype, 1 / order))


def cumulative(operator: str) -> Rule:
    def rule(n: Call, x: Value, dim: int, *, dtype: Any = None) -> Value:
        x = n.cast(x, n.dtype)
        return n.op(operator, x, axis=n.axis(dim, len(x.shape)), inclusive=1) if x.shape else x

    return rule


def running_extreme(operator: str) -> Rule:
    """The greatest or the least so far along an axis, and where it stands."""

    def rule(n: Call, x: Value, dim: int) -> tuple[Value, ...]:
        if not x.shape:
            return x, n.filled((), DTYPES["i64"], 0)
        return n.ops(operator, x, axis=n.axis(dim, len(x.shape)))

    return in_order(rule)


def running_log_sum_exp(n: Call, x: Value, dim: int) -> Value:
    return n.op("running_log_sum_exp", x, axis=n.axis(dim, len(x.shape))) if x.shape else x


def places_in_order(
    n: Call,
    sorted_sequence: Value,
    x: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """Where values would stand in a vector in order, or each row of them in one of its own; `sorter` says what is where in that order."""
    if sorter is not None:
        sorted_sequence = n.op("gather_elements", sorted_sequence, sorter, axis=len(sorter.shape) - 1)
    dtype = promoted((sorted_sequence, x))
    return n.cast(n.op("searchsorted", n.cast(sorted_sequence, dtype), n.value(x, dtype), right=int(right or side == "right")), n.dtype)


def buckets(n: Call, x: Operand, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return places_in_order(n, boundaries, x, right=right)


def histogram(n: Call, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    if not min < max:
        raise n.unsupported("bounds that the data say: give `min` and `max`")
    return n.cast(n.op("histogram", x, bins=bins, low=float(min), high=float(max)), n.dtype)


def top_k(n: Call, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, ...]:
    if not x.shape:
        return tuple(n.view(part, (k,) if k == 0 else ()) for part in top_k(n, n.view(x, (1,)), k))
    axis = n.axis(dim, len(x.shape))
    way = top_k_options(x.shape[axis], k, x.dtype)
    return n.ops("top_largest" if largest else "top_smallest", x, axis=axis, count=k, **way)


def argsort(n: Call, x: Value, dim: int = -1, descending: bool = False, **_: Any) -> Value:
    if not x.shape:
        return n.filled((), DTYPES["i64"], 0)
    return n.op("argsort", x, axis=n.axis(dim, len(x.shape)), descending=int(descending))


def sort(n: Call, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    at = argsort(n, x, dim, descending)
    return n.op("gather_elements", x, at, axis=n.axis(dim, len(x.shape))) if x.shape else x, at


def stable_sort(n: Call, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    return sort(n, x, dim, descending)


RULES: dict[str, Rule] = {
    "sum": reduction("reduce_sum", "reduce_any"),
    "mean": reduction("reduce_mean"),
    "prod": reduction("reduce_prod", "reduce_all"),
    "amax": extreme("reduce_max", "reduce_any"),
    "amin": extreme("reduce_min", "reduce_all"),
    "max.dim": extreme_at("reduce_max", "arg_max"),
    "min.dim": extreme_at("reduce_min", "arg_min"),
    "max.default": extreme("reduce_max", "reduce_any"),
    "min.default": extreme("reduce_min", "reduce_all"),
    "argmax": place_of("arg_max"),
    "argmin": place_of("arg_min"),
    "any": truth("reduce_any"),
    "all": truth("reduce_all"),
    "var": variance,
    "std": deviation,
    "var_mean": variance_and_mean,
    "logsumexp": log_sum_exp,
    "linalg_vector_norm": vector_norm,
    "norm.ScalarOpt_dim": norm,
    "norm.Scalar": norm,
    "cumsum": cumulative("cumsum"),
    "cumprod": cumulative("cumprod"),
    "cummax": running_extreme("running_greatest"),
    "cummin": running_extreme("running_least"),
    "logcumsumexp": running_log_sum_exp,
    "searchsorted": places_in_order,
    "bucketize": buckets,
    "histc": histogram,
    "topk": top_k,
    "argsort": in_order(argsort),
    "sort.stable": in_order(stable_sort),
    "sort": in_order(sort),
}
