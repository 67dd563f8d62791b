"""docs/errors-running.md: every example is refused with the code it stands under."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tensorlang as tl

TEXT = (Path(__file__).parents[2] / "docs" / "errors-running.md").read_text("utf-8")
PROLOGUE, *_ = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
EXAMPLES = re.findall(r"### (\w+) [^\n]*\n[^#]*?```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize(("code", "example"), EXAMPLES, ids=[code for code, _ in EXAMPLES])
def test_an_example_is_refused_with_its_code(code: str, example: str) -> None:
    scope: dict[str, Any] = {}
    exec(PROLOGUE, scope)
    with pytest.raises(tl.CompileError) as refused:
        exec(example, scope)
    assert [d.code for d in refused.value.diagnostics] == [code]


def test_every_example_is_found() -> None:
    assert len(EXAMPLES) == TEXT.count("### ") == TEXT.count("```python") - 1
