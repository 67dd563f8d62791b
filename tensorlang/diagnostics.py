"""Where things stand in a text, and what is wrong with them.

    Source      a named text
    Span        a half-open range of characters of a source
    Diagnostic  one problem: code, title, labelled spans (the first is the main one), notes, help

User mistakes raise `CompileError` with one or more diagnostics; a stage reports all it can find before it stops. Our own mistakes raise
`InternalError`. Codes: P syntax, T names, types, shapes and definitions, S schedules, R run-time calls, O ONNX and graphs, C command
line and environment; docs/errors.md shows an example of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    text: str = field(repr=False)
    folder: str | None = field(default=None, compare=False, repr=False)
    """Where files lie that it uses by a relative path; None for a text that lies nowhere."""

    def location(self, offset: int) -> tuple[int, int]:
        """Return the line and column, both counted from one, of a character offset."""
        return self.text.count("\n", 0, offset) + 1, offset - self.text.rfind("\n", 0, offset)

    def line(self, number: int) -> str:
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""


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


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem: what is wrong (title), where (labels), why (notes), and what to do about it (help)."""

    code: str
    title: str
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None


class CompileError(Exception):
    """The user's input is wrong. `str()` of it is the rendered diagnostics."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        return "\n\n".join(render(d) for d in self.diagnostics)


class RunError(CompileError):
    """A call is wrong: its arrays, sizes or data do not fit the operator. Codes R."""


class InternalError(Exception):
    """The compiler is wrong: names the stage and shows what it was looking at."""

    def __init__(self, stage: str, detail: str) -> None:
        super().__init__(stage, detail)
        self.stage, self.detail = stage, detail

    def __str__(self) -> str:
        return f"internal error in stage `{self.stage}`: {self.detail}\nThis is a defect of tensorlang, not of your program."


def error(
    code: str, title: str, span: Span = NOWHERE, label: str = "", *, notes: tuple[str, ...] = (), help: str | None = None
) -> CompileError:
    """Return a `CompileError` with one diagnostic and at most one label, ready to raise."""
    labels = () if span is NOWHERE else (Label(span, label),)
    return CompileError(Diagnostic(code, title, labels, notes, help))


def render(diagnostic: Diagnostic) -> str:
    """Return the diagnostic as people read it: title, each labelled line with carets, notes, help."""
    lines = [f"error[{diagnostic.code}]: {diagnostic.title}"]
    located = [(label, *label.span.source.location(label.span.start)) for label in diagnostic.labels if label.span.source is not BUILTIN]
    width = max((len(str(line)) for _, line, _ in located), default=0)
    for label, line, column in located:
        text = label.span.source.line(line)
        carets = max(1, min(label.span.end - label.span.start, len(text) - column + 1))
        lines += [
            f"{' ' * width}--> {label.span.source.name}:{line}:{column}",
            f"{' ' * width} |",
            f"{line:>{width}} | {text}",
            f"{' ' * width} | {' ' * (column - 1)}{'^' * carets}{' ' + label.text if label.text else ''}",
        ]
    lines += [f"{' ' * width} = note: {note}" for note in diagnostic.notes]
    if diagnostic.help:
        lines.append(f"{' ' * width} = help: {diagnostic.help}")
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in "\n".join(lines))


def _escaped(character: str) -> str:
    """Return a character that a terminal would obey, or could not encode, as people write it in texts: `\\x1b`."""
    return character.encode("unicode_escape").decode()
