"""Graphs as text, for people and for golden tests; `parser.py` reads it back.

    graph "net"
    inputs "x"
    outputs "y"
    constant "w": f32[3, 4] layout [d0, d1] -> [d1 // 2, d0, d1 % 2] in [2, 3, 2] sha256 9f86d081884c7d65
    value "x": f32[2, 3]
    kernel "n1" ("x", "w") -> ("t") = p0 operator "MatMul" attrs {"axis": 1} members ["n1", "n2"]
    view "n2" "t" -> "y"
    join "n3" ("a", "b") -> "c"
    join "n6" ("past", "rows") at [0, 64 * `size.n`] -> "present"
    part "n4" "c" at 64 -> "d"
    extern "n5" ("d") -> ("e", "f") = "topk" "topk_f32" arguments ["x", null] results [["y", "f32", [5, 2], []], …] sizes [5, 8, 2]

    loop "n7" ("limit", "x") -> ("turns", "y") limit = b0

    program p0
    op matmul(a: f32[2, 3], b: f32[3, 4]) -> (y: f32[2, 4]) {
        …

The flags of a loop are those of `Loop`: `limit`, `condition`, `asks`, and lists `scanned`, `made`. Its body stands behind all programs, as
`body b0` and the indented text of a graph.

Names are JSON strings: a model may call its values anything. Constants are summarised by a hash. Equal programs are printed once.
Where sizes are open, the symbols stand before the values, each with its sample or with what it stands for, and what was assumed of them:

    size "size.batch" sample 4
    size "size.batch_seq" = `size.batch`*`size.seq`
    assume `size.seq` - 3 >= 0
    value "x": f32[`size.batch`, 2 * `size.seq` + 1]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from textwrap import indent
from typing import Any, assert_never

import numpy as np

from polyhedral import affine
from polyhedral.expr import Expr as Affine
from tensorlang.externs import PythonFunction
from tensorlang.graph.nodes import Extern, Graph, Join, Kernel, Loop, Node, Part, Value, View, loops_of
from tensorlang.graph.passes.clean.cse import digest
from tensorlang.graph.programs import program_key
from tensorlang.graph.sizes import Atom, Choice, Extent, Formula, Symbols, to_expr
from tensorlang.schedule.layout import Layout
from tensorlang.tensor import notation
from tensorlang.tensor.nodes import ExternCall, Program
from tensorlang.tensor.printer import show as show_program

INDENT = "    "
DIGITS = 16
"""How much of a hash is printed."""


def show(graph: Graph) -> str:
    """Return the text of a graph."""
    programs: dict[str, tuple[str, str]] = {}
    head = [f"graph {_text(graph.name)}", f"inputs {_texts(graph.inputs)}".rstrip(), f"outputs {_texts(graph.outputs)}".rstrip()]
    values = [_value(graph, value) for value in graph.values.values()]
    labels = {node.name: f"b{k}" for k, node in enumerate(loops_of(graph))}
    nodes = [_node(node, programs, labels) for node in graph.nodes]
    sizes = [] if graph.symbols is None else _symbols(graph.symbols)  # behind the others, which may name products
    bodies = [line for label, text in programs.values() for line in ("", f"program {label}", text.rstrip())]
    for node in loops_of(graph):
        bodies += ["", f"body {labels[node.name]}", indent(show(node.body), INDENT).rstrip()]
    return "\n".join([*head, *sizes, *values, *nodes, *bodies]) + "\n"


def constants_of(graph: Graph) -> dict[str, np.ndarray[Any, Any]]:
    """Return the constants that the text of a graph is about: those of bodies behind the names of these, as `b0/w`."""
    found = dict(graph.constants)
    for k, node in enumerate(loops_of(graph)):
        found |= {f"b{k}/{name}": array for name, array in constants_of(node.body).items()}
    return found


def _symbols(symbols: Symbols) -> list[str]:
    """Return the lines of symbols, what they stand for, and what was assumed of them."""
    own = [f"size {_text(name)} sample {sample}" for name, sample in symbols.samples.items()]
    products = [f"size {_text(name)} = {_formula(formula)}" for name, formula in symbols.products.items()]
    return [*own, *products, *(f"assume {_formula(c.formula)} {c.relation} 0" for c in symbols.assumed)]


def _formula(formula: Formula) -> str:
    terms = [f"({'*'.join([f'({factor})', *map(_atom, monomial)])})" for monomial, factor in formula.terms.items()]
    return " + ".join(terms) or "0"


def _atom(atom: Atom) -> str:
    if isinstance(atom, Choice):
        return f"{atom.which}({_formula(atom.left)}, {_formula(atom.right)})"
    return notation.quoted(atom) if isinstance(atom, str) else f"(({_formula(atom.value)}) // ({_formula(atom.divisor)}))"


def _extent(n: Extent) -> str:
    return notation.show(to_expr(n))


def _extents(shape: Iterable[Extent]) -> str:
    return f"[{', '.join(map(_extent, shape))}]"


def _value(graph: Graph, value: Value) -> str:
    layout = "" if value.layout is None else f" layout {show_layout(value.layout)}"
    typed = f"{_text(value.name)}: {value.dtype}{_extents(value.shape)}{layout}"
    array = graph.constants.get(value.name)
    return f"value {typed}" if array is None else f"constant {typed} sha256 {digest(array)[:DIGITS]}"


def show_layout(layout: Layout) -> str:
    """Return `[axes] -> [index along each storage dimension] in [extents]`."""
    return f"[{', '.join(layout.axes)}] -> [{', '.join(notation.show(e) for e in layout.dims)}] in {_extents(layout.shape)}"


def _node(node: Node, programs: dict[str, tuple[str, str]], labels: Mapping[str, str]) -> str:
    match node:
        case Kernel():
            made = f"({_texts(node.inputs)}) -> ({_texts(node.outputs)}) = {_label(node.program, programs)}"
            return f"kernel {_text(node.name)} {made}{''.join(_origin(node, programs))}"
        case Extern(call=call):
            made = f"({_texts(node.inputs)}) -> ({_texts(node.outputs)})"
            return f"extern {_text(node.name)} {made} = {' '.join(_call(call))}{_members(node)}"
        case Loop():
            made = f"({_texts(node.inputs)}) -> ({_texts(node.outputs)})"
            return f"loop {_text(node.name)} {made}{''.join(_flags(node))} = {labels[node.name]}{_members(node)}"
        case View():
            return f"view {_text(node.name)} {_text(node.input)} -> {_text(node.output)}{_members(node)}"
        case Join():
            starts = "" if node.starts is None else f" at {_extents(node.starts)}"
            return f"join {_text(node.name)} ({_texts(node.inputs)}){starts} -> {_text(node.output)}{_members(node)}"
        case Part():
            return f"part {_text(node.name)} {_text(node.input)} at {_extent(node.start)} -> {_text(node.output)}{_members(node)}"
        case _:
            assert_never(node)


def _label(program: Program, programs: dict[str, tuple[str, str]]) -> str:
    return programs.setdefault(f"{program.name} {program_key(program)}", (f"p{len(programs)}", show_program(program)))[0]


def _origin(node: Kernel, programs: dict[str, tuple[str, str]]) -> Iterator[str]:
    if node.forms:
        yield f" forms {json.dumps([(_label(form.program, programs), dict(form.at)) for form in node.forms])}"
    if node.operator:
        yield f" operator {_text(node.operator)}"
    if node.attrs:
        yield f" attrs {json.dumps(dict(node.attrs))}"
    yield _members(node)


def _flags(node: Loop) -> Iterator[str]:
    flags = {"limit": node.has_limit, "condition": node.has_condition, "asks": node.asks}
    yield from (f" {name}" for name, is_set in flags.items() if is_set)
    directions = {"scanned": node.scanned, "made": node.made}
    yield from (f" {name} {json.dumps([int(back) for back in backwards])}" for name, backwards in directions.items() if backwards)


def _members(node: Node) -> str:
    return f" members {json.dumps(list(node.members))}" if node.members else ""


def _call(call: ExternCall) -> Iterator[str]:
    """Yield the parts of the text of a call: operator and function, what it is given, and the kernel with all that it is made of."""
    yield _text(call.operator)
    yield _text(call.symbol)
    yield f"arguments {json.dumps(call.arguments)}"
    yield f"results {json.dumps([(t.name, str(t.dtype), list(map(_told, t.shape)), t.grouping) for t in call.results])}"
    if call.sizes:
        yield f"sizes {json.dumps([tuple(map(_told, s)) if isinstance(s, tuple) else _told(s) for s in call.sizes])}"
    if call.attributes:
        yield f"attributes {json.dumps(call.attributes)}"
    if call.counts:
        yield f"counts {json.dumps(call.counts)}"
    if call.signature is not None:
        yield f"signature {json.dumps(asdict(call.signature))}"
    if isinstance(call.kernel, PythonFunction):  # which no text tells: what is read back has none
        yield f"kernel {json.dumps({'kind': 'PythonFunction', 'name': call.kernel.symbol})}"
    elif call.kernel is not None:
        yield f"kernel {json.dumps({'kind': type(call.kernel).__name__, **asdict(call.kernel)})}"


def _told(size: Affine) -> int | str:
    """Return a size around a call, a number or the text of an expression over symbols, as JSON has it."""
    number = affine.constant(size)
    return notation.show(size) if number is None else number


def _text(name: str) -> str:
    return json.dumps(name)


def _texts(names: tuple[str, ...]) -> str:
    return ", ".join(map(_text, names))
