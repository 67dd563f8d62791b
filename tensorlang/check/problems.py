"""Building the diagnostics of the checker, and the control signals that never reach the user."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from tensorlang.diagnostics import NOWHERE, CompileError, Diagnostic, Label, Span, error

__all__ = ["Diagnostic", "Label", "NeedsStatic", "counted", "did_you_mean", "error", "labelled"]


class NeedsStatic(Exception):
    """These sizes must be numbers for the program to have index expressions (rule P8)."""

    def __init__(self, sizes: frozenset[str], span: Span, what: str) -> None:
        super().__init__(sorted(sizes), what)
        self.sizes, self.span, self.what = sizes, span, what


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return a help text that names the closest known name."""
    close = get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else otherwise


def counted(number: int, noun: str) -> str:
    """Return `1 result`, `2 results`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def labelled(
    code: str, title: str, labels: Iterable[tuple[Span, str]], *, notes: tuple[str, ...] = (), help: str | None = None
) -> CompileError:
    """Return a `CompileError` with one diagnostic and several labels."""
    kept = tuple(Label(span, text) for span, text in labels if span is not NOWHERE)
    return CompileError(Diagnostic(code, title, kept, notes, help))
