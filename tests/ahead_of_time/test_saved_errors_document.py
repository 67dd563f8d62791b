"""docs/errors-saved.md: every example is refused with the code it stands under; docs/ahead-of-time.md: its program runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tensorlang as tl

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "errors-saved.md").read_text("utf-8")
PROLOGUE, *_ = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
EXAMPLES = re.findall(r"### (\w+) [^\n]*\n[^#]*?```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize(("code", "example"), EXAMPLES, ids=[code for code, _ in EXAMPLES])
def test_an_example_is_refused_with_its_code(code: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(PROLOGUE, scope)
    with pytest.raises((tl.CompileError, tl.SavedError)) as refused:
        exec(example, scope)
    found = [refused.value.code] if isinstance(refused.value, tl.SavedError) else [d.code for d in refused.value.diagnostics]
    assert found == [code]


def test_every_example_is_found() -> None:
    assert len(EXAMPLES) == TEXT.count("### ") == TEXT.count("```python") - 1


def test_the_program_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for program in re.findall(r"```python\n(.*?)```", (DOCS / "ahead-of-time.md").read_text("utf-8"), re.DOTALL):
        exec(program, {})
