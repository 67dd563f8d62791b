"""Text to graph: the inverse of `printer.show`, constants given apart because their text is only a hash."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from math import prod
from typing import Any

import numpy as np

from codegen.dtypes import DTYPES, DType
from polyhedral import affine
from polyhedral.expr import Expr as Affine
from polyhedral.expr import Name
from tensorlang.check.instantiate import ArgType, instantiate
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source, error
from tensorlang.externs import CSymbol, CUDASource, LLVMText
from tensorlang.externs import Kernel as Native
from tensorlang.graph.nodes import Attr, Extern, Form, Graph, Join, Kernel, Loop, Node, Part, Value, View
from tensorlang.graph.passes.clean.cse import digest
from tensorlang.graph.printer import DIGITS, INDENT
from tensorlang.graph.sizes import Condition, Symbols, chosen, formula_of, to_expr
from tensorlang.schedule.layout import Layout
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.parse import parse as parse_file
from tensorlang.syntax.parse import parse_expr
from tensorlang.tensor import idioms
from tensorlang.tensor.nodes import ExternCall, ExternSignature, Program, Tensor

Array = np.ndarray[Any, Any]
_LAYOUT = re.compile(r" layout \[(.*?)\] -> \[(.*?)\] in ")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"-?\d+")
_EXTENTS = re.compile(r"\[([^]]*)\]")
_PLACE = re.compile(r"(.*?)(?= -> )")
_ASSUMED = re.compile(r"(.*) (<=|>=|==|!=|<|>) 0$")
_KERNELS = {kind.__name__: kind for kind in (CSymbol, LLVMText, CUDASource)}


@dataclass(slots=True)
class _Line:
    """A line of a graph, read from its beginning on. Raises CompileError O0002 of all methods: where something else stands."""

    text: str
    at: int = 0

    def takes(self, token: str) -> bool:
        """Go past `token` where it stands here, and tell whether it does."""
        found = self.text.startswith(token, self.at)
        self.at += len(token) * found
        return found

    def expect(self, token: str) -> None:
        if not self.takes(token):
            raise _broken(self.text)

    def word(self) -> str:
        found = self.match(_WORD)
        if found is None:
            raise _broken(self.text)
        return found[0]

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        self.at = self.at if found is None else found.end()
        return found

    def value(self, *kinds: type) -> Any:
        """Return the JSON value that stands here, which is of one of `kinds`."""
        try:
            found, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        except ValueError:
            raise _broken(self.text) from None
        if not isinstance(found, kinds) or isinstance(found, bool):
            raise _broken(self.text)
        return found

    def name(self) -> str:
        found: str = self.value(str)
        return found

    def numbers(self) -> tuple[int, ...]:
        return self.all_of(self.value(list), int)

    def extents(self, symbols: Symbols | None) -> tuple[Any, ...]:
        """Return extents in brackets, numbers and sizes."""
        found = self.match(_EXTENTS)
        if found is None:
            raise _broken(self.text)
        return tuple(self.extent_of(part, symbols) for part in _split(found[1]))

    def extent_of(self, text: str, symbols: Symbols | None) -> Any:
        if _NUMBER.fullmatch(text):
            return int(text)
        try:
            found = None if symbols is None else _extent_of(parse_expr(Source("<size>", text)), symbols)
        except CompileError:
            found = None
        if found is None:
            raise _broken(self.text)
        return found

    def names(self) -> tuple[str, ...]:
        """Return names between commas, perhaps none."""
        found = [self.name()] if self.text.startswith('"', self.at) else []
        while found and self.takes(", "):
            found.append(self.name())
        return tuple(found)

    def enclosed(self) -> tuple[str, ...]:
        self.expect("(")
        found = self.names()
        self.expect(")")
        return found

    def members(self) -> tuple[str, ...]:
        """Return the members of a node, where its line ends."""
        found = self.all_of(self.value(list), str) if self.takes(" members ") else ()
        self.end()
        return found

    def end(self) -> None:
        if self.at != len(self.text):
            raise _broken(self.text)

    def all_of(self, values: Sequence[Any], *kinds: type) -> tuple[Any, ...]:
        """Return the values, which are of some kinds."""
        if not all(isinstance(v, kinds) for v in values):
            raise _broken(self.text)
        return tuple(values)


def parse(text: str, constants: Mapping[str, Array]) -> Graph:
    """Return the graph that `show` printed as `text`, with `constants` by name, as `printer.constants_of` has them.

    Raises CompileError: O0002 for a line that is no part of a graph, O0003 for a constant that is missing or is another one."""
    return _graph(text, constants, None)


def _graph(text: str, constants: Mapping[str, Array], outer: Symbols | None) -> Graph:
    """Return a graph; one that is the body of another has the symbols of that."""
    text, *inner = re.split(r"^body (\w+)\n", text, flags=re.MULTILINE)
    head, *bodies = re.split(r"^program (\w+)\n", text, flags=re.MULTILINE)
    programs = {label: _program(label, body) for label, body in zip(bodies[::2], bodies[1::2], strict=True)}
    lines = [line for line in head.split("\n") if line]
    values: dict[str, Value] = {}
    arrays: dict[str, Array] = {}
    assumed: dict[Condition, None] = {}
    nodes: list[Node] = []
    symbols = outer or (Symbols({}) if any(line.startswith("size ") for line in lines) else None)
    for line in map(_Line, lines[3:]):
        kind = line.word()
        line.expect(" ")
        match kind:
            case "size" | "assume" if outer is not None:
                pass  # as those of the graph around this one
            case "size" if symbols is not None:
                _size_line(line, symbols)
            case "assume" if symbols is not None:
                assumed[_assumption(line, symbols)] = None
            case "value" | "constant":
                value, hashed = _value(line, symbols)
                values[value.name] = value
                if hashed is not None:
                    arrays[value.name] = _constant(value.name, hashed, constants)
            case "kernel":
                nodes.append(_kernel(line, programs))
            case "extern":
                nodes.append(_extern(line, symbols))
            case "loop":
                nodes.append(_loop(line, dict(zip(inner[::2], inner[1::2], strict=True)), constants, symbols))
            case "join":
                nodes.append(_join(line, symbols))
            case "part":
                nodes.append(_part(line, symbols))
            case "view":
                nodes.append(_view(line))
            case _:
                raise _broken(line.text)
    name, inputs, outputs = _heading(lines)
    if symbols is not None and outer is None:
        symbols.assumed = assumed
    return Graph(name[0], inputs, outputs, values, arrays, tuple(nodes), symbols)


def _size_line(line: _Line, symbols: Symbols) -> None:
    """Enter a symbol: one of the inputs with its sample, or what one stands for."""
    name = line.name()
    if symbols.knows(name):
        raise _broken(line.text)
    if line.takes(" sample "):
        symbols.samples[name] = line.value(int)
        line.end()
        return
    line.expect(" = ")
    symbols.products[name] = formula_of(line.extent_of(line.text[line.at :], symbols))


def _assumption(line: _Line, symbols: Symbols) -> Condition:
    found = line.match(_ASSUMED)
    if found is None:
        raise _broken(line.text)
    relation: Any = found[2]
    return Condition(formula_of(line.extent_of(found[1], symbols)), relation)


def _extent_of(e: sx.Expr, symbols: Symbols) -> Any:
    """Return a number or size that is written as an expression over symbols; None for what is none."""
    match e:
        case sx.Number(text):
            return int(text)
        case sx.Id(name) if symbols.knows(name):
            return symbols.size(Name(name))
        case sx.Unary("-", value):
            found = _extent_of(value, symbols)
            return None if found is None else -found
        case sx.Binary(op, lhs, rhs) if op in _ARITHMETIC:
            a, b = _extent_of(lhs, symbols), _extent_of(rhs, symbols)
            return None if a is None or b is None else _ARITHMETIC[op](a, b)
        case sx.Apply("min" | "max" as which, (lhs, rhs)) if not isinstance(lhs, sx.Keyword) and not isinstance(rhs, sx.Keyword):
            a, b = _extent_of(lhs, symbols), _extent_of(rhs, symbols)
            return None if a is None or b is None else chosen(which, a, b, symbols)
        case _:
            return None


_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def _heading(lines: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the names in the first three lines: of the graph, of its inputs, of its outputs."""
    if len(lines) < 3:
        raise _broken(lines[0] if lines else "")
    for line, word, some in zip(map(_Line, lines), ("graph", "inputs", "outputs"), (True, False, False), strict=False):
        line.expect(word)
        names = line.names() if line.takes(" ") else ()
        line.end()
        if some and len(names) != 1:
            raise _broken(line.text)
        yield names


