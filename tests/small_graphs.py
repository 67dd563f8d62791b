"""Small graphs and programs for tests, written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from codegen.dtypes import DType, f32
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Int, Name
from tensorlang.graph.nodes import Graph, Join, Kernel, Node, Part, Value, View
from tensorlang.tensor.interp import interpret
from tensorlang.tensor.nodes import Binary, Binder, Call, Const, Definition, Expr, Piece, Program, Read, Reduce, Reducer, Tensor
from tensorlang.tensor.nodes import Name as Bound

Array = np.ndarray[Any, Any]
SUM = Reducer("sum", ("a",), ("b",), (f32,), (Binary("+", Bound("a"), Bound("b")),), (Const(0.0, f32),), True, "sum")


def at(name: str, *index: str | int | Affine) -> Read:
    return Read(name, tuple(Name(i) if isinstance(i, str) else Int(i) if isinstance(i, int) else i for i in index))


def tensor(name: str, *shape: int, dtype: DType = f32) -> Tensor:
    return Tensor(name, dtype, tuple(Int(n) for n in shape))


def single(name: str, params: list[Tensor], result: Tensor, axes: str, value: Expr) -> Program:
    return Program(name, (), tuple(params), (result.name,), (Definition((result,), tuple(axes), (Piece(value),)),))


def unary(fn: str, *shape: int) -> Program:
    axes = "ijklm"[: len(shape)]
    read = at("x", *axes)
    value: Expr = Binary("max", read, Const(0.0, f32)) if fn == "relu" else Call(fn, (read,))
    return single(fn, [tensor("x", *shape)], tensor("y", *shape), axes, value)


def binary(op: str, *shape: int) -> Program:
    axes = "ijklm"[: len(shape)]
    names = {"+": "add", "*": "mul", "-": "sub"}
    value = Binary(op, at("a", *axes), at("b", *axes))  # type: ignore[arg-type]
    return single(names[op], [tensor("a", *shape), tensor("b", *shape)], tensor("y", *shape), axes, value)


def add_row(m: int, n: int) -> Program:
    return single("add", [tensor("a", m, n), tensor("b", n)], tensor("y", m, n), "ij", Binary("+", at("a", "i", "j"), at("b", "j")))


def matmul(m: int, n: int, k: int) -> Program:
    body = Binary("*", at("a", "i", "k"), at("b", "k", "j"))
    value = Reduce(SUM, (Binder("k", Int(0), Int(k)),), (body,))
    return single("matmul", [tensor("a", m, k), tensor("b", k, n)], tensor("y", m, n), "ij", value)


def conv1x1(n: int, c: int, f: int, w: int) -> Program:
    body = Binary("*", at("x", "n", "c", "p"), at("w", "f", "c"))
    total = Reduce(SUM, (Binder("c", Int(0), Int(c)),), (body,))
    value = Binary("+", at("b", "f"), total)
    return single("conv", [tensor("x", n, c, w), tensor("w", f, c), tensor("b", f)], tensor("y", n, f, w), "nfp", value)


def softmax(m: int, n: int) -> Program:
    top = Reducer("max", ("a",), ("b",), (f32,), (Binary("max", Bound("a"), Bound("b")),), (Const(float("-inf"), f32),), True, "max")
    axes = ("i", "j")
    row = Definition((tensor("m", m),), ("i",), (Piece(Reduce(top, (Binder("k", Int(0), Int(n)),), (at("x", "i", "k"),))),))
    e = Definition((tensor("e", m, n),), axes, (Piece(Call("exp", (Binary("-", at("x", "i", "j"), at("m", "i")),))),))
    s = Definition((tensor("s", m),), ("i",), (Piece(Reduce(SUM, (Binder("q", Int(0), Int(n)),), (at("e", "i", "q"),))),))
    y = Definition((tensor("y", m, n),), axes, (Piece(Binary("/", at("e", "i", "j"), at("s", "i"))),))
    return Program("softmax", (), (tensor("x", m, n),), ("y",), (row, e, s, y))


def graph(
    inputs: dict[str, tuple[int, ...]], nodes: list[Node], outputs: list[str], constants: dict[str, np.ndarray] | None = None
) -> Graph:
    """Return a graph; shapes of results follow from the programs, those of views from `views` in their name `view->2x3`."""
    arrays = constants or {}
    values = {name: Value(name, f32, shape) for name, shape in inputs.items()}
    values |= {name: Value(name, f32, array.shape) for name, array in arrays.items()}
    for node in nodes:
        match node:
            case Kernel(program=program):
                table = {t.name: t for d in program.definitions for t in d.tensors}
                for name, result in zip(node.outputs, program.results, strict=True):
                    values[name] = Value(name, table[result].dtype, tuple(n.value for n in table[result].shape))  # type: ignore[union-attr]
            case View():
                shape = tuple(int(n) for n in node.name.partition("->")[2].split("x"))
                values[node.output] = Value(node.output, values[node.input].dtype, shape)
    return Graph("g", tuple(inputs), tuple(outputs), values, arrays, tuple(nodes))


def kernel(program: Program, inputs: str, output: str, operator: str = "") -> Kernel:
    return Kernel(f"{program.name} {output}", program, tuple(inputs.split()), (output,), operator or program.name)


def run(g: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a graph of row-major values, its kernels interpreted one by one, parts and joins as memory has them."""
    values = dict(g.constants) | dict(feeds)
    for node in g.nodes:
        match node:
            case Kernel():
                named = dict(zip((p.name for p in node.program.params), (values[v] for v in node.inputs), strict=True))
                results = interpret(node.program, {}, named)
                values |= dict(zip(node.outputs, (results[r] for r in node.program.results), strict=True))
            case View():
                values[node.output] = values[node.input].reshape(g.values[node.output].shape)
            case Part():
                shape = g.values[node.output].shape
                first = node.start // values[node.input].itemsize
                values[node.output] = values[node.input].reshape(-1)[first : first + int(np.prod(shape))].reshape(shape)
            case Join():
                values[node.output] = np.concatenate([values[v].reshape(-1) for v in node.inputs]).reshape(g.values[node.output].shape)
    return {name: values[name] for name in g.outputs}
