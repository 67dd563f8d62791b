"""Text to syntax tree.

    load    a path → Source; a missing, unreadable or binary file is a diagnostic
    parse   Source → File; raises CompileError with everything it found, at most one grammar mistake for each declaration

grammar.lark is the grammar, scanner.py makes its tokens, `_Build` its nodes, mistakes.py its messages.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path, PurePath
from typing import Any, TypeVar

from tensorlang.diagnostics import CompileError, Diagnostic, InternalError, Source, Span, error
from tensorlang.syntax import mistakes, scanner
from tensorlang.syntax.automaton import Automaton, Builder, NotAcceptedError, builders, tables
from tensorlang.syntax.nodes import (
    LONGEST_CHAIN,
    LONGEST_NEST,
    Apply,
    Binary,
    Broadcast,
    Chain,
    Clause,
    Comment,
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
    Mode,
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
from tensorlang.syntax.scanner import Chunk, Token

MAX_BYTES = 4 << 20
MAX_LINES = 10_000
"""Clauses of an operator, or directives of a schedule: so many take seconds to check."""
MAX_DEPTH = 100
"""Levels of nodes within one clause: every pass recurses over the tree, and Python's stack is finite."""


def load(path: str | Path) -> Source:
    """Return the text of a file. Raises CompileError P020 to P024 when it is missing, a directory, too large, or no text."""
    path = Path(path)
    if path.suffix in _NOT_OURS:
        raise error("P021", f"`{path}` holds no operators", help=_NOT_OURS[path.suffix])
    try:
        if path.is_dir():
            raise error("P021", f"`{path}` is a directory", help=f"name its files: `{path / '*.tl'}`")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise error("P022", f"`{path}` is too large: {size} bytes", notes=(f"a file may have {MAX_BYTES} bytes",))
        data = path.read_bytes()
    except (OSError, ValueError) as problem:  # ValueError: a path with a NUL byte
        why = (getattr(problem, "strerror", None) or str(problem)).lower()
        raise error("P020", f"cannot read `{path}`: {why}", help=_readable(path)) from None
    return replace(decode(data, str(path)), folder=str(path.parent))


_NOT_OURS = {
    ".onnx": "a model is read by `tensorlang.compile`, `tensorlang run`",
    ".py": "operators stand in a file that ends in `.tl`; a text in Python is read by `tensorlang.parse`",
    ".ipynb": "operators stand in a file that ends in `.tl`, or in a cell that begins with `%%tensorlang`",
    ".npy": "an array is an argument: `x=array.npy`",
    ".npz": "arrays are arguments: `x=arrays.npz`",
    ".cu": "a kernel of CUDA stands for an `extern op`: `tl.cuda_source`",
}
"""What files of other endings are for."""


def _readable(path: Path) -> str | None:
    """Return what may be read instead of a path that cannot be: a text itself, or a file of nearly that name."""
    if "{" in str(path) or "\n" in str(path):
        return "the text of a program is read by `tensorlang.parse`"
    try:
        there = [entry.name for entry in path.parent.glob("*.tl")]
    except (OSError, ValueError):
        return None
    near = nearest_file(path.name, there)
    if near is not None:
        return f"did you mean `{path.with_name(near)}`?"
    known = ", ".join(f"`{path.with_name(name)}`" for name in sorted(there)[:4])
    return f"there {'are' if len(there) > 1 else 'is'} {known}{', …' if len(there) > 4 else ''}" if there else None


def nearest_file(name: str, others: Iterable[str]) -> str | None:
    """Return the name of a file that is most like another one, what both end in left out; None where none is much like it."""
    stems = {PurePath(other).stem: other for other in sorted(others)}
    close = get_close_matches(PurePath(name).stem, stems, 1, 0.7)
    return stems[close[0]] if close else None