def _program(label: str, text: str) -> Program:
    """Return the program of an `op`, instantiated for the types that it declares."""
    module = replace(load_module(parse_file(Source(label, text))), trusted=True)
    [declared] = [module.operators[name] for name in module.declared]
    types, sizes = [], dict[str, Any]()
    for param in declared.params:
        if param.kind == "size":
            sizes[param.name] = param.name
            continue
        if not isinstance(param.type, sx.TensorType):
            raise _broken(text.split("\n")[0])
        types.append(ArgType(DTYPES[param.type.dtype], tuple(_extent(d) for d in param.type.dims or ())))
    return _with_idioms(instantiate(module, declared.name, types, sizes=sizes), text)


def _with_idioms(program: Program, text: str) -> Program:
    """Return `program` with the idioms that its text says."""
    for line in text.split("\n"):
        if line.startswith(idioms.MARK):
            found = idioms.parse(line)
            if found is None or idioms.refusal(found, program):
                raise _broken(line)
            program = replace(program, idioms=(*program.idioms, found))
    return program


def _extent(dim: sx.Expr | sx.Broadcast | sx.Each) -> Any:
    """Return an extent of a parameter: a number, or an expression over sizes."""
    match dim:
        case sx.TupleOf(items) if all(isinstance(item, sx.Number) for item in items):
            return prod(map(_extent, items))
        case sx.Number(text):
            return int(text)
        case sx.Broadcast() | sx.Each():
            raise _broken(f"no extent of a parameter: {dim}")
        case _:
            return _affine(dim)


