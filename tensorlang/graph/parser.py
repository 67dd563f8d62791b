"""Text to graph: the inverse of `printer.show`, constants given apart because their text is only a hash."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source, error
from tensorlang.graph.nodes import Attr, Graph, Join, Kernel, Node, Part, Value, View
from tensorlang.graph.passes.clean.cse import digest
from tensorlang.graph.printer import DIGITS
from tensorlang.schedule.layout import Layout
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse as parse_file
from tensorlang.syntax.parse import parse_expr
from tensorlang.tensor import idioms
from tensorlang.tensor.nodes import Program

Array = np.ndarray[Any, Any]
_NAME = r'("(?:[^"\\]|\\.)*")'
_VALUE = re.compile(rf"(value|constant) {_NAME}: (\w+)(\[[^\]]*\])(?: layout \[(.*?)\] -> \[(.*?)\] in (\[[^\]]*\]))?(?: sha256 (\w+))?")
_KERNEL = re.compile(rf"kernel {_NAME} \((.*?)\) -> \((.*?)\) = (\w+)(?: operator {_NAME})?(?: attrs (\{{.*?\}}))?(?: members (\[.*\]))?")
_JOIN = re.compile(rf"join {_NAME} \((.*?)\) -> {_NAME}(?: members (\[.*\]))?")
_PART = re.compile(rf"part {_NAME} {_NAME} at (\d+) -> {_NAME}(?: members (\[.*\]))?")
_VIEW = re.compile(rf"view {_NAME} {_NAME} -> {_NAME}(?: members (\[.*\]))?")


def parse(text: str, constants: Mapping[str, Array]) -> Graph:
    """Return the graph that `show` printed as `text`, with `constants` by name.

    Raises CompileError: O0002 for a line that is no part of a graph, O0003 for a constant that is missing or is another one."""
    head, *bodies = re.split(r"^program (\w+)\n", text, flags=re.MULTILINE)
    programs = {label: _program(label, body) for label, body in zip(bodies[::2], bodies[1::2], strict=True)}
    lines = [line for line in head.split("\n") if line]
    values: dict[str, Value] = {}
    arrays: dict[str, Array] = {}
    nodes: list[Node] = []
    for line in lines[3:]:
        kind = line.partition(" ")[0]
        if kind in ("value", "constant"):
            value, hashed = _value(line)
            values[value.name] = value
            if hashed is not None:
                arrays[value.name] = _constant(value.name, hashed, constants)
        elif kind == "kernel":
            nodes.append(_kernel(line, programs))
        elif kind == "join":
            nodes.append(_join(line))
        elif kind == "part":
            nodes.append(_part(line))
        else:
            nodes.append(_view(line))
    name, inputs, outputs = (_names(line.partition(" ")[2]) for line in _three(lines))
    return Graph(name[0], inputs, outputs, values, arrays, tuple(nodes))


def _three(lines: list[str]) -> list[str]:
    if [line.partition(" ")[0] for line in lines[:3]] != ["graph", "inputs", "outputs"]:
        raise _broken(lines[0] if lines else "")
    return lines[:3]


def _program(label: str, text: str) -> Program:
    """Return the program of an `op`, instantiated for the types that it declares."""
    module = load_module(parse_file(Source(label, text)))
    [operator] = [module.operators[name] for name in module.declared]
    types = []
    for param in operator.params:
        if not isinstance(param.type, sx.TensorType):
            raise _broken(text.split("\n")[0])
        types.append(ArgType(DTYPES[param.type.dtype], tuple(_extent(d) for d in param.type.dims or ())))
    return _with_idioms(instantiate(module, operator.name, types), text)


def _with_idioms(program: Program, text: str) -> Program:
    """Return `program` with the idioms that its text says."""
    for line in text.split("\n"):
        if line.startswith(idioms.MARK):
            found = idioms.parse(line)
            if found is None or idioms.refusal(found, program):
                raise _broken(line)
            program = replace(program, idioms=(*program.idioms, found))
    return program


def _extent(dim: object) -> int:
    match dim:
        case sx.Number(text):
            return int(text)
        case sx.TupleOf(items):
            total = 1
            for item in items:
                total *= _extent(item)
            return total
        case _:
            raise _broken(f"an extent that is no number: {dim}")


def _value(line: str) -> tuple[Value, str | None]:
    found = _VALUE.fullmatch(line)
    if found is None or found[3] not in DTYPES:
        raise _broken(line)
    layout = None
    if found[5] is not None:
        axes = tuple(a.strip() for a in found[5].split(",") if a.strip())
        layout = Layout(axes, tuple(_affine(parse_expr(Source("<layout>", e))) for e in _split(found[6])), tuple(json.loads(found[7])))
    return Value(json.loads(found[2]), DTYPES[found[3]], tuple(json.loads(found[4])), layout), found[8]


def _split(text: str) -> list[str]:
    """Return the parts between commas that no parenthesis encloses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