def decode(data: bytes, name: str) -> Source:
    """Return bytes as a Source; `\\r\\n` and a byte order mark are accepted. Raises CompileError P023 when they are not UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        good = data[: problem.start].decode("utf-8-sig")
        source = Source(name, good + "\ufffd" + data[problem.start + 1 :].decode("utf-8", "replace"))
        span = Span(source, len(good), len(good) + 1)
        raise error("P023", f"`{name}` is not UTF-8", span, f"byte 0x{data[problem.start]:02x}", help="save the file as UTF-8") from None
    return Source(name, text)


def parse(source: Source) -> File:
    """Return the syntax tree of a text. Raises CompileError with P codes; a mistake in one declaration does not hide those in others."""
    file, diagnostics = parse_parts(source)
    if diagnostics:
        raise CompileError(*diagnostics)
    return file


def parse_parts(source: Source, before: File | None = None) -> tuple[File, tuple[Diagnostic, ...]]:
    """Return the declarations of a text that could be read, and what is wrong with the others, in the order of the text.

    `before` is what an earlier text had: declarations in front of the first letter that differs are the same nodes, with places in
    that text."""
    try:
        _reject_binary(source)
    except CompileError as problem:
        return File((), span=Span(source, 0, len(source.text))), problem.diagnostics
    found = scanner.scan(source)
    diagnostics = list(found.diagnostics)
    broken = [label.span for diagnostic in diagnostics for label in diagnostic.labels]
    declarations: list[Declaration] = []
    known = {(d.span.start, d.span.end): d for d in _in_front(before, source)} if before is not None else {}
    for lexemes in scanner.split(found.lexemes, source.text):
        words = [token for token in lexemes if token.type != "NEWLINE"]
        if not words:
            continue
        same = known.get((words[0].start, words[-1].end))
        if same is not None:
            declarations.append(same)
            continue
        try:
            declarations.append(_declaration(source, lexemes))
        except CompileError as problem:
            # What a misread character leads to is no second mistake.
            if not any(lexemes[0].start <= span.start < lexemes[-1].end for span in broken):
                diagnostics += problem.diagnostics
    _document(source, [d for d in declarations if d.span.source is source], found.comments)
    file = File(tuple(declarations), tuple(found.comments), span=Span(source, 0, len(source.text)))
    return file, tuple(sorted(diagnostics, key=_position))


def _in_front(before: File, source: Source) -> list[Declaration]:
    """Return the declarations of an earlier text that end before the first letter in which a text differs from it."""
    old, new = before.span.source.text, source.text
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if old[:middle] == new[:middle] else (low, middle - 1)
    return [d for d in before.declarations if d.span.end < low]


def _document(source: Source, declarations: Sequence[Declaration], comments: Sequence[Comment]) -> None:
    """Give each declaration the comment whose lines stand right above it. They were made a moment ago and nobody else has them yet."""
    ends = [match.start() for match in re.finditer("\n", source.text)] if comments else []
    lines = {bisect(ends, c.offset): c.text.removeprefix("#").strip() for c in comments if not c.inline}
    for declaration in declarations if lines else ():
        if isinstance(declaration, Use | Schedule):
            continue
        line = first = bisect(ends, declaration.span.start)
        while first - 1 in lines:
            first -= 1
        if first < line:
            object.__setattr__(declaration, "doc", "\n".join(lines[k] for k in range(first, line)).strip())


def parse_expr(source: Source) -> Expr:
    """Return the tree of a single expression."""
    prefix = "fn f() = "
    file = parse(Source(source.name, f"{prefix}({source.text})"))
    match file.declarations:
        case (ScalarFunction(_, _, _, value),):
            return value
        case _:
            raise InternalError("parse", f"not an expression: {source.text}")


def _position(diagnostic: Diagnostic) -> int:
    return diagnostic.labels[0].span.start if diagnostic.labels else 0


def _reject_binary(source: Source) -> None:
    position = source.text.find("\0")
    if position >= 0:
        raise error("P024", "this is not a text: it holds a NUL byte", Span(source, position, position + 1))


def _declaration(source: Source, lexemes: list[Token]) -> Declaration:
    unbalanced = scanner.match_brackets(source, lexemes)
    if unbalanced is not None:
        raise CompileError(unbalanced)
    chunk = scanner.refine(lexemes)
    _reject_long(source, chunk)
    misplaced = mistakes.before_parsing(source, chunk)
    if misplaced:
        raise CompileError(*misplaced)
    declaration = _run(source, chunk)
    if isinstance(declaration, Operator) and not declaration.extern and chunk.tokens[-1].type != "RBRACE":
        raise CompileError(mistakes.missing_body(source, chunk))
    _reject_deep(source, chunk, declaration)
    return declaration


def _run(source: Source, chunk: Chunk) -> Declaration:
    automaton = _automaton()
    for position, token in enumerate(chunk.tokens):
        try:
            automaton.shift(token)
        except NotAcceptedError:
            raise CompileError(mistakes.explain(source, chunk, position, _accepted(chunk.tokens[:position]))) from None
    try:
        declaration: Declaration = automaton.finished()
    except NotAcceptedError:
        raise CompileError(mistakes.explain(source, chunk, len(chunk.tokens), _accepted(chunk.tokens))) from None
    return declaration


def _accepted(tokens: Sequence[Token]) -> frozenset[str]:
    """Return the terminals that may follow. A failed step has reduced already; parse again to know what was possible before it."""
    automaton = _automaton()
    for token in tokens:
        automaton.shift(token)
    return automaton.accepted()


def _automaton() -> Automaton:
    """Return a run of the grammar that makes nodes."""
    return Automaton(tables(), _builders())


def _reject_long(source: Source, chunk: Chunk) -> None:
    """Raise P033 when a declaration has more clauses or directives than anybody waits for."""
    ends = [token for token in chunk.tokens if token.type == "NEWLINE"]
    if len(ends) > MAX_LINES:
        notes = (f"there are {len(ends)} or more, and the limit is {MAX_LINES}",)
        span = Span(source, ends[MAX_LINES].start, ends[MAX_LINES].end)
        help = "make several declarations of it, or say what the clauses have in common: `y[i] = x[table[i]]`"
        raise error("P033", "this declaration has too many clauses or directives", span, notes=notes, help=help)


def _reject_deep(source: Source, chunk: Chunk, declaration: Declaration) -> None:
    """Raise P014 when nodes nest too deeply. A node holds a token, so short clauses need no look."""
    longest = length = 0
    for token in chunk.tokens:
        length = 0 if token.type == "NEWLINE" else length + 1
        longest = max(longest, length)
    if longest < MAX_DEPTH:
        return
    stack: list[tuple[object, int, Span]] = [(declaration, 0, declaration.span)]
    while stack:
        value, depth, span = stack.pop()
        if isinstance(value, Node):
            depth, span = depth + 1, value.span
            if depth > MAX_DEPTH:
                notes = (f"the limit is {MAX_DEPTH} levels",)
                raise error("P014", "this is nested too deeply", span, notes=notes, help="name parts of it in clauses of their own")
            stack.extend((getattr(value, name), depth, span) for name in value.__dataclass_fields__ if name not in ("span", "name_span"))
        elif isinstance(value, tuple):
            stack.extend((item, depth, span) for item in value)


@cache
def _builders() -> tuple[Builder, ...]:
    return builders(tables(), _Build())


class _Part:
    """A piece of a declaration that is no node of its own: what it is, its value, and where it ends."""

    __slots__ = ("end", "kind", "value")

    def __init__(self, kind: str, value: Any, children: Sequence[Any]) -> None:
        self.kind, self.value, self.end = kind, value, _end(children[-1]) if children else 0


N = TypeVar("N", bound=Node)


def _end(child: Any) -> int:
    end: int = child.end if isinstance(child, (Token, _Part)) else child.span.end
    return end


def _span(children: Sequence[Any]) -> Span:
    first = children[0]
    if isinstance(first, Token):
        return Span(first.source, first.start, _end(children[-1]))
    span: Span = first.span
    return Span(span.source, span.start, _end(children[-1]))


def _name(token: Token) -> str:
    return token.value[1:-1] if token.value.startswith("`") else token.value


def _names(children: Sequence[Any]) -> tuple[str, ...]:
    return tuple(_name(child) for child in children if isinstance(child, Token) and child.type == "NAME")


def _nodes(children: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(child for child in children if isinstance(child, Node))


def _parts(children: Sequence[Any]) -> dict[str, Any]:
    return {child.kind: child.value for child in children if isinstance(child, _Part)}


_MODES: Mapping[str, Mode] = {"STRICT": "strict", "REDUCE": "reduce", "FAST": "fast"}


def _types(children: Sequence[Any]) -> set[str]:
    return {child.type for child in children if isinstance(child, Token)}


def _after(children: Sequence[Any], terminal: str) -> Any:
    """Return the child that follows the first token of a type, or None."""
    for i, child in enumerate(children):
        if isinstance(child, Token) and child.type == terminal:
            return children[i + 1]
    return None


_LEVEL = {"or": 0, "and": 1, "+": 2, "-": 2, "*": 3, "/": 3, "//": 3, "%": 3}


def _level(op: str) -> int | None:
    """Return how tightly an operator binds, None for a sign of another language, which the scanner has already refused."""
    return _LEVEL.get(op)


def _joined(lhs: Expr, op: Any, rhs: Expr, span: Span) -> Binary | Chain:
    """Return `lhs op rhs`, as a chain once more operators of this level stand one after the other than may nest."""
    if isinstance(lhs, Chain) and _level(lhs.rest[0].op) == _level(op):
        if len(lhs.rest) == LONGEST_CHAIN:
            notes = (f"the limit is {LONGEST_CHAIN} operators in a row",)
            raise error("P014", "this has too many operators", span, notes=notes, help="name parts of it in clauses of their own")
        return Chain(lhs.first, (*lhs.rest, Link(op, rhs, span=span)), span=span)
    links = [Link(op, rhs, span=span)]
    first = lhs
    while isinstance(first, Binary) and _level(first.op) == _level(op):
        links.append(Link(first.op, first.rhs, span=first.span))
        first = first.lhs
    return Binary(op, lhs, rhs, span=span) if len(links) <= LONGEST_NEST else Chain(first, tuple(reversed(links)), span=span)


_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def _unescape(quoted: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES[match.group(1)], quoted[1:-1])


class _Build:
    """One method for each rule or alias of grammar.lark: children to node. Tokens stay among the children, for spans."""

    # ---- expressions

    def number(self, c: list[Any]) -> Number:
        return Number(c[0].value, span=_span(c))

    def text(self, c: list[Any]) -> Text:
        return Text(_unescape(c[0].value), span=_span(c))

    def id(self, c: list[Any]) -> Id:
        return Id(_name(c[0]), span=_span(c))

    def binary(self, c: list[Any]) -> Binary | Chain:
        return _joined(c[0], c[1].value, c[2], _span(c))

    def prefix(self, c: list[Any]) -> Unary:
        return Unary(c[0].value, c[1], span=_span(c))

    def compare(self, c: list[Any]) -> Compare:
        return Compare(tuple(c[::2]), tuple(token.value for token in c[1::2]), span=_span(c))

    def range(self, c: list[Any]) -> Range:
        return Range(c[0], c[2], span=_span(c))

    def member(self, c: list[Any]) -> Member:
        return Member(c[0], c[2], span=_span(c))

    member_pack = member

    def pack(self, c: list[Any]) -> Pack:
        return Pack(c[0], span=_span(c))

    def let(self, c: list[Any]) -> LetIn:
        return LetIn(_name(c[1]), c[3], c[5], span=_span(c))

    def if_else(self, c: list[Any]) -> IfElse:
        return IfElse(c[1], c[3], c[5], span=_span(c))

    def parens(self, c: list[Any]) -> Node:
        """`(e)` is `e` with the parentheses in its span; `(e..)`, `(a, b)`, `(a,)` and `()` are tuples."""
        if len(c) == 3 and not isinstance(c[1], Pack):
            node: Node = _with_span(c[1], _span(c))
            return node
        return TupleOf(_nodes(c), span=_span(c))

    def index(self, c: list[Any]) -> Index:
        return Index(_name(c[0]), c[2].value, _after(c, "VBAR"), span=_span(c))

    def slots(self, c: list[Any]) -> _Part:
        return _Part("slots", _nodes(c), c)

    def apply(self, c: list[Any]) -> Apply:
        slots: tuple[Expr, ...] = _parts(c).get("slots", ())
        return Apply(_name(c[0]), _nodes(c), slots, span=_span(c))

    def keyword(self, c: list[Any]) -> Keyword:
        return Keyword(_name(c[0]), c[2], span=_span(c))

    def from_(self, c: list[Any]) -> From:
        return From(c[1], span=_span(c))

    def reduction(self, c: list[Any]) -> Reduction:
        call: Apply = c[0]
        return Reduction(call.name, call.slots, call.args, c[1], span=_span(c))

    # ---- other files

    def use(self, c: list[Any]) -> Use:
        place = Text(_unescape(c[1].value), span=_span(c[1:2])) if c[1].type == "TEXT" else Id(_name(c[1]), span=_span(c[1:2]))
        alias = _after(c, "AS")
        return Use(place, _parts(c).get("names", ()), None if alias is None else _name(alias), span=_span(c))

    def used_names(self, c: list[Any]) -> _Part:
        return _Part("names", _nodes(c), c)

    def used(self, c: list[Any]) -> UsedName:
        return UsedName(_name(c[0]), _name(c[2]) if len(c) > 1 else None, span=_span(c))

    # ---- operators, functions, reducers

    def generic(self, c: list[Any]) -> Generic:
        return Generic(_name(c[0]), _name(c[2]) if len(c) > 1 else None, span=_span(c))

    def generics(self, c: list[Any]) -> _Part:
        return _Part("generics", _nodes(c), c)

    def params(self, c: list[Any]) -> _Part:
        return _Part("params", _nodes(c), c)

    def results(self, c: list[Any]) -> _Part:
        return _Part("results", _nodes(c), c)

    def tensor(self, c: list[Any]) -> Param:
        return self._param("tensor", c, _after(c, "COLON"))

    def attribute(self, c: list[Any]) -> Param:
        token: Token = _after(c, "COLON")
        return self._param("attr", c, Id(_name(token), span=_span([token])))

    def size(self, c: list[Any]) -> Param:
        return self._param("size", c, None)

    def result(self, c: list[Any]) -> Param:
        return self._param("tensor", c, _after(c, "COLON"))

    def _param(self, kind: Any, c: list[Any], annotation: TensorType | Id | None) -> Param:
        types = _types(c)
        default = _after(c, "EQUAL")
        return Param(kind, _names(c)[0], annotation, "EACH" in types, "EXPAND" in types, _after(c, "IN"), default, span=_span(c))

    def tensor_type(self, c: list[Any]) -> TensorType:
        return TensorType(_name(c[0]), _nodes(c) if len(c) > 1 else None, span=_span(c))

    def broadcast(self, c: list[Any]) -> Broadcast:
        return Broadcast(c[1], span=_span(c))

    def each(self, c: list[Any]) -> Each:
        return Each(_name(c[1]), span=_span(c))

    def where(self, c: list[Any]) -> _Part:
        return _Part("where", _nodes(c), c)

    def body(self, c: list[Any]) -> _Part:
        return _Part("body", _nodes(c), c)

    def clause(self, c: list[Any]) -> Clause:
        targets = tuple(child for child in c if isinstance(child, Target))
        tail: tuple[tuple[Expr, ...], bool] = _parts(c).get("tail", ((), False))
        return Clause(targets, _after(c, "EQUAL"), *tail, span=_span(c))

    def target(self, c: list[Any]) -> Target:
        return Target(_name(c[0]), _parts(c).get("slots"), _after(c, "COLON"), span=_span(c))

    def tail(self, c: list[Any]) -> _Part:
        return _Part("tail", (_nodes(c), c[0].type == "OTHERWISE"), c)

    def operator(self, c: list[Any]) -> Operator:
        parts = _parts(c)
        name: Token = _after(c, "OP") or _after(c, "INSTRUCTION")
        return Operator(
            _name(name),
            parts.get("generics", ()),
            parts.get("params", ()),
            parts["results"],
            parts.get("where", ()),
            parts.get("body", ()),
            "EXTERN" in _types(c),
            next((_MODES[t] for t in _MODES if t in _types(c)), None),
            parts.get("features", ()),
            parts.get("places", ()),
            parts.get("realised"),
            name_span=_span([name]),
            span=_span(c),
        )

    def features(self, c: list[Any]) -> _Part:
        return _Part("features", _names(c), c)

    def realised(self, c: list[Any]) -> _Part:
        return _Part("realised", _unescape(c[1].value), c)

    def places(self, c: list[Any]) -> _Part:
        return _Part("places", _nodes(c), c)

    def place(self, c: list[Any]) -> Place:
        return Place(c[0], _name(c[2]), c[4], c[6], span=_span(c))

    def formal(self, c: list[Any]) -> _Part:
        return _Part("formal", (_name(c[0]), _name(c[2]) if len(c) > 1 else None), c)

    def function(self, c: list[Any]) -> ScalarFunction:
        formals = tuple(child.value for child in c if isinstance(child, _Part) and child.kind == "formal")
        return ScalarFunction(_name(c[1]), _parts(c).get("generics", ()), formals, _after(c, "EQUAL"), span=_span(c))

    def pattern(self, c: list[Any]) -> _Part:
        return _Part("pattern", _names(c), c)

    def lift(self, c: list[Any]) -> _Part:
        index = _after(c, "AT")
        return _Part("lift", (_name(c[1]), None if index is None else _name(index), c[-1]), c)

    def yield_(self, c: list[Any]) -> _Part:
        return _Part("yield", (c[1].value, c[-1]), c)

    def reducer(self, c: list[Any]) -> Reducer:
        parts = _parts(c)
        left, right = (child.value for child in c if isinstance(child, _Part) and child.kind == "pattern")
        return Reducer(
            _names(c)[0],
            parts.get("generics", ()),
            left,
            right,
            _after(c, "FROM"),
            _after(c, "EQUAL"),
            "ORDERED" in _types(c),
            parts.get("lift"),
            parts.get("yield"),
            span=_span(c),
        )

    # ---- schedules

    def schedule(self, c: list[Any]) -> Schedule:
        role = c[1] if isinstance(c[1], Role) else None
        guards: tuple[Any, ...] = tuple(child for child in c if isinstance(child, Node) and child is not role)
        operator = _name(c[1]) if role is None else role.name
        return Schedule(operator, _name(_after(c, "FOR")), guards, _parts(c)["directives"], role, span=_span(c))

    def role(self, c: list[Any]) -> Role:
        groups = tuple(child.value for child in c if isinstance(child, _Part))
        return Role(_name(c[1]), groups, span=_span(c))

    def role_group(self, c: list[Any]) -> _Part:
        return _Part("group", tuple(child.value for child in c if isinstance(child, _Part)), c)

    def role_name(self, c: list[Any]) -> _Part:
        return _Part("name", _name(c[0]) + (".." if len(c) > 1 else ""), c)

    def tactic(self, c: list[Any]) -> Tactic:
        name, *params = _names(c)
        return Tactic(name, tuple(params), _parts(c)["directives"], span=_span(c))

    def directives(self, c: list[Any]) -> _Part:
        return _Part("directives", _nodes(c), c)

    def knobs(self, c: list[Any]) -> Knobs:
        return Knobs(_nodes(c), span=_span(c))

    def knob(self, c: list[Any]) -> Knob:
        return Knob(_name(c[0]), _nodes(c), span=_span(c))

    def call(self, c: list[Any]) -> Directive:
        parts = _parts(c)
        pattern = parts.get("for_each")
        return Directive(_name(c[0]), _nodes(c), call=True, condition=parts.get("only_if"), pattern=pattern, span=_span(c))

    def directive_line(self, c: list[Any]) -> Directive:
        phrases = tuple(child for child in c if isinstance(child, Phrase))
        name, *results = _names(c)
        parts = _parts(c)
        operands, condition, pattern = parts.get("operands", ()), parts.get("only_if"), parts.get("for_each")
        return Directive(name, operands, phrases, tuple(results), condition=condition, pattern=pattern, span=_span(c))

    def for_each(self, c: list[Any]) -> _Part:
        return _Part("for_each", self.role(c), c)

    def only_if(self, c: list[Any]) -> _Part:
        return _Part("only_if", c[1], c)

    def phrase(self, c: list[Any]) -> Phrase:
        return Phrase(c[0].value, c[1].value, span=_span(c))

    def operands(self, c: list[Any]) -> _Part:
        return _Part("operands", _nodes(c), c)

    def layout(self, c: list[Any]) -> Layout:
        return Layout(c[1].value, span=_span(c))


def _with_span(node: N, span: Span) -> N:
    """Return the node with another span. It was made a moment ago and nobody else has it yet."""
    object.__setattr__(node, "span", span)
    return node
