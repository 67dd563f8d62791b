"""Operators whose indices are data."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType
from stdlib.onnx.site import Site
from stdlib.onnx.table.elementwise import cast
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.moving import joined
from stdlib.onnx.table.shapes import counted_to
from stdlib.onnx.table.strings import ranks
from tensorlang.graph.nodes import Value
from tensorlang.graph.sizes import Size, is_one, same

LONG_ROW = 1_500
"""Elements from which on blocks of 64 are selected from faster than blocks of 16."""


def gather(n: Site) -> Value:
    x, ids = n.arg(0), n.arg(1)
    return gathered(n, x, ids, n.axis("axis", 0, len(x.shape)))


def gathered(n: Site, x: Value, indices: Value, axis: int) -> Value:
    """Return the slices of `x` at the places along an axis that indices name."""
    return n.op("gather", x, _checked(n, indices, x.shape[axis]), axis=axis)


def gather_elements(n: Site) -> Value:
    x, ids = n.arg(0), n.arg(1)
    axis = n.axis("axis", 0, len(x.shape))
    if len(ids.shape) != len(x.shape):
        raise n.wrong(f"indices of the shape {list(ids.shape)} for values of the shape {list(x.shape)}")
    return n.op("gather_elements", x, _checked(n, ids, x.shape[axis]), axis=axis)


def gather_nd(n: Site) -> Value:
    x, ids = n.arg(0), n.arg(1)
    batch = n.integer("batch_dims", 0, low=0)
    depth = ids.shape[-1] if ids.shape else 0
    if (
        not ids.shape
        or not x.shape
        or depth < 1
        or batch + depth > len(x.shape)
        or batch >= len(ids.shape)
        or x.shape[:batch] != ids.shape[:batch]
    ):
        raise n.wrong(f"indices of the shape {list(ids.shape)} for values of the shape {list(x.shape)}, {batch} axes shared")
    return n.op("gather_nd", x, ids, batch=batch, depth=depth)


def _checked(n: Site, ids: Value, extent: int) -> Value:
    """Return the indices. Those that are known are checked here, so that the model never fails on them when it runs."""
    array = n.array(ids)
    if array is not None and array.size and array.dtype.kind in "iu" and not -extent <= int(array.min()) <= int(array.max()) < extent:
        raise n.wrong(f"indices from {array.min()} to {array.max()} into {extent} elements")
    return ids


def one_hot(n: Site) -> Value:
    ids, values = n.arg(0), n.arg(2)
    depth = n.constant_of(1)
    is_number = depth.size == 1 and (depth.dtype.kind != "f" or bool(np.isfinite(depth).all()))
    given = depth.reshape(-1)[0] if is_number else -1
    count: Any = given if isinstance(given, Size) else int(given)
    if count < 0 or values.shape != (2,):
        raise n.wrong("the depth must be one number and the values two")
    axis = n.axis_of(n.integer("axis", -1), len(ids.shape) + 1)
    return n.op("one_hot", cast(n, ids, DTYPES["i64"]), values, axis=axis, depth=count)


_REDUCTIONS = {"none": "", "add": "_add", "mul": "_mul", "max": "_max", "min": "_min"}


def scatter_elements(n: Site) -> Value:
    x, ids, updates = n.args()
    axis = n.axis("axis", 0, len(x.shape))
    if ids.shape != updates.shape or len(ids.shape) != len(x.shape):
        raise n.wrong(f"indices of the shape {list(ids.shape)}, updates of {list(updates.shape)}, values of {list(x.shape)}")
    if same(prod(ids.shape), 0):
        return x
    return _scattered(n, "scatter_elements", x, _checked(n, ids, x.shape[axis]), updates, axis=axis)


def _scattered(n: Site, operator: str, x: Value, ids: Value, updates: Value, **attrs: int) -> Value:
    """Return `x` with updates combined into it as `reduction` says. A sum of what is true or not is true where one of them is, a product
    where all are."""
    how = _REDUCTIONS[n.text("reduction", "none", tuple(_REDUCTIONS))]
    if x.dtype.kind != "bool" or not how:
        return n.op(f"{operator}{how}", x, ids, updates, **attrs)
    least_or_most = {"_add": "_max", "_mul": "_min"}.get(how, how)
    found = n.op(f"{operator}{least_or_most}", cast(n, x, DTYPES["u8"]), ids, cast(n, updates, DTYPES["u8"]), **attrs)
    return cast(n, found, x.dtype)


def scatter_nd(n: Site) -> Value:
    x, ids, updates = n.args()
    depth = ids.shape[-1] if ids.shape else 0
    if not ids.shape or not 1 <= depth <= len(x.shape) or updates.shape != ids.shape[:-1] + x.shape[depth:]:
        raise n.wrong(f"indices of the shape {list(ids.shape)}, updates of {list(updates.shape)}, values of {list(x.shape)}")
    if same(prod(ids.shape), 0):
        return x
    rows = n.view(x, (prod(x.shape[:depth]), *x.shape[depth:]))
    return n.view(_scattered(n, "scatter_nd", rows, _rows_of(n, ids, x.shape[:depth]), updates), x.shape)


def _rows_of(n: Site, ids: Value, extents: tuple[int, ...]) -> Value:
    """Return the numbers of the rows that indices into several axes name, each index checked against the extent of its axis."""
    columns = [_column(n, ids, k) for k in range(len(extents))]
    for column, extent in zip(columns, extents, strict=True):
        _checked(n, column, extent)
    if len(columns) == 1:
        return columns[0]
    found = n.filled(columns[0].shape, DTYPES["i64"])
    for column, extent in zip(columns, extents, strict=True):
        found = n.op("index_along", found, column, extent=extent)
    return found


def _column(n: Site, ids: Value, k: int) -> Value:
    shape = ids.shape[:-1]
    if ids.shape[-1] > 1:
        start = (*(0 for _ in shape), k)
        ids = n.op("slice", ids, start=start, step=(1,) * len(start), length=(*shape, 1))
    return n.view(ids, shape)


COMPARED, PICKED, SORTED = 1, 2, 3
"""Ways of `top_largest`."""


def top_k_options(extent: Any, count: Any, dtype: DType) -> dict[str, int]:
    """Return the attributes of `top_largest` with which `count` of `extent` elements are selected soonest: few are compared with all, and
    blocks of rows that are not long are short, as each pick goes through one of them and through what is greatest of the others. Where
    sizes are open, all are sorted or few are picked, as for the samples: neither is ever slow by much."""
    if isinstance(count, Size):
        return {"way": SORTED}
    if isinstance(extent, Size):
        return {"way": SORTED if 8 * count > extent.sample + 400 else PICKED}
    if not isinstance(extent, int) or count == 1:
        return {}
    compared = extent * extent * dtype.bits
    if compared <= 15_000 * count and compared <= 1_250 * (extent + 1_000):
        return {"way": COMPARED}
    return {"block": 16} if extent < LONG_ROW else {}


def top_k(n: Site) -> tuple[Value, ...]:
    x = n.arg(0)
    axis = n.axis("axis", -1, len(x.shape))
    count = (n.integer("k", 0),) if n.node.since < 10 else n.constant_ints(1) or ()
    if len(count) != 1 or not 0 <= count[0] <= x.shape[axis]:
        raise n.wrong(f"{list(count)} elements are asked for of {x.shape[axis]}")
    way = top_k_options(x.shape[axis], count[0], x.dtype)
    return n.ops("top_largest" if n.flag("largest", True) else "top_smallest", x, axis=axis, count=count[0], **way)


def non_zero(n: Site) -> Value:
    """How many there are is computed first where it is not known."""
    x = n.arg(0)
    fill = n.builder.fills.get(x.name)
    array = n.builder.elements(x.name) if fill is None else None
    if array is not None and array.dtype != object:
        return n.constant(np.asarray(np.nonzero(np.atleast_1d(array)), np.int64))
    x = x if x.shape else n.view(x, (1,))
    if fill is not None:
        at = counted_to(n, prod(x.shape) if fill else 0)
    else:
        at = places_where(n, n.view(cast(n, x, DTYPES["bool"]), (prod(x.shape),)))
    rows = []
    for axis, extent in enumerate(x.shape):
        stride = prod(x.shape[axis + 1 :])
        row = at if is_one(stride) else n.op("div_int", at, _filled(n, stride))
        row = row if axis == 0 else n.op("mod_int", row, _filled(n, extent))
        rows.append(n.view(row, (1, *at.shape)))
    return joined(n, tuple(rows), 0)


def places_where(n: Site, chosen: Value) -> Value:
    """Return where in a vector those stand that hold: as many as the data say."""
    if same(prod(chosen.shape), 0):
        return n.filled((0,), DTYPES["i64"])
    chosen = n.kept(chosen)
    count = n.decided(n.op("count_where", chosen))
    return n.filled((0,), DTYPES["i64"]) if same(count, 0) else n.op("places_where", chosen, count=count)


def compress(n: Site) -> Value:
    x, chosen = n.arg(0), n.arg(1)
    if not n.has("axis"):
        x = n.view(x, (prod(x.shape),))
    axis = n.axis("axis", 0, len(x.shape))
    if len(chosen.shape) != 1 or chosen.shape[0] > x.shape[axis] or chosen.dtype != DTYPES["bool"]:
        raise n.wrong(f"conditions of the shape {list(chosen.shape)} for {x.shape[axis]} elements")
    return rows_at(n, x, places_where(n, chosen), axis)


def rows_at(n: Site, x: Value, at: Value, axis: int = 0) -> Value:
    """Return what stands at places along an axis, which may be none."""
    if same(at.shape[0], 0):
        return n.filled((*x.shape[:axis], 0, *x.shape[axis + 1 :]), x.dtype)
    return n.op("gather", x, at, axis=axis)


def non_max_suppression(n: Site) -> Value:
    """Which boxes are kept is found for the boxes of each class in the order of their scores; how many these are is computed first."""
    boxes, scores = n.arg(0), n.arg(1)
    fits = len(boxes.shape) == len(scores.shape) == 3 and boxes.shape[0] == scores.shape[0] and boxes.shape[1] == scores.shape[2]
    if not fits or boxes.shape[2] != 4:
        raise n.wrong(f"boxes of the shape {list(boxes.shape)} and scores of the shape {list(scores.shape)}")
    if n.maybe(2) is None or any(same(extent, 0) for extent in scores.shape):
        return n.filled((0, 3), DTYPES["i64"])
    most, overlap, threshold = _number(n, 2, 0, "i64"), _number(n, 3, 0.0, "f32"), _number(n, 4, -float("inf"), "f32")
    how = {"center": n.integer("center_point_box", 0, 0, 1), "every": int(n.maybe(4) is None)}
    known = n.array(most)
    if known is not None and 0 < known <= FEW_BOXES:
        count = int(known)
        order, kept = n.ops("best_boxes", boxes, scores, overlap, threshold, most=count, **how)
    else:
        count, order = scores.shape[2], n.op("argsort", scores, axis=2, descending=1)
        kept = n.op("non_max_suppression", boxes, scores, order, most, overlap, threshold, **how)
    order, places = n.kept(order), prod(kept.shape)
    at = places_where(n, n.view(kept, (places,)))
    if same(at.shape[0], 0):
        return n.filled((0, 3), DTYPES["i64"])
    row, classes = n.op("div_int", at, _filled(n, count)), scores.shape[1]
    box = n.op("gather", n.view(order, (places,)), at, axis=0)
    columns = (n.op("div_int", row, _filled(n, classes)), n.op("mod_int", row, _filled(n, classes)), box)
    return joined(n, tuple(n.view(column, (*at.shape, 1)) for column in columns), 1)


FEW_BOXES = 16
"""So many boxes of a class are found one at a time: to look at all boxes once takes a thirtieth of sorting them."""


def _number(n: Site, k: int, default: float, dtype: str) -> Value:
    """Return argument `k`, a number in one element or the default."""
    value = n.maybe(k)
    return n.filled((), DTYPES[dtype], default) if value is None else n.view(value, ())


def _filled(n: Site, number: Any) -> Value:
    """Return a whole number, which may be a size, as a value."""
    array = np.empty((), object)
    array[()] = number
    return n.of_sizes(array, DTYPES["i64"])


def unique(n: Site) -> tuple[Value | None, ...]:
    """Elements, or slices along an axis, are sorted; how many runs of equal ones there are is computed first."""
    x = n.arg(0)
    flat = not n.has("axis")
    axis = 0 if flat else n.axis("axis", 0, len(x.shape))
    rest = () if flat else (*x.shape[:axis], *x.shape[axis + 1 :])
    keys = ranks(n, x) if n.is_text(x) else cast(n, x, DTYPES["u8"]) if x.dtype == DTYPES["bool"] else x
    slices = keys if flat or axis == 0 else n.op("transpose", keys, perm=(axis, *(k for k in range(len(x.shape)) if k != axis)))
    total = prod(x.shape) if flat else x.shape[axis]
    if same(total, 0):
        none = n.filled((0,), DTYPES["i64"])
        return n.view(x, (0,)) if flat else x, none, none, none
    if same(prod(rest), 0):
        raise n.unsupported("slices without elements")
    rows = n.view(slices, (total, prod(rest)))
    order = n.kept(n.op("argsort", n.view(keys, (total,)), axis=0) if flat else n.op("inverse_permutation", n.op("places_of_rows", rows)))
    in_order = n.op("gather", rows, order, axis=0)
    begins = n.kept(n.op("begins_run", in_order))
    run = n.op("runs_of", begins)
    starts = places_where(n, begins)
    first = n.op("gather", order, starts, axis=0)
    counts = n.op("lengths_of_runs", starts, end=total)
    back = n.op("gather", run, n.op("inverse_permutation", order), axis=0)
    if not n.flag("sorted", True):
        by_place = n.op("argsort", first, axis=0)
        first, counts = (n.op("gather", v, by_place, axis=0) for v in (first, counts))
        back = n.op("gather", n.op("inverse_permutation", by_place), back, axis=0)
    return n.of_texts(n.op("gather", n.view(x, (total,)) if flat else x, first, axis=axis), x), first, back, counts


RULES = (
    Entry("Gather", 1, 13, gather),
    Entry("GatherElements", 11, 13, gather_elements),
    Entry("GatherND", 11, 13, gather_nd),
    Entry("OneHot", 9, 28, one_hot),
    Entry("Scatter", 9, 11, scatter_elements),
    Entry("ScatterElements", 11, 18, scatter_elements),
    Entry("ScatterND", 11, 18, scatter_nd),
    Entry("TopK", 1, 24, top_k),
    Entry("NonZero", 9, 13, non_zero),
    Entry("Compress", 9, 28, compress),
    Entry("NonMaxSuppression", 10, 11, non_max_suppression),
    Entry("Unique", 11, 28, unique),
)
