"""Where things stand in a text, and what is wrong with them.

    Source      a named text
    Span        a half-open range of characters of a source
    Diagnostic  one problem: code, title, labelled spans (the first is the main one), notes, help, and the edits that cure it
    Edit        text that takes the place of a span

User mistakes raise `CompileError` with one or more diagnostics; a stage reports all it can find before it stops. Our own mistakes raise
`InternalError`. Codes: P syntax, T names, types, shapes and definitions, S schedules, R run-time calls, O ONNX and graphs, C command
line and environment, W warnings; docs/errors.md shows an example of each, and `tensorlang explain CODE` prints it.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, TypeVar, cast


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    text: str = field(repr=False)
    folder: str | None = field(default=None, compare=False, repr=False)
    """Where files lie that it uses by a relative path; None for a text that lies nowhere."""
    skipped: int = 0
    """How many lines stand before the first that its author wrote."""

    def location(self, offset: int) -> tuple[int, int]:
        """Return the line and column, both counted from one, of a character offset; what stands before the first line is taken for its
        beginning."""
        number = self.text.count("\n", 0, offset) + 1 - self.skipped
        return (number, offset - self.text.rfind("\n", 0, offset)) if number > 0 else (1, 1)

    def line(self, number: int) -> str:
        lines = self.text.split("\n")
        return lines[number - 1 + self.skipped] if 0 < number <= len(lines) - self.skipped else ""


BUILTIN = Source("<builtin>", "")


@dataclass(frozen=True, slots=True)
class Span:
    source: Source
    start: int
    end: int

    def to(self, other: Span) -> Span:
        """Return the smallest span that covers both."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))


NOWHERE = Span(BUILTIN, 0, 0)


@dataclass(frozen=True, slots=True)
class Label:
    span: Span
    text: str = ""


Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Text that takes the place of a span; an empty span is where it is inserted."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem: what is wrong (title), where (labels), why (notes), and what to do about it (help).

    `edits`: what help says as changes of the text, where these are surely what is meant."""

    code: str
    title: str
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    edits: tuple[Edit, ...] = ()
    severity: Severity = "error"


class CompileError(Exception):
    """The user's input is wrong. `str()` of it is the rendered diagnostics."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.diagnostics = diagnostics
        self.add_note(more_about(diagnostics))

    def __str__(self) -> str:
        return "\n\n".join(render(d) for d in self.diagnostics)

    def _repr_html_(self) -> str:
        from tensorlang.html import diagnostics_html

        return diagnostics_html(map(styled, self.diagnostics))


class RunError(CompileError, ValueError):
    """A call is wrong: its arrays, sizes or data do not fit the operator. Codes R."""


class RunTypeError(RunError, TypeError):
    """A call is given something of a wrong type."""


class CompileWarning(UserWarning):
    """A program is right and says something that its author hardly means. Codes W."""


class FaultWarning(RuntimeWarning):
    """A part of the compiler is at fault where there is another way. What runs is right; it is compiled more often than it need be."""


def warn_of_fault(what: str) -> None:
    """Tell users what was done another way because the compiler is at fault."""
    warnings.warn(what, FaultWarning, stacklevel=3)


F = TypeVar("F", bound=Callable[..., Any])


