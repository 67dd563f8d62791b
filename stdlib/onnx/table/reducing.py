"""Reductions over axes, ArgMax, CumSum."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Rule, Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from tensorlang.graph.nodes import Value


def reduction(operator: str, on_bool: str = "") -> Rule:
    """Axes are an attribute up to version 13 (ReduceSum) or 18 (the others), and an input from there on."""

    def rule(n: Site) -> Value:
        x = n.arg(0)
        rank = len(x.shape)
        from_input = n.node.since >= (13 if n.node.op == "ReduceSum" else 18)
        axes = n.constant_ints(1) if from_input else (n.integers("axes") if n.has("axes") else None)
        if not axes:
            if n.integer("noop_with_empty_axes", 0) == 1:
                return _of_one(n, operator, x)
            axes = tuple(range(rank))
        keep = keeps_axes(n)
        if x.dtype == DTYPES["bool"]:
            if not on_bool:
                raise n.wrong("booleans cannot be reduced so")
            return reduced(n, on_bool, x, n.axes_of(axes, rank), keep)
        return reduced(n, operator, x, n.axes_of(axes, rank), keep)

    return rule


def keeps_axes(n: Site) -> bool:
    """Tell whether axes that are reduced stay, of extent one: 1 says so, and no other number."""
    return n.integer("keepdims", 1) == 1


def _of_one(n: Site, operator: str, x: Value) -> Value:
    """Return what the operator makes of each element alone."""
    y = n.op(operator, n.view(x, (*x.shape, 1)), axis=len(x.shape), count=1)
    return x if operator in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod") else y


def reduced(n: Site, operator: str, x: Value, axes: Sequence[int], keep: bool) -> Value:
    """Return `x` reduced over `axes`. Axes of extent one move out of the way at no cost; others that are apart are transposed together."""
    axes = sorted(axes)
    shape = tuple(1 if k in axes else extent for k, extent in enumerate(x.shape))
    final = shape if keep else tuple(extent for k, extent in enumerate(x.shape) if k not in axes)
    if x.dtype.is_float and x.dtype.bits < 32:
        wide = cast(n, x, DTYPES["f32"])
        return cast(n, n.view(_reduced(n, operator, wide, axes), final), x.dtype)
    if operator in _FLOAT_ONLY and not x.dtype.is_float:
        wide = cast(n, x, DTYPES["f64"])
        return cast(n, n.view(_reduced(n, operator, wide, axes), final), x.dtype)
    return n.view(_reduced(n, operator, x, axes), final)


_FLOAT_ONLY = {"reduce_mean", "reduce_l2", "reduce_log_sum", "reduce_log_sum_exp"}


def _reduced(n: Site, operator: str, x: Value, axes: Sequence[int]) -> Value:
    """Return the reduction, of which the caller views the shape. Unit axes are dropped from both sides first."""
    if not axes:
        return _of_one(n, operator, x)
    kept = [k for k, extent in enumerate(x.shape) if k not in axes]
    if list(axes) == list(range(axes[0], axes[0] + len(axes))):
        return n.op(operator, x, axis=axes[0], count=len(axes))
    solid = [k for k, extent in enumerate(x.shape) if extent != 1]
    thin = n.view(x, tuple(x.shape[k] for k in solid))
    gone = [solid.index(k) for k in axes if k in solid]
    if not gone:
        return _of_one(n, operator, x)
    if gone != list(range(gone[0], gone[0] + len(gone))):
        order = [solid.index(k) for k in kept if k in solid] + gone
        thin = n.op("transpose", thin, perm=tuple(order))
        gone = list(range(len(order) - len(gone), len(order)))
    return n.op(operator, thin, axis=gone[0], count=len(gone))


def arg(operator: str) -> Rule:
    def rule(n: Site) -> Value:
        x = n.arg(0)
        axis = n.axis("axis", 0, len(x.shape))
        name = operator + ("_last" if n.flag("select_last_index") else "")
        y = n.op(name, x, axis=axis)
        return n.view(y, (*x.shape[:axis], 1, *x.shape[axis + 1 :])) if keeps_axes(n) else y

    return rule


def cumulative(operator: str) -> Rule:
    def rule(n: Site) -> Value:
        x = n.arg(0)
        axes = n.constant_ints(1)
        if axes is None or len(axes) != 1:
            raise n.wrong("the axis must be one integer")
        axis = n.axis_of(axes[0], len(x.shape))
        name = f"{operator}_reverse" if n.flag("reverse") else operator
        return n.op(name, x, axis=axis, inclusive=0 if n.flag("exclusive") else 1)

    return rule


def size_of(n: Site) -> Value:
    return n.of_sizes(np.full((), prod(n.arg(0).shape), object), DTYPES["i64"])


RULES = (
    Entry("ReduceSum", 1, 13, reduction("reduce_sum")),
    Entry("ReduceMean", 1, 18, reduction("reduce_mean")),
    Entry("ReduceMax", 1, 20, reduction("reduce_max", "reduce_any")),
    Entry("ReduceMin", 1, 20, reduction("reduce_min", "reduce_all")),
    Entry("ReduceProd", 1, 18, reduction("reduce_prod")),
    Entry("ReduceL1", 1, 18, reduction("reduce_l1")),
    Entry("ReduceL2", 1, 18, reduction("reduce_l2")),
    Entry("ReduceSumSquare", 1, 18, reduction("reduce_sum_square")),
    Entry("ReduceLogSum", 1, 28, reduction("reduce_log_sum")),
    Entry("ReduceLogSumExp", 1, 28, reduction("reduce_log_sum_exp")),
    Entry("ArgMax", 1, 13, arg("arg_max")),
    Entry("ArgMin", 1, 13, arg("arg_min")),
    Entry("CumSum", 11, 14, cumulative("cumsum")),
    Entry("CumProd", 26, 26, cumulative("cumprod")),
    Entry("Size", 1, 25, size_of),
)
