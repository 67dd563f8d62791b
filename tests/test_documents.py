"""Documents name files, modules and pages that exist, and the glossary is in order."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from pages import glossary

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import modules  # noqa: E402
import stdlib_page  # noqa: E402

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])


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
    folders = ["", "tensorlang", "tensorlang/schedule", "stdlib"]
    missing = [name for name in sorted(named) if not any((ROOT / folder / name).exists() for folder in folders)]
    assert missing == []
    assert len(named) > 25


def test_every_package_has_a_row() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    packages = [p.parent for package in ("tensorlang", "codegen") for p in (ROOT / package).glob("*/__init__.py")]
    folders = [p.relative_to(ROOT).as_posix() for p in packages]
    assert [folder for folder in folders if f"| `{folder}` |" not in text] == []


def test_the_list_of_modules_is_that_of_the_files() -> None:
    assert modules.main(["--check"]) == 0


def test_every_module_of_the_compiler_says_what_it_is_for() -> None:
    files = [path for package in modules.PACKAGES for path in (ROOT / package).rglob("*.py") if path.stat().st_size]
    assert [path for path in files if not modules.sentence(path)] == []


def test_the_glossary_is_sorted_and_says_each_word_once() -> None:
    assert len(glossary()) >= 100
    assert glossary() == sorted(set(glossary()), key=str.lower)


def test_the_page_of_the_standard_library_is_that_of_its_files() -> None:
    assert stdlib_page.main(["--check"]) == 0
