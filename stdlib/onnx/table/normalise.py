"""Normalisations and softmax."""

from __future__ import annotations

from math import prod

import numpy as np

from stdlib.onnx.site import Rule, Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.windows import spatial
from tensorlang.graph.nodes import Value


def batch_norm(n: Site) -> tuple[Value | None, ...]:
    """In inference the statistics are inputs, in training those of the batch. Before version 9 each element of a sample has statistics of
    its own where `spatial` is 0: it is a channel then."""
    x, training = n.arg(0), _trains(n)
    if any(n.has_output(k) for k in range(1, 5)) and not training:
        raise n.unsupported("statistics as outputs")
    if len(x.shape) < 2:
        raise n.wrong(f"the input needs a batch and channels, not the shape {list(x.shape)}")
    scale, bias, mean, var = (cast(n, n.arg(k), x.dtype) for k in range(1, 5))
    eps = n.real("epsilon", 1e-5)
    if n.node.since < 9 and not n.integer("spatial", 1):
        if training:
            raise n.unsupported("spatial = 0 in training")
        if any(v.shape != x.shape[1:] for v in (scale, bias, mean, var)):
            raise n.wrong(f"the shape {list(scale.shape)} of statistics of each element of samples of the shape {list(x.shape[1:])}")
        elements = (prod(x.shape[1:]),)
        y = n.op("batch_norm", n.view(x, x.shape[:1] + elements), *(n.view(v, elements) for v in (scale, bias, mean, var)), eps=eps)
        return (n.view(y, x.shape),)
    if not training:
        return (n.op("batch_norm", x, scale, bias, mean, var, eps=eps),)
    arguments = (x, scale, bias, mean, var)
    y, *found = n.ops("batch_norm_training", *arguments, eps=eps, momentum=n.real("momentum", 0.9))
    if n.has_output(3) or n.has_output(4):
        found += n.ops("batch_norm_training", *arguments, eps=eps, momentum=0.0)[1:]
    return y, *(cast(n, value, n.arg(k).dtype) for k, value in zip((3, 4, 3, 4), found, strict=False))


def _trains(n: Site) -> bool:
    """Tell whether it is in training: before version 7 `is_test` says so, from 14 on `training_mode`, in between outputs for statistics."""
    if n.node.since < 7:
        return not n.flag("is_test")
    return n.flag("training_mode") if n.node.since >= 14 else any(n.has_output(k) for k in range(1, 5))


def layer_norm(n: Site) -> tuple[Value | None, ...]:
    x = n.arg(0)
    axis = n.axis("axis", -1, len(x.shape))
    if n.integer("stash_type", 1) != 1:
        raise n.unsupported("stash_type other than 1")
    return layer_normalised(n, x, n.arg(1), n.maybe(2), axis, n.real("epsilon", 1e-5))


def layer_normalised(n: Site, x: Value, g: Value, b: Value | None, axis: int, eps: float) -> tuple[Value, Value | None, Value | None]:
    """Return `x` normalised over its axes from `axis` on and, where the node has such outputs, the means and what was multiplied by."""
    g, b = _narrowed(n, g, len(x.shape) - axis), None if b is None else _narrowed(n, b, len(x.shape) - axis)
    wide = any(v is not None and len(v.shape) > len(x.shape) - axis for v in (g, b))
    own = (None, None) if wide else (g, b)
    if n.has_output(1) or n.has_output(2):
        y, *statistics = n.ops("layer_norm_statistics", x, *own, axis=axis, eps=eps)
        kept = x.shape[:axis] + (1,) * (len(x.shape) - axis)
        mean, inv = (n.view(value, kept) for value in statistics)
    else:
        y, mean, inv = n.op("layer_norm", x, *own, axis=axis, eps=eps), None, None
    if wide:
        y = n.op("mul", y, g)
        y = y if b is None else n.op("add", y, b)
    return _of_shape(n, y, x.shape), mean, inv


def rms_norm(n: Site) -> Value:
    """The mean square is of the axes from `axis` on; the scale may have one for each element of other axes, too."""
    x = n.arg(0)
    if n.integer("stash_type", 1) != 1:
        raise n.unsupported("stash_type other than 1")
    axis, eps = n.axis("axis", -1, len(x.shape)), n.real("epsilon", 1e-5)
    g = _narrowed(n, n.arg(1), len(x.shape) - axis)
    if len(g.shape) <= len(x.shape) - axis:
        return n.op("rms_norm", x, g, axis=axis, eps=eps)
    return _of_shape(n, n.op("mul", n.op("rms_norm", x, None, axis=axis, eps=eps), g), x.shape)


