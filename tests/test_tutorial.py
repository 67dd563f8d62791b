"""docs/tutorial: the blocks of each lesson run in their order, and print what stands below them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import assert_blocks_print

from tensorlang.diagnostics import Source
from tensorlang.syntax.format import fmt
from tensorlang.syntax.parse import parse

LESSONS = sorted((Path(__file__).parents[1] / "docs" / "tutorial").glob("[0-9]*.md"))
PART = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```)?", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_every_block_runs_and_prints_what_stands_below_it(
    lesson: Path, update_golden: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    assert assert_blocks_print(lesson, PART, update=update_golden)


def test_there_are_five_lessons_and_the_first_page_leads_to_each() -> None:
    index = (LESSONS[0].parent / "index.md").read_text("utf-8")
    assert [lesson.name for lesson in LESSONS] == re.findall(r"\]\((\d-[\w-]+\.md)\)", index)
    assert len(LESSONS) == 5


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_programs_in_files_are_read_and_laid_out(lesson: Path) -> None:
    for text in re.findall(r"^```tl\n(.*?)^```", lesson.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        assert parse(Source("f.tl", text)).declarations
        assert fmt(Source("f.tl", text)) == text
