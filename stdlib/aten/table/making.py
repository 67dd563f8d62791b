"""Values that depend on no tensor's elements: filled ones, ranges."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType
from polyhedral import affine
from stdlib.aten.call import Call, Number, Operand, Rule
from tensorlang.graph.nodes import Value
from tensorlang.graph.programs import single
from tensorlang.graph.ratios import Ratio
from tensorlang.graph.sizes import Size, is_open, larger, to_expr
from tensorlang.tensor.nodes import IndexValue, Tensor


def full(n: Call, size: Sequence[int], fill_value: Number, **_: Any) -> Value:
    return _filled(n, tuple(size), fill_value)


def full_like(n: Call, x: Value, fill_value: Number, **_: Any) -> Value:
    return _filled(n, x.shape, fill_value)


def new_full(n: Call, x: Value, size: Sequence[int], fill_value: Number, **_: Any) -> Value:
    return _filled(n, tuple(size), fill_value)


def of_shape(value: float) -> Rule:
    return lambda n, size, **_: _filled(n, tuple(size), value)


def like(value: float) -> Rule:
    return lambda n, x, **_: _filled(n, x.shape, value)


def new(value: float) -> Rule:
    return lambda n, x, size, **_: _filled(n, tuple(size), value)


def _filled(n: Call, shape: tuple[int, ...], value: Operand) -> Value:
    if isinstance(value, (Size, Ratio, Value)):
        from stdlib.aten.table.moving import expand

        return expand(n, n.value(value, n.dtype), shape)
    return n.filled(shape, n.dtype, value)


def fill(n: Call, x: Value, value: Operand) -> Value:
    return _filled(n, x.shape, value)


def scalar(n: Call, value: Number, **_: Any) -> Value:
    return n.value(value, n.dtype)


def arange(n: Call, start: Number, end: Number, step: Number = 1, **_: Any) -> Value:
    if any(isinstance(v, (Size, Ratio, Value)) for v in (start, end, step)):
        return open_range(n, start, end, step)
    if n.dtype == DTYPES["i64"]:  # the one type whose bounds torch rounds
        start, end, step = int(start), int(end), int(step)
    whole = all(isinstance(v, int) for v in (start, end, step))
    count = max(0, -int((start - end) // step) if whole else ceil((end - start) / step))
    n.small(count, "the range")
    kind = np.float64 if n.dtype.is_float else np.int64
    return n.constant((kind(start) + np.arange(count).astype(kind) * kind(step)).astype(n.dtype.numpy))


def arange_to(n: Call, end: Number, **named: Any) -> Value:
    return arange(n, 0, end, **named)


def open_range(n: Call, first: Any, last: Any, by: Any, dtype: DType | None = None) -> Value:
    """Return a range whose bounds depend on open sizes: what it holds is computed when the model runs."""
    if not all(isinstance(v, (int, Size)) for v in (first, last, by)):
        raise n.unsupported("floats that depend on open sizes")
    count = larger((last - first + by - 1) // by if by > 0 else (first - last - by - 1) // -by, 0)
    step = by if isinstance(by, int) else 1
    index = IndexValue(affine.add(to_expr(first if step == by else 0), affine.scale(step, "i0")))
    result = Tensor("y", DTYPES["i64"], (to_expr(count),))
    (made,) = n.apply(single("range", (), result, ("i0",), index), ())
    if not isinstance(by, int):
        made = n.op("add", n.op("mul", made, n.value(by, DTYPES["i64"])), n.value(first, DTYPES["i64"]))
    return n.cast(made, dtype or n.dtype)


def iota(n: Call, length: int, *, start: int = 0, step: int = 1, **_: Any) -> Value:
    return arange(n, start, start + length * step, step)


def linspace(n: Call, start: float | Value, end: float | Value, steps: int, **_: Any) -> Value:
    if isinstance(start, Value) or isinstance(end, Value):
        low, high = n.operands(start, end, dtype=n.dtype)
        return n.op("add", low, n.op("mul", n.op("sub", high, low), n.constant(np.linspace(0, 1, steps).astype(n.dtype.numpy))))
    return n.constant(np.linspace(start, end, steps).astype(n.dtype.numpy))


def eye(n: Call, rows: int, columns: int | None = None, **_: Any) -> Value:
    return identity(n, rows, n.dtype, columns)


def identity(n: Call, rows: int, dtype: DType, columns: int | None = None) -> Value:
    """Return the matrix whose diagonal is 1 and all else 0."""
    shape = (rows, rows if columns is None else columns)
    if is_open(shape):
        return n.op("triangle_lower", n.op("triangle_upper", n.filled(shape, dtype, 1), k=0), k=0)
    return n.constant(np.eye(*shape).astype(dtype.numpy))


RULES: dict[str, Rule] = {
    "full": full,
    "full_like": full_like,
    "new_full": new_full,
    "zeros": of_shape(0),
    "ones": of_shape(1),
    "empty": of_shape(0),
    "zeros_like": like(0),
    "ones_like": like(1),
    "empty_like": like(0),
    "new_zeros": new(0),
    "new_ones": new(1),
    "new_empty": new(0),
    "fill": fill,
    "scalar_tensor": scalar,
    "arange.start_step": arange,
    "arange.start": arange,
    "arange": arange_to,
    "prims::iota": iota,
    "linspace": linspace,
    "eye": eye,
}
