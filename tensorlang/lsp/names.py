"""What a word of a text means: which declaration, tensor, index or loop it names, and where that is introduced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorlang.check.walk import descendants
from tensorlang.diagnostics import Source, Span
from tensorlang.lsp.analysis import Analysis
from tensorlang.lsp.uses import file_of
from tensorlang.schedule.directives.table import DIRECTIVES
from tensorlang.syntax import nodes as sx
from tensorlang.syntax.scanner import NAME

_WORD = re.compile(rf"`[^`\n]+`|{NAME}")

Kind: TypeAlias = Literal[
    "operator",
    "function",
    "reducer",
    "tactic",
    "file",
    "tensor",
    "attribute",
    "size",
    "type",
    "index",
    "binder",
    "local",
    "loop",
    "directive",
]


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text, without the backquotes that it may have."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a word names. `where`: the place that introduces it, None where no text does (a directive, a parameter's type class);
    `node`: the declaration, parameter, clause or directive there; `owner`: the operator, schedule or other declaration around it."""

    kind: Kind
    name: str
    where: Span | None
    node: sx.Node | None = None
    owner: sx.Declaration | None = None


def word_at(analysis: Analysis, offset: int) -> Word | None:
    """Return the word at a character, or the one that ends there, and the whole of what a `use` names; none inside comments and texts."""
    source = analysis.source
    used = analysis.declaration_at(offset)
    if isinstance(used, sx.Use) and used.place.span.start <= offset <= used.place.span.end:
        return Word(declared_name(used), used.place.span)
    start = source.text.rfind("\n", 0, offset) + 1
    end = source.text.find("\n", offset)
    line = source.text[start : end if end >= 0 else len(source.text)]
    for match in _WORD.finditer(_blanked(line)):
        if match.start() <= offset - start <= match.end():
            return Word(match.group().strip("`"), Span(source, start + match.start(), start + match.end()))
    return None


def _blanked(line: str) -> str:
    """Return a line with its texts and comment as spaces."""
    return re.sub(r'"(?:[^"\\]|\\.)*"|#.*', lambda m: " " * len(m.group()), line)


def meaning(analysis: Analysis, word: Word) -> Meaning | None:
    """Return what a word of the text names, or None when that is nothing known."""
    declaration = analysis.declaration_at(word.span.start)
    found: Meaning | None
    match declaration:
        case sx.Use():
            return _in_use(analysis, declaration, word)
        case sx.Operator():
            found = _in_operator(analysis, declaration, word)
        case sx.Schedule() | sx.Tactic():
            found = _in_schedule(analysis, declaration, word)
        case sx.ScalarFunction() | sx.Reducer():
            found = _in_function(declaration, word)
        case _:
            found = None
    if not isinstance(declaration, sx.Schedule | sx.Tactic) or found is None:
        found = _qualified(analysis, word) or found
    return found or global_meaning(analysis, word.text, reducing=_is_reduction(declaration, word))


def _in_use(analysis: Analysis, use: sx.Use, word: Word) -> Meaning | None:
    """Return the declaration that a name of a `use` asks for, or the file."""
    for found in analysis.imports.names:
        if found.use.span.start <= word.span.start < found.use.span.end and found.use.span != use.span:
            return _of(found.name, found.declaration)
    named = word.span == use.place.span or word.text == use.alias
    return _file(use, word.text) if named else None


def _file(use: sx.Use, name: str) -> Meaning:
    path = file_of(use)
    where = Span(Source(str(path), "", str(path.parent)), 0, 0) if path is not None else None
    return Meaning("file", name, where, use, use)


def _qualified(analysis: Analysis, word: Word) -> Meaning | None:
    """Return what a word of `n.rms` means, where a `use` gives a file the name `n`: the declaration, or that file."""
    text = analysis.source.text
    before = re.search(rf"(?:{NAME}\.)*$", text[text.rfind("\n", 0, word.span.start) + 1 : word.span.start])
    path = f"{before.group() if before else ''}{word.text}"
    known = {found.name for found in analysis.imports.names}
    if "." in path and path in known:
        return global_meaning(analysis, path)
    if text[word.span.end : word.span.end + 1] == ".":
        return next((_file(d, path) for d in analysis.file.declarations if isinstance(d, sx.Use) and d.alias == path), None)
    return None


