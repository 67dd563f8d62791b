"""The blocks of the README run in their order and print what it says; its links and commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import assert_blocks_print

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PART = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```)?", re.MULTILINE | re.DOTALL)


def test_every_block_runs_and_prints_what_stands_below_it(update_golden: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    parts = assert_blocks_print(README, PART, update=update_golden)
    assert len(parts) == 3


def test_each_example_has_at_most_twenty_lines() -> None:
    assert all(part["code"].count("\n") <= 20 for part in PART.finditer(README.read_text("utf-8")))


def test_every_link_and_every_script_exists() -> None:
    page = README.read_text("utf-8")
    named = [*re.findall(r"\]\(([\w./-]+)\)", page), *re.findall(r"python3 (\S+\.py)", page)]
    assert len(named) >= 9
    assert [name for name in named if not (ROOT / name).exists()] == []
