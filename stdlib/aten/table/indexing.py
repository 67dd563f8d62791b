"""Operators whose indices are data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from codegen.dtypes import DTYPES, DType, extreme
from stdlib.aten.call import Call, Number, Rule
from stdlib.aten.table.elementwise import floor_divide
from stdlib.aten.table.making import open_range
from stdlib.aten.table.moving import expand
from stdlib.onnx.table.moving import joined, slice_axis, transposed
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import is_one, same

BOOL, I64 = DTYPES["bool"], DTYPES["i64"]
Indices = Sequence[Value | None]


def embedding(n: Call, weight: Value, indices: Value, *_: Any, **__: Any) -> Value:
    return n.op("gather", weight, indices, axis=0)


def index_select(n: Call, x: Value, dim: int, index: Value) -> Value:
    index = index if index.shape else n.view(index, (1,))
    if not x.shape:
        return n.view(n.op("gather", n.view(x, (1,)), index, axis=0), ())
    return n.op("gather", x, index, axis=n.axis(dim, len(x.shape)))


def gather(n: Call, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    if not x.shape:
        return expand(n, x, index.shape)
    return n.op("gather_elements", x, index, axis=n.axis(dim, len(x.shape)))


def index(n: Call, x: Value, indices: Indices) -> Value:
    """One index replaces its axis. Several are one index into their axes in front; what they find stands where they stood if they were
    neighbours, else in front."""
    given = {k: v for k, v in enumerate(indices) if v is not None}
    if any(v.dtype in (BOOL, DTYPES["u8"]) for v in given.values()):
        raise n.unsupported("a mask as index, whose result has as many elements as the mask holds")
    if len(given) == 1:
        ((axis, ids),) = given.items()
        return n.op("gather", x, ids, axis=axis)
    rows, ids, rest = _in_front(n, x, given)
    found = n.op("gather", rows, ids, axis=0)
    first, count, width = min(given), len(given), len(ids.shape)
    if list(given) != list(range(first, first + count)):
        return found
    order = (*range(width, width + first), *range(width), *range(width + first, width + len(rest)))
    return transposed(n, found, order)


def _in_front(n: Call, x: Value, given: dict[int, Value]) -> tuple[Value, Value, list[int]]:
    """Return `x` with the axes that are indexed as one in front, the index into that, and the axes that are left."""
    rest = [k for k in range(len(x.shape)) if k not in given]
    moved = transposed(n, x, (*given, *rest))
    shape = _broadcast([v.shape for v in given.values()])
    ids: Value | None = None
    for axis, value in given.items():
        wide = expand(n, n.cast(value, I64), shape)
        before = n.filled(shape, I64, 0) if ids is None else ids
        ids = n.op("index_along", before, wide, extent=x.shape[axis])
    assert ids is not None
    return n.view(moved, (prod(x.shape[k] for k in given), *(x.shape[k] for k in rest))), ids, rest


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    columns = zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)
    return tuple(next((extent for extent in column if not same(extent, 1)), 1) for column in columns)


def index_put(n: Call, x: Value, indices: Indices, values: Value, accumulate: bool = False, unsafe: bool = False) -> Value:
    given = {k: v for k, v in enumerate(indices) if v is not None}
    if any(v.dtype in (BOOL, DTYPES["u8"]) for v in given.values()):
        return _put_where(n, x, given, values, accumulate)
    rows, ids, rest = _in_front(n, x, given)
    first, count = min(given), len(given)
    updates = n.cast(values, x.dtype)
    shape = (*ids.shape, *(x.shape[k] for k in rest))
    if first and list(given) == list(range(first, first + count)) and len(updates.shape) > len(rest) - first:
        width = len(ids.shape)
        there = expand(n, updates, (*shape[width : width + first], *ids.shape, *shape[width + first :]))
        updates = transposed(n, there, (*range(first, first + width), *range(first), *range(first + width, len(shape))))
    else:
        updates = expand(n, updates, shape)
    found = _combined(n, "scatter_nd", "_add" if accumulate else "", rows, ids, updates)
    order = (*given, *rest)
    moved = n.view(found, tuple(x.shape[k] for k in order))
    return transposed(n, moved, tuple(order.index(k) for k in range(len(order))))


def _put_where(n: Call, x: Value, given: dict[int, Value], values: Value, accumulate: bool) -> Value:
    """The values in order where the mask holds, or one everywhere."""
    mask = given.get(0)
    if len(given) != 1 or mask is None or mask.dtype != BOOL:
        raise n.unsupported("a mask as index that is not of the first axes")
    masked, rest = x.shape[: len(mask.shape)], x.shape[len(mask.shape) :]
    wide = n.view(mask, (*mask.shape, *(1 for _ in rest)))
    value = n.cast(values, x.dtype)
    if len(value.shape) > len(rest) and not is_one(value.shape[0]):
        last = n.filled((), I64, value.shape[0] - 1)
        count = n.op("cumsum", n.cast(n.view(mask, (prod(masked),)), I64), axis=0, inclusive=0)
        rows = expand(n, value, (value.shape[0], *rest))
        value = n.view(n.op("gather", rows, n.op("minimum", count, last), axis=0), x.shape)
    elif len(value.shape) > len(rest):
        value = n.view(value, value.shape[1:])
    return n.op("select", wide, n.op("logical_or" if x.dtype == BOOL else "add", x, value) if accumulate else value, x)


_REDUCTIONS = {"sum": "_add", "add": "_add", "prod": "_mul", "multiply": "_mul", "amax": "_max", "amin": "_min"}
_OF_TRUTHS = {"_add": "_max", "_mul": "_min"}
"""What is as good for truths: a sum of them is whether one holds, a product whether all do."""


def _combined(n: Call, operator: str, how: str, x: Value, index: Value, source: Value, **attributes: Any) -> Value:
    """Return `x` with the elements of `source` combined with those that the index names."""
    if x.dtype != BOOL or not how:
        return n.op(f"{operator}{how}", x, index, source, **attributes)
    x, source = (n.cast(v, DTYPES["u8"]) for v in (x, source))
    return n.cast(n.op(f"{operator}{_OF_TRUTHS.get(how, how)}", x, index, source, **attributes), BOOL)


def scatter(n: Call, x: Value, dim: int, index: Value, src: Value | Number, *, reduce: str | None = None) -> Value:
    return _scattered(n, x, dim, index, src, "" if reduce is None else _REDUCTIONS[reduce])


def scatter_add(n: Call, x: Value, dim: int, index: Value, src: Value) -> Value:
    return _scattered(n, x, dim, index, src, "_add")


def scatter_reduce(n: Call, x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True) -> Value:
    """Without `x` itself, elements that an index names begin with what changes nothing. A mean is a sum over how many there are."""
    if reduce == "mean":
        total = scatter_reduce(n, x, dim, index, src, "sum", include_self=include_self)
        ones = n.filled(x.shape, x.dtype, 1)
        count = scatter_reduce(n, ones, dim, index, n.filled(src.shape, x.dtype, 1), "sum", include_self=include_self)
        return n.op("div", total, count) if x.dtype.is_float else floor_divide(n, total, count)
    if not include_self:
        x = _scattered(n, x, dim, index, _NEUTRAL[reduce](x.dtype), "")
    return _scattered(n, x, dim, index, src, _REDUCTIONS[reduce])


_NEUTRAL: dict[str, Callable[[DType], Number]] = {
    "sum": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "amax": lambda dtype: extreme(dtype, highest=False),
    "amin": lambda dtype: extreme(dtype, highest=True),
}
"""What a reduction may begin with."""


def _scattered(n: Call, x: Value, dim: int, index: Value, src: Value | Number, how: str) -> Value:
    """Of `src`, as much counts as there are indices."""
    if not isinstance(src, Value):
        src = expand(n, n.value(src, x.dtype), index.shape)
    if not x.shape:
        index, src = (n.view(v, (1,)) if not v.shape else v for v in (index, src))
        return n.view(_scattered(n, n.view(x, (1,)), dim, index, src, how), ())
    for axis, extent in enumerate(index.shape):
        src = slice_axis(n, src, axis, 0, extent)
    if same(prod(index.shape), 0):
        return x
    return _combined(n, "scatter_elements", how, x, index, src, axis=n.axis(dim, len(x.shape)))


def index_copy(how: str) -> Rule:
    """Slices along an axis, written or added where the index says."""

    def rule(n: Call, x: Value, dim: int, index: Value, source: Value, *, alpha: Number = 1) -> Value:
        if not x.shape:
            return n.view(rule(n, n.view(x, (1,)), 0, n.view(index, (1,)), n.view(source, (1,)), alpha=alpha), ())
        index = index if index.shape else n.view(index, (1,))
        source = source if source.shape else n.view(source, (1,))
        axis = n.axis(dim, len(x.shape))
        if alpha != 1:
            source = n.op("mul", *n.operands(source, alpha, dtype=x.dtype))
        order = (axis, *(k for k in range(len(x.shape)) if k != axis))
        found = _combined(n, "scatter_nd", how, transposed(n, x, order), index, transposed(n, n.cast(source, x.dtype), order))
        return transposed(n, found, tuple(order.index(k) for k in range(len(order))))

    return rule


# ---------------------------------------------------------------- bags

_SUM, _MEAN, _MAX = range(3)


def embedding_bag(
    n: Call,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Value | None, ...]:
    """Bags begin at the offsets. Rows whose index is `padding_idx` are not there. Further results say in which bag each index lies, and how
    many are taken of each, where torch does not leave that empty or zero, and of greatest elements where they are."""
    if mode == _MAX and n.uses(3):
        raise n.unsupported("where the greatest rows of bags are as a result")
    offsets = n.cast(offsets, I64)
    starts = offsets if include_last_offset else joined(n, (offsets, n.view(n.value(indices.shape[0], I64), (1,))), 0)
    taken = n.filled(indices.shape, BOOL, 1)
    if padding_idx >= 0:
        taken = n.op("logical_not", n.op("equal", n.cast(indices, I64), n.filled((), I64, padding_idx)))
    bags = _bags(n, indices, offsets) if n.uses(1) else None
    if mode == _SUM:
        none = n.filled((starts.shape[0] - 1,), indices.dtype, 0)
        return n.op("sum_of_bags", weight, indices, starts, taken, per_sample_weights), bags, none, none
    ones = n.filled(weight.shape[:1], DTYPES["f64"], 1)
    sizes = n.cast(n.op("sum_of_bags", ones, indices, starts, taken, None), indices.dtype) if n.uses(2) or n.uses(3) else None
    return n.op("mean_of_bags" if mode == _MEAN else "greatest_of_bags", weight, indices, starts, taken), bags, sizes, sizes


def _bags(n: Call, indices: Value, offsets: Value) -> Value:
    """Return in which bag each index lies, or nothing where torch does not say it."""
    result = n.call.results[1]
    if result is not None and result[1][0] == 0:
        return n.filled((0,), indices.dtype, 0)
    places = n.op("searchsorted", offsets, open_range(n, 0, indices.shape[0], 1, I64), right=1)
    return n.cast(n.op("sub", places, n.filled((), I64, 1)), indices.dtype)


RULES: dict[str, Rule] = {
    "embedding": embedding,
    "_embedding_bag": embedding_bag,
    "_embedding_bag_forward_only": embedding_bag,
    "index_select": index_select,
    "gather": gather,
    "index.Tensor": index,
    "_unsafe_index.Tensor": index,
    "index_put": index_put,
    "_unsafe_index_put": index_put,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_reduce": scatter_reduce,
    "index_copy": index_copy(""),
    "index_add": index_copy("_add"),
}
