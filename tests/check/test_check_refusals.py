"""Every wrong program ends in exactly one diagnostic that says what, where, why and how to cure it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden_case import cases, source

from tensorlang.check.definition import check_module
from tensorlang.check.module import load_module
from tensorlang.diagnostics import CompileError, Diagnostic, Source, render
from tensorlang.syntax.parse import parse


def refused(path: Path) -> list[Diagnostic]:
    try:
        return check_module(load_module(parse(Source(path.name, source(path)))))
    except CompileError as problem:
        return list(problem.diagnostics)


@pytest.mark.parametrize("path", cases("bad_check"), ids=lambda p: p.stem)
def test_a_wrong_program_is_refused_with_place_reason_and_cure(path: Path, golden_case: Callable[[Path, str], None]) -> None:
    found = refused(path)
    assert len(found) == 1, "\n\n".join(render(d) for d in found)
    assert found[0].labels
    assert found[0].help or found[0].code.startswith("T03")
    golden_case(path, render(found[0]) + "\n")
