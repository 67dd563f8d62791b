"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call, Rule, wider
from stdlib.aten.table.reducing import variance_and_mean
from stdlib.onnx.table.moving import transposed
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import same


def softmax(operator: str) -> Rule:
    def rule(n: Call, x: Value, dim: int, *_: Any, **__: Any) -> Value:
        x = n.cast(x, n.dtype)
        if not x.shape:
            return n.view(n.op(operator, n.view(x, (1,)), axis=0), ())
        return n.op(operator, x, axis=n.axis(dim, len(x.shape)))

    return rule


def safe_softmax(n: Call, x: Value, dim: int, dtype: Any = None) -> Value:
    """Rows that are -inf throughout become 0."""
    x, rank = n.cast(x, n.dtype), len(x.shape)
    axis = n.axis(dim, rank)
    order = list(range(rank))
    order[axis : axis + 1], order[-1:] = order[-1:], order[axis : axis + 1]
    return transposed(n, n.op("masked_softmax", transposed(n, x, tuple(order))), tuple(order)) if x.shape else n.filled((), x.dtype, 1)


def layer_norm(
    n: Call, x: Value, normalized_shape: Sequence[int], weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5, *_: Any
) -> Value:
    y = n.op("layer_norm", *_in_one_type(n, x, weight, bias), axis=len(x.shape) - len(normalized_shape), eps=eps)
    return n.cast(y, n.dtype)


def _in_one_type(n: Call, *given: Value | None) -> list[Value | None]:
    """Return values in the widest of their types: under `torch.autocast` parameters are wider than what they scale."""
    widest = reduce(wider, (v.dtype for v in given if v is not None))
    return [v and n.cast(v, widest) for v in given]


def native_layer_norm(
    n: Call, x: Value, normalized_shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value | None, ...]:
    if not (n.uses(1) or n.uses(2)):
        return layer_norm(n, x, normalized_shape, weight, bias, eps), None, None
    axis = len(x.shape) - len(normalized_shape)
    y, mean, inverse = n.ops("layer_norm_statistics", *_in_one_type(n, x, weight, bias), axis=axis, eps=eps)
    kept = (*x.shape[:axis], *(1 for _ in normalized_shape))
    return tuple(n.cast(v, dtype) for v, dtype in zip((y, n.view(mean, kept), n.view(inverse, kept)), n.dtypes, strict=True))


def rms_norm(n: Call, x: Value, normalized_shape: Sequence[int], weight: Value | None = None, eps: float | None = None) -> Value:
    from numpy import finfo

    given = float(finfo(x.dtype.numpy).eps) if eps is None else eps
    y = n.op("rms_norm", *_in_one_type(n, x, weight), axis=len(x.shape) - len(normalized_shape), eps=given)
    return n.cast(y, n.dtype)


def fused_rms_norm(
    n: Call, x: Value, normalized_shape: Sequence[int], weight: Value | None = None, eps: float | None = None
) -> tuple[Value | None, ...]:
    if n.uses(1):
        raise n.unsupported("the inverse roots as a result")
    return rms_norm(n, x, normalized_shape, weight, eps), None


def batch_norm_of(
    n: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, momentum: float, eps: float
) -> tuple[Value | None, ...]:
    nothing = n.filled((0,), x.dtype)
    return _batch_norm(n, x, weight, bias, mean, variance, eps), nothing, nothing


def native_batch_norm(
    n: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value | None, ...]:
    if mean is None or variance is None:
        return statistics_of_the_batch(n, x, weight, bias, training, momentum, eps)
    if training:
        raise n.unsupported("statistics of the batch: call `model.eval()`")
    return batch_norm_of(n, x, weight, bias, mean, variance, momentum, eps)


def batch_norm(
    n: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Value | None:
    return native_batch_norm(n, x, weight, bias, mean, variance, training, momentum, eps)[0]


def _batch_norm(n: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, eps: float) -> Value:
    channels = x.shape[1:2]
    scale = n.filled(channels, x.dtype, 1) if weight is None else weight
    offset = n.filled(channels, x.dtype, 0) if bias is None else bias
    return n.cast(n.op("batch_norm", *_in_one_type(n, x, scale, offset, mean, variance), eps=eps), n.dtypes[0])


def statistics_of_the_batch(
    n: Call, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> tuple[Value | None, ...]:
    """Means and variances of channels over all samples; torch takes a normalisation of instances apart as one sample of more channels."""
    channels = x.shape[1:2]
    scale = n.filled(channels, x.dtype, 1) if weight is None else n.cast(weight, x.dtype)
    offset = n.filled(channels, x.dtype, 0) if bias is None else n.cast(bias, x.dtype)
    if same(x.shape[0], 1) and not (n.uses(1) or n.uses(2)):
        return n.op("instance_norm", x, scale, offset, eps=eps), None, None
    wide = n.cast(x, DTYPES["f64"] if x.dtype.bits > 32 else DTYPES["f32"])
    variance, mean = variance_and_mean(n, wide, tuple(k for k in range(len(x.shape)) if k != 1), correction=0)
    inverse = _inverse_deviation(n, variance, eps)
    y = n.op("batch_norm", x, scale, offset, n.cast(mean, x.dtype), n.cast(variance, x.dtype), eps=eps)
    return y, n.cast(mean, n.dtypes[1]), n.cast(inverse, n.dtypes[2])


def native_group_norm(
    n: Call, x: Value, weight: Value | None, bias: Value | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Value | None, ...]:
    y = group_norm(n, x, group, weight, bias, eps)
    if not (n.uses(1) or n.uses(2)):
        return y, None, None
    wide = n.cast(x, DTYPES["f64"] if x.dtype.bits > 32 else DTYPES["f32"])
    variance, mean = variance_and_mean(n, n.reshaped(wide, (N, group, C // group * HxW)), (2,), correction=0)
    return y, n.cast(mean, n.dtypes[1]), n.cast(_inverse_deviation(n, variance, eps), n.dtypes[2])


def _inverse_deviation(n: Call, variance: Value, eps: float) -> Value:
    """Return 1 / sqrt(variance + eps)."""
    return n.op("map", n.op("map", n.op("add", variance, n.filled((), variance.dtype, eps)), f="sqrt"), f="reciprocal")


def group_norm(
    n: Call, x: Value, num_groups: int, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5, *_: Any
) -> Value:
    channels = x.shape[1:2]
    scale = n.filled(channels, x.dtype, 1) if weight is None else weight
    offset = n.filled(channels, x.dtype, 0) if bias is None else bias
    return n.cast(n.op("group_norm", *_in_one_type(n, x, scale, offset), groups=num_groups, eps=eps), n.dtypes[0])


RULES: dict[str, Rule] = {
    "_softmax": softmax("softmax"),
    "softmax": softmax("softmax"),
    "_log_softmax": softmax("log_softmax"),
    "log_softmax": softmax("log_softmax"),
    "_safe_softmax": safe_softmax,
    "layer_norm": layer_norm,
    "native_layer_norm": native_layer_norm,
    "rms_norm": rms_norm,
    "_fused_rms_norm": fused_rms_norm,
    "_native_batch_norm_legit_no_training": batch_norm_of,
    "_native_batch_norm_legit.no_stats": statistics_of_the_batch,
    "native_batch_norm": native_batch_norm,
    "batch_norm": batch_norm,
    "native_group_norm": native_group_norm,
    "group_norm": group_norm,
}
