"""Normalisation and softmax."""

from __future__ import annotations

import numpy as np

from fuzzing.network import TYPES, NetDrawing, Rule
from fuzzing.operators import draw


def _norms(d: NetDrawing) -> None:
    kinds = ("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "LRN", "LpNormalization")
    kind = d.random.choice((*kinds, "MeanVarianceNormalization", "RMSNormalization"))
    dtype = d.random.choice(("f32", "f32", "f32", "f16", "f64"))
    rank = (
        d.random.choice((2, 3, 4)) if kind not in ("InstanceNormalization", "MeanVarianceNormalization", "LRN") else d.random.choice((3, 4))
    )
    shape = (d.random.choice((1, 2, 3)), d.random.choice((2, 4, 6)), *draw.shape(d, rank - 2, (2, 3, 4)))
    x = draw.value(d, dtype, shape)
    channels, eps = shape[1], draw.maybe(d, 0.5, epsilon=d.random.choice((0.5, 1e-3, 1.0)))
    match kind:
        case "BatchNormalization":
            scale, bias, mean = (draw.value(d, dtype, (channels,)) for _ in range(3))
            var = draw.put(d, np.abs(d.array(dtype, (channels,))) + np.ones((), TYPES[dtype][1]))
            d.add(kind, [x, scale, bias, mean, var], rough=True, **eps)
        case "LayerNormalization" | "RMSNormalization":
            axis = draw.axis(d, rank)
            rest = shape[axis:] if axis < 0 else shape[axis - rank :]
            scale = draw.value(d, dtype, d.random.choice((rest, rest, rest[-1:])))
            bias = [draw.value(d, dtype, rest)] if kind.startswith("Layer") and d.random.random() < 0.6 else []
            outputs = d.random.choice((1, 1, 2, 3)) if kind.startswith("Layer") else 1
            d.add(kind, [x, scale, *bias], outputs, rough=True, axis=axis, **eps)
        case "InstanceNormalization":
            d.add(kind, [x, draw.value(d, dtype, (channels,)), draw.value(d, dtype, (channels,))], rough=True, **eps)
        case "GroupNormalization":
            groups = d.random.choice([g for g in (1, 2, 3, 4, 6) if channels % g == 0])
            count = channels if d.opset >= 21 else groups
            d.add(kind, [x, draw.value(d, dtype, (count,)), draw.value(d, dtype, (count,))], rough=True, num_groups=groups, **eps)
        case "LRN":
            attrs = {**draw.maybe(d, 0.5, alpha=0.5), **draw.maybe(d, 0.5, beta=0.5), **draw.maybe(d, 0.5, bias=2.0)}
            d.add(kind, [x], rough=True, size=d.random.choice((1, 2, 3, 4, 5)), **attrs)
        case "LpNormalization":
            d.add(kind, [x], rough=True, **draw.maybe(d, 0.8, axis=draw.axis(d, rank)), **draw.maybe(d, 0.6, p=d.random.choice((1, 2))))
        case _:
            d.add(
                kind, [x], rough=True, **({"axes": draw.axes(d, rank, 1)} if rank != 4 else draw.maybe(d, 0.6, axes=draw.axes(d, rank, 1)))
            )


def _softmaxes(d: NetDrawing) -> None:
    x = d.some("f32", "f32", "f16", "f64", least=1, exact=True)
    if x is not None:
        kind = d.random.choice(("Softmax", "LogSoftmax", "Hardmax"))
        low = -d.values[x].ndim if d.opset >= 11 else 0
        axis = d.random.randrange(low, d.values[x].ndim)
        d.add(kind, [x], rough=kind != "Hardmax", **draw.maybe(d, 0.8, axis=axis))


RULES: tuple[Rule, ...] = (
    _norms,
    _norms,
    _norms,
    _softmaxes,
)
