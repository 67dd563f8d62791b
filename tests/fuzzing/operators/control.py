"""Graphs within graphs, with captured values; sequences and optionals, made, changed and read within one rule, as they are no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fuzzing.network import TYPES, NetDrawing, Rule, type_of
from fuzzing.operators import draw


def _info(name: str, dtype: str, shape: Sequence[int | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TYPES[dtype][0], shape)


def _input(d: NetDrawing) -> str:
    x = d.some("f32", "i32", "i64", "f64", exact=True)
    return x or draw.value(d, "f32", draw.shape(d, 2, (1, 2, 3)))


def _place(d: NetDrawing, k: int) -> str:
    return d.constant(np.array(k))


def _step(d: NetDrawing, x: str, y: str, dtype: str) -> list[onnx.NodeProto]:
    """Return nodes that make `y` of `x`, with a value from around them now and then."""
    near = [n for n, a in d.values.items() if type_of(a) == dtype and a.shape == () and n not in d.rough]
    one = d.random.choice(near) if near and d.random.random() < 0.3 else d.constant(np.array(1, TYPES[dtype][1]))
    if d.random.random() < 0.3:
        return [helper.make_node("Neg", [x], [f"{y}n"]), helper.make_node("Add", [f"{y}n", one], [y])]
    return [helper.make_node(d.random.choice(("Add", "Sub", "Max")), [x, one], [y])]


def _branches(d: NetDrawing) -> None:
    x = _input(d)
    dtype, shape = type_of(d.values[x]), d.values[x].shape
    c, y = draw.value(d, "bool", d.random.choice(((), (1,)))), d.fresh("v")
    graphs = []
    for k in range(2):
        nodes = _step(d, x, f"{y}_{k}", dtype)
        if d.random.random() < 0.2:
            nodes[-1].output[0] = f"{y}_{k}m"
            nodes.append(helper.make_node("Identity", [f"{y}_{k}m"], [f"{y}_{k}"]))
        graphs.append(helper.make_graph(nodes, "branch", [], [_info(f"{y}_{k}", dtype, shape)]))
    d.add_several([helper.make_node("If", [c], [y], then_branch=graphs[0], else_branch=graphs[1])])


def _loop(d: NetDrawing) -> None:
    x = _input(d)
    dtype, shape = type_of(d.values[x]), d.values[x].shape
    y, scanned = d.fresh("v"), d.random.random() < 0.5
    count = draw.put(d, np.array(d.random.choice((0, 1, 2, 4))), 0.6) if d.random.random() < 0.8 else ""
    go = "" if count and d.random.random() < 0.5 else draw.put(d, np.array(d.random.random() < 0.8), 0.6)
    nodes = _step(d, f"{y}_in", f"{y}_out", dtype)
    if count and d.random.random() < 0.5:
        nodes.append(helper.make_node("Identity", [f"{y}_c"], [f"{y}_d"]))
    else:
        limit = d.constant(np.array(d.random.choice((1, 2, 3))))
        nodes.append(helper.make_node("Less", [f"{y}_i", limit], [f"{y}_d"]))
    ins = [_info(f"{y}_i", "i64", ()), _info(f"{y}_c", "bool", ()), _info(f"{y}_in", dtype, shape)]
    outs = [_info(f"{y}_d", "bool", ()), _info(f"{y}_out", dtype, shape)]
    if scanned:
        nodes.append(helper.make_node("Mul", [f"{y}_in", f"{y}_in"], [f"{y}_s"]))
        outs.append(_info(f"{y}_s", dtype, shape))
    body = helper.make_graph(nodes, "body", ins, outs)
    names = [y, *([d.fresh("v")] if scanned else [])]
    d.add_several([helper.make_node("Loop", [count, go, x], names, body=body)])


def _scan(d: NetDrawing) -> None:
    if d.opset < 9:
        return
    dtype = d.random.choice(("f32", "i32", "f64"))
    rank, length = d.random.choice((1, 2)), d.random.choice((1, 2, 4))
    shape = draw.shape(d, rank - 1, (1, 2, 3))
    axis = d.random.randrange(rank)
    whole = (*shape[:axis], length, *shape[axis:])
    x, state, y = draw.put(d, d.array(dtype, whole), 0.2), draw.value(d, dtype, shape), d.fresh("v")
    nodes = [
        helper.make_node(d.random.choice(("Add", "Max", "Sub")), [f"{y}_s", f"{y}_x"], [f"{y}_t"]),
        helper.make_node("Add", [f"{y}_t", f"{y}_x"], [f"{y}_o"]),
    ]
    ins, outs = ([_info(f"{y}_{k}", dtype, shape) for k in kinds] for kinds in ("sx", "to"))
    attrs: dict[str, Any] = {"scan_input_axes": [axis - d.random.choice((0, rank)) if d.opset >= 11 else axis]}
    attrs |= draw.maybe(d, 0.4, scan_input_directions=[1]) | draw.maybe(d, 0.4, scan_output_directions=[1])
    attrs |= draw.maybe(d, 0.4, scan_output_axes=[d.random.randrange(rank)])
    body = helper.make_graph(nodes, "body", ins, outs)
    names = [y, d.fresh("v")]
    d.add_several([helper.make_node("Scan", [state, x], names, num_scan_inputs=1, body=body, **attrs)])


def _sequence(d: NetDrawing) -> None:
    """A sequence, made in one of the ways, changed some times, and read."""
    if d.opset < 11:
        return
    x, y = _input(d), d.fresh("v")
    a = d.values[x]
    dtype = type_of(a)
    nodes: list[onnx.NodeProto] = []
    size = 0
    match d.random.randrange(3):
        case 0:
            size = d.random.choice((1, 2, 3))
            nodes.append(helper.make_node("SequenceConstruct", [d.operand(dtype, a.shape) for _ in range(size)], [f"{y}_0"]))
        case 1:
            nodes.append(helper.make_node("SequenceEmpty", [], [f"{y}_0"], dtype=TYPES[dtype][0]))
        case _ if a.ndim and a.shape[0]:
            given = d.random.random() < 0.5
            keep = d.random.choice((0, 1)) if not given else 1
            split = [d.constant(np.array(1))] if given else []
            nodes.append(helper.make_node("SplitToSequence", [x, *split], [f"{y}_0"], axis=0, keepdims=keep))
            size = a.shape[0]
        case _:
            return
    at = 0
    for _ in range(d.random.choice((0, 1, 2))):
        place = [_place(d, d.random.randrange(-size, size))] if size and d.random.random() < 0.6 else []
        if size and d.random.random() < 0.4:
            nodes.append(helper.make_node("SequenceErase", [f"{y}_{at}", *place], [f"{y}_{at + 1}"]))
            size -= 1
        else:
            nodes.append(helper.make_node("SequenceInsert", [f"{y}_{at}", d.operand(dtype, a.shape), *place], [f"{y}_{at + 1}"]))
            size += 1
        at += 1
    match d.random.randrange(4):
        case 0:
            nodes.append(helper.make_node("SequenceLength", [f"{y}_{at}"], [y]))
        case 1 if size:
            new = d.random.choice((0, 1)) if a.ndim else 1
            nodes.append(helper.make_node("ConcatFromSequence", [f"{y}_{at}"], [y], axis=0, new_axis=new))
        case 2 if size and d.opset >= 17:
            body = helper.make_graph(
                _step(d, f"{y}_e", f"{y}_f", dtype), "each", [_info(f"{y}_e", dtype, None)], [_info(f"{y}_f", dtype, None)]
            )
            nodes.append(helper.make_node("SequenceMap", [f"{y}_{at}"], [f"{y}_m"], body=body))
            nodes.append(helper.make_node("SequenceAt", [f"{y}_m", _place(d, 0)], [y]))
        case _ if size:
            nodes.append(helper.make_node("SequenceAt", [f"{y}_{at}", _place(d, d.random.randrange(-size, size))], [y]))
        case _:
            nodes.append(helper.make_node("SequenceLength", [f"{y}_{at}"], [y]))
    d.add_several(nodes)


def _grown(d: NetDrawing) -> None:
    """A sequence that a loop makes longer."""
    if d.opset < 13:
        return
    x, y = _input(d), d.fresh("v")
    dtype = type_of(d.values[x])
    sequence = helper.make_tensor_sequence_value_info
    scalar = d.constant(np.array(2, TYPES[dtype][1]))
    inner = [
        helper.make_node("Mul", [x, scalar], [f"{y}_t"]),
        helper.make_node("SequenceInsert", [f"{y}_in", f"{y}_t"], [f"{y}_out"]),
        helper.make_node("Identity", [f"{y}_c"], [f"{y}_d"]),
    ]
    ins = [_info(f"{y}_i", "i64", ()), _info(f"{y}_c", "bool", ()), sequence(f"{y}_in", TYPES[dtype][0], None)]
    outs = [_info(f"{y}_d", "bool", ()), sequence(f"{y}_out", TYPES[dtype][0], None)]
    count = draw.put(d, np.array(d.random.choice((1, 2, 3))), 0.8)
    nodes = [
        helper.make_node("SequenceConstruct", [x], [f"{y}_0"]),
        helper.make_node("Loop", [count, "", f"{y}_0"], [f"{y}_1"], body=helper.make_graph(inner, "body", ins, outs)),
        helper.make_node("ConcatFromSequence", [f"{y}_1"], [y], axis=0, new_axis=1),
    ]
    d.add_several(nodes)


def _optional(d: NetDrawing) -> None:
    if d.opset < 15:
        return
    x, y = _input(d), d.fresh("v")
    nodes = [helper.make_node("Optional", [x], [f"{y}_o"])]
    kind = d.random.choice(("OptionalHasElement", "OptionalGetElement"))
    nodes.append(helper.make_node(kind, [f"{y}_o"], [y]))
    d.add_several(nodes)


def _nested(d: NetDrawing) -> None:
    """A branch within the body of a loop."""
    x, y = _input(d), d.fresh("v")
    dtype, shape = type_of(d.values[x]), d.values[x].shape
    graphs = []
    for k in range(2):
        nodes = _step(d, f"{y}_in", f"{y}_b{k}", dtype)
        graphs.append(helper.make_graph(nodes, "branch", [], [_info(f"{y}_b{k}", dtype, shape)]))
    two = d.constant(np.array(2))
    inner = [
        helper.make_node("Less", [f"{y}_i", two], [f"{y}_q"]),
        helper.make_node("If", [f"{y}_q"], [f"{y}_out"], then_branch=graphs[0], else_branch=graphs[1]),
        helper.make_node("Identity", [f"{y}_c"], [f"{y}_d"]),
    ]
    ins = [_info(f"{y}_i", "i64", ()), _info(f"{y}_c", "bool", ()), _info(f"{y}_in", dtype, shape)]
    outs = [_info(f"{y}_d", "bool", ()), _info(f"{y}_out", dtype, shape)]
    count = draw.put(d, np.array(d.random.choice((0, 1, 3))), 0.5)
    d.add_several([helper.make_node("Loop", [count, "", x], [y], body=helper.make_graph(inner, "body", ins, outs))])


RULES: tuple[Rule, ...] = (
    _branches,
    _branches,
    _loop,
    _loop,
    _loop,
    _scan,
    _scan,
    _sequence,
    _sequence,
    _sequence,
    _grown,
    _optional,
    _nested,
)
