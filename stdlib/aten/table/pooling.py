"""Pooling: windows that slide, and windows that divide an axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.aten.call import Call, Rule
from stdlib.onnx.table.reducing import reduced
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import is_open, same

Sizes = int | Sequence[int]


def max_pool(rank: int, with_places: bool) -> Rule:
    def rule(
        n: Call,
        x: Value,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Any:
        attributes = _windows(rank, kernel_size, stride, padding, ceil_mode) | {"dilations": _each(dilation, rank)}
        batch = _batch(n, x, rank)
        if not with_places or not n.uses(1):
            y = _unbatched(n, n.onnx("MaxPool", batch, **attributes), x)
            return (y, None) if with_places else y
        y, at = n.onnx("MaxPool", batch, outputs=2, **attributes)
        plane = n.op("mod_int", at, n.filled((), DTYPES["i64"], prod(batch.shape[2:])))
        return _unbatched(n, y, x), _unbatched(n, plane, x)

    return rule


def average_pool(rank: int) -> Rule:
    def rule(
        n: Call,
        x: Value,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        attributes = _windows(rank, kernel_size, stride, padding, ceil_mode)
        if divisor_override is None:
            return _unbatched(n, n.onnx("AveragePool", _batch(n, x, rank), count_include_pad=int(count_include_pad), **attributes), x)
        if ceil_mode:
            raise n.unsupported("divisor_override and ceil_mode")
        mean = _unbatched(n, n.onnx("AveragePool", _batch(n, x, rank), count_include_pad=1, **attributes), x)
        return n.op("mul", mean, n.filled((), x.dtype, prod(attributes["kernel_shape"]) / divisor_override))

    return rule


def _windows(rank: int, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool) -> dict[str, Any]:
    kernel = _each(kernel, rank)
    strides = kernel if isinstance(stride, tuple) and not stride else _each(stride, rank)
    return {"kernel_shape": kernel, "strides": strides, "pads": _each(padding, rank) * 2, "ceil_mode": int(ceil_mode)}


def _each(given: Sizes, rank: int) -> tuple[int, ...]:
    numbers = (given,) if isinstance(given, int) else tuple(given)
    return numbers * rank if len(numbers) == 1 else numbers


def _batch(n: Call, x: Value, rank: int) -> Value:
    return n.view(x, (1, *x.shape)) if len(x.shape) == rank + 1 else x


def _unbatched(n: Call, y: Value, x: Value) -> Value:
    return n.view(y, y.shape[1:]) if len(x.shape) < len(y.shape) else y


def adaptive_average(rank: int) -> Rule:
    """As many windows as are asked for, which cover an axis: of one size where that divides it, else means by a matrix, or where the axis
    is open, part by part."""

    def rule(n: Call, x: Value, output_size: Sizes) -> Value:
        wanted, extents = _each(output_size, rank), x.shape[-rank:]
        if all(same(k, 1) for k in wanted):
            return reduced(n, "reduce_mean", x, tuple(range(len(x.shape) - rank, len(x.shape))), True)
        if is_open(extents):
            return _by_parts(n, "mean_of_parts", x, wanted)
        if all(have % out == 0 for have, out in zip(extents, wanted, strict=True)):
            window = tuple(have // out for have, out in zip(extents, wanted, strict=True))
            return _unbatched(n, n.onnx("AveragePool", _batch(n, x, rank), kernel_shape=window, strides=window), x)
        for k, out in enumerate(wanted):
            x = _means(n, x, len(x.shape) - rank + k, out)
        return x

    return rule


def _by_parts(n: Call, operator: str, x: Value, wanted: Sequence[int]) -> Value:
    """Return what an operator makes of so many parts of each of the last axes, however long these are."""
    first = len(x.shape) - len(wanted)
    for axis, count in enumerate(wanted, first):
        if not same(x.shape[axis], count):
            x = n.op(operator, x, axis=axis, count=count)
    return x


def _means(n: Call, x: Value, axis: int, out: int) -> Value:
    """Return the means over windows that divide an axis as evenly as can be."""
    from stdlib.onnx.table.moving import transposed

    extent = x.shape[axis]
    if extent == out:
        return x
    start, end = (column[:, 0] for column in _windows_of(extent, out))
    place = np.arange(extent)[:, None]
    shares = ((start <= place) & (place < end)) / (end - start)
    rank = len(x.shape)
    order = (*(k for k in range(rank) if k != axis), axis)
    found = n.op("matmul", transposed(n, x, order), n.constant(shares.astype(x.dtype.numpy)))
    return transposed(n, found, tuple(order.index(k) for k in range(rank)))


def adaptive_max(rank: int) -> Rule:
    """The greatest of windows that cover an axis: of one size where that divides it, else axis by axis, or where the axis is open, part by
    part."""

    def rule(n: Call, x: Value, output_size: Sizes) -> tuple[Value, Value | None]:
        wanted, extents = _each(output_size, rank), x.shape[-rank:]
        if not is_open(extents) and all(have % out == 0 for have, out in zip(extents, wanted, strict=True)):
            window = tuple(have // out for have, out in zip(extents, wanted, strict=True))
            return max_pool(rank, with_places=True)(n, x, window)  # type: ignore[no-any-return]
        if n.uses(1):
            raise n.unsupported("places as a result")
        if is_open(extents):
            return _by_parts(n, "greatest_of_parts", x, wanted), None
        for k, out in enumerate(wanted):
            x = _greatest(n, x, len(x.shape) - rank + k, out)
        return x, None

    return rule


def _greatest(n: Call, x: Value, axis: int, out: int) -> Value:
    """Return the greatest elements of windows that divide an axis as evenly as can be; shorter ones see their last element again."""
    start, end = _windows_of(x.shape[axis], out)
    places = np.minimum(start + np.arange((end - start).max()), end - 1)
    return reduced(n, "reduce_max", n.op("gather", x, n.constant(places), axis=axis), (axis + 1,), False)


def _windows_of(extent: int, out: int) -> tuple[Any, Any]:
    """Return where windows begin and end that divide an axis as evenly as can be, as columns."""
    which = np.arange(out)[:, None]
    return which * extent // out, -(-(which + 1) * extent // out)


RULES: dict[str, Rule] = {
    **{f"max_pool{k}d": max_pool(k, False) for k in (1, 2, 3)},
    **{f"max_pool{k}d_with_indices": max_pool(k, True) for k in (1, 2, 3)},
    **{f"avg_pool{k}d": average_pool(k) for k in (1, 2, 3)},
    **{f"{name}adaptive_avg_pool{k}d": adaptive_average(k) for k in (1, 2, 3) for name in ("", "_")},
    **{f"adaptive_max_pool{k}d": adaptive_max(k) for k in (1, 2, 3)},
}
