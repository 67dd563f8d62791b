"""Diagnostics on a stream: in colours where it is a terminal, or where `--color`, FORCE_COLOR or NO_COLOR say so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from tensorlang.diagnostics import Diagnostic, error, more_about, styled

CHOICES = ("auto", "always", "never")
_STYLES = {
    "error": "bold red",
    "warning": "bold yellow",
    "bold": "bold",
    "frame": "blue",
    "primary": "bold red",
    "secondary": "blue",
    "note": "bold",
    "help": "bold green",
}
_chosen = "auto"


def colour_chosen(argv: Sequence[str]) -> list[str]:
    """Return a command line without `--color WHEN`, which is remembered. Raises CompileError C0211 for a word that is no choice."""
    global _chosen
    _chosen, rest, words = "auto", list[str](), iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in ("--color", "--colour"):
            rest.append(word)
            continue
        _chosen = value if equals else next(words, "")
        if _chosen not in CHOICES:
            given, _chosen = _chosen, "auto"
            raise error("C0211", f"`--color` is `{given}`", help=f"it is {', '.join(f'`{c}`' for c in CHOICES)}")
    return rest


def is_coloured(stream: TextIO) -> bool:
    """Tell whether a stream is written to in colours."""
    if _chosen != "auto":
        return _chosen == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def write_diagnostics(diagnostics: Sequence[Diagnostic], stream: TextIO) -> None:
    """Write diagnostics with an empty line between them, and the commands that explain their codes."""
    lines = [line for k, d in enumerate(diagnostics) for line in ([[("", "")]] * (k > 0) + styled(d))]
    lines += [[("", "")], [(more_about(diagnostics), "note")]] if diagnostics else []
    if not is_coloured(stream):
        stream.write("".join(f"{''.join(text for text, _ in line)}\n" for line in lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, force_terminal=True, highlight=False, soft_wrap=True, color_system="standard", no_color=False)
    for line in lines:
        console.print(Text.assemble(*((text, _STYLES.get(style, "")) for text, style in line)))