def _of(name: str, declaration: sx.Operator | sx.ScalarFunction | sx.Reducer | sx.Tactic) -> Meaning:
    kinds: dict[type[sx.Node], Kind] = {sx.Operator: "operator", sx.ScalarFunction: "function", sx.Reducer: "reducer", sx.Tactic: "tactic"}
    return Meaning(kinds[type(declaration)], name, name_span(declaration), declaration, declaration)


def global_meaning(analysis: Analysis, name: str, *, reducing: bool = False) -> Meaning | None:
    """Return the declaration of a name, the file's own or a library's; where a function and a reducer share it, the reducer if asked."""
    module = analysis.module
    reducer = module.reducers.get(name)
    if reducer is not None and (reducing or not (name in module.operators or name in module.functions)):
        return _of(name, reducer)
    for found in (module.operators.get(name), module.functions.get(name)):
        if found is not None:
            return _of(name, found)
    used = next((i.declaration for i in analysis.imports.names if i.name == name and isinstance(i.declaration, sx.Tactic)), None)
    tactic = used or module.tactics.get(name)
    return _of(name, tactic) if tactic is not None else None


def name_span(declaration: sx.Declaration) -> Span:
    """Return the name in the head of a declaration, or what a `use` names."""
    if isinstance(declaration, sx.Use):
        return declaration.place.span
    return _first(declaration.span, declared_name(declaration)) or declaration.span


def declared_name(declaration: sx.Declaration) -> str:
    """Return what a declaration is called: a schedule like its operator, a `use` like the file or the module."""
    match declaration:
        case sx.Schedule():
            return declaration.operator
        case sx.Use(place):
            return place.value if isinstance(place, sx.Text) else place.name
        case _:
            return declaration.name


def _first(within: Span, name: str, after: int = 0) -> Span | None:
    """Return the first word `name` inside a span."""
    text = within.source.text
    for match in _WORD.finditer(text, max(within.start, after), within.end):
        if match.group().strip("`") == name:
            return Span(within.source, match.start(), match.end())
    return None


def _is_reduction(declaration: sx.Declaration | None, word: Word) -> bool:
    if declaration is None:
        return False
    return any(isinstance(n, sx.Reduction) and n.span.start == word.span.start and n.reducer == word.text for n in descendants(declaration))


# ---------------------------------------------------------------- operators


def _in_operator(analysis: Analysis, operator: sx.Operator, word: Word) -> Meaning | None:
    clause = next((c for c in operator.clauses if c.span.start <= word.span.start < c.span.end), None)
    if clause is not None:
        if _is_reduction(operator, word) or _is_call(clause, word):
            return None
        found = _bound_inside(operator, clause, word)
        if found is not None:
            return found
    return _named_by_header(operator, word.text)


def _is_call(clause: sx.Clause, word: Word) -> bool:
    return any(isinstance(n, sx.Apply) and n.span.start == word.span.start and n.name == word.text for n in descendants(clause))


def _bound_inside(operator: sx.Operator, clause: sx.Clause, word: Word) -> Meaning | None:
    """Return the binder, local or index of a clause that a word in it names, the innermost."""
    around = [n for n in descendants(clause) if n.span.start <= word.span.start < n.span.end and isinstance(n, (sx.Reduction, sx.LetIn))]
    for node in sorted(around, key=lambda n: n.span.end - n.span.start):
        if isinstance(node, sx.LetIn) and node.name == word.text:
            where = _first(node.span, word.text)
            return Meaning("local", word.text, where, node, operator)
        if isinstance(node, sx.Reduction):
            for binder in node.binders:
                found = next((n for n in _self_and_below(binder) if isinstance(n, sx.Id) and n.name == word.text), None)
                if found is not None and _binds(binder, word.text):
                    return Meaning("binder", word.text, found.span, node, operator)
    for target in clause.targets:
        for slot in target.slots or ():
            for node_ in _self_and_below(slot):
                if isinstance(node_, sx.Id) and node_.name == word.text and word.text not in _header_names(operator):
                    return Meaning("index", word.text, node_.span, clause, operator)
    return None


def _binds(binder: sx.Node, name: str) -> bool:
    """Tell whether a binder of a reduction introduces `name`: `k`, `k..`, `k in 0..n`."""
    match binder:
        case sx.Id(found):
            return found == name
        case sx.Pack(value) | sx.Member(value, _):
            return _binds(value, name)
        case _:
            return False


def _header_names(operator: sx.Operator) -> set[str]:
    return {p.name for p in (*operator.params, *operator.results)}


