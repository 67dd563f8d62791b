"""Operators that run graphs of their own: If, Loop, Scan. Which branch and how many turns is decided before the model is compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.site import Item, Result, Site
from stdlib.onnx.table.entry import MICROSOFT, Entry, elsewhere
from stdlib.onnx.table.moving import joined, slice_axis
from tensorlang.graph.nodes import Value


def if_(n: Site) -> Result:
    return n.run("then_branch" if _truth(n, n.arg(0)) else "else_branch", ())


def _truth(n: Site, item: Item) -> bool:
    if not isinstance(item, Value) or item.dtype != DTYPES["bool"]:
        raise n.wrong("a condition is one truth value")
    array = n.elements(item)
    if array.size != 1:
        raise n.wrong(f"a condition is one truth value, not {list(array.shape)}")
    return bool(array.reshape(()))


def loop(n: Site) -> Result:
    """The body takes the number of the turn, the condition and what is carried; it returns the condition, that, and rows of results."""
    limit = n.constant_ints(0)
    if limit is not None and len(limit) != 1:
        raise n.wrong("the number of turns must be one integer")
    condition: Item = n.constant(np.asarray(True)) if n.maybe(1) is None else n.arg(1)
    carried: tuple[Item, ...] = n.inputs[2:]
    rows: list[tuple[Item, ...]] = []
    turn = 0
    while (limit is None or turn < limit[0]) and _truth(n, condition):
        condition, *rest = n.run("body", (_number(n, turn), condition, *carried), f" {turn}")
        carried, results = tuple(rest[: len(carried)]), tuple(rest[len(carried) :])
        rows.append(results)
        turn += 1
    if not rows:
        shapes = n.tried("body", (_number(n, 0), condition, *carried))[1 + len(carried) :]
        return (*carried, *(_stacked(n, (), 0, shape) for shape in shapes))
    return (*carried, *(_stacked(n, column, 0) for column in zip(*rows, strict=True)))


def _number(n: Site, turn: int) -> Value:
    return n.constant(np.asarray(turn, np.int64))


def _stacked(n: Site, items: Sequence[Item], axis: int, empty: Item = None) -> Value:
    """Return values side by side along a new axis; `empty` is what one would be like where there is none."""
    values = []
    for item in items or (empty,):
        if not isinstance(item, Value):
            raise n.wrong("a sequence cannot be put into a row of results")
        at = n.axis_of(axis, len(item.shape) + 1)
        values.append(n.view(item, (*item.shape[:at], 1, *item.shape[at:])))
    if not items:
        return n.filled((*values[0].shape[:at], 0, *values[0].shape[at + 1 :]), values[0].dtype)
    return joined(n, tuple(values), at)


def scan(n: Site) -> Result:
    """The body takes what is carried and a slice of each of the last `num_scan_inputs` inputs."""
    if n.node.since >= 9:
        return _scanned(n, n.args(), "")
    if n.maybe(0) is not None:
        raise n.unsupported("sequence_lens")
    values = n.args_from(1)
    batch = values[0].shape[0]
    samples = [_scanned(n, tuple(_element(n, v, 0, k) for v in values), f" {k}") for k in range(batch)]
    if not samples:
        raise n.unsupported("an empty batch")
    return tuple(_stacked(n, column, 0) for column in zip(*samples, strict=True))


def _scanned(n: Site, values: tuple[Value, ...], which: str) -> tuple[Item, ...]:
    count = n.integer("num_scan_inputs", 0, 1, len(values))
    carried: tuple[Item, ...] = values[: len(values) - count]
    over = values[len(values) - count :]
    modern = n.node.since >= 9
    axes = n.integers("scan_input_axes", (0,) * count, count=count) if modern else (0,) * count
    axes = tuple(n.axis_of(axis, len(v.shape)) for axis, v in zip(axes, over, strict=True))
    backwards = n.integers("scan_input_directions" if modern else "directions", (0,) * count, count=count)
    length = over[0].shape[axes[0]]
    if any(v.shape[axis] != length for v, axis in zip(over, axes, strict=True)):
        raise n.wrong("the inputs that are gone through have different lengths")
    rows: list[tuple[Item, ...]] = []
    for turn in range(length):
        steps = (length - 1 - turn if back else turn for back in backwards)
        slices = [_element(n, v, axis, at) for v, axis, at in zip(over, axes, steps, strict=True)]
        rest = n.run("body", (*carried, *slices), f"{which} {turn}")
        carried, results = tuple(rest[: len(carried)]), tuple(rest[len(carried) :])
        rows.append(results)
    found = len(n.node.outputs) - len(carried)
    out_axes = n.integers("scan_output_axes", (0,) * found, count=found) if modern else (0,) * found
    out_backwards = n.integers("scan_output_directions", (0,) * found, count=found) if modern else (0,) * found
    if not rows:
        slices = [n.filled((*v.shape[:axis], *v.shape[axis + 1 :]), v.dtype) for v, axis in zip(over, axes, strict=True)]
        shapes = n.tried("body", (*carried, *slices))[len(carried) :]
        return (*carried, *(_stacked(n, (), axis, shape) for shape, axis in zip(shapes, out_axes, strict=True)))
    columns = [column[::-1] if back else column for column, back in zip(zip(*rows, strict=True), out_backwards, strict=True)]
    return (*carried, *(_stacked(n, column, axis) for column, axis in zip(columns, out_axes, strict=True)))


def _element(n: Site, x: Value, axis: int, at: int) -> Value:
    """Return one slice of `x` along an axis, without that axis."""
    if not x.shape:
        raise n.wrong("a number has no axis to go through")
    return n.view(slice_axis(n, x, axis, at, 1), (*x.shape[:axis], *x.shape[axis + 1 :]))


_DECODES = "runs a decoder until it has written all: import the model of the decoder, and call it for each word"

RULES = (
    Entry("If", 1, 25, if_),
    Entry("Loop", 1, 25, loop),
    Entry("Scan", 8, 25, scan),
    *(elsewhere(op, _DECODES, MICROSOFT) for op in ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")),
)
