"""Pages whose blocks of Python run in their order, and print the text that stands below each; the terms of the glossary."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any


def assert_blocks_print(path: Path, pattern: re.Pattern[str], *, update: bool) -> list[re.Match[str]]:
    """Run the blocks that `pattern` finds (groups `code` and `output`) in one namespace, and return them.

    Asserts that each prints its output, or nothing where the page shows none; with `update` the page is rewritten instead."""
    page = path.read_text("utf-8")
    parts = list(pattern.finditer(page))
    names: dict[str, Any] = {}
    printed = []
    for part in parts:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(part["code"], path.name, "exec"), names)
        printed.append(out.getvalue())
    if update:
        for part, text in reversed([(p, t) for p, t in zip(parts, printed, strict=True) if p["output"] is not None]):
            page = page[: part.start("output")] + text + page[part.end("output") :]
        path.write_text(page, "utf-8")
    else:
        assert printed == [part["output"] or "" for part in parts]
    return parts


def glossary() -> list[str]:
    """Return the terms of the glossary, as they stand there."""
    page = Path(__file__).parents[1] / "docs" / "glossary.md"
    return re.findall(r"^- \*\*([\w -]+)\*\*:", page.read_text("utf-8"), re.MULTILINE)
