"""The documents build as a site, without a broken link and without anything that a network would be needed for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import check_site  # noqa: E402
import reference  # noqa: E402
import site_hooks  # noqa: E402


def built(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_site_builds_strictly_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    done = built(tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(check_site.broken(tmp_path)) == []
    page = (tmp_path / "schedules" / "loops.html").read_text("utf-8")
    assert '<span class="k">split</span>' in page, "the lexer of the language colours its blocks"


@pytest.mark.parametrize(("link", "leads"), [("[a](nothing.md)", False), ("[a](index.md#nowhere)", False), ("[a](index.md#home)", True)])
def test_a_broken_link_fails_the_build(link: str, leads: bool, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n{link}\n")
    (tmp_path / "mkdocs.yml").write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nhooks: []\nplugins: []\nnav: [index.md]\n")
    done = built(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert (done.returncode == 0) is leads, done.stderr


def test_a_link_to_a_file_of_the_repository_becomes_its_words() -> None:
    class Page:
        class file:
            src_uri = "benchmarks/cpu.md"

    text = "[`scripts`](../../benchmarks) [page](../language.md#layout) [none](../none.md)\n\n```tl-wrong T0105\nx\n```\n"
    assert site_hooks.on_page_markdown(text, Page()) == (
        "`scripts` [page](../language.md#layout) [none](../none.md)\n\n```tensorlang\nx\n```\n"
    )


def test_the_reference_is_what_the_source_says() -> None:
    assert reference.main(["--check"]) == 0


def test_a_site_with_a_broken_link_or_a_foreign_script_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="b.html#y">b</a> <a href="c.html">c</a><script src="https://elsewhere/s.js"></script>'
    )
    (tmp_path / "b.html").write_text('<a href="a.html#x">a</a>')
    assert list(check_site.broken(tmp_path)) == [
        "a.html: b.html#y has no such place",
        "a.html: nothing is at c.html",
        "a.html: loads https://elsewhere/s.js, which is not part of the site",
    ]
