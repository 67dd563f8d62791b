"""Operators that run graphs of their own: If, Loop, Scan.

What a loop hands from turn to turn has one type: it is a loop of the compiled model, which ends when its data say so. A loop of few turns
that are known is written out; one whose values change their shapes is run by the host, turn by turn, its body compiled for any sizes, and
written out where they change their types or get axes, where it is about sequences, and in another loop. How often that runs, and which
branch an If outside of loops takes, is decided before the model is compiled, by a first stage of it where that depends on data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES
from stdlib.onnx.items import GrowingSequence, Item, RowSequence
from stdlib.onnx.problems import NotFixed, OtherKind, Refusal, Unsupported, quoted
from stdlib.onnx.site import Result, Site
from stdlib.onnx.table.entry import MICROSOFT, Entry, elsewhere
from stdlib.onnx.table.moving import axis_moved, joined, slice_axis
from stdlib.onnx.traced_body import Rows, Taken, Traced, appended, carried_tensors, check_carried, scalar, tensors, traced
from tensorlang.graph.host_loop import HostLoop
from tensorlang.graph.nodes import Value
from tensorlang.graph.shape_arithmetic import int_or_size
from tensorlang.graph.sizes import OpenSize

MOST_TURNS = 1 << 32
"""More turns than this are not run, unless data may end them before."""


def if_(n: Site) -> Result:
    condition, start = n.arg(0), len(n.builder.nodes)
    if n.builder.elements(condition.name) is None and (n.is_traced or condition.name not in n.builder.decidable):
        try:
            return _branches(n, condition)
        except (NotFixed, Refusal, Unsupported):
            if n.is_traced:
                raise
            n.builder.cut(start)
    return n.run("then_branch" if _truth(n, condition) else "else_branch", ())


def _branches(n: Site, condition: Value) -> tuple[Item, ...]:
    """Return what one of two branches gives: each is a loop of one turn at most, and the second keeps what the first has made. Raises
    NotFixed where they do not give values of the same types."""
    truth = scalar(n, condition, "bool")
    one = n.constant(np.asarray(1, np.int64))
    then = traced(n, "then_branch", Taken())
    first = [then.returned(k) for k in range(len(then.found))]
    made = [n.result(value.dtype, (1, *value.shape)) for value in first]
    _, *rows = then.loop(Taken(limit=one, condition=truth), first, [n.result(DTYPES["i64"], ()), *made], [Rows(v) for v in made])
    kept = tuple(n.of_texts(n.view(row, value.shape), value) for row, value in zip(rows, first, strict=True))
    taken = Taken(kept, limit=one, condition=n.op("logical_not", truth))
    other = traced(n, "else_branch", Taken())
    second = [other.returned(k) for k in range(len(other.found))]
    if len(second) != len(first):
        raise NotFixed("its branches give different numbers of values")
    check_carried(first, second)
    return _fixed(n, replace(other, given=(*other.given, *(n.result(v.dtype, v.shape) for v in kept))), taken, second)


def _fixed(n: Site, turn: Traced, taken: Taken, returned: Sequence[Value], rows: Sequence[Rows] = ()) -> tuple[Item, ...]:
    """Return the results of a loop: what is carried, and its rows."""
    after = returned[taken.asks :][: len(taken.carried)]
    fixed = [n.result(DTYPES["i64"], ()), *(n.result(v.dtype, v.shape) for v in taken.carried), *(made.value for made in rows)]
    _, *found = turn.loop(taken, returned, fixed, rows)
    sources = (*after, *returned[taken.asks + len(taken.carried) :])
    return tuple(n.of_texts(value, source) for value, source in zip(found, sources, strict=True))


def _truth(n: Site, item: Item, reason: str = "") -> bool:
    if not isinstance(item, Value) or item.dtype != DTYPES["bool"]:
        raise n.wrong("a condition is one truth value")
    array = n.elements(item, *([f"its turns are written out, as {reason}"] if reason else []))
    if array.size != 1:
        raise n.wrong(f"a condition is one truth value, not {list(array.shape)}")
    return bool(array.reshape(()))


def loop(n: Site) -> Result:
    """The body takes the number of the turn, the condition and what is carried; it returns the condition, that, and rows of results."""
    start = len(n.builder.nodes)
    try:
        found = _compiled(n)
    except NotFixed as reason:
        n.builder.cut(start)
        found = None if isinstance(reason, OtherKind) else _run_by_host(n)
        return _written_out(n, str(reason)) if found is None else found
    return _written_out(n) if found is None else found


def _compiled(n: Site) -> tuple[Item, ...] | None:
    """Return the results of a loop that runs as it is, None where it is better written out. Raises NotFixed."""
    limit = n.maybe(0) and scalar(n, n.arg(0), "i64")
    condition = n.maybe(1) and scalar(n, n.arg(1), "bool")
    known = n.builder.elements(limit.name) if limit is not None else None
    most = None if known is None else int_or_size(known.reshape(-1)[0])
    starts = True if condition is None else _known_truth(n, condition)
    if starts is False:
        return None
    items = n.inputs[2:]
    taken = Taken(carried_tensors(items), (), limit, None if starts is not None else condition)
    turn = traced(n, "body", taken, carried=items)
    again, *found = turn.found
    handed, made = found[: len(items)], found[len(items) :]
    grown = [k for k, item in enumerate(handed) if isinstance(item, GrowingSequence)]
    carried = tensors([item for item in handed if not isinstance(item, GrowingSequence)])
    check_carried(taken.carried, carried)
    rows = (*tensors(made), *(appended(handed[k]) for k in grown))
    places = (*range(len(items), len(found)), *grown)
    again = turn.returned(0)
    held = turn.elements(again)
    if held is not None and not bool(held.reshape(-1)[0]):
        return None
    if held is None and again.shape != ():
        raise NotFixed("its condition is no scalar")
    asks = held is None
    ends = asks or taken.condition is not None
    if not asks and (limit is None or (isinstance(most, int) and most > MOST_TURNS)):
        title = f"node {quoted(n.node.label)} (Loop) has {'no end' if most is None else f'{most} turns'}"
        raise Refusal("O014", title, f"without a condition that data may end it by, at most {MOST_TURNS} are taken")
    if not ends and isinstance(most, int) and turn.is_cheap(most):
        return None
    wanted = [k for k, place in enumerate(places) if n.has_output(place)]
    outputs: list[Rows] = []
    if wanted:
        turns = _turns(n, turn, replace(taken, asks=asks), again, carried) if ends else _whole(n)
        taken, asks = replace(taken, limit=n.of_sizes(np.asarray(turns, object), DTYPES["i64"]), condition=None), False
        outputs = [Rows(n.result(rows[k].dtype, (turns, *rows[k].shape))) for k in wanted]
    results = iter(_fixed(n, turn, replace(taken, asks=asks), [*([again] * asks), *carried, *(rows[k] for k in wanted)], outputs))
    kept = {k: next(results) for k in range(len(items)) if k not in grown}
    kept |= {
        places[k]: RowSequence(value) if places[k] in grown else value for k, value in zip(wanted, tensors(list(results)), strict=True)
    }
    return tuple(kept.get(place) for place in range(len(found)))


FEW_TURNS = 16
"""So many turns, where nothing but their number ends a loop, are written out when what they hand on changes its shape."""


def _run_by_host(n: Site) -> tuple[Item, ...] | None:
    """Return the results of a loop that the host runs, whose body is a model of its own; None for one whose turns are written out: they
    are in a loop themselves, they carry or read what is no tensor, they are few, or the body is no block of a model."""
    if n.blocks is None:
        return None
    items, block = n.inputs[2:], n.block("body")
    around = n.blocks.captured(block)
    known = n.builder.elements(n.arg(0).name) if n.maybe(0) is not None else None
    if n.is_traced or not all(isinstance(item, Value) and not n.is_text(item) for item in (*items, *around.values())):
        return None
    if known is not None and int_or_size(known.reshape(-1)[0]) <= FEW_TURNS:
        return None
    read = {name: item for name, item in around.items() if isinstance(item, Value)}
    elements = {name: n.builder.elements(value.name) for name, value in read.items()}
    constants = {name: array for name, array in elements.items() if array is not None and array.dtype != object}
    turns = {f"{n.node.label}: turn around, number {k}": turn for k, turn in enumerate(n.builder.iterations)}
    captured = {name: value for name, value in read.items() if name not in constants} | turns
    carried = tensors(items)
    types = [(DTYPES["i64"], ()), (DTYPES["bool"], ()), *((v.dtype, (None,) * len(v.shape)) for v in carried)]
    own = [(name, *type_) for name, type_ in zip(block.inputs, types, strict=True)]
    outside = [(name, v.dtype, tuple(extent if isinstance(extent, int) else None for extent in v.shape)) for name, v in captured.items()]
    body = n.blocks.model_part(n.node.label, block, [*own, *outside], constants, [*turns, block.inputs[0]])
    ends = [v for v in (n.maybe(0), n.maybe(1)) if v is not None]
    has_limit, has_condition = n.maybe(0) is not None, n.maybe(1) is not None
    run = HostLoop(n.node.label, (*block.inputs, *captured), block.outputs, len(carried), has_limit, has_condition)
    return n.hosted(run, *ends, *carried, *captured.values(), body=body)


def _known_truth(n: Site, condition: Value) -> bool | None:
    """Return a truth that constants and sizes alone decide; None where data do, or sizes in a way that expressions do not have."""
    try:
        known = n.builder.elements(condition.name)
    except OpenSize:
        return None
    return None if known is None else bool(known)


def _whole(n: Site) -> Any:
    """Return how many turns a loop has that runs as often as it is told, an integer or a size. Raises Unknown."""
    limit = n.constant_ints(0)
    assert limit is not None
    return int_or_size(max(limit[0], 0))


def _turns(n: Site, turn: Traced, taken: Taken, again: Value, carried: Sequence[Value]) -> Any:
    """Return how many turns a loop has, which it runs once to find that out: as many rows are made. Raises Unknown."""
    if n.is_traced:
        raise NotFixed("how many rows it makes depends on the data")
    fixed = [n.result(DTYPES["i64"], ()), *(n.result(v.dtype, v.shape) for v in taken.carried)]
    turns, *_ = turn.loop(taken, [*([again] * taken.asks), *carried], fixed)
    return n.decided(turns)


def _written_out(n: Site, reason: str = "") -> tuple[Item, ...]:
    """Return the results of a loop whose turns are nodes of their own; `reason` says why it cannot run as it is."""
    limit = n.constant_ints(0)
    if limit is not None and len(limit) != 1:
        raise n.wrong("the number of turns must be one integer")
    condition: Item = n.constant(np.asarray(True)) if n.maybe(1) is None else n.arg(1)
    carried: tuple[Item, ...] = n.inputs[2:]
    rows: list[tuple[Item, ...]] = []
    turn = 0
    while (limit is None or turn < limit[0]) and _truth(n, condition, reason):
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
    first = items[0] if items else empty
    if not isinstance(first, Value) or not all(isinstance(item, Value) for item in items):
        raise n.wrong("a sequence cannot be put into a row of results")
    at = n.axis_of(axis, len(first.shape) + 1)
    if not items:  # what `empty` is of was tried, and is not in the graph
        return n.filled((*first.shape[:at], 0, *first.shape[at:]), first.dtype)
    values = tensors(items)
    return joined(n, tuple(n.view(value, (*value.shape[:at], 1, *value.shape[at:])) for value in values), at)


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
    start = len(n.builder.nodes)
    try:
        found = _scan_compiled(n, values, which)
    except NotFixed:
        n.builder.cut(start)
        found = None
    return _scan_written_out(n, values, which) if found is None else found


def _scan_compiled(n: Site, values: tuple[Value, ...], which: str) -> tuple[Item, ...] | None:
    """Return the results of a scan that runs as it is, None where it is better written out. Raises NotFixed."""
    shape = _scan_shape(n, values)
    sources = [Rows(_first(n, v, axis), bool(back)) for v, axis, back in zip(shape.sources, shape.axes, shape.backwards, strict=True)]
    taken = Taken(shape.carried, tuple(sources))
    turn = traced(n, "body", taken, which)
    returned = [turn.returned(k) for k in range(len(turn.found))]
    check_carried(taken.carried, returned)
    if isinstance(shape.length, int) and turn.is_cheap(shape.length):
        return None
    count = len(taken.carried)
    made = [
        Rows(n.result(v.dtype, (shape.length, *v.shape)), bool(back)) for v, back in zip(returned[count:], shape.out_backwards, strict=True)
    ]
    found = _fixed(n, turn, taken, returned, made)
    rows = [axis_moved(n, v, 0, axis) for v, axis in zip(tensors(found[count:]), shape.out_axes, strict=True)]
    return (*found[:count], *rows)


def _first(n: Site, x: Value, axis: int) -> Value:
    return axis_moved(n, x, axis, 0)


@dataclass(frozen=True, slots=True)
class _ScanShape:
    """What a scan carries and goes through, how, and how it puts its rows together."""

    carried: tuple[Value, ...]
    sources: tuple[Value, ...]
    length: int
    axes: tuple[int, ...]
    backwards: tuple[int, ...]
    out_axes: tuple[int, ...]
    out_backwards: tuple[int, ...]


def _scan_shape(n: Site, values: tuple[Value, ...]) -> _ScanShape:
    count = n.integer("num_scan_inputs", 0, 1, len(values))
    carried, over = values[: len(values) - count], values[len(values) - count :]
    modern = n.node.since >= 9
    axes = n.integers("scan_input_axes", (0,) * count, count=count) if modern else (0,) * count
    axes = tuple(n.axis_of(axis, len(v.shape)) for axis, v in zip(axes, over, strict=True))
    backwards = n.integers("scan_input_directions" if modern else "directions", (0,) * count, count=count)
    length = over[0].shape[axes[0]]
    if any(v.shape[axis] != length for v, axis in zip(over, axes, strict=True)):
        raise n.wrong("the inputs that are gone through have different lengths")
    found = len(n.node.outputs) - len(carried)
    out_axes = n.integers("scan_output_axes", (0,) * found, count=found) if modern else (0,) * found
    out_backwards = n.integers("scan_output_directions", (0,) * found, count=found) if modern else (0,) * found
    return _ScanShape(carried, over, length, axes, backwards, out_axes, out_backwards)


def _scan_written_out(n: Site, values: tuple[Value, ...], which: str) -> tuple[Item, ...]:
    """Return the results of a scan whose turns are nodes of their own."""
    shape = _scan_shape(n, values)
    carried: tuple[Item, ...] = shape.carried
    over, axes, backwards, length = shape.sources, shape.axes, shape.backwards, shape.length
    out_axes, out_backwards = shape.out_axes, shape.out_backwards
    rows: list[tuple[Item, ...]] = []
    for turn in range(length):
        steps = (length - 1 - turn if back else turn for back in backwards)
        slices = [_element(n, v, axis, at) for v, axis, at in zip(over, axes, steps, strict=True)]
        rest = n.run("body", (*carried, *slices), f"{which} {turn}")
        carried, results = tuple(rest[: len(carried)]), tuple(rest[len(carried) :])
        rows.append(results)
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
