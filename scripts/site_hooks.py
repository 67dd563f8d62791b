"""What MkDocs does to pages: links to files of the repository, kinds of blocks that tests tell apart, and what would need a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_LINK = re.compile(r"(?<!!)\[([^\]\n]*(?:\n[^\]\n]*)?)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^```(tl|tl-\w+|tree|loops|device|refused|ebnf-words)(?: [^\n]*)?$", re.MULTILINE)
_LANGUAGE = {"tree": "text", "loops": "text", "device": "text", "refused": "text", "ebnf-words": "ebnf"}


_SHIM = "https://unpkg.com/iframe-worker/shim"
"""What the theme would load for searching pages that are opened as files; docs/assets/worker.js does it."""


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Return a page that loads nothing from elsewhere."""
    return output.replace(_SHIM, "../" * page.url.count("/") + "assets/worker.js")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page as the site has it: a link to a file that is no page becomes its words, every block of the language is coloured."""
    folder = (DOCS / page.file.src_uri).parent

    def linked(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        inside = target.is_relative_to(DOCS) and target.suffix in (".md", ".svg")
        return match[0] if inside or not target.exists() else match[1]

    text = _FENCE.sub(lambda match: f"```{_LANGUAGE.get(match[1], 'tensorlang')}", markdown)
    return _LINK.sub(linked, text)
