"""docs/certificates.md: its blocks run in their order and print what stands below them; it lists the faults that tests plant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kinds_of_fault import KINDS
from pages import assert_blocks_print

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "certificates.md"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n```text\n(?P<output>.*?)```", re.DOTALL)


def test_every_block_prints_what_the_page_says(update_golden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert len(assert_blocks_print(PAGE, BLOCK, update=update_golden)) == 3


def test_the_page_lists_every_kind_of_fault() -> None:
    assert re.findall(r"^- (.*)$", PAGE.read_text("utf-8").split("## Faults it finds")[1].split("## ")[0], re.MULTILINE) == list(KINDS)
