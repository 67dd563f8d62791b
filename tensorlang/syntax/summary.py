"""What a file offers, for people: each declaration's header and the comment right above it."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang.syntax import nodes as sx
from tensorlang.syntax.printer import header, show


@dataclass(frozen=True, slots=True)
class Entry:
    """One declaration: its name, what it is, its header as text, and its comment."""

    name: str
    kind: str
    signature: str
    doc: str

    @property
    def brief(self) -> str:
        """The first line of the comment."""
        return self.doc.partition("\n")[0]


def entries(file: sx.File, *, functions: bool = False) -> tuple[Entry, ...]:
    """Return the operators of a file in its order, with `functions` also its functions; not those that stay in the file."""
    found: list[Entry] = []
    for declaration in file.declarations:
        match declaration:
            case sx.Operator(name, needs=()) if not name.startswith("_"):
                found.append(Entry(name, "op", header(declaration), declaration.doc))
            case sx.ScalarFunction(name) if functions and not name.startswith("_"):
                found.append(Entry(name, "fn", show(declaration), declaration.doc))
            case _:
                pass
    return tuple(found)


def purpose(file: sx.File) -> str:
    """Return the comment that a file begins with, apart from its first declaration; "" without one."""
    text = file.span.source.text
    lines: list[str] = []
    for line in text.split("\n"):
        if not line.startswith("#"):
            return " ".join(lines) if not line.strip() else ""
        lines.append(line.removeprefix("#").strip())
    return ""


def documentation(operator: sx.Operator) -> str:
    """Return an operator's comment and header, as `help` shows them."""
    return f"{operator.doc}\n\n{header(operator)}" if operator.doc else header(operator)
