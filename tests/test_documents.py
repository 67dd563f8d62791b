"""Documents name files, modules and pages that exist, and the glossary is in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    words = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", words)
    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_every_folder_and_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    named = set(re.findall(r"`([\w/]+(?:\.py|\.lark|\.toml))`", text)) | set(
        re.findall(r"`((?:tensorlang|codegen|stdlib|polyhedral)/\w+)`", text)
    )
    folders = ["", "tensorlang", "tensorlang/syntax", "tensorlang/check", "tensorlang/graph", "stdlib", "codegen/loops"]
    missing = [name for name in sorted(named) if not any((ROOT / folder / name).exists() for folder in folders)]
    assert missing == []
    assert len(named) > 25


def test_every_package_has_a_paragraph() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    folders = [p.parent.relative_to(ROOT) for package in ("tensorlang", "codegen") for p in (ROOT / package).glob("*/__init__.py")]
    assert [str(f) for f in folders if f"`{f}`" not in text and f"`{f.name}`" not in text] == []


def test_the_glossary_is_sorted_and_says_each_word_once() -> None:
    words = re.findall(r"^- \*\*([\w ]+)\*\*:", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert len(words) >= 48
    assert words == sorted(set(words))