def trimmed(function: F) -> F:
    """Let what a function of the API refuses end its traceback there: what the compiler called to find it out is no news to the caller."""

    @wraps(function)
    def at_the_edge(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except CompileError as refused:
            __tracebackhide__ = True  # pytest and IPython leave out a frame that says so
            raise refused.with_traceback(None) from refused.__cause__

    return cast(F, at_the_edge)


class InternalError(Exception):
    """The compiler is wrong: names the stage and shows what it was looking at."""

    def __init__(self, stage: str, detail: str) -> None:
        super().__init__(stage, detail)
        self.stage, self.detail = stage, detail

    def __str__(self) -> str:
        return f"internal error in stage `{self.stage}`: {self.detail}\nThis is a defect of tensorlang, not of your program."


def counted(number: int, noun: str) -> str:
    """Return `1 result`, `2 results`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def error(
    code: str,
    title: str,
    span: Span = NOWHERE,
    label: str = "",
    *,
    notes: tuple[str, ...] = (),
    help: str | None = None,
    edits: tuple[Edit, ...] = (),
) -> CompileError:
    """Return a `CompileError` with one diagnostic and at most one label, ready to raise: a `RunError` for codes R."""
    labels = () if span is NOWHERE else (Label(span, label),)
    return exception(Diagnostic(code, title, labels, notes, help, edits))


OF_TYPES = frozenset(("R0204", "R0207", "R0303", "R0305", "R0311", "R0314"))
"""Codes of calls that are given something of a wrong type."""


def exception(*diagnostics: Diagnostic) -> CompileError:
    """Return the exception for diagnostics: `RunError` where a call is wrong, `RunTypeError` where a type is all that is wrong with it."""
    if not all(d.code.startswith("R") for d in diagnostics):
        return CompileError(*diagnostics)
    return RunTypeError(*diagnostics) if all(d.code in OF_TYPES for d in diagnostics) else RunError(*diagnostics)


def more_about(diagnostics: Sequence[Diagnostic]) -> str:
    """Return the line that names the commands which explain these codes."""
    codes = list(dict.fromkeys(d.code for d in diagnostics))
    return f"more about this: {', '.join(f'`tensorlang explain {code}`' for code in codes[:3])}" if codes else ""


# ---------------------------------------------------------------- rendering

Style = Literal["", "error", "warning", "bold", "frame", "primary", "secondary", "note", "help"]
Line = list[tuple[str, Style]]


def render(diagnostic: Diagnostic) -> str:
    """Return the diagnostic as people read it: title, each labelled line once with what points at it, notes, help."""
    return "\n".join("".join(text for text, _ in line) for line in styled(diagnostic))


def styled(diagnostic: Diagnostic) -> list[Line]:
    """Return the lines of `render` as pieces of text, each with what it is for."""
    located = [label for label in diagnostic.labels if label.span.source is not BUILTIN]
    width = max((len(str(_line_of(label))) for label in located), default=0)
    margin = " " * width
    lines: list[Line] = [[(f"{diagnostic.severity}[{diagnostic.code}]", diagnostic.severity), (f": {diagnostic.title}", "bold")]]
    for source in dict.fromkeys(label.span.source for label in located):
        first = next(label for label in located if label.span.source is source)
        arrow = "-->" if source is located[0].span.source else ":::"
        line, column = source.location(first.span.start)
        lines += [[(f"{margin}{arrow}", "frame"), (f" {source.name}:{line}:{column}", "")], [(f"{margin} |", "frame")]]
        lines += _excerpt([label for label in located if label.span.source is source], located[0], width)
    lines += [[(f"{margin} = ", "frame"), ("note", "note"), (f": {note}", "")] for note in diagnostic.notes]
    if diagnostic.help:
        lines.append([(f"{margin} = ", "frame"), ("help", "help"), (f": {diagnostic.help}", "")])
    return [part for line in lines for part in _printable(line)]


def _line_of(label: Label) -> int:
    return label.span.source.location(label.span.start)[0]


def _excerpt(labels: Sequence[Label], main: Label, width: int) -> Iterator[Line]:
    """Yield the lines of one file that have labels, in their order, each with its labels below it."""
    source, before = labels[0].span.source, 0
    for number in sorted({_line_of(label) for label in labels}):
        if before and number > before + 1:
            yield [("...", "frame")]
        before = number
        yield [(f"{number:>{width}} |", "frame"), (f" {source.line(number)}", "")]
        marks = [_Mark.of(label, label is main) for label in labels if _line_of(label) == number]
        for row in _rows(marks):
            for line in row:
                yield [(f"{' ' * width} |", "frame"), (" ", ""), *line]


@dataclass(frozen=True, slots=True)
class _Mark:
    """What points at a part of a line: columns that a terminal counts, and what is said of it."""

    pad: str
    start: int
    end: int
    text: str
    main: bool

    @staticmethod
    def of(label: Label, main: bool) -> _Mark:
        number, column = label.span.source.location(label.span.start)
        line = label.span.source.line(number)
        length = max(1, min(label.span.end - label.span.start, len(line) - column + 1))
        start = text_columns(line[: column - 1])
        return _Mark(line[: column - 1], start, start + max(1, text_columns(line[column - 1 : column - 1 + length])), label.text, main)

    @property
    def style(self) -> Style:
        return "primary" if self.main else "secondary"


def text_columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def _rows(marks: Sequence[_Mark]) -> Iterator[list[Line]]:
    """Yield the marks as rows in which none covers another, that of the main one first, each with the texts below it."""
    rest = sorted(marks, key=lambda mark: (not mark.main, mark.start))
    while rest:
        row: list[_Mark] = []
        for mark in rest:
            if all(mark.end < other.start or other.end < mark.start for other in row):
                row.append(mark)
        rest = [mark for mark in rest if mark not in row]
        yield _row(sorted(row, key=lambda mark: mark.start))


def _row(marks: Sequence[_Mark]) -> list[Line]:
    """Return the signs under a line, the text of the last behind them, those of the others below them from right to left."""
    inline, hanging = marks[-1], [mark for mark in marks[:-1] if mark.text]
    signs = [(mark, ("^" if mark.main else "-") * (mark.end - mark.start)) for mark in marks]
    lines = [_placed(signs)]
    if inline.text:
        lines[0].append((f" {inline.text}", inline.style))
    if hanging:
        lines.append(_placed([(mark, "|") for mark in hanging]))
    for position in reversed(range(len(hanging))):
        lines.append(_placed([*((mark, "|") for mark in hanging[:position]), (hanging[position], hanging[position].text)]))
    return lines


def _placed(pieces: Iterable[tuple[_Mark, str]]) -> Line:
    """Return texts at the columns of their marks; a tab of the line above stays one, so that columns agree."""
    line: Line = []
    position = 0
    pad = ""
    for mark, text in pieces:
        gap = mark.pad[len(pad) :] if not line else " " * (mark.start - position)
        line += [("".join("\t" if c == "\t" else " " * text_columns(c) for c in gap) if not line else gap, ""), (text, mark.style)]
        position, pad = mark.start + text_columns(text), mark.pad
    return line


def _printable(line: Line) -> Iterator[Line]:
    """Yield a line, or several where a text has line ends, with what a terminal would obey written out."""
    out: Line = []
    for text, style in line:
        first, *others = text.split("\n")
        out.append(("".join(c if c.isprintable() or c == "\t" else _escaped(c) for c in first), style))
        for other in others:
            yield out
            out = [("".join(c if c.isprintable() or c == "\t" else _escaped(c) for c in other), style)]
    yield out


def plain_text(text: str) -> str:
    """Return a text from outside on one line, with what a terminal would obey written out."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    """Return a character that a terminal would obey, or could not encode, as people write it in texts: `\\x1b`."""
    return character.encode("unicode_escape").decode()
