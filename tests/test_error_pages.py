"""docs/errors-proofs.md, -models.md, -tools.md, -warnings.md: every example is refused with exactly the code it stands under."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorlang.check.definition import check_module
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Source
from tensorlang.shell.checking import check_source
from tensorlang.syntax.parse import parse

DOCS = Path(__file__).parents[1] / "docs"
ENTRY = re.compile(r"^### ([PTRSOCW]\d{3,4}) .*?(?=^##|\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITHOUT_EXAMPLE = {"T0307", "C0001"}
"""A proof that is not found, a defect of the compiler: whoever knows a program that leads there should repair the cause."""


def entries() -> Iterator[tuple[str, str, str]]:
    for page in ("errors-proofs.md", "errors-models.md", "errors-tools.md", "errors-torch.md"):
        for entry in ENTRY.finditer((DOCS / page).read_text("utf-8")):
            yield page, entry[1], entry[0]


def prologue(page: str) -> str:
    """Return the first Python block of a page that has its imports: what all examples begin with."""
    return next(body for kind, body in BLOCK.findall((DOCS / page).read_text("utf-8")) if kind == "python" and "import " in body)


CASES = [(page, code, text) for page, code, text in entries() if code not in WITHOUT_EXAMPLE]


@pytest.mark.parametrize(("page", "code", "entry"), CASES, ids=[code for _, code, _ in CASES])
def test_an_example_is_refused_with_its_code(
    page: str, code: str, entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "objects"))
    ((kind, example),) = BLOCK.findall(entry)
    if kind == "tl":
        assert [d.code for d in check_module(load_module(parse(Source(page, example))))] == [code]
        return
    scope: dict[str, Any] = {}
    exec(prologue(page), scope)
    with pytest.raises(CompileError) as refused:
        exec(example, scope)
    assert [d.code for d in refused.value.diagnostics] == [code]


WARNINGS = [(entry[1], BLOCK.findall(entry[0])[0][1]) for entry in ENTRY.finditer((DOCS / "errors-warnings.md").read_text("utf-8"))]


@pytest.mark.parametrize(("code", "example"), WARNINGS, ids=[code for code, _ in WARNINGS])
def test_an_example_of_a_warning_is_right_and_gives_that_warning_alone(code: str, example: str) -> None:
    found = check_source(Source("errors-warnings.md", example))
    assert found.mistakes == ()
    [warning] = found.warnings
    assert (warning.code, warning.severity) == (code, "warning")
    assert warning.labels and warning.help


def test_every_other_entry_says_why_it_has_no_example() -> None:
    assert {code for _, code, text in entries() if not BLOCK.search(text)} == WITHOUT_EXAMPLE
