"""HTML for notebooks. Whatever text comes from outside goes through `html_text`, here and nowhere else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from tensorlang.diagnostics import plain_text


def html_text(text: object) -> str:
    """Return a text as HTML that shows it and does nothing else."""
    return html.escape(plain_text(str(text)), quote=True)


def table(header: Sequence[str], rows: Iterable[Sequence[object]], left: frozenset[int] = frozenset()) -> str:
    """Return a table; columns are right-aligned but those in `left`."""
    sides = ["left" if k in left else "right" for k in range(len(header))]
    head = "".join(f'<th style="text-align:{side}">{html_text(name)}</th>' for name, side in zip(header, sides, strict=True))
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:{side}">{html_text(cell)}</td>' for cell, side in zip(row, sides, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
