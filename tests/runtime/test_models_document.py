"""docs/models.md: its program runs, and prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
END = "the end of a block\n"


def test_the_program_of_the_page_prints_what_it_says(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("```python") == 8
    program = "".join(f"{block}\nprint({END!r}, end='')\n" for block, _ in blocks)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TENSORLANG_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.stderr, done.stdout.split(END)) == ("", [*(said for _, said in blocks), ""])
    assert (tmp_path / "trace.json").is_file()
