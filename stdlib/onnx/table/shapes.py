"""Values that are known at import: constants, shapes, ranges."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType
from polyhedral import affine
from polyhedral.expr import Name
from stdlib.onnx.model import Array
from stdlib.onnx.site import Rule, Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.moving import on_diagonals
from stdlib.onnx.tensors import element_type
from tensorlang.graph.nodes import Value
from tensorlang.graph.programs import single
from tensorlang.graph.ratios import Inexact, Ratio
from tensorlang.graph.shape_arithmetic import as_float, int_or_size
from tensorlang.graph.sizes import Extent, OpenSize, Size, larger, to_expr
from tensorlang.tensor.nodes import Binary, Cast, Const, Expr, IndexValue, Tensor


def constant(n: Site) -> Value:
    given = n.node.attributes
    if len(given) != 1:
        raise n.wrong(f"exactly one attribute gives the value, not {len(given)}")
    ((name, value),) = given.items()
    match name:
        case "value" | "sparse_value":
            return n.constant(np.asarray(value))
        case "value_int" | "value_ints":
            return n.constant(np.asarray(value, np.int64))
        case "value_float" | "value_floats":
            return n.constant(np.asarray(value, np.float32))
        case "value_string" | "value_strings":
            return n.constant(np.asarray(value, object))
        case _:
            raise n.unsupported(f"the attribute {name}")


def constant_of_shape(n: Site) -> Value:
    shape = n.constant_ints(0) or ()
    fill = n.node.attributes.get("value", np.zeros(1, np.float32))
    if not isinstance(fill, np.ndarray) or fill.size != 1 or any(extent < 0 for extent in shape):
        raise n.wrong(f"one value and a shape are needed, not the shape {list(shape)} and {fill}")
    return n.filled(shape, n.constant(fill).dtype, fill.reshape(()).item())


def shape(n: Site) -> Value:
    dims = n.arg(0).shape
    start, end = n.integer("start", 0), n.integer("end", len(dims))
    found = np.empty(len(dims[start:end]), object)
    found[:] = dims[start:end]
    return n.of_sizes(found, DTYPES["i64"])


def range_(n: Site) -> Value:
    return ranged(n, *(n.constant_of(k) for k in range(3)))


def ranged(n: Site, *bounds: Array) -> Value:
    """Return the numbers from a start to a limit, a step apart."""
    start, limit, delta = (bound.reshape(-1) for bound in bounds)
    parts = [part[0] for part in (start, limit, delta) if part.size == 1]
    if len(parts) == 3 and any(isinstance(part, Size | Ratio) for part in parts):
        return _open_range(n, *map(int_or_size, parts))
    if (
        not start.size == limit.size == delta.size == 1
        or delta[0] == 0
        or not np.all(np.isfinite(np.asarray([start, limit, delta], np.float64)))
    ):
        raise n.wrong("start, limit and a delta other than 0 are needed, one number each")
    first, last, by = start[0].item(), limit[0].item(), delta[0].item()
    count = max(0, ceil((last - first) / by) if isinstance(by, float) else -((first - last) // by))
    n.small(count, "the range")
    return n.constant((start[0] + np.arange(count).astype(start.dtype) * delta[0]).astype(start.dtype))


def _open_range(n: Site, first: Any, last: Any, by: Any) -> Value:
    """Return a range whose bounds depend on open sizes: what it holds is computed when the model runs."""
    dtype = n.arg(0).dtype
    if dtype.is_float:
        return _open_range_of_floats(n, first, last, by)
    if not isinstance(by, int) or by == 0:
        raise n.wrong("start, limit and a delta other than 0 are needed, one number each")
    index = IndexValue(affine.add(to_expr(first), affine.scale(by, "i0")))
    return _range(n, dtype, -((first - last) // by), index if dtype == DTYPES["i64"] else Cast(dtype, index))


def _open_range_of_floats(n: Site, *bounds: Any) -> Value:
    """Return a range of floats of which bounds are open, in steps of a number from a number or a size on."""
    dtype = n.arg(0).dtype
    try:
        first, last, by = (as_float(bound, dtype) for bound in bounds)
        count = ((last - first) / by).ceil().whole
        step = Const(by.number, dtype)
        start: Expr = Const(first.number, dtype) if isinstance(first.numerator, int) else Cast(dtype, IndexValue(to_expr(first.whole)))
    except Inexact:
        raise OpenSize(*(b.numerator for b in bounds if isinstance(b, Ratio) and isinstance(b.numerator, Size))) from None
    return _range(n, dtype, count, Binary("+", start, Binary("*", Cast(dtype, IndexValue(Name("i0"))), step)))


def _range(n: Site, dtype: DType, count: Extent, value: Expr) -> Value:
    result = Tensor("y", dtype, (to_expr(larger(count, 0)),))
    return n.apply(single("range", (), result, ("i0",), value), ())[0]


def counted_to(n: Site, count: Extent) -> Value:
    """Return the whole numbers from 0 on, so many."""
    return _range(n, DTYPES["i64"], count, IndexValue(Name("i0")))


def eye_like(n: Site) -> Value:
    x = n.arg(0)
    if len(x.shape) != 2:
        raise n.wrong("the input must have two dimensions")
    dtype = element_type(n.integer("dtype", 0), "the result") if n.has("dtype") else x.dtype
    k = n.integer("k", 0)
    return on_diagonals(n, n.filled(x.shape, dtype, 1), k, k)


def window(weights: tuple[float, float, float]) -> Rule:
    """A sum of cosines over one period, as wide as the input says."""

    def rule(n: Site) -> Value:
        size = n.constant_ints(0)
        if size is None or len(size) != 1 or size[0] < 0:
            raise n.wrong("one size is needed")
        dtype = element_type(n.integer("output_datatype", 1), "the result")
        period = larger(0, size[0] if n.flag("periodic", True) else size[0] - 1)  # none of one element that is not: NaN
        a, b, c = weights
        (y,) = n.table("cosine_window", count=size[0], period=period, a=a, b=b, c=c)
        return cast(n, y, dtype)

    return rule


def mel_weights(n: Site) -> Value:
    """How much each frequency of a spectrum counts in each of overlapping triangles, which are equally wide on the mel scale."""
    bins, length, rate, low, high = (float(n.constant_of(k).reshape(-1)[0]) for k in range(5))
    if bins < 0 or length < 0 or rate <= 0:
        raise n.wrong(f"{bins:g} triangles over the {length:g} frequencies of a signal at {rate:g} Hz")
    count, rows = int(bins), int(length) // 2 + 1
    n.small(rows * max(1, count), "the matrix")
    first, last = (2595 * np.log10(1 + hertz / 700) for hertz in (low, high))
    edges = np.linspace(first, last, count + 2, endpoint=False)
    places = ((length + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate).astype(np.int64)
    if places.size and not 0 <= places.min() <= places.max() <= rows:
        raise n.wrong(f"frequencies from {places.min()} to {places.max()} of {rows}")
    left, middle, right = places[:-2], places[1:-1], places[2:]
    row = np.arange(rows)[:, None]
    rising = np.where(middle > left, (row - left) / np.maximum(middle - left, 1), 1.0)
    falling = (right - row) / np.maximum(right - middle, 1)
    table = np.where((left <= row) & (row <= middle), rising, 0.0)
    table = np.where((middle <= row) & (row < right), falling, table)
    return n.constant(table.astype(element_type(n.integer("output_datatype", 1), "the result").numpy))


RULES = (
    Entry("MelWeightMatrix", 17, 17, mel_weights),
    Entry("Constant", 1, 25, constant),
    Entry("ConstantOfShape", 9, 25, constant_of_shape),
    Entry("Shape", 1, 25, shape),
    Entry("Range", 11, 28, range_),
    Entry("HannWindow", 17, 17, window((0.5, 0.5, 0))),
    Entry("HammingWindow", 17, 17, window((25 / 46, 21 / 46, 0))),
    Entry("BlackmanWindow", 17, 17, window((0.42, 0.5, 0.08))),
    Entry("EyeLike", 9, 22, eye_like),
)
