"""docs/extern.md: its blocks run in their order, and print what stands below them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import assert_blocks_print

PAGE = Path(__file__).parents[2] / "docs" / "extern.md"
PART = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```)?", re.MULTILINE | re.DOTALL)


def test_every_block_runs_and_prints_what_stands_below_it(update_golden: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path))
    assert assert_blocks_print(PAGE, PART, update=update_golden)