def _affine(e: sx.Expr) -> Affine:
    match e:
        case sx.Number(text):
            return affine.to_expr(int(text))
        case sx.Id(name):
            return affine.to_expr(name)
        case sx.Binary("+", lhs, rhs):
            return affine.add(_affine(lhs), _affine(rhs))
        case sx.Binary("-", lhs, rhs):
            return affine.sub(_affine(lhs), _affine(rhs))
        case sx.Binary("*", lhs, sx.Number(text)) | sx.Binary("*", sx.Number(text), lhs):
            return affine.scale(int(text), _affine(lhs))
        case sx.Binary("//", lhs, sx.Number(text)):
            return affine.floor(_affine(lhs), int(text))
        case sx.Binary("%", lhs, sx.Number(text)):
            return affine.mod(_affine(lhs), int(text))
        case sx.Unary("-", value):
            return affine.neg(_affine(value))
        case _:
            raise _broken("a layout that is not affine")


def _kernel(line: str, programs: Mapping[str, Program]) -> Kernel:
    found = _KERNEL.fullmatch(line)
    if found is None or found[4] not in programs:
        raise _broken(line)
    attrs = tuple((name, _attr(value)) for name, value in json.loads(found[6] or "{}").items())
    operator = json.loads(found[5]) if found[5] else ""
    return Kernel(
        json.loads(found[1]), programs[found[4]], _names(found[2]), _names(found[3]), operator, attrs, tuple(json.loads(found[7] or "[]"))
    )


def _attr(value: Any) -> Attr:
    result: Attr = tuple(value) if isinstance(value, list) else value
    return result


def _view(line: str) -> View:
    found = _VIEW.fullmatch(line)
    if found is None:
        raise _broken(line)
    return View(json.loads(found[1]), json.loads(found[2]), json.loads(found[3]), tuple(json.loads(found[4] or "[]")))


def _join(line: str) -> Join:
    found = _JOIN.fullmatch(line)
    if found is None:
        raise _broken(line)
    return Join(json.loads(found[1]), _names(found[2]), json.loads(found[3]), tuple(json.loads(found[4] or "[]")))


def _part(line: str) -> Part:
    found = _PART.fullmatch(line)
    if found is None:
        raise _broken(line)
    return Part(json.loads(found[1]), json.loads(found[2]), json.loads(found[4]), int(found[3]), tuple(json.loads(found[5] or "[]")))


def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(f"[{text}]"))


def _constant(name: str, hashed: str, constants: Mapping[str, Array]) -> Array:
    if name not in constants:
        raise error("O0003", f"the constant `{name}` is not given")
    if digest(constants[name])[:DIGITS] != hashed:
        raise error("O0003", f"the constant `{name}` is not the one that the graph was printed with")
    return constants[name]


def _broken(line: str) -> CompileError:
    return error("O0002", "this line is no part of a graph", notes=(line,))
