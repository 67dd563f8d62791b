"""docs/pytorch.md: its programs run, and print what stands behind them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_the_programs_of_the_page_run() -> None:
    names: dict[str, Any] = {}
    printed = ""
    for kind, body in BLOCK.findall(PAGE.read_text("utf-8")):
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(body, names)
            printed = out.getvalue()
        else:
            assert printed == body
