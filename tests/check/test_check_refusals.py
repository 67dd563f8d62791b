"""Every wrong program ends in exactly one diagnostic that says what, where, why and how to cure it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tensorlang.check.definition import check_module
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Diagnostic, Source, render
from tensorlang.syntax.parse import parse

FOLDER = Path(__file__).parent.parent / "golden" / "bad_check"


def refused(path: Path) -> list[Diagnostic]:
    try:
        return check_module(load_module(parse(Source(path.name, path.read_text("utf-8")))))
    except CompileError as problem:
        return list(problem.diagnostics)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.tl")), ids=lambda p: p.stem)
def test_a_wrong_program_is_refused_with_place_reason_and_cure(path: Path, golden: Callable[[Path, str], None]) -> None:
    found = refused(path)
    assert len(found) == 1, "\n\n".join(render(d) for d in found)
    assert found[0].labels
    assert found[0].help or found[0].code.startswith("T03")
    golden(path.with_suffix(".expected"), render(found[0]) + "\n")
