"""Reductions and sums along axes."""

from __future__ import annotations

import numpy as np

from fuzzing.network import NetDrawing, Rule
from fuzzing.operators import draw
from fuzzing.operators.moving import with_axes


def _reductions(d: NetDrawing) -> None:
    kind = d.random.choice((*("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1"), *_ROUGH_REDUCTIONS))
    rough = kind in _ROUGH_REDUCTIONS
    types = ("f32", "f32", "f16", "f64") if rough else ("f32", "f32", "f16", "bf16", "f64", "i32", "i64", "i8", "u8", "u32", "u64")
    bools = ("bool",) if kind in ("ReduceMax", "ReduceMin") else ()
    x = d.some(*types, *bools, exact=True)
    if x is None:
        return
    a = d.values[x]
    if kind == "ReduceLogSum" and (not a.size or a.min() <= 0):
        return
    axes = draw.axes(d, a.ndim) if d.random.random() < 0.8 else None
    since = 13 if kind == "ReduceSum" else 18
    attrs = draw.maybe(d, 0.7, keepdims=d.random.choice((0, 1)))
    if d.opset >= since:
        attrs.update(draw.maybe(d, 0.3, noop_with_empty_axes=d.random.choice((0, 1))))
    elif not axes:
        axes = None
    with_axes(d, kind, x, axes, since, rough=rough, **attrs)


_ROUGH_REDUCTIONS = ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def _cumulative(d: NetDrawing) -> None:
    x = d.some("f32", "f64", "i32", "i64", "u32", least=1, exact=True)
    if x is not None:
        axis = d.constant(np.array(draw.axis(d, d.values[x].ndim), d.random.choice((np.int64, np.int32))))
        attrs = {**draw.maybe(d, 0.5, exclusive=d.random.choice((0, 1))), **draw.maybe(d, 0.5, reverse=d.random.choice((0, 1)))}
        d.add("CumSum", [x, axis], **attrs)


RULES: tuple[Rule, ...] = (
    _reductions,
    _reductions,
    _reductions,
    _cumulative,
)
