"""The canonical layout of a text: `fmt`.

    m[d..] = max(j) x[d.., j]               m[d..]    = max(j) x[d.., j]
    e[d.., j]=exp(x[d..,j]-m[d..])    →     e[d.., j] = exp(x[d.., j] - m[d..])

The words come from printer.py; this arranges them: clauses without a line between them share the columns of their `=` and of their `for`,
lines are wrapped at 120 columns, up to one empty line stays where lines stood apart, and comments stay. A comment on a line of its own
stays before what it preceded, one at the end of a line stays there; one inside a clause or a header moves before it. The tree does not
change, and `fmt(fmt(text)) == fmt(text)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from tensorlang.diagnostics import Source
from tensorlang.syntax import printer, scanner
from tensorlang.syntax.nodes import Clause, Comment, Declaration, Directive, Knobs, Operator, Schedule, Tactic, Use
from tensorlang.syntax.parse import parse

WIDTH = 120
EQUALS_WITHIN, TAILS_WITHIN = 24, 64
"""Columns are shared only while that pads no line by more than this."""


def fmt(source: Source) -> str:
    """Return the text in canonical layout. Raises CompileError as `parse` does."""
    file = parse(source)
    layout = _Layout(source.text, list(file.comments))
    blocks = list(_spaced(layout.declarations(file.declarations)))
    return "".join(f"{line}\n" for line in blocks)


@dataclass(frozen=True, slots=True)
class _Block:
    """Lines that belong together: a comment, a clause, a declaration. `apart`: an empty line stood before it."""

    lines: tuple[str, ...]
    apart: bool
    is_comment: bool = False
    clause: Clause | None = None
    trailing: str = ""


class _Layout:
    """Walks the tree in the order of the text and deals out the comments on the way."""

    def __init__(self, text: str, comments: list[Comment]) -> None:
        self._text, self._comments = text, comments
        self._end = 0  # where the last thing that was laid out ended

    def declarations(self, declarations: Sequence[Declaration]) -> list[_Block]:
        blocks: list[_Block] = []
        for declaration in declarations:
            leading, apart = self._leading(declaration.span.start, self._header_end(declaration))
            lines = self._declaration(declaration)
            self._end = declaration.span.end
            blocks += [*leading, _Block(tuple(lines), apart, trailing=self._trailing())]
        leading, _ = self._leading(len(self._text), len(self._text))
        return blocks + leading

    def _declaration(self, declaration: Declaration) -> list[str]:
        match declaration:
            case Operator() | Schedule() | Tactic() if printer.has_braces(declaration):
                head = _header(declaration)
                self._end = self._header_end(declaration)
                inside = _spaced(self._body(declaration), inside=True)
                return [*head, *(f"{printer.INDENT}{line}" if line else "" for line in inside), "}"]
            case Operator():
                return _header(declaration)
            case Use():
                opening = len(printer.show(replace(declaration, names=()))) + 2 if declaration.names else 0
                return _wrap(printer.show(declaration), 0, opening if opening <= 40 else 4, opening)
            case _:
                return _definition(printer.show(declaration))

    def _header_end(self, declaration: Declaration) -> int:
        match declaration:
            case Operator(clauses=items) | Schedule(body=items) | Tactic(body=items) if printer.has_braces(declaration):
                stop = items[0].span.start if items else declaration.span.end
                braces = [t.end for t in _tokens(self._text[declaration.span.start : stop]) if t.value == "{"]
                return declaration.span.start + braces[0]
            case _:
                return declaration.span.end

    def _body(self, declaration: Operator | Schedule | Tactic) -> list[_Block]:
        items: tuple[Clause | Directive | Knobs, ...] = declaration.clauses if isinstance(declaration, Operator) else declaration.body
        blocks: list[_Block] = []
        for item, line in zip(items, printer.lines(declaration), strict=True):
            leading, apart = self._leading(item.span.start, item.span.end)
            self._end = item.span.end
            clause = item if isinstance(item, Clause) else None
            blocks += [*leading, _Block(tuple(_wrap(line, 4, 4)), apart, clause=clause, trailing=self._trailing())]
        blocks += self._leading(declaration.span.end, declaration.span.end)[0]
        first = blocks[:1]
        return _align([*(replace(block, apart=False) for block in first), *blocks[1:]])

    def _leading(self, start: int, end: int) -> tuple[list[_Block], bool]:
        """Return the comments that go before what stands from `start` to `end`, and whether that stays apart from what precedes it."""
        blocks: list[_Block] = []
        while self._comments and self._comments[0].offset < start:
            blocks.append(self._comment(self._is_apart(self._comments[0].offset)))
        apart = self._is_apart(start)
        while self._comments and self._comments[0].offset < end:
            blocks.append(self._comment(apart))
            apart = False
        return blocks, apart

    def _comment(self, apart: bool) -> _Block:
        comment = self._comments.pop(0)
        self._end = comment.offset + len(comment.text)
        return _Block((comment.text,), apart, is_comment=True)

    def _trailing(self) -> str:
        """Take the comment that ends the line of what was just laid out."""
        if self._comments and re.fullmatch(r"[ \t\r}]*", self._text[self._end : self._comments[0].offset]):
            comment = self._comments.pop(0)
            self._end = comment.offset + len(comment.text)
            return comment.text
        return ""

    def _is_apart(self, start: int) -> bool:
        """An empty line stands before `start`."""
        return self._text.count("\n", self._end, start) > 1


def _spaced(blocks: Sequence[_Block], *, inside: bool = False) -> Iterator[str]:
    """Yield the lines of the blocks, with empty lines between those that stood apart, and around declarations of several lines."""
    previous: _Block | None = None
    for position, block in enumerate(blocks):
        if previous is not None and (block.apart or (not inside and _separates(blocks, position))):
            yield ""
        yield from block.lines[:-1]
        yield f"{block.lines[-1]}  {block.trailing}" if block.trailing else block.lines[-1]
        previous = block


def _separates(blocks: Sequence[_Block], position: int) -> bool:
    """An empty line goes between declarations where either has several lines; comments belong to the next one."""
    if blocks[position - 1].is_comment:
        return False
    following = next((block for block in blocks[position:] if not block.is_comment), None)
    return len(blocks[position - 1].lines) > 1 or (following is not None and len(following.lines) > 1)


# ---------------------------------------------------------------- columns


def _align(blocks: list[_Block]) -> list[_Block]:
    """Return the blocks with the clauses of each group written in columns."""
    aligned: list[_Block] = []
    for group in _groups(blocks):
        aligned += _columns(group) if group[0].clause is not None else group
    return aligned


def _groups(blocks: list[_Block]) -> Iterator[list[_Block]]:
    """Yield runs of clauses with nothing between them; every other block is alone."""
    group: list[_Block] = []
    for block in blocks:
        if group and (block.clause is None or block.apart or group[-1].clause is None):
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _columns(group: list[_Block]) -> list[_Block]:
    parts = [printer.clause_parts(block.clause) for block in group if block.clause is not None]
    room = WIDTH - len(printer.INDENT)
    widest = max(len(targets) for targets, _, _ in parts)
    shares = widest - min(len(targets) for targets, _, _ in parts) <= EQUALS_WITHIN
    heads = [f"{targets:<{widest if shares else 0}} = {value}" for targets, value, _ in parts]
    fitting = [len(head) for head, (_, _, tail) in zip(heads, parts, strict=True) if tail and len(head) + 3 + len(tail) <= room]
    column = max((length for length in fitting if length - min(fitting) <= TAILS_WITHIN), default=0)
    result = []
    for block, head, (targets, _, tail) in zip(group, heads, parts, strict=True):
        start = len(head) - len(head.split(" = ", 1)[1]) if len(targets) < 40 else 4
        result.append(replace(block, lines=tuple(_clause(head, tail, column, start, room))))
    return result


def _clause(head: str, tail: str, column: int, hang: int, room: int) -> list[str]:
    for padded in (f"{head:<{column}}   {tail}", f"{head}   {tail}") if tail else (head,):
        if len(padded) <= room:
            return [padded]
    lines = _wrap(head, len(printer.INDENT), hang, hang)
    return [*lines, *(" " * hang + line for line in _wrap(tail, len(printer.INDENT) + hang, 4) if tail)]


# ---------------------------------------------------------------- wrapping


def _header(declaration: Operator | Schedule | Tactic) -> list[str]:
    """Return a header with the brace that opens its body: on one line, or results and conditions on lines of their own."""
    text = printer.header(declaration)
    brace = " {" if printer.has_braces(declaration) else ""
    if len(text) + len(brace) <= WIDTH or not isinstance(declaration, Operator):
        return _wrap(text + brace, 0, 8)
    tokens = _tokens(text)
    depths = _depths(tokens)
    cuts = [t.start for t, depth in zip(tokens, depths, strict=True) if depth == 0 and t.type in ("ARROW", "WHERE")]
    opening = next(t.end for t, depth in zip(tokens, depths, strict=True) if depth == 0 and t.type == "LPAR")
    parts = [text[a:b].rstrip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    named = next(t.end for t in tokens if t.type in ("LPAR", "LSQB"))  # an operator may be called `lift`
    lines = _wrap(parts[0], 0, opening if opening <= 40 else 8, first=named)
    last = parts.pop() if len(parts) == 3 else ""
    if last and len(parts[1]) + len(last) + 7 <= WIDTH:
        parts[1], last = f"{parts[1]} {last}", ""
    lines += [f"    {line}" for line in _wrap(parts[1] + ("" if last else brace), 4, 4)]
    return lines + ([f"    {line}" for line in _wrap(last + brace, 4, 4)] if last else [])


def _definition(text: str) -> list[str]:
    """Return a function or a reducer: on one line, or what follows its `=`, `lift` and `yield` on lines of their own."""
    if len(text) <= WIDTH:
        return [text]
    tokens = _tokens(text)
    outer = [token for token, depth in zip(tokens, _depths(tokens), strict=True) if depth == 0]
    equals = next(token.end for token in outer if token.type == "EQUAL")
    parts_of = _PARTS if text.startswith(("reducer ", "ordered ")) else ()
    cuts = [equals, *(token.start for token in outer if token.start > equals and token.value in parts_of)]
    parts = [text[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [
        *_wrap(parts[0], 0, 8),
        *(f"    {line}" for part in parts[1:] for line in _wrap(part, 4, 4, parts=0 if part.startswith("let ") else 4)),
    ]


def _wrap(text: str, indent: int, hang: int, first: int = 0, parts: int | None = None) -> list[str]:
    """Return the text cut where a line may end, so that it fits after `indent` columns; later lines begin with `hang` spaces, those of
    `_branches` with `parts`.

    The first line is not cut before `first`."""
    room = WIDTH - indent
    if len(text) <= room:
        return [text]
    lines: list[str] = []
    for part in _branches(text):
        rest = " " * (hang if parts is None else parts) + part if lines else part
        while len(rest) > room and (cut := _best_cut(rest, room, hang if lines else first)) is not None:
            lines.append(rest[:cut].rstrip())
            rest = " " * hang + rest[cut:].lstrip()
        lines.append(rest)
    return lines


def _branches(text: str) -> list[str]:
    """Return the text cut before each `else` that stands outside of brackets, and behind each `let … in` before the first `if`."""
    tokens = _tokens(text)
    outer = [token for token, depth in zip(tokens, _depths(tokens), strict=True) if depth == 0]
    bound = list(takewhile(lambda token: token.type != "IF", outer))
    lets = sum(token.type == "LET" for token in bound)
    cuts = [token.end for token in islice((token for token in bound if token.type == "IN"), lets)]
    cuts += [token.start for token in outer if token.type == "ELSE"]
    return [text[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


_LOOSE = {"FOR": 0, "OTHERWISE": 0, "LIFT": 0, "YIELD": 0, "ARROW": 0, "THEN": 1, "ELSE": 1, "OR": 2, "AND": 3, "COMPARE": 4, "SIGN": 5}


def _best_cut(text: str, room: int, start: int) -> int | None:
    """Return the offset of the space to break at: the loosest that fits, and of those the last; else the first that does not fit."""
    tokens = _tokens(text)
    cuts: list[tuple[int, int, int]] = []
    for before, after, depth in zip(tokens, tokens[1:], _depths(tokens)[1:], strict=False):
        if before.end == after.start or before.end <= start or not _may_break(before, after, depth):
            continue
        cuts.append((depth, 1 if before.type == "COMMA" or _is_bound(before, after) else _LOOSE.get(after.type, 6), before.end))
    fitting = [cut for cut in cuts if cut[2] <= room]
    if fitting:
        return min(fitting, key=lambda cut: (cut[0], cut[1], -cut[2]))[2]
    return min((cut[2] for cut in cuts), default=None)


_PARTS = ("lift", "yield")


def _may_break(before: scanner.Token, after: scanner.Token, depth: int) -> bool:
    if after.type == "VBAR" or before.type in ("EQUAL", "SIGN", "TIMES", "DIVIDE", "COMPARE", "ARROW"):
        return False
    return depth > 0 or before.type == "COMMA" or _is_bound(before, after) or after.type in scanner.JOINS_PREVIOUS or after.value in _PARTS


def _is_bound(before: scanner.Token, after: scanner.Token) -> bool:
    """Tell whether a `let` ends between two tokens, and another one or an `if` is next."""
    return before.type == "IN" and after.type in ("LET", "IF")


def _tokens(text: str) -> list[scanner.Token]:
    return scanner.scan(Source("", text)).lexemes


def _depths(tokens: Sequence[scanner.Token]) -> list[int]:
    """Return how many brackets enclose each token; braces of a knob count, and closing brackets lie outside."""
    depth, depths = 0, []
    for token in tokens:
        if token.type in ("RPAR", "RSQB", "RBRACE"):
            depth -= 1
        depths.append(depth)
        if token.type in ("LPAR", "LSQB", "LBRACE"):
            depth += 1
    return depths
