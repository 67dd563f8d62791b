"""HTML for notebooks. Whatever text comes from outside goes through `html_text`, or `html.escape`, here and nowhere else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from tensorlang.diagnostics import Line, Style, plain_text

_STYLES: dict[Style, str] = {
    "error": "color:#c62828;font-weight:bold",
    "warning": "color:#b35900;font-weight:bold",
    "bold": "font-weight:bold",
    "frame": "color:#1f4e8c",
    "primary": "color:#c62828;font-weight:bold",
    "secondary": "color:#1f4e8c",
    "note": "font-weight:bold",
    "help": "color:#2e7d32;font-weight:bold",
}


def html_text(text: object) -> str:
    """Return a text as HTML that shows it and does nothing else."""
    return html.escape(plain_text(str(text)), quote=True)


def html_lines(text: str, *, is_html: bool = False) -> str:
    """Return lines of text as they are, in letters of one width."""
    lines = text if is_html else "\n".join(map(html_text, text.split("\n")))
    return f'<pre style="line-height:1.35;overflow-x:auto">{lines}</pre>'


def table(header: Sequence[str], rows: Iterable[Sequence[object]], left: frozenset[int] = frozenset()) -> str:
    """Return a table; columns are right-aligned but those in `left`."""
    sides = ["left" if k in left else "right" for k in range(len(header))]
    head = "".join(f'<th style="text-align:{side}">{html_text(name)}</th>' for name, side in zip(header, sides, strict=True))
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:{side}">{html_text(cell)}</td>' for cell, side in zip(row, sides, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def diagnostics_html(diagnostics: Iterable[Sequence[Line]]) -> str:
    """Return diagnostics, each as `tensorlang.diagnostics.styled` returns it, in the colours that a terminal shows them in."""
    return "".join(html_lines("\n".join("".join(map(_piece, line)) for line in lines), is_html=True) for lines in diagnostics)


def _piece(piece: tuple[str, Style]) -> str:
    text, style = html.escape(piece[0], quote=True), _STYLES.get(piece[1])
    return text if style is None else f'<span style="{style}">{text}</span>'


def operator_html(signature: str, purpose: str, program: str, loops: str) -> str:
    """Return an operator: its signature, its documentation, how it is written, and the loops of its latest kernel where it has one."""
    parts = [f"<div><code><strong>{html_text(signature)}</strong></code></div>"]
    if purpose:
        parts.append(f"<div>{html_text(purpose)}</div>")
    parts.append(folded("as it is written", html_lines(program)))
    parts.append(folded("loops", html_lines(loops)) if loops else "<div>not compiled yet: call it to see its loops</div>")
    return f"<div>{''.join(parts)}</div>"


def folded(title: str, body: str) -> str:
    """Return `body`, which is HTML, to be shown when `title` is clicked."""
    return f"<details><summary>{html_text(title)}</summary>{body}</details>"
