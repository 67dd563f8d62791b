"""Sequences and optional values: how many tensors a sequence holds, and whether a value is there, is known when the model is imported."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from codegen.dtypes import DTYPES, DType
from stdlib.onnx.items import GrowingSequence, Item, RowSequence, TensorSequence
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.entry import Entry
from stdlib.onnx.table.indexing import gathered
from stdlib.onnx.table.moving import axis_moved, joined, slice_axis
from stdlib.onnx.tensors import STRING, TEXT, element_type
from tensorlang.graph.nodes import Value


def empty(n: Site) -> Result:
    number = n.integer("dtype", 1)
    return TensorSequence((), TEXT if number == STRING else element_type(number, "the sequence"))


def construct(n: Site) -> Result:
    return _sequence(n, n.args(), None)


def _sequence(n: Site, items: tuple[Value, ...], dtype: DType | None) -> TensorSequence:
    types = {item.dtype for item in items} | ({dtype} if dtype is not None else set())
    if len(types) > 1:
        raise n.wrong(f"the tensors of a sequence have the types {', '.join(sorted(map(str, types)))}")
    return TensorSequence(items, next(iter(types), None))


def _position(n: Site, k: int, count: int) -> int | None:
    """Return the position that input `k` says among `count`, counted from the front; None where it says nothing."""
    found = n.constant_ints(k)
    if found is None:
        return None
    if len(found) != 1 or not -count <= found[0] < count:
        raise n.wrong(f"there is no position {list(found)} among {count}")
    return found[0] % count


def at(n: Site) -> Result:
    found = n.item(0)
    if isinstance(found, RowSequence):
        return gathered(n, found.rows, n.arg(1), 0)
    items = n.sequence(0).items
    position = _position(n, 1, len(items))
    if position is None:
        raise n.wrong("it needs a position")
    return items[position]


def insert(n: Site) -> Result:
    growing = n.item(0)
    if isinstance(growing, GrowingSequence) and n.maybe(2) is None:
        return GrowingSequence((*growing.appended, n.arg(1)))
    found = n.sequence(0)
    items = found.items
    given = n.constant_ints(2)
    position = len(items) if given is None or given == (len(items),) else _position(n, 2, len(items))
    return _sequence(n, (*items[:position], n.arg(1), *items[position:]), found.dtype)


def erase(n: Site) -> Result:
    found = n.sequence(0)
    position = _position(n, 1, len(found.items))
    if position is None:
        position = len(found.items) - 1
    if position < 0:
        raise n.wrong("there is nothing in the sequence")
    return TensorSequence((*found.items[:position], *found.items[position + 1 :]), found.dtype)


def length(n: Site) -> Result:
    found = n.item(0)
    if isinstance(found, RowSequence):
        return n.of_sizes(np.asarray(found.rows.shape[0], object), DTYPES["i64"])
    return n.constant(np.asarray(len(n.sequence(0).items), np.int64))


def split(n: Site) -> Result:
    """The parts are as long as said, one number for all but the last, or single slices, which may lose their axis."""
    x = n.arg(0)
    axis = n.axis("axis", 0, len(x.shape))
    total = x.shape[axis]
    single = n.maybe(1) is None
    sizes = (1,) * total if single else n.constant_ints(1) or ()
    if not single and not n.arg(1).shape:
        if sizes[0] <= 0:
            raise n.wrong(f"parts of {sizes[0]} elements")
        sizes = tuple(min(sizes[0], total - k) for k in range(0, total, sizes[0]))
    if sum(sizes) != total or any(size < 0 for size in sizes):
        raise n.wrong(f"parts of {list(sizes)} do not add up to the {total} elements along axis {axis}")
    parts = [slice_axis(n, x, axis, start, size) for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False)]
    if single and not n.flag("keepdims", True):
        parts = [n.view(part, (*x.shape[:axis], *x.shape[axis + 1 :])) for part in parts]
    return TensorSequence(tuple(parts), x.dtype)


def concat(n: Site) -> Result:
    found = n.item(0)
    if isinstance(found, RowSequence):
        return _of_rows(n, found.rows)
    items = n.sequence(0).items
    if not items:
        raise n.wrong("there is nothing in the sequence")
    rank = len(items[0].shape)
    new = n.flag("new_axis")
    axis = n.axis_of(n.integer("axis", 0), rank + new)
    if new:
        items = tuple(n.view(item, (*item.shape[:axis], 1, *item.shape[axis:])) for item in items)
    return joined(n, items, axis)


def _of_rows(n: Site, rows: Value) -> Value:
    """Return the rows of a value as the tensors of a sequence that is put together."""
    new = n.flag("new_axis")
    axis = n.axis_of(n.integer("axis", 0), len(rows.shape) - 1 + new)
    moved = axis_moved(n, rows, 0, axis)
    shape = moved.shape
    return moved if new else n.view(moved, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def mapped(n: Site) -> Result:
    """The body runs on the tensors of each place, those of inputs that are no sequences every time."""
    given_sequences = [n.sequence(k) if isinstance(item, RowSequence) else item for k, item in enumerate(n.inputs)]
    count = len(n.sequence(0).items)
    if any(isinstance(item, TensorSequence) and len(item.items) != count for item in given_sequences):
        raise n.wrong("the sequences have different lengths")
    rows = []
    for k in range(count):
        given: list[Item] = [item.items[k] if isinstance(item, TensorSequence) else item for item in given_sequences]
        rows.append(n.run("body", given, f" {k}"))
    if not rows:
        return tuple(TensorSequence((), None) for _ in n.node.outputs)
    columns = [[item for item in column if isinstance(item, Value)] for column in zip(*rows, strict=True)]
    if any(len(column) != count for column in columns):
        raise n.wrong("what the body returns is no tensor")
    return tuple(_sequence(n, tuple(column), None) for column in columns)


def optional(n: Site) -> Result:
    return n.item(0)


def has_element(n: Site) -> Result:
    return n.constant(np.asarray(n.item(0) is not None))


def get_element(n: Site) -> Result:
    if n.item(0) is None:
        raise n.wrong("the optional value is not there")
    return n.item(0)


RULES = (
    Entry("SequenceEmpty", 11, 11, empty),
    Entry("SequenceConstruct", 11, 11, construct),
    Entry("SequenceAt", 11, 11, at),
    Entry("SequenceInsert", 11, 11, insert),
    Entry("SequenceErase", 11, 11, erase),
    Entry("SequenceLength", 11, 11, length),
    Entry("SequenceMap", 17, 17, mapped),
    Entry("SplitToSequence", 11, 24, split),
    Entry("ConcatFromSequence", 11, 11, concat),
    Entry("Optional", 15, 28, optional),
    Entry("OptionalHasElement", 15, 28, has_element),
    Entry("OptionalGetElement", 15, 28, get_element),
)