def _value(line: _Line, symbols: Symbols | None) -> tuple[Value, str | None]:
    name = line.name()
    line.expect(": ")
    dtype, shape = _dtype(line, line.word()), line.extents(symbols)
    layout = None
    found = line.match(_LAYOUT)
    if found is not None:
        axes = tuple(a.strip() for a in found[1].split(",") if a.strip())
        dims = tuple(_affine(parse_expr(Source("<layout>", e))) for e in _split(found[2]))
        layout = Layout(axes, dims, line.extents(symbols))
    hashed = line.word() if line.takes(" sha256 ") else None
    line.end()
    return Value(name, dtype, shape, layout), hashed


def _dtype(line: _Line, name: str) -> DType:
    if name not in DTYPES:
        raise _broken(line.text)
    return DTYPES[name]


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


def _kernel(line: _Line, programs: Mapping[str, Program]) -> Kernel:
    name, (inputs, outputs) = line.name(), _bound(line)
    label = line.word()
    if label not in programs:
        raise _broken(line.text)
    forms = tuple(_form(line, one, programs) for one in line.value(list)) if line.takes(" forms ") else ()
    operator = line.name() if line.takes(" operator ") else ""
    attrs = tuple((k, _attr(v)) for k, v in (line.value(dict) if line.takes(" attrs ") else {}).items())
    return Kernel(name, programs[label], inputs, outputs, operator, attrs, line.members(), forms)


def _form(line: _Line, form: object, programs: Mapping[str, Program]) -> Form:
    match form:
        case [str(label), dict(at)] if label in programs and all(type(n) is int for n in at.values()):
            return Form(programs[label], tuple(at.items()))
        case _:
            raise _broken(line.text)


