"""Syntax tree to canonical text: `parse(show(file)) == file`.

`show` writes every clause, directive and header on one line, however long; format.py wraps and aligns. Parentheses stand where the grammar
needs them, and around a product under `max` or `min`, where a reader might end the body too early.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

from tensorlang.diagnostics import InternalError
from tensorlang.syntax.nodes import (
    Apply,
    Binary,
    Broadcast,
    Chain,
    Clause,
    Compare,
    Declaration,
    Directive,
    Each,
    Expr,
    File,
    From,
    Generic,
    Id,
    IfElse,
    Index,
    Keyword,
    Knob,
    Knobs,
    Layout,
    LetIn,
    Link,
    Member,
    Node,
    Number,
    Operator,
    Pack,
    Param,
    Phrase,
    Place,
    Range,
    Reducer,
    Reduction,
    Role,
    ScalarFunction,
    Schedule,
    Tactic,
    Target,
    TensorType,
    Text,
    TupleOf,
    Unary,
    Use,
    UsedName,
)
from tensorlang.syntax.scanner import NAME, PREPOSITIONS, RESERVED

INDENT = "    "

# How tightly an expression binds, loosest first: the nonterminals of grammar.lark.
_EXPR, _OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _UNARY, _ATOM = range(9)
_BINARY = {"or": _OR, "and": _AND, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}
_PLAIN = re.compile(NAME)
_DOTTED = re.compile(rf"{NAME}(\.[A-Za-z_0-9]+)*")
_SIMPLE_BOUND = re.compile(r"[A-Za-z_0-9]+( [-+*] [A-Za-z_0-9]+)*")
"""Bounds that are written without spaces: `1..N-1`."""
_CONFUSING = frozenset(("max", "min"))


def show(node: Node) -> str:
    """Return the canonical text of a node."""
    match node:
        case File(declarations):
            return "".join(show(declaration) + "\n" for declaration in declarations)
        case Use() | Operator() | ScalarFunction() | Reducer() | Schedule() | Tactic():
            return _declaration(node)
        case Directive() | Knobs() | Phrase() | Knob() | Role() | Layout():
            return _Words(schedule=True).schedule_part(node)
        case _:
            return _Words().node(node)


def header(declaration: Operator | Schedule | Tactic) -> str:
    """Return what stands before the braces."""
    match declaration:
        case Operator():
            return _operator_header(declaration)
        case Schedule():
            return _schedule_header(declaration)
        case Tactic(name, params):
            words = _Words(schedule=True)
            return f"tactic {words.name(name)}({_commas(map(words.name, params))})"
        case _:
            assert_never(declaration)


def lines(declaration: Operator | Schedule | Tactic) -> tuple[str, ...]:
    """Return what stands inside the braces, one text for each clause or directive."""
    match declaration:
        case Operator():
            words = _Words()
            return tuple(words.node(clause) for clause in declaration.clauses)
        case Schedule() | Tactic():
            words = _Words(schedule=True)
            return tuple(words.schedule_part(directive) for directive in declaration.body)
        case _:
            assert_never(declaration)


def clause_parts(clause: Clause) -> tuple[str, str, str]:
    """Return the targets, the value, and the tail (empty without one) of a clause."""
    words = _Words()
    return words.targets(clause), words.expr(clause.value), words.tail(clause)


def has_braces(declaration: Declaration) -> bool:
    """An `extern op` may go without a body."""
    match declaration:
        case Operator():
            return bool(declaration.clauses) or not declaration.extern
        case Schedule() | Tactic():
            return True
        case Use() | ScalarFunction() | Reducer():
            return False
        case _:
            assert_never(declaration)


def _declaration(node: Declaration) -> str:
    match node:
        case Operator() | Schedule() | Tactic():
            if not has_braces(node):
                return header(node)
            inside = "".join(f"{INDENT}{line}\n" for line in lines(node))
            return f"{header(node)} {{\n{inside}}}"
        case ScalarFunction(name, generics, params, value):
            words = _Words()
            formals = _commas(words.name(p) if type is None else f"{words.name(p)}: {words.name(type)}" for p, type in params)
            return f"fn {words.name(name)}{words.generics(generics)}({formals}) = {words.expr(value)}"
        case Reducer():
            return _reducer(node)
        case Use():
            return _use(node)
        case _:
            assert_never(node)


def _use(node: Use) -> str:
    words = _Words()
    place = _quote(node.place.value) if isinstance(node.place, Text) else words.qualified(node.place.name)
    text = f"use {place} ({_commas(map(words.node, node.names))})" if node.names else f"use {place}"
    return text if node.alias is None else f"{text} as {words.name(node.alias)}"


def _operator_header(node: Operator) -> str:
    words = _Words()
    prefix = f"{'extern ' if node.extern else ''}{f'{node.mode} ' if node.mode else ''}"
    start = f"{prefix}{'instruction' if node.needs else 'op'} {words.name(node.name)}{words.generics(node.generics)}"
    where = f" where {_commas(map(words.item, node.where))}" if node.where else ""
    where += f" for {_commas(map(words.name, node.needs))}" if node.needs else ""
    where += f" llvm {_quote(node.llvm)}" if node.llvm is not None else ""
    where += f" where {_commas(map(words.place, node.places))}" if node.places else ""
    return f"{start}({_commas(map(words.param, node.params))}) -> ({_commas(map(words.param, node.results))}){where}"


def _schedule_header(node: Schedule) -> str:
    words = _Words(schedule=True)
    guards = f"({_commas(map(words.item, node.guards))})" if node.guards else ""
    subject = words.name(node.operator) if node.role is None else words.schedule_part(node.role)
    return f"schedule {subject} for {words.name(node.target)}{guards}"


def _reducer(node: Reducer) -> str:
    words = _Words(reducer=True)
    text = f"{'ordered ' if node.ordered else ''}reducer {words.name(node.name)}{words.generics(node.generics)} "
    text += f"{words.pattern(node.left)} {words.pattern(node.right)} from {words.expr(node.identity, _UNARY)} = {words.expr(node.combine)}"
    if node.lift is not None:
        value, index, lifted = node.lift
        at = "" if index is None else f" at {words.name(index)}"
        text += f" lift {words.name(value)}{at} = {words.expr(lifted)}"
    if node.project is not None:
        names, projected = node.project
        text += f" yield {words.pattern(names)} = {words.expr(projected)}"
    return text


def _commas(parts: Iterable[str]) -> str:
    return ", ".join(parts)


class _Words:
    """Writes nodes where the words that are keywords depend on the place: in a schedule, in a reducer, elsewhere."""

    def __init__(self, *, schedule: bool = False, reducer: bool = False) -> None:
        self._plain = _DOTTED if schedule else _PLAIN
        self._keywords = RESERVED | (PREPOSITIONS if schedule else frozenset()) | (frozenset(("lift", "yield")) if reducer else frozenset())

    # ---- names

    def name(self, name: str) -> str:
        if self._plain.fullmatch(name) and name not in self._keywords:
            return name
        if not name or "`" in name or "\n" in name:
            raise InternalError("show", f"the name {name!r} cannot be written")
        return f"`{name}`"

    def qualified(self, name: str) -> str:
        """Return a name where one with dots may stand without quotes."""
        return name if "." in name and _DOTTED.fullmatch(name) else self.name(name)

    def argument(self, node: Expr | From | Each) -> str:
        """Return the text of a whole argument of a call."""
        match node:
            case Keyword(name, Id(value)):
                return f"{self.name(name)} = {self.qualified(value)}"
            case Id(name):
                return self.qualified(name)
            case _:
                return self.item(node)

    def pattern(self, names: tuple[str, ...]) -> str:
        return self.name(names[0]) if len(names) == 1 else f"({_commas(map(self.name, names))})"

    def generics(self, generics: tuple[Generic, ...]) -> str:
        return f"[{_commas(map(self.node, generics))}]" if generics else ""

    # ---- expressions

    def expr(self, node: Expr | From, level: int = _EXPR) -> str:
        """Return the text of an expression, in parentheses if it binds less tightly than `level`."""
        text, own = self._expr(node)
        return text if own >= level else f"({text})"

    def item(self, node: Expr | From | Each) -> str:
        """Return the text of what stands between commas, where packs, arguments and binders may stand as well."""
        match node:
            case Keyword(name, value):
                return f"{self.name(name)} = {self.expr(value)}"
            case From(value):
                return f"from {self.expr(value)}"
            case Each(name):
                return f"each {self.name(name)}"
            case Pack(value):
                return f"{self.expr(value, _ATOM)}.."
            case Member(Pack() as value, range):
                return f"{self.item(value)} in {self.range(range)}"
            case _:
                return self.expr(node)

    def place(self, node: Place) -> str:
        return f"{self.expr(node.element)} in {self.name(node.scope)}({self.expr(node.lane)}, {self.expr(node.register)})"

    def items(self, nodes: Iterable[Expr | From | Each]) -> str:
        return _commas(map(self.item, nodes))

    def range(self, node: Range) -> str:
        lo, hi = (
            text.replace(" ", "") if _SIMPLE_BOUND.fullmatch(text) else text
            for text in (self.expr(node.lo, _SUM), self.expr(node.hi, _SUM))
        )
        return f"{lo}..{hi}"

    def _expr(self, node: Expr | From) -> tuple[str, int]:
        match node:
            case Number(text):
                return text, _ATOM
            case Text(value):
                return _quote(value), _ATOM
            case Id(name):
                return self.name(name), _ATOM
            case TupleOf((single,)) if not isinstance(single, Pack):
                return f"({self.item(single)},)", _ATOM
            case TupleOf(items):
                return f"({self.items(items)})", _ATOM
            case Index(name, slots, mode):
                outside = "" if mode is None else f"{' ' if slots else ''}| {self.expr(mode)}"
                return f"{self.name(name)}[{self.items(slots)}{outside}]", _ATOM
            case Apply(name, args, slots):
                return f"{self.qualified(name)}{self._accumulator(slots)}({_commas(map(self.argument, args))})", _ATOM
            case Reduction(reducer, acc, binders, body):
                return f"{self.qualified(reducer)}{self._accumulator(acc)}({self.items(binders)}) {self._body(reducer, body)}", _PRODUCT
            case Unary("not", value):
                return f"not {self.expr(value, _NOT)}", _NOT
            case Unary(op, value):
                signed = _signed_reduction(value)
                return f"{op}{self.expr(value, _PRODUCT if signed else _UNARY)}", _PRODUCT if signed else _UNARY
            case Binary(op, lhs, rhs) if _BINARY[op] == _PRODUCT:
                left = self.expr(lhs, _UNARY if op == "*" and _is_open(lhs) else _PRODUCT)
                return f"{left} {op} {self._factor(rhs)}", _PRODUCT
            case Binary(op, lhs, rhs):
                level = _BINARY[op]
                if op == "-" and isinstance(lhs, Reduction):  # it ends there, which is easily overlooked
                    return f"({self.expr(lhs)}) - {self._term(op, rhs, level + 1)}", level
                return f"{self._term(op, lhs, level)} {op} {self._term(op, rhs, level + 1)}", level
            case Chain():
                return self._chain(node)
            case Compare(items, ops):
                rest = (f" {op} {self.expr(item, _SUM)}" for op, item in zip(ops, items[1:], strict=True))
                return self.expr(items[0], _SUM) + "".join(rest), _COMPARISON
            case Member(value, range):
                return f"{self.expr(value, _SUM)} in {self.range(range)}", _COMPARISON
            case IfElse(cond, then, orelse):
                return f"if {self.expr(cond)} then {self.expr(then)} else {self.expr(orelse)}", _EXPR
            case LetIn(name, value, body):
                return f"let {self.name(name)} = {self.expr(value, _SUM)} in {self.expr(body)}", _EXPR
            case Pack() | Keyword() | From():
                return self.item(node), _ATOM
            case _:
                assert_never(node)

    def _term(self, op: str, node: Expr, level: int) -> str:
        """Return an operand; in a sum a product of names and numbers has no blanks: `p*stride + r`."""
        match node:
            case Binary("*", Id() | Number() as lhs, Id() | Number() as rhs) if op in ("+", "-"):
                return f"{self.expr(lhs)}*{self.expr(rhs)}"
            case _:
                return self.expr(node, level)

    def _chain(self, node: Chain) -> tuple[str, int]:
        """Return the text of a chain; a reduction in it ends where parentheses do, or else what follows it would be part of its body."""
        level = _BINARY[node.rest[0].op]
        if level != _PRODUCT:
            links = (f" {link.op} {self._term(link.op, link.rhs, level + 1)}" for link in node.rest)
            early = node.rest[0].op == "-" and isinstance(node.first, Reduction)
            first = f"({self.expr(node.first)})" if early else self._term(node.rest[0].op, node.first, level)
            return first + "".join(links), level
        text, is_open = [self.expr(node.first, _PRODUCT)], _is_open(node.first)
        for link in node.rest:
            if is_open and link.op == "*":
                text = ["(", *text, ")"]
            text.append(f" {link.op} {self._factor(link.rhs)}")
            is_open = _signed_reduction(link.rhs)
        return "".join(text), _PRODUCT

    def _accumulator(self, slots: tuple[Expr, ...]) -> str:
        return f"[{self.items(slots)}]" if slots else ""

    def _factor(self, node: Expr) -> str:
        """Return the right side of a product: something unary, or a reduction, whose body then ends the product."""
        return self.expr(node, _PRODUCT if _signed_reduction(node) else _UNARY)

    def _body(self, reducer: str, body: Expr) -> str:
        is_product = isinstance(body, Binary | Chain)
        if _is_body(body) and not (is_product and reducer in _CONFUSING):
            return self.expr(body, _PRODUCT)
        return self.expr(body, _ATOM)

    # ---- operators

    def param(self, node: Param) -> str:
        words = {"tensor": "", "attr": "attr ", "size": "size "}[node.kind]
        text = f"{words}{'each ' if node.each else ''}{self.name(node.name)}{'..' if node.pack else ''}"
        match node.type:
            case None:
                pass
            case Id("fn"):
                text += ": fn"
            case type:
                text += f": {self.node(type)}"
        text += "" if node.range is None else f" in {self.range(node.range)}"
        return text if node.default is None else f"{text} = {self.argument(node.default)}"

    def targets(self, node: Clause) -> str:
        return _commas(map(self.node, node.targets))

    def tail(self, node: Clause) -> str:
        if node.otherwise:
            return "otherwise"
        return f"for {self.items(node.conds)}" if node.conds else ""

    def node(self, node: Node) -> str:
        match node:
            case Clause():
                tail = self.tail(node)
                return f"{self.targets(node)} = {self.expr(node.value)}{'   ' if tail else ''}{tail}"
            case Target(name, slots, type):
                indices = "" if slots is None else f"[{self.items(slots)}]"
                return f"{self.name(name)}{indices}{'' if type is None else f': {self.node(type)}'}"
            case Param():
                return self.param(node)
            case TensorType(dtype, dims):
                return self.name(dtype) + ("" if dims is None else f"[{_commas(map(self.node, dims))}]")
            case Broadcast(value):
                return f"broadcast {self.item(value)}"
            case Generic(name, bound):
                return self.name(name) if bound is None else f"{self.name(name)}: {self.name(bound)}"
            case Range():
                return self.range(node)
            case UsedName(name, alias):
                return self.name(name) if alias is None else f"{self.name(name)} as {self.name(alias)}"
            case _:
                return self.item(node)  # type: ignore[arg-type]

    # ---- schedules

    def operand(self, node: Expr | Layout) -> str:
        match node:
            case Layout(dims):
                return f"[{self.items(dims)}]"
            case Pack():
                return self.item(node)
            case Compare():
                return self.expr(node)
            case Apply(name, args, ()):
                return f"{self.name(name)} ({self.items(args)})"
            case _:
                return self.expr(node, _SUM)

    def schedule_part(self, node: Directive | Knobs | Knob | Phrase | Role | Layout) -> str:
        match node:
            case Layout():
                return self.operand(node)
            case Phrase(":", operands):
                return f": {_commas(map(self.operand, operands))}"
            case Phrase(preposition, operands):
                return f" {preposition} {_commas(map(self.operand, operands))}"
            case Knob(name, choices):
                return f"{self.name(name)} in {{{_commas(map(self.expr, choices))}}}"
            case Knobs(knobs):
                return f"knobs {_commas(map(self.schedule_part, knobs))}"
            case Role():
                return f"role {self._pattern(node)}"
            case Directive():
                return self._directive(node)
            case _:
                assert_never(node)

    def _pattern(self, role: Role) -> str:
        return f"{self.name(role.name)}({'; '.join(_commas(map(self._role_name, group)) for group in role.groups)})"

    def _role_name(self, name: str) -> str:
        return f"{self.name(name.removesuffix('..'))}.." if name.endswith("..") else self.name(name)

    def _directive(self, node: Directive) -> str:
        name = node.name if node.name in PREPOSITIONS else self.name(node.name)
        only_if = f" if {self.expr(node.condition, _OR)}" if node.condition is not None else ""
        for_each = f" for {self._pattern(node.pattern)}" if node.pattern is not None else ""
        if node.call:
            return f"{name}({self.items(_arguments(node))}){for_each}{only_if}"
        operands = f" {_commas(map(self.operand, node.operands))}" if node.operands else ""
        results = f" -> {_commas(map(self.name, node.results))}" if node.results else ""
        return f"{name}{operands}{''.join(map(self.schedule_part, node.phrases))}{results}{for_each}{only_if}"


def _arguments(node: Directive) -> tuple[Expr, ...]:
    if any(isinstance(operand, Layout) for operand in node.operands):
        raise InternalError("show", f"a layout is no argument of the tactic `{node.name}`")
    return tuple(operand for operand in node.operands if not isinstance(operand, Layout))


def _signed_reduction(node: Expr) -> bool:
    while isinstance(node, Unary) and node.op != "not":
        node = node.value
    return isinstance(node, Reduction)


def _is_open(node: Expr) -> bool:
    """The text ends in the body of a reduction, so that a following `*` would belong to it."""
    match node:
        case Binary(op, _, rhs) if _BINARY[op] == _PRODUCT:
            return _signed_reduction(rhs)
        case Chain(_, (*_, Link(op, rhs))) if _BINARY[op] == _PRODUCT:
            return _signed_reduction(rhs)
        case _:
            return _signed_reduction(node)


def _is_body(node: Expr) -> bool:
    """The text is the grammar's `reduced`: a reduction, or a product that begins with neither sign nor quotient."""
    match node:
        case Binary("*", lhs, _) if not _is_open(lhs):
            return _is_body(lhs)
        case Chain(first, links) if not _is_open(first):
            return _is_body(first) and all(link.op == "*" for link in links) and not any(_signed_reduction(k.rhs) for k in links[:-1])
        case Binary("/" | "//" | "%") | Unary("-" | "+"):
            return False
        case _:
            return True


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def _quote(value: str) -> str:
    return '"' + "".join(_ESCAPES.get(c, c) for c in value) + '"'
