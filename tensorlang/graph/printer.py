"""Graphs as text, for people and for golden tests; `parser.py` reads it back.

    graph "net"
    inputs "x"
    outputs "y"
    constant "w": f32[3, 4] layout [d0, d1] -> [d1 // 2, d0, d1 % 2] in [2, 3, 2] sha256 9f86d081884c7d65
    value "x": f32[2, 3]
    kernel "n1" ("x", "w") -> ("t") = p0 operator "MatMul" attrs {"axis": 1} members ["n1", "n2"]
    view "n2" "t" -> "y"
    join "n3" ("a", "b") -> "c"
    part "n4" "c" at 64 -> "d"
    extern "n5" "topk" "topk_f32" ("d") -> ("e", "f")

    program p0
    op matmul(a: f32[2, 3], b: f32[3, 4]) -> (y: f32[2, 4]) {
        …

Names are JSON strings: a model may call its values anything. Constants are summarised by a hash. Equal programs are printed once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import assert_never

from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Node, Part, Value, View
from tensorlang.graph.passes.clean.cse import digest
from tensorlang.graph.programs import program_key
from tensorlang.schedule.layout import Layout
from tensorlang.tensor import notation
from tensorlang.tensor.printer import show as show_program

DIGITS = 16
"""How much of a hash is printed."""


def show(graph: Graph) -> str:
    """Return the text of a graph."""
    programs: dict[str, tuple[str, str]] = {}
    head = [f"graph {_text(graph.name)}", f"inputs {_texts(graph.inputs)}".rstrip(), f"outputs {_texts(graph.outputs)}".rstrip()]
    values = [_value(graph, value) for value in graph.values.values()]
    nodes = [_node(node, programs) for node in graph.nodes]
    bodies = [line for label, text in programs.values() for line in ("", f"program {label}", text.rstrip())]
    return "\n".join([*head, *values, *nodes, *bodies]) + "\n"


def _value(graph: Graph, value: Value) -> str:
    layout = "" if value.layout is None else f" layout {show_layout(value.layout)}"
    typed = f"{_text(value.name)}: {value.dtype}{list(value.shape)}{layout}"
    array = graph.constants.get(value.name)
    return f"value {typed}" if array is None else f"constant {typed} sha256 {digest(array)[:DIGITS]}"


def show_layout(layout: Layout) -> str:
    """Return `[axes] -> [index along each storage dimension] in [extents]`."""
    return f"[{', '.join(layout.axes)}] -> [{', '.join(notation.show(e) for e in layout.dims)}] in {list(layout.shape)}"


def _node(node: Node, programs: dict[str, tuple[str, str]]) -> str:
    match node:
        case Kernel():
            key = f"{node.program.name} {program_key(node.program)}"
            label, _ = programs.setdefault(key, (f"p{len(programs)}", show_program(node.program)))
            return f"kernel {_text(node.name)} ({_texts(node.inputs)}) -> ({_texts(node.outputs)}) = {label}{''.join(_origin(node))}"
        case Extern(call=call):
            members = f" members {json.dumps(list(node.members))}" if node.members else ""
            made = f"({_texts(node.inputs)}) -> ({_texts(node.outputs)})"
            return f"extern {_text(node.name)} {_text(call.operator)} {_text(call.symbol)} {made}{members}"
        case View():
            members = f" members {json.dumps(list(node.members))}" if node.members else ""
            return f"view {_text(node.name)} {_text(node.input)} -> {_text(node.output)}{members}"
        case Join():
            members = f" members {json.dumps(list(node.members))}" if node.members else ""
            return f"join {_text(node.name)} ({_texts(node.inputs)}) -> {_text(node.output)}{members}"
        case Part():
            members = f" members {json.dumps(list(node.members))}" if node.members else ""
            return f"part {_text(node.name)} {_text(node.input)} at {node.start} -> {_text(node.output)}{members}"
        case _:
            assert_never(node)


def _origin(node: Kernel) -> Iterator[str]:
    if node.operator:
        yield f" operator {_text(node.operator)}"
    if node.attrs:
        yield f" attrs {json.dumps(dict(node.attrs))}"
    if node.members:
        yield f" members {json.dumps(list(node.members))}"


def _text(name: str) -> str:
    return json.dumps(name)


def _texts(names: tuple[str, ...]) -> str:
    return ", ".join(map(_text, names))