def _narrowed(n: Site, value: Value, rank: int) -> Value:
    """Return a value without axes of extent one in front of its last `rank` axes."""
    front = value.shape[: max(0, len(value.shape) - rank)]
    return n.view(value, value.shape[len(front) :]) if all(extent == 1 for extent in front) else value


def _of_shape(n: Site, y: Value, shape: tuple[int, ...]) -> Value:
    """Return `y`, which a scale or bias must not have made larger."""
    if y.shape != shape:
        raise n.wrong(f"a scale or bias makes the shape {list(y.shape)} of {list(shape)}")
    return y


def instance_norm(n: Site) -> Value:
    spatial(n, n.arg(0))
    return n.op("instance_norm", n.arg(0), n.arg(1), n.arg(2), eps=n.real("epsilon", 1e-5))


def group_norm(n: Site) -> Value:
    """Version 18 has a scale and bias a group, version 21 one a channel."""
    x, g, b = n.arg(0), n.arg(1), n.arg(2)
    groups = n.integer("num_groups", 1, low=1)
    if len(x.shape) < 2 or x.shape[1] % groups:
        raise n.wrong(f"{groups} groups do not fit the shape {list(x.shape)}")
    operator = "group_norm" if n.node.since >= 21 else "group_norm_by_group"
    return n.op(operator, x, g, b, groups=groups, eps=n.real("epsilon", 1e-5))


def lrn(n: Site) -> Value:
    size = n.integer("size", 1, low=1)
    attrs = {
        "width": size,
        "lo": (size - 1) // 2,
        "alpha": n.real("alpha", 0.0001),
        "beta": n.real("beta", 0.75),
        "bias": n.real("bias", 1.0),
    }
    if len(n.arg(0).shape) < 2:
        raise n.wrong(f"the input needs a batch and channels, not the shape {list(n.arg(0).shape)}")
    return n.op("lrn", n.arg(0), **attrs)


def lp_norm(n: Site) -> Value:
    x = n.arg(0)
    axis = n.axis("axis", -1, len(x.shape))
    return n.op("l1_normalise" if n.integer("p", 2, 1, 2) == 1 else "l2_normalise", x, axis=axis)


def mean_variance(n: Site) -> Value:
    """Axes that do not lie side by side are moved to the end, and back."""
    x = n.arg(0)
    rank = len(x.shape)
    axes = sorted(n.axes_of(n.integers("axes", (0, 2, 3)), rank))
    if axes and axes[-1] - axes[0] + 1 == len(axes):
        return n.op("standardise", x, axis=axes[0], count=len(axes), eps=1e-9)
    rest = [k for k in range(rank) if k not in axes]
    perm = (*rest, *axes)
    y = n.op("standardise", n.op("transpose", x, perm=perm), axis=len(rest), count=len(axes), eps=1e-9)
    return n.op("transpose", y, perm=tuple(perm.index(k) for k in range(rank)))


def softmax(operator: str) -> Rule:
    """From version 13 on along one axis; before, over all axes from `axis` on as if they were one."""

    def rule(n: Site) -> Value:
        x = n.arg(0)
        if n.node.since >= 13:
            axis = n.axis("axis", -1, len(x.shape))
            return n.op(operator, x, axis=axis)
        axis = n.axis("axis", 1, len(x.shape), end=True)
        flat = n.view(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
        return n.view(n.op(operator, flat, axis=1), x.shape)

    return rule


def hardmax(n: Site) -> Value:
    x = n.arg(0)
    old = n.node.since < 13
    axis = n.axis("axis", 1 if old else -1, len(x.shape), end=old)
    if not prod(x.shape):
        return x
    flat = n.view(x, (prod(x.shape[:axis]), prod(x.shape[axis:]))) if old else x
    along = 1 if old else axis
    best = n.op("arg_max", flat, axis=along)
    hot = n.constant(np.asarray([0, 1], x.dtype.numpy))
    return n.view(n.op("one_hot", best, hot, axis=along, depth=flat.shape[along]), x.shape)


RULES = (
    Entry("BatchNormalization", 1, 15, batch_norm),
    Entry("LayerNormalization", 17, 17, layer_norm),
    Entry("RMSNormalization", 23, 23, rms_norm),
    Entry("InstanceNormalization", 1, 22, instance_norm),
    Entry("GroupNormalization", 18, 21, group_norm),
    Entry("LRN", 1, 13, lrn),
    Entry("LpNormalization", 1, 22, lp_norm),
    Entry("MeanVarianceNormalization", 9, 13, mean_variance),
    Entry("Softmax", 1, 13, softmax("softmax")),
    Entry("LogSoftmax", 1, 13, softmax("log_softmax")),
    Entry("Hardmax", 1, 13, hardmax),
)