def _bound(line: _Line) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the inputs and outputs of a node."""
    line.expect(" ")
    inputs = line.enclosed()
    line.expect(" -> ")
    outputs = line.enclosed()
    line.expect(" = ")
    return inputs, outputs


def _attr(value: Any) -> Attr:
    result: Attr = tuple(value) if isinstance(value, list) else value
    return result


def _extern(line: _Line, symbols: Symbols | None) -> Extern:
    name, (inputs, outputs) = line.name(), _bound(line)
    operator = line.name()
    line.expect(" ")
    symbol = line.name()
    line.expect(" arguments ")
    arguments = line.all_of(line.value(list), str, type(None))
    line.expect(" results ")
    results = tuple(_result(line, given, symbols) for given in line.value(list))
    sizes = tuple(_size(line, given, symbols) for given in (line.value(list) if line.takes(" sizes ") else ()))
    attributes = line.all_of(line.value(list), int, float) if line.takes(" attributes ") else ()
    counts = line.all_of(line.value(list), int, type(None)) if line.takes(" counts ") else ()
    signature = _signature(line, line.value(dict)) if line.takes(" signature ") else None
    kernel = _native(line, line.value(dict)) if line.takes(" kernel ") else None
    call = ExternCall(operator, arguments, results, sizes, attributes, kernel, symbol, counts, signature)
    return Extern(name, call, inputs, outputs, line.members())


def _loop(line: _Line, bodies: Mapping[str, str], constants: Mapping[str, Array], symbols: Symbols | None) -> Loop:
    name = line.name()
    line.expect(" ")
    inputs = line.enclosed()
    line.expect(" -> ")
    outputs = line.enclosed()
    limit, condition, asks = (line.takes(f" {flag}") for flag in ("limit", "condition", "asks"))
    scanned, made = (tuple(map(bool, line.numbers())) if line.takes(f" {flag} ") else () for flag in ("scanned", "made"))
    line.expect(" = ")
    label = line.word()
    if label not in bodies:
        raise _broken(line.text)
    own = {key.removeprefix(f"{label}/"): array for key, array in constants.items() if key.startswith(f"{label}/")}
    body = _graph(re.sub(f"^{INDENT}", "", bodies[label], flags=re.MULTILINE), own, symbols)
    return Loop(name, body, inputs, outputs, limit, condition, asks, scanned, made, line.members())


def _signature(line: _Line, given: dict[str, Any]) -> ExternSignature:
    match given:
        case {"text": str(text), "tensors": [*tensors], "sizes": [*sizes], "attributes": [*attributes], **rest} if not rest:
            tensors_, sizes_ = line.all_of(tensors, str, type(None)), line.all_of(sizes, str, type(None))
            return ExternSignature(text, tensors_, sizes_, line.all_of(attributes, str))
        case _:
            raise _broken(line.text)


def _result(line: _Line, given: object, symbols: Symbols | None) -> Tensor:
    match given:
        case [str(name), str(dtype), [*shape], [*grouping]]:
            sizes = tuple(_told(line, size, symbols) for size in shape)
            return Tensor(name, _dtype(line, dtype), sizes, line.all_of(grouping, int))
        case _:
            raise _broken(line.text)


def _size(line: _Line, given: object, symbols: Symbols | None) -> Affine | tuple[Affine, ...]:
    if isinstance(given, list):
        return tuple(_told(line, size, symbols) for size in given)
    return _told(line, given, symbols)


def _told(line: _Line, given: object, symbols: Symbols | None) -> Affine:
    """Return a size around a call: a number, or an expression over symbols."""
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise _broken(line.text)
    return affine.to_expr(given) if isinstance(given, int) else to_expr(line.extent_of(given, symbols))


def _native(line: _Line, given: dict[str, Any]) -> Native:
    kind = _KERNELS.get(str(given.pop("kind", "")))
    if kind is None or set(given) != {f.name for f in fields(kind)}:
        raise _broken(line.text)
    texts = {f.name: given[f.name] for f in fields(kind) if f.default is MISSING}
    others = {f.name: _native_option(line, given[f.name]) for f in fields(kind) if f.default is not MISSING}
    return kind(*line.all_of(list(texts.values()), str), **others)


def _native_option(line: _Line, given: object) -> Any:
    """Return a number of a kernel, or the features that it needs."""
    if given is None or type(given) is int:
        return given
    if isinstance(given, list):
        return tuple(line.all_of(given, str))
    raise _broken(line.text)


def _view(line: _Line) -> View:
    name, input, output = line.name(), _after(line, " "), _after(line, " -> ")
    return View(name, input, output, line.members())


def _after(line: _Line, token: str) -> str:
    line.expect(token)
    return line.name()


def _join(line: _Line, symbols: Symbols | None) -> Join:
    name = line.name()
    line.expect(" ")
    inputs = line.enclosed()
    starts = line.extents(symbols) if line.takes(" at ") else None
    if starts is not None and len(starts) != len(inputs):
        raise _broken(line.text)
    return Join(name, inputs, _after(line, " -> "), line.members(), starts)


def _part(line: _Line, symbols: Symbols | None) -> Part:
    name, input = line.name(), _after(line, " ")
    line.expect(" at ")
    found = line.match(_PLACE)
    if found is None:
        raise _broken(line.text)
    start = line.extent_of(found[1], symbols)
    return Part(name, input, _after(line, " -> "), start, line.members())


def _constant(name: str, hashed: str, constants: Mapping[str, Array]) -> Array:
    if name not in constants:
        raise error("O0003", f"the constant `{name}` is not given")
    if digest(constants[name])[:DIGITS] != hashed:
        raise error("O0003", f"the constant `{name}` is not the one that the graph was printed with")
    return constants[name]


def _broken(line: str) -> CompileError:
    return error("O0002", "this line is no part of a graph", notes=(line,))