def _named_by_header(operator: sx.Operator, name: str) -> Meaning | None:
    for param in (*operator.params, *operator.results):
        if param.name == name:
            kind: Kind = {"tensor": "tensor", "attr": "attribute", "size": "size"}[param.kind]  # type: ignore[assignment]
            return Meaning(kind, name, _first(param.span, name), param, operator)
    for clause in operator.clauses:
        for target in clause.targets:
            if target.name == name:
                return Meaning("tensor", name, _first(target.span, name), clause, operator)
    for generic in operator.generics:
        if generic.name == name:
            return Meaning("type", name, _first(generic.span, name), generic, operator)
    for param in operator.params:
        if isinstance(param.type, sx.TensorType):
            for dim in param.type.dims or ():
                for node in _self_and_below(dim):
                    if (isinstance(node, (sx.Id, sx.Each))) and node.name == name:
                        return Meaning("size", name, _first(node.span, name), param, operator)
    return None


def _self_and_below(node: sx.Node) -> Iterator[sx.Node]:
    yield node
    yield from descendants(node)


# ---------------------------------------------------------------- functions, reducers, schedules


def _in_function(declaration: sx.ScalarFunction | sx.Reducer, word: Word) -> Meaning | None:
    match declaration:
        case sx.ScalarFunction():
            names = {n for n, _ in declaration.params}
        case sx.Reducer():
            names = {*declaration.left, *declaration.right}
    if word.text not in names:
        return None
    head = name_span(declaration)
    return Meaning("local", word.text, _first(declaration.span, word.text, head.end), declaration, declaration)


def directives_of(declaration: sx.Schedule | sx.Tactic) -> list[sx.Directive]:
    """Return the directives of a schedule, without its knobs."""
    return [d for d in declaration.body if isinstance(d, sx.Directive)]


def directive_at(declaration: sx.Declaration | None, offset: int) -> sx.Directive | None:
    """Return the directive in which a character lies."""
    if not isinstance(declaration, (sx.Schedule, sx.Tactic)):
        return None
    return next((d for d in directives_of(declaration) if d.span.start <= offset <= d.span.end), None)


def _in_schedule(analysis: Analysis, declaration: sx.Schedule | sx.Tactic, word: Word) -> Meaning | None:
    directive = directive_at(declaration, word.span.start)
    if directive is not None and directive.span.start == word.span.start:
        if directive.call and word.text in analysis.module.tactics:
            return global_meaning(analysis, word.text)
        return Meaning("directive", word.text, None, directive, declaration) if word.text in DIRECTIVES else None
    operator = analysis.module.operators.get(declaration.operator) if isinstance(declaration, sx.Schedule) else None
    if directive is None:
        if isinstance(declaration, sx.Schedule) and word.text == declaration.operator and operator is not None:
            return global_meaning(analysis, word.text)
        return _named_by_header(operator, word.text) if operator is not None else None
    last = word.text
    for earlier in reversed([d for d in directives_of(declaration) if d.span.start <= directive.span.start]):
        if last in earlier.results:
            return Meaning("loop", last, _first(earlier.span, last, _arrow(earlier)), earlier, declaration)
    if isinstance(declaration, sx.Tactic) and last in declaration.params:
        return Meaning("local", last, _first(declaration.span, last, name_span(declaration).end), declaration, declaration)
    return _of_operator(operator, last, word) if operator is not None else None


def _arrow(directive: sx.Directive) -> int:
    at = directive.span.source.text.find("->", directive.span.start, directive.span.end)
    return max(at, directive.span.start)


def _of_operator(operator: sx.Operator, name: str, word: Word) -> Meaning | None:
    """Return the tensor of an operator, or the index or binder whose loop `name` is; after `t.` it is one of the tensor t."""
    text = word.span.source.text
    dotted = re.search(rf"({NAME})\.$", text[: word.span.start].rsplit("\n", 1)[-1])
    tensor = dotted[1] if dotted else None
    if tensor is None:
        named = next((m for m in [_named_by_header(operator, name)] if m is not None and m.kind == "tensor"), None)
        if named is not None:
            return named
    for clause in operator.clauses:
        if tensor is None or any(t.name == tensor for t in clause.targets):
            found = _bound_inside(operator, clause, Word(name, clause.value.span)) or _index_of(operator, clause, name)
            if found is not None:
                return found
    return None


def _index_of(operator: sx.Operator, clause: sx.Clause, name: str) -> Meaning | None:
    for node in descendants(clause):
        if isinstance(node, sx.Reduction):
            for binder in node.binders:
                if _binds(binder, name):
                    return Meaning("binder", name, _first(binder.span, name), node, operator)
    return None
