"""Every code that the source can give has exactly one entry in docs/errors*.md, and no entry lacks a code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tensorlang.shell import pages

ROOT = Path(__file__).parents[1]
CODE = re.compile(r"[PTRSOCW]\d{3,4}")
QUOTED = re.compile(rf"""["']{CODE.pattern}["']""")
ENTRY = re.compile(r"^### ([PTRSOCW]\d{3,4}) ", re.MULTILINE)
PACKAGES = ("tensorlang", "stdlib", "polyhedral", "codegen")


def written() -> set[str]:
    """Return every text in the source that is a code and nothing else."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text("utf-8")
            for node in ast.walk(ast.parse(text)) if QUOTED.search(text) else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                    found.add(node.value)
    return found


def entries() -> Counter[str]:
    return Counter(code for page in sorted((ROOT / "docs").glob("errors*.md")) for code in ENTRY.findall(page.read_text("utf-8")))


def test_every_code_has_an_entry_and_every_entry_a_code() -> None:
    listed = set(entries())
    assert (sorted(written() - listed), sorted(listed - written())) == ([], [])


def test_no_code_has_two_entries() -> None:
    assert [code for code, count in entries().items() if count > 1] == []


def test_the_first_page_leads_to_the_others() -> None:
    first = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert [p.name for p in sorted((ROOT / "docs").glob("errors-*.md")) if f"({p.name})" not in first] == []


def test_the_package_has_the_page_of_every_code() -> None:
    assert set(pages.entries()) == set(entries())
