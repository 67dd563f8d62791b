"""docs/gradients.md: every block runs, in order, and prints what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

from pages import assert_blocks_print

PAGE = Path(__file__).parents[2] / "docs" / "gradients.md"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<output>.*?)```)?", re.DOTALL)


def test_every_block_runs(update_golden: bool) -> None:
    assert len(assert_blocks_print(PAGE, BLOCK, update=update_golden)) > 1
